/* Generates the texts of all requests together. Rank 0 decides before each step which texts begin
 * and which are removed, and tells the other ranks. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/lib/memory.h"
#include "cli/serve/serve.h"

/* How often an idle server looks for a signal, in nanoseconds. */
#define IDLE_NS 100000000
/* How often an idle server makes a step without texts, which shows whether a rank is lost, in
 * seconds. */
#define BEAT_SECONDS 0.5
/* How often it looks for processes that join, in seconds. All texts wait during a search, so there
 * are fewer of them when the first ones were in vain. */
#define GROW_SECONDS 2.0
#define LATE_GROW_SECONDS 30.0
#define FIRST_SEARCHES 10
/* How often a server looks for waiting requests whose clients have gone, in seconds. */
#define GONE_SECONDS 0.5

/* What all ranks do before a step, as rank 0 sends it: this head, grammars that texts will need,
 * the numbers of the sequences to remove (int64_t), and for each new text an addition, which its
 * ids, biases and grammar follow. */
typedef struct orders {
    int64_t ends, grows, grammars, removals, additions;
} orders;
typedef struct addition {
    int64_t max_tokens, id_count, prompt_count, top_log_probabilities, log_probabilities;
    int64_t adapter; /* of inference_chosen; −1: none */
    uint64_t number;
    tsr_sampling_params sampling; /* its pointer has no meaning for other ranks */
} addition;

/* A sequence of the generator, on rank 0. */
typedef struct slot {
    serve_choice *choice; /* NULL: the slot is free, or its sequence will be removed */
    bool used, removes;
} slot;

struct serve_schedule {
    serve_server *server;
    slot *slots;              /* [parallel], by number of sequence */
    serve_grammar **grammars; /* [parallel], by number of sequence, on all ranks */
    int32_t end[INFERENCE_MAX_END_TOKENS];
    int end_count;
    double deadline;      /* when running texts end after a signal; 0: there was none */
    double step_end;      /* when the last step ended; 0: none since the server was idle */
    double beat, growth;  /* when the last step was made, and the last search for processes */
    int searches;         /* since ranks have changed */
    double looked;        /* when the last search for clients that have gone was made */
    serve_choice **added; /* [parallel]: the choices of this step's additions without a slot */
    int added_count;
    cli_text orders;
};

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

/* Ends a text that runs, whose sequence is removed before the next step. Needs the lock. */
static void leave_slot(serve_schedule *d, serve_choice *c)
{
    if (c->sequence < 0)
        return;
    slot *one = &d->slots[c->sequence];
    one->choice = NULL;
    one->removes = true;
    c->sequence = -1;
    d->server->running--;
}

/* Ends a request for the client, and all of its texts. Needs the lock. */
static void end_request(serve_schedule *d, serve_request *r)
{
    serve_server *s = d->server;
    for (int i = 0; i < r->choice_count; i++)
        leave_slot(d, &r->choices[i]);
    for (int i = 0; i < d->added_count; i++)
        if (d->added[i] != NULL && d->added[i]->request == r)
            d->added[i] = NULL;
    if (r->left > 0)
        serve_unqueue(s, r);
    r->ended = true;
    if (r->cancelled)
        s->metrics.cancelled++;
    else if (r->failed.status != 0)
        s->metrics.failed++;
    if (r->stream && !r->cancelled)
        serve_event_end(s, r);
    serve_http_wake(s, r);
    serve_request_leave(r);
}

static void end_choice(serve_schedule *d, serve_choice *c, const char *reason)
{
    serve_request *r = c->request;
    c->finish_reason = reason;
    if (r->stream)
        serve_event_finish(d->server, c);
    leave_slot(d, c);
    r->begun--;
    if (--r->left == 0)
        end_request(d, r);
    else if (r->stream)
        serve_http_wake(d->server, r);
}

static void fail_request(serve_schedule *d, serve_request *r, const char *why)
{
    serve_refuse(&r->failed, 503, "", "%s", why);
    end_request(d, r);
}

static void fail_waiting(serve_schedule *d, const char *why)
{
    while (d->server->first != NULL)
        fail_request(d, d->server->first->request, why);
}

static void fail_running(serve_schedule *d, const char *why)
{
    for (int64_t i = 0; i < serve_chosen.parallel; i++)
        if (d->slots[i].choice != NULL)
            fail_request(d, d->slots[i].choice->request, why);
}

