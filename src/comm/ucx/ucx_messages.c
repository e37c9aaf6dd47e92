/* Sends and receives messages. */
#include "comm/ucx/ucx_state.h"

static void set_state(tsr__message *message, ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        message->state = TSR__MESSAGE_DONE;
        break;
    case UCS_ERR_MESSAGE_TRUNCATED:
        message->state = TSR__MESSAGE_TOO_LONG;
        break;
    case UCS_ERR_CANCELED:
        message->state = TSR__MESSAGE_CANCELLED;
        break;
    default:
        message->state = TSR__MESSAGE_LOST;
    }
}

static void set_received(tsr__message *message, const ucp_tag_recv_info_t *info)
{
    message->tag = info->sender_tag;
    message->size_bytes = info->length;
}

static void on_sent(void *request, ucs_status_t status, void *user)
{
    tsr__message *message = user;
    ucp_request_free(request);
    message->handle = NULL;
    set_state(message, status);
    if (message->on_complete)
        message->on_complete(message);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *user)
{
    tsr__message *message = user;
    set_state(message, status);
    if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED)
        set_received(message, info);
    ucp_request_free(request); /* this also frees `info`, which is part of the request */
    message->handle = NULL;
    if (message->on_complete)
        message->on_complete(message);
}

void tsr__transport_send(tsr__transport *transport, int peer, uint64_t tag, const void *data,
                         uint64_t size_bytes, tsr__message *message)
{
    const ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb = {.send = on_sent},
        .user_data = message,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    message->peer = peer;
    message->handle = NULL;
    if (!tsr__ucx_reach(&transport->peers[peer])) {
        message->state = TSR__MESSAGE_LOST;
        return;
    }
    ucs_status_ptr_t request =
        ucp_tag_send_nbx(transport->peers[peer].endpoint, data, (size_t)size_bytes, tag, &params);
    if (UCS_PTR_IS_PTR(request)) {
        message->handle = request;
        message->state = TSR__MESSAGE_IN_FLIGHT;
    } else {
        set_state(message, UCS_PTR_STATUS(request));
    }
}

/* A receive completes inside this call if its message has already arrived.
 * UCX_OP_ATTR_FLAG_NO_IMM_CMPL makes UCX call the callback even then, because only the callback
 * gets the tag and the size from UCX 1.13. */
void tsr__transport_recv(tsr__transport *transport, int peer, uint64_t tag, uint64_t mask,
                         void *data, uint64_t size_bytes, tsr__message *message)
{
    const ucp_request_param_t params = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
        .cb = {.recv = on_received},
        .user_data = message,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    void (*on_complete)(tsr__message *) = message->on_complete;
    message->peer = peer;
    message->handle = NULL;
    message->on_complete = NULL;
    message->state = TSR__MESSAGE_IN_FLIGHT;
    if (transport->peers[peer].process < 0)
        (void)tsr__ucx_reach(&transport->peers[peer]);
    ucs_status_ptr_t request =
        ucp_tag_recv_nbx(transport->worker, data, (size_t)size_bytes, tag, mask, &params);
    message->on_complete = on_complete;
    if (message->state != TSR__MESSAGE_IN_FLIGHT)
        return;
    if (UCS_PTR_IS_PTR(request))
        message->handle = request;
    else
        set_state(message, UCS_PTR_STATUS(request));
}

void tsr__transport_cancel(tsr__transport *transport, tsr__message *message)
{
    if (message->state == TSR__MESSAGE_IN_FLIGHT && message->handle)
        ucp_request_cancel(transport->worker, message->handle);
}

void tsr__transport_discard(tsr__transport *transport, uint64_t tag, uint64_t mask)
{
    const ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE,
                                        .memory_type = UCS_MEMORY_TYPE_HOST};
    ucp_tag_recv_info_t info;
    ucp_tag_message_h message;
    while ((message = ucp_tag_probe_nb(transport->worker, tag, mask, 1, &info)) != NULL) {
        /* Receive the message into a buffer of 0 bytes, which discards its data. */
        ucs_status_ptr_t request =
            ucp_tag_msg_recv_nbx(transport->worker, NULL, 0, message, &params);
        if (UCS_PTR_IS_PTR(request))
            ucp_request_free(request);
    }
}
