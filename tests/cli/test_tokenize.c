/* Tests tessera tokenize: sends ids and texts through pipes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tool.h"
#include "shard/files.h"
#include "support/golden.h"
#include "tokenizer/cases.h"

static json_t *tokenize(const char *file, const char *arguments, const void *in, size_t size)
{
    char all[512];
    tool_feed(in, size);
    snprintf(all, sizeof all, "tokenize %s/tokenizer/%s%s", TEST_DATA, file, arguments);
    return tool_json(all, "tessera.tokenize");
}

static void has_ids(const json_t *document, const int *ids, size_t count)
{
    const json_t *list = tool_member(document, "ids");
    ck_assert_uint_eq(json_array_size(list), count);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(json_integer_value(json_array_get(list, i)), ids[i]);
}

START_TEST(text_becomes_ids)
{
    static const char text[] = "The little dog was hungry";
    static const int ids[] = {1, 291, 376, 400, 428, 286, 270, 379, 428, 420, 422};
    json_t *document = tokenize("stories260K-vocab.gguf", "", text, strlen(text));
    has_ids(document, ids, 11);
    ck_assert_str_eq(tool_text(document, "kind"), "spm");
    ck_assert_str_eq(tool_text(document, "words"), "none");
    ck_assert_ptr_null(json_object_get(document, "tokens"));
    json_decref(document);
    document = tokenize("stories260K.tok512.bin", " --no-bos", text, strlen(text));
    has_ids(document, ids + 1, 10);
    json_decref(document);
    document = tokenize("stories260K-vocab.gguf", " --no-bos", "", 0);
    has_ids(document, NULL, 0);
    json_decref(document);
}
END_TEST

START_TEST(control_tokens_are_parsed_on_request)
{
    static const char text[] = "a<|eot_id|>";
    static const int parsed[] = {1756, 64, 1758};
    json_t *document =
        tokenize("mini-llama3.tokenizer.json", " --parse-special", text, strlen(text));
    has_ids(document, parsed, 3);
    json_decref(document);
    document = tokenize("mini-llama3.tokenizer.json", " --no-bos --tokens", text, strlen(text));
    ck_assert_uint_gt(json_array_size(tool_member(document, "ids")), 3);
    const json_t *tokens = tool_member(document, "tokens");
    ck_assert_uint_eq(json_array_size(tokens), json_array_size(tool_member(document, "ids")));
    ck_assert_str_eq(json_string_value(json_array_get(tokens, 0)), "a");
    json_decref(document);
}
END_TEST

static void decodes(const char *arguments, const char *in, const char *text, const char *base64)
{
    json_t *document = tokenize("stories260K-vocab.gguf", arguments, in, strlen(in));
    if (text != NULL)
        ck_assert_str_eq(tool_text(document, "text"), text);
    else
        ck_assert(json_is_null(tool_member(document, "text")));
    ck_assert_str_eq(tool_text(document, "text_base64"), base64);
    json_decref(document);
}

START_TEST(ids_become_text)
{
    decodes(" --decode", "[1, 291, 376]", "The little", "VGhlIGxpdHRsZQ==");
    decodes(" --decode", " {\"ids\": [1, 291, 376]}", "The little", "VGhlIGxpdHRsZQ==");
    decodes(" --decode", "1,291 376\n", "The little", "VGhlIGxpdHRsZQ==");
    decodes(" --decode --parse-special", "1,291", "<s>The", "PHM+VGhl");
    decodes(" --decode", "", "", "");
    decodes(" --decode", "258", NULL, "/w==");
    decodes(" --decode", "258 258", NULL, "//8=");
    char all[512];
    snprintf(all, sizeof all, "tokenize %s/tokenizer/stories260K-vocab.gguf --decode", TEST_DATA);
    tool_feed("3", 1); /* a zero byte */
    tool_result result = tool_run(all);
    ck_assert_ptr_nonnull(strstr(result.out, "\"text\": \"\\u0000\""));
    ck_assert_ptr_nonnull(strstr(result.out, "\"text_base64\": \"AA==\""));
    tool_result_free(&result);
}
END_TEST

