// Merges the results of attention for the parts of the keys. The including file can define TSR_PARTIAL, the type with which it reads them,
// in vectors.
#ifndef TSR_ATTENTION_PARTS_GLSL
#define TSR_ATTENTION_PARTS_GLSL

#ifndef TSR_PARTIAL
#define TSR_PARTIAL tsr_floats4
#endif

TSR_PARTIAL attention_part(uint number, uint part)
{
    return TSR_PARTIAL(tsr_at_mul(p.partial, number * p.parts + part, 4u * TSR_ATTENTION_PART_FLOATS(CALL.value_dim)));
}

// Merges the p.parts results of one query, in the order of the parts. Stores four columns of y from `column` on and, with the first
// columns, lse if the call has it.
void attention_merge_parts(uint batch, uint head, uint query, uint column, uint y_dtype)
{
    uint number = (batch * CALL.heads + head) * CALL.q_len + query, dim = CALL.value_dim;
    const float sink = attention_sink(head);
    float largest = sink;
    for (uint part = 0u; part < p.parts; part++)
        largest = max(largest, attention_part(number, part).v[0].x);
    float shift = largest == tsr_minus_infinity ? 0.0 : largest, sum = tsr_exp(sink - shift);
    vec4 result = vec4(0.0);
    for (uint part = 0u; part < p.parts; part++) {
        TSR_PARTIAL from = attention_part(number, part);
        vec4 head_of_part = from.v[0];
        float factor = tsr_exp(head_of_part.x - shift);
        sum += factor * head_of_part.y;
        result += factor * from.v[(TSR_ATTENTION_PART_HEAD + column) / 4u];
    }
    result *= sum == 0.0 ? 0.0 : 1.0 / sum;
    uvec2 y = tsr_at_stride(attention_head(CALL.y, batch, head), query, CALL.y.row);
    for (uint n = 0u; n < 4u; n++)
        if (column + n < dim)
            tsr_store_float(tsr_at_stride(y, column + n, CALL.y.column), 0u, y_dtype, result[n]);
    if (column == 0u && CALL.lse.at != uvec2(0u))
        tsr_floats(tsr_at_stride(attention_head(CALL.lse, batch, head), query, CALL.lse.row)).v[0] =
            sum == 0.0 ? tsr_minus_infinity : largest + tsr_log(sum);
}

#endif
