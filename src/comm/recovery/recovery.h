/* Lets the ranks of a job find each other again after a failure, when rank 0 of their bootstrap and
 * all connections may be gone. Each process listens for the other ranks from the creation of its
 * first communicator until its last one is destroyed. This includes communicators that shrinking
 * and growing have made. The ranks exchange their addresses ("cards") while a communicator is
 * created.
 *
 * One thread at a time. */
#ifndef TSR_COMM_RECOVERY_RECOVERY_H
#define TSR_COMM_RECOVERY_RECOVERY_H

#include <stdbool.h>
#include <sys/socket.h>

#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/wire_protocol.h"

#define TSR__CARD_ADDRESSES 4

/* How other ranks can reach a rank. Processes of one build send this struct to each other without
 * conversion. */
typedef struct tsr__card {
    uint64_t uid;  /* a random number that identifies the process in this job; not 0 */
    uint32_t port; /* 0: the process does not listen */
    uint32_t address_count;
    struct {
        uint32_t family; /* 4 or 6 */
        uint8_t bytes[16];
    } addresses[TSR__CARD_ADDRESSES];
    uint8_t seed[TSR__WIRE_MAC]; /* the job's key is derived from rank 0's seed */
} tsr__card;

/* The result of one agreement: the members of a generation. The ranks of a communicator are
 * generation 0, and each agreement makes the next generation. */
typedef struct tsr__decision {
    struct tsr__decision *next;
    uint64_t lineage; /* identifies the communicator from which the generations descend */
    uint32_t generation;
    bool without_me; /* the other members have continued without this process */
    int count;
    uint64_t uids[]; /* [count], in the order of their ranks */
} tsr__decision;

/* What a job, and all jobs that shrinking and growing make from it, share in one process. */
typedef struct tsr__recovery {
    int references;
    int listener; /* −1: none */
    char why[160];
    tsr__card card;
    tsr__decision *decisions; /* the decisions that this process knows, the latest first */
} tsr__recovery;

/* What a job needs to know so that its ranks find each other after a failure. */
typedef struct tsr__roster {
    tsr__recovery *recovery; /* NULL: the job has never had a second rank */
    tsr__card *cards;        /* [size] */
    uint8_t key[TSR__WIRE_MAC];
    uint64_t lineage;
    uint32_t generation;
} tsr__roster;

/* Starts to listen. If that fails, this is not an error: `why` has the reason, and the communicator
 * cannot be shrunk. `info` says which networks the other ranks are on. */
tsr_status tsr__recovery_open(const tsr__bootstrap_info *info, tsr__recovery **out) TSR_NODISCARD;
void tsr__recovery_retain(tsr__recovery *recovery);
/* Stops listening if this was the last reference. Sets the pointer to NULL. Accepts NULL. */
void tsr__recovery_release(tsr__recovery **recovery);

/* Puts a new random seed into this process's card. Call this each time before the card is sent to
 * the ranks of a new job. */
void tsr__recovery_draw_seed(tsr__recovery *recovery);
/* Sets the key and the lineage of a job that descends from no other, from the card of rank 0. The
 * key also depends on TESSERA_TOKEN, so the card alone does not reveal it. */
void tsr__roster_derive(tsr__roster *roster);

/* Returns the decision that made generation `generation` of `lineage`, or NULL if this process
 * knows none. */
const tsr__decision *tsr__recovery_find(const tsr__recovery *recovery, uint64_t lineage,
                                        uint32_t generation);
/* Keeps a decision, unless there already is one for this generation. */
tsr_status tsr__recovery_keep(tsr__recovery *recovery, uint64_t lineage, uint32_t generation,
                              bool without_me, const uint64_t *uids, int count) TSR_NODISCARD;

#endif
