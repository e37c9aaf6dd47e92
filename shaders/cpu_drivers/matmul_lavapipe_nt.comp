// matmul_lavapipe_nt.glsl without an epilogue: it computes sums over a stretch of k.
#version 450
#extension GL_GOOGLE_include_directive : require
#define TSR_FINISHES 0
#include "cpu_drivers/matmul_lavapipe_nt.glsl"
