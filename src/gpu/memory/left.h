/* How much device memory is left. This header needs no Vulkan. */
#ifndef TSR_GPU_MEMORY_LEFT_H
#define TSR_GPU_MEMORY_LEFT_H

#include "tessera/device.h"

/* Returns how many bytes more tensors may take now, within the budget of their heap and the limit
 * that the caller has set. */
tsr_status tsr__memory_left(tsr_device *device, uint64_t *out) TSR_NODISCARD;

#endif
