#include "tessera/calibrate.h"

#include <math.h>

/* Rates have any unit, also one in which their sum or a time would not fit: they are taken as
 * multiples of a power of two near the largest, which changes no digit. */
double tsr_partition_efficiency(int ranks, const tsr_shard_range *ranges, const double *rates)
{
    double work = 0, rate = 0, longest = 0, largest = 0;
    int exponent = 0;
    for (int r = 0; r < ranks; r++)
        largest = fmax(largest, rates[r]);
    (void)frexp(largest, &exponent);
    for (int r = 0; r < ranks; r++) {
        const double units = (double)ranges[r].count, scaled = ldexp(rates[r], -exponent);
        if (units > 0 && rates[r] <= 0)
            return 0;
        work += units;
        rate += scaled;
        if (units > 0 && units / scaled > longest)
            longest = units / scaled;
    }
    return longest > 0 && rate > 0 ? work / longest / rate : 0;
}
