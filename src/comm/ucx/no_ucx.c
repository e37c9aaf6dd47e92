/* The transport of a build without UCX (-Ducx=disabled). Creating one fails, so the other functions
 * are never called. */
#include "base/error.h"
#include "comm/ucx/transport.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

tsr_status tsr__transport_create(bool without_shared_memory, tsr__transport **out)
{
    return tsr__fail(TSR_ERR_UNSUPPORTED, "this build of tessera has no UCX");
}

bool tsr__transport_has_shared_memory(void)
{
    return false;
}

const void *tsr__transport_address(const tsr__transport *transport, size_t *size_bytes)
{
    *size_bytes = 0;
    return NULL;
}

tsr_status tsr__transport_set_peers(tsr__transport *transport, int self, int size,
                                    const tsr__transport_peer *peers)
{
    return TSR_ERR_UNSUPPORTED;
}

tsr_status tsr__transport_connect(tsr__transport *transport, int peer)
{
    return TSR_ERR_UNSUPPORTED;
}

bool tsr__transport_is_connected(const tsr__transport *transport, int peer)
{
    return false;
}

bool tsr__transport_watch(tsr__transport *transport, int peer, int64_t pid)
{
    return false;
}

tsr_status tsr__transport_watch_file(tsr__transport *transport, int file)
{
    return TSR_ERR_UNSUPPORTED;
}

bool tsr__transport_take_readable(tsr__transport *transport)
{
    return false;
}

void tsr__transport_send(tsr__transport *transport, int peer, uint64_t tag, const void *data,
                         uint64_t size_bytes, tsr__message *message)
{
    message->state = TSR__MESSAGE_LOST;
}

void tsr__transport_recv(tsr__transport *transport, int peer, uint64_t tag, uint64_t mask,
                         void *data, uint64_t size_bytes, tsr__message *message)
{
    message->state = TSR__MESSAGE_LOST;
}

void tsr__transport_cancel(tsr__transport *transport, tsr__message *message)
{
}

void tsr__transport_discard(tsr__transport *transport, uint64_t tag, uint64_t mask)
{
}

bool tsr__transport_progress(tsr__transport *transport)
{
    return false;
}

void tsr__transport_sleep(tsr__transport *transport, uint64_t until_ns)
{
}

void tsr__transport_poll_processes(tsr__transport *transport)
{
}

bool tsr__transport_has_ended(const tsr__transport *transport, int peer)
{
    return false;
}

bool tsr__transport_is_stopped(const tsr__transport *transport, int peer)
{
    return false;
}

unsigned tsr__transport_lost_count(const tsr__transport *transport)
{
    return 0;
}

bool tsr__transport_is_lost(const tsr__transport *transport, int peer)
{
    return false;
}

unsigned tsr__transport_loss_order(const tsr__transport *transport, int peer)
{
    return 0;
}

const char *tsr__transport_loss_reason(const tsr__transport *transport, int peer)
{
    return "";
}

bool tsr__transport_is_stuck(tsr__transport *transport)
{
    return false;
}

void tsr__transport_deafen(tsr__transport *transport)
{
}

void tsr__transport_close_peer(tsr__transport *transport, int peer, const char *why)
{
}

void tsr__transport_destroy(tsr__transport **transport, uint64_t until_ns)
{
    if (transport)
        *transport = NULL;
}
