// Matrix product of a few rows and a row-major matrix, which is read once. A workgroup computes 4 ·
// LANES columns. It has SLICES groups of LANES invocations. The invocations of a group are placed
// along the columns, and each group takes every SLICES-th value of k. The sums of the groups are
// added up in a fixed tree.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/matmul_common.glsl"

layout(constant_id = 0) const uint THREADS = 128; // LANES · SLICES
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint ROWS = 1; // at least m
layout(constant_id = 2) const uint LANES = 16;
layout(constant_id = 3) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint B_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint LOAD = TSR_MM_LOAD_SCALAR; // how b is loaded: SCALAR or VEC_LINE

const uint SLICES = THREADS / LANES; // a power of two
const uint COLS = 4 * LANES;
const uint UNROLL = 4; // loads of b in flight at a time
shared float tree[SLICES * ROWS * COLS];
vec4 sums[ROWS];

void main()
{
    uint group = tsr_flat_group();
    if (group >= (p.n + COLS - 1) / COLS)
        return;
    uint lane = gl_LocalInvocationIndex % LANES;
    uint slice = gl_LocalInvocationIndex / LANES;
    uint col0 = group * COLS;
    uint k_begin = mm_split() * p.k_chunk;
    uint k_count = min(p.k_chunk, p.k - k_begin);
    uvec2 a = mm_at(mm_a_matrix(A_DTYPE), k_begin, p.a_k, A_DTYPE);
    uvec2 b = mm_at(mm_at(mm_b_matrix(B_DTYPE), k_begin, p.b_k, B_DTYPE), col0, p.b_col, B_DTYPE);

    // If columns are loaded as vectors, the four columns of an invocation are neighbours. Otherwise
    // they are LANES apart.
    uint last = p.n - 1 - col0;
    uint cols[4];
    [[unroll]] for (uint c = 0; c < 4; c++)
        cols[c] = LOAD == TSR_MM_LOAD_VEC_LINE ? lane * 4 + c : lane + c * LANES;
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        sums[i] = vec4(0.0);

    for (uint k0 = slice; k0 < k_count; k0 += SLICES * UNROLL) {
        vec4 line[UNROLL];
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            uint k = min(k0 + u * SLICES, k_count - 1);
            if (LOAD == TSR_MM_LOAD_VEC_LINE)
                line[u] = mm_load4(b, (k * p.b_k + min(cols[0], last & ~3u)) / 4, B_DTYPE);
            else
                [[unroll]] for (uint c = 0; c < 4; c++)
                    line[u][c] = tsr_load_float(b, k * p.b_k + min(cols[c], last) * p.b_col, B_DTYPE);
        }
        [[unroll]] for (uint u = 0; u < UNROLL; u++) {
            uint k = k0 + u * SLICES;
            if (k < k_count)
                [[unroll]] for (uint i = 0; i < ROWS; i++) {
                    float row = tsr_load_float(a, min(i, p.m - 1) * p.a_row + k * p.a_k, A_DTYPE);
                    sums[i] = fma(vec4(row), line[u], sums[i]);
                }
        }
    }

    [[unroll]] for (uint i = 0; i < ROWS; i++)
        [[unroll]] for (uint c = 0; c < 4; c++)
            tree[(slice * ROWS + i) * COLS + cols[c]] = sums[i][c];
    for (uint half_size = SLICES / 2; half_size > 0; half_size /= 2) {
        barrier();
        if (slice < half_size)
            [[unroll]] for (uint i = 0; i < ROWS; i++)
                [[unroll]] for (uint c = 0; c < 4; c++)
                    tree[(slice * ROWS + i) * COLS + cols[c]] +=
                        tree[((slice + half_size) * ROWS + i) * COLS + cols[c]];
    }
    barrier();

    mm_block block = mm_block_at(0, col0);
    for (uint e = gl_LocalInvocationIndex; e < ROWS * COLS; e += THREADS)
        if (e / COLS < p.m && col0 + e % COLS < p.n)
            mm_store(block, e / COLS, e % COLS, tree[e]);
}
