/* One CPU does not fill the memory's bandwidth, so that large copies are shared with threads that
 * live as long as the copy. */
#include "gpu/ops/copy_host.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/checked.h"

enum {
    MAX_SHARES = 4, /* more do not make memory faster */
    /* Bytes of a share that are worth a thread: some 100 µs of copying, and a thread takes 20 to 40
       to come and go. */
    SHARE_BYTES = 2 << 20,
};

typedef struct share {
    const tsr__host_piece *work;
    bool in_rows;
    uint64_t first, end; /* elements of rows, or bands */
} share;

static void *copy_share(void *opaque)
{
    const share *mine = opaque;
    if (mine->in_rows)
        tsr__host_copy_rows(mine->work, mine->first, mine->end);
    else
        tsr__host_copy_bands(mine->work, mine->first, mine->end);
    return NULL;
}

static int share_count(uint64_t bytes)
{
    uint64_t count = tsr__min_u64(bytes / SHARE_BYTES, MAX_SHARES);

    if (count < 2) /* most copies: counting CPUs would take longer than many of them */
        return 1;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return (int)tsr__min_u64(count, cpus > 1 ? (uint64_t)cpus : 1);
}

static void copy_piece(const tsr__host_piece *work)
{
    const bool in_rows = tsr__host_rows(work);
    const uint64_t units = in_rows ? work->piece->count : tsr__host_bands(work);
    const uint64_t bytes = (uint64_t)work->piece->count *
                           (work->to_bytes > work->from_bytes ? work->to_bytes : work->from_bytes);
    int count = share_count(bytes), started = 0;
    share shares[MAX_SHARES];
    pthread_t threads[MAX_SHARES];

    for (int i = 0; i < count; i++)
        shares[i] = (share){.work = work,
                            .in_rows = in_rows,
                            .first = units * (uint64_t)i / (uint64_t)count,
                            .end = units * (uint64_t)(i + 1) / (uint64_t)count};
    if (count > 1) { /* the process's signals are not for these threads */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        while (started < count - 1 &&
               pthread_create(&threads[started], NULL, copy_share, &shares[started]) == 0)
            started++;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    /* All of them, where there are no threads to be had. */
    for (int i = started; i < count; i++)
        copy_share(&shares[i]);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

bool tsr__copy_host_knows(tsr_dtype to, tsr_dtype from)
{
    return to == from || tsr__converter(to, from) != NULL;
}

void tsr__copy_host(const tsr_layout *dst, void *to, const tsr_layout *src, const void *from)
{
    tsr__piece piece;
    tsr__host_piece work = {.piece = &piece,
                            .to = to,
                            .from = from,
                            .to_bytes = (uint32_t)tsr_dtype_size(dst->dtype),
                            .from_bytes = (uint32_t)tsr_dtype_size(src->dtype),
                            .convert = tsr__converter(dst->dtype, src->dtype)};
    tsr__pieces walk;
    tsr__pieces_init(&walk, 2, (const tsr_layout *[]){dst, src}, 0);
    while (tsr__pieces_next(&walk, &piece))
        copy_piece(&work);
}
