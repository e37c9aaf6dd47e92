/* Rendezvous of ranks that succeed, and those that fail. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/job.h"
#include "bootstrap/raw_client.h"
#include "comm/bootstrap/address.h"
#include "support/check_main.h"

/* A timeout for ranks that must time out, but only after the others have joined. It is long enough
 * for that on a busy machine. */
#define JOINED_NS (2 * TSR__SECOND)

static tsr__rendezvous_params params[JOB_MAX];
static uint16_t port;

static void prepare(int size, uint64_t timeout_ns)
{
    port = job_port();
    for (int rank = 0; rank < size; rank++) {
        params[rank] = job_params(rank, size, port);
        params[rank].timeout_ns = timeout_ns;
    }
}

static void assert_end(int slot, tsr_status status, const char *error)
{
    const job_rank *end = job_wait(slot);
    ck_assert_str_eq(end->error, error);
    ck_assert_str_eq(tsr_status_name(end->status), tsr_status_name(status));
}

/* Replaces PORT in a text by the number. */
static void set_port(char *text, size_t size, const char *with_port)
{
    const char *at = strstr(with_port, "PORT");
    ck_assert_ptr_nonnull(at);
    snprintf(text, size, "%.*s%d%s", (int)(at - with_port), with_port, (int)port, at + 4);
}

static const int sizes[] = {2, 3, 5, 16};

START_TEST(all_meet)
{
    int size = sizes[_i];
    prepare(size, 20 * TSR__SECOND);
    for (int rank = 0; rank < size; rank++) /* rank 0 starts last */
        job_start(rank, job_meet, &params[size - 1 - rank]);
    for (int rank = 0; rank < size; rank++)
        assert_end(rank, TSR_OK, "");
}
END_TEST

START_TEST(missing_ranks_are_named)
{
    char expected[256];
    prepare(5, JOINED_NS);
    static const int here[] = {0, 2, 4};
    for (int i = 0; i < 3; i++)
        job_start(here[i], job_meet, &params[here[i]]);
    set_port(expected, sizeof expected,
             "rendezvous: after 2.0 s rank 0, which listens on 127.0.0.1:PORT, is still waiting "
             "for these of 5 "
             "ranks: 1, 3");
    for (int i = 0; i < 3; i++) {
        assert_end(here[i], TSR_ERR_TIMEOUT, expected);
        ck_assert_uint_lt(job_look(here[i])->took_ns, 20 * TSR__SECOND);
    }
}
END_TEST

START_TEST(many_missing_ranks_are_counted)
{
    char expected[512];
    params[0] = job_params(0, 40, port = job_port());
    params[0].timeout_ns = TSR__SECOND / 10;
    job_start(0, job_meet, &params[0]);
    set_port(expected, sizeof expected,
             "rendezvous: after 0.1 s rank 0, which listens on 127.0.0.1:PORT, is still waiting "
             "for these of 40 "
             "ranks: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 and 23 more");
    assert_end(0, TSR_ERR_TIMEOUT, expected);
}
END_TEST

START_TEST(a_missing_rank_zero_is_named)
{
    char expected[256];
    prepare(2, TSR__SECOND / 2);
    job_start(1, job_meet, &params[1]);
    set_port(expected, sizeof expected,
             "rendezvous: rank 1 could not join rank 0 at 127.0.0.1, port PORT, within 0.5 s: "
             "Connection refused");
    assert_end(1, TSR_ERR_TIMEOUT, expected);
    ck_assert_uint_lt(job_look(1)->took_ns, 20 * TSR__SECOND);
    ck_assert_int_eq(job_count(1, "cannot join"), 0); /* it is usual that rank 0 starts later */
}
END_TEST

/* If the tokens differ, for example because one was mistyped, both sides name the cause. */
START_TEST(another_token_is_named)
{
    char expected[256];
    prepare(2, JOINED_NS);
    params[1].token = "another token altogether";
    params[1].token_size = strlen(params[1].token);
    job_start(0, job_meet, &params[0]);
    job_start(1, job_meet, &params[1]);
    ck_assert_ptr_nonnull(strstr(job_wait(1)->error, ": rank 0 has another TESSERA_TOKEN"));
    set_port(
        expected, sizeof expected,
        "rendezvous: after 2.0 s rank 0, which listens on 127.0.0.1:PORT, is still waiting for "
        "these of 2 ranks: 1; it refused a process at 127.0.0.1:");
    const job_rank *zero = job_wait(0);
    ck_assert_int_eq(strncmp(zero->error, expected, strlen(expected)), 0);
    ck_assert_ptr_nonnull(strstr(zero->error, ": as rank 1 it has another TESSERA_TOKEN"));
    ck_assert_str_eq(tsr_status_name(zero->status), "TSR_ERR_TIMEOUT");
    ck_assert_int_eq(job_count(1, "yet: rank 0 has another TESSERA_TOKEN\n"), 1);
}
END_TEST

