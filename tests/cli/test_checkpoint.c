/* Tests tessera checkpoint with four parts in two folders, as ranks on two hosts write them. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/hosts.h"
#include "cli/tool.h"
#include "cli/tool_config.h"
#include "model/tiny.h"

#define PARTS TEST_DATA "/checkpoint_parts/"
#define BOTH PARTS "a/model " PARTS "b/model.safetensors.index.json"

START_TEST(shows_parts)
{
    json_t *document = tool_json("checkpoint show --json " BOTH, "tessera.checkpoint");
    ck_assert(json_is_true(tool_member(document, "complete")));
    ck_assert_str_eq(tool_text(document, "checkpoint"), "4b0e1f3e276e2bf86555d463ff3036ee");
    ck_assert_str_eq(tool_text(tool_member(document, "metadata"), "version"), "1");
    const json_t *parts = tool_member(document, "parts");
    ck_assert_uint_eq(json_array_size(parts), 4);
    ck_assert_str_eq(tool_text(json_array_get(parts, 2), "file"),
                     PARTS "b/model-00003-of-00004.safetensors");
    ck_assert(json_is_true(tool_member(json_array_get(parts, 2), "checksums")));
    const json_t *tensors = tool_member(document, "tensors"), *columns = json_array_get(tensors, 0);
    ck_assert_uint_eq(json_array_size(tensors), HOSTS_TENSORS);
    ck_assert_str_eq(tool_text(columns, "name"), "columns");
    ck_assert_str_eq(tool_text(columns, "dtype"), "bf16");
    ck_assert_int_eq(json_integer_value(json_array_get(tool_member(columns, "shape"), 1)), 11);
    const json_t *slice = json_array_get(tool_member(columns, "slices"), 3);
    ck_assert(tool_number(slice, "part") == 4 && tool_number(slice, "dim") == 1);
    ck_assert(tool_number(slice, "offset") == 8 && tool_number(slice, "length") == 3);
    json_decref(document);
    tool_result result = tool_run("checkpoint show " PARTS "a/model");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(result.out, "incomplete: "));
    ck_assert_ptr_nonnull(strstr(result.out, "\ncolumns   bf16   [3,11,4]  1[:,0:2] 2[:,2:5]\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "\n   4        0        -  -          missing\n"));
    tool_result_free(&result);
}
END_TEST

START_TEST(verifies)
{
    tool_prints("checkpoint verify " BOTH, "7 tensors in 4 parts: complete, all checksums match\n");
    tool_fails("checkpoint verify " PARTS "b/model",
               "part 1 of 4 of checkpoint 4b0e1f3e276e2bf86555d463ff3036ee, generation 1, is not "
               "there");
    tool_fails("checkpoint verify " PARTS "c/model",
               "c/model: No such file or directory, and no part of it is there either");
}
END_TEST

/* Files and folders that are no checkpoints are named for what they are. */
START_TEST(names_other_files)
{
    static const struct {
        const char *path, *error;
    } others[] = {
        {TEST_DATA "/model/stories260K-f16.gguf",
         "f16.gguf is a GGUF file, not a safetensors file"},
        {TEST_DATA "/tokenizer/stories260K.tok512.bin", "tok512.bin is a vocabulary of llama2.c, "},
        {TEST_DATA "/tokenizer/mini-gpt2.tokenizer.json", "gpt2.tokenizer.json is a JSON file, "},
        {TEST_DATA "/model/README.md",
         "README.md is a file of no known format, not a safetensors "},
        {TEST_DATA "/model/stories260K-hf", "stories260K-hf is the folder of a model; name a "},
        {PARTS "a", "a is a folder; name the checkpoint in it, as in "},
    };
    char arguments[512];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(arguments, sizeof arguments, "checkpoint verify %s", others[i].path);
        tool_fails(arguments, others[i].error);
        snprintf(arguments, sizeof arguments, "checkpoint merge %s -o %s", others[i].path,
                 on_host("all", "whole"));
        tool_fails(arguments, others[i].error);
    }
    write_file(on_host("all", "m.safetensors.index.json"), "{}", 2);
    snprintf(arguments, sizeof arguments, "checkpoint show %s",
             on_host("all", "m.safetensors.index.json"));
    tool_fails(arguments, "no part of a checkpoint is beside the index ");
    ck_assert_int_eq(hosts_files("all"), 1);
}
END_TEST

