/* Verifies matrix products y[m,n] = x[m,k] · w[n,k]ᵀ against double precision. */
#ifndef TSR_BENCH_HARNESS_REFERENCE_H
#define TSR_BENCH_HARNESS_REFERENCE_H

#include "bench/harness/bench.h"

/* Verifies a product. `x` and `w` are from bench_random_values, on whose distribution the
 * tolerances depend; `y` is decoded from `y_dtype`; `in_f32` is the same product with an f32
 * result, or NULL if y is f32.
 *
 * Rows are compared element by element with the product in double precision: all rows if that is
 * quick, otherwise the first, the last and some between them. In addition, one check covers all
 * elements of each row of the f32 product (Freivalds): for random signs r, y·r must equal x·(wᵀ·r).
 * It fails if the error of an element is larger than the rounding errors of the row. In a row of
 * f16 or bf16, the rounding errors would hide a wrong element. Therefore each element of such a row
 * is also compared with the f32 product. */
void bench_check_matmul(bench_check *check, const bench_shape *shape, const float *x,
                        const float *w, const float *y, tsr_dtype y_dtype, const float *in_f32);

/* Returns the tolerance of a sum of k products, for any order of addition. */
double bench_matmul_tolerance(int64_t k);

/* Computes the product of x and w with y's shape in f32, as bench_check_matmul requires. *out is
 * new memory for free(); NULL if y is f32 itself. */
tsr_status bench_product_in_f32(bench_context *context, const tsr_tensor *y, const tsr_tensor *x,
                                const tsr_tensor *w, const tsr_matmul_params *params, float **out);

#endif
