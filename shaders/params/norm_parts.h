/* Push constants of the three kernels that normalise long rows on Mesa's CPU driver. They compute
 * the statistics of each chunk of a row, then those of each row, then the results. Strides between
 * rows count bytes. */
#ifndef TSR_PARAMS_NORM_PARTS_H
#define TSR_PARAMS_NORM_PARTS_H

#include "norm.h"
#include "row_parts.h"

/* A chunk's statistics are eight floats. The first four are its mean m, rounded to a float (0 for
 * RMS), Σ(x − m), Σ(x − m)² and an unused one. Gradients also need Σg and Σg·(x − m), where g = dy
 * · weight. A row's statistics are those of norm.h. For gradients it has two more floats, its
 * slopes: the means of g (0 for RMS) and of g · the normalised x. */
#define TSR_NORM_CHUNK_BYTES 32u
#define TSR_NORM_SLOPES_BYTES 8u

/* The first and the third kernel. The parts of a row are chunks, or blocks of y. */
struct tsr_norm_parts_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8 */
    TSR_ADDRESS x, dy, y; /* the first rows */
    TSR_ADDRESS weight, bias;
    TSR_ADDRESS stats;  /* of chunks, written; or of rows, read */
    TSR_ADDRESS slopes; /* of rows */
    TSR_UINT x_row, dy_row, y_row;
    TSR_ROW_PARTS parts;
};
TSR_PUSH_CHECK(tsr_norm_parts_push);

/* The second kernel. */
struct tsr_norm_rows_push {
    TSR_ADDRESS chunks, stats;
    TSR_ADDRESS slopes; /* written for gradients only */
    TSR_UINT rows, count;
    TSR_UINT across, chunk; /* chunks of a row, elements of a chunk */
    TSR_FLOAT epsilon;
};
TSR_PUSH_CHECK(tsr_norm_rows_push);

#endif
