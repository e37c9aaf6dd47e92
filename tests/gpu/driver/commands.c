/* Keeps the commands that are recorded into command buffers, and gives them to the real driver in
 * another order between two barriers (TEST_DRIVER_ORDER), one by one (TEST_DRIVER_ACCESS), or both.
 * Drivers for the CPU run commands in the order of their buffer, so without this, a missing barrier
 * changes no result. */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum command_kind {
    DISPATCH,
    COPY,
    FILL,
    UPDATE,
    BARRIER,
    TIMESTAMP,
    RESET_QUERIES,
} command_kind;

enum { MAX_PUSH = 256 };

typedef struct command {
    command_kind kind;
    char *label; /* of the command, or NULL */
    VkPipeline pipeline;
    VkPipelineLayout layout;
    uint32_t groups[3], push_bytes;
    uint8_t push[MAX_PUSH];
    VkBuffer source, destination;
    VkDeviceSize offset, size;
    uint32_t count; /* of copies, or of queries */
    void *data;     /* the copies or the bytes of an update */
    uint32_t pattern;
    VkPipelineStageFlags stages[2];
    VkMemoryBarrier barrier;
    VkQueryPool queries;
    uint32_t query;
} command;

/* The commands of a command buffer. The members from `pipeline` on are what later dispatches use.
 */
typedef struct recording {
    struct recording *next;
    device *of;
    VkCommandPool pool;
    VkCommandBuffer handle;
    command *commands;
    size_t count, capacity;
    VkPipeline pipeline;
    VkPipelineLayout layout;
    uint32_t push_bytes;
    uint8_t push[MAX_PUSH];
    char *label;
} recording;

/* Protects the list of recordings. A recording itself belongs to the thread that records. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static recording *recordings;

bool commands_are_single(void)
{
    return memory_is_checked();
}

static bool are_kept(void)
{
    return commands_are_single() || getenv("TEST_DRIVER_ORDER");
}

static recording *recording_of(VkCommandBuffer handle)
{
    pthread_mutex_lock(&lock);
    recording *found = recordings;
    while (found && found->handle != handle)
        found = found->next;
    pthread_mutex_unlock(&lock);
    if (!found)
        driver_fail("a command buffer that was not allocated");
    return found;
}

static void forget_commands(recording *in)
{
    for (size_t i = 0; i < in->count; i++) {
        free(in->commands[i].label);
        free(in->commands[i].data);
    }
    free(in->label);
    in->label = NULL;
    in->count = 0;
    in->pipeline = VK_NULL_HANDLE;
    in->push_bytes = 0;
}

static command *add_command(VkCommandBuffer handle, command_kind kind)
{
    recording *in = recording_of(handle);
    if (in->count == in->capacity) {
        in->capacity = 2 * in->capacity + 16;
        in->commands = realloc(in->commands, in->capacity * sizeof *in->commands);
        if (!in->commands)
            driver_fail("out of memory");
    }
    command *added = &in->commands[in->count++];
    *added = (command){.kind = kind,
                       .label = in->label,
                       .pipeline = in->pipeline,
                       .layout = in->layout,
                       .push_bytes = in->push_bytes};
    memcpy(added->push, in->push, in->push_bytes);
    in->label = NULL;
    return added;
}

static void *copy_of(const void *data, size_t size)
{
    void *copy = malloc(size ? size : 1);
    if (!copy)
        driver_fail("out of memory");
    return memcpy(copy, data, size);
}

/* Recording ------------------------------------------------------------------------------------ */

