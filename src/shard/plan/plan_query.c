/* Queries plans, and checks them. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/rates.h"
#include "base/struct_size.h"
#include "shard/plan/shard_plan.h"
#include "shard/strategy/strategy.h"
#include "json/text_check.h"

int tsr_shard_plan_ranks(const tsr_shard_plan *plan)
{
    return plan != NULL ? plan->ranks : 0;
}

uint64_t tsr_shard_plan_param_count(const tsr_shard_plan *plan)
{
    return plan != NULL ? plan->params.count : 0;
}

const tsr_shard_param *tsr_shard_plan_param(const tsr_shard_plan *plan, uint64_t index)
{
    return plan != NULL && index < plan->params.count ? &plan->params.items[index] : NULL;
}

static const tsr_shard_range *ranges_of(const tsr_shard_plan *plan, uint64_t param)
{
    return plan->ranges + param * (uint64_t)plan->ranks;
}

static int compare_name(const void *name, const void *entry)
{
    return strcmp(name, ((const tsr__param_name *)entry)->name);
}

tsr_status tsr_shard_plan_find(const tsr_shard_plan *plan, const char *name, uint64_t *param)
{
    TSR__REQUIRE(plan != NULL && name != NULL && param != NULL, "shard: %s is NULL",
                 plan == NULL   ? "plan"
                 : name == NULL ? "name"
                                : "param");
    char text[TSR__NAME_SHORT];
    const tsr__param_name *found =
        bsearch(name, plan->names, plan->params.count, sizeof *plan->names, compare_name);
    if (found == NULL)
        return tsr__fail(TSR_ERR_NOT_FOUND, "shard: the plan has no parameter '%s'",
                         tsr__name_short(name, text));
    *param = found->param;
    return TSR_OK;
}

static tsr_status check_param(const tsr_shard_plan *plan, uint64_t param)
{
    TSR__REQUIRE(param < plan->params.count,
                 "shard: parameter %" PRIu64 " is not among the plan's %zu", param,
                 plan->params.count);
    return TSR_OK;
}

static tsr_status check_rank(const tsr_shard_plan *plan, int rank)
{
    TSR__REQUIRE(rank >= 0 && rank < plan->ranks, "shard: rank %d is not among the plan's %d", rank,
                 plan->ranks);
    return TSR_OK;
}

tsr_status tsr_shard_plan_range(const tsr_shard_plan *plan, uint64_t param, int rank,
                                tsr_shard_range *range)
{
    TSR__REQUIRE(plan != NULL && range != NULL, "shard: %s is NULL",
                 plan != NULL ? "range" : "plan");
    TSR__TRY(check_param(plan, param));
    TSR__TRY(check_rank(plan, rank));
    *range = ranges_of(plan, param)[rank];
    return TSR_OK;
}

tsr_status tsr_shard_plan_owner(const tsr_shard_plan *plan, uint64_t param, uint64_t element,
                                int *rank)
{
    TSR__REQUIRE(plan != NULL && rank != NULL, "shard: %s is NULL", plan != NULL ? "rank" : "plan");
    char text[TSR__NAME_SHORT];
    TSR__TRY(check_param(plan, param));
    const tsr_shard_param *queried = &plan->params.items[param];
    TSR__REQUIRE(element < queried->count,
                 "shard: element %" PRIu64 " is not among the %" PRIu64 " of '%s'", element,
                 queried->count, tsr__name_short(queried->name, text));
    const tsr_shard_range *ranges = ranges_of(plan, param);
    int found = TSR_SHARD_EVERY_RANK;
    for (int r = 0; r < plan->ranks && !queried->always_gather; r++)
        if (element >= ranges[r].start && element - ranges[r].start < ranges[r].count)
            found = r;
    *rank = found;
    return TSR_OK;
}

tsr_status tsr_shard_plan_get_rank_total(const tsr_shard_plan *plan, int rank,
                                         tsr_shard_rank_total *total)
{
    TSR__REQUIRE(plan != NULL && total != NULL, "shard: %s is NULL",
                 plan != NULL ? "total" : "plan");
    TSR__TRY(check_rank(plan, rank));
    TSR__GIVE(tsr_shard_rank_total, &plan->totals[rank], total);
    return TSR_OK;
}

/* Computes the imbalance of a plan: see tsr_shard_summary. */
static double imbalance_of(const tsr_shard_plan *plan, uint64_t sharded_bytes)
{
    const int exponent = tsr__rates_exponent(plan->ranks, plan->rates);
    double rates = 0, longest = 0;
    for (int r = 0; r < plan->ranks; r++) {
        double rate = plan->rates != NULL ? plan->rates[r] : 1, scaled = ldexp(rate, -exponent);
        rates += scaled;
        if (plan->totals[r].sharded_bytes == 0)
            continue;
        if (rate == 0)
            return INFINITY;
        longest = fmax(longest, (double)plan->totals[r].sharded_bytes / scaled);
    }
    /* The result is infinite only if a rank with a rate of 0 has bytes. For a rate near 0, the
     * quotient may exceed the range of double; the result is then the largest double. */
    return sharded_bytes > 0 ? fmin(longest / ((double)sharded_bytes / rates), DBL_MAX) : 1;
}

