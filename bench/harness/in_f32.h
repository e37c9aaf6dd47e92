/* A product as bench_check_matmul wants it beside one of 16 bits. */
#ifndef TSR_BENCH_HARNESS_IN_F32_H
#define TSR_BENCH_HARNESS_IN_F32_H

#include "bench/harness/bench.h"

/* The product of x and w, with y's shape but in f32, into new memory at *out, the caller's to free;
 * where y is in f32 itself, none is needed and *out is NULL. */
tsr_status bench_product_in_f32(bench_context *context, const tsr_tensor *y, const tsr_tensor *x,
                                const tsr_tensor *w, const tsr_matmul_params *params, float **out);

#endif
