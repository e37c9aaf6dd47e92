/* What every function here checks about its arguments first, in the same words. `who` names the
 * function in the error. */
#ifndef TSR_TENSOR_CHECK_H
#define TSR_TENSOR_CHECK_H

#include "tessera/layout.h"

/* A shape as text, "[2,3]", that lives until the end of the enclosing block: for the arguments of
 * tsr__fail. */
#define TSR__SHAPE(ndim, shape)                                                                    \
    tsr_shape_format(ndim, shape, (char[TSR_SHAPE_TEXT]){0}, TSR_SHAPE_TEXT)

/* ndim is 0..8 and sizes are not negative. */
tsr_status tsr__shape_check(const char *who, int ndim, const int64_t *shape) TSR_NODISCARD;

/* Also the bytes of the elements fit 63 bits, sizes of 0 counting as 1: strides of empty tensors
 * stay finite too. `dtype` must be one. TSR_ERR_OVERFLOW when they do not fit. */
tsr_status tsr__shape_check_bytes(const char *who, tsr_dtype dtype, int ndim,
                                  const int64_t *shape) TSR_NODISCARD;

/* Everything the rest of the library takes for granted about a layout: dtype, shape (as above),
 * strides and offset not negative, and the last element's end fits 63 bits of bytes. */
tsr_status tsr__layout_check(const char *who, const tsr_layout *layout) TSR_NODISCARD;

#endif
