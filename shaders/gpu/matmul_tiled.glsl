// Tiled matrix product for GPUs. A workgroup computes BM × BN elements of y from tiles in shared
// memory, BK products at a time. An invocation keeps TM × TN sums in registers, and loads its part
// of the next tiles while it multiplies.
//
// The including file defines how operands are in shared memory: in words of the type WORD, each
// with WORD_K neighbours along k. ADD_PRODUCTS(a, b, sum) adds the products of the elements of two
// words to a sum. Results also go through shared memory: WORD_OF(value) and FLOAT_OF(word) convert
// them, bit by bit.
#include "params/matmul.h"

layout(constant_id = 11) const uint MODE = TSR_MM_MODE_PUSHED;
#define MM_MODE (MODE == TSR_MM_MODE_PUSHED ? p.mode : MODE)
#define MM_FUSED (MODE == TSR_MM_MODE_PUSHED ? 0u : MODE)
#include "include/matmul_common.glsl"
layout(constant_id = 12) const uint BAND = 8;
#include "include/matmul_tile.glsl"

layout(constant_id = 0) const uint THREADS = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint BM = 32;
layout(constant_id = 2) const uint BN = 32;
layout(constant_id = 3) const uint BK = 16;
layout(constant_id = 4) const uint TM = 4;
layout(constant_id = 5) const uint TN = 4;
layout(constant_id = 6) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint B_DTYPE = TSR_DT_F32;
layout(constant_id = 8) const uint A_LOAD = TSR_MM_LOAD_SCALAR;
layout(constant_id = 9) const uint B_LOAD = TSR_MM_LOAD_SCALAR;
// Not 0: the loads of the next tiles are issued before the products and waited for after them. With
// two elements in a word, this is always so. 1: the products are also unrolled, which is faster on
// AMD's GPUs and slower on NVIDIA's.
layout(constant_id = 10) const uint AHEAD = 0;
const bool LOADS_AHEAD = WORD_K == 2 || AHEAD != 0;

const uint PAD = 4; // keeps the stores of one column of a tile in different banks
const uint TILE_ROWS = BK / WORD_K;
const uint TILE_A = 0;
const uint TILE_B = TILE_ROWS * (BM + PAD);
const uint TILE_END = TILE_B + TILE_ROWS * (BN + PAD);
shared WORD tile[TILE_END];

#define FETCH(x) a_##x
#define LINES BM
#define DTYPE A_DTYPE
#define LOAD A_LOAD
#define LINE_STRIDE p.a_row
#define K_STRIDE p.a_k
#define LANES_LINE TSR_MM_A_LANES_ROW
#define TILE TILE_A
#if WORD_K == 2
#include "gpu/matmul_pairs_fetch.glsl"
#else
#include "gpu/matmul_fetch.glsl"
#endif

#define FETCH(x) b_##x
#define LINES BN
#define DTYPE B_DTYPE
#define LOAD B_LOAD
#define LINE_STRIDE p.b_col
#define K_STRIDE p.b_k
#define LANES_LINE TSR_MM_B_LANES_COL
#define TILE TILE_B
#if WORD_K == 2
#include "gpu/matmul_pairs_fetch.glsl"
#else
#include "gpu/matmul_fetch.glsl"
#endif

// The rows of an invocation come in runs of up to 4 neighbours. Between two of its runs are the
// runs of the other invocations, so that neighbouring invocations read neighbouring vectors of
// shared memory. Its columns are arranged in the same way.
const uint ACROSS = BN / TN;
const uint DOWN = BM / TM;
const uint RUN_M = TM < 4 ? TM : 4;
const uint RUN_N = TN < 4 ? TN : 4;

uint row_of(uint i, uint y)
{
    return i / RUN_M * (DOWN * RUN_M) + y * RUN_M + i % RUN_M;
}

uint col_of(uint j, uint x)
{
    return j / RUN_N * (ACROSS * RUN_N) + x * RUN_N + j % RUN_N;
}

float sums[TM * TN];

