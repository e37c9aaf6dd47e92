/* Push constants of the cross-entropy kernel. */
#ifndef TSR_PARAMS_CROSS_ENTROPY_H
#define TSR_PARAMS_CROSS_ENTROPY_H

#include "rows.h"

/* Strides are the bytes from one row to the next. Steps are the bytes from one class of a row to
 * the next. */
struct tsr_cross_entropy_params {
    TSR_ADDRESS logits, labels, loss, gradient; /* loss and gradient: 0 if not wanted */
    TSR_ADDRESS logits_stride, labels_stride, loss_stride, gradient_stride;
    TSR_ADDRESS logits_step, gradient_step;
    TSR_ADDRESS partials; /* partial results, if rows are divided into segments */
    TSR_UINT rows, classes;
    TSR_UINT label_bytes; /* the size of a label: 1, 4 or 8 */
    TSR_FLOAT scale;      /* a factor of the gradient */
};
TSR_PUSH_CHECK(tsr_cross_entropy_params);

#endif
