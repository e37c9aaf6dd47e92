// matmul_lavapipe_nn.glsl for all of k, with the epilogue.
#version 450
#extension GL_GOOGLE_include_directive : require
#define TSR_FINISHES 1
#include "cpu_drivers/matmul_lavapipe_nn.glsl"
