// y = act(a), or y = act'(a) · b if there is a b.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/elementwise.glsl"
#include "include/activation.glsl"

float ew_apply(float a, float b, float c)
{
    if (B_DTYPE != 0u)
        return tsr_activate_grad(a, FUNCTION) * b;
    return tsr_activate(a, FUNCTION);
}
