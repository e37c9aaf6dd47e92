#define _DEFAULT_SOURCE /* declares MAP_ANONYMOUS */
#include "bench/cases/ranks.h"

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

/* The started processes find each other by an all-gather through shared memory
 * (TSR_BOOTSTRAP_CALLBACK). The most bytes that each contributes to one call, and the most
 * calls. */
#define MAX_BLOCK 4096
#define EXCHANGES 8

/* Memory that the started processes share. The results of all ranks follow in `results`. */
typedef struct shared {
    _Atomic int arrived[EXCHANGES];
    _Atomic bool has_failed;
    /* 1 + the rank that failed first; 0: none has failed. Later failures of other ranks are usually
     * consequences of the first. */
    _Atomic int first_failed;
    uint8_t blocks[EXCHANGES][BENCH_MAX_STARTED][MAX_BLOCK];
    char problem[BENCH_MAX_STARTED][512];
    _Alignas(16) uint8_t results[];
} shared;

typedef struct started_rank {
    shared *common;
    const bench_ranks_work *work;
    pid_t parent;
    int rank, ranks, exchanges;
} started_rank;

/* Started processes -------------------------------------------------------------------------- */

static int all_gather(void *user, const void *mine, uint64_t size_bytes, void *all)
{
    started_rank *self = user;
    shared *common = self->common;
    const int exchange = self->exchanges++;
    if (exchange >= EXCHANGES || size_bytes > MAX_BLOCK)
        return 1;
    memcpy(common->blocks[exchange][self->rank], mine, size_bytes);
    atomic_fetch_add(&common->arrived[exchange], 1);
    while (atomic_load(&common->arrived[exchange]) < self->ranks) {
        if (common->has_failed)
            return 1;
        usleep(100);
    }
    for (int i = 0; i < self->ranks; i++)
        memcpy((uint8_t *)all + (uint64_t)i * size_bytes, common->blocks[exchange][i], size_bytes);
    return 0;
}

static void be_rank(started_rank *self)
{
    /* Linux kills this process when the tool ends. If the tool has ended before this call,
     * getppid() is another process, and this process exits. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != self->parent)
        _exit(1);
    const bench_ranks_work *work = self->work;
    tsr_comm *comm = NULL;
    tsr_status status = tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_CALLBACK,
                                                        .rank = self->rank, .size = self->ranks,
                                                        .all_gather = all_gather, .user = self),
                                        &comm);
    if (status == TSR_OK)
        status = work->run(comm, work->user,
                           self->common->results + (size_t)self->rank * work->result_bytes);
    if (status != TSR_OK) {
        snprintf(self->common->problem[self->rank], sizeof self->common->problem[0], "%s",
                 tsr_last_error());
        int nobody = 0;
        (void)atomic_compare_exchange_strong(&self->common->first_failed, &nobody, 1 + self->rank);
        self->common->has_failed = true;
    }
    tsr_comm_destroy(&comm);
    _exit(status == TSR_OK ? 0 : 1);
}

/* Waits for all processes. Returns the first of them that failed, or −1. */
static int wait_for(shared *common, const pid_t *pids, int count)
{
    int failed = -1;
    for (int i = 0; i < count; i++) {
        int status = 0;
        while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
            continue;
        if (status != 0 && failed < 0) {
            common->has_failed = true;
            failed = i;
        }
    }
    return failed;
}

static bool start_and_wait(bench_context *context, int ranks, const bench_ranks_work *work,
                           shared *common)
{
    pid_t pids[BENCH_MAX_STARTED];
    const pid_t parent = getpid();
    fflush(NULL);
    for (int rank = 0; rank < ranks; rank++) {
        pids[rank] = fork();
        if (pids[rank] == 0)
            be_rank(&(started_rank){
                .common = common, .work = work, .parent = parent, .rank = rank, .ranks = ranks});
        if (pids[rank] < 0) {
            const int error = errno;
            for (int i = 0; i < rank; i++)
                kill(pids[i], SIGKILL);
            wait_for(common, pids, rank);
            return bench_fail(context, "bench %s: starting %d processes: %s", work->name, ranks,
                              strerror(error));
        }
    }
    const int ended = wait_for(common, pids, ranks);
    if (ended < 0)
        return true;
    const int cause = common->first_failed ? common->first_failed - 1 : ended;
    return bench_fail(context, "bench %s: rank %d: %s", work->name, cause,
                      common->problem[cause][0] ? common->problem[cause]
                                                : "it ended without an error text");
}

static bool run_started(bench_context *context, int ranks, const bench_ranks_work *work,
                        void *results)
{
    const size_t bytes = (size_t)ranks * work->result_bytes;
    shared *common = mmap(NULL, sizeof *common + bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (common == MAP_FAILED)
        return bench_fail(context, "bench %s: memory for the ranks: %s", work->name,
                          strerror(errno));
    const bool done = start_and_wait(context, ranks, work, common);
    memcpy(results, common->results, bytes);
    munmap(common, sizeof *common + bytes);
    return done;
}

/* A launcher's job --------------------------------------------------------------------------- */

static bool run_in_job(bench_context *context, const bench_ranks_work *work, void *results)
{
    void *own = calloc(1, work->result_bytes);
    if (!own)
        return bench_fail(context, "bench %s: no memory for %zu bytes of results", work->name,
                          work->result_bytes);
    tsr_status status = work->run(context->job, work->user, own);
    if (status == TSR_OK)
        status = tsr_comm_gather(context->job, own, results, work->result_bytes, TSR_U8, 0, NULL);
    free(own);
    return status == TSR_OK || bench_fail(context, "bench %s: rank %d: %s", work->name,
                                          tsr_comm_rank(context->job), tsr_last_error());
}

bool bench_ranks_run(bench_context *context, int ranks, const bench_ranks_work *work, void *results)
{
    return context->job ? run_in_job(context, work, results)
                        : run_started(context, ranks, work, results);
}
