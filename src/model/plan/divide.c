/* Which layers each stage of a model has: by rates, within the memory of its ranks. */
#include <math.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "model/config/config.h"
#include "model/plan/plan.h"
#include "tessera/pipeline.h"

static tsr_status check_given(const tsr_model_plan_params *p, const tsr_model_config *c)
{
    int64_t sum = 0;
    for (int s = 0; s < p->stages; s++) {
        TSR__REQUIRE(p->stage_layers[s] >= 1, "model: stage %d has %d layers; at least 1 is needed",
                     s, p->stage_layers[s]);
        sum += p->stage_layers[s];
    }
    TSR__REQUIRE(sum == c->layers, "model: the stages have %lld layers, but the model has %d",
                 (long long)sum, c->layers);
    return TSR_OK;
}

/* Returns the elements of the matrices of latent attention, divided by the width. */
static double latent_work(const tsr_model_config *c, const tsr_model_layer *layer)
{
    const tsr_model_latent *l = layer->latent;
    const double width = (double)c->width, heads = (double)layer->heads,
                 queries = heads * (double)layer->head_dim, q_rank = (double)l->q_lora_rank,
                 kv_rank = (double)l->kv_lora_rank;
    return (q_rank > 0 ? q_rank * (1 + queries / width) : queries) + kv_rank + (double)l->rope_dim +
           heads * (double)(l->nope_dim + l->value_dim) * kv_rank / width +
           heads * (double)l->value_dim;
}

/* Returns the work of the head for a token, in units of the average work of a layer. Counts
 * products of matrices only. */
static double head_in_layers(const tsr_model_config *c)
{
    double sum = 0; /* of the layers, divided by the width */
    for (int i = 0; i < c->layers; i++) {
        const tsr_model_layer *layer = tsr__config_layer(c, i);
        const int results = layer->output_gate ? 2 : 1;
        const double heads = (double)layer->heads, kv_heads = (double)layer->kv_heads,
                     keys = (double)layer->head_dim, values = (double)layer->value_dim;
        const tsr_model_experts *e = layer->experts;
        const tsr_model_delta_net *net = layer->delta_net;
        if (net)
            sum +=
                (double)(2 * net->key_heads * net->key_dim + net->heads * (3 * net->value_dim + 2));
        if (layer->conv_taps > 0)
            sum += 4 * (double)c->width;
        sum += (layer->latent ? latent_work(c, layer)
                              : (heads + kv_heads) * keys + (results * heads + kv_heads) * values) +
               (e ? 3 * (double)(e->used * e->hidden + e->shared_hidden) + (double)e->count : 0) +
               (e && !e->beside_mlp ? 0 : (double)((layer->gated ? 3 : 2) * layer->hidden));
    }
    return (double)c->vocabulary * (double)c->layers / sum;
}

/* Returns the work that the last stage has beside its layers, in the same units. */
static double last_cost(const tsr_model_plan_params *p, const tsr_model_config *c)
{
    return head_in_layers(c) + (p->next_token ? 1 : 0);
}

/* Divides the layers by rates. limits[stages]: the layers that each stage holds at most, at least
 * 1. NULL: any number. */
static tsr_status divide_within(const tsr_model_plan_params *p, const tsr_model_config *c,
                                const uint64_t *limits, int *layers)
{
    const tsr_status status = tsr_pipeline_divide(
        tsr_pipeline_divide_params(.blocks = c->layers, .stages = p->stages,
                                   .rates = p->stage_rates, .last_cost = last_cost(p, c),
                                   .memory_bytes = limits, .block_bytes = 1),
        layers);
    return status == TSR_OK ? TSR_OK : tsr__fail_context(status, "model");
}

/* Memory --------------------------------------------------------------------------------------- */

#define MOST_MOVES 4

/* The memory of the ranks, and how many layers each stage can hold with it. */
typedef struct room {
    const tsr_model_plan_params *params;
    const tsr_model_config *config;
    const uint64_t *memory_bytes; /* [ranks]; 0: no limit */
    uint64_t *bytes, *experts;    /* as tsr__model_plan_layers gives them */
    uint64_t *limits;             /* [stages]: layers */
    double *scratch;              /* [ranks] */
} room;

