/* Opens a model on all ranks of a job. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/inference/inference.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"
#include "cli/lib/terminal.h"

/* Files ---------------------------------------------------------------------------------------- */

static tsr_model_file *opened; /* the model's files; NULL: not opened yet */

static tsr_status open_file(void)
{
    return opened != NULL ? TSR_OK : tsr_model_file_open(inference_chosen.model, &opened);
}

tsr_status inference_open_tokenizer(tsr_tokenizer **out)
{
    const tsr_status status = open_file();
    return status == TSR_OK ? tsr_model_file_open_tokenizer(opened, out) : status;
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
static const int end_signals[] = {SIGINT, SIGTERM};

/* What to report to `tessera launch` (docs/launching.md) if one of end_signals arrives. It is
 * prepared, because a signal's handler may not format text. */
static struct {
    int pipe; /* −1: there is no launcher */
    char lines[2][32];
} report = {.pipe = -1};

/* Finds the launcher's pipe, and the number with which reports begin. Returns false if there is
 * none. */
static bool find_launcher(int *pipe, int *number)
{
    const char *launch = getenv("TESSERA_LAUNCH");
    unsigned long long inode;
    struct stat file;
    /* The descriptor may be that of another file if a program between the launcher and this process
     * has closed the pipe. */
    return launch != NULL && sscanf(launch, "%d:%llu:%d", pipe, &inode, number) == 3 &&
           fstat(*pipe, &file) == 0 && file.st_ino == inode;
}

void inference_report(const char *what)
{
    char line[128];
    int pipe, number;
    if (!find_launcher(&pipe, &number))
        return;
    const int size = snprintf(line, sizeof line, "%d %s\n", number, what);
    if (size > 0 && size < (int)sizeof line)
        (void)!write(pipe, line, (size_t)size);
}

static void prepare_report(void)
{
    int pipe, number;
    report.pipe = -1;
    if (!find_launcher(&pipe, &number))
        return;
    report.pipe = pipe;
    for (size_t i = 0; i < sizeof end_signals / sizeof *end_signals; i++)
        snprintf(report.lines[i], sizeof report.lines[i], "%d signal %d\n", number, end_signals[i]);
}

/* The launcher then knows why all ranks end: they agree to do so, whichever got the signal. */
static void on_signal(int signal)
{
    const int before = errno;
    const char *line = report.lines[signal == end_signals[1]];
    if (report.pipe >= 0)
        (void)!write(report.pipe, line, strlen(line));
    tsr_generator_interrupt(interruptible);
    errno = before;
}

void inference_catch_signals(tsr_generator *generator)
{
    struct sigaction action = {.sa_handler = generator != NULL ? on_signal : SIG_DFL};
    /* SA_RESTART: calls of write() continue after the signal, so no output is lost. */
    action.sa_flags = generator != NULL ? (int)SA_RESETHAND | SA_RESTART : 0;
    if (generator != NULL) {
        interruptible = generator;
        prepare_report();
    }
    for (size_t i = 0; i < sizeof end_signals / sizeof *end_signals; i++) {
        struct sigaction before;
        if (sigaction(end_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(end_signals[i], &action, NULL);
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

/* Returns `context` or, if that is less, the context for which the model was trained. */
static int64_t limit_context(int64_t context)
{
    const tsr_model_config *config = tsr_model_file_config(opened);
    return config != NULL && config->context < context ? config->context : context;
}

/* Returns how many states a generator's cache has for `sequences` sequences more than for `whole`:
 * one for each, half of them twice in a step, and earlier ones of at most MOST_KEPT. */
static int more_states(int whole, int sequences)
{
    enum { MOST_KEPT = 8, USUAL_KEPT_TOKENS = 4 };
    const int drafts = inference_chosen.draft.of.tokens,
              tokens = drafts > USUAL_KEPT_TOKENS ? drafts : USUAL_KEPT_TOKENS,
              kept = (sequences < MOST_KEPT ? sequences : MOST_KEPT) -
                     (whole < MOST_KEPT ? whole : MOST_KEPT);
    return sequences + sequences / 2 - whole - whole / 2 + kept * (tokens + 1);
}

/* The keys and values are those of `whole` sequences, because `sequences` share them, but each
 * sequence has states of its own. */
static tsr_status open_model(inference_job *j, int whole, int sequences)
{
    const inference_options *o = &inference_chosen;
    int shown = -1;
    tsr_model_params params = {.struct_size = sizeof params,
                               .group = j->group,
                               .stages = j->stages,
                               .context_group = j->contexts,
                               .dtype = o->dtype,
                               .context = j->context,
                               .sequences = whole,
                               .cache_dtype = o->cache_dtype,
                               .draft_tokens = o->draft.of.tokens,
                               .next_token = o->draft.of.from == TSR_DRAFT_MTP,
                               .snapshots = j->snapshots + more_states(whole, sequences)};
    inference_chosen.stages.experts.unmixed = o->adapter_count > 0;
    cli_stages_divide(&inference_chosen.stages, j->comm, &params);
    params.progress = j->progress;
    params.user = j->user;
    if (j->progress == NULL && j->first && isatty(STDERR_FILENO)) {
        params.progress = show_progress;
        params.user = &shown;
    }
    /* A rank whose file could not be opened takes part, so that the others learn of its failure. */
    const tsr_status status = tsr_model_open(opened, &params, &j->model);
    const tsr_model_config *config = tsr_model_file_config(opened);
    if (status != TSR_OK && params.next_token && config != NULL && config->next_token_layers == 0)
        snprintf(j->problem, sizeof j->problem,
                 "--draft mtp: this model of architecture %s has no layers that predict further "
                 "tokens",
                 config->architecture);
    return status;
}

/* Refuses a named adapter that requests could not choose. */
static tsr_status check_choosable(inference_job *j, const inference_adapter *a,
                                  const tsr_lora *adapter)
{
    tsr_lora_info info = TSR_INIT(tsr_lora_info);
    const tsr_status status = tsr_lora_get_info(adapter, &info);
    if (status != TSR_OK ||
        ((info.targets & (TSR_LORA_HEAD | TSR_LORA_EXPERTS)) == 0 && !info.dora))
        return status;
    if (info.dora)
        snprintf(j->problem, sizeof j->problem,
                 "--lora %s: it has magnitudes (DoRA), so requests cannot choose it; tessera merge "
                 "adds it",
                 a->path);
    else
        snprintf(j->problem, sizeof j->problem,
                 "--lora %s: it changes %s, which requests cannot choose; tessera merge adds it",
                 a->path, (info.targets & TSR_LORA_HEAD) != 0 ? "the head" : "experts");
    return TSR_ERR_INVALID;
}

/* Adds the adapters of --lora to the model. */
static tsr_status load_adapters(inference_job *j)
{
    tsr_status status = TSR_OK;
    for (int i = 0; i < inference_chosen.adapter_count && status == TSR_OK; i++) {
        const inference_adapter *a = &inference_chosen.adapters[i];
        const tsr_lora_params params = {.struct_size = sizeof params,
                                        .stack = tsr_model_stack(j->model),
                                        .name = a->name != NULL ? a->name : a->path,
                                        .scale = a->scale != 0 ? a->scale : TSR_ZERO};
        status = tsr_lora_load(a->path, &params, &j->adapters[i]);
        if (status != TSR_OK)
            snprintf(j->problem, sizeof j->problem, "--lora %s: %s", a->path, tsr_last_error());
        else if (a->name != NULL)
            status = check_choosable(j, a, j->adapters[i]);
        if (a->name != NULL)
            tsr_lora_set_enabled(j->adapters[i], false);
    }
    return status;
}

static tsr_status open_draft(inference_job *j, int sequences)
{
    tsr_tokenizer *tokenizer = NULL;
    if (inference_chosen.draft.of.from != TSR_DRAFT_MODEL)
        return TSR_OK;
    (void)!inference_open_tokenizer(&tokenizer); /* the model may have none */
    const tsr_status status = inference_open_draft(j, tokenizer, sequences);
    tsr_tokenizer_close(&tokenizer);
    return status;
}

static tsr_status create_groups(inference_job *j)
{
    cli_stages *stages = &inference_chosen.stages;
    if (!cli_stages_fit(stages, tsr_comm_size(j->comm), j->problem, sizeof j->problem))
        return TSR_ERR_INVALID;
    const tsr_group_params params = {.struct_size = sizeof params,
                                     .wire = inference_chosen.wire,
                                     .allow_int8 = inference_chosen.allow_int8,
                                     .precision = inference_chosen.precision};
    return cli_stages_create(stages, j->comm, j->stream, &params, &j->group, &j->stages,
                             &j->contexts);
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

tsr_status inference_join(inference_job *j)
{
    if (j->comm != NULL)
        return TSR_OK;
    const tsr_status status = tsr_comm_create(
        tsr_comm_params(.timeout_ns = (uint64_t)(inference_chosen.timeout * 1e9)), &j->comm);
    j->first = status == TSR_OK && tsr_comm_rank(j->comm) == 0;
    return status;
}

/* Returns how many sequences of this length have so many tokens together. */
static int whole_sequences(int64_t tokens, int64_t length)
{
    return (int)((tokens + length - 1) / length);
}

tsr_status inference_open(inference_job *j, int64_t context, int64_t cache_tokens, int sequences)
{
    const inference_options *o = &inference_chosen;
    const tsr_status read = open_file();
    if (read != TSR_OK)
        snprintf(j->problem, sizeof j->problem, "%s", tsr_last_error());
    j->context = o->context > 0 ? o->context : limit_context(context);
    tsr_status status = inference_join(j);
    if (status == TSR_OK && j->device == NULL)
        status = tsr_device_open(tsr_device_params(.device = o->device), &j->device);
    if (status == TSR_OK && j->stream == NULL)
        status = tsr_stream_create(j->device, &j->stream);
    if (status == TSR_OK)
        status = create_groups(j);
    const int whole = cache_tokens > 0 ? whole_sequences(cache_tokens, j->context) : sequences;
    if (status == TSR_OK)
        status = open_model(j, whole < sequences ? whole : sequences, sequences);
    if (status == TSR_OK)
        status = load_adapters(j);
    if (status == TSR_OK)
        status = open_draft(j, sequences);
    if (status == TSR_OK)
        note_long_context(j);
    return status;
}

void inference_close_model(inference_job *j)
{
    for (int i = INFERENCE_MAX_ADAPTERS - 1; i >= 0; i--)
        tsr_lora_destroy(&j->adapters[i]);
    tsr_model_close(&j->draft_model);
    tsr_model_close(&j->model);
    tsr_group_destroy(&j->draft_group);
    tsr_group_destroy(&j->contexts);
    tsr_group_destroy(&j->group);
    tsr_comm_destroy(&j->stages);
}

void inference_close(inference_job *j)
{
    tsr_model_file_close(&opened);
    inference_close_model(j);
    inference_free_adapters();
    tsr_stream_destroy(&j->stream);
    tsr_device_close(&j->device);
    tsr_comm_destroy(&j->comm);
}

const char *inference_problem(const inference_job *j)
{
    return j->problem[0] != '\0' ? j->problem : tsr_last_error();
}
