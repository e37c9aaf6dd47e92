/* Trains a small language model on a text, or continues the training of a given model, over any
 * number of processes, and writes a text with it. See README.md in the folder above. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint.h"
#include "common/common.h"
#include "common/job.h"
#include "generate.h"
#include "model.h"
#include "options.h"
#include "report.h"
#include "text.h"
#include "windows.h"

/* While ranks are missing, the others look for processes that join after this many steps. */
#define GROW_EVERY 5
#define EXIT_USAGE 2       /* a wrong command line */
#define HELD_OUT_BATCHES 8 /* evaluated together, so that all stages compute at the same time */

/* The state that rank 0 sends to the others when processes join or are lost. */
typedef struct progress {
    int64_t evaluated, saved; /* the last steps that were evaluated and saved; −1: none */
    int64_t most_ranks;       /* number of ranks at the start */
    int64_t looked;           /* last step before which the ranks looked for joining processes */
    int64_t first_step;       /* number of steps before this run */
} progress;

/* For tests: one of the first ranks fails in the middle of a step. "kill" ends its process with
 * SIGKILL, "stop" suspends it, and "error" makes a call return an error. "join" ends it with
 * SIGKILL while a process joins, at this step or later. */
typedef struct failure {
    int rank;
    long long step;
    char how[8];
} failure;
#define MAX_FAILURES 4

typedef struct run {
    gpt_options options;
    failure failures[MAX_FAILURES];
    int failure_count;
    example_job job;
    gpt_text text;
    tsr_model_file *weights; /* initial ones; NULL: none */
    gpt_offsets offsets;
    gpt_windows train, held_out;
    gpt_chunks chunks; /* this rank's part of each window */
    gpt_model model;
    gpt_history history;
    FILE *log;
    gpt_pace pace;               /* without the steps in which kernels were compiled */
    int64_t step;                /* the number of steps until now, also before this run */
    int64_t compiling_step;      /* the step in which ranks compile kernels: the run's first, or the
                                  * first after a join */
    double loss, norm;           /* of the step in progress; NaN: not known yet */
    bool is_unreported;          /* the last step has been counted, but not reported */
    double last_loss, last_norm; /* of the last step */
    progress done;
    int first_rank;  /* this process's rank at the start */
    double loss_sum; /* sum of losses since the last evaluation */
    int64_t loss_count;
    bool interrupted;
    char *saved_options; /* of this training, for its checkpoints; NULL: none are saved */
    const char *restart; /* in a job that was started again: the last value that it has reported
                          * with "restartable"; otherwise NULL */
    char error[512];
} run;

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    stop_asked = number;
}

/* Training ----------------------------------------------------------------------------------- */

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

/* Agrees with all ranks on whether any was asked to stop. All stop after the same step. */
static tsr_status agree_to_stop(run *r)
{
    int32_t asked = stop_asked != 0, any;
    if (asked)
        job_report("signal %d", (int)stop_asked);
    TRY(tsr_comm_all_reduce(r->job.world, &asked, &any, 1, TSR_I32, TSR_OP_MAX, NULL));
    r->interrupted = any != 0;
    return TSR_OK;
}

/* Reports the last step that has been made. */
static void report_step(run *r, double loss, double norm)
{
    r->loss_sum += loss;
    r->loss_count++;
    r->last_loss = loss;
    r->last_norm = norm;
    if (r->job.rank != 0)
        return;
    if (r->log)
        report_json_step(r->log, r->step - 1, loss, norm, r->job.ranks, &r->model);
    if (r->step % 50 == 0)
        report_progress(r->step, r->options.training.steps, loss, &r->pace);
}

static void count_step(run *r)
{
    r->step++;
    report_step(r, r->loss, r->norm);
}

/* Reports the last step if its results were not known when it was counted. */
static tsr_status report_later(run *r)
{
    if (!r->is_unreported)
        return TSR_OK;
    TRY(model_results(&r->model, &r->loss, &r->norm));
    r->is_unreported = false;
    report_step(r, r->loss, r->norm);
    return TSR_OK;
}

