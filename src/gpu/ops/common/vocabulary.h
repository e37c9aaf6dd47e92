/* Embedding and cross-entropy for one rank's part of a vocabulary. The part is the indices first …
 * first + n − 1 of the vocabulary: these rows of the embedding's table, or these classes (columns)
 * of the logits. Indices are i32, i64, u32 or u8 and refer to the complete vocabulary; a rank
 * ignores those that are not in its part. This header contains no Vulkan types, so that parallel/
 * can include it. */
#ifndef TSR_GPU_OPS_COMMON_VOCABULARY_H
#define TSR_GPU_OPS_COMMON_VOCABULARY_H

#include "tessera/ops.h"

/* y[r] = table[indices[r] − first], or zeros if that row is not in the table. y is [rows,width]. */
tsr_status tsr__embedding(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *table,
                          const tsr_tensor *indices, int64_t first) TSR_NODISCARD;

/* gradient[indices[r] − first] += dy[r]. Rows are added in the order of r, so that every run gives
 * the same bits. If `accumulate` is not set, the gradient is first set to 0. It must not overlap
 * dy. */
tsr_status tsr__embedding_grad(tsr_stream *stream, tsr_tensor *gradient, const tsr_tensor *dy,
                               const tsr_tensor *indices, int64_t first,
                               bool accumulate) TSR_NODISCARD;

/* Writes the statistics that the other ranks need of this part's logits, [rows, part of the
 * classes]. `stats` is f32 [3,rows] and contiguous. It gets three numbers for each row: the largest
 * logit, the sum of exponentials relative to it, and the label's logit, or 0 if the label is not in
 * this part. */
tsr_status tsr__cross_entropy_part(tsr_stream *stream, tsr_tensor *stats, const tsr_tensor *logits,
                                   const tsr_tensor *labels, int64_t first) TSR_NODISCARD;

/* Computes the results of tsr_cross_entropy for this part from the statistics of all parts,
 * [ranks,3,rows]. */
tsr_status tsr__cross_entropy_whole(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                                    const tsr_tensor *logits, const tsr_tensor *labels,
                                    const tsr_tensor *stats, int64_t first, int64_t classes,
                                    float grad_scale) TSR_NODISCARD;
/* Makes the checks of tsr__cross_entropy_whole without reading the statistics. */
tsr_status tsr__cross_entropy_check(tsr_stream *stream, tsr_tensor *loss, tsr_tensor *dlogits,
                                    const tsr_tensor *logits, const tsr_tensor *labels,
                                    const tsr_tensor *stats, int64_t first,
                                    int64_t classes) TSR_NODISCARD;

#endif
