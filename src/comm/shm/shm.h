/* The shared-memory transport: collectives of ranks that share a host. In each round of an
 * operation, each rank publishes data in its slot and then consumes the data that it needs from the
 * slots of all ranks. The operations of a communicator run in the order of their calls.
 *
 * The transport supports communicators of up to TSR__SHM_MAX_RANKS ranks, and operations whose
 * sizes every rank can compute. gather_v, scatter_v and all_to_all_v use messages instead.
 *
 * The transport does not depend on communicators and requests, sends no messages and never blocks.
 * Each call of tsr__shm_advance returns an event that tells the caller what to do: wake a rank,
 * complete a request, or report a mismatch. One thread at a time. */
#ifndef TSR_COMM_SHM_SHM_H
#define TSR_COMM_SHM_SHM_H

#include "comm/algorithms/tree.h"
#include "comm/collective_call.h"
#include "comm/reduce/reduce.h"
#include "comm/shm/memfd.h"

/* The largest number of ranks of a communicator that uses the transport. Polling more slots would
 * take too long, and bit masks of ranks have 64 bits. */
#define TSR__SHM_MAX_RANKS 64

typedef struct tsr__shm tsr__shm; /* the transport of one communicator */
/* the memory of one process, for all its communicators */
typedef struct tsr__shm_regions tsr__shm_regions;

/* One collective operation. The address of this struct must not change between tsr__shm_add and the
 * completion of the operation. */
typedef struct tsr__shm_operation {
    /* The caller sets these before tsr__shm_prepare. */
    /* The call of this operation, which the ranks compare. Must stay valid until the operation
     * completes. */
    const tsr__call *call;
    /* The transport executes each inner step of a call (algorithms/hierarchical.h) as one
     * operation. This is the number of the inner step in its call, from 0. */
    uint32_t step_number;
    /* What the operation does. The kind, root and count of an inner step may differ from those of
     * the call. */
    tsr__call_kind kind;
    int root;
    uint64_t count;
    const uint8_t *send;
    uint8_t *recv;
    uint64_t element_bytes;
    tsr__combine_fn combine;
    tsr__divide_fn divide; /* NULL unless the op is AVG */
    bool exact;            /* combine as in reduce/exact_combine.h */
    tsr__blocks blocks;
    void *owner;

    /* tsr__shm_prepare sets these. */
    uint64_t rounds; /* 0: this operation cannot use the transport */
    /* how many elements of the data, or of each block, one round transfers */
    uint64_t chunk;
    bool each_reduces_all; /* in a small reduction, every rank combines all elements itself */

    /* tsr__shm_add sets these, and they change as rounds complete. */
    const tsr__call *before; /* the communicator's previous call */
    uint64_t call_hash;
    uint64_t round;
    bool published;
    struct tsr__shm_operation *next;
} tsr__shm_operation;

/* shm_regions.c: the memory of each rank ----------------------------------------------------------
 */

/* Sets *out to whether TESSERA_SHARED_MEMORY allows this transport. Fails if the variable's value
 * is invalid. */
tsr_status tsr__shm_is_enabled(bool *out) TSR_NODISCARD;
/* Creates the region of this process, which is rank `rank` of a job of `size` ranks. Sets *out to
 * NULL if the transport is disabled. If the memory cannot be allocated, this is not an error, but
 * later no slot can be reserved. */
tsr_status tsr__shm_regions_open(int rank, int size, tsr__shm_regions **out) TSR_NODISCARD;
/* Unmaps all regions and sets the pointer to NULL. Accepts NULL. */
void tsr__shm_regions_close(tsr__shm_regions **regions);

/* All following functions of shm_regions.c accept NULL for `regions`. */

/* Returns what other processes need to map the region of this process. */
tsr__shm_memory_key tsr__shm_regions_key(const tsr__shm_regions *regions);
/* Maps the region of rank `peer` of the job, which must be on this host. */
void tsr__shm_regions_attach(tsr__shm_regions *regions, int peer, const tsr__shm_memory_key *key);
/* Prevents more processes from mapping the region of this process. Call this when all ranks have
 * mapped it. */
void tsr__shm_regions_seal(tsr__shm_regions *regions);

