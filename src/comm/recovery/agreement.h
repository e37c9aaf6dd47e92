/* The agreement of the members of a communicator on the members that continue after a failure.
 *
 * The lowest member that answers leads: it collects the others and decides. Each member connects to
 * the members below itself, in ascending order, and asks whether they lead. It joins the first one
 * that does. If none of them answers for a short time, the member leads itself. It keeps the
 * connections to lower members that do not answer. If one of these answers later, that member
 * becomes the leader instead. The leader decides when every member has joined or ended, or at
 * `collect_until_ns`. It tells the members that have joined. Their connections to the leader then
 * serve as the rendezvous (bootstrap/rendezvous.h) of the new job.
 *
 * Only a majority may decide. A majority is more than half of the members that are not known to
 * have ended, or exactly half of them including the lowest. A member is known to have ended if its
 * process has ended, or if its host refuses connections to the port at which the member listened.
 * So if two groups of members cannot reach each other, at most one of them continues, even if each
 * group believes that the other is lost.
 *
 * The decided members are the next generation of the communicator's lineage (recovery.h), and
 * members remember decisions. So the leader may end before it has told all members, because the
 * others learn the decision from those that were told. A member that is left out finds a message
 * (LEFT_OUT) that says so in its socket, even if it was stopped and all other members have ended
 * meanwhile. */
#ifndef TSR_COMM_RECOVERY_AGREEMENT_H
#define TSR_COMM_RECOVERY_AGREEMENT_H

#include "comm/bootstrap/rendezvous.h"
#include "comm/recovery/recovery.h"

typedef struct tsr__member {
    tsr__card card;
    bool ended; /* the process of the member is known to have ended */
    /* The member could not be reached although it had not ended. It then counts as not ended even
     * if it ends later, because it may have continued with other members before. */
    bool cut_off;
    int rank; /* its rank in the communicator, for error texts */
} tsr__member;

typedef struct tsr__agreement_params {
    tsr__recovery *recovery;
    const uint8_t *key;
    uint64_t lineage;
    uint32_t generation; /* the present generation, whose members are `members` */
    tsr__member *members;
    int size, self;
    bool force; /* any group of members may decide */
    uint64_t collect_until_ns, deadline_ns, timeout_ns;
    /* Called again and again during the agreement; may set `ended` of members that it finds to have
     * ended. */
    void (*progress)(void *user, tsr__member *members, int size);
    void *user;
} tsr__agreement_params;

/* Blocks until there is a decision about the next generation. Sets *decision, which belongs to the
 * recovery. Sets *rendezvous to a rendezvous of the new generation's members; NULL if not all of
 * them are connected, for example because the decision was made earlier, or if this process is the
 * only member.
 *
 * Errors: TSR_ERR_TIMEOUT if there is no majority by the deadline; TSR_ERR_PEER_LOST if the other
 * members have continued without this process; TSR_ERR_NO_MEMORY. */
tsr_status tsr__agree(const tsr__agreement_params *params, const tsr__decision **decision,
                      tsr__rendezvous **rendezvous) TSR_NODISCARD;

#endif
