#include "comm/bootstrap/rendezvous_server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/bootstrap/backend.h"

#define LOOKUP_PAUSE_NS 50000000
#define MAX_LISTED 16 /* the largest number of ranks that an error names */

static double seconds_of(uint64_t ns)
{
    return (double)ns * 1e-9;
}

/* Listens on rank 0's address. Fails at once if the port is in use, because the process that uses
 * the port is probably rank 0 of another job or of another run of this job. Ranks that start later
 * could join either of the two. */
static tsr_status listen_on(tsr__server *server)
{
    const tsr__address *address = &server->address;
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return tsr__fail(TSR_ERR_IO, "rendezvous: rank 0 cannot create a socket: %s",
                         strerror(errno));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (const struct sockaddr *)&address->storage, address->size) == 0 &&
        listen(fd, SOMAXCONN) == 0) {
        server->listener = fd;
        return TSR_OK;
    }
    int reason = errno;
    close(fd);
    return tsr__fail(TSR_ERR_IO,
                     "rendezvous: rank 0 cannot listen on %s (MASTER_ADDR is '%.80s'): %s%s",
                     address->text, server->params.address, strerror(reason),
                     reason == EADDRINUSE ? "; TESSERA_MASTER_PORT chooses another port" : "");
}

static void add_text(char *text, size_t size, const char *more)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s", more);
}

/* Lists the ranks that have not joined, or have not contributed to the exchange, as in "1, 3, 4 and
 * 7 more". */
static void list_missing(const tsr__server *server, char *text, size_t size)
{
    int32_t missing = 0;
    text[0] = '\0';
    for (int32_t rank = 1; rank < server->params.size; rank++) {
        const tsr__connection *connection = server->ranks[rank];
        if (connection != NULL && (server->listener >= 0 || connection->channel.complete))
            continue;
        char one[32];
        snprintf(one, sizeof one, "%s%" PRId32, missing == 0 ? "" : ", ", rank);
        if (missing++ < MAX_LISTED)
            add_text(text, size, one);
    }
    if (missing > MAX_LISTED) {
        char rest[48];
        snprintf(rest, sizeof rest, " and %" PRId32 " more", missing - MAX_LISTED);
        add_text(text, size, rest);
    }
}

/* Sends the error that this rank is about to return to all ranks that have joined. Does not
 * block. */
static tsr_status abort_all_ranks(tsr__server *server, tsr_status status)
{
    uint8_t payload[4 + TSR__WIRE_MAX_TEXT];
    size_t length = strlen(tsr_last_error());
    length = length < TSR__WIRE_MAX_TEXT ? length : TSR__WIRE_MAX_TEXT;
    tsr__wire_put_u32(payload, (uint32_t)(int32_t)status);
    memcpy(payload + 4, tsr_last_error(), length);
    for (int32_t rank = 1; rank < server->params.size; rank++) {
        tsr__connection *connection = server->ranks[rank];
        if (connection == NULL || tsr__channel_write(&connection->channel) != TSR__CHANNEL_DONE)
            continue;
        tsr__channel_put(&connection->channel, TSR__WIRE_ABORT, payload, 4 + length);
        (void)tsr__channel_write(&connection->channel);
        /* give up what could not be sent, because the payload is a local variable of this function
         */
        connection->channel.sending = false;
    }
    return status;
}

static tsr_status wait_for_ranks(tsr__server *server, uint64_t deadline_ns)
{
    char missing[MAX_LISTED * 8 + 64];
    while (server->joined < server->params.size - 1) {
        if (tsr__now_ns() >= deadline_ns) {
            list_missing(server, missing, sizeof missing);
            return tsr__fail(
                TSR_ERR_TIMEOUT,
                "rendezvous: after %.1f s rank 0, which listens on %s, is still waiting for these "
                "of "
                "%" PRId32 " ranks: %s%s%s%s%s",
                seconds_of(server->params.timeout_ns), server->address.text, server->params.size,
                missing, server->accept_errno != 0 ? "; it cannot accept connections: " : "",
                server->accept_errno != 0 ? strerror(server->accept_errno) : "",
                server->refused[0] != '\0' ? "; it refused a process at " : "", server->refused);
        }
        TSR__TRY(tsr__server_step(server, deadline_ns));
    }
    return TSR_OK;
}

