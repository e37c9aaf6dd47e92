// Attention and its gradients for 16-bit floats by cooperative matrices, with sums in f32. The kinds
// of computation are those of attention.comp: a workgroup owns BX rows, queries or keys, and loops
// over the rows of the other kind, BY at a time. A subgroup owns ROW_BLOCKS fragments of rows. It
// keeps their operands, and the fragments of the result, in registers. The other rows are in shared
// memory, which is filled while the previous rows are processed.
//
// Which invocation has which element of a fragment is the driver's choice. Every invocation finds out
// which elements of a fragment it has by loading a fragment that contains indices. It can then compute
// the softmax in registers. Its maxima only rise if a score exceeds a row's maximum by more than SLACK,
// which is rare after the first rows, so that the results are seldom scaled. The probabilities are
// rounded to 16 bits. They go through shared memory, because as an operand they may be distributed
// over invocations differently.
//
// The including file defines ELEMENT, the type of an element, and DTYPE. It may define ELEMENT4, the
// type of four elements; tiles in shared memory are then arrays of ELEMENT4, otherwise of uvec4 (see
// matmul_coopmat.glsl). It then also defines ELEMENT4_OF(bits), four elements from a uvec2,
// BITS_OF(four), the reverse, and ELEMENT_OF(bits), an element from its bits. It may define SUMS16 if
// every device that uses the kernel has fragments of 16-bit sums: fragments are then rounded as a
// whole and stored. Otherwise, they go through memory for f32.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#include "include/attention.glsl"
#include "include/elements.glsl"

layout(constant_id = 0) const uint THREADS = 128;
layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint SUBGROUP = 32;  // the subgroup size that the pipeline requires
layout(constant_id = 2) const uint ROW_BLOCKS = 1; // the number of fragments of rows that a subgroup owns
layout(constant_id = 3) const uint KIND = TSR_ATTENTION_FORWARD;
layout(constant_id = 4) const uint BY = 32;
layout(constant_id = 5) const uint WIDTH = 64; // head_dim, rounded up to complete fragments
layout(constant_id = 6) const uint FM = 16; // FM × FN × FK: a shape of fragments that the device supports
layout(constant_id = 7) const uint FN = 16;
layout(constant_id = 8) const uint FK = 16;
layout(constant_id = 9) const uint ALONG_K = 0; // see matmul_coopmat.glsl
layout(constant_id = 10) const uint VECTORS = 0; // 1: eight columns of an operand are 16 aligned bytes
layout(constant_id = 11) const uint OUT_VECTORS = 0;
layout(constant_id = 12) const uint MASK_DTYPE = 0; // 0: no mask
layout(constant_id = 13) const uint FORM = 0; // TSR_ATTENTION_CAPPED, …_TEMPERED and …_STARTS
layout(constant_id = 14) const uint PAGED = 0;
layout(constant_id = 15) const uint CACHED = 0; // FORWARD: the block format of k and v (cached_blocks.glsl); 0: they are as q

#include "include/attention_matrices.glsl"

const uint LOAD = TSR_ATTENTION_LOAD_SCALAR;
// The products that a step needs besides the scores. Each of the other rows has two operands: the first is its row of k (or of q, if the
// other rows are queries), the second its row of v (or of dy). HAS_DP: dp = dy·v. SUMS_FIRST: the sum of ds times the first operands.
// SUMS_SECOND: the sum of p times the second operands.
const bool SUMS_FIRST = KIND == TSR_ATTENTION_DQ || KIND == TSR_ATTENTION_DK || KIND == TSR_ATTENTION_DKV;
const bool SUMS_SECOND = KIND == TSR_ATTENTION_FORWARD || KIND == TSR_ATTENTION_DV || KIND == TSR_ATTENTION_DKV;
const bool HAS_DP = SUMS_FIRST || KIND == TSR_ATTENTION_DELTA;

const uint SUBGROUPS = THREADS / SUBGROUP;
const uint ROWS = ROW_BLOCKS * FM; // rows of a subgroup
const uint BX = SUBGROUPS * ROWS;
const uint COUNT = FM * FN / SUBGROUP; // elements of a fragment of sums that an invocation has
const uint DEPTH = WIDTH / FK;         // fragments in a row of an operand
const uint ACROSS = WIDTH / FN;        // fragments in a row of a result
const uint OTHERS = BY / FN;           // fragments in a row of scores
const uint STATS = ROW_BLOCKS * COUNT;
const uint EIGHTS = WIDTH / 8;

