#include "cli/training/rows.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"

data_batch data_batch_create(int64_t rows, int64_t context)
{
    const size_t size = (size_t)rows * (size_t)context;
    data_batch batch = {.rows = rows, .context = context};
    batch.ids = cli_alloc(size, sizeof *batch.ids);
    batch.labels = cli_alloc(size, sizeof *batch.labels);
    for (size_t i = 0; i < size; i++)
        batch.labels[i] = DATA_NO_LABEL;
    return batch;
}

void data_batch_put(data_batch *batch, int64_t row, const int32_t *tokens)
{
    const size_t context = (size_t)batch->context, at = (size_t)row * context;
    memcpy(batch->ids + at, tokens, context * sizeof *tokens);
    memcpy(batch->labels + at, tokens + 1, context * sizeof *tokens);
    batch->unmasked += batch->context;
    batch->tokens += batch->context;
}

/* Moves the values of the tokens in the ranges, 4 bytes each, to the front. */
static void select_values(const data_batch *batch, const tsr_shard_range ranges[2], void *values)
{
    char *all = values;
    size_t to = 0;
    for (int64_t row = 0; row < batch->rows; row++)
        for (int i = 0; i < 2; i++) {
            const size_t from = (size_t)(row * batch->context) + (size_t)ranges[i].start,
                         count = (size_t)ranges[i].count;
            memmove(all + to * sizeof(int32_t), all + from * sizeof(int32_t),
                    count * sizeof(int32_t));
            to += count;
        }
}

void data_batch_select(data_batch *batch, const tsr_shard_range ranges[2])
{
    static_assert(sizeof(float) == sizeof(int32_t), "weights are moved as numbers of 4 bytes");
    void *const values[] = {batch->ids, batch->labels, batch->starts, batch->weights};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (values[i] != NULL)
            select_values(batch, ranges, values[i]);
    batch->context = (int64_t)(ranges[0].count + ranges[1].count);
    batch->unmasked = 0;
    for (int64_t i = 0; i < batch->rows * batch->context; i++)
        batch->unmasked += batch->labels[i] != DATA_NO_LABEL;
}

void data_batch_free(data_batch *batch)
{
    free(batch->ids);
    free(batch->labels);
    free(batch->starts);
    free(batch->weights);
    *batch = (data_batch){0};
}
