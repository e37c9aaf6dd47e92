/* Push constants of the kernels that reduce rows or columns on Mesa's CPU driver. A plane is a
 * matrix of rows or columns, and a block is the rows or columns of a plane that one subgroup
 * reduces. All strides count bytes. */
#ifndef TSR_PARAMS_REDUCTION_H
#define TSR_PARAMS_REDUCTION_H

#include "types.h"

struct tsr_reduction_push {
    TSR_UINT identity[8];    /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS x, y;        /* the first elements */
    TSR_ADDRESS step;        /* reduction_columns.comp: stride from row to row */
    TSR_UINT x_row, x_plane; /* strides between rows and between planes */
    TSR_UINT y_row, y_plane; /* strides between rows and between planes; in reduction_columns.comp,
                                y_row is the stride between the partial results of a column */
    TSR_UINT count;          /* elements of a row or column */
    TSR_UINT rows;           /* rows or columns of a plane */
    TSR_UINT blocks, across; /* the number of blocks in all planes, and in one plane */
    TSR_UINT magic, shift;   /* to divide by `across`; see params/walk.h */
    TSR_UINT accumulate;     /* reduction_rows.comp: y += result · scale */
    TSR_FLOAT scale;
};
TSR_PUSH_CHECK(tsr_reduction_push);

#endif
