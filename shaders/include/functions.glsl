// The functions of the element-wise kernels (TSR_EW_…), in f32. The including file declares the
// specialization constant FUNCTION. Each step of sums, products, scale and axpy is rounded once,
// so that all devices give the same bits, except for numbers below 2^-126. mix() selects
// without a branch, which would cost more on CPU drivers. Comparisons test for NaN explicitly,
// because drivers may presume that there is no NaN.
#ifndef TSR_FUNCTIONS_GLSL
#define TSR_FUNCTIONS_GLSL

#include "include/activation.glsl"
#include "include/rounded.glsl"
#include "params/elementwise.h"

// tsr_infinity() and tsr_quiet_nan() are functions, not constants: glslang would compute with
// constants at compile time, and presumes that all numbers are finite.
float tsr_infinity()
{
    return uintBitsToFloat(0x7f800000u);
}

float tsr_quiet_nan()
{
    return uintBitsToFloat(0x7fc00000u);
}

bool tsr_is_negative_number(float x)
{
    uint bits = floatBitsToUint(x);
    return bits > 0x80000000u && bits <= 0xff800000u;
}

float tsr_log_full(float x)
{
    uint bits = floatBitsToUint(x);
    bool small = bits < 0x00800000u;
    precise float scaled = x * 16777216.0;
    float number = mix(x, scaled, small);
    precise float y = tsr_log(number) - mix(0.0, 16.6355323, small);
    y = mix(y, -tsr_infinity(), floatBitsToUint(number) << 1 == 0u);
    return mix(y, tsr_quiet_nan(), tsr_is_negative_number(x));
}

float tsr_sqrt(float x)
{
    precise float y = sqrt(x);
    uint bits = floatBitsToUint(x);
    y = mix(y, x, bits << 1 == 0u || bits == 0x7f800000u || tsr_is_nan(x));
    return mix(y, tsr_quiet_nan(), tsr_is_negative_number(x));
}

float tsr_rsqrt(float x)
{
    precise float y = inversesqrt(x);
    uint bits = floatBitsToUint(x);
    y = mix(y, 0.0, bits == 0x7f800000u);
    y = mix(y, uintBitsToFloat(bits | 0x7f800000u), bits << 1 == 0u);
    y = mix(y, x, tsr_is_nan(x));
    return mix(y, tsr_quiet_nan(), tsr_is_negative_number(x));
}

// tanh. Below 0.625 it uses a minimax polynomial of Cephes (tanhf.c, public domain), which keeps
// the relative precision near 0.
float tsr_tanh(float x)
{
    precise float t = abs(x);
    precise float s = t * t;
    precise float q = -5.70498872745e-3;
    q = q * s + 2.06390887954e-2;
    q = q * s - 5.37397155531e-2;
    q = q * s + 1.33314422036e-1;
    q = q * s - 3.33332819422e-1;
    precise float near = t + t * (s * q);
    precise float e = tsr_exp(-2.0 * t);
    precise float far = (1.0 - e) / (1.0 + e);
    float y = mix(far, near, t < 0.625);
    y = uintBitsToFloat(floatBitsToUint(y) | floatBitsToUint(x) & 0x80000000u);
    return mix(y, x, tsr_is_nan(x));
}

// 1 − tanh², computed without subtracting nearly equal numbers.
float tsr_tanh_slope(float x)
{
    precise float e = tsr_exp(-2.0 * abs(x));
    precise float d = 1.0 + e;
    precise float y = 4.0 * e / (d * d);
    return mix(y, x, tsr_is_nan(x));
}

float tsr_negated(float x)
{
    return uintBitsToFloat(floatBitsToUint(x) ^ 0x80000000u);
}

bool tsr_unordered(float a, float b)
{
    return tsr_is_nan(a) || tsr_is_nan(b);
}

bool tsr_compared(float a, float b)
{
    bool unordered = tsr_unordered(a, b);
    switch (FUNCTION) {
    case TSR_EW_EQUAL:
        return !unordered && a == b;
    case TSR_EW_NOT_EQUAL:
        return unordered || a != b;
    case TSR_EW_LESS:
        return !unordered && a < b;
    case TSR_EW_LESS_EQUAL:
        return !unordered && a <= b;
    case TSR_EW_GREATER:
        return !unordered && a > b;
    }
    return !unordered && a >= b;
}

// Whether a number counts as true, that is, is not 0. Subnormal numbers and NaN are true, even if a
// driver treats subnormal numbers as 0 in arithmetic.
bool tsr_is_true(float a)
{
    return floatBitsToUint(a) << 1 != 0u;
}

