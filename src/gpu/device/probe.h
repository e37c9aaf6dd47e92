/* Finds out the properties of a physical device. */
#ifndef TSR_GPU_DEVICE_PROBE_H
#define TSR_GPU_DEVICE_PROBE_H

#include "gpu/device/coopmat2.h"
#include "gpu/device/facts.h"
#include "gpu/device/instance.h"

/* Features and extensions, in addition to those in tsr_device_info, that the library uses if the
 * device has them. */
typedef struct tsr__capabilities {
    VkPhysicalDevice physical;
    VkPhysicalDeviceMemoryProperties memory;
    uint32_t queue_family; /* the queue family to which the library submits */
    /* the family for copies while the other queue computes; UINT32_MAX: none */
    uint32_t transfer_family;
    uint32_t timestamp_bits;
    bool int16;
    bool vulkan_memory_model;
    bool subgroup_size_control;
    bool full_subgroups; /* a pipeline can require full subgroups */
    /* a pipeline can require a subgroup size; false for NVK, for example, which has only one size
     */
    bool subgroup_sizes_in_compute;
    uint32_t max_workgroup_subgroups; /* 0: unknown */
    /* the largest number of allocations of device memory at the same time */
    uint32_t max_allocations;
    /* shaders can demand that subnormal f16 numbers are kept, independently of those of f32 */
    bool f16_subnormals;
    /* shaders can demand that infinities and NaNs of f32 are kept */
    bool f32_infinities;
    bool no_halves;      /* known fault: shaders must not compute with f16 */
    bool subgroup_votes; /* compute shaders can use subgroupAll and subgroupAny */
    bool subgroup_quads; /* the four invocations of a quad can exchange values in compute shaders */
    bool subgroup_sums;  /* compute shaders can use subgroupAdd */
    bool mixed_dot_products; /* the GPU has an instruction for signed by unsigned 8-bit dot products
                              */
    bool dot2;               /* an instruction adds two products of f16 to a sum in f32 */
    bool int8_dot;           /* shaders can add up four products of bytes in one instruction */
    bool memory_budget;
    uint64_t host_import_alignment; /* 0 if VK_EXT_external_memory_host is missing */
    VkDriverId driver;
    /* the features of VK_NV_cooperative_matrix2; all are 0 if the extension is missing */
    VkPhysicalDeviceCooperativeMatrix2FeaturesNV coopmat2_features;
    /* the invocations of a workgroup can share cooperative matrices (VK_NV_cooperative_matrix2),
     * and load them with tensor addressing */
    bool has_coopmat2;
    tsr__coopmat2 coopmat2; /* the matrices shared by a workgroup that kernels use */
    bool coopmat_faulty;    /* a known fault forbids cooperative matrices */
    /* a known fault demands a lower limit of work for batches and dispatches */
    bool short_work;
} tsr__capabilities;

/* Fills in *facts and *capabilities. `index` is the device's position in the listing. If the driver
 * returns an error, the device is marked as not usable, and the error becomes the reason. The
 * function itself fails only with TSR_ERR_NO_MEMORY. */
tsr_status tsr__probe(const tsr__instance *instance, VkPhysicalDevice physical, int index,
                      tsr__device_facts *facts, tsr__capabilities *capabilities);

/* True if a pipeline can be built whose subgroups are all full and have one known size. This is
 * possible if a pipeline can require it, or if the device has only one subgroup size. */
static inline bool tsr__probe_subgroups(const tsr__capabilities *capabilities,
                                        const tsr_device_info *info)
{
    return capabilities->subgroup_size_control && capabilities->full_subgroups &&
           (capabilities->subgroup_sizes_in_compute ||
            info->subgroup_size_min == info->subgroup_size_max);
}

/* In probe_coopmat.c. Lists the shapes of cooperative matrices that one subgroup holds. */
tsr_status tsr__probe_coopmat(const tsr__instance *instance, VkPhysicalDevice physical,
                              tsr__device_facts *facts);
/* In probe_coopmat.c. Reads which matrices a workgroup can share. */
tsr_status tsr__probe_coopmat2(const tsr__instance *instance, tsr__capabilities *capabilities);

/* Updates budget_bytes and usage_bytes of all info->heap_count elements of `heaps`. */
void tsr__probe_budget(const tsr__instance *instance, VkPhysicalDevice physical,
                       const tsr_device_info *info, tsr_heap_info *heaps);

/* Lists the physical devices in the loader's order. The caller frees *out with tsr__free. */
tsr_status tsr__probe_enumerate(const tsr__instance *instance, uint32_t *out_count,
                                VkPhysicalDevice **out);

#endif
