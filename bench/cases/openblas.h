/* OpenBLAS as a peer, since it is the usual choice without a GPU. It is loaded at run time and only
 * on request, so that the tool does not depend on it or start its threads otherwise. */
#ifndef TSR_BENCH_CASES_OPENBLAS_H
#define TSR_BENCH_CASES_OPENBLAS_H

#include "bench/harness/bench.h"

/* Loads the library. If there is none, returns false and writes the reason to `problem`. */
bool bench_openblas_load(char *problem, size_t size);

/* Its version, the processor that its kernels are for, and its number of threads. Must be
 * loaded. */
const char *bench_openblas_name(void);

/* A sentence that says why it is slower than it could be; NULL: no reason is known. */
const char *bench_openblas_warning(void);

/* Computes y[m,n] = x[m,k] · w[n,k]ᵀ. Must be loaded. */
void bench_openblas_matmul(const bench_shape *shape, const float *x, const float *w, float *y);

#endif
