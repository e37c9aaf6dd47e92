#include "gpu/pipeline/cache_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "platform/paths.h"

typedef struct file_header {
    uint64_t magic;
    tsr__cache_key key;
    uint64_t data_bytes;
    uint64_t data_hash;
} file_header;

/* Hashes 32-bit words instead of bytes to save time: some hundred thousand words are hashed
 * whenever a device is opened. */
uint64_t tsr__cache_hash_shaders(tsr__storage storage, const char *prefix)
{
    uint64_t hash = TSR__HASH_START;
    for (int i = 0; i < TSR__SHADER_COUNT; i++) {
        const tsr__shader_binary *shader = &tsr__shader_binaries[i];
        const uint32_t *code = shader->variant[storage].code;
        if (!code || strncmp(shader->name, prefix, strlen(prefix)) != 0)
            continue;
        for (size_t word = 0; word < shader->variant[storage].size_bytes / sizeof *code; word++)
            hash = tsr__hash_word(hash, code[word]);
    }
    return hash;
}

bool tsr__cache_path(const tsr__cache_kind *kind, uint64_t name, char path[TSR__CACHE_PATH])
{
    char base[TSR__CACHE_PATH];
    if (!tsr__path_cache(base, sizeof base))
        return false;
    int wrote = snprintf(path, TSR__CACHE_PATH, "%s/tessera/%s-%016llx.bin", base, kind->prefix,
                         (unsigned long long)name);
    return wrote > 0 && wrote < TSR__CACHE_PATH;
}

/* Reading -------------------------------------------------------------------------------------- */

/* Opens a regular file. Returns NULL if there is no file or it cannot be read. Refuses anything
 * that is not a regular file, and sets *refused to that reason; a FIFO, for example, could make the
 * caller block. */
static FILE *open_regular(const char *path, const char **refused)
{
    struct stat status;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return NULL;
    bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    FILE *file = regular ? fdopen(descriptor, "rb") : NULL;
    if (!regular)
        *refused = "is no regular file";
    if (!file)
        close(descriptor);
    return file;
}

/* Checks the header before its fields are used. Returns what is wrong with it, or NULL if nothing
 * is. */
static const char *header_flaw(const tsr__cache_kind *kind, const tsr__cache_key *key,
                               const file_header *header)
{
    tsr__cache_key same_kernels = header->key;
    if (header->magic != kind->magic)
        return "is damaged, or of another version of the format";
    same_kernels.shader_hash = key->shader_hash;
    if (memcmp(&same_kernels, key, sizeof *key) != 0)
        return "was made for another device, or another version of its driver";
    if (header->key.shader_hash != key->shader_hash)
        return "was made by a build with other kernels";
    return header->data_bytes > kind->max_bytes ? "is damaged" : NULL;
}

static tsr_status read_checked(FILE *file, const tsr__cache_kind *kind, const tsr__cache_key *key,
                               void **out, size_t *out_bytes, const char **refused)
{
    file_header header;
    *refused = "is damaged";
    if (fread(&header, sizeof header, 1, file) != 1)
        return TSR_OK;
    const char *flaw = header_flaw(kind, key, &header);
    if (flaw) {
        *refused = flaw;
        return TSR_OK;
    }
    size_t bytes = (size_t)header.data_bytes;
    void *data = tsr__calloc(bytes, 1);
    if (!data)
        return TSR_ERR_NO_MEMORY;
    if (fread(data, 1, bytes, file) != bytes || fgetc(file) != EOF ||
        tsr__hash(TSR__HASH_START, data, bytes) != header.data_hash) {
        tsr__free(data);
        return TSR_OK;
    }
    *refused = NULL;
    *out = data;
    *out_bytes = bytes;
    return TSR_OK;
}

tsr_status tsr__cache_inspect(const tsr__cache_kind *kind, const char *path,
                              const tsr__cache_key *key, void **out, size_t *out_bytes,
                              const char **refused)
{
    void *data = NULL;
    size_t bytes = 0;
    const char *reason = NULL;
    FILE *file = open_regular(path, &reason);
    if (file) {
        tsr_status status = read_checked(file, kind, key, &data, &bytes, &reason);
        fclose(file);
        TSR__TRY(status);
    }
    *out = data;
    *out_bytes = bytes;
    *refused = reason;
    return TSR_OK;
}

tsr_status tsr__cache_load(const tsr__cache_kind *kind, const char *path, const tsr__cache_key *key,
                           void **out, size_t *out_bytes)
{
    const char *refused;
    TSR__TRY(tsr__cache_inspect(kind, path, key, out, out_bytes, &refused));
    if (refused)
        tsr__log(TSR_LOG_WARNING, "%s %s was not used: it %s", kind->what, path, refused);
    return TSR_OK;
}

bool tsr__cache_peek(const tsr__cache_kind *kind, const char *path, tsr__cache_key *out)
{
    file_header header;
    const char *reason;
    FILE *file = open_regular(path, &reason);
    if (!file)
        return false;
    bool known = fread(&header, sizeof header, 1, file) == 1 && header.magic == kind->magic;
    fclose(file);
    if (known)
        *out = header.key;
    return known;
}

/* Writing -------------------------------------------------------------------------------------- */

/* Creates the folders of `path` if they do not exist, private to the user, as mkdir -p does. */
static bool make_folder(char *path)
{
    for (char *c = path + tsr__path_root(path); *c; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        int made = mkdir(path, 0700);
        *c = '/';
        if (made != 0 && errno != EEXIST)
            return false;
    }
    return true;
}

/* Locks the open file. The lock also excludes other threads of this process. It ends when the file
 * is closed. Returns false after a timeout. */
static bool lock_until(int descriptor, uint64_t deadline_ns, bool *locked)
{
    const struct timespec pause = {.tv_nsec = 2000000};
    while (!(*locked = flock(descriptor, LOCK_EX | LOCK_NB) == 0)) {
        if (errno != EWOULDBLOCK)
            return true; /* no lock, but no error: this file system has no locks */
        if (tsr__now_ns() >= deadline_ns)
            return false;
        nanosleep(&pause, NULL);
    }
    return true;
}

bool tsr__cache_lock(const char *path, uint64_t timeout_ns, int *out)
{
    char beside[TSR__CACHE_PATH + 16];
    bool locked = false;
    *out = -1;
    snprintf(beside, sizeof beside, "%s.lock", path);
    int descriptor =
        make_folder(beside) ? open(beside, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600) : -1;
    if (descriptor < 0)
        return true;
    bool in_time = lock_until(descriptor, tsr__deadline_ns(timeout_ns), &locked);
    if (locked)
        *out = descriptor;
    else
        close(descriptor);
    return in_time;
}

void tsr__cache_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
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

int tsr__cache_store(const tsr__cache_kind *kind, const char *path, const tsr__cache_key *key,
                     const void *data, size_t bytes)
{
    char temporary[TSR__CACHE_PATH + 16];
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    errno = 0;
    int descriptor = make_folder(temporary) ? mkstemp(temporary) : -1;
    if (descriptor < 0)
        return errno ? errno : EIO;
    file_header header;
    memset(&header, 0, sizeof header);
    header.magic = kind->magic;
    header.key = *key;
    header.data_bytes = bytes;
    header.data_hash = tsr__hash(TSR__HASH_START, data, bytes);
    bool written = write_all(descriptor, &header, sizeof header) &&
                   write_all(descriptor, data, bytes) && fsync(descriptor) == 0;
    written = close(descriptor) == 0 && written;
    if (written && rename(temporary, path) == 0)
        return 0;
    int reason = errno ? errno : EIO;
    unlink(temporary);
    return reason;
}
