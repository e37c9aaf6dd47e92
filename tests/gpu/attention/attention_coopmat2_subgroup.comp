// attention_coopmat2.comp for drivers that have matrices of any size for subgroups, but none that a workgroup shares.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define ELEMENT float16_t
#define DTYPE TSR_DT_F16
#define ONE_SUBGROUP
#include "gpu/attention_coopmat2.glsl"
