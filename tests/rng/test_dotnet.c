/* Compares System.Random with results of Mono. */
#include "rng/rng.h"
#include "support/golden.h"

static int32_t argument(const json_t *call, size_t i)
{
    return (int32_t)json_integer_value(json_array_get(call, i));
}

/* Checks an integer result. The last entry of a call is its result: an object with "error" for a
 * call that throws. */
static void check_integer(const char *id, const json_t *result, tsr_status status, int32_t value)
{
    if (json_is_object(result)) {
        golden_text(result, "error");
        ck_assert_int_eq(status, TSR_ERR_INVALID);
    } else if (status != TSR_OK || !json_is_integer(result) ||
               json_integer_value(result) != value) {
        ck_abort_msg("%s: %" PRId32 " instead of %" JSON_INTEGER_FORMAT, id, value,
                     json_integer_value(result));
    }
}

static void check_call(const char *id, const json_t *call, tsr_dotnet *rng)
{
    const char *method = json_string_value(json_array_get(call, 0));
    const json_t *result = json_array_get(call, json_array_size(call) - 1);
    int32_t value = 0;
    if (strcmp(method, "Next") == 0) {
        check_integer(id, result, TSR_OK, tsr_dotnet_next(rng));
    } else if (strcmp(method, "NextMax") == 0) {
        tsr_status status = tsr_dotnet_next_range(rng, 0, argument(call, 1), &value);
        check_integer(id, result, status, value);
    } else if (strcmp(method, "NextRange") == 0) {
        tsr_status status =
            tsr_dotnet_next_range(rng, argument(call, 1), argument(call, 2), &value);
        check_integer(id, result, status, value);
    } else if (strcmp(method, "NextDouble") == 0) {
        double real = tsr__dotnet_next_double(rng);
        uint64_t bits;
        memcpy(&bits, &real, sizeof bits);
        ck_assert_uint_eq(bits, golden_hex(golden_member(result, "bits")));
    } else if (strcmp(method, "NextBytes") == 0) {
        uint8_t bytes[64];
        char hex[2 * sizeof bytes + 1] = "";
        size_t size = (size_t)argument(call, 1);
        ck_assert_uint_le(size, sizeof bytes);
        tsr__dotnet_next_bytes(rng, size, bytes);
        for (size_t i = 0; i < size; i++)
            snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
        ck_assert_str_eq(hex, json_string_value(result));
    } else {
        ck_abort_msg("%s: unknown method %s", id, method);
    }
}

START_TEST(calls_give_the_results_of_dotnet)
{
    json_t *document = golden_load("dotnet_random"), *one, *call;
    size_t i, j, calls = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        tsr_dotnet rng;
        tsr__dotnet_init((int32_t)(int64_t)golden_u64(one, "seed"), &rng);
        json_array_foreach(golden_list(one, "calls"), j, call)
        {
            check_call(golden_text(one, "id"), call, &rng);
            calls++;
        }
    }
    ck_assert_uint_eq(i, 51);
    ck_assert_uint_eq(calls, 1403);
    json_decref(document);
}
END_TEST

START_TEST(shuffles_give_the_results_of_dotnet)
{
    json_t *document = golden_load("dotnet_random"), *one;
    size_t i;
    json_array_foreach(golden_list(document, "shuffle_cases"), i, one)
    {
        uint64_t n = (uint64_t)golden_integer(one, "n");
        int64_t *items = calloc(n + 1, sizeof *items);
        tsr_dotnet rng;
        tsr__dotnet_init((int32_t)(int64_t)golden_u64(one, "seed"), &rng);
        for (uint64_t j = 0; j < n; j++)
            items[j] = (int64_t)j;
        ck_assert_ok(tsr_dotnet_shuffle(&rng, n, items));
        golden_compare(golden_text(one, "id"), golden_member(one, "indices"), items, n);
        free(items);
    }
    ck_assert_uint_eq(i, 40);
    json_decref(document);
}
END_TEST

START_TEST(seeds_with_the_same_stream)
{
    const int32_t pairs[][2] = {{5, -5}, {INT32_MIN, INT32_MAX}, {-INT32_MAX, INT32_MAX}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        tsr_dotnet a, b;
        tsr__dotnet_init(pairs[i][0], &a);
        tsr__dotnet_init(pairs[i][1], &b);
        ck_assert_mem_eq(a.table, b.table, sizeof a.table);
    }
}
END_TEST

/* For a sample of seeds, results must be in their documented ranges, even if 32-bit sums wrap. */
START_TEST(results_stay_in_range)
{
    for (int64_t step = INT32_MIN; step <= INT32_MAX; step += 2147483) {
        tsr_dotnet rng;
        tsr__dotnet_init((int32_t)step, &rng);
        for (int i = 0; i < 120; i++) {
            int32_t value;
            ck_assert(tsr_dotnet_next(&rng) >= 0);
            double real = tsr__dotnet_next_double(&rng);
            ck_assert(real >= 0 && real < 1);
            ck_assert_ok(tsr_dotnet_next_range(&rng, INT32_MIN, INT32_MAX, &value));
            ck_assert(value < INT32_MAX);
            ck_assert_ok(tsr_dotnet_next_range(&rng, -3, 4, &value));
            ck_assert(value >= -3 && value < 4);
        }
    }
}
END_TEST

START_TEST(skipping_is_drawing)
{
    tsr_dotnet drawn, skipped;
    tsr__dotnet_init(1, &drawn);
    skipped = drawn;
    for (int i = 0; i < 1000; i++)
        (void)tsr_dotnet_next(&drawn);
    tsr__dotnet_skip(&skipped, 1000);
    ck_assert_mem_eq(drawn.table, skipped.table, sizeof drawn.table);
    ck_assert_int_eq(tsr_dotnet_next(&drawn), tsr_dotnet_next(&skipped));
}
END_TEST

START_TEST(errors)
{
    tsr_dotnet rng;
    tsr__dotnet_init(1, &rng);
    tsr_dotnet before = rng;
    int32_t value = 7;
    int64_t item = 7;
    ck_assert_error(tsr_dotnet_next_range(&rng, 3, 2, &value), TSR_ERR_INVALID,
                    "dotnet: the minimum 3 is above the maximum 2");
    ck_assert_error(tsr_dotnet_shuffle(&rng, UINT64_C(2147483648), &item), TSR_ERR_INVALID,
                    "dotnet: 2147483648 items are more than System.Random can shuffle, 2147483647");
    ck_assert(value == 7 && item == 7);
    ck_assert_mem_eq(before.table, rng.table, sizeof rng.table);
    ck_assert_int_eq(before.next, rng.next);
}
END_TEST

TESTS(dotnet)
{
    tcase_add_test(tests, calls_give_the_results_of_dotnet);
    tcase_add_test(tests, shuffles_give_the_results_of_dotnet);
    tcase_add_test(tests, seeds_with_the_same_stream);
    tcase_add_test(tests, results_stay_in_range);
    tcase_add_test(tests, skipping_is_drawing);
    tcase_add_test(tests, errors);
}
