// Attention in f16 by cooperative matrices; see attention_coopmat.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define ELEMENT float16_t
#define ELEMENT4 f16vec4
#define ELEMENT_OF(bits) (unpackFloat2x16(bits).x)
#define ELEMENT4_OF(bits) f16vec4(unpackFloat2x16((bits).x), unpackFloat2x16((bits).y))
#define BITS_OF(four) uvec2(packFloat2x16((four).xy), packFloat2x16((four).zw))
#define DTYPE TSR_DT_F16
#include "gpu/attention_coopmat.glsl"
