#include "images.h"

#include <stdlib.h>
#include <string.h>

#define HELD_OUT_OF 5
#define IMAGE_BYTES (DIGITS_PIXELS * sizeof(float))
#define ITEM_BYTES (IMAGE_BYTES + sizeof(int32_t))
/* The label of padding: tsr_cross_entropy ignores such rows. */
#define NO_LABEL (-1)

/* Loads a batch in a loader's thread: the images, then their labels. */
static tsr_status load(void *user, tsr_loader_work *work)
{
    const images *self = user;
    float *pixels = work->data;
    int32_t *labels = (int32_t *)(void *)((char *)work->data + work->count * IMAGE_BYTES);
    for (uint64_t i = 0; i < work->count; i++) {
        int64_t item = self->items[work->indices[i]];
        memcpy(pixels + i * DIGITS_PIXELS, self->data->pixels + item * DIGITS_PIXELS, IMAGE_BYTES);
        labels[i] = work->mask[i] ? self->data->labels[item] : NO_LABEL;
    }
    return TSR_OK;
}

/* Chooses the images for training or those held out. The choice does not depend on the training's
 * seed, so that trainings with different seeds can be compared. */
static tsr_status choose_items(images *self, images_part part)
{
    tsr_feistel order;
    int64_t n = self->data->count, held_out = n / HELD_OUT_OF;
    TRY(tsr_feistel_init((uint64_t)n, 0, 0, 0, &order));
    self->count = part == IMAGES_HELD_OUT ? held_out : n - held_out;
    self->items = malloc((size_t)n * sizeof *self->items);
    if (!self->items)
        return TSR_ERR_NO_MEMORY;
    tsr_feistel_fill(&order, part == IMAGES_HELD_OUT ? 0 : (uint64_t)held_out, 1,
                     (uint64_t)self->count, self->items);
    return TSR_OK;
}

/* Of the epoch's order of images, row r of the grid of ranks gets the images r, r + n, r + 2n, …,
 * where n is the number of rows. Together the rows load the batch that a single row would load, so
 * the trained model does not depend on the grid. */
static tsr_status create_loader(images *self, images_part part, const example_job *job,
                                const digits_options *options)
{
    int64_t seed;
    tsr_sampler *sampler = NULL, *batches = NULL;
    const tsr_seed_point shuffle = {.base = options->seed, .kind = TSR_SEED_OP, .op = 1};
    TRY(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &shuffle, &seed));
    TRY(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = (uint64_t)self->count, .ranks = job->data,
                                       .rank = job->data_rank,
                                       .order = part == IMAGES_TRAIN ? TSR_ORDER_FEISTEL
                                                                     : TSR_ORDER_NONE,
                                       .tail = TSR_TAIL_PAD_MASK, .seed = seed),
        &sampler));
    tsr_status status = tsr_sampler_create_batch(
        tsr_sampler_batch_params(.base = sampler, .batch_size = self->batch / job->data), &batches);
    if (status == TSR_OK)
        status = tsr_loader_create(
            tsr_loader_params(.batch_sampler = batches, .n = 0, .load_batch = load, .user = self,
                              .item_bytes = ITEM_BYTES, .workers = options->workers,
                              .seed = options->seed),
            &self->loader);
    tsr_sampler_destroy(&sampler);
    tsr_sampler_destroy(&batches);
    return status;
}

tsr_status images_init(images *self, const digits_data *data, images_part part,
                       const example_job *job, const digits_options *options)
{
    int64_t rows = options->batch / job->data;
    *self = (images){.data = data, .batch = options->batch};
    TRY(choose_items(self, part));
    TRY(create_loader(self, part, job, options));
    TRY(tsr_tensor_create(job->device, TSR_F32, 2, (int64_t[]){rows, DIGITS_PIXELS}, &self->raw));
    TRY(tsr_tensor_create(job->device, options->dtype, 2, (int64_t[]){rows, DIGITS_PIXELS},
                          &self->x));
    return tsr_tensor_create(job->device, TSR_I32, 1, &rows, &self->labels);
}

void images_finish(images *self)
{
    tsr_loader_destroy(&self->loader);
    tsr_tensor_destroy(&self->raw);
    tsr_tensor_destroy(&self->x);
    tsr_tensor_destroy(&self->labels);
    free(self->items);
    *self = (images){0};
}

static tsr_status upload(images *self, tsr_stream *stream, const tsr_loader_batch *loaded,
                         images_batch *out)
{
    tsr_tensor *raw = NULL;
    const char *labels = (const char *)loaded->data + loaded->count * IMAGE_BYTES;
    TRY(tsr_tensor_slice(self->x, 0, 0, out->rows, 1, &out->x));
    TRY(tsr_tensor_slice(self->labels, 0, 0, out->rows, 1, &out->labels));
    TRY(tsr_tensor_slice(self->raw, 0, 0, out->rows, 1, &raw));
    tsr_status status =
        tsr_tensor_upload(stream, raw, loaded->data, (uint64_t)out->rows * IMAGE_BYTES);
    if (status == TSR_OK)
        status = tsr_copy(stream, out->x, raw);
    tsr_tensor_destroy(&raw);
    TRY(status);
    out->expected = (const int32_t *)(const void *)labels;
    return tsr_tensor_upload(stream, out->labels, labels, (uint64_t)out->rows * sizeof(int32_t));
}

tsr_status images_next(images *self, tsr_stream *stream, images_batch *out, bool *got)
{
    tsr_loader_batch loaded = TSR_INIT(tsr_loader_batch);
    TRY(tsr_loader_next(self->loader, &loaded, got));
    if (!*got)
        return TSR_OK;
    int64_t before = (int64_t)loaded.batch * self->batch, left = self->count - before;
    *out = (images_batch){.rows = (int64_t)loaded.count,
                          .total = left < self->batch ? left : self->batch};
    tsr_status status = upload(self, stream, &loaded, out);
    if (status != TSR_OK)
        images_batch_finish(out);
    return status;
}

void images_batch_finish(images_batch *batch)
{
    tsr_tensor_destroy(&batch->x);
    tsr_tensor_destroy(&batch->labels);
}
