#include "comm/recovery/recovery_link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

/* the message that may arrive instead of each message of the handshake */
#define BEFORE_OPEN (1u << TSR__WIRE_LEFT_OUT)
#define NOTES (1u << TSR__WIRE_NOTE | 1u << TSR__WIRE_LEFT_OUT)

void tsr__link_close(tsr__link *link)
{
    if (link->state != TSR__LINK_NONE)
        tsr__channel_finish(&link->channel);
    tsr__free(link->note);
    link->note = NULL;
    link->state = TSR__LINK_NONE;
}

static socklen_t card_address(const tsr__card *card, unsigned attempt, struct sockaddr_storage *out)
{
    const unsigned chosen = attempt % card->address_count;
    memset(out, 0, sizeof *out);
    if (card->addresses[chosen].family == 4) {
        struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)card->port)};
        memcpy(&v4.sin_addr, card->addresses[chosen].bytes, sizeof v4.sin_addr);
        memcpy(out, &v4, sizeof v4);
        return sizeof v4;
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)card->port)};
    memcpy(&v6.sin6_addr, card->addresses[chosen].bytes, sizeof v6.sin6_addr);
    memcpy(out, &v6, sizeof v6);
    return sizeof v6;
}

/* Returns whether an error of connect() means that the network does not lead to the other host. If
 * the other process has ended, connect() fails with other errors. */
static bool is_network_error(int error)
{
    return error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN ||
           error == ETIMEDOUT || error == EINVAL || error == EACCES || error == EPERM ||
           error == EADDRNOTAVAIL;
}

void tsr__link_connect(tsr__link *link, const tsr__card *to, unsigned attempt, bool greets,
                       uint64_t own_uid, const uint8_t *key)
{
    struct sockaddr_storage address;
    memset(link, 0, sizeof *link);
    link->is_outgoing = true;
    link->greets = greets;
    link->connector_uid = own_uid;
    link->key = key;
    link->since_ns = tsr__now_ns();
    if (to->port == 0 || to->address_count == 0 || to->address_count > TSR__CARD_ADDRESSES)
        return;
    const socklen_t size = card_address(to, attempt, &address);
    const int fd = socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    const int error = connect(fd, (const struct sockaddr *)&address, size) != 0 ? errno : 0;
    link->is_refused = error == ECONNREFUSED;
    if (error != 0 && error != EINPROGRESS && error != EINTR && !link->is_refused) {
        link->is_unreachable = is_network_error(error);
        close(fd);
        return;
    }
    tsr__channel_init(&link->channel, fd, "a rank", false);
    link->state = TSR__LINK_CONNECTING;
}

void tsr__link_accept(tsr__link *link, int fd, const uint8_t *key)
{
    memset(link, 0, sizeof *link);
    link->key = key;
    link->since_ns = tsr__now_ns();
    link->state = TSR__LINK_GREETING;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    tsr__channel_init(&link->channel, fd, "a rank", true);
    link->channel.wanted = 1u << TSR__WIRE_HELLO | BEFORE_OPEN;
}

void tsr__link_greet(tsr__link *link, uint64_t own_uid)
{
    uint8_t hello[TSR__WIRE_HELLO_SIZE];
    link->greets = true;
    if (link->state != TSR__LINK_WATCHING)
        return; /* the link sends HELLO once it is connected */
    link->connector_uid = own_uid;
    link->handshake.rank = (uint32_t)own_uid;
    link->handshake.size = (uint32_t)(own_uid >> 32);
    randombytes_buf(link->handshake.rank_nonce, TSR__WIRE_NONCE);
    tsr__wire_put_u64(hello, own_uid);
    memcpy(hello + 8, link->handshake.rank_nonce, TSR__WIRE_NONCE);
    link->channel.wanted = 1u << TSR__WIRE_CHALLENGE;
    tsr__channel_put(&link->channel, TSR__WIRE_HELLO, hello, sizeof hello);
    link->state = TSR__LINK_GREETING;
}

/* Closes the link, and returns the event. */
static tsr__link_event close_with(tsr__link *link, tsr__link_event event)
{
    tsr__link_close(link);
    return event;
}

