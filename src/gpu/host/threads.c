#include "gpu/host/threads.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/checked.h"

enum {
    MAX_SHARES = 4, /* more threads do not increase the memory's bandwidth */
    /* The minimum number of bytes for one thread. Copying them takes about 100 µs; starting and
     * ending a thread takes 20 to 40 µs. */
    SHARE_BYTES = 2 << 20,
};

typedef struct share {
    tsr__host_work *run;
    const void *work;
    uint64_t first, end;
} share;

static void *run_share(void *opaque)
{
    const share *mine = opaque;

    mine->run(mine->work, mine->first, mine->end);
    return NULL;
}

static int share_count(uint64_t bytes)
{
    uint64_t count = tsr__min_u64(bytes / SHARE_BYTES, MAX_SHARES);

    if (count < 2) /* most copies are this small; counting the CPUs would take too long */
        return 1;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return (int)tsr__min_u64(count, cpus > 1 ? (uint64_t)cpus : 1);
}

/* Starts one thread for each of the first shares, and returns the number of threads that could be
 * started. The threads block all signals, so that the process's own threads handle them. */
static int start(pthread_t *threads, share *shares, int count)
{
    sigset_t all, before;
    int started = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < count &&
           pthread_create(&threads[started], NULL, run_share, &shares[started]) == 0)
        started++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void tsr__host_share(uint64_t units, uint64_t bytes, tsr__host_work *run, const void *work)
{
    const int count = share_count(bytes);
    share shares[MAX_SHARES];
    pthread_t threads[MAX_SHARES];

    for (int i = 0; i < count; i++)
        shares[i] = (share){.run = run,
                            .work = work,
                            .first = units * (uint64_t)i / (uint64_t)count,
                            .end = units * (uint64_t)(i + 1) / (uint64_t)count};
    const int started = count > 1 ? start(threads, shares, count - 1) : 0;
    /* This thread does the last share, and all shares for which no thread could be started. */
    for (int i = started; i < count; i++)
        run_share(&shares[i]);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
