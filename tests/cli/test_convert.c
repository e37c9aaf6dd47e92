/* Tests tessera convert: converts a model to another format and back, and tests error messages and
 * an interrupt. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/tool.h"
#include "cli/tool_config.h"
#include "model/tiny.h"
#include "shard/files.h"
#include "support/check_main.h"

#define MODEL TEST_DATA "/model/stories260K-f32.gguf"

static folder work;

static void open_work(void)
{
    work = folder_create();
}

static void close_work(void)
{
    folder_destroy(&work);
}

/* Runs the tool with arguments in which $ stands for the test's folder. */
static tool_result run(const char *arguments)
{
    char expanded[1024] = "";
    for (size_t used = 0; *arguments != '\0'; arguments++) {
        if (*arguments == '$')
            used += (size_t)snprintf(expanded + used, sizeof expanded - used, "%s", work.path);
        else
            expanded[used++] = *arguments;
    }
    return tool_run(expanded);
}

/* Runs the tool, which must succeed, and checks what it says on standard error. */
static void converts(const char *arguments, const char *err)
{
    tool_result result = run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s: exit code %d: %s", arguments, result.exit_code,
                  result.err);
    ck_assert_str_eq(result.err, err);
    ck_assert_int_eq(tool_count(result.out, ": 47 tensors, "), 1);
    tool_result_free(&result);
}

static void fails(const char *arguments, int code, const char *sentence)
{
    tool_result result = run(arguments);
    ck_assert_int_eq(result.exit_code, code);
    ck_assert_msg(strstr(result.err, sentence) != NULL, "'%s' has no '%s'", result.err, sentence);
    ck_assert_str_eq(result.out, "");
    tool_result_free(&result);
}

START_TEST(sentences)
{
    converts("convert " MODEL " $/a.gguf", "");
    fails("convert " MODEL " $/a.gguf", 1, "/a.gguf exists; --force replaces it\n");
    converts("convert " MODEL " $/a.gguf --force --type q8_0",
             "tessera: convert: blk.0.ffn_down.weight stays f32, because its rows of 172 elements "
             "are not whole blocks of 32, as q8_0 needs\n"
             "tessera: convert: the same is true of 4 more tensors\n");
    converts("convert " MODEL " $/a.gguf --force --type q8_0 --quiet", "");
    converts(
        "convert " MODEL " $/a.gguf --force --type q4_k_m",
        "tessera: convert: 30 of 36 matrices have blocks of 32 elements (blk.0.attn_q.weight is "
        "q5_0), because their rows, here of 64 elements, are not whole blocks of 256\n"
        "tessera: convert: 5 of 36 matrices are f16, because their rows are not whole blocks "
        "of 32 elements: those of blk.0.ffn_down.weight have 172\n");
    converts("convert $/a.gguf $/a --no-tokenizer", "");
    fails("convert " MODEL " $/b --type q8_0", 1, "a folder of Hugging Face cannot have weights");
    fails("convert " MODEL " $/b --type q4_k_m", 1, "weights of the mixture q4_k_m; f32, f16 and");
    fails("convert /proc/nonexistent $/b", 1, "tessera: convert: cannot open /proc/nonexistent");
    fails("convert " MODEL " $/b.xyz", 1,
          "/b.xyz has the extension .xyz; files have .gguf, and folders no extension or a / at the "
          "end\n");
    tool_refuses("convert", "tessera: convert: missing SOURCE\n");
    tool_refuses("convert a", "tessera: convert: missing DESTINATION\n");
    tool_refuses("convert a b c", "tessera: convert: unexpected argument 'c'\n");
    tool_refuses("convert a b --type i32",
                 "tessera: convert: --type takes f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, "
                 "q2_k, q3_k, q4_k, q5_k, q6_k, mxfp4, q3_k_s, q3_k_m, q3_k_l, q4_k_s, q4_k_m, "
                 "q5_k_s, q5_k_m, not 'i32'\n");
}
END_TEST

#define LORA TEST_DATA "/training/lora/"

