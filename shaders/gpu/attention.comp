// Attention and its gradients in blocks, for GPUs. A workgroup computes the result for BX rows,
// which are queries or keys; it "owns" them. It loops over the rows of the other kind, keys or
// queries, BY at a time:
//
//   KIND     owns     loops over  computes
//   FORWARD  queries  keys        y = Σ p·v, with the rows' running maxima and sums of exponentials
//   DQ       queries  keys        dq = Σ ds·k
//   DK       keys     queries     dk = Σ ds·q, over the heads that read the kv head, in their order
//   DV       keys     queries     dv = Σ p·dy, over the same heads
//   DELTA    queries  keys        delta = Σ p·dp, which is Σ dy·y without y's rounding to 16 bits
//
// Here p = exp(s − lse), ds = p·(dp − delta)·scale and dp = dy·v. A block's scores s (and dp) are
// products of two tiles in shared memory, 64 columns at a time. Then p or ds is stored in shared
// memory as the left operand of the second product. The result stays in registers. Four chunks of 64 columns
// fit, so a result with more columns takes several dispatches, each of which computes all scores.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/attention.glsl"
#include "include/elements.glsl"

layout(constant_id = 0) const uint THREADS = 128; // 4 · BX; the invocations form a grid that is 16 wide, and each has 4 rows
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TN = 2;     // the number of scores in a row that an invocation has
layout(constant_id = 2) const uint CHUNKS = 2; // a row of the result has this many times 64 columns, from p.first_chunk on
layout(constant_id = 3) const uint KIND = TSR_ATTENTION_FORWARD;
layout(constant_id = 4) const uint Q_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint K_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint V_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 8) const uint OUT_DTYPE = TSR_DT_F32;
layout(constant_id = 9) const uint MASK_DTYPE = 0; // 0: no mask
layout(constant_id = 10) const uint LOAD = TSR_ATTENTION_LOAD_SCALAR;
layout(constant_id = 11) const uint FORM = 0; // TSR_ATTENTION_CAPPED, …_TEMPERED and …_STARTS
layout(constant_id = 12) const uint PAGED = 0;
// 1: the numbers of iterations of the loops over products are not constant, so that drivers do not
// unroll these loops. Unrolled, they need more registers than Intel's GPUs have.
layout(constant_id = 13) const uint ROLLED = 0;
// 1: main loads CALL.head_dim before its first branch. Otherwise its first load is where a tile is loaded, and later code uses the load's
// address, too. lavapipe of Mesa 26.2 keeps that address in a variable that only active invocations set. It also executes the load in subgroups
// that have no active invocation, and then loads from address 0.
layout(constant_id = 14) const uint EARLY = 0;
layout(constant_id = 15) const uint QK_CHUNKS = 2; // a row of q and k has this many times 64 columns
layout(constant_id = 16) const uint V_CHUNKS = 2;  // the same for v and dy

const uint TM = 4;
const uint ACROSS = 16;
const uint SCORES = TM * TN;
const uint BX = THREADS / 4;
const uint BY = ACROSS * TN;
const uint QUADS = TSR_ATTENTION_QUADS;
const uint COLUMNS = 4 * QUADS;
const uint TILE_ROW = QUADS + 1; // odd, so that the vectors of a column are in different banks
const uint P_ROW = BY / 4 + 1;
const bool OWNS_KEYS = KIND == TSR_ATTENTION_DK || KIND == TSR_ATTENTION_DV;

shared vec4 own_tile[BX * TILE_ROW];
shared vec4 other_tile[BY * TILE_ROW];
shared vec4 p_tile[BX * P_ROW];
shared float row_parts[2 * THREADS]; // partial results of the four invocations that share a row in the softmax
shared float row_factor[BX];
shared float query_delta[BX > BY ? BX : BY];

