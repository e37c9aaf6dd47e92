/* A training: the whole run. */
#include <math.h>
#include <stdlib.h>

#include "cli/inference/inference.h"
#include "cli/lib/memory.h"
#include "cli/training/run.h"

static tsr_status check_schedule(void)
{
    const training_options *o = &training_chosen;
    return tsr_schedule_check(tsr_schedule(.kind = o->schedule, .learning_rate = o->learning_rate,
                                           .final_rate = o->final_rate, .warmup_steps = o->warmup,
                                           .steps = o->decay_steps));
}

/* Returns whether the options are in the parts of a checkpoint, which ranks can only find together.
 */
static bool has_options_in_parts(void)
{
    return training_chosen.resume != NULL && training_chosen.parts;
}

/* Connects the ranks after all that can be checked before. */
static tsr_status join(training_run *r)
{
    if (!has_options_in_parts())
        TRY(training_output_check(false));
    TRY(training_job_join(&r->job));
    if (!has_options_in_parts())
        return TSR_OK;
    if (training_checkpoint_options(r->kind, r->job.world) != CLI_DONE ||
        r->kind->check() != CLI_DONE)
        return training_reported();
    return training_output_check(false);
}

/* Reads everything that needs no device. */
static tsr_status read_files(training_run *r)
{
    const training_options *o = &training_chosen;
    TRY(join(r));
    if (r->job.rank == 0 && !training_job_is_joining())
        TRY(training_output_check(true));
    TRY(r->kind->open(r));
    training_options_complete();
    const int64_t most = tsr_model_file_config(r->file)->context;
    if (o->batch % o->accumulate != 0)
        return training_fail("--accumulate %lld does not divide the batch of %lld rows",
                             (long long)o->accumulate, (long long)o->batch);
    if (o->context > most)
        return training_fail("rows of %lld tokens, but the model was made for %lld",
                             (long long)o->context, (long long)most);
    return check_schedule();
}

/* Connects the ranks, and opens the model. */
static tsr_status open_model(training_run *r)
{
    r->rows = cli_alloc((size_t)training_chosen.accumulate, sizeof *r->rows);
    r->loss = NAN;
    TRY(training_job_init(&r->job));
    r->done = (training_progress){
        .saved_step = -1, .evaluated_step = -1, .looked_step = -1, .most_ranks = r->job.ranks};
    const tsr_model_file *weights = training_chosen.model != NULL ? r->file : r->first;
    TRY(training_model_init(&r->model, r->file, weights, r->adapter, &r->job));
    TRY(r->job.joined ? training_take_over(r) : training_checkpoint_load(r));
    r->compiling_step = r->step;
    return training_log_open(r);
}

static tsr_status prepare(training_run *r)
{
    tsr_status status = read_files(r);
    if (status == TSR_OK)
        status = open_model(r);
    /* A process that joins goes on like any other rank if one is lost meanwhile. */
    if (r->job.joined && r->model.stack != NULL && training_job_has_lost(status))
        return training_go_on(r);
    /* The others cannot go on either, because not all had the model. */
    if (training_chosen.elastic && !training_job_is_joining() && training_job_has_lost(status))
        inference_report("state-lost");
    return status;
}

/* Writes --output after a checkpoint could not be saved. Returns the error of the checkpoint. */
static tsr_status keep_output(training_run *r)
{
    const char *path = training_chosen.output;
    char problem[768];
    snprintf(problem, sizeof problem, "%s", training_problem());
    if (path == NULL || training_output_write(r) != TSR_OK)
        return training_fail("%s", problem);
    return training_fail("%s; what was learnt is in %s", problem, path);
}

static tsr_status train(training_run *r)
{
    TRY(prepare(r));
    const tsr_status status = training_learn(r);
    if (status != TSR_OK && r->unsaved)
        return keep_output(r);
    TRY(status);
    TRY(training_output_write(r));
    TRY(training_draw(r));
    return training_log_close(r);
}

static void finish(training_run *r)
{
    for (int64_t i = 0; r->rows != NULL && i < training_chosen.accumulate; i++)
        data_batch_free(&r->rows[i]);
    free(r->rows);
    free(r->adapter);
    free(r->tokenizer_json);
    training_points_free(&r->trained);
    training_points_free(&r->tested);
    if (r->source.close != NULL)
        r->source.close(r->source.user);
    training_model_finish(&r->model);
    tsr_tokenizer_close(&r->tokenizer);
    tsr_model_file_close(&r->file);
    tsr_model_file_close(&r->first);
    training_job_finish(&r->job);
    (void)training_log_close(r);
}

/* Says what was saved when a signal has ended the training. */
static void say_how_to_go_on(const training_run *r)
{
    const training_options *o = &training_chosen;
    if (r->job.rank != 0)
        return;
    if (o->checkpoint != NULL)
        cli_say("%s: stopped after step %lld; go on with: tessera %s --resume %s%s%s%s",
                training_name, (long long)r->step, training_name, o->checkpoint,
                o->parts ? " --parts" : "", o->output != NULL ? " --output " : "",
                o->output != NULL ? o->output : "");
    else
        cli_say("%s: stopped after step %lld; there is no --checkpoint from which it could go on",
                training_name, (long long)r->step);
}

int training_main(const training_kind *kind, int argc, char **argv)
{
    training_run r = {.kind = kind};
    training_name = kind->name;
    int code = kind->read(argc, argv);
    if (code == CLI_DONE)
        training_allow_restart(&r);
    if (code == CLI_DONE && training_chosen.resume != NULL && !training_chosen.parts)
        code = training_checkpoint_options(kind, NULL);
    if (code == CLI_DONE)
        code = kind->check();
    if (code != CLI_DONE)
        return code;
    if (train(&r) != TSR_OK) {
        code = CLI_FAILED;
        if (!training_is_reported())
            code = cli_failed_in(training_name, training_problem());
    } else if (r.interrupted) {
        say_how_to_go_on(&r);
        code = INFERENCE_INTERRUPTED;
    }
    finish(&r);
    return code;
}