/* Encoding and then decoding must leave all bytes unchanged. */
START_TEST(all_bytes_come_back)
{
    char every[256], ids[4096];
    for (int i = 0; i < 256; i++)
        every[i] = (char)i;
    json_t *document = tokenize("ggml-vocab-gpt-2.gguf", "", every, sizeof every);
    size_t used = 0, i;
    json_t *id;
    json_array_foreach(tool_member(document, "ids"), i, id) used +=
        (size_t)snprintf(ids + used, sizeof ids - used, "%d\n", (int)json_integer_value(id));
    json_decref(document);
    document = tokenize("ggml-vocab-gpt-2.gguf", " --decode", ids, used);
    octets back = cases_base64(tool_text(document, "text_base64"));
    ck_assert_uint_eq(back.size, sizeof every);
    ck_assert_mem_eq(back.data, every, sizeof every);
    free(back.data);
    json_decref(document);
}
END_TEST

static void fails(const char *arguments, const char *in, const char *sentence)
{
    char all[512];
    snprintf(all, sizeof all, "tokenize %s/tokenizer/%s", TEST_DATA, arguments);
    tool_feed(in, strlen(in));
    tool_result result = tool_run(all);
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.err, sentence);
    ck_assert_str_eq(result.out, "");
    tool_result_free(&result);
}

START_TEST(wrong_input_is_refused)
{
    static const char file[] = "stories260K-vocab.gguf --decode";
    fails(file, "1 x", "tessera: tokenize: 'x' in standard input is not an id\n");
    fails(file, "1 -2", "tessera: tokenize: '-2' in standard input is not an id\n");
    fails(file, "4294967296", "tessera: tokenize: '4294967296' in standard input is not an id\n");
    fails(file, "512", "tessera: tokenize: id 512 is out of range: ids are 0 to 511\n");
    fails(file, "[1, \"a\"]",
          "tessera: tokenize: element 1 of the list in standard input is not an id\n");
    fails(file, "{}", "tessera: tokenize: standard input has no list of ids\n");
    fails(file, "[1", "tessera: tokenize: standard input, line 1: ']' expected near end of file\n");
}
END_TEST

START_TEST(wrong_arguments_are_refused)
{
    tool_refuses("tokenize", "tessera: tokenize: missing FILE\n");
    tool_refuses("tokenize a b c", "tessera: tokenize: unexpected argument 'c'\n");
    tool_refuses("tokenize a --ids --decode", "tessera: tokenize: --ids does not take --decode\n");
    tool_refuses("tokenize a --ids --tokens", "tessera: tokenize: --ids does not take --tokens\n");
    tool_refuses("tokenize --decode --no-bos a",
                 "tessera: tokenize: --decode does not take --no-bos\n");
    tool_reports("tokenize /proc/nonexistent",
                 "tessera: tokenize: cannot open /proc/nonexistent: No such file or directory\n");
}
END_TEST

START_TEST(arguments_are_texts)
{
    static const char vocabulary[] = TEST_DATA "/tokenizer/stories260K-vocab.gguf";
    char all[512];
    snprintf(all, sizeof all, "tokenize %s The --ids", vocabulary);
    tool_prints(all, "1,291\n");
    snprintf(all, sizeof all, "tokenize %s --ids --no-bos", vocabulary);
    tool_feed("The little", 10);
    tool_prints(all, "291,376\n");
    snprintf(all, sizeof all, "tokenize %s 1,291 --decode", vocabulary);
    json_t *document = tool_json(all, "tessera.tokenize");
    ck_assert_str_eq(tool_text(document, "text"), "The");
    json_decref(document);
    snprintf(all, sizeof all, "tokenize %s 1,x --decode", vocabulary);
    tool_reports(all, "tessera: tokenize: 'x' in the argument is not an id\n");
}
END_TEST

START_TEST(a_configuration_names_its_folder)
{
    tool_fails("tokenize " TEST_DATA "/model/stories260K-hf/config.json",
               "/config.json belongs to a model: give its folder, " TEST_DATA
               "/model/stories260K-hf\n");
    tool_fails("plan " TEST_DATA "/model/stories260K-hf/config.json --ranks 2",
               "/config.json belongs to a model: give its folder, " TEST_DATA
               "/model/stories260K-hf\n");
}
END_TEST

