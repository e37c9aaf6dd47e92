/* The loads of experts in training, and what balances them: an auxiliary loss, or biases for the
 * choice. */
#ifndef TSR_CLI_TRAINING_EXPERTS_H
#define TSR_CLI_TRAINING_EXPERTS_H

#include "cli/training/training.h"

/* What the ranks together chose for a micro-batch: for each layer of the model, how often each
 * expert was chosen, and the sum of its probabilities. The sum over all ranks is in progress until
 * training_experts_balance. */
typedef struct training_choices {
    double *sent, *sums; /* [2, layers, experts]; NULL: nothing is balanced */
    tsr_request *request;
} training_choices;

/* Makes room for loads if the options ask for balance. Fails if the model has no experts. */
tsr_status training_experts_init(training_model *model);
void training_experts_finish(training_model *model);

/* Counts the choices of this stage's forward pass of a micro-batch, and starts to add those of all
 * ranks. Stages call it in the order of micro-batches. */
tsr_status training_experts_count(training_model *model, const tsr_stack_saved *saved,
                                  training_choices *out);
/* Waits for the sum, adds it to the loads of the step, and sets the gradient of the auxiliary loss
 * for the backward pass of this micro-batch. `first`: it is the step's first one. */
tsr_status training_experts_balance(training_model *model, training_choices *choices, bool first);
void training_experts_forget(training_choices *choices);

/* After the optimizer's step: moves biases for the choice against unequal loads. */
tsr_status training_experts_shift(training_model *model);

#endif
