/* The loads and strides that a problem's operands allow. These functions are pure arithmetic. */
#ifndef TSR_GPU_MATMUL_COMMON_LOADS_H
#define TSR_GPU_MATMUL_COMMON_LOADS_H

#include "gpu/matmul/common/problem.h"

/* Returns the widest loads of a (TSR_MM_LOAD_…), at most `max_width` elements, 4 or 8, that the
 * problem's strides and alignment allow. */
uint32_t tsr__matmul_a_load(const tsr__matmul_problem *problem, int64_t max_width);
/* The same for b. */
uint32_t tsr__matmul_b_load(const tsr__matmul_problem *problem, int64_t max_width);

/* True if a tile of rows × cols of `side` can be addressed with 32-bit strides and offsets. */
bool tsr__matmul_side_narrow(const tsr__matmul_side *side, int64_t rows, int64_t cols);

/* True if 32-bit offsets can address a tile of at most `bm` × `bn` elements in y and in bias. */
bool tsr__matmul_y_narrow(const tsr__matmul_problem *problem, int64_t bm, int64_t bn);

#endif
