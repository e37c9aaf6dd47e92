// Attention of few queries per key, forward: a workgroup computes up to ROWS queries that read one kv head, from one part of the keys. If
// there are several parts, attention_merge.comp merges their results. An invocation multiplies the queries with one key, and then adds up
// four columns of the values of every SLICES-th key. There are few workgroups, and they wait for memory most of the time. Therefore loads
// are issued AHEAD at a time, and the first values are loaded before the softmax.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/attention.glsl"

layout(constant_id = 0) const uint THREADS = 128;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 8;   // divides THREADS / 4
layout(constant_id = 2) const uint QUADS = 16; // head_dim / 4, rounded up to a power of two
layout(constant_id = 3) const uint Q_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint K_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint V_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint MASK_DTYPE = 0; // 0: no mask
layout(constant_id = 7) const uint LOAD = TSR_ATTENTION_LOAD_SCALAR;
layout(constant_id = 8) const uint CAPPED = 0;
layout(constant_id = 9) const uint PAGED = 0;
layout(constant_id = 10) const uint Y_DTYPE = 0; // 0: there are several parts
// 1: the numbers of iterations of loops are not constant, so that drivers do not unroll these loops. The results have the same bits.
// lavapipe compiles each load to a loop over lanes, so without unrolling it compiles a pipeline in a quarter of the time.
layout(constant_id = 11) const uint ROLLED = 0;
layout(constant_id = 12) const uint EARLY = 0; // as in attention.comp
layout(constant_id = 13) const uint V_QUADS = 16; // as QUADS, for the columns of v

// The values are added up in slices: each group of V_QUADS invocations takes every SLICES-th of a block's THREADS keys.
const uint SLICES = THREADS / V_QUADS;
const uint SHARERS = THREADS / ROWS;  // invocations that share a row in the softmax
const uint SHARE = THREADS / SHARERS; // keys for each of these invocations
const uint AHEAD = ROLLED != 0u ? 1u : QUADS < 8u ? QUADS : 8u;       // quads of a key
const uint V_AHEAD = ROLLED != 0u ? 1u : V_QUADS < 8u ? V_QUADS : 8u; // rows of v

shared vec4 q_tile[ROWS * QUADS];
shared float p_tile[ROWS * THREADS];
shared float parts[2 * THREADS];
shared float row_factor[ROWS];
shared uvec4 scratch[THREADS]; // first the addresses of a block's rows of v, at the end the results of the slices

// Returns n, the number of iterations of a loop, which divides THREADS. If ROLLED is 1, p.quads is THREADS, and the compiler knows neither
// the number nor a bound of it: newer versions of Mesa unroll loops that have a bound, such as min(n, p.quads).
uint trips_of(uint n) { return ROLLED != 0u ? p.quads / (THREADS / n) : n; }
// Returns 0. The compiler does not know it if ROLLED is 1. If a loop's counter were the index of an array, as with one row or one quad, newer
// versions of Mesa would take the array's length for a bound of the loop, and unroll it to more nested branches than lavapipe can compile.
uint zero() { return ROLLED != 0u ? p.quads / THREADS - 1u : 0u; }

uint batch;
attention_sequence sequence;
// CALL.head_dim and CALL.value_dim if EARLY is 1
uint early_head_dim, early_value_dim;

#define HEAD_DIM (EARLY != 0u ? early_head_dim : CALL.head_dim)
#define VALUE_DIM (EARLY != 0u ? early_value_dim : CALL.value_dim)
#include "include/attention_rows.glsl"

// Loads this invocation's columns of V_AHEAD rows of v, the first of which is number `column` of a block that has `rows` rows. Rows past the
// block's end are 0.
void load_values(rows_of v, uint column, uint rows, out vec4 values[V_AHEAD])
{
    [[unroll]] for (uint n = 0u; n < V_AHEAD; n++) {
        uint row = column + n * SLICES;
        vec4 value = load_quad_at(v, scratch[row].xy, gl_LocalInvocationIndex % V_QUADS * 4u, V_DTYPE);
        values[n] = row < rows ? value : vec4(0.0);
    }
}

