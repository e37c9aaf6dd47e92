/* tessera generate: opens a model on all ranks, and continues prompts with it. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/generate/generate.h"
#include "cli/lib/memory.h"
#include "cli/lib/stages.h"
#include "cli/lib/terminal.h"

#define EXIT_INTERRUPTED 130 /* as a shell reports a program that SIGINT has ended */

typedef struct job {
    tsr_comm *comm;
    tsr_comm *stages; /* the ranks with the same place in all stages; NULL: one stage */
    tsr_device *device;
    tsr_stream *stream;
    tsr_group *group;
    tsr_model *model;
    tsr_generator *generator;
    tsr_tokenizer *tokenizer; /* NULL: there is none */
    generate_result results[GENERATE_MAX_PROMPTS];
    int sequences[GENERATE_MAX_PROMPTS];
    bool first; /* this is rank 0, which prints */
    bool interrupted;
    char problem[160]; /* with the options, which the library does not know; "": none */
} job;

/* Interrupts ----------------------------------------------------------------------------------- */

static tsr_generator *interruptible;

static void on_signal(int signal)
{
    (void)signal;
    tsr_generator_interrupt(interruptible);
}

/* The first signal ends generating at the next token. A second one ends the process. */
static void catch_signals(tsr_generator *generator)
{
    static const int signals[] = {SIGINT, SIGTERM};
    struct sigaction action = {.sa_handler = generator != NULL ? on_signal : SIG_DFL};
    action.sa_flags = generator != NULL ? (int)SA_RESETHAND : 0;
    if (generator != NULL)
        interruptible = generator;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction before;
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
    if (generator == NULL)
        interruptible = NULL;
}

/* Opening -------------------------------------------------------------------------------------- */

static void show_progress(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    int *shown = user;
    const int percent = total_bytes > 0 ? (int)((double)done_bytes / (double)total_bytes * 100) : 0;
    if (percent == *shown)
        return;
    *shown = percent;
    fprintf(stderr, "\rreading weights: %d %%%s", percent, percent == 100 ? "\r\033[K" : "");
    fflush(stderr);
}

static tsr_status open_model(job *j)
{
    const generate_options *o = &generate_chosen;
    int shown = -1;
    tsr_model_params params = {.group = j->group, .stages = j->stages, .dtype = o->dtype};
    if (o->rates.count > 0)
        params.partition =
            (tsr_partition_params){.kind = TSR_PARTITION_WEIGHTED, .rates = o->rates.values};
    if (j->first && isatty(STDERR_FILENO)) {
        params.progress = show_progress;
        params.user = &shown;
    }
    return tsr_model_open(o->model, &params, &j->model);
}

static tsr_status create_groups(job *j)
{
    const int stages = (int)generate_chosen.stages, ranks = tsr_comm_size(j->comm);
    if (!cli_stages_fit(stages, ranks, j->problem, sizeof j->problem) ||
        !cli_rates_fit(&generate_chosen.rates, ranks / stages, j->problem, sizeof j->problem))
        return TSR_ERR_INVALID;
    const tsr_group_params params = {.wire = generate_chosen.wire};
    return cli_stages_create(j->comm, stages, j->stream, &params, &j->group, &j->stages);
}

static tsr_status open_job(job *j)
{
    const generate_options *o = &generate_chosen;
    tsr_status status =
        tsr_comm_create(tsr_comm_params(.timeout_ns = (uint64_t)(o->timeout * 1e9)), &j->comm);
    if (status == TSR_OK) {
        j->first = tsr_comm_rank(j->comm) == 0;
        status = tsr_device_open(&(tsr_device_params){.device = o->device}, &j->device);
    }
    if (status == TSR_OK)
        status = tsr_stream_create(j->device, &j->stream);
    if (status == TSR_OK)
        status = create_groups(j);
    return status;
}

