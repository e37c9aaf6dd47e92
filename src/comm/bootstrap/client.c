#include "comm/bootstrap/client.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/bootstrap/backend.h"

/* Rank 0 knows best who is missing, so the others leave it this much more time to say so. */
#define GRACE (TSR__SECOND / 4)

/* Between attempts to reach rank 0. */
#define SHORTEST_PAUSE (TSR__SECOND / 100)
#define LONGEST_PAUSE (TSR__SECOND / 2)

/* One attempt to join, and why the last one came to nothing. */
typedef struct attempt {
    const tsr__rendezvous_params *params;
    tsr__channel channel;
    tsr__wire_handshake handshake;
    uint64_t deadline_ns;
    char why[160];
    char told[160]; /* the last reason that came from the other end */
} attempt;

/* Sends what is to be sent and waits for the next message. */
static tsr__channel_event converse(tsr__channel *channel, uint64_t deadline_ns, const char **why)
{
    for (;;) {
        tsr__channel_event event = tsr__channel_write(channel);
        *why = "the connection broke";
        /* Rank 0 may have said something before it left. */
        tsr__channel_event heard = tsr__channel_read(channel, why);
        if (heard != TSR__CHANNEL_MORE)
            return heard;
        if (event == TSR__CHANNEL_CLOSED)
            return event;
        if (tsr__now_ns() >= deadline_ns)
            return TSR__CHANNEL_MORE;
        struct pollfd poll_one = {.fd = channel->fd,
                                  .events = (short)(POLLIN | (channel->sending ? POLLOUT : 0))};
        (void)poll(&poll_one, 1, tsr__poll_ms(deadline_ns));
    }
}

/* False with `why` said. */
static bool connect_to(attempt *try, const tsr__address *address)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int reason = fd < 0 ? errno : 0;
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address->storage, address->size) < 0) {
        reason = errno;
        if (reason == EINPROGRESS || reason == EINTR) {
            struct pollfd poll_one = {.fd = fd, .events = POLLOUT};
            int ready;
            do
                ready = poll(&poll_one, 1, tsr__poll_ms(try->deadline_ns));
            while (ready < 0 && errno == EINTR);
            socklen_t size = sizeof reason;
            if (ready <= 0)
                reason = ETIMEDOUT;
            else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &reason, &size) < 0)
                reason = errno;
        }
    }
    if (reason != 0) {
        if (fd >= 0)
            close(fd);
        snprintf(try->why, sizeof try->why, "%s", strerror(reason));
        return false;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    tsr__channel_init(&try->channel, fd, address->text, false);
    return true;
}

/* Waits for one message of the handshake. False with `why` said, or with *status set when memory is
 * out. */
static bool hear(attempt *try, tsr__wire_type type, tsr_status *status)
{
    const char *why;
    try->channel.wanted = 1u << type | 1u << TSR__WIRE_REFUSED;
    tsr__channel_event event = converse(&try->channel, try->deadline_ns, &why);
    if (event == TSR__CHANNEL_NO_MEMORY)
        *status = TSR_ERR_NO_MEMORY;
    if (event == TSR__CHANNEL_MORE)
        why = "it does not answer";
    if (event == TSR__CHANNEL_DONE && try->channel.type == TSR__WIRE_REFUSED) {
        uint64_t size;
        why = tsr__wire_reason_text(tsr__channel_payload(&try->channel, &size)[0]);
        event = TSR__CHANNEL_BAD;
    }
    if (event == TSR__CHANNEL_DONE || event == TSR__CHANNEL_NO_MEMORY)
        return event == TSR__CHANNEL_DONE;
    snprintf(try->why, sizeof try->why, "%s", why);
    /* What it said is worth more than that it said nothing. */
    if (event == TSR__CHANNEL_BAD || try->told[0] == '\0')
        memcpy(try->told, try->why, sizeof try->told);
    return false;
}

