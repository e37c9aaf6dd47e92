/* Tests tessera plan: tables, JSON, and messages for wrong arguments and files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/tool.h"
#include "shard/files.h"
#include "support/check_main.h"
#include "tessera/shard.h"

#define STORIES TEST_DATA "/model/stories260K-hf"
#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

static folder in;

/* A model with an embedding of 1 KiB, two layers of 1 and 2 KiB, and a head of 96 bytes. */
static const char params[] =
    "[{\"name\": \"embed.weight\", \"shape\": [16, 32], \"dtype\": \"bf16\"},\n"
    " {\"name\": \"layers.0.w\", \"shape\": [16, 16], \"dtype\": \"f32\"},\n"
    " {\"name\": \"layers.1.w\", \"shape\": [32, 16], \"dtype\": \"f32\"},\n"
    " {\"name\": \"head.weight\", \"shape\": [3, 8], \"dtype\": \"f32\"}]\n";

static const char header[] = "{\"a.w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
                             "\"b.w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}}";

/* A checkpoint as tsr_checkpoint_save writes it during training. Only a.w is a parameter. */
static const char checkpoint[] =
    "{\"a.w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
    "\"optimizer.moment1.a.w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]},"
    "\"optimizer.moment2.a.w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[32,48]}}";

/* A fast host of two ranks, and a slow one behind a slow link. */
static const char hosts[] =
    "{\"hosts\": [{\"name\": \"left\", \"link\": {\"latency_us\": 5, \"gbytes_per_second\": 5},\n"
    "  \"ranks\": [{\"count\": 2, \"gflops\": 100, \"memory_gbytes_per_second\": 1, "
    "\"memory\": \"1MiB\"}]},\n"
    " {\"name\": \"right\", \"ranks\": [{\"gflops\": 50, \"memory_gbytes_per_second\": 1}]}],\n"
    " \"link\": {\"latency_us\": 500, \"gbytes_per_second\": 0.1}}\n";

static void create(void)
{
    char path[160];
    in = folder_create();
    folder_write(&in, "params.json", params, strlen(params), path);
    bytes file = safetensors_file(header, 32);
    folder_write(&in, "model.safetensors", file.data, file.size, path);
    folder_write(&in, "short.safetensors", file.data, file.size - 1, path);
    free(file.data);
    file = safetensors_file(checkpoint, 48);
    folder_write(&in, "checkpoint.safetensors", file.data, file.size, path);
    free(file.data);
    bytes gguf = {0};
    put_gguf_head(&gguf, 3, 1, 0);
    put_gguf_tensor(&gguf, "blk.0.w", 256, 2, 12, 0);
    put_zeros(&gguf, 32 - gguf.size % 32 + 288);
    folder_write(&in, "model.gguf", gguf.data, gguf.size, path);
    free(gguf.data);
    folder_write(&in, "empty.json", "[]", 2, path);
    folder_write(&in, "hosts.json", hosts, strlen(hosts), path);
    ck_assert_int_eq(chdir(in.path), 0);
    ck_assert_int_eq(symlink("loop", "loop"), 0); /* a file that not even root can open */
}

static void destroy(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    folder_destroy(&in);
}

static const struct {
    const char *arguments, *output;
} tables[] = {
    {"plan params.json --ranks 2",
     "params.json (json): 4 parameters, 4.1 KiB\n"
     "full over 2 ranks\n"
     "\n"
     "rank   shards    total\n"
     "   0  2.0 KiB  2.0 KiB  ########################################\n"
     "   1  2.0 KiB  2.0 KiB  ########################################\n"
     "\n"
     "imbalance 1.0000: the busiest rank has 0.00 % more bytes of shards than the mean\n"},
    {"plan params.json --strategy weighted --rates 3,1 --memory 8K,2K --gather embed*",
     "params.json (json): 4 parameters, 4.1 KiB\n"
     "weighted over 2 ranks; 1 parameter, 1 KiB, on every rank\n"
     "\n"
     "rank  rate   shards  on every rank    total  of memory\n"
     "   0     3  2.3 KiB          1 KiB  3.3 KiB     41.5 %  "
     "============############################\n"
     "   1     1    792 B          1 KiB  1.8 KiB     88.7 %  ============#########\n"
     "\n"
     "imbalance 1.0000: the busiest rank has 0.00 % more bytes of shards for its rate than the "
     "mean\n"},
    {"plan params.json --strategy layerwise --ranks 3",
     "params.json (json): 4 parameters, 4.1 KiB\n"
     "layerwise over 3 ranks\n"
     "\n"
     "rank   shards    total\n"
     "   0    2 KiB    2 KiB  ########################################\n"
     "   1  1.1 KiB  1.1 KiB  ######################\n"
     "   2    1 KiB    1 KiB  ####################\n"
     "\n"
     "imbalance 1.4656: the busiest rank has 46.56 % more bytes of shards than the mean\n"},
    {"plan params.json --strategy hybrid --ranks 2 --full-layers layers --layerwise-layers "
     "head,embed --memory 0,4K --partition uneven --align 8",
     "params.json (json): 4 parameters, 4.1 KiB\n"
     "hybrid over 2 ranks\n"
     "\n"
     "rank   shards    total  of memory\n"
     "   0  2.5 KiB  2.5 KiB          -  ########################################\n"
     "   1  1.6 KiB  1.6 KiB     39.8 %  ##########################\n"
     "\n"
     "imbalance 1.2214: the busiest rank has 22.14 % more bytes of shards than the mean\n"},
    {"plan checkpoint.safetensors --ranks 2",
     "checkpoint.safetensors (safetensors): 1 parameter, 16 B\n"
     "full over 2 ranks\n"
     "\n"
     "rank  shards  total\n"
     "   0     8 B    8 B  ########################################\n"
     "   1     8 B    8 B  ########################################\n"
     "\n"
     "imbalance 1.0000: the busiest rank has 0.00 % more bytes of shards than the mean\n"},
    {"plan model.gguf --ranks 1 --gather *",
     "model.gguf (gguf): 1 parameter, 288 B\n"
     "full over 1 rank; 1 parameter, 288 B, on every rank\n"
     "\n"
     "rank  shards  on every rank  total\n"
     "   0     0 B          288 B  288 B  ========================================\n"
     "\n"
     "nothing is divided\n"},
};

START_TEST(prints_tables)
{
    tool_prints(tables[_i].arguments, tables[_i].output);
}
END_TEST

/* A folder gives the same plan as the file of weights in it. */
START_TEST(plans_a_folder)
{
    static const char options[] = " --strategy weighted --rates 3,1 --json";
    char arguments[512];
    snprintf(arguments, sizeof arguments, "plan " STORIES "/model.safetensors%s", options);
    tool_result result = tool_run(arguments);
    ck_assert_ptr_nonnull(strstr(result.out, "\"weighted\""));
    snprintf(arguments, sizeof arguments, "plan " STORIES "%s", options);
    tool_prints(arguments, result.out);
    tool_result_free(&result);
}
END_TEST