tsr_status tsr_shard_plan_get_summary(const tsr_shard_plan *plan, tsr_shard_summary *summary)
{
    TSR__REQUIRE(plan != NULL && summary != NULL, "shard: %s is NULL",
                 plan != NULL ? "summary" : "plan");
    tsr_shard_summary sum = {.struct_size = sizeof sum,
                             .strategy = plan->strategy,
                             .rates = plan->rates,
                             .memory_bytes = plan->memory_bytes,
                             .least_bytes = UINT64_MAX};
    for (uint64_t p = 0; p < plan->params.count; p++) {
        const tsr_shard_param *param = &plan->params.items[p];
        if (param->always_gather) {
            sum.gathered_bytes += param->size_bytes;
            sum.gathered_count++;
        } else {
            sum.sharded_bytes += param->size_bytes;
        }
    }
    sum.model_bytes = sum.sharded_bytes + sum.gathered_bytes;

    for (int r = 0; r < plan->ranks; r++) {
        tsr_shard_rank_total total = plan->totals[r];
        sum.max_bytes = total.total_bytes > sum.max_bytes ? total.total_bytes : sum.max_bytes;
        sum.least_bytes = total.total_bytes < sum.least_bytes ? total.total_bytes : sum.least_bytes;
    }
    sum.imbalance = imbalance_of(plan, sum.sharded_bytes);
    TSR__GIVE(tsr_shard_summary, &sum, summary);
    return TSR_OK;
}

/* Checks --------------------------------------------------------------------------------------- */

static tsr_status check_blocks(const tsr_shard_plan *plan, uint64_t param)
{
    const tsr_shard_param *queried = &plan->params.items[param];
    for (int r = 0; r < plan->ranks && queried->block_count > 1; r++) {
        const tsr_shard_range *range = &ranges_of(plan, param)[r];
        TSR__REQUIRE(
            range->start % queried->block_count == 0 && range->count % queried->block_count == 0,
            "rank %d's %" PRIu64 " elements from %" PRIu64 " are not whole blocks of %" PRIu64, r,
            range->count, range->start, queried->block_count);
    }
    return TSR_OK;
}

static tsr_status check_ranges(const tsr_shard_plan *plan)
{
    char text[TSR__NAME_SHORT];
    for (uint64_t p = 0; p < plan->params.count; p++) {
        const tsr_shard_param *param = &plan->params.items[p];
        if (param->always_gather)
            continue;
        tsr_status status = tsr__partition_check(param->count, plan->ranks, ranges_of(plan, p));
        if (status == TSR_OK)
            status = check_blocks(plan, p);
        if (status == TSR_ERR_INVALID)
            return tsr__fail_context(status, "shard: parameter '%s'",
                                     tsr__name_short(param->name, text));
        TSR__TRY(status);
    }
    return TSR_OK;
}

static void add_up(tsr_shard_plan *plan)
{
    size_t ranks = (size_t)plan->ranks;
    for (uint64_t p = 0; p < plan->params.count; p++) {
        const tsr_shard_param *param = &plan->params.items[p];
        tsr_shard_range *ranges = plan->ranges + p * ranks;
        for (size_t r = 0; r < ranks; r++) {
            tsr_shard_rank_total *total = &plan->totals[r];
            if (param->always_gather) {
                ranges[r] = (tsr_shard_range){0, param->count};
                total->gathered_bytes += param->size_bytes;
            } else {
                total->sharded_bytes += tsr__shard_bytes(param, ranges[r].count);
                total->shard_count += ranges[r].count > 0;
            }
        }
    }
    for (size_t r = 0; r < ranks; r++)
        plan->totals[r].total_bytes =
            plan->totals[r].sharded_bytes + plan->totals[r].gathered_bytes;
}

