/* Push constants of the matmul kernels: y[i,j] = act(alpha · Σ_k a[i,k]·b[k,j] + y[i,j] +
 * bias[i,j]). */
#ifndef TSR_PARAMS_MATMUL_H
#define TSR_PARAMS_MATMUL_H

#include "types.h"

/* Strides count elements. One dispatch covers two batch dimensions, whose indices are outer and
 * inner: the workgroup's index in z is (outer · batch_inner + inner) · splits + split. A split is a
 * range of k_chunk values of k. If there are several splits, their sums are written as f32 to
 * partial matrices that are m·n elements apart. */
struct tsr_matmul_push {
    TSR_ADDRESS a, b, y, bias;
    TSR_UINT m, n, k;
    TSR_UINT k_chunk;
    TSR_UINT a_row, a_k;
    TSR_UINT b_k, b_col;
    TSR_UINT y_row, y_col;
    TSR_UINT bias_row, bias_col;
    TSR_UINT batch_inner, splits;
    TSR_UINT a_outer, a_inner;
    TSR_UINT b_outer, b_inner;
    TSR_UINT y_outer, y_inner;
    TSR_UINT bias_outer, bias_inner;
    TSR_FLOAT alpha;
    TSR_UINT mode;
};
TSR_PUSH_CHECK(tsr_matmul_push);

/* The push constants of matmul_wide.comp, which computes products whose strides do not fit the
 * struct above. Its strides are 64-bit and count bytes. It has no batch dimensions and no splits.
 */
struct tsr_matmul_wide_push {
    TSR_ADDRESS a, b, y, bias;
    TSR_ADDRESS a_row, a_k;
    TSR_ADDRESS b_k, b_col;
    TSR_ADDRESS y_row, y_col;
    TSR_ADDRESS bias_row, bias_col;
    TSR_UINT m, n, k;
    TSR_FLOAT alpha;
    TSR_UINT mode;
};
TSR_PUSH_CHECK(tsr_matmul_wide_push);

/* In products that normalise a (matmul_norm.glsl), which have no batch dimensions, these members
 * hold the address of the norm's weight and the bits of epsilon. */
#define TSR_MM_NORM_LOW a_outer
#define TSR_MM_NORM_HIGH a_inner
#define TSR_MM_NORM_EPSILON b_outer

/* In products with a second matrix besides y, which have no batch dimensions, these members hold
 * its address. Its dtype and strides are those of y. */
#define TSR_MM_OTHER_LOW y_outer
#define TSR_MM_OTHER_HIGH y_inner

/* In products that also add up the rows of a, which have no batch dimensions, these members hold
 * the address of the sums: f32 [m], or [splits, m]. */
#define TSR_MM_ROW_SUMS_LOW a_outer
#define TSR_MM_ROW_SUMS_HIGH a_inner

/* Fields of `mode`. */
#define TSR_MM_ACCUMULATE 1u
#define TSR_MM_BIAS 2u
/* If one of these is set, neighbouring invocations load neighbouring rows of a, or neighbouring
 * columns of b. Otherwise they load neighbouring values of k. */
#define TSR_MM_A_LANES_ROW 4u
#define TSR_MM_B_LANES_COL 8u
#define TSR_MM_Y_DTYPE_SHIFT 4u
#define TSR_MM_BIAS_DTYPE_SHIFT 8u
#define TSR_MM_ACTIVATION_SHIFT 12u
#define TSR_MM_FIELD_MASK 15u
/* Each group of four columns of y, from a column that is a multiple of 4, is one aligned vector,
 * and n is a multiple of 4. Only modes that are specialization constants have this flag. */
#define TSR_MM_Y_VECTORS (1u << 16)
/* The bias is a matrix with the shape of y instead of one row. Only the kernels for lavapipe
 * support this. */
#define TSR_MM_BIAS_ROWS (1u << 17)
/* Flags of matmul_lavapipe_nn.glsl, and of kernels that define MM_FUSED (matmul_common.glsl).
 * TIMES: y is multiplied by the bias instead of adding it. SLOPE: the derivative of the activation
 * is a second result, with the strides of y. */
#define TSR_MM_TIMES (1u << 18)
#define TSR_MM_SLOPE (1u << 19)
/* Flags of matmul_coopmat.glsl only. The rows of a, or the columns of b, were narrowed: they are
 * lines of the form below, and their sums are multiplied by the scales of the lines. */
#define TSR_MM_A_SCALES (1u << 20)
#define TSR_MM_B_SCALES (1u << 21)
/* Flag of kernels that define MM_FUSED: another matrix is added to y after the activation. */
#define TSR_MM_ADDED (1u << 22)
/* Flag of matmul_tiled.glsl with loads TSR_MM_LOAD_VEC_LINE of a, and of matmul_sum.comp: the sum
 * of each row of a over k is another result, which TSR_MM_ACCUMULATE adds to what is there. */
#define TSR_MM_ROW_SUMS (1u << 23)
/* This value of a specialization constant means that the mode is in the push constants. */
#define TSR_MM_MODE_PUSHED 0xffffffffu

/* How a tile of a or b is loaded, a specialization constant. */
#define TSR_MM_LOAD_SCALAR 0u /* any strides, one element at a time */
/* Four neighbours along k. The stride of k is 1; the offset and all other strides are multiples
 * of 4. Of kernels with tiles in shared memory, these loads and the following ones may reach beyond
 * the matrix, but begin in it. */
#define TSR_MM_LOAD_VEC_K 1u
/* At one k, elements of four neighbouring rows of a, or of four neighbouring columns of b. */
#define TSR_MM_LOAD_VEC_LINE 2u
#define TSR_MM_LOADS 3
/* The following loads are for cooperative matrices only. Their tiles in shared memory are
 * contiguous along k, or from line to line, where a line is a row of a or a column of b. SCALAR
 * loads one element at a time along k, and SCALAR_LINE from line to line. */
#define TSR_MM_LOAD_SCALAR_LINE 3u
/* Eight neighbours of 16 bits along k, or from line to line. The offset and all other strides are
 * multiples of 8. */
#define TSR_MM_LOAD_VEC8_K 4u
#define TSR_MM_LOAD_VEC8_LINE 5u
#define TSR_MM_COOPMAT_LOADS 6

/* A narrowed line is a row of a or a column of b as 16-bit terms, whose sum times the line's scale
 * is the line. First come all elements of the first term, then those of the second one. A term has
 * k elements, and zeros up to a multiple of TSR_MM_TERM_UNIT. After the last term come
 * TSR_MM_TERM_UNIT elements that begin with the scale, an f32. */
#define TSR_MM_TERM_UNIT 8u

/* The push constants of matmul_narrow.comp and matmul_narrow_blocks.comp, which narrow lines. */
struct tsr_matmul_narrow_push {
    TSR_ADDRESS x, y;
    TSR_ADDRESS x_line; /* bytes from one line of x to the next */
    TSR_UINT x_k;       /* bytes from one element of a line of x to the next; not for blocks */
    TSR_UINT lines, k;
    TSR_FLOAT epsilon;  /* of the norm; not for blocks */
    TSR_ADDRESS weight; /* of the norm, at a multiple of four elements; not for blocks */
    TSR_ADDRESS up;     /* multiplied by the activation of x, with x's strides; not for blocks */
};
TSR_PUSH_CHECK(tsr_matmul_narrow_push);

/* Unused elements between the rows of a tile for cooperative matrices. */
#define TSR_MM_COOPMAT_PAD 8u

#endif
