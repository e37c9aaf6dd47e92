#include "isa/null_device.h"

#include <stdlib.h>
#include <string.h>

#include "gpu/pipeline/pipeline.h"
#include "support/check.h"
#include "support/check_main.h"

#define DISPATCHES_MAX 4096
#define HEAP_BYTES (UINT64_C(1) << 40)

static PFN_vkCreateComputePipelines create_pipelines;
static null_dispatch dispatches[DISPATCHES_MAX];
static int dispatch_count;
static bool taken; /* null_device_take() has returned the dispatches */
static VkPipeline bound;
static uint64_t next_address = 1 << 20;

/* The handle of every object points to this variable, because the objects do not exist. */
static int nothing;

/* Memory --------------------------------------------------------------------------------------- */

static VkResult allocate_memory(VkDevice device, const VkMemoryAllocateInfo *info,
                                const VkAllocationCallbacks *allocator, VkDeviceMemory *out)
{
    (void)device, (void)info, (void)allocator;
    *out = (VkDeviceMemory)(void *)&nothing;
    return VK_SUCCESS;
}

/* All mappings share these bytes, because their contents do not matter. Only memory for transfers
 * is mapped. */
static VkResult map_memory(VkDevice device, VkDeviceMemory memory, VkDeviceSize offset,
                           VkDeviceSize size, VkMemoryMapFlags flags, void **out)
{
    static uint8_t bytes[32 << 20];

    (void)device, (void)memory, (void)offset, (void)size, (void)flags;
    *out = bytes;
    return VK_SUCCESS;
}

static VkResult create_buffer(VkDevice device, const VkBufferCreateInfo *info,
                              const VkAllocationCallbacks *allocator, VkBuffer *out)
{
    (void)device, (void)info, (void)allocator;
    *out = (VkBuffer)(void *)&nothing;
    return VK_SUCCESS;
}

static void get_requirements(VkDevice device, VkBuffer buffer, VkMemoryRequirements *out)
{
    (void)device, (void)buffer;
    *out = (VkMemoryRequirements){.size = 4096, .alignment = 4096, .memoryTypeBits = 3};
}

static VkResult bind_memory(VkDevice device, VkBuffer buffer, VkDeviceMemory memory,
                            VkDeviceSize offset)
{
    (void)device, (void)buffer, (void)memory, (void)offset;
    return VK_SUCCESS;
}

static VkDeviceAddress get_address(VkDevice device, const VkBufferDeviceAddressInfo *info)
{
    (void)device, (void)info;
    next_address += HEAP_BYTES;
    return next_address;
}

static void free_memory(VkDevice device, VkDeviceMemory memory, const VkAllocationCallbacks *a)
{
    (void)device, (void)memory, (void)a;
}

static void destroy_buffer(VkDevice device, VkBuffer buffer, const VkAllocationCallbacks *a)
{
    (void)device, (void)buffer, (void)a;
}

/* Synchronisation, in which everything is complete as soon as it is submitted ------------------ */

static VkResult create_semaphore(VkDevice device, const VkSemaphoreCreateInfo *info,
                                 const VkAllocationCallbacks *allocator, VkSemaphore *out)
{
    (void)device, (void)info, (void)allocator;
    *out = (VkSemaphore)(void *)&nothing;
    return VK_SUCCESS;
}

static void destroy_semaphore(VkDevice device, VkSemaphore semaphore,
                              const VkAllocationCallbacks *allocator)
{
    (void)device, (void)semaphore, (void)allocator;
}

static VkResult counter_value(VkDevice device, VkSemaphore semaphore, uint64_t *out)
{
    (void)device, (void)semaphore;
    *out = 0; /* the library then waits, and waiting succeeds at once */
    return VK_SUCCESS;
}

static VkResult wait_semaphores(VkDevice device, const VkSemaphoreWaitInfo *info, uint64_t timeout)
{
    (void)device, (void)info, (void)timeout;
    return VK_SUCCESS;
}

static VkResult queue_submit(VkQueue queue, uint32_t count, const VkSubmitInfo *submits,
                             VkFence fence)
{
    (void)queue, (void)count, (void)submits, (void)fence;
    return VK_SUCCESS;
}

