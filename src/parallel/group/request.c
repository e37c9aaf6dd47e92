/* Requests: the queue of a group, and how it is waited for. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gpu/memory/host_access.h"
#include "parallel/group/group.h"

/* How long to look again and again before sleeping, and how long to sleep, where both the device
 * and other ranks may be what is waited for. */
#define SPIN_NS UINT64_C(50000)
#define NAP_NS UINT64_C(50000)

static void keep_text(char why[TSR__GROUP_TEXT])
{
    snprintf(why, TSR__GROUP_TEXT, "%s", tsr_last_error());
}

void tsr__group_request_free(tsr_group_request *request)
{
    if (!request)
        return;
    tsr_tensor_destroy(&request->in);
    tsr_tensor_destroy(&request->out);
    tsr_tensor_destroy(&request->target);
    tsr__free(request->counts);
    tsr__free(request->sizes);
    tsr__free(request);
}

/* Failing ---------------------------------------------------------------------------------------
 */

tsr_status tsr__group_check(const tsr_group *group)
{
    return group->status == TSR_OK ? TSR_OK : tsr__fail(group->status, "%s", group->why);
}

void tsr__group_fail(tsr_group *group, tsr_status status)
{
    if (group->status == TSR_OK) {
        group->status = status;
        keep_text(group->why);
    }
    tsr__group_staged_cancel(group);
    while (group->queue) {
        tsr_group_request *request = group->queue;
        tsr_request_cancel(&request->active);
        request->status = group->status;
        memcpy(request->why, group->why, sizeof request->why);
        request->group = NULL;
        tsr__group_done(request);
        group->queue = request->next;
    }
    group->active_count = 0;
    /* Whoever waits for this rank learns that it will not come. */
    tsr_comm_destroy(&group->comm);
    (void)tsr__fail(group->status, "%s", group->why);
}

void tsr__group_give_up(tsr_group *group, const char *what)
{
    const tsr__error before = tsr__error_take();
    tsr__group_fail(group, tsr__fail(TSR_ERR_PEER_LOST, "group: rank %d %s", group->rank, what));
    tsr__error_put_back(&before);
}

/* The queue -------------------------------------------------------------------------------------
 */

tsr_status tsr__group_enqueue(tsr_group_request *request)
{
    tsr_group *group = request->group;
    if (request->in)
        TSR__TRY(tsr__tensor_synchronise(group->stream, request->in));
    TSR__TRY(tsr__tensor_synchronise(group->stream, request->out));
    TSR__TRY(tsr_stream_mark(group->stream, &request->point));
    TSR__TRY(tsr_stream_submit(group->stream));
    tsr_group_request **last = &group->queue;
    while (*last)
        last = &(*last)->next;
    *last = request;
    return TSR_OK;
}

void tsr__group_done(tsr_group_request *request)
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
    tsr_group_request **link = &group->queue;
    while (*link && *link != request)
        link = &(*link)->next;
    if (*link)
        *link = request->next;
}

/* Progress --------------------------------------------------------------------------------------
 */

static void progress(tsr_group *group)
{
    if (!group->queue)
        return;
    tsr_status status = group->staged ? tsr__group_staged(group) : tsr__group_direct(group);
    if (status != TSR_OK)
        tsr__group_fail(group, status);
}

static void progress_all(tsr__group_lane *lane)
{
    for (tsr_group *group = lane->groups; group; group = group->next)
        progress(group);
}

/* What the groups of a lane wait for. */
typedef struct pending {
    bool device;
    uint64_t point; /* the first of the device's */
    int transports; /* groups that wait for other ranks, */
    tsr_group *group;
    tsr_request **request; /* and what the last of them waits for longest */
} pending;

static void add_device(pending *all, uint64_t point)
{
    if (!all->device || point < all->point)
        all->point = point;
    all->device = true;
}

static void add_transport(pending *all, tsr_group *group, tsr_request **request)
{
    if (all->transports > 0 && all->group == group)
        return;
    all->transports++;
    all->group = group;
    all->request = request;
}

