// matmul_lavapipe_nn.glsl without an epilogue.
#version 450
#extension GL_GOOGLE_include_directive : require
#define TSR_FINISHES 0
#include "cpu_drivers/matmul_lavapipe_nn.glsl"
