/* What ends an operation before it is done: deadlines, losses (see losses.c), and ranks
 * that have called something else. All of these fail the communicator, on all ranks. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/job.h"
#include "comm/progress/tags.h"

#define MS UINT64_C(1000000)
#define ANSWER_NS (50 * MS) /* for ranks that wait themselves to say where they are */
#define ASK_MOST_NS (10000 * MS)

static const char *format_duration(uint64_t ns, char text[32])
{
    if (ns % (1000 * MS) == 0)
        (void)snprintf(text, 32, "%" PRIu64 " s", ns / (1000 * MS));
    else if (ns >= MS)
        (void)snprintf(text, 32, "%" PRIu64 " ms", ns / MS);
    else
        (void)snprintf(text, 32, "%" PRIu64 " ns", ns);
    return text;
}

void tsr__comm_fail(tsr_comm *comm, bool tell, tsr_status status, const char *format, ...)
{
    if (comm->status != TSR_OK)
        return;
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(comm->why, sizeof comm->why, format, arguments) < 0)
        comm->why[0] = '\0';
    va_end(arguments);
    comm->status = status;
    comm->doubt_until_ns = 0;
    tsr__log(TSR_LOG_WARNING, "comm: rank %d: %s", comm->rank, comm->why);
    if (tell)
        tsr__control_abort(comm, -1);
    tsr__job_bury(comm->job, comm->id);
    tsr__board_stop(comm->board);
    for (tsr_request *request = comm->job->requests; request; request = request->next) {
        if (request->comm == comm && !request->done)
            tsr__request_abandon(request, status, comm->why);
    }
}

const tsr__call *tsr__comm_past(const tsr_comm *comm, uint64_t sequence)
{
    const tsr__call *call = &comm->past[sequence % TSR__COMM_PAST];
    return sequence < comm->sequence && call->sequence == sequence ? call : NULL;
}

/* The same words on both sides. */
void tsr__comm_disagree(tsr_comm *comm, const tsr__call *mine, int rank, const tsr__call *theirs)
{
    char ours_text[TSR__CALL_TEXT], theirs_text[TSR__CALL_TEXT];
    const bool first = comm->rank < rank;
    const char *ours = tsr__call_format(mine, ours_text);
    const char *others = tsr__call_format(theirs, theirs_text);
    tsr__comm_fail(comm, true, TSR_ERR_INVALID, "rank %d called %s, rank %d called %s",
                   first ? comm->rank : rank, first ? ours : others, first ? rank : comm->rank,
                   first ? others : ours);
}

void tsr__comm_compare(tsr_comm *comm, int rank, const tsr__call *call, const tsr__call *before)
{
    char text[TSR__CALL_TEXT];
    const tsr__call *mine = tsr__comm_past(comm, call->sequence);
    if (comm->status != TSR_OK || !mine)
        return;
    if (!tsr__call_same(mine, call)) {
        tsr__comm_disagree(comm, mine, rank, call);
        return;
    }
    if (mine->history == call->history)
        return;
    const tsr__call *mine_before = tsr__comm_past(comm, before->sequence);
    if (mine_before && !tsr__call_same(mine_before, before))
        tsr__comm_disagree(comm, mine_before, rank, before);
    else
        tsr__comm_fail(comm, true, TSR_ERR_INVALID,
                       "rank %d and rank %d have called different operations before %s",
                       comm->rank < rank ? comm->rank : rank, comm->rank < rank ? rank : comm->rank,
                       tsr__call_format(mine, text));
}

/* Deadlines -------------------------------------------------------------------------------------
 */

/* "rank 2", "ranks 2, 5 and 3 more" of those that `is_meant`; "" when there are none. */
static const char *format_ranks(const tsr_request *request,
                                bool (*is_meant)(const tsr_request *, int), char text[96])
{
    const tsr_comm *comm = request->comm;
    int count = 0, written = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int rank = 0; rank < comm->size; rank++)
        count += rank != comm->rank && is_meant(request, rank);
    for (int rank = 0; rank < comm->size && written < count && written < 8; rank++) {
        if (rank == comm->rank || !is_meant(request, rank))
            continue;
        used += (size_t)snprintf(text + used, 96 - used, "%s%d",
                                 written > 0 ? ", "
                                 : count > 1 ? "ranks "
                                             : "rank ",
                                 rank);
        written++;
    }
    if (written < count)
        (void)snprintf(text + used, 96 - used, " and %d more", count - written);
    return text;
}

static bool is_silent(const tsr_request *request, int rank)
{
    return request->comm->news[rank].answered != request->last_asked;
}

static bool is_behind(const tsr_request *request, int rank)
{
    return request->comm->news[rank].sequence <= request->call.sequence;
}

