/* Any process can connect to rank 0. These tests connect as processes that should not: each must be
 * dropped and logged with the reason, and the real ranks must join nevertheless. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "bootstrap/job.h"
#include "bootstrap/raw_client.h"
#include "comm/bootstrap/rendezvous_server.h"
#include "support/check_main.h"

#define TOKEN "the token of the tests"
#define RANKS 3

static uint16_t port;
static tsr__rendezvous_params params[RANKS];
static uint8_t body[64], spoken[400];
static size_t spoken_size;

/* Starts rank 0, which waits for the others. */
static void start_rank_zero(uint64_t handshake_ns)
{
    port = job_port();
    for (int rank = 0; rank < RANKS; rank++) {
        params[rank] = job_params(rank, RANKS, port);
        params[rank].handshake_ns = handshake_ns;
    }
    job_start(0, job_meet, &params[0]);
}

/* Starts the other ranks. All must succeed within a short time. */
static void meet(void)
{
    for (int rank = 1; rank < RANKS; rank++)
        job_start(rank, job_meet, &params[rank]);
    for (int rank = RANKS - 1; rank >= 0; rank--) {
        const job_rank *end = job_wait(rank);
        ck_assert_msg(end->status == TSR_OK, "rank %d: %s", rank, end->error);
        if (rank > 0)
            ck_assert_uint_lt(end->took_ns, 5 * TSR__SECOND);
    }
}

/* Waits until rank 0 closes the connection. */
static void assert_closed(int fd, int limit_ms)
{
    uint8_t rest[256];
    (void)client_receive_until_closed(fd, rest, sizeof rest, limit_ms);
    close(fd);
}

static void assert_refused(int fd, tsr__wire_type type, int reason, const char *log)
{
    ck_assert_int_eq(type, TSR__WIRE_REFUSED);
    ck_assert_int_eq(body[0], reason);
    assert_closed(fd, 2000);
    job_wait_for(0, log, 1);
}

START_TEST(with_another_token)
{
    static const char *const tokens[] = {"", "the token of the test", "the token of the testz",
                                         "the token of the tests "};
    start_rank_zero(0);
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
        tsr__wire_handshake handshake = {.rank = 1, .size = RANKS};
        int fd = client_connect(port);
        tsr__wire_type type =
            client_join(fd, &handshake, tokens[i], NULL, body, spoken, &spoken_size);
        assert_refused(fd, type, TSR__WIRE_BAD_TOKEN, ": as rank 1 it has another TESSERA_TOKEN\n");
    }
    meet();
    ck_assert_int_eq(job_count(0, "dropped 127.0.0.1:"), 4);
}
END_TEST

/* A recorded handshake must not be accepted a second time. */
START_TEST(with_a_replayed_handshake)
{
    start_rank_zero(0);
    tsr__wire_handshake handshake = {.rank = 1, .size = RANKS};
    int fd = client_connect(port);
    ck_assert_int_eq(client_join(fd, &handshake, TOKEN, NULL, body, spoken, &spoken_size),
                     TSR__WIRE_WELCOME);
    uint8_t welcome[TSR__WIRE_MAC];
    tsr__wire_prove("zero", TOKEN, strlen(TOKEN), &handshake, welcome);
    ck_assert_mem_eq(welcome, body, sizeof welcome); /* rank 0 proves its identity, too */
    job_wait_for(0, "rank 1 has joined", 1);
    for (int i = 0; i < 2; i++) { /* while rank 1 is connected, and after it has left */
        int replay = client_connect(port);
        client_send(replay, spoken, spoken_size);
        assert_closed(replay, 2000);
        job_wait_for(0, ": as rank 1 it has another TESSERA_TOKEN\n", 1 + i);
        if (i == 0)
            close(fd);
        job_wait_for(0, "rank 1 at 127.0.0.1:", 1);
    }
    meet();
}
END_TEST

/* A proof must be valid for one rank only. */
START_TEST(with_the_proof_of_another_rank)
{
    start_rank_zero(0);
    tsr__wire_handshake handshake = {.rank = 1, .size = RANKS};
    int fd = client_connect(port);
    ck_assert_int_eq(client_hello(fd, &handshake, body), TSR__WIRE_CHALLENGE);
    memcpy(handshake.zero_nonce, body, sizeof handshake.zero_nonce);
    handshake.rank = 2;
    client_send(fd, spoken, client_proof("rank", TOKEN, NULL, &handshake, spoken));
    assert_closed(fd, 2000);
    /* The proof that rank 0 sends must not be valid for a rank, either. */
    fd = client_connect(port);
    handshake.rank = 1;
    ck_assert_int_eq(client_hello(fd, &handshake, body), TSR__WIRE_CHALLENGE);
    memcpy(handshake.zero_nonce, body, sizeof handshake.zero_nonce);
    client_send(fd, spoken, client_proof("zero", TOKEN, NULL, &handshake, spoken));
    assert_closed(fd, 2000);
    job_wait_for(0, ": as rank 1 it has another TESSERA_TOKEN\n", 2);
    meet();
}
END_TEST

