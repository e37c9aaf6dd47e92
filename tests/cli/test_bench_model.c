/* Tests tessera bench model: its output formats, with a file and with generated models, and
 * mistakes. Also tests tessera bench rates. */
#include <stdio.h>
#include <string.h>

#include "cli/tool.h"
#include "cli/tool_config.h"
#include "shard/files.h"
#include "support/check_main.h"

#define MODEL TEST_DATA "/model/stories260K-f16.gguf"
#define SMALL "bench model --shape llama-15m -p 9 -n 3 -r 2 "

static void check_result(const json_t *result, const char *test, int tokens)
{
    double mean = 0;
    ck_assert_str_eq(tool_text(result, "test"), test);
    ck_assert_int_eq((int)tool_number(result, "tokens"), tokens);
    const json_t *seconds = tool_member(result, "seconds");
    ck_assert_uint_eq(json_array_size(seconds), 2);
    for (size_t i = 0; i < 2; i++)
        mean += tokens / json_number_value(json_array_get(seconds, i)) / 2;
    const double got = tool_number(result, "tokens_per_s");
    ck_assert_msg(got > 0.999 * mean && got < 1.001 * mean, "%g tokens/s, not %g", got, mean);
    /* The standard deviation of two values is their distance / √2. */
    const double first = tokens / json_number_value(json_array_get(seconds, 0));
    const double second = tokens / json_number_value(json_array_get(seconds, 1));
    const double deviation = tool_number(result, "deviation") * 1.4142135623730951;
    const double distance = first > second ? first - second : second - first;
    ck_assert_msg(deviation > distance - 1e-3 * mean && deviation < distance + 1e-3 * mean,
                  "a deviation of %g, not %g", deviation, distance);
}

static void check_document(json_t *document, int ranks)
{
    const json_t *results = tool_member(document, "results"), *all = tool_member(document, "ranks");
    double memory = 0;
    ck_assert_uint_eq(json_array_size(results), 2);
    const json_t *prompt = json_array_get(results, 0), *generated = json_array_get(results, 1);
    check_result(prompt, "pp9", 9);
    check_result(generated, "tg3", 3);
    ck_assert(json_is_null(tool_member(prompt, "memory_fraction")));
    ck_assert_int_eq((int)json_array_size(all), ranks);
    for (size_t r = 0; r < json_array_size(all); r++) {
        const double own = tool_number(json_array_get(all, r), "memory_bytes_per_s");
        ck_assert_msg(own > 0, "a rank's memory has %g bytes/s", own);
        memory += own;
    }
    const double read_bytes = tool_number(generated, "weight_bytes_per_s"),
                 part = tool_number(generated, "memory_fraction");
    ck_assert_msg(part > 0.999 * read_bytes / memory && part < 1.001 * read_bytes / memory,
                  "%g of memory, not %g", part, read_bytes / memory);
    ck_assert_int_eq((int)json_array_size(tool_member(generated, "communication_of_ranks")), ranks);
    /* On a CPU driver the host waits for each token. */
    const double idle = tool_number(generated, "idle_waits_per_step");
    ck_assert_msg(idle >= 1 && tool_number(generated, "waits_per_step") >= idle &&
                      tool_number(generated, "submissions_per_step") >= 1,
                  "%g waits", idle);
}

START_TEST(a_file_is_measured)
{
    json_t *document =
        tool_json("bench model " MODEL " -p 9 -n 3 -r 2 -o json", "tessera.bench.model");
    check_document(document, 1);
    const json_t *model = tool_member(document, "model"),
                 *generated = json_array_get(tool_member(document, "results"), 1);
    ck_assert_str_eq(tool_text(model, "name"), "stories260K-f16.gguf");
    ck_assert_str_eq(tool_text(model, "dtype"), "f16");
    ck_assert_int_eq((int)tool_number(model, "parameters"), 260032);
    /* Each token reads all weights: the output layer shares the embedding's weights, and reads
     * them completely. */
    const double read_bytes =
        tool_number(model, "weight_bytes") * tool_number(generated, "tokens_per_s");
    const double got = tool_number(generated, "weight_bytes_per_s");
    ck_assert_msg(got > 0.999 * read_bytes && got < 1.001 * read_bytes, "%g bytes/s, not %g", got,
                  read_bytes);
    ck_assert(tool_number(generated, "communication") == 0);
    json_decref(document);
}
END_TEST

