/* The ceiling of copies on CPU drivers: what the host's own memcpy moves on all of its CPUs. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/data.h"
#include "cli/memory.h"

#define NAME "memcpy"
#define BYTES ((size_t)64 << 20) /* beyond most caches, as the tensors of `bench copy` are */
#define PASSES 8                 /* so that starting the threads is a small part */
#define MOST_THREADS 64

typedef struct part {
    pthread_t thread;
    bool started;
    char *to;
    const char *from;
    size_t bytes;
} part;

typedef struct team {
    int count;
    part parts[MOST_THREADS];
} team;

static void *copy_part(void *user)
{
    part *own = user;
    for (int pass = 0; pass < PASSES; pass++)
        memcpy(own->to, own->from, own->bytes);
    return NULL;
}

static tsr_status copy_all(tsr_stream *stream, void *user)
{
    (void)stream;
    team *all = user;
    for (int i = 1; i < all->count; i++)
        all->parts[i].started =
            pthread_create(&all->parts[i].thread, NULL, copy_part, &all->parts[i]) == 0;
    copy_part(&all->parts[0]);
    for (int i = 1; i < all->count; i++) {
        if (all->parts[i].started)
            pthread_join(all->parts[i].thread, NULL);
        else
            copy_part(&all->parts[i]);
    }
    return TSR_OK;
}

static void share_out(team *all, char *to, const char *from)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    all->count = cpus < 1 ? 1 : cpus > MOST_THREADS ? MOST_THREADS : (int)cpus;
    size_t share = BYTES / (size_t)all->count / 4096 * 4096;
    for (int i = 0; i < all->count; i++) {
        size_t begin = share * (size_t)i;
        size_t end = i + 1 < all->count ? begin + share : BYTES;
        all->parts[i] = (part){.to = to + begin, .from = from + begin, .bytes = end - begin};
    }
}

static void check(bench_check *result, const char *to, const char *from)
{
    bench_check_begin(result, "every 16 bytes");
    for (size_t i = 0; i < BYTES; i += 16)
        bench_check_value(result, 0, (int64_t)i, memcmp(to + i, from + i, 16) == 0, 1, 0);
}

const bench_row *bench_memcpy_peak(bench_context *context)
{
    if (context->memcpy_peak != NULL)
        return context->memcpy_peak;
    team all;
    char *from = cli_alloc(BYTES, 1), *to = cli_alloc(BYTES, 1);
    bench_random_values((float *)(void *)from, BYTES / sizeof(float), TSR_F32, 6);
    share_out(&all, to, from);
    copy_all(NULL, &all);

    bench_row *row = bench_add(context, NAME, BENCH_GBYTES, 2.0 * PASSES * (double)BYTES);
    row->is_ceiling = true;
    row->device_place = -1;
    bench_integer(row, "threads", all.count);
    check(&row->check, to, from);
    if (bench_measure(context, row,
                      &(bench_task){.run = copy_all, .user = &all, .host_only = true}))
        context->memcpy_peak = row;
    free(from);
    free(to);
    return context->memcpy_peak;
}
