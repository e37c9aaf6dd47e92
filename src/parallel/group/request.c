/* Requests: how they are created, queued and completed, and the communicator's operation for
 * each. */
#include "base/alloc.h"
#include "gpu/internal.h"
#include "parallel/group/group.h"

#define EXCHANGE_TAG 1

tsr_status tsr__group_request_new(tsr_group *group, tsr__group_kind kind, tsr__group_request **out)
{
    tsr__group_request *request = tsr__calloc(1, sizeof *request);
    if (!request)
        return TSR_ERR_NO_MEMORY;
    request->base.methods = &tsr__group_request_methods;
    request->group = group;
    request->kind = kind;
    request->op = TSR_OP_SUM;
    request->counts = tsr__calloc((size_t)group->size, sizeof *request->counts);
    request->recv_counts = tsr__calloc((size_t)group->size, sizeof *request->recv_counts);
    request->sizes = tsr__calloc((size_t)group->size, sizeof *request->sizes);
    if (!request->counts || !request->recv_counts || !request->sizes) {
        tsr__group_request_free(request);
        return TSR_ERR_NO_MEMORY;
    }
    *out = request;
    return TSR_OK;
}

void tsr__group_request_free(tsr__group_request *request)
{
    if (!request)
        return;
    tsr_tensor_destroy(&request->in);
    tsr_tensor_destroy(&request->out);
    tsr_tensor_destroy(&request->target);
    tsr__free(request->counts);
    tsr__free(request->recv_counts);
    tsr__free(request->sizes);
    tsr__free(request);
}

tsr_status tsr__group_enqueue(tsr__group_request *request)
{
    tsr_group *group = request->group;
    if (request->in)
        TSR__TRY(tsr__tensor_synchronise(group->stream, request->in));
    TSR__TRY(tsr__tensor_synchronise(group->stream, request->out));
    TSR__TRY(tsr_stream_mark(group->stream, &request->point));
    TSR__TRY(tsr_stream_submit(group->stream));
    tsr__group_request **last = &group->queue;
    while (*last)
        last = &(*last)->next;
    *last = request;
    return TSR_OK;
}

void tsr__group_done(tsr__group_request *request)
{
    request->state = TSR__GROUP_DONE;
    tsr_tensor_destroy(&request->in);
    tsr_tensor_destroy(&request->out);
    tsr_tensor_destroy(&request->target);
    tsr_group *group = request->group;
    if (!group)
        return;
    group->stats.operations++;
    group->stats.size_bytes += request->size_bytes;
    tsr__group_request **link = &group->queue;
    while (*link && *link != request)
        link = &(*link)->next;
    if (*link)
        *link = request->next;
}

static tsr_status start_exchange(const tsr__group_request *request, const void *in, void *out,
                                 uint64_t sent, uint64_t received, tsr__group_active *active)
{
    tsr_comm *comm = request->group->comm;
    if (received > 0)
        TSR__TRY(tsr_comm_recv(comm, out, received, request->dtype, request->from, EXCHANGE_TAG,
                               &active->each[0]));
    return sent > 0 ? tsr_comm_send(comm, in, sent, request->dtype, request->root, EXCHANGE_TAG,
                                    &active->each[1])
                    : TSR_OK;
}

tsr_status tsr__group_start(const tsr__group_request *request, void *in, void *out,
                            const uint64_t *counts, const uint64_t *recv_counts,
                            tsr__group_active *active)
{
    tsr_request **one = &active->each[0];
    tsr_comm *comm = request->group->comm;
    switch (request->kind) {
    case TSR__GROUP_ALL_REDUCE:
        return tsr_comm_all_reduce(comm, out, out, counts[0], request->dtype, request->op, one);
    case TSR__GROUP_BROADCAST:
        return tsr_comm_broadcast(comm, out, counts[0], request->dtype, request->root, one);
    case TSR__GROUP_ALL_GATHER:
        return tsr_comm_all_gather_v(comm, in, out, counts, request->dtype, one);
    case TSR__GROUP_REDUCE_SCATTER:
        return tsr_comm_reduce_scatter_v(comm, in, out, counts, request->dtype, request->op, one);
    case TSR__GROUP_ALL_TO_ALL:
        return tsr_comm_all_to_all_v(comm, in, counts, out, recv_counts, request->dtype, one);
    case TSR__GROUP_EXCHANGE:
        return start_exchange(request, in, out, counts[0], recv_counts[0], active);
    }
    return tsr__fail(TSR_ERR_INVALID, "group: unknown operation %d", (int)request->kind);
}

tsr_status tsr__group_test_active(tsr__group_active *active, bool *ended)
{
    *ended = true;
    for (int i = 0; i < 2; i++) {
        bool done = true;
        if (active->each[i])
            TSR__TRY(tsr_request_test(&active->each[i], &done));
        *ended = *ended && done;
    }
    return TSR_OK;
}

void tsr__group_cancel_active(tsr__group_active *active)
{
    for (int i = 0; i < 2; i++)
        tsr_request_cancel(&active->each[i]);
}

bool tsr__group_is_active(const tsr__group_active *active)
{
    return active->each[0] || active->each[1];
}

void tsr__group_pending_device(tsr__group_pending *all, uint64_t point)
{
    if (!all->device || point < all->point)
        all->point = point;
    all->device = true;
}

void tsr__group_pending_transport(tsr__group_pending *all, tsr_group *group,
                                  tsr__group_active *active)
{
    if (all->transports > 0 && all->group == group)
        return;
    all->transports++;
    all->group = group;
    all->transport = &active->each[active->each[0] ? 0 : 1];
}
