/* Push constants of the matmul kernels for lavapipe. A dispatch computes sums[i,j] = Σ_k
 * a[i,k]·b[k,j] for some rows and columns and one range of k, or adds these products to the
 * sums. */
#ifndef TSR_PARAMS_MATMUL_CPU_H
#define TSR_PARAMS_MATMUL_CPU_H

#include "types.h"

/* Bits of a workgroup's index in each dimension, and the largest number of workgroups. */
#define TSR_MATMUL_CPU_INDEX_BITS 12
#define TSR_MATMUL_CPU_GROUPS ((1 << TSR_MATMUL_CPU_INDEX_BITS) - 1)

struct tsr_matmul_cpu_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS a, b;
    /* The address of the sums, which are f32 and may be in y. The rows of a matrix of sums are
     * contiguous. If several ranges of k are computed at once, each has a matrix of sums, and
     * these follow one another. With TSR_MM_SLOPE, this is the address of the second result
     * instead. */
    TSR_ADDRESS sums;
    TSR_ADDRESS y; /* the result of the epilogue, if the kernel applies one */
    /* one element for each column or, with TSR_MM_BIAS_ROWS, of y; or a table (BATCHED = 2) */
    TSR_ADDRESS bias;
    /* The number of elements from the start of one stored row to the next. */
    TSR_UINT a_stride, b_stride, sums_stride, y_stride;
    TSR_UINT m, n, k;    /* sizes, counted from the elements at these addresses on */
    TSR_UINT skip;       /* the sums already contain this many products, from the first k on */
    TSR_UINT accumulate; /* 0: ignores the old contents of the sums; otherwise adds to them */
    /* Elements from one matrix to the next. With TSR_MM_BIAS_ROWS there is one matrix, and
     * sums_batch counts the elements from one row of the bias to the next. */
    TSR_UINT a_batch, b_batch, sums_batch, y_batch;
    /* matmul_lavapipe_nt.glsl: if this is not 0, the tiles of rows are divided into blocks of
     * this many tiles; the workgroup's index in z is then the number of the block, and its index
     * in x the number of the tile in the block. */
    TSR_UINT block;
};
TSR_PUSH_CHECK(tsr_matmul_cpu_push);

/* y = act(alpha · sum + y + bias), where the sum is that of the partial sums of all ranges of k,
 * called splits. The mode (params/matmul.h) says which of these terms exist. */
struct tsr_matmul_cpu_finish_push {
    TSR_UINT identity[8];
    TSR_ADDRESS sums, y, bias;
    TSR_UINT sums_row, sums_split; /* elements from one row of partial sums to the next, and from
                                      one split to the next */
    TSR_UINT y_row, y_col;
    TSR_UINT bias_row, bias_col;
    TSR_UINT sums_batch, y_batch, bias_batch;
    TSR_UINT m, n; /* sizes, counted from the elements at these addresses on */
    TSR_FLOAT alpha;
};
TSR_PUSH_CHECK(tsr_matmul_cpu_finish_push);

#endif
