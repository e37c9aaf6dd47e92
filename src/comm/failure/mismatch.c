/* Errors for ranks that have called different operations. */
#include <inttypes.h>

#include "comm/failure/failure.h"

const tsr__call *tsr__comm_past_call(const tsr_comm *comm, uint64_t sequence)
{
    const tsr__call *call = &comm->past[sequence % TSR__COMM_PAST];
    return sequence < comm->sequence && call->sequence == sequence ? call : NULL;
}

void tsr__comm_fail_mismatch(tsr_comm *comm, const tsr__call *mine, int rank,
                             const tsr__call *theirs)
{
    char my_text[TSR__CALL_TEXT], their_text[TSR__CALL_TEXT];
    const bool first = comm->rank < rank;
    (void)tsr__call_format(mine, my_text);
    (void)tsr__call_format(theirs, their_text);
    tsr__comm_fail(comm, true, TSR_ERR_INVALID, "rank %d called %s, rank %d called %s",
                   first ? comm->rank : rank, first ? my_text : their_text,
                   first ? rank : comm->rank, first ? their_text : my_text);
}

void tsr__comm_compare(tsr_comm *comm, int rank, const tsr__call *call, const tsr__call *before)
{
    char text[TSR__CALL_TEXT];
    const tsr__call *mine = tsr__comm_past_call(comm, call->sequence);
    if (comm->status != TSR_OK || !mine)
        return;
    if (!tsr__call_same(mine, call)) {
        tsr__comm_fail_mismatch(comm, mine, rank, call);
        return;
    }
    if (mine->history == call->history)
        return;
    const tsr__call *mine_before = tsr__comm_past_call(comm, before->sequence);
    if (mine_before && !tsr__call_same(mine_before, before))
        tsr__comm_fail_mismatch(comm, mine_before, rank, before);
    else
        tsr__comm_fail(comm, true, TSR_ERR_INVALID,
                       "rank %d and rank %d have called different operations before %s",
                       comm->rank < rank ? comm->rank : rank, comm->rank < rank ? rank : comm->rank,
                       tsr__call_format(mine, text));
}

void tsr__request_fail_mismatch(const tsr_request *request)
{
    char mine[TSR__CALL_TEXT], theirs[TSR__CALL_TEXT];
    const tsr__mismatch *found = &request->mismatch;
    if (request->call.kind < TSR__CALL_SEND) {
        tsr__comm_fail(request->comm, true, TSR_ERR_INVALID,
                       "rank %d called %s, rank %d called %s and sent %" PRIu64
                       " bytes instead of %" PRIu64,
                       request->comm->rank, tsr__call_format(&request->call, mine), found->rank,
                       tsr__signature_format(found->signature, theirs), found->sent_bytes,
                       found->expected_bytes);
        return;
    }
    const tsr_dtype sent = (tsr_dtype)found->signature;
    const uint64_t size = tsr__element_size(sent);
    tsr__comm_fail(request->comm, true, TSR_ERR_INVALID,
                   "rank %d called %s, rank %d sent it %" PRIu64 " %s", request->comm->rank,
                   tsr__call_format(&request->call, mine), found->rank,
                   size ? found->sent_bytes / size : 0, tsr__element_name(sent));
}