/* Reads GPT_FAIL=RANK:STEP:HOW[,…]. */
static bool read_failures(run *r)
{
    static const char *const ways[] = {"kill", "stop", "error", "join"};
    const char *all = getenv("GPT_FAIL"), *rest = all ? all : "";
    while (*rest) {
        failure *f = &r->failures[r->failure_count];
        int length = 0;
        bool good = r->failure_count < MAX_FAILURES &&
                    sscanf(rest, "%d:%lld:%7[a-z]%n", &f->rank, &f->step, f->how, &length) == 3 &&
                    f->rank >= 0 && strchr(",", rest[length]);
        bool is_way = false;
        for (size_t i = 0; good && i < sizeof ways / sizeof *ways; i++)
            is_way = is_way || strcmp(f->how, ways[i]) == 0;
        if (!is_way) {
            snprintf(r->error, sizeof r->error,
                     "GPT_FAIL takes up to %d of RANK:STEP:HOW, separated by commas, where HOW is "
                     "kill, stop, error or join, not '%.80s'",
                     MAX_FAILURES, all);
            return false;
        }
        r->failure_count++;
        rest += length + (rest[length] == ',');
    }
    return true;
}

/* Returns a failure of this rank that is due, or NULL. */
static const failure *find_failure(const run *r, bool joining)
{
    if (r->job.joined || r->restart)
        return NULL;
    for (int i = 0; i < r->failure_count; i++) {
        const failure *f = &r->failures[i];
        const bool is_join = strcmp(f->how, "join") == 0;
        if (f->rank == r->first_rank && is_join == joining &&
            (is_join ? r->step >= f->step : r->step == f->step))
            return f;
    }
    return NULL;
}

static tsr_status fail_if_asked(run *r)
{
    const failure *f = find_failure(r, false);
    if (!f)
        return TSR_OK;
    if (strcmp(f->how, "error") == 0) {
        snprintf(r->error, sizeof r->error, "step %lld fails, as GPT_FAIL asks", f->step);
        return TSR_ERR_IO;
    }
    raise(strcmp(f->how, "stop") == 0 ? SIGSTOP : SIGKILL);
    return TSR_OK;
}

static tsr_status step_once(run *r)
{
    const int count = r->options.training.accumulate;
    bool later;
    r->loss = NAN;
    TRY(windows_train(&r->train, r->job.stream, r->step * count, count));
    TRY(model_learn(&r->model, r->train.batches));
    TRY(fail_if_asked(r));
    /* The device is computing this step, so waiting for the previous step's results delays
     * nothing. */
    TRY(report_later(r));
    TRY(model_update(&r->model, &r->loss, &r->norm, &later));
    if (!later) {
        count_step(r);
        return TSR_OK;
    }
    r->step++;
    r->is_unreported = true;
    return TSR_OK;
}

static bool is_due(int every, int64_t step)
{
    return every > 0 && step % every == 0;
}

/* Evaluates and saves after a step, if that is due. */
static tsr_status between_steps(run *r)
{
    const gpt_options *o = &r->options;
    const bool is_end = r->step == o->training.steps;
    const bool evaluates = o->eval_every > 0 && (is_due(o->eval_every, r->step) || is_end ||
                                                 r->done.evaluated < r->done.first_step);
    const bool saves = o->checkpoint && r->step > r->done.first_step &&
                       (is_due(o->checkpoint_every, r->step) || is_end || r->interrupted);
    if (evaluates || saves || is_end || r->interrupted)
        TRY(report_later(r));
    if (evaluates && r->done.evaluated != r->step) {
        TRY(evaluate(r, r->step));
        r->done.evaluated = r->step;
    }
    if (saves && r->done.saved != r->step) {
        TRY(checkpoint_save(&r->model, &r->text, r->saved_options, o->checkpoint, o->parts));
        r->done.saved = r->step;
        if (o->elastic)
            job_report("restartable %lld", (long long)r->step);
    }
    return TSR_OK;
}

/* Other ranks -------------------------------------------------------------------------------- */

/* Finds out which tokens of each window this rank has. */
static tsr_status divide_windows(run *r)
{
    gpt_chunks *chunks = &r->chunks;
    TRY(gpt_options_chunks(&r->options, r->job.context_rank, chunks->range));
    chunks->tokens = (int)(chunks->range[0].count + chunks->range[1].count);
    return TSR_OK;
}

