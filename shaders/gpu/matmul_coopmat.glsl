// Matrix product of 16-bit floats by cooperative matrices, with sums in f32. A workgroup computes
// BM × BN elements of y in steps. Each step adds BK products to every element, from tiles of a and
// b in shared memory, while the tiles of the next step are loaded from memory. A subgroup computes
// TM × TN fragments of FM × FN elements, and adds FK products at a time.
//
// The including file defines ELEMENT, the type of an element, ONE, its 1, DTYPE, and LOW_PAIR(a, b) and
// HIGH_PAIR(a, b), which are the lower and the upper halves of two words of bits. Written as moves
// of 16-bit elements, they are one instruction each. The file may define ELEMENT4, the type of four
// elements, and ELEMENT4_OF() and ELEMENT2_OF(), which make four elements from a uvec2 of bits and
// two from a word. Shared memory is then an array of ELEMENT4. Otherwise it is an array of uvec4,
// from which drivers read bf16 fragments slowly.
//
// Operands that were wider than 16 bits are sums of several terms (TSR_MM_TERM_UNIT in
// params/matmul.h). The products of terms are added to the same sums: those of every term of a with
// the first one of b, and of the first one of a with every other one of b. If TOGETHER is 1, the tiles
// of all terms are in shared memory side by side, so that the operands are read once. Otherwise there
// is one pass over k for each pair of terms; passes with smaller products come first, when the sums are
// still small.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#include "params/matmul.h"

layout(constant_id = 13) const uint MODE = TSR_DT_F32 << TSR_MM_Y_DTYPE_SHIFT;
#define MM_MODE MODE
#define MM_FUSED MODE
#include "include/matmul_common.glsl"
layout(constant_id = 17) const uint BAND = 8;
#include "include/matmul_tile.glsl"

layout(constant_id = 0) const uint THREADS = 128;
layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint SUBGROUP = 32; // the subgroup size that the pipeline requires
layout(constant_id = 2) const uint DOWN = 2;      // rows of subgroups in the workgroup's tile
layout(constant_id = 3) const uint BM = 64;
layout(constant_id = 4) const uint BN = 64;
layout(constant_id = 5) const uint BK = 32;
layout(constant_id = 6) const uint FM = 16; // FM × FN × FK: a shape of fragments that the device supports
layout(constant_id = 7) const uint FN = 16;
layout(constant_id = 8) const uint FK = 16;
layout(constant_id = 9) const uint STAGED = 1; // the number of fragments that a subgroup stores together
// The number of buffers for tiles. With two, the tiles of a step are stored while invocations still
// read those of the previous step.
layout(constant_id = 12) const uint BUFFERS = 1;
layout(constant_id = 10) const uint A_LOAD = TSR_MM_LOAD_SCALAR;
layout(constant_id = 11) const uint B_LOAD = TSR_MM_LOAD_SCALAR;
// 1: rows of tiles are always lines, so that fragments are read along k. 0: they have the order in
// which the operand is contiguous, because the device transposes fragments while it reads them.
layout(constant_id = 14) const uint ALONG_K = 0;
layout(constant_id = 15) const uint A_TERMS = 1;
layout(constant_id = 16) const uint B_TERMS = 1;
layout(constant_id = 18) const uint TOGETHER = 0;
const uint PAIRS = A_TERMS + B_TERMS - 1; // of terms
const uint PASSES = TOGETHER != 0 ? 1 : PAIRS;
const uint A_TILES = TOGETHER != 0 ? A_TERMS : 1; // in shared memory at the same time
const uint B_TILES = TOGETHER != 0 ? B_TERMS : 1;

const uint SUBGROUPS = THREADS / SUBGROUP;
const uint ACROSS = SUBGROUPS / DOWN;
const uint TM = BM / DOWN / FM;
const uint TN = BN / ACROSS / FN;