// Adds the products of row `k` of both tiles, which has the elements of WORD_K values of k.
void multiply_one(uint x, uint y, uint k)
{
    WORD a[TM], b[TN];
    [[unroll]] for (uint i = 0; i < TM; i++)
        a[i] = tile[TILE_A + k * (BM + PAD) + row_of(i, y)];
    [[unroll]] for (uint j = 0; j < TN; j++)
        b[j] = tile[TILE_B + k * (BN + PAD) + col_of(j, x)];
    [[unroll]] for (uint i = 0; i < TM; i++)
        [[unroll]] for (uint j = 0; j < TN; j++)
            sums[i * TN + j] = ADD_PRODUCTS(a[i], b[j], sums[i * TN + j]);
}

void multiply(uint x, uint y)
{
    if (AHEAD == 1) {
        [[unroll]] for (uint k = 0; k < TILE_ROWS; k++)
            multiply_one(x, y, k);
    } else {
        for (uint k4 = 0; k4 < TILE_ROWS; k4 += 4)
            [[unroll]] for (uint k1 = 0; k1 < 4; k1++)
                multiply_one(x, y, k4 + k1);
    }
}

// Loads the tiles of the step that begins at k into registers. There may be no such step.
void load(uvec2 a, uvec2 b, uint a_lines, uint b_lines, uint k, uint k_count)
{
    if (k >= k_count)
        return;
    a = mm_at(a, k, p.a_k, A_DTYPE);
    b = mm_at(b, k, p.b_k, B_DTYPE);
    if (LOADS_AHEAD && k + BK <= k_count) {
        a_load_whole(a);
        b_load_whole(b);
    } else {
        a_load(a, a_lines, k_count - k);
        b_load(b, b_lines, k_count - k);
    }
}

// Stores the sums directly from registers. Neighbouring invocations have neighbouring runs of
// columns.
void store_vectors(uint row0, uint col0, uint x, uint y)
{
    mm_block block = mm_block_at(row0, col0);
    [[unroll]] for (uint j = 0; j < TN; j += 4) {
        uint col = col_of(j, x);
        if (col0 + col < p.n) {
            vec4 bias = vec4(0.0);
            if ((MM_MODE & TSR_MM_BIAS) != 0 && p.bias_row == 0)
                bias = mm_bias4(block, 0, col);
            [[unroll]] for (uint i = 0; i < TM; i++) {
                uint row = row_of(i, y);
                uint at = i * TN + j;
                if (row0 + row < p.m) {
                    if ((MM_MODE & TSR_MM_BIAS) != 0 && p.bias_row != 0)
                        bias = mm_bias4(block, row, col);
                    mm_store4(block, row, col, vec4(sums[at], sums[at + 1], sums[at + 2], sums[at + 3]), bias);
                }
            }
        }
    }
}

// The sums go through shared memory in rounds of ROUND_ROWS rows of each invocation, so that the
// code has one copy of the epilogue and neighbouring invocations store neighbouring elements. In
// each round, the constant index of every row is compared with the rows of the round. Compilers do
// not unroll the loop over rounds, because it contains another loop. If its counter indexed the
// sums, they would therefore be kept in memory, even during the products.
const uint ROUND = DOWN * BN; // elements of one row of every invocation
const uint ROUND_ROWS = TILE_END / ROUND < TM ? TILE_END / ROUND : TM;

void store(uint row0, uint col0, uint x, uint y)
{
    mm_block block = mm_block_at(row0, col0);
    for (uint first = 0; first < TM; first += ROUND_ROWS) {
        barrier();
        [[unroll]] for (uint i = 0; i < TM; i++)
            if (i >= first && i < first + ROUND_ROWS)
                [[unroll]] for (uint j = 0; j < TN; j++)
                    tile[(i - first) * ROUND + y * BN + col_of(j, x)] = WORD_OF(sums[i * TN + j]);
        barrier();
        for (uint e = gl_LocalInvocationIndex; e < ROUND_ROWS * ROUND; e += THREADS) {
            uint i = first + e / ROUND;
            uint row = row_of(i, e % ROUND / BN);
            uint col = e % BN;
            if (i < TM && row0 + row < p.m && col0 + col < p.n)
                mm_store(block, row, col, FLOAT_OF(tile[e]));
        }
    }
}

