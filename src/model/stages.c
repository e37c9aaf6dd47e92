/* The stages of a model: which layers each has, and what they exchange beside features. */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "gpu/internal.h"
#include "model/model.h"
#include "model/plan/plan.h"

tsr_status tsr__model_connect(tsr_model *m, const tsr_model_params *params)
{
    TSR__TRY(tsr_pipeline_create(tsr_pipeline_params(.comm = params->stages, .stream = m->stream),
                                 &m->pipeline));
    m->stage = params->stages ? tsr_comm_rank(params->stages) : 0;
    m->stage_count = params->stages ? tsr_comm_size(params->stages) : 1;
    return m->stage_count > 1 ? tsr_comm_duplicate(params->stages, &m->stages) : TSR_OK;
}

/* The memory of a model on all ranks --------------------------------------------------------- */

/* The indices of the numbers that a rank sends to the others: its memory in bytes, its rate, the
 * number of its host, and whether its device would keep a cache in f16. */
enum { MEMORY, RATE, HOST, NARROW_CACHE, TOLD };

static tsr_status own_host(const tsr_model *m, const tsr_model_params *params, double *out)
{
    const int ranks = tsr_group_size(m->group), rank = tsr_group_rank(m->group),
              host = params->hosts              ? params->hosts[rank]
                     : tsr_group_comm(m->group) ? tsr_comm_host(tsr_group_comm(m->group), rank)
                                                : 0;
    TSR__REQUIRE(host >= 0 && host < ranks, "model: hosts[%d] is %d; 0 to %d are possible", rank,
                 host, ranks - 1);
    *out = host;
    return TSR_OK;
}

static tsr_status own_memory(const tsr_model *m, const tsr_model_params *params, double *told)
{
    const tsr_partition_params *partition = &m->partition;
    uint64_t bytes = params->memory_bytes;
    if (bytes == 0)
        TSR__TRY(tsr__memory_left(m->device, &bytes));
    const uint64_t copies =
        params->sharded_over ? (uint64_t)tsr_group_size(params->sharded_over) : 1;
    bytes = bytes > INT64_MAX / copies ? INT64_MAX : bytes * copies;
    /* 0 would be no limit, and more than 2^63 might be rounded to 2^64. */
    told[MEMORY] = bytes > 0 ? (double)tsr__min_u64(bytes, INT64_MAX) : 1;
    told[RATE] = partition->kind == TSR_PARTITION_WEIGHTED && partition->rates
                     ? partition->rates[tsr_group_rank(m->group)]
                     : 0;
    TSR__TRY(own_host(m, params, &told[HOST]));
    told[NARROW_CACHE] = tsr__kv_cache_usual_dtype(m->device) == TSR_F16;
    return TSR_OK;
}

static tsr_status gather(tsr_comm *comm, const double *send, uint64_t count, double *recv)
{
    if (comm)
        return tsr_comm_all_gather(comm, send, recv, count, TSR_F64, NULL);
    memcpy(recv, send, count * sizeof *recv);
    return TSR_OK;
}

/* Gathers the numbers `own`[TOLD] of all ranks of all stages to `told`: those of the first stage's
 * ranks, then those of the second stage's, and so on. `stage` is scratch memory for the numbers of
 * one stage. */
static tsr_status gather_all(const tsr_model *m, const double *own, double *stage, double *told)
{
    const uint64_t each = (uint64_t)tsr_group_size(m->group);
    TSR__TRY(gather(tsr_group_comm(m->group), own, TOLD, stage));
    return gather(m->stages, stage, TOLD * each, told);
}

tsr_status tsr__model_share_memory(tsr_model *m, const tsr_model_params *params)
{
    const size_t each = (size_t)tsr_group_size(m->group), ranks = each * (size_t)m->stage_count;
    double own[TOLD] = {0};
    double *stage = tsr__calloc(each, sizeof own), *told = tsr__calloc(ranks, sizeof own);
    m->memory_bytes = tsr__calloc(ranks, sizeof *m->memory_bytes);
    m->rates = tsr__calloc(ranks, sizeof *m->rates);
    m->hosts = tsr__calloc(ranks, sizeof *m->hosts);
    m->cache_dtype = TSR_F16; /* unless one of the ranks would use f32 */
    tsr_status status =
        stage && told && m->memory_bytes && m->rates && m->hosts ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = own_memory(m, params, own);
    if (status == TSR_OK)
        status = gather_all(m, own, stage, told);
    if (status == TSR_OK && m->context_group) /* which divide the model in the same way */
        status = tsr_comm_all_reduce(tsr_group_comm(m->context_group), told, told, ranks * TOLD,
                                     TSR_F64, TSR_OP_MIN, NULL);
    for (size_t r = 0; status == TSR_OK && r < ranks; r++) {
        m->memory_bytes[r] = (uint64_t)told[r * TOLD + MEMORY];
        m->rates[r] = told[r * TOLD + RATE];
        m->hosts[r] = (int)told[r * TOLD + HOST];
        if (told[r * TOLD + NARROW_CACHE] == 0)
            m->cache_dtype = TSR_F32;
    }
    tsr__free(stage);
    tsr__free(told);
    return status;
}

/* Dividing ----------------------------------------------------------------------------------- */

static void take_layers(tsr_model *m, const int *counts)
{
    const int stage = m->stage, stages = m->stage_count;
    m->is_first = stage == 0;
    m->is_last = stage == stages - 1;
    m->first_layer = 0;
    for (int s = 0; s < stage; s++)
        m->first_layer += counts[s];
    m->layer_count = counts[stage];
    m->stats.first_layer = m->first_layer;
    m->stats.layers = m->layer_count;
}