static const struct {
    uint32_t rank, size;
    tsr__wire_reason reason;
    const char *log;
} impossible[] = {
    {3, 3, TSR__WIRE_BAD_RANK, ": its rank is 3, not one from 1 to 2\n"},
    {0, 3, TSR__WIRE_BAD_RANK, ": its rank is 0, not one from 1 to 2\n"},
    {4294967295u, 3, TSR__WIRE_BAD_RANK, ": its rank is 4294967295, not one from 1 to 2\n"},
    {1, 4, TSR__WIRE_BAD_SIZE, ": its WORLD_SIZE is 4, not 3\n"},
    {4, 5, TSR__WIRE_BAD_SIZE, ": its WORLD_SIZE is 5, not 3\n"},
    {1, 4294967295u, TSR__WIRE_BAD_SIZE, ": its WORLD_SIZE is 4294967295, not 3\n"},
};

START_TEST(as_an_impossible_rank)
{
    start_rank_zero(0);
    for (size_t i = 0; i < sizeof impossible / sizeof impossible[0]; i++) {
        tsr__wire_handshake handshake = {.rank = impossible[i].rank, .size = impossible[i].size};
        int fd = client_connect(port);
        tsr__wire_type type = client_hello(fd, &handshake, body);
        assert_refused(fd, type, (int)impossible[i].reason, impossible[i].log);
    }
    meet();
}
END_TEST

/* Two processes prove that they are the same rank, with the right token. The second must be
 * refused. */
START_TEST(as_a_rank_that_has_joined)
{
    start_rank_zero(0);
    tsr__wire_handshake handshake = {.rank = 1, .size = RANKS};
    int first = client_connect(port), second = client_connect(port);
    ck_assert_int_eq(client_join(first, &handshake, TOKEN, NULL, body, spoken, &spoken_size),
                     TSR__WIRE_WELCOME);
    tsr__wire_type type = client_join(second, &handshake, TOKEN, NULL, body, spoken, &spoken_size);
    assert_refused(second, type, TSR__WIRE_DUPLICATE,
                   ": rank 1 has already joined, from 127.0.0.1:");
    close(first); /* afterwards another process can be this rank */
    job_wait_for(0, "left: it closed the connection\n", 1);
    meet();
}
END_TEST

/* How the identity of a process may differ from that of rank 0: in one field, or in several, of
 * which the first is given as the reason. */
static const struct {
    const char *identity[TSR__IDENTITY_FIELDS];
    tsr__identity_field field;
    const char *log;
} others[] = {
    {{"a job", "1000", "/bin/a", "run", "3.0"},
     TSR__IDENTITY_JOB_ID,
     ": as rank 1 it has another TESSERA_JOB_ID\n"},
    {{NULL, "1001", "/bin/b", "run", "3.0"},
     TSR__IDENTITY_USER,
     ": as rank 1 it runs as another user, this process runs as user 1000\n"},
    {{NULL, NULL, "/bin/a", "run", "3.0"},
     TSR__IDENTITY_USER,
     ": as rank 1 it runs as another user, this process runs as user 1000\n"},
    {{NULL, "1000", "/bin/b", "run", "3.0"},
     TSR__IDENTITY_EXECUTABLE,
     ": as rank 1 it runs another executable, this process runs '/bin/a'\n"},
    {{NULL, "1000", "/bin/a", "another run", "3.0"},
     TSR__IDENTITY_TORCHRUN,
     ": as rank 1 it has another TORCHELASTIC_RUN_ID\n"},
    {{NULL, "1000", "/bin/a", NULL, "3.0"},
     TSR__IDENTITY_TORCHRUN,
     ": as rank 1 it has another TORCHELASTIC_RUN_ID\n"},
    {{NULL, "1000", "/bin/a", "run", "4.0"},
     TSR__IDENTITY_SLURM,
     ": as rank 1 it belongs to another Slurm job or step, this process to 3.0\n"},
};

