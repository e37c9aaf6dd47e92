#include "comm/bootstrap/peers.h"

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

void tsr__peer_close(tsr__peer **peer)
{
    if (*peer == NULL)
        return;
    tsr__channel_finish(&(*peer)->channel);
    tsr__free(*peer);
    *peer = NULL;
}

static void drop(tsr__peers *peers, int index, const char *why)
{
    tsr__peer *peer = peers->strangers[index];
    tsr__log(TSR_LOG_WARNING, "rendezvous: dropped %s: %s", peer->channel.peer, why);
    tsr__peer_close(&peer);
    peers->stranger_count--;
    memmove(peers->strangers + index, peers->strangers + index + 1,
            (size_t)(peers->stranger_count - index) * sizeof peers->strangers[0]);
}

/* Tells it why, if the socket takes that at once: for the owner of a job who mistyped a variable.
 */
static void refuse(tsr__peers *peers, int index, tsr__wire_reason reason, const char *why)
{
    tsr__channel *channel = &peers->strangers[index]->channel;
    channel->sealed = false;
    tsr__channel_put(channel, TSR__WIRE_REFUSED, &(uint8_t){(uint8_t)reason}, 1);
    (void)tsr__channel_write(channel);
    drop(peers, index, why);
}

/* HELLO: who it wants to be. False when it has been dropped. */
static bool hear_hello(tsr__peers *peers, int index)
{
    tsr__peer *peer = peers->strangers[index];
    tsr__wire_handshake *handshake = &peer->handshake;
    uint64_t size;
    const uint8_t *hello = tsr__channel_payload(&peer->channel, &size);
    handshake->rank = tsr__wire_get_u32(hello);
    handshake->size = tsr__wire_get_u32(hello + 4);
    memcpy(handshake->rank_nonce, hello + 8, TSR__WIRE_NONCE);
    tsr__channel_take(&peer->channel, 1u << TSR__WIRE_PROOF);

    char why[128];
    if (handshake->size != (uint32_t)peers->params.size) {
        snprintf(why, sizeof why, "it says there are %" PRIu32 " ranks, not %" PRId32,
                 handshake->size, peers->params.size);
        refuse(peers, index, TSR__WIRE_BAD_SIZE, why);
        return false;
    }
    if (handshake->rank == 0 || handshake->rank >= handshake->size) {
        snprintf(why, sizeof why, "it says it is rank %" PRIu32 ", not one from 1 to %" PRId32,
                 handshake->rank, peers->params.size - 1);
        refuse(peers, index, TSR__WIRE_BAD_RANK, why);
        return false;
    }
    randombytes_buf(handshake->zero_nonce, TSR__WIRE_NONCE);
    tsr__channel_put(&peer->channel, TSR__WIRE_CHALLENGE, handshake->zero_nonce, TSR__WIRE_NONCE);
    peer->stage = TSR__PEER_PROOF;
    return true;
}

/* PROOF: it is one of the job's processes, and its rank is free. False when it is no stranger any
 * more. */
static bool hear_proof(tsr__peers *peers, int index)
{
    const tsr__rendezvous_params *params = &peers->params;
    tsr__peer *peer = peers->strangers[index];
    uint32_t rank = peer->handshake.rank;
    uint8_t expected[TSR__WIRE_MAC];
    uint64_t size;
    const uint8_t *proof = tsr__channel_payload(&peer->channel, &size);
    char why[160];

    tsr__wire_prove("rank", params->token, params->token_size, &peer->handshake, expected);
    if (sodium_memcmp(proof, expected, sizeof expected) != 0) {
        snprintf(why, sizeof why, "as rank %" PRIu32 " it has another TESSERA_TOKEN", rank);
        refuse(peers, index, TSR__WIRE_BAD_TOKEN, why);
        return false;
    }
    if (peers->ranks[rank] != NULL) {
        snprintf(why, sizeof why, "rank %" PRIu32 " has already joined, from %s", rank,
                 peers->ranks[rank]->channel.peer);
        refuse(peers, index, TSR__WIRE_DUPLICATE, why);
        return false;
    }
    tsr__wire_prove("zero", params->token, params->token_size, &peer->handshake, expected);
    tsr__channel_put(&peer->channel, TSR__WIRE_WELCOME, expected, sizeof expected);
    tsr__channel_start_sealing(&peer->channel, params->token, params->token_size, &peer->handshake);
    tsr__channel_take(&peer->channel, 1u << TSR__WIRE_BLOCK);
    peer->stage = TSR__PEER_JOINED;
    (void)tsr__channel_write(&peer->channel); /* what remains goes with the next step */
    peers->ranks[rank] = peer;
    peers->joined++;
    peers->stranger_count--;
    memmove(peers->strangers + index, peers->strangers + index + 1,
            (size_t)(peers->stranger_count - index) * sizeof peers->strangers[0]);
    tsr__log(TSR_LOG_DEBUG, "rendezvous: rank %" PRIu32 " has joined from %s", rank,
             peer->channel.peer);
    return false;
}

