/* Tests the curriculum sampler. */
#include <math.h>

#include "items.h"
#include "sampler/info.h"
#include "support/random.h"

static tsr_sampler *sampler;
static items all, others;

static void create(const tsr_sampler_curriculum_params *params)
{
    tsr_sampler_destroy(&sampler);
    ck_assert_ok(tsr_sampler_create_curriculum(params, &sampler));
}

static void destroy(void)
{
    tsr_sampler_destroy(&sampler);
}

/* Returns whether an item may be drawn: an independent version of the documented rule. */
static bool may_come(const double *difficulties, uint64_t count, uint64_t item, int64_t epoch,
                     int64_t max_epochs)
{
    double progress = epoch >= max_epochs - 1 ? 1 : (double)epoch / (double)(max_epochs - 1),
           easiest = 2;
    for (uint64_t i = 0; i < count; i++)
        easiest = fmin(easiest, difficulties[i]);
    return difficulties[item] <= fmax(progress, easiest);
}

START_TEST(items_are_easy_enough_for_the_epoch)
{
    static double difficulties[200];
    uint64_t state = 11;
    for (int round = 0; round < 300; round++) {
        uint64_t count = (uint64_t)random_between(&state, 1, 200);
        int64_t samples = random_between(&state, 1, 300), epochs = random_between(&state, 1, 9);
        for (uint64_t i = 0; i < count; i++) /* many are at a threshold */
            difficulties[i] = (double)random_between(&state, round % 4, 8) / 8;
        create(tsr_sampler_curriculum_params(.difficulties = difficulties, .count = count,
                                             .num_samples = samples, .max_epochs = epochs,
                                             .seed = round));
        for (int64_t epoch = 0; epoch < epochs + 2; epoch++) {
            uint64_t seen[200] = {0}, valid = 0, repeated = 0;
            items_epoch(sampler, epoch, &all);
            ck_assert(all.count == (uint64_t)samples);
            for (uint64_t i = 0; i < all.count; i++) {
                ck_assert(all.indices[i] >= 0 && (uint64_t)all.indices[i] < count);
                ck_assert(may_come(difficulties, count, (uint64_t)all.indices[i], epoch, epochs));
                repeated += seen[all.indices[i]]++ > 0;
            }
            for (uint64_t i = 0; i < count; i++)
                valid += may_come(difficulties, count, i, epoch, epochs);
            if (valid >= (uint64_t)samples)
                ck_assert(repeated == 0);
            else
                ck_assert(repeated >= (uint64_t)samples - valid);
        }
    }
}
END_TEST

START_TEST(the_first_epoch_is_never_empty_and_the_last_has_all)
{
    const double difficulties[] = {0.9, 0.4, 1.0, 0.4, 0.7};
    create(
        tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 5, .max_epochs = 10));
    ck_assert_str_eq(info_of(sampler).name, "curriculum");
    ck_assert_uint_eq(info_of(sampler).batch_max, 0);
    ck_assert_uint_eq(tsr_sampler_length(sampler), 5);
    items_read(sampler, &all);
    for (uint64_t i = 0; i < 5; i++)
        ck_assert(all.indices[i] == 1 || all.indices[i] == 3);
    for (int64_t epoch = 9; epoch < 12; epoch++) {
        int seen = 0;
        items_epoch(sampler, epoch, &all);
        for (uint64_t i = 0; i < 5; i++)
            seen |= 1 << all.indices[i];
        ck_assert_int_eq(seen, 31);
    }
    /* With a single epoch, that epoch is the last one. */
    create(
        tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 5, .max_epochs = 1));
    int seen = 0;
    items_read(sampler, &all);
    for (uint64_t i = 0; i < 5; i++)
        seen |= 1 << all.indices[i];
    ck_assert_int_eq(seen, 31);
}
END_TEST

START_TEST(a_difficulty_at_the_threshold_is_included)
{
    const double difficulties[] = {1.0 / 3, 2.0 / 3, 1.0, -0.0};
    const int expected[] = {8, 9, 11, 15};
    create(tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 4,
                                         .num_samples = 200, .max_epochs = 4));
    for (int64_t epoch = 0; epoch < 4; epoch++) {
        int seen = 0;
        items_epoch(sampler, epoch, &all);
        for (uint64_t i = 0; i < all.count; i++)
            seen |= 1 << all.indices[i];
        ck_assert_int_eq(seen, expected[epoch]);
    }
}
END_TEST

START_TEST(negative_zero_equals_zero)
{
    double difficulties[] = {0, -0.0, 0, -0.0, 0, -0.0};
    create(
        tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 6, .max_epochs = 2));
    items_epoch(sampler, 0, &all);
    for (int i = 0; i < 6; i++)
        difficulties[i] = 0;
    create(
        tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 6, .max_epochs = 2));
    items_epoch(sampler, 0, &others);
    ck_assert(items_equal_from(&all, 0, &others));
}
END_TEST

