// Matrix product of one or two rows and a matrix in blocks, y = a · bᵀ with b [n,k], for long rows of blocks that are 2 bytes longer than a
// multiple of 4 and begin with their scale: q4_0, q5_0 and q8_0. A workgroup computes COLS columns. An invocation multiplies one block of
// each of them at a time. It loads all these blocks before it waits for the rows of a, which a workgroup shares. The sums of the
// invocations are added up at the end (include/matmul_sums.glsl). GATED is as in matmul_vector_k.comp.
//
// If STAGED is 1, rows of b start and end at multiples of 16 bytes. Neighbouring invocations then load neighbouring pieces of 16 bytes,
// and the blocks go through shared memory. Otherwise an invocation loads its own blocks in aligned words.
//
// matmul_blocks.comp multiplies floats. matmul_blocks_int8.comp, with INT8, rounds the rows of a to blocks of 8 bits first, and multiplies
// integers.
#include "include/matmul_gated.glsl"
#include "include/matmul_norm.glsl"
#include "include/quant.glsl"

layout(constant_id = 5) const uint THREADS = 64;
layout(local_size_x_id = 5) in;
layout(constant_id = 6) const uint ROWS = 1; // at least m
layout(constant_id = 7) const uint COLS = 4;
layout(constant_id = 8) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 9) const uint LOAD = TSR_MM_LOAD_SCALAR; // how a is loaded: SCALAR or VEC_K
layout(constant_id = 10) const uint GATED = 0u;
layout(constant_id = 11) const uint NORM = 0u; // as in matmul_vector_k.comp
layout(constant_id = 12) const uint SUBGROUP = 0u; // include/matmul_sums.glsl
layout(constant_id = 13) const uint STAGED = 0u;

const uint SUMS = ROWS * COLS + (NORM != 0u ? ROWS : 0u);
const uint OWN = GATED != 0u ? COLS / 2u : COLS; // columns of y
const uint QUADS = 8u;                           // groups of four elements in a block
const uint PITCH = QUADS + 1u; // odd, so that neighbouring invocations read different banks of shared memory
const uint WORDS = QUANT_BYTES / 4u;            // words of a block, without its scale
const uint FIRST = (QUANT_LOW_AT - 2u) / 4u;    // the first word of the low plane
const uint LOADS = WORDS + 1u;

// Pieces of 16 bytes of the THREADS blocks of one column. THREADS is a multiple of 32. An invocation loads WHOLE pieces of each column.
// The REST pieces of each column that remain are divided among all invocations, RESTS for each.
const uint PIECES = THREADS * QUANT_BYTES / 16u;
const uint WHOLE = PIECES / THREADS;
const uint REST = PIECES % THREADS;
const uint RESTS = (COLS * REST + THREADS - 1u) / THREADS;

shared vec4 a_tile[ROWS * THREADS * PITCH];
shared uint b_tile[STAGED != 0u ? COLS * PIECES * 4u : 1u];
float sums[SUMS];
uvec4 pieces[COLS * WHOLE + RESTS];

#include "include/matmul_sums.glsl"

vec4 load_a(uint row, uint k)
{
    uint at = min(row, p.m - 1u) * p.a_row + k * p.a_k;
    if (LOAD == TSR_MM_LOAD_VEC_K && A_DTYPE == TSR_DT_F32)
        return tsr_floats4(p.a).v[at / 4u];
    if (LOAD == TSR_MM_LOAD_VEC_K)
        return mm_load4(p.a, at / 4u, A_DTYPE);
    return vec4(tsr_load_float(p.a, at, A_DTYPE), tsr_load_float(p.a, at + p.a_k, A_DTYPE),
                tsr_load_float(p.a, at + 2u * p.a_k, A_DTYPE), tsr_load_float(p.a, at + 3u * p.a_k, A_DTYPE));
}

// Returns the numbers of the four elements of a unit that are in run `part`, without bias, in four bytes. `low` has their low bits; `high`
// has the high bits of all elements of the block, one bit each. The bytes of TSR_QUANT_SIGNED have a sign.
uint bytes_of(uint low, uint high, uint unit, uint part)
{
    uint bytes = low;
    if (QUANT_LOW_BITS == 4u)
        bytes = (low >> (4u * part)) & 0x0f0f0f0fu;
    // The product has the four bits in the lowest bits of its four bytes.
    if (QUANT_HIGH != 0u)
        bytes |= ((((high >> quant_element(unit, part)) & 15u) * 0x00204081u) & 0x01010101u) << QUANT_LOW_BITS;
    return bytes;
}

#ifdef INT8