// The numbers of iterations of loops, which the compiler does not know if ROLLED is 1.
uint quad_trips() { return ROLLED != 0u ? p.quads : QUADS; }
uint trips_of(uint chunks) { return ROLLED != 0u ? p.quads / QUADS * chunks : chunks; }

// The column and the row of this invocation in the grid of invocations. Its rows in the block begin
// with number 4 · tile_y.
uint tile_x, tile_y;
uint batch;
attention_sequence sequence;
// CALL.head_dim and CALL.value_dim if EARLY is 1
uint early_head_dim, early_value_dim;

#define HEAD_DIM (EARLY != 0u ? early_head_dim : CALL.head_dim)
#define VALUE_DIM (EARLY != 0u ? early_value_dim : CALL.value_dim)
#include "include/attention_rows.glsl"

// Loads one chunk (64 columns) of rows into own_tile, from row `first` on. Rows from `end` on are 0 and are not read. `end` must be greater
// than `first`.
void load_own(rows_of x, int first, int end, uint chunk, uint dtype)
{
    [[unroll]] for (uint n = 0u; n < BX * QUADS / THREADS; n++) {
        uint e = n * THREADS + gl_LocalInvocationIndex;
        int row = first + int(e / QUADS);
        vec4 value = load_quad(x, uint(min(row, end - 1)), chunk * COLUMNS + e % QUADS * 4u, dtype);
        own_tile[e / QUADS * TILE_ROW + e % QUADS] = row < end ? value : vec4(0.0);
    }
}

// Loads other_tile as load_own() loads own_tile.
void load_other(rows_of x, int first, int end, uint chunk, uint dtype)
{
    for (uint e = gl_LocalInvocationIndex; e < BY * QUADS; e += THREADS) {
        int row = first + int(e / QUADS);
        vec4 value = load_quad(x, uint(min(row, end - 1)), chunk * COLUMNS + e % QUADS * 4u, dtype);
        other_tile[e / QUADS * TILE_ROW + e % QUADS] = row < end ? value : vec4(0.0);
    }
}

// Adds to `sums`, for one chunk, the dot products of the rows of own_tile with those of other_tile. The scores of an invocation in a row
// are 16 columns apart.
void multiply_tiles(inout float sums[SCORES])
{
    const uint quads = quad_trips();
    for (uint quad = 0u; quad < quads; quad++) {
        vec4 own[TM], other[TN];
        [[unroll]] for (uint i = 0u; i < TM; i++)
            own[i] = own_tile[(tile_y * TM + i) * TILE_ROW + quad];
        [[unroll]] for (uint j = 0u; j < TN; j++)
            other[j] = other_tile[(tile_x + j * ACROSS) * TILE_ROW + quad];
        [[unroll]] for (uint k = 0u; k < 4u; k++)
            [[unroll]] for (uint i = 0u; i < TM; i++)
                [[unroll]] for (uint j = 0u; j < TN; j++)
                    sums[i * TN + j] = fma(own[i][k], other[j][k], sums[i * TN + j]);
    }
}

vec4 result[TM * CHUNKS]; // columns 4·tile_x … 4·tile_x + 3 of each chunk

void clear_result()
{
    [[unroll]] for (uint n = 0u; n < TM * CHUNKS; n++)
        result[n] = vec4(0.0);
}

// result += p_tile · other_tile, for the columns of one chunk.
void add_products(uint chunk)
{
    const uint quads = quad_trips() / (QUADS / (BY / 4u));
    for (uint quad = 0u; quad < quads; quad++) {
        vec4 left[TM];
        [[unroll]] for (uint i = 0u; i < TM; i++)
            left[i] = p_tile[(tile_y * TM + i) * P_ROW + quad];
        [[unroll]] for (uint k = 0u; k < 4u; k++) {
            vec4 right = other_tile[(quad * 4u + k) * TILE_ROW + tile_x];
            [[unroll]] for (uint i = 0u; i < TM; i++)
                result[i * CHUNKS + chunk] = fma(vec4(left[i][k]), right, result[i * CHUNKS + chunk]);
        }
    }
}