/* Remembers how all stages divide layers and experts, for the agreement of all ranks, and logs the
 * division of this stage's experts. */
static void note_division(tsr_model *m, const tsr_model_plan_params *p, const int *counts,
                          const tsr_model_rank_plan *held)
{
    static const char *const names[] = {"", "inside", "whole", "mixed"};
    const int each = p->ranks / p->stages;
    const tsr_model_rank_plan *first = &held[(ptrdiff_t)m->stage * each];
    uint64_t hash = tsr__hash(TSR__HASH_START, counts, (size_t)p->stages * sizeof *counts);
    for (int s = 0; s < p->stages; s++) {
        const int division = (int)held[(ptrdiff_t)s * each].expert_division;
        hash = tsr__hash(hash, &division, sizeof division);
    }
    m->division = (int32_t)(hash % INT32_MAX);
    if (each == 1 || first->expert_division == TSR_EXPERT_DIVISION_AUTO ||
        tsr_group_rank(m->group) != 0)
        return;
    tsr__log(TSR_LOG_INFO,
             "model: experts of stage %d are divided %s%s; the slowest rank is expected to have "
             "%.2f times its average work for a token",
             m->stage, names[first->expert_division],
             p->expert_division == TSR_EXPERT_DIVISION_AUTO ? " (chosen)" : "", first->expert_skew);
}

/* Describes the division of the model over all ranks and stages, for plan.h. *out points to
 * *partition. */
static tsr_status describe(const tsr_model *m, const tsr_model_params *params,
                           tsr_partition_params *partition, tsr_model_plan_params *out)
{
    const int stages = m->stage_count;
    /* A context beyond the learned positions counts as their number here. The generator refuses it
     * later, with an error that names the positions. */
    const bool capped = m->config->learned_positions && params->context > m->config->context;
    *partition = m->partition;
    if (partition->rates)
        partition->rates = m->rates;
    *out = (tsr_model_plan_params){
        .struct_size = sizeof *out,
        .ranks = stages * tsr_group_size(m->group),
        .dtype = params->dtype,
        .partition = partition,
        .context = capped ? m->config->context : params->context,
        .sequences = params->sequences,
        .cache_dtype = params->cache_dtype == 0 ? m->cache_dtype : params->cache_dtype,
        .stages = stages,
        .stage_layers = params->stage_layers,
        .stage_rates = params->stage_rates,
        .expert_division = params->expert_division,
        .host_experts = params->host_experts,
        .draft_tokens = params->draft_tokens,
        .snapshots = params->snapshots,
        .hosts = m->hosts,
        .next_token = params->next_token,
        .context_ranks = m->context_group ? tsr_group_size(m->context_group) : 1,
    };
    return tsr__model_plan_check(m->config, out);
}

static tsr_status divide(tsr_model *m, const tsr__model_plan *plan, const tsr_model_plan_params *p,
                         int *layers, tsr_model_rank_plan *held)
{
    TSR__TRY(tsr__model_plan_divide(plan, p, m->memory_bytes, layers));
    TSR__TRY(tsr__model_plan_ranks(plan, p, layers, held));
    TSR__TRY(tsr__model_plan_require(plan, p, m->memory_bytes, held));
    TSR__TRY(tsr__model_plan_limits(plan, p, layers, &m->expert_limits));
    TSR__TRY(tsr__model_plan_experts(plan, p, held));
    take_layers(m, layers);
    note_division(m, p, layers, held);
    return TSR_OK;
}

tsr_status tsr__model_divide(tsr_model *m, const tsr__weights *weights,
                             const tsr_model_params *params)
{
    tsr__model_plan plan = {0};
    tsr_partition_params partition;
    tsr_model_plan_params p;
    TSR__TRY(describe(m, params, &partition, &p));
    int *layers = tsr__calloc((size_t)p.stages, sizeof *layers);
    tsr_model_rank_plan *held = tsr__calloc((size_t)p.ranks, sizeof *held);
    tsr_status status = layers && held ? tsr__model_plan_init(weights, &plan) : TSR_ERR_NO_MEMORY;
    plan.memory_bytes = m->memory_bytes;
    if (status == TSR_OK)
        status = divide(m, &plan, &p, layers, held);
    tsr__model_plan_finish(&plan);
    tsr__free(layers);
    tsr__free(held);
    return status;
}

/* What stages exchange ----------------------------------------------------------------------- */

tsr_status tsr__model_all_max(const tsr_model *m, int32_t *values, uint64_t count)
{
    tsr_comm *const comms[] = {tsr_group_comm(m->group), m->stages,
                               m->context_group ? tsr_group_comm(m->context_group) : NULL};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++)
        if (comms[i])
            TSR__TRY(
                tsr_comm_all_reduce(comms[i], values, values, count, TSR_I32, TSR_OP_MAX, NULL));
    return TSR_OK;
}

bool tsr__model_chooses(const tsr_model *m)
{
    return m->is_last && tsr_group_rank(m->group) == 0 &&
           (!m->context_group || tsr_group_rank(m->context_group) == 0);
}

tsr_status tsr__model_from_last(const tsr_model *m, void *data, uint64_t count, tsr_dtype dtype)
{
    return m->stages ? tsr_comm_broadcast(m->stages, data, count, dtype,
                                          tsr_comm_size(m->stages) - 1, NULL)
                     : TSR_OK;
}
