// Loads of q8_0 and q4_0 on lavapipe: a vector has one word of numbers per lane. The including file
// declares the constants LANES (8 or 16) and FORMAT.
#ifndef TSR_QUANT_WORDS_GLSL
#define TSR_QUANT_WORDS_GLSL

const bool NIBBLES = FORMAT == TSR_QUANT_ROWS_Q4_0;
const uint BLOCK_BYTES = NIBBLES ? 18 : 34;
const uint BLOCK_LANES = NIBBLES ? 4 : 8;       // lanes for the words of a block
const uint BLOCKS = LANES / BLOCK_LANES;        // of a vector
const uint VECTOR_BYTES = BLOCKS * BLOCK_BYTES; // of b
const uint VECTOR = BLOCKS * 32;                // elements of k

// The offsets in a vector of b of the words of lanes 0, 4, 8 and 12.
const uint AT4 = NIBBLES ? 20 : 18;
const uint AT8 = NIBBLES ? 38 : 36;
const uint AT12 = NIBBLES ? 56 : 52;

uint load_words(uint64_t line)
{
    uint64_t at0 = 2, at4 = AT4, at8 = AT8, at12 = AT12;
    TAKE_LANES(float, vec4, Float4, LANES)
    return floatBitsToUint(value);
}

// Each lane gets the scale of its block.
float load_scales(uint64_t line)
{
    uint bits = Word16(line).v;
    [[unroll]] for (uint e = 1; e < BLOCKS; e++)
        bits = mix(bits, uint(Word16(line + e * BLOCK_BYTES).v), gl_SubgroupInvocationID >= e * BLOCK_LANES);
    return unpackHalf2x16(bits).x;
}

#endif
