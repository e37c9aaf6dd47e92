#include "gpu/pipeline/disk_cache.h"

#include <string.h>

#include "base/error.h"
#include "base/hash.h"

static const tsr__cache_kind pipelines = {
    .what = "pipeline cache",
    .prefix = "pipelines",
    .magic = UINT64_C(0x3165686361637274), /* "trcache1" */
    .max_bytes = UINT64_C(256) << 20,
};

void tsr__cache_key_init(const tsr_device *device, tsr__cache_key *out)
{
    VkPhysicalDeviceProperties2 properties = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
    };
    device->instance->vk.GetPhysicalDeviceProperties2(device->physical, &properties);
    memset(out, 0, sizeof *out);
    memcpy(out->cache_uuid, properties.properties.pipelineCacheUUID, VK_UUID_SIZE);
    memcpy(out->device_uuid, device->info.uuid, VK_UUID_SIZE);
    out->vendor_id = device->info.vendor_id;
    out->device_id = device->info.device_id;
    out->driver_version = device->info.driver_version;
    out->storage = (uint32_t)device->storage;
    out->shader_hash = tsr__cache_hash_shaders(device->storage, "");
}

static bool path_of(const tsr__cache_key *key, char path[TSR__CACHE_PATH])
{
    return tsr__cache_path(&pipelines, tsr__hash(TSR__HASH_START, key, sizeof *key), path);
}

void *tsr__cache_read(const tsr__cache_key *key, size_t *out_bytes)
{
    char path[TSR__CACHE_PATH];
    void *data = NULL;
    *out_bytes = 0;
    if (path_of(key, path) && tsr__cache_load(&pipelines, path, key, &data, out_bytes) != TSR_OK)
        tsr__log(TSR_LOG_WARNING, "%s %s was not used: %s", pipelines.what, path, tsr_last_error());
    return data;
}

void tsr__cache_write(const tsr__cache_key *key, const void *data, size_t bytes)
{
    char path[TSR__CACHE_PATH];
    if (!path_of(key, path))
        return;
    int reason = tsr__cache_store(&pipelines, path, key, data, bytes);
    if (reason != 0)
        tsr__log(TSR_LOG_WARNING, "%s %s cannot be written: %s", pipelines.what, path,
                 strerror(reason));
}
