#include "cli/training/rows.h"

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

void data_batch_free(data_batch *batch)
{
    free(batch->ids);
    free(batch->labels);
    free(batch->starts);
    free(batch->weights);
    *batch = (data_batch){0};
}
