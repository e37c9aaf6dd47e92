/* Messages between processes: a thin layer over UCX's tag matching. The transport numbers its
 * peers, moves bytes and detects lost peers. It does not depend on communicators. It has no thread
 * of its own, so messages progress only inside its functions, which only one thread may call at a
 * time.
 *
 * A message matches the oldest receive whose tag equals the message's tag in all bits that the
 * receive's mask has set. */
#ifndef TSR_COMM_UCX_TRANSPORT_H
#define TSR_COMM_UCX_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "tessera/base.h"

typedef struct tsr__transport tsr__transport;

typedef enum tsr__message_state {
    TSR__MESSAGE_IDLE, /* not started; the value is 0 */
    TSR__MESSAGE_IN_FLIGHT,
    TSR__MESSAGE_DONE,
    TSR__MESSAGE_TOO_LONG, /* longer than the receive's buffer, whose contents are undefined */
    TSR__MESSAGE_CANCELLED,
    TSR__MESSAGE_LOST /* the peer is lost, or its connection was closed */
} tsr__message_state;

/* One send or receive. The address of this struct must not change while the message is in flight.
 */
typedef struct tsr__message {
    tsr__message_state state;
    int peer;
    uint64_t tag;        /* after a receive has completed: the sender's tag */
    uint64_t size_bytes; /* after a receive has completed: the number of bytes that were sent */
    /* Called when the message completes, inside a function of the transport other than the one that
     * started the message. Must not start other messages. May be NULL. */
    void (*on_complete)(struct tsr__message *message);
    void *owner;
    void *handle;
} tsr__message;

/* Creates a transport. Returns TSR_ERR_UNSUPPORTED in a build without UCX. Sets
 * UCX_MM_ERROR_HANDLING and UCX_TCP_RX_SEG_SIZE in the environment unless they are already set.
 * Without the first variable, UCX does not use shared memory between peers whose loss it must
 * detect. The second makes messages of more than 64 KiB over TCP faster. If `without_shared_memory`
 * is true, and unless the user has chosen transports (UCX_TLS), UCX does not use shared memory at
 * all.
 */
tsr_status tsr__transport_create(bool without_shared_memory, tsr__transport **out) TSR_NODISCARD;

/* Returns false if the user has chosen transports (UCX_TLS) without shared memory. Processes of one
 * host then exchange messages over TCP, and UCX 1.13 may abort a process that connects over TCP to
 * one that has just ended. */
bool tsr__transport_has_shared_memory(void);

/* Returns the address that other processes need to connect to this one. The transport owns it. */
const void *tsr__transport_address(const tsr__transport *transport, size_t *size_bytes);

/* The address of a peer, of `bytes` bytes. */
typedef struct tsr__transport_peer {
    const void *address;
    size_t bytes;
} tsr__transport_peer;

/* Makes the peers 0 … size − 1 known, except `self`, and copies their addresses. This rank connects
 * to a peer when it first sends a message to that peer, and when it first expects a message from a
 * peer whose process is not watched (tsr__transport_watch): without a connection, the loss of that
 * peer could not be detected. */
tsr_status tsr__transport_set_peers(tsr__transport *transport, int self, int size,
                                    const tsr__transport_peer *peers) TSR_NODISCARD;
/* Connects to a peer now. Does not block, because UCX establishes a connection when it is first
 * used. Has no effect if this rank is connected to the peer. */
tsr_status tsr__transport_connect(tsr__transport *transport, int peer) TSR_NODISCARD;
bool tsr__transport_is_connected(const tsr__transport *transport, int peer);

/* Watches process `pid` of this host, which is the process of `peer`, so that its end is detected
 * at once. Returns false if the kernel does not support this. */
bool tsr__transport_watch(tsr__transport *transport, int peer, int64_t pid);

/* Makes tsr__transport_sleep also return when this file is readable. Error: TSR_ERR_IO, with the
 * system's reason. */
tsr_status tsr__transport_watch_file(tsr__transport *transport, int file) TSR_NODISCARD;
/* Returns whether the watched file may have become readable since the last call.
 * tsr__transport_sleep and tsr__transport_poll_processes check the file. */
bool tsr__transport_take_readable(tsr__transport *transport);

/* tsr__transport_send and tsr__transport_recv start `message`, whose on_complete and owner must be
 * set. If the message completes inside the call, its state is final when the function returns, and
 * on_complete is not called. */
void tsr__transport_send(tsr__transport *transport, int peer, uint64_t tag, const void *data,
                         uint64_t size_bytes, tsr__message *message);
void tsr__transport_recv(tsr__transport *transport, int peer, uint64_t tag, uint64_t mask,
                         void *data, uint64_t size_bytes, tsr__message *message);

/* Cancels a receive that no message has matched, which completes as CANCELLED. Has no effect on
 * other messages. */
void tsr__transport_cancel(tsr__transport *transport, tsr__message *message);

/* Receives and discards all messages that have arrived and whose tag matches `tag` in the bits of
 * `mask`. This completes their sends. */
void tsr__transport_discard(tsr__transport *transport, uint64_t tag, uint64_t mask);

/* Advances the messages in flight without blocking. Returns true if any of them has made progress.
 */
bool tsr__transport_progress(tsr__transport *transport);

/* Blocks until a message may have made progress, until the monotonic clock reaches `until_ns`, or
 * until a signal arrives. */
void tsr__transport_sleep(tsr__transport *transport, uint64_t until_ns);

/* Checks whether watched processes have ended. tsr__transport_sleep does that too. */
void tsr__transport_poll_processes(tsr__transport *transport);

/* Returns whether a watched process has ended. The process of a lost peer may still be running. */
bool tsr__transport_has_ended(const tsr__transport *transport, int peer);

/* Returns whether a watched process is stopped at present, by a signal or a debugger. A process
 * that only computes for a long time is not. */
bool tsr__transport_is_stopped(const tsr__transport *transport, int peer);

/* Returns the number of peers that are lost. */
unsigned tsr__transport_lost_count(const tsr__transport *transport);
bool tsr__transport_is_lost(const tsr__transport *transport, int peer);
/* Returns the peer's position in the order in which losses were detected: 1 for the first, 0 if the
 * peer is not lost. */
unsigned tsr__transport_loss_order(const tsr__transport *transport, int peer);
/* Returns the reason of a loss, as a text that follows "rank 3 is lost: ". */
const char *tsr__transport_loss_reason(const tsr__transport *transport, int peer);

/* Returns whether this process cannot receive any more. In UCX's shared memory, each process has
 * one queue, into which all others write. If a process ends while it writes a message, the message
 * is never complete, and later messages are never read. Call this function repeatedly while nothing
 * moves, because such a message can only be distinguished from one that is still being written
 * after some time. */
bool tsr__transport_is_stuck(tsr__transport *transport);

/* For tests: from now on the transport behaves as if a process had left an incomplete message, so
 * that tsr__transport_is_stuck becomes true. */
void tsr__transport_deafen(tsr__transport *transport);

/* Closes the connection to a peer by force, as if the peer were lost. Messages in flight to the
 * peer complete as LOST in a later progress call, and after that nothing accesses their memory. The
 * caller must cancel the receives from this peer that no message has matched. */
void tsr__transport_close_peer(tsr__transport *transport, int peer, const char *why);

/* Destroys the transport and sets the pointer to NULL. Blocks until all sent messages have been
 * delivered, but not longer than until `until_ns`. Accepts NULL. */
void tsr__transport_destroy(tsr__transport **transport, uint64_t until_ns);

#endif
