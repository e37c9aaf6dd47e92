#include "parallel/fsdp/fsdp.h"

#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/struct_size.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/group/group.h"
#include "parallel/layers/layer.h"
#include "tensor/dtype.h"

static const char who[] = "fsdp_create";

/* Units and parameters ----------------------------------------------------------------------------
 */

/* Values that are never trained may have another dtype than their parameter, and matrices may be in
 * a block format, whose bytes are then divided. */
static tsr_status take_values_dtype(const tsr_fsdp *model, tsr__fsdp_param *p,
                                    const tsr_parameter *given)
{
    const tsr_dtype dtype = given->tensor ? tsr_tensor_layout(given->tensor)->dtype : given->dtype;
    if (model->optimizer != TSR_OPTIMIZER_NONE || dtype == given->dtype)
        return TSR_OK;
    if (!tsr__dtype_is_block(dtype)) {
        p->seen.dtype = dtype;
        return TSR_OK;
    }
    TSR__REQUIRE(tsr_layout_is_contiguous(tsr_tensor_layout(given->tensor)),
                 "its tensor is in a block format and not contiguous");
    p->blocks = dtype;
    p->shape[given->ndim - 1] =
        (int64_t)tsr__dtype_bytes(dtype, (uint64_t)p->shape[given->ndim - 1]);
    p->count = 1;
    for (int d = 0; d < given->ndim; d++)
        p->count *= (uint64_t)p->shape[d];
    return TSR_OK;
}

static tsr_status add_parameter(tsr_fsdp *model, const tsr_parameter *given)
{
    tsr__fsdp_param *p = &model->params[model->param_count];
    TSR__REQUIRE(given->name, "%s: a parameter has no name", who);
    const bool known =
        given->dtype == TSR_F32 || given->dtype == TSR_F16 || given->dtype == TSR_BF16;
    TSR__REQUIRE(known, "%s: '%s' is %s; f32, f16 or bf16 is needed", who, given->name,
                 tsr_dtype_name(given->dtype));
    TSR__REQUIRE(given->shard_dim >= -1 && given->shard_dim < given->ndim,
                 "%s: '%s': shard_dim is %d", who, given->name, given->shard_dim);
    p->seen = *given;
    p->seen.tensor = p->seen.grad = NULL;
    for (int d = 0; d < given->ndim && d < TSR_MAX_DIMS; d++)
        p->shape[d] = d == given->shard_dim ? given->length : given->global_shape[d];
    tsr_layout layout;
    tsr_status status = tsr_layout_init(given->dtype, given->ndim, p->shape, &layout);
    if (status == TSR_OK)
        status = take_values_dtype(model, p, given);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s: '%s'", who, given->name);
    if (p->blocks == 0)
        p->count = (uint64_t)tsr_layout_count(&layout);
    p->name = tsr__strdup(given->name);
    if (!p->name)
        return TSR_ERR_NO_MEMORY;
    p->seen.name = p->name;
    model->param_count++;
    return TSR_OK;
}

static int parameters_of(const tsr_fsdp_unit *unit)
{
    return unit->layer ? tsr_layer_parameter_count(unit->layer) : unit->parameter_count;
}

/* Adds the parameters of the last unit. */
static tsr_status add_parameters(tsr_fsdp *model, const tsr_fsdp_unit *given)
{
    tsr__fsdp_unit *unit = &model->units[model->unit_count - 1];
    for (int i = 0; i < parameters_of(given); i++) {
        TSR__TRY(add_parameter(model, tsr__fsdp_given(given, i)));
        tsr__fsdp_param *p = &model->params[model->param_count - 1];
        p->divisible =
            model->size > 1 && p->blocks == 0 && tsr__layer_is_divisible(given->layer, i);
        unit->count++;
    }
    return TSR_OK;
}

static tsr_status add_units(tsr_fsdp *model, const tsr_fsdp_params *params)
{
    uint64_t total = 0;
    for (int u = 0; u < params->unit_count; u++) {
        const tsr_fsdp_unit *unit = &params->units[u];
        const int count = parameters_of(unit);
        TSR__REQUIRE(count >= 0 && (unit->layer || unit->parameters || count == 0),
                     "%s: unit %d has parameter_count %d, but neither a layer nor valid parameters",
                     who, u, count);
        total += (uint64_t)count;
    }
    TSR__REQUIRE(total > 0 && total <= TSR_SHARD_MAX_PARAMS,
                 "%s: the units have %llu parameters; 1 to %d are allowed", who,
                 (unsigned long long)total, TSR_SHARD_MAX_PARAMS);
    model->units = tsr__calloc((size_t)params->unit_count, sizeof *model->units);
    model->params = tsr__calloc((size_t)total, sizeof *model->params);
    if (!model->units || !model->params)
        return TSR_ERR_NO_MEMORY;
    for (int u = 0; u < params->unit_count; u++) {
        model->units[u] = (tsr__fsdp_unit){
            .layer = params->units[u].layer,
            .first = model->param_count,
            .slot = -1,
            .grad_slot = -1,
        };
        model->unit_count++;
        TSR__TRY(tsr__fsdp_open_layer(model, params->units[u].layer, false));
        const tsr_status status = add_parameters(model, &params->units[u]);
        tsr__fsdp_close_layer(model, params->units[u].layer);
        TSR__TRY(status);
    }
    return TSR_OK;
}

