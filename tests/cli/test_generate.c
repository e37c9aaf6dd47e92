/* Tests tessera generate: text and JSON of a small model, and mistakes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tool.h"
#include "cli/tool_config.h"
#include "shard/files.h"
#include "support/golden.h"
#include "tokenizer/cases.h"

#define MODEL TEST_DATA "/model/stories260K-f16.gguf"
#define FOLDER TEST_DATA "/model/stories260K-hf"

/* The first recorded tokens after token 1. */
static const int recorded[] = {403, 407, 261, 378, 432, 383, 286, 261};

START_TEST(text_goes_in_and_out)
{
    tool_prints("generate " MODEL " --prompt Once --greedy --max-tokens 12",
                "Once upon a time, there was a little girl named\n");
    tool_prints("generate " MODEL " -p Once --ids 1,403 --greedy --max-tokens 12 --prefill 1",
                "[0]\nOnce upon a time, there was a little girl named\n\n[1]\nOnce upon a time, "
                "there was a "
                "little girl named\n");
    tool_prints("generate " MODEL " --prompt Once --greedy --stop time --stop nowhere",
                "Once upon a \n");
    tool_prints("generate " FOLDER " --ids 1 --greedy --max-tokens 4 --dtype bf16",
                "1 403 407 261 378\n");
}
END_TEST

START_TEST(json_has_ids_text_and_logits)
{
    json_t *document = tool_json(
        "generate " MODEL " --ids 1 --greedy --max-tokens 8 --logits 3 --json", "tessera.generate");
    const json_t *ids = tool_member(document, "ids"), *logits = tool_member(document, "logits");
    ck_assert_uint_eq(json_array_size(ids), 9);
    for (size_t i = 0; i < 8; i++)
        ck_assert_int_eq((int)json_integer_value(json_array_get(ids, i + 1)), recorded[i]);
    ck_assert_uint_eq(json_array_size(logits), 3);
    for (size_t r = 0; r < 3; r++) {
        const json_t *row = json_array_get(logits, r);
        size_t best = 0;
        ck_assert_uint_eq(json_array_size(row), 512);
        for (size_t v = 0; v < 512; v++)
            if (json_number_value(json_array_get(row, v)) >
                json_number_value(json_array_get(row, best)))
                best = v;
        ck_assert_int_eq((int)best, recorded[r]);
    }
    ck_assert_int_eq((int)tool_number(document, "prompt_tokens"), 1);
    ck_assert_str_eq(tool_text(document, "text"), "Once upon a time, there was a");
    ck_assert_str_eq(tool_text(document, "generated_text"), tool_text(document, "text"));
    ck_assert_str_eq(tool_text(document, "finish"), "max_tokens");
    ck_assert_uint_eq(json_array_size(tool_member(document, "log_probabilities")), 8);
    const json_t *timings = tool_member(document, "timings"), *rank = tool_member(document, "rank");
    ck_assert_int_eq((int)tool_number(timings, "prompt_tokens"), 1);
    ck_assert_int_eq((int)tool_number(timings, "generated_tokens"), 7);
    ck_assert_int_eq((int)tool_number(rank, "ranks"), 1);
    ck_assert_double_eq(tool_number(rank, "weight_bytes"), tool_number(rank, "read_bytes"));
    ck_assert_str_eq(tool_text(tool_member(document, "model"), "dtype"), "f16");
    json_decref(document);
    document =
        tool_json("generate " MODEL " -p Once -p Lily --max-tokens 3 --json", "tessera.generate");
    const json_t *sequences = tool_member(document, "sequences");
    ck_assert_uint_eq(json_array_size(sequences), 2);
    ck_assert_int_eq(strncmp(tool_text(json_array_get(sequences, 1), "text"), "Lily", 4), 0);
    json_decref(document);
}
END_TEST

