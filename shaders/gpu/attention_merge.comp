// Merges the results of attention_few.comp or attention_step.comp for the parts of the keys, in their order. There is one invocation for
// each four columns of a query.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/attention.glsl"
#include "include/elements.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint Y_DTYPE = TSR_DT_F32;

void main()
{
    uint quads = (CALL.value_dim + 3u) / 4u, item = tsr_flat_invocation();
    if (item >= p.count)
        return;
    uint number = p.first + item / quads, column = item % quads * 4u, dim = CALL.value_dim;
    uint row = number % CALL.q_len, head = number / CALL.q_len % CALL.heads, batch = number / CALL.q_len / CALL.heads;
    const float sink = attention_sink(head);
    float largest = sink;
    for (uint part = 0u; part < p.parts; part++)
        largest = max(largest, tsr_floats(tsr_at_mul(p.partial, number * p.parts + part, 4u * (dim + 2u))).v[0]);
    float shift = largest == tsr_minus_infinity ? 0.0 : largest, sum = tsr_exp(sink - shift);
    vec4 result = vec4(0.0);
    for (uint part = 0u; part < p.parts; part++) {
        tsr_floats from = tsr_floats(tsr_at_mul(p.partial, number * p.parts + part, 4u * (dim + 2u)));
        float factor = tsr_exp(from.v[0] - shift);
        sum += factor * from.v[1];
        [[unroll]] for (uint n = 0u; n < 4u; n++)
            result[n] += factor * from.v[2u + min(column + n, dim - 1u)];
    }
    result *= sum == 0.0 ? 0.0 : 1.0 / sum;
    uvec2 y = tsr_at_stride(attention_head(CALL.y, batch, head), row, CALL.y.row);
    for (uint n = 0u; n < 4u; n++)
        if (column + n < dim)
            tsr_store_float(tsr_at_stride(y, column + n, CALL.y.column), 0u, Y_DTYPE, result[n]);
    if (column == 0u && CALL.lse.at != uvec2(0u))
        tsr_floats(tsr_at_stride(attention_head(CALL.lse, batch, head), row, CALL.lse.row)).v[0] =
            sum == 0.0 ? tsr_minus_infinity : largest + tsr_log(sum);
}
