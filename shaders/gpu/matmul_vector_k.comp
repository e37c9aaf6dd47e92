// Matrix product of a few rows and a column-major matrix (k is contiguous), which is read once. A
// workgroup computes COLS columns. Its invocations are placed along k, and their sums are added up
// at the end (include/matmul_sums.glsl). If GATED is 1, b has 2n columns: half of a workgroup's columns are among the
// first n, and the other half are n columns further. y is then the product of the activated first
// half and the second half. If NORM is not 0, the rows of a are normalised (include/matmul_norm.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/matmul_gated.glsl"
#include "include/matmul_norm.glsl"

layout(constant_id = 0) const uint THREADS = 64; // a power of two
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 1; // at least m
layout(constant_id = 2) const uint COLS = 4;
layout(constant_id = 3) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint B_DTYPE = TSR_DT_F32;
// How both operands are loaded: SCALAR, VEC_K, or VEC8_K if b has 16 bits. Rows of an f32 a are then aligned to
// four elements.
layout(constant_id = 5) const uint LOAD = TSR_MM_LOAD_SCALAR;
layout(constant_id = 6) const uint SUBGROUP = 0;
layout(constant_id = 7) const uint GATED = 0;
layout(constant_id = 8) const uint NORM = 0; // the dtype of the norm's weight; 0: no norm. Not with LOAD SCALAR

// An invocation's sums: of products, and of the squares of each row.
const uint SUMS = ROWS * COLS + (NORM != 0 ? ROWS : 0);
const uint OWN = GATED != 0 ? COLS / 2 : COLS; // columns of y

// The number of neighbours along k that an invocation loads together from a column of b: 16 bytes,
// unless alignment allows only 8. They consist of QUADS groups of four.
const uint WIDTH = LOAD == TSR_MM_LOAD_VEC8_K ? 8 : 4;
const uint QUADS = WIDTH / 4;
// The number of such vectors that an invocation loads at a time; they are THREADS vectors apart. It
// is as large as registers allow, because memory bandwidth limits this kernel.
const uint AHEAD = ROWS > 2 ? 1 : B_DTYPE == TSR_DT_F32 ? 2 : 4 / QUADS;

float sums[SUMS];
uint a_at[ROWS], b_at[COLS]; // offsets of rows of a and of columns of b, in elements
vec4 row[QUADS];             // a vector of a row of a

#include "include/matmul_sums.glsl"

// Returns the bits of vector i of b.
uvec4 load_b(uvec2 b, uint i)
{
    if (WIDTH == 8)
        return tsr_words4(b).v[i];
    return mm_load_bits4(b, i, B_DTYPE);
}

// Returns the values of group `quad` of a vector of a or b.
vec4 quad_of(uvec4 bits, uint quad, uint dtype)
{
    return WIDTH == 8 ? mm_floats4(quad == 0 ? bits.xy : bits.zw, dtype) : mm_widen4(bits, dtype);
}

// Sets `row` to the vector of a that begins with group `first` of four elements.
void load_row(uvec2 a, uint first)
{
    if (A_DTYPE == TSR_DT_F32) {
        [[unroll]] for (uint quad = 0; quad < QUADS; quad++)
            row[quad] = tsr_floats4(a).v[first + quad];
    } else if (WIDTH == 8) {
        uvec4 bits = tsr_words4(a).v[first / QUADS];
        [[unroll]] for (uint quad = 0; quad < QUADS; quad++)
            row[quad] = quad_of(bits, quad, A_DTYPE);
    } else {
        row[0] = mm_load4(a, first, A_DTYPE);
    }
}

