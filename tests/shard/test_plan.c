/* Plans: queries, errors, and allocations that fail. */
#include <float.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fault.h"
#include "shard/formats/readers.h"
#include "shard/params/params.h"
#include "shard/plan/shard_plan.h"
#include "shard/plans.h"
#include "shard/strategy/strategy.h"
#include "support/random.h"
#include "support/refused.h"

static const tsr_shard_param list[] = {
    {.struct_size = sizeof(tsr_shard_param),
     .name = "embed.weight",
     .ndim = 2,
     .shape = {10, 4},
     .dtype = "f16"},
    {.struct_size = sizeof(tsr_shard_param), .name = "layers.0.w", .ndim = 2, .shape = {3, 5}},
    {.struct_size = sizeof(tsr_shard_param), .name = "layers.0.b", .ndim = 1, .shape = {0}},
    {.struct_size = sizeof(tsr_shard_param),
     .name = "head.weight",
     .ndim = 2,
     .shape = {4, 10},
     .dtype = "f16",
     .always_gather = true},
    {.struct_size = sizeof(tsr_shard_param), .name = "scale"},
};
enum { LIST = COUNT_OF(list) };

static tsr_shard_plan *three_ranks(void)
{
    return plan_of(NULL, LIST, list, tsr_shard_plan_params(.ranks = 3));
}

START_TEST(parameters_are_complete)
{
    tsr_shard_plan *plan = three_ranks();
    const tsr_shard_param *params = tsr_shard_plan_param(plan, 0);
    static const struct {
        const char *layer, *dtype;
        uint64_t count, size_bytes;
    } expected[LIST] = {{"embed", "f16", 40, 80},
                        {"layers.0", "f32", 15, 60},
                        {"layers.0", "f32", 0, 0},
                        {"head", "f16", 40, 80},
                        {"scale", "f32", 1, 4}};
    ck_assert_uint_eq(tsr_shard_plan_param_count(plan), LIST);
    for (uint64_t p = 0; p < LIST; p++) {
        uint64_t found = LIST;
        ck_assert_str_eq(params[p].name, list[p].name);
        ck_assert_ptr_ne(params[p].name, list[p].name);
        ck_assert_str_eq(params[p].layer, expected[p].layer);
        ck_assert_str_eq(params[p].dtype, expected[p].dtype);
        ck_assert_uint_eq(params[p].count, expected[p].count);
        ck_assert_uint_eq(params[p].size_bytes, expected[p].size_bytes);
        ck_assert_int_eq(params[p].ndim, list[p].ndim);
        ck_assert_mem_eq(params[p].shape, list[p].shape, sizeof list[p].shape);
        ck_assert_ok(tsr_shard_plan_find(plan, list[p].name, &found));
        ck_assert_uint_eq(found, p);
    }
    ck_assert_ptr_null(summary_of(plan).rates);
    ck_assert_ptr_null(summary_of(plan).memory_bytes);
    tsr_shard_plan_destroy(&plan);
    tsr_shard_plan_destroy(&plan);
    tsr_shard_plan_destroy(NULL);
}
END_TEST

/* For each element, the rank that owns it must be the one whose range contains it, and totals
 * must be the sums of ranges. */
