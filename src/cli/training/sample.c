/* Texts that the model writes while it is trained. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/terminal.h"
#include "cli/training/run.h"

#define SAMPLE_TOKENS 64 /* that are written after the prompt */
#define PAGE_TOKENS 64   /* of the cache */

/* A text in progress. */
typedef struct sample {
    training_run *run;
    tsr_kv_cache *cache;
    int sequence;
    const tsr_tensor *x; /* the tokens of the present pass */
    int32_t *tokens;     /* [length] */
    int64_t length;
    float *logits; /* [vocabulary], of the last token */
} sample;

static tsr_status create_cache(sample *s)
{
    training_model *m = &s->run->model;
    tsr_stack_info info = TSR_INIT(tsr_stack_info);
    TRY(tsr_stack_get_info(m->stack, &info));
    int64_t *heads = cli_alloc((size_t)info.blocks, sizeof *heads),
            *sizes = cli_alloc((size_t)info.blocks, sizeof *sizes),
            *values = cli_alloc((size_t)info.blocks, sizeof *values),
            *convs = cli_alloc((size_t)info.blocks, sizeof *convs),
            *states = cli_alloc((size_t)info.blocks, sizeof *states);
    bool *in_keys = cli_alloc((size_t)info.blocks, sizeof *in_keys), any_state = false;
    tsr_status status = TSR_OK;
    for (int i = 0; status == TSR_OK && i < info.blocks; i++) {
        tsr_heads found = TSR_INIT(tsr_heads);
        status = tsr_self_attention_get_heads(tsr_stack_block(m->stack, i), &found);
        heads[i] = found.kv_count;
        sizes[i] = found.head_dim;
        values[i] = found.value_dim;
        in_keys[i] = found.values_in_keys;
        convs[i] = found.conv_floats;
        states[i] = found.state_floats;
        any_state = any_state || convs[i] > 0 || states[i] > 0;
    }
    if (status == TSR_OK)
        status = tsr_kv_cache_create(
            tsr_kv_cache_params(.stream = m->job->stream, .layers = info.blocks,
                                .kv_heads = heads[0], .head_dim = sizes[0],
                                .page_tokens = PAGE_TOKENS,
                                .pages = (s->length + SAMPLE_TOKENS) / PAGE_TOKENS + 1,
                                .sequences = 1, .layer_kv_heads = heads, .layer_head_dims = sizes,
                                .layer_value_dims = values, .layer_values_in_keys = in_keys,
                                .layer_conv_floats = any_state ? convs : NULL,
                                .layer_state_floats = any_state ? states : NULL),
            &s->cache);
    free(heads);
    free(sizes);
    free(values);
    free(in_keys);
    free(convs);
    free(states);
    return status == TSR_OK ? tsr_kv_cache_add(s->cache, -1, &s->sequence) : status;
}

/* Computes the logits of the last token, and gathers them from all ranks of the stage. */
static tsr_status last_logits(const sample *s, const tsr_tensor *features)
{
    training_model *m = &s->run->model;
    const int64_t count = tsr_tensor_layout(features)->shape[1];
    tsr_tensor *last = NULL, *logits = NULL;
    TRY(tsr_tensor_slice(features, 1, count - 1, count, 1, &last));
    tsr_status status = tsr_stack_head_forward(m->stack, last, NULL, &logits);
    if (status == TSR_OK)
        status = tsr_stack_gather_logits(m->stack, logits, s->logits);
    tsr_tensor_destroy(&last);
    tsr_tensor_destroy(&logits);
    return status;
}

static tsr_status forward(void *user, int number, const tsr_tensor *x, tsr_tensor **y)
{
    const sample *s = user;
    training_model *m = &s->run->model;
    tsr_tensor *features = NULL;
    (void)number;
    TRY(tsr_stack_forward_cached(m->stack, m->first ? s->x : x, s->cache, &features));
    if (!m->last) {
        *y = features;
        return TSR_OK;
    }
    const tsr_status status = last_logits(s, features);
    tsr_tensor_destroy(&features);
    return status;
}

