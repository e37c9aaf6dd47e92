/* A matmul call reduced to arithmetic: sizes, strides and the epilogue. Contains no Vulkan.
 *
 * Problems are normalised so that kernels see few forms: batch dimensions of size 1 are removed;
 * neighbouring batch dimensions with matching strides in all operands are merged; a batch that
 * shares b becomes more rows of a; and the roles of a and b are swapped (yᵀ = op(b)ᵀ·op(a)ᵀ) if
 * that gives y contiguous rows, or fewer rows than columns if one side is short. */
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
    int64_t offset; /* of the first element from the buffer's start, in elements */
    int64_t row, col;
    int64_t batch[TSR__MATMUL_BATCH];
} tsr__matmul_side;

typedef struct tsr__matmul_problem {
    int64_t m, n, k; /* k is 0 if alpha is: a and b are not read then */
    int batch_dims;
    int64_t batch[TSR__MATMUL_BATCH]; /* the two largest last */
    int64_t batch_count;              /* product of the above */
    tsr__matmul_side a, b, y, bias;
    bool swapped; /* a is the caller's b, and b its a */
    bool has_bias, accumulate;
    float alpha;
    tsr_activation activation;
} tsr__matmul_problem;

/* Checks shapes and params and writes the normalised problem. `bias` is the layout of params->bias,
 * or NULL. The caller checks dtypes. An empty y gives a problem whose m, n or batch_count is 0. */
tsr_status tsr__matmul_problem_init(const tsr_layout *y, const tsr_layout *a, const tsr_layout *b,
                                    const tsr_layout *bias, const tsr_matmul_params *params,
                                    tsr__matmul_problem *out);

static inline int64_t tsr__matmul_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* True if `width` neighbours along a direction of stride 1 can be loaded as one vector everywhere:
 * offset, batch strides and the stride `other` are multiples of `width`. */
bool tsr__matmul_side_vectors(const tsr__matmul_problem *problem, const tsr__matmul_side *side,
                              int64_t other, int64_t width);

/* True if every element of rows × cols elements lies less than 2^31 bytes from the first. */
bool tsr__matmul_side_within(const tsr__matmul_side *side, int64_t rows, int64_t cols);

#endif