// Stores an invocation's elements of p_tile. No other invocation writes to them.
void keep_p(float values[SCORES])
{
    [[unroll]] for (uint i = 0u; i < TM; i++)
        [[unroll]] for (uint j = 0u; j < TN; j++) {
            uint column = tile_x + j * ACROSS;
            p_tile[(tile_y * TM + i) * P_ROW + column / 4u][column % 4u] = values[i * TN + j];
        }
}

// Stores rows of the result times row_factor. They go through shared memory, so that neighbouring
// invocations store neighbouring elements. The loop over chunks is not unrolled. Inside it, `chunk`
// is compared with each constant number, because an array that a loop's counter indexes would be
// kept in memory.
void store_result(rows_of x, int first, int end)
{
    const uint chunks = trips_of(CHUNKS);
    for (uint chunk = 0u; chunk < chunks; chunk++) {
        barrier();
        [[unroll]] for (uint c = 0u; c < CHUNKS; c++)
            if (c == chunk)
                [[unroll]] for (uint i = 0u; i < TM; i++)
                    own_tile[(tile_y * TM + i) * TILE_ROW + tile_x] = result[i * CHUNKS + c];
        barrier();
        for (uint e = gl_LocalInvocationIndex; e < BX * QUADS; e += THREADS) {
            uint row = e / QUADS, column = (p.first_chunk + chunk) * COLUMNS + e % QUADS * 4u;
            if (first + int(row) >= end || column >= x.dim)
                continue;
            vec4 value = own_tile[row * TILE_ROW + e % QUADS] * row_factor[row];
            uvec2 at = row_address(x, uint(first) + row);
            uvec2 bits[4];
            [[unroll]] for (uint k = 0u; k < 4u; k++)
                bits[k] = uvec2(tsr_bits_of(value[k], OUT_DTYPE), 0u);
            uint size = tsr_dtype_bytes(OUT_DTYPE), count = min(4u, x.dim - column);
            if (x.column.x == size)
                tsr_store_run(tsr_at(at, column * size), 0u, size, count, bits);
            else
                for (uint k = 0u; k < count; k++)
                    tsr_store_bits(tsr_at_stride(at, column + k, x.column), 0u, size, bits[k]);
        }
    }
}

// Computes the dot products of the rows of two operands, which have `all_chunks` chunks, for one block: BX own rows and BY other rows.
void products(uint all_chunks, rows_of own, uint own_dtype, int own_first, int own_end, rows_of other, uint other_dtype, int other_first, int other_end,
              out float sums[SCORES])
{
    [[unroll]] for (uint n = 0u; n < TM * TN; n++)
        sums[n] = 0.0;
    const uint chunks = trips_of(all_chunks);
    for (uint chunk = 0u; chunk < chunks; chunk++) {
        barrier();
        load_own(own, own_first, own_end, chunk, own_dtype);
        load_other(other, other_first, other_end, chunk, other_dtype);
        barrier();
        multiply_tiles(sums);
    }
}

void add_rows(rows_of other, uint dtype, int first, int end)
{
    const uint chunks = trips_of(CHUNKS);
    for (uint chunk = 0u; chunk < chunks; chunk++) {
        barrier();
        load_other(other, first, end, p.first_chunk + chunk, dtype);
        barrier();
        [[unroll]] for (uint c = 0u; c < CHUNKS; c++)
            if (c == chunk)
                add_products(c);
    }
}

// In the softmax, each row of p_tile is shared by four invocations, each of which has every fourth
// column.
const uint SHARERS = 4;
float row_largest, row_sum;

float p_element(uint row, uint n)
{
    return p_tile[row * P_ROW + n][gl_LocalInvocationIndex % SHARERS];
}

void set_p_element(uint row, uint n, float value)
{
    p_tile[row * P_ROW + n][gl_LocalInvocationIndex % SHARERS] = value;
}

