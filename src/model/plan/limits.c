/* Whole experts that move to ranks with more memory. */
#include "base/alloc.h"
#include "base/error.h"
#include "model/config/config.h"
#include "model/plan/shares.h"

/* Some consecutive layers of a stage's ranks. */
typedef struct stretch {
    int first_rank, ranks, first_layer, layers;
} stretch;

/* Returns the bytes of all experts of these layers if one rank has them. */
static uint64_t all_expert_bytes(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                 const tsr__plan_division *d, const stretch *of)
{
    const tsr_model_config *c = d->kept.config;
    const tsr__plan_ends ends = tsr__plan_ends_of(p, of->first_rank);
    tsr_model_rank_plan sum = {0};
    for (size_t i = 0; i < plan->count; i++) {
        const tsr__planned *item = &plan->items[i];
        if (item->experts == 0 || item->of_heads ||
            !tsr__plan_has_inside(c, item, ends, of->first_layer, of->layers))
            continue;
        tsr__plan_share all = *tsr__plan_share_of(d, of->first_rank, item->layer);
        all.experts =
            (tsr_shard_range){.count = (uint64_t)tsr__config_layer(c, item->layer)->experts->count};
        tsr__plan_add_item(&d->kept, item, &all, p, ends, &sum);
    }
    return sum.expert_bytes;
}

/* Sets the limits of a kind of layer from room[ranks], the part of all experts that the memory of
 * each rank holds. Returns whether a rank has more by its rate; if all ranks together have no room,
 * sets *lacks. */
static bool limit_kind(const tsr_model_plan_params *p, const tsr__plan_division *d,
                       const stretch *of, int kind, const double *room, bool *lacks,
                       uint64_t *limits)
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
                              const tsr__plan_division *d, const stretch *of, uint64_t *limits,
                              bool *changes)
{
    const tsr_model_config *c = d->kept.config;
    const uint64_t all = all_expert_bytes(plan, p, d, of);
    bool exceeds = false, lacks = false, there[TSR_MODEL_MAX_LAYER_KINDS] = {false};
    double *room = tsr__calloc((size_t)of->ranks, sizeof *room);
    if (!room)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < of->ranks; i++) {
        tsr_model_rank_plan held = {.first_layer = of->first_layer, .layers = of->layers};
        tsr__plan_rank(plan, p, d, of->first_rank + i, &held);
        const uint64_t memory = plan->memory_bytes[of->first_rank + i],
                       fixed = held.total_bytes - held.expert_bytes;
        room[i] = memory == 0 || all == 0 ? 1
                  : memory > fixed        ? (double)(memory - fixed) / (double)all
                                          : 0;
    }
    for (int i = of->first_layer; i < of->first_layer + of->layers; i++)
        there[c->layer_kinds[i]] = c->kinds[c->layer_kinds[i]]->experts != NULL;
    if (tsr__plan_ends_of(p, of->first_rank).next && tsr__config_layer(c, c->layers)->experts)
        there[tsr__config_kind(c, c->layers)] = true;
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

bool tsr__plan_has_whole_experts(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                 const tsr__plan_division *d)
{
    const tsr_model_config *c = d->kept.config;
    bool any = false;
    for (int i = 0; i < p->stages * c->kind_count; i++) {
        const tsr__kept here = tsr__plan_kept_of(d, p, i / c->kind_count);
        const int kind = i % c->kind_count;
        tsr__kept_hidden hidden;
        if (!c->kinds[kind]->experts)
            continue;
        if (tsr__kept_divide_hidden(&here, plan->weights, kind, &hidden) != TSR_OK ||
            !hidden.whole_experts)
            return false;
        any = true;
    }
    return any;
}

tsr_status tsr__plan_divide_ranks(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                  const int *layers, tsr__plan_division *out)
{
    const tsr_model_config *c = plan->weights->config;
    const int each = p->ranks / p->stages;
    bool changes = false;
    *out = (tsr__plan_division){0};
    TSR__TRY(tsr__plan_check_cache(c, p));
    TSR__TRY(tsr__plan_divide_by_rates(plan, p, out));
    if (!plan->memory_bytes || (p->stages > 1 && !layers) ||
        !tsr__plan_has_whole_experts(plan, p, out))
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
        status = tsr__plan_divide_stages(plan, p, ranges, out);
    }
    tsr__free(limits);
    tsr__free(ranges);
    return status;
}

tsr_status tsr__model_plan_limits(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                  const int *layers, uint64_t **out)
{
    tsr__plan_division d;
    const tsr_status status = tsr__plan_divide_ranks(plan, p, layers, &d);
    if (status == TSR_OK) {
        *out = d.limits;
        d.limits = NULL;
    }
    tsr__plan_division_finish(&d);
    return status;
}
