/* Compares MT19937, randint and randperm with results of PyTorch. */
#include "rng/rng.h"
#include "support/golden.h"

static const tsr_torch_version old_versions[] = {TSR_TORCH_DEFAULT, TSR_TORCH_1_13, TSR_TORCH_2_0,
                                                 TSR_TORCH_2_6};

static void check_randint(const char *id, const json_t *in, const json_t *out,
                          tsr_torch_version version)
{
    uint64_t size = (uint64_t)golden_integer(in, "size");
    int64_t *values = calloc(size + 1, sizeof *values);
    tsr_mt19937 rng;
    tsr__mt19937_init(golden_u64(in, "seed"), &rng);
    ck_assert_ok(tsr_torch_randint(&rng, version, golden_integer(in, "low"),
                                   golden_integer(in, "high"), size, values));
    golden_compare(id, golden_member(out, "values"), values, size);
    ck_assert_uint_eq(tsr__mt19937_next_u64(&rng), golden_u64(out, "next_u64"));
    free(values);
}

START_TEST(randint_gives_the_results_of_torch)
{
    json_t *document = golden_load("torch_randint"), *one;
    size_t i;
    int errors = 0, newer = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const char *id = golden_text(one, "id");
        const json_t *in = golden_member(one, "in"), *out = golden_member(one, "out");
        if (json_object_get(out, "error") != NULL) {
            tsr_mt19937 rng;
            int64_t value;
            tsr__mt19937_init(golden_u64(in, "seed"), &rng);
            uint32_t next = rng.next;
            ck_assert_int_eq(tsr_torch_randint(&rng, TSR_TORCH_DEFAULT, golden_integer(in, "low"),
                                               golden_integer(in, "high"), 1, &value),
                             TSR_ERR_INVALID);
            ck_assert_uint_eq(rng.next, next);
            errors++;
            continue;
        }
        for (size_t v = 0; v < sizeof old_versions / sizeof *old_versions; v++)
            check_randint(id, in, out, old_versions[v]);
        const json_t *derived = json_object_get(one, "derived_newer_torch");
        newer += derived != NULL;
        check_randint(id, in, derived != NULL ? derived : out, TSR_TORCH_2_7);
    }
    ck_assert_uint_eq(i, 54);
    ck_assert_int_eq(errors, 2);
    ck_assert_int_eq(newer, 8);
    json_decref(document);
}
END_TEST

static void check_randperm(const char *id, const json_t *in, const json_t *out,
                           tsr_torch_version version)
{
    uint64_t n = (uint64_t)golden_integer(in, "n");
    int64_t *order = malloc((n + 1) * sizeof *order);
    if (order == NULL)
        ck_abort_msg("%s: no memory for %" PRIu64 " indices", id, n);
    tsr_mt19937 rng;
    tsr__mt19937_init(golden_u64(in, "seed"), &rng);
    ck_assert_ok(tsr_torch_randperm(&rng, version, n, order));
    golden_compare(id, golden_member(out, "indices"), order, n);
    ck_assert_uint_eq(tsr__mt19937_next_u64(&rng), golden_u64(out, "next_u64"));
    free(order);
}

START_TEST(randperm_gives_the_results_of_torch)
{
    json_t *document = golden_load("torch_randperm"), *one;
    size_t i;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const char *id = golden_text(one, "id");
        const json_t *in = golden_member(one, "in");
        if (json_is_true(json_object_get(in, "huge")))
            continue;
        const json_t *older = json_object_get(one, "out_torch_1_13_1");
        const json_t *out = golden_member(one, "out");
        check_randperm(id, in, out, TSR_TORCH_DEFAULT);
        check_randperm(id, in, out, TSR_TORCH_2_7);
        check_randperm(id, in, older != NULL ? older : out, TSR_TORCH_1_13);
    }
    ck_assert_uint_eq(i, 67);
    json_decref(document);
}
END_TEST

/* With 214,748,364 elements or more, PyTorch 2.6 draws 64 bits for each. The test takes 1.7 GB and
 * minutes. */
START_TEST(randperm_of_hundreds_of_millions)
{
    SKIP_UNLESS_HUGE("1.7 GB and minutes");
    json_t *document = golden_load("torch_randperm"), *one;
    size_t i;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const char *id = golden_text(one, "id");
        const json_t *in = golden_member(one, "in");
        if (!json_is_true(json_object_get(in, "huge")))
            continue;
        check_randperm(id, in, golden_member(one, "out"), TSR_TORCH_DEFAULT);
        check_randperm(id, in, golden_member(one, "out_torch_1_13_1"), TSR_TORCH_1_13);
    }
    json_decref(document);
}
END_TEST

