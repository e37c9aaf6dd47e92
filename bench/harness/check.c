#include "bench/harness/check.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

void bench_check_begin(bench_check *check, const char *method)
{
    *check = (bench_check){.method = method, .excess = -1};
}

void bench_check_value(bench_check *check, int64_t row, int64_t column, double got, double want,
                       double tolerance)
{
    double error = fabs(got - want);
    bool same = got == want || (isnan(got) && isnan(want));
    double excess = same ? 0 : tolerance > 0 ? error / tolerance : INFINITY;
    if (isnan(excess))
        excess = INFINITY;
    check->checked++;
    check->wrong += excess > 1;
    if (excess <= check->excess)
        return;
    check->excess = excess;
    check->got = got;
    check->want = want;
    check->tolerance = tolerance;
    check->row = row;
    check->column = column;
}

bool bench_check_passed(const bench_check *check, char *text, size_t size)
{
    if (check->method == NULL || check->checked == 0) {
        snprintf(text, size, "it was not verified");
        return false;
    }
    if (check->wrong == 0)
        return true;
    snprintf(text, size,
             "verification failed: %" PRIu64 " of %" PRIu64
             " values are wrong (%s); the worst, at row %" PRId64 ", column %" PRId64
             ", is %.9g instead of %.9g, with a tolerance of %.3g",
             check->wrong, check->checked, check->method, check->row, check->column, check->got,
             check->want, check->tolerance);
    return false;
}
