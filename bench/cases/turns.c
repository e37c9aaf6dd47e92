#define _GNU_SOURCE /* declares sched_getaffinity */
#include "bench/cases/turns.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "bench/harness/clock.h"
#include "cli/lib/memory.h"

/* The number of all-reduces in a row. In each of them, every rank has one turn on a processor. */
#define ROUNDS 50
/* How long the first rank sleeps before it joins an all-reduce. The other ranks poll for less than
 * a tenth of this time and then sleep, too. */
#define AWAY_NS 1000000

#define TURNS_TRY(call)                                                                            \
    do {                                                                                           \
        const tsr_status tried = (call);                                                           \
        if (tried != TSR_OK)                                                                       \
            return tried;                                                                          \
    } while (0)

#define WORDS 16

/* Sets bit i of word w if this process may run on processor 64 · w + i. */
static void find_processors(uint64_t out[WORDS])
{
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        for (size_t i = 0; i < CPU_SETSIZE && i < (size_t)64 * WORDS; i++)
            if (CPU_ISSET(i, &allowed))
                out[i / 64] |= UINT64_C(1) << i % 64;
        return;
    }
#endif
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (long i = 0; i < online && i < 64L * WORDS; i++)
        out[i / 64] |= UINT64_C(1) << i % 64;
}

/* Makes `rounds` all-reduces of one number, to which each rank contributes 1, and measures their
 * time. */
static tsr_status add_up(tsr_comm *host, int rounds, turns_figures *out, double *ns)
{
    const double start = bench_now_ns();
    for (int i = 0; i < rounds; i++) {
        const int64_t token = 1;
        int64_t all = 0;
        TURNS_TRY(tsr_comm_all_reduce(host, &token, &all, 1, TSR_I64, TSR_OP_SUM, NULL));
        out->sum += all;
        out->wanted += tsr_comm_size(host);
    }
    *ns = bench_now_ns() - start;
    return TSR_OK;
}

/* Takes two samples of the time of a turn: with ranks that poll, and with ranks that sleep. For the
 * second sample, the first rank waits until the others sleep. One all-reduce then wakes all of
 * them, and a second one ends when all have run. */
static tsr_status take_sample(tsr_comm *host, int64_t on_processor, turns_figures *out)
{
    double awake, asleep;
    TURNS_TRY(add_up(host, ROUNDS, out, &awake));
    if (tsr_comm_rank(host) == 0)
        nanosleep(&(struct timespec){0, AWAY_NS}, NULL);
    TURNS_TRY(add_up(host, 2, out, &asleep));
    awake /= ROUNDS;
    out->awake_ns[out->samples] = awake / (double)on_processor;
    out->asleep_ns[out->samples++] = fmax(asleep - awake, 0) / (double)(on_processor - 1);
    return TSR_OK;
}

/* Sets the number of processors of the host on which any of its ranks may run. */
static tsr_status count_processors(tsr_comm *host, turns_figures *out)
{
    uint64_t own[WORDS] = {0}, *all;
    find_processors(own);
    all = cli_alloc((size_t)tsr_comm_size(host), sizeof own);
    const tsr_status status = tsr_comm_all_gather(host, own, all, sizeof own, TSR_U8, NULL);
    for (int r = 0; r < tsr_comm_size(host) && status == TSR_OK; r++)
        for (int i = 0; i < WORDS; i++)
            own[i] |= all[r * WORDS + i];
    for (int i = 0; i < WORDS; i++)
        out->processors += __builtin_popcountll(own[i]);
    free(all);
    return status;
}

static tsr_status measure_turns(tsr_comm *host, double seconds, turns_figures *out)
{
    const double start = bench_now_ns();
    const int64_t on_processor = (out->ranks + out->processors - 1) / out->processors;
    int64_t more = on_processor > 1;
    while (more) {
        TURNS_TRY(take_sample(host, on_processor, out));
        more = out->samples < TURNS_SAMPLES && bench_now_ns() - start < 1e9 * seconds;
        TURNS_TRY(tsr_comm_broadcast(host, &more, 1, TSR_I64, 0, NULL));
    }
    return TSR_OK;
}

/* Takes one sample for a size. Small all-reduces are repeated, because a single one would be too
 * short to measure. */
