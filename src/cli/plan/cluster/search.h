/* The grids of a cluster that are possible for a model, the fastest first. */
#ifndef TSR_CLI_PLAN_CLUSTER_SEARCH_H
#define TSR_CLI_PLAN_CLUSTER_SEARCH_H

#include "cli/plan/cluster/predict.h"
#include "tessera/model.h"

typedef struct plan_candidate {
    int data, tensor, stages;
    bool sharded;
    bool by_rates;  /* tensor-parallel ranks have shares by their rates; otherwise equal ones */
    int count;      /* data · tensor · stages */
    int *ranks;     /* [count] of the cluster, ascending */
    int *blocks;    /* [stages] */
    double *memory; /* [count], bytes */
    plan_prediction predicted;
    plan_sharing sharing;
    double missing_bytes; /* of the rank that lacks the most; 0: all fit */
    int missing_place;
} plan_candidate;

typedef struct plan_candidates {
    int count;
    plan_candidate *all;
} plan_candidates;

typedef struct plan_search {
    const char *path; /* of the model */
    const plan_cluster *cluster;
    plan_work work; /* its model's numbers are read from the files */
    tsr_dtype dtype, cache_dtype;
    int64_t context; /* 0: the model's */
} plan_search;

/* Finds grids on all hosts, on each subset of up to 6 hosts, and on each kind of rank alone, with
 * all divisions into data, tensor and stages. Fills in what `work` takes from the model. Errors:
 * those of tsr_model_config_read and tsr_model_plan. */
tsr_status plan_search_run(plan_search *search, tsr_model_config *config, plan_candidates *out);
void plan_candidates_free(plan_candidates *candidates);

#endif
