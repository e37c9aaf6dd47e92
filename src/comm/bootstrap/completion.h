/* Something that another thread brings about, waited for with a deadline. It may come long after
 * that, so whoever of the two is done with it last frees what it is part of. */
#ifndef TSR_COMM_BOOTSTRAP_COMPLETION_H
#define TSR_COMM_BOOTSTRAP_COMPLETION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "tessera/base.h"

typedef struct tsr__completion {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over, abandoned;
} tsr__completion;

void tsr__completion_init(tsr__completion *completion);
void tsr__completion_finish(tsr__completion *completion);

/* By the other thread. True: nobody waits any more, and it is the one to free. */
bool tsr__completion_signal(tsr__completion *completion) TSR_NODISCARD;

/* Until the deadline. False: not kept by then, and the other thread frees. */
bool tsr__completion_wait(tsr__completion *completion, uint64_t deadline_ns) TSR_NODISCARD;

#endif
