/* An open device: what streams, buffers and pipelines share. */
#ifndef TSR_GPU_DEVICE_DEVICE_H
#define TSR_GPU_DEVICE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "gpu/device/instance.h"
#include "gpu/pipeline/shader.h"
#include "tessera/device.h"

typedef struct tsr__memory tsr__memory;
typedef struct tsr__pipelines tsr__pipelines;
typedef struct tsr__timeline tsr__timeline;
typedef struct tsr__tuned tsr__tuned;

/* What kind of machine a kernel is chosen for. */
typedef enum tsr__device_class {
    TSR__CLASS_GPU,
    TSR__CLASS_LAVAPIPE, /* Mesa's CPU driver: fast only in straight-line code */
    TSR__CLASS_CPU       /* other CPU drivers, SwiftShader among them */
} tsr__device_class;

/* The variant of the shaders that such a device runs, unless a test wants the other one. */
static inline tsr__storage tsr__storage_of(const tsr_device_info *info)
{
    return info->storage16 && info->storage8 ? TSR__STORAGE_S16 : TSR__STORAGE_W32;
}

struct tsr_device {
    tsr__instance *instance;
    VkPhysicalDevice physical;
    VkDevice handle;
    tsr__vk_device vk;
    tsr_device_info info;
    tsr__device_class device_class;
    tsr__storage storage; /* which variant of each shader runs here */
    bool mapped;          /* tensors are reached by mapping */
    bool host_copies;     /* the host's CPUs may copy, and do it best */
    VkQueue queue;
    uint32_t queue_family;
    uint32_t timestamp_bits;
    uint32_t max_workgroup_subgroups;
    uint64_t
        host_import_alignment; /* of memory that the device takes as its own; 0: it takes none */
    uint64_t left_limit;       /* bytes that batches of one stream may keep from coming back */
    double work_limit; /* of a batch, about, and of one dispatch of a product; see stream.h */
    bool subgroup_quads;
    bool subgroups_demanded; /* a pipeline can ask for full subgroups of one size */
    pthread_mutex_t queue_lock;
    tsr__timeline *spare_timelines; /* under queue_lock */
    tsr__memory *memory;
    tsr__pipelines *pipelines;
    tsr__tuned *tuned;   /* which kernels measuring found best */
    unsigned generation; /* of the process that opened it: base/fork.h */
    atomic_bool lost;
    atomic_uint references;
};

/* As tsr_device_open, but opens devices that cannot be used too, drivers' null hardware among them:
 * pipelines can be built there, memory cannot be had. */
tsr_status tsr__device_open_to_compile(const tsr_device_params *params, tsr_device **out);

void tsr__device_retain(tsr_device *device);
void tsr__device_release(tsr_device *device);

/* Records `result` of the Vulkan call `call` as an error in words and returns its status;
 * DEVICE_LOST is remembered. */
tsr_status tsr__device_fail(tsr_device *device, VkResult result, const char *call);

/* TSR_ERR_DEVICE_LOST, with its text, once the device is lost, and TSR_ERR_INVALID in a child of
 * fork(). First thing in everything that records, waits or allocates. */
tsr_status tsr__device_check(const tsr_device *device);

/* In a child of fork() the device and all that is on it are the parent's: the driver's threads are
 * not there, and who destroyed anything would wait for them. Such objects are left as they are. */
bool tsr__device_is_inherited(const tsr_device *device);

/* slow.c: what TESSERA_SLOWDOWN says of streams; 1: none. Opening a device asks too, so that a
 * mistake is told at once. */
tsr_status tsr__slowdown(double *out) TSR_NODISCARD;

/* TSR__DEVICE_TRY(device, CreateBuffer, device->handle, …): calls, and returns from the caller on
 * failure. */
#define TSR__DEVICE_TRY(device, name, ...)                                                         \
    do {                                                                                           \
        VkResult tsr__result_ = TSR__VK(&(device)->vk, name, __VA_ARGS__);                         \
        if (tsr__result_ < 0)                                                                      \
            return tsr__device_fail((device), tsr__result_, "vk" #name);                           \
    } while (0)

#endif
