/* A recorded run, with which a fine-tuning is compared: tests/data/training describes the format.
 * Its vocabulary are the characters of the text, in ascending order of their code points. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/finetune.h"
#include "cli/lib/memory.h"
#include "cli/training/characters.h"

/* Rows ----------------------------------------------------------------------------------------- */

typedef struct recorded_run {
    int32_t *tokens; /* [count]: the text of --text */
    int64_t count;
    int64_t *offsets; /* [offset_count]: where each row starts in `tokens` */
    int64_t offset_count;
} recorded_run;

static tsr_status get_rows(const training_source *self, data_part part, int64_t first,
                           int64_t count, data_batch *out)
{
    const recorded_run *run = self->user;
    (void)part;
    if (first + count > run->offset_count)
        return training_fail("the recorded run has %" PRId64 " rows, but row %" PRId64 " is needed",
                             run->offset_count, first + count);
    *out = data_batch_create(count, self->context);
    for (int64_t i = 0; i < count; i++)
        data_batch_put(out, i, run->tokens + run->offsets[first + i]);
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

static void close_run(void *user)
{
    recorded_run *run = user;
    free(run->tokens);
    free(run->offsets);
    free(run);
}

static tsr_status take_text(const char *path, recorded_run *run, int *vocabulary)
{
    training_characters characters = {0};
    char *bytes = NULL;
    size_t size = 0;
    TRY(training_read_text(path, &bytes, &size));
    const tsr_status status = training_characters_add(&characters, path, bytes, size);
    if (status == TSR_OK)
        training_characters_encode(&characters, bytes, size, &run->tokens, &run->count);
    *vocabulary = characters.count;
    free(characters.codes);
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
        r->status = training_fail("%s: \"%s\" is not a number from 0 to %.0f", r->path, name, most);
    return missing;
}

/* Returns a number of 1 or more that the file must have. */
static int64_t count_of(reader *r, const json_t *object, const char *name)
{
    const double number = number_of(r, object, name, 0, 1 << 30);
    if (number < 1 && r->status == TSR_OK)
        r->status =
            training_fail("%s: \"%s\" is missing, or is no number from 1 on", r->path, name);
    return (int64_t)number;
}

static void take_settings(reader *r, const json_t *root)
{
    training_options *o = &training_chosen;
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
    o->learning_rate = number_of(r, how, "lr", TRAINING_UNSET, 1e9);
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
            training_fail("%s: \"schedule\" is neither constant nor warmup-cosine", r->path);
    if (r->status == TSR_OK && o->learning_rate < 0)
        r->status = training_fail("%s: \"lr\" is missing", r->path);
}

/* Reads where the rows of each step start. */
static void take_offsets(reader *r, const json_t *steps, int64_t context, recorded_run *run)
{
    const size_t count = json_array_size(steps), batch = (size_t)training_chosen.batch;
    const int64_t last = run->count - context - 1;
    run->offsets = cli_alloc(count * batch + 1, sizeof *run->offsets);
    run->offset_count = (int64_t)(count * batch);
    for (size_t i = 0; i < count; i++) {
        const json_t *row = json_array_get(steps, i);
        if (json_array_size(row) != batch) {
            r->status = training_fail("%s: step %zu of \"offsets\" does not have %zu rows", r->path,
                                      i, batch);
            return;
        }
        for (size_t j = 0; j < batch; j++) {
            const json_t *value = json_array_get(row, j);
            const int64_t start = json_integer_value(value);
            if (!json_is_integer(value) || start < 0 || start > last) {
                r->status = training_fail("%s: row %zu of step %zu starts at %lld, but the text "
                                          "has rows from 0 to %lld",
                                          r->path, j, i, (long long)start, (long long)last);
                return;
            }
            run->offsets[i * batch + j] = start;
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

static tsr_status take_run(reader *r, const json_t *root, training_run *out, recorded_run *run)
{
    const char *init = json_string_value(json_object_get(root, "adapter_init"));
    int vocabulary = 0;
    take_settings(r, root);
    if (r->status == TSR_OK && init == NULL && !training_chosen.full)
        r->status = training_fail("%s: \"adapter_init\" is missing", r->path);
    if (r->status != TSR_OK)
        return r->status;
    out->source.context = training_chosen.context;
    TRY(take_text(training_chosen.text, run, &vocabulary));
    const int64_t recorded =
        (int64_t)number_of(r, json_object_get(root, "config"), "vocab", vocabulary, 1 << 30);
    if (r->status == TSR_OK && recorded != vocabulary)
        r->status = training_fail("%s has %d different characters, but %s was recorded with %lld",
                                  training_chosen.text, vocabulary, r->path, (long long)recorded);
    if (r->status == TSR_OK)
        take_offsets(r, json_object_get(root, "offsets"), out->source.context, run);
    if (r->status == TSR_OK && training_chosen.steps * training_chosen.batch > run->offset_count)
        r->status = training_fail("--steps %lld, but %s has %lld", (long long)training_chosen.steps,
                                  r->path, (long long)(run->offset_count / training_chosen.batch));
    if (r->status == TSR_OK && init != NULL)
        out->adapter = path_beside(r->path, init);
    return r->status;
}

tsr_status finetune_reference_read(training_run *out)
{
    reader r = {training_chosen.reference, TSR_OK};
    json_error_t problem;
    json_t *root = json_load_file(r.path, JSON_REJECT_DUPLICATES, &problem);
    if (root == NULL)
        return problem.line < 0 ? training_fail("%s: %s", r.path, problem.text)
                                : training_fail("%s:%d: %s", r.path, problem.line, problem.text);
    recorded_run *run = cli_alloc(1, sizeof *run);
    out->source =
        (training_source){.user = run, .get = get_rows, .count = count_labels, .close = close_run};
    const tsr_status status = take_run(&r, root, out, run);
    json_decref(root);
    return status;
}
