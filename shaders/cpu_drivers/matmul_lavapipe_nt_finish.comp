// See matmul_lavapipe_nt.glsl: the last stretch of k, and what y is made of the sums.
#version 450
#extension GL_GOOGLE_include_directive : require
#define TSR_FINISHES 1
#include "cpu_drivers/matmul_lavapipe_nt.glsl"