/* A process of another job soon stops trying. Rank 0 keeps waiting for its own ranks. If none
 * comes, its error names the process that it refused. */
START_TEST(another_job_is_refused)
{
    char expected[512];
    prepare(2, 10 * TSR__SECOND);
    params[0].timeout_ns = 3 * TSR__SECOND;
    strcpy(params[0].identity.executable, "/home/me/a");
    strcpy(params[1].identity.executable, "/home/me/b");
    job_start(0, job_meet, &params[0]);
    job_start(1, job_meet, &params[1]);
    set_port(
        expected, sizeof expected,
        "rendezvous: rank 1 was refused by rank 0 of another job at 127.0.0.1, port PORT: rank "
        "0 runs another executable, this process runs '/home/me/b'; set another "
        "TESSERA_MASTER_PORT for one of the jobs, or, if they are to be one job, the same "
        "TESSERA_JOB_ID for all its ranks");
    assert_end(1, TSR_ERR_INVALID, expected);
    ck_assert_uint_lt(job_look(1)->took_ns, 20 * TSR__SECOND);
    const job_rank *zero = job_wait(0);
    ck_assert_str_eq(tsr_status_name(zero->status), "TSR_ERR_TIMEOUT");
    ck_assert_ptr_nonnull(strstr(zero->error,
                                 ": as rank 1 it runs another executable, this process "
                                 "runs '/home/me/a'"));
}
END_TEST

/* A rank 0 must be able to start while the previous job still uses the port. */
START_TEST(the_port_of_a_job_that_ends_may_be_used)
{
    prepare(2, 20 * TSR__SECOND);
    strcpy(params[0].identity.slurm, "7.0");
    strcpy(params[1].identity.slurm, "8.0");
    job_start(0, job_meet, &params[0]);
    job_start(1, job_meet, &params[1]);
    job_wait_for(1, "yet: rank 0 belongs to another Slurm job or step, this process to 8.0\n", 1);
    job_kill(0);
    static tsr__rendezvous_params own;
    own = params[1];
    own.rank = 0;
    job_start(0, job_meet, &own);
    assert_end(0, TSR_OK, "");
    assert_end(1, TSR_OK, "");
}
END_TEST

/* A rank must not trust a process that listens at the port without knowing the token. */
START_TEST(a_false_rank_zero_is_not_trusted)
{
    char expected[256];
    prepare(3, JOINED_NS);
    params[0].token = "some token or other";
    params[0].token_size = strlen(params[0].token);
    job_start(1, job_meet, &params[1]);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    tsr__address address;
    ck_assert_ok(tsr__address_find("127.0.0.1", port, UINT64_MAX, &address));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address.storage, address.size), 0);
    ck_assert_int_eq(listen(listener, 16), 0);
    int fd = accept(listener, NULL, NULL);
    ck_assert_int_ge(fd, 0);
    uint8_t heard[400] = {0}, said[400];
    client_receive(fd, heard, TSR__WIRE_HEADER + TSR__WIRE_HELLO_SIZE);
    client_send(fd, said, client_message(said, TSR__WIRE_CHALLENGE, heard, TSR__WIRE_NONCE));
    client_receive(fd, heard, TSR__WIRE_HEADER + TSR__WIRE_PROOF_SIZE);
    /* answers with the rank's own proof */
    client_send(fd, said,
                client_message(said, TSR__WIRE_WELCOME, heard + TSR__WIRE_HEADER, TSR__WIRE_MAC));
    client_receive_until_closed(fd, heard, sizeof heard, 2000);
    close(fd);
    close(listener);
    set_port(expected, sizeof expected,
             "rendezvous: rank 1 could not join rank 0 at 127.0.0.1, port PORT, within 2.0 s: "
             "Connection refused; before: the process that answers is not rank 0 of this job");
    assert_end(1, TSR_ERR_TIMEOUT, expected);
    ck_assert_int_eq(job_count(1, "yet: the process that answers is not rank 0 of this job\n"), 1);
}
END_TEST

