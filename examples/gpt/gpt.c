/* Trains a small language model on the characters of a text, over any number of processes, and
 * writes a text with it. See README.md in the folder above. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint.h"
#include "common/common.h"
#include "common/job.h"
#include "generate.h"
#include "model.h"
#include "names.h"
#include "options.h"
#include "report.h"
#include "text.h"
#include "weights.h"
#include "windows.h"

#define HELD_OUT_BATCHES 8 /* that are evaluated together: stages compute at the same time */

typedef struct run {
    gpt_options options;
    example_job job;
    gpt_text text;
    gpt_offsets offsets;
    gpt_windows train, held_out;
    gpt_model model;
    gpt_history history;
    FILE *log;
    double started;
    int64_t first_step;
    double loss_sum; /* since the last evaluation */
    int64_t loss_count;
    bool interrupted;
    char error[512];
} run;

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    stop_asked = number;
}

/* Files -----------------------------------------------------------------------------------------
 */

static tsr_status load_state(run *r)
{
    const gpt_options *o = &r->options;
    if (o->init)
        return weights_load(&r->model, o->init, r->error, sizeof r->error);
    if (!o->load)
        return TSR_OK;
    TRY(checkpoint_load(&r->model, o->load));
    r->first_step = tsr_optimizer_steps(r->model.optimizer);
    return windows_seek(&r->train, r->first_step * o->training.accumulate);
}

/* Training --------------------------------------------------------------------------------------
 */

static tsr_status evaluate(run *r, int64_t step)
{
    gpt_record record = {.step = step};
    double sum = 0, loss;
    int batches = r->options.eval_batches;
    for (int i = 0, count; i < batches; i += count) {
        count = batches - i < r->held_out.count ? batches - i : r->held_out.count;
        TRY(windows_held_out(&r->held_out, r->job.stream, i, count));
        TRY(model_evaluate(&r->model, count, r->held_out.batches, &loss));
        sum += loss * count;
    }
    record.held_out_loss = sum / batches;
    record.loss = r->loss_count > 0 ? r->loss_sum / (double)r->loss_count : record.held_out_loss;
    r->loss_sum = 0;
    r->loss_count = 0;
    if (r->job.rank != 0)
        return TSR_OK;
    report_evaluation(&record);
    if (r->log)
        report_json_evaluation(r->log, &record);
    return report_add(&r->history, &record) ? TSR_OK : TSR_ERR_NO_MEMORY;
}

/* Whether any rank was asked to stop: all stop after the same step. */
static tsr_status agree_to_stop(run *r)
{
    int32_t asked = stop_asked != 0, any;
    TRY(tsr_comm_all_reduce(r->job.world, &asked, &any, 1, TSR_I32, TSR_OP_MAX));
    r->interrupted = any != 0;
    return TSR_OK;
}

static tsr_status step_once(run *r, int64_t step)
{
    int count = r->options.training.accumulate;
    double loss, norm;
    TRY(windows_train(&r->train, r->job.stream, step * count, count));
    TRY(model_learn(&r->model, r->train.batches));
    TRY(model_update(&r->model, &loss, &norm));
    r->loss_sum += loss;
    r->loss_count++;
    if (r->job.rank != 0)
        return TSR_OK;
    if (r->log)
        report_json_step(r->log, step, loss, norm);
    if ((step + 1) % 50 == 0)
        report_progress(step + 1, r->options.training.steps, loss, seconds_now() - r->started,
                        step + 1 - r->first_step);
    return TSR_OK;
}

static bool is_due(int every, int64_t step)
{
    return every > 0 && step % every == 0;
}

static tsr_status learn(run *r)
{
    const gpt_options *o = &r->options;
    int64_t steps = o->training.steps, step = r->first_step;
    r->started = seconds_now();
    if (o->eval_every > 0)
        TRY(evaluate(r, step));
    while (step < steps && !r->interrupted) {
        TRY(step_once(r, step));
        step++;
        if (is_due(o->eval_every, step) || (step == steps && o->eval_every > 0))
            TRY(evaluate(r, step));
        TRY(agree_to_stop(r));
        if (o->checkpoint && (is_due(o->checkpoint_every, step) || step == steps || r->interrupted))
            TRY(checkpoint_save(&r->model, &r->text, o->checkpoint));
    }
    return TSR_OK;
}

