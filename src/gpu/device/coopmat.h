/* The choice of cooperative matrices for products of f16 and bf16. */
#ifndef TSR_GPU_DEVICE_COOPMAT_H
#define TSR_GPU_DEVICE_COOPMAT_H

#include "gpu/device/device.h"
#include "gpu/device/probe.h"

/* Sets coopmat_used, coopmat_bf16_used, coopmat_subgroup_size, coopmat2 and coopmat2_bf16 of a
 * probed device, and removes from its capabilities the matrices shared by a workgroup that are not
 * used. No matrices are used if the device lacks something that the kernels need, or if the driver
 * is known to list matrices that the GPU does not have. */
void tsr__coopmat_choose(tsr__capabilities *capabilities, tsr_device_info *info);

/* True if fragments of sums with the rows and columns of `shape` can also be in f16. */
bool tsr__coopmat_sums_f16(const tsr_device *device, const tsr_coopmat_shape *shape);

/* The units of products by matrices that a workgroup of `threads` invocations shares, for operands
 * of this dtype; NULL: it shares none. */
const tsr__coopmat2_units *tsr__coopmat2_units_for(const tsr__coopmat2 *shared, tsr_dtype dtype,
                                                   uint32_t threads);

/* The shape that kernels for operands of this dtype use on the device; NULL: none. */
const tsr_coopmat_shape *tsr__coopmat_used(const tsr_device *device, tsr_dtype dtype);

#endif
