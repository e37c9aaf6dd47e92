/* Where the rows of a run come from: its data, or a recorded run. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/run.h"
#include "cli/lib/memory.h"

/* The data ------------------------------------------------------------------------------------- */

/* Finds the format of the model's messages. Files of plain text need none. */
static tsr_chat_format find_format(const tsr_tokenizer *tokenizer)
{
    tsr_chat_format format = finetune_chosen.format;
    if (format == TSR_CHAT_MODEL && tsr_chat_format_of(tokenizer, &format) != TSR_OK)
        format = TSR_CHAT_MODEL; /* data_open fails if there are messages */
    return format;
}

static int64_t batch_rows(void)
{
    const finetune_options *o = &finetune_chosen;
    return o->dpo ? 2 * o->batch : o->batch;
}

/* Sets the number of steps to that of --epochs. */
static tsr_status count_steps(data_set *set)
{
    finetune_options *o = &finetune_chosen;
    const int64_t epochs = o->epochs > 0 ? o->epochs : 1;
    int64_t rows = 0, all = 0;
    if (o->steps > 0)
        return TSR_OK;
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        if (data_rows(set, DATA_TRAIN, epoch, &rows) != CLI_DONE)
            return finetune_reported();
        all += rows;
    }
    o->steps = (all + batch_rows() - 1) / batch_rows();
    return TSR_OK;
}

tsr_status finetune_source_open(finetune_source *source, const tsr_tokenizer *tokenizer, bool quiet)
{
    finetune_options *o = &finetune_chosen;
    const data_options options = {.files = o->data.paths,
                                  .weights = o->data.weights,
                                  .file_count = o->data.count,
                                  .held_out_file = o->held_out_file,
                                  .held_out = o->held_out,
                                  .context = o->context,
                                  .seed = (uint64_t)o->seed,
                                  .pairs = o->dpo,
                                  .loss_on_all = o->loss_on_all,
                                  .skip_bad = o->skip_bad,
                                  .cut = o->cut,
                                  .unpacked = o->unpacked,
                                  .unshuffled = o->unshuffled,
                                  .quiet = quiet};
    source->context = o->context;
    if (data_open(&options, tokenizer, find_format(tokenizer), &source->set) != CLI_DONE ||
        data_rows(source->set, DATA_HELD_OUT, 0, &source->held_out) != CLI_DONE)
        return finetune_reported();
    return count_steps(source->set);
}

void finetune_source_close(finetune_source *source)
{
    data_close(&source->set);
    free(source->tokens);
    free(source->offsets);
    *source = (finetune_source){0};
}

/* Rows ----------------------------------------------------------------------------------------- */

/* Gives rows of a recorded run. */
static tsr_status recorded_rows(const finetune_source *source, int64_t first, int64_t count,
                                data_batch *out)
{
    const size_t row = (size_t)source->context, size = (size_t)count * row;
    if (first + count > source->offset_count)
        return finetune_fail("the recorded run has %" PRId64 " rows, but row %" PRId64 " is needed",
                             source->offset_count, first + count);
    *out = (data_batch){.rows = count,
                        .context = source->context,
                        .unmasked = (int64_t)size,
                        .tokens = (int64_t)size};
    out->ids = cli_alloc(size, sizeof *out->ids);
    out->labels = cli_alloc(size, sizeof *out->labels);
    for (int64_t i = 0; i < count; i++) {
        const int32_t *from = source->tokens + source->offsets[first + i];
        memcpy(out->ids + (size_t)i * row, from, row * sizeof *from);
        memcpy(out->labels + (size_t)i * row, from + 1, row * sizeof *from);
    }
    return TSR_OK;
}

tsr_status finetune_source_get(finetune_source *source, data_part part, int64_t first,
                               int64_t count, data_batch *out)
{
    if (source->set == NULL)
        return recorded_rows(source, first, count, out);
    return data_get_batch(source->set, part, first, count, out) == CLI_DONE ? TSR_OK
                                                                            : finetune_reported();
}

tsr_status finetune_source_count(finetune_source *source, data_part part, int64_t first,
                                 int64_t count, int64_t *out)
{
    *out = count * source->context;
    if (source->set == NULL)
        return TSR_OK;
    return data_count_labels(source->set, part, first, count, out) == CLI_DONE
               ? TSR_OK
               : finetune_reported();
}
