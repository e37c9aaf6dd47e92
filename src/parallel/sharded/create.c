#include "parallel/sharded/sharded.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/hash.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/group.h"
#include "tensor/check.h"
#include "tessera/ops.h"

static const char who[] = "sharded_create";

tsr_status tsr__sharded_view(const tsr_tensor *memory, uint64_t at_bytes, tsr_dtype dtype, int ndim,
                             const int64_t *shape, tsr_tensor **out)
{
    tsr_layout layout;
    TSR__TRY(tsr_layout_init(dtype, ndim, shape, &layout));
    layout.offset = (int64_t)(at_bytes / tsr_dtype_size(dtype));
    return tsr_tensor_view(memory, &layout, out);
}

/* Parameters ------------------------------------------------------------------------------------
 */

static tsr_status add_parameter(tsr_sharded *model, const tsr_parameter *given)
{
    tsr__sharded_param *p = &model->params[model->param_count];
    TSR__REQUIRE(given->name, "%s: a parameter has no name", who);
    const bool known =
        given->dtype == TSR_F32 || given->dtype == TSR_F16 || given->dtype == TSR_BF16;
    TSR__REQUIRE(known, "%s: '%s' is %s, which no optimizer works on", who, given->name,
                 tsr_dtype_name(given->dtype));
    TSR__REQUIRE(given->shard_dim >= -1 && given->shard_dim < given->ndim,
                 "%s: '%s': shard_dim is %d", who, given->name, given->shard_dim);
    p->seen = *given;
    p->seen.tensor = p->seen.grad = NULL;
    for (int d = 0; d < given->ndim && d < TSR_MAX_DIMS; d++)
        p->shape[d] = d == given->shard_dim ? given->length : given->global_shape[d];
    tsr_layout layout;
    tsr_status status = tsr_layout_init(given->dtype, given->ndim, p->shape, &layout);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s: '%s'", who, given->name);
    p->count = (uint64_t)tsr_layout_count(&layout);
    p->name = tsr__strdup(given->name);
    if (!p->name)
        return TSR_ERR_NO_MEMORY;
    p->seen.name = p->name;
    model->param_count++;
    return TSR_OK;
}

static int parameters_of(const tsr_sharded_unit *unit)
{
    return unit->layer ? tsr_layer_parameter_count(unit->layer) : unit->parameter_count;
}

static const tsr_parameter *parameter_of(const tsr_sharded_unit *unit, int index)
{
    return unit->layer ? tsr_layer_parameter(unit->layer, index) : &unit->parameters[index];
}

static tsr_status add_units(tsr_sharded *model, const tsr_sharded_params *params)
{
    uint64_t total = 0;
    for (int u = 0; u < params->unit_count; u++) {
        const tsr_sharded_unit *unit = &params->units[u];
        const int count = parameters_of(unit);
        TSR__REQUIRE(count >= 0 && (unit->layer || unit->parameters || count == 0),
                     "%s: unit %d has %d parameters, which are NULL", who, u, count);
        total += (uint64_t)count;
    }
    TSR__REQUIRE(total > 0 && total <= TSR_SHARD_MAX_PARAMS, "%s: %llu parameters in all", who,
                 (unsigned long long)total);
    model->units = tsr__calloc((size_t)params->unit_count, sizeof *model->units);
    model->params = tsr__calloc((size_t)total, sizeof *model->params);
    if (!model->units || !model->params)
        return TSR_ERR_NO_MEMORY;
    for (int u = 0; u < params->unit_count; u++) {
        model->units[u] = (tsr__sharded_unit){
            .layer = params->units[u].layer,
            .first = model->param_count,
            .slot = -1,
            .grad_slot = -1,
        };
        model->unit_count++;
        for (int i = 0; i < parameters_of(&params->units[u]); i++) {
            TSR__TRY(add_parameter(model, parameter_of(&params->units[u], i)));
            model->units[u].count++;
        }
    }
    return TSR_OK;
}

/* The plan --------------------------------------------------------------------------------------
 */

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

