/* Opens a model on all ranks of the job, verifies it, and measures. */
#include "bench/model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/clock.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

#define SEED 1
#define VERIFIED_PROMPT INT64_C(16)
#define VERIFIED_TOKENS INT64_C(8)
/* Seconds for one measurement of the memory ceiling. */
#define CEILING_SECONDS 0.3

typedef struct job {
    bench_model_options *options;
    bench_options harness;
    bench_context context;
    tsr_comm *comm;
    tsr_group *group;
    tsr_group *contexts;  /* those that divide sequences with this rank; NULL: none */
    tsr_comm *stages;     /* the ranks with the same place in all stages; NULL: one stage */
    tsr_model_file *file; /* until the model is open */
    tsr_model *model;
    tsr_group *draft_group;
    tsr_model *draft_model; /* of --draft; NULL: this rank has none */
    tsr_generator *generator;
    int rank;
    int32_t *prompt; /* [prompt_tokens, or more] */
    int32_t *tokens; /* [sequences][most_tokens]: what the first run has generated; later runs must
                      * generate the same */
    int64_t most_tokens;
    int *numbers; /* [sequences]: their numbers in the generator */
    bench_model_rank own;
    bench_model_report report;
    /* What progress shows: the test and its repetition. */
    char doing[96];
    /* The times of a token of a prompt and of a generated one, in seconds, as the second
     * verification has measured them. They predict how long the tests take. */
    double prompt_token, generated_token;
} job;

static bench_context *of(job *j)
{
    return &j->context;
}

/* Opening -------------------------------------------------------------------------------------- */

static void name_model(job *j)
{
    const bench_model_options *o = j->options;
    char *name = j->report.name;
    const size_t size = sizeof j->report.name;
    if (o->path == NULL) {
        snprintf(name, size, "%s %s, generated", o->shape->name, tsr_dtype_name(o->type));
        return;
    }
    size_t length = strlen(o->path);
    while (length > 1 && o->path[length - 1] == '/')
        length--;
    size_t start = length;
    while (start > 0 && o->path[start - 1] != '/')
        start--;
    snprintf(name, size, "%.*s", (int)(length - start), o->path + start);
}

/* Sets the context and the number of sequences that the most demanding test needs. */
static void count_cache(const bench_model_options *o, tsr_model_params *params)
{
    const int64_t generated = o->generate > 0 ? o->generate + 1 : 1;
    const bool generates = generated * o->sequences > o->prompt_tokens;
    params->context = generates ? generated : o->prompt_tokens;
    params->sequences = generates ? (int)o->sequences : 1;
    params->cache_dtype = o->cache_dtype;
}

/* Refuses a test that needs more positions than a model with learned positions has. If the model
 * has no learned positions, only notes that the test needs more tokens than the model was made for;
 * its rates are valid all the same. */
static bool check_context(job *j, const char *option, int64_t value, int64_t needed,
                          const tsr_model_config *config)
{
    if (value == 0 || needed <= config->context)
        return true;
    if (config->learned_positions)
        return bench_fail(of(j),
                          "%s %" PRId64 " needs a context of %" PRId64
                          ", but the model has learned %" PRId64 " positions",
                          option, value, needed, config->context);
    if (j->rank == 0)
        cli_say("bench model: %s %" PRId64 " needs a context of %" PRId64
                ", but the model was made for %" PRId64 "; it is measured anyway",
                option, value, needed, config->context);
    return true;
}

/* Checks the tests' lengths before the model is opened. Ignores errors in the model's files:
 * opening the model reports them on all ranks. */
static bool check_contexts(job *j)
{
    const bench_model_options *o = j->options;
    const tsr_model_config *config = tsr_model_file_config(j->file);
    if (config == NULL)
        return true;
    return check_context(j, "--prompt-tokens", o->prompt_tokens, o->prompt_tokens, config) &&
           check_context(j, "--generate", o->generate, o->generate + 1, config);
}

