/* Finds the grids of a cluster that are possible for a model, the fastest first. */
#ifndef TSR_CLI_PLAN_CLUSTER_SEARCH_H
#define TSR_CLI_PLAN_CLUSTER_SEARCH_H

#include "cli/plan/cluster/predict.h"
#include "tessera/model.h"

/* How rates are printed. The options of other programs accept them. */
#define PLAN_RATE_FORMAT "%.3g"

typedef struct plan_candidate {
    int data, tensor, stages;
    bool sharded;
    bool by_rates;  /* tensor-parallel ranks have shares by their rates, not equal ones */
    int count;      /* data · tensor · stages */
    int *ranks;     /* [count] numbers of the ranks in the cluster, ascending */
    int *blocks;    /* [stages] */
    double *memory; /* [count], bytes */
    double *rates;  /* [count]: the speeds of the ranks in relation to the slowest one */
    /* [tensor]: for a training, the proportions in which the ranks of each tensor-parallel group
     * divide the model. They are equal for all groups, because data-parallel ranks must have the
     * same part of it. */
    double *shares;
    plan_prediction predicted;
    plan_sharing sharing;
    double missing_bytes; /* the most bytes that a rank lacks; 0: all ranks have enough */
    int missing_place;
} plan_candidate;

typedef struct plan_candidates {
    int count;
    plan_candidate *all;
} plan_candidates;

typedef struct plan_search {
    const tsr_model_file *file; /* of the model */
    const plan_cluster *cluster;
    plan_work work;          /* plan_search_run fills in the numbers of the model */
    double layer_parameters; /* elements of a layer's matrices; plan_search_run sets it */
    tsr_dtype dtype, cache_dtype;
    int64_t context; /* 0: the model's own context */
} plan_search;

/* Finds grids on all hosts together, on each subset of the hosts (on each single host if there are
 * more than 6), and on each kind of rank alone, with all divisions into data, tensor and stages.
 * Fills in the members of `work` that depend on the model. Errors: those of
 * tsr_model_plan. */
tsr_status plan_search_run(plan_search *search, plan_candidates *out);
void plan_candidates_free(plan_candidates *candidates);

#endif
