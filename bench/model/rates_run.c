/* Measures the time of passes on every rank of a job, each with models of its own. */
#include "bench/model/rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/clock.h"
#include "bench/harness/samples.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

#define SEED 1
/* The tokens that a sequence generates before it ends and another one begins. */
#define TOKENS 32
#define MAX_SAMPLES 512
/* The smaller models are as large as the part of one rank in a tensor-parallel group of this many
 * ranks. */
#define PARTS 2
#define REDUCTIONS 32
/* All models are measured this many times in turn, because only differences of their times count,
 * and machines become faster and slower. */
#define ROUNDS 4

typedef struct job {
    bench_rates_options *options;
    bench_options harness;
    bench_context context;
    tsr_comm *comm;
    tsr_group *alone; /* a group of this rank only */
    tsr_group *all;   /* a group of all ranks */
    tsr_model *model;
    tsr_generator *generator;
    tsr_tensor *tensor;
    int rank;
    bench_rates_rank own;
    bench_rates_report report;
} job;

static bench_context *of(job *j)
{
    return &j->context;
}

/* Models --------------------------------------------------------------------------------------- */

/* Returns the largest number up to PARTS by which the heads and the MLP can be divided. */
static int64_t parts_of(const tsr_model_config *config)
{
    int64_t parts = PARTS;
    while (config->heads % parts != 0 || config->kv_heads % parts != 0 ||
           config->hidden % parts != 0)
        parts--;
    return parts;
}

static tsr_model_config config_of(const tsr_model_config *full, int which)
{
    tsr_model_config config = *full;
    config.layers = which == BENCH_RATES_DEEP_WHOLE || which == BENCH_RATES_DEEP_PART
                        ? BENCH_RATES_MANY_LAYERS
                        : BENCH_RATES_FEW_LAYERS;
    config.window_from = 0;
    if (which == BENCH_RATES_PART || which == BENCH_RATES_DEEP_PART) {
        /* A model with a single head has no smaller number of heads, but a smaller MLP. */
        const int64_t parts = parts_of(full);
        config.heads /= parts;
        config.kv_heads /= parts;
        config.hidden = parts > 1 ? config.hidden / parts : (config.hidden + PARTS - 1) / PARTS;
        config.vocabulary = (config.vocabulary + PARTS - 1) / PARTS;
    }
    config.bos = 0;
    config.end_count = 0;
    return config;
}

/* Returns the number of elements of a block's matrices. */
static double block_elements(const tsr_model_config *c)
{
    return (double)c->width *
           ((2 * (double)c->heads + 2 * (double)c->kv_heads) * (double)c->head_dim +
            (c->gated ? 3 : 2) * (double)c->hidden);
}

static double head_elements(const tsr_model_config *c)
{
    return (double)c->width * (double)c->vocabulary;
}

/* Timing --------------------------------------------------------------------------------------- */

static double median(double *values, int count)
{
    bench_sort(values, count);
    return bench_quantile(values, count, 0.5);
}

static bool barrier(job *j)
{
    BENCH_TRY(of(j), tsr_comm_barrier(j->comm));
    return true;
}

/* Generates with `sequences` sequences, or computes a prompt of `prompt` tokens if that is not 0,
 * until the time is over, and stores the median time of a pass. */
