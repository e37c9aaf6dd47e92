/* Predicted times of steps on a grid, and the memory of its ranks. */
#include <math.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "planner/predict.h"
#include "support/check_main.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

#define A 1e-4 /* the latency between hosts */
#define B 1e8  /* the bandwidth between hosts */

static bool waits_for_device;
static bool share_host;   /* both ranks are on the first host */
static double processors; /* processors of the second host; 0: enough for all ranks */

/* Describes two hosts with one rank each: 1 and 0.5 GFLOP/s, 1 and 0.5 GB/s. */
static void two_hosts(tsr_cluster *out)
{
    *out = (tsr_cluster){.hosts = 2, .ranks = 2};
    out->rank[0] = (tsr__cluster_rank){.host = 0, .flops = 1e9, .bandwidth = 1e9};
    out->rank[1] = (tsr__cluster_rank){.host = 1, .flops = 5e8, .bandwidth = 5e8};
    out->rank[1].collective_seconds = waits_for_device ? 100e-6 : 0;
    out->rank[1].host_collective_seconds = waits_for_device ? 40e-6 : 0;
    out->processors[1] = processors;
    out->awake_seconds[1] = out->asleep_seconds[1] = 8e-6;
    out->links = tsr__calloc(4, sizeof *out->links);
    ck_assert_ptr_nonnull(out->links);
    out->links[1] = out->links[2] = tsr__link_of(A, B);
    if (share_host) {
        out->rank[1].host = 0;
        out->links[0] = tsr__link_of(A, B);
    }
}

static const int both[] = {0, 1};
static tsr_cluster cluster;
static tsr__prediction predicted;

/* A share of 4 blocks with 4 MB of weights, and an embedding and a head of 1 MB each. */
static const tsr__model_share whole = {.block_bytes = 4e6,
                                       .block_parameters = 1e6,
                                       .embedding_bytes = 1e6,
                                       .head_bytes = 1e6,
                                       .head_parameters = 2.5e5,
                                       .cache_bytes = 2e6};

static tsr__grid_work work_of(tsr_plan_goal goal, int sequences)
{
    return (tsr__grid_work){.goal = goal,
                            .layers = 4,
                            .width = 250,
                            .vocabulary = 1000,
                            .context = 10,
                            .sequences = sequences,
                            .micro_batches = 1,
                            .context_ranks = 1,
                            .wire_bytes = 4};
}

static void expect(const tsr__grid_work *work, const tsr__grid *grid, double compute,
                   double messages, double idle)
{
    two_hosts(&cluster);
    ck_assert_ok(tsr__predict(&cluster, work, grid, &predicted));
    tsr__cluster_finish(&cluster);
    ck_assert_double_eq_tol(predicted.compute, compute, 1e-9);
    ck_assert_double_eq_tol(predicted.tensor + predicted.data + predicted.pipeline, messages, 1e-9);
    ck_assert_double_eq_tol(predicted.idle, idle, 1e-9);
    ck_assert_double_eq_tol(predicted.seconds, compute + messages + idle, 1e-9);
}