static bool has_begun(const serve_request *r)
{
    for (int i = 0; i < r->choice_count; i++)
        if (r->choices[i].sequence >= 0 || r->choices[i].generated > 0)
            return true;
    return false;
}

/* Reacts to signals: the first one refuses new requests and sets the deadline of running ones.
 * Needs the lock. */
static void obey_signals(serve_schedule *d)
{
    static const char why[] = "the server shuts down";
    if (signals == 0)
        return;
    if (d->deadline <= 0) {
        d->deadline = serve_now() + serve_chosen.grace;
        d->server->stopping = true;
        serve_notify("STOPPING=1");
    }
    /* Requests of which a text has begun go on, also those that wait since ranks have changed. */
    for (serve_choice *c = d->server->first, *next; c != NULL; c = next) {
        next = c->next;
        if (!has_begun(c->request)) {
            fail_request(d, c->request, why);
            next = d->server->first;
        }
    }
    if (signals > 1 || serve_now() >= d->deadline) {
        fail_waiting(d, why);
        fail_running(d, why);
    }
}

static bool is_late(const serve_request *r)
{
    return serve_chosen.deadline > 0 && serve_now() > r->arrived + serve_chosen.deadline;
}

static void fail_waiting_late(serve_schedule *d, serve_request *r)
{
    char why[128];
    snprintf(why, sizeof why, "the request waited longer than %g s", serve_chosen.deadline);
    fail_request(d, r, why);
}

/* Ends the requests that have taken too long. Of those that wait, only the first ones: end_gone
 * finds others, whose bodies took long to read. Needs the lock. */
static void end_late(serve_schedule *d)
{
    char why[128];
    for (int64_t i = 0; i < serve_chosen.parallel; i++) {
        const serve_choice *c = d->slots[i].choice;
        if (c == NULL || !is_late(c->request))
            continue;
        snprintf(why, sizeof why, "the text took longer than %g s, with %" PRId64 " tokens so far",
                 serve_chosen.deadline, c->generated);
        fail_request(d, c->request, why);
    }
    while (d->server->first != NULL && is_late(d->server->first->request))
        fail_waiting_late(d, d->server->first->request);
}

void serve_schedule_fail(serve_schedule *d, const char *why)
{
    serve_server *s = d->server;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < d->added_count; i++)
        if (d->added[i] != NULL)
            fail_request(d, d->added[i]->request, why);
    fail_waiting(d, why);
    fail_running(d, why);
    serve_http_unlock(s);
}

/* Orders --------------------------------------------------------------------------------------- */

static bool is_gone(serve_request *r)
{
    r->cancelled = r->cancelled || serve_http_is_closed(r);
    return r->cancelled;
}

/* Ends the waiting requests whose clients have gone, which would fill the queue, those that have
 * waited too long, and connections of clients that send too slowly. Needs the lock. */
static void end_gone(serve_schedule *d)
{
    const double now = serve_now();
    if (now < d->looked + GONE_SECONDS)
        return;
    d->looked = now;
    serve_end_slow_senders(d->server);
    const serve_request *last = NULL;
    for (serve_choice *c = d->server->first; c != NULL; c = c->next) {
        if (c->request != last)
            (void)is_gone(c->request);
        last = c->request;
    }
    for (serve_choice *c = d->server->first, *next; c != NULL; c = next) {
        next = c->next;
        const bool cancelled = c->request->cancelled;
        if (!cancelled && !is_late(c->request))
            continue;
        if (cancelled)
            end_request(d, c->request);
        else
            fail_waiting_late(d, c->request);
        next = d->server->first;
    }
}

static void order_removals(serve_schedule *d, cli_text *out, orders *head)
{
    for (int64_t i = 0; i < serve_chosen.parallel; i++)
        if (d->slots[i].choice != NULL && is_gone(d->slots[i].choice->request))
            end_request(d, d->slots[i].choice->request);
    for (int64_t i = 0; i < serve_chosen.parallel; i++) {
        if (!d->slots[i].removes)
            continue;
        cli_text_add(out, (const char *)&i, sizeof i);
        head->removals++;
        d->slots[i] = (slot){0};
    }
}

static int64_t used_slots(const serve_schedule *d)
{
    int64_t used = 0;
    for (int64_t i = 0; i < serve_chosen.parallel; i++)
        used += d->slots[i].used;
    return used;
}

