#include "model/plan/plan.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/config/config.h"
#include "model/file.h"
#include "model/generate/generator.h"
#include "parallel/internal.h"
#include "tensor/dtype.h"

/* Parameters ----------------------------------------------------------------------------------- */

static tsr_status add_layer(tsr__model_plan *plan, int layer)
{
    tsr__parameter p;
    for (int i = 0; tsr__weights_parameter(plan->weights->config, layer, i, &p); i++) {
        void *items = plan->items;
        tsr__planned item = {.ours = p.ours,
                             .layer = layer,
                             .ndim = p.ndim,
                             .experts = p.experts,
                             .of_heads = p.of_heads,
                             .is_f32 = p.is_f32};
        TSR__TRY(tsr__weight_find(plan->weights, layer, p.ours, &item.weight));
        TSR__TRY(tsr__grow(&items, &plan->capacity, plan->count + 1, sizeof *plan->items));
        plan->items = items;
        plan->items[plan->count++] = item;
    }
    return TSR_OK;
}

tsr_status tsr__model_plan_init(const tsr__weights *weights, tsr__model_plan *out)
{
    *out = (tsr__model_plan){.weights = weights};
    for (int layer = -1; layer < weights->config->layers; layer++)
        TSR__TRY(add_layer(out, layer));
    return TSR_OK;
}

void tsr__model_plan_finish(tsr__model_plan *plan)
{
    tsr__free(plan->items);
    *plan = (tsr__model_plan){0};
}

/* Shares --------------------------------------------------------------------------------------- */

/* The heads, hidden features and entries of the vocabulary that a rank has. `hidden` are those of
 * the MLP, or of each of `experts`; with whole experts, these are the rank's. */
typedef struct share {
    tsr_shard_range heads, kv_heads, hidden, experts, shared, vocabulary;
    tsr_shard_range key_heads; /* of a delta net */
    tsr_shard_range mlp;       /* hidden features of an MLP, also of one beside experts */
    bool all_kv_heads;         /* the rank has the parameters of all kv heads */
} share;

static tsr_status divide_within(int64_t length, int ranks, const tsr_partition_params *params,
                                uint64_t align, const uint64_t *limits, tsr_shard_range *ranges)
{
    tsr_partition_params partition = *params;
    partition.align = align;
    partition.limits = limits;
    if (partition.kind == TSR_PARTITION_EVEN)
        partition.kind = TSR_PARTITION_UNEVEN;
    return tsr_partition((uint64_t)length, ranks, &partition, ranges);
}

static tsr_status divide(int64_t length, int ranks, const tsr_partition_params *params,
                         uint64_t align, tsr_shard_range *ranges)
{
    return divide_within(length, ranks, params, align, NULL, ranges);
}

/* Heads are divided by whole kv heads, if there is one for each rank. Otherwise every rank has the
 * parameters of all kv heads, and keys and values of those that its heads read. */
static void take_heads(const tsr_model_layer *layer, bool by_kv_heads, const tsr_shard_range *range,
                       share *out)
{
    const uint64_t group = (uint64_t)(layer->heads / layer->kv_heads);
    if (by_kv_heads) {
        out->kv_heads = *range;
        out->heads =
            (tsr_shard_range){.start = range->start * group, .count = range->count * group};
        return;
    }
    out->heads = *range;
    out->all_kv_heads = true;
    out->kv_heads.start = range->start / group;
    out->kv_heads.count =
        range->count == 0 ? 0 : (range->start + range->count - 1) / group + 1 - out->kv_heads.start;
}

/* Divides experts over the hosts, and each of them over the ranks of its host. `ranges` is scratch
 * memory. */
static tsr_status divide_mixed(const tsr__kept *kept, const tsr_model_experts *experts,
                               const tsr_partition_params *partition, const int *hosts,
                               uint64_t align, tsr_shard_range *ranges, share *shares)
{
    const int ranks = kept->ranks, kinds = kept->config->kind_count;
    tsr_partition_params aligned = *partition;
    int *one = tsr__calloc((size_t)ranks, sizeof *one);
    tsr_shard_range *inside = tsr__calloc((size_t)ranks, sizeof *inside);
    aligned.align = align;
    const tsr_status status =
        one && inside ? tsr__teams_divide(ranks, hosts ? hosts : one, &aligned, experts->count,
                                          experts->hidden, ranges, inside)
                      : TSR_ERR_NO_MEMORY;
    for (int r = 0; status == TSR_OK && r < ranks; r++) {
        shares[(size_t)r * (size_t)kinds].experts = ranges[r];
        shares[(size_t)r * (size_t)kinds].hidden = inside[r];
    }
    tsr__free(one);
    tsr__free(inside);
    return status == TSR_OK ? TSR_OK : tsr__fail_context(status, "model: hosts");
}

