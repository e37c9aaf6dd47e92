/* An open device: the state that streams, buffers, pipelines and operators share. */
#ifndef TSR_GPU_DEVICE_DEVICE_H
#define TSR_GPU_DEVICE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "gpu/device/attachment.h"
#include "gpu/device/coopmat2.h"
#include "gpu/device/facts.h"
#include "gpu/device/instance.h"
#include "gpu/device/storage.h"
#include "gpu/device/traits.h"

typedef struct tsr__timeline tsr__timeline;

/* Returns the variant of the shaders that suits the device. tsr_device_params can ask for
 * TSR__STORAGE_W32 on any device. */
static inline tsr__storage tsr__storage_of(const tsr_device_info *info)
{
    return info->storage16 && info->storage8 ? TSR__STORAGE_S16 : TSR__STORAGE_W32;
}

/* The work of commands is counted in multiply-adds. Reading or writing one byte counts as
 * TSR__BYTE_WORK of them, because most GPUs do about that many in the same time.
 * TSR__GPU_WORK_LIMIT is the work at which a batch is submitted, and the largest work of one
 * dispatch of a large product, for which even a small GPU takes less than a second. Drivers assume
 * that a GPU that is busy for a few seconds hangs, and reset it. */
#define TSR__BYTE_WORK 16
#define TSR__GPU_WORK_LIMIT 137438953472.0 /* 2³⁷ */
/* The least work that one step of a serial loop counts as, however few invocations run it. In such
 * a loop each step needs the result of the previous one, so the GPU waits for memory in each step;
 * meanwhile it could do this many multiply-adds. */
#define TSR__STEP_WORK 131072.0 /* 2¹⁷ */
/* The limit instead of TSR__GPU_WORK_LIMIT for slow GPUs that drivers are known to reset early
 * (known_faults.c). */
#define TSR__SHORT_WORK_LIMIT (TSR__GPU_WORK_LIMIT / 16)

/* The number of chunks of the ring of staging memory that a stream has for each direction
 * (stream/staging.h). */
#define TSR__STAGING_CHUNKS 4

/* A queue of the device. Its commands may use only the pipeline stages and the accesses that its
 * family supports. */
typedef struct tsr__queue {
    VkQueue handle; /* NULL: the device has no such queue */
    uint32_t family;
    VkPipelineStageFlags stages;
    VkAccessFlags reads, writes;
} tsr__queue;

/* What a kernel must do to keep subnormal f16 numbers when it widens them to f32. */
typedef enum tsr__subnormals {
    TSR__SUBNORMALS_KEPT,    /* nothing: drivers for the CPU always keep such numbers */
    TSR__SUBNORMALS_BY_MODE, /* the kernel must have the execution mode DenormPreserve */
    TSR__SUBNORMALS_BY_CODE  /* the kernel must widen f16 by integer arithmetic */
} tsr__subnormals;

struct tsr_device {
    tsr__instance *instance;
    VkPhysicalDevice physical;
    VkDevice handle;
    tsr__vk_device vk;
    union {
        tsr__device_facts facts;
        tsr_device_info info; /* facts.info, which is most of what the rest of gpu/ reads */
    };
    tsr__traits traits; /* what depends on the kind of driver */
    /* the kernels for CPU drivers (cpu_drivers/cpu_drivers.h); NULL on GPUs, and in builds without
     * these kernels */
    const struct tsr__cpu_kernels *cpu;
    tsr__storage storage; /* which variant of the shaders this device uses */
    bool disk_cache;      /* pipelines and tuning are read from files */
    /* the device is a driver for the host's CPUs, so the host may copy tensors itself instead of
     * submitting a command */
    bool host_copies;
    /* The host's processor keeps up with straight-line code of 52 KiB: it has 32 vector registers,
     * and its first-level cache has 64 KiB for instructions. Kernels for lavapipe may then have
     * that much code. */
    bool long_code;
    tsr__queue compute;
    /* a queue for copies at the same time as computations; many devices have none */
    tsr__queue transfer;
    /* Uploads and downloads of at least this size use the transfer queue. Smaller ones take less
     * time than it takes to make one queue wait for the other. */
    uint64_t transfer_least_bytes;
    uint32_t timestamp_bits;
    /* how long a wait polls before it sleeps (timeline.c); 0 on CPU drivers */
    uint64_t poll_ns;
    uint32_t max_workgroup_subgroups;
    /* the work at which a batch is submitted: one of the two limits above, or infinity on CPU
     * drivers */
    double work_limit;
    bool subgroup_votes;
    bool subgroup_quads;
    bool subgroup_sums;
    tsr__coopmat2 coopmat2; /* the matrices shared by a workgroup that kernels use */
    bool dot2;              /* an instruction adds two products of f16 to a sum in f32 */
    bool int8_dot;          /* shaders can add up four products of bytes in one instruction */
    tsr__subnormals subnormals;
    /* kernels that compute with infinities must have the execution mode SignedZeroInfNanPreserve */
    bool infinities_by_mode;
    /* workgroups may not see what other workgroups of their dispatch have written, even after
     * barriers of device scope */
    bool isolates_workgroups;
    bool nvk;         /* the driver is Mesa's for NVIDIA's GPUs */
    bool self_tested; /* kernels are tested before their first use (self_test/self_test.h) */
    /* Returns an error if a pipeline's shader failed its self-test. Sets *settled to whether the
     * result is final: later calls for the same pipeline would return the same. NULL: there are no
     * self-tests. */
    tsr_status (*admit)(tsr_device *device, int shader, const uint32_t *spec, int spec_count,
                        bool *settled);
    bool subgroups_demanded; /* a pipeline can require full subgroups of a given size */

