/* Reductions that other operations use as steps. */
#ifndef TSR_GPU_OPS_REDUCE_REDUCE_H
#define TSR_GPU_OPS_REDUCE_REDUCE_H

#include "gpu/ops/common/rows.h"

/* Adds the dispatches that compute the sums of x's columns as tsr_reduce does: y = sums or, if
 * `accumulate` is set, y += sums. y is [columns], and x is [rows, columns] and must have at least
 * one row. The arguments are not checked. */
tsr_status tsr__sum_columns_add(tsr__dispatches *list, tsr_stream *stream, const char *op,
                                tsr_tensor *y, const tsr_tensor *x, bool accumulate) TSR_NODISCARD;

#endif
