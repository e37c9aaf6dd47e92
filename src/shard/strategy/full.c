/* The full strategy: every parameter is divided among all ranks. */
#include "base/error.h"
#include "shard/strategy/strategy.h"
#include "json/text.h"

tsr_status tsr__assign_param(const tsr_shard_request *request, uint64_t param,
                             tsr_partition_kind partition, uint64_t align, tsr_shard_range *ranges)
{
    const tsr_shard_param *one = &request->params[param];
    char name[TSR__NAME_SHORT];
    uint64_t unit = 1;
    TSR__TRY(tsr__shard_unit(one, align, &unit));
    tsr_status status = tsr_partition(
        one->count, request->ranks, tsr_partition_params(.kind = partition, .align = unit), ranges);
    if (status == TSR_ERR_INVALID)
        return tsr__fail_context(status, "shard: parameter '%s'", tsr__name_short(one->name, name));
    return status;
}

tsr_status tsr__assign_full(const tsr_shard_request *request, const tsr__strategy_data *data,
                            tsr_shard_range *ranges)
{
    for (uint64_t p = 0; p < request->param_count; p++)
        if (!request->params[p].always_gather)
            TSR__TRY(tsr__assign_param(request, p, data->partition, data->align,
                                       ranges + p * (uint64_t)request->ranks));
    return TSR_OK;
}