// Tiles are in shared memory in units of UNIT elements, with PITCH units from row to row. A row of
// a tile is one line (a row of a, or a column of b). For operands that are contiguous from line to
// line, it is the elements of all lines at one k. The padding keeps the 16 bytes that invocations
// read from neighbouring rows in different banks.
#ifdef ELEMENT4
const uint UNIT = 4;
#else
const uint UNIT = 8;
#endif
const bool A_LOADS_LINES = A_LOAD == TSR_MM_LOAD_VEC_LINE || A_LOAD == TSR_MM_LOAD_SCALAR_LINE || A_LOAD == TSR_MM_LOAD_VEC8_LINE;
const bool B_LOADS_LINES = B_LOAD == TSR_MM_LOAD_VEC_LINE || B_LOAD == TSR_MM_LOAD_SCALAR_LINE || B_LOAD == TSR_MM_LOAD_VEC8_LINE;
const bool A_TRANSPOSES = A_LOADS_LINES && ALONG_K != 0;
const bool B_TRANSPOSES = B_LOADS_LINES && ALONG_K != 0;
const bool A_BY_LINE = A_LOADS_LINES && ALONG_K == 0;
const bool B_BY_LINE = B_LOADS_LINES && ALONG_K == 0;
const uint PAD = TSR_MM_COOPMAT_PAD / UNIT;
const uint A_PITCH = (A_BY_LINE ? BM : BK) / UNIT + PAD;
const uint B_PITCH = (B_BY_LINE ? BN : BK) / UNIT + PAD;
const uint TILE_B = A_TILES * (A_BY_LINE ? BK : BM) * A_PITCH;
const uint TILE_END = TILE_B + B_TILES * (B_BY_LINE ? BK : BN) * B_PITCH;
// The sums also go through shared memory. They use the memory of the tiles if its type allows this.
const uint STAGE = SUBGROUPS * FM * STAGED * FN;
#ifdef ELEMENT4
// Fragments must start at multiples of 16 bytes. The first member gives the memory this alignment.
struct aligned_tile {
    uvec4 alignment;
    ELEMENT4 at[BUFFERS * TILE_END];
};
shared aligned_tile tile_memory;
#define tile tile_memory.at
shared vec4 stage[STAGE / 4];
#else
shared uvec4 tile[BUFFERS * TILE_END > STAGE / 4 ? BUFFERS * TILE_END : STAGE / 4];
#endif

// The sums of a's rows over k, which the workgroups with the first columns of y compute as products with fragments of ones. The
// subgroups that have the same rows share them.
const bool ROW_SUMS = (MODE & TSR_MM_ROW_SUMS) != 0 && A_TERMS == 1;
const uint OWN_ROW_SUMS = (TM + ACROSS - 1) / ACROSS;

// The number of elements of one term of a narrowed line.
uint term_elements()
{
    return (p.k + TSR_MM_TERM_UNIT - 1) / TSR_MM_TERM_UNIT * TSR_MM_TERM_UNIT;
}

// Returns eight elements at an address that is the same in all invocations, plus an offset in
// bytes. Compilers recognise the sum of 64-bit integers: GPUs add the offset while they load.
uvec4 eight_at(uvec2 base, uint bytes)
{
    return tsr_words4(packUint2x32(base) + uint64_t(bytes)).v[0];
}

uvec2 four_at(uvec2 base, uint bytes)
{
    return tsr_words2(packUint2x32(base) + uint64_t(bytes)).v[0];
}

#define FETCH(x) a_##x
#define LINES BM
#define LOAD A_LOAD
#define LINE_STRIDE p.a_row
#define K_STRIDE p.a_k
#define TILE 0
#define BY_LINE A_BY_LINE
#define TRANSPOSES A_TRANSPOSES
#define PITCH A_PITCH
#define TERMS A_TILES
#include "gpu/matmul_coopmat_fetch.glsl"

