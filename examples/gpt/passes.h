/* Forward and backward passes of the layers of a stage. */
#ifndef GPT_PASSES_H
#define GPT_PASSES_H

#include "model.h"

/* The results of a forward pass that the backward pass needs. */
typedef struct passage {
    tsr_layer_saved *embedding, **blocks, *norm, *head;
    tsr_tensor *at;     /* the features of each token after the last layer that has run */
    tsr_tensor *logits; /* last stage: [rows, tokens, classes of this rank] */
} passage;

/* Call passage_finish() afterwards, also on failure. */
tsr_status passage_init(const gpt_model *self, passage *p);
void passage_finish(const gpt_model *self, passage *p);

/* Makes the forward pass of this stage. It starts from `tokens` in the first stage, and from the
 * features x in all others. It ends with logits in the last stage, and with the features p->at in
 * all others. */
tsr_status passes_forward(gpt_model *self, const tsr_tensor *tokens, const tsr_tensor *x,
                          bool learning, passage *p);

/* Makes the backward pass. `dy` is the gradient of the output of passes_forward(). Gives the
 * gradient of its input x; in the first stage there is none. */
tsr_status passes_backward(gpt_model *self, const passage *p, const tsr_tensor *dy,
                           tsr_tensor **dx);

/* Makes a forward pass for generation, with tokens at positions first, first + 1, …. The last stage
 * computes the logits of the last token only. */
tsr_status passes_cached(gpt_model *self, const tsr_tensor *tokens, const tsr_tensor *x,
                         tsr_kv_cache *cache, int64_t first, passage *p);

#endif