    VkPhysicalDeviceMemoryProperties memory_properties;
    uint64_t memory_limit_bytes; /* a limit that the caller has set; 0: none */
    /* the largest number of slabs (memory/slabs.h), each of which is one allocation */
    uint32_t max_allocations;
    bool wants_mapping;             /* the host maps tensors if there is suitable memory */
    bool wants_direct_uploads;      /* the host writes tensors directly, but does not read them */
    uint64_t staging_chunk_bytes;   /* the size of one of the TSR__STAGING_CHUNKS chunks */
    uint64_t host_import_alignment; /* the alignment that host memory must have to be imported; 0:
                                       no import */

    pthread_mutex_t queue_lock;     /* protects both queues */
    tsr__timeline *spare_timelines; /* protected by queue_lock */
    tsr__attachments attachments;
    /* the fork generation (base/fork.h) of the process that opened the device */
    unsigned generation;
    atomic_bool lost;
    atomic_uint references;
};

/* The self-tests of kernels, which run operators and therefore stand above the device. */
typedef struct tsr__device_self_tests {
    /* Fails if TESSERA_SELF_TEST has no valid value. */
    tsr_status (*check_mode)(void);
    /* Sets the device's self_tested and admit as TESSERA_SELF_TEST says; with `full`, tests all
     * kernels now. */
    void (*start)(tsr_device *device);
} tsr__device_self_tests;
extern const tsr__device_self_tests tsr__device_self_tests_table; /* checks/tested_kernels.c */

/* Does the same as tsr_device_open, but without self-tests of kernels, and also opens devices that
 * are not usable. An example is the null hardware of drivers, on which pipelines can be built but
 * no memory can be allocated. */
tsr_status tsr__device_open_to_compile(const tsr_device_params *params, tsr_device **out);

/* Sets what depends on the kind of driver: traits and cpu. Tests call this function to let a CPU
 * driver run the kernels of GPUs. */
void tsr__device_treat_as(tsr_device *device, tsr__device_class device_class);

/* References keep the device usable after tsr_device_close. */
void tsr__device_retain(tsr_device *device);
void tsr__device_release(tsr_device *device);

/* Records that the Vulkan call `call` returned `result`, and returns the matching status.
 * VK_ERROR_DEVICE_LOST marks the device as lost. */
tsr_status tsr__device_fail(tsr_device *device, VkResult result, const char *call);

/* Fails with TSR_ERR_DEVICE_LOST after the device was lost, and with TSR_ERR_INVALID in a child of
 * fork(). Every function that records, waits or allocates calls this first. */
tsr_status tsr__device_check(const tsr_device *device);

/* True in a child of fork(), where the device and all its objects belong to the parent. The
 * driver's threads do not exist in the child, so destroying such an object could block
 * indefinitely. In that case callers must not destroy the object. */
bool tsr__device_is_inherited(const tsr_device *device);

/* Returns the factor by which streams are slowed down, from the environment variable
 * TESSERA_SLOWDOWN. It is 1 if the variable is not set. tsr_device_open also calls this function,
 * so that a wrong value is reported early. */
tsr_status tsr__slowdown(double *out) TSR_NODISCARD;

/* TSR__DEVICE_TRY(device, CreateBuffer, device->handle, …) calls vkCreateBuffer. If it fails, the
 * calling function returns the error. */
#define TSR__DEVICE_TRY(device, name, ...)                                                         \
    do {                                                                                           \
        VkResult tsr__result_ = TSR__VK(&(device)->vk, name, __VA_ARGS__);                         \
        if (tsr__result_ < 0)                                                                      \
            return tsr__device_fail((device), tsr__result_, "vk" #name);                           \
    } while (0)

#endif