/* The JSON is a plan that the library reads. */
START_TEST(prints_json)
{
    json_t *document = tool_json("plan params.json --ranks=3 --gather embed* --gather "
                                 "!*.weight,head --json",
                                 "tessera.plan");
    ck_assert_str_eq(tool_text(document, "strategy"), "full");
    ck_assert_int_eq((int)tool_number(document, "ranks"), 3);
    const json_t *list = tool_member(document, "params");
    ck_assert_uint_eq(json_array_size(list), 4);
    ck_assert_ptr_null(json_object_get(json_array_get(list, 0), "always_gather"));
    ck_assert(json_is_true(tool_member(json_array_get(list, 3), "always_gather")));
    const json_t *shard = json_array_get(tool_member(json_array_get(list, 1), "shards"), 2);
    ck_assert_int_eq(json_integer_value(json_array_get(shard, 0)), 172);
    ck_assert_int_eq(json_integer_value(json_array_get(shard, 1)), 84);
    const json_t *ranks = tool_member(tool_member(document, "summary"), "per_rank");
    ck_assert_int_eq((int)tool_number(json_array_get(ranks, 2), "gathered_bytes"), 96);
    json_decref(document);

    tool_result result = tool_run("plan model.safetensors --ranks 2 --format json");
    tsr_shard_plan *plan = NULL;
    ck_assert_ok(tsr_shard_plan_load_json(result.out, result.out_size, &plan));
    ck_assert_int_eq(tsr_shard_plan_ranks(plan), 2);
    tsr_shard_plan_destroy(&plan);
    tool_result_free(&result);
}
END_TEST

static const struct {
    const char *arguments, *sentence;
} mistakes[] = {
    {"plan", "tessera: plan: missing FILE\n"},
    {"plan a b", "tessera: plan: unexpected argument 'b'\n"},
    {"plan params.json", "tessera: plan: missing --ranks N\n"},
    {"plan params.json --memory 8G", "tessera: plan: missing --ranks N\n"},
    {"plan params.json --ranks 0",
     "tessera: plan: --ranks takes an integer from 1 to 65536, not '0'\n"},
    {"plan params.json --ranks two",
     "tessera: plan: --ranks takes an integer from 1 to 65536, not 'two'\n"},
    {"plan params.json --ranks 2 --strategy Full",
     "tessera: plan: --strategy takes full, layerwise, hybrid, weighted or inference, not "
     "'Full'\n"},
    {"plan params.json --ranks 2 --format yaml",
     "tessera: plan: --format takes table or json, not 'yaml'\n"},
    {"plan params.json --ranks 2 --json --format table",
     "tessera: plan: --json and --format table are two formats\n"},
    {"plan params.json --ranks 2 --partition odd",
     "tessera: plan: --partition takes even, strict or uneven, not 'odd'\n"},
    {"plan params.json --ranks 2 --rates 1,2", "tessera: plan: full does not take --rates\n"},
    {"plan params.json --ranks 2 --full-layers x",
     "tessera: plan: full does not take --full-layers\n"},
    {"plan params.json --ranks 2 --strategy weighted --layerwise-layers x",
     "tessera: plan: weighted does not take --layerwise-layers\n"},
    {"plan params.json --ranks 2 --strategy layerwise --align 4",
     "tessera: plan: layerwise does not take --align\n"},
    {"plan params.json --ranks 2 --strategy weighted --partition even",
     "tessera: plan: weighted does not take --partition\n"},
    {"plan params.json --ranks 3 --strategy weighted --rates 1,2",
     "tessera: plan: --rates has 2 values for 3 ranks\n"},
    {"plan params.json --ranks 3 --strategy weighted --rates 1",
     "tessera: plan: --rates has 1 value for 3 ranks\n"},
    {"plan params.json --strategy weighted --rates 1,2 --memory 1G,2G,3G",
     "tessera: plan: --memory has 3 values for 2 ranks\n"},
    {"plan params.json --strategy weighted --rates 1,-2",
     "tessera: plan: --rates takes numbers that are not negative, not '-2'\n"},
    {"plan params.json --strategy weighted --rates 1,2x",
     "tessera: plan: --rates takes numbers that are not negative, not '2x'\n"},
    {"plan params.json --strategy weighted --rates 1,inf",
     "tessera: plan: --rates takes numbers that are not negative, not 'inf'\n"},
    {"plan params.json --strategy weighted --rates 1,,2",
     "tessera: plan: --rates takes values separated by commas, not '1,,2'\n"},
    {"plan params.json --ranks 2 --memory 8GB", "tessera: plan: --memory takes bytes, up to 2^53 "
                                                "(8192T), such as 8G, 512M or 1.5TiB, not '8GB'\n"},
    {"plan params.json --ranks 2 --memory 9000000T",
     "tessera: plan: --memory takes bytes, up to 2^53 (8192T), such as 8G, 512M or 1.5TiB, not "
     "'9000000T'\n"},
    {"plan params.json --ranks 2 --memory 0.5", "tessera: plan: --memory takes bytes, up to 2^53 "
                                                "(8192T), such as 8G, 512M or 1.5TiB, not '0.5'\n"},
    {"plan . --ranks 2 --align 2", "tessera: plan: inference does not take --align\n"},
    {"plan . --ranks 2 --format yaml", "tessera: plan: --format takes table or json, not 'yaml'\n"},
    {"plan . --ranks 2 --bandwidth 1G,2G,3G",
     "tessera: plan: --bandwidth has 3 values for 2 ranks\n"},
    {"plan . --ranks 2 --bandwidth x",
     "tessera: plan: --bandwidth takes bytes per second, such as 50G, not 'x'\n"},
    {"plan . --ranks 2 --experts host:0",
     "tessera: plan: --experts takes auto, inside, whole or mixed, also as auto:HOSTS or "
     "mixed:HOSTS, host or host:LAYERS, or both with a comma, not 'host:0'\n"},
    {"plan . --ranks 2 --experts whole:2",
     "tessera: plan: --experts takes auto, inside, whole or mixed, also as auto:HOSTS or "
     "mixed:HOSTS, host or host:LAYERS, or both with a comma, not 'whole:2'\n"},
    {"plan . --ranks 2 --experts whole,mixed",
     "tessera: plan: --experts takes auto, inside, whole or mixed, also as auto:HOSTS or "
     "mixed:HOSTS, host or host:LAYERS, or both with a comma, not 'whole,mixed'\n"},
    {"plan . --ranks 2 --experts host,host:2",
     "tessera: plan: --experts takes auto, inside, whole or mixed, also as auto:HOSTS or "
     "mixed:HOSTS, host or host:LAYERS, or both with a comma, not 'host,host:2'\n"},
    {"plan . --ranks 2 --experts whole,host --bandwidth 1G",
     "tessera: plan: with --experts host, --bandwidth needs --host-bandwidth: the bytes per second "
     "that a device reads from the host's memory\n"},
    {"plan . --ranks 2 --bandwidth 1G --host-bandwidth 1G",
     "tessera: plan: --host-bandwidth is for --bandwidth with --experts host\n"},
    {"plan . --cluster hosts.json --experts mixed:2",
     "tessera: plan: --experts mixed:2: the hosts are those of --cluster\n"},
    {"plan . --cluster hosts.json --goal training --experts whole",
     "tessera: plan: --goal training does not take --experts\n"},
    {"plan . --ranks 2 --gflops 0", "tessera: plan: --gflops takes positive numbers, not '0'\n"},
    {"plan . --ranks 2 --dtype q9",
     "tessera: plan: --dtype takes a dtype such as f16 or q8_0, not 'q9'\n"},
    {"plan params.json --ranks 2 --context 10",
     "tessera: plan: only the strategy inference takes --dtype, --context, --sequences, "
     "--cache-dtype, --stages, --stage-layers, --experts, --draft, --bandwidth, --host-bandwidth, "
     "--gflops, "
     "--latency and --context-parallel\n"},
    {"plan params.json --ranks 2 --stages 2",
     "tessera: plan: only the strategy inference takes --dtype, --context, --sequences, "
     "--cache-dtype, --stages, --stage-layers, --experts, --draft, --bandwidth, --host-bandwidth, "
     "--gflops, "
     "--latency and --context-parallel\n"},
    {"plan " STORIES " --ranks 3 --stages 2", "tessera: plan: 2 stages do not divide 3 ranks\n"},
    {"plan " STORIES " --ranks 2 --stages 2 --stage-layers 1,2,2",
     "tessera: plan: --stage-layers has 3 values for 2 stages\n"},
    {"plan " STORIES " --ranks 2 --stages 2 --latency 1",
     "tessera: plan: --bandwidth, --gflops and --latency predict one stage; --cluster predicts "
     "several\n"},
    {"plan . --cluster hosts.json --stages 2", "tessera: plan: --cluster does not take --stages\n"},
    {"plan . --cluster hosts.json --ranks 3", "tessera: plan: --cluster does not take --ranks\n"},
    {"plan . --cluster hosts.json --align 3", "tessera: plan: --cluster does not take --align\n"},
    {"plan . --cluster hosts.json --goal speed",
     "tessera: plan: --goal takes generation, prompt or training, not 'speed'\n"},
    {"plan . --cluster hosts.json --batch 2",
     "tessera: plan: --goal generation does not take --batch\n"},
    {"plan . --cluster hosts.json --goal training --sequences 2",
     "tessera: plan: --goal training does not take --sequences\n"},
    {"plan . --cluster hosts.json --wire i32",
     "tessera: plan: --wire takes f32, f16, bf16 or q8_0, not 'i32'\n"},
    {"plan . --cluster hosts.json --format yaml",
     "tessera: plan: --format takes table or json, not 'yaml'\n"},
    {"plan . --ranks 2 --goal prompt", "tessera: plan: --links, --rank-rates, --goal, --batch, "
                                       "--accumulate and --wire need --cluster "
                                       "FILE\n"},
    {"plan " STORIES " --ranks 3 --context-parallel 2",
     "tessera: plan: --context-parallel 2 does not divide 3 ranks\n"},
    {"plan " STORIES " --ranks 3 --context-parallel 2 --goal finetune",
     "tessera: plan: --context-parallel 2 does not divide 3 ranks\n"},
    {"plan " STORIES " --ranks 4 --context-parallel 2 --stages 2",
     "tessera: plan: --context-parallel 2 cannot go with 2 stages\n"},
    {"plan " STORIES " --rates 1,2 --context-parallel 2",
     "tessera: plan: --rates cannot go with --context-parallel\n"},
    {"plan . --cluster hosts.json --context-parallel 2",
     "tessera: plan: --goal generation does not take --context-parallel\n"},
    {"plan . --ranks 2 --goal finetune --context-parallel 3 --context 2",
     "tessera: plan: --context 2 has fewer tokens than --context-parallel 3 has ranks\n"},
    {"plan . --ranks 2 --goal finetune --experts whole",
     "tessera: plan: --goal finetune does not take --experts\n"},
    {"plan . --ranks 2 --goal finetune --sequences 2",
     "tessera: plan: --goal finetune does not take --sequences\n"},
};