static tsr_status copy_plan(tsr_sharded *model, const tsr_shard_plan *plan,
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

static tsr_status make_plan(tsr_sharded *model, const tsr_sharded_params *params,
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

static tsr_status take_plan(tsr_sharded *model, const tsr_sharded_params *params)
{
    tsr_shard_param *list = tsr__calloc((size_t)model->param_count, sizeof *list);
    if (!list)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < model->param_count; i++) {
        const tsr__sharded_param *p = &model->params[i];
        list[i] = (tsr_shard_param){
            .name = p->name, .ndim = p->seen.ndim, .dtype = tsr_dtype_name(p->seen.dtype)};
        memcpy(list[i].shape, p->shape, sizeof list[i].shape);
    }
    tsr_status status =
        params->plan ? copy_plan(model, params->plan, list) : make_plan(model, params, list);
    tsr__free(list);
    return status;
}

/* All ranks execute one plan. */
static tsr_status compare_plans(tsr_sharded *model)
{
    char *text = NULL;
    size_t size = 0;
    tsr_comm *comm = tsr_parallel_comm(model->group);
    tsr_status status = tsr__checkpoint_agree(comm, who, plan_text(model->plan, &text, &size));
    if (status == TSR_OK)
        status = tsr__checkpoint_same(comm, who, "this rank has a plan",
                                      tsr__hash(TSR__HASH_START, text, size));
    tsr__free(text);
    return status;
}

static tsr_status take_ranges(tsr_sharded *model, int index)
{
    tsr__sharded_param *p = &model->params[index];
    const tsr_shard_param *planned = &tsr_shard_plan_params_of(model->plan)[index];
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

/* Memory ----------------------------------------------------------------------------------------
 */

static int moments(const tsr_sharded *model)
{
    return model->optimizer == TSR_OPTIMIZER_ADAMW                    ? 2
           : model->optimizer == TSR_OPTIMIZER_SGD && model->momentum ? 1
                                                                      : 0;
}

static bool has_master(const tsr_sharded *model, const tsr__sharded_param *p)
{
    return model->masters && p->seen.dtype != TSR_F32;
}

/* Lays all shards out, one behind the other: once to count, once to make them. */
static tsr_status lay_out(tsr_sharded *model)
{
    const bool trains = model->optimizer != TSR_OPTIMIZER_NONE;
    for (int i = 0; i < model->param_count; i++) {
        tsr__sharded_param *p = &model->params[i];
        const uint64_t count = p->range.count;
        TSR__TRY(tsr__sharded_part(&model->values, p->seen.dtype, count, &p->value));
        if (!trains)
            continue;
        TSR__TRY(tsr__sharded_part(&model->gradients, model->grad_dtype, count, &p->grad));
        if (has_master(model, p))
            TSR__TRY(tsr__sharded_part(&model->state, TSR_F32, count, &p->master));
        if (moments(model) > 0)
            TSR__TRY(tsr__sharded_part(&model->state, TSR_F32, count, &p->moment1));
        if (moments(model) > 1)
            TSR__TRY(tsr__sharded_part(&model->state, TSR_F32, count, &p->moment2));
    }
    return TSR_OK;
}

static tsr_status make_shards(tsr_sharded *model)
{
    tsr__sharded_pool *pools[] = {&model->values, &model->gradients, &model->state};
    const uint64_t most = tsr_device_get_info(model->device)->max_allocation_bytes;
    for (int i = 0; i < 3; i++)
        pools[i]->most = most;
    TSR__TRY(lay_out(model));
    for (int i = 0; i < 3; i++)
        TSR__TRY(tsr__sharded_pool_make(pools[i], model->device));
    return lay_out(model);
}

/* Places in slots; their size is that of the largest unit. */
static tsr_status make_slots(tsr_sharded *model)
{
    uint64_t most = 0, most_grad = 0;
    for (int u = 0; u < model->unit_count; u++) {
        tsr__sharded_unit *unit = &model->units[u];
        uint64_t end = 0, end_grad = 0;
        for (int i = unit->first; i < unit->first + unit->count; i++) {
            tsr__sharded_param *p = &model->params[i];
            if (p->resident)
                continue;
            unit->slotted = true;
            p->slot_bytes = end;
            p->grad_slot_bytes = end_grad;
            end += tsr__sharded_padded(p->count * tsr_dtype_size(p->seen.dtype));
            end_grad += tsr__sharded_padded(p->count * tsr_dtype_size(model->grad_dtype));
        }
        most = tsr__max_u64(most, end);
        most_grad = tsr__max_u64(most_grad, end_grad);
    }
    if (model->optimizer == TSR_OPTIMIZER_NONE)
        most_grad = 0;
    for (int i = 0; i < model->slot_count; i++) {
        model->slots[i].unit = model->grad_slots[i].unit = -1;
        if (most > 0)
            TSR__TRY(tsr__sharded_memory_new(model->device, most, &model->slots[i].memory));
        if (most_grad > 0)
            TSR__TRY(
                tsr__sharded_memory_new(model->device, most_grad, &model->grad_slots[i].memory));
    }
    model->memory.gathered_bytes = (uint64_t)model->slot_count * most;
    model->memory.unreduced_bytes = (uint64_t)model->slot_count * most_grad;
    return TSR_OK;
}

static void add_up(tsr_sharded *model)
{
    tsr_sharded_memory *m = &model->memory;
    for (int i = 0; i < model->param_count; i++) {
        const tsr__sharded_param *p = &model->params[i];
        m->parameter_bytes += p->range.count * tsr_dtype_size(p->seen.dtype);
        if (model->optimizer == TSR_OPTIMIZER_NONE)
            continue;
        m->gradient_bytes += p->range.count * tsr_dtype_size(model->grad_dtype);
        m->optimizer_bytes +=
            p->range.count * 4 * (uint64_t)(moments(model) + has_master(model, p));
    }
    m->total_bytes = m->parameter_bytes + m->gradient_bytes + m->optimizer_bytes +
                     m->gathered_bytes + m->unreduced_bytes;
}

/* First values -----------------------------------------------------------------------------------
 */

/* This rank's range of a tensor that has all of a parameter's part. */
static tsr_status copy_range(tsr_sharded *model, tsr__sharded_param *p, const tsr_tensor *from)
{
    const tsr_layout *layout = tsr_tensor_layout(from);
    bool fits = layout->ndim == p->seen.ndim && layout->dtype == p->seen.dtype;
    for (int d = 0; d < p->seen.ndim && fits; d++)
        fits = layout->shape[d] == p->shape[d];
    TSR__REQUIRE(fits, "%s: '%s' is %s %s, its tensor %s %s", who, p->name,
                 tsr_dtype_name(p->seen.dtype), TSR__SHAPE(p->seen.ndim, p->shape),
                 tsr_dtype_name(layout->dtype), TSR__SHAPE(layout->ndim, layout->shape));
    tsr_tensor *dense = NULL, *flat = NULL, *range = NULL;
    tsr_status status = TSR_OK;
    if (!tsr_layout_is_contiguous(layout)) {
        status =
            tsr_tensor_create(model->device, layout->dtype, layout->ndim, layout->shape, &dense);
        if (status == TSR_OK)
            status = tsr_copy(model->stream, dense, from);
    }
    if (status == TSR_OK)
        status = tsr_tensor_reshape(dense ? dense : from, 1, (int64_t[]){(int64_t)p->count}, &flat);
    if (status == TSR_OK)
        status = tsr_tensor_slice(flat, 0, (int64_t)p->range.start,
                                  (int64_t)(p->range.start + p->range.count), 1, &range);
    if (status == TSR_OK)
        status = tsr_copy(model->stream, p->value, range);
    tsr_tensor_destroy(&range);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&dense);
    return status;
}

static tsr_status first_values(tsr_sharded *model, const tsr_sharded_params *params)
{
    for (int u = 0; u < model->unit_count; u++) {
        const tsr__sharded_unit *unit = &model->units[u];
        for (int i = 0; i < unit->count; i++) {
            tsr__sharded_param *p = &model->params[unit->first + i];
            const tsr_tensor *from = parameter_of(&params->units[u], i)->tensor;
            if (from)
                TSR__TRY(copy_range(model, p, from));
            else if (unit->layer)
                TSR__TRY(tsr_layer_initial(unit->layer, i, model->stream, (int64_t)p->range.start,
                                           p->value));
            else
                TSR__TRY(tsr_fill(model->stream, p->value, 0));
        }
    }
    return tsr__sharded_fresh_state(model);
}

tsr_status tsr__sharded_fresh_masters(tsr_sharded *model)
{
    for (int i = 0; i < model->param_count; i++)
        if (model->params[i].master)
            TSR__TRY(tsr_copy(model->stream, model->params[i].master, model->params[i].value));
    return TSR_OK;
}

tsr_status tsr__sharded_fresh_state(tsr_sharded *model)
{
    model->steps = 0;
    for (size_t i = 0; i < model->state.count; i++)
        TSR__TRY(tsr_fill(model->stream, model->state.chunks[i].memory, 0));
    return tsr__sharded_fresh_masters(model);
}

/* Layers give their memory up: from now on it comes from here. Taking it away does not fail. */
static void empty_layers(tsr_sharded *model)
{
    for (int u = 0; u < model->unit_count; u++)
        for (int i = 0; model->units[u].layer && i < model->units[u].count; i++)
            (void)!tsr_layer_set_parameter(model->units[u].layer, i, NULL, NULL, false);
}

/* Creating --------------------------------------------------------------------------------------
 */

static tsr_status check_params(const tsr_sharded_params *params)
{
    TSR__REQUIRE(params->unit_count >= 1 && params->units, "%s: there are no units", who);
    TSR__REQUIRE((int)params->optimizer >= 0 && params->optimizer <= TSR_OPTIMIZER_NONE,
                 "%s: there is no optimizer %d", who, (int)params->optimizer);
    TSR__REQUIRE(params->reduction == 0 || params->reduction == TSR_OP_AVG ||
                     params->reduction == TSR_OP_SUM,
                 "%s: gradients are added or averaged, not reduced by op %d", who,
                 (int)params->reduction);
    TSR__REQUIRE(params->grad_dtype == 0 || params->grad_dtype == TSR_F32 ||
                     params->grad_dtype == TSR_F16 || params->grad_dtype == TSR_BF16,
                 "%s: gradients cannot be %s", who, tsr_dtype_name(params->grad_dtype));
    TSR__REQUIRE(params->ahead >= -1 && params->ahead <= TSR_SHARDED_AHEAD_MOST,
                 "%s: %d units ahead; at most %d", who, params->ahead, TSR_SHARDED_AHEAD_MOST);
    return TSR_OK;
}

/* What each rank can do by itself. */
static tsr_status prepare(tsr_sharded *model, const tsr_sharded_params *params)
{
    TSR__TRY(check_params(params));
    model->optimizer = params->optimizer;
    model->momentum = !params->no_momentum;
    model->masters = !params->no_master;
    model->grad_dtype = params->grad_dtype ? params->grad_dtype : TSR_F32;
    model->reduction = params->reduction ? params->reduction : TSR_OP_AVG;
    model->slot_count = 1 + (params->ahead < 0 ? 0 : params->ahead ? params->ahead : 1);
    TSR__TRY(add_units(model, params));
    return take_plan(model, params);
}

static tsr_status build(tsr_sharded *model, const tsr_sharded_params *params)
{
    for (int i = 0; i < model->param_count; i++)
        TSR__TRY(take_ranges(model, i));
    TSR__TRY(make_slots(model));
    TSR__TRY(make_shards(model));
    add_up(model);
    return first_values(model, params);
}

tsr_status tsr_sharded_create(const tsr_sharded_params *params, tsr_sharded **out)
{
    TSR__REQUIRE(params && out, "%s: %s is NULL", who, params ? "out" : "params");
    tsr_parallel *group = params->group ? params->group : tsr_parallel_default();
    TSR__REQUIRE(group, "%s: no group is given, and there is no default one", who);
    TSR__TRY(tsr__parallel_check(group));
    tsr_comm *comm = tsr_parallel_comm(group);
    tsr_sharded *model = tsr__calloc(1, sizeof *model);
    tsr_status status = model ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (model) {
        model->group = group;
        model->stream = tsr_parallel_stream(group);
        model->device = tsr_stream_device(model->stream);
        model->rank = tsr_parallel_rank(group);
        model->size = tsr_parallel_size(group);
        status = prepare(model, params);
    }
    status = tsr__checkpoint_agree(comm, who, status);
    if (status == TSR_OK)
        status = compare_plans(model);
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(comm, who, build(model, params));
    if (status != TSR_OK) {
        tsr_sharded_destroy(&model);
        return status;
    }
    model->has_layers = true;
    empty_layers(model);
    *out = model;
    return TSR_OK;
}

static void finish_param(tsr__sharded_param *p)
{
    /* How these end concerns nobody any more. */
    (void)!tsr_parallel_wait(&p->gathering);
    (void)!tsr_parallel_wait(&p->reducing);
    tsr_tensor_destroy(&p->seen.tensor);
    tsr_tensor_destroy(&p->seen.grad);
    tsr_tensor_destroy(&p->value);
    tsr_tensor_destroy(&p->grad);
    tsr_tensor_destroy(&p->moment1);
    tsr_tensor_destroy(&p->moment2);
    tsr_tensor_destroy(&p->master);
    tsr_tensor_destroy(&p->extra);
    tsr__free(p->starts);
    tsr__free(p->sizes);
    tsr__free(p->name);
}

void tsr_sharded_destroy(tsr_sharded **model)
{
    if (!model || !*model)
        return;
    tsr_sharded *closing = *model;
    *model = NULL;
    if (closing->has_layers)
        empty_layers(closing);
    for (int i = 0; i < closing->param_count; i++)
        finish_param(&closing->params[i]);
    for (int i = 0; i < closing->slot_count; i++) {
        tsr_tensor_destroy(&closing->slots[i].memory);
        tsr_tensor_destroy(&closing->grad_slots[i].memory);
    }
    tsr__sharded_pool_finish(&closing->values);
    tsr__sharded_pool_finish(&closing->gradients);
    tsr__sharded_pool_finish(&closing->state);
    tsr_shard_plan_destroy(&closing->plan);
    tsr__free(closing->units);
    tsr__free(closing->params);
    tsr__free(closing);
}

const tsr_shard_plan *tsr_sharded_plan(const tsr_sharded *model)
{
    return model ? model->plan : NULL;
}

void tsr_sharded_memory_usage(const tsr_sharded *model, tsr_sharded_memory *out)
{
    if (out)
        *out = model ? model->memory : (tsr_sharded_memory){0};
}
