/* OpenBLAS as a peer: what someone without a GPU would use. Found at run time, so that the tool
 * neither needs it nor starts its threads unless asked to compare. */
#ifndef TSR_BENCH_CASES_OPENBLAS_H
#define TSR_BENCH_CASES_OPENBLAS_H

#include "bench/harness/bench.h"

/* Loads it; false with the reason when there is none. */
bool bench_openblas_load(char *problem, size_t size);

/* Its version, the processor its kernels are for, and its thread count. Only after loading. */
const char *bench_openblas_name(void);

/* Why it is slower than it could be, in a sentence; NULL: no reason known. */
const char *bench_openblas_warning(void);

/* y[m,n] = x[m,k] · w[n,k]ᵀ, only after loading. */
void bench_openblas_matmul(const bench_shape *shape, const float *x, const float *w, float *y);

#endif
