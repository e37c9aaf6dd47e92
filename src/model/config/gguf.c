/* Reads a model's configuration from the metadata of a GGUF file, whose keys are known since its
 * list of tensors was read. Keys begin with the name of the architecture, which is looked up first.
 * Values that the metadata leave out are derived from the list of tensors. Source of the keys:
 * github.com/ggml-org/ggml, docs/gguf.md.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/float16.h"
#include "model/config/config.h"
#include "shard/formats/gguf_metadata.h"

#define KEY_SIZE 128

/* A key, and where its value goes. A key that starts with a dot follows the architecture's name. */
typedef struct entry {
    const char *key;
    int64_t *integer;
    double *real;
} entry;

enum { MAX_ENTRIES = 80 };

typedef struct metadata {
    tsr__file *file;
    const tsr__gguf_keys *keys_of_file;
    tsr__facts *facts;
    char text[TSR_SHARD_MAX_NAME + 1];
    char keys[MAX_ENTRIES][KEY_SIZE];
    tsr__gguf_value values[MAX_ENTRIES];
} metadata;

/* Looks up keys of the metadata. */
static tsr_status find(metadata *m, int count, const entry *entries)
{
    TSR__REQUIRE(count <= MAX_ENTRIES, "gguf: %d keys", count);
    for (int i = 0; i < count; i++) {
        const char *key = entries[i].key;
        snprintf(m->keys[i], KEY_SIZE, "%s%s", *key == '.' ? m->facts->family->gguf : "", key);
        m->values[i] = (tsr__gguf_value){.key = m->keys[i]};
    }
    TSR__TRY(tsr__gguf_look_up(m->file, m->keys_of_file, m->values, (size_t)count));
    for (int i = 0; i < count; i++) {
        const tsr__gguf_value *value = &m->values[i];
        if (value->found && entries[i].integer)
            TSR__TRY(tsr__gguf_integer(m->file, value, entries[i].integer));
        if (value->found && entries[i].real)
            TSR__TRY(tsr__gguf_real(m->file, value, entries[i].real));
    }
    return TSR_OK;
}

/* Looks up a key whose value is a number, or a list of numbers of each layer. */
static tsr_status find_sizes(metadata *m, const char *key, int64_t *one, tsr__layer_sizes *all)
{
    const entry wanted = {.key = key};
    TSR__TRY(find(m, 1, &wanted));
    tsr__gguf_value value = m->values[0];
    if (!value.found)
        return TSR_OK;
    if (!value.is_array)
        return tsr__gguf_integer(m->file, &value, one);
    TSR__REQUIRE(value.count <= TSR_MODEL_MAX_LAYERS &&
                     (value.type == TSR__GGUF_U32 || value.type == TSR__GGUF_I32),
                 "gguf: %s is not a list of at most %d integers of 32 bits", value.key,
                 TSR_MODEL_MAX_LAYERS);
    all->count = (int)value.count;
    value.is_array = false;
    for (int i = 0; i < all->count; i++, value.at += 4)
        TSR__TRY(tsr__gguf_integer(m->file, &value, &all->values[i]));
    *one = all->count > 0 ? all->values[0] : TSR__UNSET;
    return TSR_OK;
}

/* Looks up a list that says of each layer whether it is of a kind. */
static tsr_status find_bools(metadata *m, const char *key, tsr__layer_facts *out)
{
    const entry wanted = {.key = key};
    TSR__TRY(find(m, 1, &wanted));
    tsr__gguf_value value = m->values[0];
    if (!value.found)
        return TSR_OK;
    TSR__REQUIRE(value.is_array && value.type == TSR__GGUF_BOOL &&
                     value.count <= TSR_MODEL_MAX_LAYERS,
                 "gguf: %s is not a list of at most %d bools", value.key, TSR_MODEL_MAX_LAYERS);
    out->count = (int)value.count;
    value.is_array = false;
    for (int i = 0; i < out->count; i++, value.at++) {
        bool is_so = false;
        TSR__TRY(tsr__gguf_bool(m->file, &value, &is_so));
        out->values[i] = is_so;
    }
    return TSR_OK;
}

/* Reads what files of families with sizes_by_layers say. key_length is the size of heads in layers
 * without a window. */
