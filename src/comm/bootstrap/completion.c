#include "comm/bootstrap/completion.h"

#include "base/clock.h"

void tsr__promise_init(tsr__promise *promise)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&promise->lock, NULL);
    pthread_cond_init(&promise->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    promise->over = promise->abandoned = false;
}

void tsr__promise_finish(tsr__promise *promise)
{
    pthread_cond_destroy(&promise->changed);
    pthread_mutex_destroy(&promise->lock);
}

bool tsr__promise_keep(tsr__promise *promise)
{
    pthread_mutex_lock(&promise->lock);
    const bool abandoned = promise->abandoned;
    promise->over = true;
    pthread_cond_signal(&promise->changed);
    pthread_mutex_unlock(&promise->lock);
    return abandoned;
}

bool tsr__promise_wait(tsr__promise *promise, uint64_t deadline_ns)
{
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / TSR__SECOND),
                                   .tv_nsec = (long)(deadline_ns % TSR__SECOND)};
    pthread_mutex_lock(&promise->lock);
    int waited = 0;
    while (!promise->over && waited == 0)
        waited = pthread_cond_timedwait(&promise->changed, &promise->lock, &until);
    const bool over = promise->over;
    promise->abandoned = !over;
    pthread_mutex_unlock(&promise->lock);
    return over;
}
