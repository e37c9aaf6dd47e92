/* Vulkan devices: what there is, what each can do, and opening one.
 *
 * Baseline: Vulkan 1.2 with buffer device addresses and timeline semaphores. Devices without them
 * are listed with the reason they cannot be used. Everything else is probed and used where it
 * helps.
 *
 * Threads: the listing is a value. A tsr_device may be shared between threads; streams and tensors
 * may not (see there).
 *
 * A child after fork() can do nothing with its parent's device, nor with what is on it: that is
 * TSR_ERR_INVALID, and destroying it there leaves it to the parent. Nor can it open or list devices
 * itself, since drivers do not survive fork(): processes fork before they open one, or exec. */
#ifndef TESSERA_DEVICE_H
#define TESSERA_DEVICE_H

#include <stdbool.h>

#include "tessera/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_NAME_SIZE 256
#define TSR_UUID_SIZE 16
#define TSR_MAX_HEAPS 16
#define TSR_MAX_QUEUE_FAMILIES 16
#define TSR_MAX_COOPMAT_SHAPES 64

typedef enum tsr_device_type {
    TSR_DEVICE_OTHER = 0,
    TSR_DEVICE_INTEGRATED = 1,
    TSR_DEVICE_DISCRETE = 2,
    TSR_DEVICE_VIRTUAL = 3,
    TSR_DEVICE_CPU = 4
} tsr_device_type;

typedef struct tsr_heap_info {
    uint64_t size_bytes;
    uint64_t budget_bytes; /* what this process may use now; equals size_bytes where the driver does
                              not say */
    uint64_t usage_bytes;  /* what this process uses now; 0 where the driver does not say */
    bool device_local;
    bool host_visible; /* some memory type of the heap can be mapped */
} tsr_heap_info;

typedef struct tsr_queue_family_info {
    uint32_t count;
    bool graphics, compute, transfer;
    uint32_t timestamp_bits;
} tsr_queue_family_info;

/* One D = A·B + C shape of VK_KHR_cooperative_matrix: A is m×k, B k×n. Component types as the
 * extension names them: "f16", "f32", "bf16", "u8", "s8", "u32", "s32" or "?". */
typedef struct tsr_coopmat_shape {
    uint32_t m, n, k;
    const char *a, *b, *c, *result;
    bool saturating;
    bool subgroup_scope; /* otherwise the scope is the workgroup or another */
} tsr_coopmat_shape;

typedef struct tsr_device_info {
    int index; /* position in the listing: what TESSERA_DEVICE=1 means */
    char name[TSR_NAME_SIZE];
    char driver_name[TSR_NAME_SIZE]; /* "llvmpipe", "radv", "NVIDIA", … */
    char driver_info[TSR_NAME_SIZE]; /* the driver's own version text; may be empty */
    const char *vendor;              /* "NVIDIA", "AMD", "Intel", "Mesa", … or "?" */
    uint32_t vendor_id, device_id;
    uint32_t api_version, driver_version; /* as Vulkan packs them */
    uint8_t uuid[TSR_UUID_SIZE];
    char uuid_text[37]; /* 8-4-4-4-12 lower-case hexadecimal */
    tsr_device_type type;

    bool usable;
    char unusable_reason[TSR_NAME_SIZE]; /* empty when usable */

    int heap_count;
    tsr_heap_info heaps[TSR_MAX_HEAPS];
    int queue_family_count;
    tsr_queue_family_info queue_families[TSR_MAX_QUEUE_FAMILIES];

    uint32_t subgroup_size;                        /* the default */
    uint32_t subgroup_size_min, subgroup_size_max; /* equal where the size cannot be chosen */
    bool fp16;                                     /* arithmetic on 16-bit floats in shaders */
    bool storage16; /* 16-bit loads and stores; otherwise halves travel as 32-bit words */
    bool storage8;  /* 8-bit loads and stores */
    bool int64;     /* 64-bit integers in shaders */
    bool int8;      /* 8-bit arithmetic in shaders */
    bool memory_budget;
    bool external_memory_host;
    bool pipeline_statistics;
    bool unified_memory; /* every device-local heap can be mapped: tensors are reached without
                            copies */

    bool coopmat;            /* the device has cooperative matrices … */
    bool coopmat_bf16;       /* … and some of bf16 among them, VK_KHR_shader_bfloat16 */
    bool coopmat_built;      /* this build has kernels that use those of f16 … */
    bool coopmat_bf16_built; /* … and of bf16 */
    int coopmat_count;
    tsr_coopmat_shape coopmats[TSR_MAX_COOPMAT_SHAPES];
    int coopmat_used;      /* index of the one in kernels for products of f16; -1: they use none */
    int coopmat_bf16_used; /* … and of bf16 */
    uint32_t coopmat_subgroup_size; /* invocations that multiply together there; 0: none is used */

    uint32_t max_workgroup_count[3];
    uint32_t max_workgroup_size[3];
    uint32_t max_workgroup_invocations;
    uint32_t max_shared_memory_bytes;
    uint32_t max_push_constant_bytes;
    uint64_t max_allocation_bytes; /* one tensor's elements */
    float timestamp_period_ns;     /* 0 where timestamps do not work */
} tsr_device_info;

