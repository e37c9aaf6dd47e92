/* Planning: which grid of a cluster's ranks is the fastest for a model, computed from descriptions
 * and measurements of the cluster and from the headers of the model's files. Needs no device and no
 * other process.
 *
 *     tsr_model_file *file = NULL;
 *     tsr_cluster *cluster = NULL;
 *     tsr_cluster_plan *plan = NULL;
 *     tsr_cluster_grid grid = TSR_INIT(tsr_cluster_grid);
 *     tsr_cluster_create(tsr_cluster_params(.description = "hosts.json"), &cluster);
 *     tsr_model_file_open("Qwen2.5-7B", &file);
 *     tsr_cluster_plan_create(cluster, file, tsr_cluster_plan_params(.goal = TSR_PLAN_TRAINING),
 *                             &plan);
 *     tsr_cluster_plan_get_grid(plan, 0, &grid);           // the fastest one
 *
 * docs/models.md ("Which grid") has the form of the documents, the model of cost, and where
 * predictions hold. Times are in seconds.
 *
 * Threads: clusters and plans do not change after their creation, and any number of threads may
 * read them. */
#ifndef TESSERA_PLANNER_H
#define TESSERA_PLANNER_H

#include "tessera/base.h"
#include "tessera/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_CLUSTER_MAX_HOSTS 64
#define TSR_CLUSTER_MAX_RANKS 256

/* Clusters ------------------------------------------------------------------------------------- */

/* Hosts, their ranks, and the links inside and between hosts. */
typedef struct tsr_cluster tsr_cluster;

/* JSON documents: paths of files, or texts in memory that end in a zero byte. Of each kind of
 * document, at most one of the two may be given. */
typedef struct tsr_cluster_params {
    size_t struct_size;
    const char *description, *description_text; /* the cluster; one of the two is needed */
    /* The output of tessera bench link --json, in a job with the cluster's ranks. Its links replace
     * those of the description. Its numbers of processors, and its times of turns on shared
     * processors, count where the description has none. */
    const char *links, *links_text;
    /* The output of tessera bench rates --json, in such a job. Its rates replace those of the
     * description, which then needs none. */
    const char *rates, *rates_text;
} tsr_cluster_params;
#define tsr_cluster_params(...)                                                                    \
    (&(tsr_cluster_params){.struct_size = sizeof(tsr_cluster_params), __VA_ARGS__})

/* Reads a cluster. The caller must destroy it. Errors: TSR_ERR_NOT_FOUND, TSR_ERR_IO,
 * TSR_ERR_NO_MEMORY, and TSR_ERR_INVALID for a document that is not JSON, has an unknown member, or
 * has a value that is missing or out of range. The text begins with the path, or with
 * "description", "links" or "rates" for a text in memory. */
TSR_API TSR_NODISCARD tsr_status tsr_cluster_create(const tsr_cluster_params *params,
                                                    tsr_cluster **out);
/* Sets *cluster to NULL. NULL is allowed. */
TSR_API void tsr_cluster_destroy(tsr_cluster **cluster);

TSR_API int tsr_cluster_host_count(const tsr_cluster *cluster);
/* Ranks are numbered in the order of the hosts. */
TSR_API int tsr_cluster_rank_count(const tsr_cluster *cluster);

typedef struct tsr_cluster_host_info {
    size_t struct_size;
    const char *name; /* belongs to the cluster */
    int first_rank, ranks;
    double processors; /* on which its ranks run; 0: one for each rank */
} tsr_cluster_host_info;
/* Describes a host. Errors: TSR_ERR_INVALID if there is no host with this number. */
TSR_API TSR_NODISCARD tsr_status tsr_cluster_get_host(const tsr_cluster *cluster, int host,
                                                      tsr_cluster_host_info *out);

typedef struct tsr_cluster_rank_info {
    size_t struct_size;
    int host;
    uint64_t memory_bytes; /* 0: no limit */
} tsr_cluster_rank_info;
/* Describes a rank. Errors: TSR_ERR_INVALID if there is no rank with this number. */
TSR_API TSR_NODISCARD tsr_status tsr_cluster_get_rank(const tsr_cluster *cluster, int rank,
                                                      tsr_cluster_rank_info *out);

/* Plans ---------------------------------------------------------------------------------------- */

/* What shall be fast. */
typedef enum tsr_plan_goal {
    TSR_PLAN_GENERATION = 0, /* generating: a token of each sequence */
    TSR_PLAN_PROMPT = 1,     /* reading a prompt: a pass of a long prompt */
    TSR_PLAN_TRAINING = 2    /* training in f32 with AdamW: a step */
} tsr_plan_goal;

