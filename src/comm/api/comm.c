/* Communicators: how they are created and destroyed, and their properties. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/api/comm.h"
#include "comm/failure/failure.h"
#include "comm/progress/control_channel.h"
#include "comm/progress/progress.h"

/* How long destroying the last communicator of a job may wait until this rank's messages are
 * delivered. */
#define DELIVERY_NS (2 * TSR__SECOND)
/* This limit instead of DELIVERY_NS is for a job that has failed, in which only control messages
 * about the failure are in flight. */
#define DELIVERY_FAILED_NS UINT64_C(50000000)

/* Sets host_of, host_count, local_rank and local_size: which ranks of the communicator share a
 * host. */
static void find_hosts(tsr_comm *comm)
{
    const int32_t *node_of = comm->job->node_of;
    comm->local_rank = comm->local_size = comm->host_count = 0;
    for (int i = 0; i < comm->size; i++) {
        const int32_t node = node_of[comm->world_of[i]];
        int same = 0;
        while (node_of[comm->world_of[same]] != node)
            same++;
        comm->host_of[i] = same < i ? comm->host_of[same] : comm->host_count++;
    }
    for (int i = 0; i < comm->size; i++) {
        const bool here = comm->host_of[i] == comm->host_of[comm->rank];
        comm->local_size += here;
        comm->local_rank += here && i < comm->rank;
    }
}

/* Frees the memory of a communicator, except world_of. */
static void free_memory(tsr_comm *comm)
{
    tsr__free(comm->peers);
    tsr__free(comm->inputs);
    tsr__free(comm->host_of);
    tsr__free(comm);
}

tsr_status tsr__comm_new(tsr__job *job, uint32_t id, int rank, int size, int *world_of,
                         const tsr_comm *like, tsr_comm **out)
{
    tsr_comm *comm = tsr__calloc(1, sizeof *comm);
    if (!comm)
        return TSR_ERR_NO_MEMORY;
    comm->peers = tsr__calloc((size_t)size, sizeof *comm->peers);
    comm->inputs = comm->peers ? tsr__calloc((size_t)size, sizeof *comm->inputs) : NULL;
    comm->host_of = comm->inputs ? tsr__calloc((size_t)size, sizeof *comm->host_of) : NULL;
    if (!comm->host_of) {
        free_memory(comm);
        return TSR_ERR_NO_MEMORY;
    }
    comm->job = job;
    comm->id = id;
    comm->rank = rank;
    comm->size = size;
    comm->world_of = world_of;
    comm->timeout_ns = like ? like->timeout_ns : TSR__COMM_TIMEOUT_NS;
    comm->reproducible = like && like->reproducible;
    comm->hierarchy.subtrees = 1;
    find_hosts(comm);
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

/* Gives up this rank's slot of shared memory for this communicator. The slot is not reused before
 * all other ranks have left the communicator, because they may still read it. */
static void retire_slot(const tsr_comm *comm)
{
    const tsr__job *job = comm->job;
    int readers[TSR__SHM_MAX_RANKS], count = 0;
    for (int i = comm->shm_first; i < comm->shm_first + comm->shm_count; i++) {
        if (i != comm->rank && !comm->peers[i].left &&
            !tsr__transport_has_ended(job->transport, comm->world_of[i]))
            readers[count++] = comm->world_of[i];
    }
    tsr__shm_slot_retire(job->shm_regions, tsr__shm_slot_index(comm->shm), comm->id, readers,
                         count);
}

void tsr__comm_free(tsr_comm *comm)
{
    if (comm->shm)
        retire_slot(comm);
    tsr__shm_destroy(&comm->shm);
    unlink_comm(comm);
    tsr__free(comm->world_of);
    free_memory(comm);
}

void tsr__comm_set_members(tsr_comm *comm, uint32_t id, int rank, int size)
{
    comm->id = id;
    comm->rank = rank;
    comm->size = size;
    find_hosts(comm);
    tsr__control_replay(comm);
}

tsr_status tsr__shm_reserve(tsr__job *job, int size, tsr__shm_reservation *reservation)
{
    reservation->slot = -1;
    reservation->slots = tsr__calloc((size_t)size, sizeof *reservation->slots);
    if (!reservation->slots)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(tsr__shm_create(size, &reservation->shm));
    /* A process that ends without destroying its communicators sends no message. So look for
     * processes that have ended. */
    if (job->transport)
        tsr__transport_poll_processes(job->transport);
    for (int i = 0; i < job->size && job->transport; i++) {
        if (tsr__transport_has_ended(job->transport, i))
            tsr__shm_reader_ended(job->shm_regions, i);
    }
    reservation->slot = tsr__shm_slot_reserve(job->shm_regions);
    if (reservation->slot < 0 && job->transport) {
        /* Ranks that have left a communicator report this by a message, which may not have been
         * read yet, because operations in shared memory do not read messages. Reading it may free
         * slots. */
        tsr__job_progress_all(job);
        reservation->slot = tsr__shm_slot_reserve(job->shm_regions);
    }
    return TSR_OK;
}

/* Finds the ranks with which this rank uses shared memory, and sets shm_first and shm_count. All
 * ranks of the communicator decide in the same way. Returns false if there are no such ranks. */
static bool find_shm_ranks(tsr_comm *comm, const int32_t *slots)
{
    for (int i = 0; i < comm->size; i++) {
        if (slots[i] < 0)
            return false;
    }
    switch (tsr__choose_topology(comm->size, comm->rank, comm->host_of, TSR__SHM_MAX_RANKS,
                                 &comm->hierarchy)) {
    case TSR__TOPOLOGY_SHARED:
        comm->shm_first = 0;
        comm->shm_count = comm->size;
        return true;
    case TSR__TOPOLOGY_HIERARCHICAL:
        comm->shm_first = comm->hierarchy.first;
        comm->shm_count = comm->hierarchy.count;
        return comm->shm_count > 1;
    case TSR__TOPOLOGY_FLAT:
        break;
    }
    return false;
}

void tsr__shm_use(tsr_comm *comm, tsr__shm_reservation *reservation)
{
    const int first = find_shm_ranks(comm, reservation->slots) ? comm->shm_first : -1;
    if (first >= 0) {
        tsr__shm_attach(reservation->shm, comm->job->shm_regions, comm->rank - first,
                        comm->shm_count, comm->world_of + first, reservation->slots + first);
        comm->shm = reservation->shm;
        reservation->shm = NULL;
        reservation->slot = -1;
    }
    tsr__shm_cancel(comm->job, reservation);
}

void tsr__shm_cancel(tsr__job *job, tsr__shm_reservation *reservation)
{
    tsr__shm_destroy(&reservation->shm);
    tsr__shm_slot_release(job->shm_regions, reservation->slot);
    reservation->slot = -1;
    tsr__free(reservation->slots);
    reservation->slots = NULL;
}

void tsr__job_end(tsr__job *job, uint64_t until_ns)
{
    tsr__control_flush(job, until_ns);
    tsr__control_cancel(job);
    tsr__transport_destroy(&job->transport, until_ns);
    tsr__job_free_retained(job);
    tsr__control_close(job);
    tsr__shm_regions_close(&job->shm_regions);
    while (job->unused) {
        tsr_request *next = job->unused->next;
        job->unused->job = NULL;
        tsr__request_release(job->unused);
        job->unused = next;
    }
    tsr__free(job->roster.cards);
    tsr__recovery_release(&job->roster.recovery);
    tsr__mailbox_close(&job->mailbox);
    tsr__free(job->is_near);
    tsr__free(job->node_of);
    tsr__free(job);
}

/* Cancels the communicator's requests that are still in progress, and separates all its requests
 * from it, because it is about to be freed. The callers' handles of the requests stay valid until
 * they are destroyed. */
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
            tsr__request_cancel(request, TSR_ERR_INVALID, why);
        }
        tsr__request_detach(request);
    }
}

