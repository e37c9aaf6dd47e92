/* Tests tessera plan --cluster: the arithmetic of the cost model, and the descriptions of
 * clusters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/plan/cluster/predict.h"
#include "shard/files.h"
#include "support/check_main.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/* Links ---------------------------------------------------------------------------------------- */

START_TEST(messages_of_a_link)
{
    const plan_link given = plan_link_of(1e-4, 1e8);
    ck_assert_double_eq_tol(plan_link_seconds(&given, 0), 1e-4, 1e-12);
    ck_assert_double_eq_tol(plan_link_seconds(&given, 1e6), 1e-4 + 1e-2, 1e-12);
    ck_assert_double_eq_tol(plan_link_seconds(&given, 1e9), 1e-4 + 10, 1e-9);
    ck_assert_double_eq_tol(plan_link_bandwidth(&given), 1e8, 1);
    /* A message of 16 KiB takes more than twice the time of 8 KiB, as if a rendezvous began
     * there. */
    const plan_link measured = {3, {8, 8192, 16384}, {1e-4, 2e-4, 5e-4}};
    ck_assert_double_eq_tol(plan_link_seconds(&measured, 1), 1e-4, 1e-12);
    ck_assert_double_eq_tol(plan_link_seconds(&measured, 4100), 1.5e-4, 1e-12);
    ck_assert_double_eq_tol(plan_link_seconds(&measured, 12288), 3.5e-4, 1e-12);
    ck_assert_double_eq_tol(plan_link_seconds(&measured, 24576), 8e-4, 1e-12);
    /* If a large message was measured to be faster than a small one, no time becomes negative. */
    const plan_link noisy = {2, {8, 4096}, {2e-4, 1e-4}};
    ck_assert_double_eq_tol(plan_link_seconds(&noisy, 2048), 2e-4, 1e-12);
    ck_assert(plan_link_bandwidth(&noisy) > 0);
}
END_TEST

/* Collectives ---------------------------------------------------------------------------------- */

#define A 1e-4 /* the latency between hosts */
#define B 1e8  /* the bandwidth between hosts */

/* Links inside a host cost nothing, so that only messages between hosts count. */
static plan_link links[4 * 4];

static plan_group group_of(int size, const int *host)
{
    for (int i = 0; i < 16; i++)
        links[i] = i % 5 == 0 ? plan_link_of(0, 1e30) : plan_link_of(A, B);
    return (plan_group){.size = size, .host = host, .hosts = 4, .links = links};
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
    const plan_group g = group_of(groups[_i].size, groups[_i].host);
    ck_assert_double_eq_tol(
        plan_collective_seconds(&g, TSR_COLLECTIVE_ALL_REDUCE, groups[_i].bytes),
        groups[_i].all_reduce, 1e-9);
    ck_assert_double_eq_tol(
        plan_collective_seconds(&g, TSR_COLLECTIVE_REDUCE_SCATTER, groups[_i].bytes),
        groups[_i].reduce_scatter, 1e-9);
}
END_TEST

/* 2^20 times the data must take 2^20 times as long, apart from the latency. Simulating all steps
 * would take days. */
START_TEST(costs_of_large_collectives)
{
    static const int host[] = {0, 1, 1, 2};
    static const tsr_collective kinds[] = {TSR_COLLECTIVE_ALL_REDUCE,
                                           TSR_COLLECTIVE_REDUCE_SCATTER};
    for (int size = 2; size <= 4; size++) {
        const plan_group g = group_of(size, host);
        const double some = plan_collective_seconds(&g, kinds[_i], 0x1p27),
                     many = plan_collective_seconds(&g, kinds[_i], 0x1p47);
        ck_assert_double_eq_tol(many / some, 0x1p20, 0x1p10);
    }
}
END_TEST

START_TEST(costs_inside_a_host)
{
    static const int host[4] = {0};
    plan_group g = group_of(4, host);
    links[0] = plan_link_of(1e-6, 1e9);
    /* Each rank reads its quarter from the three others, and then their results. */
    ck_assert_double_eq_tol(plan_collective_seconds(&g, TSR_COLLECTIVE_ALL_REDUCE, 4e6),
                            2e-6 + 2 * 3e6 / 1e9, 1e-9);
    ck_assert_double_eq_tol(plan_collective_seconds(&g, TSR_COLLECTIVE_REDUCE_SCATTER, 4e6),
                            2e-6 + 3e6 / 1e9, 1e-9);
}
END_TEST

/* If a host has fewer processors than ranks, its ranks wait in each round for their turn on a
 * processor, and their copies take turns. */
