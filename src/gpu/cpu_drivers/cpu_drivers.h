/* Kernels that exist only for Vulkan drivers that run on CPUs: Mesa's lavapipe and SwiftShader.
 *
 * The rest of gpu/ uses them through this header. A build may leave them out (meson option
 * cpu_kernels, none.c); gpu/ then uses the other kernels. docs/design/cpu_drivers.md explains why
 * such drivers need kernels of their own. */
#ifndef TSR_GPU_CPU_DRIVERS_CPU_DRIVERS_H
#define TSR_GPU_CPU_DRIVERS_CPU_DRIVERS_H

#include "gpu/matmul/common/kernel.h"

/* Returns configuration number `index` of those that this folder adds to the chooser's table of
 * matrix products, or NULL past the last. */
const tsr__matmul_config *tsr__cpu_matmul_config_at(int index);

/* Returns the configuration that is usually fastest for the problem. Returns NULL if these kernels
 * are not for `device`, or if a GPU kernel is as fast. The returned configuration may be unable to
 * compute the problem. */
const tsr__matmul_config *tsr__cpu_matmul_choose(const tsr__matmul_device *device,
                                                 const tsr__matmul_problem *problem);

#endif