/* A GGUF file, and a folder of Hugging Face. */
START_TEST(shows_models)
{
    static const struct {
        const char *path, *name;
        size_t index; /* of the embedding */
    } models[] = {{TEST_DATA "/model/stories260K-f16.gguf", "token_embd.weight", 1},
                  {TEST_DATA "/model/stories260K-hf", "model.embed_tokens.weight", 0}};
    char command[512];
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof command, "checkpoint show --json %s", models[i].path);
        json_t *document = tool_json(command, "tessera.checkpoint");
        const json_t *model = tool_member(document, "model");
        ck_assert_str_eq(tool_text(model, "architecture"), "llama");
        ck_assert(tool_number(model, "layers") == 5 && tool_number(model, "kv_heads") == 4);
        const json_t *tensors = tool_member(document, "tensors"),
                     *embedding = json_array_get(tensors, models[i].index);
        ck_assert_uint_eq(json_array_size(tensors), 47);
        ck_assert_str_eq(tool_text(embedding, "name"), models[i].name);
        ck_assert(tool_number(embedding, "bytes") == (i == 0 ? 2 : 4) * 512 * 64);
        ck_assert_int_eq(json_integer_value(json_array_get(tool_member(embedding, "shape"), 1)),
                         64);
        json_decref(document);
    }
    tool_result result = tool_run("checkpoint show " TEST_DATA "/model/stories260K-f16.gguf");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(result.out, ": llama, 5 layers, width 64, 8 heads, 4 kv heads of "
                                             "8, 172 hidden features, 512 tokens, context 512\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "\ntoken_embd.weight "));
    tool_result_free(&result);
    result = tool_run("checkpoint show " TEST_DATA "/model/families/gemma2/hf");
    ck_assert_ptr_nonnull(strstr(result.out,
                                 "context 256\nHeads and features are those of the first of "
                                 "2 kinds of layers.\n\n"));
    tool_result_free(&result);
    const char *damaged = on_host("all", "damaged.gguf");
    write_file(damaged, "GGUF\3\0\0\0", 8);
    snprintf(command, sizeof command, "checkpoint show %s", damaged);
    tool_fails(command, "gguf: offset 8: ");
}
END_TEST

static void copy(const char *host, const char *name)
{
    char from[512], to[64];
    size_t size;
    snprintf(from, sizeof from, PARTS "%s/%s", host, name);
    char *data = read_file(from, &size);
    ck_assert_ptr_nonnull(data);
    snprintf(to, sizeof to, "%s", name);
    write_file(on_host("all", to), data, size);
    free(data);
}

static const char *run_with(const char *format, const char *path)
{
    static char text[1024];
    snprintf(text, sizeof text, format, path);
    return text;
}

START_TEST(merges)
{
    static hosts_model model;
    const char *whole = on_host("all", "whole.safetensors");
    char line[256];
    snprintf(line, sizeof line, "%s: 7 tensors\n", whole);
    tool_prints(run_with("checkpoint merge " BOTH " -o %s", whole), line);
    tool_prints(run_with("checkpoint verify %s", whole),
                "7 tensors in 1 part: complete, all checksums match\n");
    hosts_model_init(&model, 0, 1, 0);
    hosts_model_clear(&model);
    ck_assert_ok(tsr_checkpoint_load(whole, NULL, NULL, HOSTS_TENSORS, model.entries, NULL));
    ck_assert_int_eq(hosts_model_version(&model, 0, 1, 1), 1);
    tool_fails(run_with("checkpoint merge " BOTH " -o %s", whole), "exists; --force replaces it");
    tool_prints(run_with("checkpoint merge " BOTH " --force --output=%s", whole), line);
    ck_assert_int_eq(hosts_files("all"), 1);
}
END_TEST