START_TEST(drafts_are_measured)
{
    json_t *document = tool_json("bench model " MODEL " -p 0 -n 20 -r 1 -o json --draft " MODEL,
                                 "tessera.bench.model");
    const json_t *results = tool_member(document, "results"), *drafted = json_array_get(results, 1);
    ck_assert_uint_eq(json_array_size(results), 2);
    ck_assert_str_eq(tool_text(drafted, "test"), "tg20+draft");
    ck_assert_double_gt(tool_number(drafted, "accepted_tokens"), 0);
    ck_assert_double_eq(tool_number(drafted, "accepted_tokens") +
                            tool_number(drafted, "drafted_passes") +
                            tool_number(drafted, "plain_passes"),
                        2 * 20); /* with the run that is not timed */
    ck_assert_double_gt(tool_number(drafted, "draft_s"), 0);
    ck_assert_ptr_null(json_object_get(json_array_get(results, 0), "drafted_tokens"));
    json_decref(document);
    tool_fails("bench model " MODEL " -p 0 -n 4 --draft " TEST_DATA "/training/sft_model",
               "the vocabulary of draft_model has 40 tokens, that of the model 512\n");
}
END_TEST

START_TEST(a_job_is_measured)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    json_t *document =
        tool_json("launch --no-prefix -n 2 -- " TEST_TOOL " " SMALL "--json --rates 3,1",
                  "tessera.bench.model");
    check_document(document, 2);
    for (size_t r = 0; r < 2; r++) { /* the model has 8 heads, and 4 for keys and values */
        const json_t *rank = json_array_get(tool_member(document, "ranks"), r);
        ck_assert_int_eq((int)tool_number(rank, "heads"), r == 0 ? 6 : 2);
        ck_assert_int_eq((int)tool_number(rank, "kv_heads"), r == 0 ? 3 : 1);
    }
    const json_t *prompt = json_array_get(tool_member(document, "results"), 0);
    const double part = tool_number(prompt, "communication");
    ck_assert_msg(part > 0 && part < 1, "communication takes %g of the time", part);
    json_decref(document);
}
END_TEST

/* Three sequences are generated at the same time over two stages; the two numbers need not be
 * equal. */
START_TEST(stages_are_measured)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    json_t *document = tool_json("launch --no-prefix -n 2 -- " TEST_TOOL " " SMALL
                                 "--json --stage-layers 2,4 --sequences 3",
                                 "tessera.bench.model");
    const json_t *results = tool_member(document, "results"),
                 *ranks = tool_member(document, "ranks");
    check_result(json_array_get(results, 0), "pp9", 9);
    check_result(json_array_get(results, 1), "3xtg3", 9);
    for (size_t r = 0; r < 2; r++) { /* each stage has all heads of its layers */
        const json_t *rank = json_array_get(ranks, r);
        ck_assert_int_eq((int)tool_number(rank, "heads"), 8);
        ck_assert_int_eq((int)tool_number(rank, "layers"), r == 0 ? 2 : 4);
        ck_assert_int_eq((int)tool_number(rank, "first_layer"), r == 0 ? 0 : 2);
    }
    json_decref(document);
}
END_TEST

