/* Element types and tensor layouts: shapes, strides, offsets and the views made from them. Pure
 * index arithmetic: no device, no memory, nothing to free. Functions here are thread-safe; a
 * tsr_layout is a plain value. */
#ifndef TESSERA_LAYOUT_H
#define TESSERA_LAYOUT_H

#include <stdbool.h>

#include "tessera/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_MAX_DIMS 8

/* f16 and bf16 are storage types: arithmetic on them accumulates in f32. 0 is no dtype, so that a
 * forgotten field of a params struct is noticed. */
typedef enum tsr_dtype {
    TSR_F32 = 1,
    TSR_F16 = 2,
    TSR_BF16 = 3,
    TSR_I32 = 4,
    TSR_U32 = 5,
    TSR_I64 = 6,
    TSR_U8 = 7,
    TSR_F64 = 8 /* communicators only: no tensor holds it */
} tsr_dtype;

/* Bytes in one element of a tensor; 0 for TSR_F64 and for a value that is no dtype. */
TSR_API uint64_t tsr_dtype_size(tsr_dtype dtype);
/* "f32", "bf16", …; "?" where tsr_dtype_size is 0. Static storage. */
TSR_API const char *tsr_dtype_name(tsr_dtype dtype);
/* The dtype called `name`, as tsr_dtype_name spells it. Errors: TSR_ERR_NOT_FOUND naming the text.
 */
TSR_API TSR_NODISCARD tsr_status tsr_dtype_parse(const char *name, tsr_dtype *out);

/* A dense or strided arrangement of elements. Element (i0, …) lies at offset + Σ i·stride elements
 * from the start of the buffer. Strides are never negative; 0 repeats an element (broadcast). ndim
 * 0 is a scalar of one element. */
typedef struct tsr_layout {
    tsr_dtype dtype;
    int ndim;
    int64_t shape[TSR_MAX_DIMS];
    int64_t strides[TSR_MAX_DIMS]; /* in elements */
    int64_t offset;                /* in elements */
} tsr_layout;

/* Row-major layout of `shape` at offset 0. Sizes may be 0. Errors: TSR_ERR_INVALID (dtype, ndim
 * outside 0..8, negative size), TSR_ERR_OVERFLOW when the bytes do not fit 63 bits. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_init(tsr_dtype dtype, int ndim, const int64_t *shape,
                                                 tsr_layout *out);

/* Number of elements (1 for ndim 0). */
TSR_API int64_t tsr_layout_count(const tsr_layout *layout);
/* True when elements follow each other in row-major order without gaps (dimensions of size 1 do not
 * matter). */
TSR_API bool tsr_layout_is_contiguous(const tsr_layout *layout);
/* True when two layouts have the same ndim and sizes. */
TSR_API bool tsr_layout_same_shape(const tsr_layout *a, const tsr_layout *b);

/* The views. `dim` may be negative and then counts from the end. The input is not changed and may
 * be `out` itself. All return TSR_ERR_INVALID with the values named, or TSR_ERR_OVERFLOW where the
 * bytes of a layout do not fit 63 bits. */

/* Elements start, start+step, … < stop of `dim`. Negative bounds count from the end, bounds beyond
 * the size are clamped to it, as in Python; TSR_END means "to the end". step must be positive. */
#define TSR_END INT64_MAX
TSR_API TSR_NODISCARD tsr_status tsr_layout_slice(const tsr_layout *in, int dim, int64_t start,
                                                  int64_t stop, int64_t step, tsr_layout *out);
/* Element `index` (negative: from the end) of `dim`, which disappears. Out of range is an error. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_select(const tsr_layout *in, int dim, int64_t index,
                                                   tsr_layout *out);
/* Swaps two dimensions. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_transpose(const tsr_layout *in, int dim0, int dim1,
                                                      tsr_layout *out);
/* out dimension i is in dimension order[i]; `order` has in->ndim entries, each dimension once. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_permute(const tsr_layout *in, const int *order,
                                                    tsr_layout *out);
/* NumPy broadcasting to `shape`: dimensions are matched from the right, size 1 is repeated, new
 * leading dimensions are added. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_broadcast(const tsr_layout *in, int ndim,
                                                      const int64_t *shape, tsr_layout *out);
/* The same elements in row-major order under another shape; one size may be -1 and is computed. An
 * error when the strides do not allow it without a copy. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_reshape(const tsr_layout *in, int ndim,
                                                    const int64_t *shape, tsr_layout *out);

/* The shape two operands broadcast to together, right-aligned. Errors: TSR_ERR_INVALID naming both
 * shapes. */
TSR_API TSR_NODISCARD tsr_status tsr_shape_broadcast(int a_ndim, const int64_t *a, int b_ndim,
                                                     const int64_t *b, int *out_ndim,
                                                     int64_t *out_shape);

/* Writes "[3,4]" to `text` and returns it; cut short, but always terminated, when `size` is too
 * small. Room for any shape: TSR_SHAPE_TEXT. */
#define TSR_SHAPE_TEXT 176
TSR_API char *tsr_shape_format(int ndim, const int64_t *shape, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif
