// Computes the gradients of attention sinks: dsinks[h] = −Σ exp(sinks[h] − lse)·delta over all queries of head h. A workgroup computes one
// head.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/attention.glsl"
#include "include/elements.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 128;

const uint THREADS = WORKGROUP;
#include "include/thread_group.glsl"

void main()
{
    uint q_len = CALL.q_len, queries = CALL.batch * q_len;
    bool owner = group_row() < p.count; // invocations without a head only take part in barriers
    uint head = min(group_row(), p.count - 1u) + p.first;
    float sink = attention_sink(head);
    precise float sum = 0.0;
    for (uint n = group_thread(); n < queries; n += THREADS) {
        uint batch = n / q_len, row = n % q_len;
        float lse = tsr_floats(tsr_at_stride(attention_head(CALL.lse, batch, head), row, CALL.lse.row)).v[0];
        float delta = tsr_floats(tsr_at_stride(attention_head(CALL.delta, batch, head), row, CALL.delta.row)).v[0];
        // A sink of −inf has no probability, even if the query sees no key.
        sum -= sink == tsr_minus_infinity ? 0.0 : tsr_exp(sink - lse) * delta;
    }
    sum = group_sum(vec4(sum, 0.0, 0.0, 0.0));
    if (owner && group_thread() == 0u)
        tsr_floats(tsr_at_stride(p.dsinks, head, p.dsinks_step)).v[0] = sum;
}