// Replaces the products in p_tile by exponentials relative to the rows' largest scores so far, and
// scales the result accordingly.
void softmax_step(int i0, int j0, uvec2 mask)
{
    uint row = gl_LocalInvocationIndex / SHARERS, sharer = gl_LocalInvocationIndex % SHARERS;
    float most = tsr_minus_infinity, slope;
    const int start = start_of(i0 + int(row));
    barrier();
    for (uint n = 0u; n < BY / SHARERS; n++) {
        float score = score_of(p_element(row, n), i0 + int(row), j0 + int(n * SHARERS + sharer), start, mask, slope);
        most = max(most, score);
        set_p_element(row, n, score);
    }
    row_parts[gl_LocalInvocationIndex] = most;
    barrier();
    most = row_largest;
    [[unroll]] for (uint n = 0u; n < SHARERS; n++)
        most = max(most, row_parts[row * SHARERS + n]);
    float shift = most == tsr_minus_infinity ? 0.0 : most;
    float factor = tsr_exp(row_largest - shift);
    float sum = 0.0;
    for (uint n = 0u; n < BY / SHARERS; n++) {
        float value = tsr_exp(p_element(row, n) - shift);
        sum += value;
        set_p_element(row, n, value);
    }
    row_largest = most;
    row_parts[THREADS + gl_LocalInvocationIndex] = sum;
    if (sharer == 0u)
        row_factor[row] = factor;
    barrier();
    row_sum *= factor;
    [[unroll]] for (uint n = 0u; n < SHARERS; n++)
        row_sum += row_parts[THREADS + row * SHARERS + n];
    [[unroll]] for (uint i = 0u; i < TM; i++)
        [[unroll]] for (uint chunk = 0u; chunk < CHUNKS; chunk++)
            result[i * CHUNKS + chunk] *= row_factor[tile_y * TM + i];
}

void forward(uint head, int i0)
{
    uint kv_head = attention_kv_head(head);
    rows_of q = rows_at(CALL.q, head, HEAD_DIM);
    rows_of k = cache_rows_at(CALL.k, kv_head, HEAD_DIM), v = cache_rows_at(CALL.v, kv_head, VALUE_DIM);
    uvec2 mask = attention_head(CALL.mask, batch, head);
    int q_len = int(CALL.q_len);
    int first, end;
    keys_seen(i0, min(i0 + int(BX), q_len) - 1, first, end);

    row_largest = attention_sink(head);
    row_sum = row_largest == tsr_minus_infinity ? 0.0 : 1.0;
    clear_result();
    for (int j0 = first; j0 < end; j0 += int(BY)) {
        float scores[SCORES];
        products(QK_CHUNKS, q, Q_DTYPE, i0, q_len, k, K_DTYPE, j0, end, scores);
        keep_p(scores);
        softmax_step(i0, j0, mask);
        add_rows(v, V_DTYPE, j0, end);
    }

    uint row = gl_LocalInvocationIndex / SHARERS;
    barrier();
    if (gl_LocalInvocationIndex % SHARERS == 0u) {
        row_factor[row] = row_sum == 0.0 ? 0.0 : 1.0 / row_sum;
        if (CALL.lse.at != uvec2(0u) && i0 + int(row) < q_len)
            tsr_floats(tsr_at_stride(attention_head(CALL.lse, batch, head), uint(i0) + row, CALL.lse.row)).v[0] =
                row_sum == 0.0 ? tsr_minus_infinity : row_largest + tsr_log(row_sum);
    }
    store_result(rows_at(CALL.y, head, VALUE_DIM), i0, q_len);
}

