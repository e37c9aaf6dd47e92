/* The hardware with which data reaches a device that does not share the host's memory: queues that
 * copy while another one computes, and device memory that the host can write. Both functions only
 * look at what the driver reports. */
#ifndef TSR_GPU_DEVICE_TRANSFER_H
#define TSR_GPU_DEVICE_TRANSFER_H

#include "gpu/device/vk.h"

/* Returns the queue family for transfers beside computing in family `compute`: one that can only
 * transfer, because copy engines then do the work; otherwise another family that can compute,
 * preferably one without graphics. Returns UINT32_MAX if there is none. */
uint32_t tsr__transfer_family(const VkQueueFamilyProperties2 *families, uint32_t count,
                              uint32_t compute);

/* Returns the allowed memory type that the host can write over the bus and that the device reads at
 * full speed. Its heap is the largest device-local one and has more than the 256 MiB that GPUs
 * without a resizable BAR offer. Returns UINT32_MAX if there is none. */
uint32_t tsr__transfer_direct_type(const VkPhysicalDeviceMemoryProperties *properties,
                                   uint32_t allowed);

#endif
