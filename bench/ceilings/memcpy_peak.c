/* The memory bandwidth of the host: memcpy on all CPUs. It is the ceiling of CPU drivers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

/* The size of the copy: larger than most caches, as in `bench copy`. */
#define BYTES ((size_t)64 << 20)
#define PIECE ((size_t)1 << 20)
#define PIECES ((int)(BYTES / PIECE))
/* Copies per measurement: so many that the time to start the threads is negligible. */
#define PASSES 4
#define MAX_THREADS 64

/* Each thread takes the next piece of the copy whenever it has finished one, as the threads of CPU
 * drivers do. If each thread had a fixed part instead, a single thread whose CPU is busy would
 * determine the time. */
typedef struct copying {
    char *to;
    const char *from;
    _Atomic int next;
    /* A thread may still copy a piece in the previous pass. The lock of the piece then makes the
     * thread of the next pass wait. */
    pthread_mutex_t locks[PIECES];
    int threads;
} copying;

static void *copy_pieces(void *user)
{
    copying *all = user;
    for (int i; (i = atomic_fetch_add(&all->next, 1)) < PASSES * PIECES;) {
        size_t at = (size_t)(i % PIECES) * PIECE;
        pthread_mutex_lock(&all->locks[i % PIECES]);
        memcpy(all->to + at, all->from + at, PIECE);
        pthread_mutex_unlock(&all->locks[i % PIECES]);
    }
    return NULL;
}

/* If a thread cannot be started, the others copy its pieces. */
static tsr_status copy_all(tsr_stream *stream, void *user)
{
    (void)stream;
    copying *all = user;
    pthread_t threads[MAX_THREADS];
    int started = 0;
    all->next = 0;
    while (started < all->threads - 1 &&
           pthread_create(&threads[started], NULL, copy_pieces, all) == 0)
        started++;
    copy_pieces(all);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return TSR_OK;
}

static int thread_count(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < 1 ? 1 : cpus > MAX_THREADS ? MAX_THREADS : (int)cpus;
}

static void check_memcpy(bench_check *result, const char *to, const char *from)
{
    bench_check_begin(result, "every 16 bytes");
    for (size_t i = 0; i < BYTES; i += 16)
        bench_check_value(result, 0, (int64_t)i, memcmp(to + i, from + i, 16) == 0, 1, 0);
}

static bool measure_memcpy(bench_context *context, bench_row *row)
{
    char *from = cli_alloc(BYTES, 1), *to = cli_alloc(BYTES, 1);
    bench_random_values((float *)(void *)from, BYTES / sizeof(float), TSR_F32, 6);
    copying all = {.to = to, .from = from, .threads = thread_count()};
    for (int i = 0; i < PIECES; i++)
        pthread_mutex_init(&all.locks[i], NULL);
    copy_all(NULL, &all);
    check_memcpy(&row->check, to, from);
    bool done = bench_measure(context, row,
                              &(bench_task){.run = copy_all, .user = &all, .host_only = true});
    for (int i = 0; i < PIECES; i++)
        pthread_mutex_destroy(&all.locks[i]);
    free(from);
    free(to);
    return done;
}

const bench_row *bench_memcpy_peak(bench_context *context)
{
    if (context->memcpy_peak != NULL)
        return context->memcpy_peak;
    bench_row *row = bench_add(context, "memcpy", BENCH_GBYTES, 2.0 * PASSES * (double)BYTES);
    row->is_ceiling = true;
    row->again = measure_memcpy;
    row->device_place = -1;
    bench_integer(row, "threads", thread_count());
    if (measure_memcpy(context, row))
        context->memcpy_peak = row;
    return context->memcpy_peak;
}