static tsr_status read_sizes_by_layers(metadata *m)
{
    tsr__facts *facts = m->facts;
    int64_t value_window = TSR__UNSET, rotated_window = TSR__UNSET, window_head_dim = TSR__UNSET;
    const entry entries[] = {
        {".attention.key_length_swa", &window_head_dim, NULL},
        {".attention.value_length_swa", &value_window, NULL},
        {".rope.dimension_count_swa", &rotated_window, NULL},
        {".attention.shared_kv_layers", &facts->shared_layers, NULL},
        {".embedding_length_per_layer_input", &facts->layer_input, NULL},
    };
    TSR__TRY(find(m, (int)(sizeof entries / sizeof *entries), entries));
    TSR__TRY(find_bools(m, ".attention.sliding_window_pattern", &facts->windows));
    TSR__REQUIRE(value_window == window_head_dim,
                 "gguf: keys have %" PRId64 " features per head in layers with a window, but "
                 "values %" PRId64,
                 window_head_dim, value_window);
    TSR__REQUIRE(rotated_window == TSR__UNSET || rotated_window == window_head_dim,
                 "gguf: %s.rope.dimension_count_swa is %" PRId64 ", but heads have %" PRId64
                 " features",
                 facts->family->gguf, rotated_window, window_head_dim);
    if (window_head_dim != TSR__UNSET) {
        facts->full_head_dim = facts->head_dim;
        facts->head_dim = window_head_dim;
    }
    const int64_t full =
        facts->full_head_dim != TSR__UNSET ? facts->full_head_dim : facts->head_dim;
    TSR__REQUIRE(facts->value_dim == TSR__UNSET || facts->value_dim == full,
                 "gguf: keys have %" PRId64 " features per head, but values %" PRId64, full,
                 facts->value_dim);
    facts->value_dim = TSR__UNSET; /* as keys in all layers */
    return TSR_OK;
}

static tsr_status read_architecture(metadata *m)
{
    char names[TSR__FAMILY_NAMES];
    const entry entries[] = {{.key = "general.architecture"}};
    TSR__TRY(find(m, 1, entries));
    TSR__REQUIRE(m->values[0].found, "gguf: there is no general.architecture");
    TSR__TRY(tsr__gguf_name_of(m->file, &m->values[0], m->text));
    m->facts->family = tsr__family_by_gguf(m->text, false, false);
    if (!m->facts->family)
        m->facts->family = tsr__family_by_gguf(m->text, false, true);
    if (m->facts->family)
        return TSR_OK;
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "gguf: architecture '%.60s' is not supported; these are: %s", m->text,
                     tsr__family_names(sizeof names, names));
}

/* Takes the function that gives experts their scores, of which llama.cpp has numbers. */
static tsr_status take_gating(tsr__facts *facts, int64_t number)
{
    static const int64_t known[] = {TSR__UNSET, TSR_GATING_SOFTMAX, TSR_GATING_SIGMOID,
                                    TSR_GATING_SOFTMAX_CHOSEN};
    if (number == TSR__UNSET || number == 0)
        return TSR_OK;
    if (number < 0 || number >= (int64_t)(sizeof known / sizeof *known))
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "gguf: %s.expert_gating_func is %" PRId64
                         ", which is not supported; 1 (softmax), 2 (sigmoid) and 3 (softmax of the "
                         "chosen) are",
                         facts->family->gguf, number);
    facts->experts.gating = known[number];
    return TSR_OK;
}

/* Files of before 2025 have the sizes of heads where others have those of latents. */
static void take_latent(tsr__facts *facts)
{
    tsr__latent_facts *l = &facts->latent;
    l->rope = facts->rotary_dim;
    l->head = l->head != TSR__UNSET ? l->head : facts->head_dim;
    l->value = l->value != TSR__UNSET ? l->value : facts->value_dim;
}

/* Layers with a short convolution are those of which the list of numbers of kv heads has 0. */
static void take_short_convs(tsr__facts *facts)
{
    const tsr__layer_sizes *kv = &facts->kv_sizes;
    int attention = 0;
    facts->conv.which.count = kv->count;
    for (int i = 0; i < kv->count; i++) {
        facts->conv.which.values[i] = kv->values[i] == 0;
        if (kv->values[i] != 0)
            facts->kv_sizes.values[attention++] = kv->values[i];
    }
    if (attention > 0)
        facts->kv_heads = kv->values[0];
    facts->kv_sizes.count = attention;
}