/* Leaves one free file descriptor, which the listening socket takes, so that no connection can
 * be accepted. */
static tsr_status meet_without_descriptors(int slot, void *user)
{
    int next = dup(0);
    close(next);
    if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)next + 1, (rlim_t)next + 1}) != 0)
        return tsr__fail(TSR_ERR_IO, "setrlimit");
    return job_meet(slot, user);
}

START_TEST(too_few_descriptors_are_named)
{
    char expected[256];
    prepare(2, JOINED_NS);
    job_start(0, meet_without_descriptors, &params[0]);
    job_start(1, job_meet, &params[1]);
    set_port(expected, sizeof expected,
             "rendezvous: after 2.0 s rank 0, which listens on 127.0.0.1:PORT, is still waiting "
             "for these of 2 "
             "ranks: 1; it cannot accept connections: Too many open files");
    assert_end(0, TSR_ERR_TIMEOUT, expected);
    ck_assert_int_eq(job_count(0, "cannot accept a connection: Too many open files\n"), 1);
    ck_assert_int_eq(job_wait(1)->status, TSR_ERR_TIMEOUT);
}
END_TEST

START_TEST(a_taken_port_is_named)
{
    char expected[256];
    prepare(2, 20 * TSR__SECOND);
    tsr__address address;
    ck_assert_ok(tsr__address_find("127.0.0.1", port, UINT64_MAX, &address));
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address.storage, address.size), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    job_start(0, job_meet, &params[0]);
    set_port(expected, sizeof expected,
             "rendezvous: rank 0 cannot listen on 127.0.0.1:PORT (MASTER_ADDR is '127.0.0.1'): "
             "Address already in use; TESSERA_MASTER_PORT chooses another port");
    assert_end(0, TSR_ERR_IO, expected);
    ck_assert_uint_lt(job_look(0)->took_ns, 20 * TSR__SECOND); /* at once */
    close(listener);
}
END_TEST

static const struct {
    const char *address, *error;
    tsr_status status;
    bool token;
} addresses[] = {
    {"0.0.0.0",
     "rendezvous: MASTER_ADDR is '0.0.0.0': it stands for all addresses of a machine, not for one",
     TSR_ERR_INVALID, true},
    {"::", "rendezvous: MASTER_ADDR is '::': it stands for all addresses of a machine, not for one",
     TSR_ERR_INVALID, true},
    {"192.0.2.1",
     "rendezvous: TESSERA_TOKEN is not set, but 192.0.2.1:4242 can be reached from other machines",
     TSR_ERR_INVALID, false},
    {"192.0.2.1",
     "rendezvous: rank 0 cannot listen on 192.0.2.1:4242 (MASTER_ADDR is '192.0.2.1'): Cannot "
     "assign requested address",
     TSR_ERR_IO, true},
};

START_TEST(invalid_addresses_are_named)
{
    tsr__rendezvous *rendezvous = NULL;
    params[0] = job_params(0, 2, 4242);
    params[0].address = addresses[_i].address;
    params[0].token_size = addresses[_i].token ? params[0].token_size : 0;
    tsr_status status = tsr__rendezvous_open(&params[0], &rendezvous);
    ck_assert_str_eq(tsr_last_error(), addresses[_i].error);
    ck_assert_str_eq(tsr_status_name(status), tsr_status_name(addresses[_i].status));
    ck_assert_ptr_null(rendezvous);
}
END_TEST

START_TEST(other_ranks_need_a_token_too)
{
    tsr__rendezvous *rendezvous = NULL;
    params[1] = job_params(1, 2, 4242);
    params[1].address = "192.0.2.1";
    params[1].token = NULL;
    params[1].token_size = 0;
    ck_assert_error(
        tsr__rendezvous_open(&params[1], &rendezvous), TSR_ERR_INVALID,
        "rendezvous: TESSERA_TOKEN is not set, but 192.0.2.1:4242 is on another machine");
}
END_TEST