/* What fails later, errors in files included, gives exit code 1. */
static const struct {
    const char *arguments, *sentence;
} failures[] = {
    {"plan params.json --strategy weighted --rates 0,0", "tessera: plan: all 2 rates are 0\n"},
    {"plan params.json --ranks 2 --memory 2095",
     "tessera: plan: rank 0 would keep 2096 bytes, but has memory for 2095\n"},
    {"plan params.json --ranks 2 --strategy weighted --memory 2K",
     "tessera: plan: the ranks' memory is too small: 96 bytes do not fit\n"},
    {"plan params.json --ranks 2 --strategy layerwise --memory 2K",
     "tessera: plan: layer 'head' has 96 bytes, but the rank with the most memory left has 0\n"},
    {"plan params.json --ranks 2 --gather [a",
     "tessera: plan: pattern '[a': '[' at offset 0 is not complete\n"},
    {"plan params.json --ranks 5 --partition strict",
     "tessera: plan: parameter 'embed.weight': partition: 512 elements cannot be divided evenly "
     "among 5 ranks in units of 1\n"},
    {"plan empty.json --ranks 2", "tessera: plan: empty.json: the list of parameters is empty\n"},
    {"plan nothing.json --ranks 2",
     "tessera: plan: cannot open nothing.json: No such file or directory\n"},
    {"plan loop --ranks 2", "tessera: plan: cannot open loop: Too many levels of symbolic links\n"},
    {"plan . --ranks 2", "tessera: plan: . has no config.json\n"},
    {"plan /proc/self --ranks 2 --strategy full",
     "tessera: plan: /proc/self has neither model.safetensors nor model.safetensors.index.json\n"},
    {"plan " STORIES " --ranks 2 --dtype i32",
     "tessera: plan: weights cannot be kept as i32; f32, f16, bf16 and block formats that "
     "tsr_quantize supports are possible\n"},
    {"plan " STORIES " --ranks 2 --cache-dtype q8_0",
     "tessera: plan: the cache cannot be q8_0, which has blocks of 32 features: the keys of a head "
     "of layer 0 have 8 features, and its values 8\n"},
    {"plan . --cluster empty.json", "tessera: plan: empty.json: the document is not an object\n"},
    {"plan . --cluster hosts.json", "tessera: plan: . has no config.json\n"},
    {"plan " TEST_DATA "/model/families/deepseek2/deepseek2-f16.gguf --cluster hosts.json --goal "
     "training --context-parallel 2",
     "tessera: plan: planner: 2 context ranks cannot divide the sequences of latent attention\n"},
    {"plan " STORIES " --cluster hosts.json --goal training --context-parallel 5",
     "tessera: plan: planner: no grid of 3 ranks has 5 context ranks and divides 1 sequence\n"},
    {"plan . --cluster hosts.json --links empty.json",
     "tessera: plan: empty.json: has no results of tessera bench link\n"},
    {"plan short.safetensors --ranks 2", "tessera: plan: short.safetensors: safetensors: offset "
                                         "113: tensor 'b.w': it ends at byte 32 of the "
                                         "weights, which have 31\n"},
};

START_TEST(refuses_wrong_arguments)
{
    tool_refuses(mistakes[_i].arguments, mistakes[_i].sentence);
}
END_TEST

START_TEST(fails_later)
{
    tool_reports(failures[_i].arguments, failures[_i].sentence);
}
END_TEST

