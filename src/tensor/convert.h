/* Converts elements from one float dtype to another, in host memory. The results have the same bits
 * as those of shaders/include/convert.glsl. */
#ifndef TSR_TENSOR_CONVERT_H
#define TSR_TENSOR_CONVERT_H

#include <stddef.h>

#include "tessera/layout.h"

/* Converts `count` elements. Neither pointer needs alignment; the memory must not overlap. */
typedef void tsr__convert_fn(void *to, const void *from, size_t count);

/* Returns the function for these dtypes, or NULL unless both are f32, f16 or bf16, and differ. */
tsr__convert_fn *tsr__converter(tsr_dtype to, tsr_dtype from);

/* For tests: returns the function for the n-th (from 0) instruction set of this processor, or NULL
 * if it has no more than n. */
tsr__convert_fn *tsr__converter_at(int n, tsr_dtype to, tsr_dtype from);

#endif