START_TEST(queries_agree)
{
    for (int kind = 0; kind < 4; kind++) {
        tsr_shard_plan *plan =
            plan_of(tsr_shard_strategy_params(.kind = (tsr_shard_kind)kind), LIST, list,
                    tsr_shard_plan_params(.ranks = 3, .rates = (double[]){1, 2, 1}));
        const tsr_shard_param *params = tsr_shard_plan_param(plan, 0);
        uint64_t sharded[3] = {0}, shards[3] = {0};
        for (uint64_t p = 0; p < LIST; p++) {
            tsr_shard_range ranges[3];
            for (int r = 0; r < 3; r++) {
                ck_assert_ok(tsr_shard_plan_range(plan, p, r, &ranges[r]));
                sharded[r] += p == 3 ? 0 : ranges[r].count * params[p].block_bytes;
                shards[r] += p != 3 && ranges[r].count > 0;
            }
            for (uint64_t i = 0; i < params[p].count; i++) {
                int owner = -7, expected = TSR_SHARD_EVERY_RANK;
                for (int r = 0; r < 3 && p != 3; r++)
                    if (i >= ranges[r].start && i < ranges[r].start + ranges[r].count)
                        expected = r;
                ck_assert_ok(tsr_shard_plan_owner(plan, p, i, &owner));
                ck_assert_int_eq(owner, expected);
                ck_assert(p == 3 || owner >= 0);
            }
        }
        uint64_t most = 0, least = UINT64_MAX;
        double slowest = 0;
        for (int r = 0; r < 3; r++) {
            tsr_shard_rank_total total = total_of(plan, r);
            ck_assert_uint_eq(total.sharded_bytes, sharded[r]);
            ck_assert_uint_eq(total.shard_count, shards[r]);
            ck_assert_uint_eq(total.gathered_bytes, 80);
            ck_assert_uint_eq(total.total_bytes, sharded[r] + 80);
            most = total.total_bytes > most ? total.total_bytes : most;
            least = total.total_bytes < least ? total.total_bytes : least;
            double time = (double)sharded[r] / (r == 1 ? 2 : 1);
            slowest = time > slowest ? time : slowest;
        }
        tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
        ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
        ck_assert_uint_eq(summary.model_bytes, 224);
        ck_assert_uint_eq(summary.sharded_bytes, 144);
        ck_assert_uint_eq(summary.gathered_bytes, 80);
        ck_assert_uint_eq(summary.gathered_count, 1);
        ck_assert_uint_eq(summary.max_bytes, most);
        ck_assert_uint_eq(summary.least_bytes, least);
        ck_assert_double_eq_tol(summary.imbalance, slowest / (144.0 / 4), 1e-12);
        tsr_shard_plan_destroy(&plan);
    }
}
END_TEST

