/* What a rank holds with its share: bytes of weights, and of its cache. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "model/config/config.h"
#include "model/generate/generator.h"
#include "model/plan/shares.h"
#include "tensor/dtype.h"

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Returns how many rows (of "o", columns) of a parameter of a delta net belong to a key head; 0: it
 * is not divided. */
static int64_t delta_unit(const char *ours, const tsr_model_delta_net *net)
{
    const char *what = ours + strlen("delta_net.");
    const int64_t each = net->heads / net->key_heads;
    if (starts(what, "q.") || starts(what, "k.") || starts(what, "q_conv.") ||
        starts(what, "k_conv."))
        return net->key_dim;
    if (starts(what, "v.") || starts(what, "z.") || starts(what, "v_conv.") || starts(what, "o."))
        return each * net->value_dim;
    return starts(what, "norm.") ? 0 : each;
}

/* Returns the part of a parameter that a rank has. */
static tsr__weight_part part_of(const tsr__planned *item, const tsr__plan_share *s,
                                const tsr_model_layer *layer)
{
    const int64_t head_dim = layer ? layer->head_dim : 0, value_dim = layer ? layer->value_dim : 0;
    const bool whole = layer && layer->qk_norm == TSR_QK_NORM_WHOLE;
    tsr__weight_part part = {.rows = item->weight.rows, .columns = item->weight.columns};
    const bool is_bias = item->ndim == 1;
    const char *ours = item->ours;
    const tsr_shard_range *rows = NULL, *columns = NULL;
    int64_t unit = 1;
    if (starts(ours, "delta_net.")) {
        unit = delta_unit(ours, layer->delta_net);
        *(starts(ours, "delta_net.o.") ? &columns : &rows) = unit > 0 ? &s->key_heads : NULL;
    } else if (starts(ours, "short_conv.")) {
        *(starts(ours, "short_conv.o.") ? &columns : &rows) = &s->key_heads;
    } else if (starts(ours, "attention.q.") || starts(ours, "attention.q_b.") ||
               (whole && starts(ours, "attention.q_norm."))) {
        rows = &s->heads;
        unit = head_dim;
    } else if (starts(ours, "attention.gate.")) {
        rows = &s->heads;
        unit = value_dim;
    } else if (starts(ours, "attention.k.") || (whole && starts(ours, "attention.k_norm."))) {
        rows = s->all_kv_heads ? NULL : &s->kv_heads;
        unit = head_dim;
    } else if (starts(ours, "attention.v.")) {
        rows = s->all_kv_heads ? NULL : &s->kv_heads;
        unit = value_dim;
    } else if (starts(ours, "attention.o.")) {
        columns = is_bias ? NULL : &s->heads;
        unit = value_dim;
    } else if (strcmp(ours, "attention.sinks") == 0) {
        rows = &s->heads;
    } else if (starts(ours, "mlp.gate.") || starts(ours, "mlp.up.")) {
        rows = &s->mlp;
    } else if (starts(ours, "mlp.down.")) {
        columns = is_bias ? NULL : &s->mlp;
    } else if (starts(ours, "mlp.experts.gate.") || starts(ours, "mlp.experts.up.")) {
        rows = &s->hidden;
    } else if (starts(ours, "mlp.experts.down.")) {
        columns = is_bias ? NULL : &s->hidden;
    } else if (starts(ours, "mlp.shared.gate.") || starts(ours, "mlp.shared.up.")) {
        rows = &s->shared;
    } else if (starts(ours, "mlp.shared.down.")) {
        columns = &s->shared;
    } else if (starts(ours, "next.join.")) {
        rows = &s->width;
    } else if (starts(ours, "embedding.") || starts(ours, "head.") ||
               starts(ours, "input_table.")) {
        rows = &s->vocabulary;
    }
    if (item->experts > 0) {
        part.of_experts = true;
        part.first_expert = (int64_t)(item->of_heads ? s->heads : s->experts).start;
        part.experts = (int64_t)(item->of_heads ? s->heads : s->experts).count;
    }
    if (rows) {
        part.first_row = (int64_t)rows->start * unit;
        part.rows = (int64_t)rows->count * unit;
    }
    if (columns) {
        part.first_column = (int64_t)columns->start * unit;
        part.columns = (int64_t)columns->count * unit;
    }
    return part;
}

