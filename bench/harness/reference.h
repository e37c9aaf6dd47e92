/* y[m,n] = x[m,k] · w[n,k]ᵀ in double precision, and comparing a result with it. */
#ifndef TSR_BENCH_HARNESS_REFERENCE_H
#define TSR_BENCH_HARNESS_REFERENCE_H

#include "bench/harness/bench.h"

/* `x`, `w` from bench_random_values (the tolerances know their distribution), `y` decoded from
 * `y_dtype`, `in_f32` the same product with a result in f32; NULL where y's is.
 *
 * Rows are compared element by element with the double-precision product: all of them when that is
 * quick, otherwise the first, the last and some between. And every row of the product in f32 is
 * checked as a whole: with random signs r, y·r must equal x·(wᵀ·r) (Freivalds), which an element
 * anywhere upsets that is off by more than the rounding of the row. Of f16 and bf16 that rounding
 * would hide whole elements; so each is compared with its fellow in f32. */
void bench_check_matmul(bench_check *check, const bench_shape *shape, const float *x,
                        const float *w, const float *y, tsr_dtype y_dtype, const float *in_f32);

/* How far an element's sum of k products may be off for the order in which they are added. */
double bench_matmul_tolerance(int64_t k);

#endif
