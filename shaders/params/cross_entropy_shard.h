/* Push constants of the kernel for cross-entropy with classes divided among ranks. */
#ifndef TSR_PARAMS_CROSS_ENTROPY_SHARD_H
#define TSR_PARAMS_CROSS_ENTROPY_SHARD_H

#include "rows.h"

/* Strides are the bytes from one row to the next. Steps are the bytes from one class of a row to
 * the next.
 *
 * `stats` are three planes of f32 [rows] for each rank. They hold the largest logit of each row
 * among the rank's classes, the sum of exponentials relative to that logit (or to 0 if the logit is
 * -inf), and the label's logit (0 if the label is not among the rank's classes).
 *
 * While statistics are computed, `loss` is the address of the partial results if rows are divided
 * into segments. */
struct tsr_cross_entropy_shard_params {
    TSR_ADDRESS logits, labels, loss, gradient; /* loss and gradient: 0 if not wanted */
    TSR_ADDRESS logits_stride, labels_stride, loss_stride, gradient_stride;
    TSR_ADDRESS logits_step, gradient_step;
    TSR_ADDRESS stats;       /* f32 [ranks][3][rows] */
    TSR_ADDRESS plane_bytes; /* bytes from one plane to the next */
    TSR_UINT rows, here;     /* here: the number of this rank's classes */
    TSR_UINT first;          /* the first of this rank's classes */
    TSR_UINT classes;        /* the number of all ranks' classes */
    TSR_UINT ranks;
    TSR_UINT label_bytes; /* the size of a label: 1, 4 or 8 */
    TSR_FLOAT scale;      /* a factor of the gradient */
};
TSR_PUSH_CHECK(tsr_cross_entropy_shard_params);

/* What the kernel does, a specialization constant. */
#define TSR_SHARD_STATS 0u /* computes the statistics of this rank's part of each row */
#define TSR_SHARD_WHOLE 1u /* computes loss and gradient from the stats of all ranks */

#endif
