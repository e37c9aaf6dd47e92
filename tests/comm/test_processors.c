/* Tests the decision whether the ranks of one machine have to take turns on its processors. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <sched.h>

#include "comm/api/processors.h"
#include "comm/comm_state.h"
#include "comm/ranks.h"

START_TEST(counts_ranks_and_processors_of_one_machine)
{
    const tsr__processors both = {.machine = 7, .bits = {3}}, second = {.machine = 7, .bits = {2}},
                          last = {.machine = 7, .bits = {[TSR__PROCESSOR_WORDS - 1] = 1}},
                          elsewhere = {.machine = 8, .bits = {1}};
    tsr__sharing sharing = {0};
    tsr__sharing_add(&sharing, &second);
    ck_assert(!tsr__sharing_is_oversubscribed(&sharing));
    tsr__sharing_add(&sharing, &elsewhere);
    tsr__sharing_add(&sharing, &second);
    ck_assert(tsr__sharing_is_oversubscribed(&sharing)); /* two ranks are bound to one processor */
    tsr__sharing_add(&sharing, &last);
    ck_assert(tsr__sharing_is_oversubscribed(&sharing));
    tsr__sharing_add(&sharing, &both);
    ck_assert(tsr__sharing_is_oversubscribed(&sharing)); /* four ranks, three processors */
    ck_assert_int_eq(sharing.ranks, 4);
}
END_TEST

START_TEST(an_unknown_machine_is_that_of_no_other_rank)
{
    const tsr__processors unknown = {.bits = {1}};
    tsr__sharing sharing = {0};
    tsr__sharing_add(&sharing, &unknown);
    tsr__sharing_add(&sharing, &unknown);
    ck_assert_int_eq(sharing.ranks, 1);
}
END_TEST

static void know_that_they_share(tsr_comm *comm, void *user)
{
    (void)user;
    need(comm->job->is_oversubscribed);
}

/* Ranks with two host names run on one processor of this machine. */
START_TEST(ranks_of_two_hosts_share_a_processor)
{
    cpu_set_t all, one;
    size_t first = 0;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ranks_run(&(ranks_job){.size = 2, .hosts = "ab", .run = know_that_they_share});
}
END_TEST

TESTS(processors)
{
    tcase_add_test(tests, counts_ranks_and_processors_of_one_machine);
    tcase_add_test(tests, an_unknown_machine_is_that_of_no_other_rank);
    tcase_add_test(tests, ranks_of_two_hosts_share_a_processor);
}