START_TEST(costs_of_turns)
{
    static const int two[4] = {0, 0, 1, 1}, apart[4] = {0, 1, 0, 1}, one[4] = {0};
    /* The first host has one processor for two ranks, the second host one for each rank. */
    static const plan_turns turns[4] = {
        {2, 1e-6, 8e-6}, {1, 1e-6, 8e-6}, {0.5, 1e-6, 8e-6}, {1, 1e-6, 8e-6}};
    plan_group g = group_of(4, two);
    g.turns = turns;
    ck_assert_double_eq_tol(plan_turns_seconds(&turns[0]), 8e-6, 1e-12);
    ck_assert_double_eq(plan_turns_seconds(&turns[1]), 0);
    ck_assert_double_eq(plan_turns_seconds(&turns[2]), 0);
    /* With two levels, both ranks of the first host end the first collective inside the host in
     * turn, but waiting for the link takes longer. So two turns count: one after the messages, for
     * which the ranks have slept, and one in the last collective inside the host, for which they
     * poll. */
    ck_assert_double_eq_tol(plan_collective_seconds(&g, TSR_COLLECTIVE_ALL_REDUCE, 1e4),
                            A + 1e4 / B + 8e-6 + 1e-6, 1e-9);
    ck_assert_double_eq_tol(plan_collective_seconds(&g, TSR_COLLECTIVE_REDUCE_SCATTER, 1e4),
                            A + 5e3 / B, 1e-9);
    /* There are two rounds of messages, for which the ranks sleep. */
    g = group_of(4, apart);
    g.turns = turns;
    ck_assert_double_eq_tol(plan_collective_seconds(&g, TSR_COLLECTIVE_ALL_REDUCE, 1e4),
                            A + 2e4 / B + 2 * 8e-6, 1e-9);
    /* Sending and receiving use the processor of the first host for 10 µs per rank and round. Its
     * second rank receives at 300 µs. Both ranks then wait for each other until 339 µs. */
    links[0] = plan_link_of(1e-6, 1e9);
    ck_assert_double_eq_tol(plan_collective_seconds(&g, TSR_COLLECTIVE_ALL_REDUCE, 1e4), 339e-6,
                            1e-9);
    /* In shared memory, each byte takes twice as long, and at the end there is a short turn. */
    g = group_of(4, one);
    g.turns = turns;
    links[0] = plan_link_of(1e-6, 1e9);
    ck_assert_double_eq_tol(plan_collective_seconds(&g, TSR_COLLECTIVE_ALL_REDUCE, 4e6),
                            2e-6 + 1e-6 + 2 * 2 * 3e6 / 1e9, 1e-9);
    /* The measured cost of the memory is 1 µs for each kB that a rank reads. There is no latency,
     * because turns contain it. */
    static const plan_memory_cost memory[4] = {{4, 5e-6, {2, {0, 1e6}, {0, 1e-3}}}};
    g.memory = memory;
    ck_assert_double_eq_tol(plan_collective_seconds(&g, TSR_COLLECTIVE_ALL_REDUCE, 4e6),
                            1e-6 + 2 * 2 * 3e6 * 1e-9, 1e-9);
    g.turns = NULL;
    ck_assert_double_eq_tol(plan_collective_seconds(&g, TSR_COLLECTIVE_ALL_REDUCE, 4e6),
                            5e-6 + 2 * 3e6 * 1e-9, 1e-9);
    /* Between hosts, the second rank of a processor waits while the first one uses it for a
     * message, if that takes longer than waking the second. */
    static plan_link message_work[16];
    message_work[1] = message_work[4] = plan_link_of(20e-6, 1e9);
    g = group_of(4, two);
    g.turns = turns;
    g.message_work = message_work;
    ck_assert_double_eq_tol(plan_collective_seconds(&g, TSR_COLLECTIVE_ALL_REDUCE, 1e4),
                            A + 1e4 / B + 2 * (20e-6 + 5e-6) + 1e-6, 1e-9);
}
END_TEST

START_TEST(costs_of_a_pipeline)
{
    static const double passes[] = {3, 6, 3}, equal[] = {3, 3}, none[3] = {0},
                        sends[] = {0.5, 0.25, 9}, far[] = {10, 9};
    ck_assert_double_eq_tol(plan_pipeline_seconds(1, 5, passes, none), 15, 1e-12);
    /* One micro-batch passes all stages forward and backward. */
    ck_assert_double_eq_tol(plan_pipeline_seconds(3, 1, passes, none), 12, 1e-12);
    ck_assert_double_eq_tol(plan_pipeline_seconds(3, 1, passes, sends), 13.5, 1e-12);
    /* For equal stages, the formula of the pipeline's bubble holds: (micro-batches + stages − 1)
     * times the passes of a stage. */
    ck_assert_double_eq_tol(plan_pipeline_seconds(2, 4, equal, none), 5 * 3, 1e-12);
    ck_assert_double_eq_tol(plan_pipeline_seconds(2, 1000, equal, none), 1001 * 3, 1e-9);
    /* The slowest stage is always busy, except that it waits for 1 before its first backward pass.
     * A forward pass comes before it, and a backward pass after it. */
    ck_assert_double_eq_tol(plan_pipeline_seconds(3, 8, passes, none), 1 + 8 * 6 + 1 + 2, 1e-12);
    /* Two micro-batches are in flight. They wait for one message in each direction. */
    ck_assert_double_eq_tol(plan_pipeline_seconds(2, 2, equal, far), 3 + 6 + 20, 1e-12);
}
END_TEST

START_TEST(times_of_stages)
{
    const double compute[] = {1, 2, 1}, messages[] = {0.5, 0.5, 0.5}, sends[] = {0.1, 0.1, 0};
    const int ranks[] = {1, 1, 1};
    plan_stages stages = {.count = 3,
                          .parts = 3,
                          .hosts = 1,
                          .compute = compute,
                          .messages = messages,
                          .sends = sends,
                          .ranks = ranks,
                          .processors = (const double[]){0}};
    /* The first part passes all stages, and the others follow the slowest stage. */
    ck_assert_double_eq_tol(plan_stages_seconds(&stages), 5.5 + 0.2 + 2 * 2.5, 1e-12);
    stages.processors = (const double[]){3};
    ck_assert_double_eq_tol(plan_stages_seconds(&stages), 5.5 + 0.2 + 2 * 2.5, 1e-12);
    /* A single part never needs more than one processor. */
    stages.processors = (const double[]){1};
    stages.parts = 1;
    ck_assert_double_eq_tol(plan_stages_seconds(&stages), 5.5 + 0.2, 1e-12);
    /* Two stages, two parts. The second stage begins its first part at 1.6, while the first stage
     * computes its second part (0.9 are left, and it began at 1.5), so both are half as fast until
     * 3.4. Then the second stage has 1.1 left, and the other part to compute: 3.4 + 1.1 + 0.5 + 2 +
     * 0.5. */
    stages.count = 2;
    stages.parts = 2;
    ck_assert_double_eq_tol(plan_stages_seconds(&stages), 7.5, 1e-12);
}
END_TEST

START_TEST(times_of_stages_on_hosts)
{
    /* The first stage has a rank on each host, and is done when the slower one is. The second stage
     * has one on the second host, which has one processor for both. */
    const double compute[] = {1, 2, 0, 4}, none[] = {0, 0}, processors[] = {1, 1};
    const int ranks[] = {1, 1, 0, 1};
    const plan_stages stages = {.count = 2,
                                .parts = 2,
                                .hosts = 2,
                                .compute = compute,
                                .messages = none,
                                .sends = none,
                                .ranks = ranks,
                                .processors = processors};
    ck_assert_double_eq_tol(plan_stages_seconds(&stages), 2 * (2 + 4), 1e-12);
}
END_TEST

