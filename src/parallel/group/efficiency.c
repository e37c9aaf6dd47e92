/* Computes how well a partition uses ranks that have different speeds. */
#include "tessera/calibrate.h"

#include "base/rates.h"

double tsr_partition_efficiency(int ranks, const tsr_shard_range *ranges, const double *rates)
{
    if (ranges == NULL || rates == NULL)
        return 0;
    const int exponent = tsr__rates_exponent(ranks, rates);
    double work = 0, rate = 0, longest = 0;
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
