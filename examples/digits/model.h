/* The network and its optimizer: 64 → hidden (GELU) → 10, AdamW. */
#ifndef DIGITS_MODEL_H
#define DIGITS_MODEL_H

#include "images.h"

enum { MODEL_UP, MODEL_DOWN, MODEL_LAYERS };

typedef struct model {
    tsr_layer *layers[MODEL_LAYERS]; /* column-parallel, row-parallel */
    tsr_fsdp *sharded;               /* their parameters, over the grid's column */
    int64_t last_step; /* of the training: the learning rate falls towards it, as a cosine */
    tsr_adamw_params adamw;
    double learning_rate;
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

/* With the number of epochs that there have been. Loading takes a file of any grid and strategy, of
 * other programs too, which have no such number: 0. */
tsr_status model_save(model *self, const digits_job *job, const char *path, int epochs);
tsr_status model_load(model *self, const digits_job *job, const char *path, int *epochs);

#endif
