/* Normalisation of short rows without gaps, and its gradients, on Mesa's CPU driver. Each is one
 * dispatch of shaders/cpu_drivers/norm_short.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_NORM_SHORT_H
#define TSR_GPU_CPU_DRIVERS_OPS_NORM_SHORT_H

#include "gpu/ops/norm/norm_plane.h"

/* True if the kernel should compute `output`, one of TSR_NORM_…, for a plane (a set of rows, see
 * plane.h). */
bool tsr__norm_short_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output);
/* Adds the dispatch. A result of the forward pass is written to operand 1. For gradients,
 * operand 1 is dy, and dx is written to operand 2. Statistics of the rows, or the products dy ·
 * normalised x of which dweight is the sum, as f32 [rows, columns], are written to `scratch`. */
tsr_status tsr__norm_short_add(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, uint32_t output,
                               tsr__buffer *scratch) TSR_NODISCARD;

/* True if one dispatch of shaders/cpu_drivers/norm_short_grad.comp should compute parts of the
 * sums dweight and dbias. A part is the sum over the rows of one workgroup. The plane must
 * contain all rows. Neither the answer nor the bits of the parts depend on whether the dispatch
 * also computes dx. */
bool tsr__norm_short_parts_suit(const tsr__norm *norm, const tsr__norm_plane *plane);
/* The number of parts of each of the two sums. */
uint32_t tsr__norm_short_parts(const tsr__norm *norm, const tsr__norm_plane *plane);
/* Adds the dispatch. If `dx` is true, it also computes dx, which must be f32, and adds operand 3
 * to it, if there is one. The parts are written as f32 [parts, columns] to `dweight` and
 * `dbias`, which are in one buffer, `dbias` second. One of them may be NULL. Each must be
 * followed by room for TSR__NORM_SHORT_PARTS_ROOM more matrices of its size, in which the kernel
 * stores intermediate sums. */
#define TSR__NORM_SHORT_PARTS_ROOM 8
tsr_status tsr__norm_short_parts_add(tsr__dispatches *list, const tsr__norm *norm,
                                     const tsr__norm_plane *plane, bool dx,
                                     const tsr_tensor *dweight,
                                     const tsr_tensor *dbias) TSR_NODISCARD;

#endif
