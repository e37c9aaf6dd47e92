/* tessera finetune: the whole run. */
#include "cli/finetune/run.h"

#include <math.h>
#include <stdlib.h>

#include "cli/commands.h"
#include "cli/inference/inference.h"
#include "cli/lib/memory.h"
#include "cli/lib/terminal.h"

#define USUAL_CONTEXT 1024 /* the most tokens of a row, without --context */

static tsr_status check_schedule(void)
{
    const finetune_options *o = &finetune_chosen;
    return tsr_schedule_check(tsr_schedule(.kind = o->schedule, .learning_rate = o->learning_rate,
                                           .final_rate = o->final_rate, .warmup_steps = o->warmup,
                                           .steps = o->decay_steps));
}

/* Fails on all ranks if they have read different data. */
static tsr_status compare_data(const finetune_run *r)
{
    static const char *const names[] = {"documents",          "tokens",
                                        "trained tokens",     "weighted documents",
                                        "held-out documents", "steps"};
    enum { VALUES = sizeof names / sizeof *names };
    data_counts trained, held_out;
    int64_t low[VALUES], high[VALUES];
    if (finetune_job_is_joining()) /* the others do not wait for this rank */
        return TSR_OK;
    data_get_counts(r->source.set, DATA_TRAIN, &trained);
    data_get_counts(r->source.set, DATA_HELD_OUT, &held_out);
    const int64_t own[VALUES] = {(int64_t)trained.documents,  (int64_t)trained.tokens,
                                 (int64_t)trained.trained,    (int64_t)trained.weighted,
                                 (int64_t)held_out.documents, finetune_chosen.steps};
    TRY(tsr_comm_all_reduce(r->job.world, own, low, VALUES, TSR_I64, TSR_OP_MIN, NULL));
    TRY(tsr_comm_all_reduce(r->job.world, own, high, VALUES, TSR_I64, TSR_OP_MAX, NULL));
    for (int i = 0; i < VALUES; i++)
        if (low[i] != high[i])
            return finetune_fail("the ranks have different data: rank %d has %lld %s, but the "
                                 "ranks have from %lld to %lld",
                                 r->job.rank, (long long)own[i], names[i], (long long)low[i],
                                 (long long)high[i]);
    return TSR_OK;
}

/* Reads everything that needs no device. */
static tsr_status read_files(finetune_run *r)
{
    finetune_options *o = &finetune_chosen;
    TRY(finetune_output_check(false));
    TRY(finetune_job_join(&r->job));
    if (r->job.rank == 0 && !finetune_job_is_joining())
        TRY(finetune_output_check(true));
    TRY(tsr_model_file_open(o->model, &r->file));
    const tsr_model_config *config = tsr_model_file_config(r->file);
    if (o->reference != NULL) {
        TRY(finetune_reference_read(&r->source, &r->adapter));
    } else {
        if (o->context == 0)
            o->context = config->context < USUAL_CONTEXT ? config->context : USUAL_CONTEXT;
        if (o->batch == 0)
            o->batch = FINETUNE_BATCH;
        TRY(tsr_model_file_open_tokenizer(r->file, &r->tokenizer));
        TRY(finetune_source_open(&r->source, r->tokenizer, r->job.rank > 0));
        TRY(compare_data(r));
    }
    finetune_options_complete();
    if (o->batch % o->accumulate != 0)
        return finetune_fail("--accumulate %lld does not divide the batch of %lld rows",
                             (long long)o->accumulate, (long long)o->batch);
    if (o->context > config->context)
        return finetune_fail("rows of %lld tokens, but the model was made for %lld",
                             (long long)o->context, (long long)config->context);
    return check_schedule();
}

/* Connects the ranks, and opens the model. */
static tsr_status open_model(finetune_run *r)
{
    r->rows = cli_alloc((size_t)finetune_chosen.accumulate, sizeof *r->rows);
    r->loss = NAN;
    TRY(finetune_job_init(&r->job));
    r->done = (finetune_progress){
        .saved_step = -1, .evaluated_step = -1, .looked_step = -1, .most_ranks = r->job.ranks};
    TRY(finetune_model_init(&r->model, r->file, r->adapter, &r->job));
    TRY(r->job.joined ? finetune_take_over(r) : finetune_checkpoint_load(r));
    r->compiling_step = r->step;
    return finetune_log_open(r);
}

