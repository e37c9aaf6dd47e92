#include "bench/harness/data.h"

#include <math.h>
#include <string.h>

uint64_t bench_random(uint64_t seed, uint64_t n)
{
    /* The generator splitmix64. Its state is a counter, so that the n-th word can be computed at
     * once. */
    uint64_t z = seed + (n + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int significant_bits(tsr_dtype dtype)
{
    return dtype == TSR_F16 ? 11 : dtype == TSR_BF16 ? 8 : 24;
}

double bench_rounding(tsr_dtype dtype)
{
    return ldexp(1.0, -significant_bits(dtype));
}

void bench_random_values(float *values, uint64_t count, tsr_dtype dtype, uint64_t seed)
{
    int bits = significant_bits(dtype);
    float step = (float)ldexp(1.0, 1 - bits);
    int32_t half = (int32_t)1 << (bits - 1);
    for (uint64_t i = 0; i < count; i++) {
        int32_t whole = (int32_t)(bench_random(seed, i) >> (64 - bits)) - half;
        values[i] = (float)whole * step;
    }
}

/* Rounds to f16. This code shares nothing with the shaders, because it checks their conversions. */
static uint16_t f16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    double magnitude = fabs((double)value);
    if (isnan(value))
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 65520.0)
        return (uint16_t)(sign | 0x7c00u);
    /* A subnormal number of f16. The result is correct also if the value is rounded up to 2^-14. */
    if (magnitude < ldexp(1.0, -14))
        return (uint16_t)(sign | (uint16_t)nearbyint(magnitude * 0x1p24));
    bits &= 0x7fffffffu;
    uint32_t cut = bits & 0x1fffu;
    bits = (bits >> 13) - (112u << 10);
    bits += cut > 0x1000u || (cut == 0x1000u && (bits & 1u));
    return (uint16_t)(sign | bits);
}

static float f16_to(uint16_t half)
{
    int exponent = half >> 10 & 31;
    float mantissa = (float)(half & 1023);
    float value = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                  : exponent == 0 ? mantissa * 0x1p-24f
                                  : ldexpf(mantissa + 1024.0f, exponent - 25);
    return half & 0x8000 ? -value : value;
}

static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40u);
    uint32_t cut = bits & 0xffffu;
    bits >>= 16;
    bits += cut > 0x8000u || (cut == 0x8000u && (bits & 1u));
    return (uint16_t)bits;
}

static float bf16_to(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void bench_encode(tsr_dtype dtype, const float *values, uint64_t count, void *bytes)
{
    if (dtype == TSR_F32) {
        memcpy(bytes, values, count * sizeof *values);
        return;
    }
    uint16_t *halves = bytes;
    for (uint64_t i = 0; i < count; i++)
        halves[i] = dtype == TSR_F16 ? f16_of(values[i]) : bf16_of(values[i]);
}

void bench_decode(tsr_dtype dtype, const void *bytes, uint64_t count, float *values)
{
    if (dtype == TSR_F32) {
        memcpy(values, bytes, count * sizeof *values);
        return;
    }
    const uint16_t *halves = bytes;
    for (uint64_t i = 0; i < count; i++)
        values[i] = dtype == TSR_F16 ? f16_to(halves[i]) : bf16_to(halves[i]);
}
