/* Executes plans: posts the messages of a round, waits until they have landed, does the round's
 * local steps, and goes on to the next. */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "comm/job.h"
#include "comm/progress/tags.h"
#include "comm/reduce/exact.h"

#define ASK_AFTER_NS UINT64_C(50000000)
#define UNUSED_MOST 4 /* requests kept, with their memory */

/* Memory ----------------------------------------------------------------------------------------
 */

static void request_free(tsr_request *request)
{
    tsr__schedule_finish(&request->schedule);
    tsr__free(request->messages);
    tsr__free(request->starts);
    tsr__free(request->temp);
    tsr__free(request);
}

tsr_status tsr__request_create(tsr_comm *comm, tsr_request **out)
{
    tsr__job *job = comm->job;
    tsr_request *request = job->unused;
    if (request) {
        job->unused = request->next;
        job->unused_count--;
    } else {
        request = tsr__calloc(1, sizeof *request);
        if (!request)
            return TSR_ERR_NO_MEMORY;
    }
    request->job = job;
    request->comm = comm;
    request->previous = NULL;
    request->call = (tsr__call){0};
    request->status = TSR_OK;
    request->why[0] = '\0';
    request->posted = request->troubled = request->leave_alone = false;
    request->done = true; /* until it is started */
    request->turn = (tsr__turn){0};
    request->started_ns = 0;
    request->send = request->recv = NULL;
    request->combine = NULL;
    request->divide = NULL;
    request->round_start = request->round_end = 0;
    request->flying = 0;
    request->last_asked = 0;
    request->suspect_until_ns = request->verdict_ns = 0;
    request->suspect = -1;
    tsr__schedule_reset(&request->schedule);
    request->next = job->requests;
    if (job->requests)
        job->requests->previous = request;
    job->requests = request;
    comm->held++;
    *out = request;
    return TSR_OK;
}

static void unlink_request(tsr_request *request)
{
    if (request->previous)
        request->previous->next = request->next;
    else
        request->job->requests = request->next;
    if (request->next)
        request->next->previous = request->previous;
}

void tsr__request_release(tsr_request *request)
{
    tsr__job *job = request->job;
    if (job) {
        unlink_request(request);
        request->comm->held--;
    }
    if (!job || job->unused_count >= UNUSED_MOST) {
        request_free(request);
        return;
    }
    request->comm = NULL;
    request->next = job->unused;
    job->unused = request;
    job->unused_count++;
}

void tsr__request_detach(tsr_request *request)
{
    unlink_request(request);
    request->job = NULL;
    request->comm = NULL;
}

/* The most messages in a round. */
static size_t count_messages(const tsr__schedule *schedule)
{
    size_t most = 0, count = 0;
    for (size_t i = 0; i < schedule->count; i++) {
        count = i > 0 && schedule->steps[i].round == schedule->steps[i - 1].round ? count + 1 : 1;
        most = count > most ? count : most;
    }
    return most;
}

static tsr_status take_memory(tsr_request *request)
{
    void *messages = request->messages;
    uint64_t bytes;
    TSR__TRY(request->schedule.status);
    tsr_status status = tsr__grow(&messages, &request->message_capacity,
                                  count_messages(&request->schedule), sizeof *request->messages);
    request->messages = messages;
    TSR__TRY(status);
    if (!tsr__mul_u64(request->schedule.temp_count, request->element_bytes, &bytes) ||
        bytes > PTRDIFF_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: %llu temporary elements are too many",
                         tsr__call_name(request->call.kind),
                         (unsigned long long)request->schedule.temp_count);
    if (bytes <= request->temp_bytes)
        return TSR_OK;
    /* What was in there is of no use any more. */
    tsr__free(request->temp);
    request->temp_bytes = 0;
    request->temp = tsr__calloc((size_t)bytes, 1);
    if (!request->temp)
        return TSR_ERR_NO_MEMORY;
    request->temp_bytes = bytes;
    return TSR_OK;
}

/* Rounds ----------------------------------------------------------------------------------------
 */