static bool is_awaited(const tsr_request *request, int rank)
{
    if (request->turn.rounds > 0)
        return tsr__board_awaits(request->comm->board, rank);
    for (size_t i = request->round_start; request->posted && i < request->round_end; i++) {
        if (request->messages[i - request->round_start].state == TSR__MESSAGE_IN_FLIGHT &&
            request->schedule.steps[i].peer == rank)
            return true;
    }
    return false;
}

static void time_is_up(tsr_request *request)
{
    char text[TSR__CALL_TEXT], after[32], ranks[96];
    const char *call = tsr__call_format(&request->call, text);
    (void)format_duration(request->timeout_ns, after);
    if (request->call.kind >= TSR__CALL_SEND)
        tsr__comm_fail(request->comm, true, TSR_ERR_TIMEOUT, "%s: rank %d %s within %s", call,
                       (int)request->call.peer,
                       request->call.kind == TSR__CALL_SEND ? "has not received it"
                                                            : "has not sent it",
                       after);
    else if (*format_ranks(request, is_silent, ranks))
        tsr__comm_fail(request->comm, true, TSR_ERR_TIMEOUT, "%s: no answer from %s after %s", call,
                       ranks, after);
    else if (*format_ranks(request, is_behind, ranks))
        tsr__comm_fail(request->comm, true, TSR_ERR_TIMEOUT, "%s: not called by %s after %s", call,
                       ranks, after);
    else
        tsr__comm_fail(request->comm, true, TSR_ERR_TIMEOUT, "%s: still waiting for %s after %s",
                       call, format_ranks(request, is_awaited, ranks), after);
}

static void suspect_is_silent(const tsr_request *request)
{
    char ours[TSR__CALL_TEXT], theirs[TSR__CALL_TEXT];
    tsr__comm_fail(request->comm, true, TSR_ERR_INVALID,
                   "rank %d called %s, rank %d %s, and sent %" PRIu64 " bytes instead of %" PRIu64,
                   request->comm->rank, tsr__call_format(&request->call, ours), request->suspect,
                   tsr__signature_format(request->suspect_signature, theirs),
                   request->suspect_bytes, request->expected_bytes);
}

/* The question before the deadline finds out whom to name. */
static uint64_t tick_collective(tsr_request *request, uint64_t now)
{
    const uint64_t quarter = request->timeout_ns / 4;
    const uint64_t grace = quarter < ANSWER_NS ? quarter : ANSWER_NS;
    if (request->last_asked == 0 && now >= request->deadline_ns - grace) {
        request->last_asked = tsr__control_ask(request->comm, -1, &request->call);
        request->verdict_ns =
            request->deadline_ns > now + grace ? request->deadline_ns : now + grace;
    }
    if (request->last_asked != 0) {
        if (now >= request->verdict_ns)
            time_is_up(request);
        return request->verdict_ns;
    }
    if (now >= request->ask_ns) {
        const uint64_t waited = 3 * (now - request->started_ns);
        (void)tsr__control_ask(request->comm, -1, &request->call);
        request->ask_ns = now + (waited < ASK_MOST_NS ? waited : ASK_MOST_NS);
    }
    const uint64_t last = request->deadline_ns - grace;
    return request->ask_ns < last ? request->ask_ns : last;
}

static uint64_t tick(tsr_request *request, uint64_t now)
{
    if (request->suspect_until_ns != 0) {
        if (now >= request->suspect_until_ns)
            suspect_is_silent(request);
        return request->suspect_until_ns;
    }
    if (request->call.kind < TSR__CALL_SEND)
        return tick_collective(request, now);
    if (now >= request->deadline_ns)
        time_is_up(request);
    return request->deadline_ns;
}

uint64_t tsr__job_tick(tsr__job *job, uint64_t now_ns)
{
    uint64_t earliest = UINT64_MAX;
    if (now_ns >= job->glance_ns) {
        tsr__transport_poll_processes(job->transport);
        job->glance_ns = now_ns + MS;
    }
    for (tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (comm->doubt_until_ns != 0 && now_ns >= comm->doubt_until_ns)
            tsr__comm_judge(comm, now_ns);
        if (comm->doubt_until_ns != 0 && comm->doubt_until_ns < earliest)
            earliest = comm->doubt_until_ns;
    }
    for (tsr_request *request = job->requests; request; request = request->next) {
        if (request->done)
            continue;
        if (request->started_ns == 0)
            tsr__request_stamp(request, now_ns);
        const uint64_t when = tick(request, now_ns);
        if (!request->done && when < earliest)
            earliest = when;
    }
    return earliest;
}
