/* Tests tessera sample raw: golden values, output formats, and messages for wrong arguments. */
#include <stdio.h>

#include "cli/sample_run.h"
#include "cli/tool.h"
#include "support/golden.h"

static const int64_t *values;

static uint64_t run_i64(const char *arguments)
{
    uint64_t count;
    values = sample_run(arguments, &count);
    return count;
}

START_TEST(raw_threefry_is_mlx_bits)
{
    json_t *document = golden_load("threefry2x32_kat"), *one;
    char arguments[128];
    size_t i;
    int compared = 0;
    json_array_foreach(golden_list(document, "mlx_cases"), i, one)
    {
        if (strcmp(golden_text(one, "op"), "bits") != 0 || golden_integer(one, "width") != 4)
            continue;
        const json_t *expected = golden_member(one, "out");
        size_t count = json_array_size(expected);
        snprintf(arguments, sizeof arguments, "sample raw --rng threefry --seed %s --count %zu",
                 golden_text(one, "seed"), count);
        ck_assert_uint_eq(run_i64(arguments), count);
        for (size_t j = 0; j < count; j++)
            ck_assert_int_eq(values[j], json_integer_value(json_array_get(expected, j)));
        compared++;
    }
    ck_assert_int_gt(compared, 20);
    json_decref(document);
}
END_TEST

/* Uses the golden cases that start with calls of Next(). */
START_TEST(raw_dotnet_is_next)
{
    json_t *document = golden_load("dotnet_random"), *one, *call;
    char arguments[128];
    size_t i, j;
    int compared = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *calls = golden_list(one, "calls");
        snprintf(arguments, sizeof arguments, "sample raw --rng dotnet --seed %s --count %zu",
                 golden_text(one, "seed"), json_array_size(calls));
        json_t *first = json_array_get(json_array_get(calls, 0), 0);
        if (strcmp(json_string_value(first), "Next") != 0)
            continue;
        ck_assert_uint_eq(run_i64(arguments), json_array_size(calls));
        json_array_foreach(calls, j, call)
        {
            if (strcmp(json_string_value(json_array_get(call, 0)), "Next") != 0)
                break;
            ck_assert_int_eq(values[j], json_integer_value(json_array_get(call, 1)));
            compared++;
        }
    }
    ck_assert_int_gt(compared, 500);
    json_decref(document);
}
END_TEST

/* A permutation of at most one item draws nothing, so next_u64 consists of the generator's first
 * two words. */
START_TEST(raw_mt19937_is_torch)
{
    json_t *document = golden_load("torch_randperm"), *one;
    char arguments[128];
    size_t i;
    int compared = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *in = golden_member(one, "in");
        if (golden_integer(in, "n") > 1)
            continue;
        snprintf(arguments, sizeof arguments, "sample raw --rng mt19937 --seed %s --count 2",
                 golden_text(in, "seed"));
        ck_assert_uint_eq(run_i64(arguments), 2);
        ck_assert_uint_eq((uint64_t)values[0] << 32 | (uint64_t)values[1],
                          golden_u64(golden_member(one, "out"), "next_u64"));
        compared++;
    }
    ck_assert_int_gt(compared, 10);
    json_decref(document);
}
END_TEST

/* Without options, the tool must print blocks 0, 1, … of Philox with key 0. Block 0 is a published
 * known answer. */
START_TEST(raw_philox_is_the_default)
{
    ck_assert_uint_eq(run_i64("sample raw"), 10);
    ck_assert_int_eq(values[0], 0x6627e8d5);
    ck_assert_int_eq(values[1], 0xe169c58d);
    ck_assert_int_eq(values[2], 0xbc57ac4c);
    ck_assert_int_eq(values[3], 0x9b00dbd8);
    int64_t first[10];
    memcpy(first, values, sizeof first);
    ck_assert_uint_eq(run_i64("sample raw --rng=philox --seed=-0 --count=10"), 10);
    ck_assert_mem_eq(values, first, sizeof first);
    ck_assert_uint_eq(run_i64("sample raw --seed 18446744073709551615 --count 10"), 10);
    ck_assert_int_ne(values[0], first[0]);
    memcpy(first, values, sizeof first);
    ck_assert_uint_eq(run_i64("sample raw --seed -1 --count 10"), 10);
    ck_assert_mem_eq(values, first, sizeof first);
}
END_TEST