/* Runs over IPv6, if the machine has it. */
START_TEST(over_ipv6)
{
    tsr__address address;
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    ck_assert_ok(tsr__address_find("::1", 4242, UINT64_MAX, &address));
    ck_assert_str_eq(address.text, "[::1]:4242");
    ck_assert(address.loopback);
    tsr__address any_port = address;
    prepare(2, 20 * TSR__SECOND);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&any_port.storage, any_port.size) == 0) {
        for (int rank = 0; rank < 2; rank++) {
            params[rank].address = "::1";
            job_start(rank, job_meet, &params[rank]);
        }
        assert_end(0, TSR_OK, "");
        assert_end(1, TSR_OK, "");
    }
}
END_TEST

/* Tests failures after all ranks have joined. */

static tsr_status join_and_leave(int slot, void *user)
{
    tsr__rendezvous *rendezvous;
    (void)slot;
    TSR__TRY(tsr__rendezvous_open(user, &rendezvous));
    tsr_status status = job_exchange(rendezvous, user, 100);
    tsr__rendezvous_close(&rendezvous);
    return status;
}

static tsr_status join_and_wait(int slot, void *user)
{
    tsr__rendezvous *rendezvous;
    (void)slot;
    TSR__TRY(tsr__rendezvous_open(user, &rendezvous));
    TSR__TRY(job_exchange(rendezvous, user, 100));
    pause();
    return TSR_OK;
}

START_TEST(a_lost_rank_is_named)
{
    prepare(4, 20 * TSR__SECOND);
    for (int rank = 0; rank < 4; rank++)
        job_start(rank, rank == 2 ? join_and_leave : job_meet, &params[rank]);
    for (int rank = 0; rank < 4; rank++)
        if (rank == 2)
            assert_end(rank, TSR_OK, "");
        else
            assert_end(rank, TSR_ERR_PEER_LOST,
                       "rendezvous: rank 2 is lost: it closed the connection");
}
END_TEST

enum { MUCH = TSR__BOOTSTRAP_MAX_BYTES }; /* a few exceed a connection's small buffers */

static tsr_status contribute_much(int slot, void *user)
{
    static const uint8_t block[MUCH];
    tsr__rendezvous *rendezvous;
    tsr__bootstrap_gathered blocks;
    tsr__bootstrap_limit limit = tsr__bootstrap_limit_from_now(20 * TSR__SECOND);
    (void)slot;
    TSR__TRY(tsr__rendezvous_open(user, &rendezvous));
    for (int fd = 3; fd < 64; fd++) /* by default loopback buffers megabytes */
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){16384}, sizeof(int));
    tsr_status status = tsr__rendezvous_exchange(rendezvous, block, sizeof block, &limit, &blocks);
    if (status == TSR_OK)
        tsr__bootstrap_gathered_finish(&blocks);
    tsr__rendezvous_close(&rendezvous);
    return status;
}

/* The last rank reads the result late, and the others may already have left. */
START_TEST(a_rank_that_has_the_result_may_leave)
{
    enum { SIZE = 5, ANSWER = TSR__WIRE_HEADER + TSR__WIRE_SEAL + 4 * SIZE + 50 };
    static uint8_t answer[ANSWER + (SIZE - 1) * MUCH];
    prepare(SIZE, 20 * TSR__SECOND);
    for (int rank = 0; rank < SIZE - 1; rank++)
        job_start(rank, contribute_much, &params[rank]);
    tsr__wire_handshake handshake = {.rank = SIZE - 1, .size = SIZE};
    uint8_t body[64], spoken[400], key[TSR__WIRE_MAC], message[400] = {0};
    size_t spoken_size;
    int fd = client_connect(port);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){16384}, sizeof(int)), 0);
    ck_assert_int_eq(client_join(fd, &handshake, params[1].token, NULL, body, spoken, &spoken_size),
                     TSR__WIRE_WELCOME);
    tsr__wire_prove("key", params[1].token, params[1].token_size, &handshake, key);
    tsr__wire_header(TSR__WIRE_CONTRIBUTION, 50 + TSR__WIRE_SEAL, message);
    tsr__wire_seal("rank", key, message, 0, message + TSR__WIRE_HEADER + 8, 50,
                   message + TSR__WIRE_HEADER + 8 + 50);
    client_send(fd, message, TSR__WIRE_HEADER + 50 + TSR__WIRE_SEAL);
    for (int rank = 1; rank < SIZE - 1; rank++)
        assert_end(rank, TSR_OK, "");
    client_receive(fd, answer, sizeof answer);
    assert_end(0, TSR_OK, "");
    close(fd);
}
END_TEST

