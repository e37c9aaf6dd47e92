/* Deferred requests. Between tsr__group_defer_begin and _end, a request whose data are few is a
 * host step of the stream (gpu/internal.h): the caller goes on to record what follows, and the
 * collective operation takes place in between, inside a later call for the stream. All ranks make
 * the same requests, so all of them run the same steps in the same order. */
#include "base/clock.h"
#include "gpu/internal.h"
#include "parallel/group/group.h"

/* With more data, it is better that the device computes while they are sent (overlapped_product.c).
 */
#define MOST_BYTES (UINT64_C(256) << 10)

void tsr__group_defer_begin(tsr_group *group)
{
    group->defers = group->size > 1;
}

tsr_status tsr__group_defer_end(tsr_group *group)
{
    if (!group->defers)
        return TSR_OK;
    group->defers = false;
    TSR__TRY(tsr__stream_settle(group->stream));
    return tsr__group_check(group);
}

/* While a step waits for other ranks, requests in the queues of the stream's groups do not
 * progress, and another rank may wait for one of them. So there are either steps or such requests.
 */
static bool has_queue(const tsr__group_set *set)
{
    for (const tsr_group *group = set->groups; group; group = group->next)
        if (group->queue)
            return true;
    return false;
}

bool tsr__group_may_defer(const tsr__group_request *request)
{
    const tsr_group *group = request->group;
    return group->defers && request->size_bytes <= MOST_BYTES &&
           request->kind <= TSR__GROUP_REDUCE_SCATTER && !has_queue(group->set) &&
           group->path->fits(request);
}

/* Ends one of the two uses of a deferred request, those by its host step and by the recording of
 * what follows. */
static void release(tsr__group_request *request)
{
    if (--request->unfinished > 0)
        return;
    tsr__group_done(request);
    tsr__group_request_free(request);
}

static tsr_status wait_for_active(tsr__group_active *active)
{
    tsr_status status = TSR_OK;
    for (int i = 0; i < 2 && status == TSR_OK; i++)
        status = tsr_request_wait(&active->each[i]);
    tsr__group_cancel_active(active);
    return status;
}

/* The host step of a request. */
static void run_request(void *user, uint64_t waited_ns, bool cancelled)
{
    tsr__group_request *request = user;
    tsr_group *group = request->group;
    const uint64_t began_ns = tsr__now_ns();
    group->deferred--;
    if (cancelled && group->status == TSR_OK)
        tsr__group_fail(group,
                        tsr__fail(TSR_ERR_PEER_LOST, "group: an operation was cancelled before "
                                                     "its exchange, because another group "
                                                     "of the stream ended"));
    if (!cancelled && group->status == TSR_OK) {
        void *in, *out;
        tsr_status status = group->path->memory(request, &in, &out);
        if (status == TSR_OK)
            status = tsr__group_start(request, in, out, request->counts, request->recv_counts,
                                      &request->active);
        if (status == TSR_OK)
            status = wait_for_active(&request->active);
        if (status != TSR_OK)
            tsr__group_fail(group, status);
    }
    group->stats.device_ns += waited_ns;
    group->stats.transport_ns += tsr__now_ns() - began_ns;
    release(request);
}

/* Records what comes before the step, and the step. */
static tsr_status begin(tsr__group_request *request)
{
    tsr_group *group = request->group;
    if (request->in)
        TSR__TRY(tsr__tensor_synchronise(group->stream, request->in));
    TSR__TRY(tsr__tensor_synchronise(group->stream, request->out));
    TSR__TRY(group->path->fill(request));
    tsr_tensor *used[TSR__STEP_TENSORS] = {request->out};
    int count = 1;
    if (request->in)
        used[count++] = request->in;
    if (group->piece[0].memory) /* which the step sends from, on the staged path */
        used[count++] = group->piece[0].memory;
    TSR__TRY(tsr__stream_host_step(group->stream, used, count, run_request, request));
    request->unfinished++;
    group->deferred++;
    return TSR_OK;
}

tsr_status tsr__group_defer(tsr__group_request *request)
{
    request->unfinished = 1;
    tsr_status status = begin(request);
    if (status == TSR_OK)
        status = request->group->path->empty(request);
    if (status == TSR_OK)
        status = tsr__group_copy_out(request);
    release(request);
    return status;
}
