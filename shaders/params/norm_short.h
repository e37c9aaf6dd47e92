/* Push constants of normalisation of short rows on Mesa's CPU driver. Numbers of bytes lead from
 * row to row. */
#ifndef TSR_PARAMS_NORM_SHORT_H
#define TSR_PARAMS_NORM_SHORT_H

#include "norm.h"

struct tsr_norm_short_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8 */
    TSR_ADDRESS x, dy;    /* the first rows; dy of the gradient only */
    TSR_ADDRESS y;        /* of the result or the gradient; or the first row's statistics */
    TSR_ADDRESS weight, bias;
    TSR_UINT x_row, dy_row, y_row;
    TSR_UINT rows;
    TSR_UINT overlap; /* elements that the second half of a row's units starts early */
    TSR_FLOAT epsilon;
};
TSR_PUSH_CHECK(tsr_norm_short_push);

#endif
