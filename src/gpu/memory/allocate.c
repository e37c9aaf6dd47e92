/* Creates VkBuffers and allocates their memory, without slabs (slabs.c). */
#include "gpu/memory/slabs.h"

tsr_status tsr__memory_create_buffer(tsr_device *device, uint64_t size, const void *next,
                                     VkBuffer *out, VkMemoryRequirements *requirements)
{
    /* Both queues may use a buffer at the same time, for example different rows of a tensor, so
     * buffers are created with VK_SHARING_MODE_CONCURRENT if there are two queues. This costs
     * nothing: it would prevent the compression of images, but drivers do not compress buffers, and
     * Mesa's drivers do not even store a buffer's sharing mode. */
    const uint32_t families[] = {device->compute.family, device->transfer.family};
    const bool shared = device->transfer.handle != VK_NULL_HANDLE;
    VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .pNext = next,
        .size = size,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_INDIRECT_BUFFER_BIT |
                 VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT,
        .sharingMode = shared ? VK_SHARING_MODE_CONCURRENT : VK_SHARING_MODE_EXCLUSIVE,
        .queueFamilyIndexCount = shared ? 2 : 0,
        .pQueueFamilyIndices = shared ? families : NULL,
    };
    TSR__DEVICE_TRY(device, CreateBuffer, device->handle, &info, NULL, out);
    device->vk.GetBufferMemoryRequirements(device->handle, *out, requirements);
    return TSR_OK;
}

VkResult tsr__memory_allocate(tsr_device *device, uint64_t size, uint32_t type, const void *next,
                              VkDeviceMemory *out)
{
    VkMemoryAllocateFlagsInfo flags = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
        .pNext = next,
        .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT,
    };
    VkMemoryAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
        .pNext = &flags,
        .allocationSize = size,
        .memoryTypeIndex = type,
    };
    VkResult result = TSR__VK(&device->vk, AllocateMemory, device->handle, &info, NULL, out);
    if (result < 0)
        *out = VK_NULL_HANDLE;
    return result;
}

uint32_t tsr__memory_find_type(const VkPhysicalDeviceMemoryProperties *properties, uint32_t allowed,
                               VkMemoryPropertyFlags required, VkMemoryPropertyFlags wanted,
                               VkMemoryPropertyFlags unwanted)
{
    uint32_t best = UINT32_MAX;
    int best_score = -1;
    for (uint32_t i = 0; i < properties->memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = properties->memoryTypes[i].propertyFlags;
        if (!(allowed & (1U << i)) || (flags & required) != required)
            continue;
        /* Protected and device-coherent memory types need features that the library does not
         * request. */
        if (flags & ~(VkMemoryPropertyFlags)(VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                             VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                             VK_MEMORY_PROPERTY_HOST_COHERENT_BIT |
                                             VK_MEMORY_PROPERTY_HOST_CACHED_BIT))
            continue;
        int score = ((flags & wanted) == wanted ? 2 : 0) + ((flags & unwanted) == 0 ? 1 : 0);
        if (score > best_score) {
            best = i;
            best_score = score;
        }
    }
    return best;
}
