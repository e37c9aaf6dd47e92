#include "tessera/calibrate.h"

double tsr_partition_efficiency(int ranks, const tsr_shard_range *ranges, const double *rates)
{
    double work = 0, rate = 0, longest = 0;
    for (int r = 0; r < ranks; r++) {
        const double units = (double)ranges[r].count;
        if (units > 0 && rates[r] <= 0)
            return 0;
        work += units;
        rate += rates[r];
        if (units > 0 && units / rates[r] > longest)
            longest = units / rates[r];
    }
    return longest > 0 && rate > 0 ? work / longest / rate : 0;
}
