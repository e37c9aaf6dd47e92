#include "bench/cases/collective_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cases/ranks.h"
#include "bench/harness/clock.h"
#include "cli/lib/memory.h"
#include "tessera/comm.h"

/* The measurements of one rank for one size. */
typedef struct size_measurement {
    uint64_t batch, checked, wrong;
    int samples;
    double got, want;
    double ns[COLLECTIVE_MAX_SAMPLES];
} size_measurement;

/* What all ranks measure: the kind of operation, the sizes and the time for each size. */
typedef struct plan {
    collective_kind kind;
    const collective_sizes *sizes;
    double seconds; /* how long each size is measured */
} plan;

/* What a rank has measured, for each size. */
typedef struct measured {
    int hosts;
    size_measurement sizes[COLLECTIVE_MAX_SIZES];
} measured;

typedef struct rank_state {
    collective_kind kind;
    int rank, ranks;
    double seconds;
    tsr_comm *comm;
    float *send, *recv;
    uint64_t count; /* number of elements of the complete data */
} rank_state;

static tsr_status call(const rank_state *self)
{
    const uint64_t each = self->count / (uint64_t)self->ranks;
    switch (self->kind) {
    case COLLECTIVE_ALL_GATHER:
        return tsr_comm_all_gather(self->comm, self->send, self->recv, each, TSR_F32, NULL);
    case COLLECTIVE_REDUCE_SCATTER:
        return tsr_comm_reduce_scatter(self->comm, self->send, self->recv, each, TSR_F32,
                                       TSR_OP_SUM, NULL);
    default:
        return tsr_comm_all_reduce(self->comm, self->send, self->recv, self->count, TSR_F32,
                                   TSR_OP_SUM, NULL);
    }
}

/* Compares every element of the result with its expected value, then overwrites the buffer, so that
 * the next check cannot find old results. */
static void check_on_rank(const rank_state *self, size_measurement *out)
{
    const uint64_t each = self->count / (uint64_t)self->ranks;
    const uint64_t count = self->kind == COLLECTIVE_REDUCE_SCATTER ? each : self->count;
    for (uint64_t i = 0; i < count; i++) {
        float want = self->kind == COLLECTIVE_ALL_GATHER
                         ? collective_value((int)(i / each), i % each)
                         : collective_sum(self->ranks, self->kind == COLLECTIVE_REDUCE_SCATTER
                                                           ? each * (uint64_t)self->rank + i
                                                           : i);
        if (self->recv[i] != want) {
            out->wrong++;
            out->got = (double)self->recv[i];
            out->want = (double)want;
        }
    }
    out->checked += count;
    memset(self->recv, 0xff, count * sizeof *self->recv);
}

static tsr_status time_batch(const rank_state *self, uint64_t batch, double *ns)
{
    tsr_status status = tsr_comm_barrier(self->comm, NULL);
    const double start = bench_now_ns();
    for (uint64_t i = 0; i < batch && status == TSR_OK; i++)
        status = call(self);
    *ns = (bench_now_ns() - start) / (double)batch;
    return status;
}

/* Runs the warm-up calls. From their times, rank 0 chooses how many samples all ranks take, and how
 * many calls a sample has. */
static tsr_status decide(const rank_state *self, collective_effort *effort)
{
    int64_t numbers[3] = {1, 1, 1}; /* batch, samples, and whether the warm-up continues */
    tsr_status status = TSR_OK;
    double least = 1e300;
    for (double spent = 0; status == TSR_OK && numbers[2];) {
        double call_ns;
        status = time_batch(self, (uint64_t)numbers[0], &call_ns);
        spent += call_ns * (double)numbers[0];
        least = call_ns < least ? call_ns : least;
        *effort = collective_plan(least, self->seconds);
        numbers[0] = (int64_t)effort->batch;
        numbers[1] = effort->samples;
        numbers[2] = spent < self->seconds * 0.1 * 1e9;
        if (status == TSR_OK)
            status = tsr_comm_broadcast(self->comm, numbers, 3, TSR_I64, 0, NULL);
    }
    *effort = (collective_effort){.batch = (uint64_t)numbers[0], .samples = (int)numbers[1]};
    return status;
}

static tsr_status measure_on_rank(rank_state *self, size_measurement *out)
{
    collective_effort effort;
    const uint64_t sent =
        self->kind == COLLECTIVE_ALL_GATHER ? self->count / (uint64_t)self->ranks : self->count;
    for (uint64_t i = 0; i < sent; i++)
        self->send[i] = collective_value(self->rank, i);
    tsr_status status = call(self);
    check_on_rank(self, out);
    if (status == TSR_OK)
        status = decide(self, &effort);
    for (int i = 0; status == TSR_OK && i < effort.samples; i++)
        status = time_batch(self, effort.batch, &out->ns[i]);
    if (status == TSR_OK) {
        check_on_rank(self, out);
        out->batch = effort.batch;
        out->samples = effort.samples;
    }
    return status;
}

static tsr_status measure_sizes(rank_state *self, const collective_sizes *sizes,
                                size_measurement *measured_sizes)
{
    const uint64_t most = sizes->bytes[sizes->count - 1];
    tsr_status status = TSR_OK;
    self->send = cli_alloc(most, 1);
    self->recv = cli_alloc(most, 1);
    for (int i = 0; i < sizes->count && status == TSR_OK; i++) {
        self->count = collective_elements(self->kind, self->ranks, sizes->bytes[i]);
        if (self->count > 0)
            status = measure_on_rank(self, &measured_sizes[i]);
    }
    free(self->send);
    free(self->recv);
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
                         what->sizes, out->sizes);
}

/* Combines the ranks' samples of one size: sample i of the result is the longest of the times that
 * the ranks have measured for their sample i. */
static void join(const measured *ranks_measured, int ranks, int size, collective_result *out)
{
    *out = (collective_result){0};
    for (int rank = 0; rank < ranks; rank++) {
        const size_measurement *of_rank = &ranks_measured[rank].sizes[size];
        out->is_there = of_rank->samples > 0;
        out->batch = of_rank->batch;
        out->samples = of_rank->samples;
        out->checked += of_rank->checked;
        out->wrong += of_rank->wrong;
        out->hosts = ranks_measured[rank].hosts;
        if (of_rank->wrong > 0) {
            out->got = of_rank->got;
            out->want = of_rank->want;
        }
        for (int i = 0; i < of_rank->samples; i++)
            out->ns[i] = of_rank->ns[i] > out->ns[i] ? of_rank->ns[i] : out->ns[i];
    }
}

bool collective_measure(bench_context *context, collective_kind kind, int ranks,
                        const collective_sizes *sizes, double seconds,
                        collective_result results[COLLECTIVE_MAX_SIZES])
{
    const plan what = {kind, sizes, seconds};
    const bench_ranks_work work = {collective_names[kind], measure_rank, &what, sizeof(measured)};
    measured *ranks_measured = cli_alloc((size_t)ranks, sizeof *ranks_measured);
    const bool done = bench_ranks_run(context, ranks, &work, ranks_measured);
    for (int size = 0; size < COLLECTIVE_MAX_SIZES; size++)
        join(ranks_measured, ranks, size, &results[size]);
    free(ranks_measured);
    return done;
}
