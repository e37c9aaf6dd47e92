/* Files of the cache folder, $XDG_CACHE_HOME/tessera or ~/.cache/tessera: a header that says what
 * the contents depend on, and the contents with their checksum. Written beside the file and renamed
 * over it, so that a reader sees the old file or the new one. */
#ifndef TSR_GPU_PIPELINE_CACHE_FILE_H
#define TSR_GPU_PIPELINE_CACHE_FILE_H

#include <stdbool.h>

#include "gpu/device/vk.h"
#include "gpu/pipeline/shader.h"

/* What contents can depend on. No padding: keys are compared and hashed as bytes. */
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
    uint64_t most_bytes;
} tsr__cache_kind;

#define TSR__CACHE_PATH 1024

/* "FOLDER/PREFIX-NAME.bin", the name in hexadecimal; false where there is no such folder, since
 * neither variable is set to an absolute path. */
bool tsr__cache_path(const tsr__cache_kind *kind, uint64_t name, char path[TSR__CACHE_PATH]);

/* Of the SPIR-V, in one variant, of the shaders whose names start with `prefix`. */
uint64_t tsr__cache_hash_shaders(tsr__storage storage, const char *prefix);

/* The contents, to be freed with tsr__free; NULL and 0 where there is no file, or none that can be
 * used: one that is damaged, or that depends on something else than `key`. Then `*refused` says
 * why, in words that follow "it"; otherwise it is NULL. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__cache_inspect(const tsr__cache_kind *kind, const char *path,
                              const tsr__cache_key *key, void **out, size_t *out_bytes,
                              const char **refused);

/* The same, and logs why a file was not used. */
tsr_status tsr__cache_load(const tsr__cache_kind *kind, const char *path, const tsr__cache_key *key,
                           void **out, size_t *out_bytes);

/* What a file of this kind says it depends on; false where that cannot be told. */
bool tsr__cache_peek(const tsr__cache_kind *kind, const char *path, tsr__cache_key *out);

/* Held by who reads a file to write it changed, lest another process's change in between be lost:
 * of a file beside it, which stays there. False where others have held it for `timeout_ns`. *out is
 * -1 where nothing can be locked; storing then says why, or succeeds as if nobody else did. */
bool tsr__cache_lock(const char *path, uint64_t timeout_ns, int *out);
void tsr__cache_unlock(int lock);

/* Replaces the file, making the folder where there is none. 0, or an errno. */
int tsr__cache_store(const tsr__cache_kind *kind, const char *path, const tsr__cache_key *key,
                     const void *data, size_t bytes);

#endif
