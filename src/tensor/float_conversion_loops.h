/* The tables of conversion functions, one for each instruction set that is compiled. */
#ifndef TSR_TENSOR_FLOAT_CONVERSION_LOOPS_H
#define TSR_TENSOR_FLOAT_CONVERSION_LOOPS_H

#include "tensor/float_conversion.h"

/* a tsr_dtype is an index into the tables; 0 is not a dtype */
#define TSR__CONVERT_DTYPES (TSR_BF16 + 1)

typedef struct tsr__converters {
    tsr__convert_fn *convert[TSR__CONVERT_DTYPES][TSR__CONVERT_DTYPES]; /* index: [to][from] */
} tsr__converters;

extern const tsr__converters tsr__converters_base, tsr__converters_avx2, tsr__converters_avx512;

#endif
