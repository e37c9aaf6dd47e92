/* Full gradients. The backward pass of a unit writes them. Then they are reduced over the ranks,
 * and each rank keeps the gradients of its shards. */
#include "parallel/fsdp/fsdp.h"

#include "tessera/ops.h"

/* Memory ------------------------------------------------------------------------------------- */

static tsr_status new_extra(tsr_fsdp *model, tsr__fsdp_param *p)
{
    return tsr_tensor_create(model->device, model->grad_dtype, 1,
                             (int64_t[]){(int64_t)p->range.count}, &p->extra);
}

/* Takes a free slot. If there is none, takes one whose gradients are being reduced, and blocks
 * until that is done. The search begins at `grad_next`. */
static tsr_status take_grad_slot(tsr_fsdp *model, int unit)
{
    int index = -1;
    for (int i = 0; i < model->slot_count; i++) {
        const int candidate = (model->grad_next + i) % model->slot_count;
        const int other = model->grad_slots[candidate].unit;
        if (other < 0) {
            index = candidate;
            break;
        }
        if (index < 0 && !model->units[other].in_use)
            index = candidate;
    }
    TSR__REQUIRE(index >= 0, "fsdp_begin: %d units are in use; there is no memory for another one",
                 model->slot_count);
    if (model->grad_slots[index].unit >= 0)
        TSR__TRY(tsr__fsdp_collect(model, model->grad_slots[index].unit));
    model->grad_slots[index].unit = unit;
    model->units[unit].grad_slot = index;
    model->grad_next = (index + 1) % model->slot_count;
    return TSR_OK;
}

static tsr_status view_grad(tsr_fsdp *model, const tsr__fsdp_unit *u, tsr__fsdp_param *p)
{
    if (tsr__fsdp_is_gathered(p))
        return tsr__fsdp_view(model->grad_slots[u->grad_slot].memory, p->grad_slot_bytes,
                              model->grad_dtype, p->seen.ndim, p->shape, &p->seen.grad);
    /* The gradient memory of a parameter that is not gathered has the size of the layer's gradient
     * already. More memory is needed only if `grad` already contains a gradient. */
    if (p->grad_holds)
        TSR__TRY(new_extra(model, p));
    return tsr__fsdp_view_here(model, p, p->grad_holds ? p->extra : p->grad, &p->seen.grad);
}

tsr_status tsr__fsdp_take_grads(tsr_fsdp *model, int unit)
{
    tsr__fsdp_unit *u = &model->units[unit];
    model->progress = TSR__FSDP_IDLE;
    TSR__TRY(tsr__fsdp_collect(model, unit));
    if (u->slotted)
        TSR__TRY(take_grad_slot(model, unit));
    for (int i = u->first; i < u->first + u->count; i++) {
        tsr_status status = view_grad(model, u, &model->params[i]);
        if (status != TSR_OK) {
            tsr__fsdp_drop_grads(model, unit);
            return status;
        }
    }
    return TSR_OK;
}

static void release_grad_slot(tsr_fsdp *model, tsr__fsdp_unit *u)
{
    if (u->grad_slot >= 0)
        model->grad_slots[u->grad_slot].unit = -1;
    u->grad_slot = -1;
}

/* Discards the gradient that the pass has written, unless its reduction has started. */
static void drop_grad(tsr__fsdp_param *p)
{
    tsr_tensor_destroy(&p->seen.grad);
    if (!p->reduced)
        tsr_tensor_destroy(&p->extra);
}

void tsr__fsdp_drop_grads(tsr_fsdp *model, int unit)
{
    tsr__fsdp_unit *u = &model->units[unit];
    for (int i = u->first; i < u->first + u->count; i++)
        drop_grad(&model->params[i]);
    release_grad_slot(model, u);
}

/* Reducing ----------------------------------------------------------------------------------- */

/* Reduces a gradient whose ranges are not in the order of ranks. Each rank gets the complete sum
 * and copies its range from it. */
static tsr_status scatter_by_rank(tsr_fsdp *model, const tsr__fsdp_param *p, tsr_tensor *whole,
                                  tsr_tensor *to)
{
    tsr_tensor *range = NULL;
    TSR__TRY(tsr_group_all_reduce(model->group, whole, model->reduction, NULL, NULL));
    TSR__TRY(tsr_tensor_slice(whole, 0, (int64_t)p->range.start,
                              (int64_t)(p->range.start + p->range.count), 1, &range));
    tsr_status status = tsr_copy(model->stream, to, range);
    tsr_tensor_destroy(&range);
    return status;
}

