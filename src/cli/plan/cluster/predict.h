/* Predicts how long a step takes on a grid of ranks: plain arithmetic, from what the model needs
 * and what the cluster has. */
#ifndef TSR_CLI_PLAN_CLUSTER_PREDICT_H
#define TSR_CLI_PLAN_CLUSTER_PREDICT_H

#include "cli/plan/cluster/hosts.h"

/* What is predicted. */
typedef enum plan_goal {
    PLAN_GENERATION, /* a token of each sequence */
    PLAN_PROMPT,     /* one pass of a long prompt */
    PLAN_TRAINING,   /* a step */
} plan_goal;

typedef struct plan_work {
    plan_goal goal;
    int layers;
    double width, vocabulary, context;
    int sequences;      /* in training: of a micro-batch, over all data-parallel ranks together */
    int micro_batches;  /* in training: of a step */
    double pass_tokens; /* the tokens of a prompt that one pass computes */
    double wire_bytes;  /* the size of an element of activations when tensor parallelism sends it */
} plan_work;

/* The part of a model that a rank of a tensor-parallel group has, of all blocks together. */
typedef struct plan_part {
    double block_bytes, block_parameters; /* of weights; parameters are elements of matrices */
    double embedding_bytes;               /* on the first stage */
    double head_bytes, head_parameters;   /* on the last stage */
    double cache_bytes;
    double activation_bytes; /* what a row of a block keeps for its backward pass */
    double attention_flops;  /* of a row of a block, without its matrix products with weights */
    bool tied;               /* the head is the embedding: one stage has both only once */
} plan_part;

/* A grid on some of the cluster's ranks. The rank with the place (stage, row, column) is
 * ranks[(stage · data + row) · tensor + column]. */
typedef struct plan_grid {
    int data, tensor, stages;
    const int *ranks;
    bool sharded;           /* data-parallel ranks share parameters, gradients and state (FSDP) */
    const int *blocks;      /* [stages] */
    const plan_part *parts; /* [stages · data · tensor] */
} plan_grid;

typedef struct plan_prediction {
    double seconds;
    double compute, tensor, data, pipeline; /* parts of it: computing, sending, in each dimension */
    double idle;                            /* part of it: waiting for other stages */
} plan_prediction;

void plan_predict(const plan_cluster *cluster, const plan_work *work, const plan_grid *grid,
                  plan_prediction *out);

/* How far predictions for some of a cluster's ranks can be trusted. */
typedef struct plan_sharing {
    /* The host with the most ranks for each processor, if that is more than 1, among those with
     * less than one processor if there are any; −1: none. */
    int host;
    int ranks;    /* its ranks among these */
    bool is_part; /* its processors are less than one: it shares them with other hosts */
} plan_sharing;
plan_sharing plan_sharing_of(const plan_cluster *cluster, int count, const int *ranks);

/* Bytes that the rank at a place of the grid needs. */
double plan_memory(const plan_work *work, const plan_grid *grid, int place);

#endif
