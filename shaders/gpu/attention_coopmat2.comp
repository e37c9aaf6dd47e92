// Gradients of attention in f16 by cooperative matrices of workgroups; see attention_coopmat2.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define ELEMENT float16_t
#define DTYPE TSR_DT_F16
#include "gpu/attention_coopmat2.glsl"
