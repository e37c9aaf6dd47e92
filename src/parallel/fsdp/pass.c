#include "base/struct_size.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/layers/layer.h"
#include "tessera/ops.h"

static tsr_status check_unit(const tsr_fsdp *model, const char *who, int unit)
{
    TSR__REQUIRE(model, "%s: model is NULL", who);
    TSR__REQUIRE(unit >= 0 && unit < model->unit_count, "%s: unit %d is outside %d units", who,
                 unit, model->unit_count);
    return TSR_OK;
}

tsr_status tsr__fsdp_check_not_in_use(const tsr_fsdp *model, const char *who)
{
    TSR__REQUIRE(model, "%s: model is NULL", who);
    for (int u = 0; u < model->unit_count; u++)
        TSR__REQUIRE(!model->units[u].in_use, "%s: unit %d is in use", who, u);
    return TSR_OK;
}

/* Tensors of units in use -------------------------------------------------------------------- */

static tsr_status set_tensor(tsr_fsdp *model, const tsr__fsdp_unit *u, tsr__fsdp_param *p)
{
    if (p->whole)
        return tsr__keep(p->whole, &p->seen.tensor);
    if (!tsr__fsdp_is_gathered(p))
        return tsr__fsdp_view_here(model, p, p->value, &p->seen.tensor);
    if (p->blocks != 0)
        return tsr__fsdp_view_blocks(model->slots[u->slot].memory, p, &p->seen.tensor);
    return tsr__fsdp_view(model->slots[u->slot].memory, p->slot_bytes, p->seen.dtype, p->seen.ndim,
                          p->shape, &p->seen.tensor);
}

static void end_use(tsr_fsdp *model, int unit)
{
    tsr__fsdp_unit *u = &model->units[unit];
    for (int i = 0; i < u->count; i++) {
        /* Setting a layer's memory to NULL cannot fail. */
        if (u->layer)
            (void)!tsr_layer_set_parameter(u->layer, i, NULL, NULL, false);
        tsr_tensor_destroy(&model->params[u->first + i].seen.tensor);
    }
    u->in_use = false;
}

static tsr_status set_tensors(tsr_fsdp *model, int unit)
{
    const tsr__fsdp_unit *u = &model->units[unit];
    for (int i = 0; i < u->count; i++) {
        tsr__fsdp_param *p = &model->params[u->first + i];
        TSR__TRY(set_tensor(model, u, p));
        if (u->layer && p->experts)
            tsr__layer_divide(u->layer, i, (tsr__over_data){model->group, p->experts});
        if (u->layer)
            TSR__TRY(tsr_layer_set_parameter(u->layer, i, p->seen.tensor, p->seen.grad, false));
    }
    return TSR_OK;
}

/* Starts to gather the units that come next in the pass, as long as there are slots for them. */
static tsr_status gather_ahead(tsr_fsdp *model, int unit, tsr_pass pass)
{
    const int step = pass == TSR_PASS_FORWARD ? 1 : -1;
    bool room = true;
    for (int i = 1; i < model->slot_count && room; i++) {
        const int next = unit + i * step;
        if (next < 0 || next >= model->unit_count)
            return TSR_OK;
        TSR__TRY(tsr__fsdp_gather(model, next, unit, step, &room));
    }
    return TSR_OK;
}

/* Returns whether passes compute gradients. Without an optimizer, all units are frozen. */
static bool has_gradients(const tsr_fsdp *model, tsr_pass pass)
{
    return pass == TSR_PASS_BACKWARD && model->optimizer != TSR_OPTIMIZER_NONE;
}

static tsr_status begin_unit(tsr_fsdp *model, int unit, tsr_pass pass)
{
    const int step = pass == TSR_PASS_FORWARD ? 1 : -1;
    bool room = false;
    /* Submits the recorded work, so that the device works while this thread waits for the units. */
    TSR__TRY(tsr_stream_submit(model->stream));
    TSR__TRY(tsr__fsdp_gather(model, unit, unit, step, &room));
    TSR__REQUIRE(room, "fsdp_begin: %d units are in use; there is no memory for another one",
                 model->slot_count);
    /* From now on the unit cannot lose its slot. */
    model->units[unit].in_use = true;
    TSR__TRY(tsr__fsdp_wait_gathered(model, unit));
    TSR__TRY(gather_ahead(model, unit, pass));
    if (has_gradients(model, pass))
        TSR__TRY(tsr__fsdp_take_grads(model, unit));
    tsr_status status = set_tensors(model, unit);
    if (status != TSR_OK && has_gradients(model, pass))
        tsr__fsdp_drop_grads(model, unit);
    return status;
}

tsr_status tsr_fsdp_begin(tsr_fsdp *model, int unit, tsr_pass pass)
{
    TSR__TRY(check_unit(model, "fsdp_begin", unit));
    TSR__REQUIRE(pass == TSR_PASS_FORWARD || pass == TSR_PASS_BACKWARD,
                 "fsdp_begin: unknown pass %d", (int)pass);
    const tsr_layer *layer = model->units[unit].layer;
    TSR__REQUIRE(
        pass == TSR_PASS_FORWARD || model->optimizer != TSR_OPTIMIZER_NONE || !layer ||
            layer->frozen,
        "fsdp_begin: a model without an optimizer has no gradients, and unit %d, %s, is not "
        "frozen",
        unit, layer->who);
    TSR__REQUIRE(!model->units[unit].in_use, "fsdp_begin: unit %d is in use", unit);
    model->units[unit].pass = pass;
    tsr_status status = begin_unit(model, unit, pass);
    if (status != TSR_OK)
        end_use(model, unit);
    return status;
}