/* stories260K: 5 layers of width 64, 8 heads of 8, 4 kv heads, 172 hidden features, 512 tokens. */
START_TEST(plans_a_model)
{
    const double embedding = 512 * 64 * 2 / 2,
                 attention = 5.0 * (2 * 64 * 64 + 2 * 32 * 64) * 2 / 2,
                 mlp = 5.0 * 3 * 172 * 64 * 2 / 2, norms = (11 * 64) * 4,
                 cache = 2.0 * 5 * 2 * 8 * 3 * 128 * 2,
                 weights = embedding + attention + mlp + norms;
    json_t *document = tool_json("plan " STORIES
                                 " --ranks 2 --dtype f16 --context 100 --sequences 3 --cache-dtype "
                                 "bf16 --bandwidth 1G,2G --gflops 1 --latency 50 --memory 1M,100K "
                                 "--json",
                                 "tessera.plan.inference");
    const json_t *rank = json_array_get(tool_member(document, "ranks"), 1);
    ck_assert_uint_eq(json_array_size(tool_member(document, "ranks")), 2);
    ck_assert_double_eq(tool_number(rank, "embedding_bytes"), embedding);
    ck_assert_double_eq(tool_number(rank, "attention_bytes"), attention);
    ck_assert_double_eq(tool_number(rank, "mlp_bytes"), mlp);
    ck_assert_double_eq(tool_number(rank, "norm_bytes"), norms);
    ck_assert_double_eq(tool_number(rank, "cache_bytes"), cache);
    ck_assert_double_eq(tool_number(rank, "total_bytes"), weights + cache);
    ck_assert_int_eq((int)tool_number(rank, "kv_heads"), 2);
    /* Rank 0 is the slowest. */
    const double step = (weights + cache / 2) / 1073741824 + 12 * 50e-6;
    ck_assert_double_eq_tol(tool_number(document, "generation_tokens_per_second"), 3 / step, 1e-3);
    ck_assert_double_eq_tol(tool_number(document, "prompt_tokens_per_second"),
                            1e9 / (embedding + attention + mlp), 1e-3);
    const json_t *fit = tool_member(document, "fit");
    ck_assert(json_is_false(tool_member(fit, "fits")));
    ck_assert_int_eq((int)tool_number(fit, "rank"), 1);
    ck_assert_double_eq(tool_number(fit, "missing_bytes"), weights + cache - 102400);
    json_decref(document);
}
END_TEST

#define GPT_OSS TEST_DATA "/model/families/gptoss/hf"

/* Adds a tensor to the header of a safetensors file, whose data end at *end. columns 0: a vector.
 */
static void add_tensor(char *head, size_t size, uint64_t *end, int rows, int columns,
                       const char *name)
{
    const uint64_t start = *end;
    const size_t used = strlen(head);
    char second[16] = "";
    *end += 2 * (uint64_t)rows * (uint64_t)(columns > 0 ? columns : 1);
    if (columns > 0)
        snprintf(second, sizeof second, ",%d", columns);
    snprintf(head + used, size - used,
             "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%d%s],\"data_offsets\":[%llu,%llu]}",
             used > 0 ? ',' : '{', name, rows, second, (unsigned long long)start,
             (unsigned long long)*end);
}

/* Writes a folder of a model. Only the header of its weights, whose closing brace is missing, is in
 * the file, which ends in a hole. */
static void write_model(const char *name, const char *config, char *head, uint64_t end,
                        char folder_path[160])
{
    char path[200];
    strcat(head, "}");
    snprintf(folder_path, 160, "%s/%s", in.path, name);
    ck_assert_int_eq(mkdir(folder_path, 0700), 0);
    snprintf(path, sizeof path, "%s/config.json", folder_path);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(config, file);
    fclose(file);
    snprintf(path, sizeof path, "%s/model.safetensors", folder_path);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    const uint64_t length = strlen(head);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 255), file);
    fputs(head, file);
    fclose(file);
    ck_assert_int_eq(truncate(path, (off_t)(8 + length + end)), 0);
}

/* Writes a folder with a model of 16 experts of 96 features, of which a token uses 4. */
static void write_experts(char folder_path[160])
{
    static const char config[] =
        "{\"model_type\":\"mixtral\",\"hidden_size\":64,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":8,\"num_key_value_heads\":8,\"intermediate_size\":96,"
        "\"vocab_size\":64,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
        "\"rope_theta\":1e4,\"tie_word_embeddings\":true,\"num_local_experts\":16,"
        "\"num_experts_per_tok\":4}";
    static const char *const square[] = {"q", "k", "v", "o"};
    static char head[32768];
    char name[128];
    uint64_t end = 0;
    head[0] = '\0';
    add_tensor(head, sizeof head, &end, 64, 64, "model.embed_tokens.weight");
    add_tensor(head, sizeof head, &end, 64, 0, "model.norm.weight");
    add_tensor(head, sizeof head, &end, 64, 0, "model.layers.0.input_layernorm.weight");
    add_tensor(head, sizeof head, &end, 64, 0, "model.layers.0.post_attention_layernorm.weight");
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "model.layers.0.self_attn.%s_proj.weight", square[i]);
        add_tensor(head, sizeof head, &end, 64, 64, name);
    }
    add_tensor(head, sizeof head, &end, 16, 64, "model.layers.0.block_sparse_moe.gate.weight");
    for (int i = 0; i < 48; i++) {
        const int which = i % 3 + 1;
        snprintf(name, sizeof name, "model.layers.0.block_sparse_moe.experts.%d.w%d.weight", i / 3,
                 which);
        add_tensor(head, sizeof head, &end, which == 2 ? 64 : 96, which == 2 ? 96 : 64, name);
    }
    write_model("experts", config, head, end, folder_path);
}

/* An expert has 3 blocks in q8_0, too few for 6 ranks, which have whole experts if they are on one
 * host. Those of two hosts have 8 experts and a block of each, because the slowest rank is then
 * expected to compute 0.88 experts instead of 1.63. */
START_TEST(chooses_how_experts_are_divided)
{
    static const struct {
        const char *option, *division, *says;
        double skew;
    } cases[] = {
        {"", "whole", "divided: whole (chosen);", 2.1706960},
        {"--experts auto:2", "mixed", "divided: mixed (chosen);", 1.3230769},
        {"--experts mixed:2", "mixed", "divided: mixed;", 1.3230769},
        {"--experts inside", "inside", "divided: inside;", 1},
        {"--experts mixed:9", "mixed", "divided: mixed;", 2.1706960}, /* each rank is a host */
    };
    char command[400], model[160];
    write_experts(model);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(command, sizeof command, "plan %s --dtype q8_0 --ranks 6 %s", model,
                 cases[i].option);
        tool_result result = tool_run(command);
        ck_assert_msg(strstr(result.out, cases[i].says) != NULL, "%s: %s%s", command, result.out,
                      result.err);
        tool_result_free(&result);
        strcat(command, " --json");
        json_t *document = tool_json(command, "tessera.plan.inference");
        const json_t *rank = json_array_get(tool_member(document, "ranks"), 3);
        ck_assert_str_eq(tool_text(rank, "expert_division"), cases[i].division);
        ck_assert_double_eq_tol(tool_number(rank, "expert_skew"), cases[i].skew, 1e-6);
        json_decref(document);
    }
}
END_TEST

/* The same on a cluster of two hosts, whose ranks read experts on the host at a tenth of the rate.
 * Rates of experts that were measured count for their elements. */
