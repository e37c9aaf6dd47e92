/* Strategies: the specified behaviour of each, balance, memory, creation by kind and name, and
 * strategies of the caller. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "shard/params/params.h"
#include "shard/plans.h"
#include "support/random.h"

static tsr_shard_kind kinds[] = {TSR_SHARD_FULL, TSR_SHARD_LAYERWISE, TSR_SHARD_HYBRID,
                                 TSR_SHARD_WEIGHTED};

static const tsr_shard_param model[] = {
    {.struct_size = sizeof(tsr_shard_param),
     .name = "embed.weight",
     .ndim = 2,
     .shape = {100, 8},
     .always_gather = true},
    {.struct_size = sizeof(tsr_shard_param), .name = "layers.0.weight", .ndim = 2, .shape = {8, 8}},
    {.struct_size = sizeof(tsr_shard_param), .name = "layers.0.bias", .ndim = 1, .shape = {5}},
    {.struct_size = sizeof(tsr_shard_param),
     .name = "layers.1.weight",
     .ndim = 2,
     .shape = {8, 8},
     .dtype = "bf16"},
    {.struct_size = sizeof(tsr_shard_param),
     .name = "head.weight",
     .ndim = 2,
     .shape = {3, 7},
     .dtype = "f64"},
    {.struct_size = sizeof(tsr_shard_param), .name = "scale"},
};
enum { MODEL = COUNT_OF(model) };

/* Full ----------------------------------------------------------------------------------------- */

START_TEST(full_divides_everything_but_gathered)
{
    tsr_shard_plan *plan = plan_of(NULL, MODEL, model, tsr_shard_plan_params(.ranks = 4));
    const tsr_shard_param *params = tsr_shard_plan_param(plan, 0);
    ck_assert_str_eq(summary_of(plan).strategy, "full");
    ck_assert_int_eq(tsr_shard_plan_ranks(plan), 4);
    for (uint64_t p = 0; p < MODEL; p++) {
        ck_assert(params[p].always_gather == model[p].always_gather);
        uint64_t shard = (params[p].count + 3) / 4;
        for (uint64_t r = 0; r < 4; r++) {
            tsr_shard_range range = range_in(plan, model[p].name, (int)r);
            uint64_t start = shard * r < params[p].count ? shard * r : params[p].count;
            uint64_t left = params[p].count - start;
            ck_assert_uint_eq(range.start, p == 0 ? 0 : start);
            ck_assert_uint_eq(range.count, p == 0 ? 800 : left < shard ? left : shard);
        }
    }
    /* 5 elements on 4 ranks give ranges of 2, 2, 1 and 0 elements. The empty range is kept. */
    ck_assert_uint_eq(range_in(plan, "layers.0.bias", 2).count, 1);
    ck_assert_uint_eq(range_in(plan, "layers.0.bias", 3).start, 5);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

START_TEST(full_with_other_partitions)
{
    tsr_shard_plan *plan = plan_of(
        tsr_shard_strategy_params(.kind = TSR_SHARD_FULL, .partition = TSR_PARTITION_UNEVEN), MODEL,
        model, tsr_shard_plan_params(.ranks = 4));
    ck_assert_uint_eq(range_in(plan, "layers.0.bias", 0).count, 2);
    ck_assert_uint_eq(range_in(plan, "layers.0.bias", 3).count, 1);
    tsr_shard_plan_destroy(&plan);

    plan = plan_of(tsr_shard_strategy_params(.align = 16), MODEL, model,
                   tsr_shard_plan_params(.ranks = 3));
    ck_assert_uint_eq(range_in(plan, "layers.0.weight", 1).start, 32);
    ck_assert_uint_eq(range_in(plan, "head.weight", 1).start, 16);
    ck_assert_uint_eq(range_in(plan, "head.weight", 1).count, 5);
    tsr_shard_plan_destroy(&plan);

    tsr_shard_strategy *strict =
        strategy_of(tsr_shard_strategy_params(.partition = TSR_PARTITION_STRICT));
    ck_assert_error(
        tsr_shard_plan_create(strict, MODEL, model, tsr_shard_plan_params(.ranks = 4), &plan),
        TSR_ERR_INVALID,
        "shard: parameter 'layers.0.bias': partition: 5 elements cannot be divided "
        "evenly among 4 ranks in units of 1");
    ck_assert_ptr_null(plan);
    ck_assert_ok(tsr_shard_plan_create(strict, 2, model, tsr_shard_plan_params(.ranks = 4), &plan));
    tsr_shard_plan_destroy(&plan);
    tsr_shard_strategy_destroy(&strict);
}
END_TEST

/* Quantised dtypes must be divided only between blocks. */
START_TEST(blocks_are_not_divided)
{
    static const tsr_shard_param list[] = {
        {.struct_size = sizeof(tsr_shard_param),
         .name = "a",
         .ndim = 2,
         .shape = {3, 512},
         .dtype = "q4_k"},
        {.struct_size = sizeof(tsr_shard_param),
         .name = "b",
         .ndim = 2,
         .shape = {3, 96},
         .dtype = "q8_0"},
        {.struct_size = sizeof(tsr_shard_param),
         .name = "c",
         .ndim = 1,
         .shape = {10},
         .dtype = "f4"},
    };
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        bool aligned = kinds[k] != TSR_SHARD_LAYERWISE;
        tsr_shard_plan *plan =
            plan_of(tsr_shard_strategy_params(.kind = kinds[k], .align = aligned ? 3 : 0), 3, list,
                    tsr_shard_plan_params(.ranks = 4));
        const tsr_shard_param *params = tsr_shard_plan_param(plan, 0);
        ck_assert_uint_eq(params[0].size_bytes, 6 * 144);
        ck_assert_uint_eq(params[1].size_bytes, 9 * 34);
        ck_assert_uint_eq(params[2].size_bytes, 5);
        for (uint64_t p = 0; p < 3; p++)
            for (int r = 0; r < 4; r++) {
                tsr_shard_range range;
                ck_assert_ok(tsr_shard_plan_range(plan, p, r, &range));
                ck_assert(range.start % params[p].block_count == 0);
                ck_assert(!aligned || range.start % 3 == 0 || range.start == params[p].count);
            }
        tsr_shard_plan_destroy(&plan);
    }
}
END_TEST

