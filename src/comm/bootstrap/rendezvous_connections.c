#include "comm/bootstrap/rendezvous_server.h"

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

/* The most connections that one call of tsr__server_step accepts, so that a flood of new
 * connections does not delay the existing ones. */
#define MAX_ACCEPTED_AT_ONCE 32

void tsr__connection_close(tsr__connection **connection)
{
    if (*connection == NULL)
        return;
    tsr__channel_finish(&(*connection)->channel);
    tsr__free(*connection);
    *connection = NULL;
}

static void remove_pending(tsr__server *server, int index)
{
    server->pending_count--;
    memmove(server->pending + index, server->pending + index + 1,
            (size_t)(server->pending_count - index) * sizeof server->pending[0]);
}

static void drop_pending(tsr__server *server, int index, const char *why)
{
    tsr__connection *connection = server->pending[index];
    tsr__log(TSR_LOG_WARNING, "rendezvous: dropped %s: %s", connection->channel.peer, why);
    tsr__connection_close(&connection);
    remove_pending(server, index);
}

/* Drops a process whose settings do not match. Sends the reason first if the socket accepts it
 * without blocking, because the process may be a rank of this job with a mistyped variable. */
static void refuse_pending(tsr__server *server, int index, int reason, const char *why)
{
    tsr__channel *channel = &server->pending[index]->channel;
    channel->sealed = false;
    tsr__channel_put(channel, TSR__WIRE_REFUSED, &(uint8_t){(uint8_t)reason}, 1);
    (void)tsr__channel_write(channel);
    snprintf(server->refused, sizeof server->refused, "%.60s: %.180s", channel->peer, why);
    drop_pending(server, index, why);
}

/* Handles HELLO. Returns whether the connection is still pending. */
static bool handle_hello(tsr__server *server, int index)
{
    tsr__connection *connection = server->pending[index];
    tsr__wire_handshake *handshake = &connection->handshake;
    uint64_t size;
    const uint8_t *hello = tsr__channel_payload(&connection->channel, &size);
    handshake->rank = tsr__wire_get_u32(hello);
    handshake->size = tsr__wire_get_u32(hello + 4);
    memcpy(handshake->rank_nonce, hello + 8, TSR__WIRE_NONCE);
    tsr__channel_take(&connection->channel, 1u << TSR__WIRE_PROOF);

    char why[128];
    const bool joins = server->params.grows && handshake->size == 0 && handshake->rank == 0;
    if (!joins && handshake->size != (uint32_t)server->params.size) {
        snprintf(why, sizeof why, "its WORLD_SIZE is %" PRIu32 ", not %" PRId32, handshake->size,
                 server->params.size);
        refuse_pending(server, index, TSR__WIRE_BAD_SIZE, why);
        return false;
    }
    if (!joins && (handshake->rank == 0 || handshake->rank >= handshake->size)) {
        snprintf(why, sizeof why, "its rank is %" PRIu32 ", not one from 1 to %" PRId32,
                 handshake->rank, server->params.size - 1);
        refuse_pending(server, index, TSR__WIRE_BAD_RANK, why);
        return false;
    }
    randombytes_buf(handshake->zero_nonce, TSR__WIRE_NONCE);
    tsr__channel_put(&connection->channel, TSR__WIRE_CHALLENGE, handshake->zero_nonce,
                     TSR__WIRE_NONCE);
    connection->stage = TSR__CONNECTION_PROOF;
    return true;
}

/* Returns the first field in which the identity of the connecting process differs from that of this
 * process, or TSR__IDENTITY_FIELDS if no field differs. `macs` are the MACs of the identity in
 * PROOF. */
static tsr__identity_field find_difference(const tsr__server *server,
                                           const tsr__wire_handshake *handshake,
                                           const uint8_t *macs)
{
    const tsr__rendezvous_params *params = &server->params;
    uint8_t expected[TSR__WIRE_MAC];
    int field = 0;
    for (; field < TSR__IDENTITY_FIELDS; field++, macs += TSR__WIRE_MAC) {
        tsr__wire_prove_identity((tsr__identity_field)field,
                                 tsr__identity_text(&params->identity, (tsr__identity_field)field,
                                                    server->address.loopback),
                                 params->token, params->token_size, handshake, expected);
        if (sodium_memcmp(macs, expected, sizeof expected) != 0)
            break;
    }
    return (tsr__identity_field)field;
}

