/* The ranks that divide the model: they open it together, go on without those that are lost, and
 * let others join. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

#define USUAL_CONTEXT 4096
/* How long ranks wait for processes that join, in nanoseconds. */
#define GROW_NS UINT64_C(50000000)
/* How often ranks may shrink without having lost one, before they give up. */
#define MOST_VAIN_SHRINKS 3

/* What ranks tell each other when they meet. */
typedef struct introduction {
    int32_t number;  /* the rank at the last meeting; −1: it has joined since */
    int32_t listens; /* it is the one that has the connections */
    int32_t wanted_ranks, stages;
} introduction;

void serve_record(serve_server *s, const char *format, ...)
{
    va_list arguments;
    if (!s->listens)
        return;
    pthread_mutex_lock(&s->lock);
    serve_incident *one = &s->incidents[s->incident_count++ % SERVE_INCIDENTS];
    one->time = (int64_t)time(NULL);
    va_start(arguments, format);
    (void)vsnprintf(one->text, sizeof one->text, format, arguments);
    va_end(arguments);
    pthread_mutex_unlock(&s->lock);
    cli_say("serve: %s", one->text);
}

bool serve_has_lost(const serve_server *s, tsr_status status)
{
    return s->job.comm != NULL && tsr_comm_size(s->job.comm) > 1 &&
           (status == TSR_ERR_PEER_LOST || status == TSR_ERR_TIMEOUT ||
            tsr_comm_status(s->job.comm) != TSR_OK);
}

/* Fits the options that name ranks to those that there are now. */
static void adapt_options(serve_server *s, const introduction *all, int ranks)
{
    int *numbers = cli_alloc((size_t)ranks, sizeof *numbers);
    for (int i = 0; i < ranks; i++)
        numbers[i] = all[i].number;
    if (cli_stages_adapt(&inference_chosen.stages, ranks, numbers, all[0].stages))
        serve_record(s,
                     "%d ranks divide the model evenly, because --rates, --memory, --stages, "
                     "--stage-layers or --context-parallel do not fit them",
                     ranks);
    free(numbers);
}

/* Finds out which ranks there are. All ranks of job.comm call this. */
static tsr_status meet(serve_server *s)
{
    tsr_comm *comm = s->job.comm;
    const int ranks = tsr_comm_size(comm);
    introduction *all = cli_alloc((size_t)ranks, sizeof *all);
    const introduction own = {s->number, s->listens, s->wanted_ranks,
                              (int32_t)inference_chosen.stages.count};
    const tsr_status status = tsr_comm_all_gather(comm, &own, all, sizeof own, TSR_U8, NULL);
    if (status == TSR_OK && !all[0].listens) {
        snprintf(s->job.problem, sizeof s->job.problem,
                 "rank 0, which has the connections of all clients, is lost");
        inference_report("state-lost");
        free(all);
        return TSR_ERR_PEER_LOST;
    }
    if (status == TSR_OK) {
        if (s->met)
            adapt_options(s, all, ranks);
        s->met = true;
        s->number = tsr_comm_rank(comm);
        pthread_mutex_lock(&s->lock);
        s->ranks = ranks;
        s->wanted_ranks = all[0].wanted_ranks > ranks ? all[0].wanted_ranks : ranks;
        pthread_mutex_unlock(&s->lock);
    }
    free(all);
    return status;
}

static void keep_progress(void *user, uint64_t done_bytes, uint64_t total_bytes)
{
    serve_server *s = user;
    pthread_mutex_lock(&s->lock);
    s->progress = total_bytes > 0 ? (double)done_bytes / (double)total_bytes : 1;
    serve_end_slow_senders(s);
    pthread_mutex_unlock(&s->lock);
}

/* Opens this rank's part of the model. */
static tsr_status open_part(serve_server *s)
{
    const int64_t cache_tokens = serve_chosen.cache_tokens;
    s->job.progress = keep_progress;
    s->job.user = s;
    keep_progress(s, 0, 1);
    s->job.snapshots = serve_chosen.no_prefix_cache ? 0 : TSR_GENERATOR_USUAL_SNAPSHOTS;
    tsr_status status =
        inference_open(&s->job, USUAL_CONTEXT, cache_tokens, (int)serve_chosen.parallel);
    if (status == TSR_OK && cache_tokens > 0 && cache_tokens < s->job.context)
        s->job.context = cache_tokens;
    if (status == TSR_OK)
        status = tsr_generator_create(
            tsr_generator_params(.model = s->job.model, .sequences = (int)serve_chosen.parallel,
                                 .context = s->job.context,
                                 .cache_dtype = inference_chosen.cache_dtype,
                                 .cache_tokens = cache_tokens, .prefill = inference_chosen.prefill,
                                 .piece = serve_chosen.piece,
                                 .draft = inference_chosen.draft.of.from,
                                 .draft_tokens = inference_chosen.draft.of.tokens,
                                 .draft_model = s->job.draft_model,
                                 .rejection_sampling = inference_chosen.draft.rejection,
                                 .prefix_cache = !serve_chosen.no_prefix_cache),
            &s->generator);
    return status;
}

/* Tells all ranks whether all of them have opened their parts. */
static tsr_status agree(serve_server *s, tsr_status opened)
{
    int32_t good = opened == TSR_OK;
    char problem[sizeof s->job.problem];
    snprintf(problem, sizeof problem, "%s", opened == TSR_OK ? "" : inference_problem(&s->job));
    const tsr_status status =
        tsr_comm_all_reduce(s->job.comm, &good, &good, 1, TSR_I32, TSR_OP_MIN, NULL);
    if (status != TSR_OK)
        return status;
    if (good == 0)
        snprintf(s->job.problem, sizeof s->job.problem, "%s",
                 opened == TSR_OK ? "another rank could not open the model" : problem);
    return good != 0 ? TSR_OK : opened != TSR_OK ? opened : TSR_ERR_INVALID;
}