START_TEST(shards_on_a_rank_of_rate_0)
{
    tsr_shard_plan *plan =
        plan_of(NULL, LIST, list, tsr_shard_plan_params(.ranks = 2, .rates = (double[]){0, 1}));
    tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
    ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
    ck_assert_double_infinite(summary.imbalance);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

/* The unit of the rates makes no difference, even if their sum or the times exceed the range of
 * double. */
static const double units[] = {1, 1e308 / 3, DBL_MIN, 1e-306, 1e-320, 0x1p-1074};

START_TEST(rates_in_any_unit)
{
    static const double shares[][2] = {{1, 1}, {3, 1}, {1, 3}, {0, 2}};
    for (size_t i = 0; i < COUNT_OF(shares); i++) {
        tsr_shard_summary summary = TSR_INIT(tsr_shard_summary), expected = summary;
        tsr_shard_strategy_params params = {.struct_size = sizeof params,
                                            .kind = TSR_SHARD_WEIGHTED};
        const double rates[] = {shares[i][0] * units[_i], shares[i][1] * units[_i]};
        tsr_shard_plan *plan =
            plan_of(&params, LIST, list, tsr_shard_plan_params(.ranks = 2, .rates = shares[i]));
        ck_assert_ok(tsr_shard_plan_get_summary(plan, &expected));
        tsr_shard_plan_destroy(&plan);
        plan = plan_of(&params, LIST, list, tsr_shard_plan_params(.ranks = 2, .rates = rates));
        ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
        ck_assert_double_eq_tol(summary.imbalance, expected.imbalance, 1e-12);
        ck_assert_double_eq_tol(summary.imbalance, 1, 0.05);
        ck_assert_uint_eq(summary.max_bytes, expected.max_bytes);
        tsr_shard_plan_destroy(&plan);
    }
}
END_TEST

/* The imbalance is infinite only if a rate is 0. */
START_TEST(a_rate_near_0)
{
    tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
    tsr_shard_plan *plan = plan_of(
        NULL, LIST, list, tsr_shard_plan_params(.ranks = 2, .rates = (double[]){0x1p-1074, 1e308}));
    ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
    ck_assert_double_eq(summary.imbalance, DBL_MAX);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

/* The last matching pattern decides. If none matches, the parameter's own flag decides. */
START_TEST(gathered_by_pattern_or_flag)
{
    static const struct {
        const char *patterns[4];
        unsigned gathered;
    } cases[] = {
        {{NULL}, 0x8},
        {{"embed*", NULL}, 0x9},
        {{"!head", NULL}, 0},
        {{"*", "!w", NULL}, 0x1d},
        {{"!*", "layers.*", NULL}, 0x6},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int kind = 0; kind < 4; kind++) {
            tsr_shard_plan *plan =
                plan_of(tsr_shard_strategy_params(.kind = (tsr_shard_kind)kind), LIST, list,
                        tsr_shard_plan_params(.ranks = 2, .gather = cases[i].patterns));
            unsigned gathered = 0;
            for (uint64_t p = 0; p < LIST; p++)
                gathered |= tsr_shard_plan_param(plan, p)->always_gather ? 1u << p : 0;
            ck_assert_uint_eq(gathered, cases[i].gathered);
            tsr_shard_plan_destroy(&plan);
        }
}
END_TEST

START_TEST(invalid_queries)
{
    tsr_shard_plan *plan = three_ranks();
    tsr_shard_range range = {7, 7};
    tsr_shard_rank_total total = {.struct_size = sizeof total, .total_bytes = 7};
    uint64_t param = 7;
    int rank = 7;
    ck_assert_error(tsr_shard_plan_range(plan, 5, 0, &range), TSR_ERR_INVALID,
                    "shard: parameter 5 is not among the plan's 5");
    ck_assert_error(tsr_shard_plan_range(plan, 0, 3, &range), TSR_ERR_INVALID,
                    "shard: rank 3 is not among the plan's 3");
    ck_assert_error(tsr_shard_plan_range(plan, 0, -1, &range), TSR_ERR_INVALID,
                    "shard: rank -1 is not among the plan's 3");
    ck_assert_error(tsr_shard_plan_owner(plan, UINT64_MAX, 0, &rank), TSR_ERR_INVALID,
                    "shard: parameter 18446744073709551615 is not among the plan's 5");
    ck_assert_error(tsr_shard_plan_owner(plan, 1, 15, &rank), TSR_ERR_INVALID,
                    "shard: element 15 is not among the 15 of 'layers.0.w'");
    ck_assert_error(tsr_shard_plan_owner(plan, 2, 0, &rank), TSR_ERR_INVALID,
                    "shard: element 0 is not among the 0 of 'layers.0.b'");
    ck_assert_error(tsr_shard_plan_get_rank_total(plan, 3, &total), TSR_ERR_INVALID,
                    "shard: rank 3 is not among the plan's 3");
    ck_assert_error(tsr_shard_plan_find(plan, "layers.0", &param), TSR_ERR_NOT_FOUND,
                    "shard: the plan has no parameter 'layers.0'");
    ck_assert(range.start == 7 && total.total_bytes == 7 && param == 7 && rank == 7);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

static const struct {
    tsr_shard_param params[2];
    tsr_status status;
    const char *text;
} bad_params[] = {
    {{{.struct_size = sizeof(tsr_shard_param), .name = NULL},
      {.struct_size = sizeof(tsr_shard_param), .name = "b"}},
     TSR_ERR_INVALID,
     "shard: parameter 0: its name is missing"},
    {{{.struct_size = sizeof(tsr_shard_param), .name = "a"},
      {.struct_size = sizeof(tsr_shard_param), .name = ""}},
     TSR_ERR_INVALID,
     "shard: parameter 1: its name is empty"},
    {{{.struct_size = sizeof(tsr_shard_param), .name = "a"},
      {.struct_size = sizeof(tsr_shard_param), .name = "b\n"}},
     TSR_ERR_INVALID,
     "shard: parameter 1: its name has a control character"},
    {{{.struct_size = sizeof(tsr_shard_param), .name = "a", .layer = "\xff"},
      {.struct_size = sizeof(tsr_shard_param), .name = "b"}},
     TSR_ERR_INVALID,
     "shard: parameter 0 ('a'): its layer's name is not UTF-8"},
    {{{.struct_size = sizeof(tsr_shard_param), .name = "a", .ndim = 9},
      {.struct_size = sizeof(tsr_shard_param), .name = "b"}},
     TSR_ERR_INVALID,
     "shard: parameter 0 ('a'): 9 dimensions are outside 0 to 8"},
    {{{.struct_size = sizeof(tsr_shard_param), .name = "a", .ndim = -1},
      {.struct_size = sizeof(tsr_shard_param), .name = "b"}},
     TSR_ERR_INVALID,
     "shard: parameter 0 ('a'): -1 dimensions are outside 0 to 8"},
    {{{.struct_size = sizeof(tsr_shard_param), .name = "a", .ndim = 2, .shape = {3, -4}},
      {.struct_size = sizeof(tsr_shard_param), .name = "b"}},
     TSR_ERR_INVALID,
     "shard: parameter 0 ('a'): dimension 1 is -4"},
    {{{.struct_size = sizeof(tsr_shard_param),
       .name = "a",
       .ndim = 2,
       .shape = {INT64_C(1) << 32, INT64_C(1) << 31}},
      {.struct_size = sizeof(tsr_shard_param), .name = "b"}},
     TSR_ERR_OVERFLOW,
     "shard: parameter 0 ('a'): it is larger than 2^63 - 1"},
    {{{.struct_size = sizeof(tsr_shard_param), .name = "a", .ndim = 1, .shape = {INT64_C(1) << 61}},
      {.struct_size = sizeof(tsr_shard_param), .name = "b"}},
     TSR_ERR_OVERFLOW,
     "shard: parameter 0 ('a'): it is larger than 2^63 - 1"},
    {{{.struct_size = sizeof(tsr_shard_param), .name = "a", .ndim = 1, .shape = {INT64_C(1) << 60}},
      {.struct_size = sizeof(tsr_shard_param),
       .name = "b",
       .ndim = 1,
       .shape = {INT64_C(1) << 60}}},
     TSR_ERR_OVERFLOW,
     "shard: all parameters together are larger than 2^63 - 1 bytes"},
    {{{.struct_size = sizeof(tsr_shard_param), .name = "a", .dtype = "f33"},
      {.struct_size = sizeof(tsr_shard_param), .name = "b"}},
     TSR_ERR_INVALID,
     "shard: parameter 0 ('a'): there is no dtype 'f33'"},
    {{{.struct_size = sizeof(tsr_shard_param),
       .name = "a",
       .dtype = "q4_0",
       .ndim = 1,
       .shape = {33}},
      {.struct_size = sizeof(tsr_shard_param), .name = "b"}},
     TSR_ERR_INVALID,
     "shard: parameter 0 ('a'): 33 elements are not a whole number of q4_0's blocks of 32"},
    {{{.struct_size = sizeof(tsr_shard_param), .name = "same"},
      {.struct_size = sizeof(tsr_shard_param), .name = "same"}},
     TSR_ERR_INVALID,
     "shard: parameters 0 and 1 are both 'same'"},
};

START_TEST(parameters_are_checked)
{
    tsr_shard_strategy *strategy = strategy_of(NULL);
    tsr_shard_plan *plan = NULL;
    tsr_status status = tsr_shard_plan_create(strategy, 2, bad_params[_i].params,
                                              tsr_shard_plan_params(.ranks = 2), &plan);
    ck_assert_str_eq(tsr_last_error(), bad_params[_i].text);
    ck_assert_int_eq(status, bad_params[_i].status);
    ck_assert_ptr_null(plan);
    tsr_shard_strategy_destroy(&strategy);
}
END_TEST

/* One size is 0, and the product of the others would overflow. */
START_TEST(empty_shapes_do_not_overflow)
{
    static const tsr_shard_param empty[] = {{.struct_size = sizeof(tsr_shard_param),
                                             .name = "a",
                                             .ndim = 3,
                                             .shape = {INT64_MAX, INT64_MAX, 0}}};
    tsr_shard_plan *plan = plan_of(NULL, 1, empty, tsr_shard_plan_params(.ranks = 2));
    ck_assert_uint_eq(tsr_shard_plan_param(plan, 0)->count, 0);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

static const struct {
    tsr_shard_plan_params options;
    const char *text;
} bad_options[] = {
    {{.ranks = 0}, "shard: 0 ranks are outside 1 to 65536"},
    {{.ranks = INT_MAX}, "shard: 2147483647 ranks are outside 1 to 65536"},
    {{.ranks = 2, .rates = (double[]){1, -2}},
     "shard: rank 1's rate is -2; rates must be finite and not negative"},
    {{.ranks = 2, .rates = (double[]){0, 0}}, "shard: all 2 rates are 0"},
    {{.ranks = 2, .gather = (const char *const[]){"[", NULL}},
     "shard: pattern '[': '[' at offset 0 is not complete"},
    {{.ranks = 2, .memory_bytes = (uint64_t[]){0, 147}},
     "shard: rank 1 would keep 148 bytes, but has memory for 147"},
};

START_TEST(options_are_checked)
{
    tsr_shard_strategy *strategy = strategy_of(NULL);
    tsr_shard_plan *plan = NULL;
    tsr_shard_plan_params options = bad_options[_i].options;
    options.struct_size = sizeof options;
    ck_assert_error(tsr_shard_plan_create(strategy, LIST, list, &options, &plan), TSR_ERR_INVALID,
                    bad_options[_i].text);
    ck_assert_ptr_null(plan);
    tsr_shard_strategy_destroy(&strategy);
}
END_TEST

/* A program with older headers passes shorter structs, and one with newer headers longer ones. */
START_TEST(sizes_of_structs)
{
    struct {
        tsr_shard_param param;
        uint64_t later;
    } grown[2] = {{{.struct_size = sizeof *grown, .name = "a"}, 0},
                  {{.struct_size = sizeof *grown, .name = "b"}, 0}};
    struct {
        tsr_shard_strategy strategy;
        uint64_t later;
    } longer = {.later = 0};
    tsr_shard_strategy *strategy = strategy_of(NULL);
    const tsr_shard_plan_params *options = tsr_shard_plan_params(.ranks = 2);
    tsr_shard_plan *plan = NULL, *none = NULL;
    longer.strategy = *strategy;
    longer.strategy.struct_size = sizeof longer;
    ck_assert_ok(tsr_shard_plan_create(&longer.strategy, 2, &grown[0].param, options, &plan));
    ck_assert_str_eq(tsr_shard_plan_param(plan, 1)->name, "b");
    ck_assert_uint_eq(tsr_shard_plan_param(plan, 1)->struct_size, sizeof(tsr_shard_param));
    ck_assert_ok(tsr_shard_plan_check(plan, 2, &grown[0].param));
    grown[1].later = 1;
    ck_assert_int_eq(tsr_shard_plan_check(plan, 2, &grown[0].param), TSR_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "tsr_shard_param: "));
    ck_assert_int_eq(tsr_shard_plan_create(strategy, 2, &grown[0].param, options, &none),
                     TSR_ERR_INVALID);
    longer.later = 1;
    ck_assert_int_eq(tsr_shard_plan_create(&longer.strategy, LIST, list, options, &none),
                     TSR_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "tsr_shard_strategy: "));
    longer.later = 0;
    longer.strategy.struct_size = offsetof(tsr_shard_strategy, destroy);
    tsr_shard_plan_destroy(&plan);
    ck_assert_ok(tsr_shard_plan_create(&longer.strategy, LIST, list, options, &plan));
    longer.strategy.struct_size = 0;
    ck_assert_error(tsr_shard_plan_create(&longer.strategy, LIST, list, options, &none),
                    TSR_ERR_INVALID,
                    "tsr_shard_strategy: struct_size is 0; use TSR_INIT(tsr_shard_strategy)");
    ck_assert_ptr_null(none);

    tsr_shard_summary summary = {.struct_size = offsetof(tsr_shard_summary, imbalance)};
    ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
    ck_assert(summary.model_bytes > 0 && summary.imbalance == 0);
    summary.struct_size = 0;
    ck_assert_error(tsr_shard_plan_get_summary(plan, &summary), TSR_ERR_INVALID,
                    "tsr_shard_summary: struct_size is 0; use TSR_INIT(tsr_shard_summary)");
    tsr_shard_rank_total total = {0};
    ck_assert_error(tsr_shard_plan_get_rank_total(plan, 0, &total), TSR_ERR_INVALID,
                    "tsr_shard_rank_total: struct_size is 0; use TSR_INIT(tsr_shard_rank_total)");
    tsr_shard_plan_destroy(&plan);
    tsr_shard_strategy_destroy(&strategy);
}
END_TEST

/* Outputs, which a call that fails must not change. */
static struct {
    tsr_shard_range ranges[2];
    tsr__file_dtype dtype;
    bool matched;
    tsr_shard_kind kind;
    tsr_shard_strategy *strategy;
    tsr_shard_plan *plan;
    tsr_shard_list *list;
    uint64_t param;
    int rank;
    tsr_shard_rank_total total;
    tsr_shard_summary summary;
    char text[16];
    size_t size;
} out;

/* Calls every function that returns a status with NULL arguments, in the header's order. */
START_TEST(nulls)
{
    static const char json[] = "[]";
    tsr_shard_strategy *strategy = strategy_of(NULL),
                       no_function = {.struct_size = sizeof no_function, .name = "none"};
    tsr_shard_plan *plan = three_ranks();
    const tsr_shard_plan_params *options = tsr_shard_plan_params(.ranks = 1);

    ck_assert_int_eq(tsr_shard_plan_ranks(NULL), 0);
    ck_assert_uint_eq(tsr_shard_plan_param_count(NULL), 0);
    ck_assert_ptr_null(tsr_shard_plan_param(NULL, 0));
    ck_assert_ptr_null(tsr_shard_plan_param(plan, tsr_shard_plan_param_count(plan)));
    ck_assert_ptr_null(tsr_shard_request_param(NULL, 0));
    ck_assert(!tsr__plan_equal(plan, NULL) && !tsr__plan_equal(NULL, plan));
    ck_assert_int_eq(tsr_shard_list_format(NULL), 0);
    ck_assert_uint_eq(tsr_shard_list_param_count(NULL), 0);
    ck_assert_ptr_null(tsr_shard_list_param(NULL, 0));

    REFUSED(tsr_partition(5, 2, NULL, NULL), "partition: ranges");
    REFUSED(tsr__partition_check(5, 2, NULL), "partition: ranges");
    REFUSED(tsr__shard_match(NULL, NULL, true, &out.matched), "shard: name");
    REFUSED(tsr__shard_match(NULL, "a", true, NULL), "shard: matched");
    REFUSED(tsr_shard_kind_parse(NULL, &out.kind), "shard: name");
    REFUSED(tsr_shard_kind_parse("full", NULL), "shard: out");
    REFUSED(tsr_shard_strategy_create(NULL, NULL), "shard: out");
    REFUSED(tsr_shard_plan_create(NULL, LIST, list, options, &out.plan), "shard: strategy");
    REFUSED(tsr_shard_plan_create(strategy, LIST, NULL, options, &out.plan), "shard: params");
    REFUSED(tsr_shard_plan_create(strategy, LIST, list, NULL, &out.plan), "shard: options");
    REFUSED(tsr_shard_plan_create(strategy, LIST, list, options, NULL), "shard: out");
    REFUSED(tsr_shard_plan_create(&no_function, LIST, list, options, &out.plan),
            "shard: strategy->assign");
    REFUSED(tsr_shard_plan_find(NULL, "scale", &out.param), "shard: plan");
    REFUSED(tsr_shard_plan_find(plan, NULL, &out.param), "shard: name");
    REFUSED(tsr_shard_plan_find(plan, "scale", NULL), "shard: param");
    REFUSED(tsr_shard_plan_range(NULL, 0, 0, out.ranges), "shard: plan");
    REFUSED(tsr_shard_plan_range(plan, 0, 0, NULL), "shard: range");
    REFUSED(tsr_shard_plan_owner(NULL, 0, 0, &out.rank), "shard: plan");
    REFUSED(tsr_shard_plan_owner(plan, 0, 0, NULL), "shard: rank");
    REFUSED(tsr_shard_plan_get_rank_total(NULL, 0, &out.total), "shard: plan");
    REFUSED(tsr_shard_plan_get_rank_total(plan, 0, NULL), "shard: total");
    REFUSED(tsr_shard_plan_get_summary(NULL, &out.summary), "shard: plan");
    REFUSED(tsr_shard_plan_get_summary(plan, NULL), "shard: summary");
    REFUSED(tsr_shard_plan_check(NULL, LIST, list), "shard: plan");
    REFUSED(tsr_shard_plan_save_json(NULL, sizeof out.text, out.text, &out.size), "shard: plan");
    REFUSED(tsr_shard_plan_save_json(plan, sizeof out.text, NULL, NULL), "shard: size_bytes");
    REFUSED(tsr_shard_plan_load_json(NULL, 2, &out.plan), "plan: text");
    REFUSED(tsr_shard_plan_load_json("{}", 2, NULL), "plan: out");
    REFUSED(tsr_shard_list_open(NULL, &out.list), "shard: path");
    REFUSED(tsr_shard_list_open("none.json", NULL), "shard: out");
    REFUSED(tsr__list_parse(TSR_SHARD_JSON, NULL, 2, 2, &out.list), "shard: data");
    REFUSED(tsr__list_parse(TSR_SHARD_JSON, json, 2, 2, NULL), "shard: out");
    ck_assert_ok(tsr_shard_plan_check(plan, 0, NULL));
    tsr_shard_plan_destroy(&plan);
    tsr_shard_strategy_destroy(&strategy);
}
END_TEST

START_TEST(too_many_ranges)
{
    enum { MANY = 1025 };
    char(*names)[16] = calloc(MANY, sizeof *names);
    tsr_shard_param *many = calloc(MANY, sizeof *many);
    tsr_shard_strategy *strategy = strategy_of(NULL);
    tsr_shard_plan *plan = NULL;
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "%d", i);
        many[i].struct_size = sizeof *many;
        many[i].name = names[i];
    }
    ck_assert_error(
        tsr_shard_plan_create(strategy, MANY, many, tsr_shard_plan_params(.ranks = 65536), &plan),
        TSR_ERR_INVALID, "shard: 1025 parameters on 65536 ranks are more than 67108864 ranges");
    tsr_shard_strategy_destroy(&strategy);
    free(names);
    free(many);
}
END_TEST

