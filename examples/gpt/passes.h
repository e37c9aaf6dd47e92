/* Forward and backward passes of the layers of a stage. */
#ifndef GPT_PASSES_H
#define GPT_PASSES_H

#include "model.h"

/* What a forward pass leaves for the backward pass. */
typedef struct passage {
    tsr_layer_saved *embedding, **blocks, *norm, *head;
    tsr_tensor *at;     /* the features of each token after the last layer that has run */
    tsr_tensor *logits; /* last stage: [rows, tokens, classes of this rank] */
} passage;

/* Call passage_finish() afterwards, also on failure. */
tsr_status passage_init(const gpt_model *self, passage *p);
void passage_finish(const gpt_model *self, passage *p);

/* The forward pass of this stage. It starts from `tokens` in the first stage, and from the features
 * x in all others. It ends with logits in the last stage, and with the features p->at in all
 * others. */
tsr_status passes_forward(gpt_model *self, const tsr_tensor *tokens, const tsr_tensor *x,
                          bool learning, passage *p);

/* The backward pass: `dy` is the gradient of what passes_forward() has computed. Gives the gradient
 * of its x, which the first stage does not have. */
tsr_status passes_backward(gpt_model *self, const passage *p, const tsr_tensor *dy,
                           tsr_tensor **dx);

/* A forward pass for generation: tokens at positions first, first + 1, …. The last stage computes
 * the logits of the last token only. */
tsr_status passes_cached(gpt_model *self, const tsr_tensor *tokens, const tsr_tensor *x,
                         tsr_kv_cache *cache, int64_t first, passage *p);

#endif
