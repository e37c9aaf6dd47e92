/* Tensors in device memory. A tensor is a layout (see layout.h) over a reference-counted buffer.
 * Views share the buffer, so making one copies nothing.
 *
 * Threads: only one thread at a time may use tensors that share a buffer and the streams on which
 * they are used. */
#ifndef TESSERA_TENSOR_H
#define TESSERA_TENSOR_H

#include "tessera/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_tensor tsr_tensor;
typedef struct tsr_stream tsr_stream;

/* A dtype may be a block format (quant.h). The last dimension then consists of whole blocks, and
 * views that would divide or reorder the elements of a block are errors (TSR_ERR_INVALID). Layouts
 * still count elements. Such a tensor can be uploaded, downloaded, mapped, copied (tsr_copy) and
 * viewed, be b of tsr_matmul and x of tsr_index_select; other operations refuse it. */

/* Creates a row-major tensor. Its contents are undefined until written. It holds a reference to
 * `device`. Sizes may be 0. Errors: TSR_ERR_INVALID, TSR_ERR_OVERFLOW, TSR_ERR_NO_MEMORY,
 * TSR_ERR_DEVICE_MEMORY (naming the request, the heap and the memory in use),
 * TSR_ERR_DEVICE_LOST. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_create(tsr_device *device, tsr_dtype dtype, int ndim,
                                                   const int64_t *shape, tsr_tensor **out);

/* Creates a row-major tensor in memory of the host. On every device, tsr_tensor_map works for the
 * tensor, and all operations accept it; a discrete GPU reaches it through its bus. For results that
 * the host wants later, while the device goes on: tsr_copy to such a tensor, tsr_stream_mark, and
 * later tsr_stream_wait_point. Errors: as tsr_tensor_create. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_create_host(tsr_device *device, tsr_dtype dtype,
                                                        int ndim, const int64_t *shape,
                                                        tsr_tensor **out);

/* Destroys a tensor and sets *tensor to NULL. NULL is allowed. Work already recorded on a stream
 * still completes: the stream holds the buffer until then. */
TSR_API void tsr_tensor_destroy(tsr_tensor **tensor);

/* Returns the tensor's layout, which is valid as long as the tensor. */
TSR_API const tsr_layout *tsr_tensor_layout(const tsr_tensor *tensor);

/* The functions below make views: new tensors over the same buffer. The caller must destroy each of
 * them, in any order. Arguments and errors are those of the tsr_layout function of the same name,
 * and TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_slice(const tsr_tensor *in, int dim, int64_t start,
                                                  int64_t stop, int64_t step, tsr_tensor **out);
TSR_API TSR_NODISCARD tsr_status tsr_tensor_select(const tsr_tensor *in, int dim, int64_t index,
                                                   tsr_tensor **out);
TSR_API TSR_NODISCARD tsr_status tsr_tensor_transpose(const tsr_tensor *in, int dim0, int dim1,
                                                      tsr_tensor **out);
TSR_API TSR_NODISCARD tsr_status tsr_tensor_broadcast(const tsr_tensor *in, int ndim,
                                                      const int64_t *shape, tsr_tensor **out);
TSR_API TSR_NODISCARD tsr_status tsr_tensor_reshape(const tsr_tensor *in, int ndim,
                                                    const int64_t *shape, tsr_tensor **out);
/* Makes a view with any layout over the tensor's buffer, for example one that tsr_layout_permute
 * gives. The elements of `layout`, if any, must be
 * within the buffer. Its dtype may differ from that of `in`: the bits are reinterpreted. Errors:
 * TSR_ERR_INVALID, TSR_ERR_OVERFLOW, TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_view(const tsr_tensor *in, const tsr_layout *layout,
                                                 tsr_tensor **out);

/* Copies the tensor's elements, in row-major order and in the tensor's dtype, from `data`. The copy
 * takes place in order with the other work of the stream, but `data` may be reused as soon as the
 * call returns. `size_bytes` must be exactly the elements' size. Blocks only while the staging
 * memory is full of earlier uploads. On failure some of the elements may have been copied. Errors:
 * TSR_ERR_INVALID (another device than the stream's, a wrong size, a view that repeats elements),
 * and those of recording and of tsr_stream_wait. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_upload(tsr_stream *stream, tsr_tensor *tensor,
                                                   const void *data, uint64_t size_bytes);

/* Writes the tensor's elements, in row-major order, to `data`. `size_bytes` must be exactly the
 * elements' size. Submits the stream and blocks until the elements have arrived; work that they do
 * not depend on may still be running. On failure the contents of `data` are unspecified. Errors:
 * TSR_ERR_INVALID (another device than the stream's, a wrong size), and those of
 * tsr_stream_wait. */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_download(tsr_stream *stream, const tsr_tensor *tensor,
                                                     void *data, uint64_t size_bytes);

/* Gives a pointer to the tensor's element at index (0, …, 0). The caller may read and write the
 * elements directly, in the tensor's layout, after waiting for the streams that use the tensor. The
 * pointer is valid as long as the tensor's buffer; it is never unmapped. Errors:
 * TSR_ERR_UNSUPPORTED if the memory cannot be mapped (discrete GPUs, unless tsr_tensor_create_host
 * has created the tensor). */
TSR_API TSR_NODISCARD tsr_status tsr_tensor_map(tsr_tensor *tensor, void **out);

#ifdef __cplusplus
}
#endif

#endif
