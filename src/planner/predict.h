/* Predicts how long a step takes on a grid of ranks, from the properties of the model and of the
 * cluster. */
#ifndef TSR_PLANNER_PREDICT_H
#define TSR_PLANNER_PREDICT_H

#include "planner/cluster.h"

/* The step whose time is predicted. */
typedef struct tsr__grid_work {
    tsr_plan_goal goal;
    int layers;
    double width, vocabulary, context;
    int sequences;      /* in training: of a micro-batch, on all data-parallel ranks together */
    int micro_batches;  /* in training: the number in a step */
    int context_ranks;  /* in training: that divide each sequence; at least 1 */
    double pass_tokens; /* the tokens of a prompt that one pass computes */
    double wire_bytes;  /* the size of an element of activations when tensor parallelism sends it */
} tsr__grid_work;

/* The share of a model that one rank of a tensor-parallel group would have if there were a single
 * stage. block_*, cache_bytes and state_bytes are sums over all blocks; a stage with some of the
 * blocks has a proportional share of them. */
typedef struct tsr__model_share {
    double block_bytes, block_parameters; /* of weights; the latter counts elements of matrices */
    /* The parts of block_bytes and block_parameters in experts, and of these the part that a row
     * uses. expert_skew is that of tsr_model_rank_plan; values below 1 count as 1. */
    double expert_bytes, expert_parameters, expert_use, expert_skew;
    double host_bytes;      /* experts in the host's memory, in addition to block_bytes */
    double embedding_bytes; /* on the first stage */
    double head_bytes, head_parameters; /* on the last stage */
    double cache_bytes;
    double state_bytes; /* the part of cache_bytes in states; and the part of that which a pass */
    double used_state_bytes; /* reads and writes once */
    double activation_bytes; /* the bytes that a block keeps for the backward pass of a row */
    double kv_bytes;         /* of the keys and values of a block for a row */
    int64_t kv_heads;
    double attention_flops; /* operations of a block for a row, without products with weights */
    bool tied;              /* the head is the embedding: a stage with both has one copy */
} tsr__model_share;

/* A grid of some of the cluster's ranks. The rank at stage s, row r (data parallelism, of which
 * context parallelism is a part: context_ranks rows that follow each other have the same sequences)
 * and column c (tensor parallelism) is ranks[(s · data + r) · tensor + c]; this index is its place.
 */
typedef struct tsr__grid {
    int data, tensor, stages;
    const int *ranks;
    bool sharded;      /* data-parallel ranks share parameters, gradients and state (FSDP) */
    const int *blocks; /* [stages] */
    const tsr__model_share *model_shares; /* [stages · data · tensor], by place */
} tsr__grid;

/* Returns the tokens of a micro-batch of a training that the ranks of a context group have
 * together. */
static inline double tsr__context_tokens_of_pass(const tsr__grid_work *work, const tsr__grid *grid)
{
    return work->context * work->sequences * work->context_ranks / grid->data;
}

typedef struct tsr__prediction {
    double seconds;
    /* `seconds` is the sum of these: computing, messages of each dimension, and waiting for other
     * stages */
    double compute, tensor, data, pipeline, idle;
} tsr__prediction;

/* Predicts the time of a step. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__predict(const tsr_cluster *cluster, const tsr__grid_work *work,
                        const tsr__grid *grid, tsr__prediction *out) TSR_NODISCARD;

/* Describes where ranks share processors. Predictions are less accurate there. */
typedef struct tsr__grid_sharing {
    /* Among the hosts with more ranks than processors, the host with the most ranks for each
     * processor. Hosts with less than one processor come first. −1: there is no such host. */
    int host;
    int ranks;          /* the number of the given ranks on this host */
    bool less_than_one; /* the host has less than one processor, which it shares with other hosts */
} tsr__grid_sharing;
tsr__grid_sharing tsr__sharing_of(const tsr_cluster *cluster, int count, const int *ranks);

/* grid_memory.c */

/* Returns the bytes of memory that the rank at a place of the grid needs. */
double tsr__grid_memory(const tsr__grid_work *work, const tsr__grid *grid, int place);
/* Returns bytes as an integer, at most UINT64_MAX. */
uint64_t tsr__whole_bytes(double bytes);
/* Returns the number of parameters at a place, in elements of 4 bytes. */
double tsr__grid_parameters(const tsr__grid_work *work, const tsr__grid *grid, int place);

/* pass_time.c */

/* What a prediction needs. */
typedef struct tsr__predictor {
    const tsr_cluster *cluster;
    const tsr__grid_work *work;
    const tsr__grid *grid;
    tsr_status status;                       /* of the simulations, see cost.h */
    tsr__turns turns[TSR_CLUSTER_MAX_HOSTS]; /* how the grid's ranks share processors */
    int group_host[TSR_CLUSTER_MAX_RANKS];   /* the hosts of the last tsr__predictor_group */
} tsr__predictor;
void tsr__predictor_init(const tsr_cluster *cluster, const tsr__grid_work *work,
                         const tsr__grid *grid, tsr__predictor *out);

/* Returns the group of the places first, first + step, …, `size` places in total. It is valid until
 * the next call. */
tsr__cost_group tsr__predictor_group(tsr__predictor *p, int first, int step, int size);

static inline const tsr__cluster_rank *tsr__rank_at(const tsr__predictor *p, int place)
{
    return &p->cluster->rank[p->grid->ranks[place]];
}

/* Returns how many micro-batches of equal size the generator makes of the sequences: with one for
 * each stage, all stages compute at the same time. */
int tsr__sequence_batches(const tsr__grid_work *work, const tsr__grid *grid);

/* Returns the number of rows (tokens that are computed together) in one pass. Uses only the numbers
 * of data-parallel ranks and stages of the grid. */
double tsr__rows_of_pass(const tsr__grid_work *work, const tsr__grid *grid);

/* Returns the measured time of a pass with this number of rows, interpolated between the measured
 * numbers of rows. Above the largest of them, the time per element of a matrix grows in proportion
 * to the rows. The rank must have measured passes. */
tsr__measured_pass tsr__pass_of(const tsr__cluster_rank *rank, double rows);

/* The seconds that one pass takes on a stage. In training, a pass is one micro-batch; in
 * generation, a micro-batch of the sequences; for a prompt, some of its tokens. */
typedef struct tsr__pass_time {
    double compute, tensor;
} tsr__pass_time;

/* Returns the time that a rank computes for a pass: the longer of the time for matrix products and
 * the time to read weights and cache. In training, only matrix products count. */
double tsr__compute_seconds(const tsr__predictor *p, int stage, int place);
/* Returns the time of a pass on a stage, which is that of its slowest tensor-parallel group. */
tsr__pass_time tsr__stage_pass(tsr__predictor *p, int stage);
/* Returns the time to send the activations of a pass to the next stage. All ranks of a stage send
 * at the same time over the same link. */
double tsr__send_seconds(const tsr__predictor *p, int stage);

#endif
