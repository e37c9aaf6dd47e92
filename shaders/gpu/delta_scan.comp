// Takes the state S of the gated delta rule from chunk to chunk: D = U − W·S are the changes, y = carry · Q·S + weights·D, and then
// S ← carry[last] · S + Kᵀ · (out · D). Columns of a state are independent; delta_scan.glsl says which ones a workgroup has.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/tessera.glsl"
#include "params/delta.h"

layout(local_size_x_id = 0) in;

layout(push_constant, std430) uniform tsr_push
{
    tsr_delta_scan_push p;
};

#include "include/delta.glsl"
#include "include/delta_scan.glsl"
#include "include/rows.glsl"

layout(constant_id = 8) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 9) const uint SLOTS = 0;

#include "include/slots.glsl"

shared vec4 deltas[CHUNK * QUADS];

void store_y(uint b, uint token, uint column, vec4 value)
{
    if (token >= p.tokens || (p.y.x | p.y.y) == 0u)
        return;
    uvec2 to = tsr_at_mul(p.y, b * p.tokens + token, p.y_stride * tsr_dtype_bytes(Y_DTYPE));
    [[unroll]] for (uint n = 0u; n < 4u; n++)
        tsr_store_float(to, column + n, Y_DTYPE, value[n]);
}

void main()
{
    uint blocks = (VALUE_DIM + 4u * QUADS - 1u) / (4u * QUADS), group = tsr_flat_group();
    if (group >= p.batch * HEADS * blocks)
        return;
    uint head = group / blocks % HEADS, b = group / blocks / HEADS, quad = scan_quad(), line = scan_line();
    uint column = 4u * (group % blocks * QUADS + quad);
    uint old_slot = tsr_slot(TSR_READS_SLOTS, p.read_slots, b, p.slots);
    uvec2 from = tsr_at_mul(p.state, old_slot * HEADS + head, KEY_DIM * VALUE_DIM * 4u);
    bool zero = (p.state.x | p.state.y) == 0u || (TSR_READS_SLOTS && old_slot == TSR_NO_SLOT);
    for (uint i = line; i < KEY_DIM; i += LINES) {
        vec4 value = vec4(0.0);
        if (!zero && column < VALUE_DIM)
            value = tsr_floats4_loose(tsr_at_mul(from, i, VALUE_DIM * 4u)).v[column / 4u];
        state[i * QUADS + quad] = value;
    }
    for (uint c = p.first_chunk; c < p.end_chunk; c++) {
        uint chunk = b * p.chunks + c, rows = (chunk * HEADS + head) * CHUNK;
        uint key_rows = (chunk * KEY_HEADS + delta_key_head(head)) * CHUNK;
        float carry_out = tsr_floats4(delta_row(p.work, p.decay, rows, TSR_DELTA_DECAY_FLOATS)).v[1].y;
        barrier(); // the state is complete
        if (p.states != TSR_DELTA_NOT_KEPT && column < VALUE_DIM)
            for (uint i = line; i < KEY_DIM; i += LINES)
                tsr_floats4(delta_row(p.work, p.states, (chunk * HEADS + head) * KEY_DIM + i, VALUE_DIM)).v[column / 4u] = state[i * QUADS + quad];
        vec4 sums[OWN_TOKENS];
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++)
            sums[n] = vec4(0.0);
        scan_add_state(p.work, p.w, rows + line, sums);
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++) {
            uint t = line + n * LINES;
            vec4 delta = vec4(0.0);
            if (column < VALUE_DIM) {
                delta = tsr_floats4(delta_row(p.work, p.u, rows + t, VALUE_DIM)).v[column / 4u] - sums[n];
                if (p.deltas != TSR_DELTA_NOT_KEPT)
                    tsr_floats4(delta_row(p.work, p.deltas, rows + t, VALUE_DIM)).v[column / 4u] = delta;
            }
            deltas[t * QUADS + quad] = delta;
            sums[n] = vec4(0.0);
        }
        scan_add_state(p.work, p.queries, key_rows + line, sums);
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++)
            sums[n] *= tsr_floats4(delta_row(p.work, p.decay, rows + line + n * LINES, TSR_DELTA_DECAY_FLOATS)).v[0].y;
        barrier(); // the changes are complete, and the old state has been read
        for (uint s = 0u; s < CHUNK / 4u; s++) {
            vec4 part[4];
            [[unroll]] for (uint m = 0u; m < 4u; m++)
                part[m] = deltas[(4u * s + m) * QUADS + quad];
            [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++) {
                vec4 weights = tsr_floats4(delta_row(p.work, p.weights, rows + line + n * LINES, CHUNK)).v[s];
                sums[n] += weights.x * part[0] + weights.y * part[1] + weights.z * part[2] + weights.w * part[3];
            }
        }
        [[unroll]] for (uint n = 0u; n < OWN_TOKENS; n++)
            if (column < VALUE_DIM)
                store_y(b, c * CHUNK + line + n * LINES, head * VALUE_DIM + column, sums[n]);
        vec4 next[OWN_KEYS];
        [[unroll]] for (uint n = 0u; n < OWN_KEYS; n++)
            next[n] = line + n * LINES < KEY_DIM ? carry_out * state[(line + n * LINES) * QUADS + quad] : vec4(0.0);
        for (uint s = 0u; s < CHUNK; s++) {
            vec4 delta = tsr_floats4(delta_row(p.work, p.decay, rows + s, TSR_DELTA_DECAY_FLOATS)).v[0].z * deltas[s * QUADS + quad];
            uvec2 key = delta_row(p.work, p.keys, key_rows + s, KEY_DIM);
            [[unroll]] for (uint n = 0u; n < OWN_KEYS; n++)
                if (line + n * LINES < KEY_DIM)
                    next[n] += tsr_floats(key).v[line + n * LINES] * delta;
        }
        [[unroll]] for (uint n = 0u; n < OWN_KEYS; n++) // only this invocation has read these elements since the last barrier
            if (line + n * LINES < KEY_DIM)
                state[(line + n * LINES) * QUADS + quad] = next[n];
    }
    uint new_slot = tsr_slot(TSR_WRITES_SLOTS, p.write_slots, b, p.slots);
    if ((p.new_state.x | p.new_state.y) == 0u || column >= VALUE_DIM || (TSR_WRITES_SLOTS && new_slot == TSR_NO_SLOT))
        return;
    uvec2 to = tsr_at_mul(p.new_state, new_slot * HEADS + head, KEY_DIM * VALUE_DIM * 4u);
    for (uint i = line; i < KEY_DIM; i += LINES)
        tsr_floats4_loose(tsr_at_mul(to, i, VALUE_DIM * 4u)).v[column / 4u] = state[i * QUADS + quad];
}
