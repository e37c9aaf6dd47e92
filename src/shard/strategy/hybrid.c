/* The hybrid strategy: some layers are divided, others are assigned to one rank. */
#include "base/alloc.h"
#include "base/error.h"
#include "shard/strategy/strategy.h"

/* Sets *out to whether the parameter's layer is assigned to one rank as a whole. */
static tsr_status is_whole(const tsr__strategy_data *data, const tsr_shard_param *param, bool *out)
{
    bool full = false, whole = false;
    TSR__TRY(tsr_shard_match((const char *const *)data->full_layers, param->layer, false, &full));
    if (!full)
        TSR__TRY(tsr_shard_match((const char *const *)data->layerwise_layers, param->layer, false,
                                 &whole));
    *out = whole;
    return TSR_OK;
}

tsr_status tsr__assign_hybrid(const tsr_shard_request *request, const tsr__strategy_data *data,
                              tsr_shard_range *ranges)
{
    bool *whole = tsr__calloc(request->param_count, sizeof *whole);
    if (whole == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = TSR_OK;
    for (uint64_t p = 0; p < request->param_count && status == TSR_OK; p++) {
        if (request->params[p].always_gather)
            continue;
        status = is_whole(data, &request->params[p], &whole[p]);
        if (status == TSR_OK && !whole[p])
            status = tsr__assign_param(request, p, data->partition, data->align,
                                       ranges + p * (uint64_t)request->ranks);
    }
    if (status == TSR_OK)
        status = tsr__assign_layerwise(request, whole, ranges);
    tsr__free(whole);
    return status;
}