/* The simulation ends, whatever rounding leaves of a time: four stages on each of eight hosts with
 * two processors, whose times are small multiples of one time, so that many things happen nearly at
 * once. The answer is between the work of the busiest host and that of all stages one after the
 * other. */
START_TEST(times_of_many_stages)
{
    enum { HOSTS = 8, EACH = 4, STAGES = EACH * HOSTS, PARTS = 16 };
    double compute[STAGES * HOSTS] = {0}, messages[STAGES], sends[STAGES], two[HOSTS];
    int ranks[STAGES * HOSTS] = {0};
    uint32_t random = 1;
    const plan_stages stages = {.count = STAGES,
                                .parts = PARTS,
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
            all += PARTS * (work + messages[s] + sends[s]);
        }
        for (int host = 0; host < HOSTS; host++) {
            double busy = 0;
            for (int s = host * EACH; s < (host + 1) * EACH; s++)
                busy += PARTS * compute[s * HOSTS + host] / 2;
            busiest = fmax(busiest, busy);
        }
        const double time = plan_stages_seconds(&stages);
        ck_assert_msg(time >= busiest && time <= all, "%g is not in %g … %g", time, busiest, all);
    }
}
END_TEST

/* Predictions ---------------------------------------------------------------------------------- */

static bool waits_for_device;
static bool share_host;   /* both ranks are on the first host */
static double processors; /* processors of the second host; 0: enough for all ranks */

/* Describes two hosts with one rank each: 1 and 0.5 GFLOP/s, 1 and 0.5 GB/s. */
static void two_hosts(plan_cluster *out)
{
    *out = (plan_cluster){.hosts = 2, .ranks = 2};
    out->rank[0] = (plan_rank){.host = 0, .flops = 1e9, .bandwidth = 1e9};
    out->rank[1] = (plan_rank){.host = 1, .flops = 5e8, .bandwidth = 5e8};
    out->rank[1].collective_seconds = waits_for_device ? 100e-6 : 0;
    out->rank[1].host_collective_seconds = waits_for_device ? 40e-6 : 0;
    out->processors[1] = processors;
    out->awake_seconds[1] = out->asleep_seconds[1] = 8e-6;
    out->links = calloc(4, sizeof *out->links);
    ck_assert_ptr_nonnull(out->links);
    out->links[1] = out->links[2] = plan_link_of(A, B);
    if (share_host) {
        out->rank[1].host = 0;
        out->links[0] = plan_link_of(A, B);
    }
}

static const int both[] = {0, 1};
static plan_cluster cluster;
static plan_prediction predicted;

/* A part of 4 blocks with 4 MB of weights, and an embedding and a head of 1 MB each. */
static const plan_part whole = {.block_bytes = 4e6,
                                .block_parameters = 1e6,
                                .embedding_bytes = 1e6,
                                .head_bytes = 1e6,
                                .head_parameters = 2.5e5,
                                .cache_bytes = 2e6};

static plan_work work_of(plan_goal goal, int sequences)
{
    return (plan_work){.goal = goal,
                       .layers = 4,
                       .width = 250,
                       .vocabulary = 1000,
                       .context = 10,
                       .sequences = sequences,
                       .micro_batches = 1,
                       .wire_bytes = 4};
}

static void expect(const plan_work *work, const plan_grid *grid, double compute, double messages,
                   double idle)
{
    two_hosts(&cluster);
    plan_predict(&cluster, work, grid, &predicted);
    plan_cluster_free(&cluster);
    ck_assert_double_eq_tol(predicted.compute, compute, 1e-9);
    ck_assert_double_eq_tol(predicted.tensor + predicted.data + predicted.pipeline, messages, 1e-9);
    ck_assert_double_eq_tol(predicted.idle, idle, 1e-9);
    ck_assert_double_eq_tol(predicted.seconds, compute + messages + idle, 1e-9);
}

START_TEST(predicts_generation)
{
    plan_work work = work_of(PLAN_GENERATION, 1);
    const plan_part parts[2] = {whole, whole};
    const int four[] = {4}, three_one[] = {3, 1};
    /* One rank alone reads its weights, the head and half of the cache. */
    expect(&work, &(plan_grid){1, 1, 1, both, false, four, parts}, 6e-3, 0, 0);
    /* With tensor parallelism and equal parts, the slower rank counts. In addition there are 9
     * all-reduces of 1000 bytes, the logits, and the agreement on the token. */
    const double agreed = A + 8 / B;
    expect(&work, &(plan_grid){1, 2, 1, both, false, four, parts}, 12e-3,
           9 * (A + 1000 / B) + A + 2000 / B + agreed, 0);
    /* Each of the 10 collectives takes 100 µs more on a device that must be waited for. */
    waits_for_device = true;
    expect(&work, &(plan_grid){1, 2, 1, both, false, four, parts}, 12e-3,
           9 * (A + 1000 / B) + A + 2000 / B + agreed + 10 * 100e-6, 0);
    waits_for_device = false;
    /* With two stages, one sequence passes them one after the other: 3 blocks at 1 GB/s, and one
     * block and the head at 0.5 GB/s. */
    expect(&work, &(plan_grid){1, 1, 2, both, false, three_one, parts}, 4.5e-3,
           A + 1000 / B + agreed, 3.75e-3);
    /* With a third of a processor, a rank waits for two others after each message. */
    processors = 1.0 / 3;
    expect(&work, &(plan_grid){1, 1, 2, both, false, three_one, parts}, 4.5e-3,
           A + 1000 / B + agreed + 2 * 2 * 8e-6, 3.75e-3);
    expect(&work, &(plan_grid){1, 2, 1, both, false, four, parts}, 12e-3,
           9 * (A + 1000 / B) + A + 2000 / B + agreed + 11 * 2 * 8e-6, 0);
    processors = 0;
    /* Two sequences are in flight. Each stage reads its weights for both. The second stage, which
     * is slower, waits for the first sequence. At the end the stages agree on the tokens. */
    work.sequences = 2;
    expect(&work, &(plan_grid){1, 1, 2, both, false, three_one, parts}, 2 * 4.25e-3,
           A + 1000 / B + A + 12 / B, 3.375e-3);
    /* Three sequences are divided into three parts, because all parts must have the same size. */
    work.sequences = 3;
    plan_grid grid = {1, 1, 2, both, false, three_one, parts};
    two_hosts(&cluster);
    plan_predict(&cluster, &work, &grid, &predicted);
    plan_cluster_free(&cluster);
    ck_assert_double_eq_tol(predicted.compute, 3 * 4.166666666666667e-3, 1e-9);
}
END_TEST