/* Writes what the other ranks must know of a text. One that has run before goes on after the tokens
 * that it has. */
static void order_addition(const serve_choice *c, cli_text *out)
{
    const serve_request *r = c->request;
    addition one = {.max_tokens = r->max_tokens > 0 ? r->max_tokens - c->generated : 0,
                    .id_count = r->id_count + c->generated,
                    .prompt_count = r->id_count,
                    .top_log_probabilities = r->top_log_probabilities,
                    .log_probabilities = r->log_probabilities,
                    .adapter = r->adapter,
                    .number = (uint64_t)c->index,
                    .sampling = r->sampling};
    cli_text_add(out, (const char *)&one, sizeof one);
    cli_text_add(out, (const char *)r->ids, (size_t)r->id_count * sizeof *r->ids);
    cli_text_add(out, (const char *)c->tokens, (size_t)c->generated * sizeof *c->tokens);
    cli_text_add(out, (const char *)r->biases, (size_t)r->sampling.bias_count * sizeof *r->biases);
    serve_grammar_write(r->grammar, out);
}

static void order_additions(serve_schedule *d, cli_text *out, orders *head)
{
    serve_server *s = d->server;
    d->added_count = 0;
    for (int64_t used = used_slots(d);
         used < serve_chosen.parallel && s->first != NULL && s->unavailable[0] == '\0';) {
        serve_request *next = serve_peek(s)->request;
        if (is_gone(next)) {
            end_request(d, next);
            continue;
        }
        serve_choice *c = serve_dequeue(s);
        order_addition(c, out);
        d->added[d->added_count++] = c;
        head->additions++;
        used++;
    }
}

static bool is_time_to_grow(const serve_schedule *d, double now)
{
    return d->server->ranks < d->server->wanted_ranks &&
           now > d->growth + (d->searches < FIRST_SEARCHES ? GROW_SECONDS : LATE_GROW_SECONDS);
}

/* Waits until there is something to do, and writes the orders of the next step. */
static void give_orders(serve_schedule *d, cli_text *out)
{
    serve_server *s = d->server;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        orders head = {0};
        const double now = serve_now();
        out->size = 0;
        cli_text_add(out, (const char *)&head, sizeof head);
        obey_signals(d);
        end_late(d);
        end_gone(d);
        if (s->unavailable[0] != '\0')
            fail_waiting(d, s->unavailable);
        head.grammars = serve_grammars_announce(s->ranks > 1 ? out : NULL);
        order_removals(d, out, &head);
        order_additions(d, out, &head);
        head.ends = s->stopping && s->running + s->waiting + head.additions == 0;
        head.grows = is_time_to_grow(d, now);
        memcpy(out->data, &head, sizeof head);
        if (head.ends || head.grows || head.grammars + head.removals + head.additions > 0 ||
            s->running > 0 || (s->ranks > 1 && now > d->beat + BEAT_SECONDS)) {
            d->beat = now;
            if (head.grows) {
                d->growth = now;
                d->searches++;
            }
            break;
        }
        d->step_end = 0; /* waiting is no work */
        if (s->woken_count > 0) {
            serve_http_unlock(s);
            pthread_mutex_lock(&s->lock);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += IDLE_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
    }
    serve_http_unlock(s);
}

/* Sends the orders from rank 0 to all ranks. */
static tsr_status share_orders(serve_schedule *d, cli_text *text)
{
    tsr_comm *comm = d->server->job.comm;
    int64_t size = (int64_t)text->size;
    const tsr_status status = tsr_comm_broadcast(comm, &size, sizeof size, TSR_U8, 0, NULL);
    if (status != TSR_OK)
        return status;
    if (!d->server->listens) {
        text->size = 0;
        char *bytes = cli_alloc((size_t)size, 1);
        cli_text_add(text, bytes, (size_t)size);
        free(bytes);
    }
    return tsr_comm_broadcast(comm, text->data, (uint64_t)size, TSR_U8, 0, NULL);
}