/* Interrupts the merging of a file that is so large that it cannot be complete by then. */
START_TEST(an_interrupt_leaves_nothing)
{
    char big[160], source[200], whole[160], partial[200];
    int status = 0;
    snprintf(big, sizeof big, "%s", on_host("all", "big"));
    snprintf(source, sizeof source, "%s/model.safetensors", big);
    snprintf(whole, sizeof whole, "%s", on_host("all", "whole"));
    snprintf(partial, sizeof partial, "%s.partial", whole);
    tiny_model(big, 4000000, "");
    const pid_t pid = fork();
    if (pid == 0) {
        execl(TEST_TOOL, "tessera", "checkpoint", "merge", source, "-o", whole, (char *)NULL);
        _exit(99);
    }
    while (access(partial, F_OK) != 0 && waitpid(pid, &status, WNOHANG) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    ck_assert_int_eq(kill(pid, SIGINT), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 130, "status %d", status);
    ck_assert(access(partial, F_OK) != 0 && access(whole, F_OK) != 0);
    ck_assert_int_eq(unlink(source), 0);
    snprintf(source, sizeof source, "%s/config.json", big);
    ck_assert_int_eq(unlink(source), 0);
    ck_assert_int_eq(rmdir(big), 0);
}
END_TEST

/* If a byte of a part is inverted, the error names the part. */
START_TEST(names_damage)
{
    size_t size;
    copy("a", "model-00001-of-00004.safetensors");
    copy("a", "model-00002-of-00004.safetensors");
    const char *path = on_host("all", "model-00002-of-00004.safetensors");
    char *data = read_file(path, &size);
    data[size - 1] ^= 1;
    write_file(path, data, size);
    free(data);
    char arguments[1024];
    snprintf(arguments, sizeof arguments, "checkpoint verify %s " PARTS "b/model",
             on_host("all", "model"));
    tool_fails(arguments, "tessera: checkpoint verify: ");
    tool_fails(arguments, "model-00002-of-00004.safetensors: the data of 'columns' are damaged");
    snprintf(arguments, sizeof arguments, "checkpoint merge %s " PARTS "b/model -o %s",
             on_host("all", "model"), on_host("all", "whole"));
    tool_fails(arguments, "the data of 'columns' are damaged");
    ck_assert_int_eq(hosts_files("all"), 2);
}
END_TEST

START_TEST(mistakes)
{
    tool_refuses("checkpoint", "tessera: checkpoint: missing show, verify or merge\n");
    tool_refuses("checkpoint list x",
                 "tessera: checkpoint: unknown command 'list'; it is show, verify or merge\n");
    tool_refuses("checkpoint show", "tessera: checkpoint show: missing PATH\n");
    tool_refuses("checkpoint merge " BOTH, "tessera: checkpoint merge: missing --output FILE\n");
    tool_fails("checkpoint merge " BOTH " -o /dev/null --force",
               "tessera: checkpoint merge: /dev/null is not a regular file");
    tool_fails(
        "checkpoint verify /proc/nonexistent",
        "tessera: checkpoint verify: cannot open /proc/nonexistent: No such file or directory");
}
END_TEST

TESTS(checkpoint)
{
    tcase_add_checked_fixture(tests, hosts_make, hosts_remove);
    tcase_add_test(tests, shows_parts);
    tcase_add_test(tests, verifies);
    tcase_add_test(tests, names_other_files);
    tcase_add_test(tests, shows_models);
    tcase_add_test(tests, merges);
    tcase_add_test(tests, an_interrupt_leaves_nothing);
    tcase_add_test(tests, names_damage);
    tcase_add_test(tests, mistakes);
}
