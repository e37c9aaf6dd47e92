/* Tests tessera train: texts and tokens, resumed runs, the written model, and bad input. What
 * passes and steps compute is tested with tessera finetune, which shares them. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tool.h"
#include "cli/tool_config.h"
#include "launch/launched.h"
#include "support/check_main.h"

#define ROW 16 /* tokens of a row */
#define BATCH 4
#define STORIES TEST_DATA "/model/stories260K-f16.gguf"

/* Writes text.txt, and in ids.u16 the number of each of its characters, which are a, b, c and the
 * space. */
static void write_data(void)
{
    char text[1024];
    unsigned char ids[2 * sizeof text];
    const size_t length = sizeof text - 1;
    for (size_t i = 0; i < length; i++) {
        text[i] = "a cabba bac"[i * i % 97 % 11];
        ids[2 * i] = text[i] == ' ' ? 0 : (unsigned char)(text[i] - 'a' + 1);
        ids[2 * i + 1] = 0;
    }
    text[length] = '\0';
    write_file("text.txt", text);
    FILE *file = fopen(in_folder("ids.u16"), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(ids, 2, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
}

/* Copies a text, with the path of the test's folder in place of each @. */
static void expand(const char *text, size_t size, char *out)
{
    char folder[128];
    size_t used = 0;
    snprintf(folder, sizeof folder, "%s", in_folder(""));
    for (const char *at = text; *at && used < size; at++)
        used += (size_t)(*at == '@' ? snprintf(out + used, size - used, "%s", folder)
                                    : snprintf(out + used, size - used, "%c", *at));
    ck_assert_uint_lt(used, size);
}

/* Trains alone, or as two ranks. `options` are separated by ~. */
static void train(const char *ranks, const char *options)
{
    char arguments[2048], expanded[1024];
    expand(options, sizeof expanded, expanded);
    snprintf(arguments, sizeof arguments, "-n~%s~--no-prefix~" TEST_TOOL "~train%s", ranks,
             expanded);
    launched job = launch(arguments);
    ck_assert_msg(job.status == 0, "%s", job.err);
    done(&job);
}

/* Returns the loss of a step in a log. */
static double loss_of(const char *name, int step)
{
    char key[32], *text = read_file(name);
    snprintf(key, sizeof key, "{\"step\": %d, \"loss\": ", step);
    const char *at = strstr(text, key);
    ck_assert_msg(at != NULL, "%s lacks step %d: %s", name, step, text);
    const double loss = strtod(at + strlen(key), NULL);
    free(text);
    return loss;
}

/* Compares steps first … last of two logs. */
static void assert_same_losses(const char *a, const char *b, int first, int last, double tolerance)
{
    for (int i = first; i <= last; i++) {
        const double x = loss_of(a, i), y = loss_of(b, i);
        ck_assert_msg(fabs(x - y) <= tolerance * x, "step %d: losses %.9g and %.9g", i, x, y);
    }
}

/* The characters of a text are the vocabulary in the order of their codes, so that their numbers in
 * a file are the same data. Three steps from these, and three more in two other ranks, have the
 * losses of six steps from the text. */
START_TEST(a_text_is_learnt)
{
    char arguments[512];
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    write_data();
    train("1", "~--data~@text.txt~--layers~2~--width~32~--heads~2~--context~16~--batch~4"
               "~--schedule~constant~--warmup~0~--steps~6~--evaluate-every~6~--evaluate-rows~4"
               "~--sample-every~ab~--log~@whole~-o~@model");
    train("1", "~--data~@ids.u16~--config~@model~--batch~4~--schedule~constant~--warmup~0"
               "~--steps~3~--evaluate-rows~4~--log~@log~--checkpoint~@run~--parts");
    assert_same_losses("whole", "log", 0, 2, 0);
    train("2",
          "~--resume~@run~--parts~--steps~6~--log~@log~--data-parallel~2~--strategy~layerwise");
    assert_same_losses("whole", "log", 0, 5, 1e-5);
    char *log = read_file("whole");
    double loss;
    ck_assert_int_eq(sscanf(log, "{\"evaluated\": 0, \"held_out_loss\": %lf", &loss), 1);
    ck_assert_double_eq_tol(loss, 1.386, 0.1); /* a new model finds all tokens equally likely */
    assert_has(log, "{\"evaluated\": 6, \"held_out_loss\": ");
    free(log);
    snprintf(arguments, sizeof arguments, "generate %s -p ab -n 5 --greedy", in_folder("model"));
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_uint_ge(strspn(result.out, "abc "), 5);
    tool_result_free(&result);
}
END_TEST

/* A rank that is killed costs no more than its step: the others go on with the same rows, and
 * divide the experts and the parameters anew. */
START_TEST(a_lost_rank_costs_no_step)
{
    static const char options[] =
        "~--data~@text.txt~--layers~1~--width~16~--heads~2~--experts~3~--inner~16~--bias-rate~0.01"
        "~--context~16~--batch~4~--steps~30~--held-out~0~--log~@";
    char arguments[2048], expanded[1024];
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    write_data();
    snprintf(arguments, sizeof arguments, "%swhole", options);
    train("1", arguments);
    expand(options, sizeof expanded, expanded);
    snprintf(arguments, sizeof arguments,
             "-n~2~--respawn~1~sh~-c~echo $$ >>$FOLDER/pid.$RANK; exec \"$@\"~sh~" TEST_TOOL
             "~train%slog~--elastic~--fsdp~--experts-over~data~--timeout~20",
             expanded);
    launched job = start(arguments);
    wait_for_text("log", "{\"step\": 1,", 1);
    char *number = read_file("pid.1");
    ck_assert_int_eq(kill(atoi(number), SIGKILL), 0);
    free(number);
    finish(&job);
    ck_assert_msg(job.status == 0, "%s", job.err);
    assert_has(job.err, "going on with 1 rank after ");
    assert_same_losses("whole", "log", 0, 29, 1e-4);
    done(&job);
}
END_TEST

/* A training with dropout goes on without. */
START_TEST(dropout_is_turned_off)
{
    write_data();
    train("1", "~--data~@text.txt~--layers~1~--width~16~--heads~2~--context~16~--batch~4"
               "~--dropout~0.5~--schedule~constant~--warmup~0~--steps~1~--held-out~0"
               "~--checkpoint~@run");
    train("1", "~--resume~@run~--steps~2~--checkpoint~@with~--log~@with.log");
    train("1", "~--resume~@run~--steps~2~--dropout~0~--checkpoint~@without~--log~@without.log");
    const double with = loss_of("with.log", 1), without = loss_of("without.log", 1);
    ck_assert_msg(with < without || with > without, "both losses are %.9g", with);
    /* what goes on from there has none either */
    train("1", "~--resume~@without~--steps~3~--log~@third~--checkpoint~@other");
    train("1", "~--resume~@without~--steps~3~--dropout~0~--log~@again");
    assert_same_losses("third", "again", 2, 2, 0);
}
END_TEST

/* The loads of a step are those of all tokens of all passes. */
START_TEST(experts_are_balanced)
{
    write_data();
    train("1", "~--data~@text.txt~--layers~1~--width~32~--heads~2~--experts~3~--inner~16"
               "~--balance~0.1~--context~16~--batch~4~--accumulate~2~--steps~1~--held-out~0"
               "~--log~@log");
    char *log = read_file("log"), *at = strstr(log, "\"load\": [[");
    int loads[3];
    ck_assert_msg(at &&
                      sscanf(at, "\"load\": [[%d, %d, %d]]}", &loads[0], &loads[1], &loads[2]) == 3,
                  "%s", log);
    ck_assert_int_eq(loads[0] + loads[1] + loads[2], 2 * BATCH * ROW);
    at = strstr(log, "\"aux\": ");
    ck_assert_ptr_nonnull(at);
    /* with equal loads and probabilities, the number of experts that a token uses */
    ck_assert_double_eq_tol(strtod(at + strlen("\"aux\": "), NULL), 2, 0.3);
    free(log);
}
END_TEST

/* Without a tokenizer, the output has none, and so says the tool. A file of a tokenizer is copied
 * under its usual name; that of a GGUF file becomes one. */
START_TEST(tokenizers_are_copied)
{
    static const char sizes[] = "--layers 1 --width 16 --heads 2 --context 16 --batch 2 --steps 1";
    char arguments[1024], folder[128];
    write_data();
    snprintf(folder, sizeof folder, "%s", in_folder(""));
    snprintf(arguments, sizeof arguments,
             "train --data %stext.txt --tokenizer " TEST_DATA
             "/tokenizer/mini-gpt2.tokenizer.json %s -o %smodel",
             folder, sizes, folder);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    tool_result_free(&result);
    char *copy = read_file("model/tokenizer.json");
    assert_has(copy, "\"merges\"");
    free(copy);
    snprintf(arguments, sizeof arguments,
             "train --data %sids.u16 --config %smodel --context 16 --batch 2 --steps 1 -o %sother",
             folder, folder, folder);
    result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    assert_has(result.err, "other has no tokenizer, because none was given");
    tool_result_free(&result);
    snprintf(arguments, sizeof arguments,
             "train " STORIES " --data %stext.txt --context 16 --batch 1 --steps 1 --held-out 0 "
             "-o %sthird",
             folder, folder);
    result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    tool_result_free(&result);
    snprintf(arguments, sizeof arguments, "generate %sthird -p Once -n 4 --greedy", folder);
    result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0 && strncmp(result.out, "Once", 4) == 0, "%s%s", result.out,
                  result.err);
    tool_result_free(&result);
}
END_TEST

/* Mistakes ---------------------------------------------------------------------------------------
 */

static void fails(const char *options, const char *words)
{
    char arguments[1100], expanded[1024];
    expand(options, sizeof expanded, expanded);
    snprintf(arguments, sizeof arguments, "train %s", expanded);
    tool_fails(arguments, words);
}

/* Changes a number in the options of a checkpoint, of which `name` is the beginning. */
static void damage(const char *checkpoint, const char *name, char digit)
{
    static char header[1 << 16];
    FILE *file = fopen(in_folder(checkpoint), "r+b");
    ck_assert(file && fseek(file, 8, SEEK_SET) == 0);
    const size_t size = fread(header, 1, sizeof header - 1, file);
    header[size] = '\0';
    char *at = strstr(header, name), *checksum = strstr(header, "tessera.crc32c");
    ck_assert_msg(at && checksum, "the checkpoint has no %s", name);
    at[strlen(name)] = digit;
    *checksum = 'T';
    ck_assert_int_eq(fseek(file, 8, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(header, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
}

/* What does not fit a checkpoint is refused, and --held-out replaces what that has. */
START_TEST(other_trainings_are_refused)
{
    write_data();
    write_file("other.txt", "zz y x zyx xyz zzy xx zyxzyx yzzyx xxyyzz zyx xyz zzy xx zyx yzzyx "
                            "xxyyzz zyx xyz zzy xx zyxzyx yzzyx xxyyzz");
    train("1", "~--data~@text.txt~--held-out~@text.txt~--layers~1~--width~16~--heads~2~--context~8"
               "~--batch~2~--steps~1~--evaluate-rows~1~--checkpoint~@run");
    fails("--resume @run --data @other.txt --held-out 0 --steps 2",
          "the characters of the data are not those of the training in ");
    fails("--resume @run --layers 2", "--layers is 2, but the training in ");
    fails("--resume @run --experts 4",
          " was begun without --experts, so it cannot go on with that");
    fails("--resume @run --config @run", " was begun without --config, so it cannot go on");
    train("1", "~--resume~@run~--held-out~0~--steps~2~--log~@log");
    char *log = read_file("log");
    assert_has(log, "{\"step\": 1, ");
    ck_assert_ptr_null(strstr(log, "held_out_loss"));
    free(log);
    damage("run", "\\\"held_out\\\":", '9');
    fails("--resume @run --steps 3", "the options in it are damaged");
}
END_TEST

START_TEST(wrong_options_are_named)
{
    static const char *const wrong[][2] = {
        {"train", "missing --data FILE"},
        {"train m --data d --config c", "m has a configuration, so --config cannot be given"},
        {"train --data d --config c --width 8", "c has the sizes of the model, so --width cannot "
                                                "be given"},
        {"train m --data d --init i", "m has the weights, so --init cannot be given"},
        {"train --data d --parts", "--parts needs --checkpoint FILE or --resume FILE"},
        {"train --data d --strategy x", "--strategy takes full, layerwise, hybrid or weighted, not "
                                        "'x'"},
        {"train --data d --bias", "--bias is for --style gpt2"},
        {"train --data d --style gpt2 --experts 2", "--experts is for --style llama"},
        {"train --data d --style x", "--style takes llama or gpt2, not 'x'"},
        {"train --data d --experts-over x", "--experts-over takes tensor or data, not 'x'"},
        {"train --data d --balance 1 --bias-rate 1",
         "--balance and --bias-rate contradict each other"},
        {"train --data d --separator=", "--separator is empty"},
        {"train --data d -o m.gguf", "--output is a folder, so it cannot be m.gguf"},
        {"train --data=", "--data takes a file, not ''"},
        {"train --data d --steps 1 --epochs 1", "--steps and --epochs contradict each other"},
    };
    char sentence[256];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(sentence, sizeof sentence, "tessera: train: %s\n", wrong[i][1]);
        tool_refuses(wrong[i][0], sentence);
    }
}
END_TEST

START_TEST(wrong_data_are_named)
{
    write_data();
    write_file("empty", "");
    write_file("latin", "caf\xe9.");
    write_file("odd.u16", "abc");
    write_file("big.u32", "\xff\xff\xff\xff");
    fails("--data @text.txt --width 30", "--width 30 does not divide over --heads 4");
    fails("--data @text.txt --kv-heads 3", "--heads 4 does not divide over --kv-heads 3");
    fails("--data @text.txt --width 12", "rotary positions need an even number of features of a "
                                         "head, but --width 12 and --heads 4 give 3");
    fails("--data @text.txt --experts 2 --experts-used 3", "--experts-used 3, but there are 2 "
                                                           "experts");
    fails("--data @text.txt --context 900", "the data has 921 tokens for training, but rows of "
                                            "--context 900 need 1800");
    fails("--data @text.txt --separator x", "--separator needs a tokenizer");
    fails("--data @ids.u16", "so --tokenizer or --config must say how many there are");
    fails("--data @text.txt --checkpoint @text.txt", "text.txt has the data, which would be "
                                                     "overwritten");
    fails("--data @text.txt --log @text.txt", "text.txt has the data, which would be overwritten");
    fails("--data @text.txt --curve @text.txt", "text.txt has the data, which would be "
                                                "overwritten");
    fails("--data @text.txt --config @text.txt", "text.txt:1: ");
    fails("--data @text.txt --config " TEST_DATA "/training/moe_aux_trajectory.json",
          "the data has a vocabulary of 4, but");
    fails("--data @empty", "empty is empty");
    fails("--data @latin", "latin: the text is not UTF-8 at byte 3");
    fails("--data @ids.u16 --sample-every a --config " TEST_DATA "/training/lora/lora_base",
          "--sample-every needs a tokenizer, and ");
    fails("--data @odd.u16 --config " TEST_DATA "/training/lora/lora_base",
          "odd.u16 has 3 bytes, which are no numbers of 2 bytes");
    fails("--data @big.u32 --config " TEST_DATA "/training/lora/lora_base",
          "big.u32: token 0 has the id 4294967295");
    fails("--data @text.txt --held-out @latin", "latin: the text is not UTF-8");
    fails("--resume @text.txt", "this is no checkpoint of train");
}
END_TEST

TESTS(train)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, a_text_is_learnt);
    tcase_add_test(tests, a_lost_rank_costs_no_step);
    tcase_add_test(tests, dropout_is_turned_off);
    tcase_add_test(tests, experts_are_balanced);
    tcase_add_test(tests, tokenizers_are_copied);
    tcase_add_test(tests, other_trainings_are_refused);
    tcase_add_test(tests, wrong_options_are_named);
    tcase_add_test(tests, wrong_data_are_named);
}
