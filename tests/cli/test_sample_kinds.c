/* Tests tessera sample: compares every kind with the library's sampler, and tests output formats
 * and all examples in the help and the manual. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sample_run.h"
#include "cli/tool.h"
#include "cli/tool_config.h"
#include "support/check_main.h"
#include "tessera/sampler.h"

#define ITEMS 12

static const int64_t indices[ITEMS] = {7, -3, 0, 5, 5, 12, 99, 1, 2, 3, 4, INT64_MAX};
static const double weights[ITEMS] = {1, 0, 2.5, 1e-3, 4, 0, 1, 1, 7, 3, 2, .25};
static const int64_t lengths[ITEMS] = {5, 3, 9, 1, 4, 4, 8, 2, 0, 6, 7, 5};
static const int64_t labels[ITEMS] = {0, 0, 1, 0, -2, 1, 0, 0, 1, 0, 0, 1};
static const double difficulties[ITEMS] = {0, .5, 1, .2, .3, .9, .1, .7, .7, .4, 0, .8};

static void enter(void)
{
    sample_enter_folder();
    sample_write_integers("indices.txt", indices, ITEMS);
    sample_write_reals("weights.txt", weights, ITEMS);
    sample_write_integers("lengths.txt", lengths, ITEMS);
    sample_write_integers("labels.txt", labels, ITEMS);
    sample_write_reals("difficulties.txt", difficulties, ITEMS);
}

/* Compares the tool's output with epochs first … last of the sampler, and destroys the sampler. */
static void compare(const char *command, tsr_status status, tsr_sampler **sampler, int64_t first,
                    int64_t last)
{
    uint64_t count, done = 0, got = 0;
    int64_t buffer[64];
    ck_assert_ok(status);
    const int64_t *printed = sample_run(command, &count);
    for (int64_t epoch = first; epoch <= last; epoch++) {
        ck_assert_ok(tsr_sampler_set_epoch(*sampler, epoch));
        for (;;) {
            ck_assert_ok(tsr_sampler_fill(*sampler, 64, buffer, NULL, &got));
            if (got == 0)
                break;
            if (done + got > count || memcmp(printed + done, buffer, got * sizeof *buffer) != 0)
                ck_abort_msg("%s: differs from index %" PRIu64 " on", command, done);
            done += got;
        }
    }
    ck_assert_uint_gt(done, 0);
    ck_assert_uint_eq(done, count);
    tsr_sampler_destroy(sampler);
}

START_TEST(kinds_match_the_library)
{
    tsr_sampler *s = NULL;
    compare("sample sequential --n 100", tsr_sampler_create_sequential(100, &s), &s, 0, 0);
    compare("sample random --n 300",
            tsr_sampler_create_random(tsr_sampler_random_params(.n = 300), &s), &s, 0, 0);
    compare("sample random --n 300 --seed -5 --epoch 3 --epochs 4 --num-samples 700",
            tsr_sampler_create_random(
                tsr_sampler_random_params(.n = 300, .seed = -5, .num_samples = 700), &s),
            &s, 3, 6);
    compare("sample random --n 1000000000000 --replacement --num-samples 70 --seed 9",
            tsr_sampler_create_random(tsr_sampler_random_params(.n = UINT64_C(1000000000000),
                                                                .replacement = true,
                                                                .num_samples = 70, .seed = 9),
                                      &s),
            &s, 0, 0);
    compare("sample random --n 300 --order dotnet --seed -7 --epochs 3",
            tsr_sampler_create_random(
                tsr_sampler_random_params(.n = 300, .order = TSR_ORDER_DOTNET, .seed = -7), &s),
            &s, 0, 2);
    compare("sample random --n 300 --order mlx --seed 7 --epochs 3",
            tsr_sampler_create_random(
                tsr_sampler_random_params(.n = 300, .order = TSR_ORDER_MLX, .seed = 7), &s),
            &s, 0, 2);
    compare("sample subset --indices indices.txt --seed 2 --epochs 2",
            tsr_sampler_create_subset(
                tsr_sampler_subset_params(.indices = indices, .count = ITEMS, .seed = 2), &s),
            &s, 0, 1);
    compare("sample weighted --weights weights.txt --num-samples 500 --seed 4",
            tsr_sampler_create_weighted(
                tsr_sampler_weighted_params(.weights = weights, .count = ITEMS, .num_samples = 500,
                                            .seed = 4, .replacement = true),
                &s),
            &s, 0, 0);
    compare("sample weighted --weights weights.txt --num-samples 500 --seed 4 --replacement",
            tsr_sampler_create_weighted(
                tsr_sampler_weighted_params(.weights = weights, .count = ITEMS, .num_samples = 500,
                                            .seed = 4, .replacement = true),
                &s),
            &s, 0, 0);
    compare(
        "sample weighted --weights weights.txt --num-samples 10 --no-replacement --epochs 5",
        tsr_sampler_create_weighted(
            tsr_sampler_weighted_params(.weights = weights, .count = ITEMS, .num_samples = 10), &s),
        &s, 0, 4);
    compare("sample length-sorted --lengths lengths.txt --batch 5 --seed 8 --epochs 2",
            tsr_sampler_create_length_sorted(
                tsr_sampler_length_sorted_params(.lengths = lengths, .count = ITEMS,
                                                 .batch_size = 5, .seed = 8),
                &s),
            &s, 0, 1);
    compare("sample stratified --labels labels.txt --batch 5 --seed 8 --epochs 2",
            tsr_sampler_create_stratified(tsr_sampler_stratified_params(.labels = labels,
                                                                        .count = ITEMS,
                                                                        .batch_size = 5, .seed = 8),
                                          &s),
            &s, 0, 1);
    compare("sample curriculum --difficulties difficulties.txt --max-epochs 4 --num-samples 9 "
            "--epochs 5 --seed 1",
            tsr_sampler_create_curriculum(
                tsr_sampler_curriculum_params(.difficulties = difficulties, .count = ITEMS,
                                              .num_samples = 9, .max_epochs = 4, .seed = 1),
                &s),
            &s, 0, 4);
}
END_TEST

