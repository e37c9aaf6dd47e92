#include "parallel/fsdp/fsdp.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "parallel/checkpoint/checkpoint.h"

static const char who[] = "fsdp_create";

static tsr_status plan_text(const tsr_shard_plan *plan, char **out, size_t *out_size)
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
    TSR__TRY(plan_text(plan, &text, &size));
    status = tsr_shard_plan_load_json(text, size, &model->plan);
    tsr__free(text);
    return status;
}

static tsr_status make_plan(tsr_fsdp *model, const tsr_fsdp_params *params,
                            const tsr_shard_param *list)
{
    tsr_shard_strategy *full = NULL;
    if (!params->strategy)
        TSR__TRY(tsr_shard_strategy_create(NULL, &full));
    tsr_status status = tsr_shard_plan_create(
        full ? full : params->strategy, (uint64_t)model->param_count, list,
        tsr_shard_plan_params(.ranks = model->size, .gather = params->gather,
                              .rates = params->rates, .memory_bytes = params->memory_bytes),
        &model->plan);
    tsr_shard_strategy_destroy(&full);
    return status == TSR_OK || status == TSR_ERR_NO_MEMORY ? status
                                                           : tsr__fail_context(status, "%s", who);
}

tsr_status tsr__fsdp_take_plan(tsr_fsdp *model, const tsr_fsdp_params *params)
{
    tsr_shard_param *list = tsr__calloc((size_t)model->param_count, sizeof *list);
    if (!list)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < model->param_count; i++) {
        const tsr__fsdp_param *p = &model->params[i];
        list[i] = (tsr_shard_param){
            .name = p->name, .ndim = p->seen.ndim, .dtype = tsr_dtype_name(p->seen.dtype)};
        memcpy(list[i].shape, p->shape, sizeof list[i].shape);
    }
    tsr_status status =
        params->plan ? copy_plan(model, params->plan, list) : make_plan(model, params, list);
    tsr__free(list);
    return status;
}

/* Checks that all ranks have the same plan. */
tsr_status tsr__fsdp_compare_plans(tsr_fsdp *model)
{
    char *text = NULL;
    size_t size = 0;
    tsr_comm *comm = tsr_group_comm(model->group);
    tsr_status status = tsr__checkpoint_agree(comm, who, plan_text(model->plan, &text, &size));
    if (status == TSR_OK)
        status =
            tsr__checkpoint_same(comm, who, "the plan is", tsr__hash(TSR__HASH_START, text, size));
    tsr__free(text);
    return status;
}

static tsr_status take_range(tsr_fsdp *model, int index)
{
    tsr__fsdp_param *p = &model->params[index];
    const tsr_shard_param *planned = &tsr_shard_plan_param_array(model->plan)[index];
    p->resident = planned->always_gather || model->size == 1;
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
    return TSR_OK;
}

tsr_status tsr__fsdp_take_ranges(tsr_fsdp *model)
{
    for (int i = 0; i < model->param_count; i++)
        TSR__TRY(take_range(model, i));
    return TSR_OK;
}
