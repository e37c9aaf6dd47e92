/* Tests the stratified sampler: compares its batches with a brute-force assignment of classes to
 * places that uses exact fractions. */
#include "items.h"
#include "sampler/info.h"
#include "support/random.h"

static tsr_sampler *sampler;
static items all, others;

static void create(const tsr_sampler_stratified_params *params)
{
    tsr_sampler_destroy(&sampler);
    ck_assert_ok(tsr_sampler_create_stratified(params, &sampler));
}

static void destroy(void)
{
    tsr_sampler_destroy(&sampler);
}

/* The tests that count items by label use labels 0 … 49. */
enum { LABELS = 50 };

/* Computes the class of each place by the rule in sampler.h: for each place, compares all
 * classes. */
static void assign_by_rule(const int64_t *labels, int64_t count, int64_t batch, int64_t *classes)
{
    int64_t size[LABELS] = {0}, given[LABELS] = {0};
    for (int64_t i = 0; i < count; i++)
        size[labels[i]]++;
    for (int64_t p = 0; p < count; p++) {
        int64_t end = (p / batch + 1) * batch < count ? (p / batch + 1) * batch : count, best = -1;
        for (int64_t c = 0; c < LABELS; c++) {
            if (size[c] == 0)
                continue;
            int64_t behind = size[c] * end - given[c] * count;
            int64_t most = best < 0 ? INT64_MIN : size[best] * end - given[best] * count;
            if (behind > most || (behind == most && size[c] < size[best]))
                best = c;
        }
        classes[p] = best;
        given[best]++;
    }
}

static void check_against_brute_force(const int64_t *labels, uint64_t count, int64_t batch)
{
    static int64_t classes[MAX_ITEMS];
    bool seen[MAX_ITEMS] = {false};
    assign_by_rule(labels, (int64_t)count, batch, classes);
    ck_assert_uint_eq(all.start[all.count], count);
    for (uint64_t p = 0; p < count; p++) {
        ck_assert(labels[all.indices[p]] == classes[p]);
        ck_assert(!seen[all.indices[p]]);
        seen[all.indices[p]] = true;
    }
    for (uint64_t b = 0; b + 1 < all.count; b++)
        ck_assert(items_size(&all, b) == (uint64_t)batch);
}

START_TEST(the_same_as_by_brute_force)
{
    static int64_t labels[600];
    uint64_t state = 5;
    for (int round = 0; round < 500; round++) {
        uint64_t count = (uint64_t)random_between(&state, 0, round < 450 ? 80 : 600);
        int64_t batch = random_between(&state, 1, 40), classes = random_between(&state, 1, LABELS);
        for (uint64_t i = 0; i < count; i++) {
            int64_t label = random_between(&state, 0, classes - 1);
            /* In every other round, some classes are much larger than others. */
            labels[i] = round % 2 == 0 ? label : label * random_between(&state, 0, label) / classes;
        }
        create(tsr_sampler_stratified_params(.labels = labels, .count = count, .batch_size = batch,
                                             .seed = round));
        ck_assert_str_eq(info_of(sampler).name, "stratified");
        items_epoch(sampler, round % 7, &all);
        check_against_brute_force(labels, count, batch);
    }
}
END_TEST

/* If the number of items of each class in a batch can be exact, it is, with any values of
 * labels. */
START_TEST(proportions_that_fit_are_exact)
{
    int64_t labels[1000];
    for (int64_t i = 0; i < 1000; i++) /* 10 %, 20 %, 70 % */
        labels[i] = i % 10 == 0 ? -7 : i % 10 < 3 ? INT64_MIN : INT64_MAX;
    create(tsr_sampler_stratified_params(.labels = labels, .count = 1000, .batch_size = 20));
    for (int64_t epoch = 0; epoch < 5; epoch++) {
        items_epoch(sampler, epoch, &all);
        for (uint64_t b = 0; b < 50; b++) {
            int seen[3] = {0};
            for (uint64_t i = all.start[b]; i < all.start[b + 1]; i++) {
                int64_t label = labels[all.indices[i]];
                seen[label == -7 ? 0 : label == INT64_MIN ? 1 : 2]++;
            }
            ck_assert_int_eq(seen[0], 2);
            ck_assert_int_eq(seen[1], 4);
            ck_assert_int_eq(seen[2], 14);
        }
    }
}
END_TEST

/* The items of a small class must be spread over the epoch, so that they do not run out early. */
START_TEST(a_rare_class_is_spread_over_the_epoch)
{
    int64_t labels[200] = {0};
    uint64_t found[4], at = 0;
    for (int i = 0; i < 4; i++)
        labels[50 * i + 3] = 1;
    create(tsr_sampler_stratified_params(.labels = labels, .count = 200, .batch_size = 10));
    items_epoch(sampler, 0, &all);
    for (uint64_t p = 0; p < 200; p++)
        if (labels[all.indices[p]] == 1)
            found[at++] = p / 10;
    ck_assert_uint_eq(at, 4); /* there is one in the middle of each quarter of the 20 batches */
    for (uint64_t i = 0; i < 4; i++)
        ck_assert_uint_eq(found[i], 5 * i + 2);
}
END_TEST

START_TEST(classes_of_one_item_each)
{
    int64_t labels[97];
    for (int64_t i = 0; i < 97; i++)
        labels[i] = (i * 31) % 97 - 40;
    create(tsr_sampler_stratified_params(.labels = labels, .count = 97, .batch_size = 8));
    items_epoch(sampler, 2, &all);
    ck_assert_uint_eq(all.count, 13);
    for (uint64_t p = 0; p < 97; p++) /* equally large classes come in the order of labels */
        ck_assert_int_eq(labels[all.indices[p]], (int64_t)p - 40);
}
END_TEST