START_TEST(shares_match_the_library)
{
    static const char *const splits[] = {"interleaved", "contiguous"};
    static const char *const tails[] = {"pad", "pad-mask", "uneven", "drop"};
    char command[256];
    for (int split = 0; split < 2; split++)
        for (int tail = 0; tail < 4; tail++) {
            tsr_sampler *s = NULL;
            snprintf(command, sizeof command,
                     "sample distributed --n 100 --ranks 7 --rank 6 --seed 3 --epoch -2 --epochs 4 "
                     "--split %s --tail %s",
                     splits[split], tails[tail]);
            compare(command,
                    tsr_sampler_create_distributed(
                        tsr_sampler_distributed_params(.n = 100, .ranks = 7, .rank = 6, .seed = 3,
                                                       .split = (tsr_split)split,
                                                       .tail = (tsr_tail)tail),
                        &s),
                    &s, -2, 1);
        }
}
END_TEST

START_TEST(samplers_of_samplers)
{
    tsr_sampler *base = NULL, *s = NULL;
    ck_assert_ok(tsr_sampler_create_weighted(
        tsr_sampler_weighted_params(.weights = weights, .count = ITEMS, .num_samples = 50,
                                    .seed = 6, .replacement = true),
        &base));
    compare("sample distributed --sampler weighted --weights weights.txt --num-samples 50 --seed 6 "
            "--ranks 4 --rank 3 --epochs 2",
            tsr_sampler_create_distributed(
                tsr_sampler_distributed_params(.base = base, .ranks = 4, .rank = 3), &s),
            &s, 0, 1);
    tsr_sampler_destroy(&base);
    ck_assert_ok(tsr_sampler_create_length_sorted(
        tsr_sampler_length_sorted_params(.lengths = lengths, .count = ITEMS, .batch_size = 2),
        &base));
    compare("sample distributed --sampler length-sorted --lengths lengths.txt --batch 2 "
            "--ranks 4 --rank 1",
            tsr_sampler_create_distributed(
                tsr_sampler_distributed_params(.base = base, .ranks = 4, .rank = 1), &s),
            &s, 0, 0);
    tsr_sampler_destroy(&base);
}
END_TEST

