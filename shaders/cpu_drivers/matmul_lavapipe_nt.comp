// matmul_lavapipe_nt.glsl without an epilogue. It computes sums over one range of k.
#version 450
#extension GL_GOOGLE_include_directive : require
#define TSR_FINISHES 0
#include "cpu_drivers/matmul_lavapipe_nt.glsl"