/* Looks up MASTER_ADDR. After a temporary failure, tries again until the deadline. */
static tsr_status find_address(tsr__server *server, uint64_t deadline_ns)
{
    const tsr__rendezvous_params *params = &server->params;
    char why[160] = "";
    for (;;) {
        tsr_status status =
            tsr__address_find(params->address, params->port, deadline_ns, &server->address);
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
                             params->address, seconds_of(params->timeout_ns), why);
        if (first)
            tsr__log(TSR_LOG_WARNING,
                     "rendezvous: rank 0 cannot look up MASTER_ADDR, which is '%.80s', yet: %s",
                     params->address, why);
        nanosleep(&(struct timespec){.tv_nsec = LOOKUP_PAUSE_NS}, NULL);
    }
}

static tsr_status allocate_server(tsr__server *server, size_t size)
{
    server->listener = -1;
    server->lost_rank = -1;
    server->ranks = tsr__calloc(size, sizeof(tsr__connection *));
    server->polled = tsr__calloc(size + TSR__MAX_PENDING, sizeof(tsr__connection *));
    server->polls = tsr__calloc(size + TSR__MAX_PENDING + 1, sizeof *server->polls);
    if (server->ranks == NULL || server->polled == NULL || server->polls == NULL)
        return TSR_ERR_NO_MEMORY;
    return TSR_OK;
}

static tsr_status prepare_server(const tsr__rendezvous_params *params, uint64_t deadline_ns,
                                 tsr__server *server)
{
    server->params = *params;
    TSR__TRY(allocate_server(server, (size_t)params->size));
    TSR__TRY(find_address(server, deadline_ns));
    TSR__REQUIRE(server->address.loopback || params->token_size > 0,
                 "rendezvous: TESSERA_TOKEN is not set, but %s can be reached from other machines",
                 server->address.text);
    return TSR_OK;
}

/* Opens a server and gathers its ranks with `wait`. If that fails and `tells` is set, the ranks
 * that have come are told the error. */
