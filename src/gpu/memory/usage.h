/* The memory that a device object has used. */
#ifndef TSR_GPU_MEMORY_USAGE_H
#define TSR_GPU_MEMORY_USAGE_H

#include "tessera/device.h"

/* Returns the most bytes that tensors and scratch memory of this device object have used at once.
 */
uint64_t tsr__device_most_used(const tsr_device *device);

#endif
