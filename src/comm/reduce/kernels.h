/* The tables of kernels, one for each instruction set that this build supports. */
#ifndef TSR_COMM_REDUCE_KERNELS_H
#define TSR_COMM_REDUCE_KERNELS_H

#include "comm/reduce/reduce.h"

extern const tsr__kernels tsr__kernels_base, tsr__kernels_avx2, tsr__kernels_avx512;

#endif
