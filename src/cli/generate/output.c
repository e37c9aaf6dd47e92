/* Stores the results of tessera generate, and prints them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/generate/generate.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/terminal.h"

void generate_result_add(generate_result *result, const tsr_generated *token)
{
    result->finish = token->finish;
    if (token->token < 0)
        return;
    if (result->count == result->capacity) {
        result->capacity = 2 * result->capacity + 16;
        result->ids = cli_resize(result->ids, (size_t)result->capacity, sizeof *result->ids);
        result->log_probabilities = cli_resize(result->log_probabilities, (size_t)result->capacity,
                                               sizeof *result->log_probabilities);
    }
    result->log_probabilities[result->count - result->prompt_count] = token->log_probability;
    result->ids[result->count++] = token->token;
}

void generate_result_add_logits(generate_result *result, int64_t vocabulary, const float *logits)
{
    const size_t row = (size_t)vocabulary * sizeof *logits;
    if (result->logit_rows == result->logit_capacity) {
        result->logit_capacity = 2 * result->logit_capacity + 4;
        result->logits = cli_resize(result->logits, (size_t)result->logit_capacity, row);
    }
    memcpy((char *)result->logits + (size_t)result->logit_rows * row, logits, row);
    result->logit_rows++;
}

void generate_result_finish(generate_result *result)
{
    free(result->ids);
    free(result->log_probabilities);
    free(result->logits);
    generate_text_finish(&result->text);
    *result = (generate_result){0};
}

/* JSON ----------------------------------------------------------------------------------------- */

static const char *finish_of(const generate_result *result)
{
    return result->stopped ? "stop" : tsr_finish_name(result->finish);
}

static void add_texts(json_t *object, const tsr_tokenizer *tokenizer, const generate_text *text)
{
    if (tokenizer == NULL) {
        cli_json_null(object, "text");
        cli_json_null(object, "generated_text");
        return;
    }
    const char *bytes = text->bytes != NULL ? text->bytes : "";
    cli_json_add(object, "text", json_stringn(bytes, text->size));
    cli_json_add(object, "generated_text",
                 json_stringn(bytes + text->prompt_size, text->size - text->prompt_size));
}

static void add_sequence(json_t *object, const generate_summary *summary,
                         const generate_result *result)
{
    const int64_t vocabulary = tsr_model_get_config(summary->model)->vocabulary;
    json_t *ids = cli_json_add_array(object, "ids");
    for (int64_t i = 0; i < result->count; i++)
        cli_json_append(ids, json_integer(result->ids[i]));
    cli_json_u64(object, "prompt_tokens", (uint64_t)result->prompt_count);
    add_texts(object, summary->tokenizer, &result->text);
    cli_json_add(object, "finish", json_string(finish_of(result)));
    json_t *logs = cli_json_add_array(object, "log_probabilities");
    for (int64_t i = 0; i < result->count - result->prompt_count; i++)
        cli_json_append_real(logs, result->log_probabilities[i]);
    if (generate_chosen.logits == 0)
        return;
    json_t *rows = cli_json_add_array(object, "logits");
    for (int64_t r = 0; r < result->logit_rows; r++) {
        json_t *row = json_array();
        for (int64_t v = 0; v < vocabulary; v++)
            cli_json_append_real(row, (double)result->logits[r * vocabulary + v]);
        cli_json_append(rows, row);
    }
}

static void add_rate(json_t *object, const char *name, uint64_t tokens, uint64_t ns)
{
    if (ns == 0)
        cli_json_null(object, name);
    else
        cli_json_real(object, name, (double)tokens / ((double)ns * 1e-9));
}

static void add_timings(json_t *document, const generate_summary *summary,
                        const tsr_model_stats *model)
{
    const tsr_generator_stats *stats = &summary->stats;
    json_t *object = cli_json_add_object(document, "timings");
    cli_json_real(object, "open_s", (double)model->open_ns * 1e-9);
    cli_json_u64(object, "prompt_tokens", stats->prompt_tokens);
    cli_json_real(object, "prompt_s", (double)stats->prompt_ns * 1e-9);
    add_rate(object, "prompt_tokens_per_s", stats->prompt_tokens, stats->prompt_ns);
    cli_json_u64(object, "generated_tokens", stats->generated_tokens);
    cli_json_real(object, "generated_s", (double)stats->generated_ns * 1e-9);
    add_rate(object, "generated_tokens_per_s", stats->generated_tokens, stats->generated_ns);
    cli_json_u64(object, "drafted_tokens", stats->drafted_tokens);
    cli_json_u64(object, "accepted_tokens", stats->accepted_tokens);
    cli_json_u64(object, "drafted_passes", stats->drafted_passes);
    cli_json_u64(object, "plain_passes", stats->plain_passes);
    cli_json_real(object, "draft_s", (double)stats->draft_ns * 1e-9);
}