/* The two commands of each pair must print the same. */
static const char *const same[][2] = {
    {"sample batch --sampler random --n 20 --seed 3 --batch 6 --drop-last",
     "sample random --n 20 --seed 3 --batch 6 --drop-last"},
    {"sample batch --n 20 --order feistel --seed 3 --batch 6",
     "sample random --n 20 --seed 3 --batch 6"},
    {"sample batch --n 20 --batch 6", "sample sequential --n 20"},
    {"sample batch --n 20 --batch 6 --sampler sequential", "sample random --order none --n 20"},
    {"sample batch --indices indices.txt --batch 5 --seed 1",
     "sample subset --indices indices.txt --seed 1"},
    {"sample batch --weights weights.txt --num-samples 5 --batch 5",
     "sample weighted --weights weights.txt --num-samples 5"},
    {"sample batch --difficulties difficulties.txt --max-epochs 2 --batch 5",
     "sample curriculum --difficulties difficulties.txt --max-epochs 2"},
    {"sample batch --n 20 --ranks 3 --rank 2 --batch 2", "sample distributed --n 20 --ranks 3 "
                                                         "--rank 2"},
    {"sample distributed --n 20 --ranks 3 --rank 2 --batch 1000000000000000000",
     "sample distributed --n 20 --ranks 3 --rank 2"},
    {"sample distributed --n 20 --ranks 3 --rank 2 --tail pad_mask",
     "sample distributed --n 20 --ranks 3 --rank 2 --tail pad"},
    {"sample random --n 20 --seed 18446744073709551615", "sample random --n 20 --seed -1"},
    {"sample random --n 20 --order torch --torch-version 2.6",
     "sample random --n 20 --order torch"},
};

START_TEST(equivalent_commands_print_the_same)
{
    uint64_t count, count_other;
    const int64_t *values = sample_run(same[_i][0], &count);
    int64_t *kept = malloc(count * sizeof *kept);
    ck_assert_ptr_nonnull(kept);
    memcpy(kept, values, count * sizeof *kept);
    values = sample_run(same[_i][1], &count_other);
    ck_assert_uint_gt(count, 0);
    ck_assert_uint_eq(count, count_other);
    ck_assert_mem_eq(kept, values, count * sizeof *kept);
    free(kept);
}
END_TEST

START_TEST(the_rank_comes_from_the_environment)
{
    uint64_t count;
    const int64_t expected[] = {1, 4, 7};
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "3", 1);
    const int64_t *values = sample_run("sample distributed --n 9 --order none", &count);
    ck_assert_uint_eq(count, 3);
    ck_assert_mem_eq(values, expected, sizeof expected);
    unsetenv("WORLD_SIZE");
    tool_refuses("sample distributed --n 9",
                 "tessera: sample: rank: RANK is set, but WORLD_SIZE is not: set both, or neither "
                 "for a single process\n");
}
END_TEST

static const struct {
    const char *arguments, *output;
} outputs[] = {
    {"sample sequential --n 3", "0\n1\n2\n"},
    {"sample sequential --n 0", ""},
    {"sample sequential --n 0 --format json --batch 2", NULL},
    {"sample subset --indices indices.txt --order none --from 10", "4\n9223372036854775807\n"},
    {"sample subset --indices indices.txt --order none --limit 2 --epochs 2", "7\n-3\n7\n-3\n"},
    {"sample subset --indices indices.txt --order none --limit 0", ""},
    {"sample sequential --n 5 --from 5", ""},
    {"sample batch --n 10 --batch 4", "0 1 2 3\n4 5 6 7\n8 9\n"},
    {"sample batch --n 10 --batch 4 --drop-last", "0 1 2 3\n4 5 6 7\n"},
    {"sample batch --n 10 --batch 11 --drop-last", ""},
    {"sample batch --n 10 --batch 4 --from 1 --limit 1 --epochs 2", "4 5 6 7\n4 5 6 7\n"},
    {"sample distributed --n 4 --order none --ranks 3 --rank 1 --tail pad-mask", "1\n0*\n"},
    {"sample distributed --n 4 --order none --ranks 3 --rank 1 --tail pad", "1\n0\n"},
    {"sample distributed --n 4 --order none --ranks 3 --rank 1 --tail uneven", "1\n"},
    {"sample distributed --n 4 --order none --ranks 3 --rank 1 --tail drop", "1\n"},
    {"sample distributed --n 5 --order none --ranks 2 --rank 1 --tail pad-mask --batch 2",
     "1 3\n0*\n"},
    {"sample distributed --n 1 --order none --ranks 1 --rank 0 --batch 9", "0\n"},
    {"sample distributed --n 4 --order none --ranks 3 --rank 2 --split contiguous --tail pad-mask "
     "--batch 2",
     "0* 1*\n"},
    {"sample length-sorted --lengths lengths.txt --batch 5 --order none",
     "8 3 7 1 4\n5 0 11 9 10\n6 2\n"},
    {"sample stratified --labels labels.txt --batch 6 --order none",
     "0 1 2 3 5 4\n6 7 8 9 11 10\n"},
};

