/* An open device: the state that streams, buffers, pipelines and operators share. */
#ifndef TSR_GPU_DEVICE_DEVICE_H
#define TSR_GPU_DEVICE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "gpu/device/attachment.h"
#include "gpu/device/instance.h"
#include "gpu/device/storage.h"
#include "tessera/device.h"

typedef struct tsr__timeline tsr__timeline;

/* The kind of device that a kernel is chosen for. */
typedef enum tsr__device_class {
    TSR__CLASS_GPU,
    TSR__CLASS_LAVAPIPE, /* Mesa's CPU driver: fast only in straight-line code */
    TSR__CLASS_CPU       /* other CPU drivers, SwiftShader among them */
} tsr__device_class;

/* The shader variant that a device runs, unless tsr_device_params asks for the packed one. */
static inline tsr__storage tsr__storage_of(const tsr_device_info *info)
{
    return info->storage16 && info->storage8 ? TSR__STORAGE_S16 : TSR__STORAGE_W32;
}

/* Work is counted in multiply-adds. A byte that is read or written counts as TSR__BYTE_WORK of
 * them, since most GPUs do about that many in the same time. A batch is submitted once it has this
 * much work, and large products are split into dispatches of at most this much. Even a small GPU
 * then takes less than a second for one dispatch. Drivers assume that a GPU which is busy for a few
 * seconds hangs, and reset it. */
#define TSR__BYTE_WORK 16
#define TSR__GPU_WORK_LIMIT 137438953472.0 /* 2³⁷ */

struct tsr_device {
    tsr__instance *instance;
    VkPhysicalDevice physical;
    VkDevice handle;
    tsr__vk_device vk;
    tsr_device_info info;
    tsr__device_class device_class;
    tsr__storage storage; /* the variant of each shader that runs here */
    bool disk_cache;      /* pipelines and tuning are read from files */
    bool host_copies; /* the host's CPUs execute this device's work, so the host may also copy */
    VkQueue queue;
    uint32_t queue_family;
    uint32_t timestamp_bits;
    uint32_t max_workgroup_subgroups;
    double work_limit; /* TSR__GPU_WORK_LIMIT, or infinity on CPU drivers */
    bool subgroup_quads;
    bool subgroups_demanded; /* a pipeline can ask for full subgroups of one size */

    VkPhysicalDeviceMemoryProperties memory_properties;
    uint64_t memory_limit_bytes;    /* set by the caller; 0: none */
    bool wants_mapping;             /* map tensors if there is such memory */
    uint64_t host_import_alignment; /* of host memory that the device can import; 0: it cannot */

    pthread_mutex_t queue_lock;
    tsr__timeline *spare_timelines; /* under queue_lock */
    tsr__attachments attachments;
    unsigned generation; /* of the process that opened the device: base/fork.h */
    atomic_bool lost;
    atomic_uint references;
};

/* As tsr_device_open, but also opens devices that are not usable, for example drivers' null
 * hardware, on which pipelines can be built but no memory allocated. */
tsr_status tsr__device_open_to_compile(const tsr_device_params *params, tsr_device **out);

/* The holder of a reference may use the device after tsr_device_close. */
void tsr__device_retain(tsr_device *device);
void tsr__device_release(tsr_device *device);

/* Records that the Vulkan call `call` returned `result`, and returns the matching status.
 * VK_ERROR_DEVICE_LOST marks the device as lost. */
tsr_status tsr__device_fail(tsr_device *device, VkResult result, const char *call);

/* Fails with TSR_ERR_DEVICE_LOST once the device is lost, and with TSR_ERR_INVALID in a child of
 * fork(). Everything that records, waits or allocates calls this first. */
tsr_status tsr__device_check(const tsr_device *device);

/* True in a child of fork(), where the device and all its objects belong to the parent. The
 * driver's threads do not exist in the child, so destroying such an object could block for ever.
 * Callers leave it as it is. */
bool tsr__device_is_inherited(const tsr_device *device);

/* Reads TESSERA_SLOWDOWN: the factor by which streams are slowed down, 1 if it is not set.
 * tsr_device_open also calls it, so that a wrong value is reported early. */
tsr_status tsr__slowdown(double *out) TSR_NODISCARD;

/* TSR__DEVICE_TRY(device, CreateBuffer, device->handle, …): calls the function, and returns its
 * error from the calling function on failure. */
#define TSR__DEVICE_TRY(device, name, ...)                                                         \
    do {                                                                                           \
        VkResult tsr__result_ = TSR__VK(&(device)->vk, name, __VA_ARGS__);                         \
        if (tsr__result_ < 0)                                                                      \
            return tsr__device_fail((device), tsr__result_, "vk" #name);                           \
    } while (0)

#endif
