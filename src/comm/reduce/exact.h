/* Reductions whose result depends on the contributions alone: not on their order, nor on zeros
 * added to a sum or ones to a product. For floats, SUM and PROD only; the rest is like that
 * anyway. */
#ifndef TSR_COMM_REDUCE_EXACT_H
#define TSR_COMM_REDUCE_EXACT_H

#include "comm/reduce/reduce.h"

#define TSR__MAX_EXACT TSR_MAX_COMM_SIZE

/* dst[i] = op(inputs[0][i], …, inputs[n − 1][i]), 1 <= n <= TSR__MAX_EXACT; AVG adds. dst may be
 * one of the inputs, or overlap none.
 *
 * A sum is exact, and rounded once: two doubles hold it while their rounding errors are zero (the
 * error-free addition is D. E. Knuth's, The Art of Computer Programming 2, 4.2.2), which they are
 * unless the contributions span a great range; else an integer of 2,176 bits does. A product
 * multiplies in f64, the smallest contribution first. */
void tsr__exact_combine(tsr_dtype dtype, tsr_op op, void *dst, const void *const *inputs, int n,
                        size_t count);

#endif
