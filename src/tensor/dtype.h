/* Properties of dtypes that are not in the public header. */
#ifndef TSR_TENSOR_DTYPE_H
#define TSR_TENSOR_DTYPE_H

#include "tessera/layout.h"

/* Returns whether this is a floating-point dtype that tensors can have. */
static inline bool tsr__dtype_is_float(tsr_dtype dtype)
{
    return dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16;
}

#endif
