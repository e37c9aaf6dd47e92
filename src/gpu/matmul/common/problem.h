/* A call of tsr_matmul as plain numbers: sizes, strides and the epilogue. This header contains no
 * Vulkan types.
 *
 * Problems are normalised, so that kernels have to support only few forms. Batch dimensions of size
 * 1 are removed. Neighbouring batch dimensions whose strides match in all operands are merged. A
 * batch dimension along which b is the same is turned into more rows of a. The roles of a and b are
 * swapped (yᵀ = op(b)ᵀ·op(a)ᵀ) in two cases: if one side of y is short and y then has fewer rows
 * than columns, or otherwise if y then has contiguous rows. */
#ifndef TSR_GPU_MATMUL_COMMON_PROBLEM_H
#define TSR_GPU_MATMUL_COMMON_PROBLEM_H

#include "tessera/matmul.h"

#define TSR__MATMUL_BATCH (TSR_MAX_DIMS - 2)

/* The largest m, n and k. */
#define TSR__MATMUL_MAX_SIZE INT32_MAX

/* The matrices of one operand; there is one for each batch index. Strides are in elements. a is
 * [m,k], b is [k,n], and y and bias are [m,n]. */
typedef struct tsr__matmul_side {
    tsr_dtype dtype;
    int64_t offset; /* the position of the first element in the buffer, in elements */
    int64_t row, col;
    int64_t batch[TSR__MATMUL_BATCH];
} tsr__matmul_side;

typedef struct tsr__matmul_problem {
    int64_t m, n, k; /* k is 0 if alpha is 0, because a and b are then not read */
    int batch_dims;
    /* the sizes of the batch dimensions; the two largest are last */
    int64_t batch[TSR__MATMUL_BATCH];
    int64_t batch_count; /* the product of batch[] */
    tsr__matmul_side a, b, y, bias;
    bool swapped; /* a is the caller's b, and b is the caller's a */
    bool has_bias, accumulate;
    bool allow_int8;         /* a may be rounded to 8 bits (matmul.h) */
    tsr_precision precision; /* never TSR_PRECISION_DEFAULT */
    /* Narrowed operands (narrowed.h): the number of terms of which a and b consist; 0: the operand
     * is not narrowed. The strides of a narrowed operand are those of its first term. */
    uint32_t a_terms, b_terms;
    float alpha;
    tsr_activation activation;
} tsr__matmul_problem;

/* Checks shapes and params and writes the normalised problem. `bias` is the layout of params->bias,
 * or NULL. The caller must check dtypes. If y is empty, m, n or batch_count of the problem is 0. */
tsr_status tsr__matmul_problem_init(const tsr_layout *y, const tsr_layout *a, const tsr_layout *b,
                                    const tsr_layout *bias, const tsr_matmul_params *params,
                                    tsr__matmul_problem *out);

static inline int64_t tsr__matmul_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* True if any `width` elements that are neighbours along a dimension of stride 1 can be loaded as
 * one vector, that is, if the offset, the batch strides and the stride `other` are multiples of
 * `width`. */
bool tsr__matmul_side_vectors(const tsr__matmul_problem *problem, const tsr__matmul_side *side,
                              int64_t other, int64_t width);

/* True if every element of a block of rows × cols elements is less than 2^31 bytes from the
 * first. */
bool tsr__matmul_side_within(const tsr__matmul_side *side, int64_t rows, int64_t cols);

/* Returns the widest loads of a (TSR_MM_LOAD_…), at most `max_width` elements, 4 or 8, that the
 * problem's strides and alignment allow. */
uint32_t tsr__matmul_a_load(const tsr__matmul_problem *problem, int64_t max_width);
/* The same for b. */
uint32_t tsr__matmul_b_load(const tsr__matmul_problem *problem, int64_t max_width);
/* The same for kernels with tiles in shared memory. m, n and k may be any numbers: the last vector
 * of a line may reach beyond the matrix. It does not leave memory that can be read, because it
 * begins in the matrix at a multiple of its size. */
uint32_t tsr__matmul_a_tile_load(const tsr__matmul_problem *problem, int64_t max_width);
uint32_t tsr__matmul_b_tile_load(const tsr__matmul_problem *problem, int64_t max_width);

/* True if a tile of rows × cols of `side` can be addressed with 32-bit strides and offsets. */
bool tsr__matmul_side_narrow(const tsr__matmul_side *side, int64_t rows, int64_t cols);

/* True if 32-bit offsets can address a tile of at most `bm` × `bn` elements in y and in bias. */
bool tsr__matmul_y_narrow(const tsr__matmul_problem *problem, int64_t bm, int64_t bn);

#endif
