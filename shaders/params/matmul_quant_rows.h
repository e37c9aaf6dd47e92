/* Push constants of matmul_quant_rows.comp and matmul_quant_k.comp. */
#ifndef TSR_PARAMS_MATMUL_QUANT_ROWS_H
#define TSR_PARAMS_MATMUL_QUANT_ROWS_H

#include "types.h"

/* The format of b, a specialization constant. */
#define TSR_QUANT_ROWS_Q8_0 0u
#define TSR_QUANT_ROWS_Q4_0 1u
#define TSR_QUANT_ROWS_Q4_K 2u
#define TSR_QUANT_ROWS_Q5_K 3u
#define TSR_QUANT_ROWS_Q6_K 4u
#define TSR_QUANT_ROWS_MXFP4 5u

/* In grouped products, which have no bias, `bias` is the address of the number of each tile's
 * matrix, and bias_row and bias_col are the low and high word of the bytes from matrix to matrix. y
 * is f32. */
struct tsr_matmul_quant_rows_push {
    TSR_UINT identity[16]; /* TSR_IDENTITY_16 */
    TSR_ADDRESS a, b, y, bias;
    TSR_UINT b_stride;            /* bytes from one row of b to the next */
    TSR_UINT a_row, y_row, y_col; /* strides in elements, like the next two */
    TSR_UINT bias_row, bias_col;
    TSR_UINT m_n; /* the number of rows that this dispatch computes, minus 1, in the upper 4 bits,
                     and the number of columns in the other bits */
    TSR_FLOAT alpha;
};
TSR_PUSH_CHECK(tsr_matmul_quant_rows_push);

/* Push constants of dequantize_vectors.comp and dequantize_k.comp. Strides count bytes. */
struct tsr_dequantize_vectors_push {
    TSR_UINT identity[16];
    TSR_ADDRESS x, y;
    TSR_UINT x_stride, y_stride;
};
TSR_PUSH_CHECK(tsr_dequantize_vectors_push);

#endif
