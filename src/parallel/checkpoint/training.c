/* Files that contain parameters and the optimizer's state, with the number of steps in the
 * metadata. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "parallel/checkpoint/checkpoint.h"

#define STEPS "tessera.steps"

/* The list ----------------------------------------------------------------------------------- */

void tsr__training_list_finish(tsr__training_list *list)
{
    for (size_t i = 0; i < list->name_count; i++)
        tsr__free(list->names[i]);
    tsr__free((void *)list->names);
    tsr__free(list->items);
    *list = (tsr__training_list){0};
}

tsr_status tsr__training_add(tsr__training_list *list, const tsr_checkpoint_entry *entry)
{
    void *items = list->items;
    TSR__TRY(tsr__grow(&items, &list->capacity, list->count + 1, sizeof *list->items));
    list->items = items;
    list->items[list->count++] = *entry;
    return TSR_OK;
}

tsr_status tsr__training_add_state(tsr__training_list *list, const tsr_checkpoint_entry *entry,
                                   const char *what, tsr_tensor *tensor)
{
    if (!tensor)
        return TSR_OK;
    void *names = (void *)list->names;
    TSR__TRY(tsr__grow(&names, &list->name_capacity, list->name_count + 1, sizeof *list->names));
    list->names = names;
    const size_t size = strlen("optimizer..") + strlen(what) + strlen(entry->name) + 1;
    char *name = tsr__calloc(size, 1);
    if (!name)
        return TSR_ERR_NO_MEMORY;
    snprintf(name, size, "optimizer.%s.%s", what, entry->name);
    list->names[list->name_count++] = name;
    tsr_checkpoint_entry state = *entry;
    state.name = name;
    state.dtype = TSR_F32;
    state.tensor = tensor;
    return tsr__training_add(list, &state);
}

/* The file ----------------------------------------------------------------------------------- */

static tsr_status compare_kinds(const tsr__training_file *file)
{
    return tsr__checkpoint_same(file->world, file->who,
                                file->model_only ? "model_only is true," : "model_only is false,",
                                file->model_only ? 2 : 0);
}

/* Makes an array of metadata: the number of steps, unless `model_only` is true, and the pairs in
 * `given`. The caller must free the array. */
static tsr_status join_metadata(const tsr__training_file *file, const char *steps,
                                const char *const *given, const char ***out)
{
    size_t count = 0, length = 0;
    while (given && given[count])
        count++;
    const char **joined = tsr__calloc(count + 3, sizeof *joined);
    if (!joined)
        return TSR_ERR_NO_MEMORY;
    if (!file->model_only) {
        joined[length++] = STEPS;
        joined[length++] = steps;
    }
    for (size_t i = 0; i < count; i++)
        joined[length++] = given[i];
    *out = joined;
    return TSR_OK;
}

tsr_status tsr__training_save(const tsr__training_file *file, tsr_status prepared,
                              const tsr__training_list *list, const char *const *metadata)
{
    const char **joined = NULL;
    char steps[24];
    snprintf(steps, sizeof steps, "%" PRId64, file->steps);
    tsr_status status = prepared;
    if (status == TSR_OK)
        status = join_metadata(file, steps, metadata, &joined);
    status = tsr__checkpoint_agree(file->world, file->who, status);
    if (status == TSR_OK)
        status = compare_kinds(file);
    if (status == TSR_OK)
        status = tsr_checkpoint_save(
            file->path, file->world, file->stream, (int)list->count, list->items,
            tsr_checkpoint_params(.metadata = joined, .stages = file->stages,
                                  .parts = file->parts));
    tsr__free((void *)joined);
    return status;
}

static tsr_status read_steps(tsr__training_file *file)
{
    char text[24], *end;
    TSR__REQUIRE(file->parts || file->path, "%s: path is NULL", file->who);
    tsr_status status = tsr_checkpoint_metadata(file->path, file->parts ? file->world : NULL,
                                                tsr_checkpoint_params(.parts = file->parts), STEPS,
                                                sizeof text, text);
    if (status != TSR_OK)
        return status == TSR_ERR_NO_MEMORY ? status : tsr__fail_context(status, "%s", file->who);
    long long steps = strtoll(text, &end, 10);
    TSR__REQUIRE(text[0] >= '0' && text[0] <= '9' && *end == '\0' && steps < INT64_MAX,
                 "%s: %s: '%s' is not a number of steps", file->who, file->path, text);
    file->steps = steps;
    return TSR_OK;
}

tsr_status tsr__training_load(tsr__training_file *file, tsr_status prepared,
                              const tsr__training_list *list)
{
    tsr_status status = tsr__checkpoint_agree(file->world, file->who, prepared);
    if (status == TSR_OK)
        status = compare_kinds(file);
    if (status == TSR_OK && !file->model_only)
        status = tsr__checkpoint_agree(file->world, file->who, read_steps(file));
    if (status == TSR_OK)
        status = tsr_checkpoint_load(file->path, file->world, file->stream, (int)list->count,
                                     list->items, tsr_checkpoint_params(.parts = file->parts));
    return status;
}
