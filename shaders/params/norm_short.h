/* Push constants of the kernel that normalises short rows on Mesa's CPU driver. Strides between
 * rows count bytes. */
#ifndef TSR_PARAMS_NORM_SHORT_H
#define TSR_PARAMS_NORM_SHORT_H

#include "norm.h"

struct tsr_norm_short_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8 */
    TSR_ADDRESS x, dy;    /* their first rows; dy for gradients only */
    TSR_ADDRESS y;        /* the result, the gradient or the statistics */
    TSR_ADDRESS weight, bias;
    TSR_UINT x_row, dy_row, y_row;
    TSR_UINT rows;
    TSR_UINT overlap; /* elements that both halves of a row contain; see norm_short.comp */
    TSR_FLOAT epsilon;
};
TSR_PUSH_CHECK(tsr_norm_short_push);

#endif
