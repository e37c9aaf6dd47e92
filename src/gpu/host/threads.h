/* Work on host memory that is shared with threads, which live as long as it takes: one CPU does not
 * fill the memory's bandwidth. */
#ifndef TSR_GPU_HOST_THREADS_H
#define TSR_GPU_HOST_THREADS_H

#include <stdint.h>

/* Units first … end − 1 of the work. */
typedef void tsr__host_work(const void *work, uint64_t first, uint64_t end);

/* All `units`, which write or read so many bytes together. */
void tsr__host_share(uint64_t units, uint64_t bytes, tsr__host_work *run, const void *work);

#endif
