#include "comm/bootstrap/rank_zero.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/bootstrap/impl.h"

/* How long to wait for a port that another process has: one that is just ending. */
#define PORT_PATIENCE (5 * TSR__SECOND)
#define LOOKUP_PAUSE 50000000
#define LISTED 16

static double seconds(uint64_t ns)
{
    return (double)ns * 1e-9;
}

static tsr_status listen_on(tsr__peers *peers, uint64_t deadline_ns)
{
    const tsr__address *address = &peers->address;
    uint64_t patience = tsr__deadline_ns(PORT_PATIENCE);
    for (;;) {
        int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return tsr__fail(TSR_ERR_IO, "rendezvous: there is no socket to be had: %s",
                             strerror(errno));
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
        if (bind(fd, (const struct sockaddr *)&address->storage, address->size) == 0 &&
            listen(fd, SOMAXCONN) == 0) {
            peers->listener = fd;
            return TSR_OK;
        }
        int reason = errno;
        close(fd);
        uint64_t now = tsr__now_ns();
        if (reason != EADDRINUSE || now >= patience || now >= deadline_ns)
            return tsr__fail(
                TSR_ERR_IO, "rendezvous: rank 0 cannot listen on %s (MASTER_ADDR is '%.80s'): %s%s",
                address->text, peers->params.address, strerror(reason),
                reason == EADDRINUSE ? "; TESSERA_MASTER_PORT chooses another port" : "");
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
}

static void add_text(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}

/* "1, 3, 4" and, of many, how many more: the ranks that have not joined, or not brought a block. */
static void list_missing(const tsr__peers *peers, char *text, size_t size)
{
    int32_t missing = 0;
    text[0] = '\0';
    for (int32_t rank = 1; rank < peers->params.size; rank++) {
        const tsr__peer *peer = peers->ranks[rank];
        if (peer != NULL && (peers->listener >= 0 || peer->channel.complete))
            continue;
        char one[32];
        snprintf(one, sizeof one, "%s%" PRId32, missing == 0 ? "" : ", ", rank);
        if (missing++ < LISTED)
            add_text(text, size, one);
    }
    if (missing > LISTED) {
        char rest[48];
        snprintf(rest, sizeof rest, " and %" PRId32 " more", missing - LISTED);
        add_text(text, size, rest);
    }
}

/* Everyone who is there learns what this rank is about to return; nobody is waited for. */
static tsr_status tell_all(tsr__peers *peers, tsr_status status)
{
    uint8_t payload[4 + TSR__WIRE_MAX_TEXT];
    size_t length = strlen(tsr_last_error());
    length = length < TSR__WIRE_MAX_TEXT ? length : TSR__WIRE_MAX_TEXT;
    tsr__wire_put_u32(payload, (uint32_t)(int32_t)status);
    memcpy(payload + 4, tsr_last_error(), length);
    for (int32_t rank = 1; rank < peers->params.size; rank++) {
        tsr__peer *peer = peers->ranks[rank];
        if (peer == NULL || tsr__channel_write(&peer->channel) != TSR__CHANNEL_DONE)
            continue;
        tsr__channel_put(&peer->channel, TSR__WIRE_ABORT, payload, 4 + length);
        (void)tsr__channel_write(&peer->channel);
        peer->channel.sending = false; /* the payload ends here */
    }
    return status;
}

static tsr_status wait_for_all(tsr__peers *peers, uint64_t deadline_ns)
{
    char missing[LISTED * 8 + 64];
    while (peers->joined < peers->params.size - 1) {
        if (tsr__now_ns() >= deadline_ns) {
            list_missing(peers, missing, sizeof missing);
            return tsr__fail(TSR_ERR_TIMEOUT,
                             "rendezvous: after %.1f s rank 0, which listens on %s, still misses "
                             "of %" PRId32 " ranks: %s%s%s",
                             seconds(peers->params.timeout_ns), peers->address.text,
                             peers->params.size, missing,
                             peers->not_accepted != 0 ? "; it cannot accept who connects: " : "",
                             peers->not_accepted != 0 ? strerror(peers->not_accepted) : "");
        }
        TSR__TRY(tsr__peers_step(peers, deadline_ns));
    }
    return TSR_OK;
}

/* A name that cannot be looked up just now may be a moment later. */
static tsr_status find_address(tsr__peers *peers, uint64_t deadline_ns)
{
    const tsr__rendezvous_params *params = &peers->params;
    char why[160] = "";
    for (;;) {
        tsr_status status =
            tsr__address_find(params->address, params->port, deadline_ns, &peers->address);
        if (status == TSR_OK || status == TSR_ERR_NO_MEMORY)
            return status;
        if (status == TSR_ERR_INVALID)
            return tsr__fail_context(status, "rendezvous: MASTER_ADDR is '%.80s'", params->address);
        bool first = why[0] == '\0';
        if (status != TSR_ERR_TIMEOUT || first)
            snprintf(why, sizeof why, "%s", tsr_last_error());
        if (tsr__now_ns() >= deadline_ns)
            return tsr__fail(TSR_ERR_TIMEOUT,
                             "rendezvous: rank 0 could not look up MASTER_ADDR, which is '%.80s', "
                             "within %.1f s: %s",
                             params->address, seconds(params->timeout_ns), why);
        if (first)
            tsr__log(TSR_LOG_WARNING,
                     "rendezvous: rank 0 cannot look up MASTER_ADDR, which is '%.80s', yet: %s",
                     params->address, why);
        nanosleep(&(struct timespec){.tv_nsec = LOOKUP_PAUSE}, NULL);
    }
}

static tsr_status prepare(const tsr__rendezvous_params *params, uint64_t deadline_ns,
                          tsr__peers *peers)
{
    size_t size = (size_t)params->size;
    peers->params = *params;
    peers->listener = -1;
    peers->lost_rank = -1;
    peers->ranks = tsr__calloc(size, sizeof(tsr__peer *));
    peers->polled = tsr__calloc(size + TSR__MAX_STRANGERS, sizeof(tsr__peer *));
    peers->polls = tsr__calloc(size + TSR__MAX_STRANGERS + 1, sizeof *peers->polls);
    if (peers->ranks == NULL || peers->polled == NULL || peers->polls == NULL)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(find_address(peers, deadline_ns));
    TSR__REQUIRE(peers->address.loopback || params->token_size > 0,
                 "rendezvous: TESSERA_TOKEN is not set, but %s can be reached from other machines",
                 peers->address.text);
    return TSR_OK;
}

tsr_status tsr__rank_zero_open(const tsr__rendezvous_params *params, tsr__peers **out)
{
    uint64_t deadline = tsr__deadline_ns(params->timeout_ns);
    tsr__peers *peers = tsr__calloc(1, sizeof *peers);
    if (peers == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = prepare(params, deadline, peers);
    if (status == TSR_OK)
        status = listen_on(peers, deadline);
    if (status == TSR_OK)
        status = wait_for_all(peers, deadline);
    if (status != TSR_OK) {
        if (peers->ranks != NULL)
            tell_all(peers, status);
        tsr__rank_zero_close(&peers);
        return status;
    }
    tsr__peers_stop_listening(peers);
    peers->params.token = NULL; /* the caller's, and of no more use */
    *out = peers;
    return TSR_OK;
}

static tsr_status fail_lost(const tsr__peers *peers)
{
    return tsr__fail(TSR_ERR_PEER_LOST, "rendezvous: rank %" PRId32 " is gone: %s",
                     peers->lost_rank, peers->lost_why);
}

static tsr_status wait_for_blocks(tsr__peers *peers, const tsr__boot_limit *limit)
{
    char missing[LISTED * 8 + 64];
    for (;;) {
        if (peers->lost_rank >= 0)
            return fail_lost(peers);
        int32_t here = 1;
        for (int32_t rank = 1; rank < peers->params.size; rank++)
            here += peers->ranks[rank]->channel.complete;
        if (here == peers->params.size)
            return TSR_OK;
        if (tsr__now_ns() >= limit->deadline_ns) {
            list_missing(peers, missing, sizeof missing);
            return tsr__fail(TSR_ERR_TIMEOUT,
                             "rendezvous: after %.1f s these of %" PRId32
                             " ranks have not come to the exchange: %s",
                             seconds(limit->asked_ns), peers->params.size, missing);
        }
        TSR__TRY(tsr__peers_step(peers, limit->deadline_ns));
    }
}

/* Takes what has come in; `answer` is the payload that everyone gets. */
static tsr_status collect(tsr__peers *peers, const void *mine, uint64_t size_bytes,
                          tsr__boot_blocks *blocks, uint8_t **answer, uint64_t *answer_size)
{
    int32_t size = peers->params.size;
    uint64_t *sizes = tsr__calloc((size_t)size, sizeof *sizes);
    if (sizes == NULL)
        return TSR_ERR_NO_MEMORY;
    sizes[0] = size_bytes;
    for (int32_t rank = 1; rank < size; rank++)
        (void)tsr__channel_payload(&peers->ranks[rank]->channel, &sizes[rank]);
    tsr_status status = tsr__boot_blocks_init(size, sizes, blocks);
    if (status == TSR_OK) {
        *answer_size = 4 * (uint64_t)size + blocks->starts[size];
        *answer = tsr__calloc((size_t)*answer_size, 1);
        status = *answer == NULL ? TSR_ERR_NO_MEMORY : TSR_OK;
    }
    for (int32_t rank = 0; status == TSR_OK && rank < size; rank++) {
        const void *block = mine;
        if (rank > 0) {
            block = tsr__channel_payload(&peers->ranks[rank]->channel, &sizes[rank]);
        }
        if (sizes[rank] > 0)
            memcpy(blocks->bytes + blocks->starts[rank], block, (size_t)sizes[rank]);
        tsr__wire_put_u32(*answer + 4 * (size_t)rank, (uint32_t)sizes[rank]);
        if (rank > 0)
            tsr__channel_take(&peers->ranks[rank]->channel, 1u << TSR__WIRE_BLOCK);
    }
    if (status == TSR_OK)
        memcpy(*answer + 4 * (size_t)size, blocks->bytes, (size_t)blocks->starts[size]);
    tsr__free(sizes);
    return status;
}

static tsr_status answer_all(tsr__peers *peers, const uint8_t *answer, uint64_t answer_size,
                             const tsr__boot_limit *limit)
{
    for (int32_t rank = 1; rank < peers->params.size; rank++)
        tsr__channel_put(&peers->ranks[rank]->channel, TSR__WIRE_BLOCKS, answer,
                         (size_t)answer_size);
    for (;;) {
        int32_t slow = 0;
        for (int32_t rank = 1; rank < peers->params.size; rank++) {
            tsr__peer *peer = peers->ranks[rank];
            if (peer == NULL) /* the others get their answer even so */
                continue;
            tsr__channel_event event = tsr__channel_write(&peer->channel);
            if (event == TSR__CHANNEL_CLOSED)
                tsr__peers_lose(peers, rank, "the connection broke");
            if (event == TSR__CHANNEL_MORE)
                slow = rank;
        }
        /* Who has its answer may leave while others still get theirs: it was the last exchange, or
         * the next one fails. */
        if (slow == 0)
            return peers->lost_early ? fail_lost(peers) : TSR_OK;
        if (tsr__now_ns() >= limit->deadline_ns)
            return tsr__fail(TSR_ERR_TIMEOUT,
                             "rendezvous: after %.1f s rank %" PRId32
                             " has not taken the answer of an exchange",
                             seconds(limit->asked_ns), slow);
        TSR__TRY(tsr__peers_step(peers, limit->deadline_ns));
    }
}

/* Nothing refers to the answer any more when it is freed. */
static void forget_answer(tsr__peers *peers)
{
    for (int32_t rank = 1; rank < peers->params.size; rank++)
        if (peers->ranks[rank] != NULL)
            peers->ranks[rank]->channel.sending = false;
}

tsr_status tsr__rank_zero_exchange(tsr__peers *peers, const void *mine, uint64_t size_bytes,
                                   const tsr__boot_limit *limit, tsr__boot_blocks *out)
{
    uint64_t answer_size = 0;
    uint8_t *answer = NULL;
    tsr__boot_blocks blocks = {0};
    tsr_status status = wait_for_blocks(peers, limit);
    if (status == TSR_OK)
        status = collect(peers, mine, size_bytes, &blocks, &answer, &answer_size);
    if (status != TSR_OK)
        tell_all(peers, status);
    else
        status = answer_all(peers, answer, answer_size, limit);
    forget_answer(peers);
    tsr__free(answer);
    if (status == TSR_OK)
        *out = blocks;
    else
        tsr__boot_blocks_finish(&blocks);
    return status;
}

void tsr__rank_zero_close(tsr__peers **peers)
{
    if (*peers == NULL)
        return;
    tsr__peers_stop_listening(*peers);
    for (int32_t rank = 1; (*peers)->ranks != NULL && rank < (*peers)->params.size; rank++)
        tsr__peer_close(&(*peers)->ranks[rank]);
    tsr__free((*peers)->polls);
    tsr__free((*peers)->polled);
    tsr__free((*peers)->ranks);
    tsr__free(*peers);
    *peers = NULL;
}
