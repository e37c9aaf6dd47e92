#include "parallel/fsdp/fsdp.h"

static tsr_status check_unit(const tsr_sharded *model, const char *who, int unit)
{
    TSR__REQUIRE(model, "%s: model is NULL", who);
    TSR__REQUIRE(unit >= 0 && unit < model->unit_count, "%s: there is no unit %d among %d", who,
                 unit, model->unit_count);
    return TSR_OK;
}

tsr_status tsr__sharded_idle(const tsr_sharded *model, const char *who)
{
    TSR__REQUIRE(model, "%s: model is NULL", who);
    for (int u = 0; u < model->unit_count; u++)
        TSR__REQUIRE(!model->units[u].in_use, "%s: unit %d is in use", who, u);
    return TSR_OK;
}

/* Coming and going -------------------------------------------------------------------------------
 */

static tsr_status show(tsr_sharded *model, const tsr__sharded_unit *u, tsr__sharded_param *p)
{
    if (p->resident)
        return tsr_tensor_reshape(p->value, p->seen.ndim, p->shape, &p->seen.tensor);
    return tsr__sharded_view(model->slots[u->slot].memory, p->slot_bytes, p->seen.dtype,
                             p->seen.ndim, p->shape, &p->seen.tensor);
}

static void hide(tsr_sharded *model, int unit)
{
    tsr__sharded_unit *u = &model->units[unit];
    for (int i = 0; i < u->count; i++) {
        /* Taking memory away does not fail. */
        if (u->layer)
            (void)!tsr_layer_set_parameter(u->layer, i, NULL, NULL, false);
        tsr_tensor_destroy(&model->params[u->first + i].seen.tensor);
    }
    u->in_use = false;
}

static tsr_status show_all(tsr_sharded *model, int unit)
{
    const tsr__sharded_unit *u = &model->units[unit];
    for (int i = 0; i < u->count; i++) {
        tsr__sharded_param *p = &model->params[u->first + i];
        TSR__TRY(show(model, u, p));
        if (u->layer)
            TSR__TRY(tsr_layer_set_parameter(u->layer, i, p->seen.tensor, p->seen.grad, false));
    }
    return TSR_OK;
}

/* Those that come next, as far as there are slots. */
static tsr_status gather_ahead(tsr_sharded *model, int unit, tsr_pass pass)
{
    const int step = pass == TSR_PASS_FORWARD ? 1 : -1;
    bool room = true;
    for (int i = 1; i < model->slot_count && room; i++) {
        const int next = unit + i * step;
        if (next < 0 || next >= model->unit_count)
            return TSR_OK;
        TSR__TRY(tsr__sharded_gather(model, next, unit, step, &room));
    }
    return TSR_OK;
}

static tsr_status begin(tsr_sharded *model, int unit, tsr_pass pass)
{
    const int step = pass == TSR_PASS_FORWARD ? 1 : -1;
    bool room = false;
    /* The device works while this thread waits. */
    TSR__TRY(tsr_stream_submit(model->stream));
    TSR__TRY(tsr__sharded_gather(model, unit, unit, step, &room));
    TSR__REQUIRE(room, "sharded_begin: %d units are in use, and there is memory for no more",
                 model->slot_count);
    /* From here on no other unit gets its slot. */
    model->units[unit].in_use = true;
    TSR__TRY(tsr__sharded_gathered(model, unit));
    TSR__TRY(gather_ahead(model, unit, pass));
    if (pass == TSR_PASS_BACKWARD)
        TSR__TRY(tsr__sharded_take_grads(model, unit));
    tsr_status status = show_all(model, unit);
    if (status != TSR_OK && pass == TSR_PASS_BACKWARD)
        tsr__sharded_drop_grads(model, unit);
    return status;
}

tsr_status tsr_sharded_begin(tsr_sharded *model, int unit, tsr_pass pass)
{
    TSR__TRY(check_unit(model, "sharded_begin", unit));
    TSR__REQUIRE(pass == TSR_PASS_FORWARD || pass == TSR_PASS_BACKWARD,
                 "sharded_begin: there is no pass %d", (int)pass);
    TSR__REQUIRE(pass == TSR_PASS_FORWARD || model->optimizer != TSR_OPTIMIZER_NONE,
                 "sharded_begin: a model without an optimizer has no backward pass");
    TSR__REQUIRE(!model->units[unit].in_use, "sharded_begin: unit %d is in use", unit);
    model->units[unit].pass = pass;
    tsr_status status = begin(model, unit, pass);
    if (status != TSR_OK)
        hide(model, unit);
    return status;
}