/* Returns TSR__LINK_NOTHING if the connection is not established yet, and TSR__LINK_OPENED if it
 * is. */
static tsr__link_event finish_connecting(tsr__link *link)
{
    struct pollfd connecting = {.fd = link->channel.fd, .events = POLLOUT};
    int reason = 0;
    socklen_t size = sizeof reason;
    if (link->is_refused)
        return close_with(link, TSR__LINK_REFUSED);
    if (poll(&connecting, 1, 0) <= 0)
        return TSR__LINK_NOTHING;
    if (getsockopt(link->channel.fd, SOL_SOCKET, SO_ERROR, &reason, &size) != 0)
        reason = errno;
    link->is_unreachable = is_network_error(reason);
    if (reason != 0)
        return close_with(link, reason == ECONNREFUSED ? TSR__LINK_REFUSED : TSR__LINK_LOST);
    link->state = TSR__LINK_WATCHING;
    if (link->greets)
        tsr__link_greet(link, link->connector_uid);
    return TSR__LINK_OPENED;
}

static void open_link(tsr__link *link)
{
    tsr__channel_start_sealing(&link->channel, link->key, TSR__WIRE_MAC, &link->handshake);
    tsr__channel_take(&link->channel, NOTES);
    link->state = TSR__LINK_OPEN;
}

static bool is_proved(const tsr__link *link, const char *purpose)
{
    uint8_t mac[TSR__WIRE_MAC];
    uint64_t size;
    tsr__wire_prove(purpose, link->key, TSR__WIRE_MAC, &link->handshake, mac);
    return sodium_memcmp(mac, tsr__channel_payload(&link->channel, &size), sizeof mac) == 0;
}

/* Handles a message of the handshake from the process that has accepted the connection. */
static tsr__link_event handle_acceptor_message(tsr__link *link)
{
    uint8_t mac[TSR__WIRE_MAC];
    uint64_t size;
    tsr__channel *channel = &link->channel;
    if (channel->type == TSR__WIRE_CHALLENGE) {
        memcpy(link->handshake.zero_nonce, tsr__channel_payload(channel, &size), TSR__WIRE_NONCE);
        tsr__wire_prove("rank", link->key, TSR__WIRE_MAC, &link->handshake, mac);
        tsr__channel_take(channel, 1u << TSR__WIRE_WELCOME);
        /* an answer has arrived although HELLO is not completely sent, so the other process breaks
         * the protocol */
        if (channel->sending)
            return close_with(link, TSR__LINK_LOST);
        tsr__channel_put(channel, TSR__WIRE_MEMBER, mac, sizeof mac);
        return TSR__LINK_NOTHING;
    }
    if (!is_proved(link, "zero"))
        return close_with(link, TSR__LINK_LOST);
    open_link(link);
    return TSR__LINK_OPENED;
}

/* Handles a message of the handshake from the process that has connected. */
static tsr__link_event handle_connector_message(tsr__link *link)
{
    uint8_t mac[TSR__WIRE_MAC];
    uint64_t size;
    tsr__channel *channel = &link->channel;
    if (channel->sending)
        return close_with(link, TSR__LINK_LOST);
    if (channel->type == TSR__WIRE_HELLO) {
        const uint8_t *hello = tsr__channel_payload(channel, &size);
        link->connector_uid = tsr__wire_get_u64(hello);
        link->handshake.rank = tsr__wire_get_u32(hello);
        link->handshake.size = tsr__wire_get_u32(hello + 4);
        memcpy(link->handshake.rank_nonce, hello + 8, TSR__WIRE_NONCE);
        tsr__channel_take(channel, 1u << TSR__WIRE_MEMBER | BEFORE_OPEN);
        randombytes_buf(link->handshake.zero_nonce, TSR__WIRE_NONCE);
        tsr__channel_put(channel, TSR__WIRE_CHALLENGE, link->handshake.zero_nonce, TSR__WIRE_NONCE);
        return TSR__LINK_NOTHING;
    }
    if (!is_proved(link, "rank"))
        return close_with(link, TSR__LINK_LOST);
    tsr__wire_prove("zero", link->key, TSR__WIRE_MAC, &link->handshake, mac);
    tsr__channel_put(channel, TSR__WIRE_WELCOME, mac, sizeof mac);
    open_link(link);
    return TSR__LINK_OPENED;
}