/* Opens the model's files, or makes a random model. */
static bool open_file(job *j)
{
    const bench_model_options *o = j->options;
    const tsr_status status =
        o->path != NULL ? tsr_model_file_open(o->path, &j->file)
                        : tsr_model_file_open_random(&o->shape->config, o->type, SEED, &j->file);
    return bench_passed(of(j), status,
                        o->path != NULL ? "tsr_model_file_open" : "tsr_model_file_open_random");
}

static void show_opening(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    job *j = user;
    char text[sizeof j->report.name + 32];
    const double fraction = total_bytes > 0 ? (double)done_bytes / (double)total_bytes : 0;
    snprintf(text, sizeof text, "%s: %.0f %% of its weights", j->report.name, 100 * fraction);
    bench_progress_show(&j->context.progress, text);
}

static bool open_model(job *j)
{
    bench_model_options *o = j->options;
    tsr_model_params params = {.struct_size = sizeof params,
                               .group = j->group,
                               .stages = j->stages,
                               .dtype = o->dtype,
                               .context_group = j->contexts};
    params.progress = show_opening;
    params.user = j;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    count_cache(o, &params);
    params.draft_tokens = o->draft.tokens;
    params.next_token = o->draft.from == TSR_DRAFT_MTP;
    cli_stages_divide(&o->stages, j->comm, &params);
    if (j->file == NULL) {
        /* This rank has reported its error. It takes part, so that the others fail, too. */
        const tsr_status status = tsr_model_open(NULL, &params, &j->model);
        return status == TSR_OK;
    }
    name_model(j);
    if (j->rank == 0)
        bench_progress_begin(&j->context.progress, stderr, isatty(STDERR_FILENO));
    bench_progress_show(&j->context.progress,
                        o->path != NULL ? "opening the model" : "generating the model");
    BENCH_TRY(of(j), tsr_model_open(j->file, &params, &j->model));
    tsr_model_file_close(&j->file);
    BENCH_TRY(of(j), tsr_model_get_stats(j->model, &stats));
    j->report.config = tsr_model_get_config(j->model);
    j->report.dtype = stats.dtype;
    j->report.parameters = stats.parameters;
    j->own.heads = stats.heads;
    j->own.kv_heads = stats.kv_heads;
    j->own.first_layer = stats.first_layer;
    j->own.layers = stats.layers;
    j->own.weight_bytes = stats.weight_bytes;
    j->own.table_bytes = stats.table_bytes;
    j->own.open_ns = stats.open_ns;
    snprintf(j->own.device, sizeof j->own.device, "%s", j->context.info->name);
    return true;
}

/* Opens the model of --draft on the rank that chooses the tokens: rank 0 of the last stage. */
static bool open_draft(job *j)
{
    const bench_model_options *o = j->options;
    const bool last = j->stages == NULL || tsr_comm_rank(j->stages) == tsr_comm_size(j->stages) - 1;
    tsr_model_file *file = NULL;
    if (o->draft.from != TSR_DRAFT_MODEL || !last || tsr_group_rank(j->group) != 0)
        return true;
    BENCH_TRY(of(j), tsr_group_create(NULL, j->context.stream, NULL, &j->draft_group));
    BENCH_TRY(of(j), tsr_model_file_open(o->draft.path, &file));
    const tsr_status status =
        tsr_model_open(file, tsr_model_params(.group = j->draft_group), &j->draft_model);
    tsr_model_file_close(&file);
    return bench_passed(of(j), status, "tsr_model_open");
}

static bool open_job(job *j)
{
    bench_model_options *o = j->options;
    BENCH_TRY(of(j), tsr_comm_create(tsr_comm_params(.timeout_ns = (uint64_t)(o->timeout * 1e9)),
                                     &j->comm));
    j->rank = tsr_comm_rank(j->comm);
    j->report.ranks = tsr_comm_size(j->comm);
    if (!bench_open_device(of(j), o->device))
        return false;
    if (!cli_stages_fit(&o->stages, j->report.ranks, j->context.error, sizeof j->context.error))
        return false;
    BENCH_TRY(of(j), cli_stages_create(
                         &o->stages, j->comm, j->context.stream,
                         tsr_group_params(.allow_int8 = o->allow_int8, .precision = o->precision),
                         &j->group, &j->stages, &j->contexts));
    const bool has_file = open_file(j);
    return check_contexts(j) && open_model(j) && has_file && open_draft(j);
}

