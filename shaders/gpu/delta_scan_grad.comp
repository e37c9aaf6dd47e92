// Takes dS, the gradient of the state, from the last chunk to the first: dD = weightsᵀ·dy + out · K·dS is the gradient of the changes,
// and then dS ← carry[last] · dS + Qᵀ·(carry · dy) − Wᵀ·dD. It also writes dy in rows of chunks, and the part Σ dS·S · carry[last] of the
// gradient of the decay for each block of columns.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/delta.h"

layout(local_size_x_id = 0) in;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_scan_grad_push p;
};

#include "include/delta.glsl"
#include "include/delta_scan.glsl"
#include "include/rows.glsl"

layout(constant_id = 8) const uint DY_DTYPE = TSR_DT_F32;

shared vec4 results[CHUNK * QUADS]; // dy
shared vec4 deltas[CHUNK * QUADS];  // dD
shared float products[WORKGROUP_SIZE];

void main()
{
    uint blocks = (VALUE_DIM + 4u * QUADS - 1u) / (4u * QUADS), group = tsr_flat_group();
    if (group >= p.batch * HEADS * blocks)
        return;
    uint head = group / blocks % HEADS, b = group / blocks / HEADS, quad = scan_quad(), line = scan_line();
    uint column = 4u * (group % blocks * QUADS + quad);
    bool owner = column < VALUE_DIM;
    uint length = (p.lengths.x | p.lengths.y) == 0u ? p.tokens
                                                    : uint(clamp(int(tsr_words(p.lengths).v[b]), 0, int(p.tokens)));
    uvec2 from = tsr_at_mul(p.dnew_state, b * HEADS + head, KEY_DIM * VALUE_DIM * 4u);
    for (uint i = line; i < KEY_DIM; i += LINES) {
        vec4 value = vec4(0.0);
        if ((p.dnew_state.x | p.dnew_state.y) != 0u && owner)
            value = tsr_floats4_loose(tsr_at_mul(from, i, VALUE_DIM * 4u)).v[column / 4u];
        state[i * QUADS + quad] = value;
    }
    for (uint step = 0u; step < p.end_chunk - p.first_chunk; step++) {
        // lavapipe of Mesa 26 also loads what all invocations share after the last iteration, when `step` is one too large
        uint c = max(p.end_chunk - step, 1u) - 1u;
        uint chunk = b * p.chunks + c, rows = (chunk * HEADS + head) * CHUNK;
        uint key_rows = (chunk * KEY_HEADS + delta_key_head(head)) * CHUNK;
        float carry_out = tsr_floats4(delta_row(p.work, p.decay, rows, TSR_DELTA_DECAY_FLOATS)).v[1].y;
        for (uint t = line; t < CHUNK; t += LINES) {
            vec4 value = vec4(0.0);
            if (owner) {
                if (c * CHUNK + t < length) {
                    uvec2 dy = tsr_at_mul(p.dy, b * p.tokens + c * CHUNK + t, p.dy_stride * tsr_dtype_bytes(DY_DTYPE));
                    [[unroll]] for (uint n = 0u; n < 4u; n++)
                        value[n] = tsr_load_float(dy, head * VALUE_DIM + column + n, DY_DTYPE);
                }
                tsr_floats4(delta_row(p.work, p.dy_rows, rows + t, VALUE_DIM)).v[column / 4u] = value;
            }
            results[t * QUADS + quad] = value;
        }
        barrier(); // dS and dy are complete
        precise float dot_sum = 0.0;
        if (owner)
            for (uint i = line; i < KEY_DIM; i += LINES) {
                uint row = (chunk * HEADS + head) * KEY_DIM + i;
                vec4 value = state[i * QUADS + quad];
                tsr_floats4(delta_row(p.work, p.dstates, row, VALUE_DIM)).v[column / 4u] = value;
                dot_sum += dot(value, tsr_floats4(delta_row(p.work, p.states, row, VALUE_DIM)).v[column / 4u]);
            }
        products[gl_LocalInvocationID.x] = dot_sum * carry_out;
        vec4 sums[OWN_TOKENS];
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++)
            sums[n] = vec4(0.0);
        scan_add_state(p.work, p.keys, key_rows + line, sums);
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++)
            sums[n] *= tsr_floats4(delta_row(p.work, p.decay, rows + line + n * LINES, TSR_DELTA_DECAY_FLOATS)).v[0].z;
        for (uint t = 0u; t < CHUNK; t++) {
            uvec2 weights = delta_row(p.work, p.weights, rows + t, CHUNK);
            vec4 dy = results[t * QUADS + quad];
            [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++)
                sums[n] += tsr_floats(weights).v[line + n * LINES] * dy;
        }
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++) {
            uint t = line + n * LINES;
            deltas[t * QUADS + quad] = sums[n];
            if (owner)
                tsr_floats4(delta_row(p.work, p.ddeltas, rows + t, VALUE_DIM)).v[column / 4u] = sums[n];
        }
        barrier(); // dD is complete, and dS and the products have been written and read
        if (gl_LocalInvocationID.x == 0u) {
            dot_sum = 0.0;
            for (uint n = 0u; n < WORKGROUP_SIZE; n++)
                dot_sum += products[n];
            tsr_floats(delta_row(p.work, p.dots, chunk * HEADS + head, blocks)).v[group % blocks] = dot_sum;
        }
        vec4 next[OWN_KEYS];
        [[unroll]] for (uint n = 0u; n < OWN_KEYS; n++)
            next[n] = line + n * LINES < KEY_DIM ? carry_out * state[(line + n * LINES) * QUADS + quad] : vec4(0.0);
        for (uint t = 0u; t < CHUNK; t++) {
            vec4 dy = tsr_floats4(delta_row(p.work, p.decay, rows + t, TSR_DELTA_DECAY_FLOATS)).v[0].y * results[t * QUADS + quad];
            vec4 delta = deltas[t * QUADS + quad];
            uvec2 query = delta_row(p.work, p.queries, key_rows + t, KEY_DIM), w = delta_row(p.work, p.w, rows + t, KEY_DIM);
            [[unroll]] for (uint n = 0u; n < OWN_KEYS; n++)
                if (line + n * LINES < KEY_DIM)
                    next[n] += tsr_floats(query).v[line + n * LINES] * dy - tsr_floats(w).v[line + n * LINES] * delta;
        }
        barrier(); // dy and the products have been read
        [[unroll]] for (uint n = 0u; n < OWN_KEYS; n++)
            if (line + n * LINES < KEY_DIM)
                state[(line + n * LINES) * QUADS + quad] = next[n];
    }
    if ((p.dstate.x | p.dstate.y) == 0u || !owner)
        return;
    uvec2 to = tsr_at_mul(p.dstate, b * HEADS + head, KEY_DIM * VALUE_DIM * 4u);
    for (uint i = line; i < KEY_DIM; i += LINES)
        tsr_floats4_loose(tsr_at_mul(to, i, VALUE_DIM * 4u)).v[column / 4u] = state[i * QUADS + quad];
}
