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
#define MAX_OPTIONS 100000000 /* bytes: the longest header that a file can have */

typedef enum option_kind { INTEGER, REAL, FLAG, TEXT, NUMBER } option_kind; /* NUMBER: an int */

/* An option that a checkpoint holds. It is taken from the checkpoint if it has the value `unset`.
 */
typedef struct saved_option {
    const char *name;
    option_kind kind;
    void *value;
    double unset;
    const char *fixed; /* name on the command line, if the tensors of a checkpoint depend on it */
} saved_option;

static const saved_option saved_options[] = {
    {"model", TEXT, &finetune_chosen.model, 0, NULL},
    {"held_out_file", TEXT, &finetune_chosen.held_out_file, 0, NULL},
    {"held_out", REAL, &finetune_chosen.held_out, 0, NULL},
    {"format", NUMBER, &finetune_chosen.format, 0, NULL},
    {"loss_on_all", FLAG, &finetune_chosen.loss_on_all, 0, NULL},
    {"skip_bad", FLAG, &finetune_chosen.skip_bad, 0, NULL},
    {"cut", FLAG, &finetune_chosen.cut, 0, NULL},
    {"unpacked", FLAG, &finetune_chosen.unpacked, 0, NULL},
    {"unshuffled", FLAG, &finetune_chosen.unshuffled, 0, NULL},
    {"reference", TEXT, &finetune_chosen.reference, 0, NULL},
    {"text", TEXT, &finetune_chosen.text, 0, NULL},
    {"dpo", FLAG, &finetune_chosen.dpo, 0, NULL},
    {"beta", REAL, &finetune_chosen.beta, 0, NULL},
    {"full", FLAG, &finetune_chosen.full, 0, "full"},
    {"rank", INTEGER, &finetune_chosen.rank, 0, "lora-rank"},
    {"alpha", REAL, &finetune_chosen.alpha, 0, "lora-alpha"},
    {"dropout", REAL, &finetune_chosen.dropout, 0, NULL},
    {"rank_stabilised", FLAG, &finetune_chosen.rank_stabilised, 0, "rslora"},
    {"passes", INTEGER, &finetune_chosen.passes, 0, NULL},
    {"dora", FLAG, &finetune_chosen.dora, 0, "dora"},
    {"targets", NUMBER, &finetune_chosen.targets, 0, "targets"},
    {"layers", TEXT, &finetune_chosen.layers, 0, "layers"},
    {"dtype", NUMBER, &finetune_chosen.dtype, 0, NULL},
    {"batch", INTEGER, &finetune_chosen.batch, 0, NULL},
    {"context", INTEGER, &finetune_chosen.context, 0, NULL},
    {"steps", INTEGER, &finetune_chosen.steps, 0, NULL},
    {"decay_steps", INTEGER, &finetune_chosen.decay_steps, 0, NULL},
    {"accumulate", INTEGER, &finetune_chosen.accumulate, 0, NULL},
    {"evaluate_every", INTEGER, &finetune_chosen.evaluate_every, 0, NULL},
    {"early_stop", INTEGER, &finetune_chosen.patience, 0, NULL},
    {"output", TEXT, &finetune_chosen.output, 0, NULL},
    {"seed", INTEGER, &finetune_chosen.seed, 0, NULL},
    {"warmup", INTEGER, &finetune_chosen.warmup, FINETUNE_UNSET, NULL},
    {"schedule", NUMBER, &finetune_chosen.schedule, FINETUNE_UNSET, NULL},
    {"learning_rate", REAL, &finetune_chosen.learning_rate, FINETUNE_UNSET, NULL},
    {"final_rate", REAL, &finetune_chosen.final_rate, FINETUNE_UNSET, NULL},
    {"weight_decay", REAL, &finetune_chosen.weight_decay, FINETUNE_UNSET, NULL},
    {"clip", REAL, &finetune_chosen.clip, FINETUNE_UNSET, NULL},
    {"beta1", REAL, &finetune_chosen.beta1, FINETUNE_UNSET, NULL},
    {"beta2", REAL, &finetune_chosen.beta2, FINETUNE_UNSET, NULL},
};
#define SAVED_COUNT (sizeof saved_options / sizeof *saved_options)

/* Options that checkpoints of older versions lack. Their trainings had the usual values. */
static const char *const newer_options[] = {"passes", "dora", "layers"};

static bool is_newer(const saved_option *option)
{
    for (size_t i = 0; i < sizeof newer_options / sizeof *newer_options; i++)
        if (strcmp(option->name, newer_options[i]) == 0)
            return true;
    return false;
}

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
    tsr_lora_info info = TSR_INIT(tsr_lora_info);
    if (r->model.lora != NULL)
        TRY(tsr_lora_get_info(r->model.lora, &info));
    finetune_chosen.passes = (int64_t)info.passes;
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

/* Prints the value of a fixed option. A value that is not set is printed as `usual`. */
static void print_fixed(const saved_option *option, const json_t *value, const char *usual,
                        char *text, size_t size)
{
    const double number = json_number_value(value);
    if (number == option->unset)
        snprintf(text, size, "%s", usual);
    else if (option->value == &finetune_chosen.targets)
        cli_print_targets((unsigned)number, text, size);
    else
        snprintf(text, size, "%g", number);
}

/* Refuses an option of the command line that does not fit the tensors in the checkpoint. */
static int check_fixed(const saved_option *option, const json_t *saved)
{
    char own[64], theirs[64], usual[32] = "q,k,v,o,gate,up,down";
    const char *path = finetune_chosen.resume, *name = option->fixed;
    if (option->kind == FLAG)
        return !*(const bool *)option->value || json_is_true(saved)
                   ? CLI_DONE
                   : cli_failed("finetune: the training in %s was begun without --%s, so it "
                                "cannot go on with that",
                                path, name);
    if (option->kind == TEXT) {
        const char *given = *(const char *const *)option->value,
                   *there = json_is_string(saved) ? json_string_value(saved) : NULL;
        return given == NULL || (there != NULL && strcmp(given, there) == 0)
                   ? CLI_DONE
                   : cli_failed("finetune: --%s is %s, but the training in %s was begun with %s",
                                name, given, path, there != NULL ? there : "all");
    }
    if (option->value == &finetune_chosen.alpha) /* the rank is known already */
        snprintf(usual, sizeof usual, "%g", 2.0 * (double)finetune_chosen.rank);
    json_t *given = print_option(option);
    const bool is_set = json_number_value(given) != option->unset;
    print_fixed(option, given, usual, own, sizeof own);
    print_fixed(option, saved, usual, theirs, sizeof theirs);
    json_decref(given);
    if (!is_set || strcmp(own, theirs) == 0)
        return CLI_DONE;
    return cli_failed("finetune: --%s is %s, but the training in %s was begun with %s", name, own,
                      path, theirs);
}

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
    const bool recounts = finetune_chosen.epochs > 0;
    for (size_t i = 0; good && i < SAVED_COUNT; i++) {
        const saved_option *option = &saved_options[i];
        const json_t *value = json_object_get(root, option->name);
        const int code = option->fixed != NULL ? check_fixed(option, value) : CLI_DONE;
        if (code != CLI_DONE)
            return code;
        good = (value == NULL && is_newer(option)) || take_option(option, value);
    }
    if (recounts)
        finetune_chosen.steps = 0; /* of --epochs */
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