/* Fills the gradients that a backward pass has not written with 0, because all gradients of a unit
 * are reduced. A pass need not use all children of a layer: that of a model's head uses only the
 * head's part of an adapter. */
static tsr_status fill_unwritten(const tsr_fsdp *model, int unit)
{
    const tsr__fsdp_unit *u = &model->units[unit];
    for (int i = 0; u->layer && i < u->count; i++)
        if (tsr__layer_grad_is_empty(u->layer, i))
            TSR__TRY(tsr_fill(model->stream, model->params[u->first + i].seen.grad, 0));
    return TSR_OK;
}

static tsr_status end_unit(tsr_fsdp *model, int unit, bool reduce)
{
    const bool backward = has_gradients(model, model->units[unit].pass);
    const tsr_status status = backward && reduce ? fill_unwritten(model, unit) : TSR_OK;
    end_use(model, unit);
    if (!backward)
        return TSR_OK;
    if (reduce && status == TSR_OK)
        return tsr__fsdp_reduce(model, unit);
    tsr__fsdp_drop_grads(model, unit);
    return status;
}

tsr_status tsr_fsdp_end(tsr_fsdp *model, int unit)
{
    TSR__TRY(check_unit(model, "fsdp_end", unit));
    TSR__REQUIRE(model->units[unit].in_use, "fsdp_end: unit %d is not in use", unit);
    return end_unit(model, unit, true);
}

void tsr__fsdp_abandon(tsr_fsdp *model, int unit)
{
    (void)!end_unit(model, unit, false);
}

/* Layers ------------------------------------------------------------------------------------- */

tsr_status tsr_fsdp_forward(tsr_fsdp *model, int unit, const tsr_tensor *x, tsr_layer_saved **saved,
                            tsr_tensor **y)
{
    TSR__TRY(check_unit(model, "fsdp_forward", unit));
    TSR__REQUIRE(model->units[unit].layer, "fsdp_forward: unit %d is not a layer", unit);
    TSR__TRY(tsr_fsdp_begin(model, unit, TSR_PASS_FORWARD));
    tsr_status status = tsr_layer_forward(model->units[unit].layer, x, saved, y);
    (void)!end_unit(model, unit, true);
    return status;
}

tsr_status tsr_fsdp_backward(tsr_fsdp *model, int unit, const tsr_layer_saved *saved,
                             const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr_tensor *gradient = NULL;
    TSR__TRY(check_unit(model, "fsdp_backward", unit));
    tsr_layer *layer = model->units[unit].layer;
    TSR__REQUIRE(layer, "fsdp_backward: unit %d is not a layer", unit);
    TSR__REQUIRE(!layer->frozen || model->optimizer == TSR_OPTIMIZER_NONE,
                 "fsdp_backward: %s, unit %d, is frozen; all layers of a model are trained",
                 layer->who, unit);
    TSR__TRY(tsr_fsdp_begin(model, unit, TSR_PASS_BACKWARD));
    tsr_status status = tsr_layer_backward(layer, saved, dy, dx ? &gradient : NULL);
    tsr_status ended = end_unit(model, unit, status == TSR_OK);
    if (status == TSR_OK)
        status = ended;
    if (status != TSR_OK)
        tsr_tensor_destroy(&gradient);
    else if (dx)
        *dx = gradient;
    return status;
}

/* Queries ------------------------------------------------------------------------------------ */

const tsr_parameter *tsr_fsdp_parameter(const tsr_fsdp *model, int unit, int index)
{
    if (!model || unit < 0 || unit >= model->unit_count || index < 0 ||
        index >= model->units[unit].count)
        return NULL;
    return &model->params[model->units[unit].first + index].seen;
}

tsr_status tsr_fsdp_get_shard(tsr_fsdp *model, uint64_t param, tsr_fsdp_shard *out)
{
    TSR__REQUIRE(model && out, "fsdp_get_shard: %s is NULL", model ? "out" : "model");
    TSR__TRY(tsr__struct_check_out("tsr_fsdp_shard", out));
    TSR__REQUIRE(param < (uint64_t)model->param_count,
                 "fsdp_get_shard: parameter %llu is outside %d parameters",
                 (unsigned long long)param, model->param_count);
    TSR__TRY(tsr__fsdp_collect_all(model));
    const tsr__fsdp_param *p = &model->params[param];
    /* The caller may write to the gradient, so sending it to the copy must have ended. */
    TSR__TRY(tsr__fsdp_wait_sent(model, (int)param));
    model->replica.changed = model->replica.changed || p->grad_holds;
    tsr_fsdp_shard shard = {.range = p->range};
    if (p->range.count > 0) {
        shard.value = p->value;
        shard.grad = p->grad_holds ? p->grad : NULL;
        shard.master = p->master;
        shard.moment1 = p->moment1;
        shard.moment2 = p->moment2;
    }
    tsr__struct_write(sizeof shard, &shard, out);
    return TSR_OK;
}

tsr_status tsr_fsdp_changed(tsr_fsdp *model)
{
    TSR__TRY(tsr__fsdp_check_not_in_use(model, "fsdp_changed"));
    TSR__TRY(tsr__fsdp_discard_gathered(model));
    TSR__TRY(tsr__fsdp_fresh_masters(model));
    model->progress = TSR__FSDP_IDLE;
    return tsr__fsdp_refresh(model);
}
