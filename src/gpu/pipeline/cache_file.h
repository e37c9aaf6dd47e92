/* Files in the cache folder, $XDG_CACHE_HOME/tessera or ~/.cache/tessera. A file has a header, then
 * the contents. The header has a checksum of the contents, and the key: everything on which the
 * contents depend. Files are written under another name and then renamed, so that a reader sees
 * either the old file or the new one. */
#ifndef TSR_GPU_PIPELINE_CACHE_FILE_H
#define TSR_GPU_PIPELINE_CACHE_FILE_H

#include <stdbool.h>

#include "gpu/device/vk.h"
#include "gpu/pipeline/shader.h"

/* The key of a file: the device, driver and shaders on which the contents can depend. It has no
 * padding, because keys are compared and hashed as bytes. */
typedef struct tsr__cache_key {
    uint8_t cache_uuid[VK_UUID_SIZE];
    uint8_t device_uuid[VK_UUID_SIZE];
    uint32_t vendor_id, device_id, driver_version;
    uint32_t storage;     /* a tsr__storage */
    uint64_t shader_hash; /* the hash of the shaders' SPIR-V in this build */
} tsr__cache_key;

typedef struct tsr__cache_kind {
    const char *what;   /* for messages, for example "pipeline cache" */
    const char *prefix; /* the file's name begins with it */
    uint64_t magic;
    uint64_t max_bytes;
} tsr__cache_kind;

#define TSR__CACHE_PATH 1024

/* Writes "FOLDER/PREFIX-NAME.bin", where NAME is `name` in hexadecimal. Returns false if there is
 * no cache folder, because no environment variable gives an absolute path for it. */
bool tsr__cache_path(const tsr__cache_kind *kind, uint64_t name, char path[TSR__CACHE_PATH]);

/* Returns a hash of the SPIR-V of the shaders whose names start with `prefix`, in one variant. */
uint64_t tsr__cache_hash_shaders(tsr__storage storage, const char *prefix);

/* Reads the contents of a file. The caller frees them with tsr__free. They are NULL, with 0 bytes,
 * if there is no file or if it cannot be used because it is damaged or its key differs from `key`.
 * If the file cannot be used, *refused gives the reason, in words that follow "it"; otherwise it is
 * NULL. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__cache_inspect(const tsr__cache_kind *kind, const char *path,
                              const tsr__cache_key *key, void **out, size_t *out_bytes,
                              const char **refused);

/* The same as tsr__cache_inspect, and logs why a file was not used. */
tsr_status tsr__cache_load(const tsr__cache_kind *kind, const char *path, const tsr__cache_key *key,
                           void **out, size_t *out_bytes);

/* Reads only the key of a file. Returns false if the file cannot be read or is not of this kind. */
bool tsr__cache_peek(const tsr__cache_kind *kind, const char *path, tsr__cache_key *out);

/* Locks a file so that a process can read, change and store it without losing changes that another
 * process makes in between. The lock is on a separate file, PATH.lock, which is never deleted.
 * Blocks for at most `timeout_ns` until the lock is free; returns false if it still is not. If
 * locking is impossible, for example in a read-only folder, returns true and sets *out to -1: the
 * caller continues without a lock, and reports the cause if it then cannot store the file. */
bool tsr__cache_lock(const char *path, uint64_t timeout_ns, int *out);
void tsr__cache_unlock(int lock);

/* Replaces the file, and creates the folder if necessary. Returns 0 or an errno. */
int tsr__cache_store(const tsr__cache_kind *kind, const char *path, const tsr__cache_key *key,
                     const void *data, size_t bytes);

#endif
