/* Executes schedules: posts the messages of a round, waits until they have completed, executes the
 * local steps of the round, and continues with the next round. */
#include <string.h>

#include "comm/failure/failure.h"
#include "comm/message_tags.h"
#include "comm/progress/progress.h"
#include "comm/reduce/exact_combine.h"

static const uint8_t *read_at(const tsr_request *request, tsr__span span)
{
    const uint8_t *start = span.array == TSR__AT_SEND   ? request->send
                           : span.array == TSR__AT_RECV ? request->recv
                                                        : request->temp;
    return start ? start + span.start * request->element_bytes : NULL;
}

/* Steps never write to the caller's input. */
static uint8_t *write_at(const tsr_request *request, tsr__span span)
{
    uint8_t *start = span.array == TSR__AT_RECV ? request->recv : request->temp;
    return start ? start + span.start * request->element_bytes : NULL;
}

static bool is_direct(const tsr_request *request)
{
    return request->call.kind >= TSR__CALL_SEND;
}

/* Returns whether a completed receive has the data of this request's call. If not, records the
 * message that was received instead. */
static bool check_received(tsr_request *request, const tsr__message *message, const tsr__step *step)
{
    const uint64_t expected = step->to.count * request->element_bytes;
    const bool tag_fits = is_direct(request)
                              ? tsr__tag_dtype(message->tag) == (tsr_dtype)request->call.dtype
                              : (message->tag & ~TSR__TAG_COLLECTIVE_MASK) == request->signature;
    if (message->state == TSR__MESSAGE_DONE && message->size_bytes == expected && tag_fits)
        return true;
    if (request->mismatch.rank < 0 &&
        (message->state == TSR__MESSAGE_DONE || message->state == TSR__MESSAGE_TOO_LONG)) {
        request->mismatch.rank = step->peer;
        request->mismatch.signature = (uint32_t)(message->tag & ~TSR__TAG_COLLECTIVE_MASK);
        if (is_direct(request))
            request->mismatch.signature = (uint32_t)tsr__tag_dtype(message->tag);
        request->mismatch.sent_bytes = message->size_bytes;
        request->mismatch.expected_bytes = expected;
    }
    return false;
}

static void check_message(tsr_request *request, const tsr__message *message)
{
    const tsr__step *step =
        &request->schedule.steps[request->round_start + (size_t)(message - request->messages)];
    const bool succeeded = step->kind == TSR__STEP_RECV ? check_received(request, message, step)
                                                        : message->state == TSR__MESSAGE_DONE;
    request->has_failed_message = request->has_failed_message || !succeeded;
}

static void on_complete(tsr__message *message)
{
    tsr_request *request = message->owner;
    request->in_flight--;
    request->job->has_completions = true;
    if (!request->is_cancelled)
        check_message(request, message);
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
    *message = (tsr__message){.on_complete = on_complete, .owner = request};
    if (is_send)
        tsr__transport_send(request->job->transport, peer, tag, read_at(request, step->from),
                            step->from.count * request->element_bytes, message);
    else
        tsr__transport_recv(request->job->transport, peer, tag,
                            is_direct(request) ? TSR__TAG_DIRECT_MASK : TSR__TAG_COLLECTIVE_MASK,
                            write_at(request, step->to), step->to.count * request->element_bytes,
                            message);
    if (message->state != TSR__MESSAGE_IN_FLIGHT)
        check_message(request, message);
    else if (request->in_flight++,
             !is_send && (comm->peers[step->peer].left ||
                          tsr__transport_is_lost(request->job->transport, peer)))
        /* the peer has left or is lost, so the message will never arrive and counts as failed */
        request->has_failed_message = true;
}

/* Starts an inner step (a collective of the ranks of one subtree, in shared memory).
 * end_shm_operation() in progress.c is called when it has completed. */
static void start_inner(tsr_request *request, const tsr__step *step)
{
    static const tsr__call_kind kinds[] = {
        [TSR__INNER_ALL_REDUCE] = TSR__CALL_ALL_REDUCE,
        [TSR__INNER_REDUCE] = TSR__CALL_REDUCE,
        [TSR__INNER_REDUCE_SCATTER] = TSR__CALL_REDUCE_SCATTER,
        [TSR__INNER_ALL_GATHER] = TSR__CALL_ALL_GATHER,
        [TSR__INNER_BROADCAST] = TSR__CALL_BROADCAST,
        [TSR__INNER_BARRIER] = TSR__CALL_BARRIER,
    };
    const tsr_comm *comm = request->comm;
    tsr__shm_operation *operation = &request->shm;
    const tsr__call *call = &request->call;
    const tsr__call *before =
        call->sequence > 0 ? tsr__comm_past_call(comm, call->sequence - 1) : NULL;
    operation->kind = kinds[step->inner];
    operation->root = step->peer - comm->shm_first;
    operation->count = step->inner == TSR__INNER_BROADCAST ? step->to.count : step->from.count;
    operation->blocks = tsr__inner_blocks(&request->schedule, step);
    operation->send = read_at(request, step->from);
    operation->recv = write_at(request, step->to);
    operation->element_bytes = request->element_bytes;
    operation->combine = request->combine;
    operation->divide = NULL;
    operation->exact = false;
    tsr__shm_prepare(comm->shm_count, operation);
    request->inner_running = true;
    tsr__shm_add(comm->shm, operation, before ? before : call);
    operation->step_number++;
}

/* Posts receives before sends, so that messages find their buffers when they arrive. */
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
    if (schedule->steps[request->round_start].kind == TSR__STEP_INNER)
        start_inner(request, &schedule->steps[request->round_start]);
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
    case TSR__STEP_INNER:
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
    if (tsr__request_is_queued(request))
        return;
    while (!request->done && !request->has_failed_message) {
        if (request->posted && (request->in_flight > 0 || request->inner_running))
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
        tsr__request_message_failed(request);
}
