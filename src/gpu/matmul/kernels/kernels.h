/* The families of kernels for GPUs, which every device runs if its limits allow. */
#ifndef TSR_GPU_MATMUL_KERNELS_KERNELS_H
#define TSR_GPU_MATMUL_KERNELS_KERNELS_H

#include "gpu/matmul/common/kernel.h"

extern const tsr__matmul_family tsr__matmul_tiled;    /* tiles in shared memory: any shape */
extern const tsr__matmul_family tsr__matmul_vector_k; /* few rows; invocations along k */
extern const tsr__matmul_family
    tsr__matmul_vector_col;                          /* few rows; invocations along b's columns */
extern const tsr__matmul_family tsr__matmul_wide;    /* 64-bit strides: everything */
extern const tsr__matmul_family tsr__matmul_coopmat; /* f16 or bf16 by cooperative matrices */

/* How the subgroups of a workgroup share its tile (shaders/gpu/matmul_coopmat.glsl) for operands of
 * `dtype`. All 0 if the device cannot run the configuration. */
tsr__matmul_fragment tsr__matmul_fragment_for(const tsr__matmul_config *config,
                                              const tsr__matmul_device *device, tsr_dtype dtype);

#endif
