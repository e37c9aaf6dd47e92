// y[token] = Σ over the ranks of the token's experts of weight · x[pair], in this order. Pairs whose
// id is not an expert are left out.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "params/grouped.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint Y_DTYPE = TSR_DT_F32;

layout(push_constant, std430) uniform tsr_push
{
    tsr_pair_sum_push p;
};

void main()
{
    uint across = (p.n + WORKGROUP - 1u) / WORKGROUP;
    uint token = tsr_flat_group() / across;
    uint col = tsr_flat_group() % across * WORKGROUP + gl_LocalInvocationID.x;
    if (token >= p.tokens || col >= p.n)
        return;
    precise float sum = 0.0;
    for (uint rank = 0u; rank < p.chosen; rank++) {
        if (tsr_words(p.ids).v[token * p.ids_stride + rank] >= p.experts)
            continue;
        uvec2 from = tsr_at_mul(p.x, token * p.chosen + rank, p.x_stride * tsr_dtype_bytes(X_DTYPE));
        float value = tsr_load_float(from, col, X_DTYPE);
        if ((p.weights.x | p.weights.y) != 0u)
            value *= tsr_floats(p.weights).v[token * p.weights_stride + rank];
        sum += value;
    }
    uvec2 to = tsr_at_mul(p.y, token, p.y_stride * tsr_dtype_bytes(Y_DTYPE));
    if ((p.flags & TSR_GROUPED_ACCUMULATE) != 0u)
        sum += tsr_load_float(to, col, Y_DTYPE);
    if ((p.flags & TSR_GROUPED_ADDED) != 0u)
        sum += tsr_load_float(tsr_at_mul(p.added, token, p.y_stride * tsr_dtype_bytes(Y_DTYPE)), col, Y_DTYPE);
    tsr_store_float(to, col, Y_DTYPE, sum);
}
