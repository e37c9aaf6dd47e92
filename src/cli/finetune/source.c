/* The data of tessera finetune. */
#include <stdlib.h>

#include "cli/finetune/data.h"
#include "cli/finetune/finetune.h"

/* Rows ----------------------------------------------------------------------------------------- */

static tsr_status get_rows(const training_source *self, data_part part, int64_t first,
                           int64_t count, data_batch *out)
{
    return data_get_batch(self->user, part, first, count, out) == CLI_DONE ? TSR_OK
                                                                           : training_reported();
}

static tsr_status count_labels(const training_source *self, data_part part, int64_t first,
                               int64_t count, int64_t *out)
{
    return data_count_labels(self->user, part, first, count, out) == CLI_DONE ? TSR_OK
                                                                              : training_reported();
}

static void close_data(void *user)
{
    data_set *set = user;
    data_close(&set);
}

/* Opening -------------------------------------------------------------------------------------- */

/* Finds the format of the model's messages. Files of plain text need none. */
static tsr_chat_format find_format(const tsr_tokenizer *tokenizer)
{
    tsr_chat_format format = training_chosen.format;
    if (format == TSR_CHAT_MODEL && tsr_chat_format_of(tokenizer, &format) != TSR_OK)
        format = TSR_CHAT_MODEL; /* data_open fails if there are messages */
    return format;
}

static int64_t batch_rows(void)
{
    const training_options *o = &training_chosen;
    return o->dpo ? 2 * o->batch : o->batch;
}

/* Sets the number of steps to that of --epochs. */
static tsr_status count_steps(data_set *set)
{
    training_options *o = &training_chosen;
    const int64_t epochs = o->epochs > 0 ? o->epochs : 1;
    int64_t rows = 0, all = 0;
    if (o->steps > 0)
        return TSR_OK;
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        if (data_rows(set, DATA_TRAIN, epoch, &rows) != CLI_DONE)
            return training_reported();
        all += rows;
    }
    o->steps = (all + batch_rows() - 1) / batch_rows();
    return TSR_OK;
}

/* Fails on all ranks if they have read different data. */
static tsr_status compare_data(const training_run *r, const data_set *set)
{
    static const char *const names[] = {"documents",          "tokens",
                                        "trained tokens",     "weighted documents",
                                        "held-out documents", "steps"};
    enum { VALUES = sizeof names / sizeof *names };
    data_counts trained, held_out;
    int64_t low[VALUES], high[VALUES];
    if (training_job_is_joining()) /* the others do not wait for this rank */
        return TSR_OK;
    data_get_counts(set, DATA_TRAIN, &trained);
    data_get_counts(set, DATA_HELD_OUT, &held_out);
    const int64_t own[VALUES] = {(int64_t)trained.documents,  (int64_t)trained.tokens,
                                 (int64_t)trained.trained,    (int64_t)trained.weighted,
                                 (int64_t)held_out.documents, training_chosen.steps};
    TRY(tsr_comm_all_reduce(r->job.world, own, low, VALUES, TSR_I64, TSR_OP_MIN, NULL));
    TRY(tsr_comm_all_reduce(r->job.world, own, high, VALUES, TSR_I64, TSR_OP_MAX, NULL));
    for (int i = 0; i < VALUES; i++)
        if (low[i] != high[i])
            return training_fail("the ranks have different data: rank %d has %lld %s, but the "
                                 "ranks have from %lld to %lld",
                                 r->job.rank, (long long)own[i], names[i], (long long)low[i],
                                 (long long)high[i]);
    return TSR_OK;
}

tsr_status finetune_source_open(training_run *r)
{
    const training_options *o = &training_chosen;
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
                                  .quiet = r->job.rank > 0};
    data_counts counts = {0};
    data_set *set = NULL;
    if (data_open(&options, r->tokenizer, find_format(r->tokenizer), &set) != CLI_DONE)
        return training_reported();
    r->source = (training_source){.context = o->context,
                                  .user = set,
                                  .get = get_rows,
                                  .count = count_labels,
                                  .close = close_data};
    if (data_rows(set, DATA_HELD_OUT, 0, &r->source.held_out) != CLI_DONE)
        return training_reported();
    data_get_counts(set, DATA_TRAIN, &counts);
    r->source.is_weighted = counts.weighted > 0;
    TRY(count_steps(set));
    return compare_data(r, set);
}
