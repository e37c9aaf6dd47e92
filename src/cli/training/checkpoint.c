/* Checkpoints: what is trained, the optimizer's state, the number of steps, and the options of the
 * training, so that --resume needs no other option. */
#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/json.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"
#include "cli/training/run.h"

#define MAX_OPTIONS 100000000 /* bytes: the longest header that a file can have */
#define MOST_INTEGER 9e15     /* the highest value of --seed */

static const training_saved_option common_options[] = {
    {"model", TRAINING_TEXT, &training_chosen.model, 0, NULL, false},
    {"dtype", TRAINING_INT, &training_chosen.dtype, 0, NULL, false},
    {"batch", TRAINING_INTEGER, &training_chosen.batch, 0, NULL, false},
    {"context", TRAINING_INTEGER, &training_chosen.context, 0, NULL, false},
    {"steps", TRAINING_INTEGER, &training_chosen.steps, 0, NULL, false},
    {"decay_steps", TRAINING_INTEGER, &training_chosen.decay_steps, 0, NULL, false},
    {"accumulate", TRAINING_INTEGER, &training_chosen.accumulate, 0, NULL, false},
    {"evaluate_every", TRAINING_INTEGER, &training_chosen.evaluate_every, 0, NULL, false},
    {"early_stop", TRAINING_INTEGER, &training_chosen.patience, 0, NULL, false},
    {"output", TRAINING_TEXT, &training_chosen.output, 0, NULL, false},
    {"seed", TRAINING_INTEGER, &training_chosen.seed, 0, NULL, false},
    {"warmup", TRAINING_INTEGER, &training_chosen.warmup, TRAINING_UNSET, NULL, false},
    {"schedule", TRAINING_INT, &training_chosen.schedule, TRAINING_UNSET, NULL, false},
    {"learning_rate", TRAINING_REAL, &training_chosen.learning_rate, TRAINING_UNSET, NULL, false},
    {"final_rate", TRAINING_REAL, &training_chosen.final_rate, TRAINING_UNSET, NULL, false},
    {"weight_decay", TRAINING_REAL, &training_chosen.weight_decay, TRAINING_UNSET, NULL, false},
    {"clip", TRAINING_REAL, &training_chosen.clip, TRAINING_UNSET, NULL, false},
    {"beta1", TRAINING_REAL, &training_chosen.beta1, TRAINING_UNSET, NULL, false},
    {"beta2", TRAINING_REAL, &training_chosen.beta2, TRAINING_UNSET, NULL, false},
    {0},
};

#define MOST_OPTIONS 100

/* Lists the command's own options and the common ones. Returns their number. */
static int list_options(const training_kind *kind, const training_saved_option *out[MOST_OPTIONS])
{
    const training_saved_option *const tables[] = {kind->saved, common_options};
    int count = 0;
    for (int i = 0; i < 2; i++)
        for (const training_saved_option *o = tables[i]; o->name != NULL; o++)
            out[count++] = o;
    return count;
}

/* Writing -------------------------------------------------------------------------------------- */

static json_t *print_option(const training_saved_option *option)
{
    switch (option->kind) {
    case TRAINING_INTEGER:
        return json_integer(*(const int64_t *)option->value);
    case TRAINING_INT:
        return json_integer(*(const int *)option->value);
    case TRAINING_REAL:
        return json_real(*(const double *)option->value);
    case TRAINING_FLAG:
        return json_boolean(*(const bool *)option->value);
    case TRAINING_TEXT:
        break;
    }
    const char *text = *(const char *const *)option->value;
    return text != NULL ? json_string(text) : json_null();
}

/* Prints all options as a JSON object. Returns NULL if a path is not UTF-8. */
static char *print_options(const training_kind *kind)
{
    const training_files *files = &training_chosen.data;
    const training_saved_option *options[MOST_OPTIONS];
    const int option_count = list_options(kind, options);
    json_t *root = json_object(), *list = json_array();
    bool good = true;
    for (int i = 0; i < option_count; i++)
        good = json_object_set_new(root, options[i]->name, print_option(options[i])) == 0 && good;
    for (int i = 0; i < files->count; i++)
        good = json_array_append_new(list, json_pack("[sf]", files->paths[i], files->weights[i])) ==
                   0 &&
               good;
    good = json_object_set_new(root, "data", list) == 0 && good;
    char *text = good ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return text;
}

