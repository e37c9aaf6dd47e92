/* The layout of an FSDP model in memory: the shards of this rank, and the slots of the units. */
#include "parallel/fsdp/fsdp.h"

#include <string.h>

#include "base/checked.h"
#include "base/struct_size.h"
#include "tensor/dtype.h"

static int moment_count(const tsr_fsdp *model)
{
    return model->optimizer == TSR_OPTIMIZER_ADAMW                    ? 2
           : model->optimizer == TSR_OPTIMIZER_SGD && model->momentum ? 1
                                                                      : 0;
}

static bool has_master(const tsr_fsdp *model, const tsr__fsdp_param *p)
{
    return model->masters && p->seen.dtype != TSR_F32;
}

int tsr__fsdp_places(const tsr_fsdp *model)
{
    return 4 * model->param_count;
}

tsr__fsdp_param *tsr__fsdp_in_memory(const tsr_fsdp *model, tsr__fsdp_param *params, int place)
{
    const int quarter = place / model->param_count;
    tsr__fsdp_param *p = &params[place % model->param_count];
    return (p->seen.ndim >= 2) == (quarter % 2 == 0) && p->resident == (quarter >= 2) ? p : NULL;
}

typedef tsr_status place_fn(const tsr_fsdp *model, tsr__fsdp_pools *pools, tsr__fsdp_param *p);

static tsr_status place_value(const tsr_fsdp *model, tsr__fsdp_pools *pools, tsr__fsdp_param *p)
{
    (void)model;
    if (p->blocks != 0 && p->resident)
        return TSR_OK;
    return tsr__fsdp_pool_region(&pools->values, tsr__fsdp_dtype(p), p->range.count, &p->value);
}

static tsr_status place_grad(const tsr_fsdp *model, tsr__fsdp_pools *pools, tsr__fsdp_param *p)
{
    return tsr__fsdp_pool_region(&pools->gradients, model->grad_dtype, p->range.count, &p->grad);
}

static tsr_status place_master(const tsr_fsdp *model, tsr__fsdp_pools *pools, tsr__fsdp_param *p)
{
    return has_master(model, p)
               ? tsr__fsdp_pool_region(&pools->state, TSR_F32, p->range.count, &p->master)
               : TSR_OK;
}

static tsr_status place_moment1(const tsr_fsdp *model, tsr__fsdp_pools *pools, tsr__fsdp_param *p)
{
    return moment_count(model) > 0
               ? tsr__fsdp_pool_region(&pools->state, TSR_F32, p->range.count, &p->moment1)
               : TSR_OK;
}

static tsr_status place_moment2(const tsr_fsdp *model, tsr__fsdp_pools *pools, tsr__fsdp_param *p)
{
    return moment_count(model) > 1
               ? tsr__fsdp_pool_region(&pools->state, TSR_F32, p->range.count, &p->moment2)
               : TSR_OK;
}

/* Lays out the shards, or the resident parameters if `resident` is true. Regions of one kind, such
 * as all values, follow each other. */
static tsr_status lay_out_half(const tsr_fsdp *model, bool resident, tsr__fsdp_param *params,
                               tsr__fsdp_pools *pools)
{
    place_fn *const kinds[] = {place_value, place_grad, place_master, place_moment1, place_moment2};
    const int count = model->optimizer == TSR_OPTIMIZER_NONE ? 1 : 5;
    const int half = tsr__fsdp_places(model) / 2, first = resident ? half : 0;
    for (int k = 0; k < count; k++)
        for (int place = first; place < first + half; place++) {
            tsr__fsdp_param *p = tsr__fsdp_in_memory(model, params, place);
            if (p)
                TSR__TRY(kinds[k](model, pools, p));
        }
    return TSR_OK;
}

/* Called twice: the first call counts the memory, the second creates the tensors. */
static tsr_status lay_out(const tsr_fsdp *model, tsr__fsdp_param *params, tsr__fsdp_pools *pools)
{
    tsr__fsdp_pool *each[] = {&pools->values, &pools->gradients, &pools->state};
    TSR__TRY(lay_out_half(model, false, params, pools));
    for (int i = 0; i < 3; i++)
        if (!each[i]->made)
            each[i]->shard_bytes = tsr__fsdp_pool_bytes(each[i]);
    return lay_out_half(model, true, params, pools);
}

tsr_status tsr__fsdp_make_shards(tsr_fsdp *model, tsr__fsdp_param *params, tsr__fsdp_pools *pools)
{
    tsr__fsdp_pool *each[] = {&pools->values, &pools->gradients, &pools->state};
    for (int i = 0; i < 3; i++)
        each[i]->most = model->most_bytes;
    TSR__TRY(lay_out(model, params, pools));
    for (int i = 0; i < 3; i++)
        TSR__TRY(tsr__fsdp_pool_make(each[i], model->device));
    return lay_out(model, params, pools);
}