START_TEST(divides_experts_on_a_cluster)
{
    static const char two[] =
        "{\"link\": {\"latency_us\": 5, \"gbytes_per_second\": 10}, \"hosts\": ["
        "{\"name\": \"a\", \"link\": {\"latency_us\": 1, \"gbytes_per_second\": 10}, \"ranks\": ["
        "{\"count\": 3, \"gflops\": 9, \"memory_gbytes_per_second\": 0.01, "
        "\"host_gbytes_per_second\": 0.001}]},"
        "{\"name\": \"b\", \"link\": {\"latency_us\": 1, \"gbytes_per_second\": 10}, \"ranks\": ["
        "{\"count\": 3, \"gflops\": 9, \"memory_gbytes_per_second\": 0.01, "
        "\"host_gbytes_per_second\": 0.001}]}]}";
    static const struct {
        const char *option, *options;
    } cases[] = {
        {"", "--experts mixed"},
        {"--experts auto", "--experts mixed"},
        {"--experts whole", "--experts whole"},
        {"--experts inside", "--experts inside"},
        {"--experts host:1", "--experts mixed,host:1"},
        {"--experts whole,host", "--experts whole,host"},
    };
    double seconds[COUNT_OF(cases)] = {0};
    char command[400], path[160], model[160];
    write_experts(model);
    folder_write(&in, "experts.json", two, strlen(two), path);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(command, sizeof command, "plan %s --cluster experts.json --dtype q8_0 --json %s",
                 model, cases[i].option);
        json_t *document = tool_json(command, "tessera.plan.cluster");
        const json_t *all = tool_member(document, "candidates");
        for (size_t g = 0; g < json_array_size(all); g++) {
            const json_t *grid = json_array_get(all, g);
            if ((int)tool_number(grid, "tensor") != 6)
                continue;
            ck_assert_str_eq(tool_text(grid, "options"), cases[i].options);
            seconds[i] = tool_number(grid, "compute_seconds");
        }
        json_decref(document);
    }
    ck_assert(seconds[0] > 0 && seconds[0] == seconds[1]);
    ck_assert_msg(seconds[0] < seconds[2], "mixed %g s, whole %g s", seconds[0], seconds[2]);
    ck_assert_msg(seconds[4] > 2 * seconds[0] && seconds[5] > seconds[4], "host %g and %g s",
                  seconds[4], seconds[5]);
    snprintf(command, sizeof command, "plan %s --cluster experts.json --dtype q8_0", model);
    tool_result result = tool_run(command);
    ck_assert_msg(strstr(result.out, "\nexperts are divided: mixed (chosen)\n"), "%s", result.out);
    tool_result_free(&result);
    json_t *dense = tool_json("plan " STORIES " --cluster hosts.json --experts whole --json",
                              "tessera.plan.cluster");
    const json_t *best = json_array_get(tool_member(dense, "candidates"), 0);
    ck_assert(tool_number(best, "tensor") > 1);
    ck_assert_str_eq(tool_text(best, "options"), "");
    json_decref(dense);
    tool_fails("plan " GPT_OSS " --cluster hosts.json --experts host",
               "tessera: plan: planner: with host_experts, each rank needs "
               "\"host_gbytes_per_second\"; rank 0 has none\n");
}
END_TEST

/* Experts of 3 of 4 layers in the host's memory. Of 8 experts a token reads 3 through the bus. */
START_TEST(predicts_experts_on_the_host)
{
    const double matrices = 3.0 * 8 * 3 * 64 * 17;
    json_t *document = tool_json("plan " GPT_OSS " --ranks 1 --context 64 --experts host:3 "
                                 "--bandwidth 1G --host-bandwidth 1M --json",
                                 "tessera.plan.inference"),
           *other = tool_json("plan " GPT_OSS " --ranks 1 --context 64 --json",
                              "tessera.plan.inference");
    const json_t *rank = json_array_get(tool_member(document, "ranks"), 0),
                 *whole = json_array_get(tool_member(other, "ranks"), 0);
    ck_assert_double_eq(tool_number(rank, "host_bytes"), matrices);
    ck_assert_double_eq(tool_number(rank, "host_token_bytes"), matrices * 3 / 8);
    ck_assert_double_eq(tool_number(rank, "total_bytes"),
                        tool_number(whole, "total_bytes") - matrices);
    const double read = tool_number(rank, "token_bytes") + tool_number(rank, "cache_bytes") / 2;
    ck_assert_double_eq_tol(tool_number(document, "generation_tokens_per_second"),
                            1 / (read / 1073741824 + matrices * 3 / 8 / 1048576), 1e-3);
    json_decref(document);
    json_decref(other);
    tool_result result = tool_run("plan " GPT_OSS " --ranks 1 --context 64 --memory 370K");
    ck_assert_msg(strstr(result.out, "; --experts host:3 would fit\n"), "%s", result.out);
    tool_result_free(&result);
    result = tool_run("plan " GPT_OSS " --ranks 1 --context 64 --experts host:3");
    ck_assert_msg(strstr(result.out, "on the host: experts in the host's memory"), "%s",
                  result.out);
    tool_result_free(&result);
    tool_fails("plan " STORIES " --ranks 1 --experts host",
               "tessera: plan: host_experts is set, but no layer of the model has "
               "experts\n");
}
END_TEST

/* Writes a folder of a model of the shape of Llama's 1.1B: 2048 wide, 22 layers of 32 heads and 4
 * kv heads of 64, and 5632 hidden features. */
static void write_large(char folder_path[160])
{
    static const char config[] =
        "{\"model_type\":\"llama\",\"hidden_size\":2048,\"num_hidden_layers\":22,"
        "\"num_attention_heads\":32,\"num_key_value_heads\":4,\"intermediate_size\":5632,"
        "\"vocab_size\":32000,\"max_position_embeddings\":131072,\"rms_norm_eps\":1e-5,"
        "\"rope_theta\":1e4,\"tie_word_embeddings\":false}";
    static const struct {
        const char *name;
        int rows, columns;
    } of_layer[] = {{"self_attn.q_proj", 2048, 2048},     {"self_attn.k_proj", 256, 2048},
                    {"self_attn.v_proj", 256, 2048},      {"self_attn.o_proj", 2048, 2048},
                    {"mlp.gate_proj", 5632, 2048},        {"mlp.up_proj", 5632, 2048},
                    {"mlp.down_proj", 2048, 5632},        {"input_layernorm", 2048, 0},
                    {"post_attention_layernorm", 2048, 0}};
    static char head[40000];
    char name[128];
    uint64_t end = 0;
    head[0] = '\0';
    add_tensor(head, sizeof head, &end, 32000, 2048, "model.embed_tokens.weight");
    add_tensor(head, sizeof head, &end, 32000, 2048, "lm_head.weight");
    add_tensor(head, sizeof head, &end, 2048, 0, "model.norm.weight");
    for (int layer = 0; layer < 22; layer++)
        for (size_t i = 0; i < COUNT_OF(of_layer); i++) {
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, of_layer[i].name);
            add_tensor(head, sizeof head, &end, of_layer[i].rows, of_layer[i].columns, name);
        }
    write_model("large", config, head, end, folder_path);
}

/* A prompt of 131,072 tokens of that model does not fit into 4 GiB of one rank, and does into those
 * of 4 context ranks, or of 2 x 2: each group of ranks that divide the model has all of it, and a
 * part of the cache. */
