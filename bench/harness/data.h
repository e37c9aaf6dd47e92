/* Random operands, and 16-bit elements on the host. Operands are never all zero, since hardware is
 * faster on zeros. */
#ifndef TSR_BENCH_HARNESS_DATA_H
#define TSR_BENCH_HARNESS_DATA_H

#include "tessera/layout.h"

/* Returns the n-th random word of a seed. Words may be taken in any order. */
uint64_t bench_random(uint64_t seed, uint64_t n);

/* Writes values that are uniform in [-1, 1), in steps that `dtype` represents exactly, so that
 * encoding them is exact. */
void bench_random_values(float *values, uint64_t count, tsr_dtype dtype, uint64_t seed);

/* Convert from f32 to elements of f32, f16 or bf16, rounding to nearest even, and back. */
void bench_encode(tsr_dtype dtype, const float *values, uint64_t count, void *bytes);
void bench_decode(tsr_dtype dtype, const void *bytes, uint64_t count, float *values);

/* Returns the largest relative error of rounding to `dtype`: half the distance between
 * neighbours. */
double bench_rounding(tsr_dtype dtype);

#endif
