/* Tensors' memory as seen from the host: what moves them through a network needs to know of it.
 * Free of Vulkan's types, for modules above this one. */
#ifndef TSR_GPU_STREAM_HOST_ACCESS_H
#define TSR_GPU_STREAM_HOST_ACCESS_H

#include "tessera/stream.h"

/* Whether tensors of the device are in ordinary memory of the process, which networks and other
 * processes reach. What a GPU's driver maps is not. */
bool tsr__device_shares_tensors(const tsr_device *device);

/* A contiguous tensor in such memory, or where the device takes none, in memory that the host reads
 * and writes fast: tsr_tensor_map works for it on every device, and operations take it as any
 * other. */
tsr_status tsr__tensor_create_host(tsr_device *device, tsr_dtype dtype, int ndim,
                                   const int64_t *shape, tsr_tensor **out) TSR_NODISCARD;

/* Waits for what other streams than `stream` do with the tensor's memory. */
tsr_status tsr__tensor_synchronise(const tsr_stream *stream,
                                   const tsr_tensor *tensor) TSR_NODISCARD;

/* Whether two tensors have elements in common, or may have. `same`, where not NULL: they are the
 * same elements at the same places. */
bool tsr__tensors_overlap(const tsr_tensor *a, const tsr_tensor *b, bool *same);

/* Whether `part` is the view of `whole` that has this layout. */
bool tsr__tensor_is_view(const tsr_tensor *part, const tsr_tensor *whole, const tsr_layout *layout);

#endif