/* Reserves a slot for one more communicator. Returns its index, or −1 if none is free. */
int tsr__shm_slot_reserve(tsr__shm_regions *regions);
/* Frees a slot whose index no other rank has received. Accepts −1. */
void tsr__shm_slot_release(tsr__shm_regions *regions, int slot);
/* Gives up a slot when communicator number `comm` has ended on this rank. The `count` ranks of the
 * job in `readers` may still read the slot. It becomes free when each of them has left the
 * communicator or ended. */
void tsr__shm_slot_retire(tsr__shm_regions *regions, int slot, uint32_t comm, const int *readers,
                          int count);
void tsr__shm_reader_left(tsr__shm_regions *regions, uint32_t comm, int reader);
void tsr__shm_reader_ended(tsr__shm_regions *regions, int reader);

/* shm_operations.c: operations in progress --------------------------------------------------------
 */

/* Creates the transport of a communicator of at most `max_size` ranks. It cannot be used before
 * tsr__shm_attach. */
tsr_status tsr__shm_create(int max_size, tsr__shm **out) TSR_NODISCARD;
/* Assigns slots to the ranks: rank i uses slot slots[i] of the region of rank world_of[i] of the
 * job, for 0 <= i < `size`. */
void tsr__shm_attach(tsr__shm *shm, const tsr__shm_regions *regions, int rank, int size,
                     const int *world_of, const int32_t *slots);
/* Frees the transport and sets the pointer to NULL. Accepts NULL. */
void tsr__shm_destroy(tsr__shm **shm);
/* Returns the index of this rank's slot in its region. */
int tsr__shm_slot_index(const tsr__shm *shm);

/* What the caller of tsr__shm_advance must do. */
typedef struct tsr__shm_event {
    /* the ranks that the caller must wake: bit r is set if rank r sleeps and all ranks have
     * published the round */
    uint64_t wake;
    tsr__shm_operation *completed; /* the operation that has completed, or NULL */
    int mismatch;                  /* a rank that has called a different operation; −1: none */
    bool happened;                 /* at least one of the above is set */
} tsr__shm_event;

/* Appends an operation. Its `rounds` must be set, and its call's `sequence` and `history`
 * (collective_call.h) must be final. `before` is the communicator's previous call, or the
 * operation's own call if the previous one is not known. It is published too, so that a mismatch
 * can be explained, and must stay valid until the operation has completed. */
void tsr__shm_add(tsr__shm *shm, tsr__shm_operation *operation, const tsr__call *before);
/* Publishes and consumes rounds as far as possible without blocking, but returns at the first
 * event. Returns true if it has published or consumed anything. After an event, call this function
 * again, but after a mismatch call tsr__shm_stop instead. */
bool tsr__shm_advance(tsr__shm *shm, tsr__shm_event *event);
/* Returns whether operations are in progress. Returns false for NULL. */
bool tsr__shm_is_busy(const tsr__shm *shm);
/* Returns the call of the operation in progress. There must be one. */
const tsr__call *tsr__shm_call(const tsr__shm *shm);
/* Copies the call that `rank` has published, and the one before it. */
void tsr__shm_call_of(const tsr__shm *shm, int rank, tsr__call *call, tsr__call *before);
/* Returns whether the operation in progress waits until `rank` publishes. */
bool tsr__shm_awaits(const tsr__shm *shm, int rank);
/* Tells the other ranks, in this rank's slot, whether this rank must be woken when all ranks have
 * published the round. */
void tsr__shm_set_sleeping(tsr__shm *shm, bool sleeping);
/* Removes all operations and makes both buffers of this rank unusable, so that a late rank cannot
 * complete an operation that this rank has cancelled. Accepts NULL. */
void tsr__shm_stop(tsr__shm *shm);

/* shm_rounds.c: the data of each round ------------------------------------------------------------
 */

/* Sets `rounds`, `chunk` and `each_reduces_all`. */
void tsr__shm_prepare(int size, tsr__shm_operation *operation);
/* Writes the data that this rank publishes in the round into its slot. */
void tsr__shm_publish(tsr__shm *shm, tsr__shm_operation *operation);
/* Reads the data of the round that this rank needs from the slots of all ranks. */
void tsr__shm_consume(tsr__shm *shm, tsr__shm_operation *operation);

#endif
