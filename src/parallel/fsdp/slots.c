/* Memory for full parameters. All units share a few slots. A unit keeps its slot until another unit
 * needs it, so it can be used again without another gather. Gathering starts only after the device
 * has completed the work that was recorded before. So a unit can be gathered into a slot that
 * recorded work of the slot's previous unit still uses. */
#include "parallel/fsdp/fsdp.h"

#include "tessera/ops.h"

/* Gathers a parameter whose ranges are not in the order of ranks. Uses one broadcast for each
 * rank. */
static tsr_status gather_by_rank(tsr_fsdp *model, tsr__fsdp_param *p, const tsr_tensor *whole)
{
    for (int r = 0; r < model->size; r++) {
        if (p->sizes[r] == 0)
            continue;
        tsr_tensor *range = NULL;
        TSR__TRY(tsr_tensor_slice(whole, 0, p->starts[r], p->starts[r] + p->sizes[r], 1, &range));
        tsr_status status = r == model->rank ? tsr_copy(model->stream, range, p->value) : TSR_OK;
        if (status == TSR_OK)
            status = tsr_group_broadcast(model->group, range, r, NULL);
        tsr_tensor_destroy(&range);
        TSR__TRY(status);
    }
    return TSR_OK;
}

static tsr_status gather_param(tsr_fsdp *model, tsr__fsdp_param *p, const tsr_tensor *memory)
{
    tsr_tensor *whole = NULL;
    TSR__TRY(tsr__fsdp_view(memory, p->slot_bytes, tsr__fsdp_dtype(p), 1,
                            (int64_t[]){(int64_t)p->count}, &whole));
    tsr_status status =
        p->in_order ? tsr_group_all_gather(model->group, whole, p->value, 0,
                                           tsr_collective_params(.sizes = p->sizes), &p->gathering)
                    : gather_by_rank(model, p, whole);
    tsr_tensor_destroy(&whole);
    return status;
}

/* Returns whether another unit may take this unit's slot: this unit is neither in use nor one of
 * the units that the pass uses next. */
static bool may_evict(const tsr_fsdp *model, int unit, int from, int step)
{
    const int ahead = (unit - from) * step;
    return !model->units[unit].in_use && !(ahead >= 0 && ahead < model->slot_count);
}

static int find_slot(const tsr_fsdp *model, int from, int step)
{
    for (int i = 0; i < model->slot_count; i++)
        if (model->slots[i].unit < 0)
            return i;
    for (int i = 0; i < model->slot_count; i++)
        if (may_evict(model, model->slots[i].unit, from, step))
            return i;
    return -1;
}

static tsr_status release_slot(tsr_fsdp *model, tsr__fsdp_slot *slot)
{
    if (slot->unit < 0)
        return TSR_OK;
    const int unit = slot->unit;
    slot->unit = model->units[unit].slot = -1;
    for (int i = 0; i < model->units[unit].count; i++)
        TSR__TRY(tsr_request_wait(&model->params[model->units[unit].first + i].gathering));
    return TSR_OK;
}

tsr_status tsr__fsdp_gather(tsr_fsdp *model, int unit, int from, int step, bool *out)
{
    tsr__fsdp_unit *u = &model->units[unit];
    *out = true;
    if (!u->slotted || u->slot >= 0)
        return TSR_OK;
    const int index = find_slot(model, from, step);
    *out = index >= 0;
    if (!*out)
        return TSR_OK;
    tsr__fsdp_slot *slot = &model->slots[index];
    TSR__TRY(release_slot(model, slot));
    tsr_status status = TSR_OK;
    for (int i = u->first; i < u->first + u->count && status == TSR_OK; i++)
        if (tsr__fsdp_is_gathered(&model->params[i]))
            status = gather_param(model, &model->params[i], slot->memory);
    if (status != TSR_OK) {
        for (int i = u->first; i < u->first + u->count; i++)
            (void)!tsr_request_wait(&model->params[i].gathering);
        return status;
    }
    slot->unit = unit;
    u->slot = index;
    return TSR_OK;
}

tsr_status tsr__fsdp_wait_gathered(tsr_fsdp *model, int unit)
{
    const tsr__fsdp_unit *u = &model->units[unit];
    for (int i = u->first; i < u->first + u->count; i++) {
        tsr_status status = tsr_request_wait(&model->params[i].gathering);
        if (status == TSR_OK)
            continue;
        (void)!release_slot(model, &model->slots[u->slot]);
        return status;
    }
    return TSR_OK;
}

tsr_status tsr__fsdp_discard_gathered(tsr_fsdp *model)
{
    for (int i = 0; i < model->slot_count; i++)
        TSR__TRY(release_slot(model, &model->slots[i]));
    return TSR_OK;
}
