/* The configuration of a model, from the values that its files have. */
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "model/random.h"

void tsr__facts_init(tsr__facts *facts)
{
    *facts = (tsr__facts){
        .layers = TSR__UNSET,
        .width = TSR__UNSET,
        .heads = TSR__UNSET,
        .kv_heads = TSR__UNSET,
        .head_dim = TSR__UNSET,
        .value_dim = TSR__UNSET,
        .hidden = TSR__UNSET,
        .vocabulary = TSR__UNSET,
        .context = TSR__UNSET,
        .window = TSR__UNSET,
        .max_window_layers = TSR__UNSET,
        .rotary_dim = TSR__UNSET,
        .norm_epsilon = TSR__UNSET,
        .use_window = TSR__UNSET,
        .tied = TSR__UNSET,
        .qkv_bias = TSR__UNSET,
        .output_bias = TSR__UNSET,
        .mlp_bias = TSR__UNSET,
        .bos = TSR__UNSET,
        .rope = {.theta = TSR__UNSET,
                 .factor = TSR__UNSET,
                 .original_length = TSR__UNSET,
                 .low_frequency_factor = TSR__UNSET,
                 .high_frequency_factor = TSR__UNSET,
                 .beta_fast = TSR__UNSET,
                 .beta_slow = TSR__UNSET,
                 .attention_factor = TSR__UNSET,
                 .mscale = TSR__UNSET,
                 .mscale_all_dim = TSR__UNSET,
                 .partial = TSR__UNSET,
                 .truncate = TSR__UNSET},
    };
}

void tsr__facts_add_end(tsr__facts *facts, int64_t id)
{
    if (id < 0 || id > INT32_MAX || facts->end_count == TSR_MODEL_MAX_END_TOKENS)
        return;
    for (int i = 0; i < facts->end_count; i++)
        if (facts->end[i] == id)
            return;
    facts->end[facts->end_count++] = (int32_t)id;
}

static tsr_status size_within(const tsr__facts *facts, const char *what, int64_t value,
                              int64_t largest)
{
    TSR__REQUIRE(value != TSR__UNSET, "%s: there is no %s", facts->file, what);
    TSR__REQUIRE(value >= 1 && value <= largest,
                 "%s: %s is %" PRId64 "; 1 to %" PRId64 " is possible", facts->file, what, value,
                 largest);
    return TSR_OK;
}

/* Checks the sizes of the model, except those of heads, and copies them to `out`. */
static tsr_status take_sizes(const tsr__facts *facts, tsr_model_config *out)
{
    TSR__TRY(size_within(facts, "number of layers", facts->layers, TSR_MODEL_MAX_LAYERS));
    TSR__TRY(size_within(facts, "width", facts->width, TSR_MODEL_MAX_WIDTH));
    TSR__TRY(size_within(facts, "number of heads", facts->heads, TSR_MAX_HEADS));
    TSR__TRY(size_within(facts, "vocabulary", facts->vocabulary, TSR_MODEL_MAX_VOCABULARY));
    TSR__TRY(size_within(facts, "context", facts->context, TSR_MODEL_MAX_CONTEXT));
    out->layers = (int)facts->layers;
    out->width = facts->width;
    out->heads = facts->heads;
    out->vocabulary = facts->vocabulary;
    out->context = facts->context;
    out->hidden = facts->hidden;
    if (out->hidden == TSR__UNSET && facts->architecture->learned_positions)
        out->hidden = 4 * out->width;
    return size_within(facts, "number of hidden features", out->hidden, TSR_MODEL_MAX_HIDDEN);
}

static tsr_status take_heads(const tsr__facts *facts, tsr_model_config *out)
{
    out->kv_heads = facts->kv_heads == TSR__UNSET ? out->heads : facts->kv_heads;
    TSR__TRY(size_within(facts, "number of kv heads", out->kv_heads, TSR_MAX_HEADS));
    TSR__REQUIRE(out->heads % out->kv_heads == 0,
                 "%s: %" PRId64 " heads do not divide over %" PRId64 " kv heads", facts->file,
                 out->heads, out->kv_heads);
    out->head_dim = facts->head_dim;
    if (out->head_dim == TSR__UNSET) {
        TSR__REQUIRE(out->width % out->heads == 0,
                     "%s: a width of %" PRId64 " does not divide over %" PRId64 " heads",
                     facts->file, out->width, out->heads);
        out->head_dim = out->width / out->heads;
    }
    TSR__TRY(size_within(facts, "size of a head", out->head_dim, TSR_MAX_HEAD_DIM));
    TSR__REQUIRE(facts->value_dim == TSR__UNSET || facts->value_dim == out->head_dim,
                 "%s: keys have %" PRId64 " features per head, but values %" PRId64, facts->file,
                 out->head_dim, facts->value_dim);
    return TSR_OK;
}

static bool chosen(int fact, bool usual)
{
    return fact == TSR__UNSET ? usual : fact != 0;
}

