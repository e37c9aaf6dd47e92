/* Element-wise reductions in host memory. Results have the same bits on every machine. There are
 * kernels for several instruction sets of x86, of which one is chosen at run time; they differ in
 * speed only.
 *
 * Every operation is commutative, bit for bit. A NaN in a result is always the positive quiet NaN
 * without payload. For MIN and MAX, −0 is less than +0. Buffers need no alignment. */
#ifndef TSR_COMM_REDUCE_REDUCE_H
#define TSR_COMM_REDUCE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/comm.h"

/* dst[i] = op(a[i], b[i]). dst may be a or b, or must not overlap either. For AVG, only adds. */
typedef void (*tsr__combine_fn)(void *dst, const void *a, const void *b, size_t count);
/* data[i] /= divisor, the last step of an AVG. 1 <= divisor <= 4096. */
typedef void (*tsr__divide_fn)(void *data, size_t count, uint32_t divisor);

#define TSR__REDUCE_DTYPES 9 /* size of tables indexed by tsr_dtype, which starts at 1 */
#define TSR__REDUCE_OPS 6    /* size of tables indexed by tsr_op */

typedef struct tsr__kernels {
    const char *name; /* "base", "avx2" or "avx512" */
    tsr__combine_fn combine[TSR__REDUCE_DTYPES][TSR__REDUCE_OPS];
    tsr__divide_fn divide[TSR__REDUCE_DTYPES];
} tsr__kernels;

/* The tables of kernels, one for each instruction set that this build supports. */
extern const tsr__kernels tsr__kernels_base, tsr__kernels_avx2, tsr__kernels_avx512;

/* Returns the fastest kernels that this processor supports. */
const tsr__kernels *tsr__reduce_kernels(void);
/* Returns the n-th table among those that are built and that this processor supports, or NULL. For
 * tests and benchmarks. */
const tsr__kernels *tsr__reduce_kernels_at(int n);

/* Returns the size of an element in bytes, or 0 for an invalid dtype. */
uint64_t tsr__element_size(tsr_dtype dtype);
const char *tsr__element_name(tsr_dtype dtype);
/* Returns a name such as "sum", or "?" for an invalid op. */
const char *tsr__op_name(tsr_op op);

#endif
