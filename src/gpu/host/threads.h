/* Divides work on host memory among threads that exist only for that work: one CPU alone cannot use
 * the memory's full bandwidth. */
#ifndef TSR_GPU_HOST_THREADS_H
#define TSR_GPU_HOST_THREADS_H

#include <stdint.h>

/* Does units first … end − 1 of the work. */
typedef void tsr__host_work(const void *work, uint64_t first, uint64_t end);

/* Does all `units`, which together read or write `bytes` bytes. Blocks until they are done. Uses at
 * most 4 threads, the calling thread alone if there is little work or no thread can be started. */
void tsr__host_share(uint64_t units, uint64_t bytes, tsr__host_work *run, const void *work);

#endif
