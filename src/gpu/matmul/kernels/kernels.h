/* The families of kernels for GPUs. Every device can run them, within the device's limits. */
#ifndef TSR_GPU_MATMUL_KERNELS_KERNELS_H
#define TSR_GPU_MATMUL_KERNELS_KERNELS_H

#include "gpu/matmul/common/kernel.h"

extern const tsr__matmul_family tsr__matmul_tiled; /* tiles in shared memory; for any shape */
extern const tsr__matmul_family tsr__matmul_pairs; /* tiles of f16 in shared memory; for f16 */
/* for few rows; neighbouring invocations are along k */
extern const tsr__matmul_family tsr__matmul_vector_k;
extern const tsr__matmul_family
    /* for few rows; neighbouring invocations are along b's columns */
    tsr__matmul_vector_col;
extern const tsr__matmul_family tsr__matmul_wide; /* with 64-bit strides; for any problem */
/* with cooperative matrices; for f16 and bf16 */
extern const tsr__matmul_family tsr__matmul_coopmat;
/* with cooperative matrices that a workgroup shares; for operands whose rows are aligned */
extern const tsr__matmul_family tsr__matmul_coopmat2;

/* Returns SUBGROUP of shaders/include/matmul_sums.glsl for workgroups of `threads` invocations. */
uint32_t tsr__matmul_subgroup_of(const tsr__matmul_device *device, uint32_t threads);

/* Returns how the subgroups of a workgroup divide its tile (shaders/gpu/matmul_coopmat.glsl) for
 * operands of `dtype`. All fields are 0 if the device cannot run the configuration. */
tsr__matmul_fragment tsr__matmul_fragment_for(const tsr__matmul_config *config,
                                              const tsr__matmul_device *device, tsr_dtype dtype);

/* Returns the bytes of shared memory that the tiles of a workgroup should not exceed: on AMD's
 * GPUs, a compute unit has room for two such workgroups. */
uint32_t tsr__matmul_shared_limit(const tsr__matmul_device *device);

/* True if the device can run a configuration of tsr__matmul_coopmat2 for operands of `dtype`. */
bool tsr__matmul_coopmat2_runs(const tsr__matmul_config *config, const tsr__matmul_device *device,
                               tsr_dtype dtype);

#endif
