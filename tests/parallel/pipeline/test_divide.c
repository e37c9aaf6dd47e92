/* The division of blocks over stages must be as fast as the best of all divisions that fit the
 * memory. Also tests the errors. */
#include <math.h>

#include "support/check_main.h"
#include "support/random.h"
#include "tessera/pipeline.h"

static void expect(const tsr_pipeline_divide_params *params, const int *want)
{
    int counts[8];
    tsr_status status = tsr_pipeline_divide(params, counts);
    ck_assert_msg(status == TSR_OK, "%s", tsr_last_error());
    for (int s = 0; s < params->stages; s++)
        ck_assert_msg(counts[s] == want[s], "stage %d has %d blocks instead of %d", s, counts[s],
                      want[s]);
}

START_TEST(divides_evenly)
{
    expect(tsr_pipeline_divide_params(.blocks = 4, .stages = 2), (int[]){2, 2});
    expect(tsr_pipeline_divide_params(.blocks = 5, .stages = 1), (int[]){5});
    /* The last stages keep the fewest activations, so they get the additional blocks. */
    expect(tsr_pipeline_divide_params(.blocks = 8, .stages = 3), (int[]){2, 3, 3});
    expect(tsr_pipeline_divide_params(.blocks = 3, .stages = 3), (int[]){1, 1, 1});
    expect(tsr_pipeline_divide_params(.blocks = 8, .stages = 3, .last_cost = 1), (int[]){3, 3, 2});
    expect(
        tsr_pipeline_divide_params(.blocks = 8, .stages = 2, .first_cost = 0.5, .last_cost = 2.5),
        (int[]){5, 3});
}
END_TEST

START_TEST(follows_rates)
{
    expect(tsr_pipeline_divide_params(.blocks = 8, .stages = 2, .rates = (double[]){3, 1}),
           (int[]){6, 2});
    expect(tsr_pipeline_divide_params(.blocks = 4, .stages = 3, .rates = (double[]){100, 1, 1}),
           (int[]){2, 1, 1});
}
END_TEST

START_TEST(fits_into_memory)
{
    tsr_pipeline_divide_params p = {.struct_size = sizeof p,
                                    .blocks = 8,
                                    .stages = 2,
                                    .memory_bytes = (uint64_t[]){35, 0},
                                    .block_bytes = 10,
                                    .first_bytes = 5};
    expect(&p, (int[]){3, 5});
    /* Stage 0 keeps two micro-batches of each block: 10 + 2 · 5 bytes. */
    p.activation_bytes = 5;
    p.micro_batches = 4;
    expect(&p, (int[]){1, 7});
    p.memory_bytes = (uint64_t[]){24, 0};
    int counts[2] = {7, 7};
    ck_assert_error(tsr_pipeline_divide(&p, counts), TSR_ERR_DEVICE_MEMORY,
                    "pipeline_divide: stage 0 has 24 bytes; one block needs 20 there, beside 5 "
                    "bytes of other layers");
    p.memory_bytes = (uint64_t[]){65, 40};
    ck_assert_error(tsr_pipeline_divide(&p, counts), TSR_ERR_DEVICE_MEMORY,
                    "pipeline_divide: the memory of 2 stages holds 5 of 8 blocks");
    ck_assert_int_eq(counts[0], 7);
    p.block_bytes = UINT64_MAX;
    ck_assert_error(tsr_pipeline_divide(&p, counts), TSR_ERR_OVERFLOW,
                    "pipeline_divide: the bytes of stage 0 overflow");
}
END_TEST

static double slowest(const tsr_pipeline_divide_params *p, const int *counts)
{
    double most = 0;
    for (int s = 0; s < p->stages; s++) {
        double cost = counts[s];
        cost += s == 0 ? p->first_cost : 0;
        cost += s == p->stages - 1 ? p->last_cost : 0;
        most = fmax(most, cost / p->rates[s]);
    }
    return most;
}

