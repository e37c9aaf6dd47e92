// Gradients of the products of queries and keys of a chunk, from those of the weights and of the triangle's inverse: with dP and
// −dR·Dᵀ the gradients of the weights and of A, dquery_key = dP · decay and dkey_key = beta · dA · decay. `parts` gets, for each token, what
// they contribute to the gradients of G and beta. A workgroup computes one chunk of one head. An invocation goes through one column, and
// then through the row of the same number, so that no sum needs another invocation.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/delta.h"

layout(local_size_x_id = 0) in;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_mask_grad_push p;
};

#include "include/delta.glsl"
#include "include/exp_log.glsl"

shared vec4 numbers[CHUNK];
shared float starts[CHUNK];

float at(uint place, uint row, uint column)
{
    return tsr_floats(delta_row(p.work, place, row, CHUNK)).v[column];
}

void main()
{
    uint own = gl_LocalInvocationID.x, group = tsr_flat_group();
    if (group >= p.count * HEADS)
        return;
    uint head = group % HEADS, chunk = group / HEADS;
    uint rows = group * CHUNK, key_rows = (chunk * KEY_HEADS + delta_key_head(head)) * CHUNK;
    uvec2 from = delta_row(p.work, p.decay, rows + own, TSR_DELTA_DECAY_FLOATS);
    vec4 mine = tsr_floats4(from).v[0];
    numbers[own] = mine;
    starts[own] = tsr_floats4(from).v[1].x;
    barrier();
    precise float of_g = 0.0, of_beta = 0.0;
    for (uint t = 0u; t < CHUNK; t++) {
        bool seen = own <= t && float(own) >= starts[t];
        float decay = seen ? tsr_exp(numbers[t].x - mine.x) : 0.0;
        float query = seen ? at(p.dweights, rows + t, own) * decay : 0.0;
        float key = seen && own < t ? -at(p.dtriangle, rows + t, own) * decay * numbers[t].w : 0.0;
        tsr_floats(delta_row(p.work, p.dquery_key, rows + t, CHUNK)).v[own] = query;
        tsr_floats(delta_row(p.work, p.dkey_key, rows + t, CHUNK)).v[own] = key;
        of_g -= query * at(p.query_key, key_rows + t, own) + key * at(p.key_key, key_rows + t, own);
    }
    for (uint s = uint(starts[own]); s <= own; s++) {
        float decay = tsr_exp(mine.x - numbers[s].x);
        of_g += at(p.dweights, rows + own, s) * decay * at(p.query_key, key_rows + own, s);
        if (s < own) {
            float triangle = -at(p.dtriangle, rows + own, s) * decay * at(p.key_key, key_rows + own, s);
            of_beta += triangle;
            of_g += mine.w * triangle;
        }
    }
    tsr_floats(delta_row(p.work, p.parts, rows + own, 2u)).v[0] = of_g;
    tsr_floats(delta_row(p.work, p.parts, rows + own, 2u)).v[1] = of_beta;
}
