/* Push constants of softmax, its logarithm, their gradients and cross-entropy on Mesa's CPU driver.
 * Three kernels compute the statistics of each chunk of a row, then those of each row, then the
 * results. Strides between rows count bytes. */
#ifndef TSR_PARAMS_SOFTMAX_CHUNKS_H
#define TSR_PARAMS_SOFTMAX_CHUNKS_H

#include "row_parts.h"

/* What is computed, a specialization constant. */
#define TSR_SOFTMAX 0u
#define TSR_SOFTMAX_LOG 1u
#define TSR_SOFTMAX_GRAD 2u     /* from a = softmax(x) and b, the incoming gradient */
#define TSR_SOFTMAX_LOG_GRAD 3u /* from a = log(softmax(x)) and b */
#define TSR_SOFTMAX_LOSS 4u     /* cross-entropy's gradient from a, the logits */

/* A chunk's statistics are two floats: its largest element and the sum of exponentials relative to
 * it. For the gradients of softmax only the second is used; it is the sum that the gradient needs.
 * A row's statistics are four floats: the largest element; the reciprocal of the sum, its
 * logarithm, or the sum itself; and, for cross-entropy, the gradient's factor, and the bits of an
 * integer, which is the label's column or one of the numbers below. */
#define TSR_SOFTMAX_CHUNK_BYTES 8
#define TSR_SOFTMAX_ROW_BYTES 16
#define TSR_SOFTMAX_ELSEWHERE 0xffffffffu /* the label belongs to another rank */
#define TSR_SOFTMAX_IGNORED 0xfffffffeu   /* the gradient is 0 */

/* The first and the third kernel. The parts of a row are chunks, or blocks of y. */
struct tsr_softmax_parts_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8 */
    TSR_ADDRESS a, b, y;  /* the first rows */
    TSR_ADDRESS stats;    /* of chunks, written; or of rows, read */
    TSR_UINT a_row, b_row, y_row;
    TSR_ROW_PARTS parts;
};
TSR_PUSH_CHECK(tsr_softmax_parts_push);

/* softmax_short.comp, one kernel for short rows. */
struct tsr_softmax_short_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8 */
    TSR_ADDRESS a, b, y;  /* the first rows */
    TSR_UINT a_row, b_row, y_row;
    TSR_UINT rows;
    TSR_UINT overlap; /* elements by which a row's two halves overlap */
};
TSR_PUSH_CHECK(tsr_softmax_short_push);

/* The second kernel. It also computes the rest: up to three columns at the end that do not fill a
 * vector. */
struct tsr_softmax_rows_push {
    TSR_ADDRESS chunks, stats; /* [rows][across] of two floats, [rows] of four */
    TSR_ADDRESS a, b, y;       /* the first rows, from the first column of the rest on */
    TSR_UINT a_row, b_row, y_row;
    TSR_UINT rows, across;
    TSR_UINT rest; /* the number of columns of the rest */
};
TSR_PUSH_CHECK(tsr_softmax_rows_push);

#endif
