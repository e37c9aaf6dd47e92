/* Quantises rows with several threads: the search for scales takes much longer than reading
 * and writing them. */
#ifndef TSR_MODEL_WEIGHTS_QUANTIZE_H
#define TSR_MODEL_WEIGHTS_QUANTIZE_H

#include "base/error.h"
#include "tessera/quant.h"

/* Does the same as tsr_quantize for values[rows, columns], and fails with the same text. */
tsr_status tsr__quantize_rows(tsr_dtype dtype, const float *values, int64_t rows, int64_t columns,
                              void *blocks, uint64_t size_bytes) TSR_NODISCARD;

#endif
