/* Pipeline parallelism: the blocks of a model are divided over stages. Each stage is a rank, or the
 * ranks that share its layers by tensor and data parallelism. Micro-batches pass through the stages
 * one after the other, so that all stages compute at the same time.
 *
 *     tsr_pipeline *pipeline = NULL;
 *     tsr_pipeline_create(tsr_pipeline_params(.comm = stages, .stream = stream), &pipeline);
 *     tsr_pipeline_run(pipeline, tsr_pipeline_run_params(.micro_batches = 8, .dtype = TSR_F32,
 *                                                        .ndim = 3, .shape = {4, 64, 128},
 *                                                        .forward = forward,
 *                                                        .backward = backward, .user = model));
 *
 * Only activations and their gradients are sent, once for each micro-batch and boundary between
 * stages. A stage therefore needs little bandwidth, and may be on another host than its neighbours.
 *
 * Schedule: 1F1B. Stage s of p stages starts with min(p − 1 − s, m) forward passes, where m is the
 * number of micro-batches. Then it alternates between a forward and a backward pass, and ends with
 * the remaining backward passes. It never keeps the activations of more than min(p − s, m)
 * micro-batches. If all passes of all stages take equally long, each stage is idle for
 * (p − 1) / (m + p − 1) of the time, which is called the bubble. Source: Narayanan et al.,
 * "PipeDream: Generalized Pipeline Parallelism for DNN Training" (SOSP 2019), and the version that
 * waits for all micro-batches before a step in Narayanan et al., "Efficient Large-Scale Language
 * Model Training on GPU Clusters Using Megatron-LM" (SC 2021).
 *
 * Results: gradients of micro-batches are added in the order of their numbers, as without stages.
 *
 * Threads: as for the stream. tsr_pipeline_divide and tsr_pipeline_bubble are thread-safe. */
#ifndef TESSERA_PIPELINE_H
#define TESSERA_PIPELINE_H

#include "tessera/group.h"
#include "tessera/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_MAX_PIPELINE_BATCHES 1048576 /* the most micro-batches of a run */

/* Returns the part of the time for which a stage is idle if all passes take equally long on all
 * stages: (stages − 1) / (micro_batches + stages − 1). NaN for stages outside 1 … TSR_MAX_COMM_SIZE
 * and micro-batches outside 1 … TSR_MAX_PIPELINE_BATCHES. */
TSR_API double tsr_pipeline_bubble(int stages, int micro_batches);

/* Dividing blocks ---------------------------------------------------------------------------- */

typedef struct tsr_pipeline_divide_params {
    size_t struct_size;
    int blocks, stages;
    /* [stages]: the speed of each stage, in any unit, for example from tsr_calibrate; more than 0.
     * NULL: all the same. */
    const double *rates;
    /* The work before the first block and behind the last one, such as that of the head, in units
     * of the work of one block. */
    double first_cost, last_cost;
    /* [stages]: the memory of each stage; 0: no limit. NULL: no limits. */
    const uint64_t *memory_bytes;
    uint64_t block_bytes; /* bytes for parameters, gradients and optimizer state of a block */
    /* The bytes, as in block_bytes, of the layers before the first block and after the last one. */
    uint64_t first_bytes, last_bytes;
    /* What a block keeps of a micro-batch from its forward to its backward pass. Stage s keeps that
     * of min(stages − s, micro_batches) micro-batches. */
    uint64_t activation_bytes;
    int micro_batches; /* 0: 1 */
} tsr_pipeline_divide_params;
#define tsr_pipeline_divide_params(...)                                                            \
    (&(tsr_pipeline_divide_params){.struct_size = sizeof(tsr_pipeline_divide_params), __VA_ARGS__})

/* Divides blocks over stages and writes the numbers to the caller's counts[stages]. Each stage has
 * at least one block. The slowest stage needs as little time as is possible within the limits of
 * memory: blocks go one by one to the stage that would then need the least time; if several are
 * equal, to the one with the fewest blocks, and then to the last of these, which keeps the fewest
 * activations. Errors: TSR_ERR_INVALID for more stages than blocks, counts below 1, rates and costs
 * that are negative or not finite, and rates of 0; TSR_ERR_DEVICE_MEMORY if the blocks need more
 * memory than the stages have, naming the stage or how many blocks fit. */
TSR_API TSR_NODISCARD tsr_status tsr_pipeline_divide(const tsr_pipeline_divide_params *params,
                                                     int *counts);

/* Pipelines ---------------------------------------------------------------------------------- */

typedef struct tsr_pipeline tsr_pipeline;

