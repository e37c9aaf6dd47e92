/* Checks of arguments, shared by all functions of this module. `who` is the name of the calling
 * function for the error text. */
#ifndef TSR_TENSOR_CHECK_H
#define TSR_TENSOR_CHECK_H

#include "tessera/layout.h"

/* Writes a shape such as "[3,4]" to `text`, of `size` bytes, and returns `text`. If `size` is too
 * small, the result is cut but still terminated. TSR__SHAPE_TEXT bytes are enough for any shape. */
#define TSR__SHAPE_TEXT 176
char *tsr__shape_format(int ndim, const int64_t *shape, char *text, size_t size);

/* Converts a shape to a text such as "[2,3]", for the arguments of tsr__fail. The text is valid
 * until the end of the enclosing block. */
#define TSR__SHAPE(ndim, shape)                                                                    \
    tsr__shape_format(ndim, shape, (char[TSR__SHAPE_TEXT]){0}, TSR__SHAPE_TEXT)

/* Gives the shape to which two operands broadcast together, aligned at the right. Errors:
 * TSR_ERR_INVALID naming both shapes. */
tsr_status tsr__shape_broadcast(int a_ndim, const int64_t *a, int b_ndim, const int64_t *b,
                                int *out_ndim, int64_t *out_shape) TSR_NODISCARD;

/* Returns true if two layouts have the same ndim and sizes. */
bool tsr__layout_same_shape(const tsr_layout *a, const tsr_layout *b);

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
