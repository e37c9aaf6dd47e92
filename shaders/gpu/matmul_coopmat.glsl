// Matrix product of 16-bit floats by cooperative matrices, sums in f32. As matmul_tiled.comp, a workgroup computes BM × BN elements of y, BK
// products at a time out of shared memory, while the next tiles are on their way from memory; but what multiplies is a subgroup,
// TM × TN fragments of FM × FN elements, each FK products at a time.
//
// Expects ELEMENT and ELEMENT4, the types of one and four of them; ELEMENT4_OF(), which makes four of a uvec2 of bits; DTYPE.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#include "include/matmul_common.glsl"

layout(constant_id = 0) const uint THREADS = 128;
layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint SUBGROUP = 32; // the size that the pipeline demands
layout(constant_id = 2) const uint DOWN = 2;      // subgroups above each other, the others side by side
layout(constant_id = 3) const uint BM = 64;
layout(constant_id = 4) const uint BN = 64;
layout(constant_id = 5) const uint BK = 32;
layout(constant_id = 6) const uint FM = 16; // a shape that the device has
layout(constant_id = 7) const uint FN = 16;
layout(constant_id = 8) const uint FK = 16;
layout(constant_id = 9) const uint STAGED = 1; // fragments of a subgroup that are stored together
layout(constant_id = 10) const uint A_LOAD = TSR_MM_LOAD_SCALAR;
layout(constant_id = 11) const uint B_LOAD = TSR_MM_LOAD_SCALAR;

const uint SUBGROUPS = THREADS / SUBGROUP;
const uint ACROSS = SUBGROUPS / DOWN;
const uint TM = BM / DOWN / FM;
const uint TN = BN / ACROSS / FN;

// Tiles lie in shared memory in fours of elements, PITCH fours from row to row. Rows are lines or, for operands that are read along
// lines, k; the padding keeps the 16 bytes that invocations read from neighbouring rows in different banks.
const bool A_BY_LINE = A_LOAD == TSR_MM_LOAD_VEC_LINE || A_LOAD == TSR_MM_LOAD_SCALAR_LINE;
const bool B_BY_LINE = B_LOAD == TSR_MM_LOAD_VEC_LINE || B_LOAD == TSR_MM_LOAD_SCALAR_LINE;
const uint PAD = TSR_MM_COOPMAT_PAD / 4;
const uint A_PITCH = (A_BY_LINE ? BM : BK) / 4 + PAD;
const uint B_PITCH = (B_BY_LINE ? BN : BK) / 4 + PAD;
const uint TILE_B = (A_BY_LINE ? BK : BM) * A_PITCH;
const uint TILE_END = TILE_B + (B_BY_LINE ? BK : BN) * B_PITCH;
shared ELEMENT4 tile[TILE_END];
shared float stage[SUBGROUPS * FM * STAGED * FN];

#define FETCH(x) a_##x
#define LINES BM
#define LOAD A_LOAD
#define LINE_STRIDE p.a_row
#define K_STRIDE p.a_k
#define TILE 0
#define BY_LINE A_BY_LINE
#define PITCH A_PITCH
#include "gpu/matmul_coopmat_fetch.glsl"

#define FETCH(x) b_##x
#define LINES BN
#define LOAD B_LOAD
#define LINE_STRIDE p.b_col
#define K_STRIDE p.b_k
#define TILE TILE_B
#define BY_LINE B_BY_LINE
#define PITCH B_PITCH
#include "gpu/matmul_coopmat_fetch.glsl"

// Where the fragment at `line` and k of a tile begins.
uint fragment_at(uint tile_begin, bool by_line, uint pitch, uint line, uint k)
{
    return tile_begin + (by_line ? k * pitch + line / 4 : line * pitch + k / 4);
}

const int A_LAYOUT = A_BY_LINE ? gl_CooperativeMatrixLayoutColumnMajor : gl_CooperativeMatrixLayoutRowMajor;
const int B_LAYOUT = B_BY_LINE ? gl_CooperativeMatrixLayoutRowMajor : gl_CooperativeMatrixLayoutColumnMajor;

