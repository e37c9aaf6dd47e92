/* Comparing a result with its reference before it may be timed. */
#ifndef TSR_BENCH_HARNESS_CHECK_H
#define TSR_BENCH_HARNESS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_check {
    const char *method; /* what was compared with what, in words; NULL: nothing was */
    uint64_t checked, wrong;
    /* Of the element whose error is the largest multiple of its tolerance: */
    double got, want, tolerance;
    double excess; /* that multiple */
    int64_t row, column;
} bench_check;

/* Starts over. */
void bench_check_begin(bench_check *check, const char *method);

/* One element. NaN is wrong unless wanted. A tolerance of 0 wants equality. */
void bench_check_value(bench_check *check, int64_t row, int64_t column, double got, double want,
                       double tolerance);

/* True when something was compared and nothing is wrong. Otherwise writes a sentence. */
bool bench_check_passed(const bench_check *check, char *text, size_t size);

#endif
