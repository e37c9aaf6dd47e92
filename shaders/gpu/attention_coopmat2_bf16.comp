// Gradients of attention in bf16 by cooperative matrices of workgroups; see attention_coopmat2.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_bfloat16 : require
#define ELEMENT bfloat16_t
#define DTYPE TSR_DT_BF16
#include "gpu/attention_coopmat2.glsl"
