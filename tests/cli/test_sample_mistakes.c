/* Tests that wrong arguments and files of tessera sample give exit status 2, one sentence on
 * standard error, and no output. */
#include <stdio.h>
#include <string.h>

#include "cli/sample_run.h"
#include "cli/tool.h"
#include "support/check_main.h"

#define COUNT_RANGE "takes an integer from 1 to 4611686018427387904, not "

static const struct {
    const char *arguments, *sentence;
} mistakes[] = {
    {"random", "random: missing --n N"},
    {"sequential --batch 3", "sequential: missing --n N"},
    {"distributed --ranks 2 --rank 0", "distributed: missing --n N"},
    {"subset", "subset: missing --indices FILE"},
    {"weighted --num-samples 3", "weighted: missing --weights FILE"},
    {"weighted --weights weights.txt", "weighted: missing --num-samples COUNT"},
    {"length-sorted --batch 3", "length-sorted: missing --lengths FILE"},
    {"length-sorted --lengths indices.txt", "length-sorted: missing --batch SIZE"},
    {"stratified --batch 3", "stratified: missing --labels FILE"},
    {"stratified --labels indices.txt", "stratified: missing --batch SIZE"},
    {"curriculum --max-epochs 3", "curriculum: missing --difficulties FILE"},
    {"curriculum --difficulties weights.txt", "curriculum: missing --max-epochs COUNT"},
    {"batch --n 3", "batch of sequential: missing --batch SIZE"},
    {"batch --batch 3", "batch of sequential: missing --n N"},
    {"batch --batch 3 --sampler weighted --num-samples 3",
     "batch of weighted: missing --weights FILE"},
    {"distributed --ranks 2 --rank 0 --sampler subset",
     "distributed of subset: missing --indices FILE"},

    {"sequential --n 3 --order none", "sequential does not take --order"},
    {"sequential --n 3 --epoch 1 --rank 1", "sequential does not take --rank"},
    {"random --n 3 --tail pad", "random does not take --tail"},
    {"random --n 3 --split contiguous", "random does not take --split"},
    {"random --n 3 --ranks 3", "random does not take --ranks"},
    {"random --n 3 --sampler subset", "random does not take --sampler"},
    {"random --n 3 --max-epochs 3", "random does not take --max-epochs"},
    {"random --n 3 --lengths indices.txt", "random does not take --lengths"},
    {"random --n 3 --labels indices.txt", "random does not take --labels"},
    {"random --n 3 --difficulties indices.txt", "random does not take --difficulties"},
    {"random --n 3 --float32", "random does not take --float32"},
    {"random --n 3 --count 3", "random does not take --count"},
    {"random --n 3 --rng philox", "random does not take --rng"},
    {"subset --indices indices.txt --n 3", "subset does not take --n"},
    {"subset --indices indices.txt --replacement", "subset does not take --replacement"},
    {"subset --indices indices.txt --num-samples 3", "subset does not take --num-samples"},
    {"distributed --n 3 --replacement", "distributed does not take --replacement"},
    {"weighted --weights weights.txt --num-samples 2 --replacement --no-replacement",
     "--replacement and --no-replacement exclude each other"},
    {"random --n 3 --no-replacement", "random does not take --no-replacement"},
    {"distributed --n 3 --weights weights.txt", "distributed does not take --weights"},
    {"distributed --n 3 --indices indices.txt", "distributed does not take --indices"},
    {"distributed --n 3 --order torch --data-loader", "distributed does not take --data-loader"},
    {"distributed --n 3 --order torch --global-generator",
     "distributed does not take --global-generator"},
    {"distributed --sampler subset --indices indices.txt --n 3",
     "distributed of subset does not take --n"},
    {"weighted --weights weights.txt --num-samples 1 --order torch --global-generator",
     "weighted does not take --global-generator"},
    {"length-sorted --lengths indices.txt --batch 3 --drop-last",
     "length-sorted does not take --drop-last"},
    {"curriculum --difficulties weights.txt --max-epochs 3 --order none",
     "curriculum does not take --order"},
    {"stratified --labels indices.txt --batch 3 --order none --torch-version 2.0",
     "stratified does not take --torch-version"},
    {"raw --n 3", "raw does not take --n"},
    {"raw --epochs 3", "raw does not take --epochs"},
    {"raw --from 3", "raw does not take --from"},
    {"raw --limit 3", "raw does not take --limit"},
    {"batch --batch 3 --n 3 --lengths indices.txt", "batch of sequential does not take --lengths"},

    {"batch --batch 3 --sampler frob", "--sampler: unknown kind 'frob'; see 'tessera help sample'"},
    {"batch --batch 3 --sampler sequental",
     "--sampler: unknown kind 'sequental'; did you mean 'sequential'?"},
    {"batch --batch 3 --sampler batch", "batch cannot wrap --sampler batch"},
    {"batch --batch 3 --sampler raw", "batch cannot wrap --sampler raw"},
    {"batch --batch 3 --sampler stratified", "batch cannot wrap --sampler stratified"},
    {"distributed --sampler distributed --n 3", "distributed cannot wrap --sampler distributed"},
    {"distributed --sampler batch --n 3", "distributed cannot wrap --sampler batch"},

    {"random --n 3 --drop-last", "--drop-last needs --batch"},
    {"distributed --n 3 --drop-last",
     "--drop-last needs --batch; to drop the remainder of a share, use --tail drop"},
    {"distributed --n 3 --ranks 3", "--ranks needs --rank"},
    {"distributed --n 3 --rank 1", "--rank needs --ranks"},
    {"random --n 3 --torch-version 2.0", "--torch-version needs --order torch"},
    {"random --n 3 --order dotnet --global-generator", "--global-generator needs --order torch"},
    {"random --n 3 --order none --data-loader", "--data-loader needs --order torch"},
    {"random --n 3 --order dotnet --seed 2147483648",
     "--order dotnet takes a seed from -2147483648 to 2147483647, not '2147483648'"},
    {"random --n 3 --order mlx --seed -1",
     "--order mlx takes a seed from 0 to 9223372036854775807, not '-1'"},
    {"distributed --n 3 --order mlx --seed 18446744073709551615",
     "--order mlx takes a seed from 0 to 9223372036854775807, not '18446744073709551615'"},
    {"distributed --n 3 --order dotnet --seed 18446744073709551615",
     "--order dotnet takes a seed from -2147483648 to 2147483647, not '18446744073709551615'"},
    {"random --n 3 --order torch --seed -9223372036854775809",
     "--seed takes an integer from -9223372036854775808 to 18446744073709551615, not "
     "'-9223372036854775809'"},
    {"random --n 3 --seed x", "--seed takes an integer from -9223372036854775808 to "
                              "18446744073709551615, not 'x'"},

    {"random --n -1", "--n takes an integer from 0 to 4611686018427387904, not '-1'"},
    {"random --n 4611686018427387905",
     "--n takes an integer from 0 to 4611686018427387904, not '4611686018427387905'"},
    {"random --n 1e3", "--n takes an integer from 0 to 4611686018427387904, not '1e3'"},
    {"random --n", "missing value: --n N"},
    {"random --n 3 --num-samples 0", "--num-samples " COUNT_RANGE "'0'"},
    {"random --n 3 --num-samples -1", "--num-samples " COUNT_RANGE "'-1'"},
    {"batch --n 3 --batch 0", "--batch " COUNT_RANGE "'0'"},
    {"batch --n 3 --batch -1", "--batch " COUNT_RANGE "'-1'"},
    {"curriculum --difficulties weights.txt --max-epochs 0", "--max-epochs " COUNT_RANGE "'0'"},
    {"random --n 3 --epochs 0", "--epochs takes an integer from 1 to 1000000000, not '0'"},
    {"random --n 3 --from -1", "--from takes an integer from 0 to 4611686018427387904, not '-1'"},
    {"random --n 3 --limit -1", "--limit takes an integer from 0 to 4611686018427387904, not '-1'"},
    {"random --n 3 --epoch 9223372036854775808",
     "--epoch takes an integer from -9223372036854775808 to 9223372036854775807, not "
     "'9223372036854775808'"},
    {"distributed --n 3 --ranks 0 --rank 0",
     "--ranks takes an integer from 1 to 2147483647, not '0'"},
    {"distributed --n 3 --ranks 2 --rank -1",
     "--rank takes an integer from 0 to 2147483646, not '-1'"},
    {"random --n 3 --order fisher",
     "--order takes feistel, torch, dotnet, mlx or none, not 'fisher'"},
    {"distributed --n 3 --tail wrap", "--tail takes pad, pad-mask, uneven or drop, not 'wrap'"},
    {"distributed --n 3 --split even", "--split takes interleaved or contiguous, not 'even'"},
    {"random --n 3 --order torch --torch-version 3.0",
     "--torch-version takes 1.13, 2.0, 2.6 or 2.7, not '3.0'"},
    {"random --n 3 --format csv", "--format takes text, json or i64, not 'csv'"},
    {"random --n 3 --replacement=yes", "--replacement takes no value"},
    {"random --n 3 4", "unexpected argument '4'"},
    {"random --frob", "unknown option '--frob'; did you mean '--from'?"},

    /* errors of the library */
    {"random --n 0", "random: there is nothing to draw from"},
    {"random --n 3 --replacement --order none",
     "random: with replacement there is no order 'none'"},
    {"random --n 3 --epoch -1", "random: epoch -1 is negative"},
    {"random --n 2147483648 --order dotnet",
     "random: 2147483648 items are more than System.Random can shuffle, 2147483647"},
    {"random --n 3 --from 4", "sampler seek: position 4 is beyond the end: there are 3 items"},
    {"random --n 3 --epoch 9223372036854775807 --epochs 2",
     "--epochs 2: too many epochs from 9223372036854775807 on"},
    {"random --n 3 --order torch --epoch 9223372036854775806 --epochs 2",
     "random: more than 2^64 random numbers are drawn before epoch 9223372036854775807"},
    {"distributed --n 10 --ranks 2 --rank 2", "distributed: rank 2 is not 0 to 1"},
    {"distributed --n 10 --ranks 1 --rank 0 --order torch --seed 18446744073709551615 --epochs 2",
     "distributed: seed -1 + 2^64 + epoch 1 is not one of PyTorch's seeds, -2^63 to 2^64 - 1"},
    {"distributed --n 10 --ranks 1 --rank 0 --order torch --seed -9223372036854775809",
     "distributed: seed 9223372036854775807 - 2^64 + epoch 0 is not one of PyTorch's seeds, -2^63 "
     "to 2^64 - 1"},
    {"distributed --n 10 --ranks 1 --rank 0 --order dotnet --epoch 2147483648",
     "distributed: epoch 2147483648 is not an int32, as the order dotnet needs"},
};

