/* The public functions of plans, with a small model and clusters in memory. tests/cli/test_plan.c
 * tests more of their values, through the tool. */
#include <math.h>
#include <string.h>

#include "base/fault.h"
#include "support/check_main.h"
#include "tessera/planner.h"

#define MODEL TEST_DATA "/model/stories260K-f16.gguf"

/* Two hosts: two equal ranks, and one of half their speed. */
static const char two_hosts[] =
    "{\"hosts\": [{\"name\": \"left\", \"link\": {\"latency_us\": 5, \"gbytes_per_second\": 12},"
    "\"ranks\": [{\"count\": 2, \"gflops\": 10, \"memory_gbytes_per_second\": 1, \"memory\": "
    "\"1GiB\"}]},"
    "{\"name\": \"right\", \"processors\": 3,"
    "\"ranks\": [{\"gflops\": 5, \"memory_gbytes_per_second\": 0.5}]}],"
    "\"link\": {\"latency_us\": 60, \"gbytes_per_second\": 0.1}}";
static const char tiny[] =
    "{\"hosts\": [{\"name\": \"a\", \"ranks\": [{\"gflops\": 1, \"memory_gbytes_per_second\": 1,"
    "\"memory\": 1000}]}]}";

static tsr_cluster *cluster;
static tsr_cluster_plan *plan;
static tsr_model_file *file;

static void read_cluster(const char *text)
{
    ck_assert_ok(tsr_cluster_create(tsr_cluster_params(.description_text = text), &cluster));
}

static void create(void)
{
    read_cluster(two_hosts);
    ck_assert_ok(tsr_model_file_open(MODEL, &file));
}

static void destroy(void)
{
    tsr_cluster_plan_destroy(&plan);
    tsr_cluster_destroy(&cluster);
    tsr_model_file_close(&file);
    ck_assert_ptr_null(plan);
    ck_assert_ptr_null(cluster);
    tsr_cluster_plan_destroy(&plan);
    tsr_cluster_destroy(NULL);
}

static tsr_cluster_plan_info info_of(const tsr_cluster_plan *of)
{
    tsr_cluster_plan_info info = TSR_INIT(tsr_cluster_plan_info);
    ck_assert_ok(tsr_cluster_plan_get_info(of, &info));
    return info;
}

static tsr_cluster_grid grid_of(const tsr_cluster_plan *of, int number)
{
    tsr_cluster_grid grid = TSR_INIT(tsr_cluster_grid);
    ck_assert_ok(tsr_cluster_plan_get_grid(of, number, &grid));
    return grid;
}

START_TEST(describes_a_cluster)
{
    tsr_cluster_host_info host = TSR_INIT(tsr_cluster_host_info);
    tsr_cluster_rank_info rank = TSR_INIT(tsr_cluster_rank_info);
    ck_assert_int_eq(tsr_cluster_host_count(cluster), 2);
    ck_assert_int_eq(tsr_cluster_rank_count(cluster), 3);
    ck_assert_int_eq(tsr_cluster_host_count(NULL) + tsr_cluster_rank_count(NULL), 0);
    ck_assert_ok(tsr_cluster_get_host(cluster, 1, &host));
    ck_assert_str_eq(host.name, "right");
    ck_assert_int_eq(host.first_rank, 2);
    ck_assert_int_eq(host.ranks, 1);
    ck_assert_double_eq(host.processors, 3);
    ck_assert_ok(tsr_cluster_get_rank(cluster, 1, &rank));
    ck_assert_int_eq(rank.host, 0);
    ck_assert_uint_eq(rank.memory_bytes, UINT64_C(1) << 30);
    ck_assert_error(tsr_cluster_get_host(cluster, 2, &host), TSR_ERR_INVALID,
                    "planner: host 2 is not one of the cluster's 2 hosts");
    ck_assert_error(tsr_cluster_get_rank(cluster, -1, &rank), TSR_ERR_INVALID,
                    "planner: rank -1 is not one of the cluster's 3 ranks");
    ck_assert_error(tsr_cluster_get_host(NULL, 0, &host), TSR_ERR_INVALID,
                    "planner: cluster is NULL");
    ck_assert_error(tsr_cluster_get_rank(cluster, 0, NULL), TSR_ERR_INVALID,
                    "planner: out is NULL");
}
END_TEST

