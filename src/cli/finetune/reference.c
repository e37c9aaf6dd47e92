/* A recorded run, with which a fine-tuning is compared: tests/data/training describes the format.
 * Its vocabulary are the characters of the text, in ascending order of their code points. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/finetune.h"
#include "cli/lib/memory.h"
#include "cli/lib/text.h"

#define MAX_TEXT ((size_t)1 << 30) /* bytes */
#define MAX_CHARACTERS 65536       /* different ones */

/* The text ------------------------------------------------------------------------------------- */

static tsr_status read_text(const char *path, char **out, size_t *size)
{
    size_t capacity = 1 << 16, used = 0, got;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return finetune_fail("%s: %s", path, strerror(errno));
    char *bytes = cli_alloc(capacity, 1);
    while ((got = fread(bytes + used, 1, capacity - used - 1, file)) > 0) {
        used += got;
        if (used + 1 == capacity)
            bytes = cli_resize(bytes, capacity *= 2, 1);
        if (used > MAX_TEXT)
            break;
    }
    const bool bad = ferror(file) != 0;
    const int error = errno;
    fclose(file);
    if (bad || used > MAX_TEXT) {
        free(bytes);
        return bad ? finetune_fail("%s: %s", path, strerror(error))
                   : finetune_fail("%s: the text has more than %zu bytes", path, MAX_TEXT);
    }
    bytes[used] = '\0';
    *out = bytes;
    *size = used;
    return TSR_OK;
}

