/* Push constants of the kernel for cross-entropy with classes divided among ranks. */
#ifndef TSR_PARAMS_CROSS_ENTROPY_SHARD_H
#define TSR_PARAMS_CROSS_ENTROPY_SHARD_H

#include "rows.h"

/* Strides between rows, and steps between the classes of a row, count bytes. */
struct tsr_cross_entropy_shard_params {
    TSR_ADDRESS logits, labels, loss, gradient; /* loss and gradient: 0 if not wanted */
    TSR_ADDRESS logits_stride, labels_stride, loss_stride, gradient_stride;
    TSR_ADDRESS logits_step, gradient_step;
    TSR_ADDRESS stats; /* floats [ranks][3][rows], planes `plane_bytes` apart */
    TSR_ADDRESS plane_bytes;
    TSR_UINT rows, here; /* here: classes of this part */
    TSR_UINT first;      /* its first class */
    TSR_UINT classes;    /* of all parts */
    TSR_UINT ranks;
    TSR_UINT label_bytes; /* 1, 4 or 8 */
    TSR_FLOAT scale;      /* of the gradient */
};
TSR_PUSH_CHECK(tsr_cross_entropy_shard_params);

/* What the kernel does, a specialization constant. */
#define TSR_SHARD_STATS 0u /* writes the stats of this part */
#define TSR_SHARD_WHOLE 1u /* reads those of all parts: loss and gradient */

#endif