static tsr_status end(tsr_sharded *model, int unit, bool reduce)
{
    const bool backward = model->units[unit].pass == TSR_PASS_BACKWARD;
    hide(model, unit);
    if (!backward)
        return TSR_OK;
    if (reduce)
        return tsr__sharded_reduce(model, unit);
    tsr__sharded_drop_grads(model, unit);
    return TSR_OK;
}

tsr_status tsr_sharded_end(tsr_sharded *model, int unit)
{
    TSR__TRY(check_unit(model, "sharded_end", unit));
    TSR__REQUIRE(model->units[unit].in_use, "sharded_end: unit %d is not in use", unit);
    return end(model, unit, true);
}

/* Layers ----------------------------------------------------------------------------------------
 */

tsr_status tsr_sharded_forward(tsr_sharded *model, int unit, const tsr_tensor *x,
                               tsr_layer_saved **saved, tsr_tensor **y)
{
    TSR__TRY(check_unit(model, "sharded_forward", unit));
    TSR__REQUIRE(model->units[unit].layer, "sharded_forward: unit %d is no layer", unit);
    TSR__TRY(tsr_sharded_begin(model, unit, TSR_PASS_FORWARD));
    tsr_status status = tsr_layer_forward(model->units[unit].layer, x, saved, y);
    (void)!end(model, unit, true);
    return status;
}

tsr_status tsr_sharded_backward(tsr_sharded *model, int unit, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr_tensor *gradient = NULL;
    TSR__TRY(check_unit(model, "sharded_backward", unit));
    TSR__REQUIRE(model->units[unit].layer, "sharded_backward: unit %d is no layer", unit);
    TSR__TRY(tsr_sharded_begin(model, unit, TSR_PASS_BACKWARD));
    tsr_status status =
        tsr_layer_backward(model->units[unit].layer, saved, dy, dx ? &gradient : NULL);
    tsr_status ended = end(model, unit, status == TSR_OK);
    if (status == TSR_OK)
        status = ended;
    if (status != TSR_OK)
        tsr_tensor_destroy(&gradient);
    else if (dx)
        *dx = gradient;
    return status;
}

/* Looking ---------------------------------------------------------------------------------------
 */

int tsr_sharded_parameter_count(const tsr_sharded *model, int unit)
{
    return model && unit >= 0 && unit < model->unit_count ? model->units[unit].count : 0;
}

const tsr_parameter *tsr_sharded_parameter(const tsr_sharded *model, int unit, int index)
{
    if (index < 0 || index >= tsr_sharded_parameter_count(model, unit))
        return NULL;
    return &model->params[model->units[unit].first + index].seen;
}

tsr_status tsr_sharded_shard_of(tsr_sharded *model, uint64_t param, tsr_sharded_shard *out)
{
    TSR__REQUIRE(model && out, "sharded_shard: %s is NULL", model ? "out" : "model");
    TSR__REQUIRE(param < (uint64_t)model->param_count,
                 "sharded_shard: there is no parameter %llu among %d", (unsigned long long)param,
                 model->param_count);
    TSR__TRY(tsr__sharded_collect_all(model));
    const tsr__sharded_param *p = &model->params[param];
    *out = (tsr_sharded_shard){.range = p->range};
    if (p->range.count == 0)
        return TSR_OK;
    out->value = p->value;
    out->grad = p->grad_holds ? p->grad : NULL;
    out->master = p->master;
    out->moment1 = p->moment1;
    out->moment2 = p->moment2;
    return TSR_OK;
}

tsr_status tsr_sharded_changed(tsr_sharded *model)
{
    TSR__TRY(tsr__sharded_idle(model, "sharded_changed"));
    TSR__TRY(tsr__sharded_forget(model));
    return tsr__sharded_fresh_masters(model);
}
