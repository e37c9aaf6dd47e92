// Loads rows of the operands of attention, and computes scores. The including file declares the variables `batch` (the number of the
// sequence that it works on) and `sequence` (its lengths), and the specialization constants LOAD, PAGED, MASK_DTYPE and FORM.
#ifndef TSR_ATTENTION_ROWS_GLSL
#define TSR_ATTENTION_ROWS_GLSL

// The columns of q and k, and those of v and y. The including file can define other expressions that have these values.
#ifndef HEAD_DIM
#define HEAD_DIM CALL.head_dim
#define VALUE_DIM CALL.value_dim
#endif

// The rows of one operand, for one head.
struct rows_of {
    uvec2 at, row, column;
    uvec2 page; // bytes from one page to the next, if the rows are in a cache
    bool paged;
    uint dim; // columns
};

rows_of rows_at(tsr_attention_operand x, uint head, uint dim)
{
    return rows_of(attention_head(x, batch, head), x.row, x.column, uvec2(0u), false, dim);
}

rows_of cache_rows_at(tsr_attention_operand x, uint head, uint dim)
{
    if (PAGED == 0u)
        return rows_at(x, head, dim);
    return rows_of(tsr_at_stride(x.at, head, x.head), x.row, x.column, x.batch, true, dim);
}

// Returns the number of the page that contains a row.
uint page_of(rows_of x, uint row)
{
    return x.paged ? attention_page(batch, row) : 0u;
}

uvec2 row_address_in(rows_of x, uint page, uint row)
{
    if (!x.paged)
        return tsr_at_stride(x.at, row, x.row);
    return tsr_at_stride(tsr_at_stride(x.at, page, x.page), row % CALL.page_len, x.row);
}

uvec2 row_address(rows_of x, uint row)
{
    return row_address_in(x, page_of(x, row), row);
}

// Loads four columns of the row at an address. Columns from x.dim on are 0.
vec4 load_quad_at(rows_of x, uvec2 at, uint column, uint dtype)
{
    uint dim = x.dim;
    if (tsr_is_block(dtype)) {
        vec4 value = tsr_load_block4(at, min(column, dim - 4u), dtype);
        return column < dim ? value : vec4(0.0);
    }
    if (LOAD != TSR_ATTENTION_LOAD_SCALAR) {
        uvec2 from = tsr_at(at, min(column, dim - 4u) * tsr_dtype_bytes(dtype));
        vec4 value = LOAD == TSR_ATTENTION_LOAD_ALIGNED ? tsr_load_aligned4(from, dtype) : tsr_load_dense4(from, dtype);
        return column < dim ? value : vec4(0.0);
    }
    vec4 value;
    [[unroll]] for (uint k = 0u; k < 4u; k++) {
        float loaded = tsr_load_float(tsr_at_stride(at, min(column + k, dim - 1u), x.column), 0u, dtype);
        value[k] = column + k < dim ? loaded : 0.0;
    }
    return value;
}

vec4 load_quad(rows_of x, uint row, uint column, uint dtype)
{
    return load_quad_at(x, row_address(x, row), column, dtype);
}

// Returns the first key that a query sees if the call has `starts`, otherwise 0.
int start_of(int query)
{
    if ((FORM & TSR_ATTENTION_STARTS) == 0u)
        return 0;
    uint row = uint(clamp(query, 0, int(CALL.q_len) - 1));
    return max(int(tsr_words(tsr_at_stride(tsr_at_stride(CALL.starts, batch, CALL.starts_batch), row, CALL.starts_row)).v[0]), 0);
}

// As attention_keys and attention_queries, within the limits that the call's `starts` set. Starts do not decrease, so the first query of a
// range sees the first key of it, and the queries that see keys up to j1 are those before the first one that starts later.
void keys_seen(int i0, int i1, out int first, out int end)
{
    attention_keys(sequence, i0, i1, first, end);
    if ((FORM & TSR_ATTENTION_STARTS) != 0u)
        first = max(first, start_of(i0));
}

void queries_seen(int j0, int j1, out int first, out int end)
{
    attention_queries(sequence, j0, j1, first, end);
    if ((FORM & TSR_ATTENTION_STARTS) == 0u)
        return;
    int low = first;
    while (low < end) {
        int middle = (low + end) / 2;
        if (start_of(middle) > j1)
            end = middle;
        else
            low = middle + 1;
    }
}

// The scale's factor that grows with a query's position. It is 1 if there is no temperature. `start` is start_of(query).
float temperature_of(int query, int start)
{
    if ((FORM & TSR_ATTENTION_TEMPERED) == 0u)
        return 1.0;
    uint position = uint(max(query + sequence.offset - start, 0));
    return 1.0 + CALL.temperature * tsr_log(1.0 + float(position / CALL.temperature_length));
}

// Computes the score of a query and a key from their product. `start` is start_of(query), and `slope` the score's derivative with
// respect to scale · product.
float score_of(float product, int query, int key, int start, uvec2 mask, out float slope)
{
    float score = product * CALL.scale;
    slope = 1.0;
    if ((FORM & TSR_ATTENTION_TEMPERED) != 0u) {
        slope = temperature_of(query, start);
        score *= slope;
    }
    if ((FORM & TSR_ATTENTION_CAPPED) != 0u) {
        vec2 cap = attention_tanh(score / CALL.softcap);
        score = CALL.softcap * cap.x;
        slope *= cap.y;
    }
    bool sees = attention_sees(sequence, query, key) && key >= start;
    if (MASK_DTYPE != 0u && sees)
        score += tsr_load_float(tsr_at_stride(tsr_at_stride(mask, uint(query), CALL.mask.row), uint(key), CALL.mask.column), 0u,
                                MASK_DTYPE);
    return sees ? score : tsr_minus_infinity;
}

#endif
