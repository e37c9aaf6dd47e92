/* Handles ranks that are gone, and messages that have failed. */
#include <stdio.h>

#include "comm/failure/failure.h"

#define GRACE_NS UINT64_C(30000000)
/* If a message belongs to another call, its sender is asked for that call. This is the deadline for
 * the answer. */
#define MISMATCH_NS UINT64_C(300000000)

/* Returns whether the rank will not publish or send anything any more. */
static bool is_gone(const tsr_comm *comm, int rank)
{
    return comm->peers[rank].left ||
           tsr__transport_is_lost(comm->job->transport, comm->world_of[rank]);
}

/* Returns the rank of the communicator that was lost first, or `rank` if none was lost. */
static int first_lost(const tsr_comm *comm, int rank)
{
    unsigned first = 0;
    for (int i = 0; i < comm->size; i++) {
        const unsigned order = tsr__transport_loss_order(comm->job->transport, comm->world_of[i]);
        if (order != 0 && (first == 0 || order < first)) {
            first = order;
            rank = i;
        }
    }
    return rank;
}

/* Fails the communicator because the call needs a rank that is gone. In a collective, the error
 * names the rank that was lost first, because the others may have left for that reason. */
static void fail_gone(tsr_comm *comm, const tsr__call *call, int rank)
{
    char text[TSR__CALL_TEXT];
    if (call->kind < TSR__CALL_SEND)
        rank = first_lost(comm, rank);
    (void)tsr__call_format(call, text);
    if (comm->peers[rank].left)
        tsr__comm_fail(comm, true, TSR_ERR_PEER_LOST, "%s: rank %d has destroyed the communicator",
                       text, rank);
    else
        tsr__comm_fail(comm, true, TSR_ERR_PEER_LOST, "%s: rank %d is lost: %s", text, rank,
                       tsr__transport_loss_reason(comm->job->transport, comm->world_of[rank]));
}

static void start_grace_period(tsr_comm *comm)
{
    if (comm->status == TSR_OK && comm->grace_until_ns == 0)
        comm->grace_until_ns = tsr__deadline_ns(GRACE_NS + tsr__comm_stagger_ns(comm));
}

/* Messages ----------------------------------------------------------------------------------------
 */

/* Handles a received message that belongs to another call than the request. In a collective, asks
 * the sender for its call, so that the error can name it. For a send or receive, fails at once,
 * because the tag and size of the message have everything that the error needs. */
static void handle_mismatch(tsr_request *request)
{
    if (request->mismatch.until_ns != 0)
        return;
    if (request->call.kind < TSR__CALL_SEND) {
        request->mismatch.until_ns = tsr__deadline_ns(MISMATCH_NS);
        tsr__request_ask(request, request->mismatch.rank);
    } else {
        tsr__request_fail_mismatch(request);
    }
}

void tsr__request_message_failed(tsr_request *request)
{
    if (request->mismatch.rank >= 0)
        handle_mismatch(request);
    else
        start_grace_period(request->comm);
}

/* Returns a step of the current round whose message has failed, or will never complete because
 * its peer is gone. Returns NULL if there is none. */
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
    /* UCX can fail a message without reporting that the peer is lost. Treat the peer as lost then.
     */
    if (!is_gone(comm, step->peer))
        tsr__transport_close_peer(comm->job->transport, comm->world_of[step->peer],
                                  step->kind == TSR__STEP_SEND ? "a message to it failed"
                                                               : "a message from it failed");
    fail_gone(comm, &request->call, step->peer);
}

/* Grace periods -----------------------------------------------------------------------------------
 */

/* Returns a rank that is gone and whose data the operation in shared memory still needs, or −1.
 * Data that a rank published before it was gone is still used. */
static int awaited_in_shm(const tsr_comm *comm)
{
    for (int i = 0; i < comm->shm_count && tsr__shm_is_busy(comm->shm); i++) {
        const int rank = comm->shm_first + i;
        if (rank != comm->rank && is_gone(comm, rank) && tsr__shm_awaits(comm->shm, i))
            return rank;
    }
    return -1;
}

void tsr__comm_check_peers(tsr_comm *comm)
{
    if (comm->status != TSR_OK)
        return;
    if (awaited_in_shm(comm) >= 0)
        start_grace_period(comm);
    for (tsr_request *request = comm->job->requests; request; request = request->next) {
        if (request->comm != comm || !tsr__request_is_running(request) ||
            request->mismatch.rank >= 0)
            continue;
        const bool fails = failed_step(request) != NULL;
        if (fails && !request->has_failed_message) {
            request->has_failed_message = true;
            tsr__request_message_failed(request);
        } else if (!fails && request->has_failed_message) {
            /* No step has failed any more: the rank that is gone had sent the message before, and
             * it has arrived now. */
            request->has_failed_message = false;
            comm->job->has_completions = true;
        }
    }
}

/* Ends the grace period. If this process did not run during it, the other ranks had no chance to
 * report the original failure, so the process gets one more grace period. */
void tsr__comm_end_grace_period(tsr_comm *comm, uint64_t now_ns)
{
    const bool was_suspended = now_ns - comm->grace_until_ns > GRACE_NS;
    comm->grace_until_ns = 0;
    if (was_suspended && !comm->grace_extended) {
        comm->grace_extended = true;
        start_grace_period(comm);
        return;
    }
    comm->grace_extended = false;
    const int awaited = awaited_in_shm(comm);
    if (awaited >= 0)
        fail_gone(comm, tsr__shm_call(comm->shm), awaited);
    for (tsr_request *request = comm->job->requests; request && comm->status == TSR_OK;
         request = request->next) {
        const tsr__step *step = NULL;
        if (request->comm == comm && !request->done && request->has_failed_message &&
            request->mismatch.rank < 0)
            step = failed_step(request);
        if (step)
            fail_by_step(request, step);
    }
}

/* Called if this rank cannot receive messages any more, for example because a process ended in the
 * middle of writing one. Fails without a grace period, because no reports of other ranks can
 * arrive. A communicator made by tsr_comm_split may not contain the rank whose process has ended.
 */
void tsr__comm_fail_stuck(tsr_comm *comm)
{
    char text[TSR__CALL_TEXT];
    const int lost = first_lost(comm, -1);
    const tsr_request *request = comm->job->requests;
    while (request && (request->comm != comm || !tsr__request_is_running(request)))
        request = request->next;
    if (!request || comm->status != TSR_OK)
        return;
    if (lost >= 0) {
        fail_gone(comm, &request->call, lost);
        return;
    }
    int gone = 0;
    while (gone < comm->job->size - 1 && !tsr__transport_is_lost(comm->job->transport, gone))
        gone++;
    tsr__comm_fail(comm, true, TSR_ERR_PEER_LOST,
                   "%s: this rank cannot receive messages any more, because rank %d of the job is "
                   "lost: %s",
                   tsr__call_format(&request->call, text), gone,
                   tsr__transport_loss_reason(comm->job->transport, gone));
}
