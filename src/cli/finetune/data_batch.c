/* The tokens of rows: documents are read and encoded again when they are used. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/data_set.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

#define NO_LOSS (-100)

/* Reads the line of an entry into set->line, unless it is there. */
static int read_line(data_set *set, data_source *source, const data_entry *entry)
{
    data_problem problem;
    bool more = false;
    if (set->line_source == source && set->line_offset == entry->offset && set->line[0].count > 0)
        return CLI_DONE;
    data_document_free(&set->line[0]);
    data_document_free(&set->line[1]);
    errno = 0;
    if (source->lines.file == NULL &&
        !data_lines_open(&source->lines, source->path, set->options.context))
        return cli_failed("data: cannot read %s: %s", source->path, strerror(errno));
    if (!data_lines_seek(&source->lines, entry->offset) || !data_lines_next(&source->lines, &more))
        return cli_failed("data: cannot read %s: %s", source->path,
                          errno != 0 ? strerror(errno) : "a line is too long");
    if (!more || !data_document_read(&set->form, &source->lines, set->line, &problem))
        return cli_failed("data: %s has changed at byte %" PRIu64 " since it was opened",
                          source->path, entry->offset);
    set->line_source = source;
    set->line_offset = entry->offset;
    return CLI_DONE;
}

/* Returns which piece of its document an entry is. */
static uint64_t piece_of(const data_side *side, const data_source *source, uint64_t entry)
{
    uint64_t piece = 0;
    while (entry - piece > source->first &&
           side->entries[entry - piece - 1].offset == side->entries[entry].offset)
        piece++;
    return piece;
}

static void need_weights(data_batch *batch)
{
    const size_t count = (size_t)(batch->rows * batch->context);
    if (batch->weights != NULL)
        return;
    batch->weights = cli_alloc(count, sizeof *batch->weights);
    for (size_t i = 0; i < count; i++)
        batch->weights[i] = 1;
}

/* Writes `inputs` tokens of a document from `first` on to a row, at place `at`. */
static void write_tokens(data_batch *batch, int64_t row, int64_t at, const data_document *document,
                         uint64_t first, uint64_t inputs)
{
    for (uint64_t i = 0; i < inputs; i++) {
        const int64_t to = row * batch->context + at + (int64_t)i;
        const float weight = document->weights[first + i + 1];
        batch->ids[to] = document->ids[first + i];
        if (batch->starts != NULL)
            batch->starts[to] = (int32_t)at;
        if (weight == 0)
            continue;
        batch->labels[to] = document->ids[first + i + 1];
        batch->unmasked++;
        if (weight != 1)
            need_weights(batch);
        if (batch->weights != NULL)
            batch->weights[to] = weight;
    }
    batch->tokens += (int64_t)inputs;
}

/* Writes an entry to a row, at place *at, which it advances. `which` is 1 for the rejected one of a
 * pair. */
static int write_entry(data_set *set, data_side *side, uint64_t number, int which,
                       data_batch *batch, int64_t row, int64_t *at)
{
    const data_entry *entry = &side->entries[number];
    data_source *source = data_source_of(side, number);
    const int code = read_line(set, source, entry);
    if (code != CLI_DONE)
        return code;
    const data_document *document = &set->line[which];
    const uint64_t context = (uint64_t)set->options.context,
                   first = document->divisible ? piece_of(side, source, number) * context : 0,
                   left = document->count > first + 1 ? document->count - 1 - first : 0,
                   inputs = left < context ? left : context;
    if (set->options.pairs ? inputs > entry->inputs : inputs != entry->inputs)
        return cli_failed("data: %s has changed at byte %" PRIu64 " since it was opened",
                          source->path, entry->offset);
    write_tokens(batch, row, *at, document, first, inputs);
    *at += (int64_t)inputs;
    return CLI_DONE;
}

static int write_row(data_set *set, data_side *side, int64_t number, data_batch *batch, int64_t row)
{
    const uint64_t *entries = NULL;
    const int64_t each = set->options.pairs ? 2 : 1;
    uint64_t count;
    int64_t at = 0, epoch;
    int code = data_row_find(set, side, number / each, &entries, &count, &epoch);
    if (row == 0)
        batch->epoch = epoch;
    for (uint64_t i = 0; i < count && code == CLI_DONE; i++)
        code = write_entry(set, side, entries[i], (int)(number % each), batch, row, &at);
    /* padding is a document of its own */
    for (int64_t t = at; t < batch->context && batch->starts != NULL; t++)
        batch->starts[row * batch->context + t] = (int32_t)at;
    return code;
}

int data_get_batch(data_set *set, data_part part, int64_t first, int64_t count, data_batch *out)
{
    data_batch batch = data_batch_create(count, set->options.context);
    int code = CLI_DONE;
    if (!set->options.unpacked)
        batch.starts = cli_alloc((size_t)(count * batch.context), sizeof *batch.starts);
    for (int64_t row = 0; row < count && code == CLI_DONE; row++)
        code = write_row(set, &set->side[part], first + row, &batch, row);
    if (code == CLI_DONE)
        *out = batch;
    else
        data_batch_free(&batch);
    return code;
}

int data_count_labels(data_set *set, data_part part, int64_t first, int64_t count, int64_t *out)
{
    data_side *side = &set->side[part];
    const int64_t each = set->options.pairs ? 2 : 1;
    int64_t labels = 0;
    /* a pair's labels are those of both of its rows, so ranges that divide a pair are counted by
     * rows */
    if (first % each != 0 || count % each != 0)
        return cli_failed("data: rows %lld to %lld divide a pair", (long long)first,
                          (long long)(first + count - 1));
    for (int64_t row = first; row < first + count; row += each) {
        const uint64_t *entries = NULL;
        uint64_t found;
        int64_t epoch;
        const int code = data_row_find(set, side, row / each, &entries, &found, &epoch);
        if (code != CLI_DONE)
            return code;
        for (uint64_t i = 0; i < found; i++)
            labels += side->entries[entries[i]].trained;
    }
    *out = labels;
    return CLI_DONE;
}