static int compare_codes(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Finds the different characters of a text: codes[*count], ascending. */
static tsr_status list_characters(const char *path, const uint32_t *text, int64_t length,
                                  uint32_t *codes, int *count)
{
    *count = 0;
    for (int64_t i = 0; i < length; i++) {
        if (bsearch(&text[i], codes, (size_t)*count, sizeof *codes, compare_codes) != NULL)
            continue;
        if (*count == MAX_CHARACTERS)
            return finetune_fail("%s: the text has more than %d different characters", path,
                                 MAX_CHARACTERS);
        codes[(*count)++] = text[i];
        qsort(codes, (size_t)*count, sizeof *codes, compare_codes);
    }
    return TSR_OK;
}

/* Replaces the characters of a text by their numbers. */
static tsr_status number_characters(const char *path, const char *bytes, size_t size,
                                    finetune_source *source, int *vocabulary)
{
    uint32_t *text = cli_alloc(size + 1, sizeof *text);
    uint32_t *codes = cli_alloc(MAX_CHARACTERS, sizeof *codes);
    tsr_status status = TSR_OK;
    int64_t length = 0;
    for (size_t i = 0; i < size && status == TSR_OK;) {
        const int used = cli_character(bytes + i, &text[length++]);
        if (used == 0)
            status = finetune_fail("%s: the text is not UTF-8 at byte %zu", path, i);
        i += (size_t)used;
    }
    if (status == TSR_OK)
        status = list_characters(path, text, length, codes, vocabulary);
    source->tokens = cli_alloc((size_t)length + 1, sizeof *source->tokens);
    source->count = length;
    for (int64_t i = 0; status == TSR_OK && i < length; i++) {
        const uint32_t *at =
            bsearch(&text[i], codes, (size_t)*vocabulary, sizeof *codes, compare_codes);
        source->tokens[i] = at != NULL ? (int32_t)(at - codes) : 0;
    }
    free(text);
    free(codes);
    return status;
}

static tsr_status take_text(const char *path, finetune_source *source, int *vocabulary)
{
    char *bytes = NULL;
    size_t size = 0;
    TRY(read_text(path, &bytes, &size));
    const tsr_status status = number_characters(path, bytes, size, source, vocabulary);
    free(bytes);
    return status;
}

/* The settings --------------------------------------------------------------------------------- */

/* A JSON file that is being read. */
typedef struct reader {
    const char *path;
    tsr_status status; /* of the first error */
} reader;

static double number_of(reader *r, const json_t *object, const char *name, double missing,
                        double most)
{
    const json_t *value = json_object_get(object, name);
    if (value == NULL || json_is_null(value))
        return missing;
    const double number = json_number_value(value);
    if (json_is_number(value) && number >= 0 && number <= most)
        return number;
    if (r->status == TSR_OK)
        r->status = finetune_fail("%s: \"%s\" is not a number from 0 to %.0f", r->path, name, most);
    return missing;
}

/* Returns a number of 1 or more that the file must have. */
static int64_t count_of(reader *r, const json_t *object, const char *name)
{
    const double number = number_of(r, object, name, 0, 1 << 30);
    if (number < 1 && r->status == TSR_OK)
        r->status =
            finetune_fail("%s: \"%s\" is missing, or is no number from 1 on", r->path, name);
    return (int64_t)number;
}

static void take_settings(reader *r, const json_t *root)
{
    finetune_options *o = &finetune_chosen;
    const json_t *config = json_object_get(root, "config"),
                 *how = json_object_get(root, "optimizer");
    const int64_t steps = (int64_t)json_array_size(json_object_get(root, "offsets"));
    const char *schedule = json_string_value(json_object_get(how, "schedule"));
    if (schedule == NULL) /* older recordings have a cosine, and do not say so */
        schedule = "warmup-cosine";
    o->context = count_of(r, config, "block");
    o->batch = count_of(r, config, "batch");
    if (o->steps == 0)
        o->steps = steps;
    o->learning_rate = number_of(r, how, "lr", FINETUNE_UNSET, 1e9);
    o->schedule =
        strcmp(schedule, "warmup-cosine") == 0 ? TSR_SCHEDULE_COSINE : TSR_SCHEDULE_CONSTANT;
    o->final_rate = number_of(r, how, "min_lr", o->learning_rate, 1e9);
    o->warmup = (int64_t)number_of(r, how, "warmup", 0, 1 << 30);
    o->decay_steps = (int64_t)number_of(r, how, "decay_iters", 0, 1 << 30);
    o->beta1 = number_of(r, how, "beta1", 0.9, 1);
    o->beta2 = number_of(r, how, "beta2", 0.999, 1);
    o->epsilon = number_of(r, how, "eps", 1e-8, 1);
    o->weight_decay = number_of(r, how, "wd", 0, 1e9);
    o->clip = number_of(r, how, "clip", 0, 1e9);
    if (r->status == TSR_OK && o->schedule == TSR_SCHEDULE_CONSTANT &&
        strcmp(schedule, "constant") != 0)
        r->status =
            finetune_fail("%s: \"schedule\" is neither constant nor warmup-cosine", r->path);
    if (r->status == TSR_OK && o->learning_rate < 0)
        r->status = finetune_fail("%s: \"lr\" is missing", r->path);
}

/* Reads where the rows of each step start. */
static void take_offsets(reader *r, const json_t *steps, finetune_source *source)
{
    const size_t count = json_array_size(steps), batch = (size_t)finetune_chosen.batch;
    const int64_t last = source->count - source->context - 1;
    source->offsets = cli_alloc(count * batch + 1, sizeof *source->offsets);
    source->offset_count = (int64_t)(count * batch);
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(steps, i);
        if (json_array_size(row) != batch) {
            r->status = finetune_fail("%s: step %zu of \"offsets\" does not have %zu rows", r->path,
                                      i, batch);
            return;
        }
        for (size_t j = 0; j < batch; j++) {
            const json_t *value = json_array_get(row, j);
            const int64_t start = json_integer_value(value);
            if (!json_is_integer(value) || start < 0 || start > last) {
                r->status = finetune_fail("%s: row %zu of step %zu starts at %lld, but the text "
                                          "has rows from 0 to %lld",
                                          r->path, j, i, (long long)start, (long long)last);
                return;
            }
            source->offsets[i * batch + j] = start;
        }
    }
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

static tsr_status take_run(reader *r, const json_t *root, finetune_source *source, char **adapter)
{
    const char *init = json_string_value(json_object_get(root, "adapter_init"));
    int vocabulary = 0;
    take_settings(r, root);
    if (r->status == TSR_OK && init == NULL && !finetune_chosen.full)
        r->status = finetune_fail("%s: \"adapter_init\" is missing", r->path);
    if (r->status != TSR_OK)
        return r->status;
    source->context = finetune_chosen.context;
    TRY(take_text(finetune_chosen.text, source, &vocabulary));
    const int64_t recorded =
        (int64_t)number_of(r, json_object_get(root, "config"), "vocab", vocabulary, 1 << 30);
    if (r->status == TSR_OK && recorded != vocabulary)
        r->status = finetune_fail("%s has %d different characters, but %s was recorded with %lld",
                                  finetune_chosen.text, vocabulary, r->path, (long long)recorded);
    if (r->status == TSR_OK)
        take_offsets(r, json_object_get(root, "offsets"), source);
    if (r->status == TSR_OK && finetune_chosen.steps * finetune_chosen.batch > source->offset_count)
        r->status =
            finetune_fail("--steps %lld, but %s has %lld", (long long)finetune_chosen.steps,
                          r->path, (long long)(source->offset_count / finetune_chosen.batch));
    if (r->status == TSR_OK && init != NULL)
        *adapter = path_beside(r->path, init);
    return r->status;
}

tsr_status finetune_reference_read(finetune_source *source, char **adapter)
{
    reader r = {finetune_chosen.reference, TSR_OK};
    json_error_t problem;
    json_t *root = json_load_file(r.path, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL)
        return problem.line < 0 ? finetune_fail("%s: %s", r.path, problem.text)
                                : finetune_fail("%s:%d: %s", r.path, problem.line, problem.text);
    const tsr_status status = take_run(&r, root, source, adapter);
    json_decref(root);
    return status;
}
