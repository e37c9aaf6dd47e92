/* Divides work among threads that exist only for this work. */
#ifndef TSR_GPU_HOST_THREADS_H
#define TSR_GPU_HOST_THREADS_H

#include <stdint.h>

enum { TSR__HOST_THREADS_MAX = 16 };

/* The number of processors that are online, at least 1. */
int tsr__host_processors(void);

/* Does task number `task` of the work. */
typedef void tsr__host_task(void *work, int task);

/* Runs tasks 0 to count − 1, each in its own thread, one of them in the caller's thread, and blocks
 * until they are done. The caller's thread also runs the tasks for which no thread can be started.
 * `count` is at most TSR__HOST_THREADS_MAX. */
void tsr__host_tasks(int count, tsr__host_task *run, void *work);

/* Does the work's units `first` to end − 1. */
typedef void tsr__host_work(const void *work, uint64_t first, uint64_t end);

/* Does work on host memory that consists of `units` equal units, for example rows, which together
 * read or write `bytes` bytes. Blocks until it is done. A single processor cannot use the memory's
 * full bandwidth; if there is enough work, up to 4 threads share it. */
void tsr__host_share(uint64_t units, uint64_t bytes, tsr__host_work *run, const void *work);

#endif
