// dq or dk of a chunk: the gradients of the rows that were multiplied, summed over the value heads of a key head, and then through the
// normalisation of delta_rows.comp. The gradient of a row is products + carry · X for a query, and products − beta · carry · Z + out · M for
// a key. A thread group computes one row.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/delta.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_row_grad_push p;
};

#include "include/delta.glsl"
#include "include/rows.glsl"

layout(constant_id = 6) const uint DX_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint NORMALISE = 0;

const uint THREADS = 8u;
#include "include/thread_group.glsl"

vec4 gradient(uint chunk, uint key_head, uint t, uint i)
{
    precise vec4 sum = vec4(0.0);
    for (uint n = 0u; n < HEADS / KEY_HEADS; n++) {
        uint row = (chunk * HEADS + delta_value_head(key_head, n)) * CHUNK + t;
        vec4 numbers = tsr_floats4(delta_row(p.work, p.decay, row, TSR_DELTA_DECAY_FLOATS)).v[0];
        sum += tsr_floats4(delta_row(p.work, p.products, row, KEY_DIM)).v[i];
        if (p.is_key == 0u)
            sum += numbers.y * tsr_floats4(delta_row(p.work, p.x, row, KEY_DIM)).v[i];
        else
            sum += numbers.z * tsr_floats4(delta_row(p.work, p.m, row, KEY_DIM)).v[i] -
                   numbers.w * numbers.y * tsr_floats4(delta_row(p.work, p.z, row, KEY_DIM)).v[i];
    }
    return sum * p.factor;
}

void main()
{
    uint rows = p.batch * p.chunks * KEY_HEADS * CHUNK;
    bool owner = group_row() < rows; // the others only take part in barriers
    uint row = min(group_row(), rows - 1u);
    uint t = row % CHUNK, head = row / CHUNK % KEY_HEADS, chunk = row / CHUNK / KEY_HEADS, b = chunk / p.chunks;
    uint token = chunk % p.chunks * CHUNK + t;
    float inverse = 1.0, slope = 0.0;
    uvec2 unit = delta_row(p.work, p.rows, row, KEY_DIM); // the normalised row times factor
    if (NORMALISE != 0u) {
        precise vec4 products = vec4(0.0);
        for (uint i = group_thread(); i < KEY_DIM / 4u; i += THREADS)
            products += gradient(chunk, head, t, i) * tsr_floats4(unit).v[i];
        inverse = tsr_floats(delta_row(p.work, p.inverse, row, 1u)).v[0];
        slope = group_sum(products) / (p.factor * p.factor);
    }
    if (!owner || token >= p.tokens)
        return;
    uvec2 to = tsr_at_mul(p.dx, b * p.tokens + token, p.dx_stride * tsr_dtype_bytes(DX_DTYPE));
    for (uint i = group_thread(); i < KEY_DIM / 4u; i += THREADS) {
        vec4 value = inverse * (gradient(chunk, head, t, i) - slope * tsr_floats4(unit).v[i]);
        [[unroll]] for (uint n = 0u; n < 4u; n++)
            tsr_store_float(to, head * KEY_DIM + 4u * i + n, DX_DTYPE, value[n]);
    }
}