static bool time_passes(job *j, int sequences, int64_t prompt, double *seconds)
{
    double samples[MAX_SAMPLES];
    int count = 0, given;
    const int64_t length = prompt > 0 ? prompt : 1,
                  vocabulary = tsr_model_get_config(j->model)->vocabulary;
    int32_t *tokens = cli_alloc((size_t)length, sizeof *tokens);
    tsr_generated *generated = cli_alloc((size_t)sequences, sizeof *generated);
    int *numbers = cli_alloc((size_t)sequences, sizeof *numbers);
    bool good = true;
    for (int64_t i = 0; i < length; i++)
        tokens[i] = (int32_t)(i * 7 % vocabulary);
    const double end = bench_now_ns() + j->options->seconds * 1e9 / ROUNDS;
    /* The first round, which generates all tokens of all sequences once, warms up. */
    for (int round = 0; good && count < MAX_SAMPLES && (round < 2 || bench_now_ns() < end);
         round++) {
        for (int s = 0; good && s < sequences; s++)
            good = bench_passed(
                of(j),
                tsr_generator_add(j->generator,
                                  tsr_sequence_params(.prompt = tokens, .prompt_count = length,
                                                      .max_tokens = prompt > 0 ? 1 : TOKENS + 1,
                                                      .ignore_end = true),
                                  &numbers[s]),
                "tsr_generator_add");
        const int timed = prompt > 0 ? 1 : TOKENS;
        if (good && prompt == 0) /* the first pass computes the prompts, so it is not measured */
            good = bench_passed(of(j), tsr_generator_step(j->generator, generated, &given),
                                "tsr_generator_step");
        const double start = bench_now_ns();
        for (int i = 0; good && i < timed; i++)
            good = bench_passed(of(j), tsr_generator_step(j->generator, generated, &given),
                                "tsr_generator_step");
        if (round > 0)
            samples[count++] = (bench_now_ns() - start) * 1e-9 / timed;
        for (int s = 0; good && s < sequences; s++)
            good = bench_passed(of(j), tsr_generator_remove(j->generator, numbers[s]),
                                "tsr_generator_remove");
    }
    free(tokens);
    free(generated);
    free(numbers);
    if (good)
        *seconds = median(samples, count);
    return good;
}

/* Returns the number of rows of a pass: 1, 2, 4, … (one row per sequence) up to --sequences; the
 * last pass is a prompt. */
static int64_t rows_of(const job *j, int pass, bool *is_prompt)
{
    *is_prompt = j->options->prompt > 0 && pass == j->report.passes - 1;
    const int64_t rows = INT64_C(1) << pass;
    return *is_prompt                     ? j->options->prompt
           : rows < j->options->sequences ? rows
                                          : j->options->sequences;
}

static int count_passes(const bench_rates_options *o)
{
    int count = 1;
    while (INT64_C(1) << (count - 1) < o->sequences)
        count++;
    return count + (o->prompt > 0);
}

/* Measures forward passes of a model, in seconds, for each number of rows (tokens) of a pass. All
 * ranks start each measurement together. */
static bool time_model(job *j, const tsr_model_config *config, double seconds[BENCH_RATES_PASSES],
                       double *weight_bytes)
{
    tsr_model_stats stats;
    const bench_rates_options *o = j->options;
    const int64_t most = o->prompt > TOKENS + 1 ? o->prompt : TOKENS + 1;
    const tsr_model_params params = {
        .group = j->alone, .context = most, .sequences = (int)o->sequences};
    BENCH_TRY(of(j), tsr_model_create_random(config, o->type, SEED, &params, &j->model));
    tsr_model_get_stats(j->model, &stats);
    *weight_bytes = (double)stats.weight_bytes;
    for (int i = 0; i < j->report.passes; i++) {
        bool is_prompt;
        const int64_t rows = rows_of(j, i, &is_prompt);
        const int sequences = is_prompt ? 1 : (int)rows;
        const int64_t context = is_prompt ? rows : TOKENS + 1;
        BENCH_TRY(of(j), tsr_generator_create(
                             tsr_generator_params(.model = j->model, .sequences = sequences,
                                                  .context = context, .prefill = context,
                                                  .omit_log_probabilities = true),
                             &j->generator));
        if (!barrier(j) || !time_passes(j, sequences, is_prompt ? rows : 0, &seconds[i]) ||
            !barrier(j))
            return false;
        tsr_generator_destroy(&j->generator);
    }
    tsr_model_close(&j->model);
    return true;
}

/* Collectives ---------------------------------------------------------------------------------- */

/* Measures three times: of some work on the device, of the same work followed by an all-reduce of a
 * tensor, and of an all-reduce of as much host memory. */
static bool time_reductions(job *j, float *host, int64_t count, double seconds[3])
{
    tsr_stream *stream = j->context.stream;
    for (int what = 0; what < 3; what++) {
        if (!barrier(j))
            return false;
        const double start = bench_now_ns();
        for (int i = 0; i < REDUCTIONS; i++) {
            if (what < 2)
                BENCH_TRY(of(j), tsr_add(stream, j->tensor, j->tensor, j->tensor));
            if (what == 1)
                BENCH_TRY(of(j), tsr_group_all_reduce(j->all, j->tensor, TSR_OP_SUM));
            if (what == 2)
                BENCH_TRY(of(j), tsr_comm_all_reduce(j->comm, host, host, (uint64_t)count, TSR_F32,
                                                     TSR_OP_SUM));
        }
        BENCH_TRY(of(j), tsr_stream_wait(stream));
        seconds[what] = (bench_now_ns() - start) * 1e-9 / REDUCTIONS;
    }
    return true;
}

