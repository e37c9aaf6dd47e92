/* Divides work on host memory among threads that live as long as the work: one CPU alone does not
 * use the memory's whole bandwidth. */
#ifndef TSR_GPU_HOST_THREADS_H
#define TSR_GPU_HOST_THREADS_H

#include <stdint.h>

/* Does units first … end − 1 of the work. */
typedef void tsr__host_work(const void *work, uint64_t first, uint64_t end);

/* Does all `units`, which read or write `bytes` bytes together, and returns when they are done.
 * Uses at most 4 threads, none for little work, and the calling thread alone if none can start. */
void tsr__host_share(uint64_t units, uint64_t bytes, tsr__host_work *run, const void *work);

#endif
