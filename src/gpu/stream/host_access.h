/* Access to tensors' memory from the host, for modules that send tensors through a network. This
 * header contains no Vulkan types, so that higher modules can include it. */
#ifndef TSR_GPU_STREAM_HOST_ACCESS_H
#define TSR_GPU_STREAM_HOST_ACCESS_H

#include "tessera/stream.h"

/* True if the device's tensors are in ordinary memory of the process, which networks and other
 * processes can access. Memory that a GPU's driver maps is not ordinary in this sense. */
bool tsr__device_shares_tensors(const tsr_device *device);

/* Blocks until the work that other streams than `stream` do on the tensor's memory is complete. */
tsr_status tsr__tensor_synchronise(const tsr_stream *stream,
                                   const tsr_tensor *tensor) TSR_NODISCARD;

/* True if the two tensors have elements in common, or if this check cannot exclude it. If `same` is
 * not NULL, *same is set to whether each index is the same element in both tensors. */
bool tsr__tensors_overlap(const tsr_tensor *a, const tsr_tensor *b, bool *same);

/* True if `part` has the same memory as `whole` and the layout `layout`. */
bool tsr__tensor_is_view(const tsr_tensor *part, const tsr_tensor *whole, const tsr_layout *layout);

#endif