/* tessera info, of a model with and without weights. */
START_TEST(models_are_described)
{
    json_t *json =
        tool_json("info " TEST_DATA "/model/stories260K-f16.gguf --json", "tessera.info");
    ck_assert_str_eq(tool_text(json, "architecture"), "llama");
    ck_assert_double_eq(tool_number(json, "layers"), 5);
    ck_assert_double_eq(tool_number(json, "vocabulary"), 512);
    ck_assert_str_eq(tool_text(json, "tokenizer"), "spm");
    ck_assert(json_is_null(json_object_get(json, "format")));
    ck_assert(json_is_null(json_object_get(json, "missing")));
    double tensors = 0;
    for (size_t i = 0; i < json_array_size(tool_member(json, "types")); i++)
        tensors += tool_number(json_array_get(tool_member(json, "types"), i), "tensors");
    ck_assert_double_eq(tensors, tool_number(json, "tensors"));
    json_decref(json);
    json =
        tool_json("info " TEST_DATA "/model/families/gemma3/hf/config.json --json", "tessera.info");
    ck_assert_str_eq(tool_text(json, "architecture"), "gemma3_text");
    ck_assert_ptr_nonnull(strstr(tool_text(json, "missing"), " has no tensor "));
    json_decref(json);
    tool_refuses("info", "tessera: info: missing MODEL, a folder or a file\n");
}
END_TEST

/* Writes two tensors of a PEFT folder, and magnitudes (DoRA). */
static void adapters_with_magnitudes(void)
{
    static const char header[] =
        "{\"base_model.model.model.layers.0.mlp.up_proj.lora_A.weight\":{\"dtype\":\"F32\","
        "\"shape\":[1,3],\"data_offsets\":[0,12]},"
        "\"base_model.model.model.layers.0.mlp.up_proj.lora_B.weight\":{\"dtype\":\"F32\","
        "\"shape\":[2,1],\"data_offsets\":[12,20]},"
        "\"base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector\":{\"dtype\":\"F32\","
        "\"shape\":[2],\"data_offsets\":[20,28]}}";
    static const char config[] = "{\"r\": 1, \"lora_alpha\": 2, \"use_dora\": true}";
    char path[160], arguments[200];
    folder in = folder_create();
    bytes weights = safetensors_file(header, 28);
    folder_write(&in, "adapter_config.json", config, sizeof config - 1, path);
    folder_write(&in, "adapter_model.safetensors", weights.data, weights.size, path);
    free(weights.data);
    snprintf(arguments, sizeof arguments, "info %s --json", in.path);
    json_t *json = tool_json(arguments, "tessera.info");
    ck_assert_double_eq(tool_number(json, "parameters"), 7);
    ck_assert(json_is_true(json_object_get(json, "dora")));
    ck_assert(json_is_null(json_object_get(json, "missing")));
    json_decref(json);
    folder_destroy(&in);
}

static void put_pair(bytes *file, const char *key, const char *text)
{
    put_text(file, key);
    put_integer(file, 8, 4); /* a string */
    put_text(file, text);
}

static void put_matrices(bytes *file, const char *name, uint64_t rows, uint64_t columns,
                         uint64_t offset)
{
    put_text(file, name);
    put_integer(file, 3, 4);
    put_integer(file, columns, 8);
    put_integer(file, rows, 8);
    put_integer(file, 8, 8); /* experts */
    put_integer(file, 0, 4); /* f32 */
    put_integer(file, offset, 8);
}

/* A GGUF file has the matrices of all experts in one tensor. */
static void adapters_of_experts(void)
{
    char path[160], arguments[200];
    folder in = folder_create();
    bytes file = {0};
    put_gguf_head(&file, 3, 2, 4);
    put_pair(&file, "general.architecture", "qwen3moe");
    put_pair(&file, "general.type", "adapter");
    put_pair(&file, "adapter.type", "lora");
    put_text(&file, "adapter.lora.alpha");
    put_integer(&file, 6, 4); /* an f32 */
    put_integer(&file, 0x3f800000, 4);
    put_matrices(&file, "blk.0.ffn_up_exps.weight.lora_a", 2, 4, 0);
    put_matrices(&file, "blk.0.ffn_up_exps.weight.lora_b", 4, 2, 8 * 2 * 4 * 4);
    put_zeros(&file, 2 * 8 * 2 * 4 * 4 + 32);
    folder_write(&in, "adapter.gguf", file.data, file.size, path);
    free(file.data);
    snprintf(arguments, sizeof arguments, "info %s --json", path);
    json_t *json = tool_json(arguments, "tessera.info");
    ck_assert_double_eq(tool_number(json, "rank"), 2);
    ck_assert_double_eq(tool_number(json, "parameters"), 2 * 8 * 2 * 4);
    json_decref(json);
    folder_destroy(&in);
}

