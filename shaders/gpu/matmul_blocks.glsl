// Matrix product of one or two rows and a matrix in blocks, y = a · bᵀ with b [n,k], for long rows of two kinds of blocks:
//  - blocks of 32 elements, 2 bytes longer than a multiple of 4, that begin with their scale: q4_0, q5_0 and q8_0;
//  - LARGE blocks of 256 elements with four low bits each: q4_k, q5_k and q6_k.
// A workgroup computes COLS columns. An invocation multiplies 32 elements of each of them at a time: one block, or those of a large block
// whose low bits are in the same 16 bytes, which are 16 elements each in two runs. It loads all its blocks before it waits for the rows of
// a, which a workgroup shares. The sums of the invocations are added up at the end (include/matmul_sums.glsl). GATED is as in
// matmul_vector_k.comp.
//
// If STAGED is not 0, neighbouring invocations load neighbouring pieces of 16 bytes, and the blocks go through shared memory. If it is 1,
// rows of b start and end at multiples of 16 bytes; if it is 2, blocks are large and rows start anywhere. Otherwise an invocation loads its
// own blocks: large ones in vectors of 16 bytes, at multiples of which all their planes start, and others in aligned words.
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
const bool LARGE = QUANT_COUNT == 256u;
const uint SHARERS = QUANT_COUNT / 32u; // invocations that share a block

// Pieces of 16 bytes of the 32 · THREADS elements of one column. THREADS is a multiple of 32, and for large blocks of 64. An invocation
// loads WHOLE pieces of each column. The REST pieces of each column that remain are divided among all invocations, RESTS for each.
const uint PIECES = THREADS / SHARERS * QUANT_BYTES / 16u + STAGED / 2u;
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

// The place in a_tile of the four elements that begin at element 4 · quad of the tile.
uint place_of(uint quad)
{
    if (!LARGE)
        return quad / QUADS * PITCH + quad % QUADS;
    const uint RUN = QUANT_LOW_RUN / 4u;
    uint group = quad / (2u * RUN), part = quad / RUN % 2u, within = quad % RUN;
    return (group * (RUN / 4u) + within / 4u) * PITCH + part * 4u + within % 4u;
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
    vec2 sum; // of the elements; for a large block, of those in each of the two runs
};

float sum_of(vec4 four)
{
    return four.x + four.y + (four.z + four.w);
}

row_block read_row(uint row)
{
    vec4 four[2] = vec4[](vec4(0.0), vec4(0.0));
    uint at = (row * THREADS + gl_LocalInvocationIndex) * PITCH;
    if (QUANT_BIAS != 0u || LARGE)
        [[unroll]] for (uint quad = 0u; quad < QUADS; quad++)
            four[LARGE ? quad / 4u : 0u] += a_tile[at + quad];
    return row_block(at, vec2(sum_of(four[0]), sum_of(four[1])));
}

vec4 levels_of(uint low, uint high, uint unit, uint part)
{
    if (QUANT_CODE == TSR_QUANT_SIGNED)
        return vec4(ivec4(int(low)) << ivec4(24, 16, 8, 0) >> 24);
    return vec4(quant_bytes(bytes_of(low, high, unit, part)));
}

float dot_block(row_block row, uint words[WORDS])
{
    float dot = -float(QUANT_BIAS) * row.sum.x;
    [[unroll]] for (uint unit = 0u; unit < QUANT_UNITS; unit++)
        [[unroll]] for (uint part = 0u; part < QUANT_PARTS; part++) {
            vec4 level = levels_of(words[FIRST + unit], words[0], unit, part);
            vec4 four = a_tile[row.at + quant_element(unit, part) / 4u];
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                dot = fma(four[c], level[c], dot);
        }
    return dot;
}

// What an invocation needs of a large block: 16 bytes of each plane and the scales. `head` has the first 16 bytes of the block, where q4_k
// and q5_k have the scales; for q6_k, its first word has the block's factor and the scales of the two runs.
struct large_chunk {
    uvec4 low, high, head;
};