#ifdef ELEMENT4
const uint UNIT = 4;
#else
const uint UNIT = 8;
#endif
const uint PAD = 8;
const uint PITCH = (WIDTH + PAD) / UNIT; // units from row to row in a tile of an operand's rows
const uint SUM_PITCH = (ALONG_K != 0 ? BY + PAD : WIDTH + PAD) / UNIT;
// Where tiles begin in shared memory: the tile of the second operand, and the transposed tiles of
// both operands.
const uint SECOND = BY * PITCH;
const bool KEEPS_SECOND = HAS_DP || ALONG_K == 0;
const uint FIRST_LINES = SECOND + (KEEPS_SECOND ? BY * PITCH : 0);
const uint SECOND_LINES = FIRST_LINES + (SUMS_FIRST && ALONG_K != 0 ? WIDTH * SUM_PITCH : 0);
const uint TILE_END = SECOND_LINES + (SUMS_SECOND && ALONG_K != 0 ? WIDTH * SUM_PITCH : 0);
const uint FIRST_SUM_TILE = ALONG_K != 0 ? FIRST_LINES : 0;
const uint SECOND_SUM_TILE = ALONG_K != 0 ? SECOND_LINES : SECOND;
// Each subgroup has a part of p_tile: ROWS lines of P_PITCH elements.
const uint P_PITCH = BY + PAD;
// Fragments must start at multiples of 16 bytes. Memory of another type than uvec4 or vec4 has
// uvec4 as its first member, which gives it this alignment. Each fragment of sums is stored as a
// whole, so that a word is never written by two invocations.
#ifdef ELEMENT4
struct aligned_tile {
    uvec4 alignment;
    ELEMENT4 at[TILE_END];
};
struct aligned_p_tile {
    uvec4 alignment;
    ELEMENT4 at[BX * P_PITCH / UNIT];
};
shared aligned_tile tile_memory;
shared aligned_p_tile p_memory;
#define tile tile_memory.at
#define p_tile p_memory.at
#else
shared uvec4 tile[TILE_END];
shared uvec4 p_tile[BX * P_PITCH / UNIT];
#endif
// Memory for fragments of f32. Without SUMS16, each subgroup has its own.
#ifdef SUMS16
const uint SCRATCH = FM * FN / 4;
#else
const uint SCRATCH = SUBGROUPS * FM * FN / 4;
#endif
shared vec4 scratch[SCRATCH];
shared uint row_largest[BX];
shared float other_lse[BY];
shared float other_delta[BY];

const float LN_2 = 0.693147181;
const float SLACK = 6.0;

uint batch;
attention_sequence sequence;
#include "include/attention_rows.glsl"

// The row and the column of each element of a fragment of sums that this invocation has.
uint element_row[COUNT], element_column[COUNT];

#define SUMS coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>
#define LEFT coopmat<ELEMENT, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA>
#define RIGHT coopmat<ELEMENT, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB>

void find_elements()
{
    for (uint e = gl_LocalInvocationIndex; e < FM * FN; e += THREADS)
        scratch[e / 4][e % 4] = float(e);
    barrier();
    SUMS index;
    coopMatLoad(index, scratch, 0, FN / 4, gl_CooperativeMatrixLayoutRowMajor);
    [[unroll]] for (uint c = 0; c < COUNT; c++) {
        uint e = uint(index[c]);
        element_row[c] = e / FN;
        element_column[c] = e % FN;
    }
    barrier();
}

// Loads eight columns of a row. Rows from `end` on are 0 and are not read, and `end` must be positive.
// Columns from head_dim on are 0.
uvec4 load_eight(rows_of x, int row, int end, uint column)
{
    uvec2 at = row_address(x, uint(min(row, end - 1)));
    uint dim = CALL.head_dim;
    uvec4 value = uvec4(0);
    if (VECTORS != 0) {
        value = tsr_words4(tsr_at(at, 2 * min(column, dim - 8))).v[0];
        return row < end && column < dim ? value : uvec4(0);
    }
    [[unroll]] for (uint c = 0; c < 8; c++) {
        uint bits = tsr_load_u16(tsr_at_stride(at, min(column + c, dim - 1), x.column), 0);
        if (row < end && column + c < dim)
            value[c / 2] |= bits << (16 * (c % 2));
    }
    return value;
}

uint pair_of(float low, float high)
{
    return DTYPE == TSR_DT_F16 ? packHalf2x16(vec2(low, high)) : tsr_bits_of(low, DTYPE) | tsr_bits_of(high, DTYPE) << 16;
}

// The same for a row of k or v, which may be in blocks. Their elements are rounded to 16 bits, to nearest or towards 0.
uvec4 load_other_eight(rows_of x, int row, int end, uint column)
{
    if (CACHED == 0)
        return load_eight(x, row, end, column);
    uvec2 at = row_address(x, uint(min(row, end - 1)));
    uint from = min(column, CALL.head_dim - 8);
    vec4 low = tsr_load_block4(at, from, CACHED), high = tsr_load_block4(at, from + 4, CACHED);
    uvec4 value = uvec4(pair_of(low.x, low.y), pair_of(low.z, low.w), pair_of(high.x, high.y), pair_of(high.z, high.w));
    return row < end && column < CALL.head_dim ? value : uvec4(0);
}

// The other rows ----------------------------------------------------------------------------------

