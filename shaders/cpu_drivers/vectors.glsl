// Vectors of elements for the kernels of Mesa's CPU driver. It stores lane by lane whatever the width, up to 64 bits at a time: so
// a lane stores 8 bytes of neighbours, not one element. Loads are uniform and become vectors, as in lavapipe.glsl.
#ifndef TSR_VECTORS_GLSL
#define TSR_VECTORS_GLSL

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word {
    uint v;
};
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word2 {
    uvec2 v;
};

// The low word, by a shift of 0 that the compiler cannot know to be one: it would load the low words again, one by one.
uvec2 words_of(uint64_t vector)
{
    return uvec2(uint(vector >> p.identity[0]), uint(vector >> 32));
}

// For what starts at multiples of 2 bytes only, which devices without 16-bit storage are not given.
uint load_words16(uint64_t at)
{
#if TSR_STORAGE16
    return uint(Word16(at).v) | uint(Word16(at + 2).v) << 16;
#else
    return Word(at).v;
#endif
}

// The body of a function: a value by lane, that of lane e being `load`.
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

// `step` bytes apart.
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

// Each lane stores its vector.
void store_words(uint64_t at, uvec2 words)
{
    Word(target(at)).v = words.x;
    Word(target(at + 4)).v = words.y;
}

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
