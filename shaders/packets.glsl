// Packets of elements for the kernels of Mesa's CPU driver. It stores lane by lane whatever the width, up to 64 bits at a time: so
// a lane stores 8 bytes of neighbours, not one element. Loads are uniform and become vectors, as in lavapipe.glsl.
#ifndef TSR_PACKETS_GLSL
#define TSR_PACKETS_GLSL

layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word {
    uint v;
};
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word2 {
    uvec2 v;
};

// The low word, by a shift of 0 that the compiler cannot know to be one: it would load the low words again, one by one.
uvec2 words_of(uint64_t packet)
{
    return uvec2(uint(packet >> p.identity[0]), uint(packet >> 32));
}

// The alignments and dtypes of what follows are specialization constants. What they leave out would be left out only after the driver
// had made a copy of the function for each call, if they were arguments: hence functions for each, and macros that choose one.

uint load_halves(uint64_t at)
{
#if TSR_STORAGE16
    return uint(Half(at).v) | uint(Half(at + 2).v) << 16;
#else
    return 0; // never: such devices take no alignment of 2
#endif
}

// Words by lane.
uint load_lane_words4(uint64_t at)
{
    uint word = 0;
    [[unroll]] for (uint e = 0; e < LANES; e++)
        word = mix(word, Word(at + e * 4).v, gl_SubgroupInvocationID == e);
    return word;
}

uint load_lane_words2(uint64_t at)
{
    uint word = 0;
    [[unroll]] for (uint e = 0; e < LANES; e++)
        word = mix(word, load_halves(at + e * 4), gl_SubgroupInvocationID == e);
    return word;
}

#define LOAD_LANE_WORDS(at, alignment) ((alignment) == 2 ? load_lane_words2(at) : load_lane_words4(at))

// Packets by lane, `step` bytes apart.
uint64_t load_lane_packets8(uint64_t at, uint step)
{
    uint64_t packet = uint64_t(0);
    [[unroll]] for (uint e = 0; e < LANES; e++)
        packet = mix(packet, Packet(at + e * step).v, gl_SubgroupInvocationID == e);
    return packet;
}

uint64_t load_lane_packets4(uint64_t at, uint step)
{
    uint64_t packet = uint64_t(0);
    [[unroll]] for (uint e = 0; e < LANES; e++)
        packet = mix(packet, packUint2x32(Word2(at + e * step).v), gl_SubgroupInvocationID == e);
    return packet;
}

uint64_t load_lane_packets2(uint64_t at, uint step)
{
    uint64_t packet = uint64_t(0);
    [[unroll]] for (uint e = 0; e < LANES; e++) {
        uint64_t from = at + e * step;
        packet = mix(packet, packUint2x32(uvec2(load_halves(from), load_halves(from + 4))), gl_SubgroupInvocationID == e);
    }
    return packet;
}

#define LOAD_LANE_PACKETS(at, step, alignment)                                                     \
    ((alignment) == 8   ? load_lane_packets8(at, step)                                             \
     : (alignment) == 4 ? load_lane_packets4(at, step)                                             \
                        : load_lane_packets2(at, step))

// Each lane stores its packet.
void store_words(uint64_t at, uvec2 words)
{
    Word(target(at)).v = words.x;
    Word(target(at + 4)).v = words.y;
}

void store_halves(uint64_t at, uvec2 words)
{
#if TSR_STORAGE16
    Half(target(at)).v = uint16_t(words.x);
    Half(target(at + 2)).v = uint16_t(words.x >> 16);
    Half(target(at + 4)).v = uint16_t(words.y);
    Half(target(at + 6)).v = uint16_t(words.y >> 16);
#endif
}

#define STORE_LANE_PACKETS(at, alignment, words)                                                   \
    {                                                                                              \
        if ((alignment) == 8)                                                                      \
            store_packet(at, words);                                                               \
        else if ((alignment) == 4)                                                                 \
            store_words(at, words);                                                                \
        else                                                                                       \
            store_halves(at, words);                                                               \
    }

#endif
