// Matrix product of one or two rows and a matrix in blocks, by integers; see matmul_blocks.glsl. This form needs an instruction that adds
// up four products of bytes (SPV_KHR_integer_dot_product).
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_spirv_intrinsics : require

// OpSDot of packed bytes with signs, with the capabilities DotProductInput4x8BitPacked and DotProduct
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int dot_product(uint a, uint b, spirv_literal int format);

#define INT8
#include "gpu/matmul_blocks.glsl"