/* JSON has no infinity. The embedding of token 511 is 3e38 and zeros, so that its logit is -inf. */
START_TEST(json_has_null_for_an_infinite_logit)
{
    enum { HEADER = 8 + 4856, ROW = 64 * sizeof(float), SIZE = 1044992 };
    static char data[SIZE];
    folder in = folder_create();
    char path[160], arguments[256];
    static const char *const names[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", FOLDER, names[i]);
        FILE *file = fopen(path, "rb");
        ck_assert_ptr_nonnull(file);
        const size_t size = fread(data, 1, sizeof data, file);
        fclose(file);
        if (i == 1) {
            float row[64] = {[5] = 3e38F};
            ck_assert_uint_eq(size, SIZE);
            memcpy(data + HEADER + 511 * ROW, row, ROW);
        }
        folder_write(&in, names[i], data, size, path);
    }
    snprintf(arguments, sizeof arguments,
             "generate %s --ids 1 --greedy --max-tokens 1 --logits 1 --json", in.path);
    json_t *document = tool_json(arguments, "tessera.generate");
    const json_t *row = json_array_get(tool_member(document, "logits"), 0);
    for (size_t v = 0; v < 512; v++)
        ck_assert(v == 511 ? json_is_null(json_array_get(row, v))
                           : json_is_real(json_array_get(row, v)));
    json_decref(document);
    folder_destroy(&in);
}
END_TEST

START_TEST(seeds_choose_texts)
{
    tool_result a =
        tool_run("generate " MODEL " -p Once --max-tokens 8 --temperature 1.5 --seed 5");
    tool_result b =
        tool_run("generate " MODEL " -p Once --max-tokens 8 --temperature 1.5 --seed 6");
    ck_assert_int_eq(a.exit_code, 0);
    ck_assert_str_ne(a.out, b.out); /* drafts_of_a_model_change_no_text has the same seed twice */
    tool_result_free(&a);
    tool_result_free(&b);
}
END_TEST

/* A temperature of 0, and a top-p of 0, leave only the most likely token. */
START_TEST(zeros_take_the_most_likely_token)
{
    static const char greedy[] = "Once upon a time, there was a little girl named\n";
    tool_prints("generate " MODEL " -p Once -n 12 --temperature 0", greedy);
    tool_prints("generate " MODEL " -p Once -n 12 --temperature 9 --top-p 0", greedy);
}
END_TEST

/* Writes a file for an option. Returns the command with it, for tool_prints; not for free(). */
static const char *with_file(const char *option, const char *text, const char *path)
{
    static char command[512];
    FILE *file = fopen(path, "w");
    ck_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    snprintf(command, sizeof command, "generate " MODEL " -p Once --greedy %s %s", option, path);
    return command;
}

START_TEST(grammars_limit_texts)
{
    char place[] = "/tmp/tessera-grammar-XXXXXX", path[64];
    ck_assert_ptr_nonnull(mkdtemp(place));
    snprintf(path, sizeof path, "%s/file", place);
    tool_prints(with_file("--grammar", "root ::= \" upon\" ( \" midnight\" | \" a hill\" )", path),
                "Once upon a hill\n");
    tool_prints(with_file("--json-schema", "{\"enum\": [{\"a\": [true]}]}", path),
                "Once{\"a\": [true]}\n");
    tool_fails(with_file("--grammar", "root ::= x", path),
               "line 1, column 10: there is no rule 'x'");
    tool_fails("generate " MODEL " -p Once --grammar /proc/nonexistent",
               "/proc/nonexistent: No such file or directory");
    tool_refuses("generate " MODEL " -p Once --grammar a --json-schema b",
                 "tessera: generate: --grammar and --json-schema exclude each other\n");
    tool_fails("generate " FOLDER " --ids 1 --grammar /proc/nonexistent",
               "--grammar needs a tokenizer, and the model has none");
    tests_remove(place);
}
END_TEST

/* Prompts from a pipe and from files, by the short names of options, for two ranks. */
START_TEST(prompts_are_in_files)
{
    char place[] = "/tmp/tessera-prompts-XXXXXX", path[64], arguments[512];
    ck_assert_ptr_nonnull(mkdtemp(place));
    snprintf(path, sizeof path, "%s/file", place);
    (void)with_file("", "Once upon\r\n", path);
    snprintf(arguments, sizeof arguments, "%sgenerate " MODEL " -p - -f %s -p Once -n 1 -s 7 -c 60",
             TEST_HAVE_UCX ? "launch --no-prefix -n 2 -- " TEST_TOOL " " : "", path);
    tool_feed("Lily\n", 5);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_int_eq(tool_count(result.out, "[0]\nLily"), 1);
    ck_assert_int_eq(tool_count(result.out, "\n\n[1]\nOnce upon"), 1);
    ck_assert_int_eq(tool_count(result.out, "\n\n[2]\nOnce"), 1);
    tool_result_free(&result);
    (void)with_file("", "\n", path);
    snprintf(arguments, sizeof arguments, "generate " MODEL " --file %s", path);
    tool_fails(arguments, "/file is empty\n");
    tool_fails("generate " MODEL " -f /proc/nonexistent",
               "tessera: generate: cannot open /proc/nonexistent: No such file or directory\n");
    tool_refuses("generate " MODEL " -p - -f -",
                 "tessera: generate: -f takes standard input, '-', only once\n");
    tests_remove(place);
}
END_TEST

