// Attention of few queries per key, forward: a workgroup computes up to ROWS queries that read one kv head, from one part of the keys. If
// there are several parts, the last workgroup to finish merges their results, or attention_merge.comp does. An invocation multiplies the
// queries with one key, or with LANES 4 with a quarter of the columns of four keys, and then adds up four columns of the values of every
// SLICES-th key. There are few workgroups, and they wait for memory most of the time. Therefore loads are issued AHEAD at a time, and the
// first values are loaded before the softmax.
//
// With NEW, the kernel also applies the rotary embedding to the queries, and stores the keys and values of the step's tokens in the cache.
// No workgroup reads what another one stores: each computes the new keys and values that it needs.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_quad : require
#include "include/attention.glsl"
#include "include/rope.glsl"

layout(constant_id = 0) const uint THREADS = 128;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 8;   // divides THREADS / 4
layout(constant_id = 2) const uint QUADS = 16; // head_dim / 4, rounded up to a power of two
layout(constant_id = 3) const uint Q_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint K_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint V_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint MASK_DTYPE = 0; // 0: no mask
layout(constant_id = 7) const uint LOAD = TSR_ATTENTION_LOAD_SCALAR;
layout(constant_id = 8) const uint FORM = 0; // TSR_ATTENTION_CAPPED and …_TEMPERED
layout(constant_id = 9) const uint PAGED = 0;
layout(constant_id = 10) const uint Y_DTYPE = 0; // 0: there are several parts, which attention_merge.comp merges
// 1: the numbers of iterations of loops are not constant, so that drivers do not unroll these loops. The results have the same bits.
// lavapipe compiles each load to a loop over lanes, so without unrolling it compiles a pipeline in a quarter of the time.
layout(constant_id = 11) const uint ROLLED = 0;
layout(constant_id = 12) const uint EARLY = 0; // as in attention.comp
layout(constant_id = 13) const uint V_QUADS = 16; // as QUADS, for the columns of v; at most THREADS
layout(constant_id = 14) const uint JOIN = 0;     // 1: there are several parts, and the last workgroup merges them
// If not 0: the keys and values of each sequence's last q_length tokens, at most NEW, are read from CALL.new_k and CALL.new_v, and stored in
// the cache. LOAD is then not TSR_ATTENTION_LOAD_SCALAR.
layout(constant_id = 15) const uint NEW = 0;
layout(constant_id = 16) const uint ROPE = TSR_ATTENTION_ROPE_NONE; // for the queries and the new keys
// 4: the invocations of a subgroup's quad multiply the queries with their four keys together, so that neighbours load neighbouring columns,
// and a query is read from shared memory once for four keys. Products are then added up in another order than in attention.comp.
layout(constant_id = 17) const uint LANES = 1;
layout(constant_id = 18) const uint MOST_AHEAD = 8; // the most loads that are issued before the first is used

// The values are added up in slices: each group of V_QUADS invocations takes every SLICES-th of a block's THREADS keys.
const uint SLICES = THREADS / V_QUADS;
const uint SHARERS = THREADS / ROWS;  // invocations that share a row in the softmax
const uint SHARE = THREADS / SHARERS; // keys for each of these invocations
const uint AHEAD = ROLLED != 0u ? 1u : QUADS < MOST_AHEAD ? QUADS : MOST_AHEAD; // quads of a key
const uint V_AHEAD = ROLLED != 0u ? 1u : V_QUADS < MOST_AHEAD ? V_QUADS : MOST_AHEAD; // rows of v
// With LANES 4: the neighbouring quads of columns that an invocation loads at once, 16 bytes if rows are at multiples of 16 bytes
const bool NARROW = K_DTYPE - TSR_DT_F16 < 2u; // f16 or bf16
const uint STEP = LOAD == TSR_ATTENTION_LOAD_ALIGNED && NARROW ? 2u : 1u;
const uint NEW_VALUES = NEW * QUADS;            // the index of the first new value in new_rows
const bool WHOLE = Y_DTYPE != 0u && JOIN == 0u; // one part has all keys