/* Some layers of a stage. */
typedef struct stretch {
    int stage, first, count;
} stretch;

static uint64_t sum_layers(const room *r, const uint64_t *values, int rank, const stretch *of)
{
    const uint64_t *own = values + (size_t)rank * ((size_t)r->config->layers + 1);
    uint64_t sum = 0;
    for (int i = of->first; i < of->first + of->count; i++)
        sum += own[i];
    return sum;
}

/* Returns the part of all whole experts of these layers for which a rank has memory, at most 1, or
 * −1 if it has too little for everything else. `all` are the bytes of all of them. */
static double room_for_experts(const room *r, int rank, const stretch *of, uint64_t all)
{
    const uint64_t outside = r->bytes[((size_t)rank + 1) * ((size_t)r->config->layers + 1) - 1],
                   others = outside + sum_layers(r, r->bytes, rank, of) -
                            sum_layers(r, r->experts, rank, of),
                   memory = r->memory_bytes[rank];
    if (memory == 0)
        return 1;
    if (others > memory)
        return -1;
    return memory - others >= all ? 1 : (double)(memory - others) / (double)all;
}

/* Returns whether the ranks of the stage have memory for all experts of a kind of layer; room[ranks
 * of a stage] as room_for_experts gives it. */
static bool holds_kind(const room *r, const stretch *of, int kind, const double *room_of)
{
    const int each = r->params->ranks / r->params->stages;
    const double *rates = r->params->partition->rates;
    const uint64_t count = (uint64_t)r->config->kinds[kind]->experts->count;
    uint64_t sum = 0;
    for (int i = 0; i < each; i++)
        if (!rates || rates[of->stage * each + i] != 0)
            sum += (uint64_t)(room_of[i] * (double)count);
    return sum >= count;
}

/* Returns whether a stage's ranks have memory for these layers, if ranks with too little leave
 * whole experts to others. room_of[ranks of a stage] is scratch memory. */
static bool stage_holds(const room *r, const stretch *of, double *room_of)
{
    const int each = r->params->ranks / r->params->stages, begin = of->stage * each;
    uint64_t all = 0;
    bool exceeds = false, good = true;
    for (int i = 0; i < each; i++) {
        const uint64_t
            outside = r->bytes[((size_t)(begin + i) + 1) * ((size_t)r->config->layers + 1) - 1],
            held = outside + sum_layers(r, r->bytes, begin + i, of);
        all += sum_layers(r, r->experts, begin + i, of);
        exceeds = exceeds || (r->memory_bytes[begin + i] > 0 && held > r->memory_bytes[begin + i]);
    }
    if (!exceeds || all == 0)
        return !exceeds;
    for (int i = 0; i < each; i++) {
        room_of[i] = room_for_experts(r, begin + i, of, all);
        good = good && room_of[i] >= 0;
    }
    for (int i = of->first; i < of->first + of->count && good; i++)
        if (tsr__config_layer(r->config, i)->experts)
            good = holds_kind(r, of, r->config->layer_kinds[i], room_of);
    return good;
}

/* Returns how many layers, beginning with `first`, a stage's memory holds. */
static uint64_t stage_limit(const room *r, int stage, int first)
{
    const int each = r->params->ranks / r->params->stages;
    stretch of = {stage, first, 1};
    bool limited = false;
    for (int rank = stage * each; rank < (stage + 1) * each; rank++)
        limited = limited || r->memory_bytes[rank] > 0;
    if (!limited)
        return (uint64_t)r->config->layers;
    while (first + of.count <= r->config->layers && stage_holds(r, &of, r->scratch))
        of.count++;
    return (uint64_t)of.count - 1;
}

/* Returns how many layers a rank's memory holds if they are the model's largest ones. */
static uint64_t least_limit(const room *r, int rank)
{
    const int layers = r->config->layers;
    const uint64_t *bytes = r->bytes + (size_t)rank * ((size_t)layers + 1),
                   memory = r->memory_bytes[rank];
    uint64_t largest = 1;
    for (int i = 0; i < layers; i++)
        largest = tsr__max_u64(largest, bytes[i]);
    if (memory == 0)
        return (uint64_t)layers;
    return memory > bytes[layers] ? (memory - bytes[layers]) / largest : 0;
}