START_TEST(tables)
{
    tool_result csv = tool_run(SMALL "--type q8_0 -o csv");
    ck_assert_msg(csv.exit_code == 0, "%s", csv.err);
    static const char headings[] =
        "model,device,dtype,weight_bytes,parameters,ranks,test,tokens,repetitions,tokens_per_s,"
        "deviation,communication,weight_bytes_per_s,memory_fraction\r\n";
    ck_assert_int_eq(strncmp(csv.out, headings, strlen(headings)), 0);
    ck_assert_int_eq(tool_count(csv.out, "\n"), 3);
    ck_assert_int_eq(tool_count(csv.out, "\"llama-15m q8_0, generated\","), 2);
    ck_assert_int_eq(tool_count(csv.out, ",q8_0,22"), 2); /* the weights take 22 MB */
    ck_assert_int_eq(tool_count(csv.out, ",21105920,1,pp9,9,2,"), 1);
    ck_assert_int_eq(tool_count(csv.out, ",tg3,3,2,"), 1);
    tool_result_free(&csv);
    tool_result md = tool_run("bench model " MODEL " -n 3 -r 2 -p 0 --dtype f32");
    ck_assert_msg(md.exit_code == 0, "%s", md.err);
    ck_assert_int_eq(strncmp(md.out, "| model ", 8), 0);
    ck_assert_int_eq(tool_count(md.out, "\n"), 3);
    ck_assert_int_eq(tool_count(md.out, " tg3 |"), 1);
    ck_assert_int_eq(tool_count(md.out, " ± "), 1);
    ck_assert_int_eq(tool_count(md.out, "communication"), 0); /* one rank does not communicate */
    tool_result_free(&md);
    /* The model's context has 512 tokens. A prompt of 513 must be measured with a warning. */
    tool_result text = tool_run("bench model " MODEL " -n 3 -r 2 -p 513 -o text");
    ck_assert_msg(text.exit_code == 0, "%s", text.err);
    ck_assert_str_eq(text.err,
                     "tessera: bench model: --prompt-tokens 513 needs a context of 513, but the "
                     "model was made for 512; it is measured anyway\n");
    ck_assert_int_eq(strncmp(text.out, "model ", 6), 0);
    ck_assert_int_eq(tool_count(text.out, "|"), 0);
    ck_assert_int_eq(tool_count(text.out, " tg3 "), 1);
    tool_result_free(&text);
    tool_result ascii = tool_run_in(SMALL "-n 0", "C", "200");
    ck_assert_msg(ascii.exit_code == 0, "%s", ascii.err);
    ck_assert_int_eq(tool_count(ascii.out, " +- "), 1);
    ck_assert_int_eq(tool_count(ascii.out, " pp9 |"), 1);
    tool_result_free(&ascii);
}
END_TEST

static const json_t *kernel_named(const json_t *pass, const char *name)
{
    const json_t *kernels = tool_member(pass, "kernels");
    for (size_t i = 0; i < json_array_size(kernels); i++)
        if (strcmp(tool_text(json_array_get(kernels, i), "kernel"), name) == 0)
            return json_array_get(kernels, i);
    return NULL;
}

static void check_total(const json_t *pass, const char *figure)
{
    const json_t *kernels = tool_member(pass, "kernels");
    const double total = tool_number(tool_member(pass, "total"), figure);
    double sum = 0;
    for (size_t i = 0; i < json_array_size(kernels); i++)
        sum += tool_number(json_array_get(kernels, i), figure);
    ck_assert_msg(sum > 0 && sum > 0.9999 * total && sum < 1.0001 * total,
                  "%s: the kernels have %g, the total is %g", figure, sum, total);
}

/* Checks the commands of a pass over `tokens` tokens, of which the last one goes through the head.
 */