// A block of a row of a, rounded: element i is scale · byte i of `words`. If an element is NaN or infinite, the scale is NaN. If all are
// smaller than 2^-120, the block is 0.
struct row_block {
    uint words[QUADS];
    float scale;
    int sum; // the sum of the bytes
};

row_block read_row(uint row)
{
    row_block result;
    vec4 value[QUADS];
    uvec4 largest4 = uvec4(0u); // absolute values as bits, whose order is the same; infinity and NaN are above all numbers
    [[unroll]] for (uint quad = 0u; quad < QUADS; quad++) {
        value[quad] = a_tile[(row * THREADS + gl_LocalInvocationIndex) * PITCH + quad];
        largest4 = max(largest4, floatBitsToUint(value[quad]) & 0x7fffffffu);
    }
    uint largest = max(max(largest4.x, largest4.y), max(largest4.z, largest4.w));
    float inverse = largest < 0x03800000u ? 0.0 : 127.0 / uintBitsToFloat(largest);
    result.scale = largest < 0x7f800000u ? uintBitsToFloat(largest) * (1.0 / 127.0) : uintBitsToFloat(0x7fc00000u);
    result.sum = 0;
    [[unroll]] for (uint quad = 0u; quad < QUADS; quad++) {
        // Adding 1.5 · 2^23 rounds to an integer, which is then in the lowest bits.
        uvec4 bits = floatBitsToUint(fma(value[quad], vec4(inverse), vec4(12582912.0))) & 0xffu;
        result.words[quad] = bits.x | bits.y << 8 | bits.z << 16 | bits.w << 24;
        if (QUANT_BIAS != 0u)
            result.sum += dot_product(result.words[quad], 0x01010101u, 0);
    }
    return result;
}

float dot_block(row_block row, uint words[WORDS])
{
    int dot = -int(QUANT_BIAS) * row.sum;
    [[unroll]] for (uint unit = 0u; unit < QUANT_UNITS; unit++)
        [[unroll]] for (uint part = 0u; part < QUANT_PARTS; part++)
            dot += dot_product(row.words[quant_element(unit, part) / 4u],
                               bytes_of(words[FIRST + unit], words[0], unit, part), 0);
    return row.scale * float(dot);
}

#else

// A block of a row of a, which stays in shared memory.
struct row_block {
    uint at;
    float sum;
};

row_block read_row(uint row)
{
    vec4 four = vec4(0.0);
    uint at = (row * THREADS + gl_LocalInvocationIndex) * PITCH;
    if (QUANT_BIAS != 0u)
        [[unroll]] for (uint quad = 0u; quad < QUADS; quad++)
            four += a_tile[at + quad];
    return row_block(at, four.x + four.y + (four.z + four.w));
}

vec4 levels_of(uint low, uint high, uint unit, uint part)
{
    if (QUANT_CODE == TSR_QUANT_SIGNED)
        return vec4(ivec4(int(low)) << ivec4(24, 16, 8, 0) >> 24);
    return vec4(quant_bytes(bytes_of(low, high, unit, part)));
}

float dot_block(row_block row, uint words[WORDS])
{
    float dot = -float(QUANT_BIAS) * row.sum;
    [[unroll]] for (uint unit = 0u; unit < QUANT_UNITS; unit++)
        [[unroll]] for (uint part = 0u; part < QUANT_PARTS; part++) {
            vec4 level = levels_of(words[FIRST + unit], words[0], unit, part);
            vec4 four = a_tile[row.at + quant_element(unit, part) / 4u];
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                dot = fma(four[c], level[c], dot);
        }
    return dot;
}

#endif

// Adds the products of a block with the rows of a. `loaded` has the words from the last multiple of 4 bytes on that is not after the
// block's start; `odd` is true if the block starts 2 bytes after that multiple.
void add_block(uint j, uint loaded[LOADS], bool odd, row_block rows[ROWS])
{
    uint words[WORDS];
    [[unroll]] for (uint w = 0u; w < WORDS; w++)
        words[w] = odd ? loaded[w + 1u] : loaded[w] >> 16 | loaded[w + 1u] << 16;
    float scale = tsr_f32_from_f16(odd ? loaded[0] >> 16 : loaded[0] & 0xffffu);
    [[unroll]] for (uint i = 0u; i < ROWS; i++)
        sums[i * COLS + j] = fma(scale, dot_block(rows[i], words), sums[i * COLS + j]);
}

// The first byte of column j of the workgroup. Columns past the edge repeat the last one, and their sums are not stored.
uvec2 column_at(uint col0, uint j)
{
    uint col = col0 + min(j % OWN, p.n - 1u - col0) + (j < OWN ? 0u : p.n);
    return tsr_at_mul(p.b, col, p.b_col); // here b_col counts bytes
}

