/* The arithmetic of the cost model: messages, collectives, and stages of a model. */
#include <math.h>

#include "base/fault.h"
#include "planner/cost.h"
#include "support/check_main.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static tsr_status status; /* of the simulations */

/* Links ---------------------------------------------------------------------------------------- */

START_TEST(messages_of_a_link)
{
    const tsr__link given = tsr__link_of(1e-4, 1e8);
    ck_assert_double_eq_tol(tsr__link_seconds(&given, 0), 1e-4, 1e-12);
    ck_assert_double_eq_tol(tsr__link_seconds(&given, 1e6), 1e-4 + 1e-2, 1e-12);
    ck_assert_double_eq_tol(tsr__link_seconds(&given, 1e9), 1e-4 + 10, 1e-9);
    ck_assert_double_eq_tol(tsr__link_bandwidth(&given), 1e8, 1);
    /* A message of 16 KiB takes more than twice the time of 8 KiB, as if a rendezvous began
     * there. */
    const tsr__link measured = {3, {8, 8192, 16384}, {1e-4, 2e-4, 5e-4}};
    ck_assert_double_eq_tol(tsr__link_seconds(&measured, 1), 1e-4, 1e-12);
    ck_assert_double_eq_tol(tsr__link_seconds(&measured, 4100), 1.5e-4, 1e-12);
    ck_assert_double_eq_tol(tsr__link_seconds(&measured, 12288), 3.5e-4, 1e-12);
    ck_assert_double_eq_tol(tsr__link_seconds(&measured, 24576), 8e-4, 1e-12);
    /* If a large message was measured to be faster than a small one, no time becomes negative. */
    const tsr__link noisy = {2, {8, 4096}, {2e-4, 1e-4}};
    ck_assert_double_eq_tol(tsr__link_seconds(&noisy, 2048), 2e-4, 1e-12);
    ck_assert(tsr__link_bandwidth(&noisy) > 0);
}
END_TEST

/* Collectives ---------------------------------------------------------------------------------- */

#define A 1e-4 /* the latency between hosts */
#define B 1e8  /* the bandwidth between hosts */

/* Links inside a host cost nothing, so that only messages between hosts count. */
static tsr__link links[4 * 4];

static tsr__cost_group group_of(int size, const int *host)
{
    for (int i = 0; i < 16; i++)
        links[i] = i % 5 == 0 ? tsr__link_of(0, 1e30) : tsr__link_of(A, B);
    return (tsr__cost_group){.size = size, .host = host, .hosts = 4, .links = links};
}

static const struct {
    int size, host[8];
    double bytes, all_reduce, reduce_scatter;
} groups[] = {
    {1, {0}, 1e6, 0, 0},
    /* One host: nothing is sent between hosts. */
    {4, {0, 0, 0, 0}, 1e6, 0, 0},
    /* Two ranks on two hosts: one exchange of all data, or two exchanges of halves. */
    {2, {0, 1}, 1e4, A + 1e4 / B, A + 5e3 / B},
    {2, {0, 1}, 1e6, 2 * (A + 5e5 / B), A + 5e5 / B},
    /* Two hosts with two ranks each, in two levels: inside a host, then between the hosts. Each
     * rank exchanges its share with the other host, and both shares use the same link. */
    {4, {0, 0, 1, 1}, 1e4, A + 1e4 / B, A + 5e3 / B},
    /* Two rounds, each with quarters of the data. The second message of a rank starts when the
     * first message of the other rank has left, so that the link is always busy. */
    {4, {0, 0, 1, 1}, 65536, A + 65536 / B, A + 32768 / B},
    /* Four pieces of 256 KiB. */
    {4, {0, 0, 1, 1}, 1048576, 4 * (A + 262144 / B), A + 524288 / B},
    /* Four hosts with two ranks each. A rank's messages sometimes wait for those of the other rank
     * of its host. The times were worked out by hand. */
    {8, {0, 0, 1, 1, 2, 2, 3, 3}, 65536, 1119.2e-6, 609.6e-6},
    /* If ranks alternate between the hosts, the algorithm has no levels. The first round is between
     * hosts, and two ranks share the link; the second round is inside a host. */
    {4, {0, 1, 0, 1}, 1e4, A + 2e4 / B, A + 1e4 / B},
    /* With three ranks, the first two act as one rank (they share a leaf) and get two of the three
     * blocks. If they are on two hosts, their messages share the link with those of the third. */
    {3, {0, 0, 1}, 1e4, A + 1e4 / B, A + 6664 / B},
    {3, {0, 1, 1}, 1e4, 2 * A + 3e4 / B, 2 * A + 19992 / B},
};