// Replaces the products q·k in p_tile by the probabilities p. For DQ and DK, also multiplies p by the
// derivative of the score with respect to q·k, and loads delta.
void probabilities(uint head, int own_first, int other_first)
{
    uvec2 mask = attention_head(CALL.mask, batch, head), lse = attention_head(CALL.lse, batch, head),
          delta = attention_head(CALL.delta, batch, head);
    uint row = gl_LocalInvocationIndex / SHARERS, sharer = gl_LocalInvocationIndex % SHARERS;
    int own = own_first + int(row), last = int(CALL.q_len) - 1;
    const int own_start = OWNS_KEYS ? 0 : start_of(own);
    barrier();
    for (uint n = 0u; n < BY / SHARERS; n++) {
        int other = other_first + int(n * SHARERS + sharer);
        int query = OWNS_KEYS ? other : own, key = OWNS_KEYS ? own : other;
        float slope;
        int start = OWNS_KEYS ? start_of(query) : own_start;
        float score = score_of(p_element(row, n), query, key, start, mask, slope);
        float log_sum = tsr_floats(tsr_at_stride(lse, uint(min(query, last)), CALL.lse.row)).v[0];
        bool counts = attention_sees(sequence, query, key) && key >= start && log_sum != tsr_minus_infinity;
        float value = tsr_exp(score - log_sum);
        if (KIND == TSR_ATTENTION_DQ || KIND == TSR_ATTENTION_DK)
            value *= slope * CALL.scale;
        set_p_element(row, n, counts ? value : 0.0);
    }
    if ((KIND == TSR_ATTENTION_DQ || KIND == TSR_ATTENTION_DK) && gl_LocalInvocationIndex < (OWNS_KEYS ? BY : BX)) {
        int query = (OWNS_KEYS ? other_first : own_first) + int(gl_LocalInvocationIndex);
        query_delta[gl_LocalInvocationIndex] = tsr_floats(tsr_at_stride(delta, uint(min(query, last)), CALL.delta.row)).v[0];
    }
}

// Replaces p in p_tile by ds, or by p·dp for DELTA.
void apply_delta(float dp[SCORES])
{
    float values[SCORES];
    [[unroll]] for (uint i = 0u; i < TM; i++)
        [[unroll]] for (uint j = 0u; j < TN; j++) {
            uint column = tile_x + j * ACROSS, row = tile_y * TM + i;
            float difference = dp[i * TN + j] - (KIND == TSR_ATTENTION_DELTA ? 0.0 : query_delta[OWNS_KEYS ? column : row]);
            float value = p_tile[row * P_ROW + column / 4u][column % 4u];
            values[i * TN + j] = value == 0.0 ? 0.0 : value * difference;
        }
    keep_p(values);
}

void ones_to_row_factor()
{
    if (gl_LocalInvocationIndex < BX)
        row_factor[gl_LocalInvocationIndex] = 1.0;
}

void add_row_sums()
{
    barrier();
    for (uint n = 0u; n < BY / SHARERS; n++)
        row_sum += p_element(gl_LocalInvocationIndex / SHARERS, n);
}

void store_delta(uint head, int i0)
{
    uint row = gl_LocalInvocationIndex / SHARERS;
    row_parts[gl_LocalInvocationIndex] = row_sum;
    barrier();
    float sum = 0.0;
    [[unroll]] for (uint n = 0u; n < SHARERS; n++)
        sum += row_parts[row * SHARERS + n];
    if (gl_LocalInvocationIndex % SHARERS == 0u && i0 + int(row) < int(CALL.q_len))
        tsr_floats(tsr_at_stride(attention_head(CALL.delta, batch, head), uint(i0) + row, CALL.delta.row)).v[0] = sum;
}

