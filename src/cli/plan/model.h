/* tessera plan --strategy inference: computes the part of a language model that each rank will
 * have, and the speed. */
#ifndef TSR_CLI_PLAN_MODEL_H
#define TSR_CLI_PLAN_MODEL_H

#include "cli/lib/model.h"
#include "cli/plan/plan.h"
#include "tessera/model.h"

typedef struct plan_model {
    tsr_dtype dtype, cache_dtype;
    int64_t context, sequences, stages; /* 0: the option was not given */
    cli_layers layers;                  /* of the stages */
    /* for each rank: bytes per second, and 10^9 operations per second; one value applies to all
     * ranks */
    plan_list bandwidth, gflops;
    double latency_us; /* the latency of an all-reduce; < 0: not given */
    /* the values of options that all strategies take */
    int ranks;
    const double *rates;
    const uint64_t *memory;
    bool json;
} plan_model;

/* Computes and prints the plan of a model. Returns an exit code. */
int plan_model_run(const char *path, const plan_model *chosen);

#endif
