/* How a workgroup's tile is shared among subgroups that multiply cooperative matrices: see
 * shaders/gpu/matmul_coopmat.glsl. */
#ifndef TSR_GPU_MATMUL_COOPMAT_H
#define TSR_GPU_MATMUL_COOPMAT_H

#include "gpu/matmul/configs.h"

/* For operands of `dtype`; all 0 where the device cannot run the configuration. */
tsr__matmul_fragment tsr__matmul_fragment_for(const tsr__matmul_config *config,
                                              const tsr__matmul_device *device, tsr_dtype dtype);

/* The shader's specialization constants, whose number it returns. */
int tsr__matmul_coopmat_spec(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                             uint32_t spec[]);

#endif