shared vec4 q_tile[ROWS * QUADS];
shared float p_tile[ROWS * THREADS];
shared float parts[2 * THREADS];
shared float row_factor[ROWS];
shared uvec4 scratch[THREADS]; // first the addresses of a block's rows of v, at the end the results of the slices
shared vec4 new_rows[NEW != 0u ? NEW * (QUADS + V_QUADS) : 1u]; // new keys, then new values, as the cache has them
shared float new_products[NEW != 0u ? NEW * ROWS : 1u];         // of the queries and the new keys
shared uint joined;                                             // 1: this workgroup merges the parts

// What workgroups write for the last one to read. `coherent` and the barriers of device scope in join() make it visible to that workgroup.
layout(buffer_reference, std430, buffer_reference_align = 16) coherent buffer partial_floats4 {
    vec4 v[];
};
layout(buffer_reference, std430, buffer_reference_align = 4) coherent buffer part_counters {
    uint v[];
};
#define TSR_PARTIAL partial_floats4
#include "include/attention_parts.glsl"

// Returns n, the number of iterations of a loop, which divides THREADS or is a multiple of it. If ROLLED is 1, p.quads is THREADS, and the
// compiler knows neither the number nor a bound of it: newer versions of Mesa unroll loops that have a bound, such as min(n, p.quads).
uint trips_of(uint n) { return ROLLED != 0u ? p.quads * max(n / THREADS, 1u) / max(THREADS / n, 1u) : n; }
// Returns 0. The compiler does not know it if ROLLED is 1. If a loop's counter were the index of an array, as with one row or one quad, newer
// versions of Mesa would take the array's length for a bound of the loop, and unroll it to more nested branches than lavapipe can compile.
uint zero() { return ROLLED != 0u ? p.quads / THREADS - 1u : 0u; }

uint batch;
attention_sequence sequence;
// CALL.head_dim and CALL.value_dim if EARLY is 1
uint early_head_dim, early_value_dim;
// CALL.rope_table and CALL.rope_scale if there is a rotary embedding
uvec2 rope_table;
float rope_scale;

#define HEAD_DIM (EARLY != 0u ? early_head_dim : CALL.head_dim)
#define VALUE_DIM (EARLY != 0u ? early_value_dim : CALL.value_dim)
#include "include/attention_rows.glsl"

// Blocks are rounded by pack_new_rows().
float rounded(float value, uint dtype)
{
    return dtype == TSR_DT_F32 || tsr_is_block(dtype) ? value
           : dtype == TSR_DT_BF16                     ? tsr_f32_from_bf16(tsr_bf16_from_f32(value))
                                                      : tsr_f32_from_f16(tsr_f16_from_f32(value));
}

vec4 rounded4(vec4 value, uint dtype)
{
    [[unroll]] for (uint n = 0u; n < 4u; n++)
        value[n] = rounded(value[n], dtype);
    return value;
}

// The cosine and sine, times the embedding's scale, with which a pair of a row is rotated.
vec2 turn_of(int position, uint pair)
{
    return rope_turn(rope_angle(position, tsr_words2(rope_table).v[pair])) * rope_scale;
}

// Loads four columns of a query or of a new key, and rotates them as rope_append.comp does.
vec4 load_rotated(rows_of x, uint row, uint column, int position)
{
    uvec2 at = row_address(x, row);
    vec4 own = load_quad_at(x, at, column, Q_DTYPE);
    if (ROPE == TSR_ATTENTION_ROPE_NONE)
        return own;
    uint pairs = x.dim / 2u, from = min(column, x.dim - 4u);
    vec4 turned;
    if (ROPE == TSR_ATTENTION_ROPE_ADJACENT) {
        vec2 first = turn_of(position, from / 2u), second = turn_of(position, from / 2u + 1u);
        vec2 cosine = vec2(first.x, second.x), sine = vec2(first.y, second.y);
        vec2 u = own.xz * cosine - own.yw * sine, w = own.xz * sine + own.yw * cosine;
        turned = vec4(u.x, w.x, u.y, w.y);
    } else {
        bool behind = from >= pairs;
        uint pair = behind ? from - pairs : from;
        vec4 other = load_quad_at(x, at, behind ? pair : from + pairs, Q_DTYPE), cosine, sine;
        [[unroll]] for (uint n = 0u; n < 4u; n++) {
            vec2 turn = turn_of(position, pair + n);
            cosine[n] = turn.x;
            sine[n] = turn.y;
        }
        vec4 u = behind ? other : own, w = behind ? own : other;
        turned = behind ? u * sine + w * cosine : u * cosine - w * sine;
    }
    return column < x.dim ? rounded4(turned, Q_DTYPE) : vec4(0.0);
}

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