/* Sets the limit of a stage whose first layer is `first`. If `first` is −1, sets a limit that holds
 * for any layers. */
static void set_limit(const room *r, int stage, int first)
{
    const int each = r->params->ranks / r->params->stages;
    uint64_t limit = (uint64_t)r->config->layers;
    for (int rank = stage * each; rank < (stage + 1) * each && first < 0; rank++)
        limit = tsr__min_u64(limit, least_limit(r, rank));
    r->limits[stage] = first < 0 ? limit : stage_limit(r, stage, first);
}

/* Sets the limits that the stages would have with these layers. Returns whether each stage has at
 * most its limit. */
static bool fits(const room *r, const int *layers)
{
    bool all = true;
    for (int s = 0, first = 0; s < r->params->stages; first += layers[s++]) {
        set_limit(r, s, first);
        all = all && (uint64_t)layers[s] <= r->limits[s];
    }
    return all;
}

/* Divides the layers so that each stage has at most its limit. Returns TSR_ERR_DEVICE_MEMORY if
 * that is impossible. */
static tsr_status divide_by_limits(const room *r, int *layers)
{
    for (int s = 0; s < r->params->stages; s++)
        if (r->limits[s] == 0)
            return TSR_ERR_DEVICE_MEMORY;
    return divide_within(r->params, r->config, r->limits, layers);
}

/* Returns the time that a stage with `layers` layers needs for a token, in units of the time that a
 * stage of rate 1 needs for one layer. */
static double stage_time(const room *r, int stage, uint64_t layers)
{
    const tsr_model_plan_params *p = r->params;
    const double more = stage == p->stages - 1 ? last_cost(p, r->config) : 0;
    return ((double)layers + more) / (p->stage_rates ? p->stage_rates[stage] : 1);
}

/* Adds a stage to all divisions, with each possible number of layers. before[n] is the time of the
 * slowest of the earlier stages in the best division of the first n layers over them, INFINITY if
 * there is none that fits. Sets slowest[n] to the same with this stage, and taken[n] to the number
 * of layers that this stage has in that division. */
static void add_stage(const room *r, int stage, const double *before, double *slowest, int *taken)
{
    const int layers = r->config->layers;
    for (int n = 0; n <= layers; n++)
        slowest[n] = INFINITY;
    for (int first = 0; first < layers; first++) {
        if (before[first] == INFINITY)
            continue;
        set_limit(r, stage, first);
        for (int n = 1; n <= layers - first && (uint64_t)n <= r->limits[stage]; n++) {
            const double time = fmax(before[first], stage_time(r, stage, (uint64_t)n));
            if (time < slowest[first + n]) {
                slowest[first + n] = time;
                taken[first + n] = n;
            }
        }
    }
}

/* Tries all divisions, and finds among those that fit the one whose slowest stage needs the least
 * time. Sets *found to whether there is one. */
static tsr_status search(const room *r, int *layers, bool *found)
{
    const size_t count = (size_t)r->config->layers + 1, stages = (size_t)r->params->stages;
    double *slowest = tsr__calloc(2 * count, sizeof *slowest);
    int *taken = tsr__calloc(stages, count * sizeof *taken);
    if (slowest && taken) {
        for (size_t n = 1; n < count; n++)
            slowest[n] = INFINITY;
        for (size_t s = 0; s < stages; s++)
            add_stage(r, (int)s, slowest + s % 2 * count, slowest + (s + 1) % 2 * count,
                      taken + s * count);
        size_t left = count - 1;
        *found = slowest[stages % 2 * count + left] < INFINITY;
        for (size_t s = stages; *found && s-- > 0; left -= (size_t)layers[s])
            layers[s] = taken[s * count + left];
    }
    const tsr_status status = slowest && taken ? TSR_OK : TSR_ERR_NO_MEMORY;
    tsr__free(slowest);
    tsr__free(taken);
    return status;
}