/* A memory limit that is exactly enough must be enough. */
START_TEST(memory_is_a_limit_of_every_strategy)
{
    for (int kind = 0; kind < 4; kind++) {
        const tsr_shard_strategy_params *params =
            tsr_shard_strategy_params(.kind = (tsr_shard_kind)kind);
        tsr_shard_plan *plan = plan_of(params, LIST, list, tsr_shard_plan_params(.ranks = 2));
        uint64_t memory[2] = {total_of(plan, 0).total_bytes, total_of(plan, 1).total_bytes};
        tsr_shard_plan *limited =
            plan_of(params, LIST, list, tsr_shard_plan_params(.ranks = 2, .memory_bytes = memory));
        ck_assert_uint_eq(summary_of(limited).memory_bytes[1], memory[1]);
        ck_assert(!tsr__plan_equal(plan, limited));
        tsr_shard_plan_destroy(&limited);
        memory[1]--;
        tsr_shard_strategy *strategy = strategy_of(params);
        ck_assert_int_eq(tsr_shard_plan_create(
                             strategy, LIST, list,
                             tsr_shard_plan_params(.ranks = 2, .memory_bytes = memory), &limited),
                         TSR_ERR_INVALID);
        tsr_shard_strategy_destroy(&strategy);
        tsr_shard_plan_destroy(&plan);
    }
}
END_TEST

