/* Checks the deadlines of requests, and writes the errors of those whose deadline has passed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/failure/failure.h"

#define MS UINT64_C(1000000)
/* a request that has waited this long asks the other ranks for their calls */
#define ASK_AFTER_NS (50 * MS)
/* the time that ranks have to answer a question; ranks that are not inside a call of the library do
 * not answer */
#define ANSWER_NS (50 * MS)
#define MAX_ASK_NS (10000 * MS)

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

/* Lists the ranks for which `includes` returns true, as in "rank 2" or "ranks 2, 5 and 3 more".
 * The text is empty if there are none. */
static const char *format_ranks(const tsr_request *request,
                                bool (*includes)(const tsr_request *, int), char text[96])
{
    const tsr_comm *comm = request->comm;
    int count = 0, written = 0;
    size_t used = 0;
    text[0] = '\0';
    for (int rank = 0; rank < comm->size; rank++)
        count += rank != comm->rank && includes(request, rank);
    for (int rank = 0; rank < comm->size && written < count && written < 8; rank++) {
        if (rank == comm->rank || !includes(request, rank))
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
    const tsr__peer_state *peer = &request->comm->peers[rank];
    return peer->asked == request->final_question && peer->answered != request->final_question;
}

static bool is_stopped(const tsr_request *request, int rank)
{
    const tsr_comm *comm = request->comm;
    return is_silent(request, rank) &&
           tsr__transport_is_stopped(comm->job->transport, comm->world_of[rank]);
}

static bool is_behind(const tsr_request *request, int rank)
{
    const tsr__peer_state *peer = &request->comm->peers[rank];
    return peer->asked == request->final_question && peer->sequence <= request->call.sequence;
}

/* Returns the operation that must progress next for this request: the request itself, or an
 * earlier hierarchical collective (algorithms/hierarchical.h) that must complete first. */
static const tsr_request *running_request(const tsr_request *request)
{
    if (!tsr__request_is_queued(request))
        return request;
    for (const tsr_request *other = request->job->requests; other; other = other->next)
        if (other->comm == request->comm && other->is_hierarchical && !other->done &&
            !tsr__request_is_queued(other))
            return other;
    return request;
}

bool tsr__request_awaits(const tsr_request *request, int rank)
{
    const tsr_comm *comm = request->comm;
    request = running_request(request);
    if (request->in_shm || request->inner_running) {
        const int index = rank - comm->shm_first;
        return index >= 0 && index < comm->shm_count && tsr__shm_awaits(comm->shm, index);
    }
    for (size_t i = request->round_start; request->posted && i < request->round_end; i++) {
        if (request->messages[i - request->round_start].state == TSR__MESSAGE_IN_FLIGHT &&
            request->schedule.steps[i].peer == rank)
            return true;
    }
    return false;
}

static void fail_timeout(const tsr_request *request)
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
    else if (*format_ranks(request, is_stopped, ranks))
        tsr__comm_fail(request->comm, true, TSR_ERR_TIMEOUT, "%s: not done after %s; %s %s stopped",
                       call, after, ranks, strncmp(ranks, "ranks", 5) == 0 ? "are" : "is");
    else if (*format_ranks(request, is_silent, ranks))
        tsr__comm_fail(request->comm, true, TSR_ERR_TIMEOUT,
                       "%s: not done after %s; no answer from %s at present", call, after, ranks);
    else if (*format_ranks(request, is_behind, ranks))
        tsr__comm_fail(request->comm, true, TSR_ERR_TIMEOUT, "%s: not called by %s after %s", call,
                       ranks, after);
    else
        tsr__comm_fail(request->comm, true, TSR_ERR_TIMEOUT, "%s: still waiting for %s after %s",
                       call, format_ranks(request, tsr__request_awaits, ranks), after);
}

/* In a large communicator, a rank asks only the ranks that it waits for. If all of these have
 * answered and are in the same call, they must be waiting for other ranks. A rank that waits for
 * the cause of the delay should then report the failure, because only its report can name the
 * cause. Returns whether this rank extends its deadline for that, which happens once. */
static bool gives_way(tsr_request *request)
{
    char ranks[96];
    if (request->comm->size <= TSR__MANY_RANKS || request->gave_way ||
        *format_ranks(request, is_silent, ranks) || *format_ranks(request, is_behind, ranks))
        return false;
    request->gave_way = true;
    request->answers_due_ns += ANSWER_NS;
    return true;
}

/* Fails if the deadline has passed. Shortly before the deadline, asks other ranks for their calls
 * once more. The answers let the error name the ranks that do not answer or have not made the call.
 */
static uint64_t check_collective(tsr_request *request, uint64_t now)
{
    const uint64_t quarter = request->timeout_ns / 4;
    const uint64_t grace = quarter < ANSWER_NS ? quarter : ANSWER_NS;
    if (request->final_question == 0 && now >= request->deadline_ns - grace) {
        tsr__request_ask(request, -1);
        request->final_question = request->question;
        request->answers_due_ns =
            (request->deadline_ns > now + grace ? request->deadline_ns : now + grace) +
            tsr__comm_stagger_ns(request->comm);
    }
    if (request->final_question != 0) {
        if (now >= request->answers_due_ns && !gives_way(request))
            fail_timeout(request);
        return request->answers_due_ns;
    }
    if (now >= request->ask_ns) {
        const uint64_t waited = 3 * (now - request->started_ns);
        tsr__request_ask(request, -1);
        request->ask_ns = now + (waited < MAX_ASK_NS ? waited : MAX_ASK_NS);
    }
    const uint64_t last = request->deadline_ns - grace;
    return request->ask_ns < last ? request->ask_ns : last;
}

static uint64_t check_request(tsr_request *request, uint64_t now)
{
    if (request->mismatch.until_ns != 0) {
        if (now >= request->mismatch.until_ns)
            tsr__request_fail_mismatch(request);
        return request->mismatch.until_ns;
    }
    if (request->call.kind < TSR__CALL_SEND)
        return check_collective(request, now);
    if (now >= request->deadline_ns)
        fail_timeout(request);
    return request->deadline_ns;
}

void tsr__request_start_clock(tsr_request *request, uint64_t now_ns)
{
    request->started_ns = now_ns;
    request->deadline_ns =
        request->timeout_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + request->timeout_ns;
    request->ask_ns = now_ns + ASK_AFTER_NS;
}

bool tsr__job_has_ended_grace_period(const tsr__job *job, uint64_t now_ns)
{
    for (const tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (comm->grace_until_ns != 0 && now_ns >= comm->grace_until_ns)
            return true;
    }
    return false;
}

uint64_t tsr__job_check_deadlines(tsr__job *job, uint64_t now_ns)
{
    uint64_t earliest = UINT64_MAX;
    for (tsr_comm *comm = job->comms; comm; comm = comm->next) {
        if (comm->grace_until_ns != 0 && now_ns >= comm->grace_until_ns)
            tsr__comm_end_grace_period(comm, now_ns);
        if (comm->grace_until_ns != 0 && comm->grace_until_ns < earliest)
            earliest = comm->grace_until_ns;
    }
    for (tsr_request *request = job->requests; request; request = request->next) {
        if (!tsr__request_is_running(request))
            continue;
        if (request->started_ns == 0)
            tsr__request_start_clock(request, now_ns);
        const uint64_t when = check_request(request, now_ns);
        if (when < earliest)
            earliest = when;
    }
    return earliest;
}
