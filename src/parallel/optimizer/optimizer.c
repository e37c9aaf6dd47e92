#include "parallel/optimizer/optimizer.h"

#include "base/alloc.h"
#include "base/struct_size.h"
#include "gpu/internal.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/layers/layer.h"
#include "tensor/check.h"
#include "tessera/ops.h"

static const char *kind_name(tsr_optimizer_kind kind)
{
    return kind == TSR_OPTIMIZER_ADAMW ? "AdamW" : kind == TSR_OPTIMIZER_SGD ? "SGD" : "none";
}

/* Creating ----------------------------------------------------------------------------------- */

static tsr_adamw_params adamw_params(const tsr_optimizer *optimizer, float learning_rate)
{
    tsr_adamw_params params = optimizer->adamw;
    params.learning_rate = learning_rate;
    params.step = optimizer->steps + 1;
    return params;
}

static tsr_sgd_params sgd_params(const tsr_optimizer *optimizer, float learning_rate)
{
    tsr_sgd_params params = optimizer->sgd;
    params.learning_rate = learning_rate;
    params.first_step = optimizer->steps == 0 && params.momentum != 0;
    return params;
}

static tsr_status check_numbers(const tsr_optimizer *optimizer, const char *who,
                                float learning_rate)
{
    if (optimizer->params.kind == TSR_OPTIMIZER_NONE)
        return TSR_OK;
    if (optimizer->params.kind == TSR_OPTIMIZER_SGD) {
        const tsr_sgd_params params = sgd_params(optimizer, learning_rate);
        return tsr__sgd_check(who, &params);
    }
    const tsr_adamw_params params = adamw_params(optimizer, learning_rate);
    return tsr__adamw_check(who, &params);
}

tsr_status tsr_optimizer_create(const tsr_optimizer_params *params, tsr_optimizer **out)
{
    const char *who = "optimizer_create";
    TSR__REQUIRE(params && out, "%s: %s is NULL", who, params ? "out" : "params");
    TSR__TAKE(tsr_optimizer_params, params);
    TSR__REQUIRE(params->stream, "%s: stream is NULL", who);
    TSR__REQUIRE((int)params->kind >= 0 && params->kind <= TSR_OPTIMIZER_NONE,
                 "%s: unknown kind %d", who, (int)params->kind);
    tsr_optimizer checked = {.params = *params};
    TSR__TRY(TSR__TAKE_PART(tsr_adamw_params, params->adamw, &checked.adamw));
    TSR__TRY(TSR__TAKE_PART(tsr_sgd_params, params->sgd, &checked.sgd));
    checked.params.adamw = NULL;
    checked.params.sgd = NULL;
    TSR__TRY(check_numbers(&checked, who, 0));
    tsr_optimizer *optimizer = tsr__calloc(1, sizeof *optimizer);
    if (!optimizer)
        return TSR_ERR_NO_MEMORY;
    *optimizer = checked;
    *out = optimizer;
    return TSR_OK;
}

static void finish_item(tsr__optimizer_item *item)
{
    tsr_tensor_destroy(&item->own.tensor);
    tsr_tensor_destroy(&item->own.grad);
    tsr_tensor_destroy(&item->moment1);
    tsr_tensor_destroy(&item->moment2);
    tsr_tensor_destroy(&item->master);
    tsr__free(item->name);
}

void tsr_optimizer_destroy(tsr_optimizer **optimizer)
{
    if (!optimizer || !*optimizer)
        return;
    tsr_optimizer *closing = *optimizer;
    *optimizer = NULL;
    for (size_t i = 0; i < closing->item_count; i++)
        finish_item(&closing->items[i]);
    tsr__free(closing->items);
    for (size_t i = 0; i < closing->model_count; i++)
        tsr__free(closing->models[i].own);
    tsr__free(closing->models);
    tsr_tensor_destroy(&closing->norm.sum);
    tsr_tensor_destroy(&closing->norm.scale);
    tsr_tensor_destroy(&closing->norm.seen);
    tsr__free(closing);
}

/* Adding ------------------------------------------------------------------------------------- */

const tsr_parameter *tsr__optimizer_parameter(const tsr__optimizer_item *item)
{
    return item->layer ? tsr_layer_parameter(item->layer, item->index) : &item->own;
}

