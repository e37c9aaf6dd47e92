// y = softmax(a) or its logarithm. A thread group (thread_group.glsl) computes one row in three
// loops: they compute the largest element, the sum of exponentials relative to it, and the result.
// An element belongs to the same invocation in all loops, so that y may be a. A row that is divided
// into segments (params/rows.h) needs a phase for each loop. A row that fits into registers is
// loaded once.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/exp_log.glsl"
#include "include/rows.glsl"
#include "params/softmax.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint THREADS = 8;
layout(constant_id = 2) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint FORM = TSR_ROW_WIDE; // a form (TSR_ROW_…) that a and y both have
layout(constant_id = 5) const uint LOGARITHM = 0;
layout(constant_id = 6) const uint PHASE = TSR_PHASE_WHOLE;
// the number of groups of four elements that an invocation keeps in registers
layout(constant_id = 7) const uint HELD = 0;

layout(push_constant) uniform Push {
    tsr_softmax_params p;
};

#define ROW_LENGTH p.count
#define PARTIALS uvec2(p.a_strides[3], p.b_strides[3])
#include "include/segments.glsl"

vec4 load(uvec2 a, uint j)
{
    return tsr_load_row4(a, p.a_step, j, p.count, A_DTYPE, FORM, uintBitsToFloat(0xff800000u));
}

// The elements that an invocation keeps in registers, HELD groups of four; later their exponentials.
vec4 kept[8];

vec4 sum_of(vec4 a, vec4 b)
{
    precise vec4 sum = a + b;
    return sum;
}

// Adds the exponentials of group number h, relative to `shift`, to `sums`. Replaces the group's elements by these exponentials or, for the
// logarithm, by element − shift.
void add_group(row_part own, uint h, float shift, inout vec4 sums)
{
    if (h < HELD) {
        vec4 value = kept[h] - shift;
        vec4 power = tsr_exp4_down(value);
        sums = sum_of(sums, mix(vec4(0.0), power, held_there(held_first(own, h), FORM)));
        kept[h] = LOGARITHM != 0u ? value : power;
    }
}

// Computes a row that stays in registers. Loops over it find the largest element, add up the exponentials, and store the result.
void held_row(row_part own, uvec2 a, uvec2 y)
{
    [[unroll]] for (uint h = 0u; h < HELD; h++)
        kept[h] = load(a, held_within(held_first(own, h)));
    vec4 largest = vec4(uintBitsToFloat(0xff800000u));
    [[unroll]] for (uint h = 0u; h < HELD; h++)
        largest = mix(largest, max(largest, kept[h]), held_there(held_first(own, h), FORM));
    float shift = row_max(own, largest);

    // There is no loop, because SwiftShader's optimizer, which unrolls loops after specialization,
    // drops `precise`, which the exponential needs.
    vec4 sums = vec4(0.0);
    add_group(own, 0u, shift, sums);
    add_group(own, 1u, shift, sums);
    add_group(own, 2u, shift, sums);
    add_group(own, 3u, shift, sums);
    add_group(own, 4u, shift, sums);
    add_group(own, 5u, shift, sums);
    add_group(own, 6u, shift, sums);
    add_group(own, 7u, shift, sums);
    float total = 0.0;
    add_segment(total, sums);
    float sum = row_sum(own, TSR_PHASE_SECOND, 0u, 0u, total);

    float scale = 1.0 / sum;
    float log_sum = tsr_log(sum);
    [[unroll]] for (uint h = 0u; h < HELD; h++) {
        uint j = held_first(own, h);
        if (j < own.end)
            tsr_store_row4(y, p.y_step, j, p.count, Y_DTYPE, FORM,
                           LOGARITHM != 0u ? kept[h] - log_sum : kept[h] * scale);
    }
}

void main()
{
    row_part own = own_part(p.jobs);
    uvec4 at = tsr_row_position(own.row, p.ndim, p.shape);
    uvec2 a = tsr_at_mul(p.a, tsr_row_offset(at, p.a_strides), tsr_dtype_bytes(A_DTYPE));
    uvec2 y = tsr_at_mul(p.y, tsr_row_offset(at, p.y_strides), tsr_dtype_bytes(Y_DTYPE));
    if (HELD > 0u) {
        held_row(own, a, y);
        return;
    }

    vec4 largest = vec4(uintBitsToFloat(0xff800000u));
    if (in_phase(TSR_PHASE_FIRST))
        for (uint j = own_first(own.begin); j < own.end; j += OWN_STEP)
            largest = max(largest, load(a, j));
    float shift = row_max(own, largest);
    if (PHASE == TSR_PHASE_FIRST)
        return;

    float total = 0.0;
    if (in_phase(TSR_PHASE_SECOND)) {
        uint begin = own.begin;
        do {
            precise vec4 sums = vec4(0.0);
            for (uint j = own_first(begin); j < segment_end(own, begin); j += OWN_STEP) {
                // Elements past the end add nothing, even if shift is -inf.
                bvec4 there = lessThan(uvec4(j) + uvec4(0u, 1u, 2u, 3u), uvec4(p.count));
                sums += mix(vec4(0.0), tsr_exp4_down(load(a, j) - shift), there);
            }
            add_segment(total, sums);
        } while (next_segment(own, begin));
    }
    float sum = row_sum(own, TSR_PHASE_SECOND, 0u, 0u, total);
    if (PHASE == TSR_PHASE_SECOND)
        return;

    float scale = 1.0 / sum;
    float log_sum = tsr_log(sum);
    for (uint j = own_first(own.begin); j < own.end; j += OWN_STEP) {
        vec4 value = load(a, j) - shift;
        value = LOGARITHM != 0u ? value - log_sum : tsr_exp4_down(value) * scale;
        tsr_store_row4(y, p.y_step, j, p.count, Y_DTYPE, FORM, value);
    }
}
