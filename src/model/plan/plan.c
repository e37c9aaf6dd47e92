#include "model/plan/plan.h"

#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/config/config.h"
#include "model/file.h"
#include "model/plan/shares.h"
#include "tensor/dtype.h"
#include "tessera/generator.h"

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
    const tsr_model_config *c = weights->config;
    const int end = c->layers + (c->next_token_layers > 0 ? 1 : 0);
    for (int layer = -1; layer < end; layer++)
        TSR__TRY(add_layer(out, layer));
    return TSR_OK;
}

void tsr__model_plan_finish(tsr__model_plan *plan)
{
    tsr__free(plan->items);
    *plan = (tsr__model_plan){0};
}

/* Params --------------------------------------------------------------------------------------- */

tsr_status tsr__model_plan_check(const tsr_model_config *c, tsr_model_plan_params *p)
{
    static const tsr_partition_params even = {.struct_size = sizeof even};
    p->partition = p->partition ? p->partition : &even;
    p->ranks = p->ranks == 0 ? 1 : p->ranks;
    p->stages = p->stages == 0 ? 1 : p->stages;
    p->sequences = p->sequences == 0 ? 1 : p->sequences;
    p->context_ranks = p->context_ranks == 0 ? 1 : p->context_ranks;
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
    TSR__REQUIRE(!p->next_token || c->next_token_layers > 0,
                 "model: next_token is set, but this model of architecture %s has no layers that "
                 "predict further tokens",
                 c->architecture);
    TSR__REQUIRE(p->context_ranks >= 1 && p->context_ranks <= TSR_MODEL_PLAN_MAX_RANKS,
                 "model: context_ranks is %d; 1 to %d is possible", p->context_ranks,
                 TSR_MODEL_PLAN_MAX_RANKS);
    TSR__REQUIRE(p->context_ranks == 1 || !p->next_token,
                 "model: next_token cannot go with %d context_ranks", p->context_ranks);
    TSR__REQUIRE(p->context_ranks == 1 || tsr__dtype_is_float(p->cache_dtype),
                 "model: cache_dtype %s cannot go with %d context_ranks; f32, f16 and bf16 can",
                 tsr_dtype_name(p->cache_dtype), p->context_ranks);
    TSR__REQUIRE(p->host_experts <= 0 || tsr__config_experts(c),
                 "model: host_experts is set, but no layer of the model has experts");
    TSR__REQUIRE(p->host_experts >= 0, "model: host_experts is %d; it must be at least 0",
                 p->host_experts);
    TSR__REQUIRE(p->draft_tokens >= 0 && p->draft_tokens <= TSR_MAX_DRAFT_TOKENS &&
                     p->snapshots >= 0 && p->snapshots <= TSR_GENERATOR_MAX_SNAPSHOTS,
                 "model: draft_tokens is %d, snapshots %d; 0 to %d and 0 to %d are possible",
                 p->draft_tokens, p->snapshots, TSR_MAX_DRAFT_TOKENS, TSR_GENERATOR_MAX_SNAPSHOTS);
    return tsr__plan_check_cache_dtype(c, p->cache_dtype);
}

/* What ranks hold ------------------------------------------------------------------------------ */

tsr_status tsr__model_plan_ranks(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                 const int *layers, tsr_model_rank_plan *out)
{
    tsr__plan_division d;
    const tsr_status status = tsr__plan_divide_ranks(plan, p, layers, &d);
    const int each = p->ranks / p->stages;
    for (int stage = 0, first = 0; status == TSR_OK && stage < p->stages; stage++) {
        for (int r = stage * each; r < (stage + 1) * each; r++) {
            out[r] = (tsr_model_rank_plan){
                .stage = stage, .first_layer = first, .layers = layers[stage]};
            tsr__plan_rank(plan, p, &d, r, &out[r]);
        }
        first += layers[stage];
    }
    tsr__plan_division_finish(&d);
    return status;
}

