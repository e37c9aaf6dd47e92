/* Element-wise reductions on host memory: what a collective does with what has arrived. The same
 * bits on every machine: kernels for the instruction sets of x86 are chosen at run time, and differ
 * in speed only.
 *
 * Every operation commutes bit by bit, since NaN is always the positive quiet one without payload,
 * and −0 is less than +0 for MIN and MAX. Buffers need no alignment. */
#ifndef TSR_COMM_REDUCE_REDUCE_H
#define TSR_COMM_REDUCE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/comm.h"

/* dst[i] = op(a[i], b[i]); dst may be a or b, or overlap neither. AVG adds. */
typedef void (*tsr__combine_fn)(void *dst, const void *a, const void *b, size_t count);
/* data[i] /= divisor: the second half of AVG. 1 <= divisor <= 4096. */
typedef void (*tsr__divide_fn)(void *data, size_t count, uint32_t divisor);

#define TSR__REDUCE_DTYPES 9 /* tsr_dtype indexes tables, 0 is none */
#define TSR__REDUCE_OPS 6    /* so does tsr_op */

typedef struct tsr__kernels {
    const char *name; /* "base", "avx2", "avx512" */
    tsr__combine_fn combine[TSR__REDUCE_DTYPES][TSR__REDUCE_OPS];
    tsr__divide_fn divide[TSR__REDUCE_DTYPES];
} tsr__kernels;

/* The best that this processor has. */
const tsr__kernels *tsr__reduce_kernels(void);
/* For tests and benchmarks: the n-th that is built and that this processor has, or NULL. */
const tsr__kernels *tsr__reduce_kernels_at(int n);

/* 0 for what is no dtype. */
uint64_t tsr__element_size(tsr_dtype dtype);
const char *tsr__element_name(tsr_dtype dtype);
/* "sum", …; "?" for what is no op. */
const char *tsr__op_name(tsr_op op);

#endif
