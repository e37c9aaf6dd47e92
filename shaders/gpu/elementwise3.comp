// Functions of three inputs.
#version 450
#extension GL_GOOGLE_include_directive : require

#define EW_INPUTS 3
#include "include/elementwise.glsl"
#include "include/functions.glsl"

float ew_apply(float a, float b, float c)
{
    return tsr_function(a, b, c, 0.0, 0.0, 0u);
}
