/* The plan of an FSDP model: which rank keeps what. Experts that data-parallel ranks divide are
 * whole on each rank, whatever the strategy is. */
#include <string.h>

#include "base/alloc.h"
#include "parallel/fsdp/fsdp.h"

static const char who[] = "fsdp_create";

/* Experts ------------------------------------------------------------------------------------- */

/* The number of elements of one expert, in this rank's layer. */
static uint64_t expert_elements(const tsr__fsdp_param *p)
{
    return p->shape[0] > 0 ? p->count / (uint64_t)p->shape[0] : 1;
}

/* Writes each rank's range of the elements of a parameter with experts to ranges[ranks]. */
static tsr_status divide_experts(const tsr__fsdp_param *p, int ranks, const double *rates,
                                 tsr_shard_range *ranges)
{
    tsr_partition_params partition = TSR_INIT(tsr_partition_params);
    partition.kind = rates ? TSR_PARTITION_WEIGHTED : TSR_PARTITION_UNEVEN;
    partition.rates = rates;
    TSR__TRY(tsr_partition((uint64_t)p->shape[0], ranks, &partition, ranges));
    for (int r = 0; r < ranks; r++) {
        ranges[r].start *= expert_elements(p);
        ranges[r].count *= expert_elements(p);
    }
    return TSR_OK;
}

/* A strategy that divides experts, and leaves all other parameters to another strategy. */
typedef struct with_experts {
    const tsr_fsdp *model;
    const tsr_shard_strategy *others;
} with_experts;

static tsr_status assign_others(const with_experts *s, const tsr_shard_request *request,
                                tsr_shard_param *params, tsr_shard_range *own,
                                tsr_shard_range *ranges)
{
    const size_t ranks = (size_t)request->ranks, row = ranks * sizeof *ranges;
    tsr_shard_request rest = *request;
    uint64_t next = 0;
    rest.params = params;
    rest.param_count = 0;
    for (uint64_t i = 0; i < request->param_count; i++)
        if (!s->model->params[i].divisible)
            params[rest.param_count++] = *tsr_shard_request_param(request, i);
    if (rest.param_count > 0)
        TSR__TRY(s->others->assign(s->others->user, &rest, own));
    for (uint64_t i = 0; i < request->param_count; i++)
        if (!s->model->params[i].divisible)
            memcpy(ranges + i * ranks, own + next++ * ranks, row);
        else
            TSR__TRY(divide_experts(&s->model->params[i], request->ranks, request->rates,
                                    ranges + i * ranks));
    return TSR_OK;
}

static tsr_status assign_with_experts(void *user, const tsr_shard_request *request,
                                      tsr_shard_range *ranges)
{
    const size_t count = (size_t)request->param_count;
    tsr_shard_param *params = tsr__calloc(count, sizeof *params);
    tsr_shard_range *own = tsr__calloc(count * (size_t)request->ranks, sizeof *own);
    const tsr_status status =
        params && own ? assign_others(user, request, params, own, ranges) : TSR_ERR_NO_MEMORY;
    tsr__free(params);
    tsr__free(own);
    return status;
}

/* Makes the pattern that excludes a name. */
static char *excluding(const char *name)
{
    char *pattern = tsr__calloc(2 * strlen(name) + 2, 1), *end = pattern;
    if (!pattern)
        return NULL;
    *end++ = '!';
    for (; *name; *end++ = *name++)
        if (strchr("*?[]!\\", *name))
            *end++ = '\\';
    return pattern;
}

static void free_patterns(char **patterns, int given)
{
    for (int i = given; patterns && patterns[i]; i++)
        tsr__free(patterns[i]);
    tsr__free(patterns);
}

/* Makes a list of the caller's patterns for `gather` and of patterns that exclude experts. */
static tsr_status gather_without_experts(const tsr_fsdp *model, const char *const *gather,
                                         char ***out, int *given)
{
    int count = 0;
    while (gather && gather[count])
        count++;
    char **patterns = tsr__calloc((size_t)count + (size_t)model->param_count + 1, sizeof *patterns);
    if (!patterns)
        return TSR_ERR_NO_MEMORY;
    *given = count;
    if (count > 0)
        memcpy(patterns, (const void *)gather, (size_t)count * sizeof *patterns);
    for (int i = 0; i < model->param_count; i++) {
        if (!model->params[i].divisible)
            continue;
        patterns[count] = excluding(model->params[i].name);
        if (!patterns[count++]) {
            free_patterns(patterns, *given);
            return TSR_ERR_NO_MEMORY;
        }
    }
    *out = patterns;
    return TSR_OK;
}

/* Sets how many experts each rank has, once the ranges of a parameter are known. */
static tsr_status set_experts(const tsr_fsdp *model, tsr__fsdp_param *p)
{
    const int64_t each = (int64_t)expert_elements(p);
    tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
    tsr_shard_range *want = tsr__calloc((size_t)model->size, sizeof *want);
    p->experts = tsr__calloc((size_t)model->size, sizeof *p->experts);
    tsr_status status = want && p->experts ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr_shard_plan_get_summary(model->plan, &summary);
    if (status == TSR_OK)
        status = divide_experts(p, model->size, summary.rates, want);
    for (int r = 0; status == TSR_OK && r < model->size; r++) {
        p->experts[r] = p->sizes[r] / each;
        if ((int64_t)want[r].count != p->sizes[r] ||
            (p->sizes[r] > 0 && (int64_t)want[r].start != p->starts[r]))
            status = tsr__fail(
                TSR_ERR_INVALID,
                "%s: '%s' has %lld experts that the ranks divide; the plan gives rank %d "
                "%lld elements from %lld on, but its experts are %lld from %lld on",
                who, p->name, (long long)p->shape[0], r, (long long)p->sizes[r],
                (long long)p->starts[r], (long long)want[r].count, (long long)want[r].start);
    }
    tsr__free(want);
    return status;
}