// The number of this invocation among those that share a block.
uint sharer() { return gl_LocalInvocationIndex % SHARERS; }

// The first of the 16 elements of a run, in the block.
uint run_start(uint part) { return quant_element(4u * sharer(), part); }

// The place in the block of the 16 bytes with the high bits. Both runs have theirs in the same bytes.
uint high_place()
{
    uint span = QUANT_HIGH_RUN * 8u / max(QUANT_HIGH_BITS, 1u), e = run_start(0u);
    return QUANT_HIGH_AT + e / span * QUANT_HIGH_RUN + e % QUANT_HIGH_RUN;
}

large_chunk load_chunk(uvec2 block)
{
    large_chunk result = large_chunk(uvec4(0u), uvec4(0u), tsr_words4(block).v[0]);
    result.low = tsr_words4(tsr_at(block, QUANT_LOW_AT + 16u * sharer())).v[0];
    if (QUANT_HIGH != 0u)
        result.high = tsr_words4(tsr_at(block, high_place())).v[0];
    return result;
}

// 16 bytes of b_tile, from an even byte on.
uvec4 staged_bytes(uint byte)
{
    uvec4 words, next;
    [[unroll]] for (uint c = 0u; c < 4u; c++)
        words[c] = b_tile[byte / 4u + c];
    next = uvec4(words.yzw, b_tile[byte / 4u + 4u]);
    return (byte & 2u) != 0u ? words >> 16 | next << 16 : words;
}

uint staged_byte(uint byte) { return b_tile[byte / 4u] >> (byte % 4u * 8u) & 255u; }

// The same as load_chunk() for q6_k, whose block starts at an even byte of b_tile.
large_chunk read_chunk(uint block)
{
    large_chunk result = large_chunk(staged_bytes(block + QUANT_LOW_AT + 16u * sharer()), staged_bytes(block + high_place()), uvec4(0u));
    uint factor = block + QUANT_FACTOR_AT;
    result.head.x = (b_tile[factor / 4u] >> (factor % 4u * 8u) & 0xffffu) |
                    staged_byte(block + QUANT_SCALES_AT + run_start(0u) / QUANT_SUB) << 16 |
                    staged_byte(block + QUANT_SCALES_AT + run_start(1u) / QUANT_SUB) << 24;
    return result;
}

// The scale of a run, and what is added to each element.
vec2 chunk_scale(uvec4 head, uint part)
{
    if (QUANT_SCALES == TSR_QUANT_S8) {
        float scale = tsr_f32_from_f16(head.x & 0xffffu) * float(int(head.x << (8u - 8u * part)) >> 24);
        return vec2(scale, -float(QUANT_BIAS) * scale);
    }
    return quant_group_scale(quant_head_groups(head, run_start(0u) / QUANT_SUB), part); // TSR_QUANT_6_6
}