static tsr_status make_state(const tsr_optimizer *optimizer, tsr__optimizer_item *item)
{
    const tsr_parameter *parameter = tsr__optimizer_parameter(item);
    const tsr_layout *layout = tsr_tensor_layout(parameter->tensor);
    tsr_device *device = tsr_stream_device(optimizer->params.stream);
    const bool adamw = optimizer->params.kind == TSR_OPTIMIZER_ADAMW;
    if (optimizer->params.kind == TSR_OPTIMIZER_NONE)
        return TSR_OK;
    if (adamw || optimizer->sgd.momentum != 0)
        TSR__TRY(tsr_tensor_create(device, TSR_F32, layout->ndim, layout->shape, &item->moment1));
    if (adamw)
        TSR__TRY(tsr_tensor_create(device, TSR_F32, layout->ndim, layout->shape, &item->moment2));
    if (layout->dtype != TSR_F32 && !optimizer->params.in_place)
        TSR__TRY(tsr_tensor_create(device, TSR_F32, layout->ndim, layout->shape, &item->master));
    return TSR_OK;
}

static tsr_status fill_state(const tsr_optimizer *optimizer, const tsr__optimizer_item *item)
{
    tsr_stream *stream = optimizer->params.stream;
    if (item->moment1)
        TSR__TRY(tsr_fill(stream, item->moment1, 0));
    if (item->moment2)
        TSR__TRY(tsr_fill(stream, item->moment2, 0));
    return item->master ? tsr_copy(stream, item->master, tsr__optimizer_parameter(item)->tensor)
                        : TSR_OK;
}

tsr_status tsr__optimizer_fresh_state(tsr_optimizer *optimizer)
{
    for (size_t i = 0; i < optimizer->item_count; i++)
        TSR__TRY(fill_state(optimizer, &optimizer->items[i]));
    return TSR_OK;
}

static tsr_status check_tensor(const tsr_optimizer *optimizer, const char *who,
                               const tsr_parameter *parameter)
{
    const tsr_tensor *tensor = parameter->tensor;
    TSR__REQUIRE(tensor, "%s: '%s' has no memory", who, parameter->name);
    TSR__REQUIRE(tsr__tensor_device(tensor) == tsr_stream_device(optimizer->params.stream),
                 "%s: '%s' is on another device than the stream", who, parameter->name);
    const tsr_dtype dtype = tsr_tensor_layout(tensor)->dtype;
    TSR__REQUIRE(dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16,
                 "%s: '%s' is %s; f32, f16 or bf16 is needed", who, parameter->name,
                 tsr_dtype_name(dtype));
    return TSR_OK;
}

/* Makes room in the list of parameters for `count` items behind the existing ones, filled with
 * zeros. The caller increases item_count when the new items are complete. */
static tsr_status reserve_items(tsr_optimizer *optimizer, int count)
{
    void *items = optimizer->items;
    const size_t needed = optimizer->item_count + (size_t)count;
    TSR__TRY(tsr__grow(&items, &optimizer->item_capacity, needed, sizeof *optimizer->items));
    optimizer->items = items;
    for (size_t i = optimizer->item_count; i < needed; i++)
        optimizer->items[i] = (tsr__optimizer_item){0};
    return TSR_OK;
}

static tsr_status fill_layer_items(tsr_optimizer *optimizer, tsr_layer *layer, int count,
                                   const char *who)
{
    for (int i = 0; i < count; i++)
        TSR__TRY(check_tensor(optimizer, who, tsr_layer_parameter(layer, i)));
    for (int i = 0; i < count; i++) {
        tsr__optimizer_item *item = &optimizer->items[optimizer->item_count + (size_t)i];
        item->layer = layer;
        item->index = i;
        TSR__TRY(make_state(optimizer, item));
        TSR__TRY(fill_state(optimizer, item));
    }
    return TSR_OK;
}