/* Hears what a stranger has said so far. */
static tsr_status hear(tsr__peers *peers, int index)
{
    tsr__peer *peer = peers->strangers[index];
    for (bool stays = true; stays;) {
        const char *why = "the connection broke";
        tsr__channel_event event = tsr__channel_write(&peer->channel);
        if (event == TSR__CHANNEL_MORE)
            return TSR_OK; /* it gets no further question before it has taken our answer */
        if (event == TSR__CHANNEL_DONE)
            event = tsr__channel_read(&peer->channel, &why);
        switch (event) {
        case TSR__CHANNEL_DONE:
            stays = peer->stage == TSR__PEER_HELLO ? hear_hello(peers, index)
                                                   : hear_proof(peers, index);
            break;
        case TSR__CHANNEL_MORE:
            return TSR_OK;
        case TSR__CHANNEL_NO_MEMORY:
            return TSR_ERR_NO_MEMORY;
        case TSR__CHANNEL_CLOSED:
        case TSR__CHANNEL_BAD:
            drop(peers, index, why);
            stays = false;
        }
    }
    return TSR_OK;
}

void tsr__peers_lose(tsr__peers *peers, int32_t rank, const char *why)
{
    const bool early = peers->ranks[rank]->channel.sending;
    if (peers->lost_rank >= 0 && (peers->lost_early || !early))
        return;
    peers->lost_rank = rank;
    peers->lost_why = why;
    peers->lost_early = early;
}

/* A rank that has joined: its block comes in, or our answer goes out, or it is gone. */
static tsr_status serve(tsr__peers *peers, int32_t rank)
{
    tsr__peer *peer = peers->ranks[rank];
    const char *why = "the connection broke";
    tsr__channel_event event = tsr__channel_write(&peer->channel);
    if (event != TSR__CHANNEL_CLOSED)
        event = tsr__channel_read(&peer->channel, &why);
    if (event == TSR__CHANNEL_NO_MEMORY)
        return TSR_ERR_NO_MEMORY;
    if (event != TSR__CHANNEL_CLOSED && event != TSR__CHANNEL_BAD)
        return TSR_OK;
    if (peers->listener < 0) {
        tsr__peers_lose(peers, rank, why);
    } else { /* it may come again */
        tsr__log(TSR_LOG_WARNING, "rendezvous: rank %" PRId32 " at %s left: %s", rank,
                 peer->channel.peer, why);
    }
    tsr__peer_close(&peers->ranks[rank]);
    peers->joined--;
    return TSR_OK;
}

static tsr_status admit(tsr__peers *peers, int fd, tsr__address *from)
{
    int flags = fcntl(fd, F_GETFL);
    bool usable = flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) >= 0 &&
                  fcntl(fd, F_SETFD, FD_CLOEXEC) >= 0;
    tsr__address_describe(from);
    if (!usable || (peers->address.loopback && !from->loopback)) {
        tsr__log(TSR_LOG_WARNING, "rendezvous: dropped %s: %s", from->text,
                 usable ? "it is not on this machine" : "its connection cannot be set up");
        close(fd);
        return TSR_OK;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (peers->stranger_count == TSR__MAX_STRANGERS)
        drop(peers, 0, "others are waiting");
    tsr__peer *peer = tsr__calloc(1, sizeof *peer);
    if (peer == NULL) {
        close(fd);
        return TSR_ERR_NO_MEMORY;
    }
    tsr__channel_init(&peer->channel, fd, from->text, true);
    peer->channel.wanted = 1u << TSR__WIRE_HELLO;
    peer->deadline_ns = tsr__deadline_ns(peers->params.handshake_ns);
    peers->strangers[peers->stranger_count++] = peer;
    return TSR_OK;
}

