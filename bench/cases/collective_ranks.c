#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS */
#include "bench/cases/collective_ranks.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness/clock.h"
#include "tessera/comm.h"

/* The largest number of bytes that a rank contributes to the bootstrap's all-gather. */
#define MAX_BLOCK 4096
#define EXCHANGES 8

/* The measurements of one rank for one size. */
typedef struct part {
    uint64_t batch, checked, wrong;
    int samples;
    double got, want;
    double ns[COLLECTIVE_MAX_SAMPLES];
} part;

typedef struct shared {
    _Atomic int arrived[EXCHANGES];
    _Atomic bool has_failed;
    /* 1 + the rank that failed first; 0: none has failed. Later failures of other ranks are usually
     * its consequences. */
    _Atomic int first_failed;
    uint8_t blocks[EXCHANGES][COLLECTIVE_MAX_RANKS][MAX_BLOCK];
    char problem[COLLECTIVE_MAX_RANKS][512];
    part parts[COLLECTIVE_MAX_RANKS][COLLECTIVE_MAX_SIZES];
} shared;

typedef struct rank_state {
    shared *common;
    pid_t parent;
    collective_kind kind;
    const collective_sizes *sizes;
    int rank, ranks, exchanges;
    double seconds;
    tsr_comm *comm;
    float *send, *recv;
    uint64_t count; /* number of elements of the complete data */
} rank_state;

static int all_gather(void *user, const void *mine, uint64_t size_bytes, void *all)
{
    rank_state *own = user;
    shared *common = own->common;
    const int turn = own->exchanges++;
    if (turn >= EXCHANGES || size_bytes > MAX_BLOCK)
        return 1;
    memcpy(common->blocks[turn][own->rank], mine, size_bytes);
    atomic_fetch_add(&common->arrived[turn], 1);
    while (atomic_load(&common->arrived[turn]) < own->ranks) {
        if (common->has_failed)
            return 1;
        usleep(100);
    }
    for (int i = 0; i < own->ranks; i++)
        memcpy((uint8_t *)all + (uint64_t)i * size_bytes, common->blocks[turn][i], size_bytes);
    return 0;
}

static tsr_status call(const rank_state *own)
{
    const uint64_t each = own->count / (uint64_t)own->ranks;
    switch (own->kind) {
    case COLLECTIVE_ALL_GATHER:
        return tsr_comm_all_gather(own->comm, own->send, own->recv, each, TSR_F32);
    case COLLECTIVE_REDUCE_SCATTER:
        return tsr_comm_reduce_scatter(own->comm, own->send, own->recv, each, TSR_F32, TSR_OP_SUM);
    default:
        return tsr_comm_all_reduce(own->comm, own->send, own->recv, own->count, TSR_F32,
                                   TSR_OP_SUM);
    }
}

/* Compares every element of the result with its expected value, then overwrites the buffer, so that
 * the next check cannot find old results. */
static void check(const rank_state *own, part *out)
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
    tsr_status status = tsr_comm_barrier(own->comm);
    const double start = bench_now_ns();
    for (uint64_t i = 0; i < batch && status == TSR_OK; i++)
        status = call(own);
    *ns = (bench_now_ns() - start) / (double)batch;
    return status;
}

/* Runs the warm-up. From its times, rank 0 chooses the number and the length of samples for all
 * ranks. */
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
            status = tsr_comm_broadcast(own->comm, numbers, 3, TSR_I64, 0);
    }
    *effort = (collective_effort){.batch = (uint64_t)numbers[0], .samples = (int)numbers[1]};
    return status;
}

static tsr_status measure(rank_state *own, part *out)
{
    collective_effort effort;
    const uint64_t sent =
        own->kind == COLLECTIVE_ALL_GATHER ? own->count / (uint64_t)own->ranks : own->count;
    for (uint64_t i = 0; i < sent; i++)
        own->send[i] = collective_value(own->rank, i);
    tsr_status status = call(own);
    check(own, out);
    if (status == TSR_OK)
        status = decide(own, &effort);
    for (int i = 0; status == TSR_OK && i < effort.samples; i++)
        status = time_batch(own, effort.batch, &out->ns[i]);
    if (status == TSR_OK) {
        check(own, out);
        out->batch = effort.batch;
        out->samples = effort.samples;
    }
    return status;
}

