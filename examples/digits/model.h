/* The network and its optimizer: 64 → hidden (GELU) → 10, AdamW. */
#ifndef DIGITS_MODEL_H
#define DIGITS_MODEL_H

#include "images.h"

enum { MODEL_UP, MODEL_DOWN, MODEL_LAYERS };

typedef struct model {
    tsr_layer *layers[MODEL_LAYERS]; /* a column-parallel and a row-parallel layer */
    tsr_fsdp *sharded;               /* the layers' parameters, sharded over the grid's column */
    tsr_optimizer *optimizer;        /* of the sharded parameters */
    int64_t last_step; /* the number of the training's last step; until then, the learning rate
                          falls as a cosine */
    double learning_rate;
    tsr_tensor *losses, *loss_sum; /* the losses of a batch's images; their sum in an epoch, [1] */
    tsr_tensor *dlogits, *classes; /* memory for the largest batch: the gradient of the logits, and
                                      the predicted classes */
} model;

/* Call model_finish() afterwards, also on failure. */
tsr_status model_init(model *self, const example_job *job, const digits_options *options,
                      int64_t steps_per_epoch);
void model_finish(model *self);

/* Trains with one batch. Adds the losses of its images to the sum that model_take_loss returns. */
tsr_status model_train(model *self, const example_job *job, const images_batch *batch);
/* Writes the predicted classes [rows] of a batch to the caller's memory. Adds the losses of the
 * images to the sum that model_take_loss returns. */
tsr_status model_classify(model *self, const example_job *job, const images_batch *batch,
                          int32_t *classes);
/* Gives the sum of losses since the last call, over the images of all ranks. */
tsr_status model_take_loss(model *self, const example_job *job, double *out);

/* Save and load the model with the number of finished epochs. Files of any grid and strategy can be
 * loaded. Files of other programs have no number of epochs; it is then 0. */
tsr_status model_save(model *self, const example_job *job, const char *path, int epochs);
tsr_status model_load(model *self, const example_job *job, const char *path, int *epochs);

#endif
