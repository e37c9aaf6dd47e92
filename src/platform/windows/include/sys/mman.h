/* Declares mmap and munmap for anonymous memory. */
#ifndef TSR_WINDOWS_SYS_MMAN_H
#define TSR_WINDOWS_SYS_MMAN_H

#include <stddef.h>
#include <sys/types.h>

#define PROT_READ 1
#define PROT_WRITE 2
#define MAP_SHARED 1
#define MAP_ANONYMOUS 2
#define MAP_FAILED ((void *)-1)
void *mmap(void *address, size_t size, int protection, int flags, int descriptor, off_t offset);
int munmap(void *memory, size_t size);

#endif
