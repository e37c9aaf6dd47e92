/* tessera info: what a model is, and what its files lack. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/commands.h"
#include "cli/info_adapter.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/terminal.h"
#include "tessera/chat.h"
#include "tool_seam.h"

#define MESSAGE 4096 /* the size of an error message */

static bool as_json;

static const cli_option options[] = {
    {"json", NULL, "print JSON", .flag = &as_json},
    {0},
};

static void help(FILE *out)
{
    cli_wrap(out, "Prints a model's architecture, its sizes, the types of its tensors, its "
                  "tokenizer and its format of messages, and says what is missing. MODEL is a "
                  "Hugging Face folder or a GGUF file, or an adapter: a PEFT folder or a GGUF "
                  "adapter of llama.cpp. 'tessera checkpoint show' lists the "
                  "tensors.\n");
    cli_options_help(out, options);
}

/* How many tensors have a type, and their bytes. */
typedef struct type_count {
    const char *name;
    uint64_t tensors, bytes;
} type_count;

typedef struct findings {
    const tsr_model_config *config;
    uint64_t parameters, tensors, bytes;
    type_count *types; /* the type with the most bytes comes first */
    int type_count;
    tsr_tokenizer_info tokenizer;
    char no_tokenizer[512]; /* why there is none; "": there is one */
    const char *format;     /* of messages; NULL: see no_format */
    char no_format[512];
    char missing[512]; /* why the model cannot be opened; "": it can */
} findings;

static int by_bytes(const void *a, const void *b)
{
    const type_count *x = a, *y = b;
    return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : strcmp(x->name, y->name);
}

static void count_types(const tsr_model_file *file, findings *f)
{
    const tsr_shard_list *list = file->files.list;
    f->tensors = tsr_shard_list_param_count(list);
    f->types = cli_alloc((size_t)f->tensors + 1, sizeof *f->types);
    for (uint64_t i = 0; i < f->tensors; i++) {
        const tsr_shard_param *tensor = tsr_shard_list_param(list, i);
        int at = 0;
        while (at < f->type_count && strcmp(f->types[at].name, tensor->dtype) != 0)
            at++;
        f->type_count += at == f->type_count;
        f->types[at].name = tensor->dtype;
        f->types[at].tensors++;
        f->types[at].bytes += tensor->size_bytes;
        f->bytes += tensor->size_bytes;
    }
    qsort(f->types, (size_t)f->type_count, sizeof *f->types, by_bytes);
}

static void find_tokenizer(const tsr_model_file *file, tsr_tokenizer **tokenizer, findings *f)
{
    tsr_chat_format format;
    f->tokenizer = TSR_INIT(tsr_tokenizer_info);
    if (tsr_model_file_open_tokenizer(file, tokenizer) != TSR_OK ||
        tsr_tokenizer_get_info(*tokenizer, &f->tokenizer) != TSR_OK) {
        snprintf(f->no_tokenizer, sizeof f->no_tokenizer, "%s", tsr_last_error());
        snprintf(f->no_format, sizeof f->no_format, "there is no tokenizer");
    } else if (tsr_chat_format_of(*tokenizer, &format) != TSR_OK) {
        snprintf(f->no_format, sizeof f->no_format, "%s", tsr_last_error());
    } else {
        f->format = tsr_chat_format_name(format);
    }
}

static void find(const tsr_model_file *file, tsr_tokenizer **tokenizer, findings *f)
{
    tsr_model_rank_plan plan = TSR_INIT(tsr_model_rank_plan);
    f->config = tsr_model_file_config(file);
    f->parameters = tsr_model_config_parameters(f->config, -1);
    count_types(file, f);
    find_tokenizer(file, tokenizer, f);
    if (tsr_model_plan(file, tsr_model_plan_params(.ranks = 1), NULL, &plan, NULL) != TSR_OK)
        snprintf(f->missing, sizeof f->missing, "%s", tsr_last_error());
}

/* Output --------------------------------------------------------------------------------------- */

static void line(const char *label, const char *format, ...) CLI_PRINTF(2, 3);
static void line(const char *label, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cli_format_list(format, arguments);
    va_end(arguments);
    cli_line(stdout, "%-14s%s", label, text);
    free(text);
}

#define MLP_TEXT 160

/* Describes a layer's hidden features and its experts. */
static const char *describe_mlp(const tsr_model_layer *layer, char out[MLP_TEXT])
{
    const tsr_model_experts *experts = layer->experts;
    int length = 0;
    if (experts == NULL || experts->beside_mlp)
        length = snprintf(out, MLP_TEXT, "%" PRId64 " hidden features%s", layer->hidden,
                          experts != NULL ? ", " : "");
    if (experts == NULL)
        return out;
    length += snprintf(out + length, (size_t)(MLP_TEXT - length),
                       "%" PRId64 " experts of %" PRId64 " hidden features, %" PRId64 " per token",
                       experts->count, experts->hidden, experts->used);
    if (experts->shared_hidden > 0)
        snprintf(out + length, (size_t)(MLP_TEXT - length),
                 ", a shared one of %" PRId64 " hidden features", experts->shared_hidden);
    return out;
}

