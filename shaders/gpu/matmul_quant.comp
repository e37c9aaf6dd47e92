// Matrix product of a few rows and a matrix in blocks, y = a · bᵀ with b [n,k], which is read once.
// A workgroup computes COLS columns. Its invocations are placed along k, each at one unit of a
// block (include/quant.glsl) at a time, and their sums are added up at the end
// (include/matmul_sums.glsl). GATED is as in matmul_vector_k.comp.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/matmul_gated.glsl"
#include "include/matmul_norm.glsl"
#include "include/quant.glsl"

layout(constant_id = 5) const uint THREADS = 64; // a power of two
layout(local_size_x_id = 5) in;
layout(constant_id = 6) const uint ROWS = 1; // at least m
layout(constant_id = 7) const uint COLS = 4;
layout(constant_id = 8) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 9) const uint LOAD = TSR_MM_LOAD_SCALAR; // how a is loaded: SCALAR or VEC_K
layout(constant_id = 10) const uint GATED = 0u;
layout(constant_id = 11) const uint NORM = 0u; // as in matmul_vector_k.comp
layout(constant_id = 12) const uint SUBGROUP = 0u; // include/matmul_sums.glsl

const uint SUMS = ROWS * COLS + (NORM != 0u ? ROWS : 0u);
const uint OWN = GATED != 0u ? COLS / 2u : COLS; // columns of y

float sums[SUMS];

#include "include/matmul_sums.glsl"

vec4 load_a(uint row, uint k)
{
    uint at = min(row, p.m - 1u) * p.a_row + k * p.a_k;
    if (LOAD == TSR_MM_LOAD_VEC_K)
        return mm_load4(p.a, at / 4u, A_DTYPE);
    return vec4(tsr_load_float(p.a, at, A_DTYPE), tsr_load_float(p.a, at + p.a_k, A_DTYPE),
                tsr_load_float(p.a, at + 2u * p.a_k, A_DTYPE), tsr_load_float(p.a, at + 3u * p.a_k, A_DTYPE));
}

void main()
{
    uint group = tsr_flat_group();
    if (group >= (p.n + OWN - 1u) / OWN)
        return;
    uint lane = gl_LocalInvocationIndex;
    uint col0 = group * OWN;
    uint units = p.k / QUANT_COUNT * QUANT_UNITS;
    uvec2 b = tsr_at_mul(p.b, col0, p.b_col); // here b_col counts bytes
    [[unroll]] for (uint e = 0u; e < SUMS; e++)
        sums[e] = 0.0;

    for (uint u = lane; u < units; u += THREADS) {
        uint block = u / QUANT_UNITS, unit = u % QUANT_UNITS;
        uvec2 from[COLS];
        uint low[COLS];
        // Columns past the edge repeat the last one, and their sums are not stored.
        [[unroll]] for (uint j = 0u; j < COLS; j++) {
            uint col = min(j % OWN, p.n - 1u - col0) + (j < OWN ? 0u : p.n);
            from[j] = tsr_at_mul(tsr_at_mul(b, col, p.b_col), block, QUANT_BYTES);
            low[j] = quant_low(from[j], unit);
        }
        [[unroll]] for (uint part = 0u; part < QUANT_PARTS; part++) {
            uint element = quant_element(unit, part);
            vec4 row[ROWS];
            [[unroll]] for (uint i = 0u; i < ROWS; i++)
                row[i] = load_a(i, block * QUANT_COUNT + element);
            if (NORM != 0u) {
                vec4 weight = mm_norm_weight4((block * QUANT_COUNT + element) / 4u, NORM);
                [[unroll]] for (uint i = 0u; i < ROWS; i++) {
                    sums[ROWS * COLS + i] = mm_add_squares(sums[ROWS * COLS + i], row[i]);
                    row[i] *= weight;
                }
            }
            [[unroll]] for (uint j = 0u; j < COLS; j++) {
                vec2 scale = quant_scale(from[j], element / QUANT_SUB);
                vec4 value = scale.x * quant_levels(from[j], unit, low[j], part) + scale.y;
                [[unroll]] for (uint i = 0u; i < ROWS; i++)
                    [[unroll]] for (uint c = 0u; c < 4u; c++)
                        sums[i * COLS + j] = fma(row[i][c], value[c], sums[i * COLS + j]);
            }
        }
    }

    add_up();

    mm_block block = mm_block_at(0u, col0);
    for (uint e = lane; e < ROWS * OWN; e += THREADS) {
        uint row = e / OWN, col = e % OWN, at = row * COLS + col;
        if (row >= p.m || col0 + col >= p.n)
            continue;
        float factor = NORM != 0u ? mm_norm_factor(total(ROWS * COLS + row)) : 1.0;
        if (GATED != 0u)
            mm_store_gated(block, row, col, factor * total(at), factor * total(at + OWN));
        else
            mm_store(block, row, col, factor * total(at));
    }
}
