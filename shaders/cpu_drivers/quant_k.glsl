// Reads blocks of q4_k, q5_k and q6_k on lavapipe with eight lanes. A block has 256 elements in eight
// groups of 32, of which each lane gets four neighbours. An element is scale · number, minus a
// minimum in q4_k and q5_k. The including file declares the constant FORMAT.
#ifndef TSR_QUANT_K_GLSL
#define TSR_QUANT_K_GLSL

const bool Q4 = FORMAT == TSR_QUANT_ROWS_Q4_K;
const bool Q5 = FORMAT == TSR_QUANT_ROWS_Q5_K;
const bool Q6 = FORMAT == TSR_QUANT_ROWS_Q6_K;
const uint BLOCK_BYTES = Q4 ? 144 : Q5 ? 176 : 210;
const uint LOW_AT = Q4 ? 16 : Q5 ? 48 : 0; // four bits of each number, two groups to 32 bytes
const uint HIGH_AT = Q5 ? 16 : 128;        // the other bits
const uint GROUPS = 8;

// Each lane gets one of eight words.
uint load_words(uint64_t line)
{
    const uint64_t at0 = 0, at4 = 16, at8 = 0, at12 = 0;
    TAKE_LANES(float, vec4, Float4, 8)
    return floatBitsToUint(value);
}

// Group g has the lower or upper halves of bytes of word LOW_OF(g), and bits of word HIGH_OF(g) that
// HIGH_TO(g) moves to bits 4 and up of each byte.
#define LOW_OF(g) (Q6 ? (g) / 4 * 2 + (g) % 2 : (g) / 2)
#define UPPER(g) (Q6 ? (g) % 4 > 1 : (g) % 2 > 0)
#define HIGH_OF(g) (Q6 ? (g) / 4 : 0)
#define HIGH_TO(g) (Q6 ? 4 - int((g) % 4) * 2 : 4 - int(g))
#define MOVED(word, by) ((by) < 0 ? (word) >> -(by) : (word) << (by))

// The numbers of a group, each multiplied by the power of two that its place in a word has: masking
// takes one operation. K_FACTORS(g) takes the powers out again.
vec4 numbers_of(uint bytes, uint mask)
{
    return vec4(float(int(bytes & mask)), float(int(bytes & mask << 8)), float(int(bytes & mask << 16)), float(int(bytes & mask << 24)));
}

vec4 numbers_of_upper(uint bytes)
{
    return vec4(float(int(bytes & 0xf0u)), float(int(bytes & 0xf000u)), float(int(bytes & 0xf00000u)), float(int(bytes >> 28)));
}

#define COMBINED(low, high, g)                                                                     \
    (((UPPER(g) ? (low) >> 4 : (low)) & 0x0f0f0f0fu) | (MOVED(high, HIGH_TO(g)) & (Q6 ? 0x30303030u : 0x10101010u)))
#define NUMBERS(low, high, g)                                                                      \
    (Q4 ? (UPPER(g) ? numbers_of_upper(low) : numbers_of(low, 0xfu)) : numbers_of(COMBINED(low, high, g), Q5 ? 0x1fu : 0x3fu))
#define K_FACTORS(g)                                                                               \
    (Q4 && UPPER(g) ? vec4(0.0625, 0.000244140625, 9.5367431640625e-7, 1.0)                        \
                    : vec4(1.0, 0.00390625, 1.52587890625e-5, 5.9604644775390625e-8))

// q4_k, q5_k: lane g gets the scale and the minimum of group g.
vec2 load_scales(uint64_t block)
{
    uvec4 header = floatBitsToUint(Float4(block).v);
    vec2 factors = unpackHalf2x16(header.x);
    bool last = gl_SubgroupInvocationID >= 4;
    uint scales = mix(header.y & 0x3f3f3f3fu, (header.w & 0x0f0f0f0fu) | (header.y >> 2 & 0x30303030u), last);
    uint minimums = mix(header.z & 0x3f3f3f3fu, (header.w >> 4 & 0x0f0f0f0fu) | (header.z >> 2 & 0x30303030u), last);
    uint by = gl_SubgroupInvocationID % 4 * 8;
    return factors * vec2(float(int(scales >> by & 63u)), float(int(minimums >> by & 63u)));
}

// q6_k: two scales of a group, each for the lanes whose elements it scales. `scales` has those of
// groups g and g + 1, with g even.
#define SCALE_OF_LANE(scales, g)                                                                   \
    float(int((scales) >> (gl_SubgroupInvocationID < 4 ? 0 : 8) << ((g) % 2 == 0 ? 24 : 8)) >> 24)

#endif