static uint64_t delivery_timeout(const tsr_comm *comm)
{
    const uint64_t max_ns = comm->status == TSR_OK ? DELIVERY_NS : DELIVERY_FAILED_NS;
    return comm->timeout_ns < max_ns ? comm->timeout_ns : max_ns;
}

void tsr_comm_destroy(tsr_comm **comm)
{
    if (!comm || !*comm)
        return;
    tsr_comm *ending = *comm;
    tsr__job *job = ending->job;
    if (tsr__job_is_inherited(job)) { /* the job is not freed, because requests still point to it */
        *comm = NULL;
        return;
    }
    const bool has_messages = ending->running > 0 || ending->status != TSR_OK;
    const uint64_t delivery_ns = delivery_timeout(ending);
    detach_requests(ending);
    tsr__control_leave(ending);
    if (has_messages)
        tsr__tombstone_add(job, ending->id);
    tsr__comm_free(ending);
    if (job->references == 0)
        tsr__job_end(job, tsr__deadline_ns(delivery_ns));
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

int tsr_comm_host_count(const tsr_comm *comm)
{
    return comm ? comm->host_count : 0;
}

int tsr_comm_host(const tsr_comm *comm, int rank)
{
    return comm && rank >= 0 && rank < comm->size ? comm->host_of[rank] : -1;
}

uint64_t tsr_comm_set_timeout(tsr_comm *comm, uint64_t timeout_ns)
{
    const uint64_t before = comm ? comm->timeout_ns : 0;
    if (comm)
        comm->timeout_ns = timeout_ns ? timeout_ns : TSR__COMM_TIMEOUT_NS;
    return before;
}

tsr_status tsr_comm_status(const tsr_comm *comm)
{
    TSR__REQUIRE(comm, "comm_status: comm is NULL");
    TSR__TRY(tsr__job_refuse_child(comm->job, "comm_status"));
    return comm->status == TSR_OK ? TSR_OK : tsr__fail(comm->status, "%s", comm->why);
}
