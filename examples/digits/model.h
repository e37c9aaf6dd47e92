/* The network and its optimizer: 64 → hidden (ReLU) → 10, AdamW. */
#ifndef DIGITS_MODEL_H
#define DIGITS_MODEL_H

#include "images.h"

typedef struct model {
    tsr_layer *mlp;
    /* Parameters, gradients and what the optimizer keeps, of all parameters one behind the other:
     * one all-reduce and one optimizer step serve them all. master is NULL for f32. */
    tsr_tensor *values, *grads, *master, *moment1, *moment2;
    int64_t count;
    int64_t steps;     /* of the optimizer so far */
    int64_t last_step; /* of the training: the learning rate falls towards it, as a cosine */
    double learning_rate;
    tsr_adamw_params adamw;
    tsr_tensor *losses, *loss_sum; /* of a batch's images; of an epoch's, [1] */
    tsr_tensor *dlogits, *classes; /* for the largest batch */
} model;

/* model_finish() afterwards in any case. */
tsr_status model_init(model *self, const digits_job *job, const digits_options *options,
                      int64_t steps_per_epoch);
void model_finish(model *self);

/* One step of learning. Adds the losses of the batch to the sum. */
tsr_status model_train(model *self, const digits_job *job, const images_batch *batch);
/* What the network makes of a batch: classes [rows], in memory of the caller's. Adds to the sum. */
tsr_status model_classify(model *self, const digits_job *job, const images_batch *batch,
                          int32_t *classes);

/* The sum of losses since the last call, over all ranks' images. */
tsr_status model_take_loss(model *self, const digits_job *job, double *out);

#endif