static void close_job(job *j)
{
    for (int i = 0; i < j->report.test_count; i++) {
        free(j->report.tests[i].seconds);
        free(j->report.tests[i].communication);
    }
    free(j->report.rank);
    free(j->prompt);
    free(j->tokens);
    free(j->numbers);
    free(j->options->draft.path);
    tsr_generator_destroy(&j->generator);
    tsr_model_close(&j->draft_model);
    tsr_model_close(&j->model);
    tsr_model_file_close(&j->file);
    tsr_group_destroy(&j->draft_group);
    tsr_group_destroy(&j->contexts);
    tsr_group_destroy(&j->group);
    tsr_comm_destroy(&j->stages);
    bench_finish(&j->context);
    tsr_comm_destroy(&j->comm);
}

/* Makes the same prompt on all ranks. */
static bool make_prompt(job *j)
{
    const int64_t vocabulary = j->report.config->vocabulary;
    const int64_t wanted = j->options->prompt_tokens;
    const int64_t count = wanted > VERIFIED_PROMPT ? wanted : VERIFIED_PROMPT;
    tsr_rng rng;
    BENCH_TRY(of(j), tsr_rng_init(TSR_RNG_PHILOX, SEED, 1, &rng));
    j->prompt = cli_alloc((size_t)count, sizeof *j->prompt);
    for (int64_t i = 0; i < count; i++)
        j->prompt[i] = (int32_t)(tsr_rng_next_u64(&rng) % (uint64_t)vocabulary);
    const size_t sequences = (size_t)j->options->sequences;
    j->most_tokens = j->options->generate + VERIFIED_TOKENS + 1;
    j->tokens = cli_alloc(sequences * (size_t)j->most_tokens, sizeof *j->tokens);
    j->numbers = cli_alloc(sequences, sizeof *j->numbers);
    return true;
}

/* Verifying ------------------------------------------------------------------------------------ */

typedef struct logits_seen {
    int64_t vocabulary, rows;
    int64_t wrong_at; /* the position of logits that are not finite or all equal; −1: none */
} logits_seen;

static void look_at(void *user, int sequence, int64_t position, const float *logits)
{
    logits_seen *seen = user;
    bool finite = true, differ = false;
    (void)sequence;
    for (int64_t i = 0; i < seen->vocabulary; i++) {
        finite = finite && isfinite(logits[i]);
        differ = differ || logits[i] != logits[0];
    }
    seen->rows++;
    if (seen->wrong_at < 0 && (!finite || !differ))
        seen->wrong_at = position;
}

static bool generator_for(job *j, int sequences, int64_t context, bool drafts, logits_seen *seen)
{
    const bench_model_options *o = j->options;
    tsr_generator_destroy(&j->generator);
    BENCH_TRY(of(j), tsr_generator_create(
                         tsr_generator_params(.model = j->model, .sequences = sequences,
                                              .context = context, .cache_dtype = o->cache_dtype,
                                              .prefill = o->prefill,
                                              .draft = drafts ? o->draft.from : TSR_DRAFT_NONE,
                                              .draft_tokens = drafts ? o->draft.tokens : 0,
                                              .draft_model = drafts ? j->draft_model : NULL,
                                              .logits = seen != NULL ? look_at : NULL, .user = seen,
                                              .logits_positions = seen != NULL ? context : 0),
                         &j->generator));
    return true;
}

/* Adds all sequences to the generator. Each begins with the first tokens of the prompt; the most
 * likely token follows each time. */
