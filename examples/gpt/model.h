/* The training of a model, whose layers are a tsr_stack for each stage of a pipeline. A stage is
 * divided over its grid of ranks. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "common/job.h"
#include "config.h"

/* The tokens of a window that this rank has: all, or a chunk from the front and one from the
 * back. */
typedef struct gpt_chunks {
    int tokens;
    tsr_shard_range range[2];
} gpt_chunks;

typedef struct gpt_model_params {
    const example_job *job;
    const gpt_config *config; /* must outlive the model */
    const gpt_chunks *chunks;
    const gpt_training *training;
    const gpt_stages *stages;      /* how blocks are divided */
    const gpt_rates *tensor_rates; /* must outlive the model */
    const char *strategy; /* how data-parallel ranks share parameters; "none": each has all */
    tsr_dtype dtype;      /* of parameters and activations */
    bool recompute, experts_over_data;
    bool elastic; /* parameters have replicas, for model_rebuild() */
} gpt_model_params;

typedef struct gpt_model {
    const example_job *job;
    const gpt_config *config;
    gpt_training training;
    int tokens; /* of a window, on this rank */
    tsr_dtype dtype;
    bool is_elastic;
    tsr_partition_params partition; /* how tensor-parallel ranks divide the model */
    tsr_pipeline *pipeline;
    bool is_first, is_last;           /* whether this stage is the first, or the last */
    int stage_blocks[GPT_MAX_STAGES]; /* how many blocks each stage has */
    tsr_stack *stack;                 /* the layers of this stage, and their sharded parameters */
    tsr_optimizer *optimizer;
    tsr_tensor *losses, *loss_sum, *dlogits; /* last stage: for this rank's part of a micro-batch */
    /* The sum of losses in the host's memory, valid once the stream reaches `loss_point`. NULL if
     * model_update() waits for its results. */
    tsr_tensor *loss_seen;
    uint64_t loss_point;
    /* Mixtures of experts (experts.c): the most experts of a layer, or 0; the auxiliary loss of the
     * last step, whatever its factor, and the tokens of each expert, [layers, experts]. */
    int64_t experts;
    double aux, *loads;
    tsr_tensor *balance; /* [experts]: the gradient of the auxiliary loss */
} gpt_model;

/* Call model_finish() afterwards, also on failure. */
tsr_status model_init(gpt_model *self, const gpt_model_params *params);
void model_finish(gpt_model *self);

/* Divides the parameters of an elastic job among its new ranks. After a failure it may be called
 * again, once the ranks have changed again. The ranks continue with the step that the optimizer has
 * reached. In a process that joins, model_init() does this. */
tsr_status model_rebuild(gpt_model *self, const char *strategy);

/* This rank's windows of a micro-batch, i32 [rows, tokens]: `x` has the tokens, and `y` the token
 * that follows each. */
typedef struct gpt_batch {
    tsr_tensor *x, *y;
} gpt_batch;

/* Makes the forward and backward passes of all micro-batches of a step:
 * batches[training.accumulate]. */
tsr_status model_learn(gpt_model *self, const gpt_batch *batches);

/* Makes the optimizer's step after model_learn(). Returns the mean loss over all micro-batches and
 * ranks before the step, and the norm of its gradient before clipping. If this rank is alone, the
 * function does not wait for these results. It then sets *later, and model_results() returns them
 * until the next call. */
tsr_status model_update(gpt_model *self, double *loss, double *grad_norm, bool *later);
tsr_status model_results(gpt_model *self, double *loss, double *grad_norm);

/* Computes the mean loss over all ranks' windows of batches[count], without dropout and without a
 * step. */
tsr_status model_evaluate(gpt_model *self, int count, const gpt_batch *batches, double *loss);

/* Computes the logits of the next token, f32 [vocabulary]. x is i32 [1, count]: tokens of one
 * sequence, for which a step of the cache has begun. All ranks call it and get the same logits. */
tsr_status model_next(gpt_model *self, const tsr_tensor *x, tsr_kv_cache *cache, float *logits);

#endif
