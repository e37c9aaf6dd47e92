#include "generate.h"

#include <stdlib.h>
#include <string.h>

/* The sequence so far, and what the model needs to continue it. */
typedef struct writer {
    gpt_model *model;
    const gpt_text *text;
    const gpt_generate_params *params;
    tsr_kv_cache *cache;
    int sequence;
    int32_t *tokens; /* [prompt + count] */
    int64_t length;
    tsr_decode_state state;
    float *logits; /* [vocabulary] */
} writer;

/* What a cache has for each layer on this rank. */
typedef struct cache_sizes {
    bool has_states;
    int64_t kv_heads[TSR_MODEL_MAX_LAYERS], head_dims[TSR_MODEL_MAX_LAYERS];
    int64_t conv_floats[TSR_MODEL_MAX_LAYERS], state_floats[TSR_MODEL_MAX_LAYERS];
} cache_sizes;

static tsr_status measure_layer(const gpt_model *m, int index, cache_sizes *out)
{
    const tsr_model_config *c = &m->config->model;
    tsr_heads heads = TSR_INIT(tsr_heads);
    TRY(tsr_self_attention_get_heads(tsr_stack_block(m->stack, index), &heads));
    /* also on a rank that has no heads of them, whose states have 0 floats */
    out->has_states =
        out->has_states || c->kinds[c->layer_kinds ? c->layer_kinds[index] : 0]->heads == 0;
    out->kv_heads[index] = heads.kv_count;
    out->head_dims[index] = heads.head_dim;
    out->conv_floats[index] = heads.conv_floats;
    out->state_floats[index] = heads.state_floats;
    return TSR_OK;
}

static tsr_status create_cache(writer *w)
{
    const gpt_model *m = w->model;
    tsr_stack_info info = TSR_INIT(tsr_stack_info);
    TRY(tsr_stack_get_info(m->stack, &info));
    cache_sizes *sizes = calloc(1, sizeof *sizes);
    tsr_status status = sizes ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int i = 0; status == TSR_OK && i < info.blocks; i++)
        status = measure_layer(m, i, sizes);
    if (status == TSR_OK)
        status = tsr_kv_cache_create(
            tsr_kv_cache_params(.stream = m->job->stream, .layers = info.blocks,
                                .layer_kv_heads = sizes->kv_heads,
                                .layer_head_dims = sizes->head_dims,
                                .layer_conv_floats = sizes->has_states ? sizes->conv_floats : NULL,
                                .layer_state_floats =
                                    sizes->has_states ? sizes->state_floats : NULL,
                                .dtype = m->dtype, .page_tokens = m->config->block, .pages = 1,
                                .sequences = 1),
            &w->cache);
    free(sizes);
    return status;
}

/* Computes the logits after `count` tokens from `first` on. */
static tsr_status read_tokens(writer *w, int64_t first, int64_t count)
{
    const int64_t shape[] = {1, count};
    tsr_tensor *x = NULL;
    TRY(tsr_kv_cache_begin(w->cache, 1, &w->sequence, &count, NULL));
    TRY(tsr_tensor_create(w->model->job->device, TSR_I32, 2, shape, &x));
    tsr_status status = tsr_tensor_upload(w->model->job->stream, x, w->tokens + first,
                                          (uint64_t)count * sizeof *w->tokens);
    if (status == TSR_OK)
        status = model_next(w->model, x, w->cache, w->logits);
    tsr_tensor_destroy(&x);
    return status;
}

/* Computes the logits after the last token. A full cache has the model's largest number of
 * positions (config->block). It is then emptied, and the last block / 2 tokens are read again, from
 * position 0. */
static tsr_status make_room(writer *w)
{
    int64_t block = w->model->config->block;
    if (tsr_kv_cache_length(w->cache, w->sequence) < block)
        return read_tokens(w, w->length - 1, 1);
    int64_t kept = block / 2 > 0 ? block / 2 : 1;
    TRY(tsr_kv_cache_truncate(w->cache, w->sequence, 0));
    return read_tokens(w, w->length - kept, kept);
}

static void print(writer *w, int32_t token)
{
    if (w->model->job->rank == 0) {
        text_print(w->text, &w->state, token, stdout);
        fflush(stdout);
    }
}

static tsr_status write_text(writer *w)
{
    const gpt_generate_params *p = w->params;
    const tsr_sampling_params sampling = {.struct_size = sizeof sampling,
                                          .temperature = p->temperature,
                                          .top_k = p->top_k,
                                          .seed = (uint64_t)p->seed};
    int64_t block = w->model->config->block;
    int64_t seen = p->prompt_count < block ? p->prompt_count : block;
    TRY(create_cache(w));
    TRY(tsr_kv_cache_add(w->cache, -1, &w->sequence));
    memcpy(w->tokens, p->prompt, (size_t)p->prompt_count * sizeof *w->tokens);
    w->length = p->prompt_count;
    for (int64_t i = 0; i < w->length; i++)
        print(w, w->tokens[i]);
    for (int64_t i = 0; i < p->count; i++) {
        TRY(i == 0 ? read_tokens(w, w->length - seen, seen) : make_room(w));
        int32_t token;
        TRY(tsr_sampling_draw(&sampling, 0, w->length, w->model->config->model.vocabulary,
                              w->logits, 0, NULL, &token));
        w->tokens[w->length++] = token;
        if (text_is_end(w->text, token))
            break;
        print(w, token);
    }
    return TSR_OK;
}

tsr_status generate(gpt_model *model, const gpt_text *text, const gpt_generate_params *params)
{
    writer w = {
        .model = model, .text = text, .params = params, .state = TSR_INIT(tsr_decode_state)};
    w.tokens = malloc((size_t)(params->prompt_count + params->count) * sizeof *w.tokens);
    w.logits = malloc((size_t)model->config->model.vocabulary * sizeof *w.logits);
    tsr_status status = w.tokens && w.logits ? write_text(&w) : TSR_ERR_NO_MEMORY;
    tsr_kv_cache_destroy(&w.cache);
    free(w.tokens);
    free(w.logits);
    return status;
}
