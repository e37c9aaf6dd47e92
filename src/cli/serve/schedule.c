/* Generates the texts of all requests together. Rank 0 decides before each step which texts begin
 * and which are removed, and tells the other ranks. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

/* The time that ranks wait for rank 0, which may be idle for long: ten years. */
#define PATIENCE_NS UINT64_C(315360000000000000)
/* How often an idle server looks for a signal, in nanoseconds. */
#define IDLE_NS 100000000

/* What all ranks do before a step, as rank 0 sends it: this head, the numbers of the sequences to
 * remove (int64_t), and for each new text an addition, which its ids follow. */
typedef struct orders {
    int64_t ends, removals, additions;
} orders;
typedef struct addition {
    int64_t max_tokens, id_count;
    tsr_sampling_params sampling;
} addition;

/* A sequence of the generator, on rank 0. */
typedef struct slot {
    serve_request *request; /* NULL: the slot is free, or its sequence will be removed */
    tsr_text_stream *stream;
    bool used, removes;
    double last_token; /* of serve_now */
} slot;

typedef struct schedule {
    serve_server *server;
    slot *slots; /* [parallel], by number of sequence */
    int32_t end[INFERENCE_MAX_END_TOKENS];
    int end_count;
    double deadline;       /* when running texts end after a signal; 0: there was none */
    serve_request **added; /* [parallel]: the requests of this step's additions without a slot */
    int added_count;
} schedule;

static volatile sig_atomic_t signals;

static void count_signal(int signal)
{
    (void)signal;
    if (signals < 2)
        signals++;
}

