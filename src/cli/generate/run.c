/* tessera generate: continues prompts with a model. */
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/generate/generate.h"
#include "cli/lib/memory.h"
#include "cli/lib/terminal.h"

typedef struct job {
    inference_job base;
    tsr_generator *generator;
    tsr_tokenizer *tokenizer; /* NULL: the model has no tokenizer */
    tsr_grammar *grammar;     /* NULL: any text */
    tsr_grammar_state *start; /* of the grammar */
    generate_result results[GENERATE_MAX_PROMPTS];
    int sequences[GENERATE_MAX_PROMPTS];
    bool interrupted;
} job;

static void close_job(job *j)
{
    inference_catch_signals(NULL);
    tsr_generator_destroy(&j->generator);
    tsr_grammar_state_destroy(&j->start);
    tsr_grammar_destroy(&j->grammar);
    tsr_tokenizer_close(&j->tokenizer);
    inference_close(&j->base);
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
            generate_result_add_logits(&j->results[i],
                                       tsr_model_get_config(j->base.model)->vocabulary, logits);
}

/* Returns the length that the longest sequence needs. */
static int64_t context_needed(void)
{
    int64_t needed = 1;
    for (int i = 0; i < generate_chosen.prompt_count; i++)
        if (generate_chosen.prompts[i].count > needed)
            needed = generate_chosen.prompts[i].count;
    return needed + inference_chosen.max_tokens;
}

static tsr_status create_generator(job *j)
{
    const inference_options *o = &inference_chosen;
    return tsr_generator_create(
        tsr_generator_params(.model = j->base.model, .sequences = generate_chosen.prompt_count,
                             .context = j->base.context, .cache_dtype = o->cache_dtype,
                             .prefill = o->prefill, .logits = keep_logits, .user = j,
                             .logits_positions = generate_chosen.logits,
                             .log_probabilities = generate_chosen.json, .draft = o->draft.of.from,
                             .draft_tokens = o->draft.of.tokens, .draft_model = j->base.draft_model,
                             .rejection_sampling = o->draft.rejection),
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
    const tsr_sampling_params sampling = inference_sampling();
    int32_t end[INFERENCE_MAX_END_TOKENS];
    const int end_count =
        o->ignore_end ? 0 : inference_end_tokens(j->tokenizer, INFERENCE_MAX_END_TOKENS, end);
    for (int i = 0; i < o->prompt_count; i++) {
        const generate_prompt *prompt = &o->prompts[i];
        generate_result *result = &j->results[i];
        tsr_status status = tsr_generator_add(
            j->generator,
            tsr_sequence_params(.prompt = prompt->ids, .prompt_count = prompt->count,
                                .sampling = &sampling, .number = (uint64_t)i,
                                .max_tokens = inference_chosen.max_tokens,
                                .ignore_end = o->ignore_end, .stop = end, .stop_count = end_count,
                                .grammar = j->start),
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
    if (token->token >= 0)
        status = generate_text_add(&result->text, j->tokenizer, token->token, &result->stopped);
    if (status == TSR_OK && token->finish != TSR_FINISH_NONE)
        status = generate_text_end(&result->text);
    return status;
}

/* Stores and prints the tokens that one step has generated. All ranks get the same tokens, so they
 * end the same sequences without a message. Sets *ended if standard output cannot be written any
 * more. */
static tsr_status keep_all(job *j, int count, bool *ended)
{
    for (int t = 0; t < count; t++) {
        const tsr_generated *token = tsr_generator_token(j->generator, t);
        for (int i = 0; i < generate_chosen.prompt_count; i++) {
            if (j->sequences[i] != token->sequence)
                continue;
            tsr_status status = keep(j, &j->results[i], token);
            if (status == TSR_OK && !j->results[i].stopped)
                continue;
            if (status == TSR_OK)
                status = tsr_generator_remove(j->generator, j->sequences[i]);
            if (status != TSR_OK)
                return status;
            j->sequences[i] = -1;
        }
    }
    if (j->base.first && !generate_chosen.json)
        *ended = !generate_print_step(j->tokenizer, generate_chosen.prompt_count, j->results);
    return TSR_OK;
}

static tsr_status generate(job *j)
{
    for (bool ended = false;;) {
        int count = 0;
        tsr_status status = tsr_generator_step(j->generator, &count);
        if (status == TSR_OK && count > 0)
            status = keep_all(j, count, &ended);
        if (status != TSR_OK || count == 0 || ended)
            return status;
    }
}

static tsr_status run_job(job *j)
{
    tsr_status status = generate_text_open(&j->tokenizer);
    if (status == TSR_OK)
        status = inference_open(&j->base, context_needed(), 0, generate_chosen.prompt_count);
    if (status == TSR_OK)
        status = generate_check_stops(j->base.comm, j->base.problem, sizeof j->base.problem);
    if (status == TSR_OK)
        status = inference_read_grammar(j->tokenizer, &generate_chosen.grammar, NULL, &j->grammar,
                                        j->base.problem, sizeof j->base.problem);
    if (status == TSR_OK && j->grammar != NULL)
        status = tsr_grammar_state_create(j->grammar, NULL, &j->start);
    if (status == TSR_OK)
        status = create_generator(j);
    if (status == TSR_OK)
        status = add_prompts(j);
    if (status != TSR_OK)
        return status;
    inference_catch_signals(j->generator);
    return generate(j);
}

static void print_result(const job *j)
{
    generate_summary summary = {.model = j->base.model,
                                .device = tsr_device_get_info(j->base.device),
                                .tokenizer = j->tokenizer,
                                .ranks = tsr_comm_size(j->base.comm),
                                .stats = TSR_INIT(tsr_generator_stats)};
    (void)!tsr_generator_get_stats(j->generator, &summary.stats);
    if (generate_chosen.json)
        generate_print_json(&summary, generate_chosen.prompt_count, j->results);
    else
        generate_note_ends(j->base.context, generate_chosen.prompt_count, j->results);
    if (generate_chosen.stats)
        generate_print_stats(&summary);
}

static int generate_and_print(job *j)
{
    const tsr_status status = run_job(j);
    if (status != TSR_OK)
        return cli_failed_in("generate", inference_problem(&j->base));
    if (j->base.first)
        print_result(j);
    return j->interrupted ? INFERENCE_INTERRUPTED : CLI_DONE;
}

static int run(int argc, char **argv)
{
    int code = generate_options_read(argc, argv);
    if (code != CLI_DONE)
        return code;
    job *j = cli_alloc(1, sizeof *j);
    code = generate_read_input(&j->base);
    if (code == CLI_DONE)
        code = generate_and_print(j);
    /* Say this now: when this rank has closed its communicator, the other ranks fail, and the
     * launcher may end this process. */
    code = cli_end_output(code);
    close_job(j);
    free(j);
    generate_free_input();
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
    .usage = "MODEL [--prompt TEXT] [options]",
    .summary = "continue a text with a language model",
    .run = run,
    .help = help,
};
