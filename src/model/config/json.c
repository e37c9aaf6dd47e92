/* Reads config.json as Hugging Face writes it, and generation_config.json beside it. json_parts.c
 * has the members about parts of layers that only some families have. */
#include "model/config/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"

#define MAX_BYTES 16777216 /* the largest configuration file */

/* Values ------------------------------------------------------------------------------------- */

bool tsr__config_is_null(tsr__config_reader *r)
{
    return tsr__json_peek(&r->json) == 'n' && tsr__json_skip(&r->json) == TSR_OK;
}

tsr_status tsr__config_read_integer(tsr__config_reader *r, int64_t *out)
{
    return tsr__config_is_null(r) ? TSR_OK : tsr__json_signed(&r->json, out);
}

tsr_status tsr__config_read_real(tsr__config_reader *r, double *out)
{
    return tsr__config_is_null(r) ? TSR_OK : tsr__json_real(&r->json, out);
}

tsr_status tsr__config_read_bool(tsr__config_reader *r, int *out)
{
    bool value = false;
    if (tsr__config_is_null(r))
        return TSR_OK;
    TSR__TRY(tsr__json_bool(&r->json, &value));
    *out = value;
    return TSR_OK;
}

/* Reads the id of a token that ends a text, or a list of such ids. */
static tsr_status read_end_tokens(tsr__config_reader *r)
{
    int64_t id = TSR__UNSET;
    bool more = false;
    if (tsr__json_peek(&r->json) != '[') {
        TSR__TRY(tsr__config_read_integer(r, &id));
        tsr__facts_add_end(r->facts, id);
        return TSR_OK;
    }
    TSR__TRY(tsr__json_enter(&r->json, '['));
    for (;;) {
        TSR__TRY(tsr__json_element(&r->json, &more));
        if (!more)
            return TSR_OK;
        TSR__TRY(tsr__json_signed(&r->json, &id));
        tsr__facts_add_end(r->facts, id);
    }
}

static tsr_status read_activation(tsr__config_reader *r)
{
    static const struct {
        const char *name;
        tsr_activation activation;
    } known[] = {
        {"silu", TSR_ACT_SILU},     {"swish", TSR_ACT_SILU},
        {"gelu", TSR_ACT_GELU_ERF}, {"gelu_new", TSR_ACT_GELU_TANH},
        {"relu", TSR_ACT_RELU},     {"gelu_pytorch_tanh", TSR_ACT_GELU_TANH},
    };
    char name[64];
    const size_t at = r->json.at;
    if (tsr__config_is_null(r))
        return TSR_OK;
    TSR__TRY(tsr__json_string(&r->json, sizeof name, name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, name) == 0) {
            r->facts->activation = known[i].activation;
            r->facts->has_activation = true;
            return TSR_OK;
        }
    }
    const bool clean = !tsr__name_problem(name, strlen(name));
    (void)tsr__json_fail(&r->json, at, "activation '%s' is not supported", clean ? name : "?");
    return TSR_ERR_UNSUPPORTED;
}

/* Members ------------------------------------------------------------------------------------ */

tsr_status tsr__config_refuse_if_set(tsr__config_reader *r)
{
    int set = 0;
    const size_t at = r->json.at;
    TSR__TRY(tsr__config_read_bool(r, &set));
    if (set != 1)
        return TSR_OK;
    (void)tsr__json_fail(&r->json, at, "%s = true is not supported", r->key);
    return TSR_ERR_UNSUPPORTED;
}