tsr_status tsr_optimizer_add_layer(tsr_optimizer *optimizer, tsr_layer *layer)
{
    const char *who = "optimizer_add_layer";
    TSR__REQUIRE(optimizer && layer, "%s: %s is NULL", who, optimizer ? "layer" : "optimizer");
    for (size_t i = 0; i < optimizer->item_count; i++)
        TSR__REQUIRE(optimizer->items[i].layer != layer, "%s: %s has been added before", who,
                     layer->who);
    const int count = tsr_layer_parameter_count(layer);
    TSR__TRY(reserve_items(optimizer, count));
    tsr_status status = fill_layer_items(optimizer, layer, count, who);
    if (status != TSR_OK) {
        for (int i = 0; i < count; i++)
            finish_item(&optimizer->items[optimizer->item_count + (size_t)i]);
        return status;
    }
    optimizer->item_count += (size_t)count;
    if (!optimizer->group)
        optimizer->group = layer->group;
    return TSR_OK;
}

static tsr_status check_parameter(const tsr_optimizer *optimizer, const char *who,
                                  const tsr_parameter *parameter)
{
    TSR__REQUIRE(parameter->name, "%s: the parameter has no name", who);
    TSR__TRY(check_tensor(optimizer, who, parameter));
    const bool is_trained = optimizer->params.kind != TSR_OPTIMIZER_NONE;
    TSR__REQUIRE(parameter->grad || !is_trained, "%s: '%s' has no gradient", who, parameter->name);
    const tsr_layout *value = tsr_tensor_layout(parameter->tensor);
    TSR__REQUIRE(value->dtype == parameter->dtype, "%s: '%s' is %s, its tensor %s", who,
                 parameter->name, tsr_dtype_name(parameter->dtype), tsr_dtype_name(value->dtype));
    TSR__REQUIRE(!is_trained || tsr__layout_same_shape(value, tsr_tensor_layout(parameter->grad)),
                 "%s: '%s' is %s, its gradient %s", who, parameter->name,
                 TSR__SHAPE_OF(parameter->tensor), TSR__SHAPE_OF(parameter->grad));
    TSR__REQUIRE(parameter->shard_dim >= -1 && parameter->shard_dim < parameter->ndim,
                 "%s: '%s': shard_dim is %d", who, parameter->name, parameter->shard_dim);
    bool fits = value->ndim == parameter->ndim;
    for (int d = 0; d < value->ndim && fits; d++)
        fits = value->shape[d] ==
               (d == parameter->shard_dim ? parameter->length : parameter->global_shape[d]);
    TSR__REQUIRE(fits, "%s: '%s': a tensor %s is not this part of %s", who, parameter->name,
                 TSR__SHAPE_OF(parameter->tensor),
                 TSR__SHAPE(parameter->ndim, parameter->global_shape));
    return TSR_OK;
}

static tsr_status fill_own_item(const tsr_optimizer *optimizer, const tsr_parameter *parameter,
                                tsr__optimizer_item *item)
{
    item->name = tsr__strdup(parameter->name);
    if (!item->name)
        return TSR_ERR_NO_MEMORY;
    item->own = *parameter;
    item->own.name = item->name;
    item->own.tensor = item->own.grad = NULL;
    TSR__TRY(tsr__keep(parameter->tensor, &item->own.tensor));
    if (optimizer->params.kind != TSR_OPTIMIZER_NONE)
        TSR__TRY(tsr__keep(parameter->grad, &item->own.grad));
    TSR__TRY(make_state(optimizer, item));
    return fill_state(optimizer, item);
}

/* Describes a full tensor as a parameter that is not divided. */
static void describe_full(tsr_parameter *parameter)
{
    const tsr_layout *layout = tsr_tensor_layout(parameter->tensor);
    parameter->dtype = layout->dtype;
    parameter->ndim = layout->ndim;
    parameter->shard_dim = -1;
    parameter->offset = 0;
    parameter->length = layout->ndim > 0 ? layout->shape[0] : 1;
    for (int d = 0; d < layout->ndim; d++)
        parameter->global_shape[d] = layout->shape[d];
}