/* A collective of ranks of one host waits for the device for less time than others. */
START_TEST(waits_for_devices_of_a_host)
{
    const plan_work work = work_of(PLAN_GENERATION, 1);
    const plan_part parts[2] = {whole, whole};
    const plan_grid grid = {1, 2, 1, both, false, (const int[]){4}, parts};
    double seconds[2];
    share_host = true;
    for (int i = 0; i < 2; i++) {
        waits_for_device = i == 1;
        two_hosts(&cluster);
        plan_predict(&cluster, &work, &grid, &predicted);
        plan_cluster_free(&cluster);
        seconds[i] = predicted.seconds;
    }
    share_host = waits_for_device = false;
    ck_assert_double_eq_tol(seconds[1] - seconds[0], 10 * 40e-6, 1e-9);
}
END_TEST

/* Predicts from measured passes. Between two measured numbers of rows, times are interpolated.
 * Above the largest number, only the times of elements grow. */
START_TEST(predicts_from_measured_passes)
{
    static const struct {
        plan_goal goal;
        int sequences;
        double seconds;
    } cases[] = {
        /* 3 ms, 4 layers of 1 ms, 10⁶ elements of the layers; 1 ms and 2.5 · 10⁵ elements of the
         * head */
        {PLAN_GENERATION, 1, 3e-3 + 4e-3 + 1e-2 + 1e-3 + 2.5e-3},
        {PLAN_GENERATION, 3, 4e-3 + 4 * 2e-3 + 2e-2 + 1.5e-3 + 2.5e-3},
        {PLAN_GENERATION, 10, 5e-3 + 4 * 3e-3 + 2 * 3e-2 + 2e-3 + 2 * 2.5e-3},
        /* one row of a prompt goes through the head */
        {PLAN_PROMPT, 1, 5e-3 + 4 * 3e-3 + 3e-2 + 1e-3 + 2.5e-3},
    };
    const plan_part parts[1] = {whole};
    const int four[] = {4};
    const plan_grid grid = {1, 1, 1, both, false, four, parts};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        plan_work work = work_of(cases[i].goal, cases[i].sequences);
        work.pass_tokens = 5;
        two_hosts(&cluster);
        cluster.rank[0].passes = 2;
        cluster.rank[0].pass[0] = (plan_pass){1, 3e-3, 1e-3, 1e-8, 1e-3, 1e-8};
        cluster.rank[0].pass[1] = (plan_pass){5, 5e-3, 3e-3, 3e-8, 2e-3, 1e-8};
        plan_predict(&cluster, &work, &grid, &predicted);
        plan_cluster_free(&cluster);
        ck_assert_double_eq_tol(predicted.compute, cases[i].seconds, 1e-9);
    }
}
END_TEST

START_TEST(predicts_prompts)
{
    plan_work work = work_of(PLAN_PROMPT, 1);
    work.pass_tokens = 100;
    const plan_part parts[2] = {whole, whole};
    const int four[] = {4}, two_two[] = {2, 2};
    expect(&work, &(plan_grid){1, 1, 1, both, false, four, parts}, 2 * (1e6 * 100 + 2.5e5) / 1e9, 0,
           0);
    expect(&work, &(plan_grid){1, 1, 2, both, false, two_two, parts}, 2 * (5e5 * 100 + 2.5e5) / 5e8,
           0, 0);
}
END_TEST

START_TEST(predicts_training)
{
    plan_work work = work_of(PLAN_TRAINING, 2);
    plan_part part = whole;
    const plan_part parts[2] = {part, part};
    const int four[] = {4}, three_one[] = {3, 1};
    /* There are 20 rows and three passes, each with 1.25 million multiply-adds for each row. The
     * update of the weights moves 28 bytes for each of 1.5 million parameters. */
    const double alone = 3 * 2 * 1.25e6 * 20 / 1e9;
    const double end = 2 * (A + 8 / B); /* for the norm and the loss */
    expect(&work, &(plan_grid){1, 1, 1, both, false, four, parts}, alone + 1.5e6 * 28 / 1e9, 0, 0);
    /* With data parallelism, each rank has half of the rows, and the slower rank counts. Gradients
     * of 6 MB are sent in pieces of 1 MiB; with shards, they are sent in three phases. */
    expect(&work, &(plan_grid){2, 1, 1, both, false, four, parts}, alone + 1.5e6 * 28 / 5e8,
           2 * (6 * A + 3e6 / B) + end, 0);
    expect(&work, &(plan_grid){2, 1, 1, both, true, four, parts}, alone + 7.5e5 * 28 / 5e8,
           3 * (A + 3e6 / B) + end, 0);
    /* With two stages, the second one waits for the first. 5000 numbers are sent in each
     * direction. */
    work.micro_batches = 4;
    const double first = 3 * 2 * 0.75e6 * 20 / 1e9, second = 3 * 2 * 0.5e6 * 20 / 5e8;
    expect(&work, &(plan_grid){1, 1, 2, both, false, three_one, parts}, 4 * second + 1e6 * 28 / 1e9,
           2 * (A + 20000 / B) + end, first);
}
END_TEST

