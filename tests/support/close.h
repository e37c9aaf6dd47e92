/* Allowed differences of floating-point results from references in double precision. */
#ifndef TESTS_SUPPORT_CLOSE_H
#define TESTS_SUPPORT_CLOSE_H

#include <math.h>

#include "support/check_main.h"
#include "tessera/layout.h"

/* Returns the largest change by rounding to the nearest value of `dtype`. The smallest values may
 * become 0. */
static inline double storage_error(double value, tsr_dtype dtype)
{
    double half = dtype == TSR_F32 ? 0x1p-24 : dtype == TSR_F16 ? 0x1p-11 : 0x1p-8;
    return fabs(value) * half + (dtype == TSR_F16 ? 0x1p-25 : 0x1p-127);
}

/* Returns whether a result is close enough. NaN is close to NaN, and an infinity to itself. */
static inline bool is_close(double got, double want, double tolerance)
{
    return isnan(want) ? isnan(got) : got == want || fabs(got - want) <= tolerance;
}

static inline void assert_close(double got, double want, double tolerance, const char *what,
                                int64_t index)
{
    ck_assert_msg(is_close(got, want, tolerance), "%s: element %lld is %.9g, not %.9g (±%.2g)",
                  what, (long long)index, got, want, tolerance);
}

#endif
