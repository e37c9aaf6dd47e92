// matmul_swiftshader.glsl with tiles of 4 rows.
#version 450
#extension GL_GOOGLE_include_directive : require
#define TM 4
#include "matmul_swiftshader.glsl"
