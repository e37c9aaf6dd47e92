#include "planner/link.h"

#include <math.h>

tsr__link tsr__link_of(double latency, double bandwidth)
{
    const double large = 1 << 20;
    return (tsr__link){
        .count = 2, .bytes = {0, large}, .seconds = {latency, latency + large / bandwidth}};
}

/* Returns the additional time per byte between sizes i and i + 1 of the link's measurements. It is
 * at least 0, even if noise made the larger message faster. */
static double slope(const tsr__link *link, int i)
{
    const double rise = link->seconds[i + 1] - link->seconds[i];
    return fmax(rise, 0) / (link->bytes[i + 1] - link->bytes[i]);
}

double tsr__link_bandwidth(const tsr__link *link)
{
    const int last = link->count - 1;
    const double per_byte = slope(link, last - 1);
    return per_byte > 0 ? 1 / per_byte : link->bytes[last] / link->seconds[last];
}

double tsr__link_seconds(const tsr__link *link, double bytes)
{
    int i = 0;
    while (i < link->count - 2 && bytes > link->bytes[i + 1])
        i++;
    if (bytes <= link->bytes[0])
        return link->seconds[0];
    if (bytes > link->bytes[link->count - 1])
        return link->seconds[link->count - 1] +
               (bytes - link->bytes[link->count - 1]) / tsr__link_bandwidth(link);
    return link->seconds[i] + (bytes - link->bytes[i]) * slope(link, i);
}