/* Grids are sorted by time, their parts add up, and the ranks of each place are those of the
 * cluster. The plan outlives its cluster and the model. */
START_TEST(lists_grids)
{
    const tsr_plan_goal goal = (tsr_plan_goal)_i;
    double before = 0;
    int wholes = 0;
    ck_assert_ok(tsr_cluster_plan_create(
        cluster, file, tsr_cluster_plan_params(.goal = goal, .sequences = 2, .context = 64),
        &plan));
    tsr_cluster_destroy(&cluster);
    tsr_model_file_close(&file);
    const tsr_cluster_plan_info info = info_of(plan);
    ck_assert_str_eq(info.architecture, "llama");
    ck_assert_int_eq(info.layers, 5);
    ck_assert_int_eq(info.best, 0);
    ck_assert_int_ge(info.grids, 6);
    for (int i = 0; i < info.grids; i++) {
        const tsr_cluster_grid g = grid_of(plan, i);
        int layers = 0;
        ck_assert_int_eq(g.rank_count, g.data * g.tensor * g.stages);
        ck_assert(g.data == 1 || goal == TSR_PLAN_TRAINING);
        ck_assert_int_eq(g.shares != NULL, goal == TSR_PLAN_TRAINING);
        for (int s = 0; s < g.stages; s++)
            layers += g.layers[s];
        ck_assert_int_eq(layers, 5);
        for (int r = 0; r < g.rank_count; r++)
            ck_assert(g.ranks[r] >= 0 && g.ranks[r] < 3 && (r == 0 || g.ranks[r] > g.ranks[r - 1]));
        ck_assert(g.predicted && g.seconds >= before && g.missing_bytes == 0);
        ck_assert_double_eq_tol(g.compute_seconds + g.tensor_seconds + g.data_seconds +
                                    g.stage_seconds + g.idle_seconds,
                                g.seconds, 1e-12);
        const double tokens = goal == TSR_PLAN_GENERATION ? 2
                              : goal == TSR_PLAN_PROMPT   ? 256
                                                          : 2 * 64;
        ck_assert_double_eq_tol(g.tokens_per_second * g.seconds, tokens, 1e-9);
        before = g.seconds;
        wholes += g.rank_count == 3;
    }
    ck_assert_int_gt(wholes, 0);
}
END_TEST

/* The two ranks that are joined by the fast link are the best; the slow link costs more than the
 * third rank saves. */
START_TEST(finds_the_best)
{
    ck_assert_ok(tsr_cluster_plan_create(cluster, file, NULL, &plan));
    const tsr_cluster_grid best = grid_of(plan, info_of(plan).best);
    ck_assert_int_eq(best.rank_count, 2);
    ck_assert_int_eq(best.tensor, 2);
    ck_assert_int_eq(best.ranks[1], 1);
    ck_assert_int_eq(best.shared_host, -1);
    ck_assert_double_eq(best.rates[0], 1);
}
END_TEST

START_TEST(finds_that_nothing_fits)
{
    tsr_cluster_destroy(&cluster);
    read_cluster(tiny);
    ck_assert_ok(tsr_cluster_plan_create(cluster, file, NULL, &plan));
    ck_assert_int_eq(info_of(plan).best, -1);
    const tsr_cluster_grid grid = grid_of(plan, 0);
    ck_assert_uint_eq(grid.missing_bytes, grid.memory_bytes[0] - 1000);
    ck_assert_int_eq(grid.missing_place, 0);
}
END_TEST