/* The plan ------------------------------------------------------------------------------------ */

tsr_status tsr__fsdp_plan_json(const tsr_shard_plan *plan, char **out, size_t *out_size)
{
    size_t size = 0;
    TSR__TRY(tsr_shard_plan_save_json(plan, 0, NULL, &size));
    char *text = tsr__calloc(size, 1);
    if (!text)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr_shard_plan_save_json(plan, size, text, out_size);
    if (status != TSR_OK) {
        tsr__free(text);
        return status;
    }
    *out = text;
    return TSR_OK;
}

static tsr_status copy_plan(tsr_fsdp *model, const tsr_shard_plan *plan,
                            const tsr_shard_param *list)
{
    TSR__REQUIRE(tsr_shard_plan_ranks(plan) == model->size,
                 "%s: the plan is for %d ranks, the group has %d", who, tsr_shard_plan_ranks(plan),
                 model->size);
    tsr_status status = tsr_shard_plan_check(plan, (uint64_t)model->param_count, list);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s", who);
    char *text = NULL;
    size_t size = 0;
    TSR__TRY(tsr__fsdp_plan_json(plan, &text, &size));
    status = tsr_shard_plan_load_json(text, size, &model->plan);
    tsr__free(text);
    return status;
}

static tsr_status make_plan(tsr_fsdp *model, const tsr_fsdp_params *params,
                            const tsr_shard_param *list)
{
    tsr_shard_strategy *full = NULL;
    char **gather = NULL;
    int given = 0;
    if (!params->strategy)
        TSR__TRY(tsr_shard_strategy_create(NULL, &full));
    const tsr_shard_strategy *strategy = full ? full : params->strategy;
    with_experts both = {model, strategy};
    const tsr_shard_strategy divides = {.struct_size = sizeof divides,
                                        .name = strategy->name,
                                        .assign = assign_with_experts,
                                        .user = &both};
    tsr_status status = gather_without_experts(model, params->gather, &gather, &given);
    if (status == TSR_OK)
        status = tsr_shard_plan_create(
            &divides, (uint64_t)model->param_count, list,
            tsr_shard_plan_params(.ranks = model->size, .gather = (const char *const *)gather,
                                  .rates = params->rates, .memory_bytes = params->memory_bytes),
            &model->plan);
    free_patterns(gather, given);
    tsr_shard_strategy_destroy(&full);
    return status == TSR_OK || status == TSR_ERR_NO_MEMORY ? status
                                                           : tsr__fail_context(status, "%s", who);
}

tsr_status tsr__fsdp_set_plan(tsr_fsdp *model, const tsr_fsdp_params *params)
{
    tsr_shard_param *list = tsr__calloc((size_t)model->param_count, sizeof *list);
    if (!list)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < model->param_count; i++) {
        const tsr__fsdp_param *p = &model->params[i];
        list[i] = (tsr_shard_param){.struct_size = sizeof *list,
                                    .name = p->name,
                                    .ndim = p->seen.ndim,
                                    .dtype = tsr_dtype_name(tsr__fsdp_dtype(p))};
        memcpy(list[i].shape, p->shape, sizeof list[i].shape);
    }
    tsr_status status =
        params->plan ? copy_plan(model, params->plan, list) : make_plan(model, params, list);
    tsr__free(list);
    return status;
}

/* Ranges ------------------------------------------------------------------------------------- */

static tsr_status set_range(tsr_fsdp *model, int index)
{
    tsr__fsdp_param *p = &model->params[index];
    const tsr_shard_param *planned = tsr_shard_plan_param(model->plan, (uint64_t)index);
    p->resident = planned->always_gather || model->size == 1;
    TSR__REQUIRE(!p->resident || !p->divisible,
                 "%s: '%s' has experts that the ranks divide, but the plan always gathers it", who,
                 p->name);
    TSR__TRY(tsr_shard_plan_range(model->plan, (uint64_t)index, model->rank, &p->range));
    if (p->resident)
        return TSR_OK;
    p->starts = tsr__calloc((size_t)model->size, sizeof *p->starts);
    p->sizes = tsr__calloc((size_t)model->size, sizeof *p->sizes);
    if (!p->starts || !p->sizes)
        return TSR_ERR_NO_MEMORY;
    p->in_order = true;
    uint64_t next = 0;
    for (int r = 0; r < model->size; r++) {
        tsr_shard_range range;
        TSR__TRY(tsr_shard_plan_range(model->plan, (uint64_t)index, r, &range));
        p->in_order = p->in_order && (range.count == 0 || range.start == next);
        next += range.count;
        p->starts[r] = (int64_t)range.start;
        p->sizes[r] = (int64_t)range.count;
    }
    return p->divisible ? set_experts(model, p) : TSR_OK;
}

tsr_status tsr__fsdp_set_ranges(tsr_fsdp *model)
{
    for (int i = 0; i < model->param_count; i++)
        TSR__TRY(set_range(model, i));
    return TSR_OK;
}