void tsr__fsdp_free_shards(tsr__fsdp_param *params, int count, tsr__fsdp_pools *pools)
{
    for (int i = 0; i < count; i++) {
        tsr_tensor_destroy(&params[i].value);
        tsr_tensor_destroy(&params[i].grad);
        tsr_tensor_destroy(&params[i].moment1);
        tsr_tensor_destroy(&params[i].moment2);
        tsr_tensor_destroy(&params[i].master);
    }
    tsr__fsdp_pool_finish(&pools->values);
    tsr__fsdp_pool_finish(&pools->gradients);
    tsr__fsdp_pool_finish(&pools->state);
}

/* Sets the positions of parameters in slots, and allocates the slots. Each slot has the size of the
 * largest unit. */
/* Returns the first byte from `at` on at which a parameter may start in a slot. A view of blocks
 * must start at a multiple of a block. */
static uint64_t start_of(const tsr__fsdp_param *p, uint64_t at)
{
    const uint64_t step =
        (p->blocks != 0 ? tsr__dtype_block_bytes(p->blocks) : 1) * TSR__FSDP_ALIGN;
    return (at + step - 1) / step * step;
}

tsr_status tsr__fsdp_make_slots(tsr_fsdp *model)
{
    uint64_t most = 0, max_grad = 0;
    /* Parameters without elements need a slot too, even if it has 0 bytes. */
    bool any = false;
    for (int u = 0; u < model->unit_count; u++) {
        tsr__fsdp_unit *unit = &model->units[u];
        uint64_t end = 0, end_grad = 0;
        for (int i = unit->first; i < unit->first + unit->count; i++) {
            tsr__fsdp_param *p = &model->params[i];
            if (!tsr__fsdp_is_gathered(p))
                continue;
            unit->slotted = any = true;
            p->slot_bytes = end = start_of(p, end);
            p->grad_slot_bytes = end_grad;
            end += tsr__fsdp_padded(p->count * tsr_dtype_size(tsr__fsdp_dtype(p)));
            end_grad += tsr__fsdp_padded(p->count * tsr_dtype_size(model->grad_dtype));
        }
        most = tsr__max_u64(most, end);
        max_grad = tsr__max_u64(max_grad, end_grad);
    }
    const bool any_grad = any && model->optimizer != TSR_OPTIMIZER_NONE;
    if (!any_grad)
        max_grad = 0;
    for (int i = 0; i < model->slot_count; i++) {
        model->slots[i].unit = model->grad_slots[i].unit = -1;
        if (any)
            TSR__TRY(tsr__fsdp_memory_new(model->device, most, &model->slots[i].memory));
        if (any_grad)
            TSR__TRY(tsr__fsdp_memory_new(model->device, max_grad, &model->grad_slots[i].memory));
    }
    model->memory.gathered_bytes = (uint64_t)model->slot_count * most;
    model->memory.unreduced_bytes = (uint64_t)model->slot_count * max_grad;
    return TSR_OK;
}

tsr_status tsr__fsdp_view_here(const tsr_fsdp *model, const tsr__fsdp_param *p,
                               const tsr_tensor *flat, tsr_tensor **out)
{
    int64_t shape[TSR_MAX_DIMS];
    memcpy(shape, p->shape, sizeof shape);
    if (p->experts)
        shape[0] = p->experts[model->rank];
    return tsr_tensor_reshape(flat, p->seen.ndim, shape, out);
}

static void add_shard(const tsr_fsdp *model, const tsr__fsdp_param *p, uint64_t *parameters,
                      uint64_t *gradients, uint64_t *optimizer)
{
    *parameters += p->range.count * tsr_dtype_size(tsr__fsdp_dtype(p));
    if (model->optimizer == TSR_OPTIMIZER_NONE)
        return;
    *gradients += p->range.count * tsr_dtype_size(model->grad_dtype);
    *optimizer += p->range.count * 4 * (uint64_t)(moment_count(model) + has_master(model, p));
}

void tsr__fsdp_add_up(tsr_fsdp *model)
{
    tsr_fsdp_memory *m = &model->memory;
    uint64_t *copies = &m->replica_bytes;
    for (int i = 0; i < model->param_count; i++) {
        add_shard(model, &model->params[i], &m->parameter_bytes, &m->gradient_bytes,
                  &m->optimizer_bytes);
        if (model->replica.params)
            add_shard(model, &model->replica.params[i], copies, copies, copies);
    }
    m->total_bytes = m->parameter_bytes + m->gradient_bytes + m->optimizer_bytes +
                     m->gathered_bytes + m->unreduced_bytes + m->replica_bytes;
}

tsr_status tsr_fsdp_get_memory(const tsr_fsdp *model, tsr_fsdp_memory *out)
{
    TSR__REQUIRE(model && out, "fsdp_get_memory: %s is NULL", model ? "out" : "model");
    TSR__GIVE(tsr_fsdp_memory, &model->memory, out);
    return TSR_OK;
}
