/* Into how many ranges k is split. */
#ifndef TSR_GPU_MATMUL_SPLIT_K_H
#define TSR_GPU_MATMUL_SPLIT_K_H

#include "gpu/matmul/common/kernel.h"

/* The number of tiles of y, of all matrices. */
uint64_t tsr__matmul_tiles(const tsr__matmul_config *config, const tsr__matmul_problem *problem);

/* The number of ranges into which a long k can be split. Each range of a tile is a workgroup. If
 * these are counted, larger tiles still occupy the device. */
uint64_t tsr__matmul_k_ranges(const tsr__matmul_problem *problem);

/* Returns the number of workgroups up to which k is split. */
uint64_t tsr__matmul_enough_workgroups(const tsr__matmul_device *device,
                                       const tsr__matmul_problem *problem);

/* Sets plan->splits and plan->k_chunk, for plan->config. k is split if it is long and y has too few
 * tiles to occupy the device, or a number of tiles that would leave most processors idle at the
 * end. `at_most` is the largest number of ranges; 0: the usual number. */
void tsr__matmul_split_k(const tsr__matmul_device *device, const tsr__matmul_problem *problem,
                         uint32_t at_most, tsr__matmul_plan *plan);

#endif
