// Matrix product of one or two rows and a matrix in blocks, by floats; see matmul_blocks.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "gpu/matmul_blocks.glsl"
