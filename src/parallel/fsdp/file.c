/* Checkpoints: what a rank keeps of each parameter, and of the optimizer's state for it, are
 * entries of one file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/fsdp/fsdp.h"
#include "parallel/group/group.h"

#define STEPS "tessera.steps"

typedef struct entries {
    tsr_checkpoint_entry *items;
    char **names; /* of optimizer state */
    int count, name_count;
} entries;

static void entries_finish(entries *list)
{
    for (int i = 0; i < list->name_count; i++)
        tsr__free(list->names[i]);
    tsr__free((void *)list->names);
    tsr__free(list->items);
}

static void add(entries *list, const tsr__fsdp_param *p, const char *name, tsr_dtype dtype,
                tsr_tensor *tensor)
{
    tsr_checkpoint_entry *entry = &list->items[list->count++];
    *entry = (tsr_checkpoint_entry){
        .name = name,
        .dtype = dtype,
        .ndim = p->seen.ndim,
        .shard_dim = p->seen.shard_dim,
        .offset = p->seen.offset,
        .length = p->seen.length,
        .first = p->range.start,
        .count = p->range.count,
        .tensor = tensor,
    };
    memcpy(entry->shape, p->seen.global_shape, sizeof entry->shape);
}

static tsr_status add_state(entries *list, const tsr__fsdp_param *p, const char *what,
                            tsr_tensor *tensor)
{
    if (!tensor)
        return TSR_OK;
    const size_t size = strlen("optimizer..") + strlen(what) + strlen(p->name) + 1;
    char *name = tsr__calloc(size, 1);
    if (!name)
        return TSR_ERR_NO_MEMORY;
    snprintf(name, size, "optimizer.%s.%s", what, p->name);
    list->names[list->name_count++] = name;
    add(list, p, name, TSR_F32, tensor);
    return TSR_OK;
}

static tsr_status list_all(const tsr_fsdp *model, bool model_only, entries *list)
{
    const size_t most = 4 * (size_t)model->param_count;
    const bool sgd = model->optimizer == TSR_OPTIMIZER_SGD;
    list->items = tsr__calloc(most, sizeof *list->items);
    list->names = tsr__calloc(most, sizeof *list->names);
    if (!list->items || !list->names)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < model->param_count; i++) {
        const tsr__fsdp_param *p = &model->params[i];
        add(list, p, p->name, p->seen.dtype, p->value);
        if (model_only)
            continue;
        TSR__TRY(add_state(list, p, "master", p->master));
        TSR__TRY(add_state(list, p, sgd ? "velocity" : "moment1", p->moment1));
        TSR__TRY(add_state(list, p, "moment2", p->moment2));
    }
    return TSR_OK;
}

/* The caller's metadata, and the model's own: the array is to be freed. */
static tsr_status join_metadata(const char *const *given, const char *steps, const char ***out)
{
    size_t count = 0;
    while (given && given[count])
        count++;
    const char **all = tsr__calloc(count + 3, sizeof *all);
    if (!all)
        return TSR_ERR_NO_MEMORY;
    size_t at = 0;
    if (steps) {
        all[at++] = STEPS;
        all[at++] = steps;
    }
    for (size_t i = 0; i < count; i++)
        all[at++] = given[i];
    *out = all;
    return TSR_OK;
}

static const tsr_fsdp_file_params *params_or_none(const tsr_fsdp_file_params *params)
{
    static const tsr_fsdp_file_params none;
    return params ? params : &none;
}

static tsr_comm *world_of(const tsr_fsdp *model, const tsr_fsdp_file_params *params)
{
    return params->world ? params->world : tsr_group_comm(model->group);
}

static tsr_status compare_kinds(const tsr_fsdp_file_params *params, tsr_comm *world,
                                const char *who)
{
    return tsr__checkpoint_same(world, who,
                                params->model_only ? "this rank's model_only is true"
                                                   : "this rank's model_only is false",
                                params->model_only ? 2 : 0);
}

/* Saving ----------------------------------------------------------------------------------------
 */

static tsr_status settle(tsr_fsdp *model, const char *who)
{
    TSR__TRY(tsr__fsdp_idle(model, who));
    TSR__TRY(tsr__group_check(model->group));
    /* The group's communicator is free for other uses when none of its requests are in progress. */
    TSR__TRY(tsr__fsdp_collect_all(model));
    for (int u = 0; u < model->unit_count; u++)
        TSR__TRY(tsr__fsdp_gathered(model, u));
    return TSR_OK;
}

tsr_status tsr_fsdp_save(tsr_fsdp *model, const char *path, const tsr_fsdp_file_params *params)
{
    const char *who = "fsdp_save";
    TSR__REQUIRE(model, "%s: model is NULL", who);
    params = params_or_none(params);
    tsr_comm *world = world_of(model, params);
    entries list = {0};
    const char **metadata = NULL;
    char steps[24];
    snprintf(steps, sizeof steps, "%" PRId64, model->steps);
    tsr_status status = settle(model, who);
    if (status == TSR_OK)
        status = list_all(model, params->model_only, &list);
    if (status == TSR_OK)
        status = join_metadata(params->metadata, params->model_only ? NULL : steps, &metadata);
    status = tsr__checkpoint_agree(world, who, status);
    if (status == TSR_OK)
        status = compare_kinds(params, world, who);
    if (status == TSR_OK)
        status = tsr_checkpoint_save(path, world, model->stream, list.count, list.items,
                                     tsr_checkpoint_params(.metadata = metadata));
    tsr__free((void *)metadata);
    entries_finish(&list);
    return status;
}

/* Loading ---------------------------------------------------------------------------------------
 */

static tsr_status read_steps(const char *path, int64_t *out)
{
    char text[24], *end;
    TSR__REQUIRE(path, "fsdp_load: path is NULL");
    tsr_status status = tsr_checkpoint_metadata(path, STEPS, sizeof text, text);
    if (status != TSR_OK)
        return status == TSR_ERR_NO_MEMORY ? status : tsr__fail_context(status, "fsdp_load");
    long long steps = strtoll(text, &end, 10);
    TSR__REQUIRE(text[0] >= '0' && text[0] <= '9' && *end == '\0' && steps < INT64_MAX,
                 "fsdp_load: %s: '%s' is no number of steps", path, text);
    *out = steps;
    return TSR_OK;
}

tsr_status tsr_fsdp_load(tsr_fsdp *model, const char *path, const tsr_fsdp_file_params *params)
{
    const char *who = "fsdp_load";
    TSR__REQUIRE(model, "%s: model is NULL", who);
    params = params_or_none(params);
    tsr_comm *world = world_of(model, params);
    entries list = {0};
    int64_t steps = 0;
    tsr_status status = settle(model, who);
    if (status == TSR_OK)
        status = list_all(model, params->model_only, &list);
    if (status == TSR_OK && !params->model_only)
        status = read_steps(path, &steps);
    status = tsr__checkpoint_agree(world, who, status);
    if (status == TSR_OK)
        status = compare_kinds(params, world, who);
    if (status == TSR_OK)
        status = tsr_checkpoint_load(path, world, model->stream, list.count, list.items, NULL);
    entries_finish(&list);
    TSR__TRY(status);
    TSR__TRY(tsr__fsdp_forget(model));
    TSR__TRY(tsr_fsdp_zero_grad(model));
    if (params->model_only)
        return tsr__fsdp_fresh_state(model);
    model->steps = steps;
    return TSR_OK;
}
