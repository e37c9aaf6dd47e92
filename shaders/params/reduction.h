/* Push constants of the reductions that Mesa's CPU driver has kernels of its own for. Rows, or
 * columns, lie in planes; numbers of bytes lead from one to the next. */
#ifndef TSR_PARAMS_REDUCTION_H
#define TSR_PARAMS_REDUCTION_H

#include "types.h"

struct tsr_reduction_push {
    TSR_UINT identity[8];    /* TSR_IDENTITY_8 */
    TSR_ADDRESS x, y;        /* the first elements */
    TSR_ADDRESS step;        /* columns: from an element to the one below */
    TSR_UINT x_row, x_plane; /* from row to row, from plane to plane */
    TSR_UINT y_row, y_plane; /* columns: y_row leads from part to part */
    TSR_UINT count;          /* of elements that are folded */
    TSR_UINT rows;           /* in a plane; or columns */
    TSR_UINT blocks, across; /* in all, and in a plane … */
    TSR_UINT magic, shift;   /* … and how to divide by it; see params/walk.h */
    TSR_UINT accumulate;     /* rows: y += result · scale */
    TSR_FLOAT scale;
};
TSR_PUSH_CHECK(tsr_reduction_push);

#endif