START_TEST(of_another_job)
{
    static const char *const same[TSR__IDENTITY_FIELDS] = {NULL, "1000", "/bin/a", "run", "3.0"};
    start_rank_zero(0);
    job_kill(0);
    for (int rank = 0; rank < RANKS; rank++) {
        strcpy(params[rank].identity.user, "1000");
        strcpy(params[rank].identity.executable, "/bin/a");
        params[rank].identity.torchrun = "run";
        strcpy(params[rank].identity.slurm, "3.0");
    }
    job_start(0, job_meet, &params[0]);
    tsr__wire_handshake handshake = {.rank = 1, .size = RANKS};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        int fd = client_connect(port);
        tsr__wire_type type =
            client_join(fd, &handshake, TOKEN, others[i].identity, body, spoken, &spoken_size);
        assert_refused(fd, type, TSR__WIRE_OTHER_JOB + (int)others[i].field, others[i].log);
    }
    int fd = client_connect(port);
    ck_assert_int_eq(client_join(fd, &handshake, TOKEN, same, body, spoken, &spoken_size),
                     TSR__WIRE_WELCOME);
    close(fd);
    job_wait_for(0, "left: it closed the connection\n", 1);
    meet();
}
END_TEST

static const struct {
    tsr__wire_type type;
    uint64_t size;
    int byte; /* the byte of the header that is changed; −1: none */
    const char *log;
} headers[] = {
    {TSR__WIRE_HELLO, UINT64_MAX, -1, ": its message has an impossible size\n"},
    {TSR__WIRE_HELLO, UINT64_C(1) << 40, -1, ": its message has an impossible size\n"},
    {TSR__WIRE_HELLO, TSR__WIRE_HELLO_SIZE + 1, -1, ": its message has an impossible size\n"},
    {TSR__WIRE_HELLO, TSR__WIRE_HELLO_SIZE - 1, -1, ": its message has an impossible size\n"},
    {TSR__WIRE_HELLO, 0, -1, ": its message has an impossible size\n"},
    {TSR__WIRE_PROOF, TSR__WIRE_MAC, -1, ": it sent a message of an unexpected type\n"},
    {TSR__WIRE_CONTRIBUTION, 100, -1, ": it sent a message of an unexpected type\n"},
    {TSR__WIRE_GATHERED, 100, -1, ": it sent a message of an unexpected type\n"},
    {TSR__WIRE_ABORT, 100, -1, ": it sent a message of an unexpected type\n"},
    {TSR__WIRE_HELLO, TSR__WIRE_HELLO_SIZE, 0, ": it does not use this protocol\n"},
    {TSR__WIRE_HELLO, TSR__WIRE_HELLO_SIZE, 4, ": it uses another version of this protocol\n"},
    {TSR__WIRE_HELLO, TSR__WIRE_HELLO_SIZE, 5, ": its header is malformed\n"},
    {TSR__WIRE_HELLO, TSR__WIRE_HELLO_SIZE, 6, ": its header is malformed\n"},
};

START_TEST(with_invalid_headers)
{
    start_rank_zero(0);
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        uint8_t header[TSR__WIRE_HEADER];
        tsr__wire_header(headers[i].type, headers[i].size, header);
        if (headers[i].byte >= 0)
            header[headers[i].byte] ^= 0x80;
        int before = job_count(0, headers[i].log);
        int fd = client_connect(port);
        client_send(fd, header, sizeof header);
        assert_closed(fd, 2000);
        job_wait_for(0, headers[i].log, before + 1);
    }
    meet();
}
END_TEST

/* A client sends a HELLO, and at once more data. */
START_TEST(that_do_not_wait_for_an_answer)
{
    start_rank_zero(0);
    uint8_t twice[400];
    tsr__wire_handshake handshake = {.rank = 1, .size = RANKS};
    uint8_t hello[TSR__WIRE_HELLO_SIZE] = {0};
    tsr__wire_put_u32(hello, handshake.rank);
    tsr__wire_put_u32(hello + 4, handshake.size);
    size_t size = client_message(twice, TSR__WIRE_HELLO, hello, sizeof hello);
    memcpy(twice + size, twice, size);
    int fd = client_connect(port);
    client_send(fd, twice, 2 * size);
    assert_closed(fd, 2000);
    job_wait_for(0, ": it sent a message of an unexpected type\n", 1);
    meet();
}
END_TEST

/* A client that sends single bytes slowly delays no rank, and is dropped when the handshake takes
 * too long.
 */
