#include "comm/bootstrap/rendezvous_client.h"

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

/* The other ranks wait this much longer than rank 0 for an exchange. Only rank 0 knows which ranks
 * are missing, so the others give it time to send them the error that names these. */
#define GRACE_NS (TSR__SECOND / 4)

/* The shortest and the longest pause between attempts to reach rank 0. */
#define SHORTEST_PAUSE_NS (TSR__SECOND / 100)
#define LONGEST_PAUSE_NS (TSR__SECOND / 2)
/* The longest pause of a process that joins a running job. The ranks of that job may wait only for
 * a short time. */
#define LONGEST_JOIN_PAUSE_NS (TSR__SECOND / 50)

/* How long to keep trying after rank 0 has refused this process because it belongs to another job.
 * That other job may be about to end and release the port. But if both jobs use the same port by
 * mistake, waiting for the full timeout would not help. */
#define OTHER_JOB_NS (2 * TSR__SECOND)

/* The state of this rank's attempts to join. */
typedef struct attempt {
    const tsr__rendezvous_params *params;
    tsr__channel channel;
    tsr__wire_handshake handshake;
    uint64_t deadline_ns; /* the deadline of the current attempt */
    char why[256];
    /* the last refusal or protocol error from the process that listens at the port */
    char answer[256];
    /* when to stop trying because rank 0 belongs to another job, and report other_job; 0: it has
     * not refused this process for that reason */
    uint64_t give_up_ns;
    char other_job[256]; /* how rank 0's job differs from this process's job */
} attempt;

/* Sends the pending message and waits for the next one. Returns TSR__CHANNEL_MORE if the deadline
 * has passed. */
static tsr__channel_event send_and_receive(tsr__channel *channel, uint64_t deadline_ns,
                                           const char **why)
{
    for (;;) {
        tsr__channel_event event = tsr__channel_write(channel);
        *why = "the connection broke";
        /* Reads even if writing has failed, because rank 0 may have sent an error before it closed
         * the connection. */
        tsr__channel_event received = tsr__channel_read(channel, why);
        if (received != TSR__CHANNEL_MORE)
            return received;
        if (event == TSR__CHANNEL_CLOSED)
            return event;
        if (tsr__now_ns() >= deadline_ns)
            return TSR__CHANNEL_MORE;
        struct pollfd poll_one = {.fd = channel->fd,
                                  .events = (short)(POLLIN | (channel->sending ? POLLOUT : 0))};
        (void)poll(&poll_one, 1, tsr__poll_ms(deadline_ns));
    }
}

/* Connects to rank 0. On failure, returns false and sets try->why. */
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

/* Describes the reason of a REFUSED message in try->why. */
static void note_refusal(attempt *try, uint8_t reason)
{
    char difference[180];
    const int field = (int)reason - TSR__WIRE_OTHER_JOB;
    if (field < 0 || field >= TSR__IDENTITY_FIELDS) {
        snprintf(try->why, sizeof try->why, "%s", tsr__wire_reason_text(reason));
        return;
    }
    snprintf(try->why, sizeof try->why, "rank 0 %s",
             tsr__identity_difference(&try->params->identity, (tsr__identity_field)field,
                                      difference, sizeof difference));
    memcpy(try->other_job, try->why, sizeof try->other_job);
    if (try->give_up_ns == 0)
        try->give_up_ns = tsr__deadline_ns(OTHER_JOB_NS);
}

/* Waits for one message of the handshake. On failure, returns false and sets try->why. If memory is
 * exhausted, sets *status instead. */
static bool receive_handshake(attempt *try, tsr__wire_type type, tsr_status *status)
{
    const char *why;
    try->channel.wanted = 1u << type | 1u << TSR__WIRE_REFUSED;
    tsr__channel_event event = send_and_receive(&try->channel, try->deadline_ns, &why);
    if (event == TSR__CHANNEL_DONE && try->channel.type == type)
        return true;
    if (event == TSR__CHANNEL_NO_MEMORY) {
        *status = TSR_ERR_NO_MEMORY;
        return false;
    }
    if (event == TSR__CHANNEL_DONE) {
        uint64_t size;
        note_refusal(try, tsr__channel_payload(&try->channel, &size)[0]);
        event = TSR__CHANNEL_BAD;
    } else {
        snprintf(try->why, sizeof try->why, "%s",
                 event == TSR__CHANNEL_MORE ? "it does not answer" : why);
    }
    /* Keep an earlier reason from the peer if it has only closed the connection now, because the
     * reason explains more. */
    if (event == TSR__CHANNEL_BAD || try->answer[0] == '\0')
        memcpy(try->answer, try->why, sizeof try->answer);
    return false;
}

