/* The families of kernels for GPUs. Every device can run them within its limits. */
#ifndef TSR_GPU_MATMUL_KERNELS_KERNELS_H
#define TSR_GPU_MATMUL_KERNELS_KERNELS_H

#include "gpu/matmul/common/kernel.h"

extern const tsr__matmul_family tsr__matmul_tiled;    /* tiles in shared memory; any shape */
extern const tsr__matmul_family tsr__matmul_vector_k; /* few rows; invocations along k */
extern const tsr__matmul_family
    tsr__matmul_vector_col;                          /* few rows; invocations along b's columns */
extern const tsr__matmul_family tsr__matmul_wide;    /* 64-bit strides; any problem */
extern const tsr__matmul_family tsr__matmul_coopmat; /* f16 or bf16, cooperative matrices */

/* How the tile of a workgroup is divided among its subgroups (shaders/gpu/matmul_coopmat.glsl) for
 * operands of `dtype`. All fields are 0 if the device cannot run the configuration. */
tsr__matmul_fragment tsr__matmul_fragment_for(const tsr__matmul_config *config,
                                              const tsr__matmul_device *device, tsr_dtype dtype);

#endif