/* Layers of most families have the same sizes, also where a file has a list of them. */
static tsr_status require_one_size(tsr__facts *facts)
{
    tsr__layer_sizes *lists[] = {&facts->kv_sizes, &facts->hidden_sizes};
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        for (int i = 1; i < lists[k]->count; i++)
            if (lists[k]->values[i] != lists[k]->values[0])
                return tsr__fail(TSR_ERR_UNSUPPORTED,
                                 "gguf: layers have different numbers of %s, %" PRId64
                                 " and %" PRId64 ", which is not supported in architecture %s",
                                 k == 0 ? "kv heads" : "hidden features", lists[k]->values[0],
                                 lists[k]->values[i], facts->family->gguf);
        lists[k]->count = 0;
    }
    return TSR_OK;
}

/* Looks up which layers have delta nets. The list ends with the file's layers that predict further
 * tokens, which have none. */
static tsr_status find_recurrent_layers(metadata *m, int64_t next_layers)
{
    tsr__layer_facts *which = &m->facts->delta.which;
    TSR__TRY(find_bools(m, ".attention.recurrent_layers", which));
    if (next_layers > 0 && m->facts->layers > 0 && which->count - next_layers == m->facts->layers)
        which->count -= (int)next_layers;
    return TSR_OK;
}

static tsr_status read_values(metadata *m)
{
    tsr__facts *facts = m->facts;
    tsr__rope_facts *rope = &facts->rope;
    int64_t eos = TSR__UNSET, eot = TSR__UNSET, eom = TSR__UNSET, gating = TSR__UNSET,
            next_layers = 0;
    tsr__expert_facts *experts = &facts->experts;
    tsr__delta_facts *delta = &facts->delta;
    double linear = TSR__UNSET, log_multiplier = TSR__UNSET;
    const entry entries[] = {
        {".rope.scaling.type", NULL, NULL},
        {TSR__GGUF_ACTIVATION, NULL, NULL},
        {".expert_weights_norm", NULL, NULL},
        {TSR__GGUF_EXACT_RANGE, NULL, NULL},
        {".block_count", &facts->layers, NULL},
        {".embedding_length", &facts->width, NULL},
        {".attention.head_count", &facts->heads, NULL},
        {".attention.key_length", &facts->head_dim, NULL},
        {".attention.value_length", &facts->value_dim, NULL},
        {".context_length", &facts->context, NULL},
        {".vocab_size", &facts->vocabulary, NULL},
        {".attention.sliding_window", &facts->window, NULL},
        {".rope.dimension_count", &facts->rotary_dim, NULL},
        {".rope.freq_base_swa", NULL, &facts->window_theta},
        {".attention.scale", NULL, &facts->attention_scale},
        {".attention.temperature_scale", NULL, &facts->temperature},
        {".attention.temperature_length", NULL, &facts->temperature_length},
        {".rope.scaling.yarn_log_multiplier", NULL, &log_multiplier},
        {".attn_logit_softcapping", NULL, &facts->attention_softcap},
        {".final_logit_softcapping", NULL, &facts->logit_softcap},
        {".embedding_scale", NULL, &facts->embedding_scale},
        {".residual_scale", NULL, &facts->residual_scale},
        {".logit_scale", NULL, &facts->logit_divisor},
        {".expert_count", &experts->count, NULL},
        {".expert_used_count", &experts->used, NULL},
        {".expert_feed_forward_length", &experts->hidden, NULL},
        {".expert_shared_count", &experts->shared_count, NULL},
        {".expert_shared_feed_forward_length", &experts->shared_hidden, NULL},
        {".expert_group_count", &experts->groups, NULL},
        {".expert_group_used_count", &experts->groups_used, NULL},
        {".expert_weights_scale", NULL, &experts->scale},
        {".expert_gating_func", &gating, NULL},
        {".leading_dense_block_count", &experts->first_dense, NULL},
        {".nextn_predict_layers", &next_layers, NULL},
        {".ssm.group_count", &delta->key_heads, NULL},
        {".ssm.time_step_rank", &delta->heads, NULL},
        {".ssm.state_size", &delta->key_dim, NULL},
        {".ssm.inner_size", &delta->inner, NULL},
        {".ssm.conv_kernel", &delta->taps, NULL},
        {".full_attention_interval", &delta->period, NULL},
        {".shortconv.l_cache", &facts->conv.taps, NULL},
        {".attention.layer_norm_rms_epsilon", NULL, &facts->norm_epsilon},
        {".attention.layer_norm_epsilon", NULL, &facts->norm_epsilon},
        {".rope.freq_base", NULL, &rope->theta},
        {".rope.scaling.factor", NULL, &rope->factor},
        {".rope.scale_linear", NULL, &linear},
        {".rope.scaling.original_context_length", NULL, &rope->original_length},
        {".rope.scaling.attn_factor", NULL, &rope->attention_factor},
        {".rope.scaling.yarn_beta_fast", NULL, &rope->beta_fast},
        {".rope.scaling.yarn_beta_slow", NULL, &rope->beta_slow},
        {".attention.q_lora_rank", &facts->latent.q_rank, NULL},
        {".attention.kv_lora_rank", &facts->latent.kv_rank, NULL},
        {".attention.key_length_mla", &facts->latent.head, NULL},
        {".attention.value_length_mla", &facts->latent.value, NULL},
        {"tokenizer.ggml.bos_token_id", &facts->bos, NULL},
        {"tokenizer.ggml.eos_token_id", &eos, NULL},
        {"tokenizer.ggml.eot_token_id", &eot, NULL},
        {"tokenizer.ggml.eom_token_id", &eom, NULL},
    };
    TSR__TRY(find(m, (int)(sizeof entries / sizeof *entries), entries));
    if (m->values[3].found) {
        bool exact = false;
        TSR__TRY(tsr__gguf_bool(m->file, &m->values[3], &exact));
        rope->truncate = !exact;
    }
    TSR__TRY(take_gating(facts, gating));
    if (m->values[2].found) {
        bool normalise = false;
        TSR__TRY(tsr__gguf_bool(m->file, &m->values[2], &normalise));
        experts->normalise = normalise;
    }
    /* The last layers of the file may predict further tokens. */
    if (facts->layers > next_layers && next_layers > 0) {
        facts->layers -= next_layers;
        facts->next_layers = facts->family->hf_next_layers ? next_layers : 0;
    }
    if (m->values[0].found) {
        TSR__TRY(tsr__gguf_name_of(m->file, &m->values[0], m->text));
        const size_t length = strlen(m->text);
        TSR__REQUIRE(length < sizeof rope->type, "gguf: rope scaling '%.60s…' is not supported",
                     m->text);
        memcpy(rope->type, m->text, length + 1);
    } else if (linear != TSR__UNSET && linear != 1) { /* old files have a factor and no type */
        rope->factor = linear;
        strcpy(rope->type, "linear");
    }
    if (m->values[1].found) {
        TSR__TRY(tsr__gguf_name_of(m->file, &m->values[1], m->text));
        if (strcmp(m->text, "gelu") != 0)
            return tsr__fail(TSR_ERR_UNSUPPORTED, "gguf: activation '%.60s' is not supported",
                             m->text);
        facts->activation = TSR_ACT_GELU_ERF;
        facts->has_activation = true;
    }
    /* YaRN's factor of rotated components is divided by one that equals it. The key has mscale or,
     * with latent attention, a tenth of it. */
    if (log_multiplier != TSR__UNSET && log_multiplier != 0)
        rope->mscale = rope->mscale_all_dim =
            facts->family->latent ? (double)(float)(10 * log_multiplier) : log_multiplier;
    if (facts->family->latent)
        take_latent(facts);
    tsr__facts_add_end(facts, eos);
    tsr__facts_add_end(facts, eot);
    tsr__facts_add_end(facts, eom);
    TSR__TRY(find_sizes(m, ".attention.head_count_kv", &facts->kv_heads, &facts->kv_sizes));
    TSR__TRY(find_sizes(m, ".feed_forward_length", &facts->hidden, &facts->hidden_sizes));
    if (facts->family->delta_keys)
        TSR__TRY(find_recurrent_layers(m, next_layers));
    if (facts->family->sizes_by_layers)
        return read_sizes_by_layers(m);
    if (facts->family->short_convs)
        take_short_convs(facts);
    return require_one_size(facts);
}

