/* The inside of a tensor. */
#ifndef TSR_GPU_MEMORY_TENSOR_H
#define TSR_GPU_MEMORY_TENSOR_H

#include "gpu/memory/buffer.h"
#include "gpu/memory/host_access.h"
#include "tessera/tensor.h"

struct tsr_tensor {
    tsr_layout layout;
    tsr__buffer *buffer;
};

/* Device address of the element at index (0, …, 0). */
uint64_t tsr__tensor_address(const tsr_tensor *tensor);

/* A tensor struct on the caller's stack over the same buffer with another layout: for operations
 * that rearrange views internally. Holds no reference; must not outlive `tensor`. */
tsr_tensor tsr__tensor_alias(const tsr_tensor *tensor, const tsr_layout *layout);

/* Checks shared by all operations. `op` begins the error text, `name` is the argument's name in it.
 */

/* Not NULL, and on the stream's device. */
tsr_status tsr__require_tensor(const char *op, const char *name, const tsr_stream *stream,
                               const tsr_tensor *tensor);
/* … and of dtype f32, f16 or bf16. */
tsr_status tsr__require_float(const char *op, const char *name, const tsr_stream *stream,
                              const tsr_tensor *tensor);
/* `out` is writable (reach.h), and shares no element with `in` unless they are the same view (and
 * `allow_same`). */
tsr_status tsr__require_disjoint(const char *op, const char *out_name, const tsr_tensor *out,
                                 const char *in_name, const tsr_tensor *in, bool allow_same);
/* Writes `in`'s layout broadcast to `shape_of`'s shape; the error names both. */
tsr_status tsr__require_broadcast(const char *op, const char *name, const tsr_tensor *in,
                                  const char *target_name, const tsr_tensor *target,
                                  tsr_layout *out);
tsr_status tsr__require_same_shape(const char *op, const char *a_name, const tsr_tensor *a,
                                   const char *b_name, const tsr_tensor *b);

bool tsr__dtype_is_float(tsr_dtype dtype);

#endif