START_TEST(text)
{
    tool_result result = tool_run(outputs[_i].arguments);
    ck_assert_str_eq(result.err, "");
    ck_assert_int_eq(result.exit_code, 0);
    if (outputs[_i].output != NULL)
        ck_assert_str_eq(result.out, outputs[_i].output);
    tool_result_free(&result);
}
END_TEST

static void list_is(const json_t *document, const char *name, const char *expected)
{
    char *list = json_dumps(tool_member(document, name), JSON_COMPACT);
    ck_assert_str_eq(list, expected);
    free(list);
}

START_TEST(json)
{
    json_t *document = tool_json("sample distributed --n 5 --order none --ranks 3 --rank 2 --tail "
                                 "pad-mask --epoch 4 --epochs 2 --format json",
                                 "tessera.sample");
    ck_assert_str_eq(tool_text(document, "kind"), "distributed");
    list_is(document, "indices", "[2,0,2,0]");
    list_is(document, "mask", "[1,0,1,0]");
    ck_assert_double_eq(tool_number(document, "epoch"), 4);
    ck_assert_double_eq(tool_number(document, "epochs"), 2);
    ck_assert_double_eq(tool_number(document, "length"), 2);
    json_decref(document);

    document = tool_json("sample distributed --n 5 --order none --ranks 2 --rank 1 --tail pad-mask "
                         "--batch 2 --format json",
                         "tessera.sample");
    list_is(document, "batches", "[[1,3],[0]]");
    list_is(document, "mask", "[[1,1],[0]]");
    ck_assert_double_eq(tool_number(document, "length"), 2);
    json_decref(document);

    document = tool_json("sample subset --indices indices.txt --order none --from 11 --format json",
                         "tessera.sample");
    list_is(document, "indices", "[9223372036854775807]");
    ck_assert_double_eq(tool_number(document, "length"), ITEMS);
    ck_assert_ptr_null(json_object_get(document, "mask"));
    json_decref(document);

    document = tool_json("sample sequential --n 0 --batch 3 --json", "tessera.sample");
    list_is(document, "batches", "[]");
    json_decref(document);
}
END_TEST

/* The indices of all ranks without the masked ones contain every item once. */
START_TEST(masks_count_every_item_once)
{
    int times[10] = {0};
    char command[256];
    for (int rank = 0; rank < 4; rank++) {
        size_t i;
        json_t *index;
        snprintf(command, sizeof command,
                 "sample distributed --n 10 --order torch --seed 5 --ranks 4 --rank %d --tail "
                 "pad-mask --format json",
                 rank);
        json_t *document = tool_json(command, "tessera.sample");
        const json_t *mask = tool_member(document, "mask");
        ck_assert_uint_eq(json_array_size(mask), 3);
        json_array_foreach(tool_member(document, "indices"), i, index)
        {
            int64_t item = json_integer_value(index);
            ck_assert(item >= 0 && item < 10);
            times[item] += (int)json_integer_value(json_array_get(mask, i));
        }
        json_decref(document);
    }
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(times[i], 1);
}
END_TEST

static uint64_t feistel_at(const tsr_feistel *order, uint64_t position)
{
    int64_t element;
    tsr_feistel_fill(order, position, 1, 1, &element);
    return (uint64_t)element;
}

/* Even with 10^12 items, any part of the indices is printed at once. */
START_TEST(large_datasets_start_at_once)
{
    const uint64_t n = UINT64_C(1000000000000);
    uint64_t count;
    tsr_feistel order;
    ck_assert_ok(tsr_feistel_init(n, 7, 2, 0, &order));
    const int64_t *values =
        sample_run("sample random --n 1000000000000 --seed 7 --epoch 2 --from 100000000000 "
                   "--limit 1000",
                   &count);
    ck_assert_uint_eq(count, 1000);
    for (uint64_t i = 0; i < count; i++)
        ck_assert((uint64_t)values[i] == feistel_at(&order, n / 10 + i));
    values =
        sample_run("sample random --n 1000000000000 --seed 7 --epoch 2 --num-samples 1000", &count);
    ck_assert_uint_eq(count, 1000);
    for (uint64_t i = 0; i < count; i++)
        ck_assert((uint64_t)values[i] == feistel_at(&order, i));
    values = sample_run("sample distributed --n 1000000000000 --seed 7 --epoch 2 --ranks 8 --rank "
                        "5 --batch 100 --from 1000000000 --limit 2",
                        &count);
    ck_assert_uint_eq(count, 200);
    for (uint64_t i = 0; i < count; i++)
        ck_assert((uint64_t)values[i] == feistel_at(&order, 5 + 8 * (UINT64_C(100000000000) + i)));
    /* The tool ends if its reader closes the pipe. */
    FILE *pipe = popen(TEST_TOOL " sample random --n 1000000000000", "r");
    ck_assert_ptr_nonnull(pipe);
    char line[64];
    ck_assert_ptr_nonnull(fgets(line, sizeof line, pipe));
    pclose(pipe);
}
END_TEST