/* Of 12 items, `valid` are easy enough to be drawn. Counts how often each of these is drawn in many
 * epochs, and returns the chi-square statistic of the counts. */
static double chi_square(int64_t samples, uint64_t valid, int64_t epochs)
{
    double difficulties[12], chi = 0;
    uint64_t seen[12] = {0};
    for (uint64_t i = 0; i < 12; i++)
        difficulties[i] = i < valid ? 0 : 1;
    create(tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 12,
                                         .num_samples = samples, .max_epochs = INT64_MAX));
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
        items_epoch(sampler, epoch, &all);
        for (uint64_t i = 0; i < all.count; i++)
            seen[all.indices[i]]++;
    }
    double expected = (double)(epochs * samples) / (double)valid;
    for (uint64_t i = 0; i < valid; i++)
        chi += ((double)seen[i] - expected) * ((double)seen[i] - expected) / expected;
    return chi;
}

START_TEST(valid_items_are_drawn_equally_often)
{
    ck_assert_double_lt(chi_square(100, 12, 2000), 31.3); /* 11 degrees of freedom, p = 0.001 */
    ck_assert_double_lt(chi_square(40, 7, 5000), 22.5);   /* 6 degrees of freedom */
    ck_assert_double_lt(chi_square(1, 12, 50000), 31.3);
    ck_assert_double_lt(chi_square(3, 12, 50000), 31.3);
}
END_TEST

START_TEST(order_depends_on_seed_and_epoch)
{
    double difficulties[64];
    for (int i = 0; i < 64; i++)
        difficulties[i] = i % 2;
    for (int64_t samples = 20; samples < 60; samples += 30) { /* without and with replacement */
        create(tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 64,
                                             .num_samples = samples, .max_epochs = 100));
        items_epoch(sampler, 0, &all);
        items_epoch(sampler, 1, &others);
        ck_assert(!items_equal_from(&all, 0, &others));
        create(tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 64,
                                             .num_samples = samples, .max_epochs = 100));
        items_epoch(sampler, 1, &all);
        ck_assert(items_equal_from(&all, 0, &others));
        create(tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 64,
                                             .num_samples = samples, .max_epochs = 100, .seed = 9));
        items_epoch(sampler, 1, &all);
        ck_assert(!items_equal_from(&all, 0, &others));
    }
}
END_TEST

static void check_refused(const tsr_sampler_curriculum_params *params, const char *text)
{
    tsr_sampler *made = NULL;
    ck_assert_error(tsr_sampler_create_curriculum(params, &made), TSR_ERR_INVALID, text);
    ck_assert_ptr_null(made);
}

START_TEST(errors)
{
    double difficulties[] = {0, 1, 1.5};
    check_refused(NULL, "curriculum: params is NULL");
    check_refused(tsr_sampler_curriculum_params(.count = 3, .max_epochs = 1),
                  "curriculum: difficulties is NULL for 3 items");
    check_refused(tsr_sampler_curriculum_params(.difficulties = difficulties, .max_epochs = 1),
                  "curriculum: there is nothing to draw from");
    check_refused(tsr_sampler_curriculum_params(.difficulties = difficulties,
                                                .count = TSR_MAX_SAMPLER_SORTED + 1,
                                                .max_epochs = 1),
                  "curriculum: 2147483649 items are more than 2^31");
    check_refused(tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 2,
                                                .num_samples = -1, .max_epochs = 1),
                  "curriculum: num_samples -1 is negative");
    check_refused(tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 2),
                  "curriculum: max_epochs 0 is not positive");
    check_refused(
        tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 3, .max_epochs = 1),
        "curriculum: item 2 has difficulty 1.5, which is not in 0 to 1");
    difficulties[1] = -1e-300;
    check_refused(
        tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 2, .max_epochs = 1),
        "curriculum: item 1 has difficulty -1e-300, which is not in 0 to 1");
    difficulties[0] = NAN;
    check_refused(
        tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 2, .max_epochs = 1),
        "curriculum: item 0 has difficulty nan, which is not in 0 to 1");
    difficulties[0] = 0;
    create(
        tsr_sampler_curriculum_params(.difficulties = difficulties, .count = 1, .max_epochs = 2));
    ck_assert_error(tsr_sampler_set_epoch(sampler, -2), TSR_ERR_INVALID,
                    "curriculum: epoch -2 is negative");
}
END_TEST

TESTS(curriculum)
{
    tcase_add_checked_fixture(tests, NULL, destroy);
    tcase_add_test(tests, items_are_easy_enough_for_the_epoch);
    tcase_add_test(tests, the_first_epoch_is_never_empty_and_the_last_has_all);
    tcase_add_test(tests, a_difficulty_at_the_threshold_is_included);
    tcase_add_test(tests, negative_zero_equals_zero);
    tcase_add_test(tests, valid_items_are_drawn_equally_often);
    tcase_add_test(tests, order_depends_on_seed_and_epoch);
    tcase_add_test(tests, errors);
}
