#include "comm/bootstrap/channel.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "comm/bootstrap/bootstrap.h"

void tsr__channel_init(tsr__channel *channel, int fd, const char *peer, bool listening)
{
    memset(channel, 0, sizeof *channel);
    channel->fd = fd;
    channel->in = listening ? "rank" : "zero";
    channel->out = listening ? "zero" : "rank";
    snprintf(channel->peer, sizeof channel->peer, "%s", peer);
}

void tsr__channel_finish(tsr__channel *channel)
{
    if (channel->fd >= 0)
        close(channel->fd);
    tsr__free(channel->body);
    sodium_memzero(channel, sizeof *channel);
    channel->fd = -1;
}

void tsr__channel_start_sealing(tsr__channel *channel, const void *token, size_t token_size,
                                const tsr__wire_handshake *handshake)
{
    tsr__wire_prove("key", token, token_size, handshake, channel->key);
    channel->sealed = true;
}

/* Returns whether the size of the message is allowed for its type. */
static bool is_valid_size(const tsr__channel *channel)
{
    uint64_t low = 0, high = 0;
    switch (channel->type) {
    case TSR__WIRE_HELLO:
        low = high = TSR__WIRE_HELLO_SIZE;
        break;
    case TSR__WIRE_CHALLENGE:
        low = high = TSR__WIRE_NONCE;
        break;
    case TSR__WIRE_PROOF:
        low = high = TSR__WIRE_PROOF_SIZE;
        break;
    case TSR__WIRE_WELCOME:
        low = high = TSR__WIRE_MAC;
        break;
    case TSR__WIRE_REFUSED:
        low = high = 1;
        break;
    case TSR__WIRE_CONTRIBUTION:
        low = TSR__WIRE_SEAL;
        high = TSR__WIRE_SEAL + TSR__BOOTSTRAP_MAX_BYTES;
        break;
    case TSR__WIRE_GATHERED:
        low = TSR__WIRE_SEAL;
        high = TSR__WIRE_SEAL + channel->max_gathered;
        break;
    case TSR__WIRE_ABORT:
        low = TSR__WIRE_SEAL + 4;
        high = TSR__WIRE_SEAL + 4 + TSR__WIRE_MAX_TEXT;
        break;
    case TSR__WIRE_MEMBER:
        low = high = TSR__WIRE_MAC;
        break;
    case TSR__WIRE_NOTE:
        low = TSR__WIRE_SEAL;
        high = TSR__WIRE_SEAL + TSR__WIRE_MAX_NOTE;
        break;
    case TSR__WIRE_LEFT_OUT:
        low = high = TSR__WIRE_LEFT_OUT_SIZE;
        break;
    }
    return low <= channel->size && channel->size <= high;
}

static tsr__channel_event start_body(tsr__channel *channel, const char **why)
{
    *why = tsr__wire_read_header(channel->header, &channel->type, &channel->size);
    if (*why != NULL)
        return TSR__CHANNEL_BAD;
    if (!(channel->wanted >> channel->type & 1u)) {
        *why = "it sent a message of an unexpected type";
        return TSR__CHANNEL_BAD;
    }
    if (!is_valid_size(channel)) {
        *why = "its message has an impossible size";
        return TSR__CHANNEL_BAD;
    }
    channel->body = tsr__calloc((size_t)channel->size, 1);
    return channel->body == NULL ? TSR__CHANNEL_NO_MEMORY : TSR__CHANNEL_MORE;
}

/* True if the message that has arrived is sealed. LEFT_OUT never is, because the side that sends it
 * need not know yet that the other one has begun to seal. */
static bool is_sealed(const tsr__channel *channel)
{
    return channel->sealed && channel->type != TSR__WIRE_LEFT_OUT;
}

static tsr__channel_event check_seal(tsr__channel *channel, const char **why)
{
    channel->complete = true;
    if (!is_sealed(channel))
        return TSR__CHANNEL_DONE;
    size_t payload = (size_t)channel->size - TSR__WIRE_SEAL;
    uint8_t mac[TSR__WIRE_MAC];
    tsr__wire_seal(channel->in, channel->key, channel->header, channel->number_in,
                   channel->body + 8, payload, mac);
    if (tsr__wire_get_u64(channel->body) != channel->number_in ||
        sodium_memcmp(mac, channel->body + 8 + payload, sizeof mac) != 0) {
        *why = "its message failed authentication";
        return TSR__CHANNEL_BAD;
    }
    channel->number_in++;
    return TSR__CHANNEL_DONE;
}

