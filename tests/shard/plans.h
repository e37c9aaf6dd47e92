/* Functions for tests of plans. */
#ifndef TESTS_SHARD_PLANS_H
#define TESTS_SHARD_PLANS_H

#include <string.h>

#include "support/check_main.h"
#include "tessera/shard.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Creates a strategy; the caller must call tsr_shard_strategy_destroy. */
static inline tsr_shard_strategy *strategy_of(const tsr_shard_strategy_params *params)
{
    tsr_shard_strategy *strategy = NULL;
    ck_assert_ok(tsr_shard_strategy_create(params, &strategy));
    return strategy;
}

/* Creates a plan; the caller must call tsr_shard_plan_destroy. */
static inline tsr_shard_plan *plan_of(const tsr_shard_strategy_params *params, uint64_t count,
                                      const tsr_shard_param *list,
                                      const tsr_shard_plan_params *options)
{
    tsr_shard_strategy *strategy = strategy_of(params);
    tsr_shard_plan *plan = NULL;
    ck_assert_ok(tsr_shard_plan_create(strategy, count, list, options, &plan));
    tsr_shard_strategy_destroy(&strategy);
    ck_assert_ok(tsr_shard_plan_check(plan, count, list));
    return plan;
}

static inline tsr_shard_range range_in(const tsr_shard_plan *plan, const char *name, int rank)
{
    uint64_t param = 0;
    tsr_shard_range range = {0, 0};
    ck_assert_ok(tsr_shard_plan_find(plan, name, &param));
    ck_assert_ok(tsr_shard_plan_range(plan, param, rank, &range));
    return range;
}

/* Returns the rank that has all elements of a parameter, or -1 if several ranks have a part. */
static inline int whole_owner(const tsr_shard_plan *plan, uint64_t param)
{
    int owner = -1;
    uint64_t count = tsr_shard_plan_param(plan, param)->count;
    for (int r = 0; r < tsr_shard_plan_ranks(plan); r++) {
        tsr_shard_range range;
        ck_assert_ok(tsr_shard_plan_range(plan, param, r, &range));
        if (range.count == count)
            owner = r;
    }
    return owner;
}

static inline tsr_shard_summary summary_of(const tsr_shard_plan *plan)
{
    tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
    ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
    return summary;
}

static inline tsr_shard_rank_total total_of(const tsr_shard_plan *plan, int rank)
{
    tsr_shard_rank_total total = TSR_INIT(tsr_shard_rank_total);
    ck_assert_ok(tsr_shard_plan_get_rank_total(plan, rank, &total));
    return total;
}

#endif
