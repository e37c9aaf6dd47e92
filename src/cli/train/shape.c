/* The configuration of the model that is trained. */
#include <string.h>
#include <sys/stat.h>

#include "cli/train/train.h"
#include "cli/training/recorded.h"

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

/* Recorded runs -------------------------------------------------------------------------------- */

static int64_t size_of(training_recorded *r, const char *name, int64_t missing)
{
    return training_recorded_count(r, "config", name, missing);
}

/* Reads the experts of a recorded run, and how their loads are balanced. */
static void read_experts(training_recorded *r, training_shape *s)
{
    training_options *o = &training_chosen;
    s->experts = size_of(r, "n_expert", 0);
    s->experts_used = size_of(r, "n_expert_used", 0);
    s->inner = size_of(r, "expert_inter", 0);
    if (o->balance == 0)
        o->balance = training_recorded_number(r, "moe", "aux_coef", 0, 1e6);
    if (o->bias_rate == 0)
        o->bias_rate = training_recorded_number(r, "moe", "gamma", 0, 1);
}

/* Reads what a recorded run with experts has and new models do not choose. */
static void read_routing(training_recorded *r, parts *p)
{
    const char *routing = training_recorded_text(r, "moe", "routing");
    const bool is_sigmoid = routing != NULL && strcmp(routing, "sigmoid") == 0;
    if (!is_sigmoid && (routing == NULL || strcmp(routing, "softmax") != 0) && r->status == TSR_OK)
        r->status = training_fail("%s: \"routing\" is neither softmax nor sigmoid", r->path);
    add_experts(&training_chosen.shape, is_sigmoid, p);
    p->experts.scale = training_recorded_number(r, "moe", "route_scale", 0, 1e6);
}

static void read_sizes(training_recorded *r, training_shape *s)
{
    const bool has_experts = training_recorded_number(r, "config", "n_expert", 0, 1e9) > 0;
    const bool is_llama = has_experts || training_recorded_number(r, "config", "inter", 0, 1e9) > 0;
    s->style = is_llama ? "llama" : "gpt2";
    s->layers = size_of(r, "n_layer", 0);
    s->heads = size_of(r, "n_head", 0);
    s->kv_heads = size_of(r, "n_kv", s->heads);
    s->width = size_of(r, "n_embd", 0);
    s->inner = has_experts ? 0 : size_of(r, "inter", 4 * s->width);
    if (has_experts)
        read_experts(r, s);
}

/* Describes the model of a recorded run, and takes the settings of its training. */
static tsr_status describe_recorded(training_recorded *r, int64_t vocabulary, parts *p)
{
    training_options *o = &training_chosen;
    training_shape *s = &o->shape;
    read_sizes(r, s);
    TRY(training_recorded_settings(r));
    if (s->layers > TSR_MODEL_MAX_LAYERS || o->context > TSR_MODEL_MAX_CONTEXT)
        return training_fail("%s: %lld layers and a context of %lld, but the most are %d and %lld",
                             r->path, (long long)s->layers, (long long)o->context,
                             TSR_MODEL_MAX_LAYERS, (long long)TSR_MODEL_MAX_CONTEXT);
    describe(s, o->context, vocabulary, p);
    if (s->experts > 0)
        read_routing(r, p);
    p->layer.head_dim = p->rope.rotary_dim = size_of(r, "head_dim", s->width / s->heads);
    p->config.norm_epsilon = training_recorded_number(r, "config", "eps", 1e-5, 1);
    p->rope.theta = training_recorded_number(r, "config", "theta", 10000, 1e9);
    const int64_t recorded = size_of(r, "vocab", vocabulary);
    TRY(r->status);
    if (recorded != vocabulary)
        return training_fail("the data has a vocabulary of %lld, but %s was recorded with %lld",
                             (long long)vocabulary, r->path, (long long)recorded);
    return TSR_OK;
}

/* New models ----------------------------------------------------------------------------------- */

/* Opens a new model of this configuration, and the weights of --init. */
static tsr_status open_new(training_run *r, const tsr_model_config *config)
{
    const char *init = training_chosen.shape.init;
    TRY(tsr_model_file_open_random(config, TSR_F32, 0, &r->file));
    return init != NULL ? tsr_model_file_open_weights(init, config, &r->first) : TSR_OK;
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
    return open_new(r, &p.config);
}

/* Makes the model of the recorded run --config. Sets *is_run to whether that is one. */
static tsr_status make_recorded(training_run *r, int64_t vocabulary, bool *is_run)
{
    const char *path = training_chosen.shape.config;
    training_recorded run;
    struct stat info;
    parts p;
    *is_run = false;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || training_is_gguf(path))
        return TSR_OK;
    if (training_recorded_open(path, &run) != TSR_OK)
        return TSR_OK; /* the reader of models accepts more, and says what is wrong */
    tsr_status status = TSR_OK;
    *is_run = training_recorded_is_run(&run);
    if (*is_run)
        status = describe_recorded(&run, vocabulary, &p);
    training_recorded_close(&run);
    return *is_run && status == TSR_OK ? open_new(r, &p.config) : status;
}

tsr_status train_shape_open(training_run *r, int64_t vocabulary)
{
    training_options *o = &training_chosen;
    const char *path = o->model != NULL ? o->model : o->shape.config;
    bool is_made = false;
    if (path == NULL)
        return make_new(r, vocabulary);
    if (o->model == NULL)
        TRY(make_recorded(r, vocabulary, &is_made));
    if (is_made)
        return TSR_OK;
    if (r->file == NULL)
        TRY(tsr_model_file_open(path, &r->file));
    const tsr_model_config *config = tsr_model_file_config(r->file);
    if (config->vocabulary < vocabulary)
        return training_fail("%s describes a vocabulary of %lld, but the data has one of %lld",
                             path, (long long)config->vocabulary, (long long)vocabulary);
    if (o->context == 0)
        o->context = config->context < MOST_CONTEXT ? config->context : MOST_CONTEXT;
    return o->shape.init != NULL ? tsr_model_file_open_weights(o->shape.init, config, &r->first)
                                 : TSR_OK;
}
