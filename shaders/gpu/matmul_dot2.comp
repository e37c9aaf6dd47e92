// Matrix product of f16 by tiles; see matmul_pairs.glsl. This form needs an instruction that adds
// two products of f16 to a sum in f32 (SPV_VALVE_mixed_float_dot_product). The products are exact.
// The device decides in which order they are added and how often the sum is rounded, as it does
// for cooperative matrices.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_spirv_intrinsics : require

// OpFDot2MixAcc32VALVE, with the capability DotProductFloat16AccFloat32VALVE
spirv_instruction(extensions = ["SPV_VALVE_mixed_float_dot_product"], capabilities = [6912], id = 6916)
float dot_product(f16vec2 a, f16vec2 b, float sum);

#define ADD_PRODUCTS(a, b, sum) dot_product(unpackFloat2x16(a), unpackFloat2x16(b), sum)
#include "gpu/matmul_pairs.glsl"