START_TEST(speeds_and_ends_are_told)
{
    tool_result result = tool_run("generate " MODEL " -p Once --greedy -n 60 -c 20 --stats");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_int_eq(tool_count(result.err, "tessera: generate: the text ends because the context "
                                            "of 20 tokens is full; --context makes it longer\n"),
                     1);
    ck_assert_int_eq(tool_count(result.err, "tessera: generate: loaded in "), 1);
    ck_assert_int_eq(tool_count(result.err, "; prompt: 2 tokens in "), 1);
    ck_assert_int_eq(tool_count(result.err, "; text: 18 tokens in "), 1);
    ck_assert_int_eq(tool_count(result.err, " tokens/s"), 2);
    tool_result_free(&result);
    result = tool_run("generate " MODEL " -p Once -p Lily --greedy -n 60 -c 20 --json --stats");
    ck_assert_int_eq(tool_count(result.err, "context"), 0);
    ck_assert_int_eq(tool_count(result.err, "; prompt: 4 tokens in "), 1);
    tool_result_free(&result);
}
END_TEST

/* Standard input without its last line break is the prompt, also for two ranks if there can be two.
 */
START_TEST(standard_input_is_a_prompt)
{
    static const char text[] = "Once upon\na time\n";
    char arguments[512];
    snprintf(arguments, sizeof arguments, "%sgenerate " MODEL " --max-tokens 12 --greedy",
             TEST_HAVE_UCX ? "launch --no-prefix -n 2 -- " TEST_TOOL " " : "");
    tool_feed(text, strlen(text));
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_msg(strncmp(result.out, "Once upon\na time", strlen(text) - 1) == 0 &&
                      result.out_size > strlen(text) + 5,
                  "%s", result.out);
    tool_result_free(&result);
}
END_TEST

START_TEST(mistakes_are_named)
{
    tool_refuses("generate", "tessera: generate: missing MODEL, a folder or a file\n");
    tool_feed("\n", 1);
    tool_refuses("generate x", "tessera: generate: missing --prompt TEXT, --file FILE or --ids "
                               "LIST, and standard input is empty\n");
    tool_refuses("generate x --stop=",
                 "tessera: generate: --stop takes a text that is not empty\n");
    tool_refuses(
        "generate x --stop 1 --stop 2 --stop 3 --stop 4 --stop 5 --stop 6 --stop 7 --stop 8 "
        "--stop 9 --stop 10 --stop 11 --stop 12 --stop 13 --stop 14 --stop 15 --stop 16 "
        "--stop 17",
        "tessera: generate: --stop may be given 16 times at most\n");
    tool_refuses("generate x --ids 1,,2",
                 "tessera: generate: --ids takes token ids such as 1,403,407, not '1,,2'\n");
    tool_refuses("generate x --ids 1 --logits 3", "tessera: generate: --logits needs --json\n");
    tool_refuses(
        "generate x --ids 1 --dtype i32",
        "tessera: generate: --dtype takes f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k, "
        "q3_k, q4_k, q5_k, q6_k, mxfp4, not 'i32'\n");
    tool_refuses("generate x --ids 1 --cache-dtype q4_k",
                 "tessera: generate: --cache-dtype takes f32, "
                 "f16, bf16, q8_0 or q4_0, not 'q4_k'\n");
    tool_refuses("generate x --ids 1 --rates 1,x", "tessera: generate: --rates takes a number per "
                                                   "rank, such as 3,1, or 'measured', not '1,x'\n");
    tool_fails("generate " FOLDER " --ids 1 --rates 3,1,1",
               "tessera: generate: --rates has 3 values for 1 rank\n");
    tool_fails("generate " FOLDER " --ids 1 --wire q4_0",
               "tessera: generate: group_create: wire is q4_0; f32, f16, bf16 or q8_0 is needed\n");
    tool_fails("generate " FOLDER " --ids 1 --stages 2",
               "tessera: generate: --stages 2 does not divide 1 rank\n");
    tool_refuses("generate x --ids 1 --experts hosts",
                 "tessera: generate: --experts takes auto, inside, whole or mixed, also as "
                 "auto:HOSTS or mixed:HOSTS, host or "
                 "host:LAYERS, or both "
                 "with a comma, not 'hosts'\n");
    tool_fails("generate " FOLDER " --ids 1 --experts host:2",
               "tessera: generate: host_experts is set, but no layer of the model has "
               "experts\n");
    tool_fails("generate " TEST_DATA "/model/families/gptoss/hf --ids 1 --context 8 --memory 380K",
               "experts of 1 layer in the host's memory (--experts host:1) would fit\n");
    tool_refuses("generate x --ids 1 --stage-layers 3,0",
                 "tessera: generate: --stage-layers takes a number of layers per stage, such as "
                 "10,12, not '3,0'\n");
    tool_fails("generate " FOLDER " --ids 1 --stage-layers 2,3",
               "tessera: generate: --stage-layers gives 2 stages, which do not divide 1 rank\n");
    tool_fails("generate " FOLDER " --ids 1 --stages 1 --stage-layers 2,3",
               "tessera: generate: --stage-layers has 2 values for 1 stage\n");
    tool_fails("generate " FOLDER " --ids 1 --stage-layers 4",
               "tessera: generate: the stages have 4 layers, but the model has 5\n");
    tool_fails("generate /proc/nowhere --ids 1",
               "tessera: generate: cannot open /proc/nowhere: No such file or directory");
    tool_fails("generate " FOLDER " --prompt x", "no tokenizer.json, tokenizer.model or tok*.bin");
    tool_fails("generate " MODEL " --ids 1,512",
               "token 1 of the prompt is 512; the vocabulary has 0 to 511");
    tool_fails("generate " MODEL " --ids 1,2,3 --context 2",
               "the prompt has 3 tokens, but the context only 2");
    tool_fails("generate " TEST_DATA "/quant_blocks.json --ids 1", "tessera: generate: ");
}
END_TEST