START_TEST(a_lost_rank_zero_is_named)
{
    char expected[256];
    prepare(3, 20 * TSR__SECOND);
    for (int rank = 0; rank < 3; rank++)
        job_start(rank, rank == 0 ? join_and_leave : job_meet, &params[rank]);
    set_port(expected, sizeof expected,
             "rendezvous: rank 0 at 127.0.0.1:PORT is lost: it closed the connection");
    assert_end(0, TSR_OK, "");
    assert_end(1, TSR_ERR_PEER_LOST, expected);
    assert_end(2, TSR_ERR_PEER_LOST, expected);
}
END_TEST

START_TEST(ranks_missing_in_an_exchange_are_named)
{
    prepare(4, JOINED_NS);
    for (int rank = 0; rank < 4; rank++)
        job_start(rank, rank == 1 || rank == 2 ? join_and_wait : job_meet, &params[rank]);
    static const char expected[] =
        "rendezvous: after 2.0 s these of 4 ranks have not joined the exchange: 1, 2";
    assert_end(0, TSR_ERR_TIMEOUT, expected);
    assert_end(3, TSR_ERR_TIMEOUT, expected);
    job_kill(1);
    job_kill(2);
}
END_TEST

/* Makes an exchange with a timeout of a minute, of which only a tenth of a second is left. */
static tsr_status exchange_late(int slot, void *user)
{
    tsr__rendezvous *rendezvous;
    tsr__bootstrap_gathered blocks;
    (void)slot;
    TSR__TRY(tsr__rendezvous_open(user, &rendezvous));
    TSR__TRY(job_exchange(rendezvous, user, 100));
    tsr__bootstrap_limit limit = {.timeout_ns = 60 * TSR__SECOND,
                                  .deadline_ns = tsr__deadline_ns(TSR__SECOND / 10)};
    tsr_status status = tsr__rendezvous_exchange(rendezvous, "x", 1, &limit, &blocks);
    tsr__rendezvous_close(&rendezvous);
    return status;
}

START_TEST(errors_name_the_whole_timeout)
{
    uint64_t begin = tsr__now_ns();
    prepare(2, 20 * TSR__SECOND);
    job_start(0, exchange_late, &params[0]);
    job_start(1, join_and_wait, &params[1]);
    assert_end(0, TSR_ERR_TIMEOUT,
               "rendezvous: after 60.0 s these of 2 ranks have not joined the exchange: 1");
    ck_assert_uint_lt(tsr__now_ns() - begin, 20 * TSR__SECOND);
    job_kill(1);
}
END_TEST

START_TEST(rank_zero_missing_in_an_exchange)
{
    char expected[256];
    prepare(2, JOINED_NS);
    job_start(0, join_and_wait, &params[0]);
    job_start(1, job_meet, &params[1]);
    set_port(expected, sizeof expected,
             "rendezvous: rank 0 at 127.0.0.1:PORT has not answered rank 1 within 2.0 s");
    assert_end(1, TSR_ERR_TIMEOUT, expected);
    job_kill(0);
}
END_TEST

/* A rank that dies before all have joined may be started again. */
START_TEST(a_restarted_rank_may_join)
{
    prepare(3, 20 * TSR__SECOND);
    job_start(0, job_meet, &params[0]);
    job_start(1, job_meet, &params[1]);
    job_wait_for(0, "rank 1 has joined", 1);
    job_kill(1);
    job_wait_for(0, "left: it closed the connection\n", 1);
    job_start(1, job_meet, &params[1]);
    job_start(2, job_meet, &params[2]);
    for (int rank = 0; rank < 3; rank++)
        assert_end(rank, TSR_OK, "");
}
END_TEST