static const struct {
    const char *arguments, *output;
} outputs[] = {
    {"sample raw --rng dotnet --count 2", "1559595546\n1755192844\n"},
    {"sample raw --rng dotnet --count 2 --format text", "1559595546\n1755192844\n"},
    {"sample raw --count 0", ""},
    {"sample raw --rng threefry --count 0", ""},
    {"sample raw --format i64 --count 0", ""},
};

START_TEST(text)
{
    tool_prints(outputs[_i].arguments, outputs[_i].output);
}
END_TEST

START_TEST(json)
{
    json_t *document =
        tool_json("sample raw --rng dotnet --count 2 --format json", "tessera.sample");
    ck_assert_str_eq(tool_text(document, "kind"), "raw");
    const json_t *list = tool_member(document, "values");
    ck_assert_uint_eq(json_array_size(list), 2);
    ck_assert_int_eq(json_integer_value(json_array_get(list, 0)), 1559595546);
    ck_assert_int_eq(json_integer_value(json_array_get(list, 1)), 1755192844);
    json_decref(document);
    document = tool_json("sample raw --count 0 --json", "tessera.sample");
    ck_assert_uint_eq(json_array_size(tool_member(document, "values")), 0);
    json_decref(document);
}
END_TEST

static const struct {
    const char *arguments, *sentence;
} mistakes[] = {
    {"sample", "tessera: sample: missing KIND; see 'tessera help sample'\n"},
    {"sample frob", "tessera: sample: unknown kind 'frob'; see 'tessera help sample'\n"},
    {"sample randm", "tessera: sample: unknown kind 'randm'; did you mean 'random'?\n"},
    {"sample raw raw", "tessera: sample: unexpected argument 'raw'\n"},
    {"sample raw --rng pcg",
     "tessera: sample: --rng takes philox, mt19937, dotnet or threefry, not 'pcg'\n"},
    {"sample raw --count -1",
     "tessera: sample: --count takes an integer from 0 to 1000000000000000000, not '-1'\n"},
    {"sample raw --count 4294967296 --rng threefry",
     "tessera: sample: --count: threefry gives at most 4294967295 numbers, not 4294967296\n"},
    {"sample raw --seed 18446744073709551616",
     "tessera: sample: --seed takes an integer from -9223372036854775808 to 18446744073709551615, "
     "not '18446744073709551616'\n"},
    {"sample raw --seed -9223372036854775809",
     "tessera: sample: --seed takes an integer from -9223372036854775808 to 18446744073709551615, "
     "not '-9223372036854775809'\n"},
    {"sample raw --seed +1",
     "tessera: sample: --seed takes an integer from -9223372036854775808 to 18446744073709551615, "
     "not '+1'\n"},
    {"sample raw --seed 1x",
     "tessera: sample: --seed takes an integer from -9223372036854775808 to 18446744073709551615, "
     "not '1x'\n"},
    {"sample raw --seed 2147483648 --rng dotnet",
     "tessera: sample: --rng dotnet takes a seed from -2147483648 to 2147483647, not "
     "'2147483648'\n"},
    {"sample raw --seed 18446744073709551615 --rng dotnet",
     "tessera: sample: --rng dotnet takes a seed from -2147483648 to 2147483647, not "
     "'18446744073709551615'\n"},
    {"sample raw --format yaml", "tessera: sample: --format takes text, json or i64, not 'yaml'\n"},
    {"sample raw --json --format i64",
     "tessera: sample: --json and --format i64 are two formats\n"},
};

START_TEST(refuses_wrong_arguments)
{
    tool_refuses(mistakes[_i].arguments, mistakes[_i].sentence);
}
END_TEST

TESTS(sample_raw)
{
    tcase_add_test(tests, raw_threefry_is_mlx_bits);
    tcase_add_test(tests, raw_dotnet_is_next);
    tcase_add_test(tests, raw_mt19937_is_torch);
    tcase_add_test(tests, raw_philox_is_the_default);
    tcase_add_loop_test(tests, text, 0, (int)(sizeof outputs / sizeof *outputs));
    tcase_add_test(tests, json);
    tcase_add_loop_test(tests, refuses_wrong_arguments, 0,
                        (int)(sizeof mistakes / sizeof *mistakes));
}