typedef struct tsr_pipeline_params {
    size_t struct_size;
    /* One rank of each stage, in the order of the stages: this rank's stage is its rank in the
     * communicator. If stages have several ranks, these are
     * the ranks with the same place: rank 0 of every stage, rank 1 of every stage, and so on. NULL:
     * one stage. */
    tsr_comm *comm;
    tsr_stream *stream; /* required */
    /* How tensors are sent, as for tsr_group_create; NULL: the defaults. */
    const tsr_group_params *group;
} tsr_pipeline_params;
#define tsr_pipeline_params(...)                                                                   \
    (&(tsr_pipeline_params){.struct_size = sizeof(tsr_pipeline_params), __VA_ARGS__})

/* Creates a pipeline. Collective: all ranks of `comm` must call it. Blocks until they have. `comm`
 * may be destroyed afterwards; `stream` must outlive the pipeline. Errors: TSR_ERR_INVALID for
 * NULL, those of tsr_comm_split and tsr_group_create. */
TSR_API TSR_NODISCARD tsr_status tsr_pipeline_create(const tsr_pipeline_params *params,
                                                     tsr_pipeline **out);
/* Destroys a pipeline and sets *pipeline to NULL. NULL is allowed. Not collective. */
TSR_API void tsr_pipeline_destroy(tsr_pipeline **pipeline);

/* The caller's passes of this stage's layers. The pipeline destroys the tensors that they create,
 * and destroys x and dy when they return; layers keep what they need of them.
 *
 * Forward: creates y, which the next stage gets as x. The first stage has x = NULL: it takes the
 * micro-batch from the program. The last stage computes the loss and leaves *y as it is.
 *
 * Backward: dy is the gradient of y, and the function creates dx, that of x. The last stage has
 * dy = NULL: it starts from the loss. The first stage leaves *dx as it is. In the last stage, the
 * backward pass of a micro-batch follows its forward pass at once. */
typedef tsr_status (*tsr_pipeline_forward_fn)(void *user, int micro_batch, const tsr_tensor *x,
                                              tsr_tensor **y);
typedef tsr_status (*tsr_pipeline_backward_fn)(void *user, int micro_batch, const tsr_tensor *dy,
                                               tsr_tensor **dx);

typedef struct tsr_pipeline_run_params {
    size_t struct_size;
    int micro_batches;
    /* The activations between stages on this rank, and their gradients. One stage needs none. */
    tsr_dtype dtype;
    int ndim;
    int64_t shape[TSR_MAX_DIMS];
    tsr_pipeline_forward_fn forward;
    tsr_pipeline_backward_fn backward; /* NULL: forward passes only, for evaluation and inference */
    void *user;
} tsr_pipeline_run_params;
#define tsr_pipeline_run_params(...)                                                               \
    (&(tsr_pipeline_run_params){.struct_size = sizeof(tsr_pipeline_run_params), __VA_ARGS__})

/* Runs the steps of this stage's schedule for all micro-batches. Collective: all stages must call
 * it, with the same params except for the functions. A receive is started before the pass that
 * precedes its use, and sends end during later passes. Receives and sends make progress only while
 * the passes wait for something, and overlap with computation then. Memory for one received tensor
 * in each direction is needed in addition to the activations that the schedule keeps. Blocks until
 * this stage has made all passes and sent all tensors; work on the device may still be in progress.
 *
 * Errors: TSR_ERR_INVALID for wrong params, before anything is sent, and for a y or dx that is
 * missing or of another dtype or shape; those of the functions, and of tsr_group operations, with
 * the stages and the micro-batch in the text. After an error other than of the params, the pipeline
 * has failed: neighbours that wait for this stage get TSR_ERR_PEER_LOST, and every later call
 * returns the error. A single stage does not fail, and returns errors of the functions as they
 * are. */
TSR_API TSR_NODISCARD tsr_status tsr_pipeline_run(tsr_pipeline *pipeline,
                                                  const tsr_pipeline_run_params *params);

/* tensor = the sum of the tensors of the first and the last stage, for gradients of a parameter
 * that both stages have, such as an embedding that is also the head. Both stages must call it, with
 * the same dtype and shape, after the same runs. On other stages, and if there is only one, it does
 * nothing, and `tensor` may be NULL. Blocks until done. Errors: those of tsr_group_all_reduce. */
TSR_API TSR_NODISCARD tsr_status tsr_pipeline_reduce_ends(tsr_pipeline *pipeline,
                                                          tsr_tensor *tensor);

typedef struct tsr_pipeline_stats {
    size_t struct_size;
    uint64_t runs;
    uint64_t run_ns;
    uint64_t wait_ns; /* the part of run_ns spent waiting for tensors of other stages, and for sends
                         at the end */
    uint64_t sent_bytes, received_bytes;
} tsr_pipeline_stats;
/* Writes the sums since the pipeline was created. Errors: TSR_ERR_INVALID for NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_pipeline_get_stats(const tsr_pipeline *pipeline,
                                                        tsr_pipeline_stats *out);

#ifdef __cplusplus
}
#endif

#endif
