/* Matrices in MXFP4 as Hugging Face files have them: two tensors of bytes, NAME_blocks [..., n, 16]
 * and NAME_scales [..., n], together a matrix of rows of 32 · n elements. Byte j of a block has
 * elements 2j and 2j + 1, in its low and its high half. In GGUF files, and in this library, a block
 * is its scale and 16 bytes, of which byte j has elements j and j + 16. */
#ifndef TSR_MODEL_WEIGHTS_MXFP4_H
#define TSR_MODEL_WEIGHTS_MXFP4_H

#include "model/weights/files.h"

/* Adds a tensor of dtype mxfp4 called NAME to the list for each such pair, unless the list has a
 * tensor of this name. Such tensors come last in the list. Errors: TSR_ERR_INVALID if the shapes or
 * dtypes of a pair contradict each other, naming it. */
tsr_status tsr__mxfp4_join(tsr__model_files *files) TSR_NODISCARD;

/* Returns the pair of a tensor that tsr__mxfp4_join has added, or NULL. */
const tsr__joined *tsr__mxfp4_pair(const tsr__model_files *files, const tsr_shard_param *param);

/* Turns `count` blocks in out[17 · count] into those of this library. Before, their scales are in
 * scales[count], and their bytes in the last 16 · count bytes of `out`. */
void tsr__mxfp4_from_pair(uint8_t *out, const uint8_t *scales, uint64_t count);
/* The opposite: blocks[17 · count] to bytes[16 · count] and scales[count]. */
void tsr__mxfp4_to_pair(const uint8_t *blocks, uint64_t count, uint8_t *bytes, uint8_t *scales);

#endif
