// Reads blocks of quantised elements. The format is in specialization constants (params/quant.h),
// so the driver removes all code that other formats need. src/quant/ does the same on the host, and
// the results have the same bits. src/quant/block_format.h explains planes, runs and levels.
//
// The unit in which shaders read is four neighbouring bytes of the low plane, which has the low
// bits of a block's levels. A unit contains 4 · QUANT_PARTS elements: four neighbours in each of
// QUANT_PARTS runs.
#ifndef TSR_QUANT_GLSL
#define TSR_QUANT_GLSL

#include "include/tessera.glsl"
#include "include/quant_code_books.h"
#include "params/quant.h"

layout(constant_id = 0) const uint QUANT_LOW = 0x00100402u; // q4_0
layout(constant_id = 1) const uint QUANT_HIGH = 0u;
layout(constant_id = 2) const uint QUANT_BLOCK = 0x00120020u;
layout(constant_id = 3) const uint QUANT_GROUP = 0x00000820u;
layout(constant_id = 4) const uint QUANT_OFFSETS = 0u;

const uint QUANT_LOW_AT = QUANT_LOW & 255u;
const uint QUANT_LOW_BITS = (QUANT_LOW >> 8) & 255u;
const uint QUANT_LOW_RUN = QUANT_LOW >> 16;
const uint QUANT_HIGH_AT = QUANT_HIGH & 255u;
const uint QUANT_HIGH_BITS = (QUANT_HIGH >> 8) & 255u;
const uint QUANT_HIGH_RUN = QUANT_HIGH >> 16;
const uint QUANT_COUNT = QUANT_BLOCK & 0xffffu; // elements of a block
const uint QUANT_BYTES = QUANT_BLOCK >> 16;
const uint QUANT_SUB = QUANT_GROUP & 255u;
const uint QUANT_BIAS = (QUANT_GROUP >> 8) & 255u;
const uint QUANT_CODE = (QUANT_GROUP >> 16) & 255u;
const uint QUANT_SCALES = QUANT_GROUP >> 24;
const uint QUANT_FACTOR_AT = QUANT_OFFSETS & 255u;
const uint QUANT_MIN_AT = (QUANT_OFFSETS >> 8) & 255u;
const uint QUANT_SCALES_AT = QUANT_OFFSETS >> 16;

// Levels are signed bytes without planes: vectors of a code book, or digits to base 3.
const bool QUANT_VECTORS = QUANT_CODE >= TSR_QUANT_IQ2_XXS;

const bool QUANT_HAS_MIN = QUANT_SCALES == TSR_QUANT_F16_MIN || QUANT_SCALES == TSR_QUANT_4_4 || QUANT_SCALES == TSR_QUANT_6_6;

const uint QUANT_PARTS = 8u / QUANT_LOW_BITS;
const uint QUANT_UNITS = QUANT_COUNT / (4u * QUANT_PARTS); // units in a block

// Blocks are at addresses in buffers, unless a shader defines the constant QUANT_STAGED and it is not 0. The shader then copies tiles of
// QUANT_TILE_BLOCKS blocks of each of QUANT_STAGED_COLUMNS columns to quant_tile, in pieces of 16 bytes. The first component of a block's
// address is its place in quant_tile, in bytes, and the second one is 0. Pieces start at multiples of 16 bytes in the buffer, the first of
// them up to 15 bytes before the tile.
#ifdef QUANT_STAGED
const bool QUANT_IN_SHARED = QUANT_STAGED != 0u;
const uint QUANT_TILE_BLOCKS = QUANT_COUNT == 256u ? 8u : 32u;
const uint QUANT_TILE_PIECES = QUANT_TILE_BLOCKS * QUANT_BYTES / 16u + 1u;
shared uint quant_tile[QUANT_STAGED != 0u ? QUANT_STAGED_COLUMNS * QUANT_TILE_PIECES * 4u : 1u];
uint quant_shared_word(uint i) { return quant_tile[i]; }
#else
const bool QUANT_IN_SHARED = false;
uint quant_shared_word(uint i) { return 0u; }
#endif

