#include "state.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { FAMILIES = DRIVER_FAMILIES, MAX_WAITS = DRIVER_MAX_WAITS };

void driver_fail(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fprintf(stderr, "\ntest driver: ");
    vfprintf(stderr, format, values);
    fprintf(stderr, "\n");
    va_end(values);
    fflush(stderr);
    _exit(EXIT_FAILURE);
}

bool environment_is(const char *name, const char *value)
{
    const char *is = getenv(name);
    return is && strcmp(is, value) == 0;
}

/* The instance -------------------------------------------------------------------------------- */

/* The tests have only one instance at a time. */
static VkInstance instance;
static void *real_driver;
static PFN_vkGetInstanceProcAddr next_instance;

#define NEXT(name) ((PFN_vk##name)next_instance(instance, "vk" #name))

/* Reads the path of the library from the description of a driver: an absolute path, a name that
 * the system finds, or a path from the folder of the description. */
static bool read_library(const char *description, char *out, size_t size)
{
    char text[2000] = "";
    FILE *file = fopen(description, "r");
    if (!file)
        return false;
    (void)!fread(text, 1, sizeof text - 1, file);
    fclose(file);
    const char *from = strstr(text, "\"library_path\"");
    from = from ? strchr(from + strlen("\"library_path\""), '"') : NULL;
    const char *end = from ? strchr(from + 1, '"') : NULL;
    const char *folder_end = strrchr(description, '/');
    if (!end || !folder_end)
        return false;
    const int length = (int)(end - from - 1), folder = (int)(folder_end - description + 1);
    const bool relative = from[1] != '/' && memchr(from + 1, '/', (size_t)length) != NULL;
    snprintf(out, size, "%.*s%.*s", relative ? folder : 0, description, length, from + 1);
    return true;
}

static PFN_vkVoidFunction real_function(const char *name)
{
    char path[1000];
    PFN_vkVoidFunction function = NULL;
    const char *description = getenv("TEST_DRIVER_OF");
    if (!real_driver && description && read_library(description, path, sizeof path))
        real_driver = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *symbol = real_driver ? dlsym(real_driver, name) : NULL;
    memcpy(&function, &symbol, sizeof function);
    return function;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *allocator,
                                                      VkInstance *out)
{
    const VkResult result =
        ((PFN_vkCreateInstance)next_instance(NULL, "vkCreateInstance"))(info, allocator, out);
    if (result == VK_SUCCESS)
        instance = *out;
    return result;
}

static void look_discrete(VkPhysicalDeviceProperties *properties)
{
    if (!environment_is("TEST_DRIVER_CPU", "1"))
        properties->deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
}

static VKAPI_ATTR void VKAPI_CALL get_properties(VkPhysicalDevice physical,
                                                 VkPhysicalDeviceProperties *out)
{
    NEXT(GetPhysicalDeviceProperties)(physical, out);
    look_discrete(out);
}

static VKAPI_ATTR void VKAPI_CALL get_properties2(VkPhysicalDevice physical,
                                                  VkPhysicalDeviceProperties2 *out)
{
    NEXT(GetPhysicalDeviceProperties2)(physical, out);
    look_discrete(&out->properties);
    /* a driver of which the library knows nothing, so that it uses its kernels for GPUs */
    for (VkBaseOutStructure *next = out->pNext; next; next = next->pNext)
        if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES)
            ((VkPhysicalDeviceVulkan12Properties *)(void *)next)->driverID =
                VK_DRIVER_ID_MESA_VENUS;
}

/* Returns the properties of a queue family. Family 0 has those of the real driver's family, but
 * only one queue; family 1 is invented. */
static VkQueueFamilyProperties family_of(VkPhysicalDevice physical, uint32_t family)
{
    VkQueueFamilyProperties first[1];
    uint32_t count = 1;
    NEXT(GetPhysicalDeviceQueueFamilyProperties)(physical, &count, first);
    first[0].queueCount = 1;
    if (family == 1) {
        first[0].queueFlags = VK_QUEUE_TRANSFER_BIT;
        if (environment_is("TEST_DRIVER_SECOND", "compute"))
            first[0].queueFlags |= VK_QUEUE_COMPUTE_BIT;
        else
            first[0].timestampValidBits = 0;
    }
    return first[0];
}

static VKAPI_ATTR void VKAPI_CALL get_families(VkPhysicalDevice physical, uint32_t *count,
                                               VkQueueFamilyProperties *out)
{
    *count = out && *count < FAMILIES ? *count : FAMILIES;
    for (uint32_t i = 0; out && i < *count; i++)
        out[i] = family_of(physical, i);
}