// An eight is eight columns of a row. An invocation loads eights in pairs: with ALONG_K those of
// two neighbouring rows, otherwise those of neighbouring columns or rows.
const uint PAIRS = BY * EIGHTS / 2;
const uint PAIR_COUNT = (PAIRS + THREADS - 1) / THREADS;
uvec4 first_eights[2 * PAIR_COUNT];
uvec4 second_eights[2 * PAIR_COUNT];

// The row and the column of an invocation's eight number n.
uvec2 eight_place(uint n)
{
    if (ALONG_K != 0) {
        uint pair = min(n / 2 * THREADS + gl_LocalInvocationIndex, PAIRS - 1);
        return uvec2(pair % (BY / 2) * 2 + n % 2, pair / (BY / 2) * 8);
    }
    uint e = min(n * THREADS + gl_LocalInvocationIndex, BY * EIGHTS - 1);
    return uvec2(e / EIGHTS, e % EIGHTS * 8);
}

bool eight_exists(uint n)
{
    if (ALONG_K != 0)
        return PAIRS % THREADS == 0 || n / 2 * THREADS + gl_LocalInvocationIndex < PAIRS;
    return BY * EIGHTS % THREADS == 0 || n * THREADS + gl_LocalInvocationIndex < BY * EIGHTS;
}

void fetch(rows_of first, rows_of second, int row, int end)
{
    [[unroll]] for (uint n = 0; n < 2 * PAIR_COUNT; n++) {
        uvec2 place = eight_place(n);
        first_eights[n] = load_other_eight(first, row + int(place.x), end, place.y);
        second_eights[n] = load_other_eight(second, row + int(place.x), end, place.y);
    }
}

void keep_eight(uint at, uvec4 eight)
{
#ifdef ELEMENT4
    tile[at] = ELEMENT4_OF(eight.xy);
    tile[at + 1] = ELEMENT4_OF(eight.zw);
#else
    tile[at] = eight;
#endif
}

// Stores eight elements at element `at` of p_tile, a multiple of eight.
void keep_p(uint at, uvec4 eight)
{
#ifdef ELEMENT4
    p_tile[at / UNIT] = ELEMENT4_OF(eight.xy);
    p_tile[at / UNIT + 1] = ELEMENT4_OF(eight.zw);
#else
    p_tile[at / UNIT] = eight;
#endif
}

uvec4 kept_p(uint at)
{
#ifdef ELEMENT4
    return uvec4(BITS_OF(p_tile[at / UNIT]), BITS_OF(p_tile[at / UNIT + 1]));
#else
    return p_tile[at / UNIT];
#endif
}

// Stores columns 2·c and 2·c + 1 of two neighbouring rows, `even` and `odd`, transposed: a line of the tile is a column, and each line gets
// a pair of neighbouring elements.
void keep_transposed(uint lines, uvec2 place, uint c, uint even, uint odd)
{
    uint at = lines + (place.y + 2 * c) * SUM_PITCH + place.x / UNIT, inside = place.x % UNIT;
#ifdef ELEMENT4
    tile[at][inside] = ELEMENT_OF(even & 0xffffu);
    tile[at][inside + 1] = ELEMENT_OF(odd & 0xffffu);
    tile[at + SUM_PITCH][inside] = ELEMENT_OF(even >> 16);
    tile[at + SUM_PITCH][inside + 1] = ELEMENT_OF(odd >> 16);
#else
    tile[at][inside / 2] = even & 0xffffu | odd << 16;
    tile[at + SUM_PITCH][inside / 2] = even >> 16 | odd & 0xffff0000u;
#endif
}

void keep()
{
    [[unroll]] for (uint n = 0; n < 2 * PAIR_COUNT; n++) {
        if (!eight_exists(n))
            continue;
        uvec2 place = eight_place(n);
        keep_eight(place.x * PITCH + place.y / UNIT, first_eights[n]);
        if (KEEPS_SECOND)
            keep_eight(SECOND + place.x * PITCH + place.y / UNIT, second_eights[n]);
        if (ALONG_K != 0 && n % 2 == 0)
            [[unroll]] for (uint c = 0; c < 4; c++) {
                if (SUMS_FIRST)
                    keep_transposed(FIRST_LINES, place, c, first_eights[n][c], first_eights[n + 1][c]);
                if (SUMS_SECOND)
                    keep_transposed(SECOND_LINES, place, c, second_eights[n][c], second_eights[n + 1][c]);
            }
    }
}

// For gradients of keys: keeps the lse and delta of the other rows, which are queries.
void keep_queries(uint head, int first)
{
    for (uint n = gl_LocalInvocationIndex; n < BY; n += THREADS) {
        uint query = uint(min(first + int(n), int(CALL.q_len) - 1));
        float lse = tsr_floats(tsr_at_stride(attention_head(CALL.lse, batch, head), query, CALL.lse.row)).v[0];
        other_lse[n] = binary_lse(lse);
        if (HAS_DP)
            other_delta[n] = tsr_floats(tsr_at_stride(attention_head(CALL.delta, batch, head), query, CALL.delta.row)).v[0];
    }
}

