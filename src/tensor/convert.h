/* Elements of one float dtype made to another, in host memory: the bits of
 * shaders/include/convert.glsl. */
#ifndef TSR_TENSOR_CONVERT_H
#define TSR_TENSOR_CONVERT_H

#include <stddef.h>

#include "tessera/layout.h"

/* Neither memory needs alignment; they overlap nowhere. */
typedef void tsr__convert_fn(void *to, const void *from, size_t count);

/* NULL unless both are f32, f16 or bf16, and differ. */
tsr__convert_fn *tsr__converter(tsr_dtype to, tsr_dtype from);

/* For tests: that for the n-th instruction set of this processor; NULL from that on which it has
 * not. */
tsr__convert_fn *tsr__converter_at(int n, tsr_dtype to, tsr_dtype from);

#endif