static tsr_status reduce_shard(tsr_fsdp *model, tsr__fsdp_param *p, const tsr_tensor *memory)
{
    tsr_tensor *whole = NULL;
    if (p->grad_holds)
        TSR__TRY(new_extra(model, p));
    TSR__TRY(tsr__fsdp_view(memory, p->grad_slot_bytes, model->grad_dtype, 1,
                            (int64_t[]){(int64_t)p->count}, &whole));
    tsr_tensor *to = p->grad_holds ? p->extra : p->grad;
    tsr_status status =
        p->in_order
            ? tsr_group_reduce_scatter(model->group, to, whole, 0, model->reduction,
                                       tsr_collective_params(.sizes = p->sizes), &p->reducing)
            : scatter_by_rank(model, p, whole, to);
    tsr_tensor_destroy(&whole);
    return status;
}

static tsr_status reduce_param(tsr_fsdp *model, const tsr__fsdp_unit *u, tsr__fsdp_param *p)
{
    tsr_tensor *own = p->grad_holds ? p->extra : p->grad;
    if (tsr__fsdp_is_gathered(p))
        TSR__TRY(reduce_shard(model, p, model->grad_slots[u->grad_slot].memory));
    else if (p->experts) /* their gradient is the sum over the tokens of all ranks already */
        TSR__TRY(model->reduction == TSR_OP_AVG
                     ? tsr_scale(model->stream, own, own, 1 / (float)model->size, 0)
                     : TSR_OK);
    else if (model->size > 1)
        TSR__TRY(tsr_group_all_reduce(model->group, own, model->reduction, NULL, &p->reducing));
    p->reduced = true;
    return TSR_OK;
}

/* Discards this pass's gradients of a unit, after the reduction of one parameter could not be
 * started. Waits for the reductions that have been started. So either all parameters of the unit
 * get their gradient or none does. */
static void discard_pass(tsr_fsdp *model, const tsr__fsdp_unit *u)
{
    for (int i = u->first; i < u->first + u->count; i++) {
        tsr__fsdp_param *p = &model->params[i];
        if (p->reduced) /* a failure here means that the group has failed */
            (void)!tsr_request_wait(&p->reducing);
        p->reduced = false;
        drop_grad(p);
    }
}

tsr_status tsr__fsdp_reduce(tsr_fsdp *model, int unit)
{
    const tsr__fsdp_unit *u = &model->units[unit];
    for (int i = u->first; i < u->first + u->count; i++) {
        tsr_status status = reduce_param(model, u, &model->params[i]);
        if (status != TSR_OK) {
            const tsr__error why = tsr__error_take();
            discard_pass(model, u);
            tsr__error_put_back(&why);
            return status;
        }
        tsr_tensor_destroy(&model->params[i].seen.grad);
    }
    return TSR_OK;
}

/* Collecting --------------------------------------------------------------------------------- */

static tsr_status collect_param(tsr_fsdp *model, int param)
{
    tsr__fsdp_param *p = &model->params[param];
    if (!p->reduced)
        return TSR_OK;
    p->reduced = false;
    tsr_status status = tsr_request_wait(&p->reducing);
    if (status == TSR_OK && p->extra)
        status = tsr__fsdp_wait_sent(model, param);
    if (status == TSR_OK && p->extra)
        status = tsr_binary(model->stream, p->grad, p->grad, p->extra, TSR_BINARY_ADD);
    tsr_tensor_destroy(&p->extra);
    p->grad_holds = p->grad_holds || status == TSR_OK;
    return status;
}

tsr_status tsr__fsdp_collect(tsr_fsdp *model, int unit)
{
    tsr__fsdp_unit *u = &model->units[unit];
    tsr_status first = TSR_OK;
    bool any = false;
    for (int i = u->first; i < u->first + u->count; i++) {
        any = any || model->params[i].reduced;
        tsr_status status = collect_param(model, i);
        if (first == TSR_OK)
            first = status;
    }
    release_grad_slot(model, u);
    if (any && first == TSR_OK)
        first = tsr__fsdp_send_ahead(model, unit);
    return first;
}

/* Leaves out units that are in a backward pass. Their gradients were collected when that pass
 * began, and the pass is writing to their slots now. */
tsr_status tsr__fsdp_collect_all(tsr_fsdp *model)
{
    for (int u = 0; u < model->unit_count; u++) {
        const tsr__fsdp_unit *unit = &model->units[u];
        if (!unit->in_use || unit->pass != TSR_PASS_BACKWARD)
            TSR__TRY(tsr__fsdp_collect(model, u));
    }
    return TSR_OK;
}
