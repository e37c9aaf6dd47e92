/* The shared-memory transport: the layout of shared memory, and the state for one communicator.
 * Private to this folder. */
#ifndef TSR_COMM_SHM_SHM_STATE_H
#define TSR_COMM_SHM_SHM_STATE_H

#include <stdalign.h>
#include <stdatomic.h>

#include "comm/shm/shm.h"

/* Slots -------------------------------------------------------------------------------------------
 */

/* The layout of a slot: what one rank publishes to the other ranks of a communicator, in shared
 * memory. Only the owner writes to its slot, except that the other ranks clear `sleeping`.
 *
 * A sequence number counts the rounds. It is the same on all ranks. For round s, a rank writes its
 * data into buffer s mod 2 of its slot and then stores s into the header of that buffer. When a
 * rank has seen s in all slots, it may read buffer s mod 2 of each slot. It may then also write to
 * the other buffer of its own slot, because every rank publishes s only after it has finished
 * reading round s − 1. So a round is synchronised by one store and one load per rank. */
#define TSR__SHM_INLINE_BYTES 48
#define TSR__SHM_INPUT_BYTES (UINT32_C(256) << 10)
/* the results of a chunk of one rank are at most half of the input, rounded up */
#define TSR__SHM_RESULT_BYTES (UINT32_C(132) << 10)

/* One cache line: the sequence number of a buffer and, if there are few bytes, the data itself, so
 * that both arrive together. */
typedef struct tsr__shm_line {
    _Atomic uint64_t sequence;
    uint64_t call_hash;
    uint8_t data[TSR__SHM_INLINE_BYTES];
} tsr__shm_line;

typedef struct tsr__shm_buffer {
    uint8_t input[TSR__SHM_INPUT_BYTES];
    uint8_t result[TSR__SHM_RESULT_BYTES];
} tsr__shm_buffer;

/* Processors prefetch cache lines in pairs. So data that different ranks write is at least 128
 * bytes apart. */
typedef struct tsr__shm_slot {
    struct {
        alignas(128) tsr__shm_line line;
        alignas(128) tsr__call call; /* read only if call_hash differs */
        tsr__call before;
    } headers[2];
    /* the owner sleeps, so the last rank to publish a round must wake it */
    alignas(128) _Atomic uint32_t sleeping;
    alignas(4096) tsr__shm_buffer buffers[2];
} tsr__shm_slot;

/* State -------------------------------------------------------------------------------------------
 */

struct tsr__shm {
    int rank, size;
    tsr__shm_slot **slots; /* [size] */
    int slot_index;        /* index of this rank's slot in its region */
    /* [size]: pointers to the contributions of all ranks, for one reduction at a time */
    const void **inputs;
    /* number of the current round, which this rank publishes next, or has published and waits for
     * the other ranks to publish */
    uint64_t sequence;
    int waiting_for; /* the lowest rank that is not known to have published this round */
    tsr__shm_operation *first, *last;
};

static inline unsigned tsr__shm_buffer_index(const tsr__shm *shm)
{
    return shm->sequence & 1;
}

/* tree_combine.c: combines the contributions of all ranks, in the order of algorithms/tree.h ------
 */

typedef struct tsr__combination {
    tsr__combine_fn combine;
    tsr__divide_fn divide; /* NULL unless the op is AVG */
    tsr_dtype dtype;
    tsr_op op;
    size_t element_bytes;
    int size;   /* number of contributions, at least two */
    bool exact; /* combine as reduce/exact_combine.h does */
} tsr__combination;

/* `out` may be one of the inputs, or must not overlap any of them. */
void tsr__combine_all(const tsr__combination *combination, const void *const *inputs, void *out,
                      size_t count);

#endif