/* Divides the MLP or the experts of a kind of layer. `hosts` are those of the ranks, or NULL. */
static tsr_status divide_hidden(const tsr__kept *kept, const tsr__weights *weights, int kind,
                                const tsr_partition_params *partition, const int *hosts,
                                const uint64_t *limits, tsr_shard_range *ranges, share *shares)
{
    const tsr_model_experts *experts = kept->config->kinds[kind]->experts;
    const int ranks = kept->ranks, kinds = kept->config->kind_count;
    tsr__kept_hidden hidden;
    uint64_t align_shared = 0, align_mlp = 0;
    TSR__TRY(tsr__kept_divide_hidden(kept, weights, kind, &hidden));
    if (hidden.mixed)
        TSR__TRY(divide_mixed(kept, experts, partition, hosts, hidden.align, ranges, shares));
    else
        TSR__TRY(divide_within(hidden.length, ranks, partition, hidden.align,
                               hidden.whole_experts ? limits : NULL, ranges));
    for (int r = 0; r < ranks && !hidden.mixed; r++) {
        share *s = &shares[(size_t)r * (size_t)kinds];
        s->hidden = s->experts = (tsr_shard_range){0};
        s->mlp = ranges[r];
        *(hidden.whole_experts ? &s->experts : &s->hidden) = ranges[r];
        if (experts)
            (hidden.whole_experts ? &s->hidden : &s->experts)->count =
                (uint64_t)(hidden.whole_experts ? experts->hidden : experts->count);
    }
    if (experts && experts->beside_mlp) {
        TSR__TRY(tsr__kept_align_mlp(kept, weights, kind, &align_mlp));
        TSR__TRY(divide(kept->config->kinds[kind]->hidden, ranks, partition, align_mlp, ranges));
        for (int r = 0; r < ranks; r++)
            shares[(size_t)r * (size_t)kinds].mlp = ranges[r];
    }
    if (!experts || experts->shared_hidden == 0)
        return TSR_OK;
    TSR__TRY(tsr__kept_align_shared(kept, weights, kind, &align_shared));
    TSR__TRY(divide(experts->shared_hidden, ranks, partition, align_shared, ranges));
    for (int r = 0; r < ranks; r++)
        shares[(size_t)r * (size_t)kinds].shared = ranges[r];
    return TSR_OK;
}

/* Divides the heads of a kind of layer: of a delta net the key heads, with their heads. */
static tsr_status divide_heads(const tsr__kept *kept, const tsr__weights *weights, int kind,
                               const tsr_partition_params *partition, tsr_shard_range *ranges,
                               share *shares)
{
    const tsr_model_layer *layer = kept->config->kinds[kind];
    const tsr_model_delta_net *net = layer->delta_net;
    const int ranks = kept->ranks, kinds = kept->config->kind_count;
    const bool by_kv_heads = layer->kv_heads >= ranks;
    uint64_t align = 0;
    TSR__TRY(tsr__kept_align_heads(kept, weights, kind, &align));
    TSR__TRY(divide(net           ? net->key_heads
                    : by_kv_heads ? layer->kv_heads
                                  : layer->heads,
                    ranks, partition, align, ranges));
    for (int r = 0; r < ranks; r++) {
        share *s = &shares[(size_t)r * (size_t)kinds];
        if (net)
            s->key_heads = ranges[r];
        else
            take_heads(layer, by_kv_heads, &ranges[r], s);
    }
    return TSR_OK;
}