/* Layerwise ---------------------------------------------------------------------------------- */

START_TEST(layers_are_not_divided)
{
    tsr_shard_plan *plan = plan_of(tsr_shard_strategy_params(.kind = TSR_SHARD_LAYERWISE), MODEL,
                                   model, tsr_shard_plan_params(.ranks = 2));
    /* The bytes are: layers.0 276, head 168, layers.1 128, scale 4. The largest is assigned
     * first. */
    static const int owners[] = {0, 0, 0, 1, 1, 0};
    for (uint64_t p = 1; p < MODEL; p++)
        ck_assert_int_eq(whole_owner(plan, p), owners[p]);
    ck_assert_uint_eq(range_in(plan, "embed.weight", 0).count, 800);
    ck_assert_uint_eq(range_in(plan, "embed.weight", 1).count, 800);
    ck_assert_uint_eq(range_in(plan, "layers.1.weight", 0).count, 0);
    ck_assert_uint_eq(total_of(plan, 0).sharded_bytes, 276 + 4);
    ck_assert_uint_eq(total_of(plan, 1).sharded_bytes, 168 + 128);
    /* Parameters that are always gathered are in the summary. */
    tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
    ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
    ck_assert_uint_eq(summary.gathered_count, 1);
    ck_assert_uint_eq(summary.gathered_bytes, 3200);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

static tsr_shard_param numbered(char name[32], int layer, int64_t size)
{
    snprintf(name, 32, "layer%d.weight", layer);
    return (tsr_shard_param){
        .struct_size = sizeof(tsr_shard_param), .name = name, .ndim = 1, .shape = {size}};
}

/* Layers of the same size are assigned to the ranks in turn, in the natural order of their names
 * (layer2 before layer10), whatever the order of the list. */
START_TEST(equal_layers_in_natural_order)
{
    char names[12][32];
    tsr_shard_param list[12];
    for (int i = 0; i < 12; i++)
        list[i] = numbered(names[i], (i * 5) % 12, 10);
    tsr_shard_plan *plan = plan_of(tsr_shard_strategy_params(.kind = TSR_SHARD_LAYERWISE), 12, list,
                                   tsr_shard_plan_params(.ranks = 5));
    for (uint64_t i = 0; i < 12; i++)
        ck_assert_int_eq(whole_owner(plan, i), (int)(i * 5) % 12 % 5);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

/* The assignment must be the same for any order of the list, and within Graham's bound: no rank
 * has more than the mean plus the largest layer. */
START_TEST(layers_are_balanced)
{
    uint64_t state = 6;
    for (int round = 0; round < 300; round++) {
        enum { LAYERS = 40 };
        char names[LAYERS][32];
        tsr_shard_param list[LAYERS], shuffled[LAYERS];
        int order[LAYERS], ranks = (int)random_between(&state, 1, 9);
        int64_t largest = 0;
        for (int i = 0; i < LAYERS; i++) {
            int64_t size = random_between(&state, 0, round % 2 == 0 ? 5 : 1000);
            list[i] = numbered(names[i], i, size);
            largest = size > largest ? size : largest;
            int j = (int)random_between(&state, 0, i);
            order[i] = order[j];
            order[j] = i;
        }
        for (int i = 0; i < LAYERS; i++)
            shuffled[i] = list[order[i]];
        const tsr_shard_strategy_params *params =
            tsr_shard_strategy_params(.kind = TSR_SHARD_LAYERWISE);
        tsr_shard_plan *plan = plan_of(params, LAYERS, list, tsr_shard_plan_params(.ranks = ranks));
        tsr_shard_plan *other =
            plan_of(params, LAYERS, shuffled, tsr_shard_plan_params(.ranks = ranks));
        for (int r = 0; r < ranks; r++) {
            for (int i = 0; i < LAYERS; i++)
                ck_assert(range_in(plan, names[i], r).count == range_in(other, names[i], r).count);
            tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
            ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
            double mean = (double)summary.model_bytes / ranks;
            ck_assert((double)total_of(plan, r).total_bytes <= mean + (double)largest * 4);
        }
        tsr_shard_plan_destroy(&plan);
        tsr_shard_plan_destroy(&other);
    }
}
END_TEST

START_TEST(layers_by_rate_and_memory)
{
    char names[8][32];
    tsr_shard_param list[8];
    for (int i = 0; i < 8; i++)
        list[i] = numbered(names[i], i, 10);
    const tsr_shard_strategy_params *params =
        tsr_shard_strategy_params(.kind = TSR_SHARD_LAYERWISE);
    tsr_shard_plan *plan =
        plan_of(params, 8, list, tsr_shard_plan_params(.ranks = 3, .rates = (double[]){3, 0, 1}));
    ck_assert_uint_eq(total_of(plan, 0).sharded_bytes, 240);
    ck_assert_uint_eq(total_of(plan, 1).sharded_bytes, 0);
    ck_assert_uint_eq(total_of(plan, 2).sharded_bytes, 80);
    tsr_shard_plan_destroy(&plan);

    plan = plan_of(params, 8, list,
                   tsr_shard_plan_params(.ranks = 3, .memory_bytes = (uint64_t[]){100, 0, 50}));
    ck_assert_uint_eq(total_of(plan, 0).sharded_bytes, 80);
    ck_assert_uint_eq(total_of(plan, 1).sharded_bytes, 200);
    ck_assert_uint_eq(total_of(plan, 2).sharded_bytes, 40);
    tsr_shard_plan_destroy(&plan);

    tsr_shard_strategy *strategy = strategy_of(params);
    list[0].always_gather = true;
    ck_assert_error(
        tsr_shard_plan_create(
            strategy, 8, list,
            tsr_shard_plan_params(.ranks = 2, .memory_bytes = (uint64_t[]){150, 190}), &plan),
        TSR_ERR_INVALID,
        "shard: layer 'layer6' has 40 bytes, but the rank with the most memory left has 30");
    tsr_shard_strategy_destroy(&strategy);
}
END_TEST

/* Hybrid --------------------------------------------------------------------------------------- */

static const tsr_shard_param transformer[] = {
    {.struct_size = sizeof(tsr_shard_param),
     .name = "embed.weight",
     .ndim = 1,
     .shape = {64},
     .layer = "embed",
     .always_gather = true},
    {.struct_size = sizeof(tsr_shard_param),
     .name = "t.0.q",
     .ndim = 1,
     .shape = {64},
     .layer = "transformer.0.attention"},
    {.struct_size = sizeof(tsr_shard_param),
     .name = "t.0.mlp",
     .ndim = 1,
     .shape = {64},
     .layer = "transformer.0.mlp"},
    {.struct_size = sizeof(tsr_shard_param),
     .name = "c.w",
     .ndim = 1,
     .shape = {64},
     .layer = "classifier"},
    {.struct_size = sizeof(tsr_shard_param),
     .name = "h.w",
     .ndim = 1,
     .shape = {64},
     .layer = "lm.head"},
    {.struct_size = sizeof(tsr_shard_param),
     .name = "m.w",
     .ndim = 1,
     .shape = {64},
     .layer = "multi_head"},
    {.struct_size = sizeof(tsr_shard_param),
     .name = "n.w",
     .ndim = 1,
     .shape = {64},
     .layer = "norm"},
};
enum { TRANSFORMER = COUNT_OF(transformer) };

/* Returns a bit mask of the parameters that one rank has completely. */
static unsigned whole_params(const tsr_shard_strategy_params *params)
{
    tsr_shard_plan *plan =
        plan_of(params, TRANSFORMER, transformer, tsr_shard_plan_params(.ranks = 2));
    unsigned whole = 0;
    for (uint64_t p = 1; p < TRANSFORMER; p++)
        whole |= whole_owner(plan, p) >= 0 ? 1u << p : 0;
    ck_assert_uint_eq(range_in(plan, "embed.weight", 1).count, 64);
    tsr_shard_plan_destroy(&plan);
    return whole;
}

START_TEST(hybrid_by_lists)
{
    static const char *const attention[] = {"attention", NULL}, *const all[] = {"*", NULL},
                             *const none[] = {NULL},
                             *const but_mlp[] = {"transformer", "!mlp", NULL};
    const tsr_shard_kind hybrid = TSR_SHARD_HYBRID;
    /* The default lists match classifier and head, but not multi_head. */
    ck_assert_uint_eq(whole_params(tsr_shard_strategy_params(.kind = hybrid)), 0x18);
    /* Either list may be empty. */
    ck_assert_uint_eq(
        whole_params(tsr_shard_strategy_params(.kind = hybrid, .full_layers = attention)), 0);
    ck_assert_uint_eq(
        whole_params(tsr_shard_strategy_params(.kind = hybrid, .layerwise_layers = all)), 0x7e);
    ck_assert_uint_eq(whole_params(tsr_shard_strategy_params(.kind = hybrid, .full_layers = none,
                                                             .layerwise_layers = none)),
                      0);
    /* The list for full comes first. A layer that matches neither list is full. */
    ck_assert_uint_eq(
        whole_params(tsr_shard_strategy_params(.kind = hybrid, .full_layers = attention,
                                               .layerwise_layers = all)),
        0x7c);
    ck_assert_uint_eq(whole_params(tsr_shard_strategy_params(.kind = hybrid, .full_layers = but_mlp,
                                                             .layerwise_layers = all)),
                      0x7c);
}
END_TEST

/* The strategy assigns whole layers so that they balance the uneven ranges of the divided
 * layers. */
START_TEST(hybrid_balances_both_sides)
{
    static const tsr_shard_param list[] = {
        {.struct_size = sizeof(tsr_shard_param), .name = "full.a", .ndim = 1, .shape = {5}},
        {.struct_size = sizeof(tsr_shard_param), .name = "whole.1.a", .ndim = 1, .shape = {1}},
        {.struct_size = sizeof(tsr_shard_param), .name = "whole.2.a", .ndim = 1, .shape = {2}},
    };
    tsr_shard_plan *plan =
        plan_of(tsr_shard_strategy_params(.kind = TSR_SHARD_HYBRID,
                                          .layerwise_layers = (const char *const[]){"whole", NULL}),
                3, list, tsr_shard_plan_params(.ranks = 4));
    ck_assert_str_eq(summary_of(plan).strategy, "hybrid");
    ck_assert_int_eq(whole_owner(plan, 2), 3); /* the ranges of `full` are 2, 2, 1, 0 */
    ck_assert_int_eq(whole_owner(plan, 1), 2);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

/* Weighted ------------------------------------------------------------------------------------- */

START_TEST(weighted_by_rate)
{
    tsr_shard_plan *plan =
        plan_of(tsr_shard_strategy_params(.kind = TSR_SHARD_WEIGHTED), MODEL, model,
                tsr_shard_plan_params(.ranks = 3, .rates = (double[]){3, 0, 1}));
    /* The 576 bytes must be divided into 432 and 144. */
    ck_assert_uint_eq(total_of(plan, 0).sharded_bytes, 432);
    ck_assert_uint_eq(total_of(plan, 1).sharded_bytes, 0);
    ck_assert_uint_eq(total_of(plan, 2).sharded_bytes, 144);
    ck_assert_uint_eq(total_of(plan, 1).total_bytes, 3200);
    tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);
    ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
    ck_assert_double_eq(summary.imbalance, 1);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

static const char *const plain_dtypes[] = {"f32", "bf16", "u8", "f64"};

/* Everything that fits is placed, and no rank exceeds its memory. Without limits, each rank is
 * within one unit of its share. */
START_TEST(weighted_within_memory)
{
    uint64_t state = 7;
    int placed = 0, refused = 0;
    for (int round = 0; round < 4000; round++) {
        enum { PARAMS = 6 };
        char names[PARAMS][32];
        tsr_shard_param list[PARAMS];
        double rates[5], sum = 0;
        uint64_t memory[5], sharded = 0, gathered = 0, room = 0, largest = 1;
        int ranks = (int)random_between(&state, 1, 5);
        for (int i = 0; i < PARAMS; i++) {
            list[i] = numbered(names[i], i, random_between(&state, 0, 40));
            list[i].dtype = plain_dtypes[random_between(&state, 0, 3)];
            list[i].always_gather = random_between(&state, 0, 5) == 0;
            tsr__file_dtype dtype;
            ck_assert(tsr__dtype_by_name(list[i].dtype, &dtype));
            uint64_t bytes = (uint64_t)list[i].shape[0] * dtype.block_bytes;
            *(list[i].always_gather ? &gathered : &sharded) += bytes;
            bool counts = bytes > 0 && !list[i].always_gather;
            largest = counts && dtype.block_bytes > largest ? dtype.block_bytes : largest;
        }
        bool enough = true, limited = round % 4 != 0;
        for (int r = 0; r < ranks; r++) {
            rates[r] = (double)random_between(&state, r == 0, 3);
            sum += rates[r];
            memory[r] = gathered / 8 * 8 + 8 * (uint64_t)random_between(&state, 1, 60);
            enough = enough && memory[r] >= gathered;
            /* The memory that is left after smaller elements may not be a multiple of 8. The
             * largest elements need multiples of 8; smaller ones, whose sizes divide 8, can use the
             * rest. */
            room += rates[r] > 0 ? memory[r] - gathered : 0;
        }
        tsr_shard_strategy *strategy =
            strategy_of(tsr_shard_strategy_params(.kind = TSR_SHARD_WEIGHTED));
        tsr_shard_plan *plan = NULL;
        tsr_status status =
            tsr_shard_plan_create(strategy, PARAMS, list,
                                  tsr_shard_plan_params(.ranks = ranks, .rates = rates,
                                                        .memory_bytes = limited ? memory : NULL),
                                  &plan);
        tsr_shard_strategy_destroy(&strategy);
        /* The outcome is certain, unless the difference is less than one of the largest elements on
         * each rank. */
        if (!limited || (enough && sharded + 8 * (uint64_t)ranks <= room))
            ck_assert_msg(status == TSR_OK, "%s", tsr_last_error());
        if (limited && (!enough || sharded > room))
            ck_assert(status == TSR_ERR_INVALID);
        placed += status == TSR_OK;
        refused += status != TSR_OK;
        for (int r = 0; r < ranks && plan != NULL; r++) {
            uint64_t bytes = total_of(plan, r).sharded_bytes;
            ck_assert(!limited || bytes + gathered <= memory[r]);
            ck_assert(rates[r] > 0 || bytes == 0);
            double exact = (double)sharded * rates[r] / sum;
            ck_assert(limited || fabs((double)bytes - exact) <= (double)largest + 1);
        }
        tsr_shard_plan_destroy(&plan);
    }
    ck_assert_int_gt(placed, 1000);
    ck_assert_int_gt(refused, 300);
}
END_TEST

/* All memory of the ranks must be used, with sizes of elements that divide each other. */
START_TEST(weighted_fills_memory_exactly)
{
    static const tsr_shard_param list[] = {
        {.struct_size = sizeof(tsr_shard_param),
         .name = "bytes",
         .ndim = 1,
         .shape = {3},
         .dtype = "u8"},
        {.struct_size = sizeof(tsr_shard_param),
         .name = "halves",
         .ndim = 1,
         .shape = {4},
         .dtype = "f16"},
        {.struct_size = sizeof(tsr_shard_param),
         .name = "floats",
         .ndim = 1,
         .shape = {5},
         .dtype = "f32"},
    };
    const uint64_t memory[] = {13, 3, 11, 4};
    tsr_shard_plan *plan = plan_of(tsr_shard_strategy_params(.kind = TSR_SHARD_WEIGHTED), 3, list,
                                   tsr_shard_plan_params(.ranks = 4, .memory_bytes = memory));
    for (int r = 0; r < 4; r++)
        ck_assert_uint_eq(total_of(plan, r).total_bytes, memory[r]);
    tsr_shard_plan_destroy(&plan);

    tsr_shard_strategy *strategy =
        strategy_of(tsr_shard_strategy_params(.kind = TSR_SHARD_WEIGHTED));
    ck_assert_error(
        tsr_shard_plan_create(
            strategy, 3, list,
            tsr_shard_plan_params(.ranks = 4, .memory_bytes = (uint64_t[]){13, 3, 10, 4}), &plan),
        TSR_ERR_INVALID, "shard: the ranks' memory is too small: 1 bytes do not fit");
    ck_assert_error(
        tsr_shard_plan_create(strategy, 3, list,
                              tsr_shard_plan_params(.ranks = 4,
                                                    .gather = (const char *const[]){"floats", NULL},
                                                    .memory_bytes = (uint64_t[]){100, 19, 0, 0}),
                              &plan),
        TSR_ERR_INVALID, "shard: rank 1 would keep 20 bytes, but has memory for 19");
    tsr_shard_strategy_destroy(&strategy);
}
END_TEST

/* A parameter's last unit may be short, so it fits where a complete one does not. */
START_TEST(weighted_places_short_units)
{
    static const tsr_shard_param list[] = {{.struct_size = sizeof(tsr_shard_param),
                                            .name = "a",
                                            .ndim = 1,
                                            .shape = {10},
                                            .dtype = "u8"},
                                           {.struct_size = sizeof(tsr_shard_param),
                                            .name = "b",
                                            .ndim = 1,
                                            .shape = {5},
                                            .dtype = "f32"}};
    const uint64_t memory[] = {8 + 16, 2 + 4};
    const tsr_shard_strategy_params params = {
        .struct_size = sizeof params, .kind = TSR_SHARD_WEIGHTED, .align = 4};
    tsr_shard_plan *plan =
        plan_of(&params, 2, list, tsr_shard_plan_params(.ranks = 2, .memory_bytes = memory));
    for (int r = 0; r < 2; r++)
        ck_assert_uint_eq(total_of(plan, r).total_bytes, memory[r]);
    tsr_shard_plan_destroy(&plan);

    tsr_shard_strategy *strategy = strategy_of(&params);
    for (int again = 0; again < 2; again++)
        ck_assert_error(
            tsr_shard_plan_create(
                strategy, 1, list + 1,
                tsr_shard_plan_params(.ranks = 2, .memory_bytes = (uint64_t[]){15, 5}), &plan),
            TSR_ERR_INVALID,
            "shard: b is divided into units of 16 bytes, and no rank has memory for its last 20 "
            "bytes");
    tsr_shard_strategy_destroy(&strategy);
}
END_TEST

/* Creation ----------------------------------------------------------------------------------- */

START_TEST(strategies_by_kind_and_by_name)
{
    static const char *const names[] = {"full", "layerwise", "hybrid", "weighted"};
    for (size_t k = 0; k < COUNT_OF(kinds); k++) {
        tsr_shard_kind kind = TSR_SHARD_FULL;
        ck_assert_str_eq(tsr_shard_kind_name(kinds[k]), names[k]);
        ck_assert_ok(tsr_shard_kind_parse(names[k], &kind));
        ck_assert_int_eq(kind, kinds[k]);
        tsr_shard_strategy *strategy = strategy_of(tsr_shard_strategy_params(.kind = kinds[k]));
        ck_assert_str_eq(strategy->name, names[k]);
        tsr_shard_strategy_destroy(&strategy);
        ck_assert_ptr_null(strategy);
        tsr_shard_strategy_destroy(&strategy);
    }
    tsr_shard_strategy_destroy(NULL);
    tsr_shard_kind kind = TSR_SHARD_HYBRID;
    ck_assert_error(tsr_shard_kind_parse("Full", &kind), TSR_ERR_NOT_FOUND,
                    "shard: there is no strategy 'Full'");
    ck_assert_int_eq(kind, TSR_SHARD_HYBRID);
    ck_assert_str_eq(tsr_shard_kind_name((tsr_shard_kind)4), "?");
    ck_assert_str_eq(tsr_shard_kind_name((tsr_shard_kind)-1), "?");
}
END_TEST

static const struct {
    tsr_shard_strategy_params params;
    const char *text;
} mistakes[] = {
    {{.kind = (tsr_shard_kind)4}, "shard: 4 is no kind of strategy"},
    {{.partition = TSR_PARTITION_WEIGHTED}, "shard: the strategy full has no partition 3"},
    {{.partition = (tsr_partition_kind)7}, "shard: the strategy full has no partition 7"},
    {{.kind = TSR_SHARD_LAYERWISE, .partition = TSR_PARTITION_STRICT},
     "shard: the strategy layerwise has no partition 1"},
    {{.kind = TSR_SHARD_WEIGHTED, .partition = TSR_PARTITION_UNEVEN},
     "shard: the strategy weighted has no partition 2"},
    {{.kind = TSR_SHARD_LAYERWISE, .align = 2}, "shard: the strategy layerwise has no alignment"},
    {{.full_layers = (const char *const[]){NULL}},
     "shard: the strategy full has no lists of layers"},
    {{.kind = TSR_SHARD_WEIGHTED, .layerwise_layers = (const char *const[]){"a", NULL}},
     "shard: the strategy weighted has no lists of layers"},
    {{.kind = TSR_SHARD_HYBRID, .full_layers = (const char *const[]){"a", "[", NULL}},
     "shard: pattern '[': '[' at offset 0 is not complete"},
    {{.kind = TSR_SHARD_HYBRID, .layerwise_layers = (const char *const[]){"", NULL}},
     "shard: pattern '' is empty"},
};

START_TEST(creation_mistakes)
{
    tsr_shard_strategy *strategy = NULL;
    tsr_shard_strategy_params params = mistakes[_i].params;
    params.struct_size = sizeof params;
    ck_assert_error(tsr_shard_strategy_create(&params, &strategy), TSR_ERR_INVALID,
                    mistakes[_i].text);
    ck_assert_ptr_null(strategy);
}
END_TEST

START_TEST(alignments_that_are_too_large)
{
    static const tsr_shard_param list[] = {{.struct_size = sizeof(tsr_shard_param),
                                            .name = "a",
                                            .ndim = 1,
                                            .shape = {256},
                                            .dtype = "q4_k"}};
    tsr_shard_strategy *strategy = strategy_of(tsr_shard_strategy_params(.align = UINT64_MAX));
    tsr_shard_plan *plan = NULL;
    ck_assert_error(
        tsr_shard_plan_create(strategy, 1, list, tsr_shard_plan_params(.ranks = 2), &plan),
        TSR_ERR_OVERFLOW,
        "shard: an alignment of 18446744073709551615 elements is too large for q4_k");
    tsr_shard_strategy_destroy(&strategy);
}
END_TEST

/* Tests edge cases: one rank, nothing to divide, no elements. */
START_TEST(edges_of_every_strategy)
{
    const tsr_shard_strategy_params *params = tsr_shard_strategy_params(.kind = kinds[_i]);
    static const tsr_shard_param empty[] = {
        {.struct_size = sizeof(tsr_shard_param), .name = "none", .ndim = 2, .shape = {0, 7}}};
    tsr_shard_summary summary = TSR_INIT(tsr_shard_summary);

    tsr_shard_plan *plan = plan_of(params, MODEL, model, tsr_shard_plan_params(.ranks = 1));
    for (uint64_t p = 0; p < MODEL; p++)
        ck_assert_int_eq(whole_owner(plan, p), 0);
    ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
    ck_assert_uint_eq(summary.max_bytes, summary.model_bytes);
    ck_assert_double_eq(summary.imbalance, 1);
    tsr_shard_plan_destroy(&plan);

    plan = plan_of(params, 1, empty, tsr_shard_plan_params(.ranks = 3));
    ck_assert_uint_eq(total_of(plan, 2).total_bytes, 0);
    tsr_shard_plan_destroy(&plan);

    plan = plan_of(params, MODEL, model,
                   tsr_shard_plan_params(.ranks = 3, .gather = (const char *const[]){"*", NULL}));
    ck_assert_ok(tsr_shard_plan_get_summary(plan, &summary));
    ck_assert_uint_eq(summary.gathered_count, MODEL);
    ck_assert_uint_eq(summary.least_bytes, summary.model_bytes);
    ck_assert_double_eq(summary.imbalance, 1);
    tsr_shard_plan_destroy(&plan);

    tsr_shard_strategy *strategy = strategy_of(params);
    ck_assert_error(
        tsr_shard_plan_create(strategy, 0, model, tsr_shard_plan_params(.ranks = 3), &plan),
        TSR_ERR_INVALID, "shard: the list of parameters is empty");
    ck_assert_error(
        tsr_shard_plan_create(strategy, MODEL, model, tsr_shard_plan_params(.ranks = 0), &plan),
        TSR_ERR_INVALID, "shard: 0 ranks are outside 1 to 65536");
    tsr_shard_strategy_destroy(&strategy);
}
END_TEST

/* Strategies of the caller ------------------------------------------------------------------- */

/* A strategy of the caller that gives the first elements to the last rank. */
static tsr_status backwards(void *user, const tsr_shard_request *request, tsr_shard_range *ranges)
{
    ++*(int *)user;
    for (uint64_t p = 0; p < request->param_count; p++) {
        tsr_shard_range cut[16], *own = ranges + p * (uint64_t)request->ranks;
        tsr_status status = tsr_partition(request->params[p].count, request->ranks, NULL, cut);
        if (status != TSR_OK)
            return status;
        for (int r = 0; r < request->ranks; r++)
            own[r] = cut[request->ranks - 1 - r];
    }
    return TSR_OK;
}

START_TEST(a_strategy_of_the_caller)
{
    int calls = 0;
    const tsr_shard_strategy own = {.struct_size = sizeof(tsr_shard_strategy),
                                    .name = "back\"wards",
                                    .assign = backwards,
                                    .user = &calls};
    tsr_shard_plan *plan = NULL;
    ck_assert_ok(
        tsr_shard_plan_create(&own, MODEL, model, tsr_shard_plan_params(.ranks = 4), &plan));
    ck_assert_int_eq(calls, 1);
    ck_assert_str_eq(summary_of(plan).strategy, "back\"wards");
    ck_assert_uint_eq(range_in(plan, "layers.0.weight", 3).start, 0);
    ck_assert_uint_eq(range_in(plan, "embed.weight", 3).count, 800);
    uint64_t bias = 0;
    int owner = -1;
    ck_assert_ok(tsr_shard_plan_find(plan, "layers.0.bias", &bias));
    ck_assert_ok(tsr_shard_plan_owner(plan, bias, 4, &owner));
    ck_assert_int_eq(owner, 1);
    tsr_shard_plan_destroy(&plan);
}
END_TEST

static const tsr_shard_range *forced; /* the ranges of every parameter */
static tsr_status forced_status;

static tsr_status force(void *user, const tsr_shard_request *request, tsr_shard_range *ranges)
{
    (void)user;
    ck_assert_uint_eq(request->memory_bytes[0], UINT64_MAX);
    for (uint64_t i = 0; i < request->param_count * (uint64_t)request->ranks; i++) {
        ck_assert(ranges[i].start == 0 && ranges[i].count == 0);
        ranges[i] = forced[i % (uint64_t)request->ranks];
    }
    return forced_status;
}

START_TEST(ranges_of_a_strategy_are_checked)
{
    static const tsr_shard_param list[] = {
        {.struct_size = sizeof(tsr_shard_param),
         .name = "a",
         .ndim = 1,
         .shape = {4},
         .dtype = "f32"},
        {.struct_size = sizeof(tsr_shard_param),
         .name = "b",
         .ndim = 1,
         .shape = {4},
         .dtype = "f4"},
    };
    const tsr_shard_strategy own = {
        .struct_size = sizeof(tsr_shard_strategy), .name = "forced", .assign = force};
    const uint64_t memory[] = {0, 0};
    const tsr_shard_plan_params *options =
        tsr_shard_plan_params(.ranks = 2, .memory_bytes = memory);
    tsr_shard_plan *plan = NULL;
    forced = (const tsr_shard_range[]){{0, 2}, {3, 1}};
    ck_assert_error(tsr_shard_plan_create(&own, 2, list, options, &plan), TSR_ERR_INVALID,
                    "shard: parameter 'a': partition: elements 2 to 2 belong to no rank");
    forced = (const tsr_shard_range[]){{0, 3}, {2, 2}};
    ck_assert_error(tsr_shard_plan_create(&own, 2, list, options, &plan), TSR_ERR_INVALID,
                    "shard: parameter 'a': partition: element 2 belongs to rank 0 and to rank 1");
    forced = (const tsr_shard_range[]){{0, 3}, {3, 1}};
    ck_assert_error(tsr_shard_plan_create(&own, 2, list, options, &plan), TSR_ERR_INVALID,
                    "shard: parameter 'b': rank 0's 3 elements from 0 are not whole blocks of 2");
    forced = (const tsr_shard_range[]){{0, 2}, {2, 2}};
    forced_status = TSR_ERR_TIMEOUT;
    ck_assert_error(tsr_shard_plan_create(&own, 2, list, options, &plan), TSR_ERR_TIMEOUT,
                    "shard: the strategy 'forced' fails with TSR_ERR_TIMEOUT");
    forced_status = TSR_OK;
    ck_assert_ok(tsr_shard_plan_create(&own, 2, list, options, &plan));
    tsr_shard_plan_destroy(&plan);

    const tsr_shard_strategy nameless = {.struct_size = sizeof(tsr_shard_strategy),
                                         .name = "",
                                         .assign = force},
                             nothing = {.struct_size = sizeof(tsr_shard_strategy),
                                        .name = "nothing"};
    ck_assert_error(tsr_shard_plan_create(&nameless, 2, list, options, &plan), TSR_ERR_INVALID,
                    "shard: the strategy's name is empty");
    ck_assert_error(tsr_shard_plan_create(&nothing, 2, list, options, &plan), TSR_ERR_INVALID,
                    "shard: strategy->assign is NULL");
}
END_TEST

TESTS(strategy)
{
    int kind_count = (int)COUNT_OF(kinds);
    tcase_add_test(tests, full_divides_everything_but_gathered);
    tcase_add_test(tests, full_with_other_partitions);
    tcase_add_test(tests, blocks_are_not_divided);
    tcase_add_test(tests, layers_are_not_divided);
    tcase_add_test(tests, equal_layers_in_natural_order);
    tcase_add_test(tests, layers_are_balanced);
    tcase_add_test(tests, layers_by_rate_and_memory);
    tcase_add_test(tests, hybrid_by_lists);
    tcase_add_test(tests, hybrid_balances_both_sides);
    tcase_add_test(tests, weighted_by_rate);
    tcase_add_test(tests, weighted_within_memory);
    tcase_add_test(tests, weighted_fills_memory_exactly);
    tcase_add_test(tests, weighted_places_short_units);
    tcase_add_test(tests, strategies_by_kind_and_by_name);
    tcase_add_loop_test(tests, creation_mistakes, 0, (int)COUNT_OF(mistakes));
    tcase_add_test(tests, alignments_that_are_too_large);
    tcase_add_loop_test(tests, edges_of_every_strategy, 0, kind_count);
    tcase_add_test(tests, a_strategy_of_the_caller);
    tcase_add_test(tests, ranges_of_a_strategy_are_checked);
}