START_TEST(divides_long_prompts)
{
    char path[160], command[400];
    static const struct {
        const char *options;
        int ranks, contexts;
        bool fits;
    } cases[] = {{"--ranks 1", 1, 1, false},
                 {"--ranks 4 --context-parallel 4", 4, 4, true},
                 {"--ranks 4 --context-parallel 2", 4, 2, true}};
    write_large(path);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        snprintf(command, sizeof command,
                 "plan %s --context 131072 --cache-dtype f16 --memory 4G --json %s", path,
                 cases[i].options);
        json_t *document = tool_json(command, "tessera.plan.inference");
        const json_t *list = tool_member(document, "ranks");
        ck_assert_uint_eq(json_array_size(list), (size_t)cases[i].ranks);
        ck_assert_int_eq(json_is_true(tool_member(tool_member(document, "fit"), "fits")),
                         cases[i].fits);
        for (int r = 0; r < cases[i].ranks; r++) {
            const json_t *rank = json_array_get(list, (size_t)r);
            const int divide = cases[i].ranks / cases[i].contexts;
            /* 22 layers of keys and values, in f16, of 4 kv heads of 64; and a page for the tokens
             * of other ranks */
            const double token = 22.0 * 2 * 2 * 4 * 64 / divide,
                         tokens = 131072.0 / cases[i].contexts + (cases[i].contexts > 1 ? 64 : 0);
            ck_assert_double_eq(tool_number(rank, "cache_bytes"), token * tokens);
            ck_assert_double_eq_tol(tool_number(rank, "weight_bytes"), 2200119864.0 / divide, 1e6);
        }
        json_decref(document);
    }
    snprintf(command, sizeof command,
             "plan %s --ranks 4 --context 131072 --context-parallel 4 --memory 4G", path);
    tool_result result = tool_run(command);
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(
        strstr(result.out, "llama, 22 layers, on 4 ranks in 4 groups that divide sequences\n"));
    ck_assert_ptr_nonnull(strstr(result.out, "\nfits\n"));
    tool_result_free(&result);
}
END_TEST

START_TEST(says_what_would_fit)
{
    tool_result result =
        tool_run("plan " STORIES " --ranks 1 --context 64 --cache-dtype f16 --memory 600K");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_msg(strstr(result.out, "\ndoes not fit: rank 0 lacks ") != NULL &&
                      strstr(result.out, "; 2 equal ranks would hold it; --dtype f16 would fit\n"),
                  "%s", result.out);
    ck_assert_ptr_null(strstr(result.out, "\ncache: "));
    tool_result_free(&result);
    result = tool_run("plan " STORIES " --rates 3,1 --memory 2M");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(result.out, "\ncache: f32, at most "));
    ck_assert_ptr_nonnull(strstr(result.out, " in f16, if all devices have matrix units"));
    ck_assert_ptr_nonnull(strstr(result.out, "\n   0      6         3  "));
    ck_assert_ptr_nonnull(strstr(result.out, "\nfits\n"));
    ck_assert_ptr_null(strstr(result.out, "prediction"));
    tool_result_free(&result);
}
END_TEST

/* A plan must divide the layers over two stages as generate does; see test_generate_stages.c. In
 * some cases, the first stage has little memory. */
START_TEST(plans_stages)
{
    static const struct {
        const char *options;
        int first; /* layers of the first stage */
        bool fits;
    } cases[] = {
        {"--ranks 2 --stages 2 --memory 0", 3, true},
        {"--rates 30,1 --stages 2 --memory 0", 4, true},
        {"--rates 3,1,1,5 --stages 2 --memory 0", 2, true},
        {"--ranks 2 --stages 2 --memory 300K,1M", 2, true},
        {"--ranks 2 --stage-layers 1,4 --memory 300K,1M", 1, true},
        {"--ranks 2 --stages 2 --memory 100K,100K", 3, false},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char command[512];
        snprintf(command, sizeof command,
                 "plan " TEST_DATA "/model/stories260K-f16.gguf --strategy inference --context 9 "
                 "--json %s",
                 cases[i].options);
        json_t *document = tool_json(command, "tessera.plan.inference");
        const json_t *list = tool_member(document, "ranks"), *rank = json_array_get(list, 0),
                     *last = json_array_get(list, json_array_size(list) - 1);
        ck_assert_msg((int)tool_number(rank, "layers") == cases[i].first, "%s: %d layers",
                      cases[i].options, (int)tool_number(rank, "layers"));
        ck_assert_int_eq((int)tool_number(last, "stage"), 1);
        ck_assert_int_eq((int)tool_number(last, "first_layer"), cases[i].first);
        ck_assert_int_eq((int)tool_number(last, "layers"), 5 - cases[i].first);
        ck_assert_int_eq(json_is_true(tool_member(tool_member(document, "fit"), "fits")),
                         cases[i].fits);
        json_decref(document);
    }
    tool_result result =
        tool_run("plan " STORIES " --ranks 2 --stages 2 --context 64 --memory 500K");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_msg(strstr(result.out, ", on 2 ranks in 2 stages\n\nrank  stage  layers ") &&
                      strstr(result.out, " lacks ") &&
                      strstr(result.out, "; 4 equal stages would hold it; --dtype f16 would fit\n"),
                  "%s", result.out);
    tool_result_free(&result);
}
END_TEST

/* One rank of the host left has too little memory for the model. The two ranks of this host are the
 * fastest. The third rank is behind a slow link. */
START_TEST(finds_a_grid)
{
    tool_result result = tool_run("plan " STORIES " --cluster hosts.json");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_msg(strstr(result.out, "llama, 5 layers, on 2 hosts with 3 ranks\n\n") != NULL &&
                      strstr(result.out, "\n   1       2       1  left 0-1 ") != NULL &&
                      strstr(result.out, " times as long: computing ") != NULL &&
                      strstr(result.out, "\n   1  left      0       5  ") != NULL,
                  "%s", result.out);
    tool_result_free(&result);
    json_t *document =
        tool_json("plan " STORIES " --cluster hosts.json --json", "tessera.plan.cluster");
    ck_assert_str_eq(tool_text(document, "goal"), "generation");
    ck_assert(json_is_true(tool_member(document, "fits")));
    const json_t *all = tool_member(document, "candidates");
    double before = 0;
    int best = 0, without_memory = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        ck_assert_double_ge(tool_number(one, "seconds"), before);
        before = tool_number(one, "seconds");
        ck_assert_double_eq_tol(tool_number(one, "tokens_per_second") * before, 1, 1e-9);
        if (json_is_true(tool_member(one, "best"))) {
            best++;
            ck_assert(json_is_true(tool_member(one, "fits")));
            ck_assert_int_eq((int)tool_number(one, "tensor"), 2);
            ck_assert_uint_eq(json_array_size(tool_member(one, "ranks")), 2);
            continue;
        }
        const char *why = tool_text(one, "why_not");
        const json_t *rank = json_array_get(tool_member(one, "ranks"), 0);
        if (strncmp(why, "does not fit: rank 0 on left lacks ", 35) == 0) {
            ck_assert(json_is_false(tool_member(one, "fits")));
            ck_assert_double_gt(tool_number(rank, "memory_bytes"), 1048576);
            without_memory++;
        }
    }
    ck_assert_int_eq(best, 1);
    ck_assert_int_ge(without_memory, 1);
    json_decref(document);
}
END_TEST

/* Of two hosts, the first has memory for 2 of 5 layers in f16. The grid with two stages must divide
 * the layers accordingly. */