/* Divides a kind of layer over the ranks of a stage. shares[r · kinds] is that of rank r. */
static tsr_status divide_stage(const tsr__kept *kept, const tsr__weights *weights, int kind,
                               const tsr_partition_params *partition, const int *hosts,
                               const uint64_t *limits, tsr_shard_range *ranges, share *shares)
{
    const int ranks = kept->ranks, kinds = kept->config->kind_count;
    TSR__TRY(divide_heads(kept, weights, kind, partition, ranges, shares));
    TSR__TRY(divide_hidden(kept, weights, kind, partition, hosts, limits, ranges, shares));
    TSR__TRY(divide(kept->config->vocabulary, ranks, partition, 0, ranges));
    for (int r = 0; r < ranks; r++)
        shares[(size_t)r * (size_t)kinds].vocabulary = ranges[r];
    return TSR_OK;
}

/* The shares of all ranks, and the dtypes of their weights. */
typedef struct division {
    tsr__kept kept;
    share *shares; /* [ranks][kinds of layers] */
    /* [kinds of layers][ranks]: the most whole experts for each rank; NULL: no limits */
    uint64_t *limits;
} division;

/* Returns what a rank has of a layer; of layer −1, what is divided outside layers. */
static const share *share_of(const division *d, int rank, int layer)
{
    const tsr_model_config *c = d->kept.config;
    return &d->shares[rank * c->kind_count + (layer < 0 ? 0 : c->layer_kinds[layer])];
}

static void division_finish(division *d)
{
    tsr__free(d->shares);
    tsr__free(d->limits);
}

static tsr_status divide_stages(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                tsr_shard_range *ranges, division *d)
{
    const int each = p->ranks / p->stages;
    tsr_partition_params partition = *p->partition;
    for (int first = 0; first < p->ranks; first += each) {
        if (p->partition->rates)
            partition.rates = p->partition->rates + first;
        for (int kind = 0; kind < d->kept.config->kind_count; kind++)
            TSR__TRY(divide_stage(
                &d->kept, plan->weights, kind, &partition, p->hosts ? p->hosts + first : NULL,
                d->limits ? d->limits + (size_t)kind * (size_t)p->ranks + first : NULL, ranges,
                d->shares + (size_t)first * (size_t)d->kept.config->kind_count + kind));
    }
    return TSR_OK;
}

/* Checks that the bytes of the cache fit into an int64_t, also if one rank had all of it. */
static tsr_status check_cache(const tsr_model_config *c, const tsr_model_plan_params *p)
{
    /* Less than 2^64, because heads · head_dim is at most TSR_MODEL_MAX_WIDTH. The last page of a
     * sequence may be incomplete. */
    uint64_t features = 0;
    for (int i = 0; i < c->layers; i++)
        features +=
            (uint64_t)(tsr__config_layer(c, i)->kv_heads * tsr__config_layer(c, i)->head_dim);
    uint64_t bytes =
        features * 2 * tsr_dtype_size(p->cache_dtype) * (uint64_t)(p->context + TSR__PAGE_TOKENS);
    if (!tsr__mul_u64(bytes, (uint64_t)p->sequences, &bytes) || bytes > INT64_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "model: the cache of %d sequences of %" PRId64
                         " tokens is larger than 2^63 - 1 bytes",
                         p->sequences, p->context);
    return TSR_OK;
}

/* Call division_finish afterwards, also after an error. */
static tsr_status division_by_rates(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                    division *out)
{
    const int each = p->ranks / p->stages;
    *out = (division){0};
    TSR__TRY(check_cache(plan->weights->config, p));
    TSR__TRY(tsr__kept_choose(plan->weights, each, p->dtype, p->expert_division, &out->kept));
    for (int first = 0; p->hosts && first < p->ranks; first += each) {
        const int team = tsr__teams_largest(each, p->hosts + first);
        out->kept.team = team > out->kept.team ? team : out->kept.team;
    }
    tsr_shard_range *ranges = tsr__calloc((size_t)each, sizeof *ranges);
    out->shares = tsr__calloc((size_t)p->ranks,
                              (size_t)plan->weights->config->kind_count * sizeof *out->shares);
    const tsr_status status =
        ranges && out->shares ? divide_stages(plan, p, ranges, out) : TSR_ERR_NO_MEMORY;
    tsr__free(ranges);
    return status;
}