static VKAPI_ATTR void VKAPI_CALL get_families2(VkPhysicalDevice physical, uint32_t *count,
                                                VkQueueFamilyProperties2 *out)
{
    *count = out && *count < FAMILIES ? *count : FAMILIES;
    for (uint32_t i = 0; out && i < *count; i++)
        out[i].queueFamilyProperties = family_of(physical, i);
}

/* Memory -------------------------------------------------------------------------------------- */

enum { LOCAL, DIRECT, UPLOAD, READBACK, TYPES };

static void split_memory(VkPhysicalDeviceMemoryProperties *memory)
{
    const bool direct = environment_is("TEST_DRIVER_DIRECT", "1");
    const VkMemoryPropertyFlags host =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    const VkDeviceSize size = memory->memoryHeaps[0].size;
    *memory = (VkPhysicalDeviceMemoryProperties){
        .memoryTypeCount = TYPES,
        .memoryTypes = {[LOCAL] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0},
                        [DIRECT] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | host, direct ? 0 : 2},
                        [UPLOAD] = {host, 1},
                        [READBACK] = {host | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 1}},
        .memoryHeapCount = direct ? 2 : 3,
        .memoryHeaps = {{size, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT},
                        {size, 0},
                        {direct ? 0 : 256 << 20, direct ? 0 : VK_MEMORY_HEAP_DEVICE_LOCAL_BIT}},
    };
}

static VKAPI_ATTR void VKAPI_CALL get_memory(VkPhysicalDevice physical,
                                             VkPhysicalDeviceMemoryProperties *out)
{
    NEXT(GetPhysicalDeviceMemoryProperties)(physical, out);
    split_memory(out);
}

static VKAPI_ATTR void VKAPI_CALL get_memory2(VkPhysicalDevice physical,
                                              VkPhysicalDeviceMemoryProperties2 *out)
{
    NEXT(GetPhysicalDeviceMemoryProperties2)(physical, out);
    split_memory(&out->memoryProperties);
    VkBaseOutStructure *next = out->pNext;
    while (next && next->sType != VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT)
        next = next->pNext;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)next;
    for (int i = 1; budget && i < 3; i++) {
        budget->heapBudget[i] = budget->heapBudget[0];
        budget->heapUsage[i] = 0;
    }
}

/* Devices and their queues -------------------------------------------------------------------- */

/* Protects the list of devices, the queues' lists and `held`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static device *devices;
static bool held[FAMILIES];

EXPORT test_driver_hold_fn test_driver_hold;
EXPORT void test_driver_hold(unsigned family, bool hold)
{
    pthread_mutex_lock(&lock);
    held[family] = hold;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

device *device_of(VkDevice handle)
{
    pthread_mutex_lock(&lock);
    device *found = devices;
    while (found && found->handle != handle)
        found = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

static void delay(queue *on)
{
    on->random = on->random * 1664525u + 1013904223u;
    const struct timespec time = {.tv_nsec = (long)(on->random >> 24) * 4000};
    if (environment_is("TEST_DRIVER_DELAYS", "1") && (on->random >> 20) % 3 == 0)
        nanosleep(&time, NULL);
}

static void pass_on(queue *on, const submission *work)
{
    device *of = on->of;
    const VkSemaphoreWaitInfo wait = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
        .semaphoreCount = work->wait_count,
        .pSemaphores = work->waits,
        .pValues = work->wait_values,
    };
    const VkTimelineSemaphoreSubmitInfo timeline = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = work->signal_count,
        .pSignalSemaphoreValues = work->signal_values,
    };
    const VkSubmitInfo submit = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .pNext = &timeline,
        .commandBufferCount = commands_are_single() ? 0 : work->command_count,
        .pCommandBuffers = work->commands,
        .signalSemaphoreCount = work->signal_count,
        .pSignalSemaphores = work->signals,
    };
    if (work->wait_count > 0)
        DEVICE_NEXT(of, WaitSemaphores)(of->handle, &wait, UINT64_MAX);
    delay(on);
    pthread_mutex_lock(&of->lock);
    for (uint32_t i = 0; commands_are_single() && i < work->command_count; i++)
        commands_run(of, work->commands[i]);
    if (DEVICE_NEXT(of, QueueSubmit)(of->driver_queue, 1, &submit, VK_NULL_HANDLE) != VK_SUCCESS)
        abort(); /* this driver expects that the real driver does not fail */
    pthread_mutex_unlock(&of->lock);
}