/* What is read. */
static const uint8_t *read_at(const tsr_request *request, tsr__span span)
{
    const uint8_t *start = span.place == TSR__AT_SEND   ? request->send
                           : span.place == TSR__AT_RECV ? request->recv
                                                        : request->temp;
    return start ? start + span.start * request->element_bytes : NULL;
}

/* What is written. */
static uint8_t *write_at(const tsr_request *request, tsr__span span)
{
    uint8_t *start = span.place == TSR__AT_RECV ? request->recv : request->temp;
    return start ? start + span.start * request->element_bytes : NULL;
}

static bool is_direct(const tsr_request *request)
{
    return request->call.kind >= TSR__CALL_SEND;
}

/* Whether a receive has brought what belongs here. */
static bool is_right(tsr_request *request, const tsr__message *message, const tsr__step *step)
{
    const uint64_t expected = step->to.count * request->element_bytes;
    const bool tag_fits = is_direct(request)
                              ? tsr__tag_dtype(message->tag) == (tsr_dtype)request->call.dtype
                              : (message->tag & ~TSR__TAG_COLLECTIVE_MASK) == request->signature;
    if (message->state == TSR__MESSAGE_DONE && message->size_bytes == expected && tag_fits)
        return true;
    if (request->suspect < 0 &&
        (message->state == TSR__MESSAGE_DONE || message->state == TSR__MESSAGE_TOO_LONG)) {
        request->suspect = step->peer;
        request->suspect_signature = (uint32_t)(message->tag & ~TSR__TAG_COLLECTIVE_MASK);
        if (is_direct(request))
            request->suspect_signature = (uint32_t)tsr__tag_dtype(message->tag);
        request->suspect_bytes = message->size_bytes;
        request->expected_bytes = expected;
    }
    return false;
}

static void look_at(tsr_request *request, const tsr__message *message)
{
    const tsr__step *step =
        &request->schedule.steps[request->round_start + (size_t)(message - request->messages)];
    const bool fine = step->kind == TSR__STEP_RECV ? is_right(request, message, step)
                                                   : message->state == TSR__MESSAGE_DONE;
    request->troubled = request->troubled || !fine;
}

static void on_landed(tsr__message *message)
{
    tsr_request *request = message->owner;
    request->flying--;
    request->job->landed = true;
    if (!request->leave_alone)
        look_at(request, message);
}

static void post_one(tsr_request *request, size_t index)
{
    const tsr_comm *comm = request->comm;
    const tsr__step *step = &request->schedule.steps[index];
    tsr__message *message = &request->messages[index - request->round_start];
    const bool is_send = step->kind == TSR__STEP_SEND;
    const int peer = comm->world_of[step->peer], source = is_send ? request->job->rank : peer;
    const uint64_t tag =
        is_direct(request)
            ? tsr__tag_direct(comm->id, source, request->call.tag, (tsr_dtype)request->call.dtype)
            : tsr__tag_collective(comm->id, source, request->call.sequence, request->signature);
    *message = (tsr__message){.landed = on_landed, .owner = request};
    if (is_send)
        tsr__transport_send(request->job->transport, peer, tag, read_at(request, step->from),
                            step->from.count * request->element_bytes, message);
    else
        tsr__transport_recv(request->job->transport, peer, tag,
                            is_direct(request) ? TSR__TAG_DIRECT_MASK : TSR__TAG_COLLECTIVE_MASK,
                            write_at(request, step->to), step->to.count * request->element_bytes,
                            message);
    if (message->state != TSR__MESSAGE_IN_FLIGHT)
        look_at(request, message);
    else if (request->flying++, !is_send && (comm->news[step->peer].left ||
                                             tsr__transport_is_lost(request->job->transport, peer)))
        request->troubled = true; /* nobody will send it */
}