/* Bytes ---------------------------------------------------------------------------------------- */

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
static tsr__weight_part part_of(const tsr__planned *item, const share *s,
                                const tsr_model_layer *layer)
{
    const int64_t head_dim = layer ? layer->head_dim : 0;
    const bool whole = layer && layer->qk_norm == TSR_QK_NORM_WHOLE;
    tsr__weight_part part = {.rows = item->weight.rows, .columns = item->weight.columns};
    const bool is_bias = item->ndim == 1;
    const char *ours = item->ours;
    const tsr_shard_range *rows = NULL, *columns = NULL;
    int64_t unit = 1;
    if (starts(ours, "delta_net.")) {
        unit = delta_unit(ours, layer->delta_net);
        *(starts(ours, "delta_net.o.") ? &columns : &rows) = unit > 0 ? &s->key_heads : NULL;
    } else if (starts(ours, "attention.q.") || starts(ours, "attention.gate.") ||
               starts(ours, "attention.q_b.") || (whole && starts(ours, "attention.q_norm."))) {
        rows = &s->heads;
        unit = head_dim;
    } else if (starts(ours, "attention.k.") || starts(ours, "attention.v.") ||
               (whole && starts(ours, "attention.k_norm."))) {
        rows = s->all_kv_heads ? NULL : &s->kv_heads;
        unit = head_dim;
    } else if (starts(ours, "attention.o.")) {
        columns = is_bias ? NULL : &s->heads;
        unit = layer->latent ? layer->latent->value_dim : head_dim;
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

/* Whether a rank's stage is the first or the last one of the model. */
typedef struct ends {
    bool first, last;
} ends;

static ends ends_of(const tsr_model_plan_params *p, int rank)
{
    const int stage = rank / (p->ranks / p->stages);
    return (ends){.first = stage == 0, .last = stage == p->stages - 1};
}

/* Returns whether a stage has a parameter that is outside layers. A tied head is the embedding. */
static bool has_outside(const tsr_model_config *c, const tsr__planned *item, ends of)
{
    if (starts(item->ours, "positions."))
        return of.first;
    if (starts(item->ours, "input_"))
        return true; /* there is one stage */
    if (starts(item->ours, "embedding."))
        return of.first || (of.last && c->tied);
    return of.last;
}

/* Adds the bytes of a rank's part of a parameter to the rank's plan. */
static void add_item(const tsr__kept *kept, const tsr__planned *item, const share *s,
                     const tsr_model_plan_params *p, ends of, tsr_model_rank_plan *out)
{
    const tsr_model_layer *layer = tsr__config_layer(kept->config, item->layer);
    tsr__weight weight = item->weight;
    tsr__weight_part part = part_of(item, s, layer);
    if (kept->tiles)
        tsr__weight_keep_tiles(&weight, &part);
    const bool is_positions = starts(item->ours, "positions.");
    const tsr_dtype dtype = item->is_f32 ? TSR_F32
                            : item->ndim == 1 || is_positions || item->of_heads
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
    if (of_experts && item->ndim == 2 &&
        tsr__config_host_experts(kept->config, item->layer, p->host_experts)) {
        out->host_bytes += bytes;
        out->host_token_bytes += (uint64_t)llround((double)bytes * used);
        out->token_parameters += (uint64_t)llround((double)elements * used);
        return;
    }
    *(is_norm(item->ours)                                                    ? &out->norm_bytes
      : is_embedding || is_table                                             ? &out->embedding_bytes
      : starts(item->ours, "attention.") || starts(item->ours, "delta_net.") ? &out->attention_bytes
      : starts(item->ours, "mlp.") || starts(item->ours, "end.")             ? &out->mlp_bytes
                                                                 : &out->head_bytes) += bytes;
    out->weight_bytes += bytes;
    /* A token reads only one row of a table of embeddings or positions, so token_bytes leaves out
     * these tables. The embedding is a table where it is not also the head. */
    if (is_table || (is_embedding && !(kept->config->tied && of.last)))
        return;
    if (of_experts)
        out->expert_bytes += bytes;
    out->token_bytes += (uint64_t)llround((double)bytes * used);
    out->token_parameters += item->ndim == 2 ? (uint64_t)llround((double)elements * used) : 0;
}

/* The bytes that a sequence's state has for one key head of a delta net. */
static uint64_t state_bytes(const tsr_model_delta_net *net)
{
    const int64_t each = net->heads / net->key_heads,
                  inputs = (2 * net->key_dim + each * net->value_dim) * (net->taps - 1);
    return (uint64_t)(inputs + each * net->key_dim * net->value_dim) * sizeof(float);
}

/* The bytes of a layer's cache on a rank with the share `s` of the layer. */
static uint64_t cache_bytes(const tsr_model_config *c, const tsr_model_plan_params *p, int layer,
                            const share *s)
{
    const tsr_model_delta_net *net = tsr__config_layer(c, layer)->delta_net;
    if (p->context == 0 || tsr__config_layer(c, layer)->shared_keys)
        return 0;
    if (net)
        return (uint64_t)tsr__generator_state_slots(p->sequences, p->draft_tokens, p->snapshots) *
               s->key_heads.count * state_bytes(net);
    const int64_t page = p->context < TSR__PAGE_TOKENS ? p->context : TSR__PAGE_TOKENS,
                  tokens = p->sequences * ((p->context + page - 1) / page) * page;
    const tsr_model_latent *latent = tsr__config_layer(c, layer)->latent;
    if (latent) /* of one head, whose values are in its keys */
        return (uint64_t)tokens * (s->heads.count > 0) *
               (uint64_t)(latent->kv_lora_rank + latent->rope_dim) * tsr_dtype_size(p->cache_dtype);
    return 2 * (uint64_t)tokens * s->kv_heads.count *
           (uint64_t)tsr__config_layer(c, layer)->head_dim * tsr_dtype_size(p->cache_dtype);
}

/* Params --------------------------------------------------------------------------------------- */

tsr_status tsr__model_plan_check(const tsr_model_config *c, tsr_model_plan_params *p)
{
    static const tsr_partition_params even = {.struct_size = sizeof even};
    p->partition = p->partition ? p->partition : &even;
    p->ranks = p->ranks == 0 ? 1 : p->ranks;
    p->stages = p->stages == 0 ? 1 : p->stages;
    p->sequences = p->sequences == 0 ? 1 : p->sequences;
    p->cache_dtype = p->cache_dtype == 0 ? TSR_F32 : p->cache_dtype;
    TSR__REQUIRE(p->ranks >= 1 && p->ranks <= TSR_MODEL_PLAN_MAX_RANKS,
                 "model: ranks is %d; 1 to %d is possible", p->ranks, TSR_MODEL_PLAN_MAX_RANKS);
    TSR__REQUIRE(p->stages >= 1 && p->ranks % p->stages == 0,
                 "model: %d stages do not divide %d rank%s", p->stages, p->ranks,
                 p->ranks == 1 ? "" : "s");
    TSR__REQUIRE(p->sequences >= 1 && p->sequences <= 1000000,
                 "model: sequences is %d; 1 to 1000000 is possible", p->sequences);
    TSR__REQUIRE(p->context >= 0 && p->context <= TSR_MODEL_MAX_CONTEXT,
                 "model: context is %" PRId64 "; 1 to %d is possible", p->context,
                 TSR_MODEL_MAX_CONTEXT);
    TSR__REQUIRE(p->stages == 1 || c->layer_input == 0,
                 "model: %d stages; layers of this model have inputs of their own, which need the "
                 "tokens, and cannot be divided into stages",
                 p->stages);
    TSR__REQUIRE(p->host_experts <= 0 || tsr__config_experts(c),
                 "model: host_experts is set, but no layer of the model has experts");
    TSR__REQUIRE(p->host_experts >= 0, "model: host_experts is %d; it must be at least 0",
                 p->host_experts);
    TSR__REQUIRE(p->draft_tokens >= 0 && p->draft_tokens <= TSR_MAX_DRAFT_TOKENS &&
                     p->snapshots >= 0 && p->snapshots <= TSR_GENERATOR_MAX_SNAPSHOTS,
                 "model: draft_tokens is %d, snapshots %d; 0 to %d and 0 to %d are possible",
                 p->draft_tokens, p->snapshots, TSR_MAX_DRAFT_TOKENS, TSR_GENERATOR_MAX_SNAPSHOTS);
    TSR__REQUIRE(tsr__dtype_is_float(p->cache_dtype),
                 "model: the cache cannot be %s; f32, f16 and bf16 are possible",
                 tsr_dtype_name(p->cache_dtype));
    return TSR_OK;
}

/* What ranks hold ------------------------------------------------------------------------------ */

/* Returns the first layer of a stage that has attention, or its first layer. */
static int attention_layer(const tsr_model_config *c, const tsr_model_rank_plan *of)
{
    for (int i = of->first_layer; i < of->first_layer + of->layers; i++)
        if (!tsr__config_layer(c, i)->delta_net)
            return i;
    return of->first_layer;
}

static void plan_rank(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                      const division *d, int rank, tsr_model_rank_plan *out)
{
    const tsr_model_config *c = plan->weights->config;
    const share *s = share_of(d, rank, attention_layer(c, out));
    const ends of = ends_of(p, rank);
    for (size_t i = 0; i < plan->count; i++) {
        const tsr__planned *item = &plan->items[i];
        if (item->layer < 0
                ? has_outside(c, item, of)
                : item->layer >= out->first_layer && item->layer < out->first_layer + out->layers)
            add_item(&d->kept, item, share_of(d, rank, item->layer), p, of, out);
    }
    out->heads = (int64_t)s->heads.count;
    out->kv_heads = tsr__config_layer(c, out->first_layer)->latent ? s->heads.count > 0
                                                                   : (int64_t)s->kv_heads.count;
    out->hidden = (int64_t)s->hidden.count;
    for (int i = out->first_layer; i < out->first_layer + out->layers; i++)
        if (tsr__config_layer(c, i)->experts) {
            out->experts = (int64_t)share_of(d, rank, i)->experts.count;
            out->expert_hidden = (int64_t)share_of(d, rank, i)->hidden.count;
            break;
        }
    out->vocabulary = (int64_t)s->vocabulary.count;
    for (int i = out->first_layer; i < out->first_layer + out->layers; i++) {
        const uint64_t bytes = cache_bytes(c, p, i, share_of(d, rank, i));
        out->cache_bytes += bytes;
        const tsr_model_delta_net *net = tsr__config_layer(c, i)->delta_net;
        if (net && bytes > 0) {
            out->state_bytes += bytes;
            out->used_state_bytes +=
                (uint64_t)p->sequences * share_of(d, rank, i)->key_heads.count * state_bytes(net);
        }
    }
    out->total_bytes = out->weight_bytes + out->cache_bytes;
}

/* Some consecutive layers of a stage's ranks. */
typedef struct stretch {
    int first_rank, ranks, first_layer, layers;
} stretch;

/* Returns the bytes of all experts of these layers if one rank has them. */
static uint64_t all_expert_bytes(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                 const division *d, const stretch *of)
{
    const tsr_model_config *c = d->kept.config;
    tsr_model_rank_plan sum = {0};
    for (size_t i = 0; i < plan->count; i++) {
        const tsr__planned *item = &plan->items[i];
        if (item->experts == 0 || item->layer < of->first_layer ||
            item->layer >= of->first_layer + of->layers)
            continue;
        share all = *share_of(d, of->first_rank, item->layer);
        all.experts =
            (tsr_shard_range){.count = (uint64_t)tsr__config_layer(c, item->layer)->experts->count};
        add_item(&d->kept, item, &all, p, (ends){0}, &sum);
    }
    return sum.expert_bytes;
}

/* Sets the limits of a kind of layer from room[ranks], the part of all experts that the memory of
 * each rank holds. Returns whether a rank has more by its rate; if all ranks together have no room,
 * sets *lacks. */
static bool limit_kind(const tsr_model_plan_params *p, const division *d, const stretch *of,
                       int kind, const double *room, bool *lacks, uint64_t *limits)
{
    const uint64_t count = (uint64_t)d->kept.config->kinds[kind]->experts->count;
    const double *rates = p->partition->rates;
    uint64_t sum = 0;
    bool exceeds = false;
    for (int i = 0; i < of->ranks; i++) {
        const int r = of->first_rank + i;
        const double held = room[i] * (double)count;
        limits[r] = rates && rates[r] == 0 ? 0 : held >= (double)count ? count : (uint64_t)held;
        sum += limits[r];
        exceeds =
            exceeds || d->shares[r * d->kept.config->kind_count + kind].experts.count > limits[r];
    }
    *lacks = *lacks || sum < count;
    return exceeds;
}

/* Computes how many experts of each kind of layer the memory of a stage's ranks holds, in
 * limits[kinds][ranks], which has the numbers of experts where memory limits nothing. Returns
 * whether memory changes the division by rates. */
static tsr_status limit_stage(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                              const division *d, const stretch *of, uint64_t *limits, bool *changes)
{
    const tsr_model_config *c = d->kept.config;
    const uint64_t all = all_expert_bytes(plan, p, d, of);
    bool exceeds = false, lacks = false, there[TSR_MODEL_MAX_LAYER_KINDS] = {false};
    double *room = tsr__calloc((size_t)of->ranks, sizeof *room);
    if (!room)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < of->ranks; i++) {
        tsr_model_rank_plan held = {.first_layer = of->first_layer, .layers = of->layers};
        plan_rank(plan, p, d, of->first_rank + i, &held);
        const uint64_t memory = plan->memory_bytes[of->first_rank + i],
                       fixed = held.total_bytes - held.expert_bytes;
        room[i] = memory == 0 || all == 0 ? 1
                  : memory > fixed        ? (double)(memory - fixed) / (double)all
                                          : 0;
    }
    for (int i = of->first_layer; i < of->first_layer + of->layers; i++)
        there[c->layer_kinds[i]] = c->kinds[c->layer_kinds[i]]->experts != NULL;
    for (int kind = 0; kind < c->kind_count; kind++)
        if (there[kind])
            exceeds |=
                limit_kind(p, d, of, kind, room, &lacks, limits + (size_t)kind * (size_t)p->ranks);
    for (int kind = 0; kind < c->kind_count; kind++)
        for (int i = 0; i < of->ranks && c->kinds[kind]->experts && (!there[kind] || lacks); i++)
            limits[(size_t)kind * (size_t)p->ranks + (size_t)(of->first_rank + i)] =
                (uint64_t)c->kinds[kind]->experts->count;
    tsr__free(room);
    *changes = *changes || (exceeds && !lacks);
    return TSR_OK;
}

/* Returns whether all experts are whole on ranks. */
static bool has_whole_experts(const tsr__model_plan *plan, const division *d)
{
    const tsr_model_config *c = d->kept.config;
    bool any = false;
    for (int kind = 0; kind < c->kind_count; kind++) {
        tsr__kept_hidden hidden;
        if (!c->kinds[kind]->experts)
            continue;
        if (tsr__kept_divide_hidden(&d->kept, plan->weights, kind, &hidden) != TSR_OK ||
            !hidden.whole_experts)
            return false;
        any = true;
    }
    return any;
}

/* Divides by rates. If ranks have whole experts, and one has too little memory for its share of
 * those of its stage, others of the stage that have room get more. layers[stages]; NULL: they are
 * not known yet, and with several stages experts are divided by rates only. Call division_finish
 * afterwards, also after an error. */
static tsr_status division_init(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                const int *layers, division *out)
{
    const tsr_model_config *c = plan->weights->config;
    const int each = p->ranks / p->stages;
    bool changes = false;
    TSR__TRY(division_by_rates(plan, p, out));
    if (!plan->memory_bytes || (p->stages > 1 && !layers) || !has_whole_experts(plan, out))
        return TSR_OK;
    uint64_t *limits = tsr__calloc((size_t)p->ranks * (size_t)c->kind_count, sizeof *limits);
    tsr_shard_range *ranges = tsr__calloc((size_t)p->ranks, sizeof *ranges);
    tsr_status status = limits && ranges ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int s = 0, first = 0; status == TSR_OK && s < p->stages; s++) {
        const stretch of = {.first_rank = s * each,
                            .ranks = each,
                            .first_layer = first,
                            .layers = layers ? layers[s] : c->layers};
        status = limit_stage(plan, p, out, &of, limits, &changes);
        first += of.layers;
    }
    if (status == TSR_OK && changes) {
        out->limits = limits;
        limits = NULL;
        status = divide_stages(plan, p, ranges, out);
    }
    tsr__free(limits);
    tsr__free(ranges);
    return status;
}