static void print_layers(const tsr_model_config *c)
{
    char mlp[MLP_TEXT];
    for (int kind = 0; kind < c->kind_count; kind++) {
        const tsr_model_layer *layer = c->kinds[kind];
        int count = c->layer_kinds == NULL ? c->layers : 0;
        for (int i = 0; c->layer_kinds != NULL && i < c->layers; i++)
            count += c->layer_kinds[i] == kind;
        const tsr_model_delta_net *net = layer->delta_net;
        if (net != NULL) {
            line(kind == 0 ? "layers" : "",
                 "%d with a delta net of %" PRId64 " key heads of %" PRId64 " and %" PRId64
                 " heads of %" PRId64 ", %s",
                 count, net->key_heads, net->key_dim, net->heads, net->value_dim,
                 describe_mlp(layer, mlp));
            continue;
        }
        if (layer->conv_taps > 0) {
            line(kind == 0 ? "layers" : "", "%d with a short convolution of %d taps, %s", count,
                 layer->conv_taps, describe_mlp(layer, mlp));
            continue;
        }
        const tsr_model_latent *latent = layer->latent;
        if (latent) {
            line(kind == 0 ? "layers" : "",
                 "%d with %" PRId64 " heads of %" PRId64 " + %" PRId64
                 " (rotated), values of %" PRId64 ", latents of %" PRId64 ", %s",
                 count, layer->heads, latent->nope_dim, latent->rope_dim, latent->value_dim,
                 latent->kv_lora_rank, describe_mlp(layer, mlp));
            continue;
        }
        char values[40] = "";
        if (layer->value_dim != layer->head_dim)
            snprintf(values, sizeof values, " and values of %" PRId64, layer->value_dim);
        line(kind == 0 ? "layers" : "",
             "%d with %" PRId64 " heads, %" PRId64 " kv heads of %" PRId64 "%s, %s%s", count,
             layer->heads, layer->kv_heads, layer->head_dim, values, describe_mlp(layer, mlp),
             layer->window > 0 ? ", a window" : "");
    }
    if (c->next_token_layers > 0)
        line("", "%d that predict%s further tokens, for --draft mtp", c->next_token_layers,
             c->next_token_layers == 1 ? "s" : "");
}

static void print_text(const findings *f)
{
    char bytes[CLI_BYTES_TEXT];
    const tsr_model_config *c = f->config;
    line("architecture", "%s", c->architecture);
    line("parameters", "%" PRIu64, f->parameters);
    print_layers(c);
    line("width", "%" PRId64, c->width);
    line("context", "%" PRId64 " tokens", c->context);
    line("vocabulary", "%" PRId64 " tokens", c->vocabulary);
    line("tensors", "%" PRIu64 ", %s", f->tensors, cli_bytes(f->bytes, bytes));
    for (int i = 0; i < f->type_count; i++)
        line("", "%" PRIu64 " of %s, %s", f->types[i].tensors, f->types[i].name,
             cli_bytes(f->types[i].bytes, bytes));
    if (f->no_tokenizer[0] != '\0')
        line("tokenizer", "none: %s", f->no_tokenizer);
    else
        line("tokenizer", "%s, words %s", tsr_tokenizer_kind_name(f->tokenizer.kind),
             f->tokenizer.words);
    line("messages", "%s%s",
         f->format != NULL ? "format " : "none: ", f->format != NULL ? f->format : f->no_format);
    line("missing", "%s", f->missing[0] != '\0' ? f->missing : "nothing");
}

static void print_json(const findings *f)
{
    json_t *document = cli_json_document("tessera.info", 1);
    const tsr_model_config *c = f->config;
    cli_json_text(document, "architecture", c->architecture);
    cli_json_u64(document, "parameters", f->parameters);
    cli_json_u64(document, "layers", (uint64_t)c->layers);
    cli_json_u64(document, "width", (uint64_t)c->width);
    cli_json_u64(document, "context", (uint64_t)c->context);
    cli_json_u64(document, "vocabulary", (uint64_t)c->vocabulary);
    cli_json_u64(document, "tensors", f->tensors);
    cli_json_u64(document, "bytes", f->bytes);
    json_t *types = cli_json_add_array(document, "types");
    for (int i = 0; i < f->type_count; i++) {
        json_t *type = cli_json_append_object(types);
        cli_json_text(type, "dtype", f->types[i].name);
        cli_json_u64(type, "tensors", f->types[i].tensors);
        cli_json_u64(type, "bytes", f->types[i].bytes);
    }
    cli_json_add(document, "tokenizer",
                 f->no_tokenizer[0] != '\0'
                     ? json_null()
                     : json_string(tsr_tokenizer_kind_name(f->tokenizer.kind)));
    cli_json_add(document, "format", f->format != NULL ? json_string(f->format) : json_null());
    cli_json_add(document, "missing",
                 f->missing[0] != '\0' ? json_string(f->missing) : json_null());
    cli_json_print(document);
}

static int run(int argc, char **argv)
{
    const char *words[1];
    int count = 0;
    int code = cli_options_read("info", options, argc, argv, 1, words, &count);
    if (code != CLI_DONE)
        return code;
    if (count == 0 || words[0][0] == '\0')
        return cli_usage_error("info: missing MODEL, a folder or a file");
    tsr_model_file *file = NULL;
    tsr_tokenizer *tokenizer = NULL;
    if (tsr_model_file_open(words[0], &file) != TSR_OK) {
        char error[MESSAGE];
        snprintf(error, sizeof error, "%s", tsr_last_error());
        return info_adapter(words[0], as_json, &code) ? code : cli_failed_in("info", error);
    }
    findings found = {0};
    find(file, &tokenizer, &found);
    if (as_json)
        print_json(&found);
    else
        print_text(&found);
    free(found.types);
    tsr_tokenizer_close(&tokenizer);
    tsr_model_file_close(&file);
    return CLI_DONE;
}

const cli_command cli_info = {
    .name = "info",
    .usage = "MODEL [options]",
    .summary = "say what a model is, and what its files lack",
    .run = run,
    .help = help,
};
