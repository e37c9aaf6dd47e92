/* The tables of conversions, one for each instruction set that is built. */
#ifndef TSR_TENSOR_CONVERT_LOOPS_H
#define TSR_TENSOR_CONVERT_LOOPS_H

#include "tensor/convert.h"

#define TSR__CONVERT_DTYPES (TSR_BF16 + 1) /* tsr_dtype indexes the tables; 0 is not a dtype */

typedef struct tsr__converters {
    tsr__convert_fn *convert[TSR__CONVERT_DTYPES][TSR__CONVERT_DTYPES]; /* [to][from] */
} tsr__converters;

extern const tsr__converters tsr__converters_base, tsr__converters_avx2, tsr__converters_avx512;

#endif