// The own rows ------------------------------------------------------------------------------------

LEFT own_first[ROW_BLOCKS * DEPTH];
LEFT own_second[HAS_DP ? ROW_BLOCKS * DEPTH : 1];
// The result for the first operand, then that for the second, if the kernel computes both.
const uint RESULTS = ROW_BLOCKS * ACROSS;
const uint SECOND_RESULT = SUMS_FIRST ? RESULTS : 0;
SUMS result[SUMS_FIRST && SUMS_SECOND ? 2 * RESULTS : RESULTS];
SUMS scores[ROW_BLOCKS * OTHERS];
SUMS dp[HAS_DP ? ROW_BLOCKS * OTHERS : 1];
float largest[STATS]; // the largest score of each element's row; for gradients, the row's lse
float total[STATS];   // the sum, over the element's columns only, of the row's probabilities (or of p·dp, for DELTA)
float own_delta[STATS];
float plain_unit; // the factor that makes products scores if there is neither a mask, nor a cap, nor a temperature

// The first element of this subgroup's part of p_tile.
uint p_begin()
{
    return gl_SubgroupID * ROWS * P_PITCH;
}

// LOAD_OWN moves the own rows of a subgroup through p_tile to registers, BY columns in each round. In a round, an invocation moves
// OWN_ROUND eights.
const uint OWN_ROUND = (ROWS * BY / 8 + SUBGROUP - 1) / SUBGROUP;
const uint OWN_ROUNDS = (WIDTH + BY - 1) / BY;

uvec2 own_place(uint n)
{
    uint e = n * SUBGROUP + gl_SubgroupInvocationID;
    return uvec2(e / (BY / 8), e % (BY / 8) * 8);
}

#define LOAD_OWN(fragments, operand, first, end)                                                   \
    {                                                                                              \
        uvec4 eights[OWN_ROUNDS * OWN_ROUND];                                                      \
        [[unroll]] for (uint n = 0; n < OWN_ROUNDS * OWN_ROUND; n++) {                             \
            uvec2 place = own_place(n % OWN_ROUND);                                                \
            eights[n] = load_eight(operand, first + int(min(place.x, ROWS - 1)), end, n / OWN_ROUND * BY + place.y); \
        }                                                                                          \
        [[unroll]] for (uint round = 0; round < OWN_ROUNDS; round++) {                             \
            subgroupBarrier();                                                                     \
            [[unroll]] for (uint n = 0; n < OWN_ROUND; n++) {                                      \
                uvec2 place = own_place(n);                                                        \
                if (place.x < ROWS)                                                                \
                    keep_p(p_begin() + place.x * P_PITCH + place.y, eights[round * OWN_ROUND + n]); \
            }                                                                                      \
            subgroupBarrier();                                                                     \
            [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)                                       \
                [[unroll]] for (uint k = 0; k < BY / FK; k++)                                      \
                    if (round * (BY / FK) + k < DEPTH)                                             \
                        coopMatLoad(fragments[b * DEPTH + round * (BY / FK) + k], p_tile,          \
                            (p_begin() + b * FM * P_PITCH + k * FK) / UNIT, P_PITCH / UNIT, gl_CooperativeMatrixLayoutRowMajor); \
        }                                                                                          \
        subgroupBarrier();                                                                         \
    }

// Sets `products` to the products of all rows of the subgroup, which are in `fragments`, with the rows of a tile.
#define MULTIPLY(products, fragments, tile_begin)                                                  \
    [[unroll]] for (uint j = 0; j < OTHERS; j++) {                                                 \
        [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)                                           \
            products[b * OTHERS + j] = SUMS(0.0);                                                  \
        [[unroll]] for (uint k = 0; k < DEPTH; k++) {                                              \
            RIGHT other;                                                                           \
            coopMatLoad(other, tile, (tile_begin) + j * FN * PITCH + k * FK / UNIT, PITCH,         \
                gl_CooperativeMatrixLayoutColumnMajor);                                            \
            [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)                                       \
                products[b * OTHERS + j] = coopMatMulAdd(fragments[b * DEPTH + k], other, products[b * OTHERS + j]); \
        }                                                                                          \
    }

// result[to …] += p_tile · tile. p_tile must have been written since the last such call.
#define ADD_PRODUCTS(to, tile_begin)                                                               \
    {                                                                                              \
        subgroupBarrier();                                                                         \
        [[unroll]] for (uint k = 0; k < BY / FK; k++) {                                            \
            LEFT left[ROW_BLOCKS];                                                                 \
            [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)                                       \
                coopMatLoad(left[b], p_tile, (p_begin() + b * FM * P_PITCH + k * FK) / UNIT, P_PITCH / UNIT, \
                    gl_CooperativeMatrixLayoutRowMajor);                                           \
            [[unroll]] for (uint n = 0; n < ACROSS; n++) {                                         \
                RIGHT right;                                                                       \
                if (ALONG_K != 0)                                                                  \
                    coopMatLoad(right, tile, (tile_begin) + n * FN * SUM_PITCH + k * FK / UNIT, SUM_PITCH, \
                        gl_CooperativeMatrixLayoutColumnMajor);                                    \
                else                                                                               \
                    coopMatLoad(right, tile, (tile_begin) + k * FK * SUM_PITCH + n * FN / UNIT, SUM_PITCH, \
                        gl_CooperativeMatrixLayoutRowMajor);                                       \
                [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)                                   \
                    result[(to) + b * ACROSS + n] =                                                \
                        coopMatMulAdd(left[b], right, result[(to) + b * ACROSS + n]);              \
            }                                                                                      \
        }                                                                                          \
        subgroupBarrier();                                                                         \
    }