tsr_status tsr__model_plan_limits(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                  const int *layers, uint64_t **out)
{
    division d;
    const tsr_status status = division_init(plan, p, layers, &d);
    if (status == TSR_OK) {
        *out = d.limits;
        d.limits = NULL;
    }
    division_finish(&d);
    return status;
}

tsr_status tsr__model_plan_ranks(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                 const int *layers, tsr_model_rank_plan *out)
{
    division d;
    const tsr_status status = division_init(plan, p, layers, &d);
    const int each = p->ranks / p->stages;
    for (int stage = 0, first = 0; status == TSR_OK && stage < p->stages; stage++) {
        for (int r = stage * each; r < (stage + 1) * each; r++) {
            out[r] = (tsr_model_rank_plan){
                .stage = stage, .first_layer = first, .layers = layers[stage]};
            plan_rank(plan, p, &d, r, &out[r]);
        }
        first += layers[stage];
    }
    division_finish(&d);
    return status;
}

tsr_status tsr__model_plan_layers(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                  uint64_t *out)
{
    const tsr_model_config *c = plan->weights->config;
    division d;
    const tsr_status status = division_init(plan, p, NULL, &d);
    for (int r = 0; status == TSR_OK && r < p->ranks; r++) {
        const ends of = ends_of(p, r);
        uint64_t *bytes = out + (size_t)r * ((size_t)c->layers + 1);
        for (int i = 0; i <= c->layers; i++)
            bytes[i] = i < c->layers ? cache_bytes(c, p, i, share_of(&d, r, i)) : 0;
        for (size_t i = 0; i < plan->count; i++) {
            const tsr__planned *item = &plan->items[i];
            tsr_model_rank_plan one = {0};
            if (item->layer >= 0 || has_outside(c, item, of))
                add_item(&d.kept, item, share_of(&d, r, item->layer), p, of, &one);
            bytes[item->layer >= 0 ? item->layer : c->layers] += one.weight_bytes;
        }
    }
    division_finish(&d);
    return status;
}

