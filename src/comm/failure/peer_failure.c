/* Ranks that are gone, and messages that went wrong. Whoever gives up because of a lost rank is
 * often gone a moment later: so what a rank finds out by itself is doubted for a while, in which
 * somebody may say what it was. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "comm/job.h"
#include "comm/progress/tags.h"

#define DOUBT_NS UINT64_C(30000000)
#define SUSPECT_NS UINT64_C(300000000) /* for one that has called something else to say what */

/* Whether it will not show or send anything any more. */
static bool is_gone(const tsr_comm *comm, int rank)
{
    return comm->news[rank].left ||
           tsr__transport_is_lost(comm->job->transport, comm->world_of[rank]);
}

/* The first rank of the communicator to be lost; `rank` where none is. */
static int first_lost(const tsr_comm *comm, int rank)
{
    unsigned first = 0;
    for (int i = 0; i < comm->size; i++) {
        const unsigned number = tsr__transport_loss_order(comm->job->transport, comm->world_of[i]);
        if (number != 0 && (first == 0 || number < first)) {
            first = number;
            rank = i;
        }
    }
    return rank;
}

/* A rank that is gone is needed for a call. What a collective waits for may be a rank that gave up,
 * and went, because of another. */
static void fail_gone(tsr_comm *comm, const tsr__call *call, int rank)
{
    char text[TSR__CALL_TEXT];
    if (call->kind < TSR__CALL_SEND)
        rank = first_lost(comm, rank);
    (void)tsr__call_format(call, text);
    if (comm->news[rank].left)
        tsr__comm_fail(comm, true, TSR_ERR_PEER_LOST, "%s: rank %d has destroyed the communicator",
                       text, rank);
    else
        tsr__comm_fail(comm, true, TSR_ERR_PEER_LOST, "%s: rank %d is lost: %s", text, rank,
                       tsr__transport_loss_reason(comm->job->transport, comm->world_of[rank]));
}

static void doubt(tsr_comm *comm)
{
    if (comm->status == TSR_OK && comm->doubt_until_ns == 0)
        comm->doubt_until_ns = tsr__deadline_ns(DOUBT_NS);
}

/* Messages --------------------------------------------------------------------------------------
 */

/* The sender of a wrong message is asked what it has called, so that the error can say it. */
static void suspect(tsr_request *request)
{
    tsr_comm *comm = request->comm;
    char text[TSR__CALL_TEXT];
    if (request->suspect_until_ns != 0)
        return;
    if (request->call.kind < TSR__CALL_SEND) {
        request->suspect_until_ns = tsr__deadline_ns(SUSPECT_NS);
        (void)tsr__control_ask(comm, request->suspect, &request->call);
        return;
    }
    const tsr_dtype sent = (tsr_dtype)request->suspect_signature;
    const uint64_t size = tsr__element_size(sent);
    tsr__comm_fail(comm, true, TSR_ERR_INVALID, "rank %d called %s, rank %d sent it %" PRIu64 " %s",
                   comm->rank, tsr__call_format(&request->call, text), request->suspect,
                   size ? request->suspect_bytes / size : 0, tsr__element_name(sent));
}

void tsr__request_trouble(tsr_request *request)
{
    if (request->suspect >= 0)
        suspect(request);
    else
        doubt(request->comm);
}

/* A step that has failed, or will never end; NULL when there is none. */
static const tsr__step *failed_step(const tsr_request *request)
{
    const tsr_comm *comm = request->comm;
    for (size_t i = request->round_start; request->posted && i < request->round_end; i++) {
        const tsr__step *step = &request->schedule.steps[i];
        const tsr__message_state state = request->messages[i - request->round_start].state;
        if (state == TSR__MESSAGE_LOST || state == TSR__MESSAGE_CANCELLED ||
            (state == TSR__MESSAGE_IN_FLIGHT && is_gone(comm, step->peer)))
            return step;
    }
    return NULL;
}

static void fail_by_step(tsr_request *request, const tsr__step *step)
{
    tsr_comm *comm = request->comm;
    /* UCX may say of a message what it does not say of the peer. */
    if (!is_gone(comm, step->peer))
        tsr__transport_close_peer(comm->job->transport, comm->world_of[step->peer],
                                  step->kind == TSR__STEP_SEND ? "a message to it failed"
                                                               : "a message from it failed");
    fail_gone(comm, &request->call, step->peer);
}

/* Doubts ----------------------------------------------------------------------------------------
 */

/* A rank that is gone, and that the board waits for; −1: none. What it showed before counts. */
static int missing_on_board(const tsr_comm *comm)
{
    for (int rank = 0; rank < comm->size && tsr__board_is_busy(comm->board); rank++) {
        if (rank != comm->rank && is_gone(comm, rank) && tsr__board_awaits(comm->board, rank))
            return rank;
    }
    return -1;
}

void tsr__comm_check_gone(tsr_comm *comm)
{
    if (missing_on_board(comm) >= 0)
        doubt(comm);
    for (tsr_request *request = comm->job->requests; request; request = request->next) {
        if (request->comm != comm || request->done || request->suspect >= 0)
            continue;
        const bool fails = failed_step(request) != NULL;
        if (fails && !request->troubled) {
            request->troubled = true;
            tsr__request_trouble(request);
        } else if (!fails && request->troubled) {
            /* What a rank sent before it went has come after all. */
            request->troubled = false;
            comm->job->landed = true;
        }
    }
}

/* What has come meanwhile is heard first. And a process that has not run while it doubted has given
 * nobody any time: it doubts once more. */
void tsr__comm_judge(tsr_comm *comm, uint64_t now_ns)
{
    const bool was_away = now_ns - comm->doubt_until_ns > DOUBT_NS;
    tsr__job_listen(comm->job);
    if (comm->status != TSR_OK)
        return;
    comm->doubt_until_ns = 0;
    if (was_away && !comm->was_away) {
        comm->was_away = true;
        doubt(comm);
        return;
    }
    comm->was_away = false;
    const int missing = missing_on_board(comm);
    if (missing >= 0)
        fail_gone(comm, tsr__board_call(comm->board), missing);
    for (tsr_request *request = comm->job->requests; request && comm->status == TSR_OK;
         request = request->next) {
        const tsr__step *step = NULL;
        if (request->comm == comm && !request->done && request->troubled && request->suspect < 0)
            step = failed_step(request);
        if (step)
            fail_by_step(request, step);
    }
}
