/* Checks of arguments that all functions of this module share. `who` names the function in the
 * error text. */
#ifndef TSR_TENSOR_CHECK_H
#define TSR_TENSOR_CHECK_H

#include "tessera/layout.h"

/* A shape as text, such as "[2,3]", for the arguments of tsr__fail. The text is valid until the end
 * of the enclosing block. */
#define TSR__SHAPE(ndim, shape)                                                                    \
    tsr_shape_format(ndim, shape, (char[TSR_SHAPE_TEXT]){0}, TSR_SHAPE_TEXT)

/* Checks that ndim is in 0..8 and that no size is negative. */
tsr_status tsr__shape_check(const char *who, int ndim, const int64_t *shape) TSR_NODISCARD;

/* Also checks the dtype, and that the bytes of the elements fit 63 bits. Sizes of 0 count as 1, so
 * that the strides of empty tensors fit too. TSR_ERR_OVERFLOW if the bytes do not fit. */
tsr_status tsr__shape_check_bytes(const char *who, tsr_dtype dtype, int ndim,
                                  const int64_t *shape) TSR_NODISCARD;

/* Checks everything that the rest of the library assumes about a layout: its dtype and shape (as
 * above), that no stride is negative, nor the offset, and that the byte offset of the last
 * element's end fits 63 bits. */
tsr_status tsr__layout_check(const char *who, const tsr_layout *layout) TSR_NODISCARD;

#endif
