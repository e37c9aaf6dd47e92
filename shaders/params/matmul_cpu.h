/* Push constants of the matmul kernels for CPU drivers: sums[i,j] (+)= Σ_k a[i,k]·b[k,j], one
 * piece of it. */
#ifndef TSR_PARAMS_MATMUL_CPU_H
#define TSR_PARAMS_MATMUL_CPU_H

#include "types.h"

/* Of the numbers of workgroups in a dimension, and how many there may be. */
#define TSR_MATMUL_CPU_INDEX_BITS 12
#define TSR_MATMUL_CPU_GROUPS ((1 << TSR_MATMUL_CPU_INDEX_BITS) - 1)

struct tsr_matmul_cpu_push {
    TSR_UINT identity[8]; /* 0, 1, … 7 */
    TSR_ADDRESS a, b;
    TSR_ADDRESS sums; /* f32, columns one after another, and parts likewise; may be y itself */
    TSR_ADDRESS y;    /* where the last stretch puts what it makes of them, if anything */
    TSR_ADDRESS bias; /* a number for each column */
    TSR_UINT a_stride, b_stride, sums_stride, y_stride; /* elements from line to line, as stored */
    TSR_UINT m, n, k;                                   /* left from these addresses on */
    TSR_UINT skip;                                      /* the first of k, in the sums already */
    TSR_UINT accumulate; /* 0: this piece starts the sums, whatever is there */
    TSR_UINT a_batch, b_batch, sums_batch, y_batch; /* from one matrix to the next */
    TSR_UINT block;                                 /* workgroups in x for each in z */
};
TSR_PUSH_CHECK(tsr_matmul_cpu_push);

/* y = act(alpha · sums of all parts + y + bias), of which the mode (params/matmul.h) says what
 * there is. */
struct tsr_matmul_cpu_finish_push {
    TSR_UINT identity[8];
    TSR_ADDRESS sums, y, bias;
    TSR_UINT sums_row, sums_part; /* strides in elements */
    TSR_UINT y_row, y_col;
    TSR_UINT bias_row, bias_col;
    TSR_UINT sums_batch, y_batch, bias_batch;
    TSR_UINT m, n; /* left from these addresses on */
    TSR_FLOAT alpha;
};
TSR_PUSH_CHECK(tsr_matmul_cpu_finish_push);

#endif
