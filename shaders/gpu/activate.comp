// y = act(a), or y = act'(a) · b if there is a b.
#version 450
#extension GL_GOOGLE_include_directive : require

#include "include/elementwise.glsl"
#include "include/activation.glsl"

layout(constant_id = 7) const uint ACTIVATION = TSR_ACTIVATION_NONE;

float ew_apply(float a, float b)
{
    if (B_DTYPE != 0u)
        return tsr_activate_grad(a, ACTIVATION) * b;
    return tsr_activate(a, ACTIVATION);
}
