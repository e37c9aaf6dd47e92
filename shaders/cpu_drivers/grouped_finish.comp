// y of a grouped product, from the products of its pairs (params/grouped_cpu.h): act(sum + bias) for each pair or, with SUM, the weighted
// sum over each token's experts in the order of their rank. Pairs whose id is not an expert are left out.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/gated.glsl"
#include "include/rows.glsl"
#include "params/grouped_cpu.h"

layout(constant_id = 0) const uint WORKGROUP = 8;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint BIAS_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint SUM = 0;
layout(constant_id = 4) const uint GATED = 0;
layout(constant_id = 5) const uint ACTIVATION = TSR_EXPERT_ACT_SILU;
layout(constant_id = 6) const uint COLUMNS = 64; // of a workgroup

layout(push_constant, std430) uniform tsr_push
{
    tsr_grouped_finish_push p;
};

float with_bias(float sum, uvec2 bias, uint expert, uint col)
{
    if ((bias.x | bias.y) == 0)
        return sum;
    return sum + tsr_load_float(tsr_at_mul(bias, expert * p.bias_stride, tsr_dtype_bytes(BIAS_DTYPE)), col, BIAS_DTYPE);
}

// The product of a pair with the matrix of its expert; with GATED, the activation of both products.
float value_of(uint pair, uint expert, uint col)
{
    tsr_floats sums = tsr_floats(tsr_at_mul(p.sums, tsr_words(p.places).v[pair], p.sums_stride * 4));
    float value = with_bias(sums.v[col], p.bias, expert, col);
    if (GATED != 0)
        value = tsr_gated(value, with_bias(sums.v[p.n + col], p.up_bias, expert, col), p.limit, ACTIVATION);
    return value;
}

void main()
{
    uint across = (p.n + COLUMNS - 1) / COLUMNS;
    uint row = tsr_flat_group() / across, col0 = tsr_flat_group() % across * COLUMNS;
    if (row >= p.rows)
        return;
    uvec2 to = tsr_at_mul(p.y, row, p.y_stride * tsr_dtype_bytes(Y_DTYPE));
    for (uint col = col0 + gl_LocalInvocationID.x; col < min(col0 + COLUMNS, p.n); col += WORKGROUP) {
        precise float value = 0.0;
        bool any = SUM != 0;
        for (uint rank = 0; rank < (SUM != 0 ? p.chosen : 1u); rank++) {
            uint token = SUM != 0 ? row : row / p.chosen, at = SUM != 0 ? rank : row % p.chosen;
            uint expert = tsr_words(p.ids).v[token * p.ids_stride + at];
            if (expert >= p.experts)
                continue;
            any = true;
            float weight = SUM != 0 ? tsr_floats(p.weights).v[token * p.weights_stride + at] : 1.0;
            value += weight * value_of(token * p.chosen + at, expert, col);
        }
        if (!any)
            return;
        if (p.accumulate != 0)
            value += tsr_load_float(to, col, Y_DTYPE);
        if ((p.added.x | p.added.y) != 0)
            value += tsr_load_float(tsr_at_mul(p.added, row, p.y_stride * tsr_dtype_bytes(Y_DTYPE)), col, Y_DTYPE);
        tsr_store_float(to, col, Y_DTYPE, value);
    }
}
