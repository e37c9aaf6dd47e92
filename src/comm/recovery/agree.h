/* The agreement of the members of a communicator on who of them goes on.
 *
 * The lowest member that answers leads. Each member calls the members below itself in ascending
 * order, joins the first that leads, and leads itself if none of them answers for a moment. It
 * keeps the connections to members that do not answer: when one of them answers later, it becomes
 * the leader instead. The leader decides when every member has joined or ended, or at
 * `collect_until_ns`, and tells those that have joined; their connections then serve as the
 * rendezvous of the new job.
 *
 * Only a majority may decide: more than half of the members that are not known to have ended, or
 * half if the lowest of them is among those. A member is known to have ended if its process has
 * ended, or if its host refuses connections to the port at which it listened. So two groups of
 * members that cannot reach each other never both go on, even if each believes that the other is
 * lost.
 *
 * Each decision makes the next generation of the lineage, and members remember it. So a leader that
 * ends before it has told everybody does no harm: who has not been told learns the decision from
 * who has. A member that is left out finds a message about it in its socket, even if it was stopped
 * and all others have ended since. */
#ifndef TSR_COMM_RECOVERY_AGREE_H
#define TSR_COMM_RECOVERY_AGREE_H

#include "comm/bootstrap/rendezvous.h"
#include "comm/recovery/recovery.h"

typedef struct tsr__member {
    tsr__card card;
    bool ended; /* its process is known to have ended */
    /* It could not be reached although it had not ended. If it ends afterwards, it still counts,
     * because it may have gone on with others before. */
    bool cut_off;
    int rank; /* in the communicator, for error texts */
} tsr__member;

typedef struct tsr__agreement_params {
    tsr__recovery *recovery;
    const uint8_t *key;
    uint64_t lineage;
    uint32_t generation; /* the present one, of which `members` are the members */
    tsr__member *members;
    int size, self;
    bool without_majority; /* any group of members may decide */
    uint64_t collect_until_ns, deadline_ns, timeout_ns;
    /* Called again and again; may set `ended` of members. */
    void (*progress)(void *user, tsr__member *members, int size);
    void *user;
} tsr__agreement_params;

/* Blocks until there is a decision about the next generation. Sets *decision, which belongs to the
 * recovery. Sets *rendezvous to a rendezvous of the new generation's members; NULL if the decision
 * was made earlier, so that there is none, or if this process is alone.
 *
 * Errors: TSR_ERR_TIMEOUT if there is no majority by the deadline; TSR_ERR_PEER_LOST if the others
 * have gone on without this process; TSR_ERR_NO_MEMORY. */
tsr_status tsr__agree(const tsr__agreement_params *params, const tsr__decision **decision,
                      tsr__rendezvous **rendezvous) TSR_NODISCARD;

#endif
