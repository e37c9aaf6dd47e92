/* Normalisation of short rows without gaps, and its gradients, on Mesa's CPU driver. Each is one
 * dispatch of shaders/cpu_drivers/norm_short.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_NORM_SHORT_H
#define TSR_GPU_CPU_DRIVERS_OPS_NORM_SHORT_H

#include "gpu/ops/norm/plane.h"

/* The first function returns whether the kernel should compute a plane (a set of rows, see
 * plane.h), and the second adds its dispatch. `output` is one of TSR_NORM_…. A result of the
 * forward pass is written to operand 1. For gradients, operand 1 is dy, and dx is written to
 * operand 2. Statistics of the rows, or the products dy · normalised x of which dweight is the sum,
 * as f32 [rows, columns], are written to `scratch`. */
bool tsr__norm_short_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output);
tsr_status tsr__norm_short_add(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, uint32_t output,
                               tsr__buffer *scratch) TSR_NODISCARD;

/* Parts of the sums of dweight and dbias in one dispatch of
 * shaders/cpu_drivers/norm_short_grad.comp, which can also compute an f32 dx and add operand 3 to
 * it, if there is one. The plane must contain all rows. Whether the kernel suits, and the bits of
 * the parts, do not depend on dx. */
bool tsr__norm_short_parts_suit(const tsr__norm *norm, const tsr__norm_plane *plane);
/* The number of parts of each sum. */
uint32_t tsr__norm_short_parts(const tsr__norm *norm, const tsr__norm_plane *plane);
/* Writes the parts as f32 [parts, columns] to `dweight` and `dbias`, which are in one buffer,
 * `dbias` second. One of them may be NULL. Each must be followed by room for
 * TSR__NORM_SHORT_PARTS_ROOM more matrices of its size, in which the kernel stores intermediate
 * sums. */
#define TSR__NORM_SHORT_PARTS_ROOM 8
tsr_status tsr__norm_short_parts_add(tsr__dispatches *list, const tsr__norm *norm,
                                     const tsr__norm_plane *plane, bool dx,
                                     const tsr_tensor *dweight,
                                     const tsr_tensor *dbias) TSR_NODISCARD;

#endif