static bool add(job *j, int sequences, int64_t prompt_count, int64_t max_tokens)
{
    for (int i = 0; i < sequences; i++)
        BENCH_TRY(of(j), tsr_generator_add(
                             j->generator,
                             tsr_sequence_params(.prompt = j->prompt, .prompt_count = prompt_count,
                                                 .max_tokens = max_tokens, .ignore_end = true),
                             &j->numbers[i]));
    return true;
}

static bool remove_all(job *j, int sequences)
{
    for (int i = 0; i < sequences; i++)
        BENCH_TRY(of(j), tsr_generator_remove(j->generator, j->numbers[i]));
    return true;
}

/* Generates tokens number first … first + count − 1 of each sequence. If `keep`, they are stored;
 * otherwise they must equal the stored ones. */
static bool steps(job *j, int sequences, int64_t first, int64_t count, bool keep)
{
    for (int64_t i = first; i < first + count; i++) {
        int given;
        bench_progress_show(&j->context.progress, j->doing);
        BENCH_TRY(of(j), tsr_generator_step(j->generator, &given));
        if (given != sequences)
            return bench_fail(of(j), "a sequence ended after %lld tokens", (long long)i);
        for (int s = 0; s < sequences; s++) {
            int32_t *kept = &j->tokens[s * j->most_tokens + i];
            const int32_t got = tsr_generator_token(j->generator, s)->token;
            if (keep)
                *kept = got;
            else if (*kept != got)
                return bench_fail(of(j),
                                  "token %lld of sequence %d is %d, but it was %d in the first run",
                                  (long long)i, s, (int)got, (int)*kept);
        }
    }
    return true;
}

static bool verify(job *j)
{
    const int64_t context = j->report.config->context;
    const int64_t prompt = context > 2 * VERIFIED_PROMPT ? VERIFIED_PROMPT : 1;
    const int64_t tokens = context > 2 * VERIFIED_PROMPT ? VERIFIED_TOKENS : 1;
    logits_seen seen = {.vocabulary = j->report.config->vocabulary, .wrong_at = -1};
    if (!generator_for(j, 1, prompt + tokens, false, &seen))
        return false;
    snprintf(j->doing, sizeof j->doing, "verifying");
    for (int run = 0; run < 2; run++) {
        seen.rows = 0;
        const double start = bench_now_ns();
        if (!add(j, 1, prompt, tokens) || !steps(j, 1, 0, 1, run == 0))
            return false;
        const double prompt_end = bench_now_ns();
        if (!steps(j, 1, 1, tokens - 1, run == 0) || !remove_all(j, 1))
            return false;
        j->prompt_token = (prompt_end - start) * 1e-9 / (double)prompt;
        j->generated_token = tokens > 1
                                 ? (bench_now_ns() - prompt_end) * 1e-9 / (double)(tokens - 1)
                                 : j->prompt_token;
        if (seen.wrong_at >= 0 || seen.rows != prompt + tokens - 1)
            return bench_fail(of(j), "the logits at position %lld are not finite, or all equal",
                              (long long)seen.wrong_at);
    }
    return true;
}

/* Measuring ------------------------------------------------------------------------------------ */

static bool barrier(job *j)
{
    BENCH_TRY(of(j), tsr_comm_barrier(j->comm, NULL));
    return true;
}

/* Returns how long generating is expected to take, all repetitions together. */
static double generation_seconds(const job *j)
{
    const bench_model_options *o = j->options;
    return j->generated_token * (double)(o->generate * (o->repetitions + 1));
}

/* Runs a test once. Gives the time and how long this rank waited for others. */
static bool repeat(job *j, const bench_model_test *test, bool keep, double *seconds, double *waited)
{
    const int64_t prompt = test->generates ? 1 : test->tokens;
    const int sequences = test->sequences;
    const int64_t first = test->generates ? 1 : 0,
                  count = test->generates ? test->tokens / sequences : 1;
    tsr_group_stats stats = TSR_INIT(tsr_group_stats);
    if (!add(j, sequences, prompt, first + count) || !steps(j, sequences, 0, first, keep) ||
        !barrier(j))
        return false;
    tsr_group_reset_stats(j->group);
    const double start = bench_now_ns();
    if (!steps(j, sequences, first, count, keep))
        return false;
    *seconds = (bench_now_ns() - start) * 1e-9;
    BENCH_TRY(of(j), tsr_group_get_stats(j->group, &stats));
    *waited = (double)stats.transport_ns * 1e-9;
    return remove_all(j, sequences);
}