tsr_status tsr_optimizer_add_parameter(tsr_optimizer *optimizer, const tsr_parameter *parameter)
{
    const char *who = "optimizer_add_parameter";
    TSR__REQUIRE(optimizer && parameter, "%s: %s is NULL", who,
                 optimizer ? "parameter" : "optimizer");
    TSR__TAKE(tsr_parameter, parameter);
    tsr_parameter described = *parameter;
    if (described.ndim == 0 && described.tensor)
        describe_full(&described);
    TSR__TRY(check_parameter(optimizer, who, &described));
    TSR__TRY(reserve_items(optimizer, 1));
    tsr__optimizer_item *item = &optimizer->items[optimizer->item_count];
    tsr_status status = fill_own_item(optimizer, &described, item);
    if (status != TSR_OK) {
        finish_item(item);
        return status;
    }
    optimizer->item_count++;
    return TSR_OK;
}

tsr_status tsr_optimizer_add_fsdp(tsr_optimizer *optimizer, tsr_fsdp *model)
{
    const char *who = "optimizer_add_fsdp";
    TSR__REQUIRE(optimizer && model, "%s: %s is NULL", who, optimizer ? "model" : "optimizer");
    for (size_t i = 0; i < optimizer->model_count; i++)
        TSR__REQUIRE(optimizer->models[i].fsdp != model, "%s: the model has been added before",
                     who);
    TSR__REQUIRE(model->optimizer == optimizer->params.kind,
                 "%s: the optimizer is %s, the model was created for %s", who,
                 kind_name(optimizer->params.kind), kind_name(model->optimizer));
    TSR__REQUIRE(model->optimizer != TSR_OPTIMIZER_SGD || model->momentum ||
                     optimizer->sgd.momentum == 0,
                 "%s: momentum is %g, but the model was created with plain_sgd", who,
                 (double)optimizer->sgd.momentum);
    void *models = optimizer->models;
    TSR__TRY(tsr__grow(&models, &optimizer->model_capacity, optimizer->model_count + 1,
                       sizeof *optimizer->models));
    optimizer->models = models;
    if (optimizer->model_count == 0 && optimizer->item_count == 0)
        optimizer->steps = model->steps;
    optimizer->models[optimizer->model_count++] = (tsr__optimizer_model){.fsdp = model};
    if (!optimizer->group)
        optimizer->group = model->group;
    return TSR_OK;
}

/* Steps -------------------------------------------------------------------------------------- */

bool tsr__optimizer_has_gradient(const tsr__optimizer_item *item)
{
    if (!item->layer)
        return true;
    const tsr_parameter *parameter = tsr__optimizer_parameter(item);
    return parameter->tensor && parameter->grad &&
           !((const tsr__layer_parameter *)(const void *)parameter)->grad_empty;
}

static tsr__gradient_scale gradient_scale(const tsr_optimizer *optimizer)
{
    return optimizer->scaled ? optimizer->scale : (tsr__gradient_scale){.value = 1};
}

static tsr_status step_item(const tsr_optimizer *optimizer, const tsr__optimizer_item *item,
                            float learning_rate)
{
    const tsr_parameter *parameter = tsr__optimizer_parameter(item);
    tsr_stream *stream = optimizer->params.stream;
    const bool decays = !optimizer->params.decay_matrices || parameter->ndim >= 2;
    if (optimizer->params.kind == TSR_OPTIMIZER_SGD) {
        tsr_sgd_params params = sgd_params(optimizer, learning_rate);
        params.weight_decay = decays ? params.weight_decay : 0;
        return tsr__sgd_step(stream, parameter->tensor, parameter->grad, item->moment1,
                             item->master, &params, gradient_scale(optimizer));
    }
    tsr_adamw_params params = adamw_params(optimizer, learning_rate);
    params.weight_decay = decays ? params.weight_decay : 0;
    return tsr__adamw_step(stream, parameter->tensor, parameter->grad, item->moment1, item->moment2,
                           item->master, &params, gradient_scale(optimizer));
}

static tsr_status prepare_model(const tsr_optimizer *optimizer, tsr_fsdp *model,
                                float learning_rate)
{
    const tsr_sgd_params sgd = sgd_params(optimizer, learning_rate);
    const tsr_adamw_params adamw = adamw_params(optimizer, learning_rate);
    const bool is_sgd = optimizer->params.kind == TSR_OPTIMIZER_SGD;
    return tsr__fsdp_prepare(model,
                             &(tsr__fsdp_step){.sgd = is_sgd ? &sgd : NULL,
                                               .adamw = is_sgd ? NULL : &adamw,
                                               .scale = gradient_scale(optimizer),
                                               .decay_matrices = optimizer->params.decay_matrices});
}

