/* Exact products of two 64-bit integers, as 128-bit integers. */
#ifndef TSR_SHARD_STRATEGY_WIDE_PRODUCT_H
#define TSR_SHARD_STRATEGY_WIDE_PRODUCT_H

#include <stdint.h>

typedef struct tsr__wide {
    uint64_t high, low;
} tsr__wide;

static inline tsr__wide tsr__mul_wide(uint64_t a, uint64_t b)
{
    uint64_t a0 = a & UINT32_MAX, a1 = a >> 32, b0 = b & UINT32_MAX, b1 = b >> 32;
    uint64_t low = a0 * b0, middle = a1 * b0 + (low >> 32), other = a0 * b1 + (middle & UINT32_MAX);
    return (tsr__wide){a1 * b1 + (middle >> 32) + (other >> 32), other << 32 | (low & UINT32_MAX)};
}

/* Returns the sign of a · b − c · d: -1, 0 or 1. */
static inline int tsr__compare_products(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    tsr__wide x = tsr__mul_wide(a, b), y = tsr__mul_wide(c, d);
    if (x.high != y.high)
        return x.high < y.high ? -1 : 1;
    return x.low < y.low ? -1 : x.low > y.low;
}

/* Returns ⌊a · b / c⌋ and writes the remainder of the division to *remainder. b must be at most c,
 * and c must be from 1 to 2^63 − 1. */
static inline uint64_t tsr__mul_div(uint64_t a, uint64_t b, uint64_t c, uint64_t *remainder)
{
    tsr__wide product = tsr__mul_wide(a, b);
    if (product.high == 0) {
        *remainder = product.low % c;
        return product.low / c;
    }
    /* Divide bit by bit, starting with the high word as the remainder. It is less than c, because
     * the quotient is at most a and so fits 64 bits. */
    uint64_t rest = product.high, quotient = 0;
    for (int bit = 63; bit >= 0; bit--) {
        rest = rest << 1 | (product.low >> bit & 1);
        quotient <<= 1;
        if (rest >= c) {
            rest -= c;
            quotient |= 1;
        }
    }
    *remainder = rest;
    return quotient;
}

#endif
