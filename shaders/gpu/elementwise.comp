// Functions of one or two inputs.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/elementwise.glsl"
#include "include/functions.glsl"

float ew_apply(float a, float b, float c)
{
    // the last argument, `zero` (rounded.glsl), is the unused fourth byte of the shifts, which is 0
    return tsr_function(a, b, c, p.alpha, p.beta, p.walk.shifts >> 24);
}
