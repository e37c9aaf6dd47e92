// Packets as floats: GROUP (2 or 4) elements of any float dtype by lane, GROUP being what a lane stores at once. The includer
// says whether f16 is widened as copies do (EXACT), or as arithmetic does.
#ifndef TSR_PACKETS_FLOATS_GLSL
#define TSR_PACKETS_FLOATS_GLSL

#include "lavapipe_halves.glsl"
#include "packets.glsl"

float decode_bits(uint bits, uint dtype)
{
    if (dtype == TSR_DT_F32)
        return uintBitsToFloat(bits);
    if (dtype == TSR_DT_BF16)
        return tsr_f32_from_bf16(bits);
    return EXACT ? uintBitsToFloat(tsr_widen_f16(bits)) : tsr_f32_from_f16(bits);
}

vec4 decode2(uint word, uint dtype)
{
    return vec4(decode_bits(word & 0xffff, dtype), decode_bits(word >> 16, dtype), 0.0, 0.0);
}

vec4 decode4(uint64_t packet, uint dtype)
{
    uvec2 words = words_of(packet);
    return vec4(decode2(words.x, dtype).xy, decode2(words.y, dtype).xy);
}

float load_element(uint64_t at, uint dtype)
{
    if (dtype == TSR_DT_F32)
        return Float(at).v;
    uint word = Word(at & ~uint64_t(3)).v;
    return decode_bits(word >> (uint(at) & 2) * 8 & 0xffff, dtype);
}

// Of GROUP elements a lane, lanes one after another.
vec4 load_operand(uint64_t at, uint dtype, uint form)
{
    if (form == TSR_PACKETS_ONE)
        return vec4(load_element(at, dtype));
    if (dtype != TSR_DT_F32)
        return GROUP == 4 ? decode4(load_lane_packets(at, 8, form), dtype)
                          : decode2(load_lane_words(at, form), dtype);
    vec2 low = uintBitsToFloat(words_of(load_lane_packets(at, GROUP * 4, form)));
    if (GROUP == 2)
        return vec4(low, 0.0, 0.0);
    return vec4(low, uintBitsToFloat(words_of(load_lane_packets(at + 8, 16, form))));
}

uvec2 encode(vec4 values, uint dtype)
{
    if (dtype == TSR_DT_F32)
        return floatBitsToUint(values.xy);
    return encode_halves(values, dtype);
}

#endif