static tsr_status prepare(finetune_run *r)
{
    tsr_status status = read_files(r);
    if (status == TSR_OK)
        status = open_model(r);
    /* A process that joins goes on like any other rank if one is lost meanwhile. */
    if (r->job.joined && r->model.stack != NULL && finetune_job_has_lost(status))
        return finetune_go_on(r);
    /* The others cannot go on either, because not all had the model. */
    if (finetune_chosen.elastic && !finetune_job_is_joining() && finetune_job_has_lost(status))
        inference_report("state-lost");
    return status;
}

/* Writes --output after a checkpoint could not be saved. Returns the error of the checkpoint. */
static tsr_status keep_output(finetune_run *r)
{
    const char *path = finetune_chosen.output;
    char problem[768];
    snprintf(problem, sizeof problem, "%s", finetune_problem());
    if (path == NULL || finetune_output_write(r) != TSR_OK)
        return finetune_fail("%s", problem);
    return finetune_fail("%s; what was learnt is in %s", problem, path);
}

static tsr_status train(finetune_run *r)
{
    TRY(prepare(r));
    const tsr_status status = finetune_learn(r);
    if (status != TSR_OK && r->unsaved)
        return keep_output(r);
    TRY(status);
    TRY(finetune_output_write(r));
    TRY(finetune_draw(r));
    return finetune_log_close(r);
}

static void finish(finetune_run *r)
{
    for (int64_t i = 0; r->rows != NULL && i < finetune_chosen.accumulate; i++)
        data_batch_free(&r->rows[i]);
    free(r->rows);
    free(r->adapter);
    finetune_points_free(&r->trained);
    finetune_points_free(&r->tested);
    finetune_source_close(&r->source);
    finetune_model_finish(&r->model);
    tsr_tokenizer_close(&r->tokenizer);
    tsr_model_file_close(&r->file);
    finetune_job_finish(&r->job);
    (void)finetune_log_close(r);
}

/* Says what was saved when a signal has ended the training. */
static void say_how_to_go_on(const finetune_run *r)
{
    const finetune_options *o = &finetune_chosen;
    if (r->job.rank != 0)
        return;
    if (o->checkpoint != NULL)
        cli_say("finetune: stopped after step %lld; go on with: tessera finetune --resume %s%s%s",
                (long long)r->step, o->checkpoint, o->output != NULL ? " --output " : "",
                o->output != NULL ? o->output : "");
    else
        cli_say("finetune: stopped after step %lld; there is no --checkpoint from which it could "
                "go on",
                (long long)r->step);
}

static int run(int argc, char **argv)
{
    int code = finetune_options_read(argc, argv);
    finetune_run r = {0};
    if (code == CLI_DONE)
        finetune_allow_restart(&r);
    if (code == CLI_DONE && finetune_chosen.resume != NULL)
        code = finetune_checkpoint_options();
    if (code == CLI_DONE)
        code = finetune_options_check();
    if (code != CLI_DONE)
        return code;
    if (train(&r) != TSR_OK) {
        code = CLI_FAILED;
        if (!finetune_is_reported())
            code = cli_failed_in("finetune", finetune_problem());
    } else if (r.interrupted) {
        say_how_to_go_on(&r);
        code = INFERENCE_INTERRUPTED;
    }
    finish(&r);
    return code;
}

static void help(FILE *out)
{
    cli_wrap(out,
             "Trains an adapter (LoRA) of a language model, or with --full its layers, on texts. "
             "MODEL is a Hugging Face folder or a GGUF file, whose weights may be quantised; they "
             "stay as they are. Under 'tessera launch -n N' or a cluster's launcher, the ranks "
             "divide the model and the rows. Ctrl-C ends the training after the present step, and "
             "saves what was learnt.\n");
    finetune_options_help(out);
}

const cli_command cli_finetune = {
    .name = "finetune",
    .usage = "MODEL --data FILE [options]",
    .summary = "train a language model on texts of one's own",
    .run = run,
    .help = help,
};
