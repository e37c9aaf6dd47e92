/* Push constants of softmax, its logarithm, their gradients and cross-entropy on Mesa's CPU driver.
 * Three kernels compute the statistics of each chunk of a row, then those of each row, then the
 * results. Strides between rows count bytes. */
#ifndef TSR_PARAMS_SOFTMAX_CHUNKS_H
#define TSR_PARAMS_SOFTMAX_CHUNKS_H

#include "row_spans.h"

/* What is computed, a specialization constant. */
#define TSR_SOFTMAX 0u
#define TSR_SOFTMAX_LOG 1u
#define TSR_SOFTMAX_GRAD 2u     /* from a = softmax(x) and b, the incoming gradient */
#define TSR_SOFTMAX_LOG_GRAD 3u /* from a = log(softmax(x)) and b */
#define TSR_SOFTMAX_LOSS 4u     /* cross-entropy's gradient from a, the logits */

/* The statistics of a chunk are two floats: its largest element, and the sum of exponentials
 * relative to that element. For the gradients of softmax, only the second is used: it is the sum
 * that the gradient needs. The statistics of a row are four floats:
 * - the row's largest element;
 * - the reciprocal of the row's sum, its logarithm (TSR_SOFTMAX_LOG), or the sum itself (gradients
 *   of softmax);
 * - for cross-entropy, the factor of the gradient;
 * - for cross-entropy, the bits of an integer: the label's column or one of the numbers below. */
#define TSR_SOFTMAX_CHUNK_BYTES 8
#define TSR_SOFTMAX_ROW_BYTES 16
#define TSR_SOFTMAX_ELSEWHERE 0xffffffffu /* the label belongs to another rank */
#define TSR_SOFTMAX_IGNORED 0xfffffffeu   /* the gradient is 0 */

/* The push constants of the first and the third kernel. The spans of a row are chunks in the first
 * kernel, and blocks of y in the third. */
struct tsr_softmax_spans_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS a, b, y;  /* their first rows */
    /* The first kernel writes the statistics of chunks; the third reads those of rows. */
    TSR_ADDRESS stats;
    TSR_UINT a_row, b_row, y_row;
    TSR_ROW_SPANS spans;
};
TSR_PUSH_CHECK(tsr_softmax_spans_push);

/* The push constants of softmax_short.comp, the only kernel for short rows. */
struct tsr_softmax_short_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS a, b, y;  /* their first rows */
    TSR_UINT a_row, b_row, y_row;
    TSR_UINT rows;
    TSR_UINT overlap; /* elements that both halves of a row contain; see softmax_short.comp */
};
TSR_PUSH_CHECK(tsr_softmax_short_push);

/* The push constants of the second kernel. It also computes the rest of each row: up to three
 * columns at its end that do not fill a vector. */
struct tsr_softmax_rows_push {
    TSR_ADDRESS chunks, stats; /* statistics of chunks [rows][across], and of rows [rows] */
    TSR_ADDRESS a, b, y;       /* the first of these columns in the first row */
    TSR_UINT a_row, b_row, y_row;
    TSR_UINT rows, across;
    TSR_UINT rest; /* the number of columns of the rest */
};
TSR_PUSH_CHECK(tsr_softmax_rows_push);

#endif