static bool measure_collective(job *j)
{
    const int64_t width = j->report.config.width;
    tsr_stream *stream = j->context.stream;
    tsr_device *device = tsr_stream_device(stream);
    double samples[MAX_SAMPLES];
    int count = 0, more = 1;
    if (j->report.ranks == 1)
        return true;
    float *host = cli_alloc((size_t)width, sizeof *host);
    const double end = bench_now_ns() + j->options->seconds * 1e9;
    bool good = bench_passed(of(j), tsr_group_create(j->comm, stream, tsr_group_params(0), &j->all),
                             "tsr_group_create") &&
                bench_passed(of(j), tsr_tensor_create(device, TSR_F32, 1, &width, &j->tensor),
                             "tsr_tensor_create") &&
                bench_passed(of(j), tsr_fill(stream, j->tensor, 0), "tsr_fill");
    for (int round = 0; good && more; round++) {
        double seconds[3];
        good = time_reductions(j, host, width, seconds);
        if (good && round > 0)
            samples[count++] = seconds[1] - seconds[0] - seconds[2];
        /* Rank 0 decides whether all ranks take another sample. */
        more = round < 3 || (bench_now_ns() < end && count < MAX_SAMPLES);
        good =
            good && bench_passed(of(j), tsr_comm_broadcast(j->comm, &more, sizeof more, TSR_U8, 0),
                                 "tsr_comm_broadcast");
    }
    if (good)
        j->own.collective = fmax(median(samples, count), 0);
    free(host);
    return good;
}

/* The job -------------------------------------------------------------------------------------- */

static bool open_job(job *j)
{
    bench_rates_options *o = j->options;
    BENCH_TRY(of(j), tsr_comm_create(tsr_comm_params(.timeout_ns = (uint64_t)(o->timeout * 1e9)),
                                     &j->comm));
    j->rank = tsr_comm_rank(j->comm);
    j->report.ranks = tsr_comm_size(j->comm);
    j->report.type = o->type;
    j->report.passes = count_passes(o);
    j->report.config = o->shape->config;
    snprintf(j->report.name, sizeof j->report.name, "%s", o->path ? o->path : o->shape->name);
    if (o->path != NULL)
        BENCH_TRY(of(j), tsr_model_config_read(o->path, &j->report.config));
    if (!bench_open_device(of(j), o->device))
        return false;
    snprintf(j->own.device, sizeof j->own.device, "%s", j->context.info->name);
    BENCH_TRY(of(j), tsr_group_create(NULL, j->context.stream, tsr_group_params(0), &j->alone));
    return true;
}

/* Measures all models in turn, and stores the median of the rounds in `times`. */
static bool time_models(job *j, const tsr_model_config config[BENCH_RATES_MODELS],
                        bench_rates_times *times, double bytes[BENCH_RATES_MODELS])
{
    static const char *const names[BENCH_RATES_MODELS] = {
        "two layers", "six layers", "parts of two layers", "parts of six layers"};
    double seconds[BENCH_RATES_MODELS][ROUNDS][BENCH_RATES_PASSES];
    for (int round = 0; round < ROUNDS; round++) {
        for (int m = 0; m < BENCH_RATES_MODELS; m++) {
            bench_progress_show(&j->context.progress, names[m]);
            if (!time_model(j, &config[m], seconds[m][round], &bytes[m]))
                return false;
        }
    }
    for (int m = 0; m < BENCH_RATES_MODELS; m++) {
        for (int i = 0; i < j->report.passes; i++) {
            double of_rounds[ROUNDS];
            for (int round = 0; round < ROUNDS; round++)
                of_rounds[round] = seconds[m][round][i];
            times->seconds[m][i] = median(of_rounds, ROUNDS);
        }
    }
    return true;
}