START_TEST(standard_input_can_be_a_file)
{
    FILE *pipe = popen("echo 42 | " TEST_TOOL " sample subset --indices -", "r");
    char line[64] = "";
    ck_assert_ptr_nonnull(pipe);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, pipe));
    ck_assert_str_eq(line, "42\n");
    ck_assert_int_eq(pclose(pipe), 0);
}
END_TEST

START_TEST(help_names_every_kind)
{
    static const char *const kinds[] = {"sequential", "random",      "subset",        "weighted",
                                        "batch",      "distributed", "length-sorted", "stratified",
                                        "curriculum", "raw"};
    tool_result result = tool_run("help sample");
    ck_assert_int_eq(result.exit_code, 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char listed[32], explained[32];
        snprintf(listed, sizeof listed, "\n  %s ", kinds[i]);
        snprintf(explained, sizeof explained, "\n%s:\n", kinds[i]);
        ck_assert_msg(strstr(result.out, listed) != NULL, "%s is not listed", kinds[i]);
        ck_assert_msg(strstr(result.out, explained) != NULL, "%s is not explained", kinds[i]);
    }
    tool_result_free(&result);
}
END_TEST

/* Runs "tessera sample …", which must succeed and print something. */
static void run_example(const char *line)
{
    tool_result result = tool_run(line + strlen("tessera "));
    ck_assert_msg(result.exit_code == 0, "%s: %s", line, result.err);
    ck_assert_str_eq(result.err, "");
    ck_assert_msg(result.out_size > 0, "%s prints nothing", line);
    tool_result_free(&result);
}

START_TEST(examples_of_the_help_run)
{
    int count = 0;
    tool_result result = tool_run("help sample");
    const char *line = strstr(result.out, "\nexamples:\n");
    ck_assert_ptr_nonnull(line);
    while ((line = strstr(line, "\n  tessera sample ")) != NULL) {
        char command[256];
        line += strlen("\n  ");
        snprintf(command, sizeof command, "%.*s", (int)strcspn(line, "\n"), line);
        run_example(command);
        count++;
    }
    ck_assert_int_eq(count, 5);
    tool_result_free(&result);
}
END_TEST

/* The manual's examples are read without their markup. */
START_TEST(examples_of_the_manual_run)
{
    static const char before[] = ".B tessera sample ";
    char line[512];
    int count = 0;
    FILE *manual = fopen(TEST_MANUAL, "r");
    ck_assert_ptr_nonnull(manual);
    while (fgets(line, sizeof line, manual) != NULL) {
        if (strncmp(line, before, strlen(before)) != 0)
            continue;
        char command[512];
        size_t used = 0;
        for (const char *c = line + strlen(".B "); *c != '\0' && *c != '\n'; c++)
            if (*c != '\\')
                command[used++] = *c;
        command[used] = '\0';
        run_example(command);
        count++;
    }
    fclose(manual);
    ck_assert_int_ge(count, 5);
}
END_TEST

TESTS(sample_kinds)
{
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, enter, sample_leave_folder);
    tcase_add_test(tests, kinds_match_the_library);
    tcase_add_test(tests, shares_match_the_library);
    tcase_add_test(tests, samplers_of_samplers);
    tcase_add_loop_test(tests, equivalent_commands_print_the_same, 0,
                        (int)(sizeof same / sizeof *same));
    tcase_add_test(tests, the_rank_comes_from_the_environment);
    tcase_add_loop_test(tests, text, 0, (int)(sizeof outputs / sizeof *outputs));
    tcase_add_test(tests, json);
    tcase_add_test(tests, masks_count_every_item_once);
    tcase_add_test(tests, large_datasets_start_at_once);
    tcase_add_test(tests, standard_input_can_be_a_file);
    tcase_add_test(tests, help_names_every_kind);
    tcase_add_test(tests, examples_of_the_help_run);
    tcase_add_test(tests, examples_of_the_manual_run);
}
