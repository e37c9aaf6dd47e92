/* Converts elements from one float dtype to another, in host memory. The results have the same bits
 * as those of shaders/include/convert.glsl. */
#ifndef TSR_TENSOR_FLOAT_CONVERSION_H
#define TSR_TENSOR_FLOAT_CONVERSION_H

#include <stddef.h>

#include "tessera/layout.h"

/* Converts `count` elements. The pointers may have any alignment. The two memory areas must not
 * overlap. */
typedef void tsr__convert_fn(void *to, const void *from, size_t count);

/* Returns the function that converts from one dtype to the other. Both must be f32, f16 or bf16,
 * and they must differ; otherwise the function returns NULL. */
tsr__convert_fn *tsr__converter(tsr_dtype to, tsr_dtype from);

/* For tests. Returns the conversion function that is compiled for the n-th instruction set, counted
 * from 0, that this processor supports. Returns NULL if the processor supports no more than n, or
 * if tsr__converter would return NULL. */
tsr__convert_fn *tsr__converter_at(int n, tsr_dtype to, tsr_dtype from);

#endif