static void check_kernels(const json_t *pass, const char *name, int tokens, int keys)
{
    /* llama-15m: 6 layers of width 256, 128 columns each for keys and values, an MLP of 768; and a
     * head of 32000 */
    const double layer = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 768, head = 32000 * 256;
    const double products = 2 * (6 * layer * tokens + head);
    /* scores and values, with room for kernels that compute keys which a mask hides, and whole
     * tiles */
    const double attention = 6 * 4.0 * 256 * keys * tokens;
    const json_t *total = tool_member(pass, "total");
    const double operations = tool_number(total, "operations");
    const double weight_bytes = 2 * (6 * layer + head);
    const double read_bytes = tool_number(total, "read_bytes");
    ck_assert_str_eq(tool_text(pass, "pass"), name);
    check_total(pass, "commands");
    check_total(pass, "barriers");
    check_total(pass, "read_bytes");
    check_total(pass, "written_bytes");
    check_total(pass, "operations");
    ck_assert_msg(operations > products && operations < products + 64 * attention,
                  "%s: %g operations; the products have %g, attention %g or more", name, operations,
                  products, attention);
    ck_assert_msg(read_bytes > weight_bytes && read_bytes < 2 * weight_bytes,
                  "%s: %g bytes are read; the weights have %g", name, read_bytes, weight_bytes);
    ck_assert_int_ge((int)tool_number(total, "submissions"), 1);
    if (json_is_null(tool_member(total, "elapsed_ns"))) {
        ck_assert(json_is_null(tool_member(total, "gaps_ns")));
        ck_assert(json_is_null(tool_member(total, "ns")));
    } else {
        check_total(pass, "ns");
        const double elapsed = tool_number(total, "elapsed_ns"), ns = tool_number(total, "ns"),
                     gaps = tool_number(total, "gaps_ns");
        ck_assert_msg(gaps >= 0 && ns + gaps > 0.9999 * elapsed && ns + gaps < 1.0001 * elapsed,
                      "%s: %g ns, %g of them in kernels and %g between", name, elapsed, ns, gaps);
    }
}

START_TEST(kernels_are_counted)
{
    json_t *document = tool_json("bench model --shape llama-15m -p 9 -n 1 -r 1 --kernels --json",
                                 "tessera.bench.model");
    const json_t *passes = tool_member(document, "kernels");
    ck_assert_uint_eq(json_array_size(passes), 2);
    check_kernels(json_array_get(passes, 0), "pp9", 9, 9);
    check_kernels(json_array_get(passes, 1), "token after 9", 1, 10);
    const char *device = tool_text(json_array_get(tool_member(document, "ranks"), 0), "device");
    if (strstr(device, "llvmpipe") != NULL || strstr(device, "SwiftShader") != NULL)
        for (size_t i = 0; i < 2;
             i++) { /* two norms in each of 6 layers, and one before the head */
            const json_t *norm = kernel_named(json_array_get(passes, i), "norm");
            ck_assert_ptr_nonnull(norm);
            ck_assert_int_eq((int)tool_number(norm, "commands"), 13);
            ck_assert(json_is_false(tool_member(norm, "matrix_units")));
            ck_assert(tool_number(norm, "operations") == 0);
        }
    json_decref(document);
    tool_result md = tool_run("bench model " MODEL " -n 1 -r 1 -p 0 --kernels");
    ck_assert_msg(md.exit_code == 0, "%s", md.err);
    ck_assert_int_eq(tool_count(md.out, "\n| pp1 "), 1);
    ck_assert_int_eq(tool_count(md.out, "\n| token after 1 "), 1);
    ck_assert_int_eq(tool_count(md.out, "\n| total "), 2);
    tool_result_free(&md);
}
END_TEST

START_TEST(mistakes_are_named)
{
    tool_refuses("bench model --kernels -o csv",
                 "tessera: bench model: CSV has one table, so it cannot have that of --kernels; "
                 "use JSON\n");
    tool_refuses("bench model --kernels -o /proc/nowhere/x.csv",
                 "tessera: bench model: CSV has one table, so it cannot have that of --kernels; "
                 "use JSON\n");
    tool_refuses("bench model --shape x", "tessera: bench model: --shape takes llama-1b, llama-7b, "
                                          "llama-110m, llama-15m, qwen3-30b-a3b, gpt-oss-20b, "
                                          "gpt-oss-120b, glm-4.5-air, mixtral-8x7b, qwen3.5-27b, "
                                          "qwen3.5-35b-a3b, glm-4.7-flash, not 'x'\n");
    tool_refuses("bench model --type iq4_nl",
                 "tessera: bench model: --type takes f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, "
                 "q2_k, q3_k, q4_k, q5_k, q6_k, mxfp4, not 'iq4_nl'\n");
    tool_refuses(
        "bench model --cache-dtype q5_0",
        "tessera: bench model: --cache-dtype takes f32, f16, bf16, q8_0 or q4_0, not 'q5_0'\n");
    tool_refuses("bench model -o xml",
                 "tessera: bench model: -o takes text, md, csv, json, or a file whose name "
                 "contains '.' or '/', not 'xml'\n");
    tool_refuses("bench model --json -o text",
                 "tessera: bench model: --json and --output text are two formats\n");
    tool_refuses("bench model x --shape llama-1b",
                 "tessera: bench model: --shape is for a generated model; remove it, or 'x'\n");
    tool_refuses("bench model -p 0 -n 0", "tessera: bench model: --prompt-tokens and --generate "
                                          "are both 0; nothing is left to measure\n");
    tool_fails(SMALL "--rates 1,2", "bench model: --rates has 2 values for 1 rank");
    tool_fails(SMALL "--stages 2", "bench model: --stages 2 does not divide 1 rank");
    tool_fails("bench model /proc/nowhere",
               "bench model: cannot open /proc/nowhere: No such file or directory");
}
END_TEST

