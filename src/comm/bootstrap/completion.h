/* Waiting with a deadline for the completion of an operation that another thread performs. The
 * operation may complete after the deadline; so whichever thread is the last to need the object
 * frees it. */
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

/* Called by the thread that performs the operation. Returns true if the other thread has stopped
 * waiting, so that this one must free the object. */
bool tsr__completion_signal(tsr__completion *completion) TSR_NODISCARD;

/* Blocks until the operation completes or the deadline passes. After false, the other thread frees
 * the object. */
bool tsr__completion_wait(tsr__completion *completion, uint64_t deadline_ns) TSR_NODISCARD;

#endif