START_TEST(memory_of_ranks)
{
    plan_work work = work_of(PLAN_GENERATION, 2);
    work.micro_batches = 4;
    plan_part parts[2] = {whole, whole};
    const int four[] = {4}, three_one[] = {3, 1};
    const plan_grid alone = {1, 1, 1, both, false, four, parts},
                    stages = {1, 1, 2, both, false, three_one, parts},
                    sharded = {2, 1, 1, both, true, four, parts};
    ck_assert_double_eq(plan_memory(&work, &alone, 0), 8e6);
    ck_assert_double_eq(plan_memory(&work, &stages, 0), 5.5e6);
    ck_assert_double_eq(plan_memory(&work, &stages, 1), 2.5e6);
    /* There are 16 bytes for each parameter, two micro-batches in flight on the first stage, and
     * logits and their gradient on the last. */
    work.goal = PLAN_TRAINING;
    parts[0].activation_bytes = parts[1].activation_bytes = 1000;
    ck_assert_double_eq(plan_memory(&work, &alone, 0), 24e6 + 4 * 20 * 1000 + 160000);
    ck_assert_double_eq(plan_memory(&work, &stages, 0), 16e6 + 2 * 3 * 20 * 1000);
    ck_assert_double_eq(plan_memory(&work, &sharded, 0), 12e6 + 4e6 + 4 * 10 * 1000 + 80000);
    /* If the head is the embedding, a stage that has both keeps it once. */
    parts[0].tied = true;
    ck_assert_double_eq(plan_memory(&work, &alone, 0), 20e6 + 4 * 20 * 1000 + 160000);
}
END_TEST

/* Descriptions --------------------------------------------------------------------------------- */

#define RANK "{\"gflops\": 10, \"memory_gbytes_per_second\": 20"
#define LINK "{\"latency_us\": 100, \"gbytes_per_second\": 0.1}"
#define HOST(name, more) "{\"name\": \"" name "\", \"ranks\": [" RANK more "}]}"
#define TWO "{\"hosts\": [" HOST("a", "") "," HOST("b", "") "]"

static folder in;

static void create(void)
{
    in = folder_create();
    ck_assert_int_eq(chdir(in.path), 0);
}

static void destroy(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    folder_destroy(&in);
}

/* Reads a description of a cluster and, unless it is NULL, the output of `bench link`. */
static bool read_texts(const char *hosts, const char *measured, char error[PLAN_CLUSTER_ERROR])
{
    char path[160];
    folder_write(&in, "hosts.json", hosts, strlen(hosts), path);
    if (measured)
        folder_write(&in, "links.json", measured, strlen(measured), path);
    return plan_cluster_read("hosts.json", measured ? "links.json" : NULL, NULL, &cluster, error);
}

START_TEST(reads_a_cluster)
{
    char error[PLAN_CLUSTER_ERROR] = "";
    const bool read = read_texts(
        "{\"hosts\": [{\"name\": \"a\", \"processors\": 2, \"turn_us\": 5, \"link\": "
        "{\"latency_us\": 1, \"gbytes_per_second\": 2},"
        "\"ranks\": [" RANK ", \"count\": 2, \"memory\": \"8GiB\"}, " RANK
        ", \"layer_us\": 50, \"collective_us\": 7, \"memory\": 1000}]}," HOST("b", "") "," HOST(
            "c", "") "],"
                     "\"link\": " LINK
                     ", \"links\": [{\"hosts\": [\"c\", \"a\"], \"latency_us\": 0, "
                     "\"gbytes_per_second\": 5}]}",
        NULL, error);
    ck_assert_msg(read, "%s", error);
    ck_assert_int_eq(cluster.hosts, 3);
    ck_assert_int_eq(cluster.ranks, 5);
    ck_assert_str_eq(cluster.names[2], "c");
    ck_assert_double_eq(cluster.processors[0], 2);
    ck_assert_double_eq_tol(cluster.asleep_seconds[0], 5e-6, 1e-12);
    ck_assert_double_eq_tol(cluster.awake_seconds[0], 1.5e-6, 1e-12);
    ck_assert_double_eq_tol(cluster.asleep_seconds[1], 15e-6, 1e-12);
    ck_assert_double_eq(cluster.processors[1], 0);
    ck_assert_int_eq(plan_cluster_host_ranks(&cluster, 0), 3);
    ck_assert_uint_eq(cluster.rank[1].memory, UINT64_C(8) << 30);
    ck_assert_uint_eq(cluster.rank[2].memory, 1000);
    ck_assert_uint_eq(cluster.rank[4].memory, 0);
    ck_assert_double_eq_tol(cluster.rank[2].layer_seconds, 50e-6, 1e-12);
    ck_assert_double_eq_tol(cluster.rank[2].collective_seconds, 7e-6, 1e-12);
    ck_assert_double_eq(cluster.rank[4].collective_seconds, 0);
    ck_assert_double_eq(cluster.rank[4].flops, 1e10);
    ck_assert_double_eq(cluster.rank[4].bandwidth, 2e10);
    ck_assert_double_eq_tol(plan_link_seconds(&cluster.links[0], 2e9), 1 + 1e-6, 1e-9);
    ck_assert_double_eq_tol(plan_link_seconds(&cluster.links[1], 0), 100e-6, 1e-12);
    ck_assert_double_eq_tol(plan_link_bandwidth(&cluster.links[2]), 5e9, 1);
    ck_assert_double_eq_tol(plan_link_bandwidth(&cluster.links[6]), 5e9, 1);
    plan_cluster_free(&cluster);
}
END_TEST

#define RESULT_OF(name, rank, peer, bytes, ns)                                                     \
    "{\"benchmark\": \"" name "\", \"case\": {\"rank\": " rank ", \"peer\": " peer                 \
    ", \"bytes\": " bytes "}, \"host_ns\": {\"median\": " ns "}}"
#define RESULT(rank, peer, hosts, bytes, ns)                                                       \
    "{\"benchmark\": \"link\", \"case\": {\"rank\": " rank ", \"peer\": " peer                     \
    ", \"hosts\": \"" hosts "\", \"bytes\": " bytes "}, \"host_ns\": {\"median\": " ns "}}"

/* Reads a description of a cluster and an output of `bench link` with these results. */
static bool read_results(const char *hosts, size_t count, const char *const *results,
                         char error[PLAN_CLUSTER_ERROR])
{
    char measured[8192] = "{\"results\": [";
    for (size_t i = 0; i < count; i++) {
        const size_t used = strlen(measured);
        const int length =
            snprintf(measured + used, sizeof measured - used, "%s%s", i > 0 ? "," : "", results[i]);
        ck_assert(length > 0 && (size_t)length < sizeof measured - used - 2);
    }
    strcat(measured, "]}");
    return read_texts(hosts, measured, error);
}