/* The devices of this machine. A snapshot: heap budgets are those of the moment of the call. */
typedef struct tsr_device_list {
    int count;
    tsr_device_info *devices;
} tsr_device_list;

/* Lists every Vulkan device, usable or not, in the loader's order; one whose driver fails to answer
 * is not usable, with that for a reason, and is logged. No device is an empty list. `out` is
 * written on success and is the caller's to give to tsr_device_list_finish. Errors:
 * TSR_ERR_UNSUPPORTED (built without Vulkan, or no Vulkan loader on this machine),
 * TSR_ERR_NO_MEMORY, TSR_ERR_DRIVER. */
TSR_API TSR_NODISCARD tsr_status tsr_device_list_init(tsr_device_list *out);
/* Frees the listing and empties it. NULL and an empty list are fine. */
TSR_API void tsr_device_list_finish(tsr_device_list *list);

typedef struct tsr_device tsr_device;

typedef struct tsr_device_params {
    /* Which device: a decimal index of the listing, a UUID (as uuid_text, hyphens optional), or a
     * part of the name, case ignored. NULL: the environment variable TESSERA_DEVICE, read the same
     * way; without it the best device: discrete, then integrated, virtual, other, CPU; more
     * device-local memory first among equals. */
    const char *device;
    /* Reach no tensor by mapping, even where it is possible: transfers take the staging path of
     * discrete GPUs. */
    bool force_staging;
    /* Keep halves in packed 32-bit words even where the device has 16-bit storage: the path of
     * devices without it. */
    bool force_packed_storage;
    /* Do not read or write the pipeline cache on disk, nor read a tuning (tuning.h). */
    bool no_disk_cache;
    /* An upper bound on the bytes of device memory this device object allocates; 0: the heap's
     * budget. */
    uint64_t memory_limit_bytes;
} tsr_device_params;

#define tsr_device_params(...) (&(tsr_device_params){__VA_ARGS__})

/* Opens a device. `params` may be NULL. Several devices, and the same device several times, may be
 * open in one process. Errors: TSR_ERR_NOT_FOUND (no such device; the text lists what there is),
 * TSR_ERR_INVALID (the name fits several devices: the text lists them; TESSERA_SLOWDOWN is no
 * factor), TSR_ERR_UNSUPPORTED (it cannot be used: the text has the reason), TSR_ERR_NO_MEMORY,
 * TSR_ERR_DRIVER. */
TSR_API TSR_NODISCARD tsr_status tsr_device_open(const tsr_device_params *params, tsr_device **out);

/* Gives the caller's hold on the device up, writes the pipeline cache, and sets *device to NULL.
 * Streams and tensors hold the device themselves: it closes when the last of them is destroyed, in
 * whatever order that happens. */
TSR_API void tsr_device_close(tsr_device **device);

/* What the open device can do. Lives as long as the device. */
TSR_API const tsr_device_info *tsr_device_get_info(const tsr_device *device);

/* Bytes this device object holds from the driver, and bytes of them in use by tensors and scratch.
 * Either pointer may be NULL. */
TSR_API void tsr_device_memory_usage(const tsr_device *device, uint64_t *allocated_bytes,
                                     uint64_t *used_bytes);

/* Writes the pipelines built since the last write to the disk cache now (closing does it too). A
 * cache that cannot be written is logged and is not an error. */
TSR_API void tsr_device_save_cache(tsr_device *device);

#ifdef __cplusplus
}
#endif

#endif