static tsr_status read_number(tsr__config_reader *r, bool *known)
{
    tsr__facts *facts = r->facts;
    const tsr__config_keys *keys = facts->family->keys;
    const bool by_layers = facts->family->sizes_by_layers;
    const struct {
        const char *name;
        int64_t *value;
    } integers[] = {
        {keys->layers, &facts->layers},
        {keys->width, &facts->width},
        {keys->heads, &facts->heads},
        {keys->kv_heads, &facts->kv_heads},
        {keys->hidden, &facts->hidden},
        {keys->context, &facts->context},
        {"head_dim", &facts->head_dim},
        {"vocab_size", &facts->vocabulary},
        {"sliding_window", &facts->window},
        {"max_window_layers", &facts->max_window_layers},
        {"bos_token_id", &facts->bos},
        {"sliding_window_pattern", &facts->window_period},
        {"_sliding_window_pattern", &facts->window_period},
        {"no_rope_layer_interval", &facts->no_rope_period},
        {by_layers ? NULL : "v_head_dim", &facts->value_dim},
        {by_layers ? "global_head_dim" : NULL, &facts->full_head_dim},
        {by_layers ? "num_global_key_value_heads" : NULL, &facts->full_kv_heads},
        {by_layers ? "num_kv_shared_layers" : NULL, &facts->shared_layers},
        {by_layers ? "hidden_size_per_layer_input" : NULL, &facts->layer_input},
    };
    const struct {
        const char *name;
        double *value;
    } reals[] = {
        {keys->norm_epsilon, &facts->norm_epsilon},
        {"rope_theta", &facts->rope.theta},
        {"partial_rotary_factor", &facts->rope.partial},
        {"original_max_position_embeddings", &facts->rope.original_length},
        {"rope_local_base_freq", &facts->window_theta},
        {"query_pre_attn_scalar", facts->family->query_scalar ? &facts->query_scalar : NULL},
        {"attn_logit_softcapping", &facts->attention_softcap},
        {"final_logit_softcapping", &facts->logit_softcap},
        {"attention_multiplier", facts->family->multipliers ? &facts->attention_scale : NULL},
        {"embedding_multiplier", facts->family->multipliers ? &facts->embedding_scale : NULL},
        {"residual_multiplier", facts->family->multipliers ? &facts->residual_scale : NULL},
        {"logits_scaling", facts->family->multipliers ? &facts->logit_divisor : NULL},
    };
    const struct {
        const char *name;
        int64_t *value;
    } latents[] = {
        {"q_lora_rank", &facts->latent.q_rank},    {"kv_lora_rank", &facts->latent.kv_rank},
        {"qk_nope_head_dim", &facts->latent.nope}, {"qk_rope_head_dim", &facts->latent.rope},
        {"v_head_dim", &facts->latent.value},
    };
    *known = true;
    for (size_t i = 0; facts->family->latent && i < sizeof latents / sizeof *latents; i++)
        if (strcmp(latents[i].name, r->key) == 0)
            return tsr__config_read_integer(r, latents[i].value);
    if (facts->family->hf_rotary_dim && strcmp(r->key, "rotary_dim") == 0)
        return tsr__config_read_integer(r, &facts->rotary_dim);
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (tsr__config_is_key(r, integers[i].name))
            return tsr__config_read_integer(r, integers[i].value);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (reals[i].value && strcmp(reals[i].name, r->key) == 0)
            return tsr__config_read_real(r, reals[i].value);
    *known = false;
    return TSR_OK;
}