START_TEST(adapters_are_merged)
{
    tool_result result = run("merge " LORA "lora_base " LORA "lora_final -o $/m.gguf --dtype q8_0");
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_int_eq(tool_count(result.out, "/m.gguf: 21 tensors, 14 with the adapter, "), 1);
    ck_assert_str_eq(result.err,
                     "tessera: merge: the source has no tokenizer, and so the destination has "
                     "none\n");
    tool_result_free(&result);
    fails("merge " LORA "lora_base " LORA "lora_final -o $/m.gguf", 1, "tessera: merge: ");
    fails("merge " LORA "lora_base " LORA "lora_final -o $/m.gguf", 1,
          "/m.gguf exists; --force replaces it\n");
    fails("merge " MODEL " " LORA "lora_final -o $/n.gguf", 1, "the model needs [172,4]");
    fails("merge " MODEL " /proc/nonexistent -o $/n.gguf", 1, "/proc/nonexistent");
    tool_refuses("merge", "tessera: merge: missing MODEL\n");
    tool_refuses("merge a", "tessera: merge: missing ADAPTER\n");
    tool_refuses("merge a b", "tessera: merge: missing --output DESTINATION\n");
}
END_TEST

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

/* Interrupts the conversion of a file that is so large that its conversion cannot be complete by
 * then. */
START_TEST(an_interrupt_leaves_nothing)
{
    static const int signals[] = {SIGINT, SIGTERM};
    char source[96], destination[96], partial[160];
    int status;
    snprintf(source, sizeof source, "%s/big", work.path);
    snprintf(destination, sizeof destination, "%s/big.gguf", work.path);
    tiny_model(source, 4000000, "");
    const pid_t pid = fork();
    if (pid == 0) {
        execl(TEST_TOOL, "tessera", "convert", source, destination, "--type", "q8_0", "--quiet",
              (char *)NULL);
        _exit(99);
    }
    snprintf(partial, sizeof partial, "%s.partial-%ld", destination, (long)pid);
    while (!exists(partial) && waitpid(pid, &status, WNOHANG) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    ck_assert_int_eq(kill(pid, signals[_i]), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 130, "status %d", status);
    ck_assert(!exists(partial) && !exists(destination));
}
END_TEST

/* Checks that a converted model has the same logits, bit for bit. */
static void expect_same_logits(const char *other, const char *dtype)
{
    char arguments[512];
    json_t *documents[2];
    for (int i = 0; i < 2; i++) {
        snprintf(arguments, sizeof arguments,
                 "generate %s --ids 1,403 --greedy --max-tokens 6 --json --logits 7%s",
                 i == 0 ? MODEL : other, dtype);
        documents[i] = tool_json(arguments, "tessera.generate");
    }
    ck_assert_uint_eq(json_array_size(tool_member(documents[0], "ids")), 8);
    ck_assert(json_equal(tool_member(documents[0], "ids"), tool_member(documents[1], "ids")));
    ck_assert_uint_eq(json_array_size(tool_member(documents[0], "logits")), 7);
    ck_assert(json_equal(tool_member(documents[0], "logits"), tool_member(documents[1], "logits")));
    ck_assert_str_eq(tool_text(documents[0], "text"), tool_text(documents[1], "text"));
    json_decref(documents[0]);
    json_decref(documents[1]);
}

START_TEST(converted_models_give_the_same_logits)
{
    char path[96];
    const char *driver = getenv("VK_DRIVER_FILES");
    if (driver == NULL || strcmp(driver, "/proc/nonexistent.json") == 0)
        SKIP("a driver is needed");
    converts("convert " MODEL " $/folder", "");
    converts("convert $/folder $/b.gguf", "");
    snprintf(path, sizeof path, "%s/folder", work.path);
    expect_same_logits(path, "");
    snprintf(path, sizeof path, "%s/b.gguf", work.path);
    expect_same_logits(path, " --dtype f16");
}
END_TEST

TESTS(convert)
{
    tcase_add_checked_fixture(tests, open_work, close_work);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, sentences);
    tcase_add_test(tests, adapters_are_merged);
    tcase_add_loop_test(tests, an_interrupt_leaves_nothing, 0, 2);
    tcase_add_test(tests, converted_models_give_the_same_logits);
}
