// The tanh of the soft cap of attention scores: softcap · tanh(score / softcap).
#ifndef TSR_ATTENTION_TANH_GLSL
#define TSR_ATTENTION_TANH_GLSL

#include "include/exp_log.glsl"

// Returns tanh(x) and 1 − tanh(x)², both accurate to a few units in the last place. They are
// computed from a polynomial for |x| < 0.625, and otherwise from exp.
vec2 attention_tanh(float x)
{
    float size = abs(x);
    float e = tsr_exp_down(-2.0 * size);
    float far = (1.0 - e) / (1.0 + e);
    float z = x * x;
    precise float q = -5.70498872745e-3;
    q = q * z + 2.06390887954e-2;
    q = q * z - 5.37397155531e-2;
    q = q * z + 1.33314422036e-1;
    q = q * z - 3.33332819422e-1;
    float near = size + size * z * q;
    float t = mix(far, near, size < 0.625);
    float sum = 1.0 + e;
    float slope = mix(4.0 * e / (sum * sum), 1.0 - t * t, size < 0.625);
    return vec2(mix(t, -t, x < 0.0), slope);
}

#endif
