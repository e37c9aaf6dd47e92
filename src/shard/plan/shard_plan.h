/* The internal structure of plans, for these files:
 *
 *     shard_plan.c       creates plans
 *     plan_query.c       queries plans, and checks them
 *     plan_json_write.c  writes a plan as JSON
 *     plan_json_read.c   reads a plan from JSON */
#ifndef TSR_SHARD_PLAN_SHARD_PLAN_H
#define TSR_SHARD_PLAN_SHARD_PLAN_H

#include "shard/params/params.h"

#define TSR__STRATEGY_NAME 64

struct tsr_shard_plan {
    char strategy[TSR__STRATEGY_NAME];
    int ranks;
    double *rates;          /* [ranks] or NULL */
    uint64_t *memory_bytes; /* [ranks] or NULL; an entry of 0 means no limit */
    tsr__params params;
    tsr__param_name *names;       /* [params.count], sorted by name */
    tsr_shard_range *ranges;      /* [params.count][ranks] */
    tsr_shard_rank_total *totals; /* [ranks] */
};

/* Creates a plan that has no parameters and ranges yet. Errors: TSR_ERR_INVALID for an invalid
 * name, number of ranks or rate. */
tsr_status tsr__plan_start(const char *strategy, int ranks, const double *rates,
                           const uint64_t *memory_bytes, tsr_shard_plan **out) TSR_NODISCARD;

/* Call this function after all parameters have been added. It sorts the names, checks that they
 * differ, and allocates ranges and totals, which are all 0. */
tsr_status tsr__plan_listed(tsr_shard_plan *plan) TSR_NODISCARD;

/* Call this function after the ranges have been set. It sets the ranges of always-gathered
 * parameters itself. It checks that the ranges cover every element exactly once and that they fit
 * the ranks' memory, and computes the totals. */
tsr_status tsr__plan_finish(tsr_shard_plan *plan) TSR_NODISCARD;

/* Returns whether two plans are equal in everything that their JSON contains. */
bool tsr__plan_equal(const tsr_shard_plan *a, const tsr_shard_plan *b);

#endif
