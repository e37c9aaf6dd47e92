/* Checks of arguments, shared by all functions of this module. `who` is the name of the calling
 * function for the error text. */
#ifndef TSR_TENSOR_CHECK_H
#define TSR_TENSOR_CHECK_H

#include "tessera/layout.h"

/* Converts a shape to a text such as "[2,3]", for the arguments of tsr__fail. The text is valid
 * until the end of the enclosing block. */
#define TSR__SHAPE(ndim, shape)                                                                    \
    tsr_shape_format(ndim, shape, (char[TSR_SHAPE_TEXT]){0}, TSR_SHAPE_TEXT)

/* Checks that ndim is in 0..8 and that no size is negative. */
tsr_status tsr__shape_check(const char *who, int ndim, const int64_t *shape) TSR_NODISCARD;

/* Checks the shape as tsr__shape_check does. Also checks the dtype, and that the elements' size in
 * bytes fits 63 bits; if it does not, the error is TSR_ERR_OVERFLOW. In this product, a size of 0
 * counts as 1, so that the strides of empty tensors fit too. */
tsr_status tsr__shape_check_bytes(const char *who, tsr_dtype dtype, int ndim,
                                  const int64_t *shape) TSR_NODISCARD;

/* If elements of the layout's dtype are in blocks, checks that the layout consists of whole blocks:
 * its last dimension has the stride 1, and the size of that dimension, the offset and the other
 * strides are multiples of the number of elements in a block. */
tsr_status tsr__layout_check_blocks(const char *who, const tsr_layout *layout) TSR_NODISCARD;

/* Checks everything that the rest of the library assumes about a layout: its dtype and shape, as in
 * tsr__shape_check_bytes; that the offset and the strides are not negative; and that the byte
 * offset of the end of the last element fits 63 bits. */
tsr_status tsr__layout_check(const char *who, const tsr_layout *layout) TSR_NODISCARD;

#endif