static bool is_norm(const char *ours)
{
    return strstr(ours, "norm") != NULL;
}

tsr__plan_ends tsr__plan_ends_of(const tsr_model_plan_params *p, int rank)
{
    const int stage = rank / (p->ranks / p->stages);
    const bool last = stage == p->stages - 1;
    return (tsr__plan_ends){.first = stage == 0, .last = last, .next = last && p->next_token};
}

bool tsr__plan_has_outside(const tsr_model_config *c, const tsr__planned *item, tsr__plan_ends of)
{
    if (starts(item->ours, "positions."))
        return of.first;
    if (starts(item->ours, "input_"))
        return true; /* there is one stage */
    if (starts(item->ours, "embedding."))
        return of.first || (of.last && c->tied) || of.next;
    return of.last;
}

bool tsr__plan_has_inside(const tsr_model_config *c, const tsr__planned *item, tsr__plan_ends of,
                          int first, int layers)
{
    if (tsr__config_is_next(c, item->layer))
        return of.next;
    return item->layer >= first && item->layer < first + layers;
}

void tsr__plan_add_item(const tsr__kept *kept, const tsr__planned *item, const tsr__plan_share *s,
                        const tsr_model_plan_params *p, tsr__plan_ends of, tsr_model_rank_plan *out)
{
    const tsr_model_layer *layer = tsr__config_layer(kept->config, item->layer);
    tsr__weight weight = item->weight;
    tsr__weight_part part = part_of(item, s, layer);
    if (kept->tiles)
        tsr__weight_keep_tiles(&weight, &part);
    const bool is_positions = starts(item->ours, "positions.");
    const tsr_dtype dtype = item->is_f32 ? TSR_F32
                            : item->ndim == 1 || is_positions
                                ? kept->others
                                : tsr__kept_part(kept, &weight, &part);
    const uint64_t elements = tsr__weight_part_elements(&part),
                   bytes = tsr__dtype_bytes(dtype, elements);
    const bool is_embedding = starts(item->ours, "embedding."),
               is_table = is_positions || starts(item->ours, "input_table.");
    const bool of_experts = item->experts > 0 && !item->of_heads;
    const double used = of_experts
                            ? (double)layer->experts->used / (double)layer->experts->count
                            : 1; /* a token uses as large a part of a rank's experts as of all */
    const bool only_drafts = tsr__config_is_next(kept->config, item->layer); /* use it */
    if (of_experts && item->ndim == 2 &&
        tsr__config_host_experts(kept->config, item->layer, p->host_experts)) {
        out->host_bytes += bytes;
        if (only_drafts)
            return;
        out->host_token_bytes += (uint64_t)llround((double)bytes * used);
        out->token_parameters += (uint64_t)llround((double)elements * used);
        out->expert_parameters += (uint64_t)llround((double)elements * used);
        return;
    }
    *(is_norm(item->ours)        ? &out->norm_bytes
      : is_embedding || is_table ? &out->embedding_bytes
      : starts(item->ours, "attention.") || starts(item->ours, "delta_net.") ||
              starts(item->ours, "short_conv.")
          ? &out->attention_bytes
      : starts(item->ours, "mlp.") || starts(item->ours, "end.") ? &out->mlp_bytes
                                                                 : &out->head_bytes) += bytes;
    out->weight_bytes += bytes;
    /* A token reads only one row of a table of embeddings or positions, so token_bytes leaves out
     * these tables. The embedding is a table where it is not also the head. */
    if (is_table || (is_embedding && !(kept->config->tied && of.last)))
        return;
    if (of_experts)
        out->expert_bytes += bytes;
    if (only_drafts)
        return;
    out->token_bytes += (uint64_t)llround((double)bytes * used);
    if (item->ndim != 2)
        return;
    out->token_parameters += (uint64_t)llround((double)elements * used);
    if (of_experts)
        out->expert_parameters += (uint64_t)llround((double)elements * used);
}