/* Writes MODEL to a folder, with another text of one token. */
static void write_renamed(const folder *in, char *path)
{
    enum { SIZE = 700 * 1024 };
    static char data[SIZE];
    static const char token[] = "\xe2\x96\x81time";
    FILE *file = fopen(MODEL, "rb");
    ck_assert_ptr_nonnull(file);
    const size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    size_t at = 0;
    while (at + sizeof token < size && memcmp(data + at, token, sizeof token - 1) != 0)
        at++;
    ck_assert_msg(at + sizeof token < size && size < SIZE, "no token");
    data[at + 3] = 'T';
    folder_write(in, "renamed.gguf", data, size, path);
}

START_TEST(drafts_of_a_model_change_no_text)
{
    tool_result text = tool_run("generate " MODEL " -p Once --max-tokens 30 --temperature 0.5");
    ck_assert_int_eq(text.exit_code, 0);
    char arguments[512];
    for (int i = TEST_HAVE_UCX ? 1 : 0; i < (TEST_HAVE_UCX ? 3 : 1); i++) {
        snprintf(arguments, sizeof arguments,
                 "%sgenerate " MODEL " -p Once --max-tokens 30 --temperature 0.5 --draft "
                 "" FOLDER ":3%s",
                 i > 0 ? "launch --no-prefix -n 2 -- " TEST_TOOL " " : "",
                 i > 1 ? " --draft-ranks all" : "");
        tool_prints(arguments, text.out);
    }
    tool_result_free(&text);
    json_t *document = tool_json("generate " MODEL " -p Once --max-tokens 30 --draft " MODEL
                                 " --draft-rejection --temperature 1.5 --json",
                                 "tessera.generate");
    const json_t *timings = tool_member(document, "timings");
    ck_assert_double_gt(tool_number(timings, "drafted_tokens"), 0);
    ck_assert_double_eq(tool_number(timings, "accepted_tokens"),
                        tool_number(timings, "drafted_tokens")); /* by the same model */
    ck_assert_double_gt(tool_number(timings, "drafted_passes"), 0);
    ck_assert_double_gt(tool_number(timings, "draft_s"), 0);
    ck_assert_double_eq(tool_number(timings, "drafted_passes") +
                            tool_number(timings, "plain_passes") +
                            tool_number(timings, "accepted_tokens"),
                        29);
    json_decref(document);
}
END_TEST