/* Raises the limits of stages until all layers can be divided, by one layer at a time: that of the
 * stage that would need the least time with one more layer. */
static void exceed_limits(const room *r)
{
    const int stages = r->params->stages;
    uint64_t sum = 0;
    for (int s = 0; s < stages; s++) {
        r->limits[s] = tsr__max_u64(r->limits[s], 1);
        sum += r->limits[s];
    }
    for (; sum < (uint64_t)r->config->layers; sum++) {
        double least = INFINITY;
        int best = 0;
        for (int s = 0; s < stages; s++) {
            const double time = stage_time(r, s, r->limits[s] + 1);
            if (time <= least) {
                least = time;
                best = s;
            }
        }
        r->limits[best]++;
    }
}

/* Moves layers from stages that have too little memory for them. If layers have different sizes,
 * the limit of a stage depends on which layers it has, so the limits are computed again after each
 * division. If this does not lead to a division that fits, all divisions are tried. */
static tsr_status move_layers(const room *r, int *layers)
{
    tsr_status status = TSR_OK;
    bool found = false;
    for (int i = 0; i < MOST_MOVES && status == TSR_OK; i++) {
        if (fits(r, layers))
            return TSR_OK;
        status = divide_by_limits(r, layers);
    }
    if (status != TSR_OK && status != TSR_ERR_DEVICE_MEMORY)
        return status;
    TSR__TRY(search(r, layers, &found));
    if (found)
        return TSR_OK;
    for (int s = 0; s < r->params->stages; s++)
        set_limit(r, s, -1);
    exceed_limits(r);
    return divide_by_limits(r, layers);
}

static tsr_status divide_by_memory(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                   const uint64_t *memory_bytes, int *layers)
{
    const tsr_model_config *c = plan->weights->config;
    room r = {.params = p, .config = c, .memory_bytes = memory_bytes};
    const tsr__error before = tsr__error_take();
    r.bytes = tsr__calloc((size_t)p->ranks, ((size_t)c->layers + 1) * sizeof *r.bytes);
    r.experts = tsr__calloc((size_t)p->ranks, ((size_t)c->layers + 1) * sizeof *r.experts);
    r.limits = tsr__calloc((size_t)p->stages, sizeof *r.limits);
    r.scratch = tsr__calloc((size_t)p->ranks, sizeof *r.scratch);
    tsr_status status = r.bytes && r.experts && r.limits && r.scratch ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__model_plan_layers(plan, p, r.bytes, r.experts);
    if (status == TSR_OK)
        status = move_layers(&r, layers);
    tsr__free(r.bytes);
    tsr__free(r.experts);
    tsr__free(r.limits);
    tsr__free(r.scratch);
    if (status == TSR_OK)
        tsr__error_put_back(&before);
    return status;
}

/* Checks that layers that use the keys of others are in their stages. */
static tsr_status check_shared(const tsr_model_config *c, const tsr_model_plan_params *p,
                               const int *layers)
{
    for (int s = 0, first = 0; s < p->stages; first += layers[s++])
        for (int i = first; i < first + layers[s]; i++) {
            const int source = tsr__config_keys_layer(c, i);
            if (source < first)
                return tsr__fail(
                    TSR_ERR_UNSUPPORTED,
                    "model: layer %d, in stage %d, uses the keys of layer %d, which is "
                    "in an earlier stage; these layers must be in one stage",
                    i, s, source);
        }
    return TSR_OK;
}

tsr_status tsr__model_plan_divide(const tsr__model_plan *plan, const tsr_model_plan_params *p,
                                  const uint64_t *memory_bytes, int *layers)
{
    const tsr_model_config *c = plan->weights->config;
    if (p->stage_layers) {
        TSR__TRY(check_given(p, c));
        for (int s = 0; s < p->stages; s++)
            layers[s] = p->stage_layers[s];
        return check_shared(c, p, layers);
    }
    TSR__TRY(divide_within(p, c, NULL, layers));
    if (memory_bytes && p->stages > 1)
        TSR__TRY(divide_by_memory(plan, p, memory_bytes, layers));
    return check_shared(c, p, layers);
}
