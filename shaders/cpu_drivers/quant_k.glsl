// Reads blocks of q4_k, q5_k and q6_k on lavapipe. A block has 256 elements in eight groups of 32. A
// turn reads one group with eight lanes and two neighbouring groups with sixteen, so that each lane
// gets four neighbouring elements. An element is scale · number, minus a minimum in q4_k and q5_k.
// The including file declares the constants FORMAT and LANES.
#ifndef TSR_QUANT_K_GLSL
#define TSR_QUANT_K_GLSL

const bool Q4 = FORMAT == TSR_QUANT_ROWS_Q4_K;
const bool Q5 = FORMAT == TSR_QUANT_ROWS_Q5_K;
const bool Q6 = FORMAT == TSR_QUANT_ROWS_Q6_K;
const uint BLOCK_BYTES = Q4 ? 144 : Q5 ? 176 : 210;
const uint LOW_AT = Q4 ? 16 : Q5 ? 48 : 0; // where the lower four bits of the numbers are; 32 bytes contain those of two groups
const uint HIGH_AT = Q5 ? 16 : 128;        // where the other bits are
const uint GROUPS = 8;

const bool WIDE = LANES == 16;
const uint TURNS = WIDE ? GROUPS / 2 : GROUPS;
const uint TURN_ELEMENTS = LANES * 4;

// Loads eight words, one for each lane. With sixteen lanes, both halves get the same eight.
uint load_words(uint64_t line)
{
    const uint64_t at0 = 0, at4 = 16, at8 = 0, at12 = 16;
    TAKE_LANES(float, vec4, Float4, LANES)
    return floatBitsToUint(value);
}

// Loads sixteen words, one for each of sixteen lanes.
uint load_all_words(uint64_t line)
{
    const uint64_t at0 = 0, at4 = 16, at8 = 32, at12 = 48;
    TAKE_LANES(float, vec4, Float4, LANES)
    return floatBitsToUint(value);
}

// The words with the lower four bits of a block's numbers, and those with the other bits. In the
// upper eight of sixteen lanes, which read the odd groups, words are shifted so that the bits of
// group g + 1 are where the lower lanes have those of group g.
const uint LOW_WORDS = WIDE && Q6 ? 2 : 4;
const uint HIGH_WORDS = 2;
#define LOAD_LOW(block, w)                                                                         \
    (!WIDE ? load_words((block) + (LOW_AT + (w) * 32))                                             \
     : Q6  ? load_all_words((block) + (LOW_AT + (w) * 64))                                         \
           : load_words((block) + (LOW_AT + (w) * 32)) >> (gl_SubgroupInvocationID < 8 ? 0 : 4))
#define LOAD_HIGH(block, w)                                                                        \
    (Q4 || (Q5 && (w) > 0) ? 0                                                                     \
     : !WIDE               ? load_words((block) + (HIGH_AT + (w) * 32))                            \
                           : load_words((block) + (HIGH_AT + (w) * 32)) >> (gl_SubgroupInvocationID < 8 ? 0 : Q5 ? 1 : 2))

// The first group of turn t.
#define GROUP_OF(t) (WIDE ? 2 * (t) : (t))
// Turn t has the lower or upper halves of bytes of word LOW_OF(t), and bits of word HIGH_OF(t) that
// HIGH_TO(t) moves to bits 4 and up of each byte.
#define LOW_OF(t) (WIDE ? (Q6 ? (t) / 2 : (t)) : Q6 ? (t) / 4 * 2 + (t) % 2 : (t) / 2)
#define UPPER(t) (Q6 ? GROUP_OF(t) % 4 > 1 : !WIDE && (t) % 2 > 0)
#define HIGH_OF(t) (Q6 ? GROUP_OF(t) / 4 : 0)
#define HIGH_TO(t) (Q6 ? 4 - int(GROUP_OF(t) % 4) * 2 : 4 - int(GROUP_OF(t)))
#define MOVED(word, by) ((by) < 0 ? (word) >> -(by) : (word) << (by))

// The numbers of a turn, each multiplied by the power of two that its place in a word has, because masking without shifting takes one
// operation. K_FACTORS(t) takes these powers out again.
vec4 numbers_of(uint bytes, uint mask)
{
    return vec4(float(int(bytes & mask)), float(int(bytes & mask << 8)), float(int(bytes & mask << 16)), float(int(bytes & mask << 24)));
}

vec4 numbers_of_upper(uint bytes)
{
    return vec4(float(int(bytes & 0xf0u)), float(int(bytes & 0xf000u)), float(int(bytes & 0xf00000u)), float(int(bytes >> 28)));
}

#define COMBINED(low, high, t)                                                                     \
    (((UPPER(t) ? (low) >> 4 : (low)) & 0x0f0f0f0fu) | (MOVED(high, HIGH_TO(t)) & (Q6 ? 0x30303030u : 0x10101010u)))
#define NUMBERS(low, high, t)                                                                      \
    (Q4 ? (UPPER(t) ? numbers_of_upper(low) : numbers_of(low, 0xfu)) : numbers_of(COMBINED(low, high, t), Q5 ? 0x1fu : 0x3fu))
#define K_FACTORS(t)                                                                               \
    (Q4 && UPPER(t) ? vec4(0.0625, 0.000244140625, 9.5367431640625e-7, 1.0)                        \
                    : vec4(1.0, 0.00390625, 1.52587890625e-5, 5.9604644775390625e-8))

// q4_k, q5_k: the scale and the minimum of one group in each lane. With eight lanes, lane g gets those of
// group g. With sixteen, lane t gets those of turn t's even group and lane 8 + t those of its odd
// one, which lanes 4 + t and 12 + t have too.
#define GROUP_OF_LANE (WIDE ? (gl_SubgroupInvocationID & 3) * 2 + (gl_SubgroupInvocationID >> 3) : gl_SubgroupInvocationID)
vec2 load_scales(uint64_t block)
{
    uvec4 header = floatBitsToUint(Float4(block).v);
    vec2 factors = unpackHalf2x16(header.x);
    bool last = GROUP_OF_LANE >= 4;
    uint scales = mix(header.y & 0x3f3f3f3fu, (header.w & 0x0f0f0f0fu) | (header.y >> 2 & 0x30303030u), last);
    uint minimums = mix(header.z & 0x3f3f3f3fu, (header.w >> 4 & 0x0f0f0f0fu) | (header.z >> 2 & 0x30303030u), last);
    uint by = GROUP_OF_LANE % 4 * 8;
    return factors * vec2(float(int(scales >> by & 63u)), float(int(minimums >> by & 63u)));
}

// Gives each lane the value for its group of turn t, from the lane where load_scales() has it.
#define OF_TURN(value, t) subgroupShuffle(value, WIDE ? (t) + (gl_SubgroupInvocationID & 8) : (t))

// q6_k: the scale of each lane's elements of turn t. A group has two, and two groups have the four
// bytes of `scales`.
#define SCALES_AT(t) (192 + GROUP_OF(t) / 2 * 4)
#define SCALE_OF_LANE(scales, t)                                                                   \
    float(int((scales) << (WIDE ? 24 - gl_SubgroupInvocationID / 4 * 8                             \
                                : (gl_SubgroupInvocationID < 4 ? 24 : 16) - (t) % 2 * 16)) >> 24)

#endif
