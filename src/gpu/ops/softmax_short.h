/* Softmax, its logarithm and their gradients of short rows on Mesa's CPU driver, in one kernel:
 * shaders/softmax_short.comp. */
#ifndef TSR_GPU_OPS_SOFTMAX_SHORT_H
#define TSR_GPU_OPS_SOFTMAX_SHORT_H

#include "gpu/ops/softmax_chunks.h"

bool tsr__softmax_short_suit(const tsr__softmax_rows *work);
tsr_status tsr__softmax_short_add(tsr__dispatches *list,
                                  const tsr__softmax_rows *work) TSR_NODISCARD;

#endif
