#include "comm/reduce/exact_combine.h"

#include <math.h>

#include "base/float16.h"

#define BLOCK 256 /* number of elements that are summed at a time, in arrays on the stack */
#define LIMBS 34  /* number of 64-bit limbs; the lowest bit of limb 0 stands for 2^−1074 */

/* Elements as doubles -----------------------------------------------------------------------------
 */

static double double_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void load_doubles(tsr_dtype dtype, double *out, const uint8_t *in, size_t start,
                         size_t count)
{
    if (dtype == TSR_F64) {
        memcpy(out, in + start * sizeof *out, count * sizeof *out);
        return;
    }
    if (dtype == TSR_F32) {
        float values[BLOCK];
        memcpy(values, in + start * sizeof *values, count * sizeof *values);
        for (size_t i = 0; i < count; i++)
            out[i] = (double)values[i];
        return;
    }
    uint16_t words[BLOCK];
    memcpy(words, in + start * sizeof *words, count * sizeof *words);
    for (size_t i = 0; i < count; i++)
        out[i] =
            (double)(dtype == TSR_F16 ? tsr__f32_of_f16(words[i]) : tsr__f32_of_bf16(words[i]));
}

/* Rounds to f32 with "round to odd": an inexact result is the neighbour whose last bit is 1.
 * Rounding it again to f16 or bf16 then gives the same value as rounding the original once. */
static float odd_float(double value)
{
    float rounded = (float)value;
    if (!(isfinite(value) && (double)rounded != value))
        return rounded;
    uint32_t bits = tsr__bits_of_f32(rounded);
    if (fabs((double)rounded) > fabs(value))
        bits--;
    return tsr__f32_of_bits(bits | 1u);
}

static void store_rounded(tsr_dtype dtype, uint8_t *out, double value)
{
    if (dtype == TSR_F64) {
        value = value == value ? value : double_of_bits(UINT64_C(0x7ff8000000000000));
        memcpy(out, &value, sizeof value);
    } else if (dtype == TSR_F32) {
        const float single = tsr__tidy_f32((float)value);
        memcpy(out, &single, sizeof single);
    } else {
        const float single = tsr__tidy_f32(odd_float(value));
        const uint16_t half = dtype == TSR_F16 ? tsr__f16_of_f32(single) : tsr__bf16_of_f32(single);
        memcpy(out, &half, sizeof half);
    }
}

/* Sums in integers --------------------------------------------------------------------------------
 */

typedef struct wide {
    uint64_t limbs[LIMBS]; /* an integer in two's complement, lowest limb first */
    bool plus_infinity, minus_infinity, nan, all_minus_zero;
} wide;

static void wide_add_at(wide *sum, size_t limb, uint64_t value)
{
    sum->limbs[limb] += value;
    for (bool carry = sum->limbs[limb] < value; carry && ++limb < LIMBS;)
        carry = ++sum->limbs[limb] == 0;
}

static void wide_subtract_at(wide *sum, size_t limb, uint64_t value)
{
    bool borrow = sum->limbs[limb] < value;
    sum->limbs[limb] -= value;
    while (borrow && ++limb < LIMBS)
        borrow = sum->limbs[limb]-- == 0;
}

static void wide_add(wide *sum, double value)
{
    const uint64_t bits = bits_of_double(value);
    const unsigned exponent = (unsigned)(bits >> 52) & 0x7ff;
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    const bool negative = bits >> 63;
    sum->all_minus_zero = sum->all_minus_zero && bits == UINT64_C(1) << 63;
    if (exponent == 0x7ff) {
        sum->nan = sum->nan || mantissa != 0;
        sum->plus_infinity = sum->plus_infinity || (mantissa == 0 && !negative);
        sum->minus_infinity = sum->minus_infinity || (mantissa == 0 && negative);
        return;
    }
    mantissa |= (uint64_t)(exponent != 0) << 52;
    const unsigned shift = exponent ? exponent - 1 : 0;
    const size_t limb = shift / 64;
    const uint64_t low = mantissa << shift % 64;
    const uint64_t high = shift % 64 ? mantissa >> (64 - shift % 64) : 0;
    (negative ? wide_subtract_at : wide_add_at)(sum, limb, low);
    (negative ? wide_subtract_at : wide_add_at)(sum, limb + 1, high);
}

static bool wide_make_positive(wide *sum)
{
    if (!(sum->limbs[LIMBS - 1] >> 63))
        return false;
    bool carry = true;
    for (size_t i = 0; i < LIMBS; i++) {
        sum->limbs[i] = ~sum->limbs[i] + carry;
        carry = carry && sum->limbs[i] == 0;
    }
    return true;
}

static bool wide_bit(const wide *sum, unsigned bit)
{
    return sum->limbs[bit / 64] >> bit % 64 & 1;
}

static bool wide_any_below(const wide *sum, unsigned bit)
{
    for (unsigned i = 0; i < bit / 64; i++) {
        if (sum->limbs[i])
            return true;
    }
    return bit % 64 && sum->limbs[bit / 64] << (64 - bit % 64);
}

/* Returns the sum, rounded to nearest even. If to_odd is true, rounds to odd instead, because the
 * result will be rounded again. */
