/* The transport's state. Private to this folder. */
#ifndef TSR_COMM_UCX_UCX_STATE_H
#define TSR_COMM_UCX_UCX_STATE_H

#include <stdio.h>

#include "comm/ucx/transport.h"
#include "comm/ucx/ucx_library.h"

typedef struct tsr__peer {
    tsr__transport *transport;
    const void *address;
    ucp_ep_h endpoint; /* NULL: not connected yet, or the endpoint was closed */
    void *closing;     /* the UCX request that closes the endpoint, or NULL */
    int process;       /* a pidfd of the peer's process, or −1 */
    int64_t pid;       /* of that process */
    bool ended;        /* the peer's process has ended */
    unsigned lost;     /* position in the order of losses, from 1; 0: not lost */
    bool closed;       /* the peer is lost, and its endpoint has been closed */
    char why[160];
} tsr__peer;

struct tsr__transport {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    tsr__peer *peers;
    uint8_t *addresses; /* the addresses of all peers */
    int self, size;
    /* an epoll descriptor that watches UCX's event descriptor, the pidfds of all peers, and the
     * file of tsr__transport_watch_file */
    int wake;
    bool is_readable;     /* the file of tsr__transport_watch_file may be readable */
    unsigned noticed;     /* number of lost peers */
    bool has_new_losses;  /* the endpoints of some lost peers are not closed yet */
    unsigned lost_closed; /* number of lost peers whose endpoints are closed */
    /* when a message in the queue was first found to be unreadable; 0: there is no such message */
    uint64_t stuck_since_ns;
    /* how often UCX has refused to sleep since a message last made progress */
    unsigned refusals;
    bool is_deaf; /* for tests: behave as if a message could not be read */
};

/* Records that a peer is lost. If it is lost already, keeps the first reason. Only changes state,
 * because a callback of UCX may call this function. The next progress call closes the endpoint. */
static inline void tsr__ucx_mark_lost(tsr__peer *peer, const char *why)
{
    if (peer->lost != 0)
        return;
    peer->lost = ++peer->transport->noticed;
    (void)snprintf(peer->why, sizeof peer->why, "%s", why);
    peer->transport->has_new_losses = true;
}

/* ucx_sleep.c */
tsr_status tsr__ucx_wake_open(tsr__transport *transport) TSR_NODISCARD;
void tsr__ucx_wake_close(tsr__transport *transport);

/* ucx_peers.c */
/* Connects to a peer, unless there is a connection already. Returns false if the peer is this
 * process or lost, or if connecting fails; the peer then counts as lost. */
bool tsr__ucx_reach(tsr__peer *peer);
/* Closes all connections. Blocks until `until_ns` at most. */
void tsr__ucx_disconnect(tsr__transport *transport, uint64_t until_ns);

#endif
