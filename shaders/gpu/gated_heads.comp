// y = x · σ(gate) for heads of tokens, or, with NORMALISE, y = x / √(mean of x² + epsilon) · weight · silu(gate), where the mean is that of a
// head. A thread group computes one head of a token.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/gates.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint GATE_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint NORMALISE = 0;

layout(push_constant, std430) uniform tsr_push
{
    tsr_gated_heads_push p;
};

#include "include/activation.glsl"
#include "include/rows.glsl"

const uint THREADS = 8u;
#include "include/thread_group.glsl"

void main()
{
    uint rows = p.tokens * p.heads;
    bool owner = group_row() < rows; // the others only take part in barriers
    uint row = min(group_row(), rows - 1u), token = row / p.heads, first = row % p.heads * p.dim;
    uvec2 x = tsr_at_mul(p.x, token, p.x_stride * tsr_dtype_bytes(X_DTYPE)),
          gate = tsr_at_mul(p.gate, token, p.gate_stride * tsr_dtype_bytes(GATE_DTYPE)),
          y = tsr_at_mul(p.y, token, p.y_stride * tsr_dtype_bytes(Y_DTYPE));
    precise float factor = 1.0;
    if (NORMALISE != 0u) {
        precise float squares = 0.0;
        for (uint i = group_thread(); i < p.dim; i += THREADS) {
            precise float value = tsr_load_float(x, first + i, X_DTYPE);
            squares += value * value;
        }
        squares = group_combine_values(squares, false, 0u);
        factor = 1.0 / sqrt(squares / float(p.dim) + p.epsilon);
    }
    if (!owner)
        return;
    for (uint i = group_thread(); i < p.dim; i += THREADS) {
        float complement, z = tsr_load_float(gate, first + i, GATE_DTYPE);
        precise float value = tsr_load_float(x, first + i, X_DTYPE);
        float open = tsr_sigmoid(z, complement);
        if (NORMALISE != 0u)
            value = value * factor * tsr_floats(p.weight).v[i] * z;
        value *= open;
        tsr_store_float(y, first + i, Y_DTYPE, value);
    }
}
