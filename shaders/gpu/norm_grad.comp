// The gradient of layer or RMS normalisation with respect to its input, from the statistics of the
// rows. With g = dy · weight and n the normalised input, dx = (g − mean(g) − n · mean(g·n)) /
// √(variance + epsilon). For RMS normalisation, mean(g) is left out. A thread group
// (thread_group.glsl) computes one row in two loops. An element belongs to the same invocation in
// both, so that dx may be x or dy. A row that fits into registers is loaded once.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/norm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint THREADS = 8;
layout(constant_id = 2) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint DX_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint WEIGHT_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint FORM = TSR_ROW_WIDE; // a form (TSR_ROW_…) that all operands have
layout(constant_id = 7) const uint CENTRED = 1;         // 0: RMS
layout(constant_id = 8) const uint ADDED = 0;           // 1: p.added is added to dx
layout(constant_id = 9) const uint PHASE = TSR_PHASE_WHOLE; // never TSR_PHASE_FIRST, because there are only two loops
// the number of groups of four elements that an invocation keeps in registers
layout(constant_id = 10) const uint HELD = 0;

layout(push_constant) uniform Push {
    tsr_norm_grad_params p;
};

#define ROW_LENGTH p.count
#define PARTIALS p.partials
#include "include/segments.glsl"

vec4 load_normalised(uvec2 x, uint j, vec4 stats)
{
    return norm_centred(tsr_load_row4(x, p.x.step, j, p.count, X_DTYPE, FORM, 0.0), stats) * stats.x;
}

vec4 load_incoming(uvec2 dy, uint j)
{
    return tsr_load_row4(dy, p.dy.step, j, p.count, DY_DTYPE, FORM, 0.0) *
           norm_weight4(p.weight, p.weight_step, j, p.count, WEIGHT_DTYPE, FORM, 1.0);
}

// What an invocation keeps in registers, HELD groups of four elements: dy · weight and the
// normalised input, both 0 past the end.
const uint KEPT = HELD > 0u ? HELD : 1u;
vec4 incoming_kept[KEPT], normalised_kept[KEPT];

void hold(row_part own, uvec2 x, uvec2 dy, vec4 stats)
{
    [[unroll]] for (uint h = 0u; h < HELD; h++) {
        incoming_kept[h] = load_incoming(dy, held_within(held_first(own, h)));
        normalised_kept[h] = load_normalised(x, held_within(held_first(own, h)), stats);
    }
    [[unroll]] for (uint h = 0u; h < HELD; h++) {
        bvec4 there = held_there(held_first(own, h), FORM);
        incoming_kept[h] = mix(vec4(0.0), incoming_kept[h], there);
        normalised_kept[h] = mix(vec4(0.0), normalised_kept[h], there);
    }
}

// Rounds four values as storing them as dx does.
vec4 rounded(vec4 value)
{
    if (DX_DTYPE == TSR_DT_BF16)
        return uintBitsToFloat(tsr_bf16_from_f32(value) << 16);
    if (DX_DTYPE != TSR_DT_F16)
        return value;
    uvec4 bits = tsr_f16_from_f32(value);
    return vec4(tsr_f32_from_f16(bits.x), tsr_f32_from_f16(bits.y), tsr_f32_from_f16(bits.z), tsr_f32_from_f16(bits.w));
}

// Stores four elements of dx, after adding those of another gradient if there is one, with the bits of
// a separate addition.
void store_four(uvec2 dx, uvec2 added, uint j, vec4 value)
{
    precise vec4 sum = value;
    if (ADDED != 0u)
        sum = rounded(value) + tsr_load_row4(added, p.dx.step, j, p.count, DX_DTYPE, FORM, 0.0);
    tsr_store_row4(dx, p.dx.step, j, p.count, DX_DTYPE, FORM, sum);
}

void main()
{
    row_part own = own_part(p.rows);
    uvec2 x = norm_row(p.x, own.row, p.inner, X_DTYPE);
    uvec2 dy = norm_row(p.dy, own.row, p.inner, DY_DTYPE);
    uvec2 dx = norm_row(p.dx, own.row, p.inner, DX_DTYPE);
    uvec2 added = norm_row(tsr_norm_rows(p.added, p.dx.step, p.dx.strides), own.row, p.inner, DX_DTYPE);
    vec4 stats = tsr_floats4(tsr_at_mul(p.stats, own.row, TSR_NORM_STATS_BYTES)).v[0];

    hold(own, x, dy, stats);
    float all_sums = 0.0, all_products = 0.0;
    if (HELD > 0u) {
        precise vec4 sums = vec4(0.0), products = vec4(0.0);
        [[unroll]] for (uint h = 0u; h < HELD; h++) {
            sums += incoming_kept[h];
            products += incoming_kept[h] * normalised_kept[h];
        }
        add_segment(all_sums, sums);
        add_segment(all_products, products);
    } else if (in_phase(TSR_PHASE_SECOND)) {
        uint begin = own.begin;
        do {
            precise vec4 sums = vec4(0.0), products = vec4(0.0);
            for (uint j = own_first(begin); j < segment_end(own, begin); j += OWN_STEP) {
                vec4 incoming = load_incoming(dy, j); // 0 past the end
                sums += incoming;
                products += incoming * load_normalised(x, j, stats);
            }
            add_segment(all_sums, sums);
            add_segment(all_products, products);
        } while (next_segment(own, begin));
    }
    float each = 1.0 / float(p.count);
    float mean = CENTRED != 0u ? row_sum(own, TSR_PHASE_SECOND, 0u, 0u, all_sums) * each : 0.0;
    float slope = row_sum(own, TSR_PHASE_SECOND, 1u, 1u, all_products) * each;
    if (PHASE == TSR_PHASE_SECOND)
        return;

    [[unroll]] for (uint h = 0u; h < HELD; h++) {
        uint j = held_first(own, h);
        vec4 value = (incoming_kept[h] - mean - normalised_kept[h] * slope) * stats.x;
        if (j < own.end)
            store_four(dx, added, j, value);
    }
    if (HELD > 0u)
        return;
    for (uint j = own_first(own.begin); j < own.end; j += OWN_STEP) {
        vec4 value = (load_incoming(dy, j) - mean - load_normalised(x, j, stats) * slope) * stats.x;
        store_four(dx, added, j, value);
    }
}