uint quant_u8(uvec2 block, uint byte)
{
    if (!QUANT_IN_SHARED)
        return tsr_load_u8(block, byte);
    uint at = block.x + byte;
    return quant_shared_word(at / 4u) >> (at % 4u * 8u) & 0xffu;
}

// The 16-bit element i of a block that starts at an even address.
uint quant_u16(uvec2 block, uint i)
{
    if (!QUANT_IN_SHARED)
        return tsr_load_u16(block, i);
    uint at = block.x + 2u * i;
    return quant_shared_word(at / 4u) >> (at % 4u * 8u) & 0xffffu;
}

// Loads four bytes of a block. Blocks start at multiples of the largest power of two that divides
// QUANT_BYTES. `even` and `whole` say, as constants, that all addresses are multiples of 2 or of 4.
uint quant_load4(uvec2 block, uint byte, bool even, bool whole)
{
    if (QUANT_IN_SHARED) {
        uint at = block.x + byte, word = quant_shared_word(at / 4u), shift = at % 4u * 8u;
        return whole || shift == 0u ? word : word >> shift | quant_shared_word(at / 4u + 1u) << (32u - shift);
    }
    if (whole)
        return tsr_words(tsr_at(block, byte)).v[0];
    if (even)
        return tsr_load_u16(block, byte / 2u) | tsr_load_u16(block, byte / 2u + 1u) << 16;
    return tsr_load_u8(block, byte) | tsr_load_u8(block, byte + 1u) << 8 | tsr_load_u8(block, byte + 2u) << 16 |
           tsr_load_u8(block, byte + 3u) << 24;
}

// The first 16 bytes of a block that starts at a multiple of 16 bytes. Those of TSR_QUANT_6_6 do, and have all their scales there.
uvec4 quant_head(uvec2 block)
{
    if (!QUANT_IN_SHARED)
        return tsr_words4(block).v[0];
    uint at = block.x / 4u;
    return uvec4(quant_shared_word(at), quant_shared_word(at + 1u), quant_shared_word(at + 2u), quant_shared_word(at + 3u));
}

uvec4 quant_bytes(uint word)
{
    return (uvec4(word) >> uvec4(0u, 8u, 16u, 24u)) & 255u;
}

const uint quant_iq2_xxs[128] = uint[](TSR_QUANT_BOOK_IQ2_XXS), quant_iq2_xs[256] = uint[](TSR_QUANT_BOOK_IQ2_XS),
           quant_iq2_s[512] = uint[](TSR_QUANT_BOOK_IQ2_S), quant_iq3_xxs[128] = uint[](TSR_QUANT_BOOK_IQ3_XXS),
           quant_iq3_s[256] = uint[](TSR_QUANT_BOOK_IQ3_S);

// Two entries of the format's code book.
uint quant_book_word(uint number)
{
    if (QUANT_CODE == TSR_QUANT_IQ2_XXS)
        return quant_iq2_xxs[number];
    if (QUANT_CODE == TSR_QUANT_IQ2_XS)
        return quant_iq2_xs[number];
    if (QUANT_CODE == TSR_QUANT_IQ2_S)
        return quant_iq2_s[number];
    if (QUANT_CODE == TSR_QUANT_IQ3_XXS)
        return quant_iq3_xxs[number];
    return quant_iq3_s[number];
}

