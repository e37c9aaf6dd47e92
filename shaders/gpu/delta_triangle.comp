// With the strict lower triangle A[t,s] = beta[t] · decay(t, s) · (k[t]·k[s]) of a chunk, the changes of the state are (1 + A)^−1 of
// what they would be alone. This computes T = (1 + A)^−1, row after row, T with its columns multiplied by beta · carry, and the weights
// decay(t, s) · (q[t]·k[s]) of the changes in y. A workgroup of CHUNK invocations computes one chunk of one head, an invocation one
// column.
//
// If BLOCK is less than CHUNK, only the blocks of T on its diagonal are computed, and the blocks below them are −A, from which products of
// blocks give the rest (delta_products.c). In place of the multiplied columns, `decay` then gets −beta · carry.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/delta.h"

layout(local_size_x_id = 0) in;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_triangle_push p;
};

#include "include/delta.glsl"
#include "include/exp_log.glsl"

layout(constant_id = 6) const uint BLOCK = 64;

shared float triangle[CHUNK * (CHUNK - 1u) / 2u]; // row t begins at t · (t − 1) / 2
shared vec4 numbers[CHUNK];
shared float starts[CHUNK];

void main()
{
    uint s = gl_LocalInvocationID.x, group = tsr_flat_group();
    if (group >= p.count * HEADS)
        return;
    uint head = group % HEADS, chunk = group / HEADS;
    uint rows = group * CHUNK, key_rows = (chunk * KEY_HEADS + delta_key_head(head)) * CHUNK;
    uvec2 own = delta_row(p.work, p.decay, rows + s, TSR_DELTA_DECAY_FLOATS);
    vec4 mine = tsr_floats4(own).v[0];
    numbers[s] = mine;
    starts[s] = tsr_floats4(own).v[1].x;
    barrier();
    for (uint t = 0u; t < CHUNK; t++) {
        bool seen = s <= t && float(s) >= starts[t];
        float decay = seen ? tsr_exp(numbers[t].x - mine.x) : 0.0;
        float keys = tsr_floats(delta_row(p.work, p.key_key, key_rows + t, CHUNK)).v[s];
        float queries = tsr_floats(delta_row(p.work, p.query_key, key_rows + t, CHUNK)).v[s];
        float product = numbers[t].w * decay * keys;
        if (s < t)
            triangle[t * (t - 1u) / 2u + s] = product;
        if (BLOCK < CHUNK) // the invocations of this block's columns write the blocks on the diagonal below
            tsr_floats(delta_row(p.work, p.inverse, rows + t, CHUNK)).v[s] = s < t ? -product : 0.0;
        tsr_floats(delta_row(p.work, p.weights, rows + t, CHUNK)).v[s] = decay * queries;
    }
    barrier();
    float scale = mine.w * mine.y;
    uint first = BLOCK < CHUNK ? s / BLOCK * BLOCK : 0u;
    if (BLOCK < CHUNK)
        tsr_floats(own).v[7] = -scale;
    for (uint t = first; t < first + BLOCK; t++) {
        uint row = t * (t - 1u) / 2u; // of no use for t = 0, which has no loop
        precise float sum = s == t ? 1.0 : 0.0;
        if (s < t) {
            sum -= triangle[row + s];
            for (uint n = s + 1u; n < t; n++)
                sum -= triangle[row + n] * triangle[n * (n - 1u) / 2u + s];
        }
        barrier(); // all columns have read row t of A
        if (s < t)
            triangle[row + s] = sum;
        tsr_floats(delta_row(p.work, p.inverse, rows + t, CHUNK)).v[s] = sum;
        if (BLOCK == CHUNK)
            tsr_floats(delta_row(p.work, p.carried, rows + t, CHUNK)).v[s] = sum * scale;
    }
}