static tsr_status create_windows(run *r)
{
    const gpt_options *o = &r->options;
    const gpt_offsets *offsets = o->offsets ? &r->offsets : NULL;
    windows_finish(&r->train);
    windows_finish(&r->held_out);
    TRY(windows_init(&r->train, &r->text, offsets, &r->job, &o->model, &r->chunks, &o->training,
                     o->training.accumulate, o->workers));
    return windows_init(&r->held_out, &r->text, NULL, &r->job, &o->model, &r->chunks, &o->training,
                        HELD_OUT_BATCHES, 0);
}

/* Continues the log of a lost rank. That rank may not have written the last step. */
static bool continue_log(run *r)
{
    char line[256];
    long long step, last = -1;
    r->log = fopen(r->options.log, "a+");
    if (!r->log) {
        snprintf(r->error, sizeof r->error, "%s: %s", r->options.log, strerror(errno));
        return false;
    }
    setvbuf(r->log, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, r->log))
        if (sscanf(line, "{\"step\": %lld", &step) == 1)
            last = step;
    fseek(r->log, 0, SEEK_END);
    if (last < r->step - 1 && r->step > r->done.first_step)
        report_json_step(r->log, r->step - 1, r->last_loss, r->last_norm, r->job.ranks + 1, NULL);
    return true;
}

/* Called after the model has been rebuilt. Prepares this rank for the step from which the ranks
 * continue. */
static tsr_status take_over(run *r)
{
    const gpt_options *o = &r->options;
    job_settle(&r->job);
    TRY(tsr_comm_broadcast(r->job.world, &r->done, sizeof r->done, TSR_U8, 0, NULL));
    /* The other ranks had completed the step in which this rank failed. The rebuilt model includes
     * that step, so it is counted here, too. */
    if (tsr_optimizer_steps(r->model.optimizer) == r->step + 1 && !isnan(r->loss))
        count_step(r);
    r->step = tsr_optimizer_steps(r->model.optimizer);
    TRY(create_windows(r));
    TRY(windows_seek(&r->train, r->step * o->training.accumulate));
    return o->log && r->job.rank == 0 && !r->log && !continue_log(r) ? TSR_ERR_IO : TSR_OK;
}

static tsr_status rebuild(run *r, bool grown)
{
    tsr_status status = model_rebuild(&r->model, r->options.strategy);
    if (grown && find_failure(r, true))
        raise(SIGKILL);
    if (status == TSR_OK)
        status = take_over(r);
    if (status != TSR_OK && !job_has_lost(status))
        job_report("state-lost");
    return status;
}

/* Continues without the lost ranks. */
static tsr_status go_on(run *r)
{
    const double start = seconds_now();
    bool again = true;
    while (again) {
        TRY(job_shrink(&r->job, &again));
        const tsr_status status = again ? TSR_OK : rebuild(r, false);
        again = again || job_has_lost(status);
        if (!again)
            TRY(status);
    }
    if (r->job.rank == 0)
        report_ranks(r->step, r->job.ranks, seconds_now() - start);
    return TSR_OK;
}

/* Adds processes that have been started in place of lost ones. */
static tsr_status look_for_newcomers(run *r)
{
    const double start = seconds_now();
    bool grown = false;
    if (r->job.ranks >= r->done.most_ranks || r->step % GROW_EVERY != 0 ||
        r->done.looked == r->step)
        return TSR_OK;
    r->done.looked = r->step; /* joining processes get this value and do not look again */
    TRY(job_grow(&r->job, (int)r->done.most_ranks - r->job.ranks, &grown));
    if (!grown)
        return TSR_OK;
    TRY(rebuild(r, true));
    r->compiling_step = r->step;
    if (r->job.rank == 0)
        report_ranks(r->step, r->job.ranks, seconds_now() - start);
    return TSR_OK;
}

/* The loop ----------------------------------------------------------------------------------- */

static tsr_status turn(run *r, bool *is_end)
{
    TRY(look_for_newcomers(r));
    TRY(between_steps(r));
    *is_end = r->step >= r->options.training.steps || r->interrupted;
    if (*is_end)
        return TSR_OK;
    const double start = seconds_now();
    const bool compiles = r->step == r->compiling_step;
    TRY(step_once(r));
    if (!compiles)
        report_add_time(&r->pace, seconds_now() - start);
    return agree_to_stop(r);
}

/* Keeps the text of an error, reports the last step that was made, and explains a timeout in a step
 * in which ranks compile. */