// The column and the number in it of piece i of the rest that this invocation loads.
uvec2 rest_place(uint i)
{
    uint e = min(i * THREADS + gl_LocalInvocationIndex, COLS * REST - 1u);
    return uvec2(e / REST, WHOLE * THREADS + e % REST);
}

// Loads the pieces of THREADS blocks of each column, from block `tile` on. Pieces past the end of a row repeat its last one.
void load_pieces(uint col0, uint tile, uint blocks)
{
    uint first = tile * QUANT_BYTES / 16u, last = blocks * QUANT_BYTES / 16u - 1u;
    [[unroll]] for (uint j = 0u; j < COLS; j++)
        [[unroll]] for (uint i = 0u; i < WHOLE; i++)
            pieces[j * WHOLE + i] =
                tsr_words4(column_at(col0, j)).v[min(first + i * THREADS + gl_LocalInvocationIndex, last)];
    [[unroll]] for (uint i = 0u; i < RESTS; i++) {
        uvec2 place = rest_place(i);
        pieces[COLS * WHOLE + i] = tsr_words4(column_at(col0, place.x)).v[min(first + place.y, last)];
    }
}

void keep_piece(uint j, uint piece, uvec4 bits)
{
    [[unroll]] for (uint c = 0u; c < 4u; c++)
        b_tile[4u * (j * PIECES + piece) + c] = bits[c];
}

void keep_pieces()
{
    [[unroll]] for (uint j = 0u; j < COLS; j++)
        [[unroll]] for (uint i = 0u; i < WHOLE; i++)
            keep_piece(j, i * THREADS + gl_LocalInvocationIndex, pieces[j * WHOLE + i]);
    [[unroll]] for (uint i = 0u; i < RESTS; i++) {
        uvec2 place = rest_place(i);
        if (COLS * REST % THREADS == 0u || i * THREADS + gl_LocalInvocationIndex < COLS * REST)
            keep_piece(place.x, place.y, pieces[COLS * WHOLE + i]);
    }
}

void main()
{
    uint group = tsr_flat_group();
    if (group >= (p.n + OWN - 1u) / OWN)
        return;
    uint lane = gl_LocalInvocationIndex, col0 = group * OWN, blocks = p.k / QUANT_COUNT;
    [[unroll]] for (uint e = 0u; e < SUMS; e++)
        sums[e] = 0.0;

    for (uint tile = 0u; tile < blocks; tile += THREADS) {
        uint block = min(tile + lane, blocks - 1u);
        uint loaded[COLS][LOADS];
        bool odd[COLS];
        if (STAGED != 0u)
            load_pieces(col0, tile, blocks);
        else
            [[unroll]] for (uint j = 0u; j < COLS; j++) {
                uvec2 from = tsr_at_mul(column_at(col0, j), block, QUANT_BYTES);
                odd[j] = (from.x & 2u) != 0u;
                from.x &= ~3u;
                [[unroll]] for (uint w = 0u; w < LOADS; w++)
                    loaded[j][w] = tsr_words(from).v[w];
            }
        [[unroll]] for (uint e = 0u; e < ROWS * QUADS; e++) {
            uint quad = e % QUADS * THREADS + lane;
            uint k = tile * QUANT_COUNT + 4u * quad;
            vec4 four = load_a(e / QUADS, min(k, p.k - 4u));
            if (NORM != 0u) {
                if (k < p.k)
                    sums[ROWS * COLS + e / QUADS] = mm_add_squares(sums[ROWS * COLS + e / QUADS], four);
                four *= mm_norm_weight4(min(k, p.k - 4u) / 4u, NORM);
            }
            a_tile[(e / QUADS * THREADS + quad / QUADS) * PITCH + quad % QUADS] = four;
        }
        if (STAGED != 0u)
            keep_pieces();
        barrier();
        if (tile + lane < blocks) {
            row_block rows[ROWS];
            [[unroll]] for (uint i = 0u; i < ROWS; i++)
                rows[i] = read_row(i);
            [[unroll]] for (uint j = 0u; j < COLS; j++) {
                if (STAGED != 0u) {
                    uint first = j * PIECES * 4u + lane * QUANT_BYTES / 4u;
                    odd[j] = (lane * QUANT_BYTES & 2u) != 0u;
                    [[unroll]] for (uint w = 0u; w < LOADS; w++)
                        loaded[j][w] = b_tile[first + w];
                }
                add_block(j, loaded[j], odd[j], rows);
            }
        }
        barrier();
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
