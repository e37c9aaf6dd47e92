/* The model and its passes. Its layers are a tsr_stack for each stage of a pipeline, and each stage
 * is divided over its grid of ranks. */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "common/job.h"
#include "options.h"

typedef struct gpt_model {
    const example_job *job;
    const gpt_options *options;
    /* its description, which points into itself */
    tsr_model_config config;
    tsr_model_layer layer;
    const tsr_model_layer *kinds[1];
    tsr_rope_params rope;
    tsr_model_experts experts;
    tsr_partition_params partition; /* over tensor-parallel ranks */
    tsr_shard_range chunks[2];      /* the tokens of each window that this rank has */
    int64_t tokens;                 /* their number */
    int first_layer, layers;        /* of this stage */
    bool is_first, is_last;         /* whether this stage is the first, or the last */
    tsr_pipeline *pipeline;
    tsr_stack *stack;
    tsr_optimizer *optimizer;
    tsr_tensor *loss; /* f32 [1], of the last stage: the sum over a step */
    /* experts (experts.c): the auxiliary loss of the last step, whatever its factor, and the tokens
     * of each expert, [layers, experts] */
    double aux, *loads;
    tsr_tensor *balance; /* [experts]: the gradient of the auxiliary loss */
} gpt_model;

/* Creates the model with random weights, or those of --init. Call model_finish() afterwards, also
 * on failure. */
tsr_status model_init(gpt_model *self, const example_job *job, const gpt_options *options,
                      int64_t vocabulary);
void model_finish(gpt_model *self);

/* Makes the passes of `count` micro-batches, and gives the mean loss over the tokens of all ranks.
 * windows[count * rows] are this rank's, each of block + 1 tokens. With `learn`, computes the
 * gradients. */
tsr_status model_pass(gpt_model *self, int count, const int32_t *const *windows, bool learn,
                      double *loss);

/* Experts (experts.c) -------------------------------------------------------------------------- */

/* What the ranks together chose for a micro-batch: how often each expert of each layer was chosen,
 * and the sum of its probabilities. The sum over all ranks is in progress until experts_balance().
 */
typedef struct gpt_choices {
    double *sent, *sums; /* [2, layers, experts]; NULL: the model has no experts */
    tsr_request *request;
} gpt_choices;

tsr_status experts_init(gpt_model *self);
void experts_finish(gpt_model *self);
/* After the forward pass of a micro-batch: counts the choices, and starts to add those of all
 * ranks. */
tsr_status experts_count(gpt_model *self, const tsr_stack_saved *saved, gpt_choices *out);
/* Before its backward pass: adds the loads, and sets the gradient of the auxiliary loss. `first`:
 * it is the step's first micro-batch. */
tsr_status experts_balance(gpt_model *self, gpt_choices *choices, bool first);
void experts_forget(gpt_choices *choices);
/* After the optimizer's step: moves biases for the choice against unequal loads. */
tsr_status experts_shift(gpt_model *self);

#endif