/* From tensors ------------------------------------------------------------------------------- */

/* Reads the tensor with the divisors of rotary frequencies, which files of Llama 3 have. */
static tsr_status read_rope_factors(tsr__file *file, const tsr_shard_param *param,
                                    tsr__facts *facts)
{
    uint8_t bytes[4 * TSR_MAX_HEAD_DIM];
    float factors[TSR_MAX_HEAD_DIM];
    TSR__REQUIRE(param->ndim == 1 && param->shape[0] >= 1 &&
                     param->shape[0] <= TSR_MAX_HEAD_DIM / 2 && strcmp(param->dtype, "f32") == 0,
                 "gguf: rope_freqs.weight is not a row of 1 to %d f32", TSR_MAX_HEAD_DIM / 2);
    const int64_t count = param->shape[0];
    TSR__TRY(
        tsr__file_read(file, param->offset_bytes, (uint64_t)count * 4, "rope_freqs.weight", bytes));
    for (int64_t i = 0; i < count; i++)
        factors[i] = tsr__f32_of_bits(tsr__get_u32(bytes + 4 * i));
    const double theta = facts->rope.theta == TSR__UNSET ? 10000 : facts->rope.theta;
    return facts->family->sizes_by_layers
               ? tsr__rope_from_proportional("gguf", count, factors, &facts->rope)
               : tsr__rope_from_factors("gguf", theta, count, factors, &facts->rope);
}