/* Returns whether a process that has sent PROOF may join. If not, refuses the process. */
static bool may_join(tsr__server *server, int index)
{
    const tsr__rendezvous_params *params = &server->params;
    tsr__connection *connection = server->pending[index];
    const uint32_t rank = connection->handshake.rank;
    uint8_t expected[TSR__WIRE_MAC];
    uint64_t size;
    const uint8_t *proof = tsr__channel_payload(&connection->channel, &size);
    char why[256], difference[180];

    tsr__wire_prove("rank", params->token, params->token_size, &connection->handshake, expected);
    if (sodium_memcmp(proof, expected, sizeof expected) != 0) {
        snprintf(why, sizeof why, "as rank %" PRIu32 " it has another TESSERA_TOKEN", rank);
        refuse_pending(server, index, TSR__WIRE_BAD_TOKEN, why);
        return false;
    }
    tsr__identity_field field =
        find_difference(server, &connection->handshake, proof + TSR__WIRE_MAC);
    if (field != TSR__IDENTITY_FIELDS) {
        snprintf(why, sizeof why, "as rank %" PRIu32 " it %s", rank,
                 tsr__identity_difference(&params->identity, field, difference, sizeof difference));
        refuse_pending(server, index, TSR__WIRE_OTHER_JOB + (int)field, why);
        return false;
    }
    if (params->grows && server->joined == params->size - 1) {
        refuse_pending(server, index, TSR__WIRE_FULL, "enough processes have already joined");
        return false;
    }
    if (!params->grows && server->ranks[rank] != NULL) {
        snprintf(why, sizeof why, "rank %" PRIu32 " has already joined, from %s", rank,
                 server->ranks[rank]->channel.peer);
        refuse_pending(server, index, TSR__WIRE_DUPLICATE, why);
        return false;
    }
    return true;
}

/* Returns the lowest rank above 0 that no process has. There must be one. */
static uint32_t free_rank(const tsr__server *server)
{
    uint32_t rank = 1;
    while (server->ranks[rank] != NULL)
        rank++;
    return rank;
}

static void handle_proof(tsr__server *server, int index)
{
    const tsr__rendezvous_params *params = &server->params;
    tsr__connection *connection = server->pending[index];
    tsr__channel *channel = &connection->channel;
    uint32_t rank = connection->handshake.rank;
    uint8_t mac[TSR__WIRE_MAC];

    if (!may_join(server, index))
        return;
    tsr__wire_prove("zero", params->token, params->token_size, &connection->handshake, mac);
    tsr__channel_put(channel, TSR__WIRE_WELCOME, mac, sizeof mac);
    tsr__channel_start_sealing(channel, params->token, params->token_size, &connection->handshake);
    tsr__channel_take(channel, 1u << TSR__WIRE_CONTRIBUTION);
    connection->stage = TSR__CONNECTION_JOINED;
    if (params->grows)
        rank = connection->handshake.rank = free_rank(server);
    /* later calls of tsr__server_step send what this call could not send */
    (void)tsr__channel_write(channel);
    server->ranks[rank] = connection;
    server->joined++;
    remove_pending(server, index);
    tsr__log(TSR_LOG_DEBUG, "rendezvous: rank %" PRIu32 " has joined from %s", rank, channel->peer);
}

