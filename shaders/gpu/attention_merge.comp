// Merges the results of attention_few.comp or attention_step.comp for the parts of the keys, in their order. There is one invocation for
// each four columns of a query.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/attention.glsl"
#include "include/attention_parts.glsl"
#include "include/elements.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint Y_DTYPE = TSR_DT_F32;

void main()
{
    uint quads = (CALL.value_dim + 3u) / 4u, item = tsr_flat_invocation();
    if (item >= p.count)
        return;
    uint number = p.first + item / quads;
    attention_merge_parts(number / CALL.q_len / CALL.heads, number / CALL.q_len % CALL.heads, number % CALL.q_len, item % quads * 4u, Y_DTYPE);
}
