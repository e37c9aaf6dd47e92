#include "gpu/memory/host_import.h"

#include "base/alloc.h"
#include "base/checked.h"

static const VkExternalMemoryHandleTypeFlagBits handle_type =
    VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;

static tsr_status create_buffer(tsr_device *device, uint64_t size, VkBuffer *out,
                                VkMemoryRequirements *requirements)
{
    VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
        .handleTypes = handle_type,
    };
    return tsr__memory_create_buffer(device, size, &external, out, requirements);
}

/* True if the driver refuses to import the memory. Drivers should then return
 * VK_ERROR_INVALID_EXTERNAL_HANDLE, but this function counts every error as a refusal, except lack
 * of memory and a lost device. */
static bool is_refusal(VkResult result)
{
    return result < 0 && tsr__vk_status(result) == TSR_ERR_DRIVER;
}

/* Chooses one of the `allowed` memory types with which the device can import the memory at `host`;
 * UINT32_MAX if there is none. */
static tsr_status choose_type(tsr_device *device, const VkPhysicalDeviceMemoryProperties *types,
                              void *host, uint32_t allowed, uint32_t *out)
{
    VkMemoryHostPointerPropertiesEXT pointer = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT,
    };
    VkResult result = TSR__VK(&device->vk, GetMemoryHostPointerPropertiesEXT, device->handle,
                              handle_type, host, &pointer);
    *out = UINT32_MAX;
    if (is_refusal(result))
        return TSR_OK;
    if (result < 0)
        return tsr__device_fail(device, result, "vkGetMemoryHostPointerPropertiesEXT");
    *out = tsr__memory_find_type(types, allowed & pointer.memoryTypeBits,
                                 VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                     VK_MEMORY_PROPERTY_HOST_COHERENT_BIT,
                                 VK_MEMORY_PROPERTY_HOST_CACHED_BIT, 0);
    return TSR_OK;
}

static tsr_status import(tsr_device *device, void *host, uint64_t size, uint32_t type,
                         VkDeviceMemory *out)
{
    VkImportMemoryHostPointerInfoEXT pointer = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = handle_type,
        .pHostPointer = host,
    };
    VkResult result = tsr__memory_allocate(device, size, type, &pointer, out);
    if (result < 0 && !is_refusal(result))
        return tsr__device_fail(device, result, "vkAllocateMemory");
    return TSR_OK;
}

static tsr_status import_slab(tsr_device *device, const VkPhysicalDeviceMemoryProperties *types,
                              tsr__slab *slab)
{
    const uint64_t alignment = device->host_import_alignment;
    VkMemoryRequirements requirements;
    uint32_t type;

    TSR__TRY(create_buffer(device, slab->size_bytes, &slab->buffer, &requirements));
    const uint64_t size = tsr__align_up_u64(requirements.size, alignment);
    slab->own = tsr__calloc(1, size + alignment);
    if (!slab->own)
        return TSR_ERR_NO_MEMORY;
    const uint64_t address = (uint64_t)(uintptr_t)slab->own;
    slab->host = (uint8_t *)slab->own + (tsr__align_up_u64(address, alignment) - address);
    TSR__TRY(choose_type(device, types, slab->host, requirements.memoryTypeBits, &type));
    if (type == UINT32_MAX)
        return TSR_OK;
    TSR__TRY(import(device, slab->host, size, type, &slab->memory));
    if (!slab->memory)
        return TSR_OK;
    slab->heap = types->memoryTypes[type].heapIndex;
    TSR__DEVICE_TRY(device, BindBufferMemory, device->handle, slab->buffer, slab->memory, 0);
    return TSR_OK;
}

tsr_status tsr__host_import(tsr_device *device, const VkPhysicalDeviceMemoryProperties *types,
                            tsr__slab *slab)
{
    if (device->host_import_alignment == 0)
        return TSR_OK;
    TSR__TRY(import_slab(device, types, slab));
    if (slab->memory)
        return TSR_OK;
    tsr__log(TSR_LOG_INFO,
             "%s cannot import host memory; a network may be unable to access the memory that "
             "it maps instead",
             device->info.name);
    device->vk.DestroyBuffer(device->handle, slab->buffer, NULL);
    tsr__free(slab->own);
    slab->buffer = VK_NULL_HANDLE;
    slab->own = slab->host = NULL;
    return TSR_OK;
}