/* Prepares the stream of a text that has not begun yet. */
static tsr_status begin_stream(const serve_server *s, serve_choice *c)
{
    const serve_request *r = c->request;
    const char *text = NULL;
    size_t size = 0;
    if (c->stream != NULL)
        return TSR_OK;
    tsr_status status = tsr_text_stream_create(
        tsr_text_stream_params(.tokenizer = s->tokenizer, .stops = r->stops,
                               .stop_count = r->stop_count, .invalid = TSR_TEXT_INVALID_REPLACE,
                               .channels = r->chat),
        &c->stream);
    c->decoding = TSR_INIT(tsr_decode_state);
    c->decoding.control = TSR_DECODE_CONTROL_SPELL;
    for (int64_t i = 0; i < r->id_count && status == TSR_OK; i++) {
        if (r->ids[i] >= tsr_tokenizer_size(s->tokenizer))
            continue;
        status = tsr_text_stream_add_prompt(c->stream, r->ids[i], &text, &size);
        if (status == TSR_OK)
            status = tsr_tokenizer_decode_next(s->tokenizer, &c->decoding, r->ids[i], &text, &size);
    }
    return status;
}

/* Copies bytes from the orders, and advances *at past them. */
static void *take(const char **at, size_t count, size_t size)
{
    void *copy = cli_alloc(count + 1, size);
    memcpy(copy, *at, count * size);
    *at += count * size;
    return copy;
}

/* Remembers the grammar of a sequence, or that it has none any more. */
static void keep_grammar(const serve_schedule *d, int64_t sequence, serve_grammar *grammar)
{
    serve_grammar_leave(d->grammars[sequence]);
    d->grammars[sequence] = grammar;
}

/* Creates a state that has read these tokens; NULL without a grammar. */
static tsr_status begin_grammar(const serve_grammar *grammar, const int32_t *tokens, int64_t count,
                                tsr_grammar_state **out)
{
    *out = NULL;
    if (grammar == NULL)
        return TSR_OK;
    tsr_status status = tsr_grammar_state_create(serve_grammar_of(grammar), NULL, out);
    for (int64_t i = 0; i < count && status == TSR_OK; i++)
        status = tsr_grammar_state_add(*out, tokens[i]);
    return status;
}

static tsr_status add_sequence(const serve_schedule *d, const char **at, int *sequence)
{
    addition one;
    memcpy(&one, *at, sizeof one);
    *at += sizeof one;
    int32_t *ids = take(at, (size_t)one.id_count, sizeof *ids);
    tsr_logit_bias *biases = take(at, (size_t)one.sampling.bias_count, sizeof *biases);
    one.sampling.biases = biases;
    serve_grammar *grammar = NULL;
    tsr_grammar_state *state = NULL;
    tsr_status status = serve_grammar_read(d->server, at, &grammar);
    if (status == TSR_OK)
        status =
            begin_grammar(grammar, ids + one.prompt_count, one.id_count - one.prompt_count, &state);
    if (status == TSR_OK)
        status = tsr_generator_add(
            d->server->generator,
            tsr_sequence_params(.prompt = ids, .prompt_count = one.id_count,
                                .sampling = &one.sampling, .number = one.number,
                                .max_tokens = one.max_tokens,
                                .generated_count = one.id_count - one.prompt_count,
                                .log_probabilities = one.log_probabilities != 0,
                                .top_log_probabilities = (int)one.top_log_probabilities,
                                .stop = d->end, .stop_count = d->end_count, .grammar = state,
                                .lora =
                                    one.adapter >= 0 ? d->server->job.adapters[one.adapter] : NULL),
            sequence);
    tsr_grammar_state_destroy(&state);
    if (status == TSR_OK)
        keep_grammar(d, *sequence, grammar);
    else
        serve_grammar_leave(grammar);
    free(ids);
    free(biases);
    return status;
}

/* Gives a choice the slot of its sequence on rank 0. If the client has gone since the choice was
 * added to the orders, the sequence is removed before the next step. */
static tsr_status begin_slot(serve_schedule *d, int index, int sequence)
{
    serve_choice *c = d->added[index];
    pthread_mutex_lock(&d->server->lock);
    d->slots[sequence] = (slot){.choice = c, .used = true, .removes = c == NULL};
    d->added[index] = NULL;
    if (c != NULL) {
        c->sequence = sequence;
        d->server->running++;
    }
    serve_http_unlock(d->server);
    return c != NULL ? begin_stream(d->server, c) : TSR_OK;
}

/* Ends the request of a choice that the generator has refused, which all ranks notice. */
static void fail_addition(serve_schedule *d, int index)
{
    pthread_mutex_lock(&d->server->lock);
    const serve_choice *c = d->added[index];
    if (c != NULL) {
        serve_refuse(&c->request->failed, 500, "", "the generator cannot begin the text: %s",
                     tsr_last_error());
        end_request(d, c->request);
    }
    serve_http_unlock(d->server);
}