/* Collects `size` bytes of each rank in `all`, on all ranks. */
static bool gather(job *j, const void *own, void *all, size_t size)
{
    BENCH_TRY(of(j), tsr_comm_all_gather(j->comm, own, all, size, TSR_U8, NULL));
    return true;
}

/* Shows a test's repetition `i`, where −1 is the one that is not timed. `seconds` is the expected
 * time of a repetition. */
static void show_repetition(job *j, const bench_model_test *test, int i, double seconds)
{
    const bench_model_options *o = j->options;
    const double later = test->generates ? 0 : generation_seconds(j);
    if (i < 0)
        snprintf(j->doing, sizeof j->doing, "measuring %s, first without timing it", test->name);
    else
        snprintf(j->doing, sizeof j->doing, "measuring %s, repetition %d of %d", test->name, i + 1,
                 test->count);
    bench_progress_expect(&j->context.progress, seconds * (double)(o->repetitions - i) + later);
    bench_progress_show(&j->context.progress, j->doing);
}

static bool measure_passes(job *j, bool generates, bool drafts, int64_t tokens)
{
    bench_model_test *test = &j->report.tests[j->report.test_count++];
    const int count = (int)j->options->repetitions,
              sequences = generates ? (int)j->options->sequences : 1;
    double waited = 0, all = 0, one_waited, one;
    *test = (bench_model_test){.generates = generates,
                               .drafts = drafts,
                               .tokens = tokens * sequences,
                               .sequences = sequences,
                               .count = count,
                               .seconds = cli_alloc((size_t)count, sizeof(double)),
                               .communication = cli_alloc((size_t)j->report.ranks, sizeof(double))};
    int used = 0;
    if (sequences > 1)
        used = snprintf(test->name, sizeof test->name, "%dx", sequences);
    snprintf(test->name + used, sizeof test->name - (size_t)used, "%s%lld%s",
             generates ? "tg" : "pp", (long long)tokens, drafts ? "+draft" : "");
    show_repetition(j, test, -1,
                    generates ? j->generated_token * (double)tokens
                              : j->prompt_token * (double)tokens);
    /* A sequence has one token of the prompt, one that is not timed, and the timed ones. The last
     * one needs no room, because it does not go through the model. */
    if (!generator_for(j, sequences, generates ? tokens + 1 : tokens, drafts, NULL) ||
        !repeat(j, test, !drafts, &one, &one_waited))
        return false;
    for (int i = 0; i < count; i++) {
        show_repetition(j, test, i, i > 0 ? test->seconds[i - 1] : one);
        if (!repeat(j, test, false, &test->seconds[i], &one_waited))
            return false;
        all += test->seconds[i];
        waited += one_waited;
    }
    tsr_generator_stats stats = TSR_INIT(tsr_generator_stats);
    BENCH_TRY(of(j), tsr_generator_get_stats(j->generator, &stats));
    test->drafted = stats;
    const double passes = (double)stats.generated_tokens / sequences;
    if (passes > 0) {
        test->submissions = (double)stats.generated_submissions / passes;
        test->waits = (double)stats.generated_waits / passes;
        test->idle_waits = (double)stats.generated_idle_waits / passes;
    }
    const double fraction = waited / all;
    return gather(j, &fraction, test->communication, sizeof fraction);
}

/* All ranks measure their memory's bandwidth at the same time, because devices may share a
 * memory. */
