/* OpenBLAS as a peer: what someone without a GPU would use. Found at run time, so that the tool
 * neither needs it nor starts its threads unless asked to compare. */
#ifndef TSR_BENCH_OPENBLAS_H
#define TSR_BENCH_OPENBLAS_H

#include "bench/bench.h"

/* Loads it; false with the reason when there is none. */
bool bench_openblas_load(char *problem, size_t size);

/* Its version and thread count. Only after loading, like the next. */
const char *bench_openblas_name(void);

/* y[m,n] = x[m,k] · w[n,k]ᵀ */
void bench_openblas_matmul(const bench_shape *shape, const float *x, const float *w, float *y);

#endif