#define FETCH(x) b_##x
#define LINES BN
#define LOAD B_LOAD
#define LINE_STRIDE p.b_col
#define K_STRIDE p.b_k
#define TILE TILE_B
#define BY_LINE B_BY_LINE
#define TRANSPOSES B_TRANSPOSES
#define PITCH B_PITCH
#define TERMS B_TILES
#include "gpu/matmul_coopmat_fetch.glsl"

// The index in `tile` of the fragment that starts at `line` and `k`.
uint fragment_at(uint tile_begin, bool by_line, uint pitch, uint line, uint k)
{
    return tile_begin + (by_line ? k * pitch + line / UNIT : line * pitch + k / UNIT);
}

const int A_LAYOUT = A_BY_LINE ? gl_CooperativeMatrixLayoutColumnMajor : gl_CooperativeMatrixLayoutRowMajor;
const int B_LAYOUT = B_BY_LINE ? gl_CooperativeMatrixLayoutRowMajor : gl_CooperativeMatrixLayoutColumnMajor;

// Loads the tiles of the step that begins at k into registers. `a` and `b` are the addresses of the
// tiles.
void load(uvec2 a, uvec2 b, uint a_lines, uint b_lines, uint k, uint k_count)
{
    if (k + BK <= k_count) {
        a_load(a, a_lines);
        b_load(b, b_lines);
    } else if (k < k_count) {
        a_load_end(a, a_lines, k_count - k);
        b_load_end(b, b_lines, k_count - k);
    }
}

// The addresses of the first tiles of a pass, if `at` is that of pass 0.
uvec2 a_of_pass(uvec2 at, uint pass)
{
    return A_TERMS > 1 && pass < A_TERMS ? mm_at(at, pass, term_elements(), DTYPE) : at;
}

uvec2 b_of_pass(uvec2 at, uint pass)
{
    return B_TERMS > 1 && pass >= A_TERMS ? mm_at(at, pass - A_TERMS + 1, term_elements(), DTYPE) : at;
}

// The scale of a narrowed line that starts at `line`.
float scale_of(uvec2 line, uint terms)
{
    return tsr_floats(mm_at(line, terms, term_elements(), DTYPE)).v[0];
}

float a_scale(uint row)
{
    return scale_of(mm_at(mm_a_matrix(DTYPE), row, p.a_row, DTYPE), A_TERMS);
}

float b_scale(uint col)
{
    return scale_of(mm_at(mm_b_matrix(DTYPE), col, p.b_col, DTYPE), B_TERMS);
}

// The sum of an element of y, from that of the narrowed lines. The smaller scale comes first, so that
// no intermediate result overflows if the last one does not.
float scaled(float sum, uint row, uint col)
{
    precise float value = sum;
    if ((MODE & TSR_MM_A_SCALES) != 0 && (MODE & TSR_MM_B_SCALES) != 0) {
        float one = a_scale(row), other = b_scale(col);
        value = value * min(one, other);
        value = value * max(one, other);
    } else if ((MODE & TSR_MM_A_SCALES) != 0) {
        value = value * a_scale(row);
    } else if ((MODE & TSR_MM_B_SCALES) != 0) {
        value = value * b_scale(col);
    }
    return value;
}

// The neighbouring columns of y that an invocation stores together.
const bool Y_VECTORS = (MODE & TSR_MM_Y_VECTORS) != 0;
const uint COLUMNS = Y_VECTORS ? 4 : 1;

// The sum at index `at` of shared memory.
float staged_sum(uint at)
{
#ifdef ELEMENT4
    return stage[at / 4][at % 4];
#else
    return uintBitsToFloat(tile[at / 4][at % 4]);
#endif
}

// Stores, or adds, the sum of row `row` of a, which is at index `at` of shared memory.
void store_row_sum(uint row, uint at)
{
    tsr_floats to = tsr_floats(mm_at(uvec2(p.TSR_MM_ROW_SUMS_LOW, p.TSR_MM_ROW_SUMS_HIGH), mm_split() * p.m + row, 1, TSR_DT_F32));
    to.v[0] = (MM_MODE & TSR_MM_ACCUMULATE) != 0 ? to.v[0] + staged_sum(at) : staged_sum(at);
}

