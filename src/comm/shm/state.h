/* The shared-memory transport's state for one communicator. Private to this folder. */
#ifndef TSR_COMM_SHM_STATE_H
#define TSR_COMM_SHM_STATE_H

#include "comm/shm/shm.h"

struct tsr__shm {
    int rank, size;
    tsr__shm_slot **slots; /* [size] */
    int slot_index;        /* index of this rank's slot in its region */
    /* [size]: pointers to the contributions of all ranks, for one reduction at a time */
    const void **inputs;
    /* number of the current round: this rank publishes it next or, if it has published it, waits
     * until the others have */
    uint64_t sequence;
    int waiting_for; /* the lowest rank that is not known to have published this round */
    tsr__shm_operation *first, *last;
};

static inline unsigned tsr__shm_buffer_index(const tsr__shm *shm)
{
    return shm->sequence & 1;
}

#endif
