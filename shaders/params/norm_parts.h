/* Push constants of normalisation of long rows on Mesa's CPU driver, where a row is worked on in
 * parts: statistics of each chunk, then of each row, then the results. Numbers of bytes lead from
 * row to row. */
#ifndef TSR_PARAMS_NORM_PARTS_H
#define TSR_PARAMS_NORM_PARTS_H

#include "norm.h"
#include "row_parts.h"

/* A chunk's statistics, eight floats: its mean m as far as one float holds it (RMS: 0), Σ(x − m),
 * Σ(x − m)², nothing; for gradients, with g = dy · weight, Σg and Σg·(x − m). A row's: those of
 * norm.h, and for gradients two floats more, the means of g (RMS: 0) and of g times what x is
 * normalised to. */
#define TSR_NORM_CHUNK_BYTES 32u
#define TSR_NORM_SLOPES_BYTES 8u

/* The first and the last of the three kernels. Parts of a row are chunks, or blocks of y. */
struct tsr_norm_parts_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8 */
    TSR_ADDRESS x, dy, y; /* the first rows */
    TSR_ADDRESS weight, bias;
    TSR_ADDRESS stats;  /* of chunks, to be written; or of rows, to be read */
    TSR_ADDRESS slopes; /* of rows */
    TSR_UINT x_row, dy_row, y_row;
    TSR_ROW_PARTS parts;
};
TSR_PUSH_CHECK(tsr_norm_parts_push);

/* The second. */
struct tsr_norm_rows_push {
    TSR_ADDRESS chunks, stats;
    TSR_ADDRESS slopes; /* to be written for gradients only */
    TSR_UINT rows, count;
    TSR_UINT across, chunk; /* chunks of a row, elements of a chunk */
    TSR_FLOAT epsilon;
};
TSR_PUSH_CHECK(tsr_norm_rows_push);

#endif