START_TEST(predicts_generation)
{
    tsr__grid_work work = work_of(TSR_PLAN_GENERATION, 1);
    const tsr__model_share shares[2] = {whole, whole};
    const int four[] = {4}, three_one[] = {3, 1};
    /* One rank alone reads its weights, the head and half of the cache. */
    expect(&work, &(tsr__grid){1, 1, 1, both, false, four, shares}, 6e-3, 0, 0);
    /* With tensor parallelism and equal shares, the slower rank counts. In addition there are 9
     * all-reduces of 1000 bytes, the logits, and the agreement on the token. */
    const double agreed = A + 8 / B;
    expect(&work, &(tsr__grid){1, 2, 1, both, false, four, shares}, 12e-3,
           9 * (A + 1000 / B) + A + 2000 / B + agreed, 0);
    /* Each of the 10 collectives takes 100 µs more on a device that must be waited for. */
    waits_for_device = true;
    expect(&work, &(tsr__grid){1, 2, 1, both, false, four, shares}, 12e-3,
           9 * (A + 1000 / B) + A + 2000 / B + agreed + 10 * 100e-6, 0);
    waits_for_device = false;
    /* With two stages, one sequence passes them one after the other: 3 blocks at 1 GB/s, and one
     * block and the head at 0.5 GB/s. */
    expect(&work, &(tsr__grid){1, 1, 2, both, false, three_one, shares}, 4.5e-3,
           A + 1000 / B + agreed, 3.75e-3);
    /* With a third of a processor, a rank waits for two others after each message. */
    processors = 1.0 / 3;
    expect(&work, &(tsr__grid){1, 1, 2, both, false, three_one, shares}, 4.5e-3,
           A + 1000 / B + agreed + 2 * 2 * 8e-6, 3.75e-3);
    expect(&work, &(tsr__grid){1, 2, 1, both, false, four, shares}, 12e-3,
           9 * (A + 1000 / B) + A + 2000 / B + agreed + 11 * 2 * 8e-6, 0);
    processors = 0;
    /* Two sequences are in flight. Each stage reads its weights for both. The second stage, which
     * is slower, waits for the first sequence. At the end the stages agree on the tokens. */
    work.sequences = 2;
    expect(&work, &(tsr__grid){1, 1, 2, both, false, three_one, shares}, 2 * 4.25e-3,
           A + 1000 / B + A + 12 / B, 3.375e-3);
    /* Three sequences are divided into three micro-batches, because all of them must have the same
     * size. */
    work.sequences = 3;
    tsr__grid grid = {1, 1, 2, both, false, three_one, shares};
    two_hosts(&cluster);
    ck_assert_ok(tsr__predict(&cluster, &work, &grid, &predicted));
    tsr__cluster_finish(&cluster);
    ck_assert_double_eq_tol(predicted.compute, 3 * 4.166666666666667e-3, 1e-9);
}
END_TEST

/* A pass reads the experts that at least one of its rows uses. */
START_TEST(reads_experts_that_are_used)
{
    tsr__grid_work work = work_of(TSR_PLAN_GENERATION, 1);
    tsr__model_share share = whole;
    const int four[] = {4};
    share.expert_bytes = 2e6;
    share.expert_use = 0.5;
    /* As above, without half of 2 MB; with two rows without a quarter. */
    expect(&work, &(tsr__grid){1, 1, 1, both, false, four, &share}, 6e-3 - 1e-3, 0, 0);
    work.sequences = 2;
    expect(&work, &(tsr__grid){1, 1, 1, both, false, four, &share}, 6e-3 - 0.5e-3, 0, 0);
    /* The slowest rank reads 1.5 times its part, 1.5 MB, of the experts that are used. */
    share.expert_skew = 1.5;
    expect(&work, &(tsr__grid){1, 1, 1, both, false, four, &share}, 6e-3 - 0.5e-3 + 0.75e-3, 0, 0);
}
END_TEST

/* A collective of ranks of one host waits for the device for less time than others. */
START_TEST(waits_for_devices_of_a_host)
{
    const tsr__grid_work work = work_of(TSR_PLAN_GENERATION, 1);
    const tsr__model_share shares[2] = {whole, whole};
    const tsr__grid grid = {1, 2, 1, both, false, (const int[]){4}, shares};
    double seconds[2];
    share_host = true;
    for (int i = 0; i < 2; i++) {
        waits_for_device = i == 1;
        two_hosts(&cluster);
        ck_assert_ok(tsr__predict(&cluster, &work, &grid, &predicted));
        tsr__cluster_finish(&cluster);
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
        tsr_plan_goal goal;
        int sequences;
        double seconds;
    } cases[] = {
        /* 3 ms, 4 layers of 1 ms, 10⁶ elements of the layers; 1 ms and 2.5 · 10⁵ elements of the
         * head */
        {TSR_PLAN_GENERATION, 1, 3e-3 + 4e-3 + 1e-2 + 1e-3 + 2.5e-3},
        {TSR_PLAN_GENERATION, 3, 4e-3 + 4 * 2e-3 + 2e-2 + 1.5e-3 + 2.5e-3},
        {TSR_PLAN_GENERATION, 10, 5e-3 + 4 * 3e-3 + 2 * 3e-2 + 2e-3 + 2 * 2.5e-3},
        /* one row of a prompt goes through the head */
        {TSR_PLAN_PROMPT, 1, 5e-3 + 4 * 3e-3 + 3e-2 + 1e-3 + 2.5e-3},
    };
    const tsr__model_share shares[1] = {whole};
    const int four[] = {4};
    const tsr__grid grid = {1, 1, 1, both, false, four, shares};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        tsr__grid_work work = work_of(cases[i].goal, cases[i].sequences);
        work.pass_tokens = 5;
        two_hosts(&cluster);
        cluster.rank[0].passes = 2;
        cluster.rank[0].pass[0] = (tsr__measured_pass){1, 3e-3, 1e-3, 1e-8, 1e-3, 1e-8, 0};
        cluster.rank[0].pass[1] = (tsr__measured_pass){5, 5e-3, 3e-3, 3e-8, 2e-3, 1e-8, 0};
        ck_assert_ok(tsr__predict(&cluster, &work, &grid, &predicted));
        tsr__cluster_finish(&cluster);
        ck_assert_double_eq_tol(predicted.compute, cases[i].seconds, 1e-9);
    }
}
END_TEST

