/* A logarithm whose results have the same bits on every system. The results of the C library's
 * log() differ between systems, and random draws depend on them. */
#ifndef TSR_RNG_LOGARITHM_H
#define TSR_RNG_LOGARITHM_H

#include <stdint.h>
#include <string.h>

/* Returns the natural logarithm of a positive, finite number that is not subnormal. The error is at
 * most a few units in the last place. */
static inline double tsr__logarithm(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(0x3ff0000000000000);
    double mantissa;
    memcpy(&mantissa, &bits, sizeof mantissa);
    if (mantissa > 1.4142135623730951) {
        mantissa /= 2;
        exponent++;
    }
    /* The mantissa's logarithm is 2 · artanh(s), computed with the terms of its series up to s^23.
     * Because |s| < 0.1716, more terms would not change the result. */
    double s = (mantissa - 1) / (mantissa + 1), square = s * s, sum = 0;
    for (int k = 23; k >= 1; k -= 2)
        sum = sum * square + 1.0 / k;
    return exponent * 0.6931471805599453 + 2 * s * sum;
}

#endif