START_TEST(plans_are_checked_against_parameters)
{
    tsr_shard_plan *plan = three_ranks();
    tsr_shard_param other[LIST];
    ck_assert_ok(tsr_shard_plan_check(plan, 0, NULL));
    ck_assert_ok(tsr_shard_plan_check(plan, LIST, list));
    ck_assert_error(tsr_shard_plan_check(plan, 4, list), TSR_ERR_INVALID,
                    "shard: 4 parameters, in the plan there are 5");
    memcpy(other, list, sizeof other);
    other[1].name = "layers.1.w";
    ck_assert_error(tsr_shard_plan_check(plan, LIST, other), TSR_ERR_INVALID,
                    "shard: parameter 1 is 'layers.1.w', in the plan it is 'layers.0.w'");
    memcpy(other, list, sizeof other);
    other[0].shape[0] = 40;
    other[0].shape[1] = 1;
    ck_assert_error(tsr_shard_plan_check(plan, LIST, other), TSR_ERR_INVALID,
                    "shard: parameter 'embed.weight' has another shape in the plan");
    memcpy(other, list, sizeof other);
    other[1].dtype = "i32";
    ck_assert_error(tsr_shard_plan_check(plan, LIST, other), TSR_ERR_INVALID,
                    "shard: parameter 'layers.0.w' is i32, in the plan it is f32");
    other[1].dtype = "no";
    ck_assert_error(tsr_shard_plan_check(plan, LIST, other), TSR_ERR_INVALID,
                    "shard: parameter 1: there is no dtype 'no'");
    tsr_shard_plan_destroy(&plan);
}
END_TEST