START_TEST(costs_of_collectives)
{
    const tsr__cost_group g = group_of(groups[_i].size, groups[_i].host);
    ck_assert_double_eq_tol(
        tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, groups[_i].bytes, &status),
        groups[_i].all_reduce, 1e-9);
    ck_assert_double_eq_tol(
        tsr__collective_seconds(&g, TSR__CALL_REDUCE_SCATTER, groups[_i].bytes, &status),
        groups[_i].reduce_scatter, 1e-9);
}
END_TEST

/* 2^20 times the data must take 2^20 times as long, apart from the latency. Simulating all steps
 * would take days. */
START_TEST(costs_of_large_collectives)
{
    static const int host[] = {0, 1, 1, 2};
    static const tsr__call_kind kinds[] = {TSR__CALL_ALL_REDUCE, TSR__CALL_REDUCE_SCATTER};
    for (int size = 2; size <= 4; size++) {
        const tsr__cost_group g = group_of(size, host);
        const double some = tsr__collective_seconds(&g, kinds[_i], 0x1p27, &status),
                     many = tsr__collective_seconds(&g, kinds[_i], 0x1p47, &status);
        ck_assert_double_eq_tol(many / some, 0x1p20, 0x1p10);
    }
}
END_TEST

START_TEST(costs_inside_a_host)
{
    static const int host[4] = {0};
    tsr__cost_group g = group_of(4, host);
    links[0] = tsr__link_of(1e-6, 1e9);
    /* Each rank reads its quarter from the three others, and then their results. */
    ck_assert_double_eq_tol(tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, 4e6, &status),
                            2e-6 + 2 * 3e6 / 1e9, 1e-9);
    ck_assert_double_eq_tol(tsr__collective_seconds(&g, TSR__CALL_REDUCE_SCATTER, 4e6, &status),
                            2e-6 + 3e6 / 1e9, 1e-9);
}
END_TEST

/* If a host has fewer processors than ranks, its ranks wait in each round for their turn on a
 * processor, and their copies take turns. */
START_TEST(costs_of_turns)
{
    static const int two[4] = {0, 0, 1, 1}, apart[4] = {0, 1, 0, 1}, one[4] = {0};
    /* The first host has one processor for two ranks, the second host one for each rank. */
    static const tsr__turns turns[4] = {
        {2, 1e-6, 8e-6}, {1, 1e-6, 8e-6}, {0.5, 1e-6, 8e-6}, {1, 1e-6, 8e-6}};
    tsr__cost_group g = group_of(4, two);
    g.turns = turns;
    ck_assert_double_eq_tol(tsr__turns_seconds(&turns[0]), 8e-6, 1e-12);
    ck_assert_double_eq(tsr__turns_seconds(&turns[1]), 0);
    ck_assert_double_eq(tsr__turns_seconds(&turns[2]), 0);
    /* With two levels, both ranks of the first host end the first collective inside the host in
     * turn, but waiting for the link takes longer. So two turns count: one after the messages, for
     * which the ranks have slept, and one in the last collective inside the host, for which they
     * poll. */
    ck_assert_double_eq_tol(tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, 1e4, &status),
                            A + 1e4 / B + 8e-6 + 1e-6, 1e-9);
    ck_assert_double_eq_tol(tsr__collective_seconds(&g, TSR__CALL_REDUCE_SCATTER, 1e4, &status),
                            A + 5e3 / B, 1e-9);
    /* There are two rounds of messages, for which the ranks sleep. */
    g = group_of(4, apart);
    g.turns = turns;
    ck_assert_double_eq_tol(tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, 1e4, &status),
                            A + 2e4 / B + 2 * 8e-6, 1e-9);
    /* Sending and receiving use the processor of the first host for 10 µs per rank and round. Its
     * second rank receives at 300 µs. Both ranks then wait for each other until 339 µs. */
    links[0] = tsr__link_of(1e-6, 1e9);
    ck_assert_double_eq_tol(tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, 1e4, &status), 339e-6,
                            1e-9);
    /* In shared memory, each byte takes twice as long, and at the end there is a short turn. */
    g = group_of(4, one);
    g.turns = turns;
    links[0] = tsr__link_of(1e-6, 1e9);
    ck_assert_double_eq_tol(tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, 4e6, &status),
                            2e-6 + 1e-6 + 2 * 2 * 3e6 / 1e9, 1e-9);
    /* The measured cost of the memory is 1 µs for each kB that a rank reads. There is no latency,
     * because turns contain it. */
    static const tsr__memory_cost memory[4] = {{4, 5e-6, {2, {0, 1e6}, {0, 1e-3}}}};
    g.memory = memory;
    ck_assert_double_eq_tol(tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, 4e6, &status),
                            1e-6 + 2 * 2 * 3e6 * 1e-9, 1e-9);
    g.turns = NULL;
    ck_assert_double_eq_tol(tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, 4e6, &status),
                            5e-6 + 2 * 3e6 * 1e-9, 1e-9);
    /* Between hosts, the second rank of a processor waits while the first one uses it for a
     * message, if that takes longer than waking the second. */
    static tsr__link message_work[16];
    message_work[1] = message_work[4] = tsr__link_of(20e-6, 1e9);
    g = group_of(4, two);
    g.turns = turns;
    g.message_work = message_work;
    ck_assert_double_eq_tol(tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, 1e4, &status),
                            A + 1e4 / B + 2 * (20e-6 + 5e-6) + 1e-6, 1e-9);
}
END_TEST

