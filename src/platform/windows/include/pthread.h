/* <pthread.h> with conditions whose deadlines are on the monotonic clock. The conditions of
 * winpthreads use the system time, which may be changed. */
#ifndef TSR_WINDOWS_PTHREAD_H
#define TSR_WINDOWS_PTHREAD_H

#include_next <pthread.h>
#include <signal.h>

/* Does nothing, because every condition of this project uses CLOCK_MONOTONIC. */
#define pthread_condattr_setclock(attributes, clock) ((void)(attributes), (void)(clock), 0)
int tsr__windows_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                const struct timespec *deadline);
#define pthread_cond_timedwait(condition, lock, deadline)                                          \
    tsr__windows_cond_timedwait(condition, lock, deadline)

/* Does nothing, because Windows has no fork(). */
#define pthread_atfork(prepare, parent, child) ((void)(prepare), (void)(parent), (void)(child), 0)

#endif
