/* Compares a result with its reference. This must be done before the work is timed. */
#ifndef TSR_BENCH_HARNESS_CHECK_H
#define TSR_BENCH_HARNESS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bench_check {
    const char *method; /* what was compared with what, in words; NULL: nothing was compared */
    uint64_t checked, wrong;
    /* The element whose error is the largest in relation to its tolerance: its value, the expected
     * value, and so on. */
    double got, want, tolerance;
    double excess; /* the error of this element, divided by its tolerance */
    int64_t row, column;
} bench_check;

/* Starts a check in which nothing has been compared yet. `method` says what will be compared with
 * what. */
void bench_check_begin(bench_check *check, const char *method);

/* Compares one element. NaN is wrong unless `want` is NaN. A tolerance of 0 requires equality. */
void bench_check_value(bench_check *check, int64_t row, int64_t column, double got, double want,
                       double tolerance);

/* Returns true if at least one element was compared and none is wrong. Otherwise writes a sentence
 * that says what is wrong. */
bool bench_check_passed(const bench_check *check, char *text, size_t size);

#endif