tsr_status training_checkpoint_save(training_run *r)
{
    tsr_lora_info info = TSR_INIT(tsr_lora_info);
    if (r->model.lora != NULL)
        TRY(tsr_lora_get_info(r->model.lora, &info));
    training_chosen.passes = (int64_t)info.passes;
    char *options = print_options(r->kind);
    if (options == NULL)
        return training_fail("the path of a file is not UTF-8, so a checkpoint cannot hold it");
    const char *const metadata[] = {r->kind->options_key, options, NULL};
    const tsr_status status = tsr_optimizer_save(
        r->model.optimizer, training_chosen.checkpoint,
        tsr_optimizer_file_params(.world = r->job.world, .stages = r->job.stages,
                                  .metadata = metadata, .parts = training_chosen.parts));
    free(options);
    return status;
}

/* Reading -------------------------------------------------------------------------------------- */

/* Prints the value of a fixed option. A value that is not set is printed as `usual`; NULL: as no
 * text. */
static void print_fixed(const training_saved_option *option, const json_t *value, const char *usual,
                        char *text, size_t size)
{
    const double number = json_number_value(value);
    if (number == option->unset)
        snprintf(text, size, "%s", usual != NULL ? usual : "");
    else if (option->value == &training_chosen.targets)
        cli_print_targets((unsigned)number, text, size);
    else
        snprintf(text, size, "%g", number);
}

/* Refuses an option that the training in the checkpoint did not have. */
static int refuse_new(const char *name)
{
    return cli_failed("%s: the training in %s was begun without --%s, so it cannot go on with that",
                      training_name, training_chosen.resume, name);
}

static int check_fixed_text(const training_saved_option *option, const json_t *saved)
{
    const char *given = *(const char *const *)option->value, *there = json_string_value(saved);
    if (there == NULL && option->value == &training_chosen.layers)
        there = "all";
    if (given == NULL || (there != NULL && strcmp(given, there) == 0))
        return CLI_DONE;
    if (there == NULL)
        return refuse_new(option->fixed);
    return cli_failed("%s: --%s is %s, but the training in %s was begun with %s", training_name,
                      option->fixed, given, training_chosen.resume, there);
}

/* Refuses an option of the command line that does not fit the tensors in the checkpoint. */
static int check_fixed(const training_saved_option *option, const json_t *saved)
{
    char own[64], theirs[64], alpha[32];
    const char *path = training_chosen.resume, *name = option->fixed, *usual = NULL;
    if (option->kind == TRAINING_FLAG)
        return !*(const bool *)option->value || json_is_true(saved) ? CLI_DONE : refuse_new(name);
    if (option->kind == TRAINING_TEXT)
        return check_fixed_text(option, saved);
    snprintf(alpha, sizeof alpha, "%g", 2.0 * (double)training_chosen.rank); /* is known already */
    if (option->value == &training_chosen.alpha)
        usual = alpha;
    else if (option->value == &training_chosen.targets)
        usual = "q,k,v,o,gate,up,down";
    json_t *given = print_option(option);
    const bool is_set = json_number_value(given) != option->unset;
    print_fixed(option, given, usual, own, sizeof own);
    print_fixed(option, saved, usual, theirs, sizeof theirs);
    json_decref(given);
    if (!is_set || strcmp(own, theirs) == 0)
        return CLI_DONE;
    if (theirs[0] == '\0')
        return refuse_new(name);
    return cli_failed("%s: --%s is %s, but the training in %s was begun with %s", training_name,
                      name, own, path, theirs);
}

/* Returns whether a value is an integer that an option can have. */
static bool is_possible(const training_saved_option *option, const json_t *value)
{
    const double most =
        option->value == &training_chosen.shape.layers ? TSR_MODEL_MAX_LAYERS : MOST_INTEGER;
    const double number = (double)json_integer_value(value);
    return json_is_integer(value) && number >= option->unset && number <= most;
}

/* Sets an option to the value that a checkpoint has. Returns false if that has another type, or is
 * outside of what is possible. The texts of `value` must live as long as the options. */
static bool take_option(const training_saved_option *option, const json_t *value)
{
    switch (option->kind) {
    case TRAINING_INTEGER:
        if (is_possible(option, value) && (double)*(int64_t *)option->value == option->unset)
            *(int64_t *)option->value = json_integer_value(value);
        return is_possible(option, value);
    case TRAINING_INT:
        if (json_is_integer(value) && *(int *)option->value == (int)option->unset)
            *(int *)option->value = (int)json_integer_value(value);
        return json_is_integer(value);
    case TRAINING_REAL:
        if (json_is_number(value) && *(double *)option->value == option->unset)
            *(double *)option->value = json_number_value(value);
        return json_is_number(value);
    case TRAINING_FLAG:
        *(bool *)option->value = *(bool *)option->value || json_is_true(value);
        return json_is_boolean(value);
    case TRAINING_TEXT:
        break;
    }
    const char **text = option->value;
    if (*text == NULL)
        *text = json_string_value(value);
    return json_is_string(value) || json_is_null(value);
}