START_TEST(reads_measured_links)
{
    char error[PLAN_CLUSTER_ERROR] = "";
    static const char *const results[] = {"{\"benchmark\": \"memcpy\"}",
                                          RESULT("0", "1", "same", "8", "500.0"),
                                          RESULT("0", "1", "same", "1000", "1000.0"),
                                          RESULT("0", "2", "two", "1000", "300000.0"),
                                          RESULT("0", "2", "two", "8", "100000.0"),
                                          RESULT("1", "2", "two", "8", "120000.0"),
                                          RESULT("1", "2", "two", "1000", "200000.0")};
    const bool read = read_results("{\"hosts\": [{\"name\": \"a\", \"ranks\": [" RANK
                                   ", \"count\": 2}]}," HOST("b", "") "]}",
                                   sizeof results / sizeof *results, results, error);
    ck_assert_msg(read, "%s", error);
    ck_assert_double_eq_tol(plan_link_seconds(&cluster.links[0], 8), 500e-9, 1e-12);
    ck_assert_double_eq_tol(plan_link_seconds(&cluster.links[1], 8), 110e-6, 1e-12);
    ck_assert_double_eq_tol(plan_link_seconds(&cluster.links[2], 1000), 250e-6, 1e-12);
    plan_cluster_free(&cluster);
}
END_TEST

#define HOST_RESULT(name, host, ranks, more, ns)                                                   \
    "{\"benchmark\": \"" name "\", \"case\": {\"host\": " host ", \"ranks\": " ranks               \
    ", \"processors\": 1, " more "}, \"host_ns\": {\"median\": " ns "}}"

/* Measured values of a host must be used where the description has none. */
START_TEST(reads_measured_hosts)
{
    char error[PLAN_CLUSTER_ERROR] = "";
    static const char *const results[] = {
        RESULT("0", "1", "same", "8", "500.0"),
        RESULT("0", "1", "same", "1000", "900.0"),
        RESULT("2", "3", "same", "8", "500.0"),
        RESULT("2", "3", "same", "1000", "900.0"),
        RESULT("0", "2", "two", "8", "1e5"),
        RESULT("0", "2", "two", "1000", "2e5"),
        RESULT_OF("message", "0", "2", "8", "2e4"),
        RESULT_OF("message", "0", "2", "1008", "3e4"),
        HOST_RESULT("turn", "0", "2", "\"others\": \"awake\"", "700"),
        HOST_RESULT("turn", "0", "2", "\"others\": \"asleep\"", "9000"),
        HOST_RESULT("turn", "1", "2", "\"others\": \"asleep\"", "9000"),
        HOST_RESULT("memory", "0", "2", "\"bytes\": 8", "2000"),
        HOST_RESULT("memory", "0", "2", "\"bytes\": 1008", "6000"),
    };
    const bool read = read_results(
        "{\"hosts\": [{\"name\": \"a\", \"ranks\": [" RANK
        ", \"count\": 2}]}, {\"name\": \"b\", \"processors\": 3, \"turn_us\": 5, \"ranks\": [" RANK
        ", \"count\": 2}]}]}",
        sizeof results / sizeof *results, results, error);
    ck_assert_msg(read, "%s", error);
    ck_assert_double_eq(cluster.processors[0], 1);
    ck_assert_double_eq_tol(cluster.awake_seconds[0], 0.7e-6, 1e-12);
    ck_assert_double_eq_tol(cluster.asleep_seconds[0], 9e-6, 1e-12);
    ck_assert_double_eq(cluster.processors[1], 3);
    ck_assert_double_eq_tol(cluster.asleep_seconds[1], 5e-6, 1e-12);
    ck_assert_int_eq(cluster.memory[0].ranks, 2);
    ck_assert_double_eq_tol(cluster.memory[0].latency, 2e-6, 1e-12);
    /* 1008 bytes take 6 µs in the memory of the first host, 2 of which are the latency. The other 4
     * are the work of its two ranks, which share a processor. The second host was not measured. */
    ck_assert_double_eq_tol(plan_link_seconds(&cluster.memory[0].work, 1008), 2e-6, 1e-12);
    ck_assert_int_eq(cluster.memory[1].work.count, 0);
    ck_assert_double_eq_tol(plan_link_seconds(&cluster.message_work[1], 508), 25e-6, 1e-12);
    plan_cluster_free(&cluster);
}
END_TEST

/* Reads a description of a cluster without rates, and these rates. */
static bool read_rates(const char *rates, char error[PLAN_CLUSTER_ERROR])
{
    static const char hosts[] = "{\"hosts\": [{\"name\": \"a\", \"ranks\": [{\"memory\": 1000}]}]}";
    char path[160];
    folder_write(&in, "hosts.json", hosts, strlen(hosts), path);
    folder_write(&in, "rates.json", rates, strlen(rates), path);
    return plan_cluster_read("hosts.json", NULL, "rates.json", &cluster, error);
}

#define RATES(ranks)                                                                               \
    "{\"schema\": \"tessera.bench.rates\", \"model\": {\"bytes_per_element\": 2}, \"ranks\": "     \
    "[" ranks "]}"
#define PASS(rows, elements)                                                                       \
    "{\"rows\": " rows ", \"pass_us\": 30, \"layer_us\": 20, \"million_elements_us\": " elements   \
    ", \"head_us\": 15, \"million_head_elements_us\": 40}"