// Replaces the rows from key first_new on, by new values or 0. The block's first row is key j0.
void take_new_values(int j0, int end, int first_new, uint column, inout vec4 values[V_AHEAD])
{
    [[unroll]] for (uint n = 0u; n < V_AHEAD; n++) {
        int key = j0 + int(column + n * SLICES);
        uint number = uint(clamp(key - first_new, 0, int(NEW) - 1));
        vec4 value = new_rows[NEW_VALUES + number * V_QUADS + gl_LocalInvocationIndex % V_QUADS];
        values[n] = key < first_new ? values[n] : key < end ? value : vec4(0.0);
    }
}

// Loads the keys and values of the step's tokens, rotated and rounded, to new_rows.
void load_new_rows(uint kv_head, int first_new)
{
    rows_of k = rows_at(CALL.new_k, kv_head, HEAD_DIM), v = rows_at(CALL.new_v, kv_head, VALUE_DIM);
    uint last = CALL.q_len - 1u;
    for (uint e = gl_LocalInvocationIndex; e < NEW * QUADS; e += THREADS) {
        uint n = e / QUADS;
        new_rows[e] = rounded4(load_rotated(k, min(n, last), e % QUADS * 4u, first_new + int(n)), K_DTYPE);
    }
    for (uint e = gl_LocalInvocationIndex; e < NEW * V_QUADS; e += THREADS)
        new_rows[NEW_VALUES + e] = rounded4(load_quad(v, min(e / V_QUADS, last), e % V_QUADS * 4u, Q_DTYPE), V_DTYPE);
}

// Packs the new rows that begin at `begin` of new_rows to blocks, of which each invocation has some: rounds them in new_rows to what the
// cache has, and stores those that are keys first … end − 1.
void pack_new_rows(rows_of x, uint begin, uint quads, uint dtype, int first_new, int first, int end)
{
    const uint blocks = max(quads / TSR_BLOCK_QUADS, 1u);
    for (uint e = gl_LocalInvocationIndex; e < NEW * blocks; e += THREADS) {
        uint n = e / blocks, block = e % blocks, at = begin + n * quads + block * TSR_BLOCK_QUADS;
        if (block * TSR_BLOCK >= x.dim)
            continue;
        vec4 values[TSR_BLOCK_QUADS];
        uint halves[TSR_MOST_BLOCK_HALVES];
        [[unroll]] for (uint i = 0u; i < TSR_BLOCK_QUADS; i++)
            values[i] = new_rows[at + i];
        tsr_pack_block(values, dtype, p.count >> 31, halves); // a dispatch has fewer workgroups
        [[unroll]] for (uint i = 0u; i < TSR_BLOCK_QUADS; i++)
            new_rows[at + i] = tsr_packed4(halves, i, dtype);
        int key = first_new + int(n);
        if (key >= first && key < end)
            tsr_store_block(row_address(x, uint(key)), block, dtype, halves);
    }
}

void store_quad(rows_of x, uint row, uint column, uint dtype, vec4 value)
{
    uvec2 to = tsr_at(row_address(x, row), column * tsr_dtype_bytes(dtype));
    if (LOAD == TSR_ATTENTION_LOAD_ALIGNED)
        tsr_store_aligned4(to, dtype, value);
    else
        tsr_store_dense4(to, dtype, value);
}

// Stores those of the new rows in the cache that are keys first … end − 1, unless they are in blocks.
void store_new_rows(rows_of k, rows_of v, int first_new, int first, int end)
{
    for (uint e = gl_LocalInvocationIndex; e < NEW * QUADS && !tsr_is_block(K_DTYPE); e += THREADS) {
        int key = first_new + int(e / QUADS);
        if (key >= first && key < end && e % QUADS * 4u < k.dim)
            store_quad(k, uint(key), e % QUADS * 4u, K_DTYPE, new_rows[e]);
    }
    for (uint e = gl_LocalInvocationIndex; e < NEW * V_QUADS && !tsr_is_block(V_DTYPE); e += THREADS) {
        int key = first_new + int(e / V_QUADS);
        if (key >= first && key < end && e % V_QUADS * 4u < v.dim)
            store_quad(v, uint(key), e % V_QUADS * 4u, V_DTYPE, new_rows[NEW_VALUES + e]);
    }
}

