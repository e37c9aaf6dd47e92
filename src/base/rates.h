/* Rates have any unit, also one in which their sum, or a time, would not fit a double: what is
 * worked out from several takes them as multiples of a power of two near the largest, which changes
 * no digit. */
#ifndef TSR_BASE_RATES_H
#define TSR_BASE_RATES_H

#include <math.h>

/* That power; ldexp(rate, -exponent) is the multiple. 0 where there are no rates. */
static inline int tsr__rates_exponent(int ranks, const double *rates)
{
    double largest = 0;
    int exponent = 0;
    for (int r = 0; r < ranks && rates; r++)
        largest = fmax(largest, rates[r]);
    (void)frexp(largest, &exponent);
    return exponent;
}

#endif
