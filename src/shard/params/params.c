#include "shard/params/params.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "json/text_check.h"

_Static_assert(TSR_SHARD_MAX_NAME == TSR__MAX_NAME,
               "tsr__name_problem checks the length of parameters' names");

static tsr_status too_large(void)
{
    return tsr__fail(TSR_ERR_OVERFLOW, "it is larger than 2^63 - 1");
}

static tsr_status count_elements(const tsr_shard_param *param, uint64_t *count)
{
    uint64_t product = 1;
    bool none = false;
    TSR__REQUIRE(param->ndim >= 0 && param->ndim <= TSR_SHARD_MAX_DIMS,
                 "%d dimensions are outside 0 to %d", param->ndim, TSR_SHARD_MAX_DIMS);
    for (int i = 0; i < param->ndim; i++) {
        TSR__REQUIRE(param->shape[i] >= 0, "dimension %d is %" PRId64, i, param->shape[i]);
        none = none || param->shape[i] == 0;
    }
    for (int i = 0; i < param->ndim && !none; i++)
        if (!tsr__mul_u64(product, (uint64_t)param->shape[i], &product) || product > INT64_MAX)
            return too_large();
    *count = none ? 0 : product;
    return TSR_OK;
}

tsr_status tsr__param_resolve(tsr_shard_param *param)
{
    const char *problem =
        param->name == NULL ? "is missing" : tsr__name_problem(param->name, strlen(param->name));
    TSR__REQUIRE(problem == NULL, "its name %s", problem);
    problem = param->layer == NULL ? NULL : tsr__name_problem(param->layer, strlen(param->layer));
    TSR__REQUIRE(problem == NULL, "its layer's name %s", problem);

    uint64_t count = 0, size = 0;
    tsr__file_dtype dtype;
    TSR__TRY(count_elements(param, &count));
    const char *dtype_name = param->dtype == NULL ? "f32" : param->dtype;
    problem = tsr__name_problem(dtype_name, strlen(dtype_name));
    TSR__REQUIRE(problem == NULL, "its dtype's name %s", problem);
    TSR__REQUIRE(tsr__dtype_by_name(dtype_name, &dtype), "there is no dtype '%.40s'", dtype_name);
    TSR__REQUIRE(count % dtype.block_count == 0,
                 "%" PRIu64 " elements are not a whole number of %s's blocks of %" PRIu64, count,
                 dtype.name, dtype.block_count);
    if (!tsr__mul_u64(count / dtype.block_count, dtype.block_bytes, &size) || size > INT64_MAX)
        return too_large();
    param->struct_size = sizeof *param;
    param->dtype = dtype.name;
    param->count = count;
    param->size_bytes = size;
    param->block_count = dtype.block_count;
    param->block_bytes = dtype.block_bytes;
    return TSR_OK;
}

static void free_strings(tsr_shard_param *param)
{
    tsr__free((void *)param->name);
    tsr__free((void *)param->layer);
    tsr__free((void *)param->file);
}

static tsr_status copy_strings(const tsr_shard_param *from, tsr_shard_param *to)
{
    char layer[TSR_SHARD_MAX_NAME + 1];
    to->name = tsr__strdup(from->name);
    to->layer = tsr__strdup(
        from->layer != NULL ? from->layer : tsr__shard_layer_of(from->name, sizeof layer, layer));
    to->file = from->file != NULL ? tsr__strdup(from->file) : NULL;
    if (to->name != NULL && to->layer != NULL && (from->file == NULL || to->file != NULL))
        return TSR_OK;
    free_strings(to);
    return TSR_ERR_NO_MEMORY;
}

tsr_status tsr__params_add(tsr__params *params, const tsr_shard_param *param)
{
    tsr_shard_param copy = *param;
    void *items = params->items;
    TSR__TRY(tsr__param_resolve(&copy));
    TSR__REQUIRE(params->count < TSR_SHARD_MAX_PARAMS, "there are more than %d parameters",
                 TSR_SHARD_MAX_PARAMS);
    TSR__TRY(tsr__grow(&items, &params->capacity, params->count + 1, sizeof copy));
    params->items = items;
    TSR__TRY(copy_strings(param, &copy));
    params->items[params->count++] = copy;
    return TSR_OK;
}

void tsr__params_finish(tsr__params *params)
{
    for (size_t i = 0; i < params->count; i++)
        free_strings(&params->items[i]);
    tsr__free(params->items);
    *params = (tsr__params){0};
}

static int by_name(const void *a, const void *b)
{
    const tsr__param_name *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : x->param < y->param ? -1 : x->param > y->param;
}

tsr_status tsr__params_sort(const tsr__params *params, tsr__param_name **names)
{
    tsr__param_name *sorted = tsr__calloc(params->count, sizeof *sorted);
    if (sorted == NULL)
        return TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < params->count; i++)
        sorted[i] = (tsr__param_name){params->items[i].name, i};
    qsort(sorted, params->count, sizeof *sorted, by_name);
    *names = sorted;
    return TSR_OK;
}

static int compare_key(const void *key, const void *item)
{
    return strcmp(key, ((const tsr__param_name *)item)->name);
}

const tsr_shard_param *tsr__params_find(const tsr__params *params, const tsr__param_name *names,
                                        uint64_t count, const char *name)
{
    const tsr__param_name *found = bsearch(name, names, (size_t)count, sizeof *names, compare_key);
    return found ? &params->items[found->param] : NULL;
}

const tsr__param_name *tsr__params_twice(const tsr__param_name *names, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (strcmp(names[i - 1].name, names[i].name) == 0)
            return &names[i - 1];
    return NULL;
}
