/* The loads of experts in training, and what balances them: an auxiliary loss, or biases for the
 * choice. */
#ifndef GPT_EXPERTS_H
#define GPT_EXPERTS_H

#include "model.h"

/* What the ranks together chose for a micro-batch: for each layer of the model, how often each
 * expert was chosen, and the sum of its probabilities. The sum over all ranks is in progress until
 * experts_balance(). */
typedef struct gpt_choices {
    double *sent, *sums; /* [2, layers, experts]; NULL: the model has no experts */
    tsr_request *request;
} gpt_choices;

tsr_status experts_init(gpt_model *self);
void experts_finish(gpt_model *self);

/* Counts the choices of this stage's forward pass of a micro-batch, and starts to add those of all
 * ranks. Stages call it in the order of micro-batches. */
tsr_status experts_count(gpt_model *self, const tsr_stack_saved *saved, gpt_choices *out);
/* Waits for the sum, adds it to the loads of the step, and sets the gradient of the auxiliary loss
 * for the backward pass of this micro-batch. `first`: it is the step's first one. */
tsr_status experts_balance(gpt_model *self, gpt_choices *choices, bool first);
void experts_forget(gpt_choices *choices);

/* After the optimizer's step: moves biases for the choice against unequal loads. */
tsr_status experts_shift(gpt_model *self);

#endif