// The first of the quads of columns that an invocation loads in step `step`.
uint quad_of(uint lane, uint step) { return (step * 4u + lane) * STEP; }

// Loads STEP quads of columns of a key, from quad `quad` on.
void load_quads(rows_of k, uvec2 row, uint quad, out vec4 of_key[STEP])
{
    if (STEP == 1u) {
        of_key[0] = load_quad_at(k, row, quad * 4u, K_DTYPE);
        return;
    }
    // The row's last 16 bytes may have columns that do not exist.
    uvec4 words = tsr_words4(tsr_at(row, min(quad * 4u, (k.dim - 1u) & ~7u) * 2u)).v[0];
    [[unroll]] for (uint s = 0u; s < STEP; s++) {
        uvec2 pairs = s == 0u ? words.xy : words.zw;
        vec4 value = K_DTYPE == TSR_DT_F16 ? vec4(tsr_f32_from_f16_pair(pairs.x), tsr_f32_from_f16_pair(pairs.y))
                                           : uintBitsToFloat(uvec4(pairs << 16, pairs & 0xffff0000u).xzyw);
        of_key[s] = (quad + s) * 4u < k.dim ? value : vec4(0.0);
    }
}

// Multiplies the queries with the keys of this invocation's quad. `row` is the address of this invocation's key.
void multiply_in_quad(rows_of k, uvec2 row, out float scores[ROWS])
{
    if (LANES == 1u)
        return; // the module then needs no capability for quads (spirv/specialize.c)
    uint lane = gl_SubgroupInvocationID % 4u;
    uvec2 rows[4] = uvec2[](subgroupQuadBroadcast(row, 0u), subgroupQuadBroadcast(row, 1u), subgroupQuadBroadcast(row, 2u),
                            subgroupQuadBroadcast(row, 3u));
    float parts_of_sums[ROWS * 4u]; // of each query and each of the four keys
    [[unroll]] for (uint e = 0u; e < ROWS * 4u; e++)
        parts_of_sums[e] = 0.0;
    for (uint step = 0u; step < QUADS / (4u * STEP); step++) {
        vec4 of_key[4u * STEP];
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            vec4 loaded[STEP];
            load_quads(k, rows[i], quad_of(lane, step), loaded);
            [[unroll]] for (uint s = 0u; s < STEP; s++)
                of_key[i * STEP + s] = loaded[s];
        }
        [[unroll]] for (uint s = 0u; s < STEP; s++)
            [[unroll]] for (uint r = 0u; r < ROWS; r++) {
                vec4 of_query = q_tile[r * QUADS + quad_of(lane, step) + s];
                [[unroll]] for (uint i = 0u; i < 4u; i++)
                    [[unroll]] for (uint c = 0u; c < 4u; c++)
                        parts_of_sums[r * 4u + i] = fma(of_query[c], of_key[i * STEP + s][c], parts_of_sums[r * 4u + i]);
            }
    }
    // An invocation keeps its own key. The sum of key i is (part 0 + part 2) + (part 1 + part 3), whichever invocation has it.
    bool second = (lane & 1u) != 0u, lower = (lane & 2u) != 0u;
    [[unroll]] for (uint r = 0u; r < ROWS; r++) {
        float a = parts_of_sums[r * 4u], b = parts_of_sums[r * 4u + 1u], c = parts_of_sums[r * 4u + 2u], d = parts_of_sums[r * 4u + 3u];
        float even = (lower ? c : a) + subgroupQuadSwapVertical(lower ? a : c);
        float odd = (lower ? d : b) + subgroupQuadSwapVertical(lower ? b : d);
        scores[r] = (second ? odd : even) + subgroupQuadSwapHorizontal(second ? even : odd);
    }
}