static tsr_status open_server(const tsr__rendezvous_params *params,
                              tsr_status (*wait)(tsr__server *server, uint64_t deadline),
                              bool tells, tsr__server **out)
{
    const uint64_t deadline = tsr__deadline_ns(params->timeout_ns);
    tsr__server *server = tsr__calloc(1, sizeof *server);
    if (server == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = prepare_server(params, deadline, server);
    if (status == TSR_OK)
        status = listen_on(server);
    if (status == TSR_OK)
        status = wait(server, deadline);
    if (status != TSR_OK) {
        if (tells && server->ranks != NULL)
            abort_all_ranks(server, status);
        tsr__server_close(&server);
        return status;
    }
    tsr__server_stop_listening(server);
    server->params.token = NULL; /* the token belongs to the caller and is not needed any more */
    *out = server;
    return TSR_OK;
}

tsr_status tsr__server_open(const tsr__rendezvous_params *params, tsr__server **out)
{
    return open_server(params, wait_for_ranks, true, out);
}

tsr_status tsr__server_adopt(int32_t size, const tsr__channel *channels, tsr__server **out)
{
    tsr__server *server = tsr__calloc(1, sizeof *server);
    if (server == NULL)
        return TSR_ERR_NO_MEMORY;
    server->params.size = size;
    tsr_status status = allocate_server(server, (size_t)size);
    for (int32_t rank = 1; status == TSR_OK && rank < size; rank++) {
        server->ranks[rank] = tsr__calloc(1, sizeof(tsr__connection));
        status = server->ranks[rank] == NULL ? TSR_ERR_NO_MEMORY : TSR_OK;
        if (status == TSR_OK) /* the caller keeps the sockets if creating a connection fails */
            server->ranks[rank]->channel.fd = -1;
    }
    if (status != TSR_OK) {
        tsr__server_close(&server);
        return status;
    }
    for (int32_t rank = 1; rank < size; rank++) {
        tsr__connection *connection = server->ranks[rank];
        connection->channel = channels[rank];
        connection->stage = TSR__CONNECTION_JOINED;
        connection->handshake.rank = (uint32_t)rank;
        tsr__channel_take(&connection->channel, 1u << TSR__WIRE_CONTRIBUTION);
    }
    server->joined = size - 1;
    *out = server;
    return TSR_OK;
}

static tsr_status fail_lost(const tsr__server *server)
{
    return tsr__fail(TSR_ERR_PEER_LOST, "rendezvous: rank %" PRId32 " is lost: %s",
                     server->lost_rank, server->lost_why);
}

static tsr_status wait_for_contributions(tsr__server *server, const tsr__bootstrap_limit *limit)
{
    char missing[MAX_LISTED * 8 + 64];
    for (;;) {
        if (server->lost_rank >= 0)
            return fail_lost(server);
        int32_t here = 1;
        for (int32_t rank = 1; rank < server->params.size; rank++)
            here += server->ranks[rank]->channel.complete;
        if (here == server->params.size)
            return TSR_OK;
        if (tsr__now_ns() >= limit->deadline_ns) {
            list_missing(server, missing, sizeof missing);
            return tsr__fail(TSR_ERR_TIMEOUT,
                             "rendezvous: after %.1f s these of %" PRId32
                             " ranks have not joined the exchange: %s",
                             seconds_of(limit->timeout_ns), server->params.size, missing);
        }
        TSR__TRY(tsr__server_step(server, limit->deadline_ns));
    }
}

/* Copies the contributions of all ranks into `all`. Also allocates *answer, the payload of
 * GATHERED, which has the same contributions and is sent to every rank. */
static tsr_status collect_contributions(tsr__server *server, const void *mine, uint64_t size_bytes,
                                        tsr__bootstrap_gathered *all, uint8_t **answer,
                                        uint64_t *answer_size)
{
    int32_t size = server->params.size;
    uint64_t *sizes = tsr__calloc((size_t)size, sizeof *sizes);
    if (sizes == NULL)
        return TSR_ERR_NO_MEMORY;
    sizes[0] = size_bytes;
    for (int32_t rank = 1; rank < size; rank++)
        (void)tsr__channel_payload(&server->ranks[rank]->channel, &sizes[rank]);
    tsr_status status = tsr__bootstrap_gathered_init(size, sizes, all);
    if (status == TSR_OK) {
        *answer_size = 4 * (uint64_t)size + all->starts[size];
        *answer = tsr__calloc((size_t)*answer_size, 1);
        status = *answer == NULL ? TSR_ERR_NO_MEMORY : TSR_OK;
    }
    for (int32_t rank = 0; status == TSR_OK && rank < size; rank++) {
        const void *block = mine;
        if (rank > 0) {
            block = tsr__channel_payload(&server->ranks[rank]->channel, &sizes[rank]);
        }
        if (sizes[rank] > 0)
            memcpy(all->bytes + all->starts[rank], block, (size_t)sizes[rank]);
        tsr__wire_put_u32(*answer + 4 * (size_t)rank, (uint32_t)sizes[rank]);
        if (rank > 0)
            tsr__channel_take(&server->ranks[rank]->channel, 1u << TSR__WIRE_CONTRIBUTION);
    }
    if (status == TSR_OK)
        memcpy(*answer + 4 * (size_t)size, all->bytes, (size_t)all->starts[size]);
    tsr__free(sizes);
    return status;
}

/* Sends the messages that have been put into the channels of the ranks. Fails if that is not
 * complete at the limit's deadline. */
static tsr_status send_all(tsr__server *server, const tsr__bootstrap_limit *limit)
{
    for (;;) {
        int32_t slow = 0;
        for (int32_t rank = 1; rank < server->params.size; rank++) {
            tsr__connection *connection = server->ranks[rank];
            /* skip a rank that is lost: the other ranks still receive the answer */
            if (connection == NULL)
                continue;
            tsr__channel_event event = tsr__channel_write(&connection->channel);
            if (event == TSR__CHANNEL_CLOSED)
                tsr__server_lose(server, rank, "the connection broke");
            if (event == TSR__CHANNEL_MORE)
                slow = rank;
        }
        /* A rank that leaves after it has received the answer is no error here, even if others are
         * still receiving theirs. If there is another exchange, that one fails. */
        if (slow == 0)
            return server->lost_early ? fail_lost(server) : TSR_OK;
        if (tsr__now_ns() >= limit->deadline_ns)
            return tsr__fail(TSR_ERR_TIMEOUT,
                             "rendezvous: after %.1f s rank %" PRId32
                             " has not received the result of an exchange",
                             seconds_of(limit->timeout_ns), slow);
        TSR__TRY(tsr__server_step(server, limit->deadline_ns));
    }
}

static tsr_status send_answer(tsr__server *server, const uint8_t *answer, uint64_t answer_size,
                              const tsr__bootstrap_limit *limit)
{
    for (int32_t rank = 1; rank < server->params.size; rank++)
        tsr__channel_put(&server->ranks[rank]->channel, TSR__WIRE_GATHERED, answer,
                         (size_t)answer_size);
    return send_all(server, limit);
}

/* Removes the pointers to the answer from all channels, because the answer is about to be freed. */
static void detach_answer(tsr__server *server)
{
    for (int32_t rank = 1; rank < server->params.size; rank++)
        if (server->ranks[rank] != NULL)
            server->ranks[rank]->channel.sending = false;
}

tsr_status tsr__server_exchange(tsr__server *server, const void *mine, uint64_t size_bytes,
                                const tsr__bootstrap_limit *limit, tsr__bootstrap_gathered *out)
{
    uint64_t answer_size = 0;
    uint8_t *answer = NULL;
    tsr__bootstrap_gathered all = {0};
    tsr_status status = wait_for_contributions(server, limit);
    if (status == TSR_OK)
        status = collect_contributions(server, mine, size_bytes, &all, &answer, &answer_size);
    if (status != TSR_OK)
        abort_all_ranks(server, status);
    else
        status = send_answer(server, answer, answer_size, limit);
    detach_answer(server);
    tsr__free(answer);
    if (status == TSR_OK)
        *out = all;
    else
        tsr__bootstrap_gathered_finish(&all);
    return status;
}

/* Growing -----------------------------------------------------------------------------------------
 */

/* Renumbers the joined processes 1, 2, …, because processes that have joined and ended again leave
 * gaps. */
static void close_gaps(tsr__server *server)
{
    int32_t next = 1;
    for (int32_t rank = 1; rank < server->params.size; rank++) {
        tsr__connection *connection = server->ranks[rank];
        if (connection == NULL)
            continue;
        server->ranks[rank] = NULL;
        server->ranks[next] = connection;
        connection->handshake.rank = (uint32_t)next++;
    }
    server->params.size = next;
}

static tsr_status wait_for_newcomers(tsr__server *server, uint64_t deadline_ns)
{
    while (server->joined < server->params.size - 1 && tsr__now_ns() < deadline_ns)
        TSR__TRY(tsr__server_step(server, deadline_ns));
    if (server->joined == 0)
        return tsr__fail(TSR_ERR_TIMEOUT, "no process has joined at %s within %.1f s%s%s",
                         server->address.text, seconds_of(server->params.timeout_ns),
                         server->refused[0] != '\0' ? "; refused a process at " : "",
                         server->refused);
    return TSR_OK;
}

tsr_status tsr__server_open_growing(const tsr__rendezvous_params *params, int32_t *joined,
                                    tsr__server **out)
{
    TSR__TRY(open_server(params, wait_for_newcomers, false, out));
    close_gaps(*out);
    *joined = (*out)->joined;
    return TSR_OK;
}

tsr_status tsr__server_introduce(tsr__server *server, int32_t old_size,
                                 const tsr__bootstrap_limit *limit)
{
    enum { SIZE = 4 + TSR__INTRODUCTION_SIZE };
    const int32_t size = server->params.size;
    uint8_t *answers = tsr__calloc((size_t)size, SIZE);
    tsr_status status = answers == NULL ? TSR_ERR_NO_MEMORY : TSR_OK;
    if (status == TSR_OK)
        status = wait_for_contributions(server, limit);
    for (int32_t rank = 1; rank < size && status == TSR_OK; rank++) {
        uint8_t *answer = answers + (size_t)rank * SIZE;
        tsr__wire_put_u32(answer, TSR__INTRODUCTION_SIZE);
        tsr__wire_put_u32(answer + 4, (uint32_t)old_size);
        tsr__wire_put_u32(answer + 8, (uint32_t)size - 1);
        tsr__wire_put_u32(answer + 12, (uint32_t)rank - 1);
        tsr__channel_take(&server->ranks[rank]->channel, 1u << TSR__WIRE_CONTRIBUTION);
        tsr__channel_put(&server->ranks[rank]->channel, TSR__WIRE_GATHERED, answer, SIZE);
    }
    if (status == TSR_OK)
        status = send_all(server, limit);
    detach_answer(server);
    tsr__free(answers);
    return status;
}

void tsr__server_abort(tsr__server *server, tsr_status status)
{
    (void)abort_all_ranks(server, status);
}

void tsr__server_close(tsr__server **server)
{
    if (*server == NULL)
        return;
    tsr__server_stop_listening(*server);
    for (int32_t rank = 1; (*server)->ranks != NULL && rank < (*server)->params.size; rank++)
        tsr__connection_close(&(*server)->ranks[rank]);
    tsr__free((*server)->polls);
    tsr__free((*server)->polled);
    tsr__free((*server)->ranks);
    tsr__free(*server);
    *server = NULL;
}
