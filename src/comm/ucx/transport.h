/* Messages between processes: a thin layer over UCX's tag matching. It knows peers by number, moves
 * bytes, and finds out who is gone; it knows nothing of communicators. Nothing happens but inside
 * its calls. One thread at a time.
 *
 * A message matches the oldest receive whose tag, under the receive's mask, is its own. */
#ifndef TSR_COMM_UCX_TRANSPORT_H
#define TSR_COMM_UCX_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/base.h"

typedef struct tsr__transport tsr__transport;

typedef enum tsr__message_state {
    TSR__MESSAGE_IDLE, /* zero: never used */
    TSR__MESSAGE_IN_FLIGHT,
    TSR__MESSAGE_DONE,
    TSR__MESSAGE_TOO_LONG, /* for the receive's memory; what is in there is of no use */
    TSR__MESSAGE_CANCELLED,
    TSR__MESSAGE_LOST /* the peer is gone, or was cut off */
} tsr__message_state;

/* One send or receive. It stays where it is while it flies. */
typedef struct tsr__message {
    tsr__message_state state;
    int peer;
    uint64_t tag;        /* received: the sender's */
    uint64_t size_bytes; /* received: of what was sent */
    /* Called when it stops flying, from inside a call of the transport other than the one that
     * started it; may start others. NULL is fine. */
    void (*on_complete)(struct tsr__message *message);
    void *owner;
    void *handle;
} tsr__message;

/* TSR_ERR_UNSUPPORTED in a build without UCX. Sets UCX_MM_ERROR_HANDLING in the environment where
 * it is not: without it UCX has no shared memory between peers whose loss it is to notice. */
tsr_status tsr__transport_create(tsr__transport **out) TSR_NODISCARD;

/* What the others need to connect; the transport's. */
const void *tsr__transport_address(const tsr__transport *transport, size_t *size_bytes);

/* To all but `self`: addresses[peer]. */
tsr_status tsr__transport_connect(tsr__transport *transport, int self, int size,
                                  const void *const *addresses) TSR_NODISCARD;

/* A process on this host: its end is noticed at once. Best effort. */
void tsr__transport_watch(tsr__transport *transport, int peer, int64_t pid);

/* Both start `message`, whose on_complete and owner are set. Its state may be final on return; then
 * `on_complete` is not called. */
void tsr__transport_send(tsr__transport *transport, int peer, uint64_t tag, const void *data,
                         uint64_t size_bytes, tsr__message *message);
void tsr__transport_recv(tsr__transport *transport, int peer, uint64_t tag, uint64_t mask,
                         void *data, uint64_t size_bytes, tsr__message *message);

/* A receive that nothing has matched lands, CANCELLED; others fly on. */
void tsr__transport_cancel(tsr__transport *transport, tsr__message *message);

/* Takes away what has come for a tag under a mask and will never be received, so that its senders
 * are done with it. */
void tsr__transport_discard(tsr__transport *transport, uint64_t tag, uint64_t mask);

/* True when something moved. */
bool tsr__transport_progress(tsr__transport *transport);

/* Until something may have moved, or `until_ns` of the monotonic clock, or a signal. */
void tsr__transport_sleep(tsr__transport *transport, uint64_t until_ns);

/* Looks whether watched processes have ended, which sleeping finds out by itself. */
void tsr__transport_poll_processes(tsr__transport *transport);

/* A watched process that has: what it shared is its no more. A peer that is lost may still live. */
bool tsr__transport_has_ended(const tsr__transport *transport, int peer);

/* How many peers have been lost so far; when it changes, ask for each. */
unsigned tsr__transport_lost_count(const tsr__transport *transport);
bool tsr__transport_is_lost(const tsr__transport *transport, int peer);
/* Where it comes in the order in which losses were noticed: 1 for the first. 0: not lost. */
unsigned tsr__transport_loss_order(const tsr__transport *transport, int peer);
/* Why, in words that follow "rank 3 is lost: ". */
const char *tsr__transport_loss_reason(const tsr__transport *transport, int peer);

/* Nothing is sent to or received from this peer any more: what flies to it lands, LOST, at some
 * progress from now on, and its memory is not touched any more. Its unmatched receives have to be
 * cancelled. */
void tsr__transport_close_peer(tsr__transport *transport, int peer, const char *why);

/* Delivers what was sent, until `until_ns` at most. NULL is fine; sets NULL. */
void tsr__transport_destroy(tsr__transport **transport, uint64_t until_ns);

#endif
