/* Elements of weights in files, and their conversion to the dtype of a tensor. */
#ifndef TSR_MODEL_WEIGHTS_ELEMENTS_H
#define TSR_MODEL_WEIGHTS_ELEMENTS_H

#include <stdbool.h>

#include "tessera/layout.h"
#include "tessera/shard.h"

/* Checks that the dtype of a tensor in a file can be converted. Errors: TSR_ERR_UNSUPPORTED. */
tsr_status tsr__elements_check(const tsr_shard_param *param) TSR_NODISCARD;

/* Returns the dtype of a tensor in a file: a float, a block format, or 0 if it is neither. */
tsr_dtype tsr__elements_dtype(const tsr_shard_param *param);

/* Converts elements skip … skip + count − 1 of whole blocks to `to`, f32, f16 or bf16. `scratch`
 * needs room for skip + count elements, rounded up to whole blocks; it may be NULL for float
 * dtypes. */
tsr_status tsr__elements_convert(const tsr_shard_param *param, const void *from, int64_t skip,
                                 int64_t count, tsr_dtype to, void *out,
                                 float *scratch) TSR_NODISCARD;

#endif