static void look_at_ring(tsr_group *group, pending *all)
{
    for (int i = 0; i < group->piece_count; i++) {
        tsr__group_piece *piece = &group->piece[(group->oldest + i) % TSR__GROUP_PIECES];
        if (piece->active)
            add_transport(all, group, &piece->active);
        else if (piece->request && !piece->started)
            add_device(all, piece->point);
    }
}

static void look_at_queue(tsr_group *group, pending *all)
{
    for (tsr_group_request *r = group->queue; r; r = r->next) {
        if (r->active)
            add_transport(all, group, &r->active);
        if (r->state == TSR__GROUP_QUEUED) {
            if (group->active_count < TSR__MAX_GROUP_ACTIVE)
                add_device(all, r->point);
            return;
        }
    }
}

static pending look(const tsr__group_lane *lane)
{
    pending all = {0};
    for (tsr_group *group = lane->groups; group; group = group->next) {
        if (group->staged)
            look_at_ring(group, &all);
        else
            look_at_queue(group, &all);
    }
    return all;
}

/* Waits a while for one of the things that have to happen next. A failure of the stream comes up in
 * the round of progress that follows. */
static void rest(tsr_stream *stream, const pending *all, uint64_t spent_ns)
{
    tsr_status status = TSR_OK;
    if (all->device && all->transports == 0) {
        status = tsr_stream_wait_point(stream, all->point, UINT64_MAX);
    } else if (all->transports == 1 && !all->device) {
        /* The communicator knows how to sleep until something arrives. */
        status = tsr_request_wait(all->request);
        if (status != TSR_OK)
            tsr__group_fail(all->group, status);
    } else if (spent_ns >= SPIN_NS) {
        if (all->device)
            status = tsr_stream_wait_point(stream, all->point, NAP_NS);
        else
            nanosleep(&(struct timespec){.tv_nsec = (long)NAP_NS}, NULL);
    }
    (void)status;
}

static void wait_until_done(tsr_group_request *request)
{
    tsr_group *group = request->group;
    uint64_t start = tsr__now_ns(), before = start;
    while (request->state != TSR__GROUP_DONE) {
        progress_all(group->lane);
        if (request->state == TSR__GROUP_DONE)
            break;
        pending all = look(group->lane);
        rest(group->stream, &all, before - start);
        uint64_t after = tsr__now_ns();
        *(all.device ? &group->stats.device_ns : &group->stats.transport_ns) += after - before;
        before = after;
    }
    group->stats.transport_ns += tsr__now_ns() - before;
}

/* What the caller calls --------------------------------------------------------------------------
 */

static tsr_status collect(tsr_group_request **request)
{
    tsr_group_request *done = *request;
    tsr_status status = done->status;
    if (status != TSR_OK)
        (void)tsr__fail(status, "%s", done->why);
    tsr__group_request_free(done);
    *request = NULL;
    return status;
}

tsr_status tsr_group_test(tsr_group_request **request, bool *done)
{
    TSR__REQUIRE(request && done, "group_test: %s is NULL", request ? "done" : "request");
    *done = true;
    if (!*request)
        return TSR_OK;
    if ((*request)->state != TSR__GROUP_DONE)
        progress_all((*request)->group->lane);
    *done = (*request)->state == TSR__GROUP_DONE;
    return *done ? collect(request) : TSR_OK;
}

tsr_status tsr_group_wait(tsr_group_request **request)
{
    TSR__REQUIRE(request, "group_wait: request is NULL");
    if (!*request)
        return TSR_OK;
    if ((*request)->state != TSR__GROUP_DONE)
        wait_until_done(*request);
    return collect(request);
}

void tsr_group_cancel(tsr_group_request **request)
{
    if (!request || !*request)
        return;
    tsr_group *group = (*request)->group;
    if ((*request)->state != TSR__GROUP_DONE)
        tsr__group_give_up(group, "cancelled a request");
    tsr__group_request_free(*request);
    *request = NULL;
}
