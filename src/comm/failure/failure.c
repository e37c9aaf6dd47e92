#include "comm/failure/failure.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"
#include "comm/message_tags.h"

#define STAGGER_NS UINT64_C(2000000)

void tsr__comm_fail(tsr_comm *comm, bool announce, tsr_status status, const char *format, ...)
{
    if (comm->status != TSR_OK)
        return;
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(comm->why, sizeof comm->why, format, arguments) < 0)
        comm->why[0] = '\0';
    va_end(arguments);
    comm->status = status;
    comm->grace_until_ns = 0;
    comm->must_cancel = true;
    comm->must_announce = announce;
    comm->job->must_apply = true;
    tsr__log(TSR_LOG_WARNING, "comm: rank %d: %s", comm->rank, comm->why);
}

/* In a large communicator, all ranks may detect a failure at the same time. Each doubling of a
 * rank's number delays the rank's report by STAGGER_NS, so that the report of the lowest rank
 * reaches all other ranks before they send reports of their own, unless the lowest rank is lost or
 * not in a call. */
uint64_t tsr__comm_stagger_ns(const tsr_comm *comm)
{
    uint64_t doublings = 0;
    for (int rank = comm->rank; comm->size > TSR__MANY_RANKS && rank > 0; rank /= 2)
        doublings++;
    return doublings * STAGGER_NS;
}

void tsr__request_ask(tsr_request *request, int rank)
{
    tsr_comm *comm = request->comm;
    /* the number wraps around; skip 0, which means that there was no question */
    if (++comm->questions == 0)
        comm->questions = 1;
    request->question = comm->questions;
    request->question_to = rank;
    request->must_ask = true;
    comm->job->must_apply = true;
}

/* Tombstones --------------------------------------------------------------------------------------
 */

void tsr__tombstone_add(tsr__job *job, uint32_t comm)
{
    job->tombstones[job->next_tombstone++ % TSR__TOMBSTONES] =
        (tsr__tombstone){.comm = comm, .until_ns = tsr__deadline_ns(TSR__SECOND)};
    job->has_tombstones = true;
}

void tsr__tombstones_discard(tsr__job *job)
{
    const uint64_t now = tsr__now_ns();
    job->has_tombstones = false;
    for (int i = 0; i < TSR__TOMBSTONES; i++) {
        const tsr__tombstone *tombstone = &job->tombstones[i];
        if (now >= tombstone->until_ns)
            continue;
        tsr__transport_discard(job->transport, tsr__tag_collective(tombstone->comm, 0, 0, 0),
                               TSR__TAG_COMM_MASK);
        tsr__transport_discard(job->transport, tsr__tag_direct(tombstone->comm, 0, 0, (tsr_dtype)0),
                               TSR__TAG_COMM_MASK);
        job->has_tombstones = true;
    }
}
