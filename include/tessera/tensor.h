/* Tensors in device memory. A tensor is a layout (see layout.h) over a reference-counted buffer;
 * views share the buffer and cost no copy.
 *
 * Threads: tensors that share a buffer, and the streams they are used on, belong to one thread at a
 * time. */
#ifndef TESSERA_TENSOR_H
#define TESSERA_TENSOR_H

#include "tessera/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_tensor tsr_tensor;
typedef struct tsr_stream tsr_stream;

/* A new row-major tensor; its contents are undefined until written. It holds `device`. Sizes may be
 * 0. Errors: TSR_ERR_INVALID, TSR_ERR_OVERFLOW, TSR_ERR_NO_MEMORY, TSR_ERR_DEVICE_MEMORY (naming
 * the request, the heap and what is in use), TSR_ERR_DEVICE_LOST. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_create(tsr_device *device, tsr_dtype dtype, int ndim,
                                                   const int64_t *shape, tsr_tensor **out);

/* Sets *tensor to NULL; NULL is fine. Work that was recorded on a stream still finishes: the stream
 * holds the buffer until then. */
TSR_API void tsr_tensor_destroy(tsr_tensor **tensor);

/* Lives as long as the tensor. */
TSR_API const tsr_layout *tsr_tensor_layout(const tsr_tensor *tensor);
TSR_API tsr_device *tsr_tensor_device(const tsr_tensor *tensor);

/* Views: new tensors over the same buffer, to be destroyed like any other, in any order. Arguments
 * and errors as for the tsr_layout function of the same name. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_slice(const tsr_tensor *in, int dim, int64_t start,
                                                  int64_t stop, int64_t step, tsr_tensor **out);
TSR_API TSR_NODISCARD tsr_status tsr_tensor_select(const tsr_tensor *in, int dim, int64_t index,
                                                   tsr_tensor **out);
TSR_API TSR_NODISCARD tsr_status tsr_tensor_transpose(const tsr_tensor *in, int dim0, int dim1,
                                                      tsr_tensor **out);
TSR_API TSR_NODISCARD tsr_status tsr_tensor_permute(const tsr_tensor *in, const int *order,
                                                    tsr_tensor **out);
TSR_API TSR_NODISCARD tsr_status tsr_tensor_broadcast(const tsr_tensor *in, int ndim,
                                                      const int64_t *shape, tsr_tensor **out);
TSR_API TSR_NODISCARD tsr_status tsr_tensor_reshape(const tsr_tensor *in, int ndim,
                                                    const int64_t *shape, tsr_tensor **out);
/* Any layout over the tensor's buffer, for views the functions above do not make. The elements of
 * `layout`, if any, must lie within the buffer; it may have another dtype than `in` (the bits are
 * reinterpreted). Errors: TSR_ERR_INVALID, TSR_ERR_OVERFLOW, TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_view(const tsr_tensor *in, const tsr_layout *layout,
                                                 tsr_tensor **out);

/* Copies the view's elements, in row-major order and in the tensor's dtype, from `data`, which may
 * be reused on return. `size_bytes` must be exactly the elements' size. In order with the stream's
 * other work. On failure some of the elements may have been copied. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_upload(tsr_stream *stream, tsr_tensor *tensor,
                                                   const void *data, uint64_t size_bytes);

/* Submits the stream, waits, and writes the view's elements in row-major order to `data`. On
 * failure `data` is unspecified. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_download(tsr_stream *stream, const tsr_tensor *tensor,
                                                     void *data, uint64_t size_bytes);

/* A pointer to the tensor's element at index (0, …, 0), in whose layout the caller may read and
 * write directly, after waiting for the streams that use the tensor. Valid while the tensor's
 * buffer lives; nothing needs unmapping. Errors: TSR_ERR_UNSUPPORTED where the memory cannot be
 * mapped (discrete GPUs). */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_map(tsr_tensor *tensor, void **out);

#ifdef __cplusplus
}
#endif

#endif
