/* The driver's pipeline cache on disk, one file for each device and driver (cache_file.h). A file
 * that is missing, damaged or from another device counts as an empty cache. If a file cannot be
 * written, a message is logged. */
#ifndef TSR_GPU_PIPELINE_DISK_CACHE_H
#define TSR_GPU_PIPELINE_DISK_CACHE_H

#include "gpu/device/device.h"
#include "gpu/pipeline/cache_file.h"

void tsr__cache_key_init(const tsr_device *device, tsr__cache_key *out);

/* Reads the cached bytes. The caller frees them with tsr__free. Returns NULL and 0 bytes if there
 * are none. */
void *tsr__cache_read(const tsr__cache_key *key, size_t *out_bytes);
void tsr__cache_write(const tsr__cache_key *key, const void *data, size_t bytes);

#endif