START_TEST(equal_plans)
{
    tsr_shard_plan *plan = three_ranks(), *same = three_ranks(), *other;
    ck_assert(tsr__plan_equal(plan, same));
    ck_assert(tsr__plan_equal(plan, plan));
    tsr_shard_param changed[LIST];
    memcpy(changed, list, sizeof changed);
    changed[0].layer = "elsewhere";
    const struct {
        const tsr_shard_strategy_params *strategy;
        uint64_t count;
        const tsr_shard_param *params;
        const tsr_shard_plan_params *options;
    } others[] = {
        {NULL, LIST, list, tsr_shard_plan_params(.ranks = 2)},
        {NULL, 4, list, tsr_shard_plan_params(.ranks = 3)},
        {NULL, LIST, changed, tsr_shard_plan_params(.ranks = 3)},
        {NULL, LIST, list,
         tsr_shard_plan_params(.ranks = 3, .gather = (const char *const[]){"embed", NULL})},
        {NULL, LIST, list, tsr_shard_plan_params(.ranks = 3, .rates = (double[]){1, 1, 1})},
        {NULL, LIST, list,
         tsr_shard_plan_params(.ranks = 3, .memory_bytes = (uint64_t[]){0, 0, 0})},
        {tsr_shard_strategy_params(.partition = TSR_PARTITION_UNEVEN), LIST, list,
         tsr_shard_plan_params(.ranks = 3)},
        {tsr_shard_strategy_params(.kind = TSR_SHARD_WEIGHTED), LIST, list,
         tsr_shard_plan_params(.ranks = 3)},
    };
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        other = plan_of(others[i].strategy, others[i].count, others[i].params, others[i].options);
        ck_assert_msg(!tsr__plan_equal(plan, other), "%zu", i);
        ck_assert(!tsr__plan_equal(other, plan));
        tsr_shard_plan_destroy(&other);
    }
    tsr_shard_plan_destroy(&plan);
    tsr_shard_plan_destroy(&same);
}
END_TEST

