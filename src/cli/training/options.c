/* The options that the commands share: their values, defaults and checks. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/training/training.h"

const char *training_name;

training_options training_chosen = {
    .warmup = TRAINING_UNSET,
    .learning_rate = TRAINING_UNSET,
    .final_rate = TRAINING_UNSET,
    .weight_decay = TRAINING_UNSET,
    .clip = TRAINING_UNSET,
    .beta1 = TRAINING_UNSET,
    .beta2 = TRAINING_UNSET,
    .dropout = TRAINING_UNSET,
    .layer_dropout = TRAINING_UNSET,
    .schedule = (tsr_schedule_kind)TRAINING_UNSET,
    .timeout = 600,
};

bool training_read_schedule(void *user, const char *value, char *problem, size_t size)
{
    static const char *const names[] = {[TSR_SCHEDULE_CONSTANT] = "constant",
                                        [TSR_SCHEDULE_LINEAR] = "linear",
                                        [TSR_SCHEDULE_COSINE] = "cosine"};
    for (int i = 0; i < 3; i++)
        if (strcmp(value, names[i]) == 0) {
            *(tsr_schedule_kind *)user = (tsr_schedule_kind)i;
            return true;
        }
    snprintf(problem, size, "takes constant, linear or cosine, not '%.40s'", value);
    return false;
}

/* Adds the file path[length]. */
static void add_file(training_files *files, const char *path, size_t length, double weight)
{
    const size_t count = (size_t)files->count + 1;
    files->paths = cli_resize((void *)files->paths, count, sizeof *files->paths);
    files->weights = cli_resize(files->weights, count, sizeof *files->weights);
    char *copy = cli_alloc(length + 1, 1); /* as long as the process, like the arguments */
    memcpy(copy, path, length);
    files->paths[files->count] = copy;
    files->weights[files->count++] = weight;
}

bool training_read_weighted_file(void *user, const char *value, char *problem, size_t size)
{
    const char *colon = strrchr(value, ':');
    double weight = 1;
    const bool is_weighted = colon != NULL && cli_read_real(colon + 1, 0, 1e6, &weight);
    const size_t length = is_weighted ? (size_t)(colon - value) : strlen(value);
    if (length == 0 || weight == 0) {
        snprintf(problem, size, "takes a file, and a weight above 0 behind a colon, not '%.80s'",
                 value);
        return false;
    }
    add_file(user, value, length, weight);
    return true;
}

bool training_read_file(void *user, const char *value, char *problem, size_t size)
{
    if (value[0] == '\0')
        snprintf(problem, size, "takes a file, not ''");
    else
        add_file(user, value, strlen(value), 1);
    return value[0] != '\0';
}

bool training_read_held_out(void *user, const char *value, char *problem, size_t size)
{
    training_options *o = &training_chosen;
    double number;
    (void)user;
    if (cli_read_real(value, -1e300, 1e300, &number) && !(number >= 0 && number <= 0.5)) {
        snprintf(problem, size, "takes a part from 0 to 0.5, or a file, not '%.80s'", value);
        return false;
    }
    o->held_out_given = true;
    o->held_out_file = NULL;
    o->held_out = 0;
    if (!cli_read_real(value, 0, 0.5, &o->held_out))
        o->held_out_file = value;
    return true;
}

bool training_is_gguf(const char *path)
{
    const size_t length = path != NULL ? strlen(path) : 0;
    return length > 5 && strcmp(path + length - 5, ".gguf") == 0;
}

void training_strip_slashes(void)
{
    const char *output = training_chosen.output;
    size_t length = output != NULL ? strlen(output) : 0;
    if (length < 2 || output[length - 1] != '/')
        return;
    while (length > 1 && output[length - 1] == '/')
        length--;
    char *path = cli_alloc(length + 1, 1); /* as long as the process, like the arguments */
    memcpy(path, output, length);
    path[length] = '\0';
    training_chosen.output = path;
}

int training_options_check(void)
{
    const training_options *o = &training_chosen;
    if (o->steps > 0 && o->epochs > 0)
        return cli_usage_error("%s: --steps and --epochs contradict each other", training_name);
    if (o->context_parallel > 1 && (o->elastic || o->dpo || o->dropout > 0))
        return cli_usage_error("%s: --context-parallel %lld cannot go with %s", training_name,
                               (long long)o->context_parallel,
                               o->elastic ? "--elastic"
                               : o->dpo   ? "--dpo"
                                          : "--lora-dropout");
    if (o->elastic && (o->stages.count > 1 || o->stages.layers.count > 1 || o->data_parallel > 0 ||
                       o->stages.rates.count > 0 || o->stages.rates.measured))
        return cli_usage_error("%s: with --elastic all ranks are data-parallel, so --stages, "
                               "--rates and --data-parallel cannot be given",
                               training_name);
    if (o->accumulate > 0 && o->batch > 0 && o->batch % o->accumulate != 0)
        return cli_usage_error("%s: --accumulate %lld does not divide --batch %lld", training_name,
                               (long long)o->accumulate, (long long)o->batch);
    if (o->parts && o->checkpoint == NULL && o->resume == NULL)
        return cli_usage_error("%s: --parts needs --checkpoint FILE or --resume FILE",
                               training_name);
    return CLI_DONE;
}

void training_options_complete(void)
{
    training_options *o = &training_chosen;
    if (o->accumulate == 0)
        o->accumulate = 1;
    if (o->rank == 0 && !o->full)
        o->rank = 16;
    if (o->dropout < 0)
        o->dropout = 0;
    if (o->layer_dropout < 0)
        o->layer_dropout = 0;
    if (o->beta == 0)
        o->beta = 0.1;
    if ((int)o->schedule == TRAINING_UNSET)
        o->schedule = TSR_SCHEDULE_COSINE;
    if (o->learning_rate < 0)
        o->learning_rate = o->full ? 2e-5 : 2e-4;
    if (o->final_rate < 0)
        o->final_rate = o->learning_rate / 10;
    if (o->warmup < 0)
        o->warmup = o->steps > 1 ? (o->steps * 3 + 99) / 100 : 0;
    if (o->decay_steps == 0) /* the first step is step 0 */
        o->decay_steps = o->reference == NULL && o->steps - 1 > o->warmup ? o->steps - 1 : o->steps;
    if (o->weight_decay < 0)
        o->weight_decay = 0;
    if (o->clip < 0)
        o->clip = 1;
    if (o->beta1 < 0)
        o->beta1 = 0.9;
    if (o->beta2 < 0)
        o->beta2 = 0.999;
    if (o->epsilon == 0)
        o->epsilon = 1e-8;
    if (o->evaluate_every == 0)
        o->evaluate_every = 50;
    if (o->checkpoint_every == 0)
        o->checkpoint_every = 100;
}

/* Errors --------------------------------------------------------------------------------------- */

static char problem[1024];
static bool reported;

tsr_status training_reported(void)
{
    reported = true;
    return TSR_ERR_INVALID;
}

bool training_is_reported(void)
{
    return reported;
}

tsr_status training_fail(const char *format, ...)
{
    char text[sizeof problem]; /* an argument may be `problem` */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    memcpy(problem, text, sizeof problem);
    return TSR_ERR_INVALID;
}

const char *training_problem(void)
{
    return problem[0] != '\0' ? problem : tsr_last_error();
}