START_TEST(refuses_arguments)
{
    static const struct {
        tsr_cluster_plan_params params;
        const char *text;
    } wrong[] = {
        {{.goal = (tsr_plan_goal)3}, "planner: unknown goal 3"},
        {{.context = -1}, "planner: context is -1; it must be 1 to 1073741824"},
        {{.sequences = -2}, "planner: sequences is -2; it must be 1 to 1000000"},
        {{.micro_batches = 1000001}, "planner: micro_batches is 1000001; it must be 1 to 1000000"},
        {{.pass_tokens = -1}, "planner: pass_tokens is -1; it must be 1 to 1073741824"},
        {{.wire = TSR_I32},
         "planner: activations cannot be sent as i32; f32, f16, bf16 and q8_0 are possible"},
        {{.goal = TSR_PLAN_TRAINING, .expert_division = TSR_EXPERT_DIVISION_WHOLE},
         "planner: expert_division is 2 and host_experts 0; trainings divide experts inside, in "
         "the memory of devices"},
        {{.host_experts = 1},
         "planner: with host_experts, each rank needs \"host_gbytes_per_second\"; rank 0 has none"},
        {{.expert_division = (tsr_expert_division)4},
         "model: expert_division is 4, which is not a tsr_expert_division"},
        {{.cache_dtype = TSR_I32},
         "model: the cache cannot be i32; f32, f16, bf16, q8_0 and q4_0 are possible"},
    };
    tsr_cluster_grid grid = TSR_INIT(tsr_cluster_grid);
    tsr_cluster_plan_params params;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        params = wrong[i].params;
        params.struct_size = sizeof params;
        ck_assert_error(tsr_cluster_plan_create(cluster, file, &params, &plan), TSR_ERR_INVALID,
                        wrong[i].text);
    }
    ck_assert_error(tsr_cluster_plan_create(NULL, file, NULL, &plan), TSR_ERR_INVALID,
                    "planner: cluster is NULL");
    ck_assert_error(tsr_cluster_plan_create(cluster, NULL, NULL, &plan), TSR_ERR_INVALID,
                    "planner: model is NULL");
    ck_assert_ptr_null(plan);
    ck_assert_ok(tsr_cluster_plan_create(cluster, file, NULL, &plan));
    ck_assert_int_eq(tsr_cluster_plan_get_grid(plan, info_of(plan).grids, &grid), TSR_ERR_INVALID);
    ck_assert_error(tsr_cluster_plan_get_grid(NULL, 0, &grid), TSR_ERR_INVALID,
                    "planner: plan is NULL");
    grid.struct_size = 0;
    ck_assert_int_eq(tsr_cluster_plan_get_grid(plan, 0, &grid), TSR_ERR_INVALID);
    ck_assert_error(tsr_cluster_plan_get_info(plan, NULL), TSR_ERR_INVALID, "planner: out is NULL");
}
END_TEST

/* Each allocation of a plan fails once. */
START_TEST(lacks_memory)
{
    tsr_status status = TSR_ERR_NO_MEMORY;
    uint64_t failures = 0;
    for (; status != TSR_OK; failures++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, failures, 0);
        status = tsr_cluster_plan_create(
            cluster, file,
            tsr_cluster_plan_params(.goal = TSR_PLAN_TRAINING, .context = 16, .sequences = 2),
            &plan);
        const bool failed = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, failed ? TSR_ERR_NO_MEMORY : TSR_OK);
        ck_assert(failed == (plan == NULL));
    }
    ck_assert_uint_gt(failures, 50);
}
END_TEST

TESTS(cluster_plan)
{
    tcase_add_checked_fixture(tests, create, destroy);
    tcase_add_test(tests, describes_a_cluster);
    tcase_add_loop_test(tests, lists_grids, TSR_PLAN_GENERATION, TSR_PLAN_TRAINING + 1);
    tcase_add_test(tests, finds_the_best);
    tcase_add_test(tests, finds_that_nothing_fits);
    tcase_add_test(tests, refuses_arguments);
    tcase_add_test(tests, lacks_memory);
}