/* A byte of a message after the proof is changed in transit. The receiver must notice. */
START_TEST(changed_messages_are_noticed)
{
    prepare(2, 20 * TSR__SECOND);
    job_start(0, job_meet, &params[0]);
    tsr__wire_handshake handshake = {.rank = 1, .size = 2};
    uint8_t body[64], spoken[400], key[TSR__WIRE_MAC], message[400] = {0};
    size_t spoken_size;
    int fd = client_connect(port);
    ck_assert_int_eq(client_join(fd, &handshake, params[1].token, NULL, body, spoken, &spoken_size),
                     TSR__WIRE_WELCOME);
    tsr__wire_prove("key", params[1].token, params[1].token_size, &handshake, key);
    tsr__wire_header(TSR__WIRE_CONTRIBUTION, 5 + TSR__WIRE_SEAL, message);
    static const char hello[5] = {'h', 'e', 'l', 'l', 'o'};
    memcpy(message + TSR__WIRE_HEADER + 8, hello, sizeof hello);
    tsr__wire_seal("rank", key, message, 0, hello, sizeof hello,
                   message + TSR__WIRE_HEADER + 8 + 5);
    message[TSR__WIRE_HEADER + 8] ^= 1;
    client_send(fd, message, TSR__WIRE_HEADER + 5 + TSR__WIRE_SEAL);
    assert_end(0, TSR_ERR_PEER_LOST,
               "rendezvous: rank 1 is lost: its message failed authentication");
    close(fd);
}
END_TEST

/* A message is sent twice. The receiver must notice. */
START_TEST(repeated_messages_are_noticed)
{
    prepare(2, 20 * TSR__SECOND);
    job_start(0, job_meet, &params[0]);
    tsr__wire_handshake handshake = {.rank = 1, .size = 2};
    uint8_t body[64], spoken[400], key[TSR__WIRE_MAC], message[400] = {0}, answer[1000];
    size_t spoken_size;
    int fd = client_connect(port);
    ck_assert_int_eq(client_join(fd, &handshake, params[1].token, NULL, body, spoken, &spoken_size),
                     TSR__WIRE_WELCOME);
    tsr__wire_prove("key", params[1].token, params[1].token_size, &handshake, key);
    tsr__wire_header(TSR__WIRE_CONTRIBUTION, 50 + TSR__WIRE_SEAL, message);
    memset(message + TSR__WIRE_HEADER + 8, 'b', 50);
    tsr__wire_seal("rank", key, message, 0, message + TSR__WIRE_HEADER + 8, 50,
                   message + TSR__WIRE_HEADER + 8 + 50);
    client_send(fd, message, TSR__WIRE_HEADER + 50 + TSR__WIRE_SEAL);
    client_receive(fd, answer, TSR__WIRE_HEADER + TSR__WIRE_SEAL + 2 * 4 + 50);
    client_send(fd, message, TSR__WIRE_HEADER + 50 + TSR__WIRE_SEAL);
    assert_end(0, TSR_ERR_PEER_LOST,
               "rendezvous: rank 1 is lost: its message failed authentication");
    close(fd);
}
END_TEST

TESTS(rendezvous)
{
    tcase_add_loop_test(tests, all_meet, 0, (int)(sizeof sizes / sizeof sizes[0]));
    tcase_add_test(tests, missing_ranks_are_named);
    tcase_add_test(tests, many_missing_ranks_are_counted);
    tcase_add_test(tests, a_missing_rank_zero_is_named);
    tcase_add_test(tests, another_token_is_named);
    tcase_add_test(tests, another_job_is_refused);
    tcase_add_test(tests, the_port_of_a_job_that_ends_may_be_used);
    tcase_add_test(tests, a_false_rank_zero_is_not_trusted);
    tcase_add_test(tests, too_few_descriptors_are_named);
    tcase_add_test(tests, a_taken_port_is_named);
    tcase_add_loop_test(tests, invalid_addresses_are_named, 0,
                        (int)(sizeof addresses / sizeof addresses[0]));
    tcase_add_test(tests, other_ranks_need_a_token_too);
    tcase_add_test(tests, over_ipv6);
    tcase_add_test(tests, a_lost_rank_is_named);
    tcase_add_test(tests, a_rank_that_has_the_result_may_leave);
    tcase_add_test(tests, a_lost_rank_zero_is_named);
    tcase_add_test(tests, ranks_missing_in_an_exchange_are_named);
    tcase_add_test(tests, errors_name_the_whole_timeout);
    tcase_add_test(tests, rank_zero_missing_in_an_exchange);
    tcase_add_test(tests, a_restarted_rank_may_join);
    tcase_add_test(tests, changed_messages_are_noticed);
    tcase_add_test(tests, repeated_messages_are_noticed);
}
