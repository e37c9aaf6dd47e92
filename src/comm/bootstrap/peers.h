/* Rank 0's end of a rendezvous: everyone who connects. */
#ifndef TSR_COMM_BOOTSTRAP_PEERS_H
#define TSR_COMM_BOOTSTRAP_PEERS_H

#include <poll.h>

#include "comm/bootstrap/address.h"
#include "comm/bootstrap/rendezvous.h"

/* More connections than these that have not proved themselves push the oldest of them out. */
#define TSR__MAX_STRANGERS 128

typedef enum tsr__peer_stage {
    TSR__PEER_HELLO, /* it is to say who it is */
    TSR__PEER_PROOF, /* it is to prove it */
    TSR__PEER_JOINED
} tsr__peer_stage;

typedef struct tsr__peer {
    tsr__channel channel;
    tsr__peer_stage stage;
    uint64_t deadline_ns; /* to prove itself */
    tsr__wire_handshake handshake;
} tsr__peer;

typedef struct tsr__peers {
    tsr__rendezvous_params params;
    tsr__address address;
    int listener;                             /* −1 once all have joined */
    int not_accepted;                         /* why some that connect are not accepted, or 0 */
    tsr__peer *strangers[TSR__MAX_STRANGERS]; /* oldest first */
    int stranger_count;
    tsr__peer **ranks; /* NULL for 0 and for those that have not joined */
    int32_t joined;

    /* Set when a rank that had joined is gone and none can come any more. */
    int32_t lost_rank; /* −1: none */
    const char *lost_why;
    bool lost_early; /* before it had all that was sent to it */

    struct pollfd *polls; /* room for everyone */
    tsr__peer **polled;
} tsr__peers;

/* Waits for events until the deadline at most, and deals with them. `accepting` says whether ranks
 * may still come. TSR_OK unless memory is out. */
tsr_status tsr__peers_step(tsr__peers *peers, uint64_t deadline_ns) TSR_NODISCARD;

/* Notes that a rank is gone. The first counts, or the first of those that have missed something. */
void tsr__peers_lose(tsr__peers *peers, int32_t rank, const char *why);

/* Forgets everyone who has not joined, and listens no more. */
void tsr__peers_stop_listening(tsr__peers *peers);

/* Closes a connection and frees what belongs to it; sets NULL. */
void tsr__peer_close(tsr__peer **peer);

#endif
