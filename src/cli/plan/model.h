/* tessera plan --strategy inference: what each rank will hold of a language model, and how fast it
 * will be. */
#ifndef TSR_CLI_PLAN_MODEL_H
#define TSR_CLI_PLAN_MODEL_H

#include "cli/plan/plan.h"
#include "tessera/model.h"

typedef struct plan_model {
    tsr_dtype dtype, cache_dtype;
    int64_t context, sequences; /* 0: the option was not given */
    /* of each rank: bytes per second, operations per second; one value applies to all */
    plan_list bandwidth, gflops;
    double latency_us; /* of an all-reduce; < 0: not given */
    /* what the options of all strategies say */
    int ranks;
    const double *rates;
    const uint64_t *memory;
    bool json;
} plan_model;

/* Computes and prints the plan of a model. Returns an exit code. */
int plan_model_run(const char *path, const plan_model *chosen);

#endif