/* What fails later, errors in files included, gives exit code 1. */
static const struct {
    const char *arguments, *sentence;
} failures[] = {
    {"weighted --weights weights.txt --num-samples 4 --no-replacement",
     "weighted: 3 weights are too few for 4 samples with --no-replacement"},
    {"weighted --weights weights.txt --num-samples 3 --no-replacement",
     "weighted: 2 weights are above 0, and 3 samples without replacement are more"},
    {"weighted --weights weights.txt --num-samples 3 --order dotnet",
     "weighted: the order is feistel, torch or mlx, not dotnet"},
    {"weighted --weights indices.txt --num-samples 1",
     "weighted: weight 1 is -3, not a finite number from 0 on"},
    {"length-sorted --lengths indices.txt --batch 3",
     "length-sorted: item 1 has the negative length -3"},
    {"stratified --labels indices.txt --batch 3 --order torch",
     "stratified: order 'torch' is not supported: use feistel or none"},
    {"curriculum --difficulties weights.txt --max-epochs 3",
     "curriculum: item 1 has difficulty 2.5, which is not in 0 to 1"},

    /* errors in files */
    {"subset --indices nowhere.txt", "cannot read nowhere.txt: No such file or directory"},
    {"subset --indices weights.txt", "weights.txt, line 2: '2.5' is not an integer of 64 bits"},
    {"weighted --weights bad.txt --num-samples 1", "bad.txt, line 2: empty line"},
    {"length-sorted --lengths bad.txt --batch 3", "bad.txt, line 2: empty line"},
    {"stratified --labels bad.txt --batch 3", "bad.txt, line 2: empty line"},
    {"curriculum --difficulties bad.txt --max-epochs 3", "bad.txt, line 2: empty line"},
};