// The levels of elements 4 · unit … 4 · unit + 3, as signed bytes. src/quant/code_books.c says how
// the formats store them. Their blocks start at multiples of 2.
uint quant_book_levels(uvec2 block, uint unit)
{
    uint octet = unit / 2u, entry, signs;
    if (QUANT_CODE == TSR_QUANT_IQ2_XXS) {
        uint at = 2u + octet / 4u * 8u;
        entry = quant_u8(block, at + octet % 4u);
        signs = quant_load4(block, at + 4u, true, false) >> (octet % 4u * 7u) & 127u;
    } else if (QUANT_CODE == TSR_QUANT_IQ2_XS) {
        uint both = quant_u16(block, 1u + octet);
        entry = (both & 511u);
        signs = both >> 9;
    } else if (QUANT_CODE == TSR_QUANT_IQ2_S) {
        uint high = quant_u8(block, 66u + octet / 4u) >> (octet % 4u * 2u) & 3u;
        entry = (quant_u8(block, 2u + octet) | high << 8);
        signs = quant_u8(block, 34u + octet);
    } else if (QUANT_CODE == TSR_QUANT_IQ3_XXS) {
        entry = quant_u8(block, 2u + unit);
        signs = quant_load4(block, 66u + octet / 4u * 4u, true, false) >> (octet % 4u * 7u) & 127u;
    } else {
        uint high = quant_u8(block, 66u + unit / 8u) >> (unit % 8u) & 1u;
        entry = (quant_u8(block, 2u + unit) | high << 8);
        signs = quant_u8(block, 74u + octet);
    }
    if (QUANT_CODE != TSR_QUANT_IQ2_S && QUANT_CODE != TSR_QUANT_IQ3_S) // the number of signs is even
        signs |= uint(bitCount(signs) & 1) << 7;

    uint vector = quant_book_word(entry / 2u) >> (entry % 2u * 16u) & 0xffffu;
    uvec4 number, magnitude;
    if (QUANT_CODE == TSR_QUANT_IQ3_XXS || QUANT_CODE == TSR_QUANT_IQ3_S) {
        number = uvec4(vector) >> uvec4(0u, 3u, 6u, 9u) & 7u;
        magnitude = QUANT_CODE == TSR_QUANT_IQ3_S ? 2u * number + 1u
                                                  : 8u * number + 4u + 2u * uvec4(equal(number, uvec4(7u)));
    } else {
        number = uvec4(vector >> (unit % 2u * 8u)) >> uvec4(0u, 2u, 4u, 6u) & 3u;
        magnitude = 17u * number + 8u + uvec4(equal(number, uvec4(2u)));
    }
    uvec4 negative = uvec4(signs >> (unit % 2u * 4u)) >> uvec4(0u, 1u, 2u, 3u) & 1u;
    uvec4 bytes = ((magnitude ^ (0u - negative)) + negative) & 255u; // two's complement
    return bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
}

// The same for digits to base 3. Five digits of a byte are of elements 32, 16 or 4 apart.
uint quant_digit_levels(uvec2 block, uint unit)
{
    uint e = 4u * unit, apart = e < 160u ? 32u : e < 240u ? 16u : 4u;
    uint from = e < 160u ? 0u : e < 240u ? 160u : 240u, first = e < 160u ? 0u : e < 240u ? 32u : 48u;
    uint digit = (e - from) / apart, power = digit == 0u ? 1u : digit == 1u ? 3u : digit == 2u ? 9u : digit == 3u ? 27u : 81u;
    uvec4 bytes = quant_bytes(quant_load4(block, first + (e - from) % apart, true, false));
    uvec4 level = (((bytes * power & 255u) * 3u >> 8) - 1u) & 255u;
    return level.x | level.y << 8 | level.z << 16 | level.w << 24;
}

uint quant_low(uvec2 block, uint unit)
{
    if (QUANT_CODE == TSR_QUANT_TERNARY)
        return quant_digit_levels(block, unit);
    if (QUANT_VECTORS)
        return quant_book_levels(block, unit);
    return quant_load4(block, QUANT_LOW_AT + 4u * unit, (QUANT_LOW_AT | QUANT_BYTES) % 2u == 0u,
                       (QUANT_LOW_AT | QUANT_BYTES) % 4u == 0u);
}

// The index, in its block, of the first of the four elements of a unit that are in run `part` of
// the unit.
uint quant_element(uint unit, uint part)
{
    uint group = 4u * unit / QUANT_LOW_RUN, lane = 4u * unit % QUANT_LOW_RUN;
    return (group * QUANT_PARTS + part) * QUANT_LOW_RUN + lane;
}

