/* Lets a thread wait, with a deadline, until another thread has completed an operation. Both
 * threads use one object. If the operation completes after the deadline, the other thread frees the
 * object; otherwise the waiting thread does. */
#ifndef TSR_COMM_BOOTSTRAP_COMPLETION_H
#define TSR_COMM_BOOTSTRAP_COMPLETION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "tessera/base.h"

typedef struct tsr__completion {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done, abandoned;
} tsr__completion;

void tsr__completion_init(tsr__completion *completion);
void tsr__completion_finish(tsr__completion *completion);

/* Reports that the operation is complete; the thread that performs it calls this. Returns true if
 * the other thread has stopped waiting. The calling thread must then free the object. */
bool tsr__completion_signal(tsr__completion *completion) TSR_NODISCARD;

/* Blocks until the operation completes or the deadline passes. Returns true if it has completed. If
 * it returns false, the other thread frees the object. */
bool tsr__completion_wait(tsr__completion *completion, uint64_t deadline_ns) TSR_NODISCARD;

#endif