void query_gradient(uint head, int i0)
{
    uint kv_head = attention_kv_head(head);
    rows_of q = rows_at(CALL.q, head, HEAD_DIM), dy = rows_at(CALL.dy, head, VALUE_DIM);
    rows_of k = rows_at(CALL.k, kv_head, HEAD_DIM), v = rows_at(CALL.v, kv_head, VALUE_DIM);
    int q_len = int(CALL.q_len);
    int first, end;
    keys_seen(i0, min(i0 + int(BX), q_len) - 1, first, end);
    row_sum = 0.0;
    clear_result();
    for (int j0 = first; j0 < end; j0 += int(BY)) {
        float values[SCORES];
        products(QK_CHUNKS, q, Q_DTYPE, i0, q_len, k, K_DTYPE, j0, end, values);
        keep_p(values);
        probabilities(head, i0, j0);
        products(V_CHUNKS, dy, DY_DTYPE, i0, q_len, v, V_DTYPE, j0, end, values);
        apply_delta(values);
        if (KIND == TSR_ATTENTION_DELTA)
            add_row_sums();
        else
            add_rows(k, K_DTYPE, j0, end);
    }
    if (KIND == TSR_ATTENTION_DELTA) {
        store_delta(head, i0);
        return;
    }
    ones_to_row_factor();
    store_result(rows_at(CALL.dq, head, HEAD_DIM), i0, q_len);
}

void key_gradient(uint kv_head, int j0)
{
    rows_of k = rows_at(CALL.k, kv_head, HEAD_DIM), v = rows_at(CALL.v, kv_head, VALUE_DIM);
    int kv_len = int(CALL.kv_len);
    int first, end, kv_end = min(kv_len, sequence.kv_length);
    queries_seen(j0, min(j0 + int(BX), kv_len) - 1, first, end);
    uint n_end = attention_first_reader(kv_head + 1u);
    clear_result();
    for (uint n = attention_first_reader(kv_head); n < n_end; n++) {
        uint head = attention_reader(n);
        rows_of q = rows_at(CALL.q, head, HEAD_DIM), dy = rows_at(CALL.dy, head, VALUE_DIM);
        for (int i0 = first; i0 < end; i0 += int(BY)) {
            float values[SCORES];
            products(QK_CHUNKS, k, K_DTYPE, j0, kv_end, q, Q_DTYPE, i0, end, values);
            keep_p(values);
            probabilities(head, j0, i0);
            if (KIND == TSR_ATTENTION_DK) {
                products(V_CHUNKS, v, V_DTYPE, j0, kv_end, dy, DY_DTYPE, i0, end, values);
                apply_delta(values);
                add_rows(q, Q_DTYPE, i0, end);
            } else {
                add_rows(dy, DY_DTYPE, i0, end);
            }
        }
    }
    ones_to_row_factor();
    if (KIND == TSR_ATTENTION_DK)
        store_result(rows_at(CALL.dk, kv_head, HEAD_DIM), j0, kv_len);
    else
        store_result(rows_at(CALL.dv, kv_head, VALUE_DIM), j0, kv_len);
}

void main()
{
    if (EARLY != 0u) {
        early_head_dim = CALL.head_dim;
        early_value_dim = CALL.value_dim;
    }
    tile_x = gl_LocalInvocationIndex % ACROSS;
    tile_y = gl_LocalInvocationIndex / ACROSS;
    uint group = tsr_flat_group();
    if (group >= p.count)
        return;
    group += p.first;
    uint rows = OWNS_KEYS ? CALL.kv_len : CALL.q_len, heads = OWNS_KEYS ? CALL.kv_heads : CALL.heads;
    uint blocks = (rows + BX - 1u) / BX;
    uint block = group % blocks;
    uint head = group / blocks % heads;
    batch = group / blocks / heads;
    sequence = attention_sequence_of(batch);
    // Blocks of queries are in descending order, because late queries may see more keys.
    if (KIND == TSR_ATTENTION_FORWARD)
        forward(head, int((blocks - 1u - block) * BX));
    else if (KIND == TSR_ATTENTION_DQ || KIND == TSR_ATTENTION_DELTA)
        query_gradient(head, int((blocks - 1u - block) * BX));
    else
        key_gradient(head, int(block * BX));
}