/* Half of the elements are experts that take twice as long, and the slowest rank has 1.5 times its
 * part. In the host's memory they take as long as reading half of them. */
START_TEST(predicts_from_measured_experts)
{
    tsr__model_share share = whole;
    const int four[] = {4};
    const tsr__grid grid = {1, 1, 1, both, false, four, &share};
    const tsr__grid_work work = work_of(TSR_PLAN_GENERATION, 1);
    const double others = 3e-3 + 4e-3 + 5e5 * 1e-8 + 1e-3 + 2.5e-3,
                 seconds[] = {5e5 * 2e-8 * 1.5, 0.5 * 1e6 / 1e7 * 1.5};
    share.expert_parameters = 5e5;
    share.expert_use = 0.5;
    share.expert_skew = 1.5;
    for (int on_host = 0; on_host < 2; on_host++) {
        share.expert_bytes = on_host ? 0 : 1e6;
        share.host_bytes = 1e6 - share.expert_bytes;
        two_hosts(&cluster);
        cluster.rank[0].passes = 1;
        cluster.rank[0].host_bandwidth = 1e7;
        cluster.rank[0].pass[0] = (tsr__measured_pass){1, 3e-3, 1e-3, 1e-8, 1e-3, 1e-8, 2e-8};
        ck_assert_ok(tsr__predict(&cluster, &work, &grid, &predicted));
        tsr__cluster_finish(&cluster);
        ck_assert_double_eq_tol(predicted.compute, others + seconds[on_host], 1e-9);
    }
}
END_TEST

START_TEST(predicts_prompts)
{
    tsr__grid_work work = work_of(TSR_PLAN_PROMPT, 1);
    work.pass_tokens = 100;
    const tsr__model_share shares[2] = {whole, whole};
    const int four[] = {4}, two_two[] = {2, 2};
    expect(&work, &(tsr__grid){1, 1, 1, both, false, four, shares}, 2 * (1e6 * 100 + 2.5e5) / 1e9,
           0, 0);
    expect(&work, &(tsr__grid){1, 1, 2, both, false, two_two, shares},
           2 * (5e5 * 100 + 2.5e5) / 5e8, 0, 0);
}
END_TEST

START_TEST(predicts_training)
{
    tsr__grid_work work = work_of(TSR_PLAN_TRAINING, 2);
    const tsr__model_share shares[2] = {whole, whole};
    const int four[] = {4}, three_one[] = {3, 1};
    /* There are 20 rows and three passes, each with 1.25 million multiply-adds for each row. The
     * update of the weights moves 28 bytes for each of 1.5 million parameters. */
    const double alone = 3 * 2 * 1.25e6 * 20 / 1e9;
    const double end = 2 * (A + 8 / B); /* for the norm and the loss */
    expect(&work, &(tsr__grid){1, 1, 1, both, false, four, shares}, alone + 1.5e6 * 28 / 1e9, 0, 0);
    /* With data parallelism, each rank has half of the rows, and the slower rank counts. Gradients
     * of 6 MB are sent in pieces of 1 MiB; with shards, they are sent in three phases. */
    expect(&work, &(tsr__grid){2, 1, 1, both, false, four, shares}, alone + 1.5e6 * 28 / 5e8,
           2 * (6 * A + 3e6 / B) + end, 0);
    expect(&work, &(tsr__grid){2, 1, 1, both, true, four, shares}, alone + 7.5e5 * 28 / 5e8,
           3 * (A + 3e6 / B) + end, 0);
    /* Context ranks have half of the rows, too. Each of 4 blocks gathers keys and values twice, and
     * reduces their gradients: 2 MB for the 20 tokens of both. */
    tsr__model_share divided[2] = {whole, whole};
    divided[0].kv_bytes = divided[1].kv_bytes = 1e5;
    work.context_ranks = 2;
    expect(&work, &(tsr__grid){2, 1, 1, both, true, four, divided}, alone + 7.5e5 * 28 / 5e8,
           3 * (A + 3e6 / B) + end + 12 * (A + 1e6 / B), 0);
    work.context_ranks = 1;
    /* With two stages, the second one waits for the first. 5000 numbers are sent in each
     * direction. */
    work.micro_batches = 4;
    const double first = 3 * 2 * 0.75e6 * 20 / 1e9, second = 3 * 2 * 0.5e6 * 20 / 5e8;
    expect(&work, &(tsr__grid){1, 1, 2, both, false, three_one, shares},
           4 * second + 1e6 * 28 / 1e9, 2 * (A + 20000 / B) + end, first);
}
END_TEST