// Part `lane` of the product of a query and a new key, as multiply_in_quad() computes it.
float new_part(uint row, uint number, uint lane)
{
    float part = 0.0;
    for (uint step = 0u; step < QUADS / (4u * STEP); step++)
        [[unroll]] for (uint s = 0u; s < STEP; s++) {
            uint quad = quad_of(lane, step) + s;
            vec4 of_query = q_tile[row * QUADS + quad], of_key = new_rows[number * QUADS + quad];
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                part = fma(of_query[c], of_key[c], part);
        }
    return part;
}

// Multiplies the queries with the new keys, in the same order as main() multiplies them with other keys.
void multiply_new_keys()
{
    for (uint e = gl_LocalInvocationIndex; e < NEW * ROWS; e += THREADS) {
        if (LANES != 1u) {
            uint row = e % ROWS, number = e / ROWS;
            float even = new_part(row, number, 0u) + new_part(row, number, 2u);
            new_products[e] = even + (new_part(row, number, 1u) + new_part(row, number, 3u));
            continue;
        }
        float product = 0.0;
        for (uint quad = 0u; quad < trips_of(QUADS); quad++) {
            vec4 of_query = q_tile[e % ROWS * QUADS + quad], of_key = new_rows[e / ROWS * QUADS + quad];
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                product = fma(of_query[c], of_key[c], product);
        }
        new_products[e] = product;
    }
}

