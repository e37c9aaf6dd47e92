// Functions that the attention kernels share: the call's description, addresses of rows, and the
// keys that a query sees.
#ifndef TSR_ATTENTION_GLSL
#define TSR_ATTENTION_GLSL

#include "include/cached_blocks.glsl"
#include "include/rows.glsl"
#include "include/attention_tanh.glsl"
#include "params/attention.h"

layout(buffer_reference, std430, buffer_reference_align = 8) readonly buffer tsr_attention_memory {
    tsr_attention_call c;
    uint heads[];
};

layout(push_constant, std430) uniform Push {
    tsr_attention_push p;
};

#define tsr_minus_infinity uintBitsToFloat(0xff800000u)

#define CALL tsr_attention_memory(p.call).c

uint attention_kv_head(uint head)
{
    return tsr_attention_memory(p.call).heads[head];
}

uint attention_reader(uint n)
{
    return tsr_attention_memory(p.call).heads[CALL.heads + n];
}

uint attention_first_reader(uint kv_head)
{
    return tsr_attention_memory(p.call).heads[2u * CALL.heads + kv_head];
}

// The address of row 0 of an operand, for one head of one sequence.
uvec2 attention_head(tsr_attention_operand x, uint batch, uint head)
{
    return tsr_at_stride(tsr_at_stride(x.at, batch, x.batch), head, x.head);
}

uint attention_length(uvec2 lengths, uvec2 step, uint batch, uint most)
{
    if (lengths == uvec2(0u))
        return most;
    int length = int(tsr_words(tsr_at_stride(lengths, batch, step)).v[0]);
    return uint(clamp(length, 0, int(most)));
}

// The lengths of one sequence, and the positions of its queries among the keys.
struct attention_sequence {
    int q_length, kv_length;
    int offset; // query i has the position of key i + offset
};

attention_sequence attention_sequence_of(uint batch)
{
    attention_sequence s;
    s.q_length = int(attention_length(CALL.q_lengths, CALL.q_lengths_step, batch, CALL.q_len));
    s.kv_length = int(attention_length(CALL.kv_lengths, CALL.kv_lengths_step, batch, CALL.kv_len));
    s.offset = s.kv_length - s.q_length;
    return s;
}

// Computes a range of keys, first … end − 1, that includes all keys that queries i0 … i1 see.
void attention_keys(attention_sequence s, int i0, int i1, out int first, out int end)
{
    first = 0;
    end = i0 < s.q_length ? s.kv_length : 0;
    if (CALL.causal != 0u) {
        end = min(end, max(min(i1, s.q_length - 1) + s.offset + 1, 0));
        int position = i0 + s.offset;
        if (position >= 0 && uint(position) >= CALL.window)
            first = position - int(CALL.window) + 1;
    }
}

// Computes a range of queries, first … end − 1, that includes all queries that see keys j0 … j1.
void attention_queries(attention_sequence s, int j0, int j1, out int first, out int end)
{
    first = 0;
    end = j0 < s.kv_length ? s.q_length : 0;
    if (CALL.causal != 0u) {
        first = max(j0 - s.offset, 0);
        uint beyond = min(uint(j1) + CALL.window, uint(s.kv_length));
        end = min(end, max(int(beyond) - s.offset, 0));
    }
}

bool attention_sees(attention_sequence s, int i, int j)
{
    bool sees = i < s.q_length && j < s.kv_length;
    if (CALL.causal != 0u) {
        int position = i + s.offset;
        sees = sees && j <= position && uint(position - j) < CALL.window;
    }
    return sees;
}

// Returns the sink of a head, which takes part in the softmax of each of its queries like the score of a key whose value is 0; −inf: none.
float attention_sink(uint head)
{
    uvec2 sinks = CALL.sinks;
    if (sinks == uvec2(0u))
        return tsr_minus_infinity;
    return tsr_floats(tsr_at_stride(sinks, head, CALL.sinks_step)).v[0];
}

// Returns the number of the page that contains key j of a sequence.
uint attention_page(uint batch, uint j)
{
    uvec2 entry = tsr_at_stride(tsr_at_stride(CALL.pages, batch, CALL.pages_batch), j / CALL.page_len, CALL.pages_row);
    return uint(clamp(int(tsr_words(entry).v[0]), 0, int(CALL.page_count) - 1));
}

#endif