static tsr_status read_switch(tsr__config_reader *r, bool *known)
{
    tsr__facts *facts = r->facts;
    *known = true;
    if (strcmp(r->key, "tie_word_embeddings") == 0)
        return tsr__config_read_bool(r, &facts->tied);
    if (strcmp(r->key, "use_sliding_window") == 0)
        return tsr__config_read_bool(r, &facts->use_window);
    if (strcmp(r->key, "mlp_bias") == 0)
        return tsr__config_read_bool(r, &facts->mlp_bias);
    if (strcmp(r->key, "attention_bias") == 0) {
        const tsr__attention_bias means = facts->family->attention_bias;
        if (means == TSR__ATTENTION_BIAS_IGNORED)
            return tsr__json_skip(&r->json);
        TSR__TRY(tsr__config_read_bool(r, &facts->qkv_bias));
        if (means == TSR__ATTENTION_BIAS_ALL)
            facts->output_bias = facts->qkv_bias;
        return TSR_OK;
    }
    if (strcmp(r->key, "qkv_bias") == 0 &&
        facts->family->attention_bias == TSR__ATTENTION_BIAS_IGNORED)
        return tsr__config_read_bool(r, &facts->qkv_bias);
    if (strcmp(r->key, "use_qk_norm") == 0 && facts->family->qk_norm_varies)
        return tsr__config_read_bool(r, &facts->qk_norm);
    if (facts->family->keys->bias && strcmp(r->key, facts->family->keys->bias) == 0) {
        TSR__TRY(tsr__config_read_bool(r, &facts->qkv_bias));
        facts->norm_bias = facts->output_bias = facts->mlp_bias = facts->qkv_bias;
        return TSR_OK;
    }
    if (facts->family->sizes_by_layers && strcmp(r->key, "use_double_wide_mlp") == 0)
        return tsr__config_read_bool(r, &facts->double_wide);
    if (facts->family->sizes_by_layers && strcmp(r->key, "attention_k_eq_v") == 0)
        return tsr__config_read_bool(r, &facts->keys_as_values);
    if (strcmp(r->key, "scale_attn_by_inverse_layer_idx") == 0 ||
        strcmp(r->key, "add_cross_attention") == 0)
        return tsr__config_refuse_if_set(r);
    if (strcmp(r->key, "clip_qkv") == 0 && tsr__json_peek(&r->json) != 'n') {
        (void)tsr__json_fail(&r->json, r->json.at, "clip_qkv is not supported");
        return TSR_ERR_UNSUPPORTED;
    }
    *known = false;
    return TSR_OK;
}

static tsr_status read_member(tsr__config_reader *r)
{
    bool known = false;
    TSR__TRY(tsr__config_read_part(r, &known));
    if (!known)
        TSR__TRY(read_number(r, &known));
    if (!known)
        TSR__TRY(read_switch(r, &known));
    if (known)
        return TSR_OK;
    if (strcmp(r->key, r->facts->family->keys->activation) == 0)
        return read_activation(r);
    if (strcmp(r->key, "eos_token_id") == 0)
        return read_end_tokens(r);
    return tsr__json_skip(&r->json);
}

static tsr_status read_inner_type(tsr__config_reader *r);

/* Reads the type only, in a first pass, because the names of the other members depend on it. */
static tsr_status read_type(tsr__config_reader *r)
{
    if (strcmp(r->key, "text_config") == 0 && tsr__json_peek(&r->json) == '{')
        return tsr__config_read_members(r, read_inner_type);
    return strcmp(r->key, "model_type") == 0 ? tsr__json_string(&r->json, sizeof r->type, r->type)
                                             : tsr__json_skip(&r->json);
}

static tsr_status read_inner_type(tsr__config_reader *r)
{
    return strcmp(r->key, "model_type") == 0
               ? tsr__json_string(&r->json, sizeof r->inner_type, r->inner_type)
               : tsr__json_skip(&r->json);
}

/* Reads a member of a configuration that has the text model's inside. */
static tsr_status read_outer_member(tsr__config_reader *r)
{
    if (strcmp(r->key, "text_config") == 0)
        return tsr__config_read_members(r, read_member);
    if (strcmp(r->key, "tie_word_embeddings") == 0)
        return tsr__config_read_bool(r, &r->facts->tied);
    if (strcmp(r->key, "bos_token_id") == 0)
        return tsr__config_read_integer(r, &r->facts->bos);
    return strcmp(r->key, "eos_token_id") == 0 ? read_end_tokens(r) : tsr__json_skip(&r->json);
}

static tsr_status read_end_member(tsr__config_reader *r)
{
    return strcmp(r->key, "eos_token_id") == 0 ? read_end_tokens(r) : tsr__json_skip(&r->json);
}

static tsr_status read_object(tsr__config_reader *r, tsr_status (*read)(tsr__config_reader *))
{
    r->json.at = 0;
    TSR__TRY(tsr__config_read_members(r, read));
    return tsr__json_end(&r->json);
}

tsr_status tsr__config_read_members(tsr__config_reader *r, tsr_status (*read)(tsr__config_reader *))
{
    bool more = false;
    TSR__TRY(tsr__json_enter(&r->json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(&r->json, r->key, &more));
        if (!more)
            return TSR_OK;
        TSR__TRY(read(r));
    }
}

