/* Push constants of cross_entropy_rows.comp, the step of cross-entropy on Mesa's CPU driver that
 * follows softmax_chunks.comp; see params/softmax_chunks.h. */
#ifndef TSR_PARAMS_CROSS_ENTROPY_ROWS_H
#define TSR_PARAMS_CROSS_ENTROPY_ROWS_H

#include "types.h"

struct tsr_cross_entropy_rows_push {
    TSR_ADDRESS chunks, stats;       /* [rows][across] of two floats, [rows] of four */
    TSR_ADDRESS planes, plane_bytes; /* floats [ranks][3][rows]: params/cross_entropy_shard.h */
    TSR_ADDRESS logits, gradient;    /* the first rows; gradient: 0 if not wanted */
    TSR_ADDRESS labels, labels_stride;
    TSR_ADDRESS loss, loss_stride; /* loss: 0 if not wanted */
    TSR_UINT logits_row, gradient_row;
    TSR_UINT rows, across;
    TSR_UINT here, whole;    /* classes of this part, and those in complete vectors */
    TSR_UINT first, classes; /* the first class of this part, and the number in all parts */
    TSR_UINT ranks;
    TSR_UINT label_bytes; /* 1, 4 or 8 */
    TSR_FLOAT scale;      /* of the gradient */
};
TSR_PUSH_CHECK(tsr_cross_entropy_rows_push);

/* What the kernel does, a specialization constant. */
#define TSR_ROWS_ALONE 0u /* all classes are here: from chunks to losses and rows' statistics */
#define TSR_ROWS_PART 1u  /* from chunks to the planes of this part */
#define TSR_ROWS_WHOLE 2u /* from the planes of all parts to losses and rows' statistics */

#endif
