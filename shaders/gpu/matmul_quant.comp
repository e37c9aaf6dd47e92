// Matrix product of a few rows and a matrix in blocks, y = a · bᵀ with b [n,k], which is read once.
// A workgroup computes COLS columns. Its invocations are placed along k, each at one unit of a
// block (include/quant.glsl) at a time, and their sums are added up at the end
// (include/matmul_sums.glsl). GATED is as in matmul_vector_k.comp.
//
// If STAGED is 1, the workgroup loads its columns in tiles of QUANT_TILE_BLOCKS blocks: neighbouring
// invocations load neighbouring pieces of 16 bytes, while they multiply the tile before, and the
// tile goes through shared memory. Otherwise invocations load units and scales from the buffer.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/matmul_gated.glsl"
#include "include/matmul_norm.glsl"

layout(constant_id = 7) const uint COLS = 4;
layout(constant_id = 13) const uint STAGED = 0u;
#define QUANT_STAGED STAGED
#define QUANT_STAGED_COLUMNS COLS
#include "include/quant.glsl"

layout(constant_id = 5) const uint THREADS = 64; // a power of two
layout(local_size_x_id = 5) in;
layout(constant_id = 6) const uint ROWS = 1; // at least m
layout(constant_id = 8) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 9) const uint LOAD = TSR_MM_LOAD_SCALAR; // how a is loaded: SCALAR or VEC_K
layout(constant_id = 10) const uint GATED = 0u;
layout(constant_id = 11) const uint NORM = 0u; // as in matmul_vector_k.comp
layout(constant_id = 12) const uint SUBGROUP = 0u; // include/matmul_sums.glsl

const uint SUMS = ROWS * COLS + (NORM != 0u ? ROWS : 0u);
const uint OWN = GATED != 0u ? COLS / 2u : COLS; // columns of y
const uint LOADS = STAGED == 0u ? 1u : (COLS * QUANT_TILE_PIECES + THREADS - 1u) / THREADS; // of an invocation

float sums[SUMS];
uvec4 pieces[LOADS];

#include "include/matmul_sums.glsl"

vec4 load_a(uint row, uint k)
{
    uint at = min(row, p.m - 1u) * p.a_row + k * p.a_k;
    if (LOAD == TSR_MM_LOAD_VEC_K)
        return mm_load4(p.a, at / 4u, A_DTYPE);
    return vec4(tsr_load_float(p.a, at, A_DTYPE), tsr_load_float(p.a, at + p.a_k, A_DTYPE),
                tsr_load_float(p.a, at + 2u * p.a_k, A_DTYPE), tsr_load_float(p.a, at + 3u * p.a_k, A_DTYPE));
}

// The first byte of column j of the workgroup. Columns past the edge repeat the last one, and their sums are not stored.
uvec2 column_at(uint col0, uint j)
{
    uint col = col0 + min(j % OWN, p.n - 1u - col0) + (j < OWN ? 0u : p.n);
    return tsr_at_mul(p.b, col, p.b_col); // here b_col counts bytes
}

// Loads this invocation's pieces of the tiles that begin with a block. Pieces past the end of a row repeat its last one.
void load_pieces(uint col0, uint first_block)
{
    uint row_bytes = p.k / QUANT_COUNT * QUANT_BYTES, first = first_block * QUANT_BYTES / 16u;
    [[unroll]] for (uint i = 0u; i < LOADS; i++) {
        uint e = min(i * THREADS + gl_LocalInvocationIndex, COLS * QUANT_TILE_PIECES - 1u);
        uvec2 column = column_at(col0, e / QUANT_TILE_PIECES);
        uint last = ((column.x & 15u) + row_bytes - 1u) / 16u;
        column.x &= ~15u;
        pieces[i] = tsr_words4(column).v[min(first + e % QUANT_TILE_PIECES, last)];
    }
}

void keep_pieces()
{
    [[unroll]] for (uint i = 0u; i < LOADS; i++) {
        uint e = i * THREADS + gl_LocalInvocationIndex;
        if (e < COLS * QUANT_TILE_PIECES)
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                quant_tile[4u * e + c] = pieces[i][c];
    }
}

// Multiplies a unit of a block, which is at from[j] in column j.
void add_unit(uvec2 from[COLS], uint block, uint unit)
{
    uint low[COLS];
    [[unroll]] for (uint j = 0u; j < COLS; j++)
        low[j] = quant_low(from[j], unit);
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

void main()
{
    uint group = tsr_flat_group();
    if (group >= (p.n + OWN - 1u) / OWN)
        return;
    uint lane = gl_LocalInvocationIndex;
    uint col0 = group * OWN;
    uint units = p.k / QUANT_COUNT * QUANT_UNITS;
    [[unroll]] for (uint e = 0u; e < SUMS; e++)
        sums[e] = 0.0;

    if (STAGED == 0u)
        for (uint u = lane; u < units; u += THREADS) {
            uvec2 from[COLS];
            [[unroll]] for (uint j = 0u; j < COLS; j++)
                from[j] = tsr_at_mul(column_at(col0, j), u / QUANT_UNITS, QUANT_BYTES);
            add_unit(from, u / QUANT_UNITS, u % QUANT_UNITS);
        }
    else {
        uint starts[COLS];
        [[unroll]] for (uint j = 0u; j < COLS; j++)
            starts[j] = j * QUANT_TILE_PIECES * 16u + (column_at(col0, j).x & 15u);
        load_pieces(col0, 0u);
        for (uint first = 0u; first < units; first += QUANT_TILE_BLOCKS * QUANT_UNITS) {
            keep_pieces();
            barrier();
            load_pieces(col0, first / QUANT_UNITS + QUANT_TILE_BLOCKS);
            uint end = min(QUANT_TILE_BLOCKS * QUANT_UNITS, units - first);
            for (uint u = lane; u < end; u += THREADS) {
                uvec2 from[COLS];
                [[unroll]] for (uint j = 0u; j < COLS; j++)
                    from[j] = uvec2(starts[j] + u / QUANT_UNITS * QUANT_BYTES, 0u);
                add_unit(from, (first + u) / QUANT_UNITS, u % QUANT_UNITS);
            }
            barrier();
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
