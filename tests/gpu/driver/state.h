/* What the files of this driver share. driver.h says what the driver is for. */
#ifndef TSR_TESTS_GPU_DRIVER_STATE_H
#define TSR_TESTS_GPU_DRIVER_STATE_H

#include "driver.h"

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <vulkan/vk_icd.h>
#include <vulkan/vulkan.h>

#define DRIVER_FAMILIES 2
#define DRIVER_MAX_WAITS 16

/* A copy of a VkSubmitInfo. */
typedef struct submission {
    struct submission *next;
    uint32_t wait_count, signal_count;
    VkSemaphore waits[DRIVER_MAX_WAITS], signals[DRIVER_MAX_WAITS];
    uint64_t wait_values[DRIVER_MAX_WAITS], signal_values[DRIVER_MAX_WAITS];
    uint32_t command_count;
    VkCommandBuffer commands[DRIVER_MAX_WAITS];
} submission;

typedef struct device device;

/* A queue of this driver. The loader keeps its own data in the first member. */
typedef struct queue {
    VK_LOADER_DATA loader;
    device *of;
    unsigned family;
    pthread_t thread;
    submission *first;
    bool working, closing;
    uint32_t random;
} queue;

struct device {
    device *next;
    VkDevice handle;
    PFN_vkGetDeviceProcAddr find;
    VkQueue driver_queue;
    pthread_mutex_t lock; /* protects the use of driver_queue */
    queue queues[DRIVER_FAMILIES];
    /* for commands that are submitted one by one (commands_run); made when first used */
    VkCommandPool single_pool;
    VkCommandBuffer single;
    VkFence single_done;
};

/* A function of the real driver's device. */
#define DEVICE_NEXT(device, name) ((PFN_vk##name)(device)->find((device)->handle, "vk" #name))

device *device_of(VkDevice handle);
bool environment_is(const char *name, const char *value);
/* Prints a message and ends the process: the tests expect that the driver itself never fails. */
void driver_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

typedef struct entry {
    const char *name;
    PFN_vkVoidFunction function;
} entry;

#define ENTRY(name, function)                                                                      \
    {                                                                                              \
        "vk" #name, (PFN_vkVoidFunction)(function)                                                 \
    }

/* commands.c: keeps the commands of command buffers, and gives them to the real driver in another
 * order, or one by one. commands_entry returns its replacement of a function, or NULL. */
PFN_vkVoidFunction commands_entry(const char *name);
/* True if commands are submitted one by one, by commands_run, instead of with their buffers. */
bool commands_are_single(void);
/* Runs the commands of a buffer and waits for each of them. The caller holds of->lock. */
void commands_run(device *of, VkCommandBuffer handle);
void commands_device_closes(device *of);

/* memory.c: where device memory lies, and which of it commands may access.
 * memory_is_own: this driver allocates device memory itself (memory_allocate).
 * memory_is_checked: a command may access only what it has declared. */
bool memory_is_own(void);
bool memory_is_checked(void);
VkResult memory_allocate(device *of, const VkMemoryAllocateInfo *info,
                         const VkAllocationCallbacks *allocator, VkDeviceMemory *out);
void memory_free(device *of, VkDeviceMemory memory, const VkAllocationCallbacks *allocator);
/* Remember the size of a buffer, and forget it. memory_bind needs it. */
void memory_buffer_made(VkBuffer buffer, VkDeviceSize size);
void memory_buffer_destroyed(VkBuffer buffer);
/* Binds a buffer to its memory. TEST_DRIVER_FENCE says at which end of own memory. */
VkResult memory_bind(device *of, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize offset);
/* Opens the ranges that a label declares (src/gpu/stream/label.c), until memory_close. A command
 * without a label may access nothing. */
void memory_open(const char *label);
void memory_close(void);

/* barriers.c: returns a copy of a module without the barrier that TEST_DRIVER_REMOVE names, and
 * adds the module's barriers to the file in TEST_DRIVER_BARRIERS. Returns NULL if neither is set.
 * The caller frees it. */
uint32_t *barriers_removed(const uint32_t *words, size_t size_bytes);

/* invocations.c: returns a copy of a module in which invocations and workgroups have other numbers,
 * or NULL if TEST_DRIVER_INVOCATIONS is not set. The caller frees it. */
uint32_t *invocations_permuted(const uint32_t *words, size_t size_bytes, size_t *out_size_bytes);

#endif
