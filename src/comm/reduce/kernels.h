/* The tables of kernels, one for each instruction set that is built. */
#ifndef TSR_COMM_REDUCE_KERNELS_H
#define TSR_COMM_REDUCE_KERNELS_H

#include "comm/reduce/reduce.h"

#define TSR__KERNELS_JOIN_(level) tsr__kernels_##level
#define TSR__KERNELS_JOIN(level) TSR__KERNELS_JOIN_(level)
#define TSR__KERNELS TSR__KERNELS_JOIN(TSR__LEVEL)

extern const tsr__kernels tsr__kernels_base, tsr__kernels_avx2, tsr__kernels_avx512;

#endif
