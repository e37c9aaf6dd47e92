/* Checkpoints: what is trained, the optimizer's state, the number of steps, and the options of the
 * training, so that --resume needs no other option. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/finetune/run.h"
#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

#define OPTIONS_KEY "tessera.finetune"
#define MAX_OPTIONS (1 << 16) /* bytes */

typedef enum option_kind { INTEGER, REAL, FLAG, TEXT, NUMBER } option_kind; /* NUMBER: an int */

/* An option that a checkpoint holds. It is taken from the checkpoint if it has the value `unset`.
 */
typedef struct saved_option {
    const char *name;
    option_kind kind;
    void *value;
    double unset;
} saved_option;

static const saved_option saved_options[] = {
    {"model", TEXT, &finetune_chosen.model, 0},
    {"held_out_file", TEXT, &finetune_chosen.held_out_file, 0},
    {"held_out", REAL, &finetune_chosen.held_out, 0},
    {"format", NUMBER, &finetune_chosen.format, 0},
    {"loss_on_all", FLAG, &finetune_chosen.loss_on_all, 0},
    {"skip_bad", FLAG, &finetune_chosen.skip_bad, 0},
    {"cut", FLAG, &finetune_chosen.cut, 0},
    {"unpacked", FLAG, &finetune_chosen.unpacked, 0},
    {"unshuffled", FLAG, &finetune_chosen.unshuffled, 0},
    {"reference", TEXT, &finetune_chosen.reference, 0},
    {"text", TEXT, &finetune_chosen.text, 0},
    {"dpo", FLAG, &finetune_chosen.dpo, 0},
    {"beta", REAL, &finetune_chosen.beta, 0},
    {"full", FLAG, &finetune_chosen.full, 0},
    {"rank", INTEGER, &finetune_chosen.rank, 0},
    {"alpha", REAL, &finetune_chosen.alpha, 0},
    {"dropout", REAL, &finetune_chosen.dropout, 0},
    {"rank_stabilised", FLAG, &finetune_chosen.rank_stabilised, 0},
    {"dora", FLAG, &finetune_chosen.dora, 0},
    {"targets", NUMBER, &finetune_chosen.targets, 0},
    {"dtype", NUMBER, &finetune_chosen.dtype, 0},
    {"batch", INTEGER, &finetune_chosen.batch, 0},
    {"context", INTEGER, &finetune_chosen.context, 0},
    {"steps", INTEGER, &finetune_chosen.steps, 0},
    {"decay_steps", INTEGER, &finetune_chosen.decay_steps, 0},
    {"seed", INTEGER, &finetune_chosen.seed, 0},
    {"warmup", INTEGER, &finetune_chosen.warmup, FINETUNE_UNSET},
    {"schedule", NUMBER, &finetune_chosen.schedule, FINETUNE_UNSET},
    {"learning_rate", REAL, &finetune_chosen.learning_rate, FINETUNE_UNSET},
    {"final_rate", REAL, &finetune_chosen.final_rate, FINETUNE_UNSET},
    {"weight_decay", REAL, &finetune_chosen.weight_decay, FINETUNE_UNSET},
    {"clip", REAL, &finetune_chosen.clip, FINETUNE_UNSET},
    {"beta1", REAL, &finetune_chosen.beta1, 0},
    {"beta2", REAL, &finetune_chosen.beta2, 0},
};
#define SAVED_COUNT (sizeof saved_options / sizeof *saved_options)

/* Writing -------------------------------------------------------------------------------------- */

static json_t *print_option(const saved_option *option)
{
    switch (option->kind) {
    case INTEGER:
        return json_integer(*(const int64_t *)option->value);
    case NUMBER:
        return json_integer(*(const int *)option->value);
    case REAL:
        return json_real(*(const double *)option->value);
    case FLAG:
        return json_boolean(*(const bool *)option->value);
    case TEXT:
        break;
    }
    const char *text = *(const char *const *)option->value;
    return text != NULL ? json_string(text) : json_null();
}

