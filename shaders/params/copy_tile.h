/* Push constants of the transposing copy. */
#ifndef TSR_PARAMS_COPY_TILE_H
#define TSR_PARAMS_COPY_TILE_H

#include "copy.h"

#define TSR_COPY_TILE 32            /* a tile's side, in elements */
#define TSR_COPY_TILE_WORKGROUP 128 /* invocations; every device allows them */

/* dst[i][j][r][c] = src[i][j][c][r] in memory. Neighbours along a row of dst are `source_column`
 * elements apart in src. */
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