/* The 10,000th word for the reference code's default seed, which the C++ standard gives for
 * std::mt19937. */
START_TEST(ten_thousandth_word)
{
    tsr_mt19937 rng;
    uint32_t word = 0;
    tsr__mt19937_init(5489, &rng);
    for (int i = 0; i < 10000; i++)
        word = tsr__mt19937_next_u32(&rng);
    ck_assert_uint_eq(word, UINT32_C(4123659995));
}
END_TEST

START_TEST(only_the_low_half_of_a_seed_is_used)
{
    tsr_mt19937 a, b;
    tsr__mt19937_init(UINT64_C(0xdeadbeef00000007), &a);
    tsr__mt19937_init(7, &b);
    ck_assert_mem_eq(a.words, b.words, sizeof a.words);
    tsr__mt19937_init((uint64_t)INT64_MIN, &a);
    tsr__mt19937_init(0, &b);
    ck_assert_mem_eq(a.words, b.words, sizeof a.words);
}
END_TEST

START_TEST(skipping_is_drawing)
{
    const uint64_t skips[] = {0, 1, 3, 620, 623, 624, 625, 1247, 1248, 1249, 99991};
    for (size_t i = 0; i < sizeof skips / sizeof *skips; i++)
        for (int before = 0; before < 3; before++) {
            tsr_mt19937 drawn, skipped;
            tsr__mt19937_init(i, &drawn);
            for (int j = 0; j < before; j++)
                (void)tsr__mt19937_next_u32(&drawn);
            skipped = drawn;
            tsr__mt19937_skip(&skipped, skips[i]);
            for (uint64_t j = 0; j < skips[i]; j++)
                (void)tsr__mt19937_next_u32(&drawn);
            for (int j = 0; j < 700; j++)
                ck_assert(tsr__mt19937_next_u32(&drawn) == tsr__mt19937_next_u32(&skipped));
        }
}
END_TEST

START_TEST(randperm_is_a_permutation)
{
    enum { N = 1000 };
    int64_t order[N];
    bool seen[N] = {false};
    tsr_mt19937 rng;
    tsr__mt19937_init(1, &rng);
    ck_assert_ok(tsr_torch_randperm(&rng, TSR_TORCH_2_7, N, order));
    for (int i = 0; i < N; i++) {
        ck_assert(order[i] >= 0 && order[i] < N && !seen[order[i]]);
        seen[order[i]] = true;
    }
}
END_TEST

START_TEST(errors)
{
    tsr_mt19937 rng;
    int64_t value = 7;
    tsr__mt19937_init(1, &rng);
    ck_assert_error(tsr_torch_randint(&rng, TSR_TORCH_DEFAULT, 5, 5, 1, &value), TSR_ERR_INVALID,
                    "randint: low 5 is not below high 5");
    ck_assert_error(tsr_torch_randint(&rng, (tsr_torch_version)300, 0, 5, 1, &value),
                    TSR_ERR_INVALID, "randint: unknown PyTorch version 300");
    ck_assert_error(tsr_torch_randperm(&rng, (tsr_torch_version)1, 1, &value), TSR_ERR_INVALID,
                    "randperm: unknown PyTorch version 1");
    ck_assert_error(tsr_torch_randperm(&rng, TSR_TORCH_DEFAULT, UINT64_MAX, &value),
                    TSR_ERR_OVERFLOW,
                    "randperm: 18446744073709551615 indices do not fit in memory");
    ck_assert_int_eq(value, 7);
}
END_TEST

TESTS(torch)
{
    tcase_add_test(tests, randint_gives_the_results_of_torch);
    tcase_add_test(tests, randperm_gives_the_results_of_torch);
    tcase_add_test(tests, ten_thousandth_word);
    tcase_add_test(tests, only_the_low_half_of_a_seed_is_used);
    tcase_add_test(tests, skipping_is_drawing);
    tcase_add_test(tests, randperm_is_a_permutation);
    tcase_add_test(tests, errors);
}

TESTS(torch_huge)
{
    tcase_set_timeout(tests, 3600);
    tcase_add_test(tests, randperm_of_hundreds_of_millions);
}
