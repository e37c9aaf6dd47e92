// Rows of keys and values in blocks of quantised elements, q8_0 or q4_0, as src/quant stores them: a block is the f16 scale of 32
// neighbouring elements, and then their levels. A level of q8_0 is a signed byte. In q4_0, byte n has the levels of elements n and n + 16,
// each 8 more than the number that the scale multiplies. Blocks start at multiples of 2 bytes.
#ifndef TSR_CACHED_BLOCKS_GLSL
#define TSR_CACHED_BLOCKS_GLSL

#include "include/divide.glsl"
#include "include/rounded.glsl"
#include "include/tessera.glsl"

const uint TSR_BLOCK = 32u;         // elements of a block
const uint TSR_BLOCK_QUADS = 8u;    // groups of four elements
const uint TSR_MOST_BLOCK_HALVES = 17u; // pairs of bytes of a block

bool tsr_is_block(uint dtype)
{
    return dtype == TSR_DT_Q8_0 || dtype == TSR_DT_Q4_0;
}

uint tsr_block_halves(uint dtype)
{
    return dtype == TSR_DT_Q8_0 ? 17u : 9u;
}

// The bytes of `elements` elements of a row, which must be whole blocks if the dtype has blocks.
uint tsr_row_bytes(uint elements, uint dtype)
{
    return tsr_is_block(dtype) ? elements / TSR_BLOCK * 2u * tsr_block_halves(dtype) : elements * (dtype == TSR_DT_F32 ? 4u : 2u);
}

// The levels of elements element … element + 3 of a block, which are in pairs of bytes, as the numbers that its scale multiplies.
vec4 tsr_levels_of(uvec4 pairs, uint element, uint dtype)
{
    uvec4 bytes = pairs >> uvec4(0u, 8u, 0u, 8u);
    return dtype == TSR_DT_Q8_0 ? vec4(ivec4(bytes << 24) >> 24) : vec4(ivec4(bytes >> (element / 16u * 4u) & 15u) - 8);
}

// Loads columns column … column + 3 of a row; `column` is a multiple of 4. The products are exact in f32.
vec4 tsr_load_block4(uvec2 row, uint column, uint dtype)
{
    uint first = column / TSR_BLOCK * tsr_block_halves(dtype), element = column % TSR_BLOCK;
    uint at = first + 1u + (dtype == TSR_DT_Q8_0 ? element : element % 16u) / 2u;
    uint front = tsr_load_u16(row, at), back = tsr_load_u16(row, at + 1u);
    return tsr_f32_from_f16(tsr_load_u16(row, first)) * tsr_levels_of(uvec4(front, front, back, back), element, dtype);
}

// Rounds the absolute values to the nearest integers, and halves up, as C's roundf. It adds no floats, because a compiler could fuse such
// a sum with the product that gives the value. The values must be less than 2^22.
uvec4 tsr_rounded_up(vec4 magnitude)
{
    return (uvec4(magnitude * 2.0) + 1u) >> 1;
}