/* The tool must refuse before it reads weights: this file has none. */
START_TEST(learned_positions_are_a_limit)
{
    static const char config[] = "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":64,"
                                 "\"n_embd\":32,\"n_layer\":2,\"n_head\":4}";
    char path[160], arguments[160];
    folder model = folder_create();
    bytes weights = safetensors_file("{}", 0);
    folder_write(&model, "config.json", config, sizeof config - 1, path);
    folder_write(&model, "model.safetensors", weights.data, weights.size, path);
    free(weights.data);
    snprintf(arguments, sizeof arguments, "bench model %s -n 64", model.path);
    tool_fails(arguments, "bench model: --prompt-tokens 512 needs a context of 512, but the model "
                          "has learned 64 positions\n");
    snprintf(arguments, sizeof arguments, "bench model %s -p 64 -n 64", model.path);
    tool_fails(arguments, "bench model: --generate 64 needs a context of 65, but the model has "
                          "learned 64 positions\n");
    folder_destroy(&model);
}
END_TEST

/* The times of passes are noisy, but their number, rows and signs are known. plan --cluster reads
 * the file. */
START_TEST(rates_of_a_job)
{
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    char arguments[800];
    folder in = folder_create();
    char path[160], hosts[160];
    snprintf(path, sizeof path, "%s/rates.json", in.path);
    snprintf(arguments, sizeof arguments,
             "launch --no-prefix -n 2 -- " TEST_TOOL " bench rates " MODEL
             " --type f16 --sequences 3 -p 9 --time 0.001 -o %s",
             path);
    tool_result text = tool_run(arguments);
    ck_assert_msg(text.exit_code == 0 && strstr(text.out, "layer µs") != NULL, "%s%s", text.out,
                  text.err);
    tool_result_free(&text);
    json_t *document = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(document);
    ck_assert_str_eq(tool_text(document, "schema"), "tessera.bench.rates");
    ck_assert_double_ge(tool_number(tool_member(document, "model"), "bytes_per_element"), 2);
    const json_t *ranks = tool_member(document, "ranks");
    ck_assert_uint_eq(json_array_size(ranks), 2);
    for (size_t r = 0; r < 2; r++) {
        static const int rows[] = {1, 2, 3, 9};
        const json_t *passes = tool_member(json_array_get(ranks, r), "passes");
        ck_assert_uint_eq(json_array_size(passes), 4);
        /* all ranks are on one host */
        const json_t *rank = json_array_get(ranks, r);
        ck_assert_double_ge(tool_number(rank, "collective_us"), 0);
        ck_assert_double_eq(tool_number(rank, "host_collective_us"),
                            tool_number(rank, "collective_us"));
        for (size_t i = 0; i < 4; i++) {
            const json_t *pass = json_array_get(passes, i);
            ck_assert_int_eq((int)tool_number(pass, "rows"), rows[i]);
            ck_assert_double_ge(tool_number(pass, "pass_us"), 0);
            ck_assert_double_ge(tool_number(pass, "layer_us"), 0);
            ck_assert_double_gt(tool_number(pass, "million_elements_us"), 0);
            ck_assert_double_ge(tool_number(pass, "head_us"), 0);
            ck_assert_double_gt(tool_number(pass, "million_head_elements_us"), 0);
        }
    }
    json_decref(document);
    static const char description[] =
        "{\"hosts\": [{\"name\": \"a\", \"ranks\": [{\"count\": 2}], \"link\": "
        "{\"latency_us\": 1, \"gbytes_per_second\": 1}}]}";
    folder_write(&in, "hosts.json", description, strlen(description), hosts);
    snprintf(arguments, sizeof arguments,
             "plan " MODEL " --cluster %s --rank-rates %s --context 32", hosts, path);
    tool_result plan = tool_run(arguments);
    ck_assert_msg(plan.exit_code == 0, "%s", plan.err);
    tool_result_free(&plan);
    /* Experts are measured by themselves, and the plan reads their rates. */
    snprintf(arguments, sizeof arguments,
             "bench rates " TEST_DATA "/model/families/mixtral/mixtral-f16.gguf --experts -p 0 "
             "--time 0.001 -o %s",
             path);
    text = tool_run(arguments);
    ck_assert_msg(text.exit_code == 0 && strstr(text.out, "experts µs/10⁶") != NULL, "%s%s",
                  text.out, text.err);
    tool_result_free(&text);
    document = json_load_file(path, 0, NULL);
    ck_assert_ptr_nonnull(document);
    const json_t *only = json_array_get(tool_member(document, "ranks"), 0);
    ck_assert_double_gt(
        tool_number(json_array_get(tool_member(only, "passes"), 0), "million_expert_elements_us"),
        0);
    json_decref(document);
    static const char one_rank[] = "{\"hosts\": [{\"name\": \"a\", \"ranks\": [{}]}]}";
    folder_write(&in, "hosts.json", one_rank, strlen(one_rank), hosts);
    snprintf(arguments, sizeof arguments,
             "plan " TEST_DATA "/model/families/mixtral/mixtral-f16.gguf --cluster %s "
             "--rank-rates %s --context 32",
             hosts, path);
    plan = tool_run(arguments);
    ck_assert_msg(plan.exit_code == 0, "%s", plan.err);
    tool_result_free(&plan);
    tool_fails("bench rates " MODEL " --experts",
               "tessera: bench rates: --experts: most layers of " MODEL " have no experts\n");
    tool_refuses("bench rates x --shape llama-15m",
                 "tessera: bench rates: --shape and 'x' are two models\n");
    folder_destroy(&in);
}
END_TEST