static bool take_files(const json_t *list)
{
    training_files *files = &training_chosen.data;
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

/* Returns whether --held-out sets an option. */
static bool is_held_out(const training_saved_option *option)
{
    return option->value == &training_chosen.held_out_file ||
           option->value == &training_chosen.held_out;
}

/* Finds a part of the checkpoint --resume on this host: NAME-0000i-of-0000n.safetensors, or the
 * same with .previous behind. */
static bool find_part(size_t size, char *out)
{
    const char *path = training_chosen.resume, *slash = strrchr(path, '/'),
               *name = slash != NULL ? slash + 1 : path, *suffix = strstr(name, ".safetensors");
    const int folder = (int)(name - path);
    const size_t length = suffix != NULL ? (size_t)(suffix - name) : strlen(name);
    bool found = false;
    snprintf(out, size, "%.*s", folder > 0 ? folder : 1, folder > 0 ? path : ".");
    DIR *open = opendir(out);
    for (const struct dirent *entry; open != NULL && !found && (entry = readdir(open)) != NULL;) {
        const char *file = entry->d_name;
        unsigned part, count;
        int used = 0;
        found =
            strncmp(file, name, length) == 0 &&
            sscanf(file + length, "-%5u-of-%5u.safetensors%n", &part, &count, &used) == 2 &&
            used > 0 &&
            (file[length + (size_t)used] == '\0' || strcmp(file + length + used, ".previous") == 0);
        if (found)
            snprintf(out, size, "%.*s%s", folder, path, file);
    }
    if (open != NULL)
        closedir(open);
    return found;
}

/* Reads the options in the checkpoint. Those of parts are found by all ranks of `world` together,
 * but a process that joins them takes those of its host. */
static tsr_status read_options(const training_kind *kind, tsr_comm *world, char *text)
{
    const char *path = training_chosen.resume;
    char part[4096];
    if (!training_chosen.parts || !training_job_is_joining())
        return tsr_checkpoint_metadata(path, world,
                                       tsr_checkpoint_params(.parts = training_chosen.parts),
                                       kind->options_key, MAX_OPTIONS, text);
    if (!find_part(sizeof part, part))
        return training_fail("this host has no part of %s, so this process cannot join: it does "
                             "not know the options of the training",
                             path);
    return tsr_checkpoint_metadata(part, NULL, NULL, kind->options_key, MAX_OPTIONS, text);
}

int training_checkpoint_options(const training_kind *kind, tsr_comm *world)
{
    static json_t *root; /* has the texts of the options */
    const char *path = training_chosen.resume;
    char *text = cli_alloc(MAX_OPTIONS, 1);
    if (read_options(kind, world, text) != TSR_OK) {
        free(text);
        return cli_failed("%s: this is no checkpoint of %s: %s", training_name, training_name,
                          training_problem());
    }
    root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    bool good = json_is_object(root) && take_files(json_object_get(root, "data"));
    const bool recounts = training_chosen.epochs > 0, has_held_out = training_chosen.held_out_given;
    const training_saved_option *options[MOST_OPTIONS];
    const int count = list_options(kind, options);
    for (int i = 0; good && i < count; i++) {
        const training_saved_option *option = options[i];
        const json_t *value = json_object_get(root, option->name);
        const int code = option->fixed != NULL ? check_fixed(option, value) : CLI_DONE;
        if (has_held_out && is_held_out(option))
            continue;
        if (code != CLI_DONE)
            return code;
        good = (value == NULL && option->is_newer) || take_option(option, value);
    }
    if (recounts)
        training_chosen.steps = 0; /* of --epochs */
    if (training_chosen.checkpoint == NULL)
        training_chosen.checkpoint = path;
    good = good && training_chosen.held_out <= 0.5; /* as on the command line */
    return good ? CLI_DONE
                : cli_failed("%s: %s: the options in it are damaged", training_name, path);
}

tsr_status training_checkpoint_load(training_run *r)
{
    if (training_chosen.resume == NULL)
        return TSR_OK;
    TRY(tsr_optimizer_load(
        r->model.optimizer, training_chosen.resume,
        tsr_optimizer_file_params(.world = r->job.world, .parts = training_chosen.parts)));
    r->step = r->done.first_step = r->done.saved_step = tsr_optimizer_steps(r->model.optimizer);
    return TSR_OK;
}
