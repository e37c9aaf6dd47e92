/* Context, worker, connecting and ending. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/ucx/state.h"

static tsr_status check(ucs_status_t status, const char *what)
{
    if (status == UCS_OK)
        return TSR_OK;
    return tsr__fail(status == UCS_ERR_NO_MEMORY ? TSR_ERR_NO_MEMORY : TSR_ERR_IO,
                     "comm: %s: UCX says: %s", what, ucs_status_string(status));
}

/* A setting that has to be there before UCX reads its configuration, and again when it opens its
 * transports: it stays. The user's own choice comes first.
 *
 * Not UCX_CMA_MEMORY_INVALIDATE, with which receivers would read the memory of senders, also of
 * those that have given up and use it for something else. */
static void set_environment(void)
{
    (void)setenv("UCX_MM_ERROR_HANDLING", "y", 0);
}

static tsr_status open_context(tsr__transport *transport)
{
    ucp_config_t *config = NULL;
    set_environment();
    TSR__TRY(check(ucp_config_read(NULL, NULL, &config), "ucp_config_read"));
    /* 20 s by default. */
    if (!getenv("UCX_KEEPALIVE_INTERVAL"))
        (void)ucp_config_modify(config, "KEEPALIVE_INTERVAL", "1s");
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    ucs_status_t status = ucp_init(&params, config, &transport->context);
    ucp_config_release(config);
    return check(status, "ucp_init");
}

/* Context and worker. */
static tsr_status open_worker(tsr__transport *transport)
{
    TSR__TRY(tsr__ucx_library_open());
    tsr__ucx_log_redirect();
    TSR__TRY(open_context(transport));
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    TSR__TRY(check(ucp_worker_create(transport->context, &params, &transport->worker),
                   "ucp_worker_create"));
    return check(
        ucp_worker_get_address(transport->worker, &transport->address, &transport->address_bytes),
        "ucp_worker_get_address");
}

static void close_worker(tsr__transport *transport)
{
    if (transport->address)
        ucp_worker_release_address(transport->worker, transport->address);
    if (transport->worker)
        ucp_worker_destroy(transport->worker);
    if (transport->context)
        ucp_cleanup(transport->context);
}

tsr_status tsr__transport_create(tsr__transport **out)
{
    tsr__transport *transport = tsr__calloc(1, sizeof *transport);
    if (!transport)
        return TSR_ERR_NO_MEMORY;
    transport->wake = -1;
    tsr_status status = open_worker(transport);
    if (status == TSR_OK)
        status = tsr__ucx_wake_open(transport);
    if (status != TSR_OK) {
        tsr__transport_destroy(&transport, 0);
        return status;
    }
    *out = transport;
    return TSR_OK;
}

const void *tsr__transport_address(const tsr__transport *transport, size_t *size_bytes)
{
    *size_bytes = transport->address_bytes;
    return transport->address;
}

static void on_error(void *argument, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    tsr__ucx_mark_lost(argument, ucs_status_string(status));
}

tsr_status tsr__transport_connect(tsr__transport *transport, int self, int size,
                                  const void *const *addresses)
{
    transport->peers = tsr__calloc((size_t)size, sizeof *transport->peers);
    if (!transport->peers)
        return TSR_ERR_NO_MEMORY;
    transport->size = size;
    transport->self = self;
    for (int i = 0; i < size; i++)
        transport->peers[i] = (tsr__peer){.transport = transport, .process = -1};
    for (int i = 0; i < size; i++) {
        if (i == self)
            continue;
        tsr__peer *peer = &transport->peers[i];
        const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                        .address = addresses[i],
                                        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                        .err_handler = {.cb = on_error, .arg = peer}};
        char what[64];
        (void)snprintf(what, sizeof what, "connecting to rank %d", i);
        TSR__TRY(check(ucp_ep_create(transport->worker, &params, &peer->endpoint), what));
    }
    return TSR_OK;
}

/* Whether a request has ended; frees it then. */
static bool is_over(void **request)
{
    if (*request && ucp_request_check_status(*request) != UCS_INPROGRESS) {
        ucp_request_free(*request);
        *request = NULL;
    }
    return *request == NULL;
}

static void *close_endpoint(tsr__peer *peer, uint32_t flags)
{
    const ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = flags};
    ucs_status_ptr_t request = ucp_ep_close_nbx(peer->endpoint, &params);
    peer->endpoint = NULL;
    return UCS_PTR_IS_PTR(request) ? request : NULL;
}

/* In a callback of UCX only noted; the endpoint is closed at the next progress. */
void tsr__ucx_mark_lost(tsr__peer *peer, const char *why)
{
    if (peer->lost != 0)
        return;
    peer->lost = ++peer->transport->noticed;
    (void)snprintf(peer->why, sizeof peer->why, "%s", why);
    peer->transport->doubts = true;
}

/* Endpoints of lost peers: closing them by force makes what flies to them land. */
static void count_losses(tsr__transport *transport)
{
    transport->doubts = false;
    for (int i = 0; i < transport->size; i++) {
        tsr__peer *peer = &transport->peers[i];
        if (peer->lost == 0 || peer->counted)
            continue;
        peer->counted = true;
        transport->losses++;
        if (peer->endpoint)
            peer->closing = close_endpoint(peer, UCP_EP_CLOSE_FLAG_FORCE);
    }
}

bool tsr__transport_progress(tsr__transport *transport)
{
    bool moved = ucp_worker_progress(transport->worker) != 0;
    if (transport->doubts) {
        /* What a lost peer sent before is taken in first. */
        for (int i = 0; i < 1000 && ucp_worker_progress(transport->worker) != 0; i++)
            ;
        count_losses(transport);
        moved = true;
    }
    return moved;
}

unsigned tsr__transport_lost_count(const tsr__transport *transport)
{
    return transport->losses;
}

bool tsr__transport_is_lost(const tsr__transport *transport, int peer)
{
    return transport->peers[peer].counted;
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
    count_losses(transport);
}

static bool all_closed(tsr__transport *transport)
{
    bool closed = true;
    for (int i = 0; i < transport->size; i++)
        closed = is_over(&transport->peers[i].closing) && closed;
    return closed;
}

/* Politely, which delivers what is on its way; whoever does not answer in time, by force. */
static void disconnect(tsr__transport *transport, uint64_t until_ns)
{
    for (int i = 0; i < transport->size; i++) {
        tsr__peer *peer = &transport->peers[i];
        if (peer->endpoint)
            peer->closing =
                close_endpoint(peer, tsr__now_ns() < until_ns ? 0 : UCP_EP_CLOSE_FLAG_FORCE);
    }
    while (!all_closed(transport) && tsr__now_ns() < until_ns) {
        if (ucp_worker_progress(transport->worker) == 0)
            tsr__transport_sleep(transport, tsr__now_ns() + 1000000);
    }
    /* Destroying the worker takes the rest with it. */
    for (int i = 0; i < transport->size; i++) {
        if (transport->peers[i].closing)
            ucp_request_free(transport->peers[i].closing);
    }
}

void tsr__transport_destroy(tsr__transport **transport, uint64_t until_ns)
{
    if (!transport || !*transport)
        return;
    tsr__transport *t = *transport;
    if (t->peers)
        disconnect(t, until_ns);
    tsr__ucx_wake_close(t);
    close_worker(t);
    tsr__free(t->peers);
    tsr__free(t);
    *transport = NULL;
}