/* Removes the message in the channel, and prepares the channel for the answers to exchanges. */
static void expect_answers(tsr__channel *channel, int32_t size)
{
    tsr__channel_take(channel, 1u << TSR__WIRE_GATHERED | 1u << TSR__WIRE_ABORT);
    channel->max_gathered = (uint64_t)size * (4 + TSR__BOOTSTRAP_MAX_BYTES);
}

static bool perform_handshake(attempt *try, bool loopback, tsr_status *status)
{
    const tsr__rendezvous_params *params = try->params;
    tsr__channel *channel = &try->channel;
    tsr__wire_handshake *handshake = &try->handshake;
    uint8_t hello[TSR__WIRE_HELLO_SIZE], proof[TSR__WIRE_PROOF_SIZE], mac[TSR__WIRE_MAC];
    uint64_t size;

    handshake->rank = (uint32_t)params->rank;
    handshake->size = (uint32_t)params->size;
    randombytes_buf(handshake->rank_nonce, TSR__WIRE_NONCE);
    tsr__wire_put_u32(hello, handshake->rank);
    tsr__wire_put_u32(hello + 4, handshake->size);
    memcpy(hello + 8, handshake->rank_nonce, TSR__WIRE_NONCE);
    tsr__channel_put(channel, TSR__WIRE_HELLO, hello, sizeof hello);
    if (!receive_handshake(try, TSR__WIRE_CHALLENGE, status))
        return false;
    memcpy(handshake->zero_nonce, tsr__channel_payload(channel, &size), TSR__WIRE_NONCE);
    tsr__channel_take(channel, 0);

    tsr__wire_prove("rank", params->token, params->token_size, handshake, proof);
    for (int i = 0; i < TSR__IDENTITY_FIELDS; i++)
        tsr__wire_prove_identity(
            (tsr__identity_field)i,
            tsr__identity_text(&params->identity, (tsr__identity_field)i, loopback), params->token,
            params->token_size, handshake, proof + (size_t)(1 + i) * TSR__WIRE_MAC);
    tsr__channel_put(channel, TSR__WIRE_PROOF, proof, sizeof proof);
    if (!receive_handshake(try, TSR__WIRE_WELCOME, status))
        return false;
    tsr__wire_prove("zero", params->token, params->token_size, handshake, mac);
    if (sodium_memcmp(mac, tsr__channel_payload(channel, &size), sizeof mac) != 0) {
        snprintf(try->why, sizeof try->why, "the process that answers is not rank 0 of this job");
        memcpy(try->answer, try->why, sizeof try->answer);
        return false;
    }
    tsr__channel_start_sealing(channel, params->token, params->token_size, handshake);
    expect_answers(channel, params->size);
    return true;
}

/* Makes one attempt to join. Returns true if this rank has joined. After a failure another attempt
 * may succeed, unless *status is an error. */