static void enter(void)
{
    sample_enter_folder();
    sample_write_integers("indices.txt", (const int64_t[]){7, -3, 0}, 3);
    sample_write_reals("weights.txt", (const double[]){1, 2.5, 0}, 3);
    FILE *bad = fopen("bad.txt", "w");
    ck_assert_ptr_nonnull(bad);
    fputs("1\n\n2\n", bad);
    ck_assert_int_eq(fclose(bad), 0);
}

/* Runs `check`, tool_refuses or tool_reports. */
static void sample(void (*check)(const char *, const char *), const char *more, const char *words)
{
    char arguments[512], sentence[512];
    snprintf(arguments, sizeof arguments, "sample %s", more);
    snprintf(sentence, sizeof sentence, "tessera: sample: %s\n", words);
    check(arguments, sentence);
}

START_TEST(refuses_wrong_arguments)
{
    sample(tool_refuses, mistakes[_i].arguments, mistakes[_i].sentence);
}
END_TEST

START_TEST(fails_because_of_a_file)
{
    sample(tool_reports, failures[_i].arguments, failures[_i].sentence);
}
END_TEST

/* A lack of memory gives exit status 1, because the arguments are not wrong. */
START_TEST(too_little_memory_is_a_failure)
{
    tool_result result = tool_run("sample random --n 1000000000000000 --order torch");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.out, "");
    ck_assert_ptr_nonnull(strstr(result.err, "tessera: sample: out of host memory"));
    tool_result_free(&result);
}
END_TEST

TESTS(sample_mistakes)
{
    tcase_add_checked_fixture(tests, enter, sample_leave_folder);
    tcase_add_loop_test(tests, refuses_wrong_arguments, 0,
                        (int)(sizeof mistakes / sizeof *mistakes));
    tcase_add_loop_test(tests, fails_because_of_a_file, 0,
                        (int)(sizeof failures / sizeof *failures));
    tcase_add_test(tests, too_little_memory_is_a_failure);
}