static void close_job(job *j)
{
    catch_signals(NULL);
    tsr_generator_destroy(&j->generator);
    tsr_tokenizer_destroy(&j->tokenizer);
    tsr_model_close(&j->model);
    tsr_group_destroy(&j->group);
    tsr_stream_destroy(&j->stream);
    tsr_device_close(&j->device);
    tsr_comm_destroy(&j->stages);
    tsr_comm_destroy(&j->comm);
    for (int i = 0; i < GENERATE_MAX_PROMPTS; i++)
        generate_result_finish(&j->results[i]);
}

/* Generating ----------------------------------------------------------------------------------- */

static void keep_logits(void *user, int sequence, int64_t position, const float *logits)
{
    job *j = user;
    (void)position;
    for (int i = 0; i < generate_chosen.prompt_count; i++)
        if (j->sequences[i] == sequence)
            generate_result_add_logits(&j->results[i], tsr_model_get_config(j->model)->vocabulary,
                                       logits);
}

/* Returns the length that the longest sequence needs, within the model's context. */
static int64_t context_needed(const job *j)
{
    const int64_t largest = tsr_model_get_config(j->model)->context;
    int64_t needed = 1;
    for (int i = 0; i < generate_chosen.prompt_count; i++)
        if (generate_chosen.prompts[i].count > needed)
            needed = generate_chosen.prompts[i].count;
    return needed + generate_chosen.max_tokens < largest ? needed + generate_chosen.max_tokens
                                                         : largest;
}

static tsr_status create_generator(job *j)
{
    const generate_options *o = &generate_chosen;
    return tsr_generator_create(
        tsr_generator_params(.model = j->model, .sequences = o->prompt_count,
                             .context = o->context > 0 ? o->context : context_needed(j),
                             .cache_dtype = o->cache_dtype, .prefill = o->prefill,
                             .logits = keep_logits, .user = j, .logits_positions = o->logits,
                             .omit_log_probabilities = !o->json),
        &j->generator);
}

static tsr_status begin_text(const job *j, const generate_prompt *prompt, generate_text *text)
{
    tsr_status status = generate_text_begin(text, j->tokenizer);
    for (int64_t i = 0; status == TSR_OK && i < prompt->count; i++)
        status = generate_text_add_prompt(text, j->tokenizer, prompt->ids[i]);
    return status;
}

static tsr_status add_prompts(job *j)
{
    const generate_options *o = &generate_chosen;
    tsr_sampling_params sampling = {.seed = (uint64_t)o->seed,
                                    .temperature = o->temperature,
                                    .top_k = o->top_k,
                                    .top_p = o->top_p,
                                    .min_p = o->min_p,
                                    .repetition_penalty = o->repetition_penalty};
    int32_t end[GENERATE_MAX_END_TOKENS];
    const int end_count =
        o->ignore_end ? 0 : generate_end_tokens(j->tokenizer, GENERATE_MAX_END_TOKENS, end);
    if (o->greedy)
        sampling.temperature = 0;
    for (int i = 0; i < o->prompt_count; i++) {
        const generate_prompt *prompt = &o->prompts[i];
        generate_result *result = &j->results[i];
        tsr_status status = tsr_generator_add(
            j->generator,
            tsr_sequence_params(.prompt = prompt->ids, .prompt_count = prompt->count,
                                .sampling = sampling, .number = (uint64_t)i,
                                .max_tokens = o->max_tokens, .ignore_end = o->ignore_end,
                                .stop = end, .stop_count = end_count),
            &j->sequences[i]);
        if (status != TSR_OK)
            return status;
        result->count = result->prompt_count = result->capacity = prompt->count;
        result->ids = cli_alloc((size_t)prompt->count, sizeof *result->ids);
        memcpy(result->ids, prompt->ids, (size_t)prompt->count * sizeof *result->ids);
        result->log_probabilities =
            cli_alloc((size_t)prompt->count, sizeof *result->log_probabilities);
        if ((status = begin_text(j, prompt, &result->text)) != TSR_OK)
            return status;
    }
    return TSR_OK;
}

