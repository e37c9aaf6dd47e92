/* Scales the rates of ranks. Rates may have any unit, even one in which their sum or a time would
 * not fit a double. Calculations with several rates therefore divide them by a power of two near
 * the largest, which changes no digit. */
#ifndef TSR_BASE_RATES_H
#define TSR_BASE_RATES_H

#include <math.h>

/* Returns the exponent of that power of two: ldexp(rate, -exponent) is the scaled rate. Returns 0
 * if `rates` is NULL. */
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
