/* Checkpoints of optimizers. One file contains the parameters and state of layers, of single
 * tensors and of FSDP models. */
#include "base/struct_size.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/group/group.h"
#include "parallel/optimizer/optimizer.h"

static tsr_status list_item(const tsr_optimizer *optimizer, const tsr__optimizer_item *item,
                            bool model_only, tsr__training_list *list)
{
    const bool sgd = optimizer->params.kind == TSR_OPTIMIZER_SGD;
    tsr_checkpoint_entry entry = TSR_INIT(tsr_checkpoint_entry);
    TSR__TRY(tsr_checkpoint_get_entry(tsr__optimizer_parameter(item), &entry));
    TSR__TRY(tsr__training_add(list, &entry));
    if (model_only)
        return TSR_OK;
    TSR__TRY(tsr__training_add_state(list, &entry, "master", item->master));
    TSR__TRY(tsr__training_add_state(list, &entry, sgd ? "velocity" : "moment1", item->moment1));
    return tsr__training_add_state(list, &entry, "moment2", item->moment2);
}

/* Lists the entries of the file. First waits until nothing uses the tensors of these entries. */
static tsr_status list_entries(const tsr_optimizer *optimizer, const char *who, bool model_only,
                               bool saving, tsr__training_list *list)
{
    if (optimizer->group)
        TSR__TRY(tsr__group_check(optimizer->group));
    for (size_t i = 0; i < optimizer->item_count; i++)
        TSR__TRY(list_item(optimizer, &optimizer->items[i], model_only, list));
    for (size_t i = 0; i < optimizer->model_count; i++) {
        tsr_fsdp *model = optimizer->models[i].fsdp;
        TSR__TRY(tsr__fsdp_synchronise(model, who));
        TSR__REQUIRE(!saving || model_only || model->steps == optimizer->steps,
                     "%s: an FSDP model has done %lld steps, the optimizer %lld", who,
                     (long long)model->steps, (long long)optimizer->steps);
        TSR__TRY(tsr__fsdp_list(model, model_only, list));
    }
    return TSR_OK;
}

static tsr__training_file training_file_of(const tsr_optimizer *optimizer, const char *who,
                                           const char *path,
                                           const tsr_optimizer_file_params *params)
{
    return (tsr__training_file){
        .who = who,
        .path = path,
        .world = params->world ? params->world : tsr_group_comm(optimizer->group),
        .stages = params->stages,
        .stream = optimizer->params.stream,
        .model_only = params->model_only,
        .parts = params->parts,
        .steps = optimizer->steps,
    };
}

tsr_status tsr_optimizer_save(tsr_optimizer *optimizer, const char *path,
                              const tsr_optimizer_file_params *params)
{
    const char *who = "optimizer_save";
    TSR__REQUIRE(optimizer, "%s: optimizer is NULL", who);
    TSR__TAKE(tsr_optimizer_file_params, params);
    tsr__training_list list = {0};
    tsr_status status = list_entries(optimizer, who, params->model_only, true, &list);
    const tsr__training_file file = training_file_of(optimizer, who, path, params);
    status = tsr__training_save(&file, status, &list, params->metadata);
    tsr__training_list_finish(&list);
    return status;
}

static tsr_status reset_after_load(tsr_optimizer *optimizer, bool model_only, int64_t steps)
{
    TSR__TRY(tsr_optimizer_zero_grad(optimizer));
    if (model_only)
        TSR__TRY(tsr__optimizer_fresh_state(optimizer));
    for (size_t i = 0; i < optimizer->model_count; i++)
        TSR__TRY(tsr__fsdp_loaded(optimizer->models[i].fsdp, model_only, steps));
    optimizer->steps = model_only ? 0 : steps;
    return TSR_OK;
}

tsr_status tsr_optimizer_load(tsr_optimizer *optimizer, const char *path,
                              const tsr_optimizer_file_params *params)
{
    const char *who = "optimizer_load";
    TSR__REQUIRE(optimizer, "%s: optimizer is NULL", who);
    TSR__TAKE(tsr_optimizer_file_params, params);
    tsr__training_list list = {0};
    tsr_status status = list_entries(optimizer, who, params->model_only, false, &list);
    tsr__training_file file = training_file_of(optimizer, who, path, params);
    status = tsr__training_load(&file, status, &list);
    tsr__training_list_finish(&list);
    TSR__TRY(status);
    return reset_after_load(optimizer, params->model_only, file.steps);
}