/* tessera info, of adapters. */
START_TEST(adapters_are_described)
{
    json_t *json = tool_json("info " TEST_DATA "/training/lora/lora_final --json", "tessera.info");
    ck_assert_str_eq(tool_text(json, "adapter"), "peft");
    ck_assert_double_eq(tool_number(json, "rank"), 4);
    ck_assert_double_eq(tool_number(json, "alpha"), 8);
    ck_assert_uint_eq(json_array_size(tool_member(json, "weights")), 7);
    ck_assert_double_eq(tool_number(json, "tensors"), 28);
    ck_assert(json_is_null(json_object_get(json, "missing")));
    json_decref(json);
    tool_result result = tool_run("info " TEST_DATA "/training/lora/lora_final");
    ck_assert_int_eq(tool_count(result.out, "adapter       LoRA, PEFT\n"), 1);
    ck_assert_int_eq(tool_count(result.out, "q_proj\n"), 1);
    ck_assert_int_eq(tool_count(result.out, "missing       nothing\n"), 1);
    tool_result_free(&result);
    adapters_with_magnitudes();
    adapters_of_experts();
    /* half of an adapter, and one whose configuration has no rank */
    static const char header[] = "{\"base_model.model.model.layers.0.mlp.up_proj.lora_B.weight\":"
                                 "{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}";
    static const uint8_t values[8];
    char place[] = "/tmp/tessera-info-XXXXXX", path[64], arguments[128];
    const uint64_t size = sizeof header - 1;
    ck_assert_ptr_nonnull(mkdtemp(place));
    snprintf(arguments, sizeof arguments, "info %s", place);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/adapter_config.json", place);
        FILE *file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fputs(i == 0 ? "{\"r\": 1, \"lora_alpha\": 2}" : "{\"lora_alpha\": 2}", file);
        fclose(file);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", place);
        file = fopen(path, "wb");
        ck_assert_ptr_nonnull(file);
        for (int b = 0; b < 8; b++)
            fputc((int)(size >> (8 * b) & 255), file);
        fwrite(header, 1, size, file);
        fwrite(values, 1, sizeof values, file);
        fclose(file);
        if (i == 1) {
            tool_fails(arguments, "tessera: info: adapter_config.json: there is no r\n");
            continue;
        }
        result = tool_run(arguments);
        ck_assert_int_eq(tool_count(result.out, "missing       the other half of base_model.model."
                                                "model.layers.0.mlp.up_proj.lora_B.weight\n"),
                         1);
        tool_result_free(&result);
    }
    tests_remove(place);
}
END_TEST

START_TEST(info_describes_experts)
{
    static const char *const cases[][2] = {
        {"mixtral/mixtral-f16.gguf",
         "layers        4 with 6 heads, 2 kv heads of 16, 5 experts of 32 hidden features, 2 per "
         "token\n"},
        {"deepseek2/deepseek2-f16.gguf",
         " latents of 32, 96 hidden features\n              3 with 6 heads of 12 + 8 (rotated), "
         "values of 16, latents of 32, 8 experts of 32 hidden features, 3 per token, a shared one "
         "of 32 hidden features\n"},
        {"gemma4moe/hf", ", 48 hidden features, 5 experts of 32 hidden features, 3 per token, a "
                         "window\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[400];
        snprintf(command, sizeof command, "info " TEST_DATA "/model/families/%s", cases[i][0]);
        tool_result result = tool_run(command);
        ck_assert_msg(strstr(result.out, cases[i][1]) != NULL, "%s", result.out);
        tool_result_free(&result);
    }
}
END_TEST

TESTS(tokenize)
{
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, models_are_described);
    tcase_add_test(tests, adapters_are_described);
    tcase_add_test(tests, text_becomes_ids);
    tcase_add_test(tests, control_tokens_are_parsed_on_request);
    tcase_add_test(tests, ids_become_text);
    tcase_add_test(tests, arguments_are_texts);
    tcase_add_test(tests, a_configuration_names_its_folder);
    tcase_add_test(tests, all_bytes_come_back);
    tcase_add_test(tests, wrong_input_is_refused);
    tcase_add_test(tests, wrong_arguments_are_refused);
    tcase_add_test(tests, info_describes_experts);
}
