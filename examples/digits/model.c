#include "model.h"

#include <math.h>

#define PI 3.14159265358979323846
/* Parameters begin at multiples of this many elements, where any device reads them fastest. */
#define ALIGNMENT 64

static int64_t local_count(const tsr_parameter *parameter)
{
    int64_t count = 1;
    for (int i = 0; i < parameter->ndim; i++)
        count *= i == parameter->shard_dim ? parameter->length : parameter->global_shape[i];
    return count;
}

static int64_t aligned(int64_t count)
{
    return (count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Elements first … of a flat tensor, in the parameter's shape. */
static tsr_status place(const tsr_tensor *flat, int64_t first, const tsr_parameter *parameter,
                        tsr_tensor **out)
{
    int64_t shape[TSR_MAX_DIMS];
    tsr_tensor *slice = NULL;
    for (int i = 0; i < parameter->ndim; i++)
        shape[i] = i == parameter->shard_dim ? parameter->length : parameter->global_shape[i];
    TRY(tsr_tensor_slice(flat, 0, first, first + local_count(parameter), 1, &slice));
    tsr_status status = tsr_tensor_reshape(slice, parameter->ndim, shape, out);
    tsr_tensor_destroy(&slice);
    return status;
}

static tsr_status init_parameter(model *self, const digits_job *job, int index, int64_t first)
{
    const tsr_parameter *parameter = tsr_layer_parameter(self->mlp, index);
    tsr_tensor *value = NULL, *grad = NULL, *flat = NULL;
    tsr_status status = place(self->values, first, parameter, &value);
    if (status == TSR_OK)
        status = place(self->grads, first, parameter, &grad);
    if (status == TSR_OK)
        status = tsr_layer_set_parameter(self->mlp, index, value, grad, false);
    if (status == TSR_OK)
        status = tsr_tensor_slice(self->values, 0, first, first + local_count(parameter), 1, &flat);
    if (status == TSR_OK)
        status = tsr_layer_initial(self->mlp, index, job->stream, 0, flat);
    tsr_tensor_destroy(&value);
    tsr_tensor_destroy(&grad);
    tsr_tensor_destroy(&flat);
    return status;
}

static tsr_status create_zeros(const digits_job *job, tsr_dtype dtype, int64_t count,
                               tsr_tensor **out)
{
    TRY(tsr_tensor_create(job->device, dtype, 1, &count, out));
    return tsr_fill(job->stream, *out, 0);
}

static tsr_status init_parameters(model *self, const digits_job *job, tsr_dtype dtype)
{
    int parameters = tsr_layer_parameter_count(self->mlp);
    int64_t first = 0;
    for (int i = 0; i < parameters; i++)
        self->count += aligned(local_count(tsr_layer_parameter(self->mlp, i)));
    TRY(create_zeros(job, dtype, self->count, &self->values));
    TRY(create_zeros(job, TSR_F32, self->count, &self->grads));
    TRY(create_zeros(job, TSR_F32, self->count, &self->moment1));
    TRY(create_zeros(job, TSR_F32, self->count, &self->moment2));
    for (int i = 0; i < parameters; i++) {
        TRY(init_parameter(self, job, i, first));
        first += aligned(local_count(tsr_layer_parameter(self->mlp, i)));
    }
    if (dtype == TSR_F32)
        return TSR_OK;
    TRY(tsr_tensor_create(job->device, TSR_F32, 1, &self->count, &self->master));
    return tsr_copy(job->stream, self->master, self->values);
}

tsr_status model_init(model *self, const digits_job *job, const digits_options *options,
                      int64_t steps_per_epoch)
{
    int64_t seed, rows = options->batch / job->data, one = 1;
    const tsr_seed_point init = {.base = options->seed, .kind = TSR_SEED_OP, .op = 0};
    *self = (model){.last_step = steps_per_epoch * options->epochs,
                    .learning_rate = options->learning_rate,
                    .adamw = {.weight_decay = (float)options->weight_decay}};
    TRY(tsr_seed_hashed(&init, &seed));
    TRY(tsr_mlp_create(
        tsr_mlp_params(.group = job->tensor_group, .name = "mlp", .input_size = DIGITS_PIXELS,
                       .hidden_size = options->hidden, .output_size = DIGITS_LABELS,
                       .activation = TSR_ACT_RELU, .dtype = options->dtype,
                       .init = {.kind = TSR_INIT_TORCH, .seed = (uint64_t)seed},
                       .partition = {.kind = TSR_PARTITION_UNEVEN}, .deferred = true),
        &self->mlp));
    TRY(init_parameters(self, job, options->dtype));
    TRY(tsr_tensor_create(job->device, TSR_F32, 1, &rows, &self->losses));
    TRY(create_zeros(job, TSR_F32, one, &self->loss_sum));
    TRY(tsr_tensor_create(job->device, options->dtype, 2, (int64_t[]){rows, DIGITS_LABELS},
                          &self->dlogits));
    return tsr_tensor_create(job->device, TSR_I32, 1, &rows, &self->classes);
}

void model_finish(model *self)
{
    tsr_layer_destroy(&self->mlp);
    tsr_tensor_destroy(&self->values);
    tsr_tensor_destroy(&self->grads);
    tsr_tensor_destroy(&self->master);
    tsr_tensor_destroy(&self->moment1);
    tsr_tensor_destroy(&self->moment2);
    tsr_tensor_destroy(&self->losses);
    tsr_tensor_destroy(&self->loss_sum);
    tsr_tensor_destroy(&self->dlogits);
    tsr_tensor_destroy(&self->classes);
}

/* Cross-entropy into the sum and, where `dlogits` is not NULL, its gradient: of the mean over the
 * images of all ranks. */
static tsr_status add_loss(model *self, const digits_job *job, const images_batch *batch,
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

/* Gradients of this rank's images. */
static tsr_status compute_gradients(model *self, const digits_job *job, const images_batch *batch)
{
    tsr_layer_saved *saved = NULL;
    tsr_tensor *logits = NULL, *dlogits = NULL;
    tsr_status status = tsr_layer_forward(self->mlp, batch->x, &saved, &logits);
    if (status == TSR_OK)
        status = tsr_tensor_slice(self->dlogits, 0, 0, batch->rows, 1, &dlogits);
    if (status == TSR_OK)
        status = add_loss(self, job, batch, logits, dlogits);
    if (status == TSR_OK)
        status = tsr_layer_backward(self->mlp, saved, dlogits, NULL);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&logits);
    tsr_tensor_destroy(&dlogits);
    return status;
}

tsr_status model_train(model *self, const digits_job *job, const images_batch *batch)
{
    TRY(compute_gradients(self, job, batch));
    TRY(tsr_parallel_all_reduce(job->data_group, self->grads, TSR_OP_SUM));
    double done = (double)self->steps / (double)self->last_step;
    self->adamw.learning_rate = (float)(self->learning_rate * 0.5 * (1 + cos(PI * done)));
    self->adamw.step = ++self->steps;
    TRY(tsr_adamw_step(job->stream, self->values, self->grads, self->moment1, self->moment2,
                       self->master, &self->adamw));
    tsr_layer_zero_grad(self->mlp);
    return TSR_OK;
}

tsr_status model_classify(model *self, const digits_job *job, const images_batch *batch,
                          int32_t *classes)
{
    tsr_tensor *logits = NULL, *found = NULL;
    tsr_status status = tsr_layer_forward(self->mlp, batch->x, NULL, &logits);
    if (status == TSR_OK)
        status = add_loss(self, job, batch, logits, NULL);
    if (status == TSR_OK)
        status = tsr_tensor_slice(self->classes, 0, 0, batch->rows, 1, &found);
    if (status == TSR_OK)
        status = tsr_argmax(job->stream, found, logits, 1);
    if (status == TSR_OK)
        status = tsr_tensor_download(job->stream, found, classes,
                                     (uint64_t)batch->rows * sizeof *classes);
    tsr_tensor_destroy(&logits);
    tsr_tensor_destroy(&found);
    return status;
}

tsr_status model_take_loss(model *self, const digits_job *job, double *out)
{
    float sum;
    TRY(tsr_parallel_all_reduce(job->data_group, self->loss_sum, TSR_OP_SUM));
    TRY(tsr_tensor_download(job->stream, self->loss_sum, &sum, sizeof sum));
    *out = (double)sum;
    return tsr_fill(job->stream, self->loss_sum, 0);
}