/* Checks that all ranks have the same plan. */
static tsr_status compare_plans(tsr_fsdp *model)
{
    char *text = NULL;
    size_t size = 0;
    tsr_comm *comm = tsr_group_comm(model->group);
    tsr_status status =
        tsr__checkpoint_agree(comm, who, tsr__fsdp_plan_json(model->plan, &text, &size));
    if (status == TSR_OK)
        status =
            tsr__checkpoint_same(comm, who, "the plan is", tsr__hash(TSR__HASH_START, text, size));
    tsr__free(text);
    return status;
}

/* Creating and destroying -------------------------------------------------------------------------
 */

static void empty_layers(tsr_fsdp *model)
{
    for (int u = 0; u < model->unit_count; u++)
        for (int i = 0; model->units[u].layer && i < model->units[u].count; i++) {
            (void)!tsr_layer_set_parameter(model->units[u].layer, i, NULL, NULL, false);
            tsr__layer_divide(model->units[u].layer, i, (tsr__over_data){0});
        }
}

void tsr__fsdp_take_layers(tsr_fsdp *model)
{
    model->has_layers = true;
    empty_layers(model);
}

static tsr_status check_params(const tsr_fsdp_params *params)
{
    TSR__REQUIRE(params->unit_count >= 1 && params->units, "%s: there are no units", who);
    TSR__REQUIRE((int)params->optimizer >= 0 && params->optimizer <= TSR_OPTIMIZER_NONE,
                 "%s: unknown optimizer %d", who, (int)params->optimizer);
    TSR__REQUIRE(params->reduction == 0 || params->reduction == TSR_OP_AVG ||
                     params->reduction == TSR_OP_SUM,
                 "%s: reduction %d is neither TSR_OP_SUM nor TSR_OP_AVG", who,
                 (int)params->reduction);
    TSR__REQUIRE(params->grad_dtype == 0 || params->grad_dtype == TSR_F32 ||
                     params->grad_dtype == TSR_F16 || params->grad_dtype == TSR_BF16,
                 "%s: grad_dtype is %s; f32, f16 or bf16 is needed", who,
                 tsr_dtype_name(params->grad_dtype));
    TSR__REQUIRE(params->ahead >= -1 && params->ahead <= TSR_MAX_FSDP_AHEAD,
                 "%s: ahead is %d; -1 to %d are allowed", who, params->ahead, TSR_MAX_FSDP_AHEAD);
    TSR__REQUIRE(params->replicas == 0 || params->replicas == 1,
                 "%s: replicas is %d; 0 and 1 are allowed", who, params->replicas);
    return TSR_OK;
}

static tsr_status take_parameters(tsr_fsdp_unit *unit, int index)
{
    void *parameters = NULL;
    const tsr_parameter *given = unit->parameters;
    unit->parameters = NULL;
    if (unit->layer || !given || unit->parameter_count <= 0)
        return TSR_OK;
    tsr_status status = tsr__struct_take_array("tsr_parameter", sizeof(tsr_parameter),
                                               (uint64_t)unit->parameter_count, given, &parameters);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s: unit %d", who, index);
    unit->parameters = parameters;
    return TSR_OK;
}

/* Copies the caller's units and their parameters; free_units frees the copies. */
static tsr_status take_units(const tsr_fsdp_params *params, tsr_fsdp_unit **out)
{
    void *units = NULL;
    tsr_status status = tsr__struct_take_array("tsr_fsdp_unit", sizeof(tsr_fsdp_unit),
                                               (uint64_t)params->unit_count, params->units, &units);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s", who);
    *out = units;
    for (int u = 0; u < params->unit_count; u++) {
        const tsr_status taken = take_parameters(&(*out)[u], u);
        if (status == TSR_OK)
            status = taken;
    }
    return status;
}

static void free_units(tsr_fsdp_unit *units, int count)
{
    for (int u = 0; units && u < count; u++)
        tsr__free((void *)units[u].parameters);
    tsr__free(units);
}

/* Performs the part of the creation that needs no other rank. Sets params->units to copies of the
 * caller's, or to NULL. */
static tsr_status prepare_model(tsr_fsdp *model, tsr_fsdp_params *params)
{
    tsr_fsdp_unit *units = NULL;
    tsr_status status = check_params(params);
    if (status == TSR_OK)
        status = take_units(params, &units);
    params->units = units;
    TSR__TRY(status);
    model->optimizer = params->optimizer;
    model->momentum = !params->plain_sgd;
    model->masters = !params->in_place;
    model->grad_dtype = params->grad_dtype ? params->grad_dtype : TSR_F32;
    model->reduction = params->reduction ? params->reduction : TSR_OP_AVG;
    model->slot_count = 1 + (params->ahead < 0 ? 0 : params->ahead ? params->ahead : 1);
    TSR__TRY(add_units(model, params));
    return tsr__fsdp_set_plan(model, params);
}

