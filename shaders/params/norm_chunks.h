/* Push constants of the three kernels that normalise long rows on Mesa's CPU driver. They compute
 * the statistics of each chunk of a row, then those of each row, then the results. Strides between
 * rows count bytes. */
#ifndef TSR_PARAMS_NORM_CHUNKS_H
#define TSR_PARAMS_NORM_CHUNKS_H

#include "norm.h"
#include "row_spans.h"

/* The statistics of a chunk are eight floats. The first four are the chunk's mean m, rounded to a
 * float (0 for RMS), Σ(x − m), Σ(x − m)² and an unused float. The other four are used for gradients
 * only: Σg and Σg·(x − m), where g = dy · weight, and two unused floats. params/norm.h describes
 * the statistics of a row. For gradients, a row also has two floats that are called slopes: the
 * mean of g (0 for RMS) and the mean of g · the normalised x. */
#define TSR_NORM_CHUNK_BYTES 32u
#define TSR_NORM_SLOPES_BYTES 8u

/* The push constants of the first and the third kernel. The spans of a row are chunks in the first
 * kernel, and blocks of y in the third. */
struct tsr_norm_spans_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS x, dy, y; /* their first rows */
    TSR_ADDRESS weight, bias;
    /* The first kernel writes the statistics of chunks; the third reads those of rows. */
    TSR_ADDRESS stats;
    TSR_ADDRESS slopes; /* the slopes of rows; read by the third kernel */
    TSR_UINT x_row, dy_row, y_row;
    TSR_ROW_SPANS spans;
};
TSR_PUSH_CHECK(tsr_norm_spans_push);

/* The push constants of the second kernel. */
struct tsr_norm_rows_push {
    TSR_ADDRESS chunks, stats;
    TSR_ADDRESS slopes; /* written for gradients only */
    TSR_UINT rows, count;
    TSR_UINT across, chunk; /* chunks of a row, elements of a chunk */
    TSR_FLOAT epsilon;
};
TSR_PUSH_CHECK(tsr_norm_rows_push);

#endif