static tsr_status write_text(run *r)
{
    const gpt_options *o = &r->options;
    gpt_generate_params params = {.count = o->characters,
                                  .temperature = o->temperature,
                                  .top_k = o->top_k,
                                  .seed = o->training.seed};
    int32_t *prompt;
    if (o->characters == 0)
        return TSR_OK;
    if (!text_encode(&r->text, o->prompt ? o->prompt : "\n", &prompt, &params.prompt_count,
                     r->error, sizeof r->error))
        return TSR_ERR_INVALID;
    if (r->job.rank == 0)
        printf("\n");
    params.prompt = prompt;
    tsr_status status = generate(&r->model, &r->text, &params);
    free(prompt);
    if (r->job.rank == 0)
        printf("\n");
    return status;
}

/* The whole run ---------------------------------------------------------------------------------
 */

static int failed(const run *r, tsr_status status)
{
    const char *text = *r->error ? r->error : tsr_last_error();
    if (!*text)
        text = status == TSR_ERR_NO_MEMORY ? "out of memory" : tsr_status_name(status);
    fprintf(stderr, "gpt: rank %d: %s\n", r->job.rank, text);
    return 1;
}

static tsr_status prepare(run *r)
{
    const gpt_options *o = &r->options;
    const gpt_offsets *offsets = o->offsets ? &r->offsets : NULL;
    TRY(windows_init(&r->train, &r->text, offsets, &r->job, &o->model, &o->training,
                     o->training.accumulate, o->workers));
    TRY(windows_init(&r->held_out, &r->text, NULL, &r->job, &o->model, &o->training,
                     HELD_OUT_BATCHES, 0));
    TRY(model_init(&r->model, &(gpt_model_params){.job = &r->job,
                                                  .config = &o->model,
                                                  .training = &o->training,
                                                  .stages = &o->stages,
                                                  .strategy = o->strategy,
                                                  .dtype = o->dtype,
                                                  .recompute = o->recompute}));
    return load_state(r);
}

static bool open_log(run *r)
{
    if (!r->options.log || r->job.rank != 0)
        return true;
    r->log = fopen(r->options.log, "w");
    if (!r->log)
        fprintf(stderr, "gpt: %s: %s\n", r->options.log, strerror(errno));
    return r->log != NULL;
}

static void tell_how_to_go_on(const run *r)
{
    if (r->job.rank != 0)
        return;
    if (r->options.checkpoint)
        printf("\nStopped. Go on with: gpt --load %s --checkpoint %s and the same other options\n",
               r->options.checkpoint, r->options.checkpoint);
    else
        printf("\nStopped. Nothing was saved: there is no --checkpoint\n");
}

static example_job_params job_params(const gpt_options *o)
{
    return (example_job_params){.program = "gpt",
                                .ranks = o->ranks,
                                .data = o->data,
                                .tensor = o->tensor,
                                .stages = o->stages.count,
                                .wire = o->wire,
                                .batch = o->training.batch,
                                .device = o->device,
                                .timeout_seconds = o->timeout_seconds};
}

static int train(run *r)
{
    const gpt_options *o = &r->options;
    const example_job_params params = job_params(o);
    tsr_status status = job_init(&r->job, &params, r->error);
    if (status == TSR_OK)
        status = prepare(r);
    if (status != TSR_OK)
        return failed(r, status);
    if (!open_log(r))
        return 1;
    if (r->job.rank == 0)
        report_setting(&r->model, o, &r->text);
    status = learn(r);
    if (status == TSR_OK && o->save)
        status = weights_save(&r->model, o->save, r->error, sizeof r->error);
    if (status == TSR_OK && o->save && r->job.rank == 0 &&
        !text_write_tokenizer(&r->text, o->save, r->error, sizeof r->error))
        status = TSR_ERR_IO;
    if (status == TSR_OK && !r->interrupted)
        status = write_text(r);
    if (status != TSR_OK)
        return failed(r, status);
    if (r->interrupted)
        tell_how_to_go_on(r);
    if (r->job.rank == 0 && o->curve && !report_curve(o->curve, &r->history))
        return 1;
    if (r->job.rank == 0)
        report_files(o);
    return r->interrupted ? 128 + SIGINT : 0;
}

