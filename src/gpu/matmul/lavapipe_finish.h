/* The epilogue of products on Mesa's CPU driver. */
#ifndef TSR_GPU_MATMUL_LAVAPIPE_FINISH_H
#define TSR_GPU_MATMUL_LAVAPIPE_FINISH_H

#include "gpu/matmul/run.h"

/* False where 16-bit elements of y or bias would have to be packed in words; tsr__matmul_finish()
 * does it. */
bool tsr__lavapipe_finishes(const tsr__matmul_call *call);

/* y = act(alpha · sums + y + bias) for `rows` rows of one matrix, whose sums are the `parts`
 * matrices in `partial`, row-major, added up. `y` and `bias` are the addresses of their first
 * elements. Unless `record`, only makes the pipelines. */
tsr_status tsr__lavapipe_finish(const tsr__matmul_call *call, tsr__buffer *partial, uint32_t parts,
                                uint32_t rows, uint64_t y, uint64_t bias, bool record);

#endif