/* Receives first, so that what comes finds its place. */
static void post_round(tsr_request *request)
{
    const tsr__schedule *schedule = &request->schedule;
    size_t end = request->round_start;
    while (end < schedule->count &&
           schedule->steps[end].round == schedule->steps[request->round_start].round)
        end++;
    request->round_end = end;
    request->posted = true;
    for (size_t i = request->round_start; i < end; i++)
        request->messages[i - request->round_start].state = TSR__MESSAGE_IDLE;
    for (size_t i = request->round_start; i < end; i++) {
        if (schedule->steps[i].kind == TSR__STEP_RECV)
            post_one(request, i);
    }
    for (size_t i = request->round_start; i < end; i++) {
        if (schedule->steps[i].kind == TSR__STEP_SEND)
            post_one(request, i);
    }
}

static void exact_step(tsr_request *request, const tsr__step *step)
{
    const void **inputs = request->comm->inputs;
    const uint8_t *with = read_at(request, step->with);
    const size_t count = (size_t)step->to.count;
    inputs[0] = read_at(request, step->from);
    for (int i = 0; i < step->slots; i++)
        inputs[i + 1] = with + (size_t)i * count * (size_t)request->element_bytes;
    tsr__exact_combine((tsr_dtype)request->call.dtype, (tsr_op)request->call.op,
                       write_at(request, step->to), inputs, step->slots + 1, count);
    if (request->divide)
        request->divide(write_at(request, step->to), count, (uint32_t)request->comm->size);
}

static void local_step(tsr_request *request, const tsr__step *step)
{
    uint8_t *to = write_at(request, step->to);
    const uint8_t *from = read_at(request, step->from);
    const size_t count = (size_t)step->to.count;
    if (count == 0)
        return;
    switch (step->kind) {
    case TSR__STEP_COPY:
        if (to != from)
            memmove(to, from, count * (size_t)request->element_bytes);
        break;
    case TSR__STEP_COMBINE:
        request->combine(to, from, read_at(request, step->with), count);
        break;
    case TSR__STEP_DIVIDE:
        if (request->divide)
            request->divide(to, count, (uint32_t)request->comm->size);
        break;
    case TSR__STEP_EXACT:
        exact_step(request, step);
        break;
    case TSR__STEP_SEND:
    case TSR__STEP_RECV:
        break;
    }
}

static void finish_round(tsr_request *request)
{
    for (size_t i = request->round_start; i < request->round_end; i++)
        local_step(request, &request->schedule.steps[i]);
    request->round_start = request->round_end;
    request->posted = false;
}

void tsr__request_advance(tsr_request *request)
{
    while (!request->done && !request->troubled) {
        if (request->posted && request->flying > 0)
            return;
        if (request->posted)
            finish_round(request);
        if (request->round_start == request->schedule.count) {
            tsr__request_finish(request, TSR_OK);
            return;
        }
        post_round(request);
    }
    if (!request->done)
        tsr__request_trouble(request);
}

/* Starting and ending ---------------------------------------------------------------------------
 */

void tsr__request_finish(tsr_request *request, tsr_status status)
{
    request->status = status;
    request->done = true;
    request->comm->running--;
}

void tsr__request_stamp(tsr_request *request, uint64_t now_ns)
{
    request->started_ns = now_ns;
    request->deadline_ns =
        request->timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + request->timeout_ns;
    request->ask_ns = now_ns + ASK_AFTER_NS;
}

tsr_status tsr__request_start(tsr_request *request)
{
    tsr_comm *comm = request->comm;
    if (request->turn.rounds == 0) {
        TSR__TRY(take_memory(request));
        tsr__request_stamp(request, tsr__now_ns());
    }
    if (!is_direct(request)) {
        request->call.sequence = comm->sequence++;
        request->call.history = comm->history;
        request->signature = tsr__call_signature(&request->call);
        comm->history = tsr__call_history(&request->call);
        comm->past[request->call.sequence % TSR__COMM_PAST] = request->call;
    }
    comm->running++;
    request->done = false;
    if (request->turn.rounds > 0) {
        tsr__board_add(comm, request);
        (void)tsr__board_advance(comm);
    } else {
        tsr__request_advance(request);
    }
    return TSR_OK;
}
