/* The loop over steps. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cli/inference/inference.h"
#include "cli/training/experts.h"
#include "cli/training/run.h"

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    stop_asked = number;
}

/* A second signal ends the process. `tessera launch` is asked to wait for the end of a step as long
 * as the ranks wait for each other. */
static void catch_signals(void)
{
    char grace[32];
    snprintf(grace, sizeof grace, "grace %.1f", fmin(training_chosen.timeout, 86400));
    inference_report(grace);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* Rows ----------------------------------------------------------------------------------------- */

/* Takes this rank's rows of the `batch` rows, or pairs, that begin at `first`. Gives the number of
 * labels, or of pairs, of all ranks. */
static tsr_status take_rows(training_run *r, data_part part, int64_t first, int64_t *counted)
{
    const training_options *o = &training_chosen;
    const int64_t each = o->dpo ? 2 : 1, micro = o->batch / o->accumulate,
                  own = training_job_rows(&r->job);
    for (int64_t i = 0; i < o->accumulate; i++) {
        const int64_t at = first + i * micro + training_job_first_row(&r->job);
        data_batch_free(&r->rows[i]);
        TRY(r->source.get(&r->source, part, each * at, each * own, &r->rows[i]));
        TRY(training_job_divide(&r->job, &r->rows[i]));
    }
    *counted = o->batch;
    return o->dpo ? TSR_OK : r->source.count(&r->source, part, first, o->batch, counted);
}

/* Returns the tokens of this rank's rows, without padding. */
static int64_t tokens_of_rows(const training_run *r)
{
    int64_t tokens = 0;
    for (int64_t i = 0; i < training_chosen.accumulate; i++)
        tokens += r->rows[i].tokens;
    return tokens;
}

/* Steps ---------------------------------------------------------------------------------------- */

static tsr_status clip(training_run *r)
{
    const training_model *m = &r->model;
    const double most = training_chosen.clip;
    tsr_stack_info info = TSR_INIT(tsr_stack_info);
    TRY(tsr_stack_get_info(m->stack, &info));
    return tsr_optimizer_clip(
        m->optimizer, most > 0 ? (float)most : INFINITY,
        tsr_optimizer_clip_params(.group = r->job.tensor_group, .stages = r->job.stages,
                                  .counted_elsewhere =
                                      m->own != NULL ? info.counted_elsewhere : NULL),
        &r->norm);
}

/* Ends a training that has diverged. Names the last checkpoint. */
static tsr_status diverged(const training_run *r, const char *what, double value)
{
    const training_options *o = &training_chosen;
    const bool is_resumed = o->resume != NULL && r->done.saved_step == r->done.first_step;
    const char *checkpoint = is_resumed ? o->resume : o->checkpoint;
    if (r->done.saved_step >= 0 && checkpoint != NULL)
        return training_fail("step %" PRId64 ": %s is %g, so the training ends; the last good "
                             "checkpoint is %s, after step %" PRId64
                             "; a lower --learning-rate may help",
                             r->step, what, value, checkpoint, r->done.saved_step);
    return training_fail("step %" PRId64 ": %s is %g, so the training ends; nothing has been "
                         "saved; a lower --learning-rate may help",
                         r->step, what, value);
}

/* Returns whether the last loss is so high that the training has diverged: three times that of the
 * first step, and twice that of a model that finds all tokens equally likely. Losses with weights
 * are sums of another kind, and are not judged. */
static bool is_exploding(const training_run *r)
{
    return !r->source.is_weighted && r->loss > 3 * r->done.first_loss &&
           r->loss > 2 * log((double)r->model.config->vocabulary);
}

static tsr_status check_step(training_run *r)
{
    if (!isfinite(r->loss))
        return diverged(r, "the loss", r->loss);
    /* A gradient of 0 although there are losses is that of a model whose features have overflowed.
     */
    if (!isfinite(r->norm) || (r->norm == 0 && r->loss > 1e-3))
        return diverged(r, "the norm of the gradient", r->norm);
    if (r->step == r->done.first_step)
        r->done.first_loss = r->loss;
    return is_exploding(r) ? diverged(r, "the loss", r->loss) : TSR_OK;
}

static tsr_status make_step(training_run *r)
{
    const training_options *o = &training_chosen;
    const tsr_schedule *schedule =
        tsr_schedule(.kind = o->schedule, .learning_rate = o->learning_rate,
                     .final_rate = o->final_rate, .warmup_steps = o->warmup,
                     .steps = o->decay_steps);
    int64_t counted = 0;
    r->started = training_seconds();
    r->loss = NAN;
    TRY(take_rows(r, DATA_TRAIN, r->step * o->batch, &counted));
    TRY(training_pass(&r->model, (int)o->accumulate, r->rows, counted, true, &r->loss));
    TRY(clip(r));
    TRY(check_step(r));
    r->rate = tsr_schedule_rate(schedule, r->step);
    TRY(tsr_optimizer_step(r->model.optimizer, (float)r->rate));
    TRY(training_experts_shift(&r->model));
    TRY(tsr_optimizer_zero_grad(r->model.optimizer));
    r->step++;
    r->unreported = true;
    return TSR_OK;
}

/* Agrees with all ranks on whether one of them was asked to stop, so that all stop after the same
 * step. Adds the tokens of their rows. */
static tsr_status agree(training_run *r)
{
    int64_t values[2] = {stop_asked != 0, tokens_of_rows(r)}, sums[2] = {0};
    if (stop_asked)
        inference_report(stop_asked == SIGINT ? "signal 2" : "signal 15");
    TRY(tsr_comm_all_reduce(r->job.world, values, sums, 2, TSR_I64, TSR_OP_SUM, NULL));
    r->interrupted = sums[0] > 0;
    r->tokens = sums[1] / (r->job.ranks / r->job.data_ranks);
    return TSR_OK;
}

/* Between steps -------------------------------------------------------------------------------- */

/* Computes the mean loss of the held-out rows. */
static tsr_status evaluate(training_run *r, double *out)
{
    const training_options *o = &training_chosen;
    const int64_t units = r->source.held_out / (o->dpo ? 2 : 1);
    double sum = 0, all = 0;
    for (int64_t first = 0; first < units; first += o->batch) {
        int64_t counted = 0;
        double loss = 0;
        TRY(take_rows(r, DATA_HELD_OUT, first, &counted));
        if (o->dpo && counted > units - first)
            counted = units - first; /* the rest is padding */
        TRY(training_pass(&r->model, (int)o->accumulate, r->rows, counted, false, &loss));
        sum += loss * (double)counted;
        all += (double)counted;
    }
    *out = all > 0 ? sum / all : 0;
    return TSR_OK;
}

static tsr_status evaluate_and_judge(training_run *r)
{
    training_progress *d = &r->done;
    double loss = 0;
    if (r->source.held_out > 0) {
        TRY(evaluate(r, &loss));
        /* The ranks must agree on when to stop. */
        TRY(tsr_comm_broadcast(r->job.world, &loss, 1, TSR_F64, 0, NULL));
        training_report_evaluation(r, loss);
        const bool is_best =
            d->evaluated_step < 0 || loss < d->best_loss || (isnan(d->best_loss) && !isnan(loss));
        d->best_loss = is_best ? loss : d->best_loss;
        d->evaluations_since_best = is_best ? 0 : d->evaluations_since_best + 1;
        const int64_t patience = training_chosen.patience;
        r->stopped_early = patience > 0 && d->evaluations_since_best >= patience;
        if (r->stopped_early && r->job.rank == 0)
            cli_say("%s: stopped early after step %" PRId64 ": %" PRId64
                    " evaluation%s without a loss of held-out data below %.4f",
                    training_name, r->step, patience, patience == 1 ? "" : "s", d->best_loss);
    }
    TRY(training_sample(r));
    d->evaluated_step = r->step;
    return TSR_OK;
}

/* Saves a checkpoint. All ranks have the same status. */
static tsr_status save_checkpoint(training_run *r)
{
    const tsr_status status = training_checkpoint_save(r);
    if (status == TSR_OK || (training_chosen.elastic && training_job_has_lost(status)))
        return status;
    r->unsaved = true;
    return training_fail("step %" PRId64 ": the checkpoint could not be saved: %s", r->step,
                         training_problem());
}

/* Evaluates and saves if that is due. */
static tsr_status between_steps(training_run *r)
{
    const training_options *o = &training_chosen;
    training_progress *d = &r->done;
    const bool ends = r->step >= o->steps || r->interrupted;
    const bool evaluates = r->source.held_out > 0 || o->sample != NULL;
    if (evaluates && d->evaluated_step != r->step && !r->interrupted &&
        (ends || r->step % o->evaluate_every == 0 || d->evaluated_step < 0))
        TRY(evaluate_and_judge(r));
    if (o->checkpoint == NULL || d->saved_step == r->step || r->step == d->first_step ||
        !(ends || r->stopped_early || r->step % o->checkpoint_every == 0))
        return TSR_OK;
    TRY(save_checkpoint(r));
    d->saved_step = r->step;
    if (o->elastic) {
        char text[64];
        snprintf(text, sizeof text, "restartable %" PRId64, r->step);
        inference_report(text);
    }
    return TSR_OK;
}

static tsr_status turn(training_run *r, bool *ended)
{
    TRY(training_look_for_newcomers(r));
    TRY(between_steps(r));
    *ended = r->step >= training_chosen.steps || r->interrupted || r->stopped_early;
    if (*ended)
        return TSR_OK;
    TRY(make_step(r));
    TRY(agree(r));
    training_report_later(r);
    return TSR_OK;
}

tsr_status training_learn(training_run *r)
{
    bool ended = false;
    catch_signals();
    while (!ended) {
        tsr_status status = turn(r, &ended);
        if (training_chosen.elastic && training_job_has_lost(status)) {
            ended = false;
            status = training_go_on(r);
        }
        if (status != TSR_OK)
            training_report_later(r);
        TRY(status);
    }
    return TSR_OK;
}
