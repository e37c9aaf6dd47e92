/* Training goes on although ranks are lost, and with processes that are started in their place. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inference/inference.h"
#include "cli/training/run.h"

#define GROW_EVERY 5 /* steps after which the ranks look for processes that join */

static void report_ranks(const training_run *r, double start)
{
    if (r->job.rank == 0)
        fprintf(stderr, "step %" PRId64 "  going on with %d rank%s after %.2f s\n", r->step,
                r->job.ranks, r->job.ranks == 1 ? "" : "s", training_seconds() - start);
}

tsr_status training_take_over(training_run *r)
{
    const int64_t made = tsr_optimizer_steps(r->model.optimizer);
    training_job_settle(&r->job);
    TRY(tsr_comm_broadcast(r->job.world, &r->done, sizeof r->done, TSR_U8, 0, NULL));
    /* The other ranks had completed the step in which this rank failed. */
    if (made == r->step + 1 && !isnan(r->loss))
        r->unreported = true;
    r->step = made;
    r->compiling_step = r->step;
    TRY(training_log_open(r));
    training_report_later(r);
    return TSR_OK;
}

static tsr_status rebuild(training_run *r)
{
    tsr_status status = training_model_rebuild(&r->model);
    if (status == TSR_OK)
        status = training_take_over(r);
    if (status != TSR_OK && !training_job_has_lost(status))
        inference_report("state-lost");
    return status;
}

tsr_status training_go_on(training_run *r)
{
    const double start = training_seconds();
    bool again = true;
    while (again) {
        TRY(training_job_shrink(&r->job, &again));
        const tsr_status status = again ? TSR_OK : rebuild(r);
        again = again || training_job_has_lost(status);
        if (!again)
            TRY(status);
    }
    report_ranks(r, start);
    return TSR_OK;
}

tsr_status training_look_for_newcomers(training_run *r)
{
    const double start = training_seconds();
    bool grown = false;
    if (!training_chosen.elastic || r->job.ranks >= r->done.most_ranks ||
        r->step % GROW_EVERY != 0 || r->done.looked_step == r->step)
        return TSR_OK;
    r->done.looked_step = r->step; /* processes that join get this value, and do not look again */
    TRY(training_job_grow(&r->job, (int)r->done.most_ranks - r->job.ranks, &grown));
    if (!grown)
        return TSR_OK;
    TRY(rebuild(r));
    report_ranks(r, start);
    return TSR_OK;
}

void training_allow_restart(training_run *r)
{
    training_options *o = &training_chosen;
    const char *value = getenv("TESSERA_RESTART");
    if (!o->elastic || o->checkpoint == NULL || training_job_is_joining())
        return;
    r->restart = value != NULL && value[0] != '\0' ? value : NULL;
    if (r->restart == NULL)
        inference_report("restartable 0");
    else if (strcmp(r->restart, "0") != 0)
        o->resume = o->checkpoint;
}
