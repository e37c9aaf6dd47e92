/* The recorded run of --reference: its settings, the rows of --text, and its first adapter. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/finetune.h"
#include "cli/lib/memory.h"
#include "cli/training/characters.h"
#include "cli/training/recorded.h"

typedef struct recorded_rows {
    int32_t *tokens; /* [count]: the text of --text */
    int64_t count;
    int64_t *offsets; /* [offset_count]: where each row starts in `tokens` */
    int64_t offset_count;
} recorded_rows;

static tsr_status get_rows(const training_source *self, data_part part, int64_t first,
                           int64_t count, data_batch *out)
{
    const recorded_rows *rows = self->user;
    (void)part;
    if (first + count > rows->offset_count)
        return training_fail("the recorded run has %" PRId64 " rows, but row %" PRId64 " is needed",
                             rows->offset_count, first + count);
    *out = data_batch_create(count, self->context);
    for (int64_t i = 0; i < count; i++)
        data_batch_put(out, i, rows->tokens + rows->offsets[first + i]);
    return TSR_OK;
}

static tsr_status count_labels(const training_source *self, data_part part, int64_t first,
                               int64_t count, int64_t *out)
{
    (void)part;
    (void)first;
    *out = count * self->context;
    return TSR_OK;
}

static void close_rows(void *user)
{
    recorded_rows *rows = user;
    free(rows->tokens);
    free(rows->offsets);
    free(rows);
}

static tsr_status take_text(const char *path, recorded_rows *rows, int *vocabulary)
{
    training_characters characters = {0};
    char *bytes = NULL;
    size_t size = 0;
    TRY(training_read_text(path, &bytes, &size));
    const tsr_status status = training_characters_add(&characters, path, bytes, size);
    if (status == TSR_OK)
        training_characters_encode(&characters, bytes, size, &rows->tokens, &rows->count);
    *vocabulary = characters.count;
    free(characters.codes);
    free(bytes);
    return status;
}

/* Returns the path of a name beside the file `path`; the caller frees it. */
static char *path_beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    const size_t folder = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    char *out = cli_alloc(folder + strlen(name) + 1, 1);
    memcpy(out, path, folder);
    strcpy(out + folder, name); /* NOLINT: fits */
    return out;
}

static tsr_status take_run(training_recorded *r, training_run *out, recorded_rows *rows)
{
    const char *init = training_recorded_text(r, NULL, "adapter_init");
    int vocabulary = 0;
    TRY(training_recorded_settings(r));
    if (init == NULL && !training_chosen.full)
        return training_fail("%s: \"adapter_init\" is missing", r->path);
    out->source.context = training_chosen.context;
    TRY(take_text(training_chosen.text, rows, &vocabulary));
    const int64_t recorded = training_recorded_count(r, "config", "vocab", vocabulary);
    TRY(r->status);
    if (recorded != vocabulary)
        return training_fail("%s has %d different characters, but %s was recorded with %lld",
                             training_chosen.text, vocabulary, r->path, (long long)recorded);
    TRY(training_recorded_offsets(r, rows->count, &rows->offsets, &rows->offset_count));
    if (init != NULL)
        out->adapter = path_beside(r->path, init);
    return TSR_OK;
}

tsr_status finetune_reference_read(training_run *out)
{
    training_recorded r;
    recorded_rows *rows = cli_alloc(1, sizeof *rows);
    out->source = (training_source){
        .user = rows, .get = get_rows, .count = count_labels, .close = close_rows};
    tsr_status status = training_recorded_open(training_chosen.reference, &r);
    if (status == TSR_OK)
        status = take_run(&r, out, rows);
    training_recorded_close(&r);
    return status;
}
