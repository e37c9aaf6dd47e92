#include "bench/cases/collective_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cases/ranks.h"
#include "bench/harness/clock.h"
#include "cli/lib/memory.h"
#include "tessera/comm.h"

/* The measurements of one rank for one size. */
typedef struct part {
    uint64_t batch, checked, wrong;
    int samples;
    double got, want;
    double ns[COLLECTIVE_MAX_SAMPLES];
} part;

/* What all ranks measure: the kind of operation, the sizes and the time for each size. */
typedef struct plan {
    collective_kind kind;
    const collective_sizes *sizes;
    double seconds; /* how long each size is measured */
} plan;

/* What a rank has measured, for each size. */
typedef struct measured {
    int hosts;
    part parts[COLLECTIVE_MAX_SIZES];
} measured;

typedef struct rank_state {
    collective_kind kind;
    int rank, ranks;
    double seconds;
    tsr_comm *comm;
    float *send, *recv;
    uint64_t count; /* number of elements of the complete data */
} rank_state;

static tsr_status call(const rank_state *own)
{
    const uint64_t each = own->count / (uint64_t)own->ranks;
    switch (own->kind) {
    case COLLECTIVE_ALL_GATHER:
        return tsr_comm_all_gather(own->comm, own->send, own->recv, each, TSR_F32, NULL);
    case COLLECTIVE_REDUCE_SCATTER:
        return tsr_comm_reduce_scatter(own->comm, own->send, own->recv, each, TSR_F32, TSR_OP_SUM,
                                       NULL);
    default:
        return tsr_comm_all_reduce(own->comm, own->send, own->recv, own->count, TSR_F32, TSR_OP_SUM,
                                   NULL);
    }
}

/* Compares every element of the result with its expected value, then overwrites the buffer, so that
 * the next check cannot find old results. */
static void check_on_rank(const rank_state *own, part *out)
{
    const uint64_t each = own->count / (uint64_t)own->ranks;
    const uint64_t count = own->kind == COLLECTIVE_REDUCE_SCATTER ? each : own->count;
    for (uint64_t i = 0; i < count; i++) {
        float want = own->kind == COLLECTIVE_ALL_GATHER
                         ? collective_value((int)(i / each), i % each)
                         : collective_sum(own->ranks, own->kind == COLLECTIVE_REDUCE_SCATTER
                                                          ? each * (uint64_t)own->rank + i
                                                          : i);
        if (own->recv[i] != want) {
            out->wrong++;
            out->got = (double)own->recv[i];
            out->want = (double)want;
        }
    }
    out->checked += count;
    memset(own->recv, 0xff, count * sizeof *own->recv);
}

static tsr_status time_batch(const rank_state *own, uint64_t batch, double *ns)
{
    tsr_status status = tsr_comm_barrier(own->comm, NULL);
    const double start = bench_now_ns();
    for (uint64_t i = 0; i < batch && status == TSR_OK; i++)
        status = call(own);
    *ns = (bench_now_ns() - start) / (double)batch;
    return status;
}

/* Runs the warm-up calls. From their times, rank 0 chooses how many samples all ranks take, and how
 * many calls a sample has. */
static tsr_status decide(const rank_state *own, collective_effort *effort)
{
    int64_t numbers[3] = {1, 1, 1}; /* batch, samples, and whether the warm-up continues */
    tsr_status status = TSR_OK;
    double least = 1e300;
    for (double spent = 0; status == TSR_OK && numbers[2];) {
        double call_ns;
        status = time_batch(own, (uint64_t)numbers[0], &call_ns);
        spent += call_ns * (double)numbers[0];
        least = call_ns < least ? call_ns : least;
        *effort = collective_plan(least, own->seconds);
        numbers[0] = (int64_t)effort->batch;
        numbers[1] = effort->samples;
        numbers[2] = spent < own->seconds * 0.1 * 1e9;
        if (status == TSR_OK)
            status = tsr_comm_broadcast(own->comm, numbers, 3, TSR_I64, 0, NULL);
    }
    *effort = (collective_effort){.batch = (uint64_t)numbers[0], .samples = (int)numbers[1]};
    return status;
}

static tsr_status measure_on_rank(rank_state *own, part *out)
{
    collective_effort effort;
    const uint64_t sent =
        own->kind == COLLECTIVE_ALL_GATHER ? own->count / (uint64_t)own->ranks : own->count;
    for (uint64_t i = 0; i < sent; i++)
        own->send[i] = collective_value(own->rank, i);
    tsr_status status = call(own);
    check_on_rank(own, out);
    if (status == TSR_OK)
        status = decide(own, &effort);
    for (int i = 0; status == TSR_OK && i < effort.samples; i++)
        status = time_batch(own, effort.batch, &out->ns[i]);
    if (status == TSR_OK) {
        check_on_rank(own, out);
        out->batch = effort.batch;
        out->samples = effort.samples;
    }
    return status;
}

static tsr_status measure_sizes(rank_state *own, const collective_sizes *sizes, part *parts)
{
    const uint64_t most = sizes->bytes[sizes->count - 1];
    tsr_status status = TSR_OK;
    own->send = cli_alloc(most, 1);
    own->recv = cli_alloc(most, 1);
    for (int i = 0; i < sizes->count && status == TSR_OK; i++) {
        own->count = collective_elements(own->kind, own->ranks, sizes->bytes[i]);
        if (own->count > 0)
            status = measure_on_rank(own, &parts[i]);
    }
    free(own->send);
    free(own->recv);
    return status;
}

static tsr_status measure_rank(tsr_comm *comm, const void *user, void *result)
{
    const plan *what = user;
    measured *out = result;
    out->hosts = tsr_comm_host_count(comm);
    return measure_sizes(&(rank_state){.kind = what->kind,
                                       .rank = tsr_comm_rank(comm),
                                       .ranks = tsr_comm_size(comm),
                                       .seconds = what->seconds,
                                       .comm = comm},
                         what->sizes, out->parts);
}

/* Combines the ranks' samples of one size: sample i of the result is the longest of the times that
 * the ranks have measured for their sample i. */
static void join(const measured *all, int ranks, int size, collective_result *out)
{
    *out = (collective_result){0};
    for (int rank = 0; rank < ranks; rank++) {
        const part *one = &all[rank].parts[size];
        out->is_there = one->samples > 0;
        out->batch = one->batch;
        out->samples = one->samples;
        out->checked += one->checked;
        out->wrong += one->wrong;
        out->hosts = all[rank].hosts;
        if (one->wrong > 0) {
            out->got = one->got;
            out->want = one->want;
        }
        for (int i = 0; i < one->samples; i++)
            out->ns[i] = one->ns[i] > out->ns[i] ? one->ns[i] : out->ns[i];
    }
}

bool collective_measure(bench_context *context, collective_kind kind, int ranks,
                        const collective_sizes *sizes, double seconds,
                        collective_result results[COLLECTIVE_MAX_SIZES])
{
    const plan what = {kind, sizes, seconds};
    const bench_ranks_work work = {collective_names[kind], measure_rank, &what, sizeof(measured)};
    measured *all = cli_alloc((size_t)ranks, sizeof *all);
    const bool done = bench_ranks_run(context, ranks, &work, all);
    for (int size = 0; size < COLLECTIVE_MAX_SIZES; size++)
        join(all, ranks, size, &results[size]);
    free(all);
    return done;
}