void generate_print_json(const generate_summary *summary, int count, const generate_result *results)
{
    const tsr_model_config *config = tsr_model_get_config(summary->model);
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    (void)!tsr_model_get_stats(summary->model, &stats);
    json_t *document = cli_json_document("tessera.generate", 1);
    if (count == 1) {
        add_sequence(document, summary, &results[0]);
    } else {
        json_t *all = cli_json_add_array(document, "sequences");
        for (int i = 0; i < count; i++)
            add_sequence(cli_json_append_object(all), summary, &results[i]);
    }
    json_t *model = cli_json_add_object(document, "model");
    cli_json_text(model, "architecture", config->architecture);
    cli_json_u64(model, "parameters", stats.parameters);
    cli_json_text(model, "dtype", tsr_dtype_name(stats.other_dtype));
    json_t *rank = cli_json_add_object(document, "rank");
    cli_json_u64(rank, "ranks", (uint64_t)summary->ranks);
    cli_json_text(rank, "device", summary->device->name);
    cli_json_add(rank, "first_layer", json_integer(stats.first_layer));
    cli_json_add(rank, "layers", json_integer(stats.layers));
    cli_json_u64(rank, "weight_bytes", stats.weight_bytes);
    cli_json_u64(rank, "read_bytes", stats.read_bytes);
    add_timings(document, summary, &stats);
    cli_json_print(document);
}

/* Notes ---------------------------------------------------------------------------------------- */

/* Writes "12 tokens in 1.50 s, 8 tokens/s". */
static void describe_speed(uint64_t tokens, uint64_t ns, char *text, size_t size)
{
    char duration[CLI_NUMBER_TEXT], rate[CLI_NUMBER_TEXT];
    int used = snprintf(text, size, "%" PRIu64 " token%s in %s", tokens, CLI_PLURAL(tokens),
                        cli_duration((double)ns, duration));
    if (ns > 0 && used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, ", %s tokens/s",
                 cli_number((double)tokens / ((double)ns * 1e-9), rate));
}

void generate_print_stats(const generate_summary *summary)
{
    const tsr_generator_stats *stats = &summary->stats;
    tsr_model_stats model = TSR_INIT(tsr_model_stats);
    char load[CLI_NUMBER_TEXT], prompt[160], text[160];
    (void)!tsr_model_get_stats(summary->model, &model);
    describe_speed(stats->prompt_tokens, stats->prompt_ns, prompt, sizeof prompt);
    describe_speed(stats->generated_tokens, stats->generated_ns, text, sizeof text);
    cli_say("generate: loaded in %s; prompt: %s; text: %s",
            cli_duration((double)model.open_ns, load), prompt, text);
    if (stats->drafted_tokens > 0)
        cli_say("generate: %" PRIu64 " of %" PRIu64 " drafts were right; %" PRIu64
                " passes with drafts, %" PRIu64 " without",
                stats->accepted_tokens, stats->drafted_tokens, stats->drafted_passes,
                stats->plain_passes);
}

void generate_note_ends(int64_t context, int count, const generate_result *results)
{
    for (int i = 0; i < count; i++) {
        char which[32] = "";
        if (results[i].finish != TSR_FINISH_CONTEXT || results[i].stopped)
            continue;
        if (count > 1)
            snprintf(which, sizeof which, "[%d]: ", i);
        cli_say("generate: %sthe text ends because the context of %" PRId64
                " tokens is full; --context makes it longer",
                which, context);
    }
}

/* Text ----------------------------------------------------------------------------------------- */

static void print_new(generate_text *text)
{
    if (text->size > text->printed)
        fwrite(text->bytes + text->printed, 1, text->size - text->printed, stdout);
    text->printed = text->size;
}

static void print_ids(const generate_result *result, int64_t first)
{
    for (int64_t i = first; i < result->count; i++)
        printf("%s%d", i == 0 ? "" : " ", (int)result->ids[i]);
}

static bool ended(const generate_result *result)
{
    return result->stopped || result->finish != TSR_FINISH_NONE;
}

/* Prints the part of a sequence that has not been printed yet. */
static void print_one(const tsr_tokenizer *tokenizer, generate_result *result)
{
    if (tokenizer != NULL) {
        print_new(&result->text);
    } else {
        print_ids(result, (int64_t)result->text.printed);
        result->text.printed = (size_t)result->count;
    }
    if (ended(result))
        putchar('\n');
}

/* Prints several sequences after all have ended, in their order, each with its number. */
static void print_all(const tsr_tokenizer *tokenizer, int count, generate_result *results)
{
    for (int i = 0; i < count; i++)
        if (!ended(&results[i]))
            return;
    for (int i = 0; i < count; i++) {
        printf("%s[%d]\n", i > 0 ? "\n" : "", i);
        print_one(tokenizer, &results[i]);
    }
}

bool generate_print_step(const tsr_tokenizer *tokenizer, int count, generate_result *results)
{
    if (count == 1)
        print_one(tokenizer, &results[0]);
    else
        print_all(tokenizer, count, results);
    return cli_flush();
}
