/* Requests whose tensors are mapped: the communicator reads and writes them where they are. */
#include "parallel/group/group.h"

tsr_status tsr__group_start(const tsr_group_request *request, void *in, void *out,
                            const uint64_t *counts, tsr_request **active)
{
    tsr_comm *comm = request->group->comm;
    switch (request->kind) {
    case TSR__GROUP_ALL_REDUCE:
        return tsr_comm_all_reduce_start(comm, out, out, counts[0], request->dtype, request->op, 0,
                                         active);
    case TSR__GROUP_BROADCAST:
        return tsr_comm_broadcast_start(comm, out, counts[0], request->dtype, request->root, 0,
                                        active);
    case TSR__GROUP_ALL_GATHER:
        return tsr_comm_all_gather_v_start(comm, in, out, counts, request->dtype, 0, active);
    case TSR__GROUP_REDUCE_SCATTER:
        return tsr_comm_reduce_scatter_v_start(comm, in, out, counts, request->dtype, request->op,
                                               0, active);
    }
    return tsr__fail(TSR_ERR_INVALID, "group: there is no operation %d", (int)request->kind);
}

static tsr_status start(tsr_group_request *request)
{
    void *in = NULL, *out;
    if (request->in)
        TSR__TRY(tsr_tensor_map(request->in, &in));
    TSR__TRY(tsr_tensor_map(request->out, &out));
    TSR__TRY(tsr__group_start(request, in, out, request->counts, &request->active));
    request->state = TSR__GROUP_ACTIVE;
    request->group->active_count++;
    return TSR_OK;
}

tsr_status tsr__group_direct(tsr_group *group)
{
    bool may_start = true;
    for (tsr_group_request *request = group->queue, *next; request; request = next) {
        next = request->next;
        if (request->state == TSR__GROUP_QUEUED) {
            bool reached = false;
            may_start = may_start && group->active_count < TSR__MAX_GROUP_ACTIVE;
            if (may_start)
                TSR__TRY(tsr_stream_reached(group->stream, request->point, &reached));
            may_start = reached; /* those behind it wait for their turn */
            if (!may_start)
                return TSR_OK;
            TSR__TRY(start(request));
        }
        bool ended = true;
        if (request->active)
            TSR__TRY(tsr_request_test(&request->active, &ended));
        if (ended) {
            group->active_count--;
            TSR__TRY(tsr__group_deliver(request));
            tsr__group_done(request);
        }
    }
    return TSR_OK;
}