// The high bits of the levels of elements e … e + 3, in the lowest bits of four bytes.
uint quant_high(uvec2 block, uint e)
{
    if (QUANT_HIGH_RUN == 1u) // a byte has the bits of eight elements; the product has four of them in the lowest bits of its bytes
        return (quant_u8(block, QUANT_HIGH_AT + e / 8u) >> e % 8u & 15u) * 0x00204081u & 0x01010101u;
    uint span = QUANT_HIGH_RUN * 8u / QUANT_HIGH_BITS; // elements whose bits are in the same run of bytes
    uint word = quant_load4(block, QUANT_HIGH_AT + e / span * QUANT_HIGH_RUN + e % QUANT_HIGH_RUN,
                            (QUANT_HIGH_AT | QUANT_BYTES) % 2u == 0u, (QUANT_HIGH_AT | QUANT_BYTES) % 4u == 0u);
    return word >> (e % span / QUANT_HIGH_RUN * QUANT_HIGH_BITS) & 0x01010101u * ((1u << QUANT_HIGH_BITS) - 1u);
}

const int quant_nl[16] = int[](-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);

// Twice the values of floats with a sign, two bits of exponent and one of mantissa. There are no
// branches: SwiftShader took gigabytes to compile those of a few dozen elements.
vec4 quant_e2m1(uvec4 code)
{
    uvec4 exponent = (code >> 1) & 3u, leading = min(exponent, uvec4(1u)) << 1;
    uvec4 twice = (leading | (code & 1u)) << (max(exponent, uvec4(1u)) - 1u);
    return uintBitsToFloat(floatBitsToUint(vec4(twice)) | (code & 8u) << 28);
}

// What is subtracted from the levels that quant_shifted_levels() returns; levels from tables and signed bytes have no bias.
const uint QUANT_SHIFT = QUANT_CODE == TSR_QUANT_LINEAR ? QUANT_BIAS : 0u;

// Returns the levels of the four elements of a unit that are in run `part`, plus QUANT_SHIFT. `low` is the unit's word.
vec4 quant_shifted_levels(uvec2 block, uint unit, uint low, uint part)
{
    if (QUANT_CODE == TSR_QUANT_SIGNED || QUANT_VECTORS)
        return vec4(ivec4(int(low)) << ivec4(24, 16, 8, 0) >> 24);
    uint bytes = low >> (part * QUANT_LOW_BITS) & 0x01010101u * ((1u << QUANT_LOW_BITS) - 1u);
    if (QUANT_HIGH != 0u)
        bytes |= quant_high(block, quant_element(unit, part)) << QUANT_LOW_BITS;
    uvec4 level = quant_bytes(bytes);
    if (QUANT_CODE == TSR_QUANT_NL)
        return vec4(quant_nl[level.x], quant_nl[level.y], quant_nl[level.z], quant_nl[level.w]);
    if (QUANT_CODE == TSR_QUANT_E2M1)
        return quant_e2m1(level);
    return vec4(level);
}

// Returns the same levels. A level is the number that is multiplied by the scale, before the minimum is added.
vec4 quant_levels(uvec2 block, uint unit, uint low, uint part)
{
    vec4 shifted = quant_shifted_levels(block, unit, low, part);
    return QUANT_CODE == TSR_QUANT_LINEAR ? shifted - float(QUANT_BIAS) : shifted;
}

float quant_f16(uvec2 block, uint byte)
{
    if (QUANT_BYTES % 2u == 0u)
        return tsr_f32_from_f16(quant_u16(block, byte / 2u));
    return tsr_f32_from_f16(quant_u8(block, byte) | quant_u8(block, byte + 1u) << 8);
}

// For TSR_QUANT_6_6: the two factors of a block, which are in f16, and the numbers by which they are multiplied for the scales and for the
// minima of neighbouring groups, from number `group` on: one byte for each, up to the next multiple of four groups. `head` has the
// block's first 16 bytes.
uvec3 quant_head_groups(uvec4 head, uint group)
{
    // The lower four bits of a number, and the upper two. Numbers of the first four groups are together in a byte.
    bool first = group < 4u;
    uint shift = group % 4u * 8u, high_shift = first ? shift : shift + 2u;
    uvec2 low = uvec2(first ? head.yz : head.ww) >> uvec2(shift, first ? shift : shift + 4u) & 0x0f0f0f0fu;
    return uvec3(head.x, low | head.yz >> high_shift & 0x30303030u);
}

