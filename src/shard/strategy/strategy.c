/* The built-in strategies. Full and hybrid are here; layerwise_strategy.c and weighted_strategy.c
 * have the others. */
#include "shard/strategy/strategy.h"
#include "shard/params/params.h"

#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "json/text_check.h"

static const char *const kind_names[] = {"full", "layerwise", "hybrid", "weighted"};
#define KINDS ((int)(sizeof kind_names / sizeof *kind_names))

const char *tsr_shard_kind_name(tsr_shard_kind kind)
{
    return (int)kind >= 0 && (int)kind < KINDS ? kind_names[kind] : "?";
}

tsr_status tsr_shard_kind_parse(const char *name, tsr_shard_kind *out)
{
    TSR__REQUIRE(name != NULL && out != NULL, "shard: %s is NULL", name != NULL ? "out" : "name");
    for (int kind = 0; kind < KINDS; kind++)
        if (strcmp(name, kind_names[kind]) == 0) {
            *out = (tsr_shard_kind)kind;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_NOT_FOUND, "shard: there is no strategy '%.40s'", name);
}

/* Strategies --------------------------------------------------------------------------------- */

/* Divides one parameter among all ranks. `ranges` are the ranges of this parameter. */
static tsr_status assign_param(const tsr_shard_request *request, uint64_t param,
                               tsr_partition_kind partition, uint64_t align,
                               tsr_shard_range *ranges)
{
    const tsr_shard_param *shard_param = &request->params[param];
    char name[TSR__NAME_SHORT];
    uint64_t unit = 1;
    TSR__TRY(tsr__shard_unit(shard_param, align, &unit));
    tsr_status status =
        tsr_partition(shard_param->count, request->ranks,
                      tsr_partition_params(.kind = partition, .align = unit), ranges);
    if (status == TSR_ERR_INVALID)
        return tsr__fail_context(status, "shard: parameter '%s'",
                                 tsr__name_short(shard_param->name, name));
    return status;
}

/* The full strategy: every parameter is divided among all ranks. */
static tsr_status assign_full(const tsr_shard_request *request, const tsr__strategy_data *data,
                              tsr_shard_range *ranges)
{
    for (uint64_t p = 0; p < request->param_count; p++)
        if (!request->params[p].always_gather)
            TSR__TRY(assign_param(request, p, data->partition, data->align,
                                  ranges + p * (uint64_t)request->ranks));
    return TSR_OK;
}

/* Sets *out to whether the parameter's layer is assigned to one rank as a whole. */
static tsr_status is_layerwise(const tsr__strategy_data *data, const tsr_shard_param *param,
                               bool *out)
{
    bool full = false, whole = false;
    TSR__TRY(tsr__shard_match((const char *const *)data->full_layers, param->layer, false, &full));
    if (!full)
        TSR__TRY(tsr__shard_match((const char *const *)data->layerwise_layers, param->layer, false,
                                  &whole));
    *out = whole;
    return TSR_OK;
}

