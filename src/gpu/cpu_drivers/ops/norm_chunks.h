/* Normalisation of long rows without gaps on Mesa's CPU driver, and its gradients, in three
 * kernels: shaders/cpu_drivers/norm_chunks.comp, norm_rows.comp and norm_apply.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_NORM_CHUNKS_H
#define TSR_GPU_CPU_DRIVERS_OPS_NORM_CHUNKS_H

#include "gpu/ops/norm/plane.h"

/* Whether the kernels suit what is to be made, one of TSR_NORM_…, as in norm_short.h. */
bool tsr__norm_chunks_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output);

/* For a plane, besides the rows' statistics. */
uint64_t tsr__norm_chunks_scratch_bytes(const tsr__norm *norm, const tsr__norm_plane *plane);

/* The first two kernels. `output`: TSR_NORM_STATS, or TSR_NORM_GRADIENT for what the third needs
 * besides, which stays in `scratch`. */
tsr_status tsr__norm_chunks_add_stats(tsr__dispatches *list, const tsr__norm *norm,
                                      const tsr__norm_plane *plane, uint32_t output,
                                      tsr__buffer *scratch, tsr__buffer *stats) TSR_NODISCARD;

/* The third, once the statistics are there. `scratch` is for TSR_NORM_GRADIENT only, `products`,
 * f32 [rows, columns], for TSR_NORM_PRODUCTS. */
tsr_status tsr__norm_chunks_add(tsr__dispatches *list, const tsr__norm *norm,
                                const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch,
                                tsr__buffer *stats, tsr__buffer *products) TSR_NODISCARD;

#endif