// STORE_P rounds the fragment of rows `block` and columns `j` to 16 bits and stores it in p_tile.
#ifdef SUMS16
#define STORE_P(sums, block, j)                                                                    \
    coopMatStore(coopmat<ELEMENT, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>(sums), p_tile, \
        (p_begin() + (block) * FM * P_PITCH + (j) * FN) / UNIT, P_PITCH / UNIT, gl_CooperativeMatrixLayoutRowMajor);
#else
#define STORE_P(sums, block, j)                                                                    \
    subgroupBarrier();                                                                             \
    coopMatStore(sums, scratch, scratch_begin(), FN / 4, gl_CooperativeMatrixLayoutRowMajor);      \
    subgroupBarrier();                                                                             \
    keep_scratch(p_begin() + (block) * FM * P_PITCH + (j) * FN);

// The index of this subgroup's part of `scratch`.
uint scratch_begin()
{
    return gl_SubgroupID * (FM * FN / 4);
}

// Rounds and moves the fragment in this subgroup's part of `scratch` to element `to` of p_tile, eight columns at a time.
void keep_scratch(uint to)
{
    for (uint e = gl_SubgroupInvocationID * 8; e < FM * FN; e += SUBGROUP * 8) {
        vec4 low = scratch[scratch_begin() + e / 4], high = scratch[scratch_begin() + e / 4 + 1];
        uvec4 eight;
        [[unroll]] for (uint c = 0; c < 2; c++) {
            eight[c] = tsr_bits_of(low[2 * c], DTYPE) | tsr_bits_of(low[2 * c + 1], DTYPE) << 16;
            eight[c + 2] = tsr_bits_of(high[2 * c], DTYPE) | tsr_bits_of(high[2 * c + 1], DTYPE) << 16;
        }
        keep_p(to + e / FN * P_PITCH + e % FN, eight);
    }
}
#endif

// Scores ------------------------------------------------------------------------------------------

