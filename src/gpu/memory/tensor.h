/* The members of a tensor. */
#ifndef TSR_GPU_MEMORY_TENSOR_H
#define TSR_GPU_MEMORY_TENSOR_H

#include "gpu/memory/buffer.h"
#include "tensor/dtype.h"
#include "tessera/tensor.h"

struct tsr_tensor {
    tsr_layout layout;
    tsr__buffer *buffer;
};

/* Returns the device address of the element at index (0, …, 0). */
uint64_t tsr__tensor_address(const tsr_tensor *tensor);

/* Returns the bytes of a tensor in blocks, as tsr__layout_of_bytes describes. The result has no
 * reference to the buffer. */
tsr_tensor tsr__tensor_of_bytes(const tsr_tensor *tensor);

/* Returns a tensor with the same buffer and another layout, for operations that rearrange views
 * internally. The result has no reference to the buffer and must not be used after `tensor` is
 * destroyed. */
tsr_tensor tsr__tensor_alias(const tsr_tensor *tensor, const tsr_layout *layout);

#endif
