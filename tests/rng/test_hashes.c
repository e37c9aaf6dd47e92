/* Compares Philox and threefry with their authors' known answers, and the functions of mx.random
 * with recorded results. */
#include "base/philox.h"
#include "rng/rng.h"
#include "support/golden.h"

static void read_words(const json_t *list, size_t count, uint32_t *out)
{
    ck_assert_uint_eq(json_array_size(list), count);
    for (size_t i = 0; i < count; i++)
        out[i] = (uint32_t)golden_hex(json_array_get(list, i));
}

START_TEST(philox_known_answers)
{
    json_t *document = golden_load("philox4x32_kat"), *one;
    size_t i;
    int compared = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        uint32_t counter[4], key[2], expected[4], out[4];
        if (golden_integer(one, "rounds") != 10)
            continue;
        read_words(golden_member(one, "ctr"), 4, counter);
        read_words(golden_member(one, "key"), 2, key);
        read_words(golden_member(one, "out"), 4, expected);
        tsr__philox4x32(counter, key, out);
        ck_assert_mem_eq(out, expected, sizeof out);
        tsr__philox4x32(counter, key, counter);
        ck_assert_mem_eq(counter, expected, sizeof out);
        compared++;
    }
    ck_assert_int_eq(compared, 23);
    json_decref(document);
}
END_TEST

START_TEST(threefry_known_answers)
{
    json_t *document = golden_load("threefry2x32_kat"), *one;
    size_t i;
    int compared = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        uint32_t counter[2], expected[2], out[2];
        tsr_threefry_key key;
        if (golden_integer(one, "rounds") != 20)
            continue;
        read_words(golden_member(one, "ctr"), 2, counter);
        read_words(golden_member(one, "key"), 2, key.words);
        read_words(golden_member(one, "out"), 2, expected);
        tsr__threefry_hash(key, counter, out);
        ck_assert_mem_eq(out, expected, sizeof out);
        tsr__threefry_hash(key, counter, counter);
        ck_assert_mem_eq(counter, expected, sizeof out);
        compared++;
    }
    ck_assert_int_eq(compared, 23);
    json_decref(document);
}
END_TEST

static void check_bits(const json_t *one, tsr_threefry_key key)
{
    const json_t *expected = golden_member(one, "out");
    int width = (int)golden_integer(one, "width");
    size_t count = (size_t)golden_integer(one, "count"), size = count * (size_t)width;
    uint8_t *bytes = malloc(size + 1);
    bytes[size] = 0xa5;
    ck_assert_ok(tsr_threefry_bits(key, width, count, bytes));
    ck_assert_uint_eq(json_array_size(expected), count);
    for (size_t i = 0; i < count; i++) {
        uint64_t value = 0;
        for (size_t j = 0; j < (size_t)width; j++)
            value |= (uint64_t)bytes[i * (size_t)width + j] << (8 * j);
        ck_assert_int_eq((int64_t)value, json_integer_value(json_array_get(expected, i)));
    }
    ck_assert_uint_eq(bytes[size], 0xa5);
    free(bytes);
}

static void check_key(const json_t *pair, tsr_threefry_key key)
{
    ck_assert_int_eq(json_integer_value(json_array_get(pair, 0)), key.words[0]);
    ck_assert_int_eq(json_integer_value(json_array_get(pair, 1)), key.words[1]);
}

static void check_keys(const json_t *one, tsr_threefry_key key, bool split)
{
    const json_t *expected = golden_list(one, "out");
    size_t count = json_array_size(expected);
    tsr_threefry_key *keys = calloc(count, sizeof *keys);
    if (split)
        ck_assert_ok(tsr_threefry_split(key, count, keys));
    else
        for (size_t i = 0; i < count; i++)
            keys[i] = tsr_threefry_next_key(&key);
    for (size_t i = 0; i < count; i++)
        check_key(json_array_get(expected, i), keys[i]);
    free(keys);
}

static void check_uniform(const json_t *one, tsr_threefry_key key)
{
    const json_t *expected = golden_list(one, "out_hex");
    size_t count = json_array_size(expected);
    float *values = calloc(count, sizeof *values);
    ck_assert_ok(tsr_threefry_uniform(key, count, values));
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        ck_assert_uint_eq(bits, golden_hex(json_array_get(expected, i)));
    }
    free(values);
}

static void check_randint(const json_t *one, tsr_threefry_key key)
{
    const json_t *expected = golden_list(one, "out");
    size_t count = json_array_size(expected);
    int32_t *values = calloc(count, sizeof *values);
    ck_assert_ok(tsr_threefry_randint(key, (int32_t)golden_integer(one, "low"),
                                      (int32_t)golden_integer(one, "high"), count, values));
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(values[i], json_integer_value(json_array_get(expected, i)));
    free(values);
}

