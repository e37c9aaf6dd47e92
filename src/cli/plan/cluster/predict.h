/* Predicts how long a step takes on a grid of ranks, from the properties of the model and of the
 * cluster. */
#ifndef TSR_CLI_PLAN_CLUSTER_PREDICT_H
#define TSR_CLI_PLAN_CLUSTER_PREDICT_H

#include "cli/plan/cluster/hosts.h"

/* The step whose time is predicted. */
typedef enum plan_goal {
    PLAN_GENERATION, /* one token of each sequence */
    PLAN_PROMPT,     /* one pass of a long prompt */
    PLAN_TRAINING,   /* one training step */
} plan_goal;

typedef struct plan_work {
    plan_goal goal;
    int layers;
    double width, vocabulary, context;
    int sequences;      /* in training: of a micro-batch, on all data-parallel ranks together */
    int micro_batches;  /* in training: the number in a step */
    double pass_tokens; /* the tokens of a prompt that one pass computes */
    double wire_bytes;  /* the size of an element of activations when tensor parallelism sends it */
} plan_work;

/* The share of a model that one rank of a tensor-parallel group would have if there were a single
 * stage. block_* and cache_bytes are sums over all blocks; a stage with some of the blocks has a
 * proportional part of them. */
typedef struct plan_part {
    double block_bytes, block_parameters; /* of weights; the latter counts elements of matrices */
    double embedding_bytes;               /* on the first stage */
    double head_bytes, head_parameters;   /* on the last stage */
    double cache_bytes;
    double activation_bytes; /* the bytes that a block keeps for the backward pass of a row */
    double attention_flops;  /* operations of a block for a row, without products with weights */
    bool tied;               /* the head is the embedding: a stage with both has one copy */
} plan_part;

/* A grid of some of the cluster's ranks. The rank at stage s, row r (data parallelism) and column c
 * (tensor parallelism) is ranks[(s · data + r) · tensor + c]; this index is its place. */
typedef struct plan_grid {
    int data, tensor, stages;
    const int *ranks;
    bool sharded;           /* data-parallel ranks share parameters, gradients and state (FSDP) */
    const int *blocks;      /* [stages] */
    const plan_part *parts; /* [stages · data · tensor], by place */
} plan_grid;

typedef struct plan_prediction {
    double seconds;
    double compute, tensor, data, pipeline; /* parts of `seconds`: computing, and messages of each
                                             * dimension */
    double idle;                            /* part of `seconds`: waiting for other stages */
} plan_prediction;

/* Returns the number of rows (tokens that are computed together) in one pass. Uses only the numbers
 * of data-parallel ranks and stages of the grid. */
double plan_rows_of_pass(const plan_work *work, const plan_grid *grid);

/* Returns the measured time of a pass with this number of rows, interpolated between the measured
 * numbers of rows. Above the largest of them, the time per element of a matrix grows in proportion
 * to the rows. The rank must have measured passes. */
plan_pass plan_pass_of(const plan_rank *rank, double rows);

void plan_predict(const plan_cluster *cluster, const plan_work *work, const plan_grid *grid,
                  plan_prediction *out);

/* Describes where ranks share processors. Predictions are less accurate there. */
typedef struct plan_sharing {
    /* Among the hosts with more ranks than processors, the host with the most ranks for each
     * processor. Hosts with less than one processor come first. −1: there is no such host. */
    int host;
    int ranks;    /* the number of the given ranks on this host */
    bool is_part; /* the host has less than one processor, which it shares with other hosts */
} plan_sharing;
plan_sharing plan_sharing_of(const plan_cluster *cluster, int count, const int *ranks);

/* Returns the bytes of memory that the rank at a place of the grid needs. */
double plan_memory(const plan_work *work, const plan_grid *grid, int place);
/* Returns bytes as an integer, at most UINT64_MAX. */
uint64_t plan_whole_bytes(double bytes);

#endif
