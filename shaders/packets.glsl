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

uint load_word(uint64_t at, uint alignment)
{
#if TSR_STORAGE16
    if (alignment == 2)
        return uint(Half(at).v) | uint(Half(at + 2).v) << 16;
#endif
    return Word(at).v;
}

uint64_t load_packet(uint64_t at, uint alignment)
{
    if (alignment == 8)
        return Packet(at).v;
    if (alignment == 4)
        return packUint2x32(Word2(at).v);
    return packUint2x32(uvec2(load_word(at, alignment), load_word(at + 4, alignment)));
}

// Words and packets by lane, `step` bytes apart.
uint load_lane_words(uint64_t at, uint alignment)
{
    uint word = 0;
    [[unroll]] for (uint e = 0; e < LANES; e++)
        word = mix(word, load_word(at + e * 4, alignment), gl_SubgroupInvocationID == e);
    return word;
}

uint64_t load_lane_packets(uint64_t at, uint step, uint alignment)
{
    uint64_t packet = uint64_t(0);
    [[unroll]] for (uint e = 0; e < LANES; e++)
        packet = mix(packet, load_packet(at + e * step, alignment), gl_SubgroupInvocationID == e);
    return packet;
}

// Each lane stores its packet.
void store_lane_packets(uint64_t at, uint alignment, uvec2 words)
{
    if (alignment == 8) {
        store_packet(at, words);
        return;
    }
#if TSR_STORAGE16
    if (alignment == 2) {
        Half(target(at)).v = uint16_t(words.x);
        Half(target(at + 2)).v = uint16_t(words.x >> 16);
        Half(target(at + 4)).v = uint16_t(words.y);
        Half(target(at + 6)).v = uint16_t(words.y >> 16);
        return;
    }
#endif
    Word(target(at)).v = words.x;
    Word(target(at + 4)).v = words.y;
}

#endif