static void check_order(const char *op, const json_t *one, tsr_threefry_key key)
{
    uint64_t n = (uint64_t)golden_integer(one, "n");
    int64_t *order = calloc(n + 1, sizeof *order);
    ck_assert_ok(strcmp(op, "permutation") == 0 ? tsr_threefry_permutation(key, n, order)
                                                : tsr_threefry_argsort_uniform(key, n, order));
    golden_compare(op, golden_member(one, "out"), order, n);
    free(order);
}

START_TEST(mlx_results)
{
    json_t *document = golden_load("threefry2x32_kat"), *one;
    size_t i;
    json_array_foreach(golden_list(document, "mlx_cases"), i, one)
    {
        const char *op = golden_text(one, "op");
        tsr_threefry_key key = tsr_threefry_key_from_seed(golden_u64(one, "seed"));
        if (strcmp(op, "bits") == 0)
            check_bits(one, key);
        else if (strcmp(op, "key") == 0)
            check_key(golden_member(one, "out"), key);
        else if (strcmp(op, "split") == 0 || strcmp(op, "key_sequence") == 0)
            check_keys(one, key, op[0] == 's');
        else if (strcmp(op, "uniform_f32") == 0)
            check_uniform(one, key);
        else if (strcmp(op, "randint") == 0)
            check_randint(one, key);
        else if (strcmp(op, "permutation") == 0 || strcmp(op, "argsort_uniform") == 0)
            check_order(op, one, key);
        else
            ck_abort_msg("case %zu: unknown op '%s'", i, op);
    }
    ck_assert_uint_eq(i, 179);
    json_decref(document);
}
END_TEST

START_TEST(impossible_sizes)
{
    tsr_threefry_key key = {{1, 2}};
    uint32_t word = 7;
    float real = 7;
    int32_t integer = 7;
    int64_t index = 7;
    ck_assert_error(tsr_threefry_bits(key, 3, 1, &word), TSR_ERR_INVALID,
                    "threefry: a width of 3 bytes is none of 1, 2 and 4");
    ck_assert_error(tsr_threefry_bits(key, 4, UINT64_C(1) << 32, &word), TSR_ERR_INVALID,
                    "threefry: 4294967296 words are more than 32-bit counters reach, 4294967295");
    ck_assert_error(tsr_threefry_bits(key, 1, UINT64_MAX, &word), TSR_ERR_INVALID,
                    "threefry: 4611686018427387904 words are more than 32-bit counters reach, "
                    "4294967295");
    ck_assert_error(tsr_threefry_uniform(key, UINT64_C(1) << 32, &real), TSR_ERR_INVALID,
                    "threefry: 4294967296 words are more than 32-bit counters reach, 4294967295");
    ck_assert_error(tsr_threefry_randint(key, 3, 3, 1, &integer), TSR_ERR_INVALID,
                    "threefry: low 3 is not below high 3");
    ck_assert_error(tsr_threefry_randint(key, 0, 3, UINT64_C(1) << 32, &integer), TSR_ERR_INVALID,
                    "threefry: 4294967296 words are more than 32-bit counters reach, 4294967295");
    ck_assert_error(tsr_threefry_permutation(key, UINT64_C(1) << 32, &index), TSR_ERR_INVALID,
                    "threefry: 4294967296 words are more than 32-bit counters reach, 4294967295");
    ck_assert_error(tsr_threefry_argsort_uniform(key, UINT64_MAX, &index), TSR_ERR_INVALID,
                    "threefry: 18446744073709551615 words are more than 32-bit counters reach, "
                    "4294967295");
    tsr_threefry_key out = {{7, 7}};
    ck_assert_error(tsr_threefry_split(key, (UINT64_C(1) << 31) + 1, &out), TSR_ERR_INVALID,
                    "threefry: a key cannot be split into 2147483649, but into 2^31 at most");
    ck_assert(word == 7 && real == 7 && integer == 7 && index == 7 && out.words[0] == 7);
}
END_TEST

/* MLX computes in floats, which cannot represent the upper bound of int32, so it clamps the
 * results. */
START_TEST(randint_is_clamped)
{
    enum { COUNT = 4096 };
    static int32_t values[COUNT];
    const struct {
        int32_t low, high;
    } ranges[] = {{INT32_MIN, INT32_MAX}, {INT32_MAX - 3, INT32_MAX}, {INT32_MIN, INT32_MIN + 3}};
    for (size_t r = 0; r < sizeof ranges / sizeof *ranges; r++) {
        ck_assert_ok(tsr_threefry_randint((tsr_threefry_key){{3, 4}}, ranges[r].low, ranges[r].high,
                                          COUNT, values));
        for (int i = 0; i < COUNT; i++)
            ck_assert(values[i] >= ranges[r].low && values[i] < ranges[r].high);
    }
}
END_TEST

TESTS(hashes)
{
    tcase_add_test(tests, philox_known_answers);
    tcase_add_test(tests, threefry_known_answers);
    tcase_add_test(tests, mlx_results);
    tcase_add_test(tests, impossible_sizes);
    tcase_add_test(tests, randint_is_clamped);
}
