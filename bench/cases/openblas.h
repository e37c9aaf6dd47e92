/* OpenBLAS as a peer for matrix products, because it is the usual choice without a GPU. The library
 * is loaded at run time, and only if the user asks for a peer. So the tool can be built and used
 * without it, and OpenBLAS does not start its threads in other runs. */
#ifndef TSR_BENCH_CASES_OPENBLAS_H
#define TSR_BENCH_CASES_OPENBLAS_H

#include "bench/harness/bench.h"

/* Loads the library. If there is none, returns false and writes the reason to `problem`. */
bool bench_openblas_load(char *problem, size_t size);

/* Returns the version of OpenBLAS, the processor for which its kernels are, and its number of
 * threads. The library must be loaded. */
const char *bench_openblas_name(void);

/* Returns a sentence that says why OpenBLAS is slower than it could be; NULL
 * if no reason is known. */
const char *bench_openblas_warning(void);

/* Computes y[m,n] = x[m,k] · w[n,k]ᵀ. The library must be loaded. */
void bench_openblas_matmul(const bench_shape *shape, const float *x, const float *w, float *y);

#endif