// Packs 32 values to the block that src/quant makes of them, as pairs of bytes, with two exceptions: if the scale is subnormal in f32, so
// that it is 0 in f16, all levels stand for 0; and if a value is NaN or infinite, or the scale does not fit f16, the scale is NaN or infinite.
// `zero` must be 0, but not known to the compiler (rounded.glsl).
void tsr_pack_block(vec4 values[TSR_BLOCK_QUADS], uint dtype, uint zero, out uint halves[TSR_MOST_BLOCK_HALVES])
{
    // The first of the values with the largest magnitude. Magnitudes are compared as integers, because comparisons of floats may presume
    // that there is no NaN.
    uint most = 0u, sign = 0u;
    [[unroll]] for (uint i = 0u; i < TSR_BLOCK_QUADS; i++)
        [[unroll]] for (uint c = 0u; c < 4u; c++) {
            uint bits = floatBitsToUint(values[i][c]), magnitude = bits & 0x7fffffffu;
            sign = magnitude > most ? bits & 0x80000000u : sign;
            most = max(most, magnitude);
        }
    bool finite = most < 0x7f800000u;
    // 2^-126 is the smallest number that is not subnormal.
    uint scale = dtype == TSR_DT_Q8_0 ? tsr_divide(most, floatBitsToUint(127.0)) : most < 4u << 23 ? 0u : most - (3u << 23);
    bool counts = finite && scale >= 1u << 23;
    float inverse = counts ? uintBitsToFloat(tsr_divide(floatBitsToUint(1.0), scale)) : 0.0;
    if (dtype == TSR_DT_Q4_0) { // the value with the largest magnitude gets the level −8
        sign ^= 0x80000000u;
        scale |= sign;
        inverse = uintBitsToFloat(floatBitsToUint(inverse) | sign);
    }
    halves[0] = finite ? tsr_f16_from_f32(uintBitsToFloat(scale)) : 0x7e00u;

    uvec4 levels[TSR_BLOCK_QUADS];
    [[unroll]] for (uint i = 0u; i < TSR_BLOCK_QUADS; i++) {
        vec4 product = (counts ? values[i] : vec4(0.0)) * inverse;
        if (dtype == TSR_DT_Q8_0) {
            uvec4 magnitude = tsr_rounded_up(abs(product));
            levels[i] = mix(magnitude, 0u - magnitude, lessThan(product, vec4(0.0))) & 255u;
        } else {
            [[unroll]] for (uint c = 0u; c < 4u; c++)
                levels[i][c] = min(uint(tsr_rounded(product[c], zero) + 8.5), 15u);
        }
    }
    [[unroll]] for (uint i = 0u; i < TSR_BLOCK_QUADS; i++) {
        if (dtype == TSR_DT_Q8_0) {
            halves[1u + 2u * i] = levels[i].x | levels[i].y << 8;
            halves[2u + 2u * i] = levels[i].z | levels[i].w << 8;
        } else if (i < TSR_BLOCK_QUADS / 2u) {
            uvec4 bytes = levels[i] | levels[i + TSR_BLOCK_QUADS / 2u] << 4;
            halves[1u + 2u * i] = bytes.x | bytes.y << 8;
            halves[2u + 2u * i] = bytes.z | bytes.w << 8;
        }
    }
}

// Elements 4 · quad … 4 · quad + 3 of a packed block.
vec4 tsr_packed4(uint halves[TSR_MOST_BLOCK_HALVES], uint quad, uint dtype)
{
    uint at = 1u + 2u * (dtype == TSR_DT_Q8_0 ? quad : quad % (TSR_BLOCK_QUADS / 2u));
    uvec4 bytes = uvec4(halves[at], halves[at], halves[at + 1u], halves[at + 1u]);
    return tsr_f32_from_f16(halves[0]) * tsr_levels_of(bytes, 4u * quad, dtype);
}

// Stores a packed block as block number `block` of a row. Words that two blocks share are stored by halves.
void tsr_store_block(uvec2 row, uint block, uint dtype, uint halves[TSR_MOST_BLOCK_HALVES])
{
    uint count = tsr_block_halves(dtype);
    uvec2 at = tsr_at(row, block * 2u * count);
    bool odd = (at.x & 2u) != 0u;
    tsr_store_u16(at, odd ? 0u : count - 1u, odd ? halves[0] : dtype == TSR_DT_Q8_0 ? halves[16] : halves[8]);
    tsr_words words = tsr_words(tsr_at(at, odd ? 2u : 0u));
    [[unroll]] for (uint i = 0u; i < TSR_BLOCK_QUADS; i++)
        if (i < count / 2u)
            words.v[i] = odd ? halves[2u * i + 1u] | halves[2u * i + 2u] << 16 : halves[2u * i] | halves[2u * i + 1u] << 16;
}

#endif