/* The hybrid strategy: some layers are divided, others are assigned to one rank. */
static tsr_status assign_hybrid(const tsr_shard_request *request, const tsr__strategy_data *data,
                                tsr_shard_range *ranges)
{
    bool *whole = tsr__calloc(request->param_count, sizeof *whole);
    if (whole == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = TSR_OK;
    for (uint64_t p = 0; p < request->param_count && status == TSR_OK; p++) {
        if (request->params[p].always_gather)
            continue;
        status = is_layerwise(data, &request->params[p], &whole[p]);
        if (status == TSR_OK && !whole[p])
            status = assign_param(request, p, data->partition, data->align,
                                  ranges + p * (uint64_t)request->ranks);
    }
    if (status == TSR_OK)
        status = tsr__assign_layerwise(request, whole, ranges);
    tsr__free(whole);
    return status;
}

static tsr_status assign(void *user, const tsr_shard_request *request, tsr_shard_range *ranges)
{
    const tsr__strategy_data *data = user;
    switch (data->kind) {
    case TSR_SHARD_LAYERWISE:
        return tsr__assign_layerwise(request, NULL, ranges);
    case TSR_SHARD_HYBRID:
        return assign_hybrid(request, data, ranges);
    case TSR_SHARD_WEIGHTED:
        return tsr__assign_weighted(request, data->align, ranges);
    case TSR_SHARD_FULL:
        break;
    }
    return assign_full(request, data, ranges);
}

/* Creating ----------------------------------------------------------------------------------- */

static void free_patterns(char **patterns)
{
    for (size_t i = 0; patterns != NULL && patterns[i] != NULL; i++)
        tsr__free(patterns[i]);
    tsr__free((void *)patterns);
}

static tsr_status copy_patterns(const char *const *patterns, char ***out)
{
    size_t count = 0;
    if (patterns == NULL)
        return TSR_OK;
    while (patterns[count] != NULL)
        count++;
    char **copy = tsr__calloc(count + 1, sizeof *copy);
    for (size_t i = 0; i < count && copy != NULL; i++)
        if ((copy[i] = tsr__strdup(patterns[i])) == NULL) {
            free_patterns(copy);
            copy = NULL;
        }
    if (copy == NULL)
        return TSR_ERR_NO_MEMORY;
    *out = copy;
    return TSR_OK;
}

static void destroy_data(void *user)
{
    tsr__strategy_data *data = user;
    if (data == NULL)
        return;
    free_patterns(data->full_layers);
    free_patterns(data->layerwise_layers);
    tsr__free(data);
}

static tsr_status check_strategy_params(const tsr_shard_strategy_params *params)
{
    const char *name = tsr_shard_kind_name(params->kind);
    bool hybrid = params->kind == TSR_SHARD_HYBRID, matched;
    TSR__REQUIRE(strcmp(name, "?") != 0, "shard: %d is no kind of strategy", (int)params->kind);
    TSR__REQUIRE(params->partition == TSR_PARTITION_EVEN ||
                     ((params->kind == TSR_SHARD_FULL || hybrid) &&
                      (params->partition == TSR_PARTITION_STRICT ||
                       params->partition == TSR_PARTITION_UNEVEN)),
                 "shard: the strategy %s has no partition %d", name, (int)params->partition);
    TSR__REQUIRE(params->align == 0 || params->kind != TSR_SHARD_LAYERWISE,
                 "shard: the strategy %s has no alignment", name);
    TSR__REQUIRE(hybrid || (params->full_layers == NULL && params->layerwise_layers == NULL),
                 "shard: the strategy %s has no lists of layers", name);
    TSR__TRY(tsr__shard_match(params->full_layers, "", false, &matched));
    return tsr__shard_match(params->layerwise_layers, "", false, &matched);
}

tsr_status tsr_shard_strategy_create(const tsr_shard_strategy_params *params,
                                     tsr_shard_strategy **out)
{
    TSR__REQUIRE(out != NULL, "shard: out is NULL");
    TSR__TAKE(tsr_shard_strategy_params, params);
    static const char *const default_full[] = {"transformer", "attention", NULL};
    static const char *const default_layerwise[] = {"classifier", "head", NULL};
    tsr_shard_strategy_params chosen = *params;
    TSR__TRY(check_strategy_params(&chosen));
    if (chosen.kind == TSR_SHARD_HYBRID && chosen.full_layers == NULL &&
        chosen.layerwise_layers == NULL) {
        chosen.full_layers = default_full;
        chosen.layerwise_layers = default_layerwise;
    }

    tsr_shard_strategy *strategy = tsr__calloc(1, sizeof *strategy);
    tsr__strategy_data *data = tsr__calloc(1, sizeof *data);
    tsr_status status = strategy != NULL && data != NULL ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = copy_patterns(chosen.full_layers, &data->full_layers);
    if (status == TSR_OK)
        status = copy_patterns(chosen.layerwise_layers, &data->layerwise_layers);
    if (status != TSR_OK) {
        destroy_data(data);
        tsr__free(strategy);
        return status;
    }
    data->kind = chosen.kind;
    data->partition = chosen.partition;
    data->align = chosen.align;
    *strategy = (tsr_shard_strategy){.struct_size = sizeof *strategy,
                                     .name = tsr_shard_kind_name(chosen.kind),
                                     .assign = assign,
                                     .user = data,
                                     .destroy = destroy_data};
    *out = strategy;
    return TSR_OK;
}

void tsr_shard_strategy_destroy(tsr_shard_strategy **strategy)
{
    if (strategy == NULL || *strategy == NULL)
        return;
    if ((*strategy)->destroy != NULL)
        (*strategy)->destroy((*strategy)->user);
    tsr__free(*strategy);
    *strategy = NULL;
}
