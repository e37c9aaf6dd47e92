#include "model/plan/shares.h"

#include "base/alloc.h"
#include "base/error.h"
#include "model/config/config.h"
#include "parallel/internal.h"

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
                       tsr__plan_share *out)
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
                               uint64_t align, tsr_shard_range *ranges, tsr__plan_share *shares)
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
                                const uint64_t *limits, tsr_shard_range *ranges,
                                tsr__plan_share *shares)
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
        tsr__plan_share *s = &shares[(size_t)r * (size_t)kinds];
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

/* Divides the heads of a kind of layer: of a delta net the key heads, with their heads, and of a
 * short convolution its features. */
static tsr_status divide_heads(const tsr__kept *kept, const tsr__weights *weights, int kind,
                               const tsr_partition_params *partition, tsr_shard_range *ranges,
                               tsr__plan_share *shares)
{
    const tsr_model_layer *layer = kept->config->kinds[kind];
    const tsr_model_delta_net *net = layer->delta_net;
    const int ranks = kept->ranks, kinds = kept->config->kind_count;
    const bool by_kv_heads = layer->kv_heads >= ranks;
    uint64_t align = 0;
    TSR__TRY(tsr__kept_align_heads(kept, weights, kind, &align));
    TSR__TRY(divide(net                    ? net->key_heads
                    : layer->conv_taps > 0 ? kept->config->width
                    : by_kv_heads          ? layer->kv_heads
                                           : layer->heads,
                    ranks, partition, align, ranges));
    for (int r = 0; r < ranks; r++) {
        tsr__plan_share *s = &shares[(size_t)r * (size_t)kinds];
        if (net || layer->conv_taps > 0)
            s->key_heads = ranges[r];
        else
            take_heads(layer, by_kv_heads, &ranges[r], s);
    }
    return TSR_OK;
}

/* Divides a kind of layer over the ranks of a stage. shares[r · kinds] is that of rank r. */
static tsr_status divide_stage(const tsr__kept *kept, const tsr__weights *weights, int kind,
                               const tsr_partition_params *partition, const int *hosts,
                               const uint64_t *limits, tsr_shard_range *ranges,
                               tsr__plan_share *shares)
{
    const int ranks = kept->ranks, kinds = kept->config->kind_count;
    TSR__TRY(divide_heads(kept, weights, kind, partition, ranges, shares));
    TSR__TRY(divide_hidden(kept, weights, kind, partition, hosts, limits, ranges, shares));
    TSR__TRY(divide(kept->config->vocabulary, ranks, partition, 0, ranges));
    for (int r = 0; r < ranks; r++)
        shares[(size_t)r * (size_t)kinds].vocabulary = ranges[r];
    if (kept->config->next_token_layers == 0)
        return TSR_OK;
    TSR__TRY(divide(kept->config->width, ranks, partition, 0, ranges));
    for (int r = 0; r < ranks; r++)
        shares[(size_t)r * (size_t)kinds].width = ranges[r];
    return TSR_OK;
}

const tsr__plan_share *tsr__plan_share_of(const tsr__plan_division *d, int rank, int layer)
{
    const tsr_model_config *c = d->kept.config;
    return &d->shares[rank * c->kind_count + (layer < 0 ? 0 : tsr__config_kind(c, layer))];
}

void tsr__plan_division_finish(tsr__plan_division *d)
{
    tsr__free(d->shares);
    tsr__free(d->limits);
}

tsr__kept tsr__plan_kept_of(const tsr__plan_division *d, const tsr_model_plan_params *p, int stage)
{
    const int first = stage * (p->ranks / p->stages);
    const bool weighted = p->partition->kind == TSR_PARTITION_WEIGHTED && p->partition->rates;
    tsr__kept out = d->kept;
    out.hosts = p->hosts ? p->hosts + first : NULL;
    out.rates = weighted ? p->partition->rates + first : NULL;
    return out;
}

tsr_status tsr__plan_divide_stages(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                   tsr_shard_range *ranges, tsr__plan_division *d)
{
    const int each = p->ranks / p->stages;
    tsr_partition_params partition = *p->partition;
    for (int first = 0; first < p->ranks; first += each) {
        if (p->partition->rates)
            partition.rates = p->partition->rates + first;
        const tsr__kept here = tsr__plan_kept_of(d, p, first / each);
        for (int kind = 0; kind < d->kept.config->kind_count; kind++)
            TSR__TRY(divide_stage(
                &here, plan->weights, kind, &partition, here.hosts,
                d->limits ? d->limits + (size_t)kind * (size_t)p->ranks + first : NULL, ranges,
                d->shares + (size_t)first * (size_t)d->kept.config->kind_count + kind));
    }
    return TSR_OK;
}

tsr_status tsr__plan_divide_by_rates(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                     tsr__plan_division *out)
{
    const int each = p->ranks / p->stages;
    *out = (tsr__plan_division){0};
    TSR__TRY(tsr__kept_choose(plan->weights, each, p->dtype, p->expert_division, &out->kept));
    tsr_shard_range *ranges = tsr__calloc((size_t)each, sizeof *ranges);
    out->shares = tsr__calloc((size_t)p->ranks,
                              (size_t)plan->weights->config->kind_count * sizeof *out->shares);
    const tsr_status status =
        ranges && out->shares ? tsr__plan_divide_stages(plan, p, ranges, out) : TSR_ERR_NO_MEMORY;
    tsr__free(ranges);
    return status;
}