START_TEST(moves_layers_of_a_grid)
{
    static const char text[] =
        "{\"link\": {\"latency_us\": 500, \"gbytes_per_second\": 0.1}, \"hosts\": ["
        "{\"name\": \"a\", \"ranks\": [{\"gflops\": 9, \"memory_gbytes_per_second\": 1, "
        "\"memory\": \"300K\"}]},"
        "{\"name\": \"b\", \"ranks\": [{\"gflops\": 9, \"memory_gbytes_per_second\": 1}]}]}";
    char path[160];
    int seen = 0;
    folder_write(&in, "small.json", text, strlen(text), path);
    json_t *document = tool_json("plan " TEST_DATA "/model/stories260K-f16.gguf --cluster "
                                 "small.json --context 9 --json",
                                 "tessera.plan.cluster");
    const json_t *all = tool_member(document, "candidates");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i), *layers = tool_member(one, "layers");
        if ((int)tool_number(one, "stages") != 2)
            continue;
        ck_assert_int_eq((int)json_integer_value(json_array_get(layers, 0)), 2);
        ck_assert_int_eq((int)json_integer_value(json_array_get(layers, 1)), 3);
        ck_assert(json_is_true(tool_member(one, "fits")));
        seen++;
    }
    ck_assert_int_eq(seen, 1);
    json_decref(document);
}
END_TEST

/* Rank 1 needs longer for a layer, although the fit of its times says that elements cost nothing.
 * So it gets fewer layers, or a smaller part of them. The options divide the model in the same
 * way. */
START_TEST(divides_by_measured_rates)
{
    static const char two[] =
        "{\"link\": {\"latency_us\": 5, \"gbytes_per_second\": 1}, \"hosts\": ["
        "{\"name\": \"a\", \"ranks\": [{}]}, {\"name\": \"b\", \"ranks\": [{}]}]}",
                      pass[] = "{\"passes\": [{\"rows\": 1, \"pass_us\": 1, \"layer_us\": %g, "
                               "\"million_elements_us\": %g, \"million_head_elements_us\": 500}]}";
    char ranks[2][256], rates[700], path[160];
    int seen = 0;
    snprintf(ranks[0], sizeof ranks[0], pass, 10.0, 1000.0);
    snprintf(ranks[1], sizeof ranks[1], pass, 200.0, 1e-3);
    snprintf(rates, sizeof rates,
             "{\"schema\": \"tessera.bench.rates\", \"model\": {\"bytes_per_element\": 2}, "
             "\"ranks\": [%s, %s]}",
             ranks[0], ranks[1]);
    folder_write(&in, "two.json", two, strlen(two), path);
    folder_write(&in, "rates.json", rates, strlen(rates), path);
    json_t *document = tool_json("plan " STORIES " --cluster two.json --rank-rates rates.json "
                                 "--context 9 --json",
                                 "tessera.plan.cluster");
    const json_t *all = tool_member(document, "candidates");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i), *used = tool_member(one, "ranks");
        const int tensor = (int)tool_number(one, "tensor"),
                  stages = (int)tool_number(one, "stages");
        /* A layer has 45312 elements. Half of it takes rank 0 10 + 22.656 µs. */
        ck_assert_str_eq(tool_text(one, "options"), tensor == 2   ? "--rates 6.12,1"
                                                    : stages == 2 ? "--stages 2 --stage-layers 4,1"
                                                                  : "");
        ck_assert_int_eq(json_is_true(tool_member(one, "by_rates")), tensor == 2);
        if (tensor == 1 && stages == 1)
            continue;
        ck_assert_double_gt(tool_number(json_array_get(used, 0), "memory_bytes"),
                            2 * tool_number(json_array_get(used, 1), "memory_bytes"));
        seen++;
    }
    ck_assert_int_eq(seen, 2);
    json_decref(document);
}
END_TEST

/* Predictions are uncertain if ranks share processors of one host, and missing if ranks on several
 * hosts share them. */
START_TEST(says_which_predictions_hold)
{
    static const char
        *const start = "{\"link\": {\"latency_us\": 500, \"gbytes_per_second\": 0.1}, \"hosts\": [",
               *const rank = "{\"gflops\": 9, \"memory_gbytes_per_second\": 1";
    static const struct {
        const char *processors[2], *says, *says_not;
        int shared, unknown; /* how many of the grids have such predictions */
    } cases[] = {
        {{"2", "1"}, "\nthe best:\n", "share", 0, 0},
        {{"1", "1"},
         ": 2 ranks share 1 processor of left; the prediction may be",
         "not pred",
         4,
         0},
        {{"2", "0.5"}, "\nthe best:\n", "not predicted", 2, 2},
        /* Left has more ranks for each processor, but only right has less than one processor. */
        {{"1", "0.9"},
         ": 2 ranks share 1 processor of left; the prediction may be",
         "not pred",
         4,
         2},
        {{"0.5", "0.5"},
         "\nbest: not predicted, because left has 0.5 of a processor for 2 ranks and shares it "
         "with "
         "other hosts\n",
         "too low",
         5,
         5},
        /* A grid of only the rank on right is predicted, although a grid of an equal rank on left
         * is not. */
        {{"0.5", "2"}, "\nthe best:\n", "best: not predicted", 5, 5},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        char text[800], path[160];
        snprintf(text, sizeof text,
                 "%s{\"name\": \"left\", \"processors\": %s, \"link\": {\"latency_us\": 5, "
                 "\"gbytes_per_second\": 5}, \"ranks\": [%s, \"count\": 2}]}, {\"name\": "
                 "\"right\", \"processors\": %s, \"ranks\": [%s}]}]}",
                 start, cases[i].processors[0], rank, cases[i].processors[1], rank);
        folder_write(&in, "shared.json", text, strlen(text), path);
        tool_result result = tool_run("plan " STORIES " --cluster shared.json");
        ck_assert_msg(result.exit_code == 0 && strstr(result.out, cases[i].says) != NULL &&
                          strstr(result.out, cases[i].says_not) == NULL,
                      "case %zu: %s%s", i, result.out, result.err);
        tool_result_free(&result);
        json_t *document =
            tool_json("plan " STORIES " --cluster shared.json --json", "tessera.plan.cluster");
        const json_t *all = tool_member(document, "candidates");
        int shared = 0, unknown = 0;
        for (size_t k = 0; k < json_array_size(all); k++) {
            const json_t *one = json_array_get(all, k);
            shared += json_is_true(tool_member(one, "processors_are_shared"));
            unknown += json_is_null(tool_member(one, "seconds"));
        }
        ck_assert_msg(shared == cases[i].shared && unknown == cases[i].unknown,
                      "case %zu: %d of %zu shared, %d unknown", i, shared, json_array_size(all),
                      unknown);
        json_decref(document);
    }
}
END_TEST

