#include "model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The activation must be smooth. At a kink, rounding could switch a gradient on or off, and grids
 * would give different models. */
#define ACTIVATION TSR_ACT_GELU_TANH
#define PI 3.14159265358979323846

static tsr_status create_layers(model *self, const example_job *job, const digits_options *options)
{
    int64_t seed;
    const tsr_seed_point init = {.base = options->seed, .kind = TSR_SEED_OP, .op = 0};
    TRY(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &init, &seed));
    tsr_linear_params params = {.struct_size = sizeof params,
                                .group = job->tensor_group,
                                .name = "up",
                                .input_size = DIGITS_PIXELS,
                                .output_size = options->hidden,
                                .dtype = options->dtype,
                                .init =
                                    tsr_init_params(.kind = TSR_INIT_TORCH, .seed = (uint64_t)seed),
                                .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                .deferred = true,
                                .bias = true};
    TRY(tsr_column_linear_create(&params, &self->layers[MODEL_UP]));
    params.name = "down";
    params.input_size = options->hidden;
    params.output_size = DIGITS_LABELS;
    return tsr_row_linear_create(&params, &self->layers[MODEL_DOWN]);
}

/* Makes a tsr_fsdp of the layers, each of which is a unit: its parameters are divided over the
 * ranks of the grid's column and gathered before use. With the strategy "none", every rank of the
 * column has all parameters, and only gradients are exchanged. */
static tsr_status shard(model *self, const example_job *job, const digits_options *options)
{
    static const char *const everything[] = {"*", NULL};
    bool shared = strcmp(options->strategy, "none") != 0;
    tsr_shard_kind kind = TSR_SHARD_FULL;
    tsr_shard_strategy *strategy = NULL;
    tsr_fsdp_unit units[MODEL_LAYERS];
    for (int i = 0; i < MODEL_LAYERS; i++)
        units[i] = *tsr_fsdp_unit(.layer = self->layers[i]);
    if (shared)
        TRY(tsr_shard_kind_parse(options->strategy, &kind));
    TRY(tsr_shard_strategy_create(tsr_shard_strategy_params(.kind = kind), &strategy));
    tsr_status status = tsr_fsdp_create(
        tsr_fsdp_params(.group = job->data_group, .unit_count = MODEL_LAYERS, .units = units,
                        .strategy = strategy, .gather = shared ? NULL : everything,
                        .reduction = TSR_OP_SUM),
        &self->sharded);
    tsr_shard_strategy_destroy(&strategy);
    return status;
}

tsr_status model_init(model *self, const example_job *job, const digits_options *options,
                      int64_t steps_per_epoch)
{
    int64_t rows = options->batch / job->data, one = 1;
    *self = (model){.last_step = steps_per_epoch * options->epochs,
                    .learning_rate = options->learning_rate};
    TRY(create_layers(self, job, options));
    TRY(shard(self, job, options));
    TRY(tsr_optimizer_create(
        tsr_optimizer_params(.stream = job->stream,
                             .adamw =
                                 tsr_adamw_params(.weight_decay = (float)options->weight_decay)),
        &self->optimizer));
    TRY(tsr_optimizer_add_fsdp(self->optimizer, self->sharded));
    TRY(tsr_tensor_create(job->device, TSR_F32, 1, &rows, &self->losses));
    TRY(tsr_tensor_create(job->device, TSR_F32, 1, &one, &self->loss_sum));
    TRY(tsr_fill(job->stream, self->loss_sum, 0));
    TRY(tsr_tensor_create(job->device, options->dtype, 2, (int64_t[]){rows, DIGITS_LABELS},
                          &self->dlogits));
    return tsr_tensor_create(job->device, TSR_I32, 1, &rows, &self->classes);
}

void model_finish(model *self)
{
    tsr_optimizer_destroy(&self->optimizer);
    tsr_fsdp_destroy(&self->sharded);
    for (int i = 0; i < MODEL_LAYERS; i++)
        tsr_layer_destroy(&self->layers[i]);
    tsr_tensor_destroy(&self->losses);
    tsr_tensor_destroy(&self->loss_sum);
    tsr_tensor_destroy(&self->dlogits);
    tsr_tensor_destroy(&self->classes);
}

/* The results of a forward pass that the backward pass needs. */
typedef struct passage {
    tsr_layer_saved *saved[MODEL_LAYERS];
    tsr_tensor *before, *hidden, *logits; /* before: input of the activation; hidden: its output */
} passage;

static void passage_finish(passage *p)
{
    for (int i = 0; i < MODEL_LAYERS; i++)
        tsr_layer_saved_destroy(&p->saved[i]);
    tsr_tensor_destroy(&p->before);
    tsr_tensor_destroy(&p->hidden);
    tsr_tensor_destroy(&p->logits);
}

static tsr_status forward(model *self, const example_job *job, const tsr_tensor *x, bool learning,
                          passage *p)
{
    TRY(tsr_fsdp_forward(self->sharded, MODEL_UP, x, learning ? &p->saved[MODEL_UP] : NULL,
                         &p->before));
    TRY(create_like(job->device, p->before, &p->hidden));
    TRY(tsr_activate(job->stream, p->hidden, p->before, NULL, ACTIVATION));
    return tsr_fsdp_forward(self->sharded, MODEL_DOWN, p->hidden,
                            learning ? &p->saved[MODEL_DOWN] : NULL, &p->logits);
}

