/* Something that another thread brings about, waited for with a deadline. It may come long after
 * that, so whoever of the two is done with it last frees what it is part of. */
#ifndef TSR_COMM_BOOTSTRAP_COMPLETION_H
#define TSR_COMM_BOOTSTRAP_COMPLETION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "tessera/base.h"

typedef struct tsr__promise {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over, abandoned;
} tsr__promise;

void tsr__promise_init(tsr__promise *promise);
void tsr__promise_finish(tsr__promise *promise);

/* By the other thread. True: nobody waits any more, and it is the one to free. */
bool tsr__promise_keep(tsr__promise *promise) TSR_NODISCARD;

/* Until the deadline. False: not kept by then, and the other thread frees. */
bool tsr__promise_wait(tsr__promise *promise, uint64_t deadline_ns) TSR_NODISCARD;

#endif
