/* Vulkan devices: listing them with their abilities, and opening them.
 *
 * A device needs Vulkan 1.2 with buffer device addresses and timeline semaphores. A device without
 * them is listed with the reason why it cannot be used. All other features are detected and used
 * where they help.
 *
 * Threads: any thread may read a listing. Several threads may use one tsr_device; streams and
 * tensors have their own rules (stream.h, tensor.h).
 *
 * Drivers do not survive fork(), so a process must fork before it opens a device, or call exec
 * afterwards. In a child of fork(), calls on the parent's device, and on its streams and tensors,
 * return TSR_ERR_INVALID; destroying them does not affect the parent. Listing and opening devices
 * also return TSR_ERR_INVALID there if the parent had a device open. */
#ifndef TESSERA_DEVICE_H
#define TESSERA_DEVICE_H

#include <stdbool.h>

#include "tessera/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_UUID_SIZE 16

typedef enum tsr_device_type {
    TSR_DEVICE_OTHER = 0,
    TSR_DEVICE_INTEGRATED = 1,
    TSR_DEVICE_DISCRETE = 2,
    TSR_DEVICE_VIRTUAL = 3,
    TSR_DEVICE_CPU = 4
} tsr_device_type;

/* The properties of a device. The library creates them, with a listing or an open device, and they
 * are valid as long as that; so are their strings. Do not copy the struct: later releases append
 * fields to it, and the functions below take only the library's own. */
typedef struct tsr_device_info {
    int index;               /* position in the listing, which TESSERA_DEVICE=1 refers to */
    const char *name;        /* "NVIDIA H200", … */
    const char *driver_name; /* "llvmpipe", "radv", "NVIDIA", … */
    const char *driver_info; /* the driver's own version text; may be empty */
    const char *vendor;      /* "NVIDIA", "AMD", "Intel", "Mesa", … or "?" */
    uint32_t vendor_id, device_id;
    uint32_t api_version, driver_version; /* in the encoding of VkPhysicalDeviceProperties */
    uint8_t uuid[TSR_UUID_SIZE];
    const char *uuid_text; /* 8-4-4-4-12 lower-case hexadecimal */
    tsr_device_type type;

    bool usable;                 /* tsr_device_open accepts the device */
    const char *unusable_reason; /* empty when usable */

    int heap_count;    /* see tsr_device_heap */
    int coopmat_count; /* see tsr_device_coopmat_shape */

    uint32_t subgroup_size;                        /* the default */
    uint32_t subgroup_size_min, subgroup_size_max; /* equal if the size cannot be chosen */
    bool fp16;                                     /* arithmetic on 16-bit floats in shaders */
    bool storage16; /* 16-bit loads and stores; otherwise 16-bit elements are packed in 32-bit words
                     */
    bool storage8;  /* 8-bit loads and stores */
    bool int64;     /* 64-bit integers in shaders */
    bool int8;      /* 8-bit arithmetic in shaders */
    bool memory_budget;
    bool external_memory_host;
    bool pipeline_statistics;
    bool unified_memory; /* every device-local heap can be mapped, and the GPU is not discrete:
                            tensors need no copies to be accessed by the host */
    bool direct_uploads; /* the memory is not unified, but the host can write all of it (resizable
                            BAR): uploads are written to their place if no work uses the tensor */

    bool coopmat;      /* the device has cooperative matrices */
    bool coopmat_bf16; /* the device has cooperative matrices of bf16, too (VK_KHR_shader_bfloat16)
                        */
    int coopmat_used;  /* index of the shape that kernels use for products of f16; -1: none */
    int coopmat_bf16_used;          /* like coopmat_used, for bf16 */
    uint32_t coopmat_subgroup_size; /* size of the subgroups that multiply together with these
                                       shapes; 0: none is used */

    /* For products of f16 and of bf16, tunings may choose matrices that a workgroup shares
     * (VK_NV_cooperative_matrix2). */
    bool coopmat2, coopmat2_bf16;

    /* The device has an instruction that adds four products of bytes, so allow_int8 (matmul.h) has
     * an effect. */
    bool int8_dot;

    /* compute units or streaming multiprocessors; 0: the driver does not report it */
    uint32_t processor_count;
    uint32_t max_workgroup_count[3];
    uint32_t max_workgroup_size[3];
    uint32_t max_workgroup_invocations;
    uint32_t max_shared_memory_bytes;
    uint32_t max_push_constant_bytes;
    uint64_t max_allocation_bytes; /* the largest size of a tensor's elements */
    float timestamp_period_ns;     /* 0 if timestamps do not work */
} tsr_device_info;

typedef struct tsr_heap_info {
    uint64_t size_bytes;
    /* What this process may use now. If the driver does not report it: size_bytes, or, for
     * lavapipe, the memory of the machine if that is more. */
    uint64_t budget_bytes;
    uint64_t usage_bytes; /* what this process uses now; 0 if the driver does not report it */
    bool device_local;
    bool host_visible; /* some memory type of the heap can be mapped */
} tsr_heap_info;

