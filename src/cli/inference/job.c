/* Opens a model on all ranks of a job. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/inference/inference.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"
#include "cli/lib/terminal.h"

/* Tokenizers ----------------------------------------------------------------------------------- */

/* Returns the path of the model's tokenizer: the model itself, or the folder of a safetensors
 * file. */
static char *tokenizer_path(const char *model)
{
    char *path = cli_alloc(strlen(model) + 2, 1), *slash;
    strcpy(path, model);
    if (strstr(model, ".safetensors") == NULL)
        return path;
    slash = strrchr(path, '/');
#ifdef _WIN32
    char *other = strrchr(slash != NULL ? slash : path, '\\');
    slash = other != NULL ? other : slash;
#endif
    if (slash != NULL)
        slash[1] = '\0';
    else
        strcpy(path, ".");
    return path;
}

tsr_status inference_open_tokenizer(tsr_tokenizer **out)
{
    char *path = tokenizer_path(inference_chosen.model);
    const tsr_status status = tsr_tokenizer_open(path, out);
    free(path);
    return status;
}

int inference_end_tokens(const tsr_tokenizer *tokenizer, int most, int32_t *ids)
{
    int count = 0;
    for (int32_t id = 0; tokenizer != NULL && id < tsr_tokenizer_size(tokenizer); id++)
        if (tsr_tokenizer_is_end(tokenizer, id) && count < most)
            ids[count++] = id;
    return count;
}

/* Interrupts ----------------------------------------------------------------------------------- */

static tsr_generator *interruptible;

static void on_signal(int signal)
{
    (void)signal;
    tsr_generator_interrupt(interruptible);
}

void inference_catch_signals(tsr_generator *generator)
{
    static const int signals[] = {SIGINT, SIGTERM};
    struct sigaction action = {.sa_handler = generator != NULL ? on_signal : SIG_DFL};
    /* SA_RESTART: calls of write() continue after the signal, so no output is lost. */
    action.sa_flags = generator != NULL ? (int)SA_RESETHAND | SA_RESTART : 0;
    if (generator != NULL)
        interruptible = generator;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction before;
        if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
    if (generator == NULL)
        interruptible = NULL;
}

/* Opening -------------------------------------------------------------------------------------- */

static void show_progress(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    int *shown = user;
    const int percent = total_bytes > 0 ? (int)((double)done_bytes / (double)total_bytes * 100) : 0;
    if (percent == *shown)
        return;
    *shown = percent;
    fprintf(stderr, "\rreading weights: %d %%%s", percent, percent == 100 ? "\r\033[K" : "");
    fflush(stderr);
}

/* Returns `context` or, if that is less, the context for which the model was trained. Ignores
 * errors in the model's files, because opening the model reports them later, on all ranks. */
static int64_t limit_context(int64_t context)
{
    tsr_model_config config;
    return tsr_model_config_read(inference_chosen.model, &config) == TSR_OK &&
                   config.context < context
               ? config.context
               : context;
}

static tsr_status open_model(inference_job *j, int sequences)
{
    const inference_options *o = &inference_chosen;
    int shown = -1;
    tsr_model_params params = {.group = j->group,
                               .stages = j->stages,
                               .dtype = o->dtype,
                               .context = j->context,
                               .sequences = sequences,
                               .cache_dtype = o->cache_dtype};
    cli_stages_divide(&inference_chosen.stages, j->comm, &params);
    if (j->first && isatty(STDERR_FILENO)) {
        params.progress = show_progress;
        params.user = &shown;
    }
    return tsr_model_open(o->model, &params, &j->model);
}

static tsr_status create_groups(inference_job *j)
{
    cli_stages *stages = &inference_chosen.stages;
    if (!cli_stages_fit(stages, tsr_comm_size(j->comm), j->problem, sizeof j->problem))
        return TSR_ERR_INVALID;
    const tsr_group_params params = {.struct_size = sizeof params,
                                     .wire = inference_chosen.wire,
                                     .allow_int8 = inference_chosen.allow_int8};
    return cli_stages_create(stages, j->comm, j->stream, &params, &j->group, &j->stages);
}

/* Says on rank 0 if sequences may become longer than those of the model's training. With learned
 * positions they cannot, and creating the generator fails. */
static void note_long_context(const inference_job *j)
{
    const tsr_model_config *config = tsr_model_get_config(j->model);
    if (j->first && j->context > config->context && !config->learned_positions)
        cli_say("note: --context is %" PRId64 ", but the model was made for %" PRId64
                " tokens; longer texts may become worse",
                j->context, config->context);
}

tsr_status inference_open(inference_job *j, int64_t context, int sequences)
{
    const inference_options *o = &inference_chosen;
    j->context = o->context > 0 ? o->context : limit_context(context);
    tsr_status status =
        tsr_comm_create(tsr_comm_params(.timeout_ns = (uint64_t)(o->timeout * 1e9)), &j->comm);
    if (status == TSR_OK) {
        j->first = tsr_comm_rank(j->comm) == 0;
        status = tsr_device_open(tsr_device_params(.device = o->device), &j->device);
    }
    if (status == TSR_OK)
        status = tsr_stream_create(j->device, &j->stream);
    if (status == TSR_OK)
        status = create_groups(j);
    if (status == TSR_OK)
        status = open_model(j, sequences);
    if (status == TSR_OK)
        note_long_context(j);
    return status;
}

void inference_close(inference_job *j)
{
    tsr_model_close(&j->model);
    tsr_group_destroy(&j->group);
    tsr_stream_destroy(&j->stream);
    tsr_device_close(&j->device);
    tsr_comm_destroy(&j->stages);
    tsr_comm_destroy(&j->comm);
}

const char *inference_problem(const inference_job *j)
{
    return j->problem[0] != '\0' ? j->problem : tsr_last_error();
}
