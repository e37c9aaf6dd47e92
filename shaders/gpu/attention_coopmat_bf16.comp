// Attention in bf16 by cooperative matrices; see attention_coopmat.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_bfloat16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#define ELEMENT bfloat16_t
#define ELEMENT4 bf16vec4
#define ELEMENT_OF(bits) uintBitsToBFloat16EXT(uint16_t(bits))
#define ELEMENT4_OF(bits) uintBitsToBFloat16EXT(u16vec4(unpack16((bits).x), unpack16((bits).y)))
#define BITS_OF(four) uvec2(pack32(bfloat16BitsToUintEXT((four).xy)), pack32(bfloat16BitsToUintEXT((four).zw)))
#define DTYPE TSR_DT_BF16
#include "gpu/attention_coopmat.glsl"
