/* tessera plan: options that its three kinds of plans share, and what each kind is. */
#ifndef TSR_CLI_PLAN_PLAN_H
#define TSR_CLI_PLAN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli/lib/model.h"
#include "tessera/model.h"

/* The values of an option, separated by commas. The option may be repeated. Initialise with {0}. */
typedef struct plan_list {
    size_t count;
    char **texts; /* ends with NULL; NULL if the list is empty */
} plan_list;

/* The options of the command. A number that was not given is 0. */
typedef struct plan_options {
    const char *strategy, *format;
    bool json;               /* --json, or --format json */
    int64_t ranks;           /* of sharding and inference */
    plan_list rates, memory; /* for each rank */
    const char *partition;   /* this and the next four: of sharding */
    int64_t align;
    plan_list gather, full, layerwise;
    tsr_dtype dtype, cache_dtype; /* this and the next two: of inference and clusters */
    int64_t context, sequences;
    int64_t stages; /* this and the next six: of inference */
    cli_layers layers;
    cli_experts experts;
    cli_draft draft;
    /* for each rank; one value applies to all ranks */
    plan_list bandwidth, host_bandwidth, gflops;
    double latency_us;                      /* of an all-reduce; < 0: not given */
    const char *hosts, *links, *rank_rates; /* of clusters: files */
    const char *goal;          /* of clusters: generation, prompt or training; or finetune */
    int64_t batch, accumulate; /* of clusters, for training, and of finetune */
    int64_t context_ranks;     /* of clusters, for training; inference; finetune */
    int64_t lora_rank;         /* this and the next three: of finetune */
    unsigned targets;
    bool trains_all, shares_weights;
    tsr_dtype wire; /* of clusters */
} plan_options;

/* The name of the strategy for generating text, which has no value in tsr_shard_kind. */
#define PLAN_INFERENCE "inference"

/* Each of these computes a plan, prints it, and returns an exit code. */

/* sharding.c: which rank keeps which shards of the parameters of a file */
int plan_sharding(const char *path, const plan_options *options);
/* inference.c: which share of a language model each rank has, and how fast it generates */
int plan_inference(const char *path, const plan_options *options);
/* cluster.c: the best grid of a cluster's ranks for a language model */
int plan_on_cluster(const char *path, const plan_options *options);

/* finetune.c: the memory that tessera finetune needs on each grid, and how fast it is */
int plan_finetune(const char *path, const plan_options *options);
#define PLAN_FINETUNE "finetune"

/* values.c */

/* Appends the values in `text`. Returns false if one of them is empty. */
bool plan_list_add(plan_list *list, const char *text);
void plan_list_free(plan_list *list);

/* Reads a number such as a rate. Returns false if it is negative or not finite. */
bool plan_read_rate(const char *text, double *out);

/* An option, and whether it was given. */
typedef struct plan_given {
    bool given;
    const char *name;
} plan_given;
/* Fails if one of the options was given. `what` does not take them. `all` ends with a NULL name. */
int plan_refuse(const char *what, const plan_given *all);
/* Fails if an option was given that only sharding takes. */
int plan_refuse_sharding(const char *what, const plan_options *options);

/* The number of ranks, and arrays with a value for each, or NULL. */
typedef struct plan_ranks {
    int count;
    double *rates;
    uint64_t *memory;
} plan_ranks;
/* Reads --ranks, --rates and --memory, which must agree. The caller must free it, also after an
 * error. */
int plan_ranks_read(const plan_options *options, plan_ranks *out);
void plan_ranks_free(plan_ranks *ranks);
/* Checks that groups of `contexts` ranks can divide sequences. */
int plan_check_contexts(const plan_ranks *ranks, int contexts);

#endif
