/* tessera plan --cluster: finds the best grid of a cluster's ranks for a model. */
#ifndef TSR_CLI_PLAN_CLUSTER_CLUSTER_H
#define TSR_CLI_PLAN_CLUSTER_CLUSTER_H

#include "cli/plan/cluster/search.h"

typedef struct plan_cluster_options {
    const char *hosts, *links, *rates; /* files; the last two may be NULL */
    const char *goal;                  /* generation, prompt or training; NULL: generation */
    int64_t batch, accumulate;         /* for training; 0 stands for 1 */
    int64_t sequences;                 /* 0 stands for 1 */
    tsr_dtype wire;                    /* the dtype of activations in messages; 0: f32 */
    tsr_dtype dtype, cache_dtype;
    int64_t context;
    bool json;
} plan_cluster_options;

/* Prints the best grid, and the next two with the reasons why they are not the best. Returns an
 * exit code. */
int plan_cluster_run(const char *path, const plan_cluster_options *chosen);

/* The result of the search, which is printed. `best` is the index of the best candidate; −1: no
 * candidate fits into memory. */
typedef struct plan_outcome {
    const char *path;
    const tsr_model_config *config;
    const plan_search *search;
    const plan_candidates *candidates;
    int best, shown_count, shown[3]; /* the numbers of the candidates to print, the best first */
} plan_outcome;
void plan_cluster_print(const plan_outcome *outcome);
void plan_cluster_print_json(const plan_outcome *outcome);

#define PLAN_REASON_TEXT 256
/* Writes why a candidate is not the best. Returns `text`. */
char *plan_cluster_reason(const plan_outcome *outcome, int candidate, char text[PLAN_REASON_TEXT]);

#endif
