/* The shared-memory transport: collectives of ranks that share a host. In every round of an
 * operation each rank publishes its data in its slot, and then consumes what it needs from the
 * slots of all ranks. The operations of a communicator run in the order of their calls.
 *
 * It supports communicators of up to TSR__SHM_MAX_RANKS ranks, and operations whose sizes every
 * rank knows: gather_v, scatter_v and all_to_all_v use messages instead.
 *
 * It does not depend on communicators and requests, sends no messages and never blocks. After each
 * step its caller reads from the tsr__shm_event what to do: wake a rank, complete a request, report
 * a mismatch. One thread at a time. */
#ifndef TSR_COMM_SHM_SHM_H
#define TSR_COMM_SHM_SHM_H

#include "comm/algorithms/tree.h"
#include "comm/reduce/reduce.h"
#include "comm/shm/memory.h"
#include "comm/shm/slot.h"

#define TSR__SHM_MAX_RANKS 64 /* polling more slots takes too long; a bit mask holds them all */

typedef struct tsr__shm tsr__shm;                 /* of one communicator */
typedef struct tsr__shm_regions tsr__shm_regions; /* of one process, for all its communicators */

/* One collective operation. It must stay in place from tsr__shm_add to its completion. */
typedef struct tsr__shm_operation {
    /* Set before tsr__shm_prepare. */
    const tsr__call *call; /* must stay in place, too */
    const uint8_t *send;
    uint8_t *recv;
    uint64_t element_bytes;
    tsr__combine_fn combine;
    tsr__divide_fn divide; /* NULL unless the op is AVG */
    bool exact;            /* combine as reduce/exact.h does */
    tsr__blocks blocks;
    void *owner;

    /* Set by tsr__shm_prepare. */
    uint64_t rounds;       /* 0: this operation cannot use the transport */
    uint64_t piece;        /* elements per round: of all data, or of each block */
    bool each_reduces_all; /* a small reduction: every rank combines all elements itself */

    /* Set by tsr__shm_add, and as rounds complete. */
    const tsr__call *before; /* the communicator's previous call */
    uint64_t call_hash;
    uint64_t round;
    bool published;
    struct tsr__shm_operation *next;
} tsr__shm_operation;

/* regions.c: whose memory is where ------------------------------------------------------------- */

/* Whether TESSERA_SHARED_MEMORY allows this transport. Fails if its value is invalid. */
tsr_status tsr__shm_is_enabled(bool *out) TSR_NODISCARD;
/* Creates this process' region, for rank `rank` of a job of `size`. Sets *out to NULL if the
 * transport is disabled. It is not an error if the memory cannot be allocated: then no slot can be
 * reserved. */
tsr_status tsr__shm_regions_open(int rank, int size, tsr__shm_regions **out) TSR_NODISCARD;
/* Unmaps all regions. NULL is fine; sets NULL. */
void tsr__shm_regions_close(tsr__shm_regions **regions);

/* The functions below accept NULL for `regions`. */

/* What other processes need to map this process' region. */
tsr__shm_memory_key tsr__shm_regions_key(const tsr__shm_regions *regions);
/* Maps the region of rank `peer` of the job, which must be on this host. */
void tsr__shm_regions_attach(tsr__shm_regions *regions, int peer, const tsr__shm_memory_key *key);
/* Prevents further processes from mapping this region. Called when all ranks have mapped it. */
void tsr__shm_regions_seal(tsr__shm_regions *regions);

/* The index of a free slot for one more communicator, or −1. */
int tsr__shm_slot_reserve(tsr__shm_regions *regions);
/* Frees a slot whose index no other rank has received. −1 is fine. */
void tsr__shm_slot_release(tsr__shm_regions *regions, int slot);
/* Call this when the slot's communicator, number `comm`, has ended on this rank. The slot becomes
 * free when each of these `count` ranks of the job, which may still read it, has left the
 * communicator or ended. */
void tsr__shm_slot_retire(tsr__shm_regions *regions, int slot, uint32_t comm, const int *readers,
                          int count);
void tsr__shm_reader_left(tsr__shm_regions *regions, uint32_t comm, int reader);
void tsr__shm_reader_ended(tsr__shm_regions *regions, int reader);

/* shm.c: operations in progress ---------------------------------------------------------------- */

/* For a communicator of at most `max_size` ranks; unusable before tsr__shm_attach. */
tsr_status tsr__shm_create(int max_size, tsr__shm **out) TSR_NODISCARD;
/* Uses slot slots[i] of the region of rank world_of[i] of the job, for each rank i of `size`. */
void tsr__shm_attach(tsr__shm *shm, const tsr__shm_regions *regions, int rank, int size,
                     const int *world_of, const int32_t *slots);
/* NULL is fine; sets NULL. */
void tsr__shm_destroy(tsr__shm **shm);
/* This rank's slot in its region. */
int tsr__shm_slot_index(const tsr__shm *shm);

/* What a step requires of the caller. */
typedef struct tsr__shm_event {
    uint64_t wake;                 /* bit r: rank r sleeps, and something was published for it */
    tsr__shm_operation *completed; /* or NULL */
    int mismatch;                  /* a rank that called something else; −1: none */
    bool happened;                 /* one of the above */
} tsr__shm_event;

/* Appends an operation whose `rounds` are set; its call's sequence and history are final. `before`
 * must stay in place until the operation has completed. */
void tsr__shm_add(tsr__shm *shm, tsr__shm_operation *operation, const tsr__call *before);
/* Publishes and consumes as far as possible without blocking, or until there is an event. Returns
 * true if something moved. Call it again after an event; after a mismatch, tsr__shm_stop. */
bool tsr__shm_advance(tsr__shm *shm, tsr__shm_event *event);
/* Whether operations are in progress. False for NULL. */
bool tsr__shm_is_busy(const tsr__shm *shm);
/* The call in progress; there must be one. */
const tsr__call *tsr__shm_call(const tsr__shm *shm);
/* Copies the call that `rank` has published, and the one before it. */
void tsr__shm_call_of(const tsr__shm *shm, int rank, tsr__call *call, tsr__call *before);
/* Whether the operation in progress waits for this rank to publish. */
bool tsr__shm_awaits(const tsr__shm *shm, int rank);
/* Whether other ranks must wake this rank after publishing. */
void tsr__shm_set_sleeping(tsr__shm *shm, bool sleeping);
/* Drops all operations and poisons both buffers, so that a late rank cannot complete an operation
 * that this rank has cancelled. NULL is fine. */
void tsr__shm_stop(tsr__shm *shm);

/* rounds.c: the data of each round ------------------------------------------------------------- */

/* Sets `rounds` and `piece`. */
void tsr__shm_prepare(int size, tsr__shm_operation *operation);
/* Writes this rank's data of the round into its slot. */
void tsr__shm_publish(tsr__shm *shm, tsr__shm_operation *operation);
/* Reads this rank's results of the round from all slots. */
void tsr__shm_consume(tsr__shm *shm, tsr__shm_operation *operation);

#endif
