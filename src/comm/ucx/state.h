/* The transport's state. Private to this folder. */
#ifndef TSR_COMM_UCX_STATE_H
#define TSR_COMM_UCX_STATE_H

#include <stdio.h>

#include "comm/ucx/library.h"
#include "comm/ucx/transport.h"

typedef struct tsr__peer {
    tsr__transport *transport;
    ucp_ep_h endpoint; /* NULL: this process itself, or closed */
    void *closing;     /* the UCX request that closes the endpoint, or NULL */
    int process;       /* a pidfd, or −1 */
    bool ended;        /* that process */
    unsigned lost;     /* its position in the order of losses, from 1; 0: not lost */
    bool closed;       /* it is lost, and its endpoint has been closed */
    char why[160];
} tsr__peer;

struct tsr__transport {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    tsr__peer *peers;
    int self, size;
    int wake;             /* an epoll descriptor of the worker's event fd and all pidfds */
    unsigned noticed;     /* number of lost peers … */
    bool has_new_losses;  /* … of which some are not closed yet */
    unsigned lost_closed; /* number of lost peers that are */
};

/* Records that a peer is lost; the first reason stays. Only a change of state, because UCX may be
 * calling back: the endpoint is closed in the next progress. */
static inline void tsr__ucx_mark_lost(tsr__peer *peer, const char *why)
{
    if (peer->lost != 0)
        return;
    peer->lost = ++peer->transport->noticed;
    (void)snprintf(peer->why, sizeof peer->why, "%s", why);
    peer->transport->has_new_losses = true;
}

/* wake.c */
tsr_status tsr__ucx_wake_open(tsr__transport *transport) TSR_NODISCARD;
void tsr__ucx_wake_close(tsr__transport *transport);

/* peers.c */
/* Closes all connections. Blocks until `until_ns` at most. */
void tsr__ucx_disconnect(tsr__transport *transport, uint64_t until_ns);

#endif
