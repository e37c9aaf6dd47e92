/* Reductions whose result depends on the contributions only: neither on their order, nor on zeros
 * added to a sum or ones to a product. For SUM, AVG and PROD of floats; all other reductions have
 * that property without this file. */
#ifndef TSR_COMM_REDUCE_EXACT_H
#define TSR_COMM_REDUCE_EXACT_H

#include "comm/reduce/reduce.h"

#define TSR__MAX_EXACT TSR_MAX_COMM_SIZE

/* dst[i] = op(inputs[0][i], …, inputs[n − 1][i]), 1 <= n <= TSR__MAX_EXACT; AVG adds. dst may be
 * one of the inputs, or overlap none.
 *
 * A sum is exact and rounded once. Two doubles hold it while the rounding errors of their additions
 * are zero (D. E. Knuth's error-free addition, The Art of Computer Programming 2, 4.2.2), which
 * is so unless the contributions span a large range; otherwise an integer of 2,176 bits holds it. A
 * product multiplies in f64, the smallest contribution first. */
void tsr__exact_combine(tsr_dtype dtype, tsr_op op, void *dst, const void *const *inputs, int n,
                        size_t count);

#endif
