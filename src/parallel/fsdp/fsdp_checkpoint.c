/* The entries of FSDP models in checkpoints. Each rank's shard of each parameter is an entry of the
 * file, and so is the optimizer's state for the shard. */
#include <string.h>

#include "parallel/checkpoint/checkpoint.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/group/group.h"

static tsr_checkpoint_entry entry_of(const tsr__fsdp_param *p)
{
    tsr_checkpoint_entry entry = {
        .struct_size = sizeof(tsr_checkpoint_entry),
        .name = p->name,
        .dtype = p->seen.dtype,
        .ndim = p->seen.ndim,
        .shard_dim = p->seen.shard_dim,
        .offset = p->seen.offset,
        .length = p->seen.length,
        .first = p->range.start,
        .count = p->range.count,
        .tensor = p->value,
    };
    memcpy(entry.shape, p->seen.global_shape, sizeof entry.shape);
    return entry;
}

tsr_status tsr__fsdp_list(const tsr_fsdp *model, bool model_only, tsr__training_list *list)
{
    const bool sgd = model->optimizer == TSR_OPTIMIZER_SGD;
    for (int i = 0; i < model->param_count; i++) {
        const tsr__fsdp_param *p = &model->params[i];
        const tsr_checkpoint_entry entry = entry_of(p);
        TSR__TRY(tsr__training_add(list, &entry));
        if (model_only)
            continue;
        TSR__TRY(tsr__training_add_state(list, &entry, "master", p->master));
        TSR__TRY(tsr__training_add_state(list, &entry, sgd ? "velocity" : "moment1", p->moment1));
        TSR__TRY(tsr__training_add_state(list, &entry, "moment2", p->moment2));
    }
    return TSR_OK;
}

tsr_status tsr__fsdp_synchronise(tsr_fsdp *model, const char *who)
{
    TSR__TRY(tsr__fsdp_check_not_in_use(model, who));
    TSR__TRY(tsr__group_check(model->group));
    TSR__TRY(tsr__fsdp_collect_all(model));
    for (int u = 0; u < model->unit_count; u++)
        TSR__TRY(tsr__fsdp_wait_gathered(model, u));
    return TSR_OK;
}

tsr_status tsr__fsdp_loaded(tsr_fsdp *model, bool model_only, int64_t steps)
{
    TSR__TRY(tsr__fsdp_discard_gathered(model));
    TSR__TRY(tsr__fsdp_zero_grad(model));
    if (model_only)
        TSR__TRY(tsr__fsdp_fresh_state(model));
    else
        model->steps = steps;
    return tsr__fsdp_refresh(model);
}
