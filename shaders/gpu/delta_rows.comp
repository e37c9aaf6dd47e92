// Copies rows of q, k or v into chunks: x / √(Σ x² + epsilon) · factor, or x · beta. A thread group copies one row. Rows past the end
// of a sequence become 0.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/delta.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_rows_push p;
};

#include "include/delta.glsl"
#include "include/rows.glsl"

layout(constant_id = 6) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint NORMALISE = 0;
layout(constant_id = 8) const uint IS_VALUE = 0;

const uint THREADS = 8u;
#include "include/thread_group.glsl"

const uint DIM = IS_VALUE != 0u ? VALUE_DIM : KEY_DIM;
const uint ROW_HEADS = IS_VALUE != 0u ? HEADS : KEY_HEADS;

void main()
{
    uint rows = p.batch * p.chunks * ROW_HEADS * CHUNK;
    bool owner = group_row() < rows; // the others only take part in barriers
    uint row = min(group_row(), rows - 1u);
    uint t = row % CHUNK, head = row / CHUNK % ROW_HEADS, chunk = row / CHUNK / ROW_HEADS, b = chunk / p.chunks;
    uint token = chunk % p.chunks * CHUNK + t;
    uint length = (p.lengths.x | p.lengths.y) == 0u ? p.tokens
                                                    : uint(clamp(int(tsr_words(p.lengths).v[b]), 0, int(p.tokens)));
    bool counts = token < length;
    uvec2 x = tsr_at_mul(p.x, b * p.tokens + min(token, p.tokens - 1u), p.stride * tsr_dtype_bytes(X_DTYPE));
    float factor = p.factor;
    if (NORMALISE != 0u) {
        precise vec4 squares = vec4(0.0);
        for (uint i = 4u * group_thread(); i < DIM; i += 4u * THREADS)
            [[unroll]] for (uint n = 0u; n < 4u; n++) {
                float value = counts ? tsr_load_float(x, head * DIM + i + n, X_DTYPE) : 0.0;
                squares[n] += value * value;
            }
        float inverse = 1.0 / sqrt(group_sum(squares) + p.epsilon);
        factor *= inverse;
        if (owner && group_thread() == 0u)
            tsr_floats(delta_row(p.work, p.inverse, row, 1u)).v[0] = inverse;
    } else if (IS_VALUE != 0u) {
        factor = tsr_floats4(delta_row(p.work, p.decay, row, TSR_DELTA_DECAY_FLOATS)).v[0].w;
    }
    if (!owner)
        return;
    uvec2 to = delta_row(p.work, p.rows, row, DIM);
    for (uint i = 4u * group_thread(); i < DIM; i += 4u * THREADS) {
        vec4 values = vec4(0.0);
        if (counts)
            [[unroll]] for (uint n = 0u; n < 4u; n++)
                values[n] = tsr_load_float(x, head * DIM + i + n, X_DTYPE) * factor;
        tsr_floats4(to).v[i / 4u] = values;
    }
}
