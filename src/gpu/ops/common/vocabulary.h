/* What a rank does with its part of a vocabulary: rows first … first + n − 1 of a table, or those
 * classes of logits. Indices are i32, i64, u32 or u8, of the whole vocabulary; those of other parts
 * are left to other ranks. Free of Vulkan's types, for modules above this one. */
#ifndef TSR_GPU_OPS_COMMON_VOCABULARY_H
#define TSR_GPU_OPS_COMMON_VOCABULARY_H

#include "tessera/ops.h"

/* y[rows,width]: y[r] = table[indices[r] − first], or zeros where that row is not here. */
tsr_status tsr__embedding(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *table,
                          const tsr_tensor *indices, int64_t first) TSR_NODISCARD;

/* gradient[indices[r] − first] += dy[r], in the order of r: the same bits on every run. Without
 * `accumulate` the gradient is 0 before. It does not overlap dy. */
tsr_status tsr__embedding_grad(tsr_stream *stream, tsr_tensor *gradient, const tsr_tensor *dy,
                               const tsr_tensor *indices, int64_t first,
                               bool accumulate) TSR_NODISCARD;

/* What other ranks have to know of logits [rows, part of the classes]: stats [3,rows], f32 and
 * contiguous, gets each row's largest, the sum of exponentials relative to it, and the label's
 * logit, or 0 where that is not here. */
tsr_status tsr__cross_entropy_part(tsr_stream *stream, tsr_tensor *stats, const tsr_tensor *logits,
                                   const tsr_tensor *labels, int64_t first) TSR_NODISCARD;

/* tsr_cross_entropy from the stats of all parts, [ranks,3,rows]. */
tsr_status tsr__cross_entropy_whole(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                                    const tsr_tensor *logits, const tsr_tensor *labels,
                                    const tsr_tensor *stats, int64_t first, int64_t classes,
                                    float grad_scale) TSR_NODISCARD;
/* What it demands of its arguments, for before the stats are there. */
tsr_status tsr__cross_entropy_check(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                                    const tsr_tensor *logits, const tsr_tensor *labels,
                                    const tsr_tensor *stats, int64_t first,
                                    int64_t classes) TSR_NODISCARD;

#endif
