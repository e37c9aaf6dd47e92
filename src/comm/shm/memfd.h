/* Memory that the processes of one host share. It has no name in any file system, so nothing
 * remains after a crash, and the size limit of /dev/shm does not apply. It exists as long as at
 * least one process maps it. */
#ifndef TSR_COMM_SHM_MEMFD_H
#define TSR_COMM_SHM_MEMFD_H

#include <stddef.h>
#include <stdint.h>

/* The data with which other processes find the memory, as long as its owner keeps `file` open.
 * Processes send it to each other without conversion. */
typedef struct tsr__shm_memory_key {
    int64_t pid;
    int32_t file; /* a file descriptor of the owner; −1: no memory */
    uint32_t unused;
    /* a random number that is also stored at the start of the memory, to recognise it */
    uint64_t cookie[2];
} tsr__shm_memory_key;

/* Creates zeroed memory, and the key with which other processes find it. Each page is allocated
 * when it is first written. On failure, logs the reason and the size, sets key->file to −1 and
 * returns NULL; the caller can continue without this memory. */
void *tsr__shm_memory_create(size_t size_bytes, tsr__shm_memory_key *key);
/* Closes the file of the memory, so that no more processes can find it. */
void tsr__shm_memory_seal(tsr__shm_memory_key *key);
/* Maps the memory of another process. If that is impossible, logs the reason and returns NULL. */
void *tsr__shm_memory_open(const tsr__shm_memory_key *key, size_t size_bytes);
/* Unmaps memory from tsr__shm_memory_create or tsr__shm_memory_open. Accepts NULL. */
void tsr__shm_memory_unmap(void *memory, size_t size_bytes);

#endif