// Must be called by all invocations after they have written the results of a part. Returns true in the last of the p.parts workgroups that
// call this function for one block of queries. That workgroup sees what all the others have written.
bool join(uint block)
{
    // The first barrier makes the results of all invocations available to the device before the counter tells so. The counter's atomic
    // operation orders the workgroups, and the second barrier makes the results of the other workgroups visible to all invocations.
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeDevice, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    if (gl_LocalInvocationIndex == 0u)
        joined = atomicAdd(part_counters(p.counters).v[block], 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquireRelease) + 1u ==
                         p.parts
                     ? 1u
                     : 0u;
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeDevice, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
    return joined != 0u;
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
    if (ROPE != TSR_ATTENTION_ROPE_NONE) {
        rope_table = CALL.rope_table;
        rope_scale = CALL.rope_scale;
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
        q_tile[e] = load_rotated(rows_at(CALL.q, head, HEAD_DIM), uint(query), e % QUADS * 4u, query + sequence.offset);
    }
    int first, end, part_first = int(part * p.part_keys), part_end = int(min((part + 1u) * p.part_keys, CALL.kv_len));
    attention_keys(sequence, 0, int(CALL.q_len) - 1, first, end);
    first = max(first, part_first);
    end = min(end, part_end);
    // Keys from first_new on are in new_rows, if any of them is in this part.
    int first_new = sequence.offset;
    bool has_new = NEW != 0u && first_new < part_end && sequence.kv_length > part_first;
    if (has_new) {
        load_new_rows(kv_head, first_new);
        int stored_end = block == 0u ? min(part_end, sequence.kv_length) : part_first; // each block of queries has the same new rows
        if (tsr_is_block(K_DTYPE) || tsr_is_block(V_DTYPE))
            barrier();
        if (tsr_is_block(K_DTYPE))
            pack_new_rows(k, 0u, QUADS, K_DTYPE, first_new, part_first, stored_end);
        if (tsr_is_block(V_DTYPE))
            pack_new_rows(v, NEW_VALUES, V_QUADS, V_DTYPE, first_new, part_first, stored_end);
    }
    // In the softmax, several invocations share a row. This invocation has the same query in all
    // blocks.
    uint row = thread / SHARERS, sharer = thread % SHARERS;
    find_query(first_reader, min(first_query + row, queries - 1u), head, query);
    uvec2 mask = attention_head(CALL.mask, batch, head);
    float largest = tsr_minus_infinity, sum = 0.0, slope;
    // If there are several parts, their merge adds the sink.
    if (WHOLE) {
        largest = attention_sink(head);
        sum = sharer != 0u || largest == tsr_minus_infinity ? 0.0 : 1.0;
    }
    vec4 result[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; r++)
        result[r] = vec4(0.0);
    barrier();
    if (has_new) {
        multiply_new_keys(); // read after the loop's first barrier
        if (block == 0u)
            store_new_rows(k, v, first_new, part_first, min(part_end, sequence.kv_length));
    }
    for (int j0 = first; j0 < end; j0 += int(THREADS)) {
        float scores[ROWS];
        [[unroll]] for (uint r = 0u; r < ROWS; r++)
            scores[r] = 0.0;
        // The block does not load new keys and values. Other workgroups may be storing them.
        bool block_new = has_new && j0 + int(THREADS) > first_new, loads = !block_new || j0 < first_new;
        int last = block_new ? max(min(end, first_new) - 1, 0) : end - 1;
        uint key = uint(min(j0 + int(thread), last)), page = page_of(k, key);
        uvec2 k_row = row_address_in(k, page, key);
        scratch[thread].xy = row_address_in(v, page, key);
        if (loads && LANES != 1u)
            multiply_in_quad(k, k_row, scores);
        else if (loads)
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
        if (loads)
            load_values(v, thread / V_QUADS, uint(end - j0), values);

        // This loop has no unroll hint, because SwiftShader computed wrong results with one.
        float most = tsr_minus_infinity;
        for (uint n = 0u; n < trips_of(SHARE); n++) {
            uint column = n * SHARERS + sharer, at = row * THREADS + column;
            float product = p_tile[at];
            if (block_new) {
                int number = min(j0 + int(column) - first_new, int(NEW) - 1);
                product = number < 0 ? product : new_products[uint(max(number, 0)) * ROWS + row];
            }
            float score = score_of(product, query, j0 + int(column), 0, mask, slope);
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
            if (column >= SLICES && loads)
                load_values(v, column, uint(end - j0), values);
            if (block_new)
                take_new_values(j0, end, first_new, column, values);
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
    if (WHOLE && sharer == 0u)
        row_factor[row] = sum == 0.0 ? 0.0 : 1.0 / sum;
    for (uint r = 0u; r < ROWS; r++) {
        [[unroll]] for (uint c = 0u; c < ROWS; c++)
            if (c == r)
                scratch[thread] = floatBitsToUint(result[c]);
        barrier();
        bool exists = first_query + r < queries;
        find_query(first_reader, min(first_query + r, queries - 1u), head, query);
        uint number = (batch * CALL.heads + head) * CALL.q_len + uint(query);
        partial_floats4 to =
            partial_floats4(tsr_at_mul(p.partial, number * p.parts + part, 4u * TSR_ATTENTION_PART_FLOATS(VALUE_DIM)));
        if (exists && thread < V_QUADS) {
            vec4 total = vec4(0.0);
            [[unroll]] for (uint n = 0u; n < trips_of(SLICES); n++)
                total += uintBitsToFloat(scratch[zero() + n * V_QUADS + thread]);
            uvec2 y = uvec2(0u);
            if (WHOLE) {
                total *= row_factor[r];
                y = tsr_at_stride(attention_head(CALL.y, batch, head), uint(query), CALL.y.row);
            }
            if (!WHOLE && thread * 4u < VALUE_DIM)
                to.v[TSR_ATTENTION_PART_HEAD / 4u + thread] = total;
            for (uint n = 0u; n < 4u; n++)
                if (WHOLE && thread * 4u + n < VALUE_DIM)
                    tsr_store_float(tsr_at_stride(y, thread * 4u + n, CALL.y.column), 0u, Y_DTYPE, total[n]);
        }
        if (exists && row == r && sharer == 0u) {
            if (!WHOLE) {
                to.v[0] = vec4(largest, sum, 0.0, 0.0);
            } else if (CALL.lse.at != uvec2(0u)) {
                tsr_floats(tsr_at_stride(attention_head(CALL.lse, batch, head), uint(query), CALL.lse.row)).v[0] =
                    sum == 0.0 ? tsr_minus_infinity : largest + tsr_log(sum);
            }
        }
        barrier();
    }
    if (JOIN == 0u || !join(group / p.parts))
        return;
    for (uint e = thread; e < ROWS * V_QUADS; e += THREADS) {
        uint n = first_query + e / V_QUADS, column = e % V_QUADS * 4u;
        if (n < queries && column < VALUE_DIM) {
            find_query(first_reader, n, head, query);
            attention_merge_parts(batch, head, uint(query), column, Y_DTYPE);
        }
    }
}