/* Prints all options as a JSON object. Returns NULL if a path is not UTF-8. */
static char *print_options(void)
{
    const finetune_files *files = &finetune_chosen.data;
    json_t *root = json_object(), *list = json_array();
    bool good = true;
    for (size_t i = 0; i < SAVED_COUNT; i++)
        good = json_object_set_new(root, saved_options[i].name, print_option(&saved_options[i])) ==
                   0 &&
               good;
    for (int i = 0; i < files->count; i++)
        good = json_array_append_new(list, json_pack("[sf]", files->paths[i], files->weights[i])) ==
                   0 &&
               good;
    good = json_object_set_new(root, "data", list) == 0 && good;
    char *text = good ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

tsr_status finetune_checkpoint_save(finetune_run *r)
{
    char *options = print_options();
    if (options == NULL)
        return finetune_fail("the path of a file is not UTF-8, so a checkpoint cannot hold it");
    const char *const metadata[] = {OPTIONS_KEY, options, NULL};
    const tsr_status status =
        tsr_optimizer_save(r->model.optimizer, finetune_chosen.checkpoint,
                           tsr_optimizer_file_params(.world = r->job.world, .stages = r->job.stages,
                                                     .metadata = metadata));
    free(options);
    return status;
}

/* Reading -------------------------------------------------------------------------------------- */

/* Sets an option to the value that a checkpoint has. Returns false if that has another type. The
 * texts of `value` must live as long as the options. */
static bool take_option(const saved_option *option, const json_t *value)
{
    switch (option->kind) {
    case INTEGER:
        if (json_is_integer(value) && (double)*(int64_t *)option->value == option->unset)
            *(int64_t *)option->value = json_integer_value(value);
        return json_is_integer(value);
    case NUMBER:
        if (json_is_integer(value) && *(int *)option->value == (int)option->unset)
            *(int *)option->value = (int)json_integer_value(value);
        return json_is_integer(value);
    case REAL:
        if (json_is_number(value) && *(double *)option->value == option->unset)
            *(double *)option->value = json_number_value(value);
        return json_is_number(value);
    case FLAG:
        *(bool *)option->value = *(bool *)option->value || json_is_true(value);
        return json_is_boolean(value);
    case TEXT:
        break;
    }
    const char **text = option->value;
    if (*text == NULL)
        *text = json_string_value(value);
    return json_is_string(value) || json_is_null(value);
}

static bool take_files(const json_t *list)
{
    finetune_files *files = &finetune_chosen.data;
    const size_t count = json_array_size(list);
    if (files->count > 0)
        return json_is_array(list);
    files->paths = cli_alloc(count + 1, sizeof *files->paths);
    files->weights = cli_alloc(count + 1, sizeof *files->weights);
    for (size_t i = 0; i < count; i++) {
        const json_t *file = json_array_get(list, i);
        files->paths[i] = json_string_value(json_array_get(file, 0));
        files->weights[i] = json_number_value(json_array_get(file, 1));
        if (files->paths[i] == NULL || !(files->weights[i] > 0))
            return false;
        files->count++;
    }
    return json_is_array(list);
}

int finetune_checkpoint_options(void)
{
    static json_t *root; /* has the texts of the options */
    const char *path = finetune_chosen.resume;
    char *text = cli_alloc(MAX_OPTIONS, 1);
    if (tsr_checkpoint_metadata(path, NULL, NULL, OPTIONS_KEY, MAX_OPTIONS, text) != TSR_OK) {
        free(text);
        return cli_failed("finetune: this is no checkpoint of finetune: %s", tsr_last_error());
    }
    root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    bool good = json_is_object(root) && take_files(json_object_get(root, "data"));
    for (size_t i = 0; good && i < SAVED_COUNT; i++)
        good = take_option(&saved_options[i], json_object_get(root, saved_options[i].name));
    if (finetune_chosen.checkpoint == NULL)
        finetune_chosen.checkpoint = path;
    return good ? CLI_DONE : cli_failed("finetune: %s: the options in it are damaged", path);
}

tsr_status finetune_checkpoint_load(finetune_run *r)
{
    if (finetune_chosen.resume == NULL)
        return TSR_OK;
    TRY(tsr_optimizer_load(r->model.optimizer, finetune_chosen.resume,
                           tsr_optimizer_file_params(.world = r->job.world)));
    r->step = r->done.first_step = r->done.saved_step = tsr_optimizer_steps(r->model.optimizer);
    return TSR_OK;
}
