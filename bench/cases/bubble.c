/* Measures how long the stages of a pipeline wait, next to the formula of pipeline.h.
 *
 *     tessera launch -n 2 -- bench-bubble [MICRO-BATCHES]
 *
 * Each rank is a stage. Its passes sleep, so that they take a known time also if there are fewer
 * processors than stages: 10 ms forward and 20 ms backward. Tensors of 4 KB go from stage to stage.
 * The output is the fraction of a run's time in which a stage makes no pass, averaged over the
 * stages. The best of several runs counts, because other work on the machine only adds to the
 * waiting. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tessera/tessera.h"

#define FORWARD_MS 10
#define BACKWARD_MS 20
#define COLUMNS 1000
#define RUNS 15
#define MAX_BATCHES 1000

typedef struct job {
    tsr_comm *comm;
    tsr_device *device;
    tsr_stream *stream;
    tsr_pipeline *pipeline;
    int rank, stages, batches;
    double busy; /* seconds that this stage has spent in passes */
} job;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void sleep_ms(long milliseconds)
{
    struct timespec left = {.tv_nsec = milliseconds * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

static tsr_status pass(job *j, long milliseconds, bool creates, tsr_tensor **out)
{
    const double start = now();
    tsr_status status = TSR_OK;
    sleep_ms(milliseconds);
    if (creates)
        status = tsr_tensor_create(j->device, TSR_F32, 1, (int64_t[]){COLUMNS}, out);
    if (status == TSR_OK && creates)
        status = tsr_fill(j->stream, *out, 1);
    if (status == TSR_OK && creates)
        status = tsr_stream_wait(j->stream);
    j->busy += now() - start;
    return status;
}

static tsr_status forward(void *user, int batch, const tsr_tensor *x, tsr_tensor **y)
{
    job *j = user;
    (void)batch;
    (void)x;
    return pass(j, FORWARD_MS, j->rank < j->stages - 1, y);
}

static tsr_status backward(void *user, int batch, const tsr_tensor *dy, tsr_tensor **dx)
{
    job *j = user;
    (void)batch;
    (void)dy;
    return pass(j, BACKWARD_MS, j->rank > 0, dx);
}

static tsr_status run_once(job *j, double *bubble)
{
    double longest = 0, busy = 0;
    j->busy = 0;
    tsr_status status = tsr_comm_barrier(j->comm, NULL);
    const double start = now();
    if (status == TSR_OK)
        status = tsr_pipeline_run(
            j->pipeline, tsr_pipeline_run_params(.micro_batches = j->batches, .dtype = TSR_F32,
                                                 .ndim = 1, .shape = {COLUMNS}, .user = j,
                                                 .forward = forward, .backward = backward));
    const double time = now() - start;
    if (status == TSR_OK)
        status = tsr_comm_all_reduce(j->comm, &time, &longest, 1, TSR_F64, TSR_OP_MAX, NULL);
    if (status == TSR_OK)
        status = tsr_comm_all_reduce(j->comm, &j->busy, &busy, 1, TSR_F64, TSR_OP_SUM, NULL);
    if (status == TSR_OK)
        *bubble = 1 - busy / (j->stages * longest);
    return status;
}

static tsr_status open_job(job *j)
{
    tsr_status status = tsr_comm_create(NULL, &j->comm);
    j->rank = tsr_comm_rank(j->comm);
    j->stages = tsr_comm_size(j->comm);
    if (status == TSR_OK)
        status = tsr_device_open(NULL, &j->device);
    if (status == TSR_OK)
        status = tsr_stream_create(j->device, &j->stream);
    if (status == TSR_OK)
        status = tsr_pipeline_create(tsr_pipeline_params(.comm = j->comm, .stream = j->stream),
                                     &j->pipeline);
    return status;
}

static tsr_status measure_bubble(job *j)
{
    double best = 1;
    tsr_status status = open_job(j);
    for (int i = 0; i < RUNS && status == TSR_OK; i++) {
        double bubble = 1;
        status = run_once(j, &bubble);
        best = bubble < best ? bubble : best;
    }
    tsr_pipeline_stats stats = TSR_INIT(tsr_pipeline_stats);
    if (status == TSR_OK)
        status = tsr_pipeline_get_stats(j->pipeline, &stats);
    if (status == TSR_OK && j->rank == 0)
        printf("stages %d, micro-batches %d: bubble %.3f, by the formula %.3f; the first stage "
               "waited for %.3f of all runs\n",
               j->stages, j->batches, best, tsr_pipeline_bubble(j->stages, j->batches),
               (double)stats.wait_ns / (double)stats.run_ns);
    return status;
}

int main(int argc, char **argv)
{
    char *end = NULL;
    job j = {.batches = argc > 1 ? (int)strtol(argv[1], &end, 10) : 4};
    if (argc > 2 || (end && *end) || j.batches < 1 || j.batches > MAX_BATCHES) {
        fprintf(stderr, "usage: bench-bubble [MICRO-BATCHES], 1 to %d\n", MAX_BATCHES);
        return 2;
    }
    const tsr_status status = measure_bubble(&j);
    if (status != TSR_OK)
        fprintf(stderr, "bench-bubble: rank %d: %s\n", j.rank, tsr_last_error());
    tsr_pipeline_destroy(&j.pipeline);
    tsr_stream_destroy(&j.stream);
    tsr_device_close(&j.device);
    tsr_comm_destroy(&j.comm);
    return status == TSR_OK && fflush(stdout) == 0 ? 0 : 1;
}