static VKAPI_ATTR VkResult VKAPI_CALL allocate_buffers(VkDevice handle,
                                                       const VkCommandBufferAllocateInfo *info,
                                                       VkCommandBuffer *out)
{
    device *of = device_of(handle);
    const VkResult result = DEVICE_NEXT(of, AllocateCommandBuffers)(handle, info, out);
    for (uint32_t i = 0; result == VK_SUCCESS && i < info->commandBufferCount; i++) {
        recording *made = calloc(1, sizeof *made);
        if (!made)
            driver_fail("out of memory");
        made->of = of;
        made->pool = info->commandPool;
        made->handle = out[i];
        pthread_mutex_lock(&lock);
        made->next = recordings;
        recordings = made;
        pthread_mutex_unlock(&lock);
    }
    return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_pool(VkDevice handle, VkCommandPool pool,
                                               const VkAllocationCallbacks *allocator)
{
    device *of = device_of(handle);
    pthread_mutex_lock(&lock);
    for (recording **link = &recordings; *link;) {
        recording *one = *link;
        if (one->of != of || one->pool != pool) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        forget_commands(one);
        free(one->commands);
        free(one);
    }
    pthread_mutex_unlock(&lock);
    DEVICE_NEXT(of, DestroyCommandPool)(handle, pool, allocator);
}

static VKAPI_ATTR VkResult VKAPI_CALL begin_buffer(VkCommandBuffer handle,
                                                   const VkCommandBufferBeginInfo *info)
{
    recording *in = recording_of(handle);
    forget_commands(in);
    return DEVICE_NEXT(in->of, BeginCommandBuffer)(handle, info);
}

static VKAPI_ATTR void VKAPI_CALL bind_pipeline(VkCommandBuffer handle, VkPipelineBindPoint point,
                                                VkPipeline pipeline)
{
    (void)point;
    recording_of(handle)->pipeline = pipeline;
}

static VKAPI_ATTR void VKAPI_CALL push_constants(VkCommandBuffer handle, VkPipelineLayout layout,
                                                 VkShaderStageFlags stages, uint32_t offset,
                                                 uint32_t size, const void *values)
{
    recording *in = recording_of(handle);
    if (stages != VK_SHADER_STAGE_COMPUTE_BIT || offset != 0 || size > MAX_PUSH)
        driver_fail("push constants at %u of %u bytes", offset, size);
    memcpy(in->push, values, size);
    in->push_bytes = size;
    in->layout = layout;
}

static VKAPI_ATTR void VKAPI_CALL insert_label(VkCommandBuffer handle,
                                               const VkDebugUtilsLabelEXT *label)
{
    recording *in = recording_of(handle);
    free(in->label);
    in->label = copy_of(label->pLabelName, strlen(label->pLabelName) + 1);
}

static VKAPI_ATTR void VKAPI_CALL dispatch(VkCommandBuffer handle, uint32_t x, uint32_t y,
                                           uint32_t z)
{
    command *added = add_command(handle, DISPATCH);
    added->groups[0] = x;
    added->groups[1] = y;
    added->groups[2] = z;
}

static VKAPI_ATTR void VKAPI_CALL copy_buffer(VkCommandBuffer handle, VkBuffer source,
                                              VkBuffer destination, uint32_t count,
                                              const VkBufferCopy *regions)
{
    command *added = add_command(handle, COPY);
    added->source = source;
    added->destination = destination;
    added->count = count;
    added->data = copy_of(regions, count * sizeof *regions);
}

static VKAPI_ATTR void VKAPI_CALL fill_buffer(VkCommandBuffer handle, VkBuffer destination,
                                              VkDeviceSize offset, VkDeviceSize size,
                                              uint32_t pattern)
{
    command *added = add_command(handle, FILL);
    added->destination = destination;
    added->offset = offset;
    added->size = size;
    added->pattern = pattern;
}

static VKAPI_ATTR void VKAPI_CALL update_buffer(VkCommandBuffer handle, VkBuffer destination,
                                                VkDeviceSize offset, VkDeviceSize size,
                                                const void *data)
{
    command *added = add_command(handle, UPDATE);
    added->destination = destination;
    added->offset = offset;
    added->size = size;
    added->data = copy_of(data, size);
}

static VKAPI_ATTR void VKAPI_CALL pipeline_barrier(
    VkCommandBuffer handle, VkPipelineStageFlags before, VkPipelineStageFlags after,
    VkDependencyFlags flags, uint32_t count, const VkMemoryBarrier *barriers, uint32_t buffers,
    const VkBufferMemoryBarrier *of_buffers, uint32_t images, const VkImageMemoryBarrier *of_images)
{
    (void)of_buffers;
    (void)of_images;
    if (flags != 0 || count != 1 || buffers != 0 || images != 0)
        driver_fail("a barrier of a kind that the library does not use");
    command *added = add_command(handle, BARRIER);
    added->stages[0] = before;
    added->stages[1] = after;
    added->barrier = barriers[0];
}

static VKAPI_ATTR void VKAPI_CALL write_timestamp(VkCommandBuffer handle,
                                                  VkPipelineStageFlagBits stage,
                                                  VkQueryPool queries, uint32_t query)
{
    command *added = add_command(handle, TIMESTAMP);
    added->stages[0] = stage;
    added->queries = queries;
    added->query = query;
}

static VKAPI_ATTR void VKAPI_CALL reset_queries(VkCommandBuffer handle, VkQueryPool queries,
                                                uint32_t first, uint32_t count)
{
    command *added = add_command(handle, RESET_QUERIES);
    added->queries = queries;
    added->query = first;
    added->count = count;
}

/* Giving commands to the real driver ----------------------------------------------------------- */

static void emit(device *of, VkCommandBuffer into, const command *c)
{
    switch (c->kind) {
    case DISPATCH:
        DEVICE_NEXT(of, CmdBindPipeline)(into, VK_PIPELINE_BIND_POINT_COMPUTE, c->pipeline);
        if (c->push_bytes > 0)
            DEVICE_NEXT(of, CmdPushConstants)
        (into, c->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, c->push_bytes, c->push);
        DEVICE_NEXT(of, CmdDispatch)(into, c->groups[0], c->groups[1], c->groups[2]);
        break;
    case COPY:
        DEVICE_NEXT(of, CmdCopyBuffer)(into, c->source, c->destination, c->count, c->data);
        break;
    case FILL:
        DEVICE_NEXT(of, CmdFillBuffer)(into, c->destination, c->offset, c->size, c->pattern);
        break;
    case UPDATE:
        DEVICE_NEXT(of, CmdUpdateBuffer)(into, c->destination, c->offset, c->size, c->data);
        break;
    case BARRIER:
        DEVICE_NEXT(of, CmdPipelineBarrier)
        (into, c->stages[0], c->stages[1], 0, 1, &c->barrier, 0, NULL, 0, NULL);
        break;
    case TIMESTAMP:
        DEVICE_NEXT(of, CmdWriteTimestamp)
        (into, (VkPipelineStageFlagBits)c->stages[0], c->queries, c->query);
        break;
    case RESET_QUERIES:
        DEVICE_NEXT(of, CmdResetQueryPool)(into, c->queries, c->query, c->count);
        break;
    }
}

/* A command whose place among the others means something. */
static bool keeps_place(const command *c)
{
    return c->kind == BARRIER || c->kind == TIMESTAMP || c->kind == RESET_QUERIES;
}

/* Puts the commands [first, end), between which there is no barrier, into another order: reversed,
 * or one that the number in TEST_DRIVER_ORDER chooses. */
static void reorder(recording *in, size_t first, size_t end)
{
    static uint32_t random;
    const char *order = getenv("TEST_DRIVER_ORDER");
    const bool reversed = order && strcmp(order, "reversed") == 0;
    if (!order)
        return;
    if (random == 0)
        random = (uint32_t)strtoul(order, NULL, 10) * 2 + 1;
    for (size_t i = first; i < end; i++) {
        random = random * 1664525u + 1013904223u;
        const size_t other = reversed ? first + (end - 1 - i) : i + (random >> 8) % (end - i);
        if (other <= i)
            continue;
        const command moved = in->commands[i];
        in->commands[i] = in->commands[other];
        in->commands[other] = moved;
    }
}

static VKAPI_ATTR VkResult VKAPI_CALL end_buffer(VkCommandBuffer handle)
{
    recording *in = recording_of(handle);
    size_t first = 0;
    for (size_t i = 0; i <= in->count; i++) {
        if (i < in->count && !keeps_place(&in->commands[i]))
            continue;
        reorder(in, first, i);
        first = i + 1;
    }
    for (size_t i = 0; !commands_are_single() && i < in->count; i++)
        emit(in->of, handle, &in->commands[i]);
    return DEVICE_NEXT(in->of, EndCommandBuffer)(handle);
}

static void make_single(device *of)
{
    const VkCommandPoolCreateInfo pool = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
        .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
    };
    const VkFenceCreateInfo fence = {.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO};
    VkCommandBufferAllocateInfo buffer = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandBufferCount = 1,
    };
    if (of->single)
        return;
    if (DEVICE_NEXT(of, CreateCommandPool)(of->handle, &pool, NULL, &of->single_pool) < 0)
        driver_fail("vkCreateCommandPool");
    buffer.commandPool = of->single_pool;
    if (DEVICE_NEXT(of, AllocateCommandBuffers)(of->handle, &buffer, &of->single) < 0 ||
        DEVICE_NEXT(of, CreateFence)(of->handle, &fence, NULL, &of->single_done) < 0)
        driver_fail("vkAllocateCommandBuffers or vkCreateFence");
}