static bool measure_memory(job *j, bool again)
{
    bench_progress_show(&j->context.progress, "measuring the memory's bandwidth");
    if (!barrier(j))
        return false;
    const bench_row *row = bench_memory_peak(of(j));
    for (int i = 0; row != NULL && again && i < j->context.row_count; i++)
        if (j->context.rows[i] == row && !j->context.rows[i]->again(of(j), j->context.rows[i]))
            return false;
    if (row != NULL)
        j->own.memory = bench_median(row) * 1e9;
    return row != NULL;
}

static bool measure_all(job *j)
{
    const bench_model_options *o = j->options;
    bench_progress_expect(&j->context.progress,
                          j->prompt_token * (double)(o->prompt_tokens * (o->repetitions + 1)) +
                              generation_seconds(j));
    if (!measure_memory(j, false) ||
        (o->prompt_tokens > 0 && !measure_passes(j, false, false, o->prompt_tokens)) ||
        (o->generate > 0 && !measure_passes(j, true, false, o->generate)) ||
        (o->generate > 0 && o->draft.from != TSR_DRAFT_NONE &&
         !measure_passes(j, true, true, o->generate)) ||
        !measure_memory(j, true))
        return false;
    j->report.rank = cli_alloc((size_t)j->report.ranks, sizeof *j->report.rank);
    return gather(j, &j->own, j->report.rank, sizeof j->own);
}

/* Kernels -------------------------------------------------------------------------------------- */

/* Runs one step of the generator, and counts its commands if `pass` is not NULL. */
static bool profile_step(job *j, bench_model_kernels *pass, const char *name)
{
    int given;
    if (pass == NULL) {
        BENCH_TRY(of(j), tsr_generator_step(j->generator, &given));
        return true;
    }
    snprintf(pass->name, sizeof pass->name, "%s", name);
    BENCH_TRY(of(j), tsr__stream_profile_begin(j->context.stream));
    BENCH_TRY(of(j), tsr_generator_step(j->generator, &given));
    BENCH_TRY(of(j), tsr__stream_profile_end(j->context.stream, &pass->profile));
    return true;
}

/* Counts the commands of a prompt and of the token after it. The first run builds pipelines and is
 * not counted. All ranks take part, and each counts its own. */
static bool profile_kernels(job *j)
{
    const bench_model_options *o = j->options;
    const tsr_model_config *config = j->report.config;
    int64_t prompt = o->prompt_tokens > 0 ? o->prompt_tokens : 1;
    bench_model_kernels *kernels = j->report.kernels;
    char prompt_name[32], token_name[32];
    if (config->learned_positions && prompt >= config->context)
        prompt = config->context - 1;
    snprintf(prompt_name, sizeof prompt_name, "pp%" PRId64, prompt);
    snprintf(token_name, sizeof token_name, "token after %" PRId64, prompt);
    snprintf(j->doing, sizeof j->doing, "counting the commands of kernels");
    bench_progress_show(&j->context.progress, j->doing);
    if (!generator_for(j, 1, prompt + 1, false, NULL))
        return false;
    for (int run = 0; run < 2; run++) {
        const bool counts = run == 1;
        if (!add(j, 1, prompt, 2) || !profile_step(j, counts ? &kernels[0] : NULL, prompt_name) ||
            !profile_step(j, counts ? &kernels[1] : NULL, token_name) || !remove_all(j, 1))
            return false;
    }
    j->report.kernels_count = 2;
    return true;
}

static void write_report(void *user, bench_format format, FILE *out)
{
    bench_model_write(user, format, out);
}

int bench_model_run(bench_model_options *options)
{
    job *j = cli_alloc(1, sizeof *j);
    int code = CLI_DONE;
    j->options = options;
    j->harness.seconds = CEILING_SECONDS;
    j->context.options = &j->harness;
    bool done = open_job(j) && make_prompt(j) && verify(j) && measure_all(j) &&
                (!options->kernels || profile_kernels(j));
    bench_progress_end(&j->context.progress);
    if (!done)
        code = cli_failed("bench model: %s", j->context.error);
    else if (j->rank == 0)
        code = bench_destination_write("bench model", &options->to, write_report, &j->report);
    close_job(j);
    free(j);
    return code;
}
