/* Divides blocks over stages by their rates and memory. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "parallel/pipeline/schedule.h"

static const char who[] = "pipeline_divide";

static tsr_status check_divide(const tsr_pipeline_divide_params *p)
{
    TSR__REQUIRE(p->stages >= 1 && p->stages <= TSR_MAX_COMM_SIZE,
                 "%s: %d stages; 1 to %d are allowed", who, p->stages, TSR_MAX_COMM_SIZE);
    TSR__REQUIRE(p->blocks >= p->stages, "%s: %d blocks cannot be divided over %d stages", who,
                 p->blocks, p->stages);
    TSR__REQUIRE(p->micro_batches >= 0 && p->micro_batches <= TSR_MAX_PIPELINE_BATCHES,
                 "%s: %d micro-batches; 1 to %d are allowed", who, p->micro_batches,
                 TSR_MAX_PIPELINE_BATCHES);
    TSR__REQUIRE(
        isfinite(p->first_cost) && isfinite(p->last_cost) && p->first_cost >= 0 &&
            p->last_cost >= 0,
        "%s: the costs before and behind the blocks are %g and %g; they must be finite and "
        "at least 0",
        who, p->first_cost, p->last_cost);
    for (int s = 0; p->rates && s < p->stages; s++)
        TSR__REQUIRE(isfinite(p->rates[s]) && p->rates[s] > 0,
                     "%s: the rate of stage %d is %g; it must be finite and more than 0", who, s,
                     p->rates[s]);
    return TSR_OK;
}

/* Finds how many blocks the memory of a stage holds. */
static tsr_status blocks_in_memory(const tsr_pipeline_divide_params *p, int stage, int *out)
{
    *out = p->blocks;
    if (!p->memory_bytes || p->memory_bytes[stage] == 0)
        return TSR_OK;
    const int kept =
        tsr__pipeline_in_flight(stage, p->stages, p->micro_batches ? p->micro_batches : 1);
    uint64_t fixed = 0, each = 0;
    if ((stage == 0 && !tsr__add_u64(fixed, p->first_bytes, &fixed)) ||
        (stage == p->stages - 1 && !tsr__add_u64(fixed, p->last_bytes, &fixed)) ||
        !tsr__mul_u64((uint64_t)kept, p->activation_bytes, &each) ||
        !tsr__add_u64(each, p->block_bytes, &each))
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: the bytes of stage %d overflow", who, stage);
    const uint64_t memory = p->memory_bytes[stage];
    const uint64_t room = memory > fixed ? memory - fixed : 0;
    if (room == 0 || room < each)
        return tsr__fail(TSR_ERR_DEVICE_MEMORY,
                         "%s: stage %d has %" PRIu64 " bytes; one block needs %" PRIu64
                         " there, beside %" PRIu64 " bytes of other layers",
                         who, stage, memory, each, fixed);
    if (each > 0 && room / each < (uint64_t)p->blocks)
        *out = (int)(room / each);
    return TSR_OK;
}

/* Returns the time that a stage would need with one block more than `count`. */
static double time_with_one_more(const tsr_pipeline_divide_params *p, int stage, int count)
{
    const double cost = (double)(count + 1) + (stage == 0 ? p->first_cost : 0) +
                        (stage == p->stages - 1 ? p->last_cost : 0);
    return cost / (p->rates ? p->rates[stage] : 1);
}

/* Sets *out to the stage that gets the next block, or to -1 if all are full. */
static tsr_status choose_stage(const tsr_pipeline_divide_params *p, const int *counts, int *out)
{
    double least = INFINITY;
    int best = -1;
    for (int s = 0; s < p->stages; s++) {
        int limit;
        TSR__TRY(blocks_in_memory(p, s, &limit));
        const double time = time_with_one_more(p, s, counts[s]);
        if (counts[s] >= limit || time > least ||
            (time == least && best >= 0 && counts[s] > counts[best]))
            continue;
        least = time;
        best = s;
    }
    *out = best;
    return TSR_OK;
}

static tsr_status divide_blocks(const tsr_pipeline_divide_params *p, int *counts)
{
    for (int s = 0; s < p->stages; s++) {
        int limit;
        TSR__TRY(blocks_in_memory(p, s, &limit));
        counts[s] = 1;
    }
    for (int i = p->stages; i < p->blocks; i++) {
        int stage;
        TSR__TRY(choose_stage(p, counts, &stage));
        if (stage < 0)
            return tsr__fail(TSR_ERR_DEVICE_MEMORY,
                             "%s: the memory of %d stages holds %d of %d blocks", who, p->stages, i,
                             p->blocks);
        counts[stage]++;
    }
    return TSR_OK;
}

tsr_status tsr_pipeline_divide(const tsr_pipeline_divide_params *params, int *counts)
{
    TSR__REQUIRE(params && counts, "%s: %s is NULL", who, params ? "counts" : "params");
    TSR__TAKE(tsr_pipeline_divide_params, params);
    TSR__TRY(check_divide(params));
    int *found = tsr__calloc((size_t)params->stages, sizeof *found);
    if (!found)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = divide_blocks(params, found);
    if (status == TSR_OK)
        memcpy(counts, found, (size_t)params->stages * sizeof *counts);
    tsr__free(found);
    return status;
}