// Adds the products of `count` vectors of every row of a with those of every column of b, at k, k +
// THREADS, and so on. `count` is a constant, at most AHEAD.
void multiply(uvec2 a, uvec2 b, uint k, uint count)
{
    uvec4 line[AHEAD * COLS];
    [[unroll]] for (uint s = 0; s < count; s++)
        [[unroll]] for (uint j = 0; j < COLS; j++)
            line[s * COLS + j] = load_b(b, b_at[j] / WIDTH + k + s * THREADS);
    [[unroll]] for (uint s = 0; s < count; s++) {
        vec4 weight[QUADS];
        if (NORM != 0)
            [[unroll]] for (uint quad = 0; quad < QUADS; quad++)
                weight[quad] = mm_norm_weight4((k + s * THREADS) * QUADS + quad, NORM);
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            load_row(a, a_at[i] / 4 + (k + s * THREADS) * QUADS);
            [[unroll]] for (uint quad = 0; quad < QUADS; quad++) {
                if (NORM != 0) {
                    sums[ROWS * COLS + i] = mm_add_squares(sums[ROWS * COLS + i], row[quad]);
                    row[quad] *= weight[quad];
                }
                [[unroll]] for (uint j = 0; j < COLS; j++) {
                    vec4 value = quad_of(line[s * COLS + j], quad, B_DTYPE);
                    [[unroll]] for (uint c = 0; c < 4; c++)
                        sums[i * COLS + j] = fma(row[quad][c], value[c], sums[i * COLS + j]);
                }
            }
        }
    }
}

void main()
{
    uint group = tsr_flat_group();
    if (group >= (p.n + OWN - 1) / OWN)
        return;
    uint lane = gl_LocalInvocationIndex;
    uint col0 = group * OWN;
    uint k_begin = mm_split() * p.k_chunk;
    uint k_count = min(p.k_chunk, p.k - k_begin);
    uvec2 a = mm_at(mm_a_matrix(A_DTYPE), k_begin, p.a_k, A_DTYPE);
    uvec2 b = mm_at(mm_at(mm_b_matrix(B_DTYPE), k_begin, p.b_k, B_DTYPE), col0, p.b_col, B_DTYPE);

    // Rows and columns past an edge repeat the last one, and their sums are not stored.
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        a_at[i] = min(i, p.m - 1) * p.a_row;
    [[unroll]] for (uint j = 0; j < COLS; j++)
        b_at[j] = (min(j % OWN, p.n - 1 - col0) + (j < OWN ? 0 : p.n)) * p.b_col;
    [[unroll]] for (uint e = 0; e < SUMS; e++)
        sums[e] = 0.0;

    if (LOAD != TSR_MM_LOAD_SCALAR) {
        uint k = lane;
        for (; k + (AHEAD - 1) * THREADS < k_count / WIDTH; k += AHEAD * THREADS)
            multiply(a, b, k, AHEAD);
        if (AHEAD > 1)
            for (; k < k_count / WIDTH; k += THREADS)
                multiply(a, b, k, 1);
    } else {
        for (uint k = lane; k < k_count; k += THREADS) {
            float line[COLS];
            [[unroll]] for (uint j = 0; j < COLS; j++)
                line[j] = tsr_load_float(b, b_at[j] + k * p.b_k, B_DTYPE);
            [[unroll]] for (uint i = 0; i < ROWS; i++) {
                float row = tsr_load_float(a, a_at[i] + k * p.a_k, A_DTYPE);
                [[unroll]] for (uint j = 0; j < COLS; j++)
                    sums[i * COLS + j] = fma(row, line[j], sums[i * COLS + j]);
            }
        }
    }

    add_up();

    mm_block block = mm_block_at(0, col0);
    for (uint e = lane; e < ROWS * OWN; e += THREADS) {
        uint row = e / OWN, col = e % OWN, at = row * COLS + col;
        if (row >= p.m || col0 + col >= p.n)
            continue;
        float factor = NORM != 0 ? mm_norm_factor(total(ROWS * COLS + row)) : 1.0;
        if (GATED != 0)
            mm_store_gated(block, row, col, factor * total(at), factor * total(at + OWN));
        else
            mm_store(block, row, col, factor * total(at));
    }
}
