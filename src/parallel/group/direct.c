/* The direct path, for tensors in ordinary memory of the process. The communicator reads and writes
 * them in place. */
#include "parallel/group/group.h"

static tsr_status direct_memory(const tsr__group_request *request, void **in, void **out)
{
    *in = NULL;
    if (request->in)
        TSR__TRY(tsr_tensor_map(request->in, in));
    return tsr_tensor_map(request->out, out);
}

static tsr_status direct_start(tsr__group_request *request)
{
    void *in, *out;
    TSR__TRY(direct_memory(request, &in, &out));
    TSR__TRY(tsr__group_start(request, in, out, request->counts, request->recv_counts,
                              &request->active));
    request->state = TSR__GROUP_ACTIVE;
    request->group->active_count++;
    return TSR_OK;
}

static tsr_status direct_progress(tsr_group *group)
{
    for (tsr__group_request *request = group->queue, *next; request; request = next) {
        next = request->next;
        if (request->state == TSR__GROUP_QUEUED) {
            bool reached = false;
            if (group->active_count < TSR__MAX_GROUP_ACTIVE)
                TSR__TRY(tsr_stream_reached(group->stream, request->point, &reached));
            /* Requests start in the order of the queue, so later ones cannot start either. */
            if (!reached)
                return TSR_OK;
            TSR__TRY(direct_start(request));
        }
        bool ended = true;
        TSR__TRY(tsr__group_test_active(&request->active, &ended));
        if (ended) {
            group->active_count--;
            TSR__TRY(tsr__group_copy_out(request));
            tsr__group_done(request);
        }
    }
    return TSR_OK;
}

static void direct_cancel(tsr_group *group)
{
    for (tsr__group_request *request = group->queue; request; request = request->next)
        tsr__group_cancel_active(&request->active);
    group->active_count = 0;
}

static void direct_add_pending(tsr_group *group, tsr__group_pending *all)
{
    for (tsr__group_request *request = group->queue; request; request = request->next) {
        if (tsr__group_is_active(&request->active))
            tsr__group_pending_transport(all, group, &request->active);
        if (request->state == TSR__GROUP_QUEUED) {
            if (group->active_count < TSR__MAX_GROUP_ACTIVE)
                tsr__group_pending_device(all, request->point);
            return;
        }
    }
}

static bool direct_fits(const tsr__group_request *request)
{
    (void)request;
    return true;
}

static tsr_status direct_copy(const tsr__group_request *request)
{
    (void)request; /* the operands are where the communicator reads and writes them */
    return TSR_OK;
}

const tsr__group_path tsr__group_direct = {
    .progress = direct_progress,
    .cancel = direct_cancel,
    .add_pending = direct_add_pending,
    .fits = direct_fits,
    .fill = direct_copy,
    .empty = direct_copy,
    .memory = direct_memory,
};
