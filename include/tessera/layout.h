/* Element types and tensor layouts: shapes, strides, offsets and the views made from them. This is
 * index arithmetic only: it needs no device and no memory, and a tsr_layout is a plain value that
 * needs no freeing. The functions are thread-safe. */
#ifndef TESSERA_LAYOUT_H
#define TESSERA_LAYOUT_H

#include <stdbool.h>

#include "tessera/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_MAX_DIMS 8

/* f16 and bf16 are storage types: arithmetic on them accumulates in f32. 0 is not a dtype, so that
 * functions can detect a params struct whose dtype was not set. */
typedef enum tsr_dtype {
    TSR_F32 = 1,
    TSR_F16 = 2,
    TSR_BF16 = 3,
    TSR_I32 = 4,
    TSR_U32 = 5,
    TSR_I64 = 6,
    TSR_U8 = 7,
    TSR_F64 = 8, /* for communicators only: tensors cannot have this dtype */
    /* block formats (quant.h): only for the weights of products and for files */
    TSR_Q4_0 = 16,
    TSR_Q4_1 = 17,
    TSR_Q5_0 = 18,
    TSR_Q5_1 = 19,
    TSR_Q8_0 = 20,
    TSR_Q2_K = 21,
    TSR_Q3_K = 22,
    TSR_Q4_K = 23,
    TSR_Q5_K = 24,
    TSR_Q6_K = 25,
    TSR_IQ4_NL = 26,
    TSR_IQ4_XS = 27,
    TSR_MXFP4 = 28,
    TSR_NVFP4 = 29,
    TSR_IQ2_XXS = 30,
    TSR_IQ2_XS = 31,
    TSR_IQ2_S = 32,
    TSR_IQ3_XXS = 33,
    TSR_IQ3_S = 34,
    TSR_TQ1_0 = 35,
    TSR_TQ2_0 = 36
} tsr_dtype;

/* Returns the bytes of one element of a tensor, or 0 for TSR_F64, for block formats (quant.h) and
 * for a value that is not a dtype. */
TSR_API uint64_t tsr_dtype_size(tsr_dtype dtype);
/* Returns "f32", "bf16", "q8_0", …, or "?" for TSR_F64 and for a value that is not a dtype. The
 * string is in static storage. */
TSR_API const char *tsr_dtype_name(tsr_dtype dtype);
/* Gives the dtype called `name`, as tsr_dtype_name spells it. Errors: TSR_ERR_NOT_FOUND naming the
 * text. */
TSR_API TSR_NODISCARD tsr_status tsr_dtype_parse(const char *name, tsr_dtype *out);

/* A dense or strided arrangement of elements. Element (i0, …) is offset + Σ i·stride elements from
 * the start of the buffer. Strides are never negative; a stride of 0 repeats an element
 * (broadcasting). ndim 0 is a scalar of one element. */
typedef struct tsr_layout {
    tsr_dtype dtype;
    int ndim;
    int64_t shape[TSR_MAX_DIMS];
    int64_t strides[TSR_MAX_DIMS]; /* in elements */
    int64_t offset;                /* in elements */
} tsr_layout;

/* Makes the row-major layout of `shape` at offset 0. Sizes may be 0. Errors: TSR_ERR_INVALID
 * (dtype, ndim outside 0..8, negative size), TSR_ERR_OVERFLOW if the bytes do not fit 63 bits. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_init(tsr_dtype dtype, int ndim, const int64_t *shape,
                                                 tsr_layout *out);

/* Returns the number of elements (1 for ndim 0). */
TSR_API int64_t tsr_layout_count(const tsr_layout *layout);
/* Returns true if the elements follow each other in row-major order without gaps. The strides of
 * dimensions of size 1 do not matter. */
TSR_API bool tsr_layout_is_contiguous(const tsr_layout *layout);

/* The functions below make views. `dim` may be negative and then counts from the end. `in` is not
 * changed, unless it is `out`, which is allowed. Errors: TSR_ERR_INVALID naming the values, and
 * TSR_ERR_OVERFLOW if the bytes of a layout do not fit 63 bits. */

/* Takes elements start, start+step, … < stop of `dim`. As in Python, negative bounds count from the
 * end, and bounds beyond the size are clamped to it. TSR_END as `stop` means the end. `step` must
 * be positive. */
#define TSR_END INT64_MAX
TSR_API TSR_NODISCARD tsr_status tsr_layout_slice(const tsr_layout *in, int dim, int64_t start,
                                                  int64_t stop, int64_t step, tsr_layout *out);
/* Takes element `index` of `dim` and removes this dimension. A negative index counts from the end;
 * an index out of range is an error. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_select(const tsr_layout *in, int dim, int64_t index,
                                                   tsr_layout *out);
/* Swaps two dimensions. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_transpose(const tsr_layout *in, int dim0, int dim1,
                                                      tsr_layout *out);
/* Reorders the dimensions: dimension i of `out` is dimension order[i] of `in`. `order` has in->ndim
 * entries and names each dimension once. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_permute(const tsr_layout *in, const int *order,
                                                    tsr_layout *out);
/* Broadcasts to `shape` as NumPy does: dimensions are matched from the right, size 1 is repeated,
 * and new leading dimensions are added. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_broadcast(const tsr_layout *in, int ndim,
                                                      const int64_t *shape, tsr_layout *out);
/* Gives the same elements, in row-major order, another shape. One size may be -1: it is computed.
 * It is an error (TSR_ERR_INVALID) if the strides do not allow the shape without a copy. */
TSR_API TSR_NODISCARD tsr_status tsr_layout_reshape(const tsr_layout *in, int ndim,
                                                    const int64_t *shape, tsr_layout *out);

#ifdef __cplusplus
}
#endif

#endif
