#include "comm/bootstrap/connections.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"

/* Per step, so that a flood of connections does not keep the others waiting. */
#define ACCEPTED_AT_ONCE 32

void tsr__connection_close(tsr__connection **peer)
{
    if (*peer == NULL)
        return;
    tsr__channel_finish(&(*peer)->channel);
    tsr__free(*peer);
    *peer = NULL;
}

static void drop(tsr__server *server, int index, const char *why)
{
    tsr__connection *peer = server->pending[index];
    tsr__log(TSR_LOG_WARNING, "rendezvous: dropped %s: %s", peer->channel.peer, why);
    tsr__connection_close(&peer);
    server->pending_count--;
    memmove(server->pending + index, server->pending + index + 1,
            (size_t)(server->pending_count - index) * sizeof server->pending[0]);
}

/* Tells it why, if the socket takes that at once: for the owner of a job who mistyped a variable.
 */
static void refuse(tsr__server *server, int index, tsr__wire_reason reason, const char *why)
{
    tsr__channel *channel = &server->pending[index]->channel;
    channel->sealed = false;
    tsr__channel_put(channel, TSR__WIRE_REFUSED, &(uint8_t){(uint8_t)reason}, 1);
    (void)tsr__channel_write(channel);
    drop(server, index, why);
}

/* HELLO: who it wants to be. False when it has been dropped. */
static bool hear_hello(tsr__server *server, int index)
{
    tsr__connection *peer = server->pending[index];
    tsr__wire_handshake *handshake = &peer->handshake;
    uint64_t size;
    const uint8_t *hello = tsr__channel_payload(&peer->channel, &size);
    handshake->rank = tsr__wire_get_u32(hello);
    handshake->size = tsr__wire_get_u32(hello + 4);
    memcpy(handshake->rank_nonce, hello + 8, TSR__WIRE_NONCE);
    tsr__channel_take(&peer->channel, 1u << TSR__WIRE_PROOF);

    char why[128];
    if (handshake->size != (uint32_t)server->params.size) {
        snprintf(why, sizeof why, "it says there are %" PRIu32 " ranks, not %" PRId32,
                 handshake->size, server->params.size);
        refuse(server, index, TSR__WIRE_BAD_SIZE, why);
        return false;
    }
    if (handshake->rank == 0 || handshake->rank >= handshake->size) {
        snprintf(why, sizeof why, "it says it is rank %" PRIu32 ", not one from 1 to %" PRId32,
                 handshake->rank, server->params.size - 1);
        refuse(server, index, TSR__WIRE_BAD_RANK, why);
        return false;
    }
    randombytes_buf(handshake->zero_nonce, TSR__WIRE_NONCE);
    tsr__channel_put(&peer->channel, TSR__WIRE_CHALLENGE, handshake->zero_nonce, TSR__WIRE_NONCE);
    peer->stage = TSR__CONNECTION_PROOF;
    return true;
}

/* PROOF: it is one of the job's processes, and its rank is free. False when it is no stranger any
 * more. */
static bool hear_proof(tsr__server *server, int index)
{
    const tsr__rendezvous_params *params = &server->params;
    tsr__connection *peer = server->pending[index];
    uint32_t rank = peer->handshake.rank;
    uint8_t expected[TSR__WIRE_MAC];
    uint64_t size;
    const uint8_t *proof = tsr__channel_payload(&peer->channel, &size);
    char why[160];

    tsr__wire_prove("rank", params->token, params->token_size, &peer->handshake, expected);
    if (sodium_memcmp(proof, expected, sizeof expected) != 0) {
        snprintf(why, sizeof why, "as rank %" PRIu32 " it has another TESSERA_TOKEN", rank);
        refuse(server, index, TSR__WIRE_BAD_TOKEN, why);
        return false;
    }
    if (server->ranks[rank] != NULL) {
        snprintf(why, sizeof why, "rank %" PRIu32 " has already joined, from %s", rank,
                 server->ranks[rank]->channel.peer);
        refuse(server, index, TSR__WIRE_DUPLICATE, why);
        return false;
    }
    tsr__wire_prove("zero", params->token, params->token_size, &peer->handshake, expected);
    tsr__channel_put(&peer->channel, TSR__WIRE_WELCOME, expected, sizeof expected);
    tsr__channel_start_sealing(&peer->channel, params->token, params->token_size, &peer->handshake);
    tsr__channel_take(&peer->channel, 1u << TSR__WIRE_CONTRIBUTION);
    peer->stage = TSR__CONNECTION_JOINED;
    (void)tsr__channel_write(&peer->channel); /* what remains goes with the next step */
    server->ranks[rank] = peer;
    server->joined++;
    server->pending_count--;
    memmove(server->pending + index, server->pending + index + 1,
            (size_t)(server->pending_count - index) * sizeof server->pending[0]);
    tsr__log(TSR_LOG_DEBUG, "rendezvous: rank %" PRIu32 " has joined from %s", rank,
             peer->channel.peer);
    return false;
}

