#include "windows.h"

#include <stdlib.h>
#include <string.h>

/* Loads an item in a thread of the loader: a window and the token after it. */
static tsr_status load(void *user, tsr_loader_work *work, int64_t index, void *item)
{
    const gpt_windows *self = user;
    (void)work;
    memcpy(item, self->text->tokens + index, ((size_t)self->block + 1) * sizeof(int32_t));
    return TSR_OK;
}

/* Each row of the grid gets every data-th window of the epoch's order, where `data` is the number
 * of rows, so that all rows together load the batch that a single row would load. If the batch does
 * not divide evenly, each row loads all of it and uses its part. */
static tsr_status create_loader(gpt_windows *self, const example_job *job,
                                const gpt_training *training, int workers)
{
    int64_t seed, windows = self->text->train - self->block;
    tsr_sampler *sampler = NULL, *batches = NULL;
    const tsr_seed_point shuffle = {.base = training->seed, .kind = TSR_SEED_OP, .op = 2};
    TRY(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED, &shuffle, &seed));
    TRY(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = (uint64_t)windows, .ranks = self->whole ? 1 : job->data,
                                       .rank = self->whole ? 0 : job->data_rank,
                                       .order = TSR_ORDER_FEISTEL, .tail = TSR_TAIL_DROP,
                                       .seed = seed),
        &sampler));
    tsr_status status = tsr_sampler_create_batch(
        tsr_sampler_batch_params(.base = sampler,
                                 .batch_size = self->whole ? self->batch : self->rows,
                                 .drop_last = true),
        &batches);
    if (status == TSR_OK)
        status = tsr_loader_create(
            tsr_loader_params(.batch_sampler = batches, .n = (uint64_t)windows, .load_item = load,
                              .user = self,
                              .item_bytes = ((uint64_t)self->block + 1) * sizeof(int32_t),
                              .workers = workers, .seed = training->seed),
            &self->loader);
    if (status == TSR_OK)
        self->epoch_batches = (int64_t)tsr_sampler_length(batches);
    self->epoch_batches -= self->epoch_batches % training->accumulate;
    tsr_sampler_destroy(&sampler);
    tsr_sampler_destroy(&batches);
    return status;
}

tsr_status windows_init(gpt_windows *self, const gpt_text *text, const gpt_offsets *offsets,
                        const example_job *job, const gpt_config *config, const gpt_chunks *chunks,
                        const gpt_training *training, int count, int workers)
{
    *self = (gpt_windows){.text = text,
                          .offsets = offsets,
                          .block = config->block,
                          .chunks = *chunks,
                          .rows = job_rows(job),
                          .first_row = job_first_row(job),
                          .batch = training->batch,
                          .whole = training->batch % job->data != 0};
    const int64_t shape[] = {self->rows, chunks->tokens};
    self->host = malloc(2 * (size_t)self->rows * (size_t)chunks->tokens * sizeof *self->host);
    self->batches = calloc((size_t)count, sizeof *self->batches);
    if (!self->host || !self->batches)
        return TSR_ERR_NO_MEMORY;
    self->count = count;
    if (!offsets)
        TRY(create_loader(self, job, training, workers));
    for (int i = 0; i < count; i++) {
        TRY(tsr_tensor_create(job->device, TSR_I32, 2, shape, &self->batches[i].x));
        TRY(tsr_tensor_create(job->device, TSR_I32, 2, shape, &self->batches[i].y));
    }
    return TSR_OK;
}

void windows_finish(gpt_windows *self)
{
    tsr_loader_destroy(&self->loader);
    for (int i = 0; i < self->count; i++) {
        tsr_tensor_destroy(&self->batches[i].x);
        tsr_tensor_destroy(&self->batches[i].y);
    }
    free(self->batches);
    free(self->host);
    *self = (gpt_windows){0};
}

/* Writes row `row` of the batch from a window and the token after it. */
static void put(gpt_windows *self, int row, const int32_t *tokens)
{
    const size_t own = (size_t)self->chunks.tokens, half = (size_t)self->rows * own;
    int32_t *x = self->host + (size_t)row * own;
    for (int i = 0; i < 2; i++) {
        const tsr_shard_range *chunk = &self->chunks.range[i];
        memcpy(x, tokens + chunk->start, chunk->count * sizeof *tokens);
        memcpy(x + half, tokens + chunk->start + 1, chunk->count * sizeof *tokens);
        x += chunk->count;
    }
}

static tsr_status upload(gpt_windows *self, tsr_stream *stream, const gpt_batch *to)
{
    size_t half = (size_t)self->rows * (size_t)self->chunks.tokens;
    TRY(tsr_tensor_upload(stream, to->x, self->host, half * sizeof *self->host));
    return tsr_tensor_upload(stream, to->y, self->host + half, half * sizeof *self->host);
}

static tsr_status load_next(gpt_windows *self, int64_t number)
{
    tsr_loader_batch loaded = TSR_INIT(tsr_loader_batch);
    bool got;
    if (number % self->epoch_batches == 0)
        TRY(tsr_loader_set_epoch(self->loader, number / self->epoch_batches));
    TRY(tsr_loader_next(self->loader, &loaded, &got));
    if (!got)
        return TSR_ERR_INVALID;
    const int first = self->whole ? self->first_row : 0;
    for (int row = 0; row < self->rows; row++)
        put(self, row,
            (const int32_t *)loaded.data + (size_t)(first + row) * ((size_t)self->block + 1));
    return TSR_OK;
}

tsr_status windows_seek(gpt_windows *self, int64_t number)
{
    if (self->offsets)
        return TSR_OK;
    TRY(tsr_loader_set_epoch(self->loader, number / self->epoch_batches));
    return tsr_loader_seek(self->loader, (uint64_t)(number % self->epoch_batches));
}

static tsr_status put_train(gpt_windows *self, int64_t number)
{
    if (!self->offsets)
        return load_next(self, number);
    const int64_t *starts = self->offsets->values + number * self->batch + self->first_row;
    for (int row = 0; row < self->rows; row++)
        put(self, row, self->text->tokens + starts[row]);
    return TSR_OK;
}

tsr_status windows_train(gpt_windows *self, tsr_stream *stream, int64_t first, int count)
{
    for (int i = 0; i < count; i++) {
        TRY(put_train(self, first + i));
        TRY(upload(self, stream, &self->batches[i]));
    }
    return TSR_OK;
}

static void put_held_out(gpt_windows *self, const tsr_feistel *order, uint64_t windows,
                         int64_t index)
{
    for (int row = 0; row < self->rows; row++) {
        uint64_t place = (uint64_t)(index * self->batch + self->first_row + row) % windows;
        int64_t start;
        tsr_feistel_fill(order, place, 1, 1, &start);
        put(self, row, self->text->tokens + self->text->train + start);
    }
}

tsr_status windows_held_out(gpt_windows *self, tsr_stream *stream, int64_t first, int count)
{
    uint64_t windows = (uint64_t)(self->text->count - self->text->train - self->block);
    tsr_feistel order;
    TRY(tsr_feistel_init(windows, 0, 0, 0, &order));
    for (int i = 0; i < count; i++) {
        put_held_out(self, &order, windows, first + i);
        TRY(upload(self, stream, &self->batches[i]));
    }
    return TSR_OK;
}