static void end_step(tsr_optimizer *optimizer)
{
    optimizer->scaled = false;
    for (size_t i = 0; i < optimizer->item_count; i++)
        optimizer->items[i].stepped = false;
    for (size_t i = 0; i < optimizer->model_count; i++)
        optimizer->models[i].stepped = false;
}

/* Steps all FSDP models: first prepares all of them, then lets the ranks meet for all, then updates
 * all; tsr__fsdp_prepare explains why. */
static tsr_status step_models(tsr_optimizer *optimizer, float learning_rate)
{
    for (size_t i = 0; i < optimizer->model_count; i++)
        if (!optimizer->models[i].stepped)
            TSR__TRY(prepare_model(optimizer, optimizer->models[i].fsdp, learning_rate));
    for (size_t i = 0; i < optimizer->model_count; i++)
        if (!optimizer->models[i].stepped)
            TSR__TRY(tsr__fsdp_meet(optimizer->models[i].fsdp));
    for (size_t i = 0; i < optimizer->model_count; i++)
        if (!optimizer->models[i].stepped)
            tsr__fsdp_have_met(optimizer->models[i].fsdp);
    for (size_t i = 0; i < optimizer->model_count; i++) {
        tsr__optimizer_model *model = &optimizer->models[i];
        if (model->stepped)
            continue;
        TSR__TRY(tsr__fsdp_apply(model->fsdp));
        model->stepped = true;
    }
    return TSR_OK;
}

tsr_status tsr_optimizer_step(tsr_optimizer *optimizer, float learning_rate)
{
    TSR__REQUIRE(optimizer, "optimizer_step: optimizer is NULL");
    TSR__REQUIRE(optimizer->params.kind != TSR_OPTIMIZER_NONE,
                 "optimizer_step: the optimizer's kind is TSR_OPTIMIZER_NONE");
    TSR__TRY(check_numbers(optimizer, "optimizer_step", learning_rate));
    for (size_t i = 0; i < optimizer->item_count; i++) {
        tsr__optimizer_item *item = &optimizer->items[i];
        if (item->stepped || !tsr__optimizer_has_gradient(item))
            continue;
        TSR__TRY(step_item(optimizer, item, learning_rate));
        item->stepped = true;
    }
    TSR__TRY(step_models(optimizer, learning_rate));
    end_step(optimizer);
    optimizer->steps++;
    return TSR_OK;
}

tsr_status tsr_optimizer_zero_grad(tsr_optimizer *optimizer)
{
    TSR__REQUIRE(optimizer, "optimizer_zero_grad: optimizer is NULL");
    for (size_t i = 0; i < optimizer->item_count; i++) {
        const tsr__optimizer_item *item = &optimizer->items[i];
        if (item->own.grad)
            TSR__TRY(tsr_fill(optimizer->params.stream, item->own.grad, 0));
        else if (item->layer && item->index == 0)
            tsr_layer_zero_grad(item->layer);
    }
    for (size_t i = 0; i < optimizer->model_count; i++)
        TSR__TRY(tsr__fsdp_zero_grad(optimizer->models[i].fsdp));
    end_step(optimizer);
    return TSR_OK;
}

int64_t tsr_optimizer_steps(const tsr_optimizer *optimizer)
{
    return optimizer ? optimizer->steps : 0;
}

tsr_status tsr_optimizer_changed(tsr_optimizer *optimizer)
{
    TSR__REQUIRE(optimizer, "optimizer_changed: optimizer is NULL");
    for (size_t i = 0; i < optimizer->item_count; i++) {
        const tsr__optimizer_item *item = &optimizer->items[i];
        if (item->master)
            TSR__TRY(tsr_copy(optimizer->params.stream, item->master,
                              tsr__optimizer_parameter(item)->tensor));
    }
    for (size_t i = 0; i < optimizer->model_count; i++)
        TSR__TRY(tsr_fsdp_changed(optimizer->models[i].fsdp));
    return TSR_OK;
}
