/* The public functions of plans: which grids a cluster offers a model, and how fast they are. */
#include "base/alloc.h"
#include "base/struct_size.h"
#include "planner/search.h"

/* The default of tessera generate for the number of tokens of a prompt in one pass. */
#define PASS_TOKENS 256
#define MOST_SEQUENCES 1000000 /* the limit of tsr_model_plan_params */

struct tsr_cluster_plan {
    const char *architecture; /* static storage */
    int layers;
    tsr_plan_goal goal;
    int context_ranks;
    double tokens; /* of the step whose time is predicted */
    tsr__grid_candidates candidates;
    int best;
};

/* Params --------------------------------------------------------------------------------------- */

/* Returns the bytes of an element of activations when it is sent, or 0 if it cannot be sent as this
 * dtype. */
static double wire_bytes(tsr_dtype wire)
{
    switch ((int)wire) {
    case TSR_F32:
        return 4;
    case TSR_F16:
    case TSR_BF16:
        return 2;
    case TSR_Q8_0:
        return 34.0 / 32;
    default:
        return 0;
    }
}

static tsr_status check_count(const char *name, int64_t value, int64_t most)
{
    TSR__REQUIRE(value >= 0 && value <= most, "planner: %s is %lld; it must be 1 to %lld", name,
                 (long long)value, (long long)most);
    return TSR_OK;
}

static tsr_status check_params(const tsr_cluster_plan_params *p)
{
    TSR__REQUIRE(p->goal >= TSR_PLAN_GENERATION && p->goal <= TSR_PLAN_TRAINING,
                 "planner: unknown goal %d", (int)p->goal);
    TSR__TRY(check_count("context", p->context, TSR_MODEL_MAX_CONTEXT));
    TSR__TRY(check_count("sequences", p->sequences, MOST_SEQUENCES));
    TSR__TRY(check_count("micro_batches", p->micro_batches, MOST_SEQUENCES));
    TSR__TRY(check_count("pass_tokens", p->pass_tokens, TSR_MODEL_MAX_CONTEXT));
    TSR__TRY(check_count("context_ranks", p->context_ranks, TSR_CLUSTER_MAX_RANKS));
    TSR__REQUIRE(p->context_ranks <= 1 || p->goal == TSR_PLAN_TRAINING,
                 "planner: context_ranks is %d; it is for training only", p->context_ranks);
    TSR__REQUIRE(p->wire == 0 || wire_bytes(p->wire) > 0,
                 "planner: activations cannot be sent as %s; f32, f16, bf16 and q8_0 are possible",
                 tsr_dtype_name(p->wire));
    TSR__REQUIRE(p->goal != TSR_PLAN_TRAINING || (p->expert_division == 0 && p->host_experts == 0),
                 "planner: expert_division is %d and host_experts %d; trainings divide experts "
                 "inside, in the memory of devices",
                 (int)p->expert_division, p->host_experts);
    return TSR_OK;
}

/* Experts in the host's memory are read at a rate that the description must have. */
static tsr_status check_host_rates(const tsr_cluster *cluster, const tsr_cluster_plan_params *p)
{
    for (int i = 0; i < cluster->ranks && p->host_experts > 0; i++)
        TSR__REQUIRE(cluster->rank[i].host_bandwidth > 0,
                     "planner: with host_experts, each rank needs \"host_gbytes_per_second\"; rank "
                     "%d has none",
                     i);
    return TSR_OK;
}

/* Returns the step whose time is predicted. */
static tsr__grid_work work_of(const tsr_cluster_plan_params *p, const tsr_model_config *config)
{
    return (tsr__grid_work){
        .goal = p->goal,
        .layers = config->layers,
        .width = (double)config->width,
        .vocabulary = (double)config->vocabulary,
        .context = (double)(p->context > 0 ? p->context : config->context),
        .sequences = p->sequences > 0 ? p->sequences : 1,
        .micro_batches = p->micro_batches > 0 ? p->micro_batches : 1,
        .context_ranks = p->context_ranks > 0 ? p->context_ranks : 1,
        .pass_tokens = p->pass_tokens > 0 ? p->pass_tokens : PASS_TOKENS,
        .wire_bytes = wire_bytes(p->wire ? p->wire : TSR_F32),
    };
}

/* Returns the number of tokens of a step. */
static double tokens_of(const tsr__grid_work *w)
{
    switch (w->goal) {
    case TSR_PLAN_GENERATION:
        return w->sequences;
    case TSR_PLAN_PROMPT:
        return w->pass_tokens;
    case TSR_PLAN_TRAINING:
        return w->context * w->sequences * w->micro_batches;
    }
    return 0;
}

/* Creating ------------------------------------------------------------------------------------- */

/* Refuses a model whose sequences context ranks cannot divide. */
static tsr_status check_context(const tsr_model_config *config, int context_ranks)
{
    for (int i = 0; i < config->kind_count && context_ranks > 1; i++)
        if (config->kinds[i]->latent)
            return tsr__fail(TSR_ERR_UNSUPPORTED,
                             "planner: %d context ranks cannot divide the sequences of latent "
                             "attention",
                             context_ranks);
    return TSR_OK;
}

