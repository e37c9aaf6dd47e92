/* The table of states of a key-value cache: which sequence has its state in which slot, and which
 * earlier states stay. It contains only the numbers of slots, not their memory. */
#ifndef TSR_GPU_KV_CACHE_STATES_H
#define TSR_GPU_KV_CACHE_STATES_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera/kv_cache.h"

/* Numbers that are no slots: the state is 0, or it is not known. */
#define TSR__STATE_ZERO (-1)
#define TSR__STATE_UNKNOWN (-2)

/* The slots of a sequence. */
typedef struct tsr__state_of {
    int32_t slot;
    int kept_count;
    /* the slots of the states one token ago, two tokens ago, … */
    int32_t kept[TSR_MAX_KEPT_TOKENS];
} tsr__state_of;

/* A state that sequences and holders can go back to. */
typedef struct tsr__snapshot {
    int64_t id; /* 0: the entry is free. Otherwise its index + snapshots · n with n ≥ 1 */
    int32_t slot;
    int64_t length; /* the number of tokens of the state */
    uint64_t used;  /* when it was used last */
    int references; /* the number of sequences and holders */
} tsr__snapshot;

typedef struct tsr__states {
    bool on; /* sequences have states; if not, nothing below is set */
    int sequences, kept_tokens, kept_sequences, snapshots;
    int64_t snapshot_tokens;
    int32_t slots;
    int32_t *references; /* [slots]: how often sequences and snapshots use the slot */
    int32_t *free;       /* [free_count] */
    int32_t free_count;
    tsr__state_of *of;       /* [sequences] */
    tsr__snapshot *snapshot; /* [snapshots] */
    int64_t *listed;   /* [sequences, snapshots]: the ids of each sequence's snapshots, some of
                        * which may have left */
    int *listed_count; /* [sequences] */
    uint64_t clock;
    int64_t next_id;
    void *backup; /* the references, free slots and sequences before a step */
    int32_t backup_free_count;
} tsr__states;

/* Checks the params and allocates the table, if sequences have states. */
tsr_status tsr__states_init(tsr__states *states, const tsr_kv_cache_params *params) TSR_NODISCARD;
void tsr__states_finish(tsr__states *states);

/* All functions below do nothing, or return `length`, if sequences have no states. The sequences
 * must exist in the table of pages. */

void tsr__states_add(tsr__states *states, int sequence);
void tsr__states_fork(tsr__states *states, int source, int sequence);
void tsr__states_remove(tsr__states *states, int sequence);
/* Returns the greatest length, not above `length`, that a sequence of `present` tokens can go back
 * to. */
int64_t tsr__states_restorable(const tsr__states *states, int sequence, int64_t present,
                               int64_t length);
/* Goes back to a length that tsr__states_restorable has returned. */
void tsr__states_restore(tsr__states *states, int sequence, int64_t present, int64_t length);

/* Drops the states of earlier tokens, except snapshots. */
void tsr__states_drop_kept(tsr__states *states, int sequence);
/* Returns whether a step keeps states of single tokens, so that it has write slots for each. */
bool tsr__states_keeps_each(const tsr__states *states, int count, int64_t most_tokens);
/* Chooses the slots of a step: reads[count], and writes[count], or [count, most_tokens] if each
 * token's state may be kept. Nothing has changed on failure. */
tsr_status tsr__states_begin(tsr__states *states, int count, const int *sequences,
                             const int64_t *tokens, int64_t most_tokens, int32_t *reads,
                             int32_t *writes) TSR_NODISCARD;
/* Undoes tsr__states_begin. */
void tsr__states_undo(tsr__states *states);
/* Takes a snapshot of a sequence of the step, if its length is one for which the params want it. */
void tsr__states_end_step(tsr__states *states, int sequence, int64_t length);

/* Snapshots for holders; see gpu/internal.h. */
int64_t tsr__states_hold(tsr__states *states, int sequence, int64_t length);
void tsr__states_release(tsr__states *states, int64_t snapshot);
bool tsr__states_has(const tsr__states *states, int64_t snapshot);
/* Gives a sequence the state of a snapshot, or TSR__STATE_UNKNOWN. */
void tsr__states_adopt(tsr__states *states, int sequence, int64_t snapshot);

#endif
