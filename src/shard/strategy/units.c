/* Computes the units into which parameters are divided, and sizes in bytes. */
#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"
#include "shard/strategy/strategy.h"

uint64_t tsr__shard_bytes(const tsr_shard_param *param, uint64_t count)
{
    return count / param->block_count * param->block_bytes;
}

uint64_t tsr__gathered_bytes(const tsr_shard_request *request)
{
    uint64_t sum = 0;
    for (uint64_t p = 0; p < request->param_count; p++)
        sum += request->params[p].always_gather ? request->params[p].size_bytes : 0;
    return sum;
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

tsr_status tsr__shard_unit(const tsr_shard_param *param, uint64_t align, uint64_t *unit)
{
    uint64_t wanted = align == 0 ? 1 : align, result;
    if (!tsr__mul_u64(wanted / common_divisor(wanted, param->block_count), param->block_count,
                      &result))
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "shard: an alignment of %" PRIu64 " elements is too large for %s", align,
                         param->dtype);
    *unit = result;
    return TSR_OK;
}