static int finish(run *r, int code)
{
    model_finish(&r->model);
    windows_finish(&r->train);
    windows_finish(&r->held_out);
    job_finish(&r->job);
    text_free(&r->text);
    gpt_offsets_free(&r->offsets);
    report_free(&r->history);
    if (r->log && (ferror(r->log) | fclose(r->log)) != 0) {
        fprintf(stderr, "gpt: the log could not be written\n");
        code = 1;
    }
    return checked_output("gpt", code);
}

static int64_t windows_of_step(const gpt_options *o)
{
    return (int64_t)o->training.batch * o->training.accumulate;
}

/* Checks the windows of a recorded run against the text and the options. */
static bool check_offsets(run *r)
{
    const gpt_options *o = &r->options;
    const gpt_offsets *f = &r->offsets;
    int64_t last = r->text.train - o->model.block - 1;
    int64_t windows = windows_of_step(o);
    if (f->batch != windows || f->steps < o->training.steps) {
        snprintf(r->error, sizeof r->error,
                 "%s has %lld batches of %d windows; the training has %d steps of %lld", o->offsets,
                 (long long)f->steps, f->batch, o->training.steps, (long long)windows);
        return false;
    }
    for (int64_t i = 0; i < f->steps * f->batch; i++) {
        if (f->values[i] > last) {
            snprintf(r->error, sizeof r->error,
                     "%s: a window starts at %lld, but the last one that fits starts at %lld",
                     o->offsets, (long long)f->values[i], (long long)last);
            return false;
        }
    }
    return true;
}

/* Files that a training writes at its end must have a folder that exists. */
static bool check_folder(run *r, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash || slash == path)
        return true;
    char *folder = strndup(path, (size_t)(slash - path));
    bool good = folder && access(folder, W_OK) == 0;
    if (!good)
        snprintf(r->error, sizeof r->error, "%s: its folder cannot be written: %s", path,
                 folder ? strerror(errno) : "out of memory");
    free(folder);
    return good;
}

static bool check_folders(run *r)
{
    const gpt_options *o = &r->options;
    return check_folder(r, o->checkpoint) && check_folder(r, o->save) &&
           check_folder(r, o->curve) && check_folder(r, o->log);
}

/* Everything that can be wrong without a device is found before one is opened. */
static bool read_files(run *r)
{
    gpt_options *o = &r->options;
    int32_t *prompt;
    int64_t count;
    if (!text_read(o->text, o->model.block, &r->text, r->error, sizeof r->error))
        return false;
    if (o->model.vocabulary != 0 && o->model.vocabulary != r->text.vocabulary) {
        snprintf(r->error, sizeof r->error,
                 "%s describes a vocabulary of %d, but %s has %d different characters", o->config,
                 o->model.vocabulary, o->text, r->text.vocabulary);
        return false;
    }
    o->model.vocabulary = r->text.vocabulary;
    if (r->text.train - o->model.block < windows_of_step(o)) {
        snprintf(r->error, sizeof r->error, "%s has %lld windows of %d; a step needs %lld", o->text,
                 (long long)(r->text.train - o->model.block), o->model.block,
                 (long long)windows_of_step(o));
        return false;
    }
    if (o->prompt) {
        if (!text_encode(&r->text, o->prompt, &prompt, &count, r->error, sizeof r->error))
            return false;
        free(prompt);
    }
    if (o->offsets &&
        !(gpt_offsets_read(o->offsets, &r->offsets, r->error, sizeof r->error) && check_offsets(r)))
        return false;
    if (o->init && !names_check_file(o->init, &o->model, r->error, sizeof r->error))
        return false;
    if (o->load &&
        !checkpoint_check(o->load, &o->model, o->dtype, &r->text, r->error, sizeof r->error))
        return false;
    return check_folders(r);
}

int main(int argc, char **argv)
{
    run r = {0};
    if (!gpt_options_parse(argc, argv, &r.options))
        return 2;
    if (r.options.help) {
        gpt_options_help();
        return checked_output("gpt", 0);
    }
    bool read = read_files(&r);
    if (!read)
        fprintf(stderr, "gpt: %s\n", r.error);
    const example_job_params params = job_params(&r.options);
    if (!read || !job_launch(&params, argv)) {
        text_free(&r.text);
        gpt_offsets_free(&r.offsets);
        return read ? 1 : 2;
    }
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return finish(&r, train(&r));
}
