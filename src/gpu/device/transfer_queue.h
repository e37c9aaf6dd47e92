/* The hardware with which data reaches a device that does not share the host's memory: queues that
 * copy while another one computes, and device memory that the host can write. Both functions read
 * only what the driver has reported. */
#ifndef TSR_GPU_DEVICE_TRANSFER_QUEUE_H
#define TSR_GPU_DEVICE_TRANSFER_QUEUE_H

#include "gpu/device/vk.h"

/* Returns the queue family for transfers at the same time as computations in family `compute`.
 * Prefers a family that can only transfer, because copy engines then do the work, then another
 * family that can compute, then one that also has graphics. Returns UINT32_MAX if there is none. */
uint32_t tsr__transfer_family(const VkQueueFamilyProperties2 *families, uint32_t count,
                              uint32_t compute);

/* Returns the allowed memory type that the host can write over the bus and that the device reads at
 * full speed. Its heap is the largest device-local one and has more than the 256 MiB that GPUs
 * without a resizable BAR offer. Returns UINT32_MAX if there is none. */
uint32_t tsr__transfer_direct_type(const VkPhysicalDeviceMemoryProperties *properties,
                                   uint32_t allowed);

#endif
