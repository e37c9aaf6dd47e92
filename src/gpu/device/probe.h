/* What a physical device is and can do. */
#ifndef TSR_GPU_DEVICE_PROBE_H
#define TSR_GPU_DEVICE_PROBE_H

#include "gpu/device/instance.h"
#include "tessera/device.h"

/* Features and extensions we use where they are there, beyond what tsr_device_info tells. */
typedef struct tsr__capabilities {
    VkPhysicalDevice physical;
    VkPhysicalDeviceMemoryProperties memory;
    uint32_t queue_family; /* the one we submit to */
    uint32_t timestamp_bits;
    bool int16;
    bool vulkan_memory_model;
    bool subgroup_size_control;
    bool full_subgroups;              /* can be demanded of a pipeline … */
    bool subgroup_sizes_in_compute;   /* … and so can their size: not on NVK, which has one */
    uint32_t max_workgroup_subgroups; /* 0 where the driver does not say */
    bool subgroup_quads;              /* compute shaders may swap within four invocations */
    bool mixed_dot_products;          /* of 8-bit integers, signed by unsigned, by an instruction */
    bool memory_budget;
    uint64_t host_import_alignment; /* 0 without VK_EXT_external_memory_host */
    VkDriverId driver;
} tsr__capabilities;

/* Fills both. `index` is the device's place in the listing. A device whose driver fails to answer
 * is not usable, with that for a reason, unless host memory was short: then this fails. */
tsr_status tsr__probe(const tsr__instance *instance, VkPhysicalDevice physical, int index,
                      tsr_device_info *info, tsr__capabilities *capabilities);

/* Whether a pipeline can be built so that all its subgroups are full and of one known size: either
 * the device takes such a request, or it has only one size. */
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
