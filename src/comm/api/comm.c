/* Communicators from beginning to end. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/job.h"

#define FAREWELL_NS (2 * TSR__SECOND)         /* for what was sent to be delivered */
#define FAREWELL_FAILED_NS UINT64_C(50000000) /* for the others to be told */

static void count_local(tsr_comm *comm)
{
    const int32_t *node_of = comm->job->node_of;
    for (int i = 0; i < comm->size; i++) {
        const bool here = node_of[comm->world_of[i]] == node_of[comm->world_of[comm->rank]];
        comm->local_size += here;
        comm->local_rank += here && i < comm->rank;
    }
}

tsr_status tsr__comm_make(tsr__job *job, uint32_t id, int rank, int size, int *world_of,
                          const tsr_comm *like, tsr_comm **out)
{
    tsr_comm *comm = tsr__calloc(1, sizeof *comm);
    if (!comm)
        return TSR_ERR_NO_MEMORY;
    comm->news = tsr__calloc((size_t)size, sizeof *comm->news);
    comm->inputs = comm->news ? tsr__calloc((size_t)size, sizeof *comm->inputs) : NULL;
    if (!comm->inputs) {
        tsr__free(comm->news);
        tsr__free(comm);
        return TSR_ERR_NO_MEMORY;
    }
    comm->job = job;
    comm->id = id;
    comm->rank = rank;
    comm->size = size;
    comm->world_of = world_of;
    comm->timeout_ns = like ? like->timeout_ns : TSR__COMM_TIMEOUT_NS;
    comm->reproducible = like && like->reproducible;
    count_local(comm);
    comm->next = job->comms;
    job->comms = comm;
    job->references++;
    *out = comm;
    return TSR_OK;
}

static void unlink_comm(tsr_comm *comm)
{
    tsr_comm **link = &comm->job->comms;
    while (*link != comm)
        link = &(*link)->next;
    *link = comm->next;
    comm->job->references--;
}

static void comm_free(tsr_comm *comm)
{
    tsr__free(comm->news);
    tsr__free(comm->inputs);
    tsr__free(comm->world_of);
    tsr__free(comm);
}

void tsr__comm_unmake(tsr_comm *comm)
{
    if (comm->board)
        tsr__boards_retire(comm);
    tsr__board_destroy(&comm->board);
    unlink_comm(comm);
    comm_free(comm);
}

void tsr__comm_settle(tsr_comm *comm, uint32_t id, int rank, int size)
{
    comm->id = id;
    comm->rank = rank;
    comm->size = size;
    comm->local_rank = comm->local_size = 0;
    count_local(comm);
    tsr__control_catch_up(comm);
}

tsr_status tsr__comm_reserve_board(tsr__job *job, int size, tsr__place_on_board *place)
{
    place->page = -1;
    place->pages = tsr__calloc((size_t)size, sizeof *place->pages);
    if (!place->pages)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(tsr__board_create(size, &place->board));
    place->page = tsr__boards_take(job);
    return TSR_OK;
}

static bool is_for_board(const tsr_comm *comm, const int32_t *pages)
{
    for (int i = 0; i < comm->size; i++) {
        if (pages[i] < 0)
            return false;
    }
    return comm->local_size == comm->size && comm->size > 1 && comm->size <= TSR__BOARD_RANKS;
}

void tsr__comm_use_board(tsr_comm *comm, tsr__place_on_board *place)
{
    if (is_for_board(comm, place->pages)) {
        tsr__board_use(comm, place->board, place->pages);
        place->board = NULL;
        place->page = -1;
    }
    tsr__comm_give_back_board(comm->job, place);
}

void tsr__comm_give_back_board(tsr__job *job, tsr__place_on_board *place)
{
    tsr__board_destroy(&place->board);
    tsr__boards_give_back(job, place->page);
    place->page = -1;
    tsr__free(place->pages);
    place->pages = NULL;
}

void tsr__job_end(tsr__job *job, uint64_t until_ns)
{
    tsr__control_cancel(job);
    tsr__transport_destroy(&job->transport, until_ns);
    tsr__job_free_left(job);
    tsr__control_close(job);
    tsr__boards_close(job);
    while (job->unused) {
        tsr_request *next = job->unused->next;
        job->unused->job = NULL;
        tsr__request_release(job->unused);
        job->unused = next;
    }
    tsr__free(job->node_of);
    tsr__free(job);
}

/* Handles outlive what they are handles of. */
static void detach_requests(tsr_comm *comm)
{
    char text[TSR__CALL_TEXT], why[TSR__CALL_TEXT + 64];
    tsr__job *job = comm->job;
    for (tsr_request *request = job->requests, *next; request; request = next) {
        next = request->next;
        if (request->comm != comm)
            continue;
        if (!request->done) {
            (void)snprintf(why, sizeof why, "%s: its communicator was destroyed",
                           tsr__call_format(&request->call, text));
            tsr__request_abandon(request, TSR_ERR_INVALID, why);
        }
        tsr__request_detach(request);
    }
}

static uint64_t farewell_of(const tsr_comm *comm)
{
    const uint64_t most_ns = comm->status == TSR_OK ? FAREWELL_NS : FAREWELL_FAILED_NS;
    return comm->timeout_ns < most_ns ? comm->timeout_ns : most_ns;
}

void tsr_comm_destroy(tsr_comm **comm)
{
    if (!comm || !*comm)
        return;
    tsr_comm *ending = *comm;
    tsr__job *job = ending->job;
    if (tsr__job_is_inherited(job)) { /* what it points to stays, for requests that are left */
        *comm = NULL;
        return;
    }
    const bool is_late = ending->running > 0 || ending->status != TSR_OK;
    const uint64_t farewell_ns = farewell_of(ending);
    detach_requests(ending);
    tsr__control_leave(ending);
    if (is_late)
        tsr__job_bury(job, ending->id);
    tsr__comm_unmake(ending);
    if (job->references == 0)
        tsr__job_end(job, tsr__deadline_ns(farewell_ns));
    *comm = NULL;
}

int tsr_comm_rank(const tsr_comm *comm)
{
    return comm ? comm->rank : 0;
}

int tsr_comm_size(const tsr_comm *comm)
{
    return comm ? comm->size : 0;
}

int tsr_comm_local_rank(const tsr_comm *comm)
{
    return comm ? comm->local_rank : 0;
}

int tsr_comm_local_size(const tsr_comm *comm)
{
    return comm ? comm->local_size : 0;
}

void tsr_comm_set_timeout(tsr_comm *comm, uint64_t timeout_ns)
{
    if (comm)
        comm->timeout_ns = timeout_ns ? timeout_ns : TSR__COMM_TIMEOUT_NS;
}

tsr_status tsr_comm_status(const tsr_comm *comm)
{
    TSR__REQUIRE(comm, "comm_status: comm is NULL");
    TSR__TRY(tsr__job_refuse_child(comm->job, "comm_status"));
    return comm->status == TSR_OK ? TSR_OK : tsr__fail(comm->status, "%s", comm->why);
}