/* Carries out the orders. All ranks call this with the same orders. */
static tsr_status obey(serve_schedule *d, const cli_text *text, orders *head)
{
    serve_server *s = d->server;
    const char *at = text->data;
    memcpy(head, at, sizeof *head);
    at += sizeof *head;
    tsr_status status = TSR_OK;
    for (int64_t i = 0; i < head->grammars; i++)
        serve_grammar_hear(s, &at);
    for (int64_t i = 0; i < head->removals && status == TSR_OK; i++) {
        int64_t sequence;
        memcpy(&sequence, at, sizeof sequence);
        at += sizeof sequence;
        status = tsr_generator_remove(s->generator, (int)sequence);
        keep_grammar(d, sequence, NULL);
    }
    for (int64_t i = 0; i < head->additions && status == TSR_OK; i++) {
        int sequence = 0;
        status = add_sequence(d, &at, &sequence);
        if (status == TSR_ERR_INVALID) {
            if (s->listens)
                fail_addition(d, (int)i);
            status = TSR_OK;
        } else if (status == TSR_OK && s->listens) {
            status = begin_slot(d, (int)i, sequence);
        }
    }
    return status;
}

/* Tokens --------------------------------------------------------------------------------------- */

static void measure_token(serve_schedule *d, serve_choice *c)
{
    serve_metrics *m = &d->server->metrics;
    const double now = serve_now();
    if (c->generated == 0)
        serve_histogram_add(&m->first_token, now - c->request->arrived);
    else
        serve_histogram_add(&m->per_token, now - c->last_token);
    c->last_token = now;
    m->generated_tokens++;
}

static void keep_token(serve_choice *c, int32_t token)
{
    if (c->generated == c->capacity) {
        c->capacity = 2 * c->capacity + 64;
        c->tokens = cli_resize(c->tokens, (size_t)c->capacity, sizeof *c->tokens);
    }
    c->tokens[c->generated++] = token;
}

/* Takes the token that a step has generated for a choice. Needs the lock. */
static tsr_status take_token(serve_schedule *d, serve_choice *c, const tsr_generated *token)
{
    serve_request *r = c->request;
    const char *text = NULL;
    size_t size = 0;
    bool stopped = false;
    tsr_status status = TSR_OK;
    if (token->finish == TSR_FINISH_STUCK) {
        serve_refuse(&r->failed, 400, "",
                     "no token of the model can continue the text by its grammar, or finding those "
                     "that can takes too long, after %" PRId64 " tokens",
                     c->generated);
        end_request(d, r);
        return TSR_OK;
    }
    if (c->generated == 0 && r->stream)
        serve_event_begin(d->server, c);
    if (c->generated == 0)
        c->cached = token->cached;
    measure_token(d, c);
    keep_token(c, token->token);
    if (r->log_probabilities)
        status = serve_add_log_probability(d->server, c, token);
    if (status == TSR_OK && token->token < tsr_tokenizer_size(d->server->tokenizer)) {
        status = tsr_text_stream_add(c->stream, token->token, &text, &size, &stopped);
        if (status == TSR_OK)
            serve_reply_add(d->server, c, text, size);
    }
    if (status == TSR_OK && token->finish != TSR_FINISH_NONE && !stopped) {
        status = tsr_text_stream_end(c->stream, &text, &size);
        if (status == TSR_OK)
            serve_reply_add(d->server, c, text, size);
    }
    if (status != TSR_OK)
        return status;
    if (stopped || token->finish != TSR_FINISH_NONE) {
        const bool whole =
            stopped || token->finish == TSR_FINISH_TOKEN || token->finish == TSR_FINISH_GRAMMAR;
        const bool calls = serve_reply_end(d->server, c, whole);
        end_choice(d, c, calls ? "tool_calls" : whole ? "stop" : "length");
    } else if (r->stream) {
        serve_http_wake(d->server, r);
    }
    return TSR_OK;
}

/* Counts the time of a step and the time before it. Needs the lock. */
static void measure_step(serve_schedule *d, double begin, double end)
{
    d->server->metrics.steps += end - begin;
    if (d->step_end > 0)
        d->server->metrics.between_steps += begin - d->step_end;
    d->step_end = end;
}