static tsr_status stop_learning(run *r, tsr_status status)
{
    if (!*r->error)
        snprintf(r->error, sizeof r->error, "%s", tsr_last_error());
    (void)report_later(r);
    const size_t used = strlen(r->error);
    if (status == TSR_ERR_TIMEOUT && r->step == r->compiling_step)
        snprintf(r->error + used, sizeof r->error - used,
                 "; in the first step ranks compile their kernels, which may need a longer "
                 "--timeout on a busy machine");
    return status;
}

static tsr_status learn(run *r)
{
    bool is_end = false;
    while (!is_end) {
        tsr_status status = turn(r, &is_end);
        if (r->options.elastic && job_has_lost(status)) {
            is_end = false;
            status = go_on(r);
        }
        if (status != TSR_OK)
            return stop_learning(r, status);
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
    if (!text_encode(&r->text, o->prompt, &prompt, &params.prompt_count, r->error, sizeof r->error))
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

/* The whole run ------------------------------------------------------------------------------ */

static int failed(const run *r, tsr_status status)
{
    const char *text = *r->error ? r->error : tsr_last_error();
    if (!*text)
        text = status == TSR_ERR_NO_MEMORY ? "out of memory" : tsr_status_name(status);
    fprintf(stderr, "gpt: rank %d: %s\n", r->job.rank, text);
    return 1;
}

static tsr_status load_state(run *r)
{
    const gpt_options *o = &r->options;
    if (r->job.joined)
        return take_over(r);
    if (o->init)
        return tsr_stack_load(r->model.stack, r->weights);
    if (!o->load)
        return TSR_OK;
    TRY(checkpoint_load(&r->model, &r->text, o->load, o->parts, r->error, sizeof r->error));
    r->done.first_step = r->step = tsr_optimizer_steps(r->model.optimizer);
    return windows_seek(&r->train, r->done.first_step * o->training.accumulate);
}

static tsr_status create_model(run *r)
{
    const gpt_options *o = &r->options;
    TRY(divide_windows(r));
    TRY(create_windows(r));
    TRY(model_init(&r->model, &(gpt_model_params){.job = &r->job,
                                                  .config = &o->model,
                                                  .chunks = &r->chunks,
                                                  .training = &o->training,
                                                  .stages = &o->stages,
                                                  .tensor_rates = &o->tensor_rates,
                                                  .strategy = o->strategy,
                                                  .dtype = o->dtype,
                                                  .recompute = o->recompute,
                                                  .experts_over_data = o->experts_over_data,
                                                  .elastic = o->elastic}));
    return load_state(r);
}

static tsr_status prepare(run *r)
{
    r->done = (progress){-1, -1, r->job.ranks, -1, 0};
    r->first_rank = r->job.rank;
    r->loss = NAN;
    tsr_status status = create_model(r);
    /* A process that joins goes on like any other rank if one is lost meanwhile. */
    if (r->job.joined && job_has_lost(status))
        status = go_on(r);
    r->compiling_step = r->step;
    return status;
}

/* Returns whether a job that was started again goes on from its checkpoint. */
static bool has_checkpoint(const run *r)
{
    return r->restart && strcmp(r->restart, "0") != 0;
}

/* Tells the launcher that it may start all ranks again if the training is lost. Until a checkpoint
 * has been saved, they start from the beginning, which is the value 0. Afterwards they load the
 * checkpoint. */
static void allow_restart(run *r)
{
    gpt_options *o = &r->options;
    const char *value = getenv("TESSERA_RESTART");
    if (!o->elastic || !o->checkpoint || job_is_joining())
        return;
    r->restart = value && *value ? value : NULL;
    if (!r->restart)
        job_report("restartable 0");
    if (has_checkpoint(r)) {
        o->load = o->checkpoint;
        o->init = NULL;
    }
}

/* Removes from the log what the ranks did after the checkpoint with which they start again. Returns
 * false, with errno, on failure. A file that does not exist is none. */
static bool cut_log(const run *r)
{
    char line[256];
    long long step;
    long end = 0;
    FILE *file = fopen(r->options.log, "r+");
    if (!file)
        return errno == ENOENT;
    while (fgets(line, sizeof line, file) && strchr(line, '\n') &&
           (sscanf(line, "{\"step\": %lld", &step) == 1 ||
            sscanf(line, "{\"evaluated\": %lld", &step) == 1) &&
           step < r->step)
        end = ftell(file);
    const bool is_cut = ftruncate(fileno(file), end) == 0;
    fclose(file);
    return is_cut;
}

static bool open_log(run *r)
{
    if (!r->options.log || r->job.rank != 0)
        return true;
    if (!has_checkpoint(r) || cut_log(r))
        r->log = fopen(r->options.log, has_checkpoint(r) ? "a" : "w");
    if (!r->log)
        fprintf(stderr, "gpt: %s: %s\n", r->options.log, strerror(errno));
    else if (r->options.elastic)
        setvbuf(r->log, NULL, _IOLBF, 0); /* after each line, in case this rank is lost */
    return r->log != NULL;
}

static void tell_how_to_go_on(const run *r)
{
    if (r->job.rank != 0)
        return;
    if (r->options.checkpoint)
        printf("\nStopped. Go on with: gpt --load %s --checkpoint %s%s, on any grid of ranks\n",
               r->options.checkpoint, r->options.checkpoint, r->options.parts ? " --parts" : "");
    else
        printf("\nStopped. Nothing was saved: there is no --checkpoint\n");
}

/* Before this, signals end a process that waits for the other ranks. */
static void catch_signals(void)
{
    /* SA_RESTART: lines that are being written are not lost. */
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static example_job_params job_params(const gpt_options *o)
{
    return (example_job_params){.program = "gpt",
                                .ranks = o->ranks,
                                .data = o->data,
                                .tensor = o->tensor,
                                .context = o->context,
                                .stages = o->stages.count,
                                .wire = o->wire,
                                .batch = o->training.batch,
                                .elastic = o->elastic,
                                .device = o->device,
                                .timeout_seconds = o->timeout_seconds};
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

/* Checks that a file can be written at the end of the training: its folder must exist. */
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

/* Creates the folder that --save names. Another rank may have done so already. */
static bool create_save_folder(run *r)
{
    const gpt_options *o = &r->options;
    char *folder = o->save == o->save_file ? strdup(o->save) : NULL;
    if (!folder)
        return true;
    *strrchr(folder, '/') = '\0';
    const bool has_parent = check_folder(r, folder);
    const bool good = has_parent && (mkdir(folder, 0777) == 0 || errno == EEXIST);
    if (has_parent && !good)
        snprintf(r->error, sizeof r->error, "%.400s: %s", folder, strerror(errno));
    free(folder);
    return good;
}

static bool check_folders(run *r)
{
    const gpt_options *o = &r->options;
    if (!create_save_folder(r))
        return false;
    return check_folder(r, o->checkpoint) && check_folder(r, o->save) &&
           check_folder(r, o->curve) && check_folder(r, o->log);
}

/* Compares the text's vocabulary with that of the model, which may be larger than its tokenizer's.
 */
static bool check_vocabulary(run *r)
{
    gpt_options *o = &r->options;
    const int model = (int)o->model.model.vocabulary, text = r->text.vocabulary;
    if (model == 0)
        o->model.model.vocabulary = text;
    else if (o->given_model && text > model)
        snprintf(r->error, sizeof r->error, "%s has a vocabulary of %d, but %s has %d tokens",
                 o->given_model, model, o->tokenizer, text);
    else if (!o->given_model && text != model)
        snprintf(r->error, sizeof r->error,
                 "%s describes a vocabulary of %d, but %s has %d different %s", o->config, model,
                 o->tokenizer ? o->tokenizer : o->text, text, text_unit(&r->text));
    return !*r->error;
}

/* Finds all errors that can be found without a device, before a device is opened. */
static bool read_files(run *r)
{
    gpt_options *o = &r->options;
    int32_t *prompt;
    int64_t count;
    const gpt_text_params params = {.path = o->text,
                                    .tokenizer = o->tokenizer,
                                    .separator = o->separator,
                                    .block = o->model.block};
    if (!text_read(&params, &r->text, r->error, sizeof r->error) || !check_vocabulary(r) ||
        (o->save && !text_check_tokenizer(&r->text, r->error, sizeof r->error)))
        return false;
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
    if (o->init && tsr_model_file_open_weights(o->init, &o->model.model, &r->weights) != TSR_OK) {
        snprintf(r->error, sizeof r->error, "%s: %s", o->init, tsr_last_error());
        return false;
    }
    if (o->checkpoint) {
        r->saved_options = gpt_options_print(o, r->error, sizeof r->error);
        if (!r->saved_options)
            return false;
    }
    if (o->load && !o->parts &&
        !checkpoint_check(o->load, &o->model, o->dtype, &r->text, r->error, sizeof r->error))
        return false;
    return check_folders(r);
}

/* Returns whether the options of the training are in parts of a checkpoint, which the ranks find
 * together. */
static bool has_options_in_parts(const run *r)
{
    return r->options.load && r->options.parts;
}

/* Reads the options of a checkpoint in parts and all files, once the ranks are connected. */
static tsr_status find_options(run *r)
{
    const gpt_options *o = &r->options;
    if (!has_options_in_parts(r))
        return TSR_OK;
    char *text = checkpoint_parts_options(o->load, r->job.joined ? NULL : r->job.world, r->error,
                                          sizeof r->error);
    if (!text)
        return TSR_ERR_INVALID;
    const bool is_complete = gpt_options_complete(&r->options, text);
    free(text);
    if (!is_complete)
        snprintf(r->error, sizeof r->error, "the options are refused");
    if (!is_complete || !read_files(r))
        return TSR_ERR_INVALID;
    return job_use_batch(&r->job, o->training.batch, r->error);
}

static int train(run *r)
{
    const gpt_options *o = &r->options;
    const example_job_params params = job_params(o);
    tsr_status status = job_init(&r->job, &params, r->error);
    if (status == TSR_OK)
        status = find_options(r);
    if (status == TSR_OK) {
        catch_signals();
        status = prepare(r);
    }
    if (status != TSR_OK) {
        /* The others cannot go on either, because not all had the model. */
        if (o->elastic && !job_is_joining() && job_has_lost(status))
            job_report("state-lost");
        return failed(r, status);
    }
    if (!open_log(r))
        return 1;
    if (r->job.rank == 0)
        report_setting(&r->model, o, &r->text);
    status = learn(r);
    if (status == TSR_OK && o->save)
        status = tsr_stack_save(r->model.stack, o->save, r->job.stage_comm);
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
    tsr_model_file_close(&r->weights);
    text_free(&r->text);
    gpt_options_free(&r->options);
    gpt_offsets_free(&r->offsets);
    free(r->saved_options);
    report_free(&r->history);
    if (r->log && (ferror(r->log) | fclose(r->log)) != 0) {
        fprintf(stderr, "gpt: the log could not be written\n");
        code = 1;
    }
    return checked_output("gpt", code);
}

/* Completes the options with those of the checkpoint that is loaded. Returns an exit status. */
static int complete_options(run *r)
{
    gpt_options *o = &r->options;
    char *text = o->load ? checkpoint_options(o->load, r->error, sizeof r->error) : NULL;
    if (o->load && !text) {
        fprintf(stderr, "gpt: %s\n", r->error);
        return EXIT_FAILURE;
    }
    const bool is_complete = gpt_options_complete(o, text);
    free(text);
    return is_complete ? EXIT_SUCCESS : o->has_bad_file ? EXIT_FAILURE : EXIT_USAGE;
}

/* Prepares everything that needs no other rank. Returns an exit status. */
static int read_alone(run *r)
{
    if (!read_failures(r)) {
        fprintf(stderr, "gpt: %s\n", r->error);
        return EXIT_USAGE;
    }
    const int status = has_options_in_parts(r) ? EXIT_SUCCESS : complete_options(r);
    if (status != EXIT_SUCCESS || has_options_in_parts(r) || read_files(r))
        return status;
    fprintf(stderr, "gpt: %s\n", r->error);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    run r = {0};
    if (!gpt_options_parse(argc, argv, &r.options))
        return EXIT_USAGE;
    if (r.options.help) {
        gpt_options_help();
        return checked_output("gpt", 0);
    }
    allow_restart(&r);
    const int status = read_alone(&r);
    const example_job_params params = job_params(&r.options);
    if (status != EXIT_SUCCESS || !job_launch(&params, argv)) {
        text_free(&r.text);
        gpt_options_free(&r.options);
        gpt_offsets_free(&r.offsets);
        free(r.saved_options);
        return status != EXIT_SUCCESS ? status : EXIT_FAILURE;
    }
    return finish(&r, train(&r));
}
