// Loads of q8_0, q4_0 and mxfp4 on lavapipe: a vector has one word of numbers per lane. The including
// file declares the constants LANES (8 or 16) and FORMAT.
#ifndef TSR_QUANT_WORDS_GLSL
#define TSR_QUANT_WORDS_GLSL

const bool MXFP4 = FORMAT == TSR_QUANT_ROWS_MXFP4;
const bool NIBBLES = FORMAT == TSR_QUANT_ROWS_Q4_0 || MXFP4;
const uint SCALE_BYTES = MXFP4 ? 1 : 2; // the bytes of the scale in front of the numbers
const uint BLOCK_BYTES = NIBBLES ? 16 + SCALE_BYTES : 34;
const uint BLOCK_LANES = NIBBLES ? 4 : 8; // the number of lanes that have the words of a block
const uint BLOCKS = LANES / BLOCK_LANES;        // blocks in a vector
const uint VECTOR_BYTES = BLOCKS * BLOCK_BYTES; // the bytes of a vector of b
const uint VECTOR = BLOCKS * 32;                // the elements of k in a vector

// The offsets in a vector of b of the words of lanes 0, 4, 8 and 12.
const uint AT4 = NIBBLES ? SCALE_BYTES + BLOCK_BYTES : 18;
const uint AT8 = NIBBLES ? SCALE_BYTES + 2 * BLOCK_BYTES : 36;
const uint AT12 = NIBBLES ? SCALE_BYTES + 3 * BLOCK_BYTES : 52;

uint load_words(uint64_t line)
{
    uint64_t at0 = SCALE_BYTES, at4 = AT4, at8 = AT8, at12 = AT12;
    TAKE_LANES(float, vec4, Float4, LANES)
    return floatBitsToUint(value);
}

// Each lane gets the scale of its block.
float load_scales(uint64_t line)
{
    uint bits = Word16(line).v;
    [[unroll]] for (uint e = 1; e < BLOCKS; e++)
        bits = mix(bits, uint(Word16(line + e * BLOCK_BYTES).v), gl_SubgroupInvocationID >= e * BLOCK_LANES);
    if (MXFP4) {
        // 2^(exponent - 128): half of what the byte stands for, because the numbers are doubled
        uint exponent = bits & 255u;
        return uintBitsToFloat(mix((exponent - 1u) << 23, 0x200000u << exponent, exponent < 2u));
    }
    return unpackHalf2x16(bits).x;
}

// The numbers of mxfp4 in the lower halves of a word's bytes: twice the values of floats with two bits
// of exponent and one of mantissa, here multiplied by MXFP4_UNIT. They are converted as floats of 16
// bits with the same exponent and mantissa.
const float MXFP4_UNIT = 3.0517578125e-5; // 2^-15
vec4 numbers_of_mxfp4(uint nibbles)
{
    uint even = (nibbles & 0x00070007u) << 9 | (nibbles & 0x00080008u) << 12;
    uint odd = (nibbles & 0x07000700u) << 1 | (nibbles & 0x08000800u) << 4;
    vec2 first = unpackHalf2x16(even), second = unpackHalf2x16(odd);
    return vec4(first.x, second.x, first.y, second.y);
}

#endif