/* Returns the shortest time of all divisions within the limits; INFINITY if there is none. */
static double best_of_all(const tsr_pipeline_divide_params *p, const int *limits)
{
    double best = INFINITY;
    for (int a = 1; a <= p->blocks - 2; a++) {
        for (int b = 1; b <= p->blocks - a - 1; b++) {
            const int counts[] = {a, b, p->blocks - a - b};
            if (a <= limits[0] && b <= limits[1] && counts[2] <= limits[2])
                best = fmin(best, slowest(p, counts));
        }
    }
    return best;
}

START_TEST(no_division_is_better)
{
    uint64_t state = 1;
    int without = 0;
    for (int i = 0; i < 2000; i++) {
        double rates[3];
        uint64_t memory[3];
        int limits[3], counts[3];
        for (int s = 0; s < 3; s++) {
            rates[s] = 1 + (double)(random_next(&state) % 9);
            limits[s] = 1 + (int)(random_next(&state) % 8);
            memory[s] = (uint64_t)limits[s] * 10;
        }
        const tsr_pipeline_divide_params p = {.struct_size = sizeof p,
                                              .blocks = 3 + (int)(random_next(&state) % 12),
                                              .stages = 3,
                                              .rates = rates,
                                              .memory_bytes = memory,
                                              .block_bytes = 10,
                                              .first_cost = (double)(random_next(&state) % 3),
                                              .last_cost = (double)(random_next(&state) % 4)};
        const double best = best_of_all(&p, limits);
        tsr_status status = tsr_pipeline_divide(&p, counts);
        without += isinf(best);
        if (isinf(best)) {
            ck_assert(status == TSR_ERR_DEVICE_MEMORY);
            continue;
        }
        ck_assert(status == TSR_OK);
        ck_assert_int_eq(counts[0] + counts[1] + counts[2], p.blocks);
        for (int s = 0; s < 3; s++)
            ck_assert(counts[s] >= 1 && counts[s] <= limits[s]);
        ck_assert_double_eq_tol(slowest(&p, counts), best, 1e-12);
    }
    ck_assert_int_gt(without, 20);
    ck_assert_int_lt(without, 1980);
}
END_TEST

START_TEST(refuses)
{
    int counts[4];
    ck_assert_error(tsr_pipeline_divide(NULL, counts), TSR_ERR_INVALID,
                    "pipeline_divide: params is NULL");
    tsr_pipeline_divide_params p = {.struct_size = sizeof p, .blocks = 2, .stages = 3};
    ck_assert_error(tsr_pipeline_divide(&p, NULL), TSR_ERR_INVALID,
                    "pipeline_divide: counts is NULL");
    ck_assert_error(tsr_pipeline_divide(&p, counts), TSR_ERR_INVALID,
                    "pipeline_divide: 2 blocks cannot be divided over 3 stages");
    p.stages = 0;
    ck_assert_error(tsr_pipeline_divide(&p, counts), TSR_ERR_INVALID,
                    "pipeline_divide: 0 stages; 1 to 4096 are allowed");
    p.stages = 2;
    p.micro_batches = -1;
    ck_assert_error(tsr_pipeline_divide(&p, counts), TSR_ERR_INVALID,
                    "pipeline_divide: -1 micro-batches; 1 to 1048576 are allowed");
    p.micro_batches = 0;
    p.last_cost = -1;
    ck_assert_error(tsr_pipeline_divide(&p, counts), TSR_ERR_INVALID,
                    "pipeline_divide: the costs before and behind the blocks are 0 and -1; they "
                    "must be finite and at least 0");
    p.last_cost = 0;
    p.rates = (double[]){1, 0};
    ck_assert_error(tsr_pipeline_divide(&p, counts), TSR_ERR_INVALID,
                    "pipeline_divide: the rate of stage 1 is 0; it must be finite and more than 0");
}
END_TEST

TESTS(divide)
{
    tcase_add_test(tests, divides_evenly);
    tcase_add_test(tests, follows_rates);
    tcase_add_test(tests, fits_into_memory);
    tcase_add_test(tests, no_division_is_better);
    tcase_add_test(tests, refuses);
}