// Stores COLUMNS elements of y, whose sums begin at index `at`. `corner` is the position of the
// block's first element in y.
void store_sums(mm_block block, uvec2 corner, uint row, uint col, uint at)
{
    if (!Y_VECTORS) {
        mm_store(block, row, col, scaled(staged_sum(at), corner.x + row, corner.y + col));
        return;
    }
    vec4 bias = vec4(0.0), sum;
    if ((MM_MODE & (TSR_MM_BIAS | TSR_MM_TIMES)) != 0)
        bias = mm_bias4(block, row, col);
    [[unroll]] for (uint i = 0; i < 4; i++)
        sum[i] = scaled(staged_sum(at + i), corner.x + row, corner.y + col + i);
    mm_store4(block, row, col, sum, bias);
}

void main()
{
    uint group = tsr_flat_group();
    if (group >= mm_tiles(BM, BN))
        return;
    uvec2 corner = mm_tile_at(group, BM, BN);
    uint row0 = corner.x, col0 = corner.y;

    uint row = gl_SubgroupID / ACROSS * (TM * FM);
    uint col = gl_SubgroupID % ACROSS * (TN * FN);
    uint k_begin = mm_split() * p.k_chunk;
    uint k_count = min(p.k_chunk, p.k - k_begin);
    const uvec2 a_begin = mm_at(mm_at(mm_a_matrix(DTYPE), row0, p.a_row, DTYPE), k_begin, p.a_k, DTYPE);
    const uvec2 b_begin = mm_at(mm_at(mm_b_matrix(DTYPE), col0, p.b_col, DTYPE), k_begin, p.b_k, DTYPE);
    uint pass = PASSES - 1;
    uvec2 a = a_of_pass(a_begin, pass), b = b_of_pass(b_begin, pass);

    coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator> sums[TM * TN];
    [[unroll]] for (uint i = 0; i < TM * TN; i++)
        sums[i] = coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>(0.0);
    coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator> row_sums[OWN_ROW_SUMS];
    [[unroll]] for (uint i = 0; i < OWN_ROW_SUMS; i++)
        row_sums[i] = coopmat<float, gl_ScopeSubgroup, FM, FN, gl_MatrixUseAccumulator>(0.0);
    const bool sums_rows = ROW_SUMS && col0 == 0;
    const coopmat<ELEMENT, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB> ones =
        coopmat<ELEMENT, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB>(ONE);
    uint a_lines = p.m - row0, b_lines = p.n - col0;
    a_prepare(a_lines);
    b_prepare(b_lines);
    load(a, b, a_lines, b_lines, 0, k_count);
    const uvec2 a_step = mm_at(uvec2(0), BK, p.a_k, DTYPE), b_step = mm_at(uvec2(0), BK, p.b_k, DTYPE);
    uint slot = 0;
    for (uint k = 0; k < k_count;) {
        if (BUFFERS == 1)
            barrier();
        a_keep(slot);
        b_keep(slot);
        barrier();
        k += BK;
        a = tsr_next(a, a_step);
        b = tsr_next(b, b_step);
        if (PASSES > 1 && k >= k_count && pass > 0) {
            pass--;
            k = 0;
            a = a_of_pass(a_begin, pass);
            b = b_of_pass(b_begin, pass);
        }
        load(a, b, a_lines, b_lines, k, k_count);
        // All tiles in shared memory are multiplied, smaller products first.
        [[unroll]] for (uint n = 0; n < (TOGETHER != 0 ? PAIRS : 1); n++) {
            uint pair = (TOGETHER != 0 ? PAIRS : 1) - 1 - n;
            uint a_tile = slot + a_term_at(pair < A_TILES ? pair : 0);
            uint b_tile = slot + TILE_B + b_term_at(pair < A_TILES ? 0 : pair - A_TILES + 1);
            [[unroll]] for (uint f = 0; f < BK; f += FK) {
                coopmat<ELEMENT, gl_ScopeSubgroup, FM, FK, gl_MatrixUseA> fa[TM];
                [[unroll]] for (uint i = 0; i < TM; i++)
                    coopMatLoad(fa[i], tile, fragment_at(a_tile, A_BY_LINE, A_PITCH, row + i * FM, f), A_PITCH, A_LAYOUT);
                if (ROW_SUMS && sums_rows)
                    [[unroll]] for (uint i = 0; i < TM; i++)
                        if (i % ACROSS == gl_SubgroupID % ACROSS)
                            row_sums[i / ACROSS] = coopMatMulAdd(fa[i], ones, row_sums[i / ACROSS]);
                [[unroll]] for (uint j = 0; j < TN; j++) {
                    coopmat<ELEMENT, gl_ScopeSubgroup, FK, FN, gl_MatrixUseB> fb;
                    coopMatLoad(fb, tile, fragment_at(b_tile, B_BY_LINE, B_PITCH, col + j * FN, f), B_PITCH, B_LAYOUT);
                    [[unroll]] for (uint i = 0; i < TM; i++)
                        sums[i * TN + j] = coopMatMulAdd(fa[i], fb, sums[i * TN + j]);
                }
            }
        }
        if (BUFFERS == 2)
            slot = TILE_END - slot;
    }

    // The driver decides which invocation has which sums. The sums therefore go through shared
    // memory, where each subgroup has its own part; neighbouring invocations then store
    // neighbouring elements. The loop over fragments is unrolled and compares constant indices,
    // like the one over rows in matmul_tiled.glsl, because an index that changes at run time would
    // keep the sums in memory.
    const uint WIDTH = STAGED * FN;
    uint own = gl_SubgroupID * (FM * WIDTH);
    mm_block block = mm_block_at(row0, col0);
    barrier(); // all subgroups have read their last fragments
    for (uint first = 0; first < TM * TN; first += STAGED) {
        [[unroll]] for (uint i = 0; i < TM * TN; i++)
            if (i >= first && i < first + STAGED) {
                uint at = own + (i - first) * FN;
#ifdef ELEMENT4
                coopMatStore(sums[i], stage, at / 4, WIDTH / 4, gl_CooperativeMatrixLayoutRowMajor);
#else
                coopMatStore(sums[i], tile, at / 4, WIDTH / 4, gl_CooperativeMatrixLayoutRowMajor);
#endif
            }
        subgroupBarrier();
        for (uint e = gl_SubgroupInvocationID * COLUMNS; e < FM * WIDTH; e += SUBGROUP * COLUMNS) {
            uint y_row = row + first / TN * FM + e / WIDTH;
            uint y_col = col + first % TN * FN + e % WIDTH;
            if (row0 + y_row < p.m && col0 + y_col < p.n)
                store_sums(block, corner, y_row, y_col, own + e);
        }
        subgroupBarrier();
    }
    if (!ROW_SUMS || !sums_rows)
        return;
    [[unroll]] for (uint i = 0; i < OWN_ROW_SUMS; i++) {
        uint fragment = i * ACROSS + gl_SubgroupID % ACROSS;
        if (fragment < TM) {
#ifdef ELEMENT4
            coopMatStore(row_sums[i], stage, own / 4, FN / 4, gl_CooperativeMatrixLayoutRowMajor);
#else
            coopMatStore(row_sums[i], tile, own / 4, FN / 4, gl_CooperativeMatrixLayoutRowMajor);
#endif
        }
        subgroupBarrier();
        for (uint e = gl_SubgroupInvocationID; e < FM; e += SUBGROUP)
            if (fragment < TM && row0 + row + fragment * FM + e < p.m)
                store_row_sum(row0 + row + fragment * FM + e, own + e * FN);
        subgroupBarrier();
    }
}
