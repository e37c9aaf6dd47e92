/* Element-wise reductions in host memory. Results have the same bits on every machine: the kernels
 * for the instruction sets of x86, one of which is chosen at run time, differ in speed only.
 *
 * Every operation is commutative, bit for bit: a NaN in a result is always the positive quiet NaN
 * without payload, and −0 is less than +0 for MIN and MAX. Buffers need no alignment. */
#ifndef TSR_COMM_REDUCE_REDUCE_H
#define TSR_COMM_REDUCE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/comm.h"

/* dst[i] = op(a[i], b[i]); dst may be a or b, or overlap neither. AVG adds. */
typedef void (*tsr__combine_fn)(void *dst, const void *a, const void *b, size_t count);
/* data[i] /= divisor, which completes an AVG. 1 <= divisor <= 4096. */
typedef void (*tsr__divide_fn)(void *data, size_t count, uint32_t divisor);

#define TSR__REDUCE_DTYPES 9 /* sizes of tables indexed by tsr_dtype, of which 0 is unused … */
#define TSR__REDUCE_OPS 6    /* … and by tsr_op */

typedef struct tsr__kernels {
    const char *name; /* "base", "avx2", "avx512" */
    tsr__combine_fn combine[TSR__REDUCE_DTYPES][TSR__REDUCE_OPS];
    tsr__divide_fn divide[TSR__REDUCE_DTYPES];
} tsr__kernels;

/* The fastest that this processor supports. */
const tsr__kernels *tsr__reduce_kernels(void);
/* The n-th that is built and that this processor supports, or NULL. For tests and benchmarks. */
const tsr__kernels *tsr__reduce_kernels_at(int n);

/* In bytes; 0 for an invalid dtype. */
uint64_t tsr__element_size(tsr_dtype dtype);
const char *tsr__element_name(tsr_dtype dtype);
/* "sum", …; "?" for an invalid op. */
const char *tsr__op_name(tsr_op op);

#endif