START_TEST(costs_of_a_pipeline)
{
    static const double passes[] = {3, 6, 3}, equal[] = {3, 3}, none[3] = {0},
                        sends[] = {0.5, 0.25, 9}, far[] = {10, 9};
    ck_assert_double_eq_tol(tsr__training_seconds(1, 5, passes, none, &status), 15, 1e-12);
    /* One micro-batch passes all stages forward and backward. */
    ck_assert_double_eq_tol(tsr__training_seconds(3, 1, passes, none, &status), 12, 1e-12);
    ck_assert_double_eq_tol(tsr__training_seconds(3, 1, passes, sends, &status), 13.5, 1e-12);
    /* For equal stages, the formula of the pipeline's bubble holds: (micro-batches + stages − 1)
     * times the passes of a stage. */
    ck_assert_double_eq_tol(tsr__training_seconds(2, 4, equal, none, &status), 5 * 3, 1e-12);
    ck_assert_double_eq_tol(tsr__training_seconds(2, 1000, equal, none, &status), 1001 * 3, 1e-9);
    /* The slowest stage is always busy, except that it waits for 1 before its first backward pass.
     * A forward pass comes before it, and a backward pass after it. */
    ck_assert_double_eq_tol(tsr__training_seconds(3, 8, passes, none, &status), 1 + 8 * 6 + 1 + 2,
                            1e-12);
    /* Two micro-batches are in flight. They wait for one message in each direction. */
    ck_assert_double_eq_tol(tsr__training_seconds(2, 2, equal, far, &status), 3 + 6 + 20, 1e-12);
}
END_TEST

START_TEST(times_of_stages)
{
    const double compute[] = {1, 2, 1}, messages[] = {0.5, 0.5, 0.5}, sends[] = {0.1, 0.1, 0};
    const int ranks[] = {1, 1, 1};
    tsr__generating stages = {.stages = 3,
                              .micro_batches = 3,
                              .hosts = 1,
                              .compute = compute,
                              .messages = messages,
                              .sends = sends,
                              .ranks = ranks,
                              .processors = (const double[]){0}};
    /* The first micro-batch passes all stages, and the others follow the slowest stage. */
    ck_assert_double_eq_tol(tsr__generating_seconds(&stages, &status), 5.5 + 0.2 + 2 * 2.5, 1e-12);
    stages.processors = (const double[]){3};
    ck_assert_double_eq_tol(tsr__generating_seconds(&stages, &status), 5.5 + 0.2 + 2 * 2.5, 1e-12);
    /* A single micro-batch never needs more than one processor. */
    stages.processors = (const double[]){1};
    stages.micro_batches = 1;
    ck_assert_double_eq_tol(tsr__generating_seconds(&stages, &status), 5.5 + 0.2, 1e-12);
    /* Two stages, two micro-batches. The second stage begins its first one at 1.6, while the first
     * stage computes its second one (0.9 are left, and it began at 1.5), so both are half as fast
     * until 3.4. Then the second stage has 1.1 left, and the other micro-batch to compute: 3.4
     * + 1.1 + 0.5 + 2 + 0.5. */
    stages.stages = 2;
    stages.micro_batches = 2;
    ck_assert_double_eq_tol(tsr__generating_seconds(&stages, &status), 7.5, 1e-12);
}
END_TEST

START_TEST(times_of_stages_on_hosts)
{
    /* The first stage has a rank on each host, and is done when the slower one is. The second stage
     * has one on the second host, which has one processor for both. */
    const double compute[] = {1, 2, 0, 4}, none[] = {0, 0}, processors[] = {1, 1};
    const int ranks[] = {1, 1, 0, 1};
    const tsr__generating stages = {.stages = 2,
                                    .micro_batches = 2,
                                    .hosts = 2,
                                    .compute = compute,
                                    .messages = none,
                                    .sends = none,
                                    .ranks = ranks,
                                    .processors = processors};
    ck_assert_double_eq_tol(tsr__generating_seconds(&stages, &status), 2 * (2 + 4), 1e-12);
}
END_TEST