/* Computes the gradients for this rank's images, and starts to add them over the ranks. */
static tsr_status backward(model *self, const example_job *job, const tsr_tensor *dlogits,
                           const passage *p)
{
    tsr_tensor *dhidden = NULL;
    TRY(tsr_fsdp_backward(self->sharded, MODEL_DOWN, p->saved[MODEL_DOWN], dlogits, &dhidden));
    tsr_status status = tsr_activate_grad(job->stream, dhidden, p->before, dhidden, ACTIVATION);
    if (status == TSR_OK)
        status = tsr_fsdp_backward(self->sharded, MODEL_UP, p->saved[MODEL_UP], dhidden, NULL);
    tsr_tensor_destroy(&dhidden);
    return status;
}

/* Adds the cross-entropy of this rank's images to self->loss_sum. If `dlogits` is not NULL, writes
 * the gradient of the mean over the images of all ranks to it. */
static tsr_status add_loss(model *self, const example_job *job, const images_batch *batch,
                           const tsr_tensor *logits, tsr_tensor *dlogits)
{
    tsr_tensor *losses = NULL;
    TRY(tsr_tensor_slice(self->losses, 0, 0, batch->rows, 1, &losses));
    tsr_status status = tsr_cross_entropy(job->stream, losses, dlogits, logits, batch->labels,
                                          1.0f / (float)batch->total);
    if (status == TSR_OK)
        status = tsr_reduce(job->stream, self->loss_sum, losses, 0, TSR_REDUCE_SUM, true);
    tsr_tensor_destroy(&losses);
    return status;
}

tsr_status model_train(model *self, const example_job *job, const images_batch *batch)
{
    passage p = {0};
    tsr_tensor *dlogits = NULL;
    tsr_status status = forward(self, job, batch->x, true, &p);
    if (status == TSR_OK)
        status = tsr_tensor_slice(self->dlogits, 0, 0, batch->rows, 1, &dlogits);
    if (status == TSR_OK)
        status = add_loss(self, job, batch, p.logits, dlogits);
    if (status == TSR_OK)
        status = backward(self, job, dlogits, &p);
    tsr_tensor_destroy(&dlogits);
    passage_finish(&p);
    TRY(status);
    double done = (double)tsr_optimizer_steps(self->optimizer) / (double)self->last_step;
    return tsr_optimizer_step(self->optimizer,
                              (float)(self->learning_rate * 0.5 * (1 + cos(PI * done))));
}

tsr_status model_classify(model *self, const example_job *job, const images_batch *batch,
                          int32_t *classes)
{
    passage p = {0};
    tsr_tensor *found = NULL;
    tsr_status status = forward(self, job, batch->x, false, &p);
    if (status == TSR_OK)
        status = add_loss(self, job, batch, p.logits, NULL);
    if (status == TSR_OK)
        status = tsr_tensor_slice(self->classes, 0, 0, batch->rows, 1, &found);
    if (status == TSR_OK)
        status = tsr_argmax(job->stream, found, p.logits, 1);
    if (status == TSR_OK)
        status = tsr_tensor_download(job->stream, found, classes,
                                     (uint64_t)batch->rows * sizeof *classes);
    tsr_tensor_destroy(&found);
    passage_finish(&p);
    return status;
}

tsr_status model_take_loss(model *self, const example_job *job, double *out)
{
    float sum;
    TRY(tsr_group_all_reduce(job->data_group, self->loss_sum, TSR_OP_SUM, NULL, NULL));
    TRY(tsr_tensor_download(job->stream, self->loss_sum, &sum, sizeof sum));
    *out = (double)sum;
    return tsr_fill(job->stream, self->loss_sum, 0);
}

tsr_status model_save(model *self, const example_job *job, const char *path, int epochs)
{
    char text[16];
    const char *const metadata[] = {"digits.epochs", text, NULL};
    snprintf(text, sizeof text, "%d", epochs);
    return tsr_optimizer_save(self->optimizer, path,
                              tsr_optimizer_file_params(.world = job->world, .metadata = metadata));
}

/* Reads the number of finished epochs from a checkpoint. A file of another program has no such
 * number; then *model_only is set, because the file has only parameters. */
static tsr_status read_epochs(const char *path, int *epochs, bool *model_only)
{
    char text[16], *end;
    tsr_status status =
        tsr_checkpoint_metadata(path, NULL, NULL, "digits.epochs", sizeof text, text);
    *epochs = 0;
    *model_only = status == TSR_ERR_NOT_FOUND;
    if (status != TSR_OK)
        return *model_only ? TSR_OK : status;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || value < 0 || value > 100000)
        return TSR_ERR_INVALID;
    *epochs = (int)value;
    return TSR_OK;
}

tsr_status model_load(model *self, const example_job *job, const char *path, int *epochs)
{
    bool model_only;
    TRY(read_epochs(path, epochs, &model_only));
    return tsr_optimizer_load(
        self->optimizer, path,
        tsr_optimizer_file_params(.world = job->world, .model_only = model_only));
}
