/* Peers: connecting to them, losing them, and closing the connections. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/ucx/ucx_errors.h"
#include "comm/ucx/ucx_state.h"

/* The longest sleep while connections are being closed. UCX signals no event when the request that
 * closes a connection completes, so this process must check again and again. */
#define CLOSING_SLEEP_NS 1000000

static void on_error(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    char text[400];
    (void)endpoint;
    tsr__ucx_mark_lost(argument, tsr__ucx_describe(status, text, sizeof text));
}

/* Copies the peers' addresses into one allocation, each at a multiple of 8 bytes. */
static tsr_status copy_addresses(tsr__transport *transport, const tsr__transport_peer *peers)
{
    size_t bytes = 0;
    for (int i = 0; i < transport->size; i++)
        bytes += tsr__align_up_u64(peers[i].bytes, 8);
    transport->addresses = tsr__calloc(bytes + 1, 1);
    if (!transport->addresses)
        return TSR_ERR_NO_MEMORY;
    bytes = 0;
    for (int i = 0; i < transport->size; i++) {
        transport->peers[i].address = transport->addresses + bytes;
        memcpy(transport->addresses + bytes, peers[i].address, peers[i].bytes);
        bytes += tsr__align_up_u64(peers[i].bytes, 8);
    }
    return TSR_OK;
}

tsr_status tsr__transport_set_peers(tsr__transport *transport, int self, int size,
                                    const tsr__transport_peer *peers)
{
    transport->peers = tsr__calloc((size_t)size, sizeof *transport->peers);
    if (!transport->peers)
        return TSR_ERR_NO_MEMORY;
    transport->size = size;
    transport->self = self;
    for (int i = 0; i < size; i++)
        transport->peers[i] = (tsr__peer){.transport = transport, .process = -1};
    return copy_addresses(transport, peers);
}

static ucs_status_t create_endpoint(tsr__peer *peer)
{
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                    .address = peer->address,
                                    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                    .err_handler = {.cb = on_error, .arg = peer}};
    return ucp_ep_create(peer->transport->worker, &params, &peer->endpoint);
}

tsr_status tsr__transport_connect(tsr__transport *transport, int peer)
{
    char what[64];
    tsr__peer *other = &transport->peers[peer];
    if (peer == transport->self || other->endpoint || other->lost != 0)
        return TSR_OK;
    (void)snprintf(what, sizeof what, "connecting to rank %d", peer);
    return tsr__ucx_check(create_endpoint(other), what);
}

bool tsr__transport_is_connected(const tsr__transport *transport, int peer)
{
    return transport->peers[peer].endpoint != NULL;
}

/* After a peer has closed a TCP connection through which this process only receives, UCX 1.13 frees
 * the connection in the next progress call. If an endpoint takes over the connection before that,
 * UCX aborts the process. This function makes the progress calls. */
static void progress_before_connecting(const tsr__transport *transport)
{
    for (int i = 0; i < 2 && !transport->is_deaf; i++)
        (void)ucp_worker_progress(transport->worker);
}

bool tsr__ucx_reach(tsr__peer *peer)
{
    char text[400], why[sizeof peer->why];
    tsr__transport *transport = peer->transport;
    if (peer->endpoint)
        return true;
    if (peer->lost != 0 || peer == &transport->peers[transport->self])
        return false;
    progress_before_connecting(transport);
    if (peer->lost != 0)
        return false;
    const ucs_status_t status = create_endpoint(peer);
    if (status == UCS_OK)
        return true;
    peer->endpoint = NULL;
    (void)snprintf(why, sizeof why, "it cannot be connected to: %.120s",
                   tsr__ucx_describe(status, text, sizeof text));
    tsr__ucx_mark_lost(peer, why);
    return false;
}

static void *close_endpoint(tsr__peer *peer, uint32_t flags)
{
    const ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    ucs_status_ptr_t request = ucp_ep_close_nbx(peer->endpoint, &params);
    peer->endpoint = NULL;
    return UCS_PTR_IS_PTR(request) ? request : NULL;
}

/* Closes the endpoints of lost peers by force, which completes the messages in flight to them. */
static void close_lost(tsr__transport *transport)
{
    transport->has_new_losses = false;
    for (int i = 0; i < transport->size; i++) {
        tsr__peer *peer = &transport->peers[i];
        if (peer->lost == 0 || peer->closed)
            continue;
        peer->closed = true;
        transport->lost_closed++;
        if (peer->endpoint)
            peer->closing = close_endpoint(peer, UCP_EP_CLOSE_FLAG_FORCE);
    }
}

bool tsr__transport_progress(tsr__transport *transport)
{
    bool moved = !transport->is_deaf && ucp_worker_progress(transport->worker) != 0;
    if (moved) {
        transport->stuck_since_ns = 0;
        transport->refusals = 0;
    }
    if (transport->has_new_losses) {
        /* First receive what a lost peer has sent before it was lost. */
        for (int i = 0; i < 1000 && ucp_worker_progress(transport->worker) != 0; i++)
            ;
        close_lost(transport);
        moved = true;
    }
    return moved;
}

unsigned tsr__transport_lost_count(const tsr__transport *transport)
{
    return transport->lost_closed;
}

bool tsr__transport_is_lost(const tsr__transport *transport, int peer)
{
    return transport->peers[peer].closed;
}

unsigned tsr__transport_loss_order(const tsr__transport *transport, int peer)
{
    return transport->peers[peer].lost;
}

const char *tsr__transport_loss_reason(const tsr__transport *transport, int peer)
{
    return transport->peers[peer].why;
}

void tsr__transport_close_peer(tsr__transport *transport, int peer, const char *why)
{
    tsr__ucx_mark_lost(&transport->peers[peer], why);
    close_lost(transport);
}

/* Returns whether a request has completed or is NULL. If it has completed, frees it and sets it to
 * NULL. */
static bool is_over(void **request)
{
    if (*request && ucp_request_check_status(*request) != UCS_INPROGRESS) {
        ucp_request_free(*request);
        *request = NULL;
    }
    return *request == NULL;
}

static bool all_closed(tsr__transport *transport)
{
    bool closed = true;
    for (int i = 0; i < transport->size; i++)
        closed = is_over(&transport->peers[i].closing) && closed;
    return closed;
}

/* Flushes the messages in flight and closes all connections. Waits for this until `until_ns`. If
 * `until_ns` has already passed at the call, closes the connections by force. */
void tsr__ucx_disconnect(tsr__transport *transport, uint64_t until_ns)
{
    for (int i = 0; i < transport->size; i++) {
        tsr__peer *peer = &transport->peers[i];
        if (peer->endpoint)
            peer->closing =
                close_endpoint(peer, tsr__now_ns() < until_ns ? 0 : UCP_EP_CLOSE_FLAG_FORCE);
    }
    while (!all_closed(transport) && tsr__now_ns() < until_ns) {
        if (ucp_worker_progress(transport->worker) != 0)
            transport->refusals = 0;
        else
            tsr__transport_sleep(transport, tsr__deadline_ns(CLOSING_SLEEP_NS));
    }
    /* Give up the requests that are still closing connections: destroying the worker completes
     * them. */
    for (int i = 0; i < transport->size; i++) {
        if (transport->peers[i].closing)
            ucp_request_free(transport->peers[i].closing);
    }
}
