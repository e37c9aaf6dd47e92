/* Reductions that are used as steps of other operations. */
#ifndef TSR_GPU_OPS_REDUCE_REDUCE_H
#define TSR_GPU_OPS_REDUCE_REDUCE_H

#include "gpu/ops/common/rows.h"

/* Adds the dispatches that tsr_reduce would record for y = the sums of x's columns, or y += these
 * sums if `accumulate` is set. y is [columns], x is [rows, columns]. x must have at least one row.
 * Nothing is checked. */
tsr_status tsr__sum_columns_add(tsr__dispatches *list, tsr_stream *stream, const char *op,
                                tsr_tensor *y, const tsr_tensor *x, bool accumulate) TSR_NODISCARD;

#endif