/* If memory holds one model but not all of them, they are measured one after the other. */
START_TEST(rates_with_little_memory)
{
    static const struct {
        const char *memory, *says;
        int code;
    } cases[] = {
        {"1G", "", 0},
        {"700K",
         "tessera: bench rates: the models do not fit into memory together; they are measured one "
         "after the other, which is less exact\n",
         0},
        {"100K", "tessera: bench rates: the weights and the cache of rank 0 of 1 need ", 1},
        {"1G,1G", "tessera: bench rates: --memory has 2 values for 1 rank\n", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char arguments[300];
        snprintf(arguments, sizeof arguments,
                 "bench rates " MODEL " --type f16 -p 0 --time 0.001 --memory %s", cases[i].memory);
        tool_result result = tool_run(arguments);
        ck_assert_msg(result.exit_code == cases[i].code, "%s: %s", cases[i].memory, result.err);
        ck_assert_msg(cases[i].says[0] ? strstr(result.err, cases[i].says) != NULL
                                       : strstr(result.err, "memory") == NULL,
                      "%s: %s", cases[i].memory, result.err);
        ck_assert_int_eq(strstr(result.out, "layer µs") != NULL, cases[i].code == 0);
        tool_result_free(&result);
    }
}
END_TEST

TESTS(bench_model)
{
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, a_file_is_measured);
    tcase_add_test(tests, drafts_are_measured);
    tcase_add_test(tests, a_job_is_measured);
    tcase_add_test(tests, stages_are_measured);
    tcase_add_test(tests, tables);
    tcase_add_test(tests, kernels_are_counted);
    tcase_add_test(tests, mistakes_are_named);
    tcase_add_test(tests, learned_positions_are_a_limit);
    tcase_add_test(tests, rates_of_a_job);
    tcase_add_test(tests, rates_with_little_memory);
}
