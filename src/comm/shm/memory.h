/* Memory that the processes of one host look into, with plain loads and stores. It has no name, so
 * that nothing can stay behind: it lives as long as some process has it. */
#ifndef TSR_COMM_SHM_MEMORY_H
#define TSR_COMM_SHM_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* How others find it, as long as its owner keeps `file` open. Travels between processes as it is.
 */
typedef struct tsr__memory_key {
    int64_t pid;
    int32_t file; /* a descriptor of the owner; −1: there is none */
    uint32_t unused;
    uint64_t cookie[2]; /* in the first bytes of the memory, of which they take a page */
} tsr__memory_key;

/* Zeroed memory, which takes room when it is touched, and what the others need. NULL when there is
 * none to be had; then key->file is −1. */
void *tsr__memory_share(size_t size_bytes, tsr__memory_key *key);
/* From now on nobody else can find it. */
void tsr__memory_hide(tsr__memory_key *key);
/* Another process' memory; NULL when it cannot be found, or is gone. */
void *tsr__memory_look(const tsr__memory_key *key, size_t size_bytes);
/* What either of the two gave. NULL is fine. */
void tsr__memory_unmap(void *memory, size_t size_bytes);

#endif