static tsr_status measure_all(rank_state *own)
{
    const uint64_t most = own->sizes->bytes[own->sizes->count - 1];
    tsr_status status =
        tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_CALLBACK, .rank = own->rank,
                                        .size = own->ranks, .all_gather = all_gather, .user = own),
                        &own->comm);
    own->send = malloc(most);
    own->recv = malloc(most);
    if (!own->send || !own->recv)
        status = status == TSR_OK ? TSR_ERR_NO_MEMORY : status;
    for (int i = 0; i < own->sizes->count && status == TSR_OK; i++) {
        own->count = collective_elements(own->kind, own->ranks, own->sizes->bytes[i]);
        if (own->count > 0)
            status = measure(own, &own->common->parts[own->rank][i]);
    }
    return status;
}

static void be_rank(rank_state *own)
{
    /* Linux kills this process when the tool ends. If the tool has ended before this call,
     * getppid() is another process, and this process exits. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != own->parent)
        _exit(1);
    const tsr_status status = measure_all(own);
    if (status != TSR_OK) {
        snprintf(own->common->problem[own->rank], sizeof own->common->problem[0], "%s",
                 tsr_last_error());
        int nobody = 0;
        (void)atomic_compare_exchange_strong(&own->common->first_failed, &nobody, 1 + own->rank);
        own->common->has_failed = true;
    }
    tsr_comm_destroy(&own->comm);
    free(own->send);
    free(own->recv);
    _exit(status == TSR_OK ? 0 : 1);
}

/* Combines the samples of the ranks: each sample becomes the time of the slowest rank. */
static void join(const shared *common, int ranks, collective_result results[COLLECTIVE_MAX_SIZES])
{
    memset(results, 0, COLLECTIVE_MAX_SIZES * sizeof *results);
    for (int size = 0; size < COLLECTIVE_MAX_SIZES; size++) {
        collective_result *out = &results[size];
        for (int rank = 0; rank < ranks; rank++) {
            const part *one = &common->parts[rank][size];
            out->is_there = one->samples > 0;
            out->batch = one->batch;
            out->samples = one->samples;
            out->checked += one->checked;
            out->wrong += one->wrong;
            if (one->wrong > 0) {
                out->got = one->got;
                out->want = one->want;
            }
            for (int i = 0; i < one->samples; i++)
                out->ns[i] = one->ns[i] > out->ns[i] ? one->ns[i] : out->ns[i];
        }
    }
}

bool collective_ranks_run(collective_kind kind, int ranks, const collective_sizes *sizes,
                          double seconds, collective_result results[COLLECTIVE_MAX_SIZES],
                          char *problem, size_t size)
{
    const pid_t parent = getpid();
    pid_t pids[COLLECTIVE_MAX_RANKS];
    int started = 0, failed = 0, ended = -1;
    shared *common =
        mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED) {
        snprintf(problem, size, "memory for the ranks: %s", strerror(errno));
        return false;
    }
    fflush(NULL);
    for (; started < ranks && !failed; started++) {
        pids[started] = fork();
        if (pids[started] == 0)
            be_rank(&(rank_state){.common = common,
                                  .parent = parent,
                                  .kind = kind,
                                  .sizes = sizes,
                                  .rank = started,
                                  .ranks = ranks,
                                  .seconds = seconds});
        if (pids[started] < 0)
            failed = errno;
    }
    if (failed) {
        snprintf(problem, size, "starting %d processes: %s", ranks, strerror(failed));
        started--;
    }
    for (int i = 0; i < started; i++) {
        int status = 0;
        if (failed)
            kill(pids[i], SIGKILL);
        while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
            continue;
        if (status != 0 && !failed) {
            common->has_failed = true;
            failed = 1;
            ended = i;
        }
    }
    if (ended >= 0) {
        const int cause = common->first_failed ? common->first_failed - 1 : ended;
        snprintf(problem, size, "rank %d: %s", cause,
                 common->problem[cause][0] ? common->problem[cause]
                                           : "it ended without an error text");
    }
    join(common, ranks, results);
    munmap(common, sizeof *common);
    return !failed;
}