static tsr_status make_plan(const tsr_cluster *cluster, const tsr_model_file *model,
                            const tsr_cluster_plan_params *p, tsr_cluster_plan *plan)
{
    const tsr_model_config *config = tsr_model_file_config(model);
    tsr__grid_search search = {.cluster = cluster,
                               .model = model,
                               .config = config,
                               .work = work_of(p, config),
                               .dtype = p->dtype,
                               .cache_dtype = p->cache_dtype,
                               .experts = p->expert_division,
                               .host_experts = p->host_experts,
                               .context = p->context};
    TSR__TRY(check_context(config, search.work.context_ranks));
    TSR__TRY(tsr__grid_search_run(&search, &plan->candidates));
    TSR__REQUIRE(plan->candidates.count > 0,
                 "planner: no grid of %d rank%s has %d context ranks and divides %d sequence%s",
                 cluster->ranks, cluster->ranks == 1 ? "" : "s", search.work.context_ranks,
                 search.work.sequences, search.work.sequences == 1 ? "" : "s");
    plan->context_ranks = search.work.context_ranks;
    plan->architecture = config->architecture;
    plan->layers = config->layers;
    plan->goal = p->goal;
    plan->tokens = tokens_of(&search.work);
    plan->best = -1;
    for (size_t i = 0; i < plan->candidates.count && plan->best < 0; i++)
        if (plan->candidates.all[i].missing_bytes == 0)
            plan->best = (int)i;
    return TSR_OK;
}

tsr_status tsr_cluster_plan_create(const tsr_cluster *cluster, const tsr_model_file *model,
                                   const tsr_cluster_plan_params *params, tsr_cluster_plan **out)
{
    TSR__REQUIRE(cluster && model && out, "planner: %s is NULL",
                 !cluster ? "cluster"
                 : !model ? "model"
                          : "out");
    TSR__TAKE(tsr_cluster_plan_params, params);
    TSR__TRY(check_params(params));
    TSR__TRY(check_host_rates(cluster, params));
    tsr_cluster_plan *plan = tsr__calloc(1, sizeof *plan);
    if (!plan)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = make_plan(cluster, model, params, plan);
    if (status == TSR_OK)
        *out = plan;
    else
        tsr_cluster_plan_destroy(&plan);
    return status;
}

void tsr_cluster_plan_destroy(tsr_cluster_plan **plan)
{
    if (!plan || !*plan)
        return;
    tsr__grid_candidates_free(&(*plan)->candidates);
    tsr__free(*plan);
    *plan = NULL;
}

/* Queries -------------------------------------------------------------------------------------- */

tsr_status tsr_cluster_plan_get_info(const tsr_cluster_plan *plan, tsr_cluster_plan_info *out)
{
    TSR__REQUIRE(plan && out, "planner: %s is NULL", plan ? "out" : "plan");
    const tsr_cluster_plan_info info = {.struct_size = sizeof info,
                                        .architecture = plan->architecture,
                                        .layers = plan->layers,
                                        .grids = (int)plan->candidates.count,
                                        .best = plan->best};
    TSR__GIVE(tsr_cluster_plan_info, &info, out);
    return TSR_OK;
}

tsr_status tsr_cluster_plan_get_grid(const tsr_cluster_plan *plan, int number,
                                     tsr_cluster_grid *out)
{
    TSR__REQUIRE(plan && out, "planner: %s is NULL", plan ? "out" : "plan");
    TSR__REQUIRE(number >= 0 && (size_t)number < plan->candidates.count,
                 "planner: grid %d is not one of %zu grids", number, plan->candidates.count);
    const tsr__grid_candidate *c = &plan->candidates.all[number];
    /* A rank that lacks less than a byte does not fit either. */
    const uint64_t missing = tsr__whole_bytes(c->missing_bytes);
    tsr_cluster_grid grid = {.struct_size = sizeof grid,
                             .data = c->data / plan->context_ranks,
                             .context_ranks = plan->context_ranks,
                             .tensor = c->tensor,
                             .stages = c->stages,
                             .sharded = c->sharded,
                             .by_rates = c->by_rates,
                             .predicted = !c->sharing.less_than_one,
                             .rank_count = c->count,
                             .ranks = c->ranks,
                             .layers = c->blocks,
                             .memory_bytes = c->memory,
                             .rates = c->rates,
                             .shares = plan->goal == TSR_PLAN_TRAINING ? c->proportions : NULL,
                             .shared_host = c->sharing.host,
                             .shared_ranks = c->sharing.ranks,
                             .missing_bytes = missing == 0 && c->missing_bytes > 0 ? 1 : missing,
                             .missing_place = c->missing_place,
                             .expert_division = c->mixed ? TSR_EXPERT_DIVISION_MIXED : c->experts};
    if (grid.predicted) {
        grid.seconds = c->predicted.seconds;
        grid.compute_seconds = c->predicted.compute;
        grid.tensor_seconds = c->predicted.tensor;
        grid.data_seconds = c->predicted.data;
        grid.stage_seconds = c->predicted.pipeline;
        grid.idle_seconds = c->predicted.idle;
        grid.tokens_per_second = plan->tokens / c->predicted.seconds;
    }
    TSR__GIVE(tsr_cluster_grid, &grid, out);
    return TSR_OK;
}