START_TEST(that_are_slow)
{
    start_rank_zero(TSR__SECOND);
    uint8_t header[TSR__WIRE_HEADER];
    tsr__wire_header(TSR__WIRE_HELLO, TSR__WIRE_HELLO_SIZE, header);
    int silent = client_connect(port), slow = client_connect(port);
    uint64_t start = tsr__now_ns();
    for (int i = 0; i < 4; i++) {
        client_send(slow, header + i, 1);
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
    ck_assert_int_eq(job_count(0, "dropped"), 0);
    assert_closed(slow, 20000);
    assert_closed(silent, 20000);
    uint64_t took = tsr__now_ns() - start;
    ck_assert_uint_ge(took, TSR__SECOND * 9 / 10);
    ck_assert_uint_lt(took, 20 * TSR__SECOND);
    job_wait_for(0, ": its handshake took too long\n", 2);

    /* usually still connected when the ranks join */
    int other = client_connect(port);
    client_send(other, header, 1);
    meet();
    assert_closed(other, 3000);
    ck_assert_int_eq(job_count(0, ": all ranks have joined\n") +
                         job_count(0, ": its handshake took too long\n"),
                     3);
}
END_TEST

START_TEST(in_great_numbers)
{
    enum { COUNT = 1000 };
    start_rank_zero(0);
    srand(1);
    for (int i = 0; i < COUNT; i++) {
        uint8_t garbage[300];
        size_t size = TSR__WIRE_HEADER + (size_t)rand() % (sizeof garbage - TSR__WIRE_HEADER);
        for (size_t j = 0; j < size; j++)
            garbage[j] = (uint8_t)rand();
        int fd = client_connect(port);
        client_send(fd, garbage, size);
        close(fd);
        if (i == COUNT / 2) /* rank 1 starts between the connections */
            job_start(1, job_meet, &params[1]);
    }
    job_start(2, job_meet, &params[2]);
    for (int rank = 0; rank < RANKS; rank++)
        ck_assert_msg(job_wait(rank)->status == TSR_OK, "rank %d: %s", rank, job_look(rank)->error);
    ck_assert_int_eq(job_count(0, "dropped 127.0.0.1:"), COUNT);
}
END_TEST

/* Connections without data: closed at once, reset, or left open until there are too many. */
START_TEST(that_send_nothing)
{
    enum { COUNT = TSR__MAX_PENDING * 2 };
    int open_ones[COUNT];
    start_rank_zero(0);
    for (int i = 0; i < 50; i++) {
        int fd = client_connect(port);
        if (i % 2 == 0)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        close(fd);
    }
    job_wait_for(0, "dropped", 50);
    for (int i = 0; i < COUNT; i++)
        open_ones[i] = client_connect(port);
    job_wait_for(0, ": there are too many pending connections\n", COUNT - TSR__MAX_PENDING);
    meet();
    for (int i = 0; i < COUNT; i++)
        assert_closed(open_ones[i], 1000);
    ck_assert_int_eq(job_count(0, "dropped"), 50 + COUNT);
}
END_TEST

static tsr_status meet_with_few_files(int slot, void *user)
{
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){40, 40});
    return job_meet(slot, user);
}

START_TEST(that_exhaust_descriptors)
{
    enum { COUNT = 100 };
    start_rank_zero(0);
    job_kill(0);
    job_start(0, meet_with_few_files, &params[0]);
    for (int i = 0; i < COUNT; i++)
        (void)client_connect(port);
    job_wait_for(0, ": there are too many connections\n", COUNT - 40);
    meet();
}
END_TEST

/* A job without a token refuses a process that has one. */
START_TEST(on_loopback_without_a_token)
{
    start_rank_zero(0);
    job_kill(0);
    for (int rank = 0; rank < RANKS; rank++) {
        params[rank].token = NULL;
        params[rank].token_size = 0;
    }
    job_start(0, job_meet, &params[0]);
    tsr__wire_handshake handshake = {.rank = 1, .size = RANKS};
    int fd = client_connect(port);
    tsr__wire_type type = client_join(fd, &handshake, TOKEN, NULL, body, spoken, &spoken_size);
    assert_refused(fd, type, TSR__WIRE_BAD_TOKEN, ": as rank 1 it has another TESSERA_TOKEN\n");
    meet();
}
END_TEST

TESTS(intruders)
{
    tcase_add_test(tests, with_another_token);
    tcase_add_test(tests, with_a_replayed_handshake);
    tcase_add_test(tests, with_the_proof_of_another_rank);
    tcase_add_test(tests, as_an_impossible_rank);
    tcase_add_test(tests, as_a_rank_that_has_joined);
    tcase_add_test(tests, of_another_job);
    tcase_add_test(tests, with_invalid_headers);
    tcase_add_test(tests, that_do_not_wait_for_an_answer);
    tcase_add_test(tests, that_are_slow);
    tcase_add_test(tests, in_great_numbers);
    tcase_add_test(tests, that_send_nothing);
    tcase_add_test(tests, that_exhaust_descriptors);
    tcase_add_test(tests, on_loopback_without_a_token);
}
