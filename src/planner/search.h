/* Finds the grids of a cluster that are possible for a model, the fastest first. */
#ifndef TSR_PLANNER_SEARCH_H
#define TSR_PLANNER_SEARCH_H

#include "planner/predict.h"
#include "tessera/model.h"

/* A grid that is possible, with its predicted time. */
typedef struct tsr__grid_candidate {
    int data, tensor, stages;
    bool sharded;
    /* how the experts of the first group are divided, and whether those of any group are mixed */
    tsr_expert_division experts;
    bool mixed;
    bool by_rates;    /* tensor-parallel ranks have shares by their rates, not equal ones */
    int count;        /* data · tensor · stages */
    int *ranks;       /* [count] numbers of the ranks in the cluster, ascending */
    int *blocks;      /* [stages] */
    uint64_t *memory; /* [count], bytes */
    double *rates;    /* [count]: the speeds of the ranks in relation to the slowest one */
    /* [tensor]: for a training, the proportions in which the ranks of each tensor-parallel group
     * divide the model. They are equal for all groups, because data-parallel ranks must have the
     * same share of it. */
    double *proportions;
    tsr__prediction predicted;
    tsr__grid_sharing sharing;
    double missing_bytes; /* the most bytes that a rank lacks; 0: all ranks have enough */
    int missing_place;
} tsr__grid_candidate;

typedef struct tsr__grid_search {
    const tsr_cluster *cluster;
    const tsr_model_file *model;
    const tsr_model_config *config; /* of `model` */
    tsr__grid_work work;
    tsr_dtype dtype, cache_dtype;
    tsr_expert_division experts; /* as in tsr_model_params */
    int host_experts;            /* the same */
    int64_t context;             /* 0: the model's own context */
    /* elements of a layer's matrices, and the part of them in experts */
    double layer_parameters, layer_expert_parameters;
} tsr__grid_search;

typedef struct tsr__grid_candidates {
    size_t count, capacity;
    tsr__grid_candidate *all;
} tsr__grid_candidates;

/* candidate.c */

/* Sets layer_parameters and layer_expert_parameters. */
tsr_status tsr__grid_count_layer(tsr__grid_search *search) TSR_NODISCARD;

/* Makes a candidate of `shape`, which has the numbers of ranks of each dimension and `sharded`, on
 * the first data · tensor · stages of `ranks`. The caller must free it. */
tsr_status tsr__grid_candidate_make(const tsr__grid_search *search, const int *ranks,
                                    const tsr__grid_candidate *shape,
                                    tsr__grid_candidate *out) TSR_NODISCARD;
void tsr__grid_candidate_free(tsr__grid_candidate *candidate);

/* search.c */

/* Finds grids on all hosts together, on each subset of the hosts (on each single host if there are
 * more than 6), and on each kind of rank alone, with all divisions into data, tensor and stages.
 * Calls tsr__grid_count_layer. Call tsr__grid_candidates_free afterwards, also after an error.
 * Errors: those of tsr_model_plan. */
tsr_status tsr__grid_search_run(tsr__grid_search *search, tsr__grid_candidates *out) TSR_NODISCARD;
void tsr__grid_candidates_free(tsr__grid_candidates *candidates);

#endif