/* The public function -------------------------------------------------------------------------- */

/* Divides the layers over the stages, computes whether the plan fits, and what each rank holds. */
static tsr_status plan_all(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                           const uint64_t *memory_bytes, tsr_model_rank_plan *ranks,
                           tsr_model_fit *fit)
{
    int *layers = tsr__calloc((size_t)p->stages, sizeof *layers);
    tsr_model_rank_plan *held = tsr__calloc((size_t)p->ranks, sizeof *held);
    tsr_model_fit found = {.rank = -1};
    tsr_status status =
        layers && held ? tsr__model_plan_divide(plan, p, memory_bytes, layers) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK && fit)
        status = tsr__model_plan_fit(plan, p, memory_bytes, &found);
    if (status == TSR_OK)
        status = tsr__model_plan_ranks(plan, p, layers, held);
    if (status == TSR_OK && fit)
        tsr__struct_write(sizeof found, &found, fit);
    if (status == TSR_OK)
        tsr__struct_write_array(sizeof *held, (uint64_t)p->ranks, held, ranks);
    tsr__free(layers);
    tsr__free(held);
    return status;
}

tsr_status tsr_model_plan(const tsr_model_file *file, const tsr_model_plan_params *params,
                          const uint64_t *memory_bytes, tsr_model_rank_plan *ranks,
                          tsr_model_fit *fit)
{
    tsr_partition_params partition;
    const tsr__weights *weights;
    tsr__model_plan plan = {0};
    TSR__REQUIRE(file && ranks, "model: %s is NULL", file ? "ranks" : "file");
    TSR__REQUIRE(!fit == !memory_bytes, "model: memory_bytes and fit go together");
    TSR__TAKE(tsr_model_plan_params, params);
    tsr_model_plan_params p = *params;
    if (p.partition) {
        TSR__TRY(TSR__TAKE_PART(tsr_partition_params, p.partition, &partition));
        p.partition = &partition;
    }
    TSR__TRY(tsr__model_plan_check(&file->config->public, &p));
    TSR__TRY(tsr__struct_check_out_array("tsr_model_rank_plan", (uint64_t)p.ranks, ranks));
    if (fit)
        TSR__TRY(tsr__struct_check_out("tsr_model_fit", fit));
    TSR__TRY(tsr__model_file_weights(file, &weights));
    if (p.context == 0)
        p.context = file->config->public.context;
    tsr_status status = tsr__model_plan_init(weights, &plan);
    plan.memory_bytes = memory_bytes;
    if (status == TSR_OK)
        status = plan_all(&plan, &p, memory_bytes, ranks, fit);
    tsr__model_plan_finish(&plan);
    return status;
}
