// Activations and their derivatives, accurate to a few units in the last place. All devices and all
// kernels compute them by the same steps; `precise` keeps compilers from rearranging these steps.
// NaN stays NaN. For ±inf the result is the limit. `activation` is a tsr_activation, preferably a
// specialization constant, so that the driver keeps only one branch.
#ifndef TSR_ACTIVATION_GLSL
#define TSR_ACTIVATION_GLSL

#include "include/exp_log.glsl"
#include "params/activation.h"

// Returns 1 / (1 + e^-x). `complement` becomes 1 / (1 + e^x), which is computed separately because
// subtracting the result from 1 would lose the digits of a small complement.
float tsr_sigmoid(float x, out float complement)
{
    precise float e = tsr_exp(-abs(x));
    precise float large = 1.0 / (1.0 + e);
    precise float small = e * large;
    complement = x < 0.0 ? large : small;
    return x < 0.0 ? small : large;
}

// Returns the standard normal distribution function Φ(x) for |x| ≤ 16, and its density. Φ(−t) =
// e^(−t²/2) · M(t), where M falls smoothly from ½ like 1/t. M is approximated by y times a
// polynomial in y = 1/(1 + 0.3·t), minimax in relative error (4e-9 up to t = 15).
float tsr_normal_cdf(float x, out float density)
{
    precise float t = abs(x);
    // t²/2 is needed to more than 24 bits, because its error becomes a relative error of the
    // result. `high` has 12 bits, so that its square is exact.
    precise float high = uintBitsToFloat(floatBitsToUint(t) & 0xfffff000u);
    precise float rest = -0.5 * (t - high) * (t + high);
    precise float gauss = tsr_exp(-0.5 * high * high);
    gauss += gauss * (rest * (1.0 + rest * (0.5 + rest * 0.16666667)));
    precise float scaled = 0.39894228 * gauss;
    density = scaled;

    precise float y = 1.0 / (1.0 + 0.3 * t);
    precise float m = -0.0206284834735;
    m = m * y + 0.112463902761;
    m = m * y - 0.228282879252;
    m = m * y + 0.191881001253;
    m = m * y - 0.0795074766769;
    m = m * y + 0.0962041353964;
    m = m * y + 0.0783724546966;
    m = m * y + 0.110239305496;
    m = m * y + 0.119571321557;
    m = m * y + 0.119686716509;
    precise float tail = gauss * (m * y);
    precise float other = 1.0 - tail;
    return x < 0.0 ? tail : other;
}

// The tanh form of GELU is x · sigmoid(2u), where 2u = 2·√(2/π)·(x + 0.044715·x³).
const float tsr_gelu_linear = 1.59576912;
const float tsr_gelu_cubic = 0.0713548162726;

float tsr_activate_number(float x, uint activation)
{
    float complement;
    switch (activation) {
    case TSR_ACTIVATION_RELU:
        // Compares bits, because some devices treat subnormal numbers as equal to 0.
        return floatBitsToInt(x) > 0 ? x : 0.0;
    case TSR_ACTIVATION_GELU_TANH: {
        // Below −16 the result is 0. The bound avoids −inf · 0.
        float b = max(x, -16.0);
        precise float u = b * (tsr_gelu_linear + tsr_gelu_cubic * (b * b));
        precise float y = b * tsr_sigmoid(u, complement);
        return y;
    }
    case TSR_ACTIVATION_GELU_ERF: {
        float density;
        float b = clamp(x, -16.0, 16.0);
        precise float y = max(x, -16.0) * tsr_normal_cdf(b, density);
        return y;
    }
    case TSR_ACTIVATION_SILU: {
        float b = max(x, -128.0);
        precise float y = b * tsr_sigmoid(b, complement);
        return y;
    }
    }
    return x;
}

// NaN is selected at the end, because a branch would cost more on CPU drivers.
float tsr_activate(float x, uint activation)
{
    return mix(tsr_activate_number(x, activation), x, tsr_is_nan(x));
}

float tsr_activate_grad_number(float x, uint activation)
{
    float complement;
    switch (activation) {
    case TSR_ACTIVATION_RELU:
        return floatBitsToInt(x) > 0 ? 1.0 : 0.0;
    case TSR_ACTIVATION_GELU_TANH: {
        float b = clamp(x, -16.0, 16.0);
        precise float u = b * (tsr_gelu_linear + tsr_gelu_cubic * (b * b));
        float s = tsr_sigmoid(u, complement);
        precise float y = s + b * s * complement * (tsr_gelu_linear + 3.0 * tsr_gelu_cubic * (b * b));
        return y;
    }
    case TSR_ACTIVATION_GELU_ERF: {
        float density;
        float b = clamp(x, -16.0, 16.0);
        float cdf = tsr_normal_cdf(b, density);
        precise float y = cdf + b * density;
        return y;
    }
    case TSR_ACTIVATION_SILU: {
        float b = clamp(x, -128.0, 128.0);
        float s = tsr_sigmoid(b, complement);
        precise float y = s * (1.0 + b * complement);
        return y;
    }
    }
    return 1.0;
}

// Returns the derivative act'(x).
float tsr_activate_grad(float x, uint activation)
{
    return mix(tsr_activate_grad_number(x, activation), x, activation != TSR_ACTIVATION_NONE && tsr_is_nan(x));
}

#endif