static VkResult wait_idle(VkDevice device)
{
    (void)device;
    return VK_SUCCESS;
}

/* Commands ------------------------------------------------------------------------------------- */

static VkResult create_pool(VkDevice device, const VkCommandPoolCreateInfo *info,
                            const VkAllocationCallbacks *allocator, VkCommandPool *out)
{
    (void)device, (void)info, (void)allocator;
    *out = (VkCommandPool)(void *)&nothing;
    return VK_SUCCESS;
}

static void destroy_pool(VkDevice device, VkCommandPool pool, const VkAllocationCallbacks *a)
{
    (void)device, (void)pool, (void)a;
}

static VkResult reset_pool(VkDevice device, VkCommandPool pool, VkCommandPoolResetFlags flags)
{
    (void)device, (void)pool, (void)flags;
    return VK_SUCCESS;
}

static VkResult allocate_commands(VkDevice device, const VkCommandBufferAllocateInfo *info,
                                  VkCommandBuffer *out)
{
    (void)device;
    for (uint32_t i = 0; i < info->commandBufferCount; i++)
        out[i] = (VkCommandBuffer)(void *)&nothing;
    return VK_SUCCESS;
}

static VkResult begin_commands(VkCommandBuffer commands, const VkCommandBufferBeginInfo *info)
{
    (void)commands, (void)info;
    return VK_SUCCESS;
}

static VkResult end_commands(VkCommandBuffer commands)
{
    (void)commands;
    return VK_SUCCESS;
}

static void barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkPipelineStageFlags to,
                    VkDependencyFlags flags, uint32_t memory_count, const VkMemoryBarrier *memory,
                    uint32_t buffer_count, const VkBufferMemoryBarrier *buffers,
                    uint32_t image_count, const VkImageMemoryBarrier *images)
{
    (void)commands, (void)from, (void)to, (void)flags, (void)memory_count, (void)memory;
    (void)buffer_count, (void)buffers, (void)image_count, (void)images;
}

static void bind_pipeline(VkCommandBuffer commands, VkPipelineBindPoint point, VkPipeline pipeline)
{
    (void)commands, (void)point;
    bound = pipeline;
}

static void push_constants(VkCommandBuffer commands, VkPipelineLayout layout,
                           VkShaderStageFlags stages, uint32_t offset, uint32_t size,
                           const void *values)
{
    (void)commands, (void)layout, (void)stages, (void)offset, (void)size, (void)values;
}

static void dispatch(VkCommandBuffer commands, uint32_t x, uint32_t y, uint32_t z)
{
    (void)commands;
    if (taken)
        dispatch_count = 0;
    taken = false;
    ck_assert_int_lt(dispatch_count, DISPATCHES_MAX);
    dispatches[dispatch_count++] = (null_dispatch){bound, {x, y, z}};
}

static void copy_buffer(VkCommandBuffer commands, VkBuffer from, VkBuffer to, uint32_t count,
                        const VkBufferCopy *regions)
{
    (void)commands, (void)from, (void)to, (void)count, (void)regions;
}

static void fill_buffer(VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset,
                        VkDeviceSize size, uint32_t value)
{
    (void)commands, (void)buffer, (void)offset, (void)size, (void)value;
}

static void update_buffer(VkCommandBuffer commands, VkBuffer buffer, VkDeviceSize offset,
                          VkDeviceSize size, const void *data)
{
    (void)commands, (void)buffer, (void)offset, (void)size, (void)data;
}

/* Pipelines ------------------------------------------------------------------------------------ */

static VkResult create_with_code(VkDevice device, VkPipelineCache cache, uint32_t count,
                                 const VkComputePipelineCreateInfo *infos,
                                 const VkAllocationCallbacks *allocator, VkPipeline *out)
{
    VkComputePipelineCreateInfo info = infos[0];

    ck_assert_uint_eq(count, 1);
    info.flags |= VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR;
    return create_pipelines(device, cache, 1, &info, allocator, out);
}

