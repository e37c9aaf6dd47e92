#define _GNU_SOURCE /* memfd_create */
#include "comm/shm/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

#define HEAD_BYTES 4096 /* before what is shared */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static void *failed(const char *what, int file)
{
    const int error = errno;
    tsr__log(TSR_LOG_DEBUG, "comm: no shared memory: %s: error %d", what, error);
    if (file >= 0)
        close(file);
    return NULL;
}

static uint8_t *map(int file, size_t size_bytes)
{
    void *memory = mmap(NULL, HEAD_BYTES + size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *tsr__memory_share(size_t size_bytes, tsr__memory_key *key)
{
    *key = (tsr__memory_key){.pid = getpid(), .file = -1};
    const int file = memfd_create("tessera", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return failed("memfd_create", file);
    if (ftruncate(file, (off_t)(HEAD_BYTES + size_bytes)) != 0 ||
        fcntl(file, F_ADD_SEALS, SEALS) != 0)
        return failed("ftruncate", file);
    if (getrandom(key->cookie, sizeof key->cookie, 0) != (ssize_t)sizeof key->cookie)
        return failed("getrandom", file);
    uint8_t *memory = map(file, size_bytes);
    if (!memory)
        return failed("mmap", file);
    memcpy(memory, key->cookie, sizeof key->cookie);
    key->file = file;
    return memory + HEAD_BYTES;
}

void tsr__memory_hide(tsr__memory_key *key)
{
    if (key->file >= 0)
        close(key->file);
    key->file = -1;
}

/* A process that has ended may have left its number to another, whose file is something else. */
static int open_other(const tsr__memory_key *key, size_t size_bytes)
{
    char path[64];
    struct stat what;
    (void)snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)key->pid, (int)key->file);
    int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return -1;
    const bool fits = fstat(file, &what) == 0 && S_ISREG(what.st_mode) &&
                      what.st_size == (off_t)(HEAD_BYTES + size_bytes) &&
                      fcntl(file, F_GET_SEALS) == SEALS;
    if (!fits) {
        close(file);
        errno = ESTALE;
        return -1;
    }
    return file;
}

void *tsr__memory_look(const tsr__memory_key *key, size_t size_bytes)
{
    if (key->file < 0)
        return NULL;
    const int file = open_other(key, size_bytes);
    if (file < 0)
        return failed("open", -1);
    uint8_t *memory = map(file, size_bytes);
    if (!memory)
        return failed("mmap", file);
    close(file);
    if (memcmp(memory, key->cookie, sizeof key->cookie) == 0)
        return memory + HEAD_BYTES;
    tsr__memory_unmap(memory + HEAD_BYTES, size_bytes);
    errno = ESTALE;
    return failed("looking", -1);
}

void tsr__memory_unmap(void *memory, size_t size_bytes)
{
    if (memory)
        (void)munmap((uint8_t *)memory - HEAD_BYTES, HEAD_BYTES + size_bytes);
}
