// y = act(a) · b.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/elementwise.glsl"
#include "include/activation.glsl"

float ew_apply(float a, float b, float c)
{
    return tsr_activate(a, FUNCTION) * b;
}