static tsr_status take_memory(tsr_comm *host, float *data, uint64_t count, turns_figures *out,
                              double *ns)
{
    const int rounds = count < 4096 ? 20 : 2;
    const double start = bench_now_ns();
    for (int i = 0; i < rounds; i++) {
        data[0] = data[count - 1] = 1;
        TURNS_TRY(tsr_comm_all_reduce(host, data, data, count, TSR_F32, TSR_OP_SUM, NULL));
        out->sum += (int64_t)data[0] + (int64_t)data[count - 1];
        out->wanted += 2 * (int64_t)tsr_comm_size(host);
    }
    *ns = (bench_now_ns() - start) / rounds;
    return TSR_OK;
}

static tsr_status measure_size(tsr_comm *host, double seconds, float *data, uint64_t count,
                               turns_figures *out, int size)
{
    double cold;
    TURNS_TRY(take_memory(host, data, count, out, &cold));
    const double start = bench_now_ns();
    int64_t more = 1;
    while (more) {
        TURNS_TRY(
            take_memory(host, data, count, out, &out->memory_ns[size][out->memory_samples[size]]));
        out->memory_samples[size]++;
        more = out->memory_samples[size] < TURNS_SAMPLES && bench_now_ns() - start < 1e9 * seconds;
        TURNS_TRY(tsr_comm_broadcast(host, &more, 1, TSR_I64, 0, NULL));
    }
    return TSR_OK;
}

static tsr_status measure_memory(tsr_comm *host, const turns_plan *plan, turns_figures *out)
{
    float *data = cli_alloc(plan->bytes[plan->size_count - 1] / sizeof(float) + 1, sizeof *data);
    tsr_status status = TSR_OK;
    for (int i = 0; i < plan->size_count && tsr_comm_size(host) > 1 && status == TSR_OK; i++) {
        const uint64_t count = plan->bytes[i] / sizeof(float);
        status = measure_size(host, plan->seconds, data, count > 0 ? count : 1, out, i);
    }
    free(data);
    return status;
}

tsr_status turns_measure(tsr_comm *comm, const turns_plan *plan, turns_figures *out)
{
    const int rank = tsr_comm_rank(comm);
    tsr_comm *host = NULL;
    *out = (turns_figures){0};
    tsr_status status = tsr_comm_split(comm, tsr_comm_host(comm, rank), rank, &host);
    if (status == TSR_OK)
        status = count_processors(host, out);
    out->ranks = tsr_comm_size(host);
    if (status == TSR_OK)
        status = measure_turns(host, plan->seconds, out);
    if (status == TSR_OK)
        status = measure_memory(host, plan, out);
    tsr_comm_destroy(&host);
    return status;
}

/* Adds a row for a host. The caller adds the parameters that name the case. */
static bench_row *host_row(bench_context *context, const char *name, int host,
                           const turns_figures *f)
{
    bench_row *row = bench_add(context, name, BENCH_TIME, 1);
    bench_integer(row, "host", host);
    bench_integer(row, "ranks", f->ranks);
    bench_integer(row, "processors", f->processors);
    bench_check_begin(&row->check, "the sums of all-reduces in which each rank adds 1");
    bench_check_value(&row->check, 0, 0, (double)f->sum, (double)f->wanted, 0);
    return row;
}

static bool end_row(bench_context *context, bench_row *row, int samples, const double *ns)
{
    row->host.repetitions = 1;
    for (int i = 0; i < samples; i++)
        bench_samples_add(&row->host, ns[i]);
    return bench_verified(context, row);
}

static bool add_turn(bench_context *context, int host, const turns_figures *f, const char *others,
                     const double *ns)
{
    bench_row *row = host_row(context, "turn", host, f);
    bench_text(row, "others", "%s", others);
    return end_row(context, row, f->samples, ns);
}

bool turns_add_rows(bench_context *context, int host, const turns_plan *plan,
                    const turns_figures *f)
{
    if (f->samples > 0 && (!add_turn(context, host, f, "awake", f->awake_ns) ||
                           !add_turn(context, host, f, "asleep", f->asleep_ns)))
        return false;
    for (int i = 0; i < plan->size_count && f->memory_samples[i] > 0; i++) {
        bench_row *row = host_row(context, "memory", host, f);
        bench_integer(row, "bytes", (int64_t)plan->bytes[i]);
        if (!end_row(context, row, f->memory_samples[i], f->memory_ns[i]))
            return false;
    }
    return true;
}