static void *run_queue(void *argument)
{
    queue *on = argument;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!(on->first && !held[on->family]) && !on->closing)
            pthread_cond_wait(&changed, &lock);
        submission *work = on->first;
        if (!work)
            break;
        on->first = work->next;
        on->working = true;
        pthread_mutex_unlock(&lock);
        pass_on(on, work);
        free(work);
        pthread_mutex_lock(&lock);
        on->working = false;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static submission *copy_of(const VkSubmitInfo *info)
{
    const VkTimelineSemaphoreSubmitInfo *timeline = info->pNext;
    submission *copy = calloc(1, sizeof *copy);
    if (!copy || info->waitSemaphoreCount > MAX_WAITS || info->signalSemaphoreCount > MAX_WAITS ||
        info->commandBufferCount > MAX_WAITS ||
        timeline->sType != VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO)
        abort(); /* the library submits no other structures */
    copy->wait_count = info->waitSemaphoreCount;
    copy->signal_count = info->signalSemaphoreCount;
    copy->command_count = info->commandBufferCount;
    for (uint32_t i = 0; i < copy->wait_count; i++) {
        copy->waits[i] = info->pWaitSemaphores[i];
        copy->wait_values[i] = timeline->pWaitSemaphoreValues[i];
    }
    for (uint32_t i = 0; i < copy->signal_count; i++) {
        copy->signals[i] = info->pSignalSemaphores[i];
        copy->signal_values[i] = timeline->pSignalSemaphoreValues[i];
    }
    for (uint32_t i = 0; i < copy->command_count; i++)
        copy->commands[i] = info->pCommandBuffers[i];
    return copy;
}

static VKAPI_ATTR VkResult VKAPI_CALL queue_submit(VkQueue handle, uint32_t count,
                                                   const VkSubmitInfo *infos, VkFence fence)
{
    queue *on = (queue *)handle;
    if (fence)
        abort(); /* the library uses no fences */
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < count; i++) {
        submission **last = &on->first;
        while (*last)
            last = &(*last)->next;
        *last = copy_of(&infos[i]);
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return VK_SUCCESS;
}

static void drain(device *of)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < FAMILIES; i++)
        while (of->queues[i].first || of->queues[i].working)
            pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static VKAPI_ATTR VkResult VKAPI_CALL device_wait_idle(VkDevice handle)
{
    device *of = device_of(handle);
    drain(of);
    return DEVICE_NEXT(of, DeviceWaitIdle)(handle);
}

static VKAPI_ATTR void VKAPI_CALL get_queue(VkDevice handle, uint32_t family, uint32_t index,
                                            VkQueue *out)
{
    (void)index;
    *out = (VkQueue)&device_of(handle)->queues[family];
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkDevice *out)
{
    device *made = calloc(1, sizeof *made);
    if (!made)
        return VK_ERROR_OUT_OF_HOST_MEMORY;
    made->find = NEXT(GetDeviceProcAddr);

    VkDeviceQueueCreateInfo first = info->pQueueCreateInfos[0];
    VkDeviceCreateInfo one_queue = *info;
    first.queueFamilyIndex = 0;
    one_queue.queueCreateInfoCount = 1;
    one_queue.pQueueCreateInfos = &first;
    const VkResult result = NEXT(CreateDevice)(physical, &one_queue, allocator, out);
    if (result != VK_SUCCESS) {
        free(made);
        return result;
    }
    made->handle = *out;
    pthread_mutex_init(&made->lock, NULL);
    DEVICE_NEXT(made, GetDeviceQueue)(*out, 0, 0, &made->driver_queue);
    pthread_mutex_lock(&lock);
    made->next = devices;
    devices = made;
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < FAMILIES; i++) {
        made->queues[i] = (queue){
            .loader.loaderMagic = ICD_LOADER_MAGIC, .of = made, .family = i, .random = 77 * i + 1};
        if (pthread_create(&made->queues[i].thread, NULL, run_queue, &made->queues[i]) != 0)
            abort();
    }
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice handle,
                                                 const VkAllocationCallbacks *allocator)
{
    device *of = device_of(handle);
    drain(of);
    pthread_mutex_lock(&lock);
    for (device **link = &devices; *link; link = &(*link)->next)
        if (*link == of) {
            *link = of->next;
            break;
        }
    for (int i = 0; i < FAMILIES; i++)
        of->queues[i].closing = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < FAMILIES; i++)
        pthread_join(of->queues[i].thread, NULL);
    commands_device_closes(of);
    DEVICE_NEXT(of, DestroyDevice)(handle, allocator);
    pthread_mutex_destroy(&of->lock);
    free(of);
}

/* Functions whose arguments name queue families or memory types ------------------------------- */