/* The bytes that a sequence's state has for one key head of a delta net, or one feature of a short
 * convolution. */
static uint64_t state_bytes(const tsr_model_layer *layer)
{
    const tsr_model_delta_net *net = layer->delta_net;
    if (!net)
        return (uint64_t)(layer->conv_taps - 1) * sizeof(float);
    const int64_t each = net->heads / net->key_heads,
                  inputs = (2 * net->key_dim + each * net->value_dim) * (net->taps - 1);
    return (uint64_t)(inputs + each * net->key_dim * net->value_dim) * sizeof(float);
}

/* The features of a key and its value. */
static uint64_t features_of(const tsr_model_layer *layer)
{
    return (uint64_t)(layer->head_dim + layer->value_dim);
}

uint64_t tsr__plan_cache_bytes(const tsr_model_config *c, const tsr_model_plan_params *p, int layer,
                               const tsr__plan_share *s)
{
    if (p->context == 0 || tsr__config_layer(c, layer)->shared_keys)
        return 0;
    if (tsr__layer_has_state(tsr__config_layer(c, layer)))
        return (uint64_t)tsr__generator_state_slots(p->sequences, p->draft_tokens, p->snapshots) *
               s->key_heads.count * state_bytes(tsr__config_layer(c, layer));
    /* Context ranks have equal parts of each page, and a page for tokens of others. */
    const int64_t own = (p->context + p->context_ranks - 1) / p->context_ranks,
                  page = own < TSR__PAGE_TOKENS ? own : TSR__PAGE_TOKENS,
                  pages = p->sequences * ((own + page - 1) / page) + (p->context_ranks > 1),
                  tokens = pages * page;
    const tsr_model_latent *latent = tsr__config_layer(c, layer)->latent;
    /* beside its cache, the layer that predicts further tokens has features of the latest ones */
    const uint64_t features =
        tsr__config_is_next(c, layer)
            ? (uint64_t)c->width * sizeof(float) * (uint64_t)p->sequences * TSR__NEXT_FEATURES
            : 0;
    if (latent) /* of one head, whose values are in its keys */
        return (uint64_t)tokens * (s->heads.count > 0) *
                   tsr__dtype_bytes(p->cache_dtype,
                                    (uint64_t)(latent->kv_lora_rank + latent->rope_dim)) +
               features;
    return (uint64_t)tokens * s->kv_heads.count *
               tsr__dtype_bytes(p->cache_dtype, features_of(tsr__config_layer(c, layer))) +
           features;
}

tsr_status tsr__plan_check_cache_dtype(const tsr_model_config *c, tsr_dtype dtype)
{
    const int64_t block = (int64_t)tsr__dtype_block(dtype);
    TSR__REQUIRE(tsr__dtype_is_float(dtype) || tsr__dtype_is_cached_block(dtype),
                 "model: the cache cannot be %s; f32, f16, bf16, q8_0 and q4_0 are possible",
                 tsr_dtype_name(dtype));
    for (int i = 0; i < c->layers; i++) {
        const tsr_model_layer *layer = tsr__config_layer(c, i);
        const tsr_model_latent *latent = layer->latent;
        const int64_t keys = latent ? latent->kv_lora_rank + latent->rope_dim : layer->head_dim,
                      values = latent ? latent->kv_lora_rank : layer->value_dim;
        TSR__REQUIRE(tsr__layer_has_state(layer) || (keys % block == 0 && values % block == 0),
                     "model: the cache cannot be %s, which has blocks of %" PRId64
                     " features: the keys of a head of layer %d have %" PRId64
                     " features, and its values %" PRId64,
                     tsr_dtype_name(dtype), block, i, keys, values);
    }
    return TSR_OK;
}

