#include "comm/bootstrap/completion.h"

#include "base/clock.h"

void tsr__completion_init(tsr__completion *completion)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&completion->lock, NULL);
    pthread_cond_init(&completion->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    completion->done = completion->abandoned = false;
}

void tsr__completion_finish(tsr__completion *completion)
{
    pthread_cond_destroy(&completion->changed);
    pthread_mutex_destroy(&completion->lock);
}

bool tsr__completion_signal(tsr__completion *completion)
{
    pthread_mutex_lock(&completion->lock);
    const bool abandoned = completion->abandoned;
    completion->done = true;
    pthread_cond_signal(&completion->changed);
    pthread_mutex_unlock(&completion->lock);
    return abandoned;
}

bool tsr__completion_wait(tsr__completion *completion, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / TSR__SECOND),
                                   .tv_nsec = (long)(deadline_ns % TSR__SECOND)};
    pthread_mutex_lock(&completion->lock);
    int waited = 0;
    while (!completion->done && waited == 0)
        waited = pthread_cond_timedwait(&completion->changed, &completion->lock, &until);
    const bool done = completion->done;
    completion->abandoned = !done;
    pthread_mutex_unlock(&completion->lock);
    return done;
}
