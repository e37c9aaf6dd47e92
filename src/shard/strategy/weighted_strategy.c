/* The weighted strategy. The bytes of the complete model that a rank gets are in proportion to the
 * rank's rate and within its memory.
 *
 * First the model's bytes are divided into a target for each rank. Then each parameter is divided
 * among the ranks in proportion to the bytes that they still need to reach their targets. In this
 * way, the next parameter corrects the rounding of the parameters before it. Parameters with large
 * units come first, so that parameters with small units remain for ranks whose memory is nearly
 * full. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "shard/strategy/largest_remainder.h"
#include "shard/strategy/strategy.h"

/* Arrays with one number for each rank. */
typedef struct weighted_state {
    size_t ranks;
    uint64_t *target;  /* bytes that the rank still needs to reach its target */
    uint64_t *room;    /* bytes of memory that are left; 0 for a rank whose weight is 0 */
    uint64_t *weights; /* this array and those below hold temporary values */
    uint64_t *limits;
    uint64_t *counts; /* the number of units for each rank */
    uint64_t *extra;
    tsr__apportion_work work;
} weighted_state;

/* The index of a parameter, and the size of its unit (strategy.h) in elements and in bytes. */
typedef struct cut_item {
    uint64_t param, unit, unit_bytes;
} cut_item;

static int by_unit(const void *a, const void *b)
{
    const cut_item *x = a, *y = b;
    if (x->unit_bytes != y->unit_bytes)
        return x->unit_bytes > y->unit_bytes ? -1 : 1;
    return x->param < y->param ? -1 : x->param > y->param;
}

static tsr_status set_targets(const tsr_shard_request *request, weighted_state *state)
{
    uint64_t gathered = tsr__gathered_bytes(request), sharded = 0;
    for (uint64_t p = 0; p < request->param_count; p++)
        sharded += request->params[p].always_gather ? 0 : request->params[p].size_bytes;
    tsr_status status = tsr__weights_from_rates(request->ranks, request->rates, state->weights);
    if (status != TSR_OK)
        return tsr__fail_context(status, "shard");
    for (size_t r = 0; r < state->ranks; r++) {
        uint64_t memory = request->memory_bytes != NULL ? request->memory_bytes[r] : UINT64_MAX;
        /* Limit the room to 2^63 − 1 bytes, which no rank can fill: all parameters together are
         * smaller. */
        uint64_t room = memory > gathered ? tsr__min_u64(memory - gathered, INT64_MAX) : 0;
        state->room[r] = state->weights[r] > 0 ? room : 0;
    }
    uint64_t left =
        tsr__apportion(&state->work, sharded, state->weights, state->room, state->target);
    TSR__REQUIRE(left == 0, "shard: the ranks' memory is too small: %" PRIu64 " bytes do not fit",
                 left);
    return TSR_OK;
}

/* Computes how many units of one parameter each rank gets, and writes them to state->counts. */
static tsr_status divide_units(weighted_state *state, const cut_item *item,
                               const tsr_shard_param *param)
{
    uint64_t units = tsr__div_up_u64(param->count, item->unit);
    for (size_t r = 0; r < state->ranks; r++)
        state->limits[r] = state->room[r] / item->unit_bytes;
    uint64_t left =
        tsr__apportion(&state->work, units, state->target, state->limits, state->counts);
    if (left == 0)
        return TSR_OK;
    /* Divide the remaining units among ranks that have reached their
     * targets but have memory left. */
    for (size_t r = 0; r < state->ranks; r++)
        state->weights[r] = state->limits[r] -= state->counts[r];
    for (size_t r = 0; r < state->ranks; r++) /* keep the sum of the weights below 2^63 */
        state->weights[r] = tsr__min_u64(state->weights[r], left);
    left = tsr__apportion(&state->work, left, state->weights, state->limits, state->extra);
    for (size_t r = 0; r < state->ranks; r++)
        state->counts[r] += state->extra[r];
    if (left == 0)
        return TSR_OK;
    uint64_t rest = tsr__shard_bytes(param, param->count - (units - left) * item->unit);
    bool fits = left == 1 && tsr__apportion_short((int)state->ranks, state->room, item->unit_bytes,
                                                  rest, state->counts);
    TSR__REQUIRE(fits,
                 "shard: %s is divided into units of %" PRIu64 " bytes, and no rank has memory for "
                 "its last %" PRIu64 " bytes",
                 param->name, item->unit_bytes, rest);
    return TSR_OK;
}

static tsr_status assign_one(const tsr_shard_param *param, weighted_state *state,
                             const cut_item *item, tsr_shard_range *ranges)
{
    TSR__TRY(divide_units(state, item, param));
    uint64_t start = 0;
    for (size_t r = 0; r < state->ranks; r++) {
        uint64_t count = state->counts[r] > (param->count - start) / item->unit
                             ? param->count - start
                             : state->counts[r] * item->unit;
        uint64_t bytes = tsr__shard_bytes(param, count);
        ranges[r] = (tsr_shard_range){start, count};
        start += count;
        state->room[r] -= bytes;
        state->target[r] -= tsr__min_u64(bytes, state->target[r]);
    }
    return TSR_OK;
}

static tsr_status list_items(const tsr_shard_request *request, uint64_t align, cut_item *items,
                             size_t *count)
{
    for (uint64_t p = 0; p < request->param_count; p++) {
        const tsr_shard_param *param = &request->params[p];
        uint64_t unit = 1;
        if (param->always_gather || param->count == 0)
            continue;
        TSR__TRY(tsr__shard_unit(param, align, &unit));
        unit = tsr__min_u64(unit, param->count);
        items[(*count)++] = (cut_item){p, unit, tsr__shard_bytes(param, unit)};
    }
    qsort(items, *count, sizeof *items, by_unit);
    return TSR_OK;
}

tsr_status tsr__assign_weighted(const tsr_shard_request *request, uint64_t align,
                                tsr_shard_range *ranges)
{
    size_t ranks = (size_t)request->ranks, count = 0;
    uint64_t *numbers = tsr__calloc(6 * ranks, sizeof *numbers);
    cut_item *items = tsr__calloc(request->param_count, sizeof *items);
    tsr_status status = numbers != NULL && items != NULL ? TSR_OK : TSR_ERR_NO_MEMORY;
    weighted_state state = {.ranks = ranks};
    if (status == TSR_OK) {
        state.target = numbers;
        state.room = numbers + ranks;
        state.weights = numbers + 2 * ranks;
        state.limits = numbers + 3 * ranks;
        state.counts = numbers + 4 * ranks;
        state.extra = numbers + 5 * ranks;
        status = tsr__apportion_init(request->ranks, &state.work);
    }
    if (status == TSR_OK)
        status = set_targets(request, &state);
    if (status == TSR_OK)
        status = list_items(request, align, items, &count);
    for (size_t i = 0; i < count && status == TSR_OK; i++)
        status = assign_one(&request->params[items[i].param], &state, &items[i],
                            ranges + items[i].param * ranks);
    tsr__apportion_finish(&state.work);
    tsr__free(items);
    tsr__free(numbers);
    return status;
}