static tsr_status build_model(tsr_fsdp *model, const tsr_fsdp_params *params, bool with_values)
{
    TSR__TRY(tsr__fsdp_set_ranges(model));
    TSR__TRY(tsr__fsdp_make_slots(model));
    TSR__TRY(tsr__fsdp_make_shards(model, model->params, &model->pools));
    TSR__TRY(tsr__fsdp_make_replica(model));
    tsr__fsdp_add_up(model);
    return with_values ? tsr__fsdp_first_values(model, params) : TSR_OK;
}

tsr_status tsr__fsdp_create_model(const tsr_fsdp_params *params, const tsr__fsdp_source *source,
                                  bool with_values, tsr_fsdp **out)
{
    tsr_group *group = params->group ? params->group : tsr_group_default();
    TSR__REQUIRE(group, "%s: no group is given, and there is no default one", who);
    TSR__TRY(tsr__group_check(group));
    tsr_comm *comm = tsr_group_comm(group);
    tsr_fsdp_params with_units = *params;
    tsr_fsdp *model = tsr__calloc(1, sizeof *model);
    tsr_status status = model ? TSR_OK : TSR_ERR_NO_MEMORY;
    with_units.units = NULL;
    if (model) {
        model->group = group;
        model->source = source;
        model->stream = tsr_group_stream(group);
        model->device = tsr_stream_device(model->stream);
        model->most_bytes = tsr_device_get_info(model->device)->max_allocation_bytes;
        model->rank = tsr_group_rank(group);
        model->size = tsr_group_size(group);
        with_units.units = params->units;
        status = prepare_model(model, &with_units);
    }
    status = tsr__checkpoint_agree(comm, who, status);
    if (status == TSR_OK)
        status = compare_plans(model);
    if (status == TSR_OK)
        status = tsr__fsdp_choose_replica(model, params->replicas);
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(comm, who, build_model(model, &with_units, with_values));
    if (status == TSR_OK && with_values)
        status = tsr__fsdp_refresh(model);
    free_units((tsr_fsdp_unit *)with_units.units, with_units.unit_count);
    if (status != TSR_OK) {
        tsr_fsdp_destroy(&model);
        return status;
    }
    model->source = NULL;
    *out = model;
    return TSR_OK;
}

tsr_status tsr__fsdp_create_from(const tsr_fsdp_params *params, const tsr__fsdp_source *source,
                                 tsr_fsdp **out)
{
    tsr_fsdp *model = NULL;
    TSR__TRY(tsr__fsdp_create_model(params, source, true, &model));
    tsr__fsdp_take_layers(model);
    *out = model;
    return TSR_OK;
}

tsr_status tsr_fsdp_create(const tsr_fsdp_params *params, tsr_fsdp **out)
{
    TSR__REQUIRE(params && out, "%s: %s is NULL", who, params ? "out" : "params");
    TSR__TAKE(tsr_fsdp_params, params);
    return tsr__fsdp_create_from(params, NULL, out);
}

static void finish_param(tsr__fsdp_param *p)
{
    /* the results of these requests are not needed any more */
    (void)!tsr_request_wait(&p->gathering);
    (void)!tsr_request_wait(&p->reducing);
    tsr_tensor_destroy(&p->seen.tensor);
    tsr_tensor_destroy(&p->seen.grad);
    tsr_tensor_destroy(&p->extra);
    tsr_tensor_destroy(&p->whole);
    tsr__free(p->starts);
    tsr__free(p->experts);
    tsr__free(p->sizes);
    tsr__free(p->name);
}

void tsr_fsdp_destroy(tsr_fsdp **model)
{
    if (!model || !*model)
        return;
    tsr_fsdp *closing = *model;
    *model = NULL;
    if (closing->has_layers)
        empty_layers(closing);
    for (int i = 0; i < closing->param_count; i++)
        finish_param(&closing->params[i]);
    for (int i = 0; i < closing->slot_count; i++) {
        tsr_tensor_destroy(&closing->slots[i].memory);
        tsr_tensor_destroy(&closing->grad_slots[i].memory);
    }
    tsr__fsdp_free_shards(closing->params, closing->param_count, &closing->pools);
    tsr__fsdp_finish_replica(closing);
    tsr_fsdp_destroy(&closing->successor);
    tsr_shard_plan_destroy(&closing->plan);
    tsr__free(closing->units);
    tsr__free(closing->params);
    tsr__free(closing);
}

const tsr_shard_plan *tsr_fsdp_plan(const tsr_fsdp *model)
{
    return model ? model->plan : NULL;
}