/* The simulation ends, whatever rounding leaves of a time: four stages on each of eight hosts with
 * two processors, whose times are small multiples of one time, so that many things happen nearly at
 * once. The answer is between the work of the busiest host and that of all stages one after the
 * other. */
START_TEST(times_of_many_stages)
{
    enum { HOSTS = 8, EACH = 4, STAGES = EACH * HOSTS, BATCHES = 16 };
    double compute[STAGES * HOSTS] = {0}, messages[STAGES], sends[STAGES], two[HOSTS];
    int ranks[STAGES * HOSTS] = {0};
    uint32_t random = 1;
    const tsr__generating stages = {.stages = STAGES,
                                    .micro_batches = BATCHES,
                                    .hosts = HOSTS,
                                    .compute = compute,
                                    .messages = messages,
                                    .sends = sends,
                                    .ranks = ranks,
                                    .processors = two};
    for (int i = 0; i < HOSTS; i++)
        two[i] = 2;
    for (int i = 0; i < 300; i++) {
        const double each = 1e-4 / (i + 3);
        double busiest = 0, all = 0;
        for (int s = 0; s < STAGES; s++) {
            random = random * 1664525 + 1013904223;
            const double work = each * (1 + random / 65536 % 3);
            compute[s * HOSTS + s / EACH] = work;
            ranks[s * HOSTS + s / EACH] = 1;
            messages[s] = each * (random / 262144 % 2);
            sends[s] = each * (random / 1048576 % 2);
            all += BATCHES * (work + messages[s] + sends[s]);
        }
        for (int host = 0; host < HOSTS; host++) {
            double busy = 0;
            for (int s = host * EACH; s < (host + 1) * EACH; s++)
                busy += BATCHES * compute[s * HOSTS + host] / 2;
            busiest = fmax(busiest, busy);
        }
        const double time = tsr__generating_seconds(&stages, &status);
        ck_assert_msg(time >= busiest && time <= all, "%g is not in %g … %g", time, busiest, all);
    }
}
END_TEST

/* A simulation without memory gives 0 and the error, and the next ones do nothing. */
START_TEST(lacks_memory)
{
    static const int host[] = {0, 1};
    const tsr__cost_group g = group_of(2, host);
    const double one[1] = {1};
    const tsr__generating generating = {.stages = 1,
                                        .micro_batches = 1,
                                        .hosts = 1,
                                        .compute = one,
                                        .messages = one,
                                        .sends = one,
                                        .ranks = (const int[]){1},
                                        .processors = one};
    tsr_status failed = TSR_OK;
    tsr__fault_arm(TSR__FAULT_ALLOC, 0, 0);
    const double time = _i == 0   ? tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, 1e4, &failed)
                        : _i == 1 ? tsr__training_seconds(1, 1, one, one, &failed)
                                  : tsr__generating_seconds(&generating, &failed);
    tsr__fault_disarm();
    ck_assert_double_eq(time, 0);
    ck_assert_int_eq(failed, TSR_ERR_NO_MEMORY);
    ck_assert_double_eq(tsr__collective_seconds(&g, TSR__CALL_ALL_REDUCE, 1e4, &failed), 0);
    ck_assert_double_eq(tsr__training_seconds(1, 1, one, one, &failed), 0);
    ck_assert_double_eq(tsr__generating_seconds(&generating, &failed), 0);
    ck_assert_int_eq(failed, TSR_ERR_NO_MEMORY);
}
END_TEST

static void reset_status(void)
{
    status = TSR_OK;
}

static void check_status(void)
{
    ck_assert_int_eq(status, TSR_OK);
}

TESTS(planner_cost)
{
    tcase_add_checked_fixture(tests, reset_status, check_status);
    tcase_add_test(tests, messages_of_a_link);
    tcase_add_loop_test(tests, costs_of_collectives, 0, (int)COUNT_OF(groups));
    tcase_add_loop_test(tests, costs_of_large_collectives, 0, 2);
    tcase_add_test(tests, costs_inside_a_host);
    tcase_add_test(tests, costs_of_turns);
    tcase_add_test(tests, costs_of_a_pipeline);
    tcase_add_test(tests, times_of_stages);
    tcase_add_test(tests, times_of_stages_on_hosts);
    tcase_add_test(tests, times_of_many_stages);
    tcase_add_loop_test(tests, lacks_memory, 0, 3);
}