static double wide_round(wide *sum, bool to_odd)
{
    if (sum->nan || (sum->plus_infinity && sum->minus_infinity))
        return double_of_bits(UINT64_C(0x7ff8000000000000));
    if (sum->plus_infinity || sum->minus_infinity)
        return sum->plus_infinity ? HUGE_VAL : -HUGE_VAL;
    const uint64_t sign = wide_make_positive(sum) || sum->all_minus_zero ? UINT64_C(1) << 63 : 0;
    unsigned top = LIMBS * 64;
    while (top > 0 && !wide_bit(sum, top - 1))
        top--;
    /* Limb 0 counts multiples of 2^−1074. A multiple of at most 53 bits is also the bit pattern of
     * its value as a double, subnormal or normal. */
    if (top <= 53)
        return double_of_bits(sign | sum->limbs[0]);
    const unsigned shift = top - 53;
    uint64_t mantissa = sum->limbs[shift / 64] >> shift % 64;
    if (shift % 64 && shift / 64 + 1 < LIMBS)
        mantissa |= sum->limbs[shift / 64 + 1] << (64 - shift % 64);
    mantissa &= (UINT64_C(1) << 53) - 1;
    const bool half = wide_bit(sum, shift - 1), rest = wide_any_below(sum, shift - 1);
    if (to_odd)
        mantissa |= half || rest;
    else
        mantissa += half && (rest || (mantissa & 1));
    const uint64_t bits = ((uint64_t)shift << 52) + mantissa;
    const uint64_t infinity = UINT64_C(0x7ff) << 52;
    if (bits >= infinity)
        return double_of_bits(sign | (to_odd ? infinity - 1 : infinity));
    return double_of_bits(sign | bits);
}

static double sum_wide(tsr_dtype dtype, const void *const *inputs, int n, size_t index)
{
    wide sum = {.all_minus_zero = true};
    for (int i = 0; i < n; i++) {
        double value;
        load_doubles(dtype, &value, inputs[i], index, 1);
        wide_add(&sum, value);
    }
    return wide_round(&sum, dtype != TSR_F64);
}

/* Sums in two doubles -----------------------------------------------------------------------------
 */

/* Adds value[i] to the pair high[i] + low[i] for each i < count, by Knuth's error-free addition.
 * lost[i] becomes nonzero if the pair cannot hold the sum exactly. */
static void add_block(double *high, double *low, double *lost, const double *value, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double a = high[i], b = value[i], sum = a + b;
        const double b_in_sum = sum - a, error = (a - (sum - b_in_sum)) + (b - b_in_sum);
        const double c = low[i], rest = c + error;
        const double error_in_rest = rest - c;
        const double missed = (c - (rest - error_in_rest)) + (error - error_in_rest);
        high[i] = sum;
        low[i] = rest;
        lost[i] += fabs(missed);
    }
}

static double to_odd(double high, double low)
{
    uint64_t bits = bits_of_double(high);
    if (low == 0 || (bits & 1))
        return high;
    return double_of_bits((low > 0) == (high > 0) ? bits + 1 : bits - 1);
}

static double round_pair(tsr_dtype dtype, double high, double low)
{
    if (low == 0)
        return high;
    const double sum = high + low, low_in_sum = sum - high;
    const double error = (high - (sum - low_in_sum)) + (low - low_in_sum);
    return dtype == TSR_F64 ? sum : to_odd(sum, error);
}

static void sum_block(tsr_dtype dtype, double *out, const void *const *inputs, int n, size_t start,
                      size_t count)
{
    double value[BLOCK], high[BLOCK], low[BLOCK] = {0}, lost[BLOCK] = {0};
    load_doubles(dtype, high, inputs[0], start, count);
    for (int i = 1; i < n; i++) {
        load_doubles(dtype, value, inputs[i], start, count);
        add_block(high, low, lost, value, count);
    }
    for (size_t i = 0; i < count; i++) {
        out[i] = round_pair(dtype, high[i], low[i]);
        /* Sum again in integers if two doubles were not enough, or if the result is not finite: an
         * intermediate sum may have overflowed. */
        if (!(lost[i] == 0 && isfinite(out[i])))
            out[i] = sum_wide(dtype, inputs, n, start + i);
    }
}

/* Products ----------------------------------------------------------------------------------------
 */

/* Compares two numbers, where −0 is less than +0. */
static bool is_less(double a, double b)
{
    return a < b || (a == b && signbit(a) && !signbit(b));
}

static double sorted_product(tsr_dtype dtype, const void *const *inputs, int n, size_t index)
{
    double sorted[TSR__MAX_EXACT];
    sorted[0] = 1;
    for (int i = 0; i < n; i++) {
        double value;
        int slot = i;
        load_doubles(dtype, &value, inputs[i], index, 1);
        for (; slot > 0 && is_less(value, sorted[slot - 1]); slot--)
            sorted[slot] = sorted[slot - 1];
        sorted[slot] = value;
    }
    double result = sorted[0];
    for (int i = 1; i < n; i++)
        result *= sorted[i];
    return result;
}

void tsr__exact_combine(tsr_dtype dtype, tsr_op op, void *dst, const void *const *inputs, int n,
                        size_t count)
{
    double results[BLOCK];
    uint8_t *out = dst;
    const size_t size = (size_t)tsr__element_size(dtype);
    for (size_t start = 0; start < count; start += BLOCK) {
        const size_t block = count - start < BLOCK ? count - start : BLOCK;
        if (op == TSR_OP_PROD) {
            for (size_t i = 0; i < block; i++)
                results[i] = sorted_product(dtype, inputs, n, start + i);
        } else {
            sum_block(dtype, results, inputs, n, start, block);
        }
        for (size_t i = 0; i < block; i++)
            store_rounded(dtype, out + (start + i) * size, results[i]);
    }
}
