// matmul_swiftshader.glsl with tiles of 8 rows and 32 columns.
#version 450
#extension GL_GOOGLE_include_directive : require
#define TM 8
#define TN 8
#include "cpu_drivers/matmul_swiftshader.glsl"
