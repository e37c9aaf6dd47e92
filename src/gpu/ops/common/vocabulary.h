/* Embedding and cross-entropy over one rank's part of a vocabulary. The part is rows first … first
 * + n − 1 of a table, or these classes of the logits. Indices are i32, i64, u32 or u8 and refer to
 * the complete vocabulary; a rank ignores those outside its part. This header contains no Vulkan
 * types, so that parallel/ can include it. */
#ifndef TSR_GPU_OPS_COMMON_VOCABULARY_H
#define TSR_GPU_OPS_COMMON_VOCABULARY_H

#include "tessera/ops.h"

/* y[r] = table[indices[r] − first], or zeros if that row is not in this part. y is [rows,width]. */
tsr_status tsr__embedding(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *table,
                          const tsr_tensor *indices, int64_t first) TSR_NODISCARD;

/* gradient[indices[r] − first] += dy[r], in the order of r, so that every run gives the same bits.
 * Without `accumulate` the gradient is set to 0 first. It must not overlap dy. */
tsr_status tsr__embedding_grad(tsr_stream *stream, tsr_tensor *gradient, const tsr_tensor *dy,
                               const tsr_tensor *indices, int64_t first,
                               bool accumulate) TSR_NODISCARD;

/* Writes the statistics of logits [rows, part of the classes] that the other ranks need. `stats` is
 * f32 [3,rows] and contiguous. For each row it gets the largest logit, the sum of exponentials
 * relative to it, and the label's logit, which is 0 if the label is not in this part. */
tsr_status tsr__cross_entropy_part(tsr_stream *stream, tsr_tensor *stats, const tsr_tensor *logits,
                                   const tsr_tensor *labels, int64_t first) TSR_NODISCARD;

/* Computes the results of tsr_cross_entropy for this part from the stats of all parts,
 * [ranks,3,rows]. */
tsr_status tsr__cross_entropy_whole(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                                    const tsr_tensor *logits, const tsr_tensor *labels,
                                    const tsr_tensor *stats, int64_t first, int64_t classes,
                                    float grad_scale) TSR_NODISCARD;
/* Makes the checks of tsr__cross_entropy_whole without reading the contents of the stats. */
tsr_status tsr__cross_entropy_check(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                                    const tsr_tensor *logits, const tsr_tensor *labels,
                                    const tsr_tensor *stats, int64_t first,
                                    int64_t classes) TSR_NODISCARD;

#endif
