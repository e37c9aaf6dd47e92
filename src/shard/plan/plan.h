/* What the files of plans share. */
#ifndef TSR_SHARD_PLAN_PLAN_H
#define TSR_SHARD_PLAN_PLAN_H

#include "shard/params/params.h"

#define TSR__STRATEGY_NAME 64

struct tsr_shard_plan {
    char strategy[TSR__STRATEGY_NAME];
    int ranks;
    double *rates;          /* [ranks] or NULL */
    uint64_t *memory_bytes; /* [ranks] or NULL; 0: no limit */
    tsr__params params;
    tsr__param_name *names;       /* [params.count], sorted */
    tsr_shard_range *ranges;      /* [params.count][ranks] */
    tsr_shard_rank_total *totals; /* [ranks] */
};

/* A plan without parameters and ranges. Errors: TSR_ERR_INVALID for a bad name, number of ranks or
 * rate. */
tsr_status tsr__plan_start(const char *strategy, int ranks, const double *rates,
                           const uint64_t *memory_bytes, tsr_shard_plan **out) TSR_NODISCARD;

/* When all parameters are there: looks for names that come twice, sorts them, and makes room for
 * ranges and totals, all 0. */
tsr_status tsr__plan_listed(tsr_shard_plan *plan) TSR_NODISCARD;

/* When all ranges are there, but those of always-gathered parameters, which it fills in: that they
 * cover everything once, and that ranks have the memory. Adds up the totals. */
tsr_status tsr__plan_finish(tsr_shard_plan *plan) TSR_NODISCARD;

#endif