static bool shake_hands(attempt *try, tsr_status *status)
{
    const tsr__rendezvous_params *params = try->params;
    tsr__channel *channel = &try->channel;
    tsr__wire_handshake *handshake = &try->handshake;
    uint8_t hello[TSR__WIRE_HELLO_SIZE], mac[TSR__WIRE_MAC];
    uint64_t size;

    handshake->rank = (uint32_t)params->rank;
    handshake->size = (uint32_t)params->size;
    randombytes_buf(handshake->rank_nonce, TSR__WIRE_NONCE);
    tsr__wire_put_u32(hello, handshake->rank);
    tsr__wire_put_u32(hello + 4, handshake->size);
    memcpy(hello + 8, handshake->rank_nonce, TSR__WIRE_NONCE);
    tsr__channel_put(channel, TSR__WIRE_HELLO, hello, sizeof hello);
    if (!hear(try, TSR__WIRE_CHALLENGE, status))
        return false;
    memcpy(handshake->zero_nonce, tsr__channel_payload(channel, &size), TSR__WIRE_NONCE);
    tsr__channel_take(channel, 0);

    tsr__wire_prove("rank", params->token, params->token_size, handshake, mac);
    tsr__channel_put(channel, TSR__WIRE_PROOF, mac, sizeof mac);
    if (!hear(try, TSR__WIRE_WELCOME, status))
        return false;
    tsr__wire_prove("zero", params->token, params->token_size, handshake, mac);
    if (sodium_memcmp(mac, tsr__channel_payload(channel, &size), sizeof mac) != 0) {
        snprintf(try->why, sizeof try->why, "who answers there is not rank 0 of this job");
        memcpy(try->told, try->why, sizeof try->told);
        return false;
    }
    tsr__channel_start_sealing(channel, params->token, params->token_size, handshake);
    tsr__channel_take(channel, 1u << TSR__WIRE_GATHERED | 1u << TSR__WIRE_ABORT);
    channel->blocks_max = (uint64_t)params->size * (4 + TSR__BOOTSTRAP_MAX_BYTES);
    return true;
}

/* True when it has joined. Whatever else happens may be over at the next attempt, unless *status is
 * set. */
static bool join(attempt *try, uint64_t deadline_ns, tsr_status *status)
{
    const tsr__rendezvous_params *params = try->params;
    tsr__address address;
    tsr_status found = tsr__address_find(params->address, params->port, deadline_ns, &address);
    if (found != TSR_OK) {
        if (found == TSR_ERR_NO_MEMORY)
            *status = found;
        if (found != TSR_ERR_TIMEOUT || try->why[0] == '\0') /* else what was before says more */
            snprintf(try->why, sizeof try->why, "%s", tsr_last_error());
        return false;
    }
    if (!address.loopback && params->token_size == 0) {
        *status = tsr__fail(TSR_ERR_INVALID,
                            "rendezvous: TESSERA_TOKEN is not set, but %s is on another machine",
                            address.text);
        return false;
    }
    try->deadline_ns = tsr__min_u64(deadline_ns, tsr__deadline_ns(params->handshake_ns));
    if (!connect_to(try, &address))
        return false;
    if (shake_hands(try, status))
        return true;
    tsr__channel_finish(&try->channel);
    return false;
}

static tsr_status keep_trying(attempt *try, uint64_t deadline_ns)
{
    const tsr__rendezvous_params *params = try->params;
    uint64_t pause = SHORTEST_PAUSE;
    tsr_status status = TSR_OK;
    char logged[sizeof try->why] = "Connection refused"; /* as long as rank 0 is not there yet */
    while (!join(try, deadline_ns, &status)) {
        if (status != TSR_OK)
            return status;
        bool before = try->told[0] != '\0' && strcmp(try->told, try->why) != 0;
        if (tsr__now_ns() >= deadline_ns)
            return tsr__fail(
                TSR_ERR_TIMEOUT,
                "rendezvous: rank %" PRId32 " could not join rank 0 at %.80s, port %d, "
                "within %.1f s: %s%s%s",
                params->rank, params->address, (int)params->port, (double)params->timeout_ns * 1e-9,
                try->why, before ? "; before: " : "", before ? try->told : "");
        if (strcmp(logged, try->why) != 0)
            tsr__log(TSR_LOG_WARNING,
                     "rendezvous: rank %" PRId32 " cannot join rank 0 at %.80s, port %d, yet: %s",
                     params->rank, params->address, (int)params->port, try->why);
        memcpy(logged, try->why, sizeof logged);
        uint64_t now = tsr__now_ns();
        uint64_t rest = tsr__min_u64(pause, deadline_ns > now ? deadline_ns - now : 0);
        nanosleep(&(struct timespec){.tv_nsec = (long)rest}, NULL);
        pause = tsr__min_u64(pause * 3 / 2, LONGEST_PAUSE);
    }
    return TSR_OK;
}