START_TEST(reads_measured_rates)
{
    static const struct {
        const char *rates, *sentence;
    } wrong[] = {
        {"[", "rates.json: line 1: "},
        {"{}", "rates.json: is not the output of tessera bench rates --json"},
        {RATES(""), "rates.json: has 0 ranks, but the cluster has 1"},
        {RATES("{}"), "rates.json: rank 0 has no passes"},
        {RATES("{\"host_collective_us\": -1, \"passes\": [" PASS("2", "1") "]}"),
         "rates.json: \"host_collective_us\" of rank 0 is -1; it must be at least 0 and at most "
         "1e+07"},
        {RATES("{\"passes\": [" PASS("2", "1") "," PASS("2", "1") "]}"),
         "rates.json: passes[1] of rank 0 has 2 rows, after 2; they must ascend"},
        {RATES("{\"passes\": [" PASS("2", "0") "]}"),
         "rates.json: \"million_elements_us\" of passes[0] of rank 0 is 0; it must be more than 0 "
         "and "
         "at most 1e+12"},
    };
    char error[PLAN_CLUSTER_ERROR] = "";
    ck_assert_msg(read_rates(RATES("{\"collective_us\": 7, \"passes\": [" PASS("1", "100") "," PASS(
                                 "64", "3200") "]}"),
                             error),
                  "%s", error);
    const plan_rank *rank = &cluster.rank[0];
    ck_assert_int_eq(rank->passes, 2);
    ck_assert_double_eq_tol(rank->pass[1].pass, 30e-6, 1e-12);
    ck_assert_double_eq_tol(rank->pass[1].layer, 20e-6, 1e-12);
    ck_assert_double_eq_tol(rank->pass[1].element, 3.2e-9, 1e-15);
    ck_assert_double_eq_tol(rank->pass[1].head, 15e-6, 1e-12);
    ck_assert_double_eq_tol(rank->pass[1].head_element, 40e-12, 1e-18);
    ck_assert_double_eq_tol(rank->collective_seconds, 7e-6, 1e-12);
    ck_assert_double_eq_tol(rank->host_collective_seconds, 7e-6, 1e-12);
    ck_assert_double_eq_tol(rank->bandwidth, 2e10, 1);
    ck_assert_double_eq_tol(rank->flops, 4e10, 1);
    plan_cluster_free(&cluster);
    ck_assert_msg(read_rates(RATES("{\"collective_us\": 7, \"host_collective_us\": 3, \"passes\": "
                                   "[" PASS("1", "100") "]}"),
                             error),
                  "%s", error);
    ck_assert_double_eq_tol(cluster.rank[0].host_collective_seconds, 3e-6, 1e-12);
    plan_cluster_free(&cluster);
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        ck_assert(!read_rates(wrong[i].rates, error));
        ck_assert_msg(strncmp(error, wrong[i].sentence, strlen(wrong[i].sentence)) == 0,
                      "'%s' instead of '%s'", error, wrong[i].sentence);
        plan_cluster_free(&cluster);
    }
}
END_TEST