tsr_status tsr__plan_finish(tsr_shard_plan *plan)
{
    TSR__TRY(check_ranges(plan));
    add_up(plan);
    for (int r = 0; r < plan->ranks && plan->memory_bytes != NULL; r++) {
        uint64_t needed = plan->totals[r].total_bytes;
        TSR__REQUIRE(plan->memory_bytes[r] == 0 || needed <= plan->memory_bytes[r],
                     "shard: rank %d would keep %" PRIu64 " bytes, but has memory for %" PRIu64, r,
                     needed, plan->memory_bytes[r]);
    }
    return TSR_OK;
}

static bool same_shape(const tsr_shard_param *a, const tsr_shard_param *b)
{
    bool same = a->ndim == b->ndim;
    for (int i = 0; i < a->ndim && same; i++)
        same = a->shape[i] == b->shape[i];
    return same;
}

static tsr_status check_same(const tsr_shard_plan *plan, uint64_t param,
                             const tsr_shard_param *given)
{
    const tsr_shard_param *kept = &plan->params.items[param];
    tsr_shard_param other = *given;
    char text[TSR__NAME_SHORT], other_text[TSR__NAME_SHORT];
    tsr_status status = tsr__param_resolve(&other);
    if (status != TSR_OK)
        return tsr__fail_context(TSR_ERR_INVALID, "shard: parameter %" PRIu64, param);
    tsr__name_short(kept->name, text);
    TSR__REQUIRE(strcmp(kept->name, other.name) == 0,
                 "shard: parameter %" PRIu64 " is '%s', in the plan it is '%s'", param,
                 tsr__name_short(other.name, other_text), text);
    TSR__REQUIRE(same_shape(kept, &other), "shard: parameter '%s' has another shape in the plan",
                 text);
    TSR__REQUIRE(strcmp(kept->dtype, other.dtype) == 0,
                 "shard: parameter '%s' is %s, in the plan it is %s", text, other.dtype,
                 kept->dtype);
    return TSR_OK;
}

tsr_status tsr_shard_plan_check(const tsr_shard_plan *plan, uint64_t param_count,
                                const tsr_shard_param *params)
{
    TSR__REQUIRE(plan != NULL, "shard: plan is NULL");
    TSR__TRY(check_ranges(plan));
    if (params == NULL)
        return TSR_OK;
    TSR__REQUIRE(param_count == plan->params.count,
                 "shard: %" PRIu64 " parameters, in the plan there are %zu", param_count,
                 plan->params.count);
    void *taken = NULL;
    TSR__TRY(
        tsr__struct_take_array("tsr_shard_param", sizeof *params, param_count, params, &taken));
    tsr_status status = TSR_OK;
    for (uint64_t p = 0; p < param_count && status == TSR_OK; p++)
        status = check_same(plan, p, (const tsr_shard_param *)taken + p);
    tsr__free(taken);
    return status;
}

static bool equal_params(const tsr_shard_param *a, const tsr_shard_param *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->layer, b->layer) == 0 &&
           strcmp(a->dtype, b->dtype) == 0 && same_shape(a, b) &&
           a->always_gather == b->always_gather;
}

bool tsr__plan_equal(const tsr_shard_plan *a, const tsr_shard_plan *b)
{
    if (a == NULL || b == NULL || a->ranks != b->ranks || a->params.count != b->params.count ||
        strcmp(a->strategy, b->strategy) != 0 || (a->rates == NULL) != (b->rates == NULL) ||
        (a->memory_bytes == NULL) != (b->memory_bytes == NULL))
        return false;
    for (int r = 0; r < a->ranks; r++)
        if ((a->rates != NULL && a->rates[r] != b->rates[r]) ||
            (a->memory_bytes != NULL && a->memory_bytes[r] != b->memory_bytes[r]))
            return false;
    for (uint64_t p = 0; p < a->params.count; p++) {
        if (!equal_params(&a->params.items[p], &b->params.items[p]))
            return false;
        const tsr_shard_range *x = ranges_of(a, p), *y = ranges_of(b, p);
        for (int r = 0; r < a->ranks; r++)
            if (x[r].start != y[r].start || x[r].count != y[r].count)
                return false;
    }
    return true;
}
