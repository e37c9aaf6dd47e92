/* Files of the cache folder, $XDG_CACHE_HOME/tessera or ~/.cache/tessera. A file has a header,
 * which says what its contents depend on, then the contents, with a checksum. Files are written
 * under another name and then renamed, so that a reader sees either the old file or the new one. */
#ifndef TSR_GPU_PIPELINE_CACHE_FILE_H
#define TSR_GPU_PIPELINE_CACHE_FILE_H

#include <stdbool.h>

#include "gpu/device/vk.h"
#include "gpu/pipeline/shader.h"

/* Everything that contents can depend on. It has no padding, since keys are compared and hashed as
 * bytes. */
typedef struct tsr__cache_key {
    uint8_t cache_uuid[VK_UUID_SIZE];
    uint8_t device_uuid[VK_UUID_SIZE];
    uint32_t vendor_id, device_id, driver_version;
    uint32_t storage;     /* tsr__storage */
    uint64_t shader_hash; /* of the SPIR-V in this build */
} tsr__cache_key;

typedef struct tsr__cache_kind {
    const char *what;   /* in messages: "pipeline cache" */
    const char *prefix; /* of the file's name */
    uint64_t magic;
    uint64_t max_bytes;
} tsr__cache_kind;

#define TSR__CACHE_PATH 1024

/* Writes "FOLDER/PREFIX-NAME.bin" with the name in hexadecimal. False if there is no cache folder,
 * because neither variable is set to an absolute path. */
bool tsr__cache_path(const tsr__cache_kind *kind, uint64_t name, char path[TSR__CACHE_PATH]);

/* The hash of the SPIR-V, in one variant, of the shaders whose names start with `prefix`. */
uint64_t tsr__cache_hash_shaders(tsr__storage storage, const char *prefix);

/* Reads the contents, which the caller frees with tsr__free. They are NULL, with 0 bytes, if there
 * is no file or if the file cannot be used because it is damaged or depends on something other than
 * `key`. In that case *refused gives the reason, in words that follow "it"; otherwise it is NULL.
 * Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__cache_inspect(const tsr__cache_kind *kind, const char *path,
                              const tsr__cache_key *key, void **out, size_t *out_bytes,
                              const char **refused);

/* As tsr__cache_inspect, and logs why a file was not used. */
tsr_status tsr__cache_load(const tsr__cache_kind *kind, const char *path, const tsr__cache_key *key,
                           void **out, size_t *out_bytes);

/* Reads only the key of a file of this kind. False if the file cannot be read or is not of this
 * kind. */
bool tsr__cache_peek(const tsr__cache_kind *kind, const char *path, tsr__cache_key *out);

/* Locks a file for a read-modify-write, so that no change of another process in between is lost.
 * The lock is on a file beside it, PATH.lock, which is not deleted. Blocks until the lock is free,
 * for at most `timeout_ns`; false if others still hold it. *out is -1 if locking is impossible.
 * Then the caller proceeds without a lock, and storing reports the cause if it fails, too. */
bool tsr__cache_lock(const char *path, uint64_t timeout_ns, int *out);
void tsr__cache_unlock(int lock);

/* Replaces the file, and creates the folder if necessary. Returns 0 or an errno. */
int tsr__cache_store(const tsr__cache_kind *kind, const char *path, const tsr__cache_key *key,
                     const void *data, size_t bytes);

#endif
