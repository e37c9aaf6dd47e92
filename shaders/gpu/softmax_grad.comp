// The gradient of softmax, y = a·(b − Σ a·b), or of its logarithm, y = b − exp(a)·Σ b, where a is
// the forward result and b the incoming gradient. A thread group (thread_group.glsl) computes one
// row in two loops. An element belongs to the same invocation in both, so that y may be b. A row
// that fits into registers is loaded once.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "include/exp_log.glsl"
#include "params/softmax.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint THREADS = 8;
layout(constant_id = 2) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint B_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint FORM = TSR_ROW_WIDE; // a form (TSR_ROW_…) that a, b and y all have
layout(constant_id = 6) const uint LOGARITHM = 0;
layout(constant_id = 7) const uint PHASE = TSR_PHASE_WHOLE; // never TSR_PHASE_FIRST, because there are only two loops
// the number of groups of four elements that an invocation keeps in registers
layout(constant_id = 8) const uint HELD = 0;

layout(push_constant) uniform Push {
    tsr_softmax_params p;
};

#define ROW_LENGTH p.count
#define PARTIALS uvec2(p.a_strides[3], p.b_strides[3])
#include "include/segments.glsl"

vec4 load_a(uvec2 a, uint j)
{
    return tsr_load_row4(a, p.a_step, j, p.count, A_DTYPE, FORM, 0.0);
}

vec4 load_b(uvec2 b, uint j)
{
    return tsr_load_row4(b, p.b_step, j, p.count, B_DTYPE, FORM, 0.0);
}

vec4 gradient_of(vec4 forward, vec4 incoming, float sum)
{
    return LOGARITHM != 0u ? incoming - tsr_exp4(forward) * sum : forward * (incoming - sum);
}

// Computes a row that is in registers, by both loops.
void held_row(row_part own, uvec2 a, uvec2 b, uvec2 y)
{
    const uint KEPT = HELD > 0u ? HELD : 1u;
    vec4 forward[KEPT], incoming[KEPT];
    [[unroll]] for (uint h = 0u; h < HELD; h++) {
        incoming[h] = load_b(b, held_within(held_first(own, h)));
        forward[h] = load_a(a, held_within(held_first(own, h)));
    }
    precise vec4 sums = vec4(0.0);
    [[unroll]] for (uint h = 0u; h < HELD; h++) {
        precise vec4 term = LOGARITHM != 0u ? incoming[h] : incoming[h] * forward[h];
        sums += mix(vec4(0.0), term, held_there(held_first(own, h), FORM));
    }
    float total = 0.0;
    add_segment(total, sums);
    float sum = row_sum(own, TSR_PHASE_SECOND, 0u, 0u, total);
    [[unroll]] for (uint h = 0u; h < HELD; h++) {
        uint j = held_first(own, h);
        if (j < own.end)
            tsr_store_row4(y, p.y_step, j, p.count, Y_DTYPE, FORM, gradient_of(forward[h], incoming[h], sum));
    }
}

void main()
{
    row_part own = own_part(p.jobs);
    uvec4 at = tsr_row_position(own.row, p.ndim, p.shape);
    uvec2 a = tsr_at_mul(p.a, tsr_row_offset(at, p.a_strides), tsr_dtype_bytes(A_DTYPE));
    uvec2 b = tsr_at_mul(p.b, tsr_row_offset(at, p.b_strides), tsr_dtype_bytes(B_DTYPE));
    uvec2 y = tsr_at_mul(p.y, tsr_row_offset(at, p.y_strides), tsr_dtype_bytes(Y_DTYPE));
    if (HELD > 0u) {
        held_row(own, a, b, y);
        return;
    }

    float total = 0.0;
    if (in_phase(TSR_PHASE_SECOND)) {
        uint begin = own.begin;
        do {
            precise vec4 sums = vec4(0.0);
            for (uint j = own_first(begin); j < segment_end(own, begin); j += OWN_STEP) {
                vec4 incoming = load_b(b, j);
                sums += LOGARITHM != 0u ? incoming : incoming * load_a(a, j);
            }
            add_segment(total, sums);
        } while (next_segment(own, begin));
    }
    float sum = row_sum(own, TSR_PHASE_SECOND, 0u, 0u, total);
    if (PHASE == TSR_PHASE_SECOND)
        return;

    for (uint j = own_first(own.begin); j < own.end; j += OWN_STEP) {
        vec4 value = gradient_of(load_a(a, j), load_b(b, j), sum);
        tsr_store_row4(y, p.y_step, j, p.count, Y_DTYPE, FORM, value);
    }
}