/* Handles the messages that a pending connection has sent so far. */
static tsr_status advance_pending(tsr__server *server, int index)
{
    tsr__connection *connection = server->pending[index];
    for (bool is_pending = true; is_pending;) {
        const char *why = "the connection broke";
        tsr__channel_event event = tsr__channel_write(&connection->channel);
        if (event == TSR__CHANNEL_MORE)
            return TSR_OK; /* the process has not read the previous message completely */
        if (event == TSR__CHANNEL_DONE)
            event = tsr__channel_read(&connection->channel, &why);
        switch (event) {
        case TSR__CHANNEL_DONE:
            if (connection->stage == TSR__CONNECTION_HELLO) {
                is_pending = handle_hello(server, index);
            } else {
                handle_proof(server, index);
                is_pending = false;
            }
            break;
        case TSR__CHANNEL_MORE:
            return TSR_OK;
        case TSR__CHANNEL_NO_MEMORY:
            return TSR_ERR_NO_MEMORY;
        case TSR__CHANNEL_CLOSED:
        case TSR__CHANNEL_BAD:
            drop_pending(server, index, why);
            is_pending = false;
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

/* Receives the contribution of a rank that has joined, and sends what is still to be sent to the
 * rank. */
static tsr_status advance_joined(tsr__server *server, int32_t rank)
{
    tsr__connection *connection = server->ranks[rank];
    const char *why = "the connection broke";
    tsr__channel_event event = tsr__channel_write(&connection->channel);
    if (event != TSR__CHANNEL_CLOSED)
        event = tsr__channel_read(&connection->channel, &why);
    if (event == TSR__CHANNEL_NO_MEMORY)
        return TSR_ERR_NO_MEMORY;
    if (event != TSR__CHANNEL_CLOSED && event != TSR__CHANNEL_BAD)
        return TSR_OK;
    if (server->listener < 0)
        tsr__server_lose(server, rank, why);
    else /* ranks are still joining, so this rank's process may be restarted and join again */
        tsr__log(TSR_LOG_WARNING, "rendezvous: rank %" PRId32 " at %s left: %s", rank,
                 connection->channel.peer, why);
    tsr__connection_close(&server->ranks[rank]);
    server->joined--;
    return TSR_OK;
}

static tsr_status add_connection(tsr__server *server, int fd, tsr__address *from)
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
        drop_pending(server, 0, "there are too many pending connections");
    tsr__connection *connection = tsr__calloc(1, sizeof *connection);
    if (connection == NULL) {
        close(fd);
        return TSR_ERR_NO_MEMORY;
    }
    tsr__channel_init(&connection->channel, fd, from->text, true);
    connection->channel.wanted = 1u << TSR__WIRE_HELLO;
    connection->deadline_ns = tsr__deadline_ns(server->params.handshake_ns);
    server->pending[server->pending_count++] = connection;
    return TSR_OK;
}

static tsr_status accept_some(tsr__server *server)
{
    for (int i = 0; i < MAX_ACCEPTED_AT_ONCE; i++) {
        tsr__address from = {.size = sizeof from.storage};
        int fd = accept(server->listener, (struct sockaddr *)&from.storage, &from.size);
        int reason = fd < 0 ? errno : 0;
        if (fd >= 0) {
            TSR__TRY(add_connection(server, fd, &from));
        } else if (reason == EAGAIN || reason == EWOULDBLOCK) {
            server->accept_errno = 0;
            break;
        } else if (reason == EMFILE || reason == ENFILE || reason == ENOBUFS || reason == ENOMEM) {
            if (server->accept_errno == 0)
                tsr__log(TSR_LOG_WARNING, "rendezvous: rank 0 cannot accept a connection: %s",
                         strerror(reason));
            server->accept_errno = reason;
            /* No file descriptor is free: drop the oldest pending connection to get one. Otherwise
             * pending connections could use up all descriptors and prevent a rank from joining. */
            if (server->pending_count == 0) {
                nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
                break;
            }
            drop_pending(server, 0, "there are too many connections");
        }
        /* All other errors of accept() concern one connection only, so the loop continues. */
    }
    return TSR_OK;
}

static void drop_expired(tsr__server *server)
{
    uint64_t now = tsr__now_ns();
    /* Every handshake has the same time limit, so the oldest connection expires first. */
    while (server->pending_count > 0 && server->pending[0]->deadline_ns <= now)
        drop_pending(server, 0, "its handshake took too long");
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
        short events = POLLIN;
        if (channel->sending)
            events =
                server->polled[i]->stage == TSR__CONNECTION_JOINED ? POLLIN | POLLOUT : POLLOUT;
        server->polls[i] = (struct pollfd){.fd = channel->fd, .events = events};
    }
    server->polls[count] = (struct pollfd){.fd = server->listener, .events = POLLIN};
    return count;
}

static int find_pending(const tsr__server *server, const tsr__connection *connection)
{
    for (int i = 0; i < server->pending_count; i++)
        if (server->pending[i] == connection)
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
        tsr__connection *connection = server->polled[i];
        if (server->polls[i].revents == 0)
            continue;
        /* Handling one connection never closes another one, so `connection` is still valid. */
        int index =
            connection->stage == TSR__CONNECTION_JOINED ? -1 : find_pending(server, connection);
        if (index >= 0)
            TSR__TRY(advance_pending(server, index));
        else
            TSR__TRY(advance_joined(server, (int32_t)connection->handshake.rank));
    }
    if (ready > 0 && server->listener >= 0 && server->polls[count].revents != 0)
        TSR__TRY(accept_some(server));
    drop_expired(server);
    return TSR_OK;
}

void tsr__server_stop_listening(tsr__server *server)
{
    if (server->listener >= 0)
        close(server->listener);
    server->listener = -1;
    while (server->pending_count > 0)
        drop_pending(server, 0, "all ranks have joined");
}
