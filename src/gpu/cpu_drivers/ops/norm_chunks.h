/* Normalisation of long rows without gaps, and its gradients, on Mesa's CPU driver, in three
 * kernels: shaders/cpu_drivers/norm_chunks.comp, norm_rows.comp and norm_apply.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_NORM_CHUNKS_H
#define TSR_GPU_CPU_DRIVERS_OPS_NORM_CHUNKS_H

#include "gpu/ops/norm/norm_plane.h"

/* True if these kernels should compute `output`, one of TSR_NORM_…. */
bool tsr__norm_chunks_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output);

/* The size of the scratch memory for a plane, without the rows' statistics. */
uint64_t tsr__norm_chunks_scratch_bytes(const tsr__norm *norm, const tsr__norm_plane *plane);

/* Adds the dispatches of the first two kernels. `output` is TSR_NORM_STATS or TSR_NORM_GRADIENT.
 * With TSR_NORM_GRADIENT they also write the slopes to `scratch`, which the third kernel then
 * needs. */
tsr_status tsr__norm_chunks_add_stats(tsr__dispatches *list, const tsr__norm *norm,
                                      const tsr__norm_plane *plane, uint32_t output,
                                      tsr__buffer *scratch, tsr__buffer *stats) TSR_NODISCARD;

/* Adds the dispatches of the third kernel, which reads the statistics. `scratch` is used with
 * TSR_NORM_GRADIENT only, and `products`, f32 [rows, columns], with TSR_NORM_PRODUCTS only. */
tsr_status tsr__norm_chunks_add(tsr__dispatches *list, const tsr__norm *norm,
                                const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch,
                                tsr__buffer *stats, tsr__buffer *products) TSR_NODISCARD;

#endif
