/* Numbers of the host as elements. */
#ifndef TSR_GPU_OPS_COMMON_ENCODE_H
#define TSR_GPU_OPS_COMMON_ENCODE_H

#include "tessera/layout.h"

/* The bits of `value` as `dtype`: floats rounded once, to nearest even; integers truncated and
 * saturated, NaN 0. */
uint64_t tsr__encode(double value, tsr_dtype dtype);

#endif
