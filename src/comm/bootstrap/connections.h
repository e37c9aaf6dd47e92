/* Rank 0's end of a rendezvous: everyone who connects. */
#ifndef TSR_COMM_BOOTSTRAP_CONNECTIONS_H
#define TSR_COMM_BOOTSTRAP_CONNECTIONS_H

#include <poll.h>

#include "comm/bootstrap/address.h"
#include "comm/bootstrap/rendezvous.h"

/* More connections than these that have not proved themselves push the oldest of them out. */
#define TSR__MAX_PENDING 128

typedef enum tsr__connection_stage {
    TSR__CONNECTION_HELLO, /* it is to say who it is */
    TSR__CONNECTION_PROOF, /* it is to prove it */
    TSR__CONNECTION_JOINED
} tsr__connection_stage;

typedef struct tsr__connection {
    tsr__channel channel;
    tsr__connection_stage stage;
    uint64_t deadline_ns; /* to prove itself */
    tsr__wire_handshake handshake;
} tsr__connection;

typedef struct tsr__server {
    tsr__rendezvous_params params;
    tsr__address address;
    int listener;                               /* −1 once all have joined */
    int not_accepted;                           /* why some that connect are not accepted, or 0 */
    tsr__connection *pending[TSR__MAX_PENDING]; /* oldest first */
    int pending_count;
    tsr__connection **ranks; /* NULL for 0 and for those that have not joined */
    int32_t joined;

    /* Set when a rank that had joined is gone and none can come any more. */
    int32_t lost_rank; /* −1: none */
    const char *lost_why;
    bool lost_early; /* before it had all that was sent to it */

    struct pollfd *polls; /* room for everyone */
    tsr__connection **polled;
} tsr__server;

/* Waits for events until the deadline at most, and deals with them. `accepting` says whether ranks
 * may still come. TSR_OK unless memory is out. */
tsr_status tsr__server_step(tsr__server *server, uint64_t deadline_ns) TSR_NODISCARD;

/* Notes that a rank is gone. The first counts, or the first of those that have missed something. */
void tsr__server_lose(tsr__server *server, int32_t rank, const char *why);

/* Forgets everyone who has not joined, and listens no more. */
void tsr__server_stop_listening(tsr__server *server);

/* Closes a connection and frees what belongs to it; sets NULL. */
void tsr__connection_close(tsr__connection **peer);

#endif