/* Hears what a stranger has said so far. */
static tsr_status hear(tsr__server *server, int index)
{
    tsr__connection *peer = server->pending[index];
    for (bool stays = true; stays;) {
        const char *why = "the connection broke";
        tsr__channel_event event = tsr__channel_write(&peer->channel);
        if (event == TSR__CHANNEL_MORE)
            return TSR_OK; /* it gets no further question before it has taken our answer */
        if (event == TSR__CHANNEL_DONE)
            event = tsr__channel_read(&peer->channel, &why);
        switch (event) {
        case TSR__CHANNEL_DONE:
            stays = peer->stage == TSR__CONNECTION_HELLO ? hear_hello(server, index)
                                                         : hear_proof(server, index);
            break;
        case TSR__CHANNEL_MORE:
            return TSR_OK;
        case TSR__CHANNEL_NO_MEMORY:
            return TSR_ERR_NO_MEMORY;
        case TSR__CHANNEL_CLOSED:
        case TSR__CHANNEL_BAD:
            drop(server, index, why);
            stays = false;
        }
    }
    return TSR_OK;
}

void tsr__server_lose(tsr__server *server, int32_t rank, const char *why)
{
    const bool early = server->ranks[rank]->channel.sending;
    if (server->lost_rank >= 0 && (server->lost_early || !early))
        return;
    server->lost_rank = rank;
    server->lost_why = why;
    server->lost_early = early;
}

/* A rank that has joined: its block comes in, or our answer goes out, or it is gone. */
static tsr_status serve(tsr__server *server, int32_t rank)
{
    tsr__connection *peer = server->ranks[rank];
    const char *why = "the connection broke";
    tsr__channel_event event = tsr__channel_write(&peer->channel);
    if (event != TSR__CHANNEL_CLOSED)
        event = tsr__channel_read(&peer->channel, &why);
    if (event == TSR__CHANNEL_NO_MEMORY)
        return TSR_ERR_NO_MEMORY;
    if (event != TSR__CHANNEL_CLOSED && event != TSR__CHANNEL_BAD)
        return TSR_OK;
    if (server->listener < 0) {
        tsr__server_lose(server, rank, why);
    } else { /* it may come again */
        tsr__log(TSR_LOG_WARNING, "rendezvous: rank %" PRId32 " at %s left: %s", rank,
                 peer->channel.peer, why);
    }
    tsr__connection_close(&server->ranks[rank]);
    server->joined--;
    return TSR_OK;
}

static tsr_status admit(tsr__server *server, int fd, tsr__address *from)
{
    int flags = fcntl(fd, F_GETFL);
    bool usable = flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) >= 0 &&
                  fcntl(fd, F_SETFD, FD_CLOEXEC) >= 0;
    tsr__address_describe(from);
    if (!usable || (server->address.loopback && !from->loopback)) {
        tsr__log(TSR_LOG_WARNING, "rendezvous: dropped %s: %s", from->text,
                 usable ? "it is not on this machine" : "its connection cannot be set up");
        close(fd);
        return TSR_OK;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (server->pending_count == TSR__MAX_PENDING)
        drop(server, 0, "others are waiting");
    tsr__connection *peer = tsr__calloc(1, sizeof *peer);
    if (peer == NULL) {
        close(fd);
        return TSR_ERR_NO_MEMORY;
    }
    tsr__channel_init(&peer->channel, fd, from->text, true);
    peer->channel.wanted = 1u << TSR__WIRE_HELLO;
    peer->deadline_ns = tsr__deadline_ns(server->params.handshake_ns);
    server->pending[server->pending_count++] = peer;
    return TSR_OK;
}

