/* Sums of squares on Mesa's CPU driver with shaders/cpu_drivers/sum_squares_vectors.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_SQUARES_H
#define TSR_GPU_CPU_DRIVERS_OPS_SQUARES_H

#include "gpu/ops/common/rows.h"
#include "shaders/params/sum_squares.h"

/* True if the kernel should be used for the `count` elements from `address` on. The tensor must
 * have no gaps. */
bool tsr__squares_suit(const tsr_tensor *x, uint64_t address, int64_t count);

/* Adds the dispatch for the first `entries` tensors of a dispatch of the general kernel. All their
 * chunks must be complete. `parts` is the memory that the dispatch writes, and `read` lists the
 * memory that it reads. */
tsr_status tsr__squares_add(tsr__dispatches *list, const struct tsr_sum_squares_params *params,
                            int entries, tsr_dtype dtype, tsr__access parts,
                            const tsr__access *read) TSR_NODISCARD;

#endif
