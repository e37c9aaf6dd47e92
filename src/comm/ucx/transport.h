/* Messages between processes: a thin layer over UCX's tag matching. It numbers its peers, moves
 * bytes and detects lost peers; it does not depend on communicators. It only progresses inside its
 * functions: there is no thread. One thread at a time.
 *
 * A message matches the oldest receive whose tag equals its own in the bits of the receive's
 * mask. */
#ifndef TSR_COMM_UCX_TRANSPORT_H
#define TSR_COMM_UCX_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/base.h"

typedef struct tsr__transport tsr__transport;

typedef enum tsr__message_state {
    TSR__MESSAGE_IDLE, /* 0: not started */
    TSR__MESSAGE_IN_FLIGHT,
    TSR__MESSAGE_DONE,
    TSR__MESSAGE_TOO_LONG, /* for the receive's buffer, whose contents are undefined */
    TSR__MESSAGE_CANCELLED,
    TSR__MESSAGE_LOST /* the peer is lost, or its connection was closed */
} tsr__message_state;

/* One send or receive. It must stay in place while it is in flight. */
typedef struct tsr__message {
    tsr__message_state state;
    int peer;
    uint64_t tag;        /* of a completed receive: the sender's */
    uint64_t size_bytes; /* of a completed receive: what was sent */
    /* Called when it completes, inside a function of the transport other than the one that started
     * it. May start other messages. NULL is fine. */
    void (*on_complete)(struct tsr__message *message);
    void *owner;
    void *handle;
} tsr__message;

/* TSR_ERR_UNSUPPORTED in a build without UCX. Sets UCX_MM_ERROR_HANDLING in the environment unless
 * it is set: without it UCX uses no shared memory between peers whose loss it must detect. */
tsr_status tsr__transport_create(tsr__transport **out) TSR_NODISCARD;

/* What other processes need to connect. Owned by the transport. */
const void *tsr__transport_address(const tsr__transport *transport, size_t *size_bytes);

/* Connects to the peers 0 … size − 1, except `self`, at addresses[peer]. Does not block: UCX
 * connects when a connection is first used. */
tsr_status tsr__transport_connect(tsr__transport *transport, int self, int size,
                                  const void *const *addresses) TSR_NODISCARD;

/* Watches peer `peer`, process `pid` of this host: its end is detected at once if the kernel has
 * pidfds.
 */
void tsr__transport_watch(tsr__transport *transport, int peer, int64_t pid);

/* Both start `message`, whose on_complete and owner are set. It may complete at once: then its
 * state is final on return, and on_complete is not called. */
void tsr__transport_send(tsr__transport *transport, int peer, uint64_t tag, const void *data,
                         uint64_t size_bytes, tsr__message *message);
void tsr__transport_recv(tsr__transport *transport, int peer, uint64_t tag, uint64_t mask,
                         void *data, uint64_t size_bytes, tsr__message *message);

/* Completes a receive that has not been matched, as CANCELLED. Has no effect on other messages. */
void tsr__transport_cancel(tsr__transport *transport, tsr__message *message);

/* Receives and discards all messages that have arrived for a tag under a mask, so that their
 * sends complete. */
void tsr__transport_discard(tsr__transport *transport, uint64_t tag, uint64_t mask);

/* Progresses without blocking. Returns true if something moved. */
bool tsr__transport_progress(tsr__transport *transport);

/* Blocks until something may have moved, `until_ns` of the monotonic clock, or a signal. */
void tsr__transport_sleep(tsr__transport *transport, uint64_t until_ns);

/* Checks whether watched processes have ended. Sleeping does that, too. */
void tsr__transport_poll_processes(tsr__transport *transport);

/* Whether a watched process has ended. A peer that is lost may still be running. */
bool tsr__transport_has_ended(const tsr__transport *transport, int peer);

/* The number of peers that are lost. */
unsigned tsr__transport_lost_count(const tsr__transport *transport);
bool tsr__transport_is_lost(const tsr__transport *transport, int peer);
/* Its position in the order in which losses were detected: 1 for the first; 0: not lost. */
unsigned tsr__transport_loss_order(const tsr__transport *transport, int peer);
/* The reason, as it follows "rank 3 is lost: ". */
const char *tsr__transport_loss_reason(const tsr__transport *transport, int peer);

/* Closes the connection to a peer by force, as if it were lost. Messages in flight to it complete
 * as LOST in a later progress; then their memory is no longer accessed. Receives from it that have
 * not been matched must be cancelled. */
void tsr__transport_close_peer(tsr__transport *transport, int peer, const char *why);

/* Blocks until all sent messages have been delivered, or `until_ns`. NULL is fine; sets NULL. */
void tsr__transport_destroy(tsr__transport **transport, uint64_t until_ns);

#endif