/* Sets the passes of this rank from the times of all ranks. */
static bool fit(job *j, const tsr_model_config config[BENCH_RATES_MODELS], bench_rates_times *own)
{
    const tsr_model_config *whole = &config[BENCH_RATES_WHOLE], *part = &config[BENCH_RATES_PART];
    const bench_rates_size whole_size = {block_elements(whole), head_elements(whole)},
                           part_size = {block_elements(part), head_elements(part)};
    bench_rates_times mean;
    bool is_prompt;
    int noisy;
    bench_rates_times *all = cli_alloc((size_t)j->report.ranks, sizeof *all);
    snprintf(own->device, sizeof own->device, "%s", j->own.device);
    const bool gathered = bench_passed(
        of(j), tsr_comm_all_gather(j->comm, own, all, sizeof *own, TSR_U8), "tsr_comm_all_gather");
    if (gathered)
        bench_rates_average(j->report.ranks, all, j->rank, j->report.passes, &mean);
    free(all);
    if (!gathered)
        return false;
    for (int i = 0; i < j->report.passes; i++)
        j->own.pass[i].rows = rows_of(j, i, &is_prompt);
    if (!bench_rates_fit(&mean, &whole_size, &part_size, j->report.passes, j->own.pass, &noisy))
        cli_say(
            "bench rates: warning: on rank %d a pass of %lld rows takes %g ms with %d layers and "
            "%g ms with %d; with parts of them, %g and %g ms; measure longer (--time), without "
            "other programs",
            j->rank, (long long)j->own.pass[noisy].rows,
            mean.seconds[BENCH_RATES_WHOLE][noisy] * 1e3, BENCH_RATES_FEW_LAYERS,
            mean.seconds[BENCH_RATES_DEEP_WHOLE][noisy] * 1e3, BENCH_RATES_MANY_LAYERS,
            mean.seconds[BENCH_RATES_PART][noisy] * 1e3,
            mean.seconds[BENCH_RATES_DEEP_PART][noisy] * 1e3);
    return true;
}

static bool measure_all(job *j)
{
    double bytes[BENCH_RATES_MODELS];
    tsr_model_config config[BENCH_RATES_MODELS];
    bench_rates_times own = {0};
    for (int m = 0; m < BENCH_RATES_MODELS; m++)
        config[m] = config_of(&j->report.config, m);
    if (!time_models(j, config, &own, bytes))
        return false;
    j->report.element_bytes = (bytes[BENCH_RATES_DEEP_WHOLE] - bytes[BENCH_RATES_WHOLE]) /
                              (BENCH_RATES_MANY_LAYERS - BENCH_RATES_FEW_LAYERS) /
                              block_elements(&config[BENCH_RATES_WHOLE]);
    bench_progress_show(&j->context.progress, "collectives");
    if (!measure_collective(j) || !fit(j, config, &own))
        return false;
    j->report.rank = cli_alloc((size_t)j->report.ranks, sizeof *j->report.rank);
    BENCH_TRY(of(j), tsr_comm_all_gather(j->comm, &j->own, j->report.rank, sizeof j->own, TSR_U8));
    return true;
}

static void close_job(job *j)
{
    free(j->report.rank);
    tsr_tensor_destroy(&j->tensor);
    tsr_generator_destroy(&j->generator);
    tsr_model_close(&j->model);
    tsr_group_destroy(&j->all);
    tsr_group_destroy(&j->alone);
    bench_finish(&j->context);
    tsr_comm_destroy(&j->comm);
}

static void write_report(void *user, bench_format format, FILE *out)
{
    bench_rates_write(user, format, out);
}

int bench_rates_run(bench_rates_options *options)
{
    job *j = cli_alloc(1, sizeof *j);
    int code = CLI_DONE;
    j->options = options;
    j->context.options = &j->harness;
    bool done = open_job(j);
    if (done && j->rank == 0)
        bench_progress_begin(&j->context.progress);
    done = done && measure_all(j);
    bench_progress_end(&j->context.progress);
    if (!done)
        code = cli_failed("bench rates: %s", j->context.error);
    else if (j->rank == 0)
        code = bench_destination_write("bench rates", &options->to, write_report, &j->report);
    close_job(j);
    free(j);
    return code;
}
