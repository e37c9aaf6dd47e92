/* A matmul call reduced to arithmetic: sizes, strides and what the epilogue does. No Vulkan here.
 *
 * Normalising folds what views and batch dimensions allow: batch dimensions of size 1 vanish,
 * neighbours that step alike in all operands merge, a batch that shares b becomes more rows of a,
 * and the roles are swapped (yᵀ = op(b)ᵀ·op(a)ᵀ) where that puts y's unit stride on its columns or
 * the short side on its rows. So kernels see few forms. */
#ifndef TSR_GPU_MATMUL_COMMON_PROBLEM_H
#define TSR_GPU_MATMUL_COMMON_PROBLEM_H

#include "tessera/matmul.h"

#define TSR__MATMUL_BATCH (TSR_MAX_DIMS - 2)

/* The largest m, n and k. */
#define TSR__MATMUL_MAX_SIZE INT32_MAX

/* One matrix, strides in elements. Rows and columns of a are m and k, of b k and n, of y and bias m
 * and n. */
typedef struct tsr__matmul_side {
    tsr_dtype dtype;
    int64_t offset; /* of the first element, from the buffer's start */
    int64_t row, col;
    int64_t batch[TSR__MATMUL_BATCH];
} tsr__matmul_side;

typedef struct tsr__matmul_problem {
    int64_t m, n, k; /* k is 0 when alpha is: the product is not looked at then */
    int batch_dims;
    int64_t batch[TSR__MATMUL_BATCH]; /* the two largest last */
    int64_t batch_count;              /* product of the above */
    tsr__matmul_side a, b, y, bias;
    bool swapped; /* a is the caller's b, and so on */
    bool has_bias, accumulate;
    float alpha;
    tsr_activation activation;
} tsr__matmul_problem;

/* Checks shapes and params, which come with bias's layout (or NULL), and normalises. dtypes are the
 * caller's to check. An empty y gives a problem whose m, n or batch_count is 0. */
tsr_status tsr__matmul_problem_init(const tsr_layout *y, const tsr_layout *a, const tsr_layout *b,
                                    const tsr_layout *bias, const tsr_matmul_params *params,
                                    tsr__matmul_problem *out);

static inline int64_t tsr__matmul_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* True if `width` neighbours along a direction of stride 1 can be loaded as one vector from every
 * place that the stride `other` and the batch strides lead to. */
bool tsr__matmul_side_vectors(const tsr__matmul_problem *problem, const tsr__matmul_side *side,
                              int64_t other, int64_t width);

/* True when every element of rows × cols, counted from its first, lies less than 2^31 bytes away.
 */
bool tsr__matmul_side_within(const tsr__matmul_side *side, int64_t rows, int64_t cols);

#endif
