/* Push constants of the transposing copy. */
#ifndef TSR_PARAMS_COPY_TILE_H
#define TSR_PARAMS_COPY_TILE_H

#include "copy.h"

#define TSR_COPY_TILE 32            /* rows and columns of a tile */
#define TSR_COPY_TILE_WORKGROUP 128 /* invocations per workgroup; every device allows this many */

/* The kernel sets dst[i][j][r][c] = src[i][j][c][r]. In memory, both tensors are contiguous along
 * their last index. Rows r and columns c are those of dst. */
struct tsr_copy_tile_params {
    TSR_ADDRESS destination, source;
    TSR_UINT tiles;                  /* the number of tiles; each workgroup copies one */
    TSR_UINT rows, columns;          /* sizes of r and c */
    TSR_UINT destination_row;        /* stride of r in dst, in elements; it is 1 in src */
    TSR_UINT source_column;          /* stride of c in src, in elements; it is 1 in dst */
    TSR_UINT planes;                 /* size of j */
    TSR_UINT destination_strides[2]; /* strides of i and j, in elements */
    TSR_UINT source_strides[2];
};
TSR_PUSH_CHECK(tsr_copy_tile_params);

#endif
