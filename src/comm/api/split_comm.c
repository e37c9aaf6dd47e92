/* Creates communicators from existing ones. */
#include <limits.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/api/comm.h"
#include "comm/api/start_operation.h"
#include "comm/message_tags.h"

typedef struct membership {
    int32_t colour, key;
    uint32_t next_id;
    int32_t rank;
    int32_t slot; /* the slot reserved in shared memory; −1: none */
} membership;

/* Sorts the members of a colour by key, then by rank, and returns their number. Uses an insertion
 * sort, because there are few members. */
static int sort_members(const membership *all, int size, int colour, membership *members)
{
    int count = 0;
    for (int i = 0; i < size; i++) {
        if (all[i].colour != colour)
            continue;
        int slot = count++;
        for (; slot > 0 && members[slot - 1].key > all[i].key; slot--)
            members[slot] = members[slot - 1];
        members[slot] = all[i];
    }
    return count;
}

static tsr_status check_all(const membership *all, int size, uint32_t *id)
{
    *id = 0;
    for (int i = 0; i < size; i++) {
        TSR__REQUIRE(all[i].colour >= TSR_COLOUR_NONE,
                     "split: rank %d passed the invalid colour %d", i, (int)all[i].colour);
        *id = all[i].next_id > *id ? all[i].next_id : *id;
    }
    if (*id >= TSR__COMM_IDS - 1)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "split: this job has already created %u communicators, the maximum",
                         (unsigned)*id);
    return TSR_OK;
}

/* The memory of a split. All of it is allocated before the ranks exchange their membership, because
 * after the exchange no rank may fail alone. */
typedef struct split_memory {
    membership *all, *members;
    int *world_of;
    tsr_comm *child;
    tsr__shm_reservation shm;
} split_memory;

static tsr_status take_memory(tsr_comm *comm, split_memory *memory)
{
    const size_t size = (size_t)comm->size;
    memory->all = tsr__calloc(size, sizeof *memory->all);
    memory->members = memory->all ? tsr__calloc(size, sizeof *memory->members) : NULL;
    memory->world_of = memory->members ? tsr__calloc(size, sizeof *memory->world_of) : NULL;
    if (!memory->world_of)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(tsr__shm_reserve(comm->job, comm->size, &memory->shm));
    /* The communicator has room for all ranks of its parent. Its real members are set later. */
    memory->world_of[0] = comm->world_of[comm->rank];
    return tsr__comm_new(comm->job, TSR__COMM_IDS, 0, comm->size, memory->world_of, comm,
                         &memory->child);
}

static void release_memory(tsr__job *job, split_memory *memory)
{
    tsr__shm_cancel(job, &memory->shm);
    tsr__free(memory->all);
    tsr__free(memory->members);
    if (memory->child)
        tsr__comm_free(memory->child);
    else
        tsr__free(memory->world_of);
}

static tsr_status exchange_memberships(tsr_comm *comm, tsr__call_kind kind, int colour, int key,
                                       split_memory *memory, uint32_t *id)
{
    TSR__TRY(tsr__job_refuse_child(comm->job, tsr__call_name((int)kind)));
    TSR__TRY(tsr_comm_status(comm));
    TSR__TRY(take_memory(comm, memory));
    const membership mine = {.colour = colour,
                             .key = key,
                             .next_id = comm->job->next_id,
                             .rank = comm->rank,
                             .slot = memory->shm.slot};
    const tsr_status status = tsr__comm_all_gather_as(comm, kind, &mine, memory->all, sizeof mine);
    /* If the exchange failed on this rank, it may have succeeded on other ranks, which then read
     * this rank's slot. So setting it to −1 keeps it from being released for reuse. */
    if (comm->status != TSR_OK)
        memory->shm.slot = -1;
    TSR__TRY(status);
    return check_all(memory->all, comm->size, id);
}

static void set_members(tsr_comm *comm, split_memory *memory, int colour, uint32_t id)
{
    int rank = 0;
    const int size = sort_members(memory->all, comm->size, colour, memory->members);
    for (int i = 0; i < size; i++) {
        memory->world_of[i] = comm->world_of[memory->members[i].rank];
        memory->shm.slots[i] = memory->members[i].slot;
        if (memory->members[i].rank == comm->rank)
            rank = i;
    }
    tsr__comm_set_members(memory->child, id, rank, size);
    tsr__shm_use(memory->child, &memory->shm);
}

static tsr_status split_as(tsr_comm *comm, tsr__call_kind kind, int colour, int key, tsr_comm **out)
{
    split_memory memory = {.shm.slot = -1};
    uint32_t id;
    tsr_status status = exchange_memberships(comm, kind, colour, key, &memory, &id);
    if (status == TSR_OK) {
        comm->job->next_id = id + 1;
        *out = NULL;
        if (colour != TSR_COLOUR_NONE) {
            set_members(comm, &memory, colour, id);
            *out = memory.child;
            memory.child = NULL;
            memory.world_of = NULL;
        }
    }
    release_memory(comm->job, &memory);
    return status;
}

tsr_status tsr_comm_split(tsr_comm *comm, int colour, int key, tsr_comm **out)
{
    TSR__REQUIRE(comm && out, "split: %s is NULL", comm ? "out" : "comm");
    return split_as(comm, TSR__CALL_SPLIT, colour, key, out);
}

tsr_status tsr_comm_duplicate(tsr_comm *comm, tsr_comm **out)
{
    TSR__REQUIRE(comm && out, "duplicate: %s is NULL", comm ? "out" : "comm");
    return split_as(comm, TSR__CALL_DUPLICATE, 0, comm->rank, out);
}