static tsr_status take_window(const tsr__facts *facts, tsr_model_config *out)
{
    const tsr__architecture *a = facts->architecture;
    if (!a->has_window || facts->window == TSR__UNSET || facts->window == 0 ||
        !chosen(facts->use_window, !a->window_needs_switch))
        return TSR_OK;
    TSR__TRY(size_within(facts, "sliding window", facts->window, TSR_MODEL_MAX_CONTEXT));
    out->window = facts->window;
    if (a->window_needs_switch && facts->max_window_layers != TSR__UNSET) {
        TSR__REQUIRE(facts->max_window_layers >= 0 &&
                         facts->max_window_layers <= TSR_MODEL_MAX_LAYERS,
                     "%s: max_window_layers is %" PRId64 "; 0 to %d is possible", facts->file,
                     facts->max_window_layers, TSR_MODEL_MAX_LAYERS);
        out->window_from = (int)facts->max_window_layers;
    }
    return TSR_OK;
}

static tsr_status take_norms(const tsr__facts *facts, tsr_model_config *out)
{
    out->norm = facts->architecture->norm;
    out->norm_bias = facts->architecture->norm_bias;
    out->norm_epsilon = facts->norm_epsilon == TSR__UNSET ? out->norm == TSR_NORM_RMS ? 1e-6 : 1e-5
                                                          : facts->norm_epsilon;
    TSR__REQUIRE(out->norm_epsilon > 0 && out->norm_epsilon <= 1,
                 "%s: the norms' epsilon is %g; more than 0 and at most 1 is possible", facts->file,
                 out->norm_epsilon);
    return TSR_OK;
}

static tsr_status take_tokens(const tsr__facts *facts, tsr_model_config *out)
{
    out->bos = -1;
    if (facts->bos >= 0 && facts->bos < out->vocabulary)
        out->bos = (int32_t)facts->bos;
    for (int i = 0; i < facts->end_count; i++) {
        if (facts->end[i] < out->vocabulary)
            out->end[out->end_count++] = facts->end[i];
    }
    return TSR_OK;
}

tsr_status tsr__config_make(const tsr__facts *facts, tsr_model_config *out)
{
    const tsr__architecture *a = facts->architecture;
    tsr_model_config made = {.architecture = a->name};
    TSR__TRY(take_sizes(facts, &made));
    TSR__TRY(take_heads(facts, &made));
    TSR__TRY(take_norms(facts, &made));
    TSR__TRY(take_window(facts, &made));
    TSR__TRY(take_tokens(facts, &made));
    made.qkv_bias = chosen(facts->qkv_bias, a->qkv_bias);
    made.output_bias = chosen(facts->output_bias, a->output_bias);
    made.mlp_bias = chosen(facts->mlp_bias, a->mlp_bias);
    made.qk_norm = a->qk_norm;
    made.gated = a->gated;
    made.tied = chosen(facts->tied, a->tied);
    made.activation = facts->has_activation ? facts->activation : a->activation;
    made.learned_positions = a->learned_positions;
    if (!made.learned_positions)
        TSR__TRY(tsr__rope_make(facts, made.head_dim, made.context, &made.rope));
    *out = made;
    return TSR_OK;
}

tsr_status tsr__config_check(const tsr_model_config *c)
{
    char names[256];
    tsr_model_config checked;
    tsr__facts facts;
    tsr__facts_init(&facts);
    TSR__REQUIRE(c->architecture && tsr__architecture_by_name(c->architecture),
                 "model: architecture is %.40s; known are %s",
                 c->architecture ? c->architecture : "NULL",
                 tsr__architecture_names(sizeof names, names));
    TSR__REQUIRE(c->end_count >= 0 && c->end_count <= TSR_MODEL_MAX_END_TOKENS,
                 "model: configuration: end_count is %d; 0 to %d is possible", c->end_count,
                 TSR_MODEL_MAX_END_TOKENS);
    facts.architecture = tsr__architecture_by_name(c->architecture);
    facts.file = "model: configuration";
    facts.layers = c->layers;
    facts.width = c->width;
    facts.heads = c->heads;
    facts.kv_heads = c->kv_heads;
    facts.head_dim = c->head_dim;
    facts.hidden = c->hidden;
    facts.vocabulary = c->vocabulary;
    facts.context = c->context;
    facts.norm_epsilon = c->norm_epsilon;
    return tsr__config_make(&facts, &checked);
}

tsr_status tsr__config_of(const tsr__model_files *files, tsr_model_config *out)
{
    tsr__facts facts;
    if (files->random) {
        *out = files->random->config;
        return TSR_OK;
    }
    tsr__facts_init(&facts);
    TSR__TRY(files->gguf ? tsr__facts_read_gguf(files, &facts)
                         : tsr__facts_read_json(files, &facts));
    return tsr__config_make(&facts, out);
}

tsr_status tsr_model_config_read(const char *path, tsr_model_config *out)
{
    TSR__REQUIRE(path && out, "model: %s is NULL", path ? "out" : "path");
    tsr__model_files files;
    tsr_status status = tsr__model_files_open(path, &files);
    if (status == TSR_OK)
        status = tsr__config_of(&files, out);
    tsr__model_files_finish(&files);
    return status;
}
