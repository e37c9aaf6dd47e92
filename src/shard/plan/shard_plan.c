/* Creates plans. */
#include "shard/plan/shard_plan.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "shard/strategy/largest_remainder.h"
#include "json/text_check.h"

void tsr_shard_plan_destroy(tsr_shard_plan **plan)
{
    if (plan == NULL || *plan == NULL)
        return;
    tsr__params_finish(&(*plan)->params);
    tsr__free((*plan)->rates);
    tsr__free((*plan)->memory_bytes);
    tsr__free((*plan)->names);
    tsr__free((*plan)->ranges);
    tsr__free((*plan)->totals);
    tsr__free(*plan);
    *plan = NULL;
}

static tsr_status check_rates(int ranks, const double *rates)
{
    if (rates == NULL)
        return TSR_OK;
    uint64_t *weights = tsr__calloc((size_t)ranks, sizeof *weights);
    if (weights == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__weights_from_rates(ranks, rates, weights);
    tsr__free(weights);
    return status == TSR_OK ? TSR_OK : tsr__fail_context(status, "shard");
}

static void *copy_of(const void *data, size_t size)
{
    void *copy = tsr__calloc(size, 1);
    if (copy != NULL)
        memcpy(copy, data, size);
    return copy;
}

tsr_status tsr__plan_start(const char *strategy, int ranks, const double *rates,
                           const uint64_t *memory_bytes, tsr_shard_plan **out)
{
    const char *problem =
        strategy == NULL ? "is missing" : tsr__name_problem(strategy, strlen(strategy));
    TSR__REQUIRE(problem == NULL, "shard: the strategy's name %s", problem);
    TSR__REQUIRE(strlen(strategy) < TSR__STRATEGY_NAME, "shard: the strategy's name is too long");
    TSR__REQUIRE(ranks >= 1 && ranks <= TSR_SHARD_MAX_RANKS, "shard: %d ranks are outside 1 to %d",
                 ranks, TSR_SHARD_MAX_RANKS);
    TSR__TRY(check_rates(ranks, rates));

    tsr_shard_plan *plan = tsr__calloc(1, sizeof *plan);
    if (plan == NULL)
        return TSR_ERR_NO_MEMORY;
    memcpy(plan->strategy, strategy, strlen(strategy) + 1);
    plan->ranks = ranks;
    if (rates != NULL)
        plan->rates = copy_of(rates, (size_t)ranks * sizeof *rates);
    if (memory_bytes != NULL)
        plan->memory_bytes = copy_of(memory_bytes, (size_t)ranks * sizeof *memory_bytes);
    if ((rates != NULL && plan->rates == NULL) ||
        (memory_bytes != NULL && plan->memory_bytes == NULL)) {
        tsr_shard_plan_destroy(&plan);
        return TSR_ERR_NO_MEMORY;
    }
    *out = plan;
    return TSR_OK;
}

tsr_status tsr__plan_listed(tsr_shard_plan *plan)
{
    char text[TSR__NAME_SHORT];
    uint64_t count = plan->params.count, ranks = (uint64_t)plan->ranks, sum = 0;
    TSR__REQUIRE(count > 0, "shard: the list of parameters is empty");
    TSR__REQUIRE(count <= TSR_SHARD_MAX_RANGES / ranks,
                 "shard: %" PRIu64 " parameters on %" PRIu64 " ranks are more than %d ranges",
                 count, ranks, TSR_SHARD_MAX_RANGES);
    for (uint64_t p = 0; p < count; p++) {
        uint64_t size = plan->params.items[p].size_bytes;
        if (size > INT64_MAX - sum)
            return tsr__fail(TSR_ERR_OVERFLOW,
                             "shard: all parameters together are larger than 2^63 - 1 bytes");
        sum += size;
    }
    TSR__TRY(tsr__params_sort(&plan->params, &plan->names));
    const tsr__param_name *twice = tsr__params_twice(plan->names, count);
    TSR__REQUIRE(twice == NULL, "shard: parameters %" PRIu64 " and %" PRIu64 " are both '%s'",
                 twice[0].param, twice[1].param, tsr__name_short(twice->name, text));
    plan->ranges = tsr__calloc(count * ranks, sizeof *plan->ranges);
    plan->totals = tsr__calloc(ranks, sizeof *plan->totals);
    return plan->ranges == NULL || plan->totals == NULL ? TSR_ERR_NO_MEMORY : TSR_OK;
}

static tsr_status add_params(tsr_shard_plan *plan, uint64_t count, const tsr_shard_param *params,
                             const char *const *gather)
{
    for (uint64_t p = 0; p < count; p++) {
        char text[TSR__NAME_SHORT];
        tsr_shard_param param = params[p];
        param.offset_bytes = 0;
        param.file = NULL;
        tsr_status status = tsr__params_add(&plan->params, &param);
        bool named =
            param.name != NULL && tsr__name_problem(param.name, strlen(param.name)) == NULL;
        if (status != TSR_OK && status != TSR_ERR_NO_MEMORY)
            return named ? tsr__fail_context(status, "shard: parameter %" PRIu64 " ('%s')", p,
                                             tsr__name_short(param.name, text))
                         : tsr__fail_context(status, "shard: parameter %" PRIu64, p);
        TSR__TRY(status);
        bool *always = &plan->params.items[p].always_gather;
        TSR__TRY(tsr__shard_match(gather, param.name, *always, always));
    }
    return TSR_OK;
}

/* Calls a strategy. A strategy of the caller's may fail without recording an error text. The text
 * of an earlier error is removed before the call, so that it cannot be mistaken for the strategy's
 * own text. */
static tsr_status call_strategy(const tsr_shard_strategy *strategy,
                                const tsr_shard_request *request, tsr_shard_range *ranges)
{
    const tsr__error before = tsr__error_take();
    tsr_status status = strategy->assign(strategy->user, request, ranges);
    if (status == TSR_OK)
        tsr__error_put_back(&before);
    else if (tsr_last_error()[0] == '\0')
        return tsr__fail(status, "shard: the strategy '%s' fails with %s", strategy->name,
                         tsr_status_name(status));
    return status;
}

const tsr_shard_param *tsr_shard_request_param(const tsr_shard_request *request, uint64_t index)
{
    return request != NULL && index < request->param_count ? &request->params[index] : NULL;
}

static tsr_status assign(tsr_shard_plan *plan, const tsr_shard_strategy *strategy)
{
    uint64_t *memory = NULL;
    if (plan->memory_bytes != NULL) {
        memory = tsr__calloc((size_t)plan->ranks, sizeof *memory);
        if (memory == NULL)
            return TSR_ERR_NO_MEMORY;
        for (int r = 0; r < plan->ranks; r++)
            memory[r] = plan->memory_bytes[r] == 0 ? UINT64_MAX : plan->memory_bytes[r];
    }
    tsr_shard_request request = {.param_count = plan->params.count,
                                 .params = plan->params.items,
                                 .ranks = plan->ranks,
                                 .rates = plan->rates,
                                 .memory_bytes = memory};
    tsr_status status = call_strategy(strategy, &request, plan->ranges);
    tsr__free(memory);
    TSR__TRY(status);
    return tsr__plan_finish(plan);
}

tsr_status tsr_shard_plan_create(const tsr_shard_strategy *strategy, uint64_t param_count,
                                 const tsr_shard_param *params,
                                 const tsr_shard_plan_params *options, tsr_shard_plan **out)
{
    TSR__REQUIRE(strategy != NULL && options != NULL && out != NULL, "shard: %s is NULL",
                 strategy == NULL  ? "strategy"
                 : options == NULL ? "options"
                                   : "out");
    TSR__TAKE(tsr_shard_plan_params, options);
    TSR__TAKE(tsr_shard_strategy, strategy);
    TSR__REQUIRE(strategy->assign != NULL, "shard: strategy->assign is NULL");
    TSR__REQUIRE(params != NULL || param_count == 0, "shard: params is NULL");
    tsr_shard_plan *plan = NULL;
    TSR__TRY(tsr__plan_start(strategy->name, options->ranks, options->rates, options->memory_bytes,
                             &plan));
    void *taken = NULL;
    tsr_status status =
        tsr__struct_take_array("tsr_shard_param", sizeof *params, param_count, params, &taken);
    if (status == TSR_OK)
        status = add_params(plan, param_count, taken, options->gather);
    tsr__free(taken);
    if (status == TSR_OK)
        status = tsr__plan_listed(plan);
    if (status == TSR_OK)
        status = assign(plan, strategy);
    if (status != TSR_OK) {
        tsr_shard_plan_destroy(&plan);
        return status;
    }
    *out = plan;
    return TSR_OK;
}
