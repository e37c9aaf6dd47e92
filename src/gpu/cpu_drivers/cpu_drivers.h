/* Kernels that exist only for Vulkan drivers that run on CPUs: Mesa's lavapipe and SwiftShader.
 *
 * The rest of gpu/ reaches them through this header and computes without them if the build leaves
 * them out (meson option cpu_kernels, none.c). docs/design/cpu_drivers.md explains why such drivers
 * need kernels of their own. */
#ifndef TSR_GPU_CPU_DRIVERS_CPU_DRIVERS_H
#define TSR_GPU_CPU_DRIVERS_CPU_DRIVERS_H

#include "gpu/matmul/common/kernel.h"

/* Matrix products: the configurations that this folder adds to the chooser's table, by index. NULL
 * past the end. */
const tsr__matmul_config *tsr__cpu_matmul_config_at(int index);

/* The configuration that is usually fastest for the problem. NULL if `device` is no CPU driver that
 * these kernels are for, or if a GPU kernel is as fast. The result may not fit the problem. */
const tsr__matmul_config *tsr__cpu_matmul_choose(const tsr__matmul_device *device,
                                                 const tsr__matmul_problem *problem);

#endif
