// Functions of one or two inputs.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/elementwise.glsl"
#include "include/functions.glsl"

float ew_apply(float a, float b, float c)
{
    // the last argument, `zero`, is the unused fourth byte of the shifts
    return tsr_function(a, b, c, p.alpha, p.beta, p.walk.shifts >> 24);
}
