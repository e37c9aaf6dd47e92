/* The configuration of the model that is trained. */
#include <string.h>

#include "cli/train/train.h"

#define USUAL_CONTEXT 64  /* tokens of a row of a new model */
#define MOST_CONTEXT 1024 /* the most tokens of a row of another one, without --context */

/* The parts of a configuration of one kind of layers. */
typedef struct parts {
    tsr_model_config config;
    tsr_model_layer layer;
    const tsr_model_layer *kinds[1];
    tsr_rope_params rope;
    tsr_model_experts experts;
} parts;

/* Fills in the sizes that were not given. */
static void complete_sizes(training_shape *s)
{
    const bool is_llama = s->style == NULL || strcmp(s->style, "llama") == 0;
    s->style = is_llama ? "llama" : "gpt2";
    if (s->layers == 0)
        s->layers = 4;
    if (s->heads == 0)
        s->heads = 4;
    if (s->kv_heads == 0)
        s->kv_heads = s->heads;
    if (s->width == 0)
        s->width = 128;
    if (s->inner == 0) /* llama: 8/3 of the width, rounded up to a multiple of 8 */
        s->inner = is_llama ? (s->width + 2) / 3 * 8 : 4 * s->width;
    if (s->experts > 0 && s->experts_used == 0)
        s->experts_used = 2;
}

static tsr_status check_sizes(const training_shape *s)
{
    if (s->width % s->heads != 0)
        return training_fail("--width %lld does not divide over --heads %lld", (long long)s->width,
                             (long long)s->heads);
    if (s->heads % s->kv_heads != 0)
        return training_fail("--heads %lld does not divide over --kv-heads %lld",
                             (long long)s->heads, (long long)s->kv_heads);
    if (strcmp(s->style, "llama") == 0 && s->width / s->heads % 2 != 0)
        return training_fail("rotary positions need an even number of features of a head, but "
                             "--width %lld and --heads %lld give %lld",
                             (long long)s->width, (long long)s->heads,
                             (long long)(s->width / s->heads));
    if (s->experts > 0 ? s->experts_used > s->experts : s->experts_used > 0)
        return training_fail("--experts-used %lld, but there are %lld experts",
                             (long long)s->experts_used, (long long)s->experts);
    return TSR_OK;
}

static void add_experts(const training_shape *s, bool is_biased, parts *p)
{
    p->experts = (tsr_model_experts){.struct_size = sizeof p->experts,
                                     .count = s->experts,
                                     .used = s->experts_used,
                                     .hidden = s->inner,
                                     .gating = is_biased ? TSR_GATING_SIGMOID : TSR_GATING_SOFTMAX,
                                     .normalise = true,
                                     .choice_bias = is_biased,
                                     .activation = TSR_EXPERT_SWIGLU};
    p->layer.experts = &p->experts;
    p->layer.qk_norm = TSR_QK_NORM_HEADS;
    p->config.architecture = is_biased ? "glm4_moe" : "qwen3_moe";
}

static void describe(const training_shape *s, int64_t context, int64_t vocabulary, parts *p)
{
    const bool is_llama = strcmp(s->style, "llama") == 0;
    *p = (parts){
        .config = {.struct_size = sizeof p->config,
                   .architecture = s->style,
                   .layers = (int)s->layers,
                   .width = s->width,
                   .vocabulary = vocabulary,
                   .context = context,
                   .norm_epsilon = 1e-5,
                   .norm = is_llama ? TSR_NORM_RMS : TSR_NORM_LAYER,
                   .norm_bias = s->bias,
                   .learned_positions = !is_llama,
                   .tied = !is_llama,
                   .bos = -1,
                   .kind_count = 1,
                   .kinds = p->kinds},
        .layer = {.struct_size = sizeof p->layer,
                  .heads = s->heads,
                  .kv_heads = s->kv_heads,
                  .head_dim = s->width / s->heads,
                  .hidden = s->inner,
                  .rope = is_llama ? &p->rope : NULL,
                  .qkv_bias = s->bias,
                  .output_bias = s->bias,
                  .mlp_bias = s->bias,
                  .gated = is_llama,
                  .activation = is_llama ? TSR_ACT_SILU : TSR_ACT_GELU_ERF},
        .kinds = {&p->layer},
        .rope = {.struct_size = sizeof p->rope, .theta = 10000, .rotary_dim = s->width / s->heads},
    };
    if (s->experts > 0)
        add_experts(s, training_chosen.bias_rate > 0, p);
}

/* Takes the tokens that begin and end a text from the tokenizer. */
static tsr_status add_ends(const tsr_tokenizer *tokenizer, tsr_model_config *config)
{
    tsr_tokenizer_info info = TSR_INIT(tsr_tokenizer_info);
    if (tokenizer == NULL)
        return TSR_OK;
    TRY(tsr_tokenizer_get_info(tokenizer, &info));
    config->bos = info.bos;
    if (info.eos >= 0)
        config->end[config->end_count++] = info.eos;
    return TSR_OK;
}

static tsr_status make_new(training_run *r, int64_t vocabulary)
{
    training_options *o = &training_chosen;
    parts p;
    if (o->context == 0)
        o->context = USUAL_CONTEXT;
    complete_sizes(&o->shape);
    TRY(check_sizes(&o->shape));
    describe(&o->shape, o->context, vocabulary, &p);
    TRY(add_ends(r->tokenizer, &p.config));
    return tsr_model_file_open_random(&p.config, TSR_F32, 0, &r->file);
}

tsr_status train_shape_open(training_run *r, int64_t vocabulary)
{
    training_options *o = &training_chosen;
    const char *path = o->model != NULL ? o->model : o->shape.config;
    if (path == NULL)
        return make_new(r, vocabulary);
    if (r->file == NULL)
        TRY(tsr_model_file_open(path, &r->file));
    const tsr_model_config *config = tsr_model_file_config(r->file);
    if (config->vocabulary < vocabulary)
        return training_fail("%s describes a vocabulary of %lld, but the data has one of %lld",
                             path, (long long)config->vocabulary, (long long)vocabulary);
    if (o->context == 0)
        o->context = config->context < MOST_CONTEXT ? config->context : MOST_CONTEXT;
    return TSR_OK;
}
