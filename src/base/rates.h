/* Scales the rates (relative speeds) of ranks. Rates may have any unit. With some units, the sum of
 * the rates, or a number of bytes divided by a rate, would exceed the range of double. Calculations
 * with several rates therefore first divide all rates by a power of two near the largest rate. This
 * division changes no digit. */
#ifndef TSR_BASE_RATES_H
#define TSR_BASE_RATES_H

#include <math.h>

/* Returns the exponent of the power of two near the largest rate. ldexp(rate, -exponent) is then
 * the scaled rate. Returns 0 if `rates` is NULL. */
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
