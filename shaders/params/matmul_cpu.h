/* Push constants of the matmul kernels for lavapipe. A dispatch computes a piece of sums[i,j] = Σ_k
 * a[i,k]·b[k,j], or adds to it. */
#ifndef TSR_PARAMS_MATMUL_CPU_H
#define TSR_PARAMS_MATMUL_CPU_H

#include "types.h"

/* Bits of a workgroup's index in each dimension, and the largest number of workgroups. */
#define TSR_MATMUL_CPU_INDEX_BITS 12
#define TSR_MATMUL_CPU_GROUPS ((1 << TSR_MATMUL_CPU_INDEX_BITS) - 1)

struct tsr_matmul_cpu_push {
    TSR_UINT identity[8]; /* 0, 1, … 7 */
    TSR_ADDRESS a, b;
    /* The sums, f32, which may be in y. Their rows, and the matrices of several parts, are
     * contiguous. With TSR_MM_SLOPE, this is the second result. */
    TSR_ADDRESS sums;
    TSR_ADDRESS y;    /* the result of the epilogue, if the kernel applies one */
    TSR_ADDRESS bias; /* one element for each column or, with TSR_MM_BIAS_ROWS, of y */
    /* Elements from one stored row to the next. */
    TSR_UINT a_stride, b_stride, sums_stride, y_stride;
    TSR_UINT m, n, k;    /* sizes, counted from these addresses */
    TSR_UINT skip;       /* the sums already contain this many of the first products */
    TSR_UINT accumulate; /* 0: ignores the old contents of the sums; otherwise adds to them */
    /* Elements from one matrix to the next. With TSR_MM_BIAS_ROWS there is one matrix, and
     * sums_batch counts the elements from one row of the bias to the next. */
    TSR_UINT a_batch, b_batch, sums_batch, y_batch;
    /* matmul_lavapipe_nt.glsl: the number of workgroups in x, or 0. matmul_lavapipe_nn.glsl: 1 if
     * the workgroup's index in x counts tiles of columns, otherwise 0. */
    TSR_UINT block;
};
TSR_PUSH_CHECK(tsr_matmul_cpu_push);

/* y = act(alpha · sums of all parts + y + bias). The mode (params/matmul.h) says which of these
 * terms exist. */
struct tsr_matmul_cpu_finish_push {
    TSR_UINT identity[8];
    TSR_ADDRESS sums, y, bias;
    TSR_UINT sums_row, sums_part; /* strides in elements */
    TSR_UINT y_row, y_col;
    TSR_UINT bias_row, bias_col;
    TSR_UINT sums_batch, y_batch, bias_batch;
    TSR_UINT m, n; /* sizes, counted from these addresses */
    TSR_FLOAT alpha;
};
TSR_PUSH_CHECK(tsr_matmul_cpu_finish_push);

#endif
