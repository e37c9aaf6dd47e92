/* Push constants of the transposing copy on Mesa's CPU driver: y[r][c] = x[c][r]. */
#ifndef TSR_PARAMS_TRANSPOSE_H
#define TSR_PARAMS_TRANSPOSE_H

#include "vectors.h"

/* The number of columns of a block. A subgroup copies one block: from each column, every lane loads
 * one vector. A block has as many rows as the vectors of all lanes have elements. */
#define TSR_TRANSPOSE_COLUMNS 16u

struct tsr_transpose_push {
    TSR_UINT identity[16];  /* TSR_IDENTITY_16 */
    TSR_ADDRESS y, x;       /* the first elements */
    TSR_ADDRESS x_column;   /* bytes from column to column of x, whose columns are contiguous */
    TSR_UINT y_row;         /* bytes from row to row of y, whose rows are contiguous */
    TSR_UINT rows, columns; /* the rows and columns of y */
    TSR_UINT across;        /* blocks side by side in a row of blocks */
    TSR_UINT magic, shift;  /* to divide by `across`; see params/walk.h */
    /* elements from one matrix to the next; the workgroup's index in y is the number of the
     * matrix */
    TSR_UINT y_plane, x_plane;
};
TSR_PUSH_CHECK(tsr_transpose_push);

#endif