static tsr__link_event handle_left_out(tsr__link *link, tsr__left_out *out)
{
    uint8_t mac[TSR__WIRE_MAC];
    uint64_t size;
    const uint8_t *bytes = tsr__channel_payload(&link->channel, &size);
    *out = (tsr__left_out){.lineage = tsr__wire_get_u64(bytes),
                           .generation = tsr__wire_get_u32(bytes + 8),
                           .uid = tsr__wire_get_u64(bytes + 12)};
    tsr__wire_seal_left_out(link->key, bytes, mac);
    const bool valid = sodium_memcmp(mac, bytes + 20, sizeof mac) == 0;
    return close_with(link, valid ? TSR__LINK_LEFT_OUT : TSR__LINK_LOST);
}

static tsr__link_event handle_message(tsr__link *link, tsr__left_out *left_out)
{
    if (link->channel.type == TSR__WIRE_LEFT_OUT)
        return handle_left_out(link, left_out);
    if (link->state == TSR__LINK_OPEN)
        return TSR__LINK_NOTE;
    return link->is_outgoing ? handle_acceptor_message(link) : handle_connector_message(link);
}

tsr__link_event tsr__link_advance(tsr__link *link, tsr__left_out *left_out)
{
    const char *why;
    if (link->state == TSR__LINK_NONE)
        return TSR__LINK_NOTHING;
    if (link->state == TSR__LINK_CONNECTING)
        return finish_connecting(link);
    for (;;) {
        if (tsr__channel_write(&link->channel) == TSR__CHANNEL_CLOSED && link->is_outgoing)
            return close_with(link, TSR__LINK_LOST);
        if (!link->channel.sending) {
            tsr__free(link->note);
            link->note = NULL;
        }
        switch (tsr__channel_read(&link->channel, &why)) {
        case TSR__CHANNEL_MORE:
            return TSR__LINK_NOTHING;
        case TSR__CHANNEL_DONE: {
            const tsr__link_event event = handle_message(link, left_out);
            if (event != TSR__LINK_NOTHING || link->state == TSR__LINK_NONE)
                return event;
            break;
        }
        case TSR__CHANNEL_NO_MEMORY:
            return TSR__LINK_NO_MEMORY;
        case TSR__CHANNEL_CLOSED:
        case TSR__CHANNEL_BAD:
            return close_with(link, TSR__LINK_LOST);
        }
    }
}

short tsr__link_events(const tsr__link *link)
{
    if (link->state == TSR__LINK_CONNECTING)
        return POLLOUT;
    return (short)(POLLIN | (link->channel.sending ? POLLOUT : 0));
}

const uint8_t *tsr__link_note(const tsr__link *link, uint64_t *size)
{
    return tsr__channel_payload(&link->channel, size);
}

void tsr__link_next(tsr__link *link)
{
    tsr__channel_take(&link->channel, NOTES);
}

void tsr__link_send(tsr__link *link, uint8_t *note, size_t size)
{
    tsr__free(link->note);
    link->note = note;
    tsr__channel_put(&link->channel, TSR__WIRE_NOTE, note, size);
    (void)tsr__channel_write(&link->channel);
}

void tsr__link_leave_out(tsr__link *link, const tsr__left_out *left_out)
{
    uint8_t bytes[TSR__WIRE_LEFT_OUT_SIZE];
    const bool is_connected = link->state == TSR__LINK_WATCHING ||
                              link->state == TSR__LINK_GREETING || link->state == TSR__LINK_OPEN;
    tsr__wire_put_u64(bytes, left_out->lineage);
    tsr__wire_put_u32(bytes + 8, left_out->generation);
    tsr__wire_put_u64(bytes + 12, left_out->uid);
    tsr__wire_seal_left_out(link->key, bytes, bytes + 20);
    if (is_connected && link->is_outgoing && !link->channel.sending) {
        link->channel.sealed = false; /* this is the channel's last message */
        tsr__channel_put(&link->channel, TSR__WIRE_LEFT_OUT, bytes, sizeof bytes);
        (void)tsr__channel_write(&link->channel);
    }
    tsr__link_close(link);
}
