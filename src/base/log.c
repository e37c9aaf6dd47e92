#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/error.h"

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    tsr_log_fn fn;
    void *user;
} sink; /* protected by sink_lock */

/* A copy of the sink's level, or 0 while logging is off. It is read without the lock, so that a
 * suppressed message costs only one load from memory. */
static atomic_int sink_level;

void tsr_log_set(tsr_log_fn fn, void *user, tsr_log_level level)
{
    pthread_mutex_lock(&sink_lock);
    sink.fn = fn;
    sink.user = user;
    atomic_store_explicit(&sink_level, fn ? (int)level : 0, memory_order_relaxed);
    pthread_mutex_unlock(&sink_lock);
}

/* Calls the caller's log function. Does not hold sink_lock during the call, so that the caller's
 * function may itself call the library. */
void tsr__log(tsr_log_level level, const char *format, ...)
{
    if ((int)level > atomic_load_explicit(&sink_level, memory_order_relaxed))
        return;

    char message[1024];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (length < 0)
        return;

    pthread_mutex_lock(&sink_lock);
    tsr_log_fn fn = sink.fn;
    void *user = sink.user;
    pthread_mutex_unlock(&sink_lock);
    if (fn)
        fn(user, level, message);
}
