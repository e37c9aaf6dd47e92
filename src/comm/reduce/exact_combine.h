/* Reductions whose result depends on the contributions only. It does not depend on their order, on
 * zeros added to a sum, or on factors of one in a product. This file implements SUM, AVG and PROD
 * of floats. All other reductions have this property with any implementation. */
#ifndef TSR_COMM_REDUCE_EXACT_COMBINE_H
#define TSR_COMM_REDUCE_EXACT_COMBINE_H

#include "comm/reduce/reduce.h"

#define TSR__MAX_EXACT TSR_MAX_COMM_SIZE

/* dst[i] = op(inputs[0][i], …, inputs[n − 1][i]), 1 <= n <= TSR__MAX_EXACT. For AVG, only adds. dst
 * may be one of the inputs, or must not overlap any of them.
 *
 * A sum is exact and is rounded once. It is first computed in two doubles, with an error-free
 * addition (D. E. Knuth, The Art of Computer Programming 2, 4.2.2). If two doubles cannot hold the
 * sum exactly, because the exponents of the contributions differ much, it is computed again in an
 * integer of 2,176 bits. A product is computed in f64, beginning with the smallest contribution. */
void tsr__exact_combine(tsr_dtype dtype, tsr_op op, void *dst, const void *const *inputs, int n,
                        size_t count);

#endif