START_TEST(memory_of_ranks)
{
    tsr__grid_work work = work_of(TSR_PLAN_GENERATION, 2);
    work.micro_batches = 4;
    tsr__model_share shares[2] = {whole, whole};
    const int four[] = {4}, three_one[] = {3, 1};
    const tsr__grid alone = {1, 1, 1, both, false, four, shares},
                    stages = {1, 1, 2, both, false, three_one, shares},
                    sharded = {2, 1, 1, both, true, four, shares};
    ck_assert_double_eq(tsr__grid_memory(&work, &alone, 0), 8e6);
    ck_assert_double_eq(tsr__grid_memory(&work, &stages, 0), 5.5e6);
    ck_assert_double_eq(tsr__grid_memory(&work, &stages, 1), 2.5e6);
    /* There are 16 bytes for each parameter, two micro-batches in flight on the first stage, and
     * logits and their gradient on the last. */
    work.goal = TSR_PLAN_TRAINING;
    shares[0].activation_bytes = shares[1].activation_bytes = 1000;
    ck_assert_double_eq(tsr__grid_memory(&work, &alone, 0), 24e6 + 4 * 20 * 1000 + 160000);
    ck_assert_double_eq(tsr__grid_memory(&work, &stages, 0), 16e6 + 2 * 3 * 20 * 1000);
    ck_assert_double_eq(tsr__grid_memory(&work, &sharded, 0), 12e6 + 4e6 + 4 * 10 * 1000 + 80000);
    /* If the head is the embedding, a stage that has both keeps it once. */
    shares[0].tied = true;
    ck_assert_double_eq(tsr__grid_memory(&work, &alone, 0), 20e6 + 4 * 20 * 1000 + 160000);
}
END_TEST

/* Each allocation of a prediction fails once. */
START_TEST(lacks_memory)
{
    static const tsr_plan_goal goals[] = {TSR_PLAN_GENERATION, TSR_PLAN_PROMPT, TSR_PLAN_TRAINING};
    const tsr__grid_work work = work_of(goals[_i], 1);
    const tsr__model_share shares[2] = {whole, whole};
    const tsr__grid grid = {1, 1, 2, both, false, (const int[]){3, 1}, shares};
    uint64_t failures = 0;
    tsr_status status = TSR_ERR_NO_MEMORY;
    two_hosts(&cluster);
    for (; status != TSR_OK; failures++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, failures, 0);
        status = tsr__predict(&cluster, &work, &grid, &predicted);
        const bool failed = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, failed ? TSR_ERR_NO_MEMORY : TSR_OK);
    }
    tsr__cluster_finish(&cluster);
    ck_assert_uint_gt(failures, 2);
}
END_TEST

TESTS(planner_predict)
{
    tcase_add_test(tests, predicts_generation);
    tcase_add_test(tests, reads_experts_that_are_used);
    tcase_add_test(tests, waits_for_devices_of_a_host);
    tcase_add_test(tests, predicts_from_measured_passes);
    tcase_add_test(tests, predicts_from_measured_experts);
    tcase_add_test(tests, predicts_prompts);
    tcase_add_test(tests, predicts_training);
    tcase_add_test(tests, memory_of_ranks);
    tcase_add_loop_test(tests, lacks_memory, 0, 3);
}
