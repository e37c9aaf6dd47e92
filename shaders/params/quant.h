/* How a block format is described to shaders, and the push constants of kernels that read
 * blocks. The description is the format's row in the table of formats (src/quant/block_formats.c),
 * packed into five specialization constants. */
#ifndef TSR_PARAMS_QUANT_H
#define TSR_PARAMS_QUANT_H

#include "types.h"

#define TSR_QUANT_SPECS 5
/* The five constants, with the members of tsr__quant_format (src/quant/block_format.h) of which
 * they consist: 0: low.offset, low.bits << 8, low.run << 16 1: the same for `high`; 0 if there is
 * no high plane 2: block_count, block_bytes << 16 3: sub, bias << 8, code << 16, scales << 24 4:
 * factor_offset, min_offset << 8, scales_offset << 16 */

/* The values of tsr__quant_code. src/gpu/quant/dequantize.c asserts that both lists agree. */
#define TSR_QUANT_LINEAR 0u
#define TSR_QUANT_SIGNED 1u
#define TSR_QUANT_NL 2u
#define TSR_QUANT_E2M1 3u
#define TSR_QUANT_IQ2_XXS 4u
#define TSR_QUANT_IQ2_XS 5u
#define TSR_QUANT_IQ2_S 6u
#define TSR_QUANT_IQ3_XXS 7u
#define TSR_QUANT_IQ3_S 8u
#define TSR_QUANT_TERNARY 9u

/* The values of tsr__quant_scales. */
#define TSR_QUANT_F16 0u
#define TSR_QUANT_F16_MIN 1u
#define TSR_QUANT_E8M0 2u
#define TSR_QUANT_UE4M3 3u
#define TSR_QUANT_4_4 4u
#define TSR_QUANT_6_6 5u
#define TSR_QUANT_S6 6u
#define TSR_QUANT_S6_SPLIT 7u
#define TSR_QUANT_S8 8u
#define TSR_QUANT_ODD 9u
#define TSR_QUANT_ODD_HIGH 10u

/* Rows of blocks become rows of floats. Rows are numbered in three dimensions, the last of which
 * varies fastest. Strides count bytes. If `index_bytes` is not 0, row i of y is the row of x whose
 * number, counted from `first`, is at `indices` + i · indices_stride, or zeros if x does not have
 * it; x then has `here` rows, and only the last dimension is used. */
struct tsr_dequantize_params {
    TSR_ADDRESS x, y, indices;
    TSR_ADDRESS x_strides[3], y_strides[3];
    TSR_ADDRESS indices_stride;
    TSR_ADDRESS y_step; /* bytes from one element of a row to the next */
    TSR_UINT rows;      /* the number of rows of this dispatch */
    TSR_UINT row_begin; /* the number of the first of these rows */
    TSR_UINT size[2];   /* the sizes of the last two dimensions */
    TSR_UINT width;     /* elements of a row */
    TSR_UINT first, here;
    TSR_UINT index_bytes;
};
TSR_PUSH_CHECK(tsr_dequantize_params);

#endif