static tsr_status accept_some(tsr__peers *peers)
{
    for (int i = 0; i < ACCEPTED_AT_ONCE; i++) {
        tsr__address from = {.size = sizeof from.storage};
        int fd = accept(peers->listener, (struct sockaddr *)&from.storage, &from.size);
        int reason = fd < 0 ? errno : 0;
        if (fd >= 0) {
            TSR__TRY(admit(peers, fd, &from));
        } else if (reason == EAGAIN || reason == EWOULDBLOCK) {
            peers->not_accepted = 0;
            break;
        } else if (reason == EMFILE || reason == ENFILE || reason == ENOBUFS || reason == ENOMEM) {
            if (peers->not_accepted == 0)
                tsr__log(TSR_LOG_WARNING, "rendezvous: rank 0 cannot accept a connection: %s",
                         strerror(reason));
            peers->not_accepted = reason;
            /* Strangers must not keep a rank out by using up what there is. */
            if (peers->stranger_count == 0) {
                nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
                break;
            }
            drop(peers, 0, "there are too many connections");
        }
        /* Anything else concerns that connection alone. */
    }
    return TSR_OK;
}

static void drop_the_slow(tsr__peers *peers)
{
    uint64_t now = tsr__now_ns();
    /* All have the same time, so the oldest are due first. */
    while (peers->stranger_count > 0 && peers->strangers[0]->deadline_ns <= now)
        drop(peers, 0, "it was too slow to prove itself");
}

static nfds_t fill_polls(tsr__peers *peers)
{
    nfds_t count = 0;
    for (int i = 0; i < peers->stranger_count; i++)
        peers->polled[count++] = peers->strangers[i];
    for (int32_t rank = 1; rank < peers->params.size; rank++)
        if (peers->ranks[rank] != NULL)
            peers->polled[count++] = peers->ranks[rank];
    for (nfds_t i = 0; i < count; i++) {
        const tsr__channel *channel = &peers->polled[i]->channel;
        peers->polls[i] = (struct pollfd){
            .fd = channel->fd,
            .events =
                (short)(channel->sending && peers->polled[i]->stage != TSR__PEER_JOINED ? POLLOUT
                        : channel->sending ? POLLIN | POLLOUT
                                           : POLLIN)};
    }
    peers->polls[count] = (struct pollfd){.fd = peers->listener, .events = POLLIN};
    return count;
}

static int find_stranger(const tsr__peers *peers, const tsr__peer *peer)
{
    for (int i = 0; i < peers->stranger_count; i++)
        if (peers->strangers[i] == peer)
            return i;
    return -1;
}

tsr_status tsr__peers_step(tsr__peers *peers, uint64_t deadline_ns)
{
    nfds_t count = fill_polls(peers);
    if (peers->stranger_count > 0)
        deadline_ns = tsr__min_u64(deadline_ns, peers->strangers[0]->deadline_ns);
    int ready = poll(peers->polls, count + 1, tsr__poll_ms(deadline_ns));
    if (ready < 0 && errno != EINTR)
        return tsr__fail(TSR_ERR_DRIVER, "rendezvous: cannot wait for %lu connections: %s",
                         (unsigned long)count, strerror(errno));
    for (nfds_t i = 0; ready > 0 && i < count; i++) {
        tsr__peer *peer = peers->polled[i];
        if (peers->polls[i].revents == 0)
            continue;
        /* Dealing with one closes no other. */
        int stranger = peer->stage == TSR__PEER_JOINED ? -1 : find_stranger(peers, peer);
        if (stranger >= 0)
            TSR__TRY(hear(peers, stranger));
        else
            TSR__TRY(serve(peers, (int32_t)peer->handshake.rank));
    }
    if (ready > 0 && peers->listener >= 0 && peers->polls[count].revents != 0)
        TSR__TRY(accept_some(peers));
    drop_the_slow(peers);
    return TSR_OK;
}

void tsr__peers_stop_listening(tsr__peers *peers)
{
    if (peers->listener >= 0)
        close(peers->listener);
    peers->listener = -1;
    while (peers->stranger_count > 0)
        drop(peers, 0, "all ranks have joined");
}