/* For training, there are data-parallel grids, with and without shards. */
START_TEST(finds_a_grid_for_training)
{
    json_t *document = tool_json("plan " STORIES " --cluster hosts.json --goal training --batch 6 "
                                 "--context 32 --accumulate 2 --wire bf16 --format json",
                                 "tessera.plan.cluster");
    const json_t *all = tool_member(document, "candidates");
    int shapes[4][4] = {{0}}, sharded = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i);
        const int data = (int)tool_number(one, "data"), tensor = (int)tool_number(one, "tensor"),
                  stages = (int)tool_number(one, "stages");
        ck_assert_int_eq(data * tensor * stages, (int)json_array_size(tool_member(one, "ranks")));
        ck_assert_int_eq(stages, (int)json_array_size(tool_member(one, "layers")));
        ck_assert_double_eq_tol(tool_number(one, "tokens_per_second") * tool_number(one, "seconds"),
                                6 * 2 * 32, 1e-6);
        shapes[data][stages]++;
        const bool shares = json_is_true(tool_member(one, "sharded"));
        sharded += shares;
        if (data == 3)
            ck_assert_str_eq(tool_text(one, "options"),
                             shares ? "--data-parallel 3 --fsdp" : "--data-parallel 3");
        if (stages == 3)
            ck_assert_str_eq(tool_text(one, "options"), "--stages 3 --stage-layers 2,2,1");
    }
    ck_assert(shapes[3][1] == 2 && shapes[2][1] == 2 && shapes[1][3] == 1 && shapes[1][2] == 1);
    ck_assert_int_eq(sharded, 2);
    json_decref(document);
}
END_TEST

/* Ranks with rates of 3, 1, 2 and 1. In each place of a group the slowest rank counts, and ranks in
 * the same place have the same part. A stage of ranks 0 and 1 is as fast as one of 2 and 3, because
 * rank 1 limits it. */
START_TEST(divides_trainings_by_rates)
{
    static const char four[] =
        "{\"link\": {\"latency_us\": 5, \"gbytes_per_second\": 1}, \"hosts\": [{\"name\": \"a\", "
        "\"link\": {\"latency_us\": 5, \"gbytes_per_second\": 1}, \"ranks\": ["
        "{\"gflops\": 30, \"memory_gbytes_per_second\": 1}, "
        "{\"gflops\": 10, \"memory_gbytes_per_second\": 1}, "
        "{\"gflops\": 20, \"memory_gbytes_per_second\": 1}, "
        "{\"gflops\": 10, \"memory_gbytes_per_second\": 1}]}]}";
    char path[160];
    int seen = 0;
    folder_write(&in, "four.json", four, strlen(four), path);
    json_t *document = tool_json("plan " STORIES " --cluster four.json --goal training --batch 4 "
                                 "--context 32 --accumulate 2 --format json",
                                 "tessera.plan.cluster");
    const json_t *all = tool_member(document, "candidates");
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i), *used = tool_member(one, "ranks");
        const int data = (int)tool_number(one, "data"), tensor = (int)tool_number(one, "tensor"),
                  stages = (int)tool_number(one, "stages");
        if (data * tensor * stages < 4 || json_is_true(tool_member(one, "sharded")))
            continue;
        const char *options = data == 2 && tensor == 2     ? "--data-parallel 2 --rates 2,1"
                              : stages == 2 && tensor == 2 ? "--stages 2 --stage-layers 3,2 "
                                                             "--rates 2,1,2,1"
                              : tensor == 4                ? "--rates 3,1,2,1"
                                                           : NULL;
        if (options == NULL)
            continue;
        ck_assert_str_eq(tool_text(one, "options"), options);
        ck_assert(json_is_true(tool_member(one, "by_rates")));
        double memory[4];
        for (size_t r = 0; r < 4; r++)
            memory[r] = tool_number(json_array_get(used, r), "memory_bytes");
        ck_assert_double_gt(memory[0], memory[1]);
        ck_assert(data == 1 || (memory[0] == memory[2] && memory[1] == memory[3]));
        seen++;
    }
    ck_assert_int_eq(seen, 3);
    json_decref(document);
    /* Two context ranks with a row of 64 tokens keep as much as two data-parallel ranks with a row
     * of 32 each, and gather keys and values of 64 tokens: two heads of 8 features, four times. */
    double plain = 0, divided = 0;
    for (int context = 1; context <= 2; context++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 "plan " STORIES " --cluster four.json --goal training --batch %d --context %d "
                 "--context-parallel %d --json",
                 2 / context, 32 * context, context);
        document = tool_json(arguments, "tessera.plan.cluster");
        all = tool_member(document, "candidates");
        for (size_t i = 0; i < json_array_size(all); i++) {
            const json_t *one = json_array_get(all, i), *used = tool_member(one, "ranks");
            const bool shares = json_is_true(tool_member(one, "sharded"));
            ck_assert_int_eq((int)tool_number(one, "context"), context);
            if (json_array_size(used) != 4 || tool_number(one, "tensor") != 2 ||
                tool_number(one, "stages") != 1 || shares)
                continue;
            *(context == 1 ? &plain : &divided) =
                tool_number(json_array_get(used, 0), "memory_bytes");
            ck_assert_str_eq(tool_text(one, "options"), context == 1
                                                            ? "--data-parallel 2 --rates 2,1"
                                                            : "--context-parallel 2 --rates 2,1");
        }
        json_decref(document);
    }
    ck_assert_double_eq(divided - plain, 4.0 * 2 * 4 * 3 * 8 * 64 * 2 / 3);
    tool_result result = tool_run("plan " STORIES " --cluster four.json --goal training --batch 4 "
                                  "--context 32 --accumulate 2");
    ck_assert_msg(strstr(result.out, "\n\noptions of tessera train: --") != NULL, "%s", result.out);
    tool_result_free(&result);
}
END_TEST

START_TEST(help_explains_strategies)
{
    static const char *const words[] = {
        "usage: tessera plan FILE", "\n  full ", "\n  layerwise ", "\n  hybrid ", "\n  weighted ",
        "\n  --gather PATTERN"};
    tool_result result = tool_run("plan --help");
    ck_assert_int_eq(result.exit_code, 0);
    for (size_t i = 0; i < COUNT_OF(words); i++)
        ck_assert_msg(strstr(result.out, words[i]) != NULL, "no '%s'", words[i]);
    tool_result_free(&result);
    result = tool_run("help");
    ck_assert_ptr_nonnull(strstr(result.out, "\n  plan "));
    tool_result_free(&result);
}
END_TEST

TESTS(plan)
{
    tcase_add_checked_fixture(tests, create, destroy);
    tcase_add_loop_test(tests, prints_tables, 0, (int)COUNT_OF(tables));
    tcase_add_test(tests, plans_a_folder);
    tcase_add_test(tests, prints_json);
    tcase_add_loop_test(tests, refuses_wrong_arguments, 0, (int)COUNT_OF(mistakes));
    tcase_add_loop_test(tests, fails_later, 0, (int)COUNT_OF(failures));
    tcase_add_test(tests, plans_a_model);
    tcase_add_test(tests, predicts_experts_on_the_host);
    tcase_add_test(tests, chooses_how_experts_are_divided);
    tcase_add_test(tests, divides_experts_on_a_cluster);
    tcase_add_test(tests, says_what_would_fit);
    tcase_add_test(tests, divides_long_prompts);
    tcase_add_test(tests, plans_stages);
    tcase_add_test(tests, finds_a_grid);
    tcase_add_test(tests, moves_layers_of_a_grid);
    tcase_add_test(tests, divides_by_measured_rates);
    tcase_add_test(tests, finds_a_grid_for_training);
    tcase_add_test(tests, divides_trainings_by_rates);
    tcase_add_test(tests, says_which_predictions_hold);
    tcase_add_test(tests, help_explains_strategies);
}