static tsr_status read_config(tsr__config_reader *r)
{
    char names[TSR__FAMILY_NAMES];
    TSR__TRY(read_object(r, read_type));
    TSR__REQUIRE(*r->type, "config.json: there is no model_type");
    r->facts->family = tsr__family_by_name(r->type);
    if (!r->facts->family && *r->inner_type) {
        r->facts->family = tsr__family_by_name(r->inner_type);
        if (r->facts->family)
            return read_object(r, read_outer_member);
    }
    if (!r->facts->family) {
        const bool clean = !tsr__name_problem(r->type, strlen(r->type));
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "config.json: architecture '%s' is not supported; these are: %s",
                         clean ? r->type : "?", tsr__family_names(sizeof names, names));
    }
    return read_object(r, read_member);
}

static tsr_status read_generation_config(tsr__config_reader *r)
{
    return read_object(r, read_end_member);
}

/* Files -------------------------------------------------------------------------------------- */

static tsr_status read_file(tsr__config_reader *r, const char *path, const char *what,
                            tsr_status (*read)(tsr__config_reader *))
{
    tsr__file file;
    char *text = NULL;
    TSR__TRY(tsr__file_open(path, &file));
    file.what = what;
    tsr_status status =
        file.size > MAX_BYTES
            ? tsr__fail(TSR_ERR_INVALID, "%s: the file has %llu bytes; at most %d are possible",
                        what, (unsigned long long)file.size, MAX_BYTES)
            : tsr__file_load(&file, 0, file.size, "the file", &text);
    if (status == TSR_OK) {
        r->json = (tsr__json){.text = text, .size = file.size, .what = what};
        status = read(r);
    }
    tsr__free(text);
    tsr__file_close(&file);
    return status;
}

static tsr_status read_files(tsr__config_reader *r)
{
    TSR__TRY(read_file(r, r->files->config, "config.json", read_config));
    char *path = tsr__path_join(r->files->folder, "generation_config.json");
    struct stat info;
    if (!path)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = TSR_OK;
    if (stat(path, &info) == 0)
        status = read_file(r, path, "generation_config.json", read_generation_config);
    tsr__free(path);
    return status;
}

/* Fine-tuned models often lack the layers that predict further tokens, although their config.json
 * still has the number; other files have the layers without a number. The tensors decide. */
static void count_next_layers(const tsr__model_files *files, tsr__facts *facts)
{
    char name[64];
    if (!facts->family->hf_next_layers || facts->layers < 1 ||
        facts->layers > TSR_MODEL_MAX_LAYERS || !files->list || files->list->params.count == 0)
        return;
    facts->next_layers = 0;
    while (facts->next_layers <= TSR_MODEL_MAX_NEXT_TOKEN_LAYERS) {
        if (facts->family->hf_next_inside)
            snprintf(name, sizeof name, "%s%s%" PRId64 ".eh_proj.weight", facts->family->hf_prefix,
                     facts->family->hf_block, facts->layers + facts->next_layers);
        else
            snprintf(name, sizeof name, "mtp.layers.%" PRId64 ".input_layernorm.weight",
                     facts->next_layers);
        if (!tsr__model_files_find(files, name))
            return;
        facts->next_layers++;
    }
}

tsr_status tsr__facts_read_json(const tsr__model_files *files, tsr__facts *out)
{
    tsr__config_reader *r = tsr__calloc(1, sizeof *r);
    if (!r)
        return TSR_ERR_NO_MEMORY;
    r->files = files;
    r->facts = out;
    out->file = "config.json";
    tsr_status status = read_files(r);
    if (status == TSR_OK) {
        count_next_layers(files, out);
        tsr__facts_take_attention_layers(out);
    }
    if (status == TSR_OK && out->family->adjusted_hidden)
        status = tsr__facts_adjust_hidden(out);
    if (status == TSR_OK && out->family->multipliers && out->attention_scale == TSR__UNSET)
        out->attention_scale = 1;
    tsr__free(r);
    return status;
}