// The gradient of the minimum or maximum of two numbers with respect to one of them. It is 0 if the
// result is the other number, half of dy if both are equal, and otherwise dy. If one of them is
// NaN, it is dy for both.
float tsr_share(bool is_other, bool is_equal, float dy)
{
    precise float half_of_it = 0.5 * dy;
    return mix(mix(dy, half_of_it, is_equal), 0.0, is_other);
}

// Computes the function that FUNCTION names. alpha and beta are the numbers of scale, axpy and
// clamp; `zero` is the argument that tsr_rounded() needs.
float tsr_function(float a, float b, float c, float alpha, float beta, uint zero)
{
    float complement;
    precise float y = a;
    switch (FUNCTION) {
    case TSR_EW_ADD:
        y = a + b;
        break;
    case TSR_EW_SUB:
        y = a - b;
        break;
    case TSR_EW_MUL:
        y = a * b;
        break;
    case TSR_EW_SCALE:
        y = alpha * a;
        y = tsr_rounded(y, zero) + beta;
        break;
    case TSR_EW_AXPY:
        y = alpha * a;
        y = tsr_rounded(y, zero) + b;
        break;
    case TSR_EW_DIV:
        y = a / b;
        break;
    case TSR_EW_MINIMUM:
        return mix(mix(a, b, b < a), mix(b, a, tsr_is_nan(a)), tsr_unordered(a, b));
    case TSR_EW_MAXIMUM:
        return mix(mix(a, b, b > a), mix(b, a, tsr_is_nan(a)), tsr_unordered(a, b));
    case TSR_EW_CLAMP:
        return mix(mix(mix(a, alpha, a < alpha), beta, a > beta), a, tsr_is_nan(a));
    case TSR_EW_CLAMP_GRAD:
        return mix(0.0, b, a >= alpha && a <= beta && !tsr_is_nan(a));
    case TSR_EW_EQUAL:
    case TSR_EW_NOT_EQUAL:
    case TSR_EW_LESS:
    case TSR_EW_LESS_EQUAL:
    case TSR_EW_GREATER:
    case TSR_EW_GREATER_EQUAL:
        return mix(0.0, 1.0, tsr_compared(a, b));
    case TSR_EW_KEEP:
        return mix(0.0, b, tsr_is_true(a));
    case TSR_EW_DROP:
        return mix(b, 0.0, tsr_is_true(a));
    case TSR_EW_SELECT:
        return mix(c, b, tsr_is_true(a));
    case TSR_EW_DIV_GRAD: {
        // −a · c / b² is computed as a product of two quotients, because a · c or b² may overflow
        // or underflow when the result does not.
        precise float quotient = a / b, slope = c / b;
        y = quotient * slope;
        return tsr_negated(y);
    }
    case TSR_EW_MINIMUM_GRAD:
        return tsr_share(a > b && !tsr_unordered(a, b), a == b && !tsr_unordered(a, b), c);
    case TSR_EW_MAXIMUM_GRAD:
        return tsr_share(a < b && !tsr_unordered(a, b), a == b && !tsr_unordered(a, b), c);
    case TSR_EW_EXP:
        return tsr_exp(a);
    case TSR_EW_LOG:
        return tsr_log_full(a);
    case TSR_EW_SQRT:
        return tsr_sqrt(a);
    case TSR_EW_RSQRT:
        return tsr_rsqrt(a);
    case TSR_EW_SIGMOID:
        return mix(tsr_sigmoid(a, complement), a, tsr_is_nan(a));
    case TSR_EW_TANH:
        return tsr_tanh(a);
    case TSR_EW_ABS:
        return uintBitsToFloat(floatBitsToUint(a) & 0x7fffffffu);
    case TSR_EW_NEG:
        return tsr_negated(a);
    case TSR_EW_EXP_GRAD:
        y = b * tsr_exp(a);
        break;
    case TSR_EW_LOG_GRAD:
        y = b / a;
        break;
    case TSR_EW_SQRT_GRAD: {
        precise float root = 2.0 * tsr_sqrt(a);
        y = b / root;
        break;
    }
    case TSR_EW_RSQRT_GRAD: {
        precise float slope = -0.5 * tsr_rsqrt(a) / a;
        y = b * slope;
        break;
    }
    case TSR_EW_SIGMOID_GRAD: {
        precise float s = tsr_sigmoid(a, complement);
        precise float slope = s * complement;
        y = b * mix(slope, a, tsr_is_nan(a));
        break;
    }
    case TSR_EW_TANH_GRAD:
        y = b * tsr_tanh_slope(a);
        break;
    case TSR_EW_ABS_GRAD: {
        float sign = mix(mix(0.0, 1.0, floatBitsToInt(a) > 0), -1.0, tsr_is_negative_number(a));
        y = b * mix(sign, a, tsr_is_nan(a));
        break;
    }
    case TSR_EW_NEG_GRAD:
        return tsr_negated(b);
    }
    return y;
}

#endif
