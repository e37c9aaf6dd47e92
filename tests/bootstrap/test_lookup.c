/* Name services that fail, or answer late. The test replaces getaddrinfo for names that end in
 * .test. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "bootstrap/job.h"
#include "comm/bootstrap/address.h"
#include "support/check_main.h"

static atomic_int asked, answered; /* lookups in this process */

static int real_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                            struct addrinfo **out)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(host, service, hints, out);
}

static int answer(const char *name, const char *service, const struct addrinfo *hints,
                  struct addrinfo **out)
{
    const int before = atomic_fetch_add(&asked, 1);
    if (strcmp(name, "silent.test") == 0)
        nanosleep(&(struct timespec){.tv_sec = 60}, NULL);
    if (strcmp(name, "late.test") == 0)
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    if (strcmp(name, "never.test") == 0 || (strcmp(name, "again.test") == 0 && before < 2))
        return EAI_AGAIN;
    if (strcmp(name, "nothing.test") == 0)
        return EAI_NONAME;
    return real_getaddrinfo("127.0.0.1", service, hints, out);
}

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    size_t length = host != NULL ? strlen(host) : 0;
    if (length < 5 || strcmp(host + length - 5, ".test") != 0)
        return real_getaddrinfo(host, service, hints, out);
    if (hints != NULL && (hints->ai_flags & AI_NUMERICHOST))
        return EAI_NONAME;
    int code = answer(host, service, hints, out);
    atomic_fetch_add(&answered, 1);
    return code;
}

static tsr__rendezvous_params params[2];

static void prepare(const char *name, uint64_t timeout_ns)
{
    uint16_t port = job_port();
    for (int rank = 0; rank < 2; rank++) {
        params[rank] = job_params(rank, 2, port);
        params[rank].address = name;
        params[rank].timeout_ns = timeout_ns;
        job_start(rank, job_meet, &params[rank]);
    }
}

/* Waits for a rank. Its error text must be `before_port`, the port number and `after_port`. */
static void assert_timeout(int rank, const char *before_port, const char *after_port)
{
    char expected[256];
    const job_rank *end = job_wait(rank);
    snprintf(expected, sizeof expected, "%s", before_port);
    if (after_port != NULL)
        snprintf(expected, sizeof expected, "%s%d%s", before_port, (int)params[rank].port,
                 after_port);
    ck_assert_str_eq(end->error, expected);
    ck_assert_str_eq(tsr_status_name(end->status), "TSR_ERR_TIMEOUT");
    ck_assert_uint_lt(end->took_ns, 20 * TSR__SECOND);
}

START_TEST(lookups_are_retried)
{
    prepare("again.test", 20 * TSR__SECOND);
    for (int rank = 0; rank < 2; rank++) {
        ck_assert_str_eq(job_wait(rank)->error, "");
        ck_assert_int_eq(job_count(rank, "yet: Temporary failure in name resolution\n"), 1);
    }
}
END_TEST

START_TEST(until_the_deadline)
{
    prepare("never.test", TSR__SECOND / 2);
    assert_timeout(0,
                   "rendezvous: rank 0 could not look up MASTER_ADDR, which is 'never.test', "
                   "within 0.5 s: Temporary failure in name resolution",
                   NULL);
    assert_timeout(1, "rendezvous: rank 1 could not join rank 0 at never.test, port ",
                   ", within 0.5 s: Temporary failure in name resolution");
}
END_TEST

START_TEST(a_silent_name_service)
{
    prepare("silent.test", TSR__SECOND / 2);
    assert_timeout(0,
                   "rendezvous: rank 0 could not look up MASTER_ADDR, which is 'silent.test', "
                   "within 0.5 s: the name service does not answer",
                   NULL);
    assert_timeout(1, "rendezvous: rank 1 could not join rank 0 at silent.test, port ",
                   ", within 0.5 s: the name service does not answer");
}
END_TEST

START_TEST(a_name_that_does_not_exist)
{
    tsr__rendezvous *rendezvous = NULL;
    params[0] = job_params(0, 2, 4242);
    params[0].address = "nothing.test";
    ck_assert_error(tsr__rendezvous_open(&params[0], &rendezvous), TSR_ERR_INVALID,
                    "rendezvous: MASTER_ADDR is 'nothing.test': Name or service not known");
    ck_assert_int_eq(asked, 1);
}
END_TEST

/* The name service answers after the caller has given up. If the library did not free the
 * answer, a leak checker would report it. */
static tsr_status miss_the_answer(int slot, void *user)
{
    tsr__address address;
    (void)slot, (void)user;
    tsr_status status =
        tsr__address_find("late.test", 4242, tsr__deadline_ns(TSR__SECOND / 20), &address);
    while (answered == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    return status;
}

START_TEST(a_late_answer_leaks_nothing)
{
    job_start(0, miss_the_answer, NULL);
    ck_assert_str_eq(job_wait(0)->error, "the name service does not answer");
    ck_assert_str_eq(tsr_status_name(job_look(0)->status), "TSR_ERR_TIMEOUT");
}
END_TEST

TESTS(lookup)
{
    tcase_add_test(tests, lookups_are_retried);
    tcase_add_test(tests, until_the_deadline);
    tcase_add_test(tests, a_silent_name_service);
    tcase_add_test(tests, a_name_that_does_not_exist);
    tcase_add_test(tests, a_late_answer_leaks_nothing);
}
