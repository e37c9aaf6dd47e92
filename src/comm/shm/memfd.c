#define _GNU_SOURCE /* for memfd_create */
#include "comm/shm/memfd.h"

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

#define HEAD_BYTES 4096 /* room for the cookie, in front of the shared bytes */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* Logs errno, closes the file and returns NULL. */
static void *log_and_close(const char *what, size_t size_bytes, int file)
{
    const int error = errno;
    char text[128];
    if (strerror_r(error, text, sizeof text) != 0)
        (void)snprintf(text, sizeof text, "error %d", error);
    tsr__log(TSR_LOG_INFO, "comm: no shared memory, messages are used instead: %s (%zu bytes): %s",
             what, HEAD_BYTES + size_bytes, text);
    if (file >= 0)
        close(file);
    return NULL;
}

static uint8_t *map_file(int file, size_t size_bytes)
{
    void *memory = mmap(NULL, HEAD_BYTES + size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *tsr__shm_memory_create(size_t size_bytes, tsr__shm_memory_key *key)
{
    *key = (tsr__shm_memory_key){.pid = getpid(), .file = -1};
    const int file = memfd_create("tessera", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (file < 0)
        return log_and_close("memfd_create", size_bytes, file);
    if (ftruncate(file, (off_t)(HEAD_BYTES + size_bytes)) != 0)
        return log_and_close("resizing a memfd", size_bytes, file);
    if (fcntl(file, F_ADD_SEALS, SEALS) != 0)
        return log_and_close("sealing a memfd", size_bytes, file);
    if (getrandom(key->cookie, sizeof key->cookie, 0) != (ssize_t)sizeof key->cookie)
        return log_and_close("getrandom", size_bytes, file);
    uint8_t *memory = map_file(file, size_bytes);
    if (!memory)
        return log_and_close("mapping a memfd", size_bytes, file);
    memcpy(memory, key->cookie, sizeof key->cookie);
    key->file = file;
    return memory + HEAD_BYTES;
}

void tsr__shm_memory_seal(tsr__shm_memory_key *key)
{
    if (key->file >= 0)
        close(key->file);
    key->file = -1;
}

/* Opens the file of another process and checks its type, size and seals. The check is needed
 * because that process may have ended: another process may have its number now, and a different
 * file with the same descriptor. */
static int open_memfd(const tsr__shm_memory_key *key, size_t size_bytes)
{
    char path[64];
    struct stat info;
    (void)snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)key->pid, (int)key->file);
    int file = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return -1;
    const bool fits = fstat(file, &info) == 0 && S_ISREG(info.st_mode) &&
                      info.st_size == (off_t)(HEAD_BYTES + size_bytes) &&
                      fcntl(file, F_GET_SEALS) == SEALS;
    if (!fits) {
        close(file);
        errno = ESTALE;
        return -1;
    }
    return file;
}

void *tsr__shm_memory_open(const tsr__shm_memory_key *key, size_t size_bytes)
{
    char what[64];
    if (key->file < 0)
        return NULL;
    const int file = open_memfd(key, size_bytes);
    (void)snprintf(what, sizeof what, "opening the memory of process %lld", (long long)key->pid);
    if (file < 0)
        return log_and_close(what, size_bytes, -1);
    uint8_t *memory = map_file(file, size_bytes);
    if (!memory)
        return log_and_close("mapping another process' memory", size_bytes, file);
    close(file);
    if (memcmp(memory, key->cookie, sizeof key->cookie) == 0)
        return memory + HEAD_BYTES;
    tsr__shm_memory_unmap(memory + HEAD_BYTES, size_bytes);
    errno = ESTALE;
    return log_and_close(what, size_bytes, -1);
}

void tsr__shm_memory_unmap(void *memory, size_t size_bytes)
{
    if (memory)
        (void)munmap((uint8_t *)memory - HEAD_BYTES, HEAD_BYTES + size_bytes);
}