void serve_catch_signals(bool first)
{
    struct sigaction action = {.sa_handler = first ? count_signal : SIG_IGN,
                               .sa_flags = (int)SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
}

/* Ends ----------------------------------------------------------------------------------------- */

/* Ends a request for the client. Needs the lock. */
static void end_request(serve_server *s, serve_request *r)
{
    r->state = SERVE_ENDED;
    if (r->cancelled)
        s->metrics.cancelled++;
    else if (r->failed.status != 0)
        s->metrics.failed++;
    if (r->stream && !r->cancelled)
        serve_event_end(s, r);
    serve_http_wake(r);
    serve_request_leave(r);
}

/* Ends the text of a slot, whose sequence is removed before the next step. Needs the lock. */
static void end_slot(schedule *d, slot *one)
{
    end_request(d->server, one->request);
    tsr_text_stream_destroy(&one->stream);
    one->request = NULL;
    one->removes = true;
    d->server->running--;
}

static void fail_all(schedule *d, const char *why)
{
    serve_server *s = d->server;
    while (s->first != NULL) {
        serve_request *r = serve_dequeue(s);
        serve_refuse(&r->failed, 503, "", "%s", why);
        end_request(s, r);
    }
}

static void fail_running(schedule *d, const char *why)
{
    for (int64_t i = 0; i < serve_chosen.parallel; i++)
        if (d->slots[i].request != NULL) {
            serve_refuse(&d->slots[i].request->failed, 503, "", "%s", why);
            end_slot(d, &d->slots[i]);
        }
}

/* Reacts to signals: the first one refuses new requests and sets the deadline of running ones.
 * Needs the lock. */
static void obey_signals(schedule *d)
{
    if (signals == 0)
        return;
    if (d->deadline <= 0) {
        d->deadline = serve_now() + serve_chosen.grace;
        d->server->stopping = true;
        fail_all(d, "the server shuts down");
    }
    if (signals > 1 || serve_now() >= d->deadline)
        fail_running(d, "the server shuts down");
}

/* Orders --------------------------------------------------------------------------------------- */

static bool is_late(const serve_request *r)
{
    return serve_chosen.deadline > 0 && serve_now() > r->arrived + serve_chosen.deadline;
}

/* Ends the requests that have taken too long. Needs the lock. */
static void end_late(schedule *d)
{
    serve_server *s = d->server;
    for (int64_t i = 0; i < serve_chosen.parallel; i++) {
        slot *one = &d->slots[i];
        if (one->request == NULL || !is_late(one->request))
            continue;
        serve_refuse(&one->request->failed, 503, "",
                     "the text took longer than %g s, with %" PRId64 " tokens so far",
                     serve_chosen.deadline, one->request->generated);
        end_slot(d, one);
    }
    while (s->first != NULL && is_late(s->first)) { /* the first one has waited longest */
        serve_request *r = serve_dequeue(s);
        serve_refuse(&r->failed, 503, "", "the request waited longer than %g s",
                     serve_chosen.deadline);
        end_request(s, r);
    }
}

static void order_removals(schedule *d, serve_text *out, orders *head)
{
    for (int64_t i = 0; i < serve_chosen.parallel; i++) {
        slot *one = &d->slots[i];
        if (one->request != NULL &&
            (one->request->cancelled || serve_http_is_closed(one->request))) {
            one->request->cancelled = true;
            end_slot(d, one);
        }
        if (!one->removes)
            continue;
        serve_text_add(out, (const char *)&i, sizeof i);
        head->removals++;
        *one = (slot){0};
    }
}

static int64_t used_slots(const schedule *d)
{
    int64_t used = 0;
    for (int64_t i = 0; i < serve_chosen.parallel; i++)
        used += d->slots[i].used;
    return used;
}

static void order_additions(schedule *d, serve_text *out, orders *head)
{
    serve_server *s = d->server;
    d->added_count = 0;
    for (int64_t used = used_slots(d); used < serve_chosen.parallel && s->first != NULL;) {
        serve_request *r = serve_dequeue(s);
        if (r->cancelled || serve_http_is_closed(r)) {
            r->cancelled = true;
            end_request(s, r);
            continue;
        }
        const addition one = {r->max_tokens, r->id_count, r->sampling};
        serve_text_add(out, (const char *)&one, sizeof one);
        serve_text_add(out, (const char *)r->ids, (size_t)r->id_count * sizeof *r->ids);
        r->state = SERVE_RUNS;
        s->running++;
        d->added[d->added_count++] = r;
        head->additions++;
        used++;
    }
}

/* Waits until there is something to do, and writes the orders of the next step. */
static void give_orders(schedule *d, serve_text *out)
{
    serve_server *s = d->server;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        orders head = {0};
        out->size = 0;
        serve_text_add(out, (const char *)&head, sizeof head);
        obey_signals(d);
        end_late(d);
        order_removals(d, out, &head);
        order_additions(d, out, &head);
        head.ends = s->stopping && s->running == 0;
        memcpy(out->data, &head, sizeof head);
        if (head.ends || head.removals > 0 || s->running > 0)
            break;
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += IDLE_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Sends the orders from rank 0 to all ranks. */
static tsr_status share_orders(schedule *d, serve_text *text)
{
    tsr_comm *comm = d->server->job.comm;
    int64_t size = (int64_t)text->size;
    const uint64_t timeout_ns = tsr_comm_set_timeout(comm, PATIENCE_NS);
    const tsr_status status = tsr_comm_broadcast(comm, &size, sizeof size, TSR_U8, 0, NULL);
    tsr_comm_set_timeout(comm, timeout_ns);
    if (status != TSR_OK)
        return status;
    if (!d->server->job.first) {
        text->size = 0;
        char *bytes = cli_alloc((size_t)size, 1);
        serve_text_add(text, bytes, (size_t)size);
        free(bytes);
    }
    return tsr_comm_broadcast(comm, text->data, (uint64_t)size, TSR_U8, 0, NULL);
}

/* Prepares the slot of a new sequence on rank 0. */
static tsr_status begin_slot(schedule *d, int sequence, serve_request *r)
{
    slot *one = &d->slots[sequence];
    const char *text = NULL;
    size_t size = 0;
    *one = (slot){.request = r, .used = true};
    tsr_status status = tsr_text_stream_create(
        tsr_text_stream_params(.tokenizer = d->server->tokenizer, .stops = r->stops,
                               .stop_count = r->stop_count, .invalid = TSR_TEXT_INVALID_REPLACE,
                               .channels = r->chat),
        &one->stream);
    for (int64_t i = 0; i < r->id_count && status == TSR_OK; i++)
        if (r->ids[i] < tsr_tokenizer_size(d->server->tokenizer))
            status = tsr_text_stream_add_prompt(one->stream, r->ids[i], &text, &size);
    return status;
}

/* Carries out the orders. All ranks call this with the same orders. */
static tsr_status obey(schedule *d, const serve_text *text, bool *ends)
{
    const serve_server *s = d->server;
    const char *at = text->data;
    orders head;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    tsr_status status = TSR_OK;
    for (int64_t i = 0; i < head.removals && status == TSR_OK; i++) {
        int64_t sequence;
        memcpy(&sequence, at, sizeof sequence);
        at += sizeof sequence;
        status = tsr_generator_remove(s->generator, (int)sequence);
    }
    for (int64_t i = 0; i < head.additions && status == TSR_OK; i++) {
        addition one;
        int sequence = 0;
        memcpy(&one, at, sizeof one);
        at += sizeof one;
        int32_t *ids = cli_alloc((size_t)one.id_count, sizeof *ids);
        memcpy(ids, at, (size_t)one.id_count * sizeof *ids);
        at += (size_t)one.id_count * sizeof *ids;
        status = tsr_generator_add(s->generator,
                                   tsr_sequence_params(.prompt = ids, .prompt_count = one.id_count,
                                                       .sampling = &one.sampling,
                                                       .max_tokens = one.max_tokens, .stop = d->end,
                                                       .stop_count = d->end_count),
                                   &sequence);
        free(ids);
        if (status == TSR_OK && s->job.first) {
            status = begin_slot(d, sequence, d->added[i]);
            d->added[i] = NULL;
        }
    }
    *ends = head.ends != 0;
    return status;
}

/* Tokens --------------------------------------------------------------------------------------- */

static void keep_text(schedule *d, slot *one, const char *text, size_t size)
{
    serve_request *r = one->request;
    const tsr_text_channel channel = tsr_text_stream_channel(one->stream);
    if (size == 0 || channel == TSR_TEXT_COMMENTARY)
        return;
    if (r->stream)
        serve_event_text(d->server, r, channel, text, size);
    else
        serve_text_add(channel == TSR_TEXT_REASONING ? &r->reasoning : &r->answer, text, size);
}

static void measure_token(schedule *d, slot *one)
{
    serve_metrics *m = &d->server->metrics;
    const double now = serve_now();
    if (one->request->generated++ == 0)
        serve_histogram_add(&m->first_token, now - one->request->arrived);
    else
        serve_histogram_add(&m->per_token, now - one->last_token);
    one->last_token = now;
    m->generated_tokens++;
}

/* Takes the token that a step has generated for a slot. Needs the lock. */
static tsr_status take_token(schedule *d, slot *one, const tsr_generated *token)
{
    serve_request *r = one->request;
    const char *text = NULL;
    size_t size = 0;
    bool stopped = false;
    tsr_status status = TSR_OK;
    if (r->generated == 0 && r->stream)
        serve_event_begin(d->server, r);
    measure_token(d, one);
    r->cached = token->cached;
    if (token->token < tsr_tokenizer_size(d->server->tokenizer)) {
        status = tsr_text_stream_add(one->stream, token->token, &text, &size, &stopped);
        if (status == TSR_OK)
            keep_text(d, one, text, size);
    }
    if (status == TSR_OK && token->finish != TSR_FINISH_NONE && !stopped) {
        status = tsr_text_stream_end(one->stream, &text, &size);
        if (status == TSR_OK)
            keep_text(d, one, text, size);
    }
    if (status != TSR_OK)
        return status;
    if (stopped || token->finish != TSR_FINISH_NONE) {
        r->finish_reason = stopped || token->finish == TSR_FINISH_TOKEN ? "stop" : "length";
        end_slot(d, one);
    } else if (r->stream) {
        serve_http_wake(r);
    }
    return TSR_OK;
}

static tsr_status take_tokens(schedule *d, int count)
{
    tsr_status status = TSR_OK;
    pthread_mutex_lock(&d->server->lock);
    for (int i = 0; i < count && status == TSR_OK; i++) {
        const tsr_generated *token = tsr_generator_token(d->server->generator, i);
        slot *one = &d->slots[token->sequence];
        if (one->request != NULL)
            status = take_token(d, one, token);
    }
    d->server->stats = TSR_INIT(tsr_generator_stats);
    if (status == TSR_OK)
        status = tsr_generator_get_stats(d->server->generator, &d->server->stats);
    pthread_mutex_unlock(&d->server->lock);
    return status;
}

/* Steps ---------------------------------------------------------------------------------------- */

static tsr_status run_steps(schedule *d, serve_text *text)
{
    for (bool ends = false;;) {
        int count = 0;
        if (d->server->job.first)
            give_orders(d, text);
        tsr_status status = share_orders(d, text);
        if (status == TSR_OK)
            status = obey(d, text, &ends);
        if (status != TSR_OK || ends)
            return status;
        status = tsr_generator_step(d->server->generator, &count);
        if (status == TSR_OK && d->server->job.first)
            status = take_tokens(d, count);
        if (status != TSR_OK)
            return status;
    }
}

tsr_status serve_schedule(serve_server *s)
{
    schedule d = {.server = s,
                  .slots = cli_alloc((size_t)serve_chosen.parallel, sizeof *d.slots),
                  .added = cli_alloc((size_t)serve_chosen.parallel, sizeof *d.added)};
    serve_text text = {0};
    d.end_count = inference_end_tokens(s->tokenizer, INFERENCE_MAX_END_TOKENS, d.end);
    const tsr_status status = run_steps(&d, &text);
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    if (status != TSR_OK) {
        for (int i = 0; i < d.added_count; i++)
            if (d.added[i] != NULL) { /* the step failed before it had a slot */
                serve_refuse(&d.added[i]->failed, 503, "", "%s", tsr_last_error());
                end_request(s, d.added[i]);
            }
        fail_all(&d, tsr_last_error());
        fail_running(&d, tsr_last_error());
    }
    pthread_mutex_unlock(&s->lock);
    for (int64_t i = 0; i < serve_chosen.parallel; i++)
        tsr_text_stream_destroy(&d.slots[i].stream);
    free(d.slots);
    free(d.added);
    serve_text_finish(&text);
    return status;
}
