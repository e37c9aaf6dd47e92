/* References for reductions, computed one element at a time with exact doubles and the
 * processor's rounding, without tessera's own conversions. Tests of communicators check tens of
 * millions of elements. Therefore these functions scale by multiplying by powers of two; frexp
 * and ldexp would take most of the time. */
#ifndef TESTS_COMM_REDUCE_NUMBERS_H
#define TESTS_COMM_REDUCE_NUMBERS_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "comm/reduce/reduce.h"
#include "support/check_main.h"
#include "support/random.h"

static const tsr_dtype all_dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16,
                                       TSR_I32, TSR_U32, TSR_I64, TSR_U8};
#define DTYPES ((int)(sizeof all_dtypes / sizeof all_dtypes[0]))
static const tsr_op all_ops[] = {TSR_OP_SUM, TSR_OP_AVG, TSR_OP_MIN, TSR_OP_MAX, TSR_OP_PROD};
#define OPS ((int)(sizeof all_ops / sizeof all_ops[0]))

static inline bool is_float(tsr_dtype dtype)
{
    return dtype == TSR_F32 || dtype == TSR_F64 || dtype == TSR_F16 || dtype == TSR_BF16;
}

static inline uint64_t size_of(tsr_dtype dtype)
{
    return dtype == TSR_F64 || dtype == TSR_I64                       ? 8
           : dtype == TSR_F32 || dtype == TSR_I32 || dtype == TSR_U32 ? 4
           : dtype == TSR_U8                                          ? 1
                                                                      : 2;
}

/* Gets the explicit mantissa bits and the exponent bias of a float type below 32 bits. */
static inline void format_of(tsr_dtype dtype, int *mantissa, int *bias)
{
    *mantissa = dtype == TSR_F16 ? 10 : 7;
    *bias = dtype == TSR_F16 ? 15 : 127;
}

