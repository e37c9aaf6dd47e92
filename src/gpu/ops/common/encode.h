/* Converts the host's numbers to elements of any dtype. */
#ifndef TSR_GPU_OPS_COMMON_ENCODE_H
#define TSR_GPU_OPS_COMMON_ENCODE_H

#include "tessera/layout.h"

/* Returns the bits of `value` as an element of `dtype`. Floats are rounded once, to nearest even.
 * For integers, the value is truncated and saturated, and NaN becomes 0. */
uint64_t tsr__encode(double value, tsr_dtype dtype);

#endif
