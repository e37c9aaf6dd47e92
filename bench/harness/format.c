#include "bench/harness/format.h"

#include <stdio.h>

char *bench_number(double value, char text[BENCH_NUMBER])
{
    int decimals = value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3;
    for (double limit = 0.1; value > 0 && value < limit && decimals < 6; limit /= 10)
        decimals++;
    /* What a file claims may have any number of digits. */
    snprintf(text, BENCH_NUMBER, value < 1e15 ? "%.*f" : "%.*g", value < 1e15 ? decimals : 3,
             value);
    return text;
}

char *bench_duration(double ns, char text[BENCH_NUMBER])
{
    static const char *const units[] = {"ns", "µs", "ms", "s"};
    size_t unit = 0;
    char digits[BENCH_NUMBER];
    while (unit < 3 && ns >= 1000) {
        ns /= 1000;
        unit++;
    }
    snprintf(text, BENCH_NUMBER, "%.24s %s", bench_number(ns, digits), units[unit]);
    return text;
}

char *bench_percent(double fraction, char text[BENCH_NUMBER])
{
    double percent = 100 * fraction;
    snprintf(text, BENCH_NUMBER, percent < 9.95 ? "%.1f %%" : "%.0f %%",
             percent < 1e12 ? percent : 1e12);
    return text;
}
