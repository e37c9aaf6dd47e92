/* The choice of cooperative matrices for products of f16 and bf16. */
#ifndef TSR_GPU_DEVICE_COOPMAT_H
#define TSR_GPU_DEVICE_COOPMAT_H

#include "gpu/device/probe.h"

/* Sets coopmat_used, coopmat_bf16_used and coopmat_subgroup_size of a probed device. No shape is
 * used if the device lacks something that the kernels need, or if the driver is known to list
 * matrices that the GPU does not have. */
void tsr__coopmat_choose(const tsr__capabilities *capabilities, tsr_device_info *info);

#endif