// Finds query number n of those that read a kv head.
void find_query(uint first_reader, uint n, out uint head, out int query)
{
    head = attention_reader(first_reader + n / CALL.q_len);
    query = int(n % CALL.q_len);
}

void main()
{
    if (EARLY != 0u) {
        early_head_dim = CALL.head_dim;
        early_value_dim = CALL.value_dim;
    }
    uint thread = gl_LocalInvocationIndex, group = tsr_flat_group();
    if (group >= p.count)
        return;
    group += p.first;
    uint part = group % p.parts;
    uint block = group / p.parts % p.row_blocks;
    uint kv_head = group / p.parts / p.row_blocks % CALL.kv_heads;
    batch = group / p.parts / p.row_blocks / CALL.kv_heads;
    sequence = attention_sequence_of(batch);
    uint first_reader = attention_first_reader(kv_head);
    uint queries = (attention_first_reader(kv_head + 1u) - first_reader) * CALL.q_len;
    uint first_query = block * ROWS;
    if (first_query >= queries)
        return;
    rows_of k = cache_rows_at(CALL.k, kv_head, HEAD_DIM), v = cache_rows_at(CALL.v, kv_head, VALUE_DIM);

    uint head;
    int query;
    for (uint e = thread; e < ROWS * QUADS; e += THREADS) {
        find_query(first_reader, min(first_query + e / QUADS, queries - 1u), head, query);
        q_tile[e] = load_quad(rows_at(CALL.q, head, HEAD_DIM), uint(query), e % QUADS * 4u, Q_DTYPE);
    }
    int first, end;
    attention_keys(sequence, 0, int(CALL.q_len) - 1, first, end);
    first = max(first, int(part * p.part_keys));
    end = min(end, int(min((part + 1u) * p.part_keys, CALL.kv_len)));
    // In the softmax, several invocations share a row. This invocation has the same query in all
    // blocks.
    uint row = thread / SHARERS, sharer = thread % SHARERS;
    find_query(first_reader, min(first_query + row, queries - 1u), head, query);
    uvec2 mask = attention_head(CALL.mask, batch, head);
    float largest = tsr_minus_infinity, sum = 0.0, slope;
    // If there are several parts, attention_merge.comp adds the sink.
    if (Y_DTYPE != 0u) {
        largest = attention_sink(head);
        sum = sharer != 0u || largest == tsr_minus_infinity ? 0.0 : 1.0;
    }
    vec4 result[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++)
        result[r] = vec4(0.0);
    barrier();
    for (int j0 = first; j0 < end; j0 += int(THREADS)) {
        float scores[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++)
            scores[r] = 0.0;
        uint key = uint(min(j0 + int(thread), end - 1)), page = page_of(k, key);
        uvec2 k_row = row_address_in(k, page, key);
        scratch[thread].xy = row_address_in(v, page, key);
        for (uint quad0 = 0u; quad0 < trips_of(QUADS); quad0 += AHEAD) {
            vec4 of_key[AHEAD];
            [[unroll]] for (uint n = 0u; n < AHEAD; n++)
                of_key[n] = load_quad_at(k, k_row, (quad0 + n) * 4u, K_DTYPE);
            // The products are added in attention.comp's order, so that the backward pass computes the same bits.
            [[unroll]] for (uint n = 0u; n < AHEAD; n++)
                [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                    vec4 of_query = q_tile[r * QUADS + quad0 + n];
                    [[unroll]] for (uint c = 0u; c < 4u; c++)
                        scores[r] = fma(of_query[c], of_key[n][c], scores[r]);
                }
        }
        [[unroll]] for (uint r = 0u; r < ROWS; r++)
            p_tile[r * THREADS + thread] = scores[r];
        barrier();
        vec4 values[V_AHEAD];
        load_values(v, thread / V_QUADS, uint(end - j0), values);

        // This loop has no unroll hint, because SwiftShader computed wrong results with one.
        float most = tsr_minus_infinity;
        for (uint n = 0u; n < trips_of(SHARE); n++) {
            uint column = n * SHARERS + sharer, at = row * THREADS + column;
            float score = score_of(p_tile[at], query, j0 + int(column), mask, slope);
            score = j0 + int(column) < end ? score : tsr_minus_infinity;
            p_tile[at] = score;
            most = max(most, score);
        }
        parts[thread] = most;
        barrier();
        most = largest;
        [[unroll]] for (uint n = 0u; n < trips_of(SHARERS); n++)
            most = max(most, parts[zero() + row * SHARERS + n]);
        float shift = most == tsr_minus_infinity ? 0.0 : most;
        float factor = tsr_exp(largest - shift), own = 0.0;
        [[unroll]] for (uint n = 0u; n < trips_of(SHARE); n++) {
            uint at = row * THREADS + n * SHARERS + sharer;
            float value = tsr_exp(p_tile[at] - shift);
            p_tile[at] = value;
            own += value;
        }
        largest = most;
        sum = sum * factor + own;
        if (sharer == 0u)
            row_factor[row] = factor;
        barrier();

        [[unroll]] for (uint r = 0u; r < ROWS; r++)
            result[r] *= row_factor[r];
        for (uint column = thread / V_QUADS; column < trips_of(THREADS); column += V_AHEAD * SLICES) {
            if (column >= SLICES)
                load_values(v, column, uint(end - j0), values);
            [[unroll]] for (uint n = 0u; n < V_AHEAD; n++)
                [[unroll]] for (uint r = 0u; r < ROWS; r++)
                    result[r] = fma(vec4(p_tile[r * THREADS + column + n * SLICES]), values[n], result[r]);
        }
        barrier();
    }

    // Adds up each row's sum of probabilities. Then adds up the slices of the result, row by row and in
    // order, so that the bits do not vary.
    parts[THREADS + thread] = sum;
    barrier();
    sum = 0.0;
    [[unroll]] for (uint n = 0u; n < trips_of(SHARERS); n++)
        sum += parts[THREADS + zero() + row * SHARERS + n];
    if (Y_DTYPE != 0u && sharer == 0u)
        row_factor[row] = sum == 0.0 ? 0.0 : 1.0 / sum;
    for (uint r = 0u; r < ROWS; r++) {
        [[unroll]] for (uint c = 0u; c < ROWS; c++)
            if (c == r)
                scratch[thread] = floatBitsToUint(result[c]);
        barrier();
        bool exists = first_query + r < queries;
        find_query(first_reader, min(first_query + r, queries - 1u), head, query);
        uint number = (batch * CALL.heads + head) * CALL.q_len + uint(query);
        uvec2 to = tsr_at_mul(p.partial, number * p.parts + part, 4u * (VALUE_DIM + 2u));
        if (exists && thread < V_QUADS) {
            vec4 total = vec4(0.0);
            [[unroll]] for (uint n = 0u; n < trips_of(SLICES); n++)
                total += uintBitsToFloat(scratch[zero() + n * V_QUADS + thread]);
            uvec2 y = uvec2(0u);
            if (Y_DTYPE != 0u) {
                total *= row_factor[r];
                y = tsr_at_stride(attention_head(CALL.y, batch, head), uint(query), CALL.y.row);
            }
            for (uint n = 0u; n < 4u; n++)
                if (thread * 4u + n < VALUE_DIM) {
                    if (Y_DTYPE != 0u)
                        tsr_store_float(tsr_at_stride(y, thread * 4u + n, CALL.y.column), 0u, Y_DTYPE, total[n]);
                    else
                        tsr_floats(to).v[2u + thread * 4u + n] = total[n];
                }
        }
        if (exists && row == r && sharer == 0u) {
            if (Y_DTYPE == 0u) {
                tsr_floats(to).v[0] = largest;
                tsr_floats(to).v[1] = sum;
            } else if (CALL.lse.at != uvec2(0u)) {
                tsr_floats(tsr_at_stride(attention_head(CALL.lse, batch, head), uint(query), CALL.lse.row)).v[0] =
                    sum == 0.0 ? tsr_minus_infinity : largest + tsr_log(sum);
            }
        }
        barrier();
    }
}