/* Reads a tensor with divisors of LongRoPE. */
static tsr_status read_divisors(tsr__file *file, const tsr_shard_param *param, float *out,
                                int *count)
{
    uint8_t bytes[4 * TSR__MOST_PAIRS];
    TSR__REQUIRE(param->ndim == 1 && param->shape[0] >= 1 && param->shape[0] <= TSR__MOST_PAIRS &&
                     strcmp(param->dtype, "f32") == 0,
                 "gguf: %s is not a row of 1 to %d f32", param->name, TSR__MOST_PAIRS);
    *count = (int)param->shape[0];
    TSR__TRY(tsr__file_read(file, param->offset_bytes, (uint64_t)*count * 4, param->name, bytes));
    for (int i = 0; i < *count; i++)
        out[i] = tsr__f32_of_bits(tsr__get_u32(bytes + (size_t)4 * (size_t)i));
    return TSR_OK;
}

/* Reads the divisors of LongRoPE. GGUF files have them as tensors, and may lack the type. */
static tsr_status read_long_rope(tsr__file *file, const tsr__model_files *files, tsr__facts *facts)
{
    const tsr_shard_param *near = tsr__model_files_find(files, "rope_factors_short.weight"),
                          *far = tsr__model_files_find(files, "rope_factors_long.weight");
    if (!near && !far)
        return TSR_OK;
    TSR__REQUIRE(near && far, "gguf: there is no %s",
                 near ? "rope_factors_long.weight" : "rope_factors_short.weight");
    strcpy(facts->rope.type, "longrope");
    TSR__TRY(read_divisors(file, near, facts->rope.short_divisors, &facts->rope.short_count));
    return read_divisors(file, far, facts->rope.long_divisors, &facts->rope.long_count);
}

/* Returns whether the file has the bias of one of our weights in any layer; the other layers that
 * have the weight must have it too, which is checked when tensors are looked up. */
static bool has_bias(const tsr__model_files *files, const tsr__facts *facts, const char *ours)
{
    char name[KEY_SIZE];
    const tsr__weight_name *weight = tsr__family_weight(facts->family, true, ours);
    for (int i = 0; weight && i < facts->layers && i < TSR_MODEL_MAX_LAYERS; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.bias", i, weight->gguf);
        if (tsr__model_files_find(files, name))
            return true;
    }
    return false;
}

