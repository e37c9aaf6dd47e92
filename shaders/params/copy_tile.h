/* Push constants of the transposing copy. */
#ifndef TSR_PARAMS_COPY_TILE_H
#define TSR_PARAMS_COPY_TILE_H

#include "copy.h"

#define TSR_COPY_TILE 32            /* elements of a tile's side */
#define TSR_COPY_TILE_WORKGROUP 128 /* every device allows as many invocations */

/* dst[i][j][r][c] = src[i][j][c][r] in memory: neighbours along a row of dst are `source_column`
 * apart in src. */
struct tsr_copy_tile_params {
    TSR_ADDRESS destination, source;
    TSR_UINT tiles;                  /* workgroups with work */
    TSR_UINT rows, columns;          /* of dst */
    TSR_UINT destination_row;        /* elements from one row of dst to the next; 1 in src */
    TSR_UINT source_column;          /* elements from one column to the next in src; 1 in dst */
    TSR_UINT planes;                 /* size of the inner of the two other dimensions */
    TSR_UINT destination_strides[2]; /* of the other dimensions, outer first */
    TSR_UINT source_strides[2];
};
TSR_PUSH_CHECK(tsr_copy_tile_params);

#endif