tsr_status tsr__model_plan_layers(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                  uint64_t *out, uint64_t *experts)
{
    const tsr_model_config *c = plan->weights->config;
    tsr__plan_division d;
    const tsr_status status = tsr__plan_divide_ranks(plan, p, NULL, &d);
    const bool move = status == TSR_OK && tsr__plan_has_whole_experts(plan, p, &d);
    for (int r = 0; status == TSR_OK && r < p->ranks; r++) {
        const tsr__plan_ends of = tsr__plan_ends_of(p, r);
        uint64_t *bytes = out + (size_t)r * ((size_t)c->layers + 1);
        for (int i = 0; i <= c->layers; i++)
            bytes[i] = i < c->layers || of.next
                           ? tsr__plan_cache_bytes(c, p, i, tsr__plan_share_of(&d, r, i))
                           : 0;
        for (size_t i = 0; i < plan->count; i++) {
            const tsr__planned *item = &plan->items[i];
            tsr_model_rank_plan one = {0};
            const bool there = item->layer < 0           ? tsr__plan_has_outside(c, item, of)
                               : item->layer < c->layers ? true
                                                         : of.next;
            if (there)
                tsr__plan_add_item(&d.kept, item, tsr__plan_share_of(&d, r, item->layer), p, of,
                                   &one);
            bytes[item->layer >= 0 ? item->layer : c->layers] += one.weight_bytes;
            if (move && item->layer >= 0)
                experts[(size_t)r * ((size_t)c->layers + 1) + (size_t)item->layer] +=
                    one.expert_bytes;
        }
    }
    tsr__plan_division_finish(&d);
    return status;
}

/* Experts -------------------------------------------------------------------------------------- */

/* Returns the first layer of a rank's stage that has experts, or −1. */
static int expert_layer(const tsr_model_config *c, const tsr_model_rank_plan *rank)
{
    for (int i = rank->first_layer; i < rank->first_layer + rank->layers; i++)
        if (tsr__config_layer(c, i)->experts)
            return i;
    return -1;
}

/* Returns how many experts of a layer are used if each sequence generates a token. */
static int64_t chosen_experts(const tsr_model_experts *e, int sequences)
{
    const double count = (double)e->count, unused = pow(1 - (double)e->used / count, sequences);
    const int64_t chosen = llround(count * (1 - unused));
    return chosen > e->used ? chosen : e->used;
}

/* Sets expert_division and expert_skew of the ranks of a stage, held[ranks of the stage]. */
static tsr_status describe_experts(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                   const tsr__kept *kept, tsr_model_rank_plan *held)
{
    const int layer = expert_layer(kept->config, held);
    tsr__kept_hidden how = {0};
    tsr_expert_division division = TSR_EXPERT_DIVISION_AUTO;
    double slowest = 1, by_average = 1;
    if (layer >= 0) {
        const tsr_model_experts *e = tsr__config_layer(kept->config, layer)->experts;
        TSR__TRY(
            tsr__kept_divide_hidden(kept, plan->weights, kept->config->layer_kinds[layer], &how));
        TSR__TRY(tsr__kept_expert_load(kept, e, &how, chosen_experts(e, p->sequences), &slowest,
                                       &by_average));
        division = how.whole_experts ? TSR_EXPERT_DIVISION_WHOLE
                   : how.mixed       ? TSR_EXPERT_DIVISION_MIXED
                                     : TSR_EXPERT_DIVISION_INSIDE;
    }
    for (int r = 0; r < kept->ranks; r++) {
        held[r].expert_division = division;
        held[r].expert_skew = by_average > 0 ? slowest / by_average : 1;
    }
    return TSR_OK;
}

tsr_status tsr__model_plan_experts(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                   tsr_model_rank_plan *held)
{
    const int each = p->ranks / p->stages;
    tsr__plan_division d = {0};
    TSR__TRY(tsr__kept_choose(plan->weights, each, p->dtype, p->expert_division, &d.kept));
    for (int s = 0; s < p->stages; s++) {
        const tsr__kept kept = tsr__plan_kept_of(&d, p, s);
        TSR__TRY(describe_experts(plan, p, &kept, held + (size_t)s * (size_t)each));
    }
    return TSR_OK;
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
    if (status == TSR_OK)
        status = tsr__model_plan_experts(plan, p, held);
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