/* Finds out which layers have no values of their own. */
static void find_values(const tsr__model_files *files, tsr__facts *facts)
{
    char name[KEY_SIZE];
    if (!facts->family->sizes_by_layers || facts->layers < 1 ||
        facts->layers > TSR_MODEL_MAX_LAYERS)
        return;
    facts->no_values.count = (int)facts->layers;
    for (int i = 0; i < facts->no_values.count; i++) {
        snprintf(name, sizeof name, "blk.%d.attn_v.weight", i);
        facts->no_values.values[i] = tsr__model_files_find(files, name) == NULL;
    }
}

static tsr_status read_tensors(tsr__file *file, const tsr__model_files *files, tsr__facts *facts)
{
    const tsr_shard_param *embedding = tsr__model_files_find(files, "token_embd.weight");
    const tsr_shard_param *rope = tsr__model_files_find(files, "rope_freqs.weight");
    if (facts->vocabulary == TSR__UNSET && embedding && embedding->ndim == 2)
        facts->vocabulary = embedding->shape[0];
    facts->tied = tsr__model_files_find(files, "output.weight") == NULL;
    facts->norm_bias = has_bias(files, facts, "norm1");
    facts->qkv_bias = has_bias(files, facts, "attention.q");
    facts->output_bias = has_bias(files, facts, "attention.o");
    facts->mlp_bias = has_bias(files, facts, "mlp.up");
    find_values(files, facts);
    if (facts->family->qk_norm_varies)
        facts->qk_norm = tsr__model_files_find(files, "blk.0.attn_q_norm.weight") != NULL;
    if (facts->next_layers > 0) { /* quantised files may lack these layers */
        char name[KEY_SIZE];
        snprintf(name, sizeof name, "blk.%d.nextn.eh_proj.weight", (int)facts->layers);
        if (!tsr__model_files_find(files, name))
            facts->next_layers = 0;
    }
    TSR__TRY(read_long_rope(file, files, facts));
    return rope ? read_rope_factors(file, rope, facts) : TSR_OK;
}

/* Finds the scale of scores for families whose files have no key for it. */
static void take_scale(tsr__facts *facts)
{
    const tsr__family *family = facts->family;
    if (family->query_scalar && facts->heads > 0 && facts->width > 0)
        facts->query_scalar = facts->layers == family->gguf_scale_by_width
                                  ? (double)facts->width / (double)facts->heads
                              : facts->head_dim > 0 ? (double)facts->head_dim
                                                    : (double)facts->width / (double)facts->heads;
}

static tsr_status read_file(const tsr__model_files *files, metadata *m)
{
    tsr__facts *facts = m->facts;
    TSR__TRY(read_architecture(m));
    TSR__TRY(read_values(m));
    const bool has_experts = facts->experts.count != TSR__UNSET && facts->experts.count != 0;
    const tsr__family *family =
        tsr__family_by_gguf(facts->family->gguf, facts->window > 0, has_experts);
    if (!family && has_experts) /* Mixtral's files have the architecture "llama", too. */
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "gguf: %s.expert_count is %" PRId64
                         "; experts are not supported in this architecture",
                         facts->family->gguf, facts->experts.count);
    if (family)
        facts->family = family;
    if (facts->family->gguf_softmax && facts->experts.gating != TSR_GATING_SIGMOID)
        facts->family = facts->family->gguf_softmax;
    take_scale(facts);
    /* The factor in the file is relative to the one that YaRN computes from the scaling factor;
     * attention_factor is the product of both. */
    if (strcmp(facts->rope.type, "yarn") == 0 && facts->rope.attention_factor != TSR__UNSET)
        facts->rope.attention_factor *= tsr__yarn_attention(facts->rope.factor);
    return read_tensors(m->file, files, facts);
}

tsr_status tsr__facts_read_gguf(const tsr__model_files *files, tsr__facts *out)
{
    tsr__file file;
    metadata *m = tsr__calloc(1, sizeof *m);
    if (!m)
        return TSR_ERR_NO_MEMORY;
    *m = (metadata){.file = &file, .keys_of_file = &files->list->keys, .facts = out};
    out->file = "gguf";
    tsr_status status = tsr__file_open(files->weights, &file);
    if (status == TSR_OK) {
        status = read_file(files, m);
        tsr__file_close(&file);
    }
    tsr__free(m);
    return status;
}
