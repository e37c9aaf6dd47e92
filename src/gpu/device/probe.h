/* Probing what a physical device is and can do. */
#ifndef TSR_GPU_DEVICE_PROBE_H
#define TSR_GPU_DEVICE_PROBE_H

#include "gpu/device/instance.h"
#include "tessera/device.h"

/* Features and extensions that we use if they exist, beyond those in tsr_device_info. */
typedef struct tsr__capabilities {
    VkPhysicalDevice physical;
    VkPhysicalDeviceMemoryProperties memory;
    uint32_t queue_family; /* the one we submit to */
    uint32_t timestamp_bits;
    bool int16;
    bool vulkan_memory_model;
    bool subgroup_size_control;
    bool full_subgroups;              /* a pipeline can require full subgroups … */
    bool subgroup_sizes_in_compute;   /* … and their size; not on NVK, which has one size */
    uint32_t max_workgroup_subgroups; /* 0: unknown */
    bool subgroup_quads; /* the four invocations of a quad may exchange values in compute shaders */
    bool mixed_dot_products; /* the GPU has an instruction for signed by unsigned 8-bit dot products
                              */
    bool memory_budget;
    uint64_t host_import_alignment; /* 0 without VK_EXT_external_memory_host */
    VkDriverId driver;
} tsr__capabilities;

/* Fills both. `index` is the device's place in the listing. If the device's driver fails to answer,
 * the device is marked as not usable, with the error as the reason. Only TSR_ERR_NO_MEMORY makes
 * this function fail. */
tsr_status tsr__probe(const tsr__instance *instance, VkPhysicalDevice physical, int index,
                      tsr_device_info *info, tsr__capabilities *capabilities);

/* True if a pipeline can be built so that all its subgroups are full and of one known size: either
 * the device accepts such a request, or it has only one size. */
static inline bool tsr__probe_subgroups(const tsr__capabilities *capabilities,
                                        const tsr_device_info *info)
{
    return capabilities->subgroup_size_control && capabilities->full_subgroups &&
           (capabilities->subgroup_sizes_in_compute ||
            info->subgroup_size_min == info->subgroup_size_max);
}

/* Refreshes the heaps' budget and usage. */
void tsr__probe_budget(const tsr__instance *instance, VkPhysicalDevice physical, bool memory_budget,
                       tsr_heap_info *heaps, int heap_count);

/* Physical devices in the loader's order; *out is freed with tsr__free. */
tsr_status tsr__probe_enumerate(const tsr__instance *instance, uint32_t *out_count,
                                VkPhysicalDevice **out);

#endif