/* Computes the logits after the last `count` tokens. */
static tsr_status read_tokens(sample *s, int64_t count)
{
    training_model *m = &s->run->model;
    const int64_t shape[2] = {1, count};
    tsr_tensor *x = NULL;
    TRY(tsr_kv_cache_begin(s->cache, 1, &s->sequence, &count, NULL));
    TRY(tsr_tensor_create(m->job->device, TSR_I32, 2, shape, &x));
    tsr_status status = tsr_tensor_upload(m->job->stream, x, s->tokens + s->length - count,
                                          (uint64_t)count * sizeof *s->tokens);
    s->x = x;
    if (status == TSR_OK)
        status = tsr_pipeline_run(
            m->pipeline, tsr_pipeline_run_params(.micro_batches = 1, .dtype = m->features,
                                                 .ndim = 3, .shape = {1, count, m->config->width},
                                                 .forward = forward, .user = s));
    tsr_tensor_destroy(&x);
    if (status == TSR_OK && m->job->stages != NULL)
        status = tsr_comm_broadcast(m->job->stages, s->logits, (uint64_t)m->config->vocabulary,
                                    TSR_F32, m->job->stage_count - 1, NULL);
    return status;
}

/* Encodes the prompt: as a message if the model has a format for these, otherwise as a text. */
static tsr_status encode(sample *s)
{
    const tsr_tokenizer *tokenizer = s->run->tokenizer;
    const char *text = training_chosen.sample;
    tsr_chat_format format = training_chosen.format;
    int32_t *ids = NULL;
    uint64_t count = 0;
    const bool is_chat =
        format != TSR_CHAT_MODEL || tsr_chat_format_of(tokenizer, &format) == TSR_OK;
    const tsr_chat_message message = {.struct_size = sizeof message,
                                      .role = TSR_CHAT_USER,
                                      .text = text,
                                      .size_bytes = strlen(text)};
    TRY(is_chat ? tsr_chat_encode(tokenizer,
                                  tsr_chat_params(.format = format, .messages = &message,
                                                  .count = 1, .begin_reply = true),
                                  &ids, &count)
                : tsr_tokenizer_encode(tokenizer, text, strlen(text), NULL, &ids, &count));
    s->tokens = cli_alloc((size_t)count + SAMPLE_TOKENS, sizeof *s->tokens);
    memcpy(s->tokens, ids, (size_t)count * sizeof *ids);
    s->length = (int64_t)count;
    tsr_tokenizer_free_ids(&ids);
    return TSR_OK;
}

static bool is_end(const sample *s, int32_t token)
{
    const tsr_model_config *config = s->run->model.config;
    for (int i = 0; i < config->end_count; i++)
        if (config->end[i] == token)
            return true;
    return tsr_tokenizer_is_end(s->run->tokenizer, token);
}

static tsr_status print(const sample *s, int64_t prompt)
{
    const tsr_tokenizer *tokenizer = s->run->tokenizer;
    const uint64_t count = (uint64_t)(s->length - prompt);
    size_t size = 0;
    TRY(tsr_tokenizer_decode(tokenizer, s->tokens + prompt, count, TSR_DECODE_CONTROL_SKIP, 0, NULL,
                             &size));
    char *text = cli_alloc(size + 1, 1);
    const tsr_status status = tsr_tokenizer_decode(tokenizer, s->tokens + prompt, count,
                                                   TSR_DECODE_CONTROL_SKIP, size + 1, text, &size);
    if (status == TSR_OK && s->run->job.rank == 0) {
        printf("--- step %" PRId64 "\n", s->run->step);
        cli_write(text, size);
        printf("\n");
        (void)cli_flush();
    }
    free(text);
    return status;
}

static tsr_status write_text(sample *s)
{
    const tsr_model_config *config = s->run->model.config;
    TRY(encode(s));
    const int64_t prompt = s->length;
    TRY(create_cache(s));
    for (int i = 0; i < SAMPLE_TOKENS && s->length < config->context; i++) {
        int32_t token = 0;
        TRY(read_tokens(s, i == 0 ? prompt : 1));
        TRY(tsr_sampling_draw(NULL, 0, s->length, config->vocabulary, s->logits, 0, NULL, &token));
        if (is_end(s, token))
            break;
        s->tokens[s->length++] = token;
    }
    return print(s, prompt);
}

tsr_status training_sample(training_run *r)
{
    sample s = {.run = r};
    if (training_chosen.sample == NULL || r->tokenizer == NULL)
        return TSR_OK;
    s.logits = cli_alloc((size_t)r->model.config->vocabulary, sizeof *s.logits);
    const tsr_status status = write_text(&s);
    tsr_kv_cache_destroy(&s.cache);
    free(s.tokens);
    free(s.logits);
    return status;
}