START_TEST(wrong_drafts_are_named)
{
    tool_refuses("generate x --ids 1 --draft ngram:16",
                 "tessera: generate: --draft takes 1 to 15 tokens, not '16'\n");
    tool_refuses("generate x --ids 1 --draft :3",
                 "tessera: generate: --draft takes ngram, mtp or a model, each perhaps with :N, "
                 "not ':3'\n");
    tool_refuses("generate x --ids 1 --draft mtp:x",
                 "tessera: generate: --draft takes ngram, mtp or a model, each perhaps with :N, "
                 "not 'mtp:x'\n");
    tool_fails("generate " MODEL " --ids 1 --draft mtp",
               "generate: --draft mtp: this model of architecture llama has no layers that predict "
               "further tokens\n");
    tool_refuses("generate x --ids 1 --draft y --draft-ranks two",
                 "tessera: generate: --draft-ranks takes one or all, not 'two'\n");
    tool_refuses("generate x --ids 1 --draft-ranks all",
                 "tessera: generate: --draft-ranks needs --draft MODEL\n");
    tool_refuses("chat x --draft ngram --draft-rejection",
                 "tessera: chat: --draft-rejection needs --draft mtp or --draft MODEL\n");
    tool_refuses("serve x --draft y --draft-ranks all --stages 2",
                 "tessera: serve: --draft-ranks all needs a model without --stages\n");
    tool_fails("generate " MODEL " --ids 1 --draft /proc/nowhere",
               "generate: --draft /proc/nowhere: model: cannot open /proc/nowhere: No such file");
    tool_fails("generate " MODEL " --ids 1 --draft " TEST_DATA "/training/sft_model",
               "sft_model: its vocabulary has 40 tokens, that of the model 512\n");
    char path[160], arguments[512];
    folder in = folder_create();
    write_renamed(&in, path);
    snprintf(arguments, sizeof arguments, "generate " MODEL " --ids 1 --draft %s", path);
    tool_fails(arguments, "is '\xe2\x96\x81Time', but that of the model is '\xe2\x96\x81time'\n");
    folder_destroy(&in);
}
END_TEST

START_TEST(a_long_context_is_noted)
{
    static const char note[] = "tessera: note: --context is 513, but the model was made for 512 "
                               "tokens; longer texts may become worse\n";
    char arguments[512];
    snprintf(arguments, sizeof arguments,
             "%sgenerate " FOLDER " --ids 1 --greedy --max-tokens 4 --context 513",
             TEST_HAVE_UCX ? "launch --no-prefix -n 2 -- " TEST_TOOL " " : "");
    tool_result result = tool_run(arguments);
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_str_eq(result.out, "1 403 407 261 378\n");
    ck_assert_str_eq(result.err, note); /* by one rank */
    tool_result_free(&result);
    tool_prints("generate " FOLDER " --ids 1 --greedy --max-tokens 4 --context 512",
                "1 403 407 261 378\n");
}
END_TEST

#define LORA TEST_DATA "/training/lora/"

/* Checks the logits of a model after the recorded ids against those in double precision. */
static void expect_logits(const char *start, const char *model, const json_t *prompt)
{
    char arguments[1024];
    size_t used =
        (size_t)snprintf(arguments, sizeof arguments,
                         "%sgenerate %s --greedy -n 1 --json --logits 24 --ids ", start, model);
    const json_t *ids = tool_member(prompt, "ids");
    for (size_t i = 0; i < json_array_size(ids); i++)
        used += (size_t)snprintf(arguments + used, sizeof arguments - used, "%s%d",
                                 i > 0 ? "," : "", (int)json_integer_value(json_array_get(ids, i)));
    json_t *document = tool_json(arguments, "tessera.generate");
    const octets wanted = cases_base64(tool_text(tool_member(prompt, "logits"), "b64"));
    const json_t *rows = tool_member(document, "logits");
    ck_assert_uint_eq(json_array_size(rows), 24);
    ck_assert_uint_eq(wanted.size, 24 * 65 * sizeof(double));
    for (size_t r = 0; r < 24; r++)
        for (size_t v = 0; v < 65; v++) {
            double exact;
            memcpy(&exact, (const char *)wanted.data + (r * 65 + v) * sizeof exact, sizeof exact);
            const double got = json_number_value(json_array_get(json_array_get(rows, r), v));
            ck_assert_msg(fabs(got - exact) < 1e-4, "%s: logit %d of row %d is %g, not %g", model,
                          (int)v, (int)r, got, exact);
        }
    free(wanted.data);
    json_decref(document);
}

