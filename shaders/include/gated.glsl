// The activations of experts, functions of gate and up, and their derivatives.
#ifndef TSR_GATED_GLSL
#define TSR_GATED_GLSL

#include "include/activation.glsl"
#include "params/grouped.h"

const float tsr_oai_alpha = 1.702;

// Values beyond `limit` are limited: gate from above, up on both sides. NaN stays NaN.
float tsr_limited_gate(float gate, float limit)
{
    return gate > limit ? limit : gate;
}

float tsr_limited_up(float up, float limit)
{
    return up > limit ? limit : up < -limit ? -limit : up;
}

float tsr_gated(float gate, float up, float limit, uint activation)
{
    if (activation == TSR_EXPERT_ACT_SWIGLU_OAI) {
        float complement;
        float g = max(tsr_limited_gate(gate, limit), -128.0), u = tsr_limited_up(up, limit);
        precise float y = g * tsr_sigmoid(tsr_oai_alpha * g, complement) * (u + 1.0);
        return tsr_is_nan(gate) ? gate : tsr_is_nan(up) ? up : y;
    }
    precise float y =
        tsr_activate(gate, activation == TSR_EXPERT_ACT_GELU ? TSR_ACTIVATION_GELU_TANH : TSR_ACTIVATION_SILU) * up;
    return y;
}

// The derivatives with respect to gate and up.
vec2 tsr_gated_grad(float gate, float up, float limit, uint activation)
{
    if (activation == TSR_EXPERT_ACT_SWIGLU_OAI) {
        float complement;
        float g = max(tsr_limited_gate(gate, limit), -128.0), u = tsr_limited_up(up, limit);
        float s = tsr_sigmoid(tsr_oai_alpha * g, complement);
        precise float by_gate = s * (1.0 + tsr_oai_alpha * g * complement) * (u + 1.0);
        precise float by_up = g * s;
        vec2 result = vec2(gate > limit ? 0.0 : by_gate, up > limit || up < -limit ? 0.0 : by_up);
        return tsr_is_nan(gate) ? vec2(gate) : tsr_is_nan(up) ? vec2(up) : result;
    }
    uint plain = activation == TSR_EXPERT_ACT_GELU ? TSR_ACTIVATION_GELU_TANH : TSR_ACTIVATION_SILU;
    precise float by_gate = tsr_activate_grad(gate, plain) * up;
    return vec2(by_gate, tsr_activate(gate, plain));
}

#endif
