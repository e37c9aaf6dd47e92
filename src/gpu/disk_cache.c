#include "gpu/disk_cache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"

#define CACHE_MAGIC UINT64_C(0x3165686361637274) /* "trcache1" */
#define CACHE_MAX_BYTES (UINT64_C(256) << 20)
#define PATH_SIZE 1024

typedef struct cache_header {
    uint64_t magic;
    tsr__cache_key key;
    uint64_t data_bytes;
    uint64_t data_hash;
} cache_header;

static uint64_t hash_shaders(void)
{
    uint64_t hash = TSR__HASH_START;
    for (int i = 0; i < TSR__SHADER_COUNT; i++)
        for (int storage = 0; storage < TSR__STORAGE_COUNT; storage++)
            if (tsr__shader_binaries[i].variant[storage].code)
                hash = tsr__hash(hash, tsr__shader_binaries[i].variant[storage].code,
                                 tsr__shader_binaries[i].variant[storage].size_bytes);
    return hash;
}

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
    out->shader_hash = hash_shaders();
}

static bool cache_folder(char path[PATH_SIZE])
{
    const char *base = getenv("XDG_CACHE_HOME");
    int wrote;
    if (base && base[0] == '/') {
        wrote = snprintf(path, PATH_SIZE, "%s/tessera", base);
    } else {
        base = getenv("HOME");
        if (!base || base[0] != '/')
            return false;
        wrote = snprintf(path, PATH_SIZE, "%s/.cache/tessera", base);
    }
    return wrote > 0 && wrote < PATH_SIZE;
}

/* As mkdir -p, private to the user. */
static bool make_folder(char *path)
{
    for (char *c = path + 1; *c; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        int made = mkdir(path, 0700);
        *c = '/';
        if (made != 0 && errno != EEXIST)
            return false;
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static bool cache_file(const tsr__cache_key *key, char path[PATH_SIZE])
{
    char folder[PATH_SIZE];
    if (!cache_folder(folder))
        return false;
    int wrote = snprintf(path, PATH_SIZE, "%s/pipelines-%016llx.bin", folder,
                         (unsigned long long)tsr__hash(TSR__HASH_START, key, sizeof *key));
    return wrote > 0 && wrote < PATH_SIZE;
}

/* Nothing in the header is believed before it has been checked. */
static void *read_checked(FILE *file, const tsr__cache_key *key, size_t *out_bytes)
{
    cache_header header;
    if (fread(&header, sizeof header, 1, file) != 1 || header.magic != CACHE_MAGIC ||
        memcmp(&header.key, key, sizeof *key) != 0 || header.data_bytes > CACHE_MAX_BYTES)
        return NULL;
    size_t bytes = (size_t)header.data_bytes;
    void *data = tsr__calloc(bytes, 1);
    if (!data)
        return NULL;
    if (fread(data, 1, bytes, file) != bytes || fgetc(file) != EOF ||
        tsr__hash(TSR__HASH_START, data, bytes) != header.data_hash) {
        tsr__free(data);
        return NULL;
    }
    *out_bytes = bytes;
    return data;
}

void *tsr__cache_read(const tsr__cache_key *key, size_t *out_bytes)
{
    char path[PATH_SIZE];
    *out_bytes = 0;
    if (!cache_file(key, path))
        return NULL;
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    void *data = read_checked(file, key, out_bytes);
    fclose(file);
    if (!data)
        tsr__log(TSR_LOG_WARNING, "pipeline cache %s is damaged or foreign and was not used", path);
    return data;
}

static bool write_all(int descriptor, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes > 0) {
        ssize_t wrote = write(descriptor, at, bytes);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return false;
        at += wrote;
        bytes -= (size_t)wrote;
    }
    return true;
}

/* Written beside the file and renamed over it, so that a reader sees the old cache or the new one.
 */
void tsr__cache_write(const tsr__cache_key *key, const void *data, size_t bytes)
{
    char path[PATH_SIZE], folder[PATH_SIZE], temporary[PATH_SIZE + 16];
    if (!cache_folder(folder) || !cache_file(key, path))
        return;
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int descriptor = make_folder(folder) ? mkstemp(temporary) : -1;
    if (descriptor < 0) {
        tsr__log(TSR_LOG_WARNING, "pipeline cache %s cannot be written: %s", path, strerror(errno));
        return;
    }
    cache_header header;
    memset(&header, 0, sizeof header);
    header.magic = CACHE_MAGIC;
    header.key = *key;
    header.data_bytes = bytes;
    header.data_hash = tsr__hash(TSR__HASH_START, data, bytes);
    bool written = write_all(descriptor, &header, sizeof header) &&
                   write_all(descriptor, data, bytes) && fsync(descriptor) == 0;
    written = close(descriptor) == 0 && written;
    if (!written || rename(temporary, path) != 0) {
        tsr__log(TSR_LOG_WARNING, "pipeline cache %s cannot be written: %s", path, strerror(errno));
        unlink(temporary);
    }
}
