// Loads and stores of vectors for the kernels of Mesa's CPU driver. The driver stores lane by lane,
// up to 64 bits at a time. Therefore a lane stores a vector of 8 bytes of neighbouring elements,
// not one element. Loads are uniform and compile to SIMD loads, as in lavapipe.glsl.
#ifndef TSR_VECTORS_GLSL
#define TSR_VECTORS_GLSL

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word {
    uint v;
};
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word2 {
    uvec2 v;
};

// Splits a vector in two words. The shift by 0 is hidden from the compiler, which would otherwise
// load the low words again, one by one.
uvec2 words_of(uint64_t vector)
{
    return uvec2(uint(vector >> p.identity[0]), uint(vector >> 32));
}

// Loads a word at a multiple of 2 bytes. On devices without 16-bit storage, the address must be a
// multiple of 4 bytes.
uint load_words16(uint64_t at)
{
#if TSR_STORAGE16
    return uint(Word16(at).v) | uint(Word16(at + 2).v) << 16;
#else
    return Word(at).v;
#endif
}

// The body of a function that returns a value per lane. Lane e gets the value of the expression
// `load`, which contains e.
#define BY_LANE(type, load)                                                                        \
    type value = type(0);                                                                          \
    [[unroll]] for (uint e = 0; e < LANES; e++) value = mix(value, load, gl_SubgroupInvocationID == e); \
    return value;

uint load_lane_words4(uint64_t at)
{
    BY_LANE(uint, Word(at + e * 4).v)
}

uint load_lane_words2(uint64_t at)
{
    BY_LANE(uint, load_words16(at + e * 4))
}

#define LOAD_LANE_WORDS(at, alignment) ((alignment) == 2 ? load_lane_words2(at) : load_lane_words4(at))

// The following functions load a vector for each lane, from addresses that are multiples of 8, 4 or 2 bytes. The vectors of neighbouring
// lanes are `step` bytes apart.
uint64_t load_lane_vectors8(uint64_t at, uint step)
{
    BY_LANE(uint64_t, Word64(at + e * step).v)
}

uint64_t load_lane_vectors4(uint64_t at, uint step)
{
    BY_LANE(uint64_t, packUint2x32(Word2(at + e * step).v))
}

uint64_t load_lane_vectors2(uint64_t at, uint step)
{
    BY_LANE(uint64_t, packUint2x32(uvec2(load_words16(at + e * step), load_words16(at + e * step + 4))))
}

#define LOAD_LANE_VECTORS(at, step, alignment)                                                     \
    ((alignment) == 8   ? load_lane_vectors8(at, step)                                             \
     : (alignment) == 4 ? load_lane_vectors4(at, step)                                             \
                        : load_lane_vectors2(at, step))

// Stores the vector of each lane at a multiple of 4 bytes.
void store_words(uint64_t at, uvec2 words)
{
    Word(target(at)).v = words.x;
    Word(target(at + 4)).v = words.y;
}

// Stores the vector of each lane at a multiple of 2 bytes.
void store_words16(uint64_t at, uvec2 words)
{
#if TSR_STORAGE16
    Word16(target(at)).v = uint16_t(words.x);
    Word16(target(at + 2)).v = uint16_t(words.x >> 16);
    Word16(target(at + 4)).v = uint16_t(words.y);
    Word16(target(at + 6)).v = uint16_t(words.y >> 16);
#else
    store_words(at, words);
#endif
}

#define STORE_LANE_VECTORS(at, alignment, words)                                                   \
    {                                                                                              \
        if ((alignment) == 8)                                                                      \
            store_vector(at, words);                                                               \
        else if ((alignment) == 4)                                                                 \
            store_words(at, words);                                                                \
        else                                                                                       \
            store_words16(at, words);                                                               \
    }

#endif
