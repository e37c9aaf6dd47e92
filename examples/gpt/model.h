/* The language model: embedding, blocks, a last norm and a head. The blocks are divided over the
 * stages of a pipeline, and each stage over its grid of ranks. The first stage also has the
 * embedding, and the last one the norm and the head. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "common/job.h"
#include "config.h"

typedef struct gpt_model_params {
    const example_job *job;
    const gpt_config *config;
    const gpt_training *training;
    const gpt_stages *stages; /* how blocks are divided */
    const char *strategy;     /* how data-parallel ranks share parameters; "none": each has all */
    tsr_dtype dtype;          /* of parameters and activations */
    bool recompute;
    bool elastic; /* parameters have replicas, for model_rebuild() */
} gpt_model_params;

/* Parameters that are gathered together. */
typedef struct gpt_unit {
    tsr_fsdp *sharded;
    int number;             /* of the unit in `sharded` */
    uint64_t first;         /* number of its first parameter in `sharded` */
    const tsr_layer *layer; /* whose parameters these are; NULL: learned positions */
} gpt_unit;

typedef struct gpt_model {
    const example_job *job;
    gpt_config config;
    gpt_training training;
    tsr_dtype dtype;
    bool is_elastic, rebuilds;
    tsr_pipeline *pipeline;
    bool is_first, is_last;           /* stage */
    int stage_blocks[GPT_MAX_STAGES]; /* numbers of blocks */
    int block_count;                  /* of this stage */

    /* NULL if another stage has it. The last stage of GPT-2 has the embedding too. */
    tsr_layer *embedding, *norm, *head;
    tsr_layer **blocks; /* [block_count] */
    tsr_fsdp *tied;     /* the embedding that is also the head, of GPT-2's first and last stage */
    tsr_fsdp *sharded;  /* everything else */
    gpt_unit *units;    /* all units of this stage, in the order of the forward pass */
    int unit_count;
    /* Units of `sharded`. Llama has no positions, and an embedding and a head of its own. */
    int embedding_unit, positions_unit, block_unit, norm_unit, head_unit;

    tsr_optimizer *optimizer;
    tsr_tensor *losses, *loss_sum, *dlogits; /* of this rank's part of a micro-batch; last stage */
    /* The sum in the host's memory, from `loss_point` of the stream on; NULL: see model_update() */
    tsr_tensor *loss_seen;
    uint64_t loss_point;
} gpt_model;

/* Call model_finish() afterwards, also on failure. */
tsr_status model_init(gpt_model *self, const gpt_model_params *params);
void model_finish(gpt_model *self);

/* Divides the parameters among the ranks of an elastic job, after these have changed. After a
 * failure it may be called again, when the ranks have changed again. The step to go on from is then
 * that of the optimizer. In a process that joins, model_init() does this. */
tsr_status model_rebuild(gpt_model *self, const char *strategy);

/* This rank's windows of a micro-batch, i32 [rows, block]: tokens, and those that follow them. */
typedef struct gpt_batch {
    tsr_tensor *x, *y;
} gpt_batch;

/* Forward and backward passes over all micro-batches of a step. batches[training.accumulate]. */
tsr_status model_learn(gpt_model *self, const gpt_batch *batches);

/* The optimizer's step, after model_learn(). Returns the mean loss over all micro-batches and ranks
 * before the step, and the norm of its gradient before clipping. A rank that is alone goes on
 * without waiting for them: it sets *later, and model_results() returns them until the next call.
 */
tsr_status model_update(gpt_model *self, double *loss, double *grad_norm, bool *later);
tsr_status model_results(gpt_model *self, double *loss, double *grad_norm);

/* The mean loss over all ranks' windows of batches[count], without dropout and without a step. */
tsr_status model_evaluate(gpt_model *self, int count, const gpt_batch *batches, double *loss);

/* Logits of the token that follows, f32 [vocabulary]. x is i32 [1, count], tokens at positions
 * first, first + 1, … of the one sequence of a step that has begun with the cache. All ranks call
 * it and get the same. */
tsr_status model_next(gpt_model *self, const tsr_tensor *x, tsr_kv_cache *cache, int64_t first,
                      float *logits);

#endif