static tsr_status accept_some(tsr__server *server)
{
    for (int i = 0; i < ACCEPTED_AT_ONCE; i++) {
        tsr__address from = {.size = sizeof from.storage};
        int fd = accept(server->listener, (struct sockaddr *)&from.storage, &from.size);
        int reason = fd < 0 ? errno : 0;
        if (fd >= 0) {
            TSR__TRY(admit(server, fd, &from));
        } else if (reason == EAGAIN || reason == EWOULDBLOCK) {
            server->not_accepted = 0;
            break;
        } else if (reason == EMFILE || reason == ENFILE || reason == ENOBUFS || reason == ENOMEM) {
            if (server->not_accepted == 0)
                tsr__log(TSR_LOG_WARNING, "rendezvous: rank 0 cannot accept a connection: %s",
                         strerror(reason));
            server->not_accepted = reason;
            /* Strangers must not keep a rank out by using up what there is. */
            if (server->pending_count == 0) {
                nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
                break;
            }
            drop(server, 0, "there are too many connections");
        }
        /* Anything else concerns that connection alone. */
    }
    return TSR_OK;
}

static void drop_the_slow(tsr__server *server)
{
    uint64_t now = tsr__now_ns();
    /* All have the same time, so the oldest are due first. */
    while (server->pending_count > 0 && server->pending[0]->deadline_ns <= now)
        drop(server, 0, "it was too slow to prove itself");
}

static nfds_t fill_polls(tsr__server *server)
{
    nfds_t count = 0;
    for (int i = 0; i < server->pending_count; i++)
        server->polled[count++] = server->pending[i];
    for (int32_t rank = 1; rank < server->params.size; rank++)
        if (server->ranks[rank] != NULL)
            server->polled[count++] = server->ranks[rank];
    for (nfds_t i = 0; i < count; i++) {
        const tsr__channel *channel = &server->polled[i]->channel;
        server->polls[i] = (struct pollfd){
            .fd = channel->fd,
            .events = (short)(channel->sending && server->polled[i]->stage != TSR__CONNECTION_JOINED
                                  ? POLLOUT
                              : channel->sending ? POLLIN | POLLOUT
                                                 : POLLIN)};
    }
    server->polls[count] = (struct pollfd){.fd = server->listener, .events = POLLIN};
    return count;
}

static int find_pending(const tsr__server *server, const tsr__connection *peer)
{
    for (int i = 0; i < server->pending_count; i++)
        if (server->pending[i] == peer)
            return i;
    return -1;
}

tsr_status tsr__server_step(tsr__server *server, uint64_t deadline_ns)
{
    nfds_t count = fill_polls(server);
    if (server->pending_count > 0)
        deadline_ns = tsr__min_u64(deadline_ns, server->pending[0]->deadline_ns);
    int ready = poll(server->polls, count + 1, tsr__poll_ms(deadline_ns));
    if (ready < 0 && errno != EINTR)
        return tsr__fail(TSR_ERR_DRIVER, "rendezvous: cannot wait for %lu connections: %s",
                         (unsigned long)count, strerror(errno));
    for (nfds_t i = 0; ready > 0 && i < count; i++) {
        tsr__connection *peer = server->polled[i];
        if (server->polls[i].revents == 0)
            continue;
        /* Dealing with one closes no other. */
        int pending = peer->stage == TSR__CONNECTION_JOINED ? -1 : find_pending(server, peer);
        if (pending >= 0)
            TSR__TRY(hear(server, pending));
        else
            TSR__TRY(serve(server, (int32_t)peer->handshake.rank));
    }
    if (ready > 0 && server->listener >= 0 && server->polls[count].revents != 0)
        TSR__TRY(accept_some(server));
    drop_the_slow(server);
    return TSR_OK;
}

void tsr__server_stop_listening(tsr__server *server)
{
    if (server->listener >= 0)
        close(server->listener);
    server->listener = -1;
    while (server->pending_count > 0)
        drop(server, 0, "all ranks have joined");
}