static inline double double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t bits_of_double(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Returns 2^exponent, for exponents from -1022 to 1023. */
static inline double power_of_two(int exponent)
{
    return double_of((uint64_t)(exponent + 1023) << 52);
}

static inline double float_of(uint64_t bits, tsr_dtype dtype)
{
    if (dtype == TSR_F64)
        return double_of(bits);
    if (dtype == TSR_F32) {
        const uint32_t word = (uint32_t)bits;
        float x;
        memcpy(&x, &word, sizeof x);
        return isnan(x) ? (double)NAN : (double)x;
    }
    int mantissa, bias;
    format_of(dtype, &mantissa, &bias);
    int top = (int)(bits >> mantissa) & (2 * bias + 1);
    uint64_t low = bits & ((UINT64_C(1) << mantissa) - 1);
    double sign = bits >> 15 ? -1 : 1;
    if (top == 2 * bias + 1)
        return low ? (double)NAN : sign * (double)INFINITY;
    if (top == 0)
        return sign * (double)low * power_of_two(1 - bias - mantissa);
    return sign * (double)(low | UINT64_C(1) << mantissa) * power_of_two(top - bias - mantissa);
}

/* Returns the bits of `x` rounded to nearest even. NaN becomes the positive quiet NaN. */
static inline uint64_t bits_of_float(double x, tsr_dtype dtype)
{
    if (dtype == TSR_F64)
        return isnan(x) ? UINT64_C(0x7ff8000000000000) : bits_of_double(x);
    if (dtype == TSR_F32) {
        const float rounded = (float)x;
        uint32_t word;
        memcpy(&word, &rounded, sizeof word);
        return isnan(x) ? 0x7fc00000 : word;
    }
    int mantissa, bias;
    format_of(dtype, &mantissa, &bias);
    uint64_t sign = signbit(x) ? UINT64_C(1) << 15 : 0;
    uint64_t infinity = (uint64_t)(2 * bias + 1) << mantissa;
    if (isnan(x))
        return infinity | UINT64_C(1) << (mantissa - 1);
    if (isinf(x))
        return sign | infinity;
    /* The exponent of x: |x| is in 2^exponent … 2^(exponent + 1), or x is so small that either
     * type rounds it to 0. */
    int exponent = (int)(bits_of_double(x) >> 52 & 0x7ff) - 1023;
    int last = exponent < 1 - bias ? 1 - bias - mantissa : exponent - mantissa;
    double units = fabs(x) * power_of_two(-last);
    units = (units + 0x1p52) - 0x1p52; /* rounded to an integer */
    /* Adding (not or-ing) the mantissa lets a number that is rounded up to the next power of two
     * carry into the exponent. Subnormal numbers have no leading one. */
    uint64_t magnitude = ((uint64_t)(last + bias + mantissa - 1) << mantissa) + (uint64_t)units;
    return sign | (magnitude < infinity ? magnitude : infinity);
}

static inline uint64_t load(const void *data, uint64_t index, tsr_dtype dtype)
{
    uint64_t bits = 0, size = size_of(dtype);
    memcpy(&bits, (const char *)data + index * size, size);
    return bits;
}

static inline void store(void *data, uint64_t index, tsr_dtype dtype, uint64_t bits)
{
    uint64_t size = size_of(dtype);
    memcpy((char *)data + index * size, &bits, size);
}

static inline int64_t integer_of(uint64_t bits, tsr_dtype dtype)
{
    return dtype == TSR_I32 ? (int32_t)(uint32_t)bits : (int64_t)bits;
}

static inline uint64_t cut(uint64_t bits, tsr_dtype dtype)
{
    uint64_t size = size_of(dtype);
    return size == 8 ? bits : bits & ((UINT64_C(1) << 8 * size) - 1);
}

/* Rounds f16 and bf16 to f32 first, as documented. */
static inline uint64_t rounded_through_f32(double x, tsr_dtype dtype)
{
    return bits_of_float(dtype == TSR_F64 ? x : float_of(bits_of_float(x, TSR_F32), TSR_F32),
                         dtype);
}

static inline uint64_t reference_combine(uint64_t a, uint64_t b, tsr_dtype dtype, tsr_op op)
{
    if (!is_float(dtype)) {
        int64_t x = integer_of(a, dtype), y = integer_of(b, dtype);
        switch (op) {
        case TSR_OP_SUM:
        case TSR_OP_AVG:
            return cut(a + b, dtype);
        case TSR_OP_PROD:
            return cut(a * b, dtype);
        case TSR_OP_MIN:
            return x < y ? a : b;
        case TSR_OP_MAX:
            return x < y ? b : a;
        }
        return 0;
    }
    double x = float_of(a, dtype), y = float_of(b, dtype);
    if (isnan(x) || isnan(y))
        return bits_of_float((double)NAN, dtype);
    bool less = x < y || (x == y && signbit(x) && !signbit(y));
    switch (op) {
    case TSR_OP_SUM:
    case TSR_OP_AVG:
        return rounded_through_f32(x + y, dtype);
    case TSR_OP_PROD:
        return rounded_through_f32(x * y, dtype);
    case TSR_OP_MIN:
        return less ? a : b;
    case TSR_OP_MAX:
        return less ? b : a;
    }
    return 0;
}

static inline uint64_t reference_divide(uint64_t a, uint32_t n, tsr_dtype dtype)
{
    if (is_float(dtype))
        return rounded_through_f32(float_of(a, dtype) / n, dtype);
    return cut((uint64_t)(integer_of(a, dtype) / (int64_t)n), dtype);
}

/* Returns random bits, numbers of similar size, or special values: zeros, infinities, NaN with
 * payloads, the smallest and largest numbers, and numbers next to a tie. */
static inline uint64_t random_element(uint64_t *random, tsr_dtype dtype)
{
    static const uint64_t special_f32[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000,
                                           0x7fc00000, 0xffc12345, 0x7f800001, 0x00000001,
                                           0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff,
                                           0xff7fffff, 0x3f800000, 0x33800000};
    uint64_t bits = random_next(random), size = size_of(dtype);
    int64_t what = random_between(random, 0, 9);
    if (!is_float(dtype))
        return what == 0   ? cut(UINT64_C(1) << (8 * size - 1), dtype)
               : what == 1 ? cut(UINT64_MAX, dtype)
                           : cut(bits, dtype);
    if (what < 3)
        return cut(bits, dtype);
    if (what < 4) {
        uint64_t special = special_f32[bits % (sizeof special_f32 / sizeof special_f32[0])];
        /* Converts the special value to the other types. A NaN gets a random sign and payload. */
        if (dtype == TSR_F32)
            return special;
        if (dtype == TSR_BF16)
            return special >> 16;
        double x = float_of(special, TSR_F32);
        uint64_t top = bits_of_float(x, dtype);
        return isnan(x) ? top | (bits & 1) << (8 * size - 1) | (bits >> 8 & 3) : top;
    }
    return bits_of_float(((double)(int64_t)(bits >> 11) * 0x1p-52 - 1) *
                             ldexp(1, (int)random_between(random, -6, 6)),
                         dtype);
}

#endif
