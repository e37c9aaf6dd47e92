/* Push constants of layer and RMS normalisation, and of their gradients, row by row. */
#ifndef TSR_PARAMS_NORM_H
#define TSR_PARAMS_NORM_H

#include "types.h"

/* The rows of an operand. Row r starts (r / inner) · strides[0] + (r % inner) · strides[1] elements
 * after `at`, and its elements are `step` bytes apart. `inner` is a member of the push constants.
 */
struct tsr_norm_rows {
    TSR_ADDRESS at, step;
    TSR_UINT strides[2];
};

/* The type's name: C needs the word struct, GLSL does not allow it. */
#ifdef __STDC_VERSION__
#define TSR_NORM_ROWS struct tsr_norm_rows
#else
#define TSR_NORM_ROWS tsr_norm_rows
#endif

/* The statistics of a row are four floats: 1 / √(variance + epsilon), the mean as the sum of two
 * floats, and an unused float. A single float is not precise enough for a mean that is large
 * compared with the deviation. For RMS normalisation, both parts of the mean are 0. */
#define TSR_NORM_STATS_BYTES 16u

/* norm.comp. All rows share one weight and one bias. */
struct tsr_norm_push {
    TSR_NORM_ROWS x, y;
    TSR_ADDRESS weight, weight_step;
    TSR_ADDRESS bias, bias_step;
    TSR_ADDRESS stats;    /* the statistics of the first row */
    TSR_ADDRESS partials; /* partial results, if rows are divided into segments */
    TSR_UINT count;       /* elements in a row */
    TSR_UINT rows, inner;
    TSR_FLOAT epsilon;
};
TSR_PUSH_CHECK(tsr_norm_push);

/* What a kernel writes, a specialization constant: */
#define TSR_NORM_RESULT 0u
#define TSR_NORM_STATS 1u
#define TSR_NORM_GRADIENT 2u /* dx; only in norm_short.comp and norm_apply.comp */
#define TSR_NORM_BOTH 4u     /* the result and the statistics; only in norm.comp */
#define TSR_NORM_PRODUCTS 3u /* dy · normalised x, whose sums are dweight; in the same kernels */

/* norm_grad.comp */
struct tsr_norm_grad_params {
    TSR_NORM_ROWS x, dy, dx;
    TSR_ADDRESS weight, weight_step;
    TSR_ADDRESS stats;
    TSR_ADDRESS partials; /* partial results, if rows are divided into segments */
    TSR_ADDRESS added;    /* what is added to dx, with its dtype and strides, if ADDED is 1 */
    TSR_UINT count;
    TSR_UINT rows, inner;
};
TSR_PUSH_CHECK(tsr_norm_grad_params);

/* norm_columns.comp writes a row of f32 sums for each chunk of rows. */
struct tsr_norm_columns_params {
    TSR_NORM_ROWS x, dy;
    TSR_ADDRESS stats;
    TSR_ADDRESS dweight, dbias; /* the sums of the first chunk; 0 if not wanted */
    TSR_UINT count;
    TSR_UINT rows, inner;
};
TSR_PUSH_CHECK(tsr_norm_columns_params);

#define TSR_NORM_CHUNK 32u /* rows in a chunk of norm_columns.comp */

#endif