static VKAPI_ATTR VkResult VKAPI_CALL create_pool(VkDevice handle,
                                                  const VkCommandPoolCreateInfo *info,
                                                  const VkAllocationCallbacks *allocator,
                                                  VkCommandPool *out)
{
    VkCommandPoolCreateInfo changed_info = *info;
    changed_info.queueFamilyIndex = 0;
    return DEVICE_NEXT(device_of(handle), CreateCommandPool)(handle, &changed_info, allocator, out);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice handle, const VkBufferCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkBuffer *out)
{
    VkBufferCreateInfo changed_info = *info;
    changed_info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
    changed_info.queueFamilyIndexCount = 0;
    const VkResult result =
        DEVICE_NEXT(device_of(handle), CreateBuffer)(handle, &changed_info, allocator, out);
    if (result == VK_SUCCESS)
        memory_buffer_made(*out, info->size);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_buffer(VkDevice handle, VkBuffer buffer,
                                                 const VkAllocationCallbacks *allocator)
{
    memory_buffer_destroyed(buffer);
    DEVICE_NEXT(device_of(handle), DestroyBuffer)(handle, buffer, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL bind_buffer(VkDevice handle, VkBuffer buffer,
                                                  VkDeviceMemory memory, VkDeviceSize offset)
{
    return memory_bind(device_of(handle), buffer, memory, offset);
}

static VKAPI_ATTR void VKAPI_CALL get_requirements(VkDevice handle, VkBuffer buffer,
                                                   VkMemoryRequirements *out)
{
    DEVICE_NEXT(device_of(handle), GetBufferMemoryRequirements)(handle, buffer, out);
    out->memoryTypeBits = (1u << TYPES) - 1;
}

static VKAPI_ATTR VkResult VKAPI_CALL
host_pointer_properties(VkDevice handle, VkExternalMemoryHandleTypeFlagBits type,
                        const void *pointer, VkMemoryHostPointerPropertiesEXT *out)
{
    const VkResult result = DEVICE_NEXT(device_of(handle), GetMemoryHostPointerPropertiesEXT)(
        handle, type, pointer, out);
    out->memoryTypeBits = out->memoryTypeBits ? 1u << UPLOAD | 1u << READBACK : 0;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate_memory(VkDevice handle,
                                                      const VkMemoryAllocateInfo *info,
                                                      const VkAllocationCallbacks *allocator,
                                                      VkDeviceMemory *out)
{
    VkMemoryAllocateInfo changed_info = *info;
    changed_info.memoryTypeIndex = 0;
    if (memory_is_own() && info->memoryTypeIndex == LOCAL)
        return memory_allocate(device_of(handle), &changed_info, allocator, out);
    return DEVICE_NEXT(device_of(handle), AllocateMemory)(handle, &changed_info, allocator, out);
}

static VKAPI_ATTR void VKAPI_CALL free_memory(VkDevice handle, VkDeviceMemory memory,
                                              const VkAllocationCallbacks *allocator)
{
    memory_free(device_of(handle), memory, allocator);
}

/* Writes a module to the folder in TEST_DRIVER_MODULES, with a name made of its words. */
static void keep_module(const uint32_t *words, size_t size_bytes)
{
    const char *folder = getenv("TEST_DRIVER_MODULES");
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char path[1000], made[1020];
    for (size_t i = 0; i < size_bytes / sizeof *words; i++)
        hash = (hash ^ words[i]) * UINT64_C(0x100000001b3);
    if (!folder)
        return;
    snprintf(path, sizeof path, "%s/%016llx.spv", folder, (unsigned long long)hash);
    if (access(path, F_OK) == 0)
        return;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        driver_fail("%s cannot be made", folder);
    snprintf(made, sizeof made, "%s.%d", path, (int)getpid());
    FILE *file = fopen(made, "wb");
    if (!file || fwrite(words, 1, size_bytes, file) != size_bytes || fclose(file) != 0 ||
        rename(made, path) != 0)
        driver_fail("%s cannot be written", made);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice handle,
                                                    const VkShaderModuleCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkShaderModule *out)
{
    VkShaderModuleCreateInfo changed_info = *info;
    uint32_t *removed = barriers_removed(info->pCode, info->codeSize);
    if (removed)
        changed_info.pCode = removed;
    uint32_t *permuted =
        invocations_permuted(changed_info.pCode, info->codeSize, &changed_info.codeSize);
    if (permuted)
        changed_info.pCode = permuted;
    keep_module(info->pCode, info->codeSize);
    keep_module(changed_info.pCode, changed_info.codeSize);
    const VkResult result =
        DEVICE_NEXT(device_of(handle), CreateShaderModule)(handle, &changed_info, allocator, out);
    free(permuted);
    free(removed);
    return result;
}

/* The functions' names ------------------------------------------------------------------------ */

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find_of_device(VkDevice handle, const char *name);
static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find_of_instance(VkInstance of, const char *name);

static PFN_vkVoidFunction find_in(const entry *entries, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(entries[i].name, name) == 0)
            return entries[i].function;
    return NULL;
}

static const entry device_entries[] = {
    ENTRY(GetDeviceProcAddr, find_of_device),
    ENTRY(DestroyDevice, destroy_device),
    ENTRY(GetDeviceQueue, get_queue),
    ENTRY(QueueSubmit, queue_submit),
    ENTRY(DeviceWaitIdle, device_wait_idle),
    ENTRY(CreateCommandPool, create_pool),
    ENTRY(CreateBuffer, create_buffer),
    ENTRY(GetBufferMemoryRequirements, get_requirements),
    ENTRY(GetMemoryHostPointerPropertiesEXT, host_pointer_properties),
    ENTRY(AllocateMemory, allocate_memory),
    ENTRY(FreeMemory, free_memory),
    ENTRY(DestroyBuffer, destroy_buffer),
    ENTRY(BindBufferMemory, bind_buffer),
    ENTRY(CreateShaderModule, create_module),
};
static const entry instance_entries[] = {
    ENTRY(GetInstanceProcAddr, find_of_instance),
    ENTRY(CreateInstance, create_instance),
    ENTRY(CreateDevice, create_device),
    ENTRY(GetPhysicalDeviceProperties, get_properties),
    ENTRY(GetPhysicalDeviceProperties2, get_properties2),
    ENTRY(GetPhysicalDeviceProperties2KHR, get_properties2),
    ENTRY(GetPhysicalDeviceQueueFamilyProperties, get_families),
    ENTRY(GetPhysicalDeviceQueueFamilyProperties2, get_families2),
    ENTRY(GetPhysicalDeviceQueueFamilyProperties2KHR, get_families2),
    ENTRY(GetPhysicalDeviceMemoryProperties, get_memory),
    ENTRY(GetPhysicalDeviceMemoryProperties2, get_memory2),
    ENTRY(GetPhysicalDeviceMemoryProperties2KHR, get_memory2),
};

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find_of_device(VkDevice handle, const char *name)
{
    PFN_vkVoidFunction next = device_of(handle)->find(handle, name);
    PFN_vkVoidFunction own = commands_entry(name);
    if (own)
        return own; /* also labels, which the real driver need not have */
    own = find_in(device_entries, sizeof device_entries / sizeof *device_entries, name);
    return own && next ? own : next;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find_of_instance(VkInstance of, const char *name)
{
    PFN_vkVoidFunction own =
        find_in(instance_entries, sizeof instance_entries / sizeof *instance_entries, name);
    if (!own)
        own = find_in(device_entries, sizeof device_entries / sizeof *device_entries, name);
    PFN_vkVoidFunction next = next_instance(of, name);
    return own && next ? own : next;
}

/* What the Vulkan loader calls --------------------------------------------------------------- */

EXPORT PFN_vkVoidFunction vk_icdGetInstanceProcAddr(VkInstance of, const char *name);
EXPORT PFN_vkVoidFunction vk_icdGetInstanceProcAddr(VkInstance of, const char *name)
{
    return find_of_instance(of, name);
}

EXPORT PFN_vkVoidFunction vk_icdGetPhysicalDeviceProcAddr(VkInstance of, const char *name);
EXPORT PFN_vkVoidFunction vk_icdGetPhysicalDeviceProcAddr(VkInstance of, const char *name)
{
    const PFN_GetPhysicalDeviceProcAddr next =
        (PFN_GetPhysicalDeviceProcAddr)real_function("vk_icdGetPhysicalDeviceProcAddr");
    PFN_vkVoidFunction real = next ? next(of, name) : NULL;
    PFN_vkVoidFunction own =
        find_in(instance_entries, sizeof instance_entries / sizeof *instance_entries, name);
    return real && own ? own : real;
}

EXPORT VkResult vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version);
EXPORT VkResult vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version)
{
    const PFN_vkNegotiateLoaderICDInterfaceVersion next =
        (PFN_vkNegotiateLoaderICDInterfaceVersion)real_function(
            "vk_icdNegotiateLoaderICDInterfaceVersion");
    next_instance = (PFN_vkGetInstanceProcAddr)real_function("vk_icdGetInstanceProcAddr");
    return next && next_instance ? next(version) : VK_ERROR_INCOMPATIBLE_DRIVER;
}