static bool try_to_join(attempt *try, uint64_t deadline_ns, tsr_status *status)
{
    const tsr__rendezvous_params *params = try->params;
    tsr__address address;
    tsr_status found = tsr__address_find(params->address, params->port, deadline_ns, &address);
    if (found != TSR_OK) {
        if (found == TSR_ERR_NO_MEMORY)
            *status = found;
        if (found != TSR_ERR_TIMEOUT ||
            /* keep the reason of an earlier attempt if this one has only run out of time */
            try->why[0] == '\0')
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
    if (perform_handshake(try, address.loopback, status))
        return true;
    tsr__channel_finish(&try->channel);
    return false;
}

/* Returns the error of a rank that stops trying to join. */
static tsr_status fail_to_join(const attempt *try)
{
    const tsr__rendezvous_params *params = try->params;
    const bool add_answer = try->answer[0] != '\0' && strcmp(try->answer, try->why) != 0;
    if (try->give_up_ns != 0)
        return tsr__fail(TSR_ERR_INVALID,
                         "rendezvous: rank %" PRId32 " was refused by rank 0 of another job at "
                         "%.80s, port %d: %s; set another TESSERA_MASTER_PORT for one of the jobs, "
                         "or, if they are to be one job, the same TESSERA_JOB_ID for all its ranks",
                         params->rank, params->address, (int)params->port, try->other_job);
    if (params->size == 0)
        return tsr__fail(TSR_ERR_TIMEOUT,
                         "rendezvous: this process could not join the running job at %.80s, port "
                         "%d, within %.1f s: %s%s%s",
                         params->address, (int)params->port, (double)params->timeout_ns * 1e-9,
                         try->why, add_answer ? "; before: " : "", add_answer ? try->answer : "");
    return tsr__fail(TSR_ERR_TIMEOUT,
                     "rendezvous: rank %" PRId32 " could not join rank 0 at %.80s, port %d, "
                     "within %.1f s: %s%s%s",
                     params->rank, params->address, (int)params->port,
                     (double)params->timeout_ns * 1e-9, try->why, add_answer ? "; before: " : "",
                     add_answer ? try->answer : "");
}

static tsr_status keep_trying(attempt *try, uint64_t deadline_ns)
{
    const tsr__rendezvous_params *params = try->params;
    uint64_t pause = SHORTEST_PAUSE_NS;
    tsr_status status = TSR_OK;
    /* the reason that was logged last. It starts as "Connection refused", which is then not logged,
     * because connections are refused until rank 0 has started */
    char logged[sizeof try->why] = "Connection refused";
    while (!try_to_join(try, deadline_ns, &status)) {
        if (status != TSR_OK)
            return status;
        uint64_t now = tsr__now_ns();
        if (now >= deadline_ns || (try->give_up_ns != 0 && now >= try->give_up_ns))
            return fail_to_join(try);
        if (strcmp(logged, try->why) != 0 && params->size > 0)
            tsr__log(TSR_LOG_WARNING,
                     "rendezvous: rank %" PRId32 " cannot join rank 0 at %.80s, port %d, yet: %s",
                     params->rank, params->address, (int)params->port, try->why);
        else if (strcmp(logged, try->why) != 0)
            tsr__log(TSR_LOG_INFO,
                     "rendezvous: this process cannot join the job at %.80s, port %d, yet: %s",
                     params->address, (int)params->port, try->why);
        memcpy(logged, try->why, sizeof logged);
        uint64_t rest = tsr__min_u64(pause, deadline_ns - now);
        nanosleep(&(struct timespec){.tv_nsec = (long)rest}, NULL);
        pause = tsr__min_u64(pause * 3 / 2,
                             params->size > 0 ? LONGEST_PAUSE_NS : LONGEST_JOIN_PAUSE_NS);
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
    if (params->size == 0)
        tsr__client_set_size(client, TSR__CLIENT_INTRODUCTION_SIZE);
    *out = client;
    return TSR_OK;
}

tsr_status tsr__client_adopt(int32_t rank, int32_t size, const tsr__channel *channel,
                             tsr__client **out)
{
    tsr__client *client = tsr__calloc(1, sizeof *client);
    if (client == NULL)
        return TSR_ERR_NO_MEMORY;
    *client = (tsr__client){.rank = rank, .size = size, .channel = *channel};
    expect_answers(&client->channel, size);
    *out = client;
    return TSR_OK;
}

void tsr__client_set_size(tsr__client *client, int32_t size)
{
    client->size = size;
    client->channel.max_gathered = (uint64_t)size * (4 + TSR__BOOTSTRAP_MAX_BYTES);
}

/* Handles ABORT: fails with the error that rank 0 has sent. */
static tsr_status fail_as_rank_zero(const uint8_t *payload, uint64_t size)
{
    int32_t code = (int32_t)tsr__wire_get_u32(payload);
    if (code >= TSR_OK || code < TSR_ERR_PEER_LOST)
        code = TSR_ERR_PEER_LOST;
    return tsr__fail((tsr_status)code, "%.*s", (int)(size - 4), (const char *)payload + 4);
}

/* Decodes GATHERED. The message is authenticated; its sizes are checked nevertheless, so that an
 * error of rank 0 cannot cause reads past the end. */
static tsr_status decode_gathered(const tsr__client *client, const uint8_t *payload, uint64_t size,
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
        status =
            tsr__fail(TSR_ERR_INVALID,
                      "rendezvous: rank 0 sent a result of %" PRIu64 " bytes instead of %" PRIu64,
                      size, total);
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
    deadline = deadline > UINT64_MAX - GRACE_NS ? deadline : deadline + GRACE_NS;
    tsr__channel_event event = send_and_receive(channel, deadline, &why);
    /* stop sending: the payload belongs to the caller, who may free it now */
    channel->sending = false;
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
        return tsr__fail(TSR_ERR_PEER_LOST, "rendezvous: rank 0 at %s is lost: %s", channel->peer,
                         why);
    }
    uint64_t size;
    const uint8_t *payload = tsr__channel_payload(channel, &size);
    if (channel->type == TSR__WIRE_ABORT)
        return fail_as_rank_zero(payload, size);
    tsr_status status = decode_gathered(client, payload, size, out);
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