/* Tells rank 0 what each rank has. All ranks call this. */
static tsr_status share_parts(serve_server *s)
{
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    tsr_status status = tsr_model_get_stats(s->job.model, &stats);
    if (status != TSR_OK)
        return status;
    serve_part own = {.weight_bytes = stats.weight_bytes};
    tsr_device_memory_usage(s->job.device, &own.memory_bytes, NULL);
    serve_part *all = cli_alloc((size_t)s->ranks, sizeof *all);
    serve_copy_utf8(own.device, sizeof own.device, tsr_device_get_info(s->job.device)->name);
    status = tsr_comm_all_gather(s->job.comm, &own, all, sizeof own, TSR_U8, NULL);
    if (status != TSR_OK) {
        free(all);
        return status;
    }
    pthread_mutex_lock(&s->lock);
    free(s->parts);
    s->parts = all;
    s->part_count = s->ranks;
    pthread_mutex_unlock(&s->lock);
    return TSR_OK;
}

static void set_timeouts(serve_server *s, double seconds)
{
    tsr_comm_set_timeout(s->job.comm, (uint64_t)(seconds * 1e9));
    if (s->job.group != NULL)
        tsr_comm_set_timeout(tsr_group_comm(s->job.group), (uint64_t)(seconds * 1e9));
    if (s->job.contexts != NULL)
        tsr_comm_set_timeout(tsr_group_comm(s->job.contexts), (uint64_t)(seconds * 1e9));
    tsr_comm_set_timeout(s->job.stages, (uint64_t)(seconds * 1e9));
}

tsr_status serve_open(serve_server *s)
{
    set_timeouts(s, inference_chosen.timeout);
    tsr_status status = meet(s);
    if (status != TSR_OK)
        return status;
    s->job.problem[0] = 0;
    status = open_part(s);
    if (!serve_has_lost(s, status))
        status = agree(s, status);
    if (status == TSR_OK)
        status = share_parts(s);
    if (status != TSR_OK && (!s->opened || serve_has_lost(s, status)))
        return status;
    pthread_mutex_lock(&s->lock);
    s->repairs = false;
    s->unavailable[0] = '\0';
    if (status != TSR_OK)
        snprintf(s->unavailable, sizeof s->unavailable, "%d of %d ranks cannot hold the model: %s",
                 s->ranks, s->wanted_ranks, inference_problem(&s->job));
    if (!s->opened) {
        s->context = s->job.context;
        s->vocabulary = tsr_model_get_config(s->job.model)->vocabulary;
    }
    pthread_mutex_unlock(&s->lock);
    s->job.problem[0] = '\0';
    s->opened = true;
    if (status != TSR_OK) {
        serve_record(s, "%s", s->unavailable);
        serve_close(s);
    }
    set_timeouts(s, serve_chosen.lost_after);
    return TSR_OK;
}

void serve_close(serve_server *s)
{
    tsr_generator_destroy(&s->generator);
    inference_close_model(&s->job);
}

tsr_status serve_shrink(serve_server *s)
{
    tsr_comm *smaller = NULL;
    const int before = tsr_comm_size(s->job.comm);
    char why[256];
    snprintf(why, sizeof why, "%s", tsr_last_error());
    if (s->job.problem[0] != '\0')
        return TSR_ERR_PEER_LOST; /* rank 0 is lost */
    pthread_mutex_lock(&s->lock);
    s->repairs = true;
    pthread_mutex_unlock(&s->lock);
    const tsr_status status = tsr_comm_shrink(s->job.comm, NULL, &smaller);
    if (status != TSR_OK)
        return status;
    tsr_comm_destroy(&s->job.comm);
    s->job.comm = smaller;
    const int left = tsr_comm_size(smaller);
    s->vain_shrinks = left < before ? 0 : s->vain_shrinks + 1;
    if (s->vain_shrinks > MOST_VAIN_SHRINKS) {
        snprintf(s->job.problem, sizeof s->job.problem, "%s", why);
        return TSR_ERR_TIMEOUT;
    }
    pthread_mutex_lock(&s->lock);
    s->metrics.losses += (uint64_t)(before - left);
    pthread_mutex_unlock(&s->lock);
    serve_record(s, "%s; %d of %d ranks go on", why, left, before);
    return TSR_OK;
}

tsr_status serve_grow(serve_server *s)
{
    tsr_comm *larger = NULL;
    const int before = tsr_comm_size(s->job.comm);
    const tsr_status status = tsr_comm_grow(
        s->job.comm, tsr_comm_grow_params(.count = s->wanted_ranks - before, .timeout_ns = GROW_NS),
        &larger);
    if (status != TSR_OK)
        return status;
    /* The model has the old communicator's group until it is closed. */
    serve_close(s);
    tsr_comm_destroy(&s->job.comm);
    s->job.comm = larger;
    pthread_mutex_lock(&s->lock);
    s->repairs = true;
    s->metrics.joins += (uint64_t)(tsr_comm_size(larger) - before);
    pthread_mutex_unlock(&s->lock);
    serve_record(s, "%d of %d ranks have joined", tsr_comm_size(larger) - before,
                 tsr_comm_size(larger));
    return TSR_OK;
}