// Returns the scale and the minimum of the elements of group i after the first one of `groups`.
vec2 quant_group_scale(uvec3 groups, uint i)
{
    vec2 factors = tsr_f32_from_f16_pair(groups.x);
    uvec2 number = groups.yz >> 8u * i & 255u;
    return vec2(factors.x * float(number.x), -(factors.y * float(number.y)));
}

// Returns the scale and the minimum of the elements of a group.
vec2 quant_scale(uvec2 block, uint group)
{
    if (QUANT_SCALES == TSR_QUANT_6_6)
        return quant_group_scale(quant_head_groups(quant_head(block), group), 0u);
    const uint at = QUANT_SCALES_AT;
    if (QUANT_SCALES == TSR_QUANT_E8M0) {
        uint exponent = quant_u8(block, at);
        return vec2(uintBitsToFloat(exponent < 2u ? 0x200000u << exponent : (exponent - 1u) << 23), 0.0);
    }
    if (QUANT_SCALES == TSR_QUANT_UE4M3) {
        uint code = quant_u8(block, at + group), exponent = (code >> 3) & 15u, mantissa = code & 7u;
        // The value of the mantissa's last bit: 2^-10 for subnormal numbers, and 2^(exponent - 11)
        // for others.
        float unit = uintBitsToFloat((max(exponent, 1u) + 116u) << 23);
        return vec2((code & 127u) == 127u ? 0.0 : unit * float(exponent == 0u ? mantissa : 8u + mantissa), 0.0);
    }

    float factor = quant_f16(block, QUANT_FACTOR_AT);
    if (QUANT_SCALES == TSR_QUANT_F16)
        return vec2(factor, 0.0);
    if (QUANT_SCALES == TSR_QUANT_F16_MIN)
        return vec2(factor, quant_f16(block, QUANT_MIN_AT));
    if (QUANT_SCALES == TSR_QUANT_S8)
        return vec2(factor * float(int(quant_u8(block, at + group) << 24) >> 24), 0.0);
    if (QUANT_SCALES == TSR_QUANT_S6) {
        uint low = (quant_u8(block, at + group % 8u) >> (group / 8u * 4u)) & 15u;
        uint high = (quant_u8(block, at + 8u + group % 4u) >> (group / 4u * 2u)) & 3u;
        return vec2(factor * float(int(low | high << 4) - 32), 0.0);
    }
    if (QUANT_SCALES == TSR_QUANT_S6_SPLIT) {
        uint low = (quant_u8(block, at + 2u + group / 2u) >> (group % 2u * 4u)) & 15u;
        uint high = (quant_u16(block, at / 2u) >> (2u * group)) & 3u;
        return vec2(factor * float(int(low | high << 4) - 32), 0.0);
    }
    if (QUANT_SCALES == TSR_QUANT_ODD || QUANT_SCALES == TSR_QUANT_ODD_HIGH) {
        uint bits = QUANT_SCALES == TSR_QUANT_ODD
                        ? quant_u8(block, at + group / 2u) >> (group % 2u * 4u) & 15u
                        : quant_u8(block, at + group * (QUANT_CODE == TSR_QUANT_IQ2_XXS ? 8u : 4u)) >> 4;
        float unit = QUANT_CODE == TSR_QUANT_IQ3_S ? 1.0 : QUANT_CODE == TSR_QUANT_IQ3_XXS ? 0.25 : 0.125;
        return vec2(factor * (float(2u * bits + 1u) * unit), 0.0);
    }
    uint both = quant_u8(block, at + group); // TSR_QUANT_4_4
    return vec2(factor * float(both & 15u), -(quant_f16(block, QUANT_MIN_AT) * float(both >> 4)));
}

// Returns the values of the four elements of a unit that are in run `part`. `low` is the unit's word.
vec4 quant_values(uvec2 block, uint unit, uint low, uint part)
{
    vec2 scale = quant_scale(block, quant_element(unit, part) / QUANT_SUB);
    precise vec4 product = scale.x * quant_levels(block, unit, low, part);
    precise vec4 sum = product + scale.y;
    // Adding a minimum of 0 would change the sign of a product of -0.
    return QUANT_HAS_MIN ? sum : product;
}

#endif