/* A base with an adapter has the recorded logits, on one rank and on two, and so has the model in
 * which both are merged; the adapter taken away again leaves the base. */
START_TEST(adapters_are_added)
{
    char place[] = "/tmp/tessera-merged-XXXXXX", command[512], model[256];
    json_t *trajectory = golden_load("training/lora/lora_trajectory");
    const json_t *prompt = tool_member(trajectory, "prompt");
    expect_logits("", LORA "lora_base --lora " LORA "lora_final", prompt);
    if (TEST_HAVE_UCX)
        expect_logits(
            "launch --no-prefix -n 2 -- " TEST_TOOL " ",
            LORA "lora_base --lora " LORA "lora_final:0.25 --lora " LORA "lora_final:0.75", prompt);
    ck_assert_ptr_nonnull(mkdtemp(place));
    snprintf(model, sizeof model, "%s/merged.gguf", place);
    snprintf(command, sizeof command, "merge " LORA "lora_base " LORA "lora_final -o %s --quiet",
             model);
    tool_result result = tool_run(command);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    tool_result_free(&result);
    expect_logits("", model, prompt);
    snprintf(command, sizeof command,
             "generate %s --lora " LORA "lora_final:-1 --ids 58,46,63,1 "
             "--greedy -n 8",
             model);
    tool_result without = tool_run("generate " LORA "lora_base --ids 58,46,63,1 --greedy -n 8");
    tool_prints(command, without.out);
    tool_result_free(&without);
    tests_remove(place);
    json_decref(trajectory);
    tool_fails("generate " MODEL " -p Once --lora " LORA "lora_final", "the model needs [172,4]");
    tool_refuses("generate x -p Once --lora :2", "tessera: generate: --lora takes a folder or a "
                                                 "file, and perhaps :SCALE, not ':2'\n");
}
END_TEST

/* The tool prints text as soon as it has it, and ends if text cannot be written. Generating all of
 * these tokens would take minutes. */
START_TEST(a_full_disk_ends_the_text)
{
    FILE *full = fopen("/dev/full", "w");
    ck_assert_ptr_nonnull(full);
    tool_result result = tool_run_into("generate " MODEL " -p Once --greedy --ignore-end "
                                       "--max-tokens 60000 --context 60000",
                                       full);
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.err,
                     "tessera: note: --context is 60000, but the model was made for 512 tokens; "
                     "longer texts may become worse\n"
                     "tessera: cannot write to standard output: No space left on device\n");
    tool_result_free(&result);
}
END_TEST

/* Interrupts ----------------------------------------------------------------------------------- */

static void interrupt(bool launched)
{
    tool_result result = tool_interrupt("generate " MODEL " -p Once --ignore-end --max-tokens 500",
                                        launched, NULL, NULL);
    ck_assert_int_eq(result.exit_code, 130);
    ck_assert_int_eq(strncmp(result.out, "Once", 4), 0);
    ck_assert_int_eq(result.out[result.out_size - 1], '\n');
    tool_result_free(&result);
}

START_TEST(an_interrupt_ends_the_text)
{
    interrupt(false);
}
END_TEST

START_TEST(an_interrupt_ends_the_text_on_all_ranks)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    interrupt(true);
}
END_TEST

TESTS(generate)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, text_goes_in_and_out);
    tcase_add_test(tests, json_has_ids_text_and_logits);
    tcase_add_test(tests, json_has_null_for_an_infinite_logit);
    tcase_add_test(tests, seeds_choose_texts);
    tcase_add_test(tests, zeros_take_the_most_likely_token);
    tcase_add_test(tests, grammars_limit_texts);
    tcase_add_test(tests, prompts_are_in_files);
    tcase_add_test(tests, adapters_are_added);
    tcase_add_test(tests, speeds_and_ends_are_told);
    tcase_add_test(tests, standard_input_is_a_prompt);
    tcase_add_test(tests, mistakes_are_named);
    tcase_add_test(tests, drafts_of_a_model_change_no_text);
    tcase_add_test(tests, wrong_drafts_are_named);
    tcase_add_test(tests, a_long_context_is_noted);
    tcase_add_test(tests, a_full_disk_ends_the_text);
    tcase_add_test(tests, an_interrupt_ends_the_text);
    tcase_add_test(tests, an_interrupt_ends_the_text_on_all_ranks);
}