#if WORD_K == 1
// The sums of a's rows over k, which the workgroups with the first columns of y add up from the
// elements that they load. The rows of an invocation's loads are the same in all steps, because the
// number of invocations is a multiple of BM / 4.
const bool ROW_SUMS = (MM_FUSED & TSR_MM_ROW_SUMS) != 0 && A_LOAD == TSR_MM_LOAD_VEC_LINE;
const uint SUM_PARTS = THREADS / (BM / 4); // invocations that load the same four rows

// Adds the elements of a that this invocation has loaded for a step.
void add_to_row_sums(inout vec4 row_sums)
{
    [[unroll]] for (uint i = 0; i < a_count / 4; i++) {
        uint at = i * 4;
        row_sums += mm_widen4(uvec4(a_registers[at], a_registers[at + 1], a_registers[at + 2], a_registers[at + 3]), A_DTYPE);
    }
}

void store_row_sums(uint row0, vec4 row_sums)
{
    uint self = gl_LocalInvocationIndex;
    barrier();
    [[unroll]] for (uint c = 0; c < 4; c++)
        tile[self / (BM / 4) * BM + self % (BM / 4) * 4 + c] = row_sums[c];
    barrier();
    for (uint line = self; line < min(BM, p.m - row0); line += THREADS) {
        float sum = 0.0;
        for (uint part = 0; part < SUM_PARTS; part++)
            sum += tile[part * BM + line];
        tsr_floats at = tsr_floats(mm_at(uvec2(p.TSR_MM_ROW_SUMS_LOW, p.TSR_MM_ROW_SUMS_HIGH), mm_split() * p.m + row0 + line, 1, TSR_DT_F32));
        at.v[0] = (MM_MODE & TSR_MM_ACCUMULATE) != 0 ? at.v[0] + sum : sum;
    }
}
#else
const bool ROW_SUMS = false;
void add_to_row_sums(inout vec4 row_sums) {}
void store_row_sums(uint row0, vec4 row_sums) {}
#endif

void main()
{
    uint group = tsr_flat_group();
    if (group >= mm_tiles(BM, BN))
        return;
    uvec2 corner = mm_tile_at(group, BM, BN);
    uint row0 = corner.x, col0 = corner.y;

    uint x = gl_LocalInvocationIndex % ACROSS;
    uint y = gl_LocalInvocationIndex / ACROSS;
    uint k_begin = mm_split() * p.k_chunk;
    uint k_count = min(p.k_chunk, p.k - k_begin);
    uvec2 a = mm_at(mm_at(mm_a_matrix(A_DTYPE), row0, p.a_row, A_DTYPE), k_begin, p.a_k, A_DTYPE);
    uvec2 b = mm_at(mm_at(mm_b_matrix(B_DTYPE), col0, p.b_col, B_DTYPE), k_begin, p.b_k, B_DTYPE);

    [[unroll]] for (uint i = 0; i < TM * TN; i++)
        sums[i] = 0.0;
    vec4 row_sums = vec4(0.0);
    if (LOADS_AHEAD) {
        a_prepare(p.m - row0);
        b_prepare(p.n - col0);
    }
    load(a, b, p.m - row0, p.n - col0, 0, k_count);
    for (uint k = 0; k < k_count; k += BK) {
        barrier();
        a_keep();
        b_keep();
        if (ROW_SUMS)
            add_to_row_sums(row_sums);
        barrier();
        load(a, b, p.m - row0, p.n - col0, k + BK, k_count);
        multiply(x, y);
    }
    if (MODE != TSR_MM_MODE_PUSHED && (MODE & TSR_MM_Y_VECTORS) != 0)
        store_vectors(row0, col0, x, y);
    else
        store(row0, col0, x, y);
    if (ROW_SUMS && col0 == 0)
        store_row_sums(row0, row_sums);
}