tsr_status tsr__client_open(const tsr__rendezvous_params *params, tsr__client **out)
{
    tsr__client *client = tsr__calloc(1, sizeof *client);
    if (client == NULL)
        return TSR_ERR_NO_MEMORY;
    attempt try = {.params = params};
    tsr_status status = keep_trying(&try, tsr__deadline_ns(params->timeout_ns));
    if (status != TSR_OK) {
        tsr__free(client);
        return status;
    }
    client->rank = params->rank;
    client->size = params->size;
    client->channel = try.channel;
    *out = client;
    return TSR_OK;
}

/* What rank 0 fails with, the others fail with. */
static tsr_status pass_on(const uint8_t *payload, uint64_t size)
{
    int32_t code = (int32_t)tsr__wire_get_u32(payload);
    if (code >= TSR_OK || code < TSR_ERR_PEER_LOST)
        code = TSR_ERR_PEER_LOST;
    return tsr__fail((tsr_status)code, "%.*s", (int)(size - 4), (const char *)payload + 4);
}

/* BLOCKS to blocks; what it says about itself may be wrong, proved or not. */
static tsr_status unpack(const tsr__client *client, const uint8_t *payload, uint64_t size,
                         tsr__bootstrap_gathered *out)
{
    uint64_t ranks = (uint64_t)client->size, total = 4 * ranks;
    uint64_t *sizes = tsr__calloc((size_t)ranks, sizeof *sizes);
    if (sizes == NULL)
        return TSR_ERR_NO_MEMORY;
    for (uint64_t rank = 0; rank < ranks && size >= 4 * ranks; rank++) {
        sizes[rank] = tsr__wire_get_u32(payload + 4 * rank);
        total += sizes[rank];
    }
    tsr_status status = TSR_OK;
    if (size < 4 * ranks || total != size)
        status = tsr__fail(TSR_ERR_INVALID,
                           "rendezvous: rank 0 answers in %" PRIu64 " bytes, not in %" PRIu64, size,
                           total);
    if (status == TSR_OK)
        status = tsr__bootstrap_gathered_init(client->size, sizes, out);
    if (status == TSR_OK)
        memcpy(out->bytes, payload + 4 * ranks, (size_t)(size - 4 * ranks));
    tsr__free(sizes);
    return status;
}

tsr_status tsr__client_exchange(tsr__client *client, const void *mine, uint64_t size_bytes,
                                const tsr__bootstrap_limit *limit, tsr__bootstrap_gathered *out)
{
    tsr__channel *channel = &client->channel;
    const char *why;
    tsr__channel_put(channel, TSR__WIRE_CONTRIBUTION, mine, (size_t)size_bytes);
    uint64_t deadline = limit->deadline_ns;
    deadline = deadline > UINT64_MAX - GRACE ? deadline : deadline + GRACE;
    tsr__channel_event event = converse(channel, deadline, &why);
    channel->sending = false; /* the payload ends here */
    switch (event) {
    case TSR__CHANNEL_DONE:
        break;
    case TSR__CHANNEL_MORE:
        return tsr__fail(TSR_ERR_TIMEOUT,
                         "rendezvous: rank 0 at %s has not answered rank %" PRId32 " within %.1f s",
                         channel->peer, client->rank, (double)limit->timeout_ns * 1e-9);
    case TSR__CHANNEL_NO_MEMORY:
        return TSR_ERR_NO_MEMORY;
    case TSR__CHANNEL_CLOSED:
    case TSR__CHANNEL_BAD:
        return tsr__fail(TSR_ERR_PEER_LOST, "rendezvous: rank 0 at %s is gone: %s", channel->peer,
                         why);
    }
    uint64_t size;
    const uint8_t *payload = tsr__channel_payload(channel, &size);
    if (channel->type == TSR__WIRE_ABORT)
        return pass_on(payload, size);
    tsr_status status = unpack(client, payload, size, out);
    tsr__channel_take(channel, 1u << TSR__WIRE_GATHERED | 1u << TSR__WIRE_ABORT);
    return status;
}

void tsr__client_close(tsr__client **client)
{
    if (*client == NULL)
        return;
    tsr__channel_finish(&(*client)->channel);
    tsr__free(*client);
    *client = NULL;
}