tsr_status tsr__plan_check_cache(const tsr_model_config *c, const tsr_model_plan_params *p)
{
    /* Less than 2^64, because the features of all heads are at most TSR_MODEL_MAX_WIDTH. The last
     * page of a sequence may be incomplete. */
    uint64_t features = 0;
    for (int i = 0; i < c->layers; i++)
        features +=
            (uint64_t)tsr__config_layer(c, i)->kv_heads * features_of(tsr__config_layer(c, i));
    uint64_t bytes = tsr__div_up_u64(features, tsr__dtype_block(p->cache_dtype)) *
                     tsr__dtype_block_bytes(p->cache_dtype) *
                     (uint64_t)(p->context + TSR__PAGE_TOKENS);
    if (!tsr__mul_u64(bytes, (uint64_t)p->sequences, &bytes) || bytes > INT64_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "model: the cache of %d sequences of %" PRId64
                         " tokens is larger than 2^63 - 1 bytes",
                         p->sequences, p->context);
    return TSR_OK;
}

/* Returns the first layer of a stage that has attention, or its first layer. */
static int attention_layer(const tsr_model_config *c, const tsr_model_rank_plan *of)
{
    for (int i = of->first_layer; i < of->first_layer + of->layers; i++)
        if (!tsr__layer_has_state(tsr__config_layer(c, i)))
            return i;
    return of->first_layer;
}

void tsr__plan_rank(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                    const tsr__plan_division *d, int rank, tsr_model_rank_plan *out)
{
    const tsr_model_config *c = plan->weights->config;
    const tsr__plan_share *s = tsr__plan_share_of(d, rank, attention_layer(c, out));
    const tsr__plan_ends of = tsr__plan_ends_of(p, rank);
    for (size_t i = 0; i < plan->count; i++) {
        const tsr__planned *item = &plan->items[i];
        if (item->layer < 0 ? tsr__plan_has_outside(c, item, of)
                            : tsr__plan_has_inside(c, item, of, out->first_layer, out->layers))
            tsr__plan_add_item(&d->kept, item, tsr__plan_share_of(d, rank, item->layer), p, of,
                               out);
    }
    out->heads = (int64_t)s->heads.count;
    out->kv_heads = tsr__config_layer(c, out->first_layer)->latent ? s->heads.count > 0
                                                                   : (int64_t)s->kv_heads.count;
    out->hidden = (int64_t)s->hidden.count;
    for (int i = out->first_layer; i < out->first_layer + out->layers; i++)
        if (tsr__config_layer(c, i)->experts) {
            out->experts = (int64_t)tsr__plan_share_of(d, rank, i)->experts.count;
            out->expert_hidden = (int64_t)tsr__plan_share_of(d, rank, i)->hidden.count;
            break;
        }
    out->vocabulary = (int64_t)s->vocabulary.count;
    for (int i = out->first_layer; i < out->first_layer + out->layers; i++) {
        const uint64_t bytes = tsr__plan_cache_bytes(c, p, i, tsr__plan_share_of(d, rank, i));
        out->cache_bytes += bytes;
        if (tsr__layer_has_state(tsr__config_layer(c, i)) && bytes > 0) {
            out->state_bytes += bytes;
            out->used_state_bytes += (uint64_t)p->sequences *
                                     tsr__plan_share_of(d, rank, i)->key_heads.count *
                                     state_bytes(tsr__config_layer(c, i));
        }
    }
    if (of.next)
        out->cache_bytes +=
            tsr__plan_cache_bytes(c, p, c->layers, tsr__plan_share_of(d, rank, c->layers));
    out->total_bytes = out->weight_bytes + out->cache_bytes;
}