// Adds the products of a chunk with the rows of a.
void add_chunk(uint j, large_chunk chunk, row_block rows[ROWS])
{
    [[unroll]] for (uint part = 0u; part < 2u; part++) {
        uvec4 bytes = chunk.low >> (4u * part) & 0x0f0f0f0fu;
        if (QUANT_HIGH != 0u) {
            uint span = QUANT_HIGH_RUN * 8u / max(QUANT_HIGH_BITS, 1u);
            uint shift = run_start(part) % span / max(QUANT_HIGH_RUN, 1u) * QUANT_HIGH_BITS;
            bytes |= (chunk.high >> shift & 0x01010101u * ((1u << QUANT_HIGH_BITS) - 1u)) << 4;
        }
        vec2 scale = chunk_scale(chunk.head, part);
        float dot[ROWS];
        [[unroll]] for (uint i = 0u; i < ROWS; i++)
            dot[i] = 0.0;
        [[unroll]] for (uint n = 0u; n < 4u; n++) {
            vec4 level = vec4(quant_bytes(bytes[n]));
            [[unroll]] for (uint i = 0u; i < ROWS; i++) {
                vec4 four = a_tile[rows[i].at + part * 4u + n];
                [[unroll]] for (uint c = 0u; c < 4u; c++)
                    dot[i] = fma(four[c], level[c], dot[i]);
            }
        }
        [[unroll]] for (uint i = 0u; i < ROWS; i++)
            sums[i * COLS + j] = fma(scale.x, dot[i], fma(scale.y, rows[i].sum[part], sums[i * COLS + j]));
    }
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

// The number of bytes from the last multiple of 16 bytes to the first byte of column j.
uint skipped(uint col0, uint j)
{
    return STAGED == 2u ? column_at(col0, j).x & 15u : 0u;
}

// Loads piece number `piece` of column j. Pieces past the end of a row repeat its last one.
uvec4 load_piece(uint col0, uint j, uint piece)
{
    uvec2 column = column_at(col0, j);
    uint row_bytes = p.k / QUANT_COUNT * QUANT_BYTES, last = (skipped(col0, j) + row_bytes - 1u) / 16u;
    column.x &= ~15u;
    return tsr_words4(column).v[min(piece, last)];
}

// Loads the pieces of 32 · THREADS elements of each column, from element 32 · tile on.
void load_pieces(uint col0, uint tile)
{
    uint first = tile / SHARERS * QUANT_BYTES / 16u;
    [[unroll]] for (uint j = 0u; j < COLS; j++)
        [[unroll]] for (uint i = 0u; i < WHOLE; i++)
            pieces[j * WHOLE + i] = load_piece(col0, j, first + i * THREADS + gl_LocalInvocationIndex);
    [[unroll]] for (uint i = 0u; i < RESTS; i++) {
        uvec2 place = rest_place(i);
        pieces[COLS * WHOLE + i] = load_piece(col0, place.x, first + place.y);
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
    uint lane = gl_LocalInvocationIndex, col0 = group * OWN, chunks = p.k / 32u;
    [[unroll]] for (uint e = 0u; e < SUMS; e++)
        sums[e] = 0.0;

    for (uint tile = 0u; tile < chunks; tile += THREADS) {
        uint block = min(tile + lane, chunks - 1u) / SHARERS;
#ifndef INT8
        large_chunk large[COLS];
#endif
        uint loaded[COLS][LOADS];
        bool odd[COLS];
        if (STAGED != 0u)
            load_pieces(col0, tile);
#ifndef INT8
        else if (LARGE)
            [[unroll]] for (uint j = 0u; j < COLS; j++)
                large[j] = load_chunk(tsr_at_mul(column_at(col0, j), block, QUANT_BYTES));
#endif
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
            uint k = tile * 32u + 4u * quad;
            vec4 four = load_a(e / QUADS, min(k, p.k - 4u));
            if (NORM != 0u) {
                if (k < p.k)
                    sums[ROWS * COLS + e / QUADS] = mm_add_squares(sums[ROWS * COLS + e / QUADS], four);
                four *= mm_norm_weight4(min(k, p.k - 4u) / 4u, NORM);
            }
            a_tile[e / QUADS * THREADS * PITCH + place_of(quad)] = four;
        }
        if (STAGED != 0u)
            keep_pieces();
        barrier();
        if (tile + lane < chunks) {
            row_block rows[ROWS];
            [[unroll]] for (uint i = 0u; i < ROWS; i++)
                rows[i] = read_row(i);
            [[unroll]] for (uint j = 0u; j < COLS; j++) {
#ifndef INT8
                if (LARGE) {
                    if (STAGED != 0u)
                        large[j] = read_chunk(j * PIECES * 16u + skipped(col0, j) + lane / SHARERS * QUANT_BYTES);
                    add_chunk(j, large[j], rows);
                    continue;
                }
#endif
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