/* Calls every function that allocates. Each allocation fails in turn. */
static tsr_status everything(int kind)
{
    static const double rates[] = {1, 2};
    static const uint64_t memory[] = {1000, 0};
    static const char *const lists[] = {"layers*", NULL};
    tsr_shard_strategy *strategy = NULL;
    tsr_shard_plan *plan = NULL, *read = NULL;
    bool hybrid = kind == TSR_SHARD_HYBRID;
    char json[4096];
    size_t size = 0;
    tsr_status status = tsr_shard_strategy_create(
        tsr_shard_strategy_params(.kind = (tsr_shard_kind)kind,
                                  .full_layers = hybrid ? lists : NULL,
                                  .layerwise_layers = hybrid ? lists : NULL),
        &strategy);
    if (status == TSR_OK)
        status = tsr_shard_plan_create(
            strategy, LIST, list,
            tsr_shard_plan_params(.ranks = 2, .rates = rates, .memory_bytes = memory), &plan);
    if (status == TSR_OK)
        status = tsr_shard_plan_save_json(plan, sizeof json, json, &size);
    if (status == TSR_OK)
        status = tsr_shard_plan_load_json(json, size, &read);
    if (status == TSR_OK)
        ck_assert(tsr__plan_equal(plan, read));
    else
        ck_assert_ptr_null(read);
    tsr_shard_strategy_destroy(&strategy);
    tsr_shard_plan_destroy(&plan);
    tsr_shard_plan_destroy(&read);
    return status;
}

