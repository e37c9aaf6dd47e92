/* The choice of kernels for a plane, and the statistics of rows, for normalisation and its
 * gradients. */
#ifndef TSR_GPU_OPS_NORM_NORM_H
#define TSR_GPU_OPS_NORM_NORM_H

#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/ops/norm/norm_plane.h"

/* Returns which kernels compute `output` (TSR_NORM_…: the result, the statistics, gradients) of a
 * plane of rows. */
tsr__norm_kernels tsr__norm_kernels_of(const tsr__norm *norm, const tsr__norm_plane *plane,
                                       uint32_t output);

/* Adds the dispatches that write the statistics of the plane's rows. Must not be called if
 * TSR__NORM_CHUNKS is chosen for the plane, because norm_chunks_stats then writes the
 * statistics. `partials` is what tsr__norm_partials provides. */
tsr_status tsr__norm_stats_add(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, tsr__buffer *partials,
                               tsr__buffer *stats) TSR_NODISCARD;

/* Requests the scratch memory for the partial results of rows that are divided into segments,
 * enough for any plane, or sets *out to NULL if none is needed. */
tsr_status tsr__norm_partials(const tsr__norm *norm, tsr_stream *stream, uint64_t max_rows,
                              tsr__buffer **out) TSR_NODISCARD;

#endif