static void run_single(device *of, const command *c)
{
    const VkCommandBufferBeginInfo begin = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
        .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT,
    };
    const VkSubmitInfo submit = {
        .sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
        .commandBufferCount = 1,
        .pCommandBuffers = &of->single,
    };
    if (DEVICE_NEXT(of, BeginCommandBuffer)(of->single, &begin) < 0)
        driver_fail("vkBeginCommandBuffer");
    emit(of, of->single, c);
    if (DEVICE_NEXT(of, EndCommandBuffer)(of->single) < 0)
        driver_fail("vkEndCommandBuffer");
    memory_open(c->label);
    if (DEVICE_NEXT(of, QueueSubmit)(of->driver_queue, 1, &submit, of->single_done) < 0 ||
        DEVICE_NEXT(of, WaitForFences)(of->handle, 1, &of->single_done, VK_TRUE, UINT64_MAX) < 0 ||
        DEVICE_NEXT(of, ResetFences)(of->handle, 1, &of->single_done) < 0)
        driver_fail("a command cannot be submitted");
    memory_close();
}

void commands_run(device *of, VkCommandBuffer handle)
{
    make_single(of);
    const recording *in = recording_of(handle);
    for (size_t i = 0; i < in->count; i++)
        if (in->commands[i].kind != BARRIER)
            run_single(of, &in->commands[i]);
}