START_TEST(every_allocation_may_fail)
{
    for (int kind = 0; kind < 4; kind++) {
        uint64_t nth = 0;
        for (;; nth++) {
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
            tsr_status status = everything(kind);
            bool reached = tsr__fault_site() != NULL;
            tsr__fault_disarm();
            ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
            if (!reached)
                break;
            ck_assert_ptr_nonnull(strstr(tsr_last_error(), "out of host memory"));
        }
        ck_assert_uint_gt(nth, 20);
    }
}
END_TEST

TESTS(plan)
{
    tcase_add_test(tests, parameters_are_complete);
    tcase_add_test(tests, queries_agree);
    tcase_add_test(tests, shards_on_a_rank_of_rate_0);
    tcase_add_loop_test(tests, rates_in_any_unit, 0, (int)COUNT_OF(units));
    tcase_add_test(tests, a_rate_near_0);
    tcase_add_test(tests, gathered_by_pattern_or_flag);
    tcase_add_test(tests, invalid_queries);
    tcase_add_loop_test(tests, parameters_are_checked, 0, (int)COUNT_OF(bad_params));
    tcase_add_test(tests, empty_shapes_do_not_overflow);
    tcase_add_loop_test(tests, options_are_checked, 0, (int)COUNT_OF(bad_options));
    tcase_add_test(tests, sizes_of_structs);
    tcase_add_test(tests, nulls);
    tcase_add_test(tests, too_many_ranges);
    tcase_add_test(tests, memory_is_a_limit_of_every_strategy);
    tcase_add_test(tests, plans_are_checked_against_parameters);
    tcase_add_test(tests, equal_plans);
    tcase_add_test(tests, every_allocation_may_fail);
}