// Converts a float to an unsigned integer. The integers have the same order as the floats.
uint ordered(float x)
{
    uint bits = floatBitsToUint(x);
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

float number_of(uint order)
{
    return uintBitsToFloat((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

// If `rises`, sets the maxima of the own rows to those of their scores times `unit`, and scales the rows' results accordingly. The barriers
// are not conditional, because lavapipe makes all subgroups wait at each.
void raise(bool rises, float unit)
{
    uint begin = gl_SubgroupID * ROWS;
    if (rises)
        for (uint row = gl_SubgroupInvocationID; row < ROWS; row += SUBGROUP)
            row_largest[begin + row] = ordered(LOWEST);
    subgroupBarrier();
    if (rises)
        [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)
            [[unroll]] for (uint c = 0; c < COUNT; c++) {
                float most = largest[b * COUNT + c];
                [[unroll]] for (uint j = 0; j < OTHERS; j++)
                    most = max(most, scores[b * OTHERS + j][c] * unit);
                atomicMax(row_largest[begin + b * FM + element_row[c]], ordered(most));
            }
    subgroupBarrier();
    if (!rises)
        return;
    [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)
        [[unroll]] for (uint c = 0; c < COUNT; c++) {
            float most = number_of(row_largest[begin + b * FM + element_row[c]]);
            float factor = exp2(largest[b * COUNT + c] - most);
            largest[b * COUNT + c] = most;
            total[b * COUNT + c] *= factor;
            [[unroll]] for (uint n = 0; n < ACROSS; n++)
                result[b * ACROSS + n][c] *= factor;
        }
}

// True if each of the subgroup's own rows, `row` … row + ROWS − 1, sees, or is seen by, each of the BY other rows from `other` on.
bool all_seen(int row, int other)
{
    int query = OWNS_KEYS ? other : row, key = OWNS_KEYS ? row : other;
    int last_query = query + int(OWNS_KEYS ? BY : ROWS) - 1, last_key = key + int(OWNS_KEYS ? ROWS : BY) - 1;
    bool seen = last_query < sequence.q_length && last_key < sequence.kv_length;
    if (CALL.causal != 0)
        seen = seen && last_key <= query + sequence.offset && uint(last_query + sequence.offset - key) < CALL.window;
    return seen && key >= start_of(last_query);
}

// Turns the products into scores, which are -inf if a query does not see a key. Returns the factor by which the caller must still multiply
// the scores. It is not 1 if all queries see all keys and there is neither a mask, nor a cap, nor a temperature. The products are then left unchanged, which
// saves time in most blocks. For gradients, dp becomes ds / (p · scale), the derivative by scale · product without its factor p.
// `row` and `other` are the first row and column of the fragments.
float make_scores(int row, int other, uvec2 mask)
{
    const bool plain = MASK_DTYPE == 0 && (FORM & ~TSR_ATTENTION_STARTS) == 0 && all_seen(row, other);
    [[unroll]] for (uint j = 0; j < OTHERS; j++)
        [[unroll]] for (uint c = 0; c < COUNT; c++)
            [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++) {
                float delta = 0.0;
                if (KIND == TSR_ATTENTION_DK || KIND == TSR_ATTENTION_DKV)
                    delta = other_delta[j * FN + element_column[c]];
                else if (KIND == TSR_ATTENTION_DQ)
                    delta = own_delta[b * COUNT + c];
                if (SUMS_FIRST)
                    dp[b * OTHERS + j][c] -= delta;
            }
    if (plain)
        return plain_unit;
    [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)
        [[unroll]] for (uint j = 0; j < OTHERS; j++)
            [[unroll]] for (uint c = 0; c < COUNT; c++) {
                int own = row + int(b * FM + element_row[c]), to = other + int(j * FN + element_column[c]);
                float slope;
                int query = OWNS_KEYS ? to : own;
                float score = score_of(scores[b * OTHERS + j][c], query, OWNS_KEYS ? own : to, start_of(query), mask, slope);
                scores[b * OTHERS + j][c] = score == tsr_minus_infinity ? score : binary(score);
                if (HAS_DP) {
                    float derivative = dp[b * OTHERS + j][c];
                    if (KIND != TSR_ATTENTION_DELTA)
                        derivative *= slope;
                    dp[b * OTHERS + j][c] = score == tsr_minus_infinity ? 0.0 : derivative;
                }
            }
    return 1.0;
}

// Stores p, or ds, of all fragments of scores.
#define store_p(fragments)                                                                         \
    [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)                                               \
        [[unroll]] for (uint j = 0; j < OTHERS; j++) {                                             \
            STORE_P(fragments[b * OTHERS + j], b, j)                                               \
        }

void softmax_step(int row, int other, uvec2 mask)
{
    const float unit = make_scores(row, other, mask);
    float excess = -1.0;
    [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)
        [[unroll]] for (uint j = 0; j < OTHERS; j++)
            [[unroll]] for (uint c = 0; c < COUNT; c++)
                excess = max(excess, scores[b * OTHERS + j][c] * unit - largest[b * COUNT + c]);
    raise(subgroupAny(excess > SLACK), unit);
    [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)
        [[unroll]] for (uint j = 0; j < OTHERS; j++)
            [[unroll]] for (uint c = 0; c < COUNT; c++) {
                float value = exp2(scores[b * OTHERS + j][c] * unit - largest[b * COUNT + c]);
                total[b * COUNT + c] += value;
                scores[b * OTHERS + j][c] = value;
            }
    store_p(scores)
}

// Stores p in p_tile, or ds without its factor `scale`, as the left operand of the sum over the other rows. If the kernel computes both
// sums, it stores p and keeps ds in `dp`. For DELTA, adds p·dp to the rows' totals.
void gradient_step(int row, int other, uvec2 mask)
{
    const float unit = make_scores(row, other, mask);
    [[unroll]] for (uint j = 0; j < OTHERS; j++)
        [[unroll]] for (uint c = 0; c < COUNT; c++)
            [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++) {
                float lse = largest[b * COUNT + c];
                if (OWNS_KEYS)
                    lse = other_lse[j * FN + element_column[c]];
                float value = exp2(scores[b * OTHERS + j][c] * unit - lse);
                scores[b * OTHERS + j][c] = value;
                if (!HAS_DP)
                    continue;
                value *= dp[b * OTHERS + j][c];
                if (KIND == TSR_ATTENTION_DELTA)
                    total[b * COUNT + c] += value;
                else
                    dp[b * OTHERS + j][c] = value;
            }
    if (SUMS_SECOND)
        store_p(scores)
    else if (KIND != TSR_ATTENTION_DELTA)
        store_p(dp)
}

// Results -----------------------------------------------------------------------------------------

// Replaces every total by that of the complete row. The subgroups take turns with the scratch
// memory.
void add_totals()
{
    for (uint turn = 0; turn < SUBGROUPS; turn++)
        [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++) {
            barrier();
            if (gl_SubgroupID == turn)
                [[unroll]] for (uint c = 0; c < COUNT; c++)
                    scratch[(element_row[c] * FN + element_column[c]) / 4][element_column[c] % 4] = total[b * COUNT + c];
            barrier();
            if (gl_SubgroupID == turn)
                [[unroll]] for (uint c = 0; c < COUNT; c++) {
                    float sum = 0.0;
                    for (uint n = 0; n < FN; n++)
                        sum += scratch[(element_row[c] * FN + n) / 4][n % 4];
                    total[b * COUNT + c] = sum;
                }
        }
#ifndef SUMS16
    barrier(); // before STORE_P overwrites `scratch`
#endif
}

// Stores one number for each own row of a head.
void store_rows(tsr_attention_operand x, uint head, int first, float numbers[STATS])
{
    uvec2 at = attention_head(x, batch, head);
    [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)
        [[unroll]] for (uint c = 0; c < COUNT; c++) {
            int row = first + int(b * FM + element_row[c]);
            if (element_column[c] == 0 && row < int(CALL.q_len))
                tsr_floats(tsr_at_stride(at, uint(row), x.row)).v[0] = numbers[b * COUNT + c];
        }
}

float row_number(tsr_attention_operand x, uint head, int row)
{
    uint query = uint(min(row, int(CALL.q_len) - 1));
    return tsr_floats(tsr_at_stride(attention_head(x, batch, head), query, x.row)).v[0];
}

// Stores eight columns of a row, which are at element `from` of p_tile.
void store_eight(uvec2 row, uvec2 stride, uint column, uint from)
{
    uvec4 eight = kept_p(from);
    if (OUT_VECTORS != 0) {
        tsr_words4(tsr_at(row, 2 * column)).v[0] = eight;
        return;
    }
    [[unroll]] for (uint c = 0; c < 8; c++)
        if (column + c < CALL.head_dim)
            tsr_store_u16(tsr_at_stride(row, column + c, stride), 0, eight[c / 2] >> (16 * (c % 2)) & 0xffffu);
}

// Stores the rows of result[from …] times `factor`, through this subgroup's part of p_tile.
void store_result(uint from, rows_of x, int first, int end, float factor[STATS])
{
    [[unroll]] for (uint round = 0; round < (ACROSS + OTHERS - 1) / OTHERS; round++) {
        const uint begin = round * OTHERS;
        [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)
            [[unroll]] for (uint j = 0; j < OTHERS; j++)
                if (begin + j < ACROSS) {
                    SUMS rounded = result[from + b * ACROSS + begin + j];
                    [[unroll]] for (uint c = 0; c < COUNT; c++) {
                        rounded[c] *= factor[b * COUNT + c];
#ifdef SUMS16
                        // the driver chooses how fragments are rounded; results are rounded to the nearest number
                        rounded[c] = tsr_f32_from_f16(tsr_f16_from_f32(rounded[c]));
#endif
                    }
                    STORE_P(rounded, b, j)
                }
        subgroupBarrier();
        [[unroll]] for (uint n = 0; n < OWN_ROUND; n++) {
            uvec2 place = own_place(n);
            uint column = begin * FN + place.y;
            if (place.x < ROWS && first + int(place.x) < end && column < CALL.head_dim)
                store_eight(row_address(x, uint(first) + place.x), x.column, column, p_begin() + place.x * P_PITCH + place.y);
        }
        subgroupBarrier();
    }
}

void finish(uint head, int first)
{
    float factor[STATS], lse[STATS];
    if (KIND == TSR_ATTENTION_FORWARD || KIND == TSR_ATTENTION_DELTA)
        add_totals();
    if (KIND == TSR_ATTENTION_DELTA) {
        store_rows(CALL.delta, head, first, total);
        return;
    }
    [[unroll]] for (uint n = 0; n < STATS; n++) {
        factor[n] = CALL.scale;
        if (KIND == TSR_ATTENTION_FORWARD) {
            factor[n] = total[n] == 0.0 ? 0.0 : 1.0 / total[n];
            float most = largest[n] == LOWEST ? LOWEST : largest[n] * LN_2;
            lse[n] = total[n] == 0.0 ? tsr_minus_infinity : most + tsr_log(total[n]);
        }
    }
    if (KIND == TSR_ATTENTION_FORWARD) {
        if (CALL.lse.at != uvec2(0))
            store_rows(CALL.lse, head, first, lse);
        store_result(0, rows_at(CALL.y, head, CALL.head_dim), first, int(CALL.q_len), factor);
    } else if (KIND == TSR_ATTENTION_DQ) {
        store_result(0, rows_at(CALL.dq, head, CALL.head_dim), first, int(CALL.q_len), factor);
    } else {
        if (SUMS_FIRST)
            store_result(0, rows_at(CALL.dk, head, CALL.head_dim), first, int(CALL.kv_len), factor);
        [[unroll]] for (uint n = 0; n < STATS; n++)
            factor[n] = 1.0;
        if (SUMS_SECOND)
            store_result(SECOND_RESULT, rows_at(CALL.dv, head, CALL.head_dim), first, int(CALL.kv_len), factor);
    }
}

void main()
{
    uint group = tsr_flat_group();
    if (group >= p.count)
        return;
    group += p.first;
    uint rows = OWNS_KEYS ? CALL.kv_len : CALL.q_len, heads = OWNS_KEYS ? CALL.kv_heads : CALL.heads;
    uint blocks = (rows + BX - 1) / BX;
    uint block = group % blocks;
    uint head = group / blocks % heads; // the head of the own rows
    batch = group / blocks / heads;
    sequence = attention_sequence_of(batch);
    plain_unit = CALL.scale * LOG2_E;
    find_elements();

    // Blocks of queries are in descending order, because late queries may see more keys.
    int block_first = int((OWNS_KEYS ? block : blocks - 1 - block) * BX);
    int row = block_first + int(gl_SubgroupID * ROWS), own_end = int(rows);
    int first, end;
    uint reader = 0, readers = 1;
    if (OWNS_KEYS) {
        own_end = min(own_end, sequence.kv_length);
        queries_seen(block_first, min(block_first + int(BX), int(rows)) - 1, first, end);
        reader = attention_first_reader(head);
        readers = attention_first_reader(head + 1) - reader;
    } else {
        keys_seen(block_first, min(block_first + int(BX), int(rows)) - 1, first, end);
    }
    int steps = (max(end - first, 0) + int(BY) - 1) / int(BY); // the number of steps for each reader

    const float sink = KIND == TSR_ATTENTION_FORWARD ? attention_sink(head) : tsr_minus_infinity;
    [[unroll]] for (uint n = 0; n < (SUMS_FIRST && SUMS_SECOND ? 2 * RESULTS : RESULTS); n++)
        result[n] = SUMS(0.0);
    [[unroll]] for (uint b = 0; b < ROW_BLOCKS; b++)
        [[unroll]] for (uint c = 0; c < COUNT; c++) {
            uint n = b * COUNT + c;
            largest[n] = LOWEST;
            total[n] = 0.0;
            if (KIND == TSR_ATTENTION_FORWARD && sink != tsr_minus_infinity) {
                // each row has one element in column 0
                largest[n] = binary(sink);
                total[n] = element_column[c] == 0 ? 1.0 : 0.0;
            }
            if (KIND == TSR_ATTENTION_DQ || KIND == TSR_ATTENTION_DELTA)
                largest[n] = binary_lse(row_number(CALL.lse, head, row + int(b * FM + element_row[c])));
            if (KIND == TSR_ATTENTION_DQ)
                own_delta[n] = row_number(CALL.delta, head, row + int(b * FM + element_row[c]));
        }

    if (steps > 0 && readers > 0) {
        rows_of first_rows, second_rows;
        uvec2 mask = uvec2(0);
        uint query_head = head;
        if (OWNS_KEYS) {
            rows_of k = rows_at(CALL.k, head, CALL.head_dim);
            LOAD_OWN(own_first, k, row, own_end)
            if (HAS_DP) {
                rows_of v = rows_at(CALL.v, head, CALL.head_dim);
                LOAD_OWN(own_second, v, row, own_end)
            }
        } else {
            uint kv_head = attention_kv_head(head);
            rows_of q = rows_at(CALL.q, head, CALL.head_dim);
            LOAD_OWN(own_first, q, row, own_end)
            if (HAS_DP) {
                rows_of dy = rows_at(CALL.dy, head, CALL.head_dim);
                LOAD_OWN(own_second, dy, row, own_end)
            }
            first_rows = cache_rows_at(CALL.k, kv_head, CALL.head_dim);
            second_rows = cache_rows_at(CALL.v, kv_head, CALL.head_dim);
        }
        for (uint n = 0; n < readers; n++) {
            if (OWNS_KEYS) {
                query_head = attention_reader(reader + n);
                first_rows = rows_at(CALL.q, query_head, CALL.head_dim);
                second_rows = rows_at(CALL.dy, query_head, CALL.head_dim);
            }
            if (MASK_DTYPE != 0)
                mask = attention_head(CALL.mask, batch, query_head);
            fetch(first_rows, second_rows, first, end);
            for (int step = 0; step < steps; step++) {
                int other = first + step * int(BY);
                barrier();
                keep();
                if (OWNS_KEYS)
                    keep_queries(query_head, other);
                barrier();
                if (step + 1 < steps)
                    fetch(first_rows, second_rows, other + int(BY), end);
                MULTIPLY(scores, own_first, 0)
                if (HAS_DP)
                    MULTIPLY(dp, own_second, SECOND)
                if (KIND == TSR_ATTENTION_FORWARD)
                    softmax_step(row, other, mask);
                else
                    gradient_step(row, other, mask);
                if (SUMS_SECOND)
                    ADD_PRODUCTS(SECOND_RESULT, SECOND_SUM_TILE)
                if (SUMS_FIRST && SUMS_SECOND)
                    store_p(dp)
                if (SUMS_FIRST)
                    ADD_PRODUCTS(0, FIRST_SUM_TILE)
            }
        }
    }
    finish(head, row);
}