tsr__channel_event tsr__channel_read(tsr__channel *channel, const char **why)
{
    for (;;) {
        uint8_t beyond, *to = &beyond;
        size_t room = 1;
        if (!channel->complete && channel->got < TSR__WIRE_HEADER) {
            to = channel->header + channel->got;
            room = (size_t)(TSR__WIRE_HEADER - channel->got);
        } else if (!channel->complete) {
            to = channel->body + (channel->got - TSR__WIRE_HEADER);
            room = (size_t)(channel->size - (channel->got - TSR__WIRE_HEADER));
        }
        ssize_t count = recv(channel->fd, to, room, 0);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return TSR__CHANNEL_MORE;
        if (count <= 0) {
            /* If the peer closes a connection with unread data, this side sees a reset. */
            *why = count == 0 || errno == ECONNRESET ? "it closed the connection"
                                                     : "the connection broke";
            return TSR__CHANNEL_CLOSED;
        }
        if (channel->complete) {
            *why = "it sent a message too early";
            return TSR__CHANNEL_BAD;
        }
        channel->got += (uint64_t)count;
        if (channel->got == TSR__WIRE_HEADER && channel->body == NULL) {
            tsr__channel_event event = start_body(channel, why);
            if (event != TSR__CHANNEL_MORE)
                return event;
        }
        if (channel->got >= TSR__WIRE_HEADER && channel->got == TSR__WIRE_HEADER + channel->size)
            return check_seal(channel, why);
    }
}

const uint8_t *tsr__channel_payload(const tsr__channel *channel, uint64_t *size)
{
    *size = channel->size - (is_sealed(channel) ? TSR__WIRE_SEAL : 0);
    return channel->body + (is_sealed(channel) ? 8 : 0);
}

void tsr__channel_take(tsr__channel *channel, unsigned wanted_next)
{
    tsr__free(channel->body);
    channel->body = NULL;
    channel->got = channel->size = 0;
    channel->complete = false;
    channel->wanted = wanted_next;
}

void tsr__channel_put(tsr__channel *channel, tsr__wire_type type, const void *payload, size_t size)
{
    tsr__wire_header(type, size + (channel->sealed ? TSR__WIRE_SEAL : 0), channel->head);
    channel->head_size = TSR__WIRE_HEADER;
    channel->tail_size = 0;
    channel->payload = payload;
    channel->payload_size = size;
    if (channel->sealed) {
        tsr__wire_put_u64(channel->head + TSR__WIRE_HEADER, channel->number_out);
        channel->head_size += 8;
        tsr__wire_seal(channel->out, channel->key, channel->head, channel->number_out++, payload,
                       size, channel->tail);
        channel->tail_size = sizeof channel->tail;
    } else {
        memcpy(channel->small, payload, size);
        channel->payload = channel->small;
    }
    channel->sent = 0;
    channel->sending = true;
}

/* A message is sent as three consecutive sections: head, payload and MAC. Returns the bytes of one
 * section that are still to be sent. *skip is how many bytes have been sent from the start of this
 * section on; those that belong to this section are subtracted from it. */
static struct iovec unsent_section(const uint8_t *section, size_t size, uint64_t *skip)
{
    size_t over = *skip < size ? (size_t)*skip : size;
    *skip -= over;
    struct iovec out = {.iov_len = size - over};
    const uint8_t *from = size > over ? section + over : NULL;
    /* iov_base is not const, but sendmsg does not write to it */
    memcpy(&out.iov_base, &from, sizeof from);
    return out;
}

tsr__channel_event tsr__channel_write(tsr__channel *channel)
{
    while (channel->sending) {
        uint64_t skip = channel->sent;
        struct iovec sections[3];
        sections[0] = unsent_section(channel->head, channel->head_size, &skip);
        sections[1] = unsent_section(channel->payload, channel->payload_size, &skip);
        sections[2] = unsent_section(channel->tail, channel->tail_size, &skip);
        struct msghdr message = {.msg_iov = sections, .msg_iovlen = 3};
        ssize_t count = sendmsg(channel->fd, &message, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return TSR__CHANNEL_MORE;
        if (count < 0)
            return TSR__CHANNEL_CLOSED;
        channel->sent += (uint64_t)count;
        channel->sending = channel->sent < (uint64_t)channel->head_size + channel->payload_size +
                                               channel->tail_size;
    }
    return TSR__CHANNEL_DONE;
}
