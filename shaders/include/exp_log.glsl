// exp and log, accurate to about one unit in the last place on every device. Vulkan allows its
// built-in functions to be off by several units. The functions here use only multiplications,
// additions and integer arithmetic: Cody and Waite's range reduction, then minimax polynomials
// (Remez).
#ifndef TSR_EXP_LOG_GLSL
#define TSR_EXP_LOG_GLSL

#include "include/nan.glsl"

// ln 2 as a sum of two parts. The first part has so few bits that its products with small integers
// are exact.
const float tsr_ln2_high = 0.693359375;
const float tsr_ln2_low = -2.12194440e-4;

// e^r for |r| up to half of ln 2.
float tsr_exp_rest(float r)
{
    precise float q = 1.381428347e-3;
    q = q * r + 8.368882106e-3;
    q = q * r + 4.166840304e-2;
    q = q * r + 1.666651931e-1;
    q = q * r + 4.999999337e-1;
    q = 1.0 + (r + r * r * q);
    return q;
}

// e^x for any x: -inf gives 0, +inf gives +inf, NaN stays NaN. Results below 2^-126 may be flushed
// to 0.
float tsr_exp(float x)
{
    float bounded = clamp(x, -104.0, 89.0); // beyond these bounds the result is 0 or infinite
    precise float k = floor(bounded * 1.44269504 + 0.5);
    precise float r = (bounded - k * tsr_ln2_high) - k * tsr_ln2_low;
    precise float q = tsr_exp_rest(r);
    // Multiplies by 2^k in two steps, because k may exceed the exponents of normal numbers.
    int exponent = int(k);
    int half_exponent = exponent >> 1;
    q *= uintBitsToFloat(uint(half_exponent + 127) << 23);
    q *= uintBitsToFloat(uint(exponent - half_exponent + 127) << 23);
    return tsr_is_nan(x) ? x : q;
}

// e^x for x ≤ 0 or NaN. It takes three quarters of the operations of tsr_exp. Results below 2^-126
// are 0. If x is halfway between two multiples of ln 2, the last bit may differ from that of
// tsr_exp.
float tsr_exp_down(float x)
{
    // Adding 1.5·2^23 rounds to an integer, which is then in the lowest bits of the sum.
    precise float shifted = x * 1.44269504 + 12582912.0;
    precise float k = shifted - 12582912.0;
    precise float r = (x - k * tsr_ln2_high) - k * tsr_ln2_low;
    float result = uintBitsToFloat(floatBitsToUint(tsr_exp_rest(r)) + (floatBitsToUint(shifted) << 23));
    result = mix(result, 0.0, x < -87.3365479);
    return mix(result, x, tsr_is_nan(x));
}

vec4 tsr_exp4(vec4 x)
{
    return vec4(tsr_exp(x.x), tsr_exp(x.y), tsr_exp(x.z), tsr_exp(x.w));
}

vec4 tsr_exp4_down(vec4 x)
{
    return vec4(tsr_exp_down(x.x), tsr_exp_down(x.y), tsr_exp_down(x.z), tsr_exp_down(x.w));
}

// The natural logarithm of a positive normal number. +inf stays +inf, and NaN stays NaN.
float tsr_log(float x)
{
    uint bits = floatBitsToUint(x);
    // x is 2^exponent · (1 + f), where 1 + f is in [√½, √2).
    int exponent = int((bits + (0x3f800000u - 0x3f3504f3u)) >> 23) - 127;
    float f = uintBitsToFloat(bits - (uint(exponent) << 23)) - 1.0;
    float k = float(exponent);
    precise float q = -7.636998764e-2;
    q = q * f + 1.276146304e-1;
    q = q * f - 1.315909135e-1;
    q = q * f + 1.420169969e-1;
    q = q * f - 1.662347610e-1;
    q = q * f + 2.000123422e-1;
    q = q * f - 2.500081730e-1;
    q = q * f + 3.333333154e-1;
    precise float low = f * f * (q * f - 0.5) + k * tsr_ln2_low;
    precise float value = k * tsr_ln2_high + (f + low);
    return bits >= 0x7f800000u ? x : value;
}

#endif
