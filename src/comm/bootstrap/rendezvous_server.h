/* The server of a rendezvous, for rank 0. The server listens, waits until all ranks have joined,
 * and performs their exchanges. */
#ifndef TSR_COMM_BOOTSTRAP_RENDEZVOUS_SERVER_H
#define TSR_COMM_BOOTSTRAP_RENDEZVOUS_SERVER_H

#include <poll.h>

#include "comm/bootstrap/address.h"
#include "comm/bootstrap/rendezvous.h"

/* The largest number of pending connections, which are those that have not completed the handshake.
 * When one more arrives, the oldest is dropped. */
#define TSR__MAX_PENDING 128

typedef enum tsr__connection_stage {
    TSR__CONNECTION_HELLO, /* rank 0 waits for HELLO */
    TSR__CONNECTION_PROOF, /* rank 0 waits for PROOF */
    TSR__CONNECTION_JOINED
} tsr__connection_stage;

typedef struct tsr__connection {
    tsr__channel channel;
    tsr__connection_stage stage;
    uint64_t deadline_ns; /* the deadline of the handshake */
    tsr__wire_handshake handshake;
} tsr__connection;

typedef struct tsr__server {
    tsr__rendezvous_params params;
    tsr__address address;
    int listener;     /* −1 once all ranks have joined */
    int accept_errno; /* why the last accept() failed for lack of resources, or 0 */
    /* the connections whose handshake is not complete, the oldest first */
    tsr__connection *pending[TSR__MAX_PENDING];
    int pending_count;
    tsr__connection **ranks; /* [size]: NULL for rank 0 and for ranks that have not joined */
    int32_t joined;
    char refused[256]; /* the address of the last refused process and the reason, or "" */

    /* The first rank whose connection was lost after all ranks had joined. */
    int32_t lost_rank; /* −1: none */
    const char *lost_why;
    bool lost_early; /* the rank was lost before it had received everything that was sent to it */

    struct pollfd *polls; /* room for all connections and the listener */
    tsr__connection **polled;
} tsr__server;

/* rendezvous_server.c -----------------------------------------------------------------------------
 */

tsr_status tsr__server_open(const tsr__rendezvous_params *params, tsr__server **out) TSR_NODISCARD;
/* The first message to a process that joins a running job. */
typedef struct tsr__introduction {
    int32_t old_size;  /* the number of ranks that the job had before it grew */
    int32_t newcomers; /* the number of processes that join */
    int32_t index;     /* the receiver's number among the newcomers, from 0 */
} tsr__introduction;
enum { TSR__INTRODUCTION_SIZE = 12 };

/* Opens a server for processes that join a running job. params->grows must be true. Waits until
 * params->size − 1 of them have joined, or until the timeout. Those that have joined then have the
 * ranks 1, 2, … of the server. Error: TSR_ERR_TIMEOUT if none has joined. */
tsr_status tsr__server_open_growing(const tsr__rendezvous_params *params, int32_t *joined,
                                    tsr__server **out) TSR_NODISCARD;
/* Sends to each process that has joined which rank it has in the grown job. The job had `old_size`
 * ranks before. */
tsr_status tsr__server_introduce(tsr__server *server, int32_t old_size,
                                 const tsr__bootstrap_limit *limit) TSR_NODISCARD;
/* Sends `status` and the recorded error text to all processes that have joined. */
void tsr__server_abort(tsr__server *server, tsr_status status);
/* Makes a server without a listener from authenticated connections, which it then owns. channels[r]
 * leads to rank r, for 1 <= r < `size`. */
tsr_status tsr__server_adopt(int32_t size, const tsr__channel *channels,
                             tsr__server **out) TSR_NODISCARD;
tsr_status tsr__server_exchange(tsr__server *server, const void *mine, uint64_t size_bytes,
                                const tsr__bootstrap_limit *limit,
                                tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__server_close(tsr__server **server);

/* rendezvous_connections.c: accepts connections, and handles the handshake and the messages of each
 */

/* Waits for events, at most until the deadline, and handles them. Fails only when memory is
 * exhausted or poll() fails. */
tsr_status tsr__server_step(tsr__server *server, uint64_t deadline_ns) TSR_NODISCARD;

/* Records that a rank is lost. The first lost rank is kept, unless it had received everything that
 * was sent to it and the new one had not: a rank that has received the answer may leave, while the
 * loss of one that is still receiving it is an error. */
void tsr__server_lose(tsr__server *server, int32_t rank, const char *why);

/* Drops the pending connections and closes the listener. */
void tsr__server_stop_listening(tsr__server *server);

/* Closes a connection, frees it, and sets the pointer to NULL. */
void tsr__connection_close(tsr__connection **connection);

#endif
