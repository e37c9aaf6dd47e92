#include "model/plan.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "model/config.h"
#include "tensor/dtype.h"

#define PAGE_TOKENS 64 /* in a page of a generator's cache */

/* Parameters ----------------------------------------------------------------------------------- */

static tsr_status add_layer(tsr__model_plan *plan, int layer)
{
    tsr__parameter p;
    for (int i = 0; tsr__weights_parameter(plan->weights->config, layer, i, &p); i++) {
        void *items = plan->items;
        tsr__planned item = {.ours = p.ours, .ndim = p.ndim};
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

/* What a rank has of the sizes that are divided. */
typedef struct share {
    tsr_shard_range heads, kv_heads, hidden, vocabulary;
    bool all_kv_heads; /* the rank has the parameters of all kv heads */
} share;

static tsr_status divide(int64_t length, const tsr_model_plan_params *params, uint64_t align,
                         tsr_shard_range *ranges)
{
    tsr_partition_params partition = params->partition;
    partition.align = align;
    partition.limits = NULL;
    if (partition.kind == TSR_PARTITION_EVEN)
        partition.kind = TSR_PARTITION_UNEVEN;
    return tsr_partition((uint64_t)length, params->ranks, &partition, ranges);
}

/* Heads are divided by whole kv heads, if there is one for each rank. Otherwise every rank has the
 * parameters of all kv heads, and keys and values of those that its heads read. */
static void take_heads(const tsr_model_config *c, bool by_kv_heads, const tsr_shard_range *range,
                       share *out)
{
    const uint64_t group = (uint64_t)(c->heads / c->kv_heads);
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

static tsr_status divide_model(const tsr__kept *kept, const tsr__weights *weights,
                               const tsr_model_plan_params *params, tsr_shard_range *ranges,
                               share *shares)
{
    const tsr_model_config *c = kept->config;
    const bool by_kv_heads = c->kv_heads >= params->ranks;
    uint64_t align_heads = 0, align_hidden = 0;
    TSR__TRY(tsr__kept_align_heads(kept, weights, &align_heads));
    TSR__TRY(tsr__kept_align_hidden(kept, weights, &align_hidden));
    TSR__TRY(divide(by_kv_heads ? c->kv_heads : c->heads, params, align_heads, ranges));
    for (int r = 0; r < params->ranks; r++)
        take_heads(c, by_kv_heads, &ranges[r], &shares[r]);
    TSR__TRY(divide(c->hidden, params, align_hidden, ranges));
    for (int r = 0; r < params->ranks; r++)
        shares[r].hidden = ranges[r];
    TSR__TRY(divide(c->vocabulary, params, 0, ranges));
    for (int r = 0; r < params->ranks; r++)
        shares[r].vocabulary = ranges[r];
    return TSR_OK;
}

/* Bytes ---------------------------------------------------------------------------------------- */

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Returns the part of a parameter that a rank has. */
static tsr__weight_part part_of(const tsr__planned *item, const share *s, int64_t head_dim)
{
    tsr__weight_part part = {.rows = item->weight.rows, .columns = item->weight.columns};
    const bool is_bias = item->ndim == 1;
    const char *ours = item->ours;
    const tsr_shard_range *rows = NULL, *columns = NULL;
    int64_t unit = 1;
    if (starts(ours, "attention.q.")) {
        rows = &s->heads;
        unit = head_dim;
    } else if (starts(ours, "attention.k.") || starts(ours, "attention.v.")) {
        rows = s->all_kv_heads ? NULL : &s->kv_heads;
        unit = head_dim;
    } else if (starts(ours, "attention.o.")) {
        columns = is_bias ? NULL : &s->heads;
        unit = head_dim;
    } else if (starts(ours, "mlp.gate.") || starts(ours, "mlp.up.")) {
        rows = &s->hidden;
    } else if (starts(ours, "mlp.down.")) {
        columns = is_bias ? NULL : &s->hidden;
    } else if (starts(ours, "embedding.") || starts(ours, "head.")) {
        rows = &s->vocabulary;
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
    return starts(ours, "norm") || strstr(ours, "_norm.");
}

/* Adds a parameter to what a rank holds. */
static void add_item(const tsr__kept *kept, const tsr__planned *item, const share *s,
                     tsr_model_rank_plan *out)
{
    const tsr__weight_part part = part_of(item, s, kept->config->head_dim);
    const bool is_positions = starts(item->ours, "positions.");
    const tsr_dtype dtype = is_norm(item->ours) ? TSR_F32
                            : item->ndim == 1 || is_positions
                                ? kept->others
                                : tsr__kept_part(kept, &item->weight, &part);
    const uint64_t elements = (uint64_t)(part.rows * part.columns),
                   bytes = tsr__dtype_bytes(dtype, elements);
    const bool is_embedding = starts(item->ours, "embedding.");
    *(is_norm(item->ours)                ? &out->norm_bytes
      : is_embedding || is_positions     ? &out->embedding_bytes
      : starts(item->ours, "attention.") ? &out->attention_bytes
      : starts(item->ours, "mlp.")       ? &out->mlp_bytes
                                         : &out->head_bytes) += bytes;
    out->weight_bytes += bytes;
    /* A token needs only one row of a table, so tables do not count. */
    if (is_positions || (is_embedding && !kept->config->tied))
        return;
    out->token_bytes += bytes;
    out->token_parameters += item->ndim == 2 ? elements : 0;
}

static uint64_t cache_bytes(const tsr_model_config *c, const tsr_model_plan_params *p,
                            uint64_t kv_heads)
{
    const int64_t page = p->context < PAGE_TOKENS ? p->context : PAGE_TOKENS,
                  tokens = p->sequences * ((p->context + page - 1) / page) * page;
    return 2 * (uint64_t)c->layers * (uint64_t)tokens * kv_heads * (uint64_t)c->head_dim *
           tsr_dtype_size(p->cache_dtype);
}

static tsr_status check_params(const tsr_model_config *c, tsr_model_plan_params *p)
{
    p->ranks = p->ranks == 0 ? 1 : p->ranks;
    p->sequences = p->sequences == 0 ? 1 : p->sequences;
    p->context = p->context == 0 ? c->context : p->context;
    p->cache_dtype = p->cache_dtype == 0 ? TSR_F32 : p->cache_dtype;
    TSR__REQUIRE(p->ranks >= 1 && p->ranks <= TSR_MODEL_PLAN_MAX_RANKS,
                 "model: ranks is %d; 1 to %d is possible", p->ranks, TSR_MODEL_PLAN_MAX_RANKS);
    TSR__REQUIRE(p->sequences >= 1 && p->sequences <= 1000000,
                 "model: sequences is %d; 1 to 1000000 is possible", p->sequences);
    TSR__REQUIRE(p->context >= 1 && p->context <= TSR_MODEL_MAX_CONTEXT,
                 "model: context is %" PRId64 "; 1 to %d is possible", p->context,
                 TSR_MODEL_MAX_CONTEXT);
    TSR__REQUIRE(tsr__dtype_is_float(p->cache_dtype),
                 "model: the cache cannot be %s; f32, f16 and bf16 are possible",
                 tsr_dtype_name(p->cache_dtype));
    return TSR_OK;
}

tsr_status tsr__model_plan_ranks(const tsr__model_plan *plan, const tsr_model_plan_params *params,
                                 tsr_model_rank_plan *out)
{
    const tsr_model_config *c = plan->weights->config;
    tsr_model_plan_params p = *params;
    tsr__kept kept;
    TSR__TRY(check_params(c, &p));
    TSR__TRY(tsr__kept_choose(plan->weights, p.ranks, p.dtype, &kept));
    tsr_shard_range *ranges = tsr__calloc((size_t)p.ranks, sizeof *ranges);
    share *shares = tsr__calloc((size_t)p.ranks, sizeof *shares);
    tsr_status status = ranges && shares ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = divide_model(&kept, plan->weights, &p, ranges, shares);
    for (int r = 0; status == TSR_OK && r < p.ranks; r++) {
        const share *s = &shares[r];
        out[r] = (tsr_model_rank_plan){.heads = (int64_t)s->heads.count,
                                       .kv_heads = (int64_t)s->kv_heads.count,
                                       .hidden = (int64_t)s->hidden.count,
                                       .vocabulary = (int64_t)s->vocabulary.count,
                                       .cache_bytes = cache_bytes(c, &p, s->kv_heads.count)};
        for (size_t i = 0; i < plan->count; i++)
            add_item(&kept, &plan->items[i], s, &out[r]);
        out[r].total_bytes = out[r].weight_bytes + out[r].cache_bytes;
    }
    tsr__free(ranges);
    tsr__free(shares);
    return status;
}

tsr_status tsr_model_plan(const char *path, const tsr_model_plan_params *params,
                          const uint64_t *memory_bytes, tsr_model_rank_plan *ranks,
                          tsr_model_fit *fit)
{
    const tsr_model_plan_params usual = {0};
    tsr__model_files files;
    tsr_model_config config;
    tsr__weights weights;
    tsr__model_plan plan = {0};
    TSR__REQUIRE(path && ranks, "model: %s is NULL", path ? "ranks" : "path");
    TSR__REQUIRE(!fit == !memory_bytes, "model: memory_bytes and fit go together");
    params = params ? params : &usual;
    tsr_status status = tsr__model_files_open(path, &files);
    if (status == TSR_OK)
        status = tsr__config_of(&files, &config);
    if (status == TSR_OK)
        status = tsr__weights_init(&files, &config, &weights);
    if (status == TSR_OK)
        status = tsr__model_plan_init(&weights, &plan);
    if (status == TSR_OK && fit)
        status = tsr__model_plan_fit(&plan, params, memory_bytes, fit);
    if (status == TSR_OK)
        status = tsr__model_plan_ranks(&plan, params, ranks);
    tsr__model_plan_finish(&plan);
    tsr__model_files_finish(&files);
    return status;
}
