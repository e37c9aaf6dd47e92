/* The language model: embedding, blocks, a last norm and a head, divided over the grid of ranks. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "common/job.h"
#include "config.h"

typedef struct gpt_model_params {
    const example_job *job;
    const gpt_config *config;
    const gpt_training *training;
    const char *strategy; /* how data-parallel ranks share parameters; "none": each has all */
    tsr_dtype dtype;      /* of parameters and activations */
    bool recompute;
} gpt_model_params;

typedef struct gpt_model {
    const example_job *job;
    gpt_config config;
    gpt_training training;
    tsr_layer *embedding, *norm, *head;
    tsr_layer **blocks; /* [config.layers] */
    tsr_fsdp *sharded;
    tsr_optimizer *optimizer;
    /* Units of `sharded`: the embedding is number 0, learned positions (GPT-2) number 1. */
    int first_block, norm_unit, units;
    tsr_tensor *losses, *loss_sum, *dlogits; /* of this rank's part of a batch */
} gpt_model;

/* Call model_finish() afterwards, also on failure. */
tsr_status model_init(gpt_model *self, const gpt_model_params *params);
void model_finish(gpt_model *self);

int64_t model_parameters(const gpt_model *self);

/* Forward and backward passes over this rank's windows of micro-batch `number` of a step, from 0
 * on: adds up gradients. x and y are i32 [rows, block]: tokens, and the tokens that follow them. */
tsr_status model_learn(gpt_model *self, int number, const tsr_tensor *x, const tsr_tensor *y);

/* The optimizer's step, after model_learn() for all micro-batches. Returns the mean loss over them
 * and all ranks before the step, and the norm of its gradient before clipping. */
tsr_status model_update(gpt_model *self, double *loss, double *grad_norm);

/* The mean loss over all ranks' windows, without dropout and without a step. */
tsr_status model_evaluate(gpt_model *self, const tsr_tensor *x, const tsr_tensor *y, double *loss);

/* Logits of the token that follows, f32 [vocabulary]. x is i32 [1, count], tokens at positions
 * first, first + 1, … of the one sequence of a step that has begun with the cache. All ranks call
 * it and get the same. */
tsr_status model_next(gpt_model *self, const tsr_tensor *x, tsr_kv_cache *cache, int64_t first,
                      float *logits);

#endif