void commands_device_closes(device *of)
{
    if (!of->single)
        return;
    DEVICE_NEXT(of, DestroyFence)(of->handle, of->single_done, NULL);
    DEVICE_NEXT(of, DestroyCommandPool)(of->handle, of->single_pool, NULL);
}

static const entry entries[] = {
    ENTRY(AllocateCommandBuffers, allocate_buffers),
    ENTRY(DestroyCommandPool, destroy_pool),
    ENTRY(BeginCommandBuffer, begin_buffer),
    ENTRY(EndCommandBuffer, end_buffer),
    ENTRY(CmdBindPipeline, bind_pipeline),
    ENTRY(CmdPushConstants, push_constants),
    ENTRY(CmdInsertDebugUtilsLabelEXT, insert_label),
    ENTRY(CmdDispatch, dispatch),
    ENTRY(CmdCopyBuffer, copy_buffer),
    ENTRY(CmdFillBuffer, fill_buffer),
    ENTRY(CmdUpdateBuffer, update_buffer),
    ENTRY(CmdPipelineBarrier, pipeline_barrier),
    ENTRY(CmdWriteTimestamp, write_timestamp),
    ENTRY(CmdResetQueryPool, reset_queries),
};

PFN_vkVoidFunction commands_entry(const char *name)
{
    for (size_t i = 0; are_kept() && i < sizeof entries / sizeof *entries; i++)
        if (strcmp(entries[i].name, name) == 0)
            return entries[i].function;
    return NULL;
}