START_TEST(no_class_is_ever_a_whole_item_ahead)
{
    static int64_t labels[3000];
    uint64_t state = 9;
    for (int i = 0; i < 3000; i++)
        labels[i] = random_between(&state, 0, random_between(&state, 0, LABELS - 1));
    create(tsr_sampler_stratified_params(.labels = labels, .count = 3000, .batch_size = 32));
    items_epoch(sampler, 0, &all);
    int64_t size[LABELS] = {0}, given[LABELS] = {0};
    for (int i = 0; i < 3000; i++)
        size[labels[i]]++;
    for (uint64_t b = 0; b < all.count; b++) {
        for (uint64_t i = all.start[b]; i < all.start[b + 1]; i++)
            given[labels[all.indices[i]]]++;
        int64_t end = (int64_t)all.start[b + 1];
        for (int c = 0; c < LABELS; c++) {
            int64_t ahead = given[c] * 3000 - size[c] * end;
            ck_assert(ahead < 3000);
            ck_assert(ahead > -2 * 3000);
        }
    }
}
END_TEST

START_TEST(order_none_keeps_the_items_order)
{
    const int64_t labels[] = {5, 5, 5, 5, 2, 2, 5, 2};
    const int64_t expected[] = {0, 4, 1, 5, 2, 3, 7, 6};
    create(tsr_sampler_stratified_params(.labels = labels, .count = 8, .batch_size = 2,
                                         .order = TSR_ORDER_NONE));
    items_epoch(sampler, 3, &all);
    int64_t last[2] = {-1, -1};
    for (uint64_t p = 0; p < 8; p++) {
        int class_ = labels[all.indices[p]] == 5;
        ck_assert_int_gt(all.indices[p], last[class_]);
        last[class_] = all.indices[p];
    }
    ck_assert_mem_eq(all.indices, expected, sizeof expected);
}
END_TEST

START_TEST(order_depends_on_seed_and_epoch)
{
    int64_t labels[64];
    for (int i = 0; i < 64; i++)
        labels[i] = i % 3;
    create(tsr_sampler_stratified_params(.labels = labels, .count = 64, .batch_size = 9));
    items_epoch(sampler, 0, &all);
    items_epoch(sampler, 1, &others);
    ck_assert(!items_equal_from(&all, 0, &others));
    /* Each class is shuffled with a key of its own, so the items of two classes must have
     * different orders. */
    int64_t order[3][22];
    int at[3] = {0};
    for (uint64_t p = 0; p < 64; p++) {
        int64_t class_ = all.indices[p] % 3;
        order[class_][at[class_]++] = all.indices[p] / 3;
    }
    ck_assert_mem_ne(order[0], order[1], 21 * sizeof **order);
    ck_assert_mem_ne(order[1], order[2], 21 * sizeof **order);
    create(tsr_sampler_stratified_params(.labels = labels, .count = 64, .batch_size = 9));
    items_epoch(sampler, 1, &all);
    ck_assert(items_equal_from(&all, 0, &others));
    create(
        tsr_sampler_stratified_params(.labels = labels, .count = 64, .batch_size = 9, .seed = -1));
    items_epoch(sampler, 1, &all);
    ck_assert(!items_equal_from(&all, 0, &others));
}
END_TEST

static void check_refused(const tsr_sampler_stratified_params *params, const char *text)
{
    tsr_sampler *made = NULL;
    ck_assert_error(tsr_sampler_create_stratified(params, &made), TSR_ERR_INVALID, text);
    ck_assert_ptr_null(made);
}

START_TEST(errors)
{
    const int64_t labels[] = {1, 2};
    check_refused(NULL, "stratified: params is NULL");
    check_refused(tsr_sampler_stratified_params(.count = 1, .batch_size = 1),
                  "stratified: labels is NULL for 1 items");
    check_refused(
        tsr_sampler_stratified_params(.labels = labels, .count = UINT64_MAX, .batch_size = 1),
        "stratified: 18446744073709551615 items are more than 2^31");
    check_refused(tsr_sampler_stratified_params(.labels = labels, .count = 2),
                  "stratified: batch size 0 is not positive");
    check_refused(tsr_sampler_stratified_params(.labels = labels, .count = 2, .batch_size = 1,
                                                .order = TSR_ORDER_DOTNET),
                  "stratified: order 'dotnet' is not supported: use feistel or none");
    create(tsr_sampler_stratified_params(.labels = labels, .count = 2, .batch_size = INT64_MAX));
    ck_assert_uint_eq(info_of(sampler).batch_max, 2);
    ck_assert_error(tsr_sampler_set_epoch(sampler, INT64_MIN), TSR_ERR_INVALID,
                    "stratified: epoch -9223372036854775808 is negative");
}
END_TEST

TESTS(stratified)
{
    tcase_add_checked_fixture(tests, NULL, destroy);
    tcase_add_test(tests, the_same_as_by_brute_force);
    tcase_add_test(tests, proportions_that_fit_are_exact);
    tcase_add_test(tests, a_rare_class_is_spread_over_the_epoch);
    tcase_add_test(tests, classes_of_one_item_each);
    tcase_add_test(tests, no_class_is_ever_a_whole_item_ahead);
    tcase_add_test(tests, order_none_keeps_the_items_order);
    tcase_add_test(tests, order_depends_on_seed_and_epoch);
    tcase_add_test(tests, errors);
}