/* Returns one of the heaps of a device's memory: `index` is below info->heap_count. NULL for any
 * other index, and for NULL. */
TSR_API const tsr_heap_info *tsr_device_heap(const tsr_device_info *info, int index);

/* One D = A·B + C shape of VK_KHR_cooperative_matrix: A is m×k, B k×n. Component types as the
 * extension names them: "f16", "f32", "bf16", "u8", "s8", "u32", "s32" or "?". */
typedef struct tsr_coopmat_shape {
    uint32_t m, n, k;
    const char *a, *b, *c, *result;
    bool saturating;
    bool subgroup_scope; /* a subgroup shares each matrix; false: a workgroup, for example */
} tsr_coopmat_shape;

/* Returns one of the shapes of cooperative matrices that the device multiplies: `index` is below
 * info->coopmat_count. NULL for any other index, and for NULL. */
TSR_API const tsr_coopmat_shape *tsr_device_coopmat_shape(const tsr_device_info *info, int index);

/* The devices of this machine. The pointers are valid until the listing is destroyed. */
typedef struct tsr_device_list {
    int count;
    const tsr_device_info *const *devices; /* [count] */
} tsr_device_list;

/* Lists every Vulkan device, usable or not, in the loader's order, with the heap budgets at the
 * time of the call. If a device's driver fails to answer, the device is listed as not usable with
 * the error as the reason, and a warning is logged. If there is no device, the list is empty.
 * Blocks until all drivers have answered. Errors: TSR_ERR_UNSUPPORTED (built without Vulkan, or no
 * Vulkan loader on this machine), TSR_ERR_INVALID (in a child of fork(), see above),
 * TSR_ERR_NOT_FOUND (TESSERA_VALIDATION is set, but its layer is not installed), TSR_ERR_NO_MEMORY,
 * TSR_ERR_DRIVER. */
TSR_API TSR_NODISCARD tsr_status tsr_device_list_create(tsr_device_list **out);
/* Destroys a listing and sets *list to NULL. NULL is allowed. */
TSR_API void tsr_device_list_destroy(tsr_device_list **list);

typedef struct tsr_device tsr_device;

typedef struct tsr_device_params {
    size_t struct_size;
    /* The device to open: a decimal index of the listing, a UUID (as uuid_text, with or without
     * hyphens), or a part of the name, in upper or lower case. NULL: the environment variable
     * TESSERA_DEVICE, with the same syntax. If that is not set either, the best device: discrete,
     * then integrated, virtual, other, CPU; among equals, the one with the most device-local
     * memory. */
    const char *device;
    /* Map no tensors, even if that is possible: transfer them through staging memory as on discrete
     * GPUs. */
    bool force_staging;
    /* Keep 16-bit elements packed in 32-bit words, as on devices without 16-bit storage, even if
     * the device has it. */
    bool force_packed_storage;
    /* Cache pipelines in memory only, not on disk, and do not read a tuning (tessera bench --tune).
     */
    bool cache_in_memory;
    /* The largest number of bytes of device memory that this device object allocates; 0: the heap's
     * budget. */
    uint64_t memory_limit_bytes;
    /* The size of the staging memory of a stream for each direction, at least 256 KiB. 0: 64 MiB if
     * the device has memory of its own, otherwise 12 MiB. It is allocated when it is used; if there
     * is not enough memory, less is allocated. */
    uint64_t staging_bytes;
} tsr_device_params;

#define tsr_device_params(...)                                                                     \
    (&(tsr_device_params){.struct_size = sizeof(tsr_device_params), __VA_ARGS__})

/* Opens a device. `params` may be NULL. A process may open several devices, and the same device
 * several times. Blocks until the drivers have answered. Errors: TSR_ERR_NOT_FOUND (there is no
 * such device; the text lists the devices), TSR_ERR_INVALID (the name fits several devices, which
 * the text lists; TESSERA_SLOWDOWN, TESSERA_SELF_TEST or staging_bytes is not valid; in a child of
 * fork(), see above), TSR_ERR_UNSUPPORTED (the device cannot be used; the text has the reason),
 * TSR_ERR_NO_MEMORY, TSR_ERR_DRIVER. */
TSR_API TSR_NODISCARD tsr_status tsr_device_open(const tsr_device_params *params, tsr_device **out);

/* Writes the pipeline cache, releases the caller's reference to the device and sets *device to
 * NULL. NULL is allowed. Streams, tensors and kernels have references of their own: the device
 * closes when the last of them is destroyed, in any order. Blocks until the cache file is written
 * and, if the device closes, until it is idle. */
TSR_API void tsr_device_close(tsr_device **device);

/* Returns the open device's properties, which are valid as long as the device. */
TSR_API const tsr_device_info *tsr_device_get_info(const tsr_device *device);

/* Gives the bytes that this device object has allocated from the driver, and how many of these
 * bytes tensors and scratch memory use. Either pointer may be NULL. */
TSR_API void tsr_device_memory_usage(const tsr_device *device, uint64_t *allocated_bytes,
                                     uint64_t *used_bytes);

#ifdef __cplusplus
}
#endif

#endif
