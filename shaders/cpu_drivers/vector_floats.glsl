// Loads and stores of vectors as floats. Each lane loads GROUP elements of any float dtype, and
// GROUP is the number of elements that a lane stores at once, 2 or 4. The including file declares
// EXACT. If it is true, f16 is widened exactly, as in copies. Otherwise it is widened by the
// built-in function, as in arithmetic.
#ifndef TSR_VECTORS_FLOATS_GLSL
#define TSR_VECTORS_FLOATS_GLSL

#include "cpu_drivers/lavapipe_float16.glsl"
#include "cpu_drivers/vectors.glsl"

float decode_f16(uint bits)
{
    return EXACT ? uintBitsToFloat(tsr_widen_f16(bits)) : tsr_f32_from_f16(bits);
}

vec4 decode_f16s(uvec2 words)
{
    return vec4(decode_f16(words.x & 0xffff), decode_f16(words.x >> 16), decode_f16(words.y & 0xffff), decode_f16(words.y >> 16));
}

vec4 decode_bf16s(uvec2 words)
{
    return vec4(tsr_f32_from_bf16(words.x & 0xffff), tsr_f32_from_bf16(words.x >> 16), tsr_f32_from_bf16(words.y & 0xffff),
                tsr_f32_from_bf16(words.y >> 16));
}

float load_element(uint64_t at, uint dtype)
{
    if (dtype == TSR_DT_F32)
        return Float(at).v;
    uint word = Word(at & ~uint64_t(3)).v >> (uint(at) & 2) * 8 & 0xffff;
    return dtype == TSR_DT_F16 ? decode_f16(word) : tsr_f32_from_bf16(word);
}

// These macros load GROUP elements per lane. The elements of neighbouring lanes are neighbours in
// memory. Dtypes and forms are constants, as in lavapipe.glsl.
#define LOAD_FLOAT16S(at, form) (GROUP == 4 ? words_of(LOAD_LANE_VECTORS(at, 8, form)) : uvec2(LOAD_LANE_WORDS(at, form), 0))
#define LOAD_OPERAND(at, dtype, form)                                                              \
    ((form) == TSR_VECTORS_ONE ? vec4(load_element(at, dtype))                                     \
     : (dtype) == TSR_DT_F16   ? decode_f16s(LOAD_FLOAT16S(at, form))                                \
     : (dtype) == TSR_DT_BF16  ? decode_bf16s(LOAD_FLOAT16S(at, form))                               \
     : GROUP == 2              ? vec4(uintBitsToFloat(words_of(LOAD_LANE_VECTORS(at, 8, form))), 0.0, 0.0)    \
                               : uintBitsToFloat(uvec4(words_of(LOAD_LANE_VECTORS(at, 16, form)),  \
                                                       words_of(LOAD_LANE_VECTORS((at) + 8, 16, form)))))

#define ENCODE(values, dtype) ((dtype) == TSR_DT_F32 ? floatBitsToUint((values).xy) : ENCODE_FLOAT16S(values, dtype))

#endif