typedef struct tsr_cluster_plan_params {
    size_t struct_size;
    tsr_plan_goal goal;
    int64_t context; /* tokens of a sequence; 0: the model's */
    /* Generation: the number of sequences. Training: the sequences of a micro-batch, on all
     * data-parallel ranks together. 0: 1. */
    int sequences;
    int micro_batches; /* training: of a step; 0: 1 */
    int pass_tokens;   /* prompt: the tokens that one pass computes; 0: 256 */
    /* Generation and prompt: how matrices are kept (0: as in the files), and the cache of keys and
     * values (as in tsr_model_plan_params; 0: f32). */
    tsr_dtype dtype, cache_dtype;
    tsr_dtype
        wire; /* of activations that tensor-parallel ranks send: f32, f16, bf16, q8_0; 0: f32 */
    /* Training: ranks, or rows of tensor-parallel ranks, that divide the tokens of each sequence
     * (transformer.h, context parallelism); grids have a multiple of them. 0: 1. */
    int context_ranks;
    /* Generation and prompt: as in tsr_model_params. With host_experts, each rank needs
     * "host_gbytes_per_second" in the description. */
    tsr_expert_division expert_division;
    int host_experts;
} tsr_cluster_plan_params;
#define tsr_cluster_plan_params(...)                                                               \
    (&(tsr_cluster_plan_params){.struct_size = sizeof(tsr_cluster_plan_params), __VA_ARGS__})

/* The grids that are possible, with their predicted times. */
typedef struct tsr_cluster_plan tsr_cluster_plan;

/* Finds the grids of a cluster that are possible for a model, and predicts their times: grids on
 * all hosts together, on each subset of the hosts (on each single host if there are more than 6),
 * and on each kind of rank alone, with all divisions into data, tensor and stages. The plan does
 * not refer to the cluster and the model, which may be destroyed and closed. The caller must
 * destroy the plan. Errors: those of tsr_model_plan; TSR_ERR_INVALID for a param, naming it;
 * TSR_ERR_UNSUPPORTED for context_ranks and a model whose sequences they cannot divide. */
TSR_API TSR_NODISCARD tsr_status tsr_cluster_plan_create(const tsr_cluster *cluster,
                                                         const tsr_model_file *model,
                                                         const tsr_cluster_plan_params *params,
                                                         tsr_cluster_plan **out);
/* Sets *plan to NULL. NULL is allowed. */
TSR_API void tsr_cluster_plan_destroy(tsr_cluster_plan **plan);

typedef struct tsr_cluster_plan_info {
    size_t struct_size;
    const char *architecture; /* of the model; static storage */
    int layers;               /* of the model */
    int grids;                /* the number of grids */
    int best; /* the number of the fastest grid that fits into memory; −1: none fits */
} tsr_cluster_plan_info;
/* Describes a plan. Errors: TSR_ERR_INVALID for a NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_cluster_plan_get_info(const tsr_cluster_plan *plan,
                                                           tsr_cluster_plan_info *out);

/* A grid of data · context_ranks · tensor · stages ranks. The rank at stage s, data-parallel row r,
 * context rank k and tensor-parallel column c is ranks[((s · data + r) · context_ranks + k) ·
 * tensor + c]; this index is its place. All arrays belong to the plan. */
typedef struct tsr_cluster_grid {
    size_t struct_size;
    int data, tensor, stages;
    bool sharded;  /* data-parallel ranks share parameters, gradients and state (FSDP) */
    bool by_rates; /* ranks of a tensor-parallel group have shares by their rates, not equal ones */
    bool predicted;    /* false: a host has less than one processor, so all times below are 0 */
    int rank_count;    /* data · context_ranks · tensor · stages */
    const int *ranks;  /* [rank_count]: numbers of the cluster's ranks, ascending */
    const int *layers; /* [stages]: the layers of each stage */
    const uint64_t *memory_bytes; /* [rank_count]: what each rank needs, by place */
    /* [rank_count], by place: the rates by which ranks divide the model, in relation to the slowest
     * rank, with three digits. */
    const double *rates;
    /* Training: [tensor], the proportions in which the ranks of each tensor-parallel group divide
     * the model. They are equal for all groups, because data-parallel ranks must have the same
     * share of it. NULL for other goals. */
    const double *shares;
    double seconds; /* the sum of the five times below */
    double compute_seconds;
    /* messages of each dimension; the first has those of context ranks, too, and the second the
     * gradients that these add */
    double tensor_seconds, data_seconds, stage_seconds;
    double idle_seconds; /* waiting for other stages */
    double tokens_per_second;
    /* The host with the most ranks of the grid for each processor, if ranks share processors there:
     * the predicted time may be too low. −1: each rank has a processor. */
    int shared_host;
    int shared_ranks; /* the grid's ranks on that host */
    /* The most bytes that a rank lacks (0: all ranks fit into their memory), and its place. */
    uint64_t missing_bytes;
    int missing_place;
    int context_ranks; /* 1: sequences are not divided */
    /* How tensor-parallel ranks divide experts: mixed, if one of the groups does, otherwise as the
     * first group; TSR_EXPERT_DIVISION_AUTO if the model has none. */
    tsr_expert_division expert_division;
} tsr_cluster_grid;
/* Describes a grid. Grids are numbered by their predicted time, the fastest first; those whose time
 * is not predicted are last. Errors: TSR_ERR_INVALID if there is no grid with this number. */
TSR_API TSR_NODISCARD tsr_status tsr_cluster_plan_get_grid(const tsr_cluster_plan *plan, int number,
                                                           tsr_cluster_grid *out);

#ifdef __cplusplus
}
#endif

#endif