/* Takes the tokens of a step, and notes its time. */
static tsr_status take_tokens(serve_schedule *d, int count, double begin, double end)
{
    tsr_status status = TSR_OK;
    pthread_mutex_lock(&d->server->lock);
    if (d->server->running > 0)
        measure_step(d, begin, end);
    for (int i = 0; i < count && status == TSR_OK; i++) {
        const tsr_generated *token = tsr_generator_token(d->server->generator, i);
        serve_choice *c = d->slots[token->sequence].choice;
        if (c != NULL)
            status = take_token(d, c, token);
    }
    d->server->stats = TSR_INIT(tsr_generator_stats);
    if (status == TSR_OK)
        status = tsr_generator_get_stats(d->server->generator, &d->server->stats);
    serve_http_unlock(d->server);
    return status;
}

/* Steps ---------------------------------------------------------------------------------------- */

/* Ends the texts of a step in which a logit was NaN, which all ranks notice. Their sequences are
 * removed before the next step, after which the generator can go on. */
static void fail_step(serve_schedule *d)
{
    char why[256];
    snprintf(why, sizeof why, "the model cannot go on with the texts that run: %s",
             tsr_last_error());
    pthread_mutex_lock(&d->server->lock);
    fail_running(d, why);
    serve_http_unlock(d->server);
    cli_say("serve: %s", why);
}

tsr_status serve_schedule_run(serve_schedule *d, bool *ends)
{
    serve_server *s = d->server;
    for (*ends = false;;) {
        int count = 0;
        orders head;
        if (s->listens)
            give_orders(d, &d->orders);
        tsr_status status = share_orders(d, &d->orders);
        if (status == TSR_OK)
            status = obey(d, &d->orders, &head);
        if (status != TSR_OK)
            return status;
        if (head.ends) {
            *ends = true;
            return TSR_OK;
        }
        if (head.grows && serve_grow(s) == TSR_OK)
            return TSR_OK;
        if (head.grows && tsr_comm_status(s->job.comm) != TSR_OK)
            return tsr_comm_status(s->job.comm);
        if (s->generator == NULL)
            continue;
        const double begin = serve_now();
        status = tsr_generator_step(s->generator, &count);
        if (status == TSR_ERR_INVALID) {
            if (s->listens)
                fail_step(d);
            continue;
        }
        if (status == TSR_OK && s->listens)
            status = take_tokens(d, count, begin, serve_now());
        if (status != TSR_OK)
            return status;
    }
}

void serve_schedule_requeue(serve_schedule *d)
{
    serve_server *s = d->server;
    pthread_mutex_lock(&s->lock);
    /* The first ones of the queue come last. */
    for (int i = d->added_count - 1; i >= 0; i--)
        if (d->added[i] != NULL)
            serve_requeue(s, d->added[i]);
    d->added_count = 0;
    for (;;) {
        serve_choice *youngest = NULL;
        for (int64_t i = 0; i < serve_chosen.parallel; i++) {
            serve_choice *c = d->slots[i].choice;
            if (c != NULL && (youngest == NULL || c->request->arrived > youngest->request->arrived))
                youngest = c;
        }
        if (youngest == NULL)
            break;
        leave_slot(d, youngest);
        serve_requeue(s, youngest);
    }
    for (int64_t i = 0; i < serve_chosen.parallel; i++)
        d->slots[i] = (slot){0};
    d->searches = 0;
    serve_http_unlock(s);
}

serve_schedule *serve_schedule_create(serve_server *s)
{
    serve_schedule *d = cli_alloc(1, sizeof *d);
    d->server = s;
    d->slots = cli_alloc((size_t)serve_chosen.parallel, sizeof *d->slots);
    d->grammars = cli_alloc((size_t)serve_chosen.parallel, sizeof *d->grammars);
    d->added = cli_alloc((size_t)serve_chosen.parallel, sizeof *d->added);
    d->end_count = inference_end_tokens(s->tokenizer, INFERENCE_MAX_END_TOKENS, d->end);
    return d;
}

void serve_schedule_destroy(serve_schedule **schedule)
{
    serve_schedule *d = *schedule;
    if (d == NULL)
        return;
    for (int64_t i = 0; i < serve_chosen.parallel; i++)
        keep_grammar(d, i, NULL);
    free(d->grammars);
    free(d->slots);
    free(d->added);
    cli_text_free(&d->orders);
    free(d);
    *schedule = NULL;
}
