#include "gpu/device/transfer_queue.h"

/* Returns how well a queue family suits transfers: 3 is best, 0 means not at all. Families of video
 * engines get 0: they can transfer, but these engines have other work. */
static int suits_transfers(const VkQueueFamilyProperties *family)
{
    const VkQueueFlags neutral = VK_QUEUE_SPARSE_BINDING_BIT | VK_QUEUE_PROTECTED_BIT;
    const VkQueueFlags flags = family->queueFlags & ~neutral;
    if (family->queueCount == 0)
        return 0;
    if (flags == VK_QUEUE_TRANSFER_BIT)
        return 3;
    if (!(flags & VK_QUEUE_COMPUTE_BIT))
        return 0;
    return flags & VK_QUEUE_GRAPHICS_BIT ? 1 : 2;
}

uint32_t tsr__transfer_family(const VkQueueFamilyProperties2 *families, uint32_t count,
                              uint32_t compute)
{
    uint32_t best = UINT32_MAX;
    int best_score = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int score = i == compute ? 0 : suits_transfers(&families[i].queueFamilyProperties);
        if (score > best_score) {
            best = i;
            best_score = score;
        }
    }
    return best;
}

/* How much of a GPU's memory the host can map without a resizable BAR. */
#define SMALL_BAR_BYTES (UINT64_C(256) << 20)

uint32_t tsr__transfer_direct_type(const VkPhysicalDeviceMemoryProperties *properties,
                                   uint32_t allowed)
{
    const VkMemoryPropertyFlags needed = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                         VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                         VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    uint64_t largest = 0;
    for (uint32_t i = 0; i < properties->memoryHeapCount; i++)
        if ((properties->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) &&
            properties->memoryHeaps[i].size > largest)
            largest = properties->memoryHeaps[i].size;
    for (uint32_t i = 0; i < properties->memoryTypeCount; i++) {
        const VkMemoryType *type = &properties->memoryTypes[i];
        const uint64_t size = properties->memoryHeaps[type->heapIndex].size;
        /* Use only types that have exactly the needed flags. Types that also have HOST_CACHED would
         * suit, but drivers offer them only if host and device share one memory. Other flags need
         * features that the library does not request. */
        if ((allowed & (1U << i)) && type->propertyFlags == needed && size > SMALL_BAR_BYTES &&
            size == largest)
            return i;
    }
    return UINT32_MAX;
}