static const struct {
    const char *hosts, *links, *sentence;
} mistakes[] = {
    {"[", NULL, "hosts.json: line 1: "},
    {"[]", NULL, "hosts.json: the document is not an object"},
    {"{}", NULL, "hosts.json: \"hosts\" must be a list of at least one host"},
    {"{\"hosts\": []}", NULL, "hosts.json: \"hosts\" must be a list of at least one host"},
    {"{\"hosts\": [], \"hosts\": []}", NULL, "hosts.json: line 1: duplicate object key"},
    {"{\"host\": []}", NULL, "hosts.json: the document has the unknown member \"host\""},
    {"{\"hosts\": [7]}", NULL, "hosts.json: hosts[0] is not an object"},
    {"{\"hosts\": [{\"name\": \"\"}]}", NULL,
     "hosts.json: \"name\" of hosts[0] must be a text of 1 to 63 bytes"},
    {"{\"hosts\": [{\"name\": \"a\"}]}", NULL, "hosts.json: host \"a\" has no ranks"},
    {"{\"hosts\": [{\"name\": \"a\", \"processors\": -2}]}", NULL,
     "hosts.json: \"processors\" of hosts[0] is -2; it must be at least 0 and at most 65536"},
    {"{\"hosts\": [{\"name\": \"a\", \"turn_us\": \"8\"}]}", NULL,
     "hosts.json: \"turn_us\" of hosts[0] is not a number"},
    {"{\"hosts\": [" HOST("a", "") "," HOST("a", "") "]}", NULL,
     "hosts.json: two hosts have the name \"a\""},
    {"{\"hosts\": [" HOST("a", ", \"gflop\": 1") "]}", NULL,
     "hosts.json: ranks[0] of host \"a\" has the unknown member \"gflop\""},
    {"{\"hosts\": [{\"name\": \"a\", \"ranks\": [{\"gflops\": 1}]}]}", NULL,
     "hosts.json: ranks[0] of host \"a\" has no \"memory_gbytes_per_second\""},
    {"{\"hosts\": [{\"name\": \"a\", \"ranks\": [{\"gflops\": -3}]}]}", NULL,
     "hosts.json: \"gflops\" of ranks[0] of host \"a\" is -3; it must be more than 0 and at most "
     "1e+09"},
    {"{\"hosts\": [{\"name\": \"a\", \"ranks\": [{\"gflops\": \"fast\"}]}]}", NULL,
     "hosts.json: \"gflops\" of ranks[0] of host \"a\" is not a number"},
    {"{\"hosts\": [" HOST("a", ", \"layer_us\": 1e9") "]}", NULL,
     "hosts.json: \"layer_us\" of ranks[0] of host \"a\" is 1e+09; it must be at least 0 and at "
     "most 1e+07"},
    {"{\"hosts\": [" HOST("a", ", \"memory\": \"8 apples\"") "]}", NULL,
     "hosts.json: \"memory\" of ranks[0] of host \"a\" must be bytes, up to 2^53, such as "
     "8589934592 or \"8GiB\""},
    {"{\"hosts\": [" HOST("a", ", \"memory\": -1") "]}", NULL,
     "hosts.json: \"memory\" of ranks[0] of host \"a\" must be bytes"},
    {"{\"hosts\": [" HOST("a", ", \"count\": 1.5") "]}", NULL,
     "hosts.json: \"count\" of ranks[0] of host \"a\" is 1.5; it must be a whole number"},
    {"{\"hosts\": [" HOST("a", ", \"count\": 200") "," HOST("b", ", \"count\": 57") "]}", NULL,
     "hosts.json: there are more than 256 ranks"},
    {"{\"hosts\": [" HOST("a", ", \"count\": 2") "]}", NULL,
     "hosts.json: host \"a\" has 2 ranks, but no \"link\" between them"},
    {TWO "}", NULL, "hosts.json: there is no link between the hosts \"a\" and \"b\""},
    {TWO ", \"link\": {\"latency_us\": 1}}", NULL,
     "hosts.json: \"link\" has no \"gbytes_per_second\""},
    {TWO ", \"link\": {\"gbytes_per_second\": 1}}", NULL,
     "hosts.json: \"link\" has no \"latency_us\""},
    {TWO ", \"link\": {\"latency_us\": 1, \"gbytes_per_second\": 0}}", NULL,
     "hosts.json: \"gbytes_per_second\" of \"link\" is 0; it must be more than 0 and at most "
     "100000"},
    {TWO ", \"links\": 5}", NULL, "hosts.json: \"links\" is not a list"},
    {TWO ", \"links\": [{\"hosts\": [\"a\"], \"latency_us\": 1, \"gbytes_per_second\": 1}]}", NULL,
     "hosts.json: \"hosts\" of links[0] must be the names of two hosts"},
    {TWO ", \"links\": [{\"hosts\": [\"a\", \"x\"], \"latency_us\": 1, \"gbytes_per_second\": 1}]}",
     NULL, "hosts.json: links[0] names the host \"x\", which does not exist"},
    {TWO ", \"links\": [{\"hosts\": [\"a\", \"a\"], \"latency_us\": 1, \"gbytes_per_second\": 1}]}",
     NULL, "hosts.json: links[0] names the host \"a\" twice"},
    {TWO "}", "{", "links.json: line 1: "},
    {TWO "}", "{\"results\": []}", "links.json: has no results of tessera bench link"},
    {TWO "}", "{\"results\": [{\"benchmark\": \"link\"}]}",
     "links.json: a result of the benchmark link lacks its ranks, bytes or time"},
    {TWO "}", "{\"results\": [" RESULT("0", "2", "two", "8", "1.0") "]}",
     "links.json: has a link of rank 2, but the cluster has 2 ranks"},
    {TWO "}", "{\"results\": [" RESULT("0", "1", "same", "8", "1.0") "]}",
     "links.json: ranks 0 and 1 are on the same host in the measurement, but not in the cluster"},
    {TWO "}", "{\"results\": [" RESULT("0", "1", "two", "8", "1.0") "]}",
     "links.json: has messages of one size only, 8 bytes; at least two are needed"},
    {TWO "}", "{\"results\": [" RESULT("0", "1", "two", "8", "-1.0") "]}",
     "links.json: a result of the benchmark link lacks its ranks, bytes or time"},
    {TWO "}", "{\"results\": [" HOST_RESULT("turn", "2", "2", "\"others\": \"awake\"", "1") "]}",
     "links.json: has results of host 2, but the cluster has 2 hosts"},
    {TWO "}", "{\"results\": [" HOST_RESULT("turn", "0", "0", "\"others\": \"awake\"", "1") "]}",
     "links.json: a result of the benchmark link lacks the \"ranks\" of its case"},
    {TWO "}", "{\"results\": [" HOST_RESULT("turn", "0", "2", "\"others\": 5", "1") "]}",
     "links.json: a result of the benchmark link has turns without \"others\""},
    {TWO "}", "{\"results\": [" HOST_RESULT("memory", "0", "1", "\"bytes\": 8", "1") "]}",
     "links.json: a result of the benchmark link lacks an all-reduce's ranks, bytes or time"},
    {TWO "}",
     "{\"results\": [" HOST_RESULT("memory", "0", "2", "\"bytes\": 8", "1") "," HOST_RESULT(
         "memory", "0", "2", "\"bytes\": 8", "1") "]}",
     "links.json: has all-reduces of host 0 whose sizes do not ascend"},
};

START_TEST(refuses_descriptions)
{
    char error[PLAN_CLUSTER_ERROR] = "";
    ck_assert(!read_texts(mistakes[_i].hosts, mistakes[_i].links, error));
    ck_assert_msg(strncmp(error, mistakes[_i].sentence, strlen(mistakes[_i].sentence)) == 0,
                  "'%s' instead of '%s'", error, mistakes[_i].sentence);
    plan_cluster_free(&cluster);
}
END_TEST

START_TEST(refuses_missing_files)
{
    char error[PLAN_CLUSTER_ERROR] = "";
    ck_assert(!plan_cluster_read("nothing.json", NULL, NULL, &cluster, error));
    ck_assert_ptr_nonnull(strstr(error, "nothing.json: "));
    ck_assert_ptr_nonnull(strstr(error, "No such file or directory"));
    plan_cluster_free(&cluster);
}
END_TEST

TESTS(plan_cluster)
{
    tcase_add_checked_fixture(tests, create, destroy);
    tcase_add_test(tests, messages_of_a_link);
    tcase_add_loop_test(tests, costs_of_collectives, 0, (int)COUNT_OF(groups));
    tcase_add_loop_test(tests, costs_of_large_collectives, 0, 2);
    tcase_add_test(tests, costs_inside_a_host);
    tcase_add_test(tests, costs_of_turns);
    tcase_add_test(tests, costs_of_a_pipeline);
    tcase_add_test(tests, times_of_stages);
    tcase_add_test(tests, times_of_stages_on_hosts);
    tcase_add_test(tests, times_of_many_stages);
    tcase_add_test(tests, predicts_generation);
    tcase_add_test(tests, waits_for_devices_of_a_host);
    tcase_add_test(tests, predicts_from_measured_passes);
    tcase_add_test(tests, predicts_prompts);
    tcase_add_test(tests, predicts_training);
    tcase_add_test(tests, memory_of_ranks);
    tcase_add_test(tests, reads_a_cluster);
    tcase_add_test(tests, reads_measured_links);
    tcase_add_test(tests, reads_measured_hosts);
    tcase_add_test(tests, reads_measured_rates);
    tcase_add_loop_test(tests, refuses_descriptions, 0, (int)COUNT_OF(mistakes));
    tcase_add_test(tests, refuses_missing_files);
}
