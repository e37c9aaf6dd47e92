/* Threads that exist only for one call. tsr__host_tasks runs each task of the caller's work in a
 * thread of its own. tsr__host_share divides work on memory into one share for each thread. */
#include "gpu/host/threads.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/checked.h"

enum {
    MAX_SHARES = 4, /* more threads do not increase the memory's bandwidth */
    /* The minimum number of bytes for one thread: copying them takes about 100 µs, while starting
     * and ending a thread takes 20 to 40 µs. */
    SHARE_BYTES = 2 << 20,
};

/* Tasks -------------------------------------------------------------------------------------- */

typedef struct task {
    tsr__host_task *run;
    void *work;
    int number;
} task;

static void *run_task(void *opaque)
{
    const task *mine = opaque;

    mine->run(mine->work, mine->number);
    return NULL;
}

int tsr__host_processors(void)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 1 ? (int)online : 1;
}

/* Starts one thread for each of the first `count` tasks, and returns the number of threads that
 * could be started. The threads block all signals, so that threads of the caller's program handle
 * them. */
static int start_threads(pthread_t *threads, task *tasks, int count)
{
    sigset_t all, before;
    int started = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count &&
           pthread_create(&threads[started], NULL, run_task, &tasks[started]) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void tsr__host_tasks(int count, tsr__host_task *run, void *work)
{
    task tasks[TSR__HOST_THREADS_MAX];
    pthread_t threads[TSR__HOST_THREADS_MAX];

    for (int i = 0; i < count; i++)
        tasks[i] = (task){run, work, i};
    const int started = count > 1 ? start_threads(threads, tasks, count - 1) : 0;
    for (int i = started; i < count; i++)
        run_task(&tasks[i]);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* Shares of memory --------------------------------------------------------------------------- */

typedef struct sharing {
    tsr__host_work *run;
    const void *work;
    uint64_t units, count;
} sharing;

static void run_share(void *opaque, int number)
{
    const sharing *s = opaque;
    const uint64_t share = (uint64_t)number;

    s->run(s->work, s->units * share / s->count, s->units * (share + 1) / s->count);
}

static int share_count(uint64_t bytes)
{
    const uint64_t count = tsr__min_u64(bytes / SHARE_BYTES, MAX_SHARES);

    /* one thread is enough; return before counting the processors, which takes longer than most
     * copies */
    if (count < 2)
        return 1;
    return (int)tsr__min_u64(count, (uint64_t)tsr__host_processors());
}

void tsr__host_share(uint64_t units, uint64_t bytes, tsr__host_work *run, const void *work)
{
    const int count = share_count(bytes);
    sharing s = {.run = run, .work = work, .units = units, .count = (uint64_t)count};

    tsr__host_tasks(count, run_share, &s);
}
