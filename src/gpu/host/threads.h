/* Divides work on host memory among threads that exist only for this work. A single CPU cannot use
 * the memory's full bandwidth. */
#ifndef TSR_GPU_HOST_THREADS_H
#define TSR_GPU_HOST_THREADS_H

#include <stdint.h>

/* Does the work's units `first` to end − 1. */
typedef void tsr__host_work(const void *work, uint64_t first, uint64_t end);

/* Does all `units` of the work, which together read or write `bytes` bytes. Blocks until they are
 * done. Uses at most 4 threads. Uses only the calling thread if there is little work or if no
 * thread can be started. */
void tsr__host_share(uint64_t units, uint64_t bytes, tsr__host_work *run, const void *work);

#endif
