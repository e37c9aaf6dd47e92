/* Memory that the processes of one host share, without a name in any file system: nothing can stay
 * behind, and no size limit of /dev/shm applies. It exists as long as a process maps it. */
#ifndef TSR_COMM_SHM_MEMORY_H
#define TSR_COMM_SHM_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* How other processes find the memory, as long as its owner keeps `file` open. It is sent between
 * processes as it is. */
typedef struct tsr__shm_memory_key {
    int64_t pid;
    int32_t file; /* a file descriptor of that process; −1: no memory */
    uint32_t unused;
    uint64_t cookie[2]; /* random; repeated at the start of the memory, to recognise it */
} tsr__shm_memory_key;

/* Zeroed memory, allocated page by page when it is first written, and the key for the others. On
 * failure logs what failed and with which size, sets key->file to −1 and returns NULL. The caller
 * can work without this memory. */
void *tsr__shm_memory_create(size_t size_bytes, tsr__shm_memory_key *key);
/* Prevents other processes from finding the memory from now on. */
void tsr__shm_memory_seal(tsr__shm_memory_key *key);
/* Maps the memory of another process. Returns NULL, and logs why, if that is impossible. */
void *tsr__shm_memory_open(const tsr__shm_memory_key *key, size_t size_bytes);
/* Unmaps what tsr__shm_memory_create or tsr__shm_memory_open returned. NULL is fine. */
void tsr__shm_memory_unmap(void *memory, size_t size_bytes);

#endif