void main()
{
    // Tiles in bands 8 high, column by column: workgroups that run together share rows of a and columns of b.
    const uint BAND = 8;
    uint across = (p.n + BN - 1) / BN;
    uint down = (p.m + BM - 1) / BM;
    uint group = tsr_flat_group();
    if (group >= across * down)
        return;
    uint band = group / (BAND * across);
    uint band_height = min(BAND, down - band * BAND);
    uint in_band = group % (BAND * across);
    uint row0 = (band * BAND + in_band % band_height) * BM;
    uint col0 = in_band / band_height * BN;

    uint row = gl_SubgroupID / ACROSS * (TM * FM);
    uint col = gl_SubgroupID % ACROSS * (TN * FN);
    uint k_begin = mm_split() * p.k_chunk;
    uint k_count = min(p.k_chunk, p.k - k_begin);
    uvec2 a = mm_at(mm_at(mm_a_matrix(DTYPE), row0, p.a_row, DTYPE), k_begin, p.a_k, DTYPE);
    uvec2 b = mm_at(mm_at(mm_b_matrix(DTYPE), col0, p.b_col, DTYPE), k_begin, p.b_k, DTYPE);

    coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator> sums[TM * TN];
    [[unroll]] for (uint i = 0; i < TM * TN; i++)
        sums[i] = coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>(0.0);
    if (k_count > 0) {
        a_load(a, p.m - row0, k_count);
        b_load(b, p.n - col0, k_count);
    }
    for (uint k = 0; k < k_count; k += BK) {
        barrier();
        a_keep();
        b_keep();
        barrier();
        if (k + BK < k_count) {
            a_load(mm_at(a, k + BK, p.a_k, DTYPE), p.m - row0, k_count - k - BK);
            b_load(mm_at(b, k + BK, p.b_k, DTYPE), p.n - col0, k_count - k - BK);
        }
        [[unroll]] for (uint f = 0; f < BK; f += FK) {
            coopmat<ELEMENT, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA> fa[TM];
            [[unroll]] for (uint i = 0; i < TM; i++)
                coopMatLoad(fa[i], tile, fragment_at(0, A_BY_LINE, A_PITCH, row + i * FM, f), A_PITCH, A_LAYOUT);
            [[unroll]] for (uint j = 0; j < TN; j++) {
                coopmat<ELEMENT, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB> fb;
                coopMatLoad(fb, tile, fragment_at(TILE_B, B_BY_LINE, B_PITCH, col + j * FN, f), B_PITCH, B_LAYOUT);
                [[unroll]] for (uint i = 0; i < TM; i++)
                    sums[i * TN + j] = coopMatMulAdd(fa[i], fb, sums[i * TN + j]);
            }
        }
    }

    // Which invocation holds which sum is the driver's secret, so they go through shared memory, where each subgroup has a part of
    // its own; neighbouring invocations then store neighbouring elements. Every fragment is asked whether it is in the round, as the
    // rows are in matmul_tiled.comp.
    const uint WIDTH = STAGED * FN;
    uint own = gl_SubgroupID * (FM * WIDTH);
    mm_block block = mm_block_at(row0, col0);
    for (uint first = 0; first < TM * TN; first += STAGED) {
        [[unroll]] for (uint i = 0; i < TM * TN; i++)
            if (i >= first && i < first + STAGED)
                coopMatStore(sums[i], stage, own + (i - first) * FN, WIDTH, gl_CooperativeMatrixLayoutRowMajor);
        subgroupBarrier();
        for (uint e = gl_SubgroupInvocationID; e < FM * WIDTH; e += SUBGROUP) {
            uint y_row = row + first / TN * FM + e / WIDTH;
            uint y_col = col + first % TN * FN + e % WIDTH;
            if (row0 + y_row < p.m && col0 + y_col < p.n)
                mm_store(block, y_row, y_col, stage[own + e]);
        }
        subgroupBarrier();
    }
}
