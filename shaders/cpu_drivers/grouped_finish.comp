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

const uint VECTORS = TSR_GROUPED_FINISH_VECTORS; // a workgroup computes as many columns in each invocation
layout(push_constant, std430) uniform tsr_push
{
    tsr_grouped_finish_push p;
};

uint col_of(uint col0, uint v)
{
    return min(col0 + v * WORKGROUP + gl_LocalInvocationID.x, p.n - 1);
}

// Adds to values weight · (the product in columns from … from + n − 1 of a row of sums + the bias of its expert).
void add_product(inout float values[VECTORS], uint row, uint from, float weight, uvec2 bias, uint expert, uint col0)
{
    for (uint split = 0; split < p.splits; split++) {
        tsr_floats sums = tsr_floats(tsr_at_mul(p.sums, split * p.split_rows + row, p.sums_stride * 4));
        [[unroll]] for (uint v = 0; v < VECTORS; v++)
            values[v] += weight * sums.v[from + col_of(col0, v)];
    }
    if ((bias.x | bias.y) == 0)
        return;
    uvec2 at = tsr_at_mul(bias, expert * p.bias_stride, tsr_dtype_bytes(BIAS_DTYPE));
    [[unroll]] for (uint v = 0; v < VECTORS; v++)
        values[v] += weight * tsr_load_float(at, col_of(col0, v), BIAS_DTYPE);
}

void main()
{
    const uint columns = VECTORS * WORKGROUP, across = (p.n + columns - 1) / columns;
    uint y_row = tsr_flat_group() / across, col0 = tsr_flat_group() % across * columns;
    if (y_row >= p.rows)
        return;
    float values[VECTORS], up[VECTORS];
    [[unroll]] for (uint v = 0; v < VECTORS; v++)
        values[v] = up[v] = 0.0;
    uint first = SUM != 0 ? y_row * p.chosen : y_row;
    for (uint pair = first; pair < first + (SUM != 0 ? p.chosen : 1); pair++) {
        uint token = pair / p.chosen, rank = pair % p.chosen;
        uint expert = tsr_words(p.ids).v[token * p.ids_stride + rank];
        if (expert >= p.experts) {
            if (SUM != 0)
                continue;
            return;
        }
        uint row = tsr_words(p.places).v[pair];
        float weight = SUM != 0 ? tsr_floats(p.weights).v[token * p.weights_stride + rank] : 1.0;
        add_product(values, row, 0, weight, p.bias, expert, col0);
        if (GATED != 0)
            add_product(up, row, p.n, 1.0, p.up_bias, expert, col0);
    }
    uvec2 to = tsr_at_mul(p.y, y_row, p.y_stride * tsr_dtype_bytes(Y_DTYPE));
    uvec2 added = tsr_at_mul(p.added, y_row, p.y_stride * tsr_dtype_bytes(Y_DTYPE));
    [[unroll]] for (uint v = 0; v < VECTORS; v++) {
        precise float value = values[v];
        uint col = col_of(col0, v);
        if (GATED != 0)
            value = tsr_gated(value, up[v], p.limit, ACTIVATION);
        if (p.accumulate != 0)
            value += tsr_load_float(to, col, Y_DTYPE);
        if ((p.added.x | p.added.y) != 0)
            value += tsr_load_float(added, col, Y_DTYPE);
        if (col0 + v * WORKGROUP + gl_LocalInvocationID.x < p.n)
            tsr_store_float(to, col, Y_DTYPE, value);
    }
}
