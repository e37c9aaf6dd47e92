/* What the files of this folder share. */
#ifndef TSR_COMM_UCX_STATE_H
#define TSR_COMM_UCX_STATE_H

#include "comm/ucx/library.h"
#include "comm/ucx/transport.h"

typedef struct tsr__peer {
    tsr__transport *transport;
    ucp_ep_h endpoint; /* NULL: self, or closed */
    void *closing;     /* the request of its closing, or NULL */
    int process;       /* a pidfd, or −1 */
    bool ended;        /* that process */
    unsigned lost;     /* its number among those that were lost, from 1; 0: it is not */
    bool counted;      /* in `losses`, its endpoint closed */
    char why[96];
} tsr__peer;

struct tsr__transport {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    tsr__peer *peers;
    int self, size;
    int wake;    /* an epoll of the worker's event fd and all pidfds */
    bool doubts; /* some peer is lost and not counted yet */
    unsigned noticed, losses;
};

/* UCX prints by itself; what it says goes to the library's log, unless UCX_LOG_LEVEL is set. */
void tsr__ucx_log_redirect(void);

/* wake.c */
tsr_status tsr__ucx_wake_open(tsr__transport *transport) TSR_NODISCARD;
void tsr__ucx_wake_close(tsr__transport *transport);

/* Notes a loss; the first reason stays. Safe in UCX's callbacks. */
void tsr__ucx_mark_lost(tsr__peer *peer, const char *why);

#endif
