/* Converts numbers of the host to elements of any dtype. */
#ifndef TSR_GPU_OPS_COMMON_ENCODE_H
#define TSR_GPU_OPS_COMMON_ENCODE_H

#include "tessera/layout.h"

/* Returns the bits of `value` as `dtype`. Floats are rounded once, to nearest even; integers are
 * truncated and saturated, and NaN becomes 0. */
uint64_t tsr__encode(double value, tsr_dtype dtype);

#endif
