/* The driver's pipeline cache on disk: one file per device and driver under $XDG_CACHE_HOME/tessera
 * (or ~/.cache/tessera). A missing, foreign or damaged file is a miss; a file that cannot be
 * written is logged. */
#ifndef TSR_GPU_DISK_CACHE_H
#define TSR_GPU_DISK_CACHE_H

#include "gpu/device.h"

/* What a cache's contents depend on. */
typedef struct tsr__cache_key {
    uint8_t cache_uuid[VK_UUID_SIZE];
    uint8_t device_uuid[VK_UUID_SIZE];
    uint32_t vendor_id, device_id, driver_version;
    uint32_t storage;     /* tsr__storage */
    uint64_t shader_hash; /* of all SPIR-V in this build */
} tsr__cache_key;

void tsr__cache_key_init(const tsr_device *device, tsr__cache_key *out);

/* The cached bytes, to be freed with tsr__free, or NULL and 0. */
void *tsr__cache_read(const tsr__cache_key *key, size_t *out_bytes);
void tsr__cache_write(const tsr__cache_key *key, const void *data, size_t bytes);

#endif
