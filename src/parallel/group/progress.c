/* Progress: when the caller waits for a group or tests one, all groups of its stream advance. This
 * file also implements the failure of a group, after which the group makes no more progress. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "parallel/group/group.h"

/* The time of polling, and then of each sleep between polls, while a group waits for the device and
 * for other ranks, because one blocking call cannot wait for both. */
#define SPIN_NS UINT64_C(50000)
#define NAP_NS UINT64_C(50000)

/* The groups of a stream --------------------------------------------------------------------- */

/* guards the list `sets`, but not the contents of the sets */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tsr__group_set *sets;

static tsr__group_set *find_set(const tsr_stream *stream)
{
    for (tsr__group_set *set = sets; set; set = set->next)
        if (set->stream == stream)
            return set;
    return NULL;
}

tsr_status tsr__group_join_set(tsr_group *group)
{
    pthread_mutex_lock(&lock);
    tsr__group_set *set = find_set(group->stream);
    if (!set) {
        set = tsr__calloc(1, sizeof *set);
        if (!set) {
            pthread_mutex_unlock(&lock);
            return TSR_ERR_NO_MEMORY;
        }
        set->stream = group->stream;
        set->next = sets;
        sets = set;
    }
    pthread_mutex_unlock(&lock);
    group->set = set;
    group->next = set->groups;
    set->groups = group;
    return TSR_OK;
}

void tsr__group_leave_set(tsr_group *group)
{
    tsr__group_set *set = group->set;
    if (!set)
        return;
    tsr_group **link = &set->groups;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    group->set = NULL;
    if (set->groups)
        return;
    pthread_mutex_lock(&lock);
    tsr__group_set **link_to_set = &sets;
    while (*link_to_set != set)
        link_to_set = &(*link_to_set)->next;
    *link_to_set = set->next;
    pthread_mutex_unlock(&lock);
    tsr__free(set);
}

/* Failure ------------------------------------------------------------------------------------ */

tsr_status tsr__group_check(const tsr_group *group)
{
    return group->status == TSR_OK ? TSR_OK : tsr__fail(group->status, "%s", group->why);
}

void tsr__group_fail(tsr_group *group, tsr_status status)
{
    if (group->status == TSR_OK) {
        group->status = status;
        snprintf(group->why, sizeof group->why, "%s", tsr_last_error());
    }
    group->path->cancel(group);
    while (group->queue) {
        tsr__group_request *request = group->queue;
        request->status = group->status;
        memcpy(request->why, group->why, sizeof request->why);
        request->group = NULL;
        tsr__group_done(request);
        group->queue = request->next;
    }
    /* Destroying the communicator gives an error to the other ranks that wait for this rank. */
    tsr_comm_destroy(&group->comm);
    (void)tsr__fail(group->status, "%s", group->why);
}

void tsr__group_abort(tsr_group *group, const char *what)
{
    const tsr__error before = tsr__error_take();
    tsr__group_fail(group, tsr__fail(TSR_ERR_PEER_LOST, "group: rank %d %s", group->rank, what));
    tsr__error_put_back(&before);
}

/* Progress ----------------------------------------------------------------------------------- */

static void progress_set(tsr__group_set *set)
{
    for (tsr_group *group = set->groups; group; group = group->next) {
        tsr_status status = group->queue ? group->path->progress(group) : TSR_OK;
        if (status != TSR_OK)
            tsr__group_fail(group, status);
    }
}

static tsr__group_pending find_pending(const tsr__group_set *set)
{
    tsr__group_pending all = {0};
    for (tsr_group *group = set->groups; group; group = group->next)
        group->path->add_pending(group, &all);
    return all;
}

/* Blocks until the device or the other ranks have done what the groups wait for, if it is only one
 * of the two; otherwise polls or sleeps for a short time. Ignores failures of the stream, because
 * the next round of progress detects them. */
static void block_for_pending(tsr_stream *stream, const tsr__group_pending *all, uint64_t spent_ns)
{
    tsr_status status = TSR_OK;
    if (all->device && all->transports == 0) {
        status = tsr_stream_wait_point(stream, all->point, UINT64_MAX);
    } else if (all->transports == 1 && !all->device) {
        /* The communicator can sleep until a message arrives. */
        status = tsr_request_wait(all->transport);
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

static void wait_until_done(tsr__group_request *request)
{
    tsr_group *group = request->group;
    uint64_t start = tsr__now_ns(), before = start;
    while (request->state != TSR__GROUP_DONE) {
        progress_set(group->set);
        if (request->state == TSR__GROUP_DONE)
            break;
        tsr__group_pending all = find_pending(group->set);
        block_for_pending(group->stream, &all, before - start);
        uint64_t after = tsr__now_ns();
        *(all.device ? &group->stats.device_ns : &group->stats.transport_ns) += after - before;
        before = after;
    }
    group->stats.transport_ns += tsr__now_ns() - before;
}

tsr_status tsr__group_wait_beside(const tsr_group *group, tsr_request **request)
{
    const uint64_t start = tsr__now_ns();
    bool done = false;
    while (!done) {
        progress_set(group->set);
        TSR__TRY(tsr_request_test(request, &done));
        if (!done && tsr__now_ns() - start >= SPIN_NS)
            nanosleep(&(struct timespec){.tv_nsec = (long)NAP_NS}, NULL);
    }
    return TSR_OK;
}

/* The methods of requests -------------------------------------------------------------------- */

static tsr__group_request *group_request(tsr_request *request)
{
    return (tsr__group_request *)(void *)request;
}

/* Returns the result of a completed request, and frees the request. */
static tsr_status take_result(tsr_request **request)
{
    tsr__group_request *done = group_request(*request);
    tsr_status status = done->status;
    if (status != TSR_OK)
        (void)tsr__fail(status, "%s", done->why);
    tsr__group_request_free(done);
    *request = NULL;
    return status;
}

static tsr_status test_request(tsr_request **request, bool *done)
{
    const tsr__group_request *tested = group_request(*request);
    if (tested->state != TSR__GROUP_DONE)
        progress_set(tested->group->set);
    *done = tested->state == TSR__GROUP_DONE;
    return *done ? take_result(request) : TSR_OK;
}

static tsr_status wait_for_request(tsr_request **request)
{
    tsr__group_request *waiting = group_request(*request);
    if (waiting->state != TSR__GROUP_DONE)
        wait_until_done(waiting);
    return take_result(request);
}

static void cancel_request(tsr_request **request)
{
    tsr__group_request *cancelled = group_request(*request);
    if (cancelled->state != TSR__GROUP_DONE)
        tsr__group_abort(cancelled->group, "cancelled a request");
    tsr__group_request_free(cancelled);
    *request = NULL;
}

const tsr__request_methods tsr__group_request_methods = {
    .test = test_request, .wait = wait_for_request, .cancel = cancel_request};