/* Keeps a token. Sets result->stopped if its text ends the sequence. */
static tsr_status keep(job *j, generate_result *result, const tsr_generated *token)
{
    tsr_status status = TSR_OK;
    generate_result_add(result, token);
    j->interrupted = j->interrupted || token->finish == TSR_FINISH_INTERRUPT;
    if (token->finish != TSR_FINISH_INTERRUPT)
        status = generate_text_add(&result->text, j->tokenizer, token->token, &result->stopped);
    if (status == TSR_OK && token->finish != TSR_FINISH_NONE)
        status = generate_text_end(&result->text);
    return status;
}

/* All ranks have the same tokens, so that they remove the same sequences. */
static tsr_status keep_all(job *j, int count, const tsr_generated *tokens)
{
    for (int t = 0; t < count; t++) {
        for (int i = 0; i < generate_chosen.prompt_count; i++) {
            if (j->sequences[i] != tokens[t].sequence)
                continue;
            tsr_status status = keep(j, &j->results[i], &tokens[t]);
            if (status == TSR_OK && !j->results[i].stopped)
                continue;
            if (status == TSR_OK)
                status = tsr_generator_remove(j->generator, j->sequences[i]);
            if (status != TSR_OK)
                return status;
            j->sequences[i] = -1;
        }
    }
    if (j->first && !generate_chosen.json)
        generate_print_step(j->tokenizer, generate_chosen.prompt_count, j->results);
    return TSR_OK;
}

static tsr_status generate(job *j)
{
    tsr_generated tokens[GENERATE_MAX_PROMPTS];
    for (;;) {
        int count = 0;
        tsr_status status = tsr_generator_step(j->generator, tokens, &count);
        if (status == TSR_OK && count > 0)
            status = keep_all(j, count, tokens);
        if (status != TSR_OK || count == 0)
            return status;
    }
}

static tsr_status run_job(job *j)
{
    tsr_status status = generate_text_open(&j->tokenizer);
    if (status == TSR_OK)
        status = open_job(j);
    if (status == TSR_OK)
        status = open_model(j);
    if (status == TSR_OK)
        status = create_generator(j);
    if (status == TSR_OK)
        status = add_prompts(j);
    if (status != TSR_OK)
        return status;
    catch_signals(j->generator);
    return generate(j);
}

static void print_result(const job *j)
{
    generate_summary summary = {.model = j->model,
                                .device = tsr_device_get_info(j->device),
                                .tokenizer = j->tokenizer,
                                .ranks = tsr_comm_size(j->comm)};
    tsr_generator_get_stats(j->generator, &summary.stats);
    if (generate_chosen.json)
        generate_print_json(&summary, generate_chosen.prompt_count, j->results);
}

static int run(int argc, char **argv)
{
    int code = generate_options_read(argc, argv);
    if (code != CLI_DONE)
        return code;
    job *j = cli_alloc(1, sizeof *j);
    const tsr_status status = run_job(j);
    if (status != TSR_OK)
        code = cli_failed("generate: %s", j->problem[0] != '\0' ? j->problem : tsr_last_error());
    else if (j->first)
        print_result(j);
    if (status == TSR_OK && j->interrupted)
        code = EXIT_INTERRUPTED;
    close_job(j);
    free(j);
    return code;
}

static void help(FILE *out)
{
    cli_wrap(
        out,
        "Continues a prompt with a language model: a Hugging Face folder (config.json and "
        "safetensors) or a GGUF file. Under 'tessera launch -n N' or a cluster's launcher, the "
        "ranks divide the model, and the first one prints.\n");
    cli_options_help(out, generate_option_table);
}

const cli_command cli_generate = {
    .name = "generate",
    .usage = "MODEL --prompt TEXT [options]",
    .summary = "continue a text with a language model",
    .run = run,
    .help = help,
};
