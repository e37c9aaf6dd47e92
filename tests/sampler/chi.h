/* Tests whether a table of counts is compatible with chance. */
#ifndef TESTS_SAMPLER_CHI_H
#define TESTS_SAMPLER_CHI_H

#include <math.h>
#include <stdint.h>

#include "support/check_main.h"

/* Returns Pearson's statistic for cells that are all expected to hold `expected`. */
static inline double chi_square(const uint32_t *counts, uint64_t cells, double expected)
{
    double sum = 0;
    for (uint64_t i = 0; i < cells; i++)
        sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    return sum;
}

/* Returns by how many standard deviations the statistic is above its expectation, by Wilson and
 * Hilferty's approximation. A value above 3.09 has a probability of 0.001. */
static inline double chi_deviation(double statistic, double freedom)
{
    double part = 2 / (9 * freedom);
    return (cbrt(statistic / freedom) - (1 - part)) / sqrt(part);
}

/* Requires that the counts are neither too uneven nor too even: each has a probability of 0.0005 if
 * the counts are random. */
#define ck_assert_chance(statistic, freedom)                                                       \
    do {                                                                                           \
        double ck_deviation_ = chi_deviation(statistic, freedom);                                  \
        if (!(fabs(ck_deviation_) < 3.29))                                                         \
            ck_abort_msg("%s is %.1f standard deviations off", #statistic, ck_deviation_);         \
    } while (0)

#endif