char *null_device_code(tsr_device *device, VkPipeline pipeline)
{
    VkPipelineExecutableInternalRepresentationKHR forms[8] = {{0}};
    VkPipelineExecutableInfoKHR info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR,
                                        .pipeline = pipeline};
    uint32_t count = sizeof forms / sizeof *forms;
    char *text = NULL;
    const PFN_vkVoidFunction function = device->instance->vk.GetDeviceProcAddr(
        device->handle, "vkGetPipelineExecutableInternalRepresentationsKHR");
    PFN_vkGetPipelineExecutableInternalRepresentationsKHR get = NULL;

    ck_assert(function != NULL);
    memcpy(&get, &function, sizeof get);
    for (uint32_t i = 0; i < count; i++)
        forms[i].sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR;
    ck_assert_int_ge(get(device->handle, &info, &count, forms), 0);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(forms[i].name, "Assembly") == 0 || strcmp(forms[i].name, "GEN Assembly") == 0) {
            text = calloc(1, forms[i].dataSize + 1);
            ck_assert_ptr_nonnull(text);
            forms[i].pData = text;
        }
    ck_assert_int_ge(get(device->handle, &info, &count, forms), 0);
    return text;
}

/* The device ----------------------------------------------------------------------------------- */

static void replace_functions(tsr__vk_device *vk)
{
    create_pipelines = vk->CreateComputePipelines;
    vk->CreateComputePipelines = create_with_code;
    vk->AllocateMemory = allocate_memory;
    vk->FreeMemory = free_memory;
    vk->MapMemory = map_memory;
    vk->CreateBuffer = create_buffer;
    vk->DestroyBuffer = destroy_buffer;
    vk->GetBufferMemoryRequirements = get_requirements;
    vk->BindBufferMemory = bind_memory;
    vk->GetBufferDeviceAddress = get_address;
    vk->CreateSemaphore = create_semaphore;
    vk->DestroySemaphore = destroy_semaphore;
    vk->GetSemaphoreCounterValue = counter_value;
    vk->WaitSemaphores = wait_semaphores;
    vk->QueueSubmit = queue_submit;
    vk->DeviceWaitIdle = wait_idle;
    vk->CreateCommandPool = create_pool;
    vk->DestroyCommandPool = destroy_pool;
    vk->ResetCommandPool = reset_pool;
    vk->AllocateCommandBuffers = allocate_commands;
    vk->BeginCommandBuffer = begin_commands;
    vk->EndCommandBuffer = end_commands;
    vk->CmdPipelineBarrier = barrier;
    vk->CmdBindPipeline = bind_pipeline;
    vk->CmdPushConstants = push_constants;
    vk->CmdDispatch = dispatch;
    vk->CmdCopyBuffer = copy_buffer;
    vk->CmdFillBuffer = fill_buffer;
    vk->CmdUpdateBuffer = update_buffer;
}

/* Makes one heap of device memory that the host cannot map, and a memory type for transfers. */
static void replace_memory(tsr_device *device)
{
    VkPhysicalDeviceMemoryProperties *memory = &device->memory_properties;

    *memory = (VkPhysicalDeviceMemoryProperties){.memoryTypeCount = 2, .memoryHeapCount = 1};
    memory->memoryTypes[0].propertyFlags = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    memory->memoryTypes[1].propertyFlags = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                           VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
                                           VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    memory->memoryHeaps[0] =
        (VkMemoryHeap){.size = HEAP_BYTES, .flags = VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
    device->wants_mapping = false;
    device->host_import_alignment = 0;
    device->info.memory_budget = false;
    device->info.heap_count = 1;
    device->facts.heaps[0] =
        (tsr_heap_info){.size_bytes = HEAP_BYTES, .budget_bytes = HEAP_BYTES, .device_local = true};
    device->info.max_allocation_bytes = HEAP_BYTES;
}

tsr_device *null_device_open(void)
{
    tsr_device *device;

    ck_assert_ok(tsr__device_open_to_compile(tsr_device_params(.cache_in_memory = true), &device));
    ck_assert(device->info.pipeline_statistics);
    replace_functions(&device->vk);
    replace_memory(device);
    ck_assert_ok(tsr__pipelines_capture(device, true));
    return device;
}

const null_dispatch *null_device_take(int *count)
{
    *count = taken ? 0 : dispatch_count;
    taken = true;
    return dispatches;
}
