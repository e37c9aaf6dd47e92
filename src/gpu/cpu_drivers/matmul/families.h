/* The two families of kernels for CPU drivers. */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_FAMILIES_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_FAMILIES_H

#include "gpu/matmul/common/kernel.h"

extern const tsr__matmul_family tsr__matmul_lavapipe; /* straight-line kernels (lavapipe.c) */
extern const tsr__matmul_family
    tsr__matmul_swiftshader; /* subgroups of four invocations, one for each tile */

#endif
