/* The memory of the shared-memory transport. Each process shares one region with the others. A
 * region has SLOTS slots; a communicator uses one slot of each of its processes. */
#include <string.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "base/error.h"
#include "comm/shm/shm_state.h"

#define SLOTS 16
#define REGION_BYTES (SLOTS * sizeof(tsr__shm_slot))

typedef struct slot_state {
    bool is_taken;
    /* The next three members describe a communicator that has ended on this rank: its number, and
     * the ranks of the job that may still read the slot. Two communicators can have the same number
     * (see message_tags.h), but then no rank of the job belongs to both. */
    uint32_t comm;
    int reader_count;
    int readers[TSR__SHM_MAX_RANKS];
} slot_state;

struct tsr__shm_regions {
    int rank, size; /* the rank of this process in the job, and the number of ranks */
    tsr__shm_memory_key key;
    /* [size]: for each rank of the job, the first slot of its region; NULL: not mapped */
    tsr__shm_slot **slots_of;
    slot_state states[SLOTS];
    bool maps_all; /* this process maps the regions of all ranks of this host */
};

tsr_status tsr__shm_is_enabled(bool *out)
{
    const char *value = tsr__env_text("TESSERA_SHARED_MEMORY");
    const bool off = value && strcmp(value, "off") == 0;
    TSR__REQUIRE(!value || off || strcmp(value, "on") == 0,
                 "TESSERA_SHARED_MEMORY is '%.80s', not on or off", value);
    *out = !off;
    return TSR_OK;
}

tsr_status tsr__shm_regions_open(int rank, int size, tsr__shm_regions **out)
{
    bool enabled;
    *out = NULL;
    TSR__TRY(tsr__shm_is_enabled(&enabled));
    if (!enabled)
        return TSR_OK;
    tsr__shm_regions *regions = tsr__calloc(1, sizeof *regions);
    if (regions)
        regions->slots_of = tsr__calloc((size_t)size, sizeof(tsr__shm_slot *));
    if (!regions || !regions->slots_of) {
        tsr__free(regions);
        return TSR_ERR_NO_MEMORY;
    }
    regions->rank = rank;
    regions->size = size;
    regions->slots_of[rank] = tsr__shm_memory_create(REGION_BYTES, &regions->key);
    regions->maps_all = regions->slots_of[rank] != NULL;
    *out = regions;
    return TSR_OK;
}

void tsr__shm_regions_close(tsr__shm_regions **regions)
{
    tsr__shm_regions *closing = *regions;
    if (!closing)
        return;
    tsr__shm_memory_seal(&closing->key);
    for (int i = 0; i < closing->size; i++)
        tsr__shm_memory_unmap(closing->slots_of[i], REGION_BYTES);
    tsr__free(closing->slots_of);
    tsr__free(closing);
    *regions = NULL;
}

tsr__shm_memory_key tsr__shm_regions_key(const tsr__shm_regions *regions)
{
    return regions ? regions->key : (tsr__shm_memory_key){.file = -1};
}

void tsr__shm_regions_attach(tsr__shm_regions *regions, int peer, const tsr__shm_memory_key *key)
{
    if (!regions)
        return;
    if (regions->maps_all)
        regions->slots_of[peer] = tsr__shm_memory_open(key, REGION_BYTES);
    if (!regions->slots_of[peer])
        regions->maps_all = false;
}

void tsr__shm_regions_seal(tsr__shm_regions *regions)
{
    if (regions)
        tsr__shm_memory_seal(&regions->key);
}

/* Slots -------------------------------------------------------------------------------------------
 */

int tsr__shm_slot_reserve(tsr__shm_regions *regions)
{
    if (!regions || !regions->maps_all)
        return -1;
    for (int i = 0; i < SLOTS; i++) {
        if (regions->states[i].is_taken)
            continue;
        regions->states[i] = (slot_state){.is_taken = true};
        /* Clear the sequence numbers that the previous communicator has left in the slot. */
        tsr__shm_slot *slot = &regions->slots_of[regions->rank][i];
        atomic_store(&slot->headers[0].line.sequence, 0);
        atomic_store(&slot->headers[1].line.sequence, 0);
        atomic_store(&slot->sleeping, 0);
        return i;
    }
    return -1;
}

void tsr__shm_slot_release(tsr__shm_regions *regions, int slot)
{
    if (slot >= 0)
        regions->states[slot].is_taken = false;
}

void tsr__shm_slot_retire(tsr__shm_regions *regions, int slot, uint32_t comm, const int *readers,
                          int count)
{
    slot_state *state = &regions->states[slot];
    *state = (slot_state){.comm = comm, .reader_count = count, .is_taken = count > 0};
    memcpy(state->readers, readers, (size_t)count * sizeof *readers);
}

/* Removes a rank from the readers of a slot. A slot without readers is free. */
static void drop_reader(slot_state *state, int reader)
{
    for (int i = state->reader_count - 1; i >= 0; i--) {
        if (state->readers[i] != reader)
            continue;
        state->readers[i] = state->readers[--state->reader_count];
        state->is_taken = state->reader_count > 0;
    }
}

void tsr__shm_reader_left(tsr__shm_regions *regions, uint32_t comm, int reader)
{
    for (int i = 0; regions && i < SLOTS; i++) {
        if (regions->states[i].comm == comm)
            drop_reader(&regions->states[i], reader);
    }
}

void tsr__shm_reader_ended(tsr__shm_regions *regions, int reader)
{
    for (int i = 0; regions && i < SLOTS; i++)
        drop_reader(&regions->states[i], reader);
}

void tsr__shm_attach(tsr__shm *shm, const tsr__shm_regions *regions, int rank, int size,
                     const int *world_of, const int32_t *slots)
{
    for (int i = 0; i < size; i++)
        shm->slots[i] = regions->slots_of[world_of[i]] + slots[i];
    shm->rank = rank;
    shm->size = size;
    shm->slot_index = slots[rank];
    shm->sequence = 1;
}
