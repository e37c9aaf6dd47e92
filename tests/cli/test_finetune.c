/* Tests tessera finetune: recorded runs on several grids, interrupted and lost trainings, bad
 * input, and the loss of preferences. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/tool.h"
#include "cli/tool_config.h"
#include "cli/training/dpo.h"
#include "launch/launched.h"
#include "model/made.h"
#include "support/check_main.h"
#include "tessera/tessera.h"

#define RECORDED TEST_DATA "/training/lora/"
#define STORIES TEST_DATA "/model/stories260K-f16.gguf"

/* Recorded runs -------------------------------------------------------------------------------- */

/* Compares the first steps of a log in the test's folder with a recorded run. */
static void assert_as_recorded(const char *run, const char *log, int steps)
{
    char path[256];
    json_error_t problem;
    snprintf(path, sizeof path, RECORDED "%s_trajectory.json", run);
    json_t *recorded = json_load_file(path, 0, &problem);
    ck_assert_msg(recorded != NULL, "%s: %s", path, problem.text);
    const json_t *losses = tool_member(recorded, "loss_f64"),
                 *norms = tool_member(recorded, "grad_norm_f64");
    char *text = read_file(log), *rest = text;
    for (int i = 0; i < steps; i++) {
        int step;
        double loss, norm;
        ck_assert_msg(sscanf(rest, "{\"step\": %d, \"loss\": %lf, \"grad_norm\": %lf", &step, &loss,
                             &norm) == 3,
                      "step %d is missing: %.200s", i, rest);
        const double l = json_number_value(json_array_get(losses, (size_t)i)),
                     n = json_number_value(json_array_get(norms, (size_t)i));
        ck_assert_int_eq(step, i);
        ck_assert_msg(fabs(loss - l) <= 1e-4 * l, "step %d: loss %.9g, not %.9g", i, loss, l);
        ck_assert_msg(fabs(norm - n) <= 1e-4 * n, "step %d: norm %.9g, not %.9g", i, norm, n);
        rest = strchr(rest, '\n') + 1;
    }
    ck_assert_str_eq(rest, "");
    free(text);
    json_decref(recorded);
}

/* Each recorded run, on a grid of its own. */
START_TEST(losses_are_as_recorded)
{
    static const struct {
        const char *run, *base, *ranks, *options;
    } cases[] = {
        {"lora", "lora_base", "1", "~--recompute~--accumulate~2"},
        {"lora_clip", "lora_base", "3", "~--rates~3,1,1"},
        {"qlora_q4_0", "qlora_base_q4_0/base.gguf", "2", "~--stages~2~--accumulate~3"},
        {"qlora_q8_0", "qlora_base_q8_0/base.gguf", "2", "~--data-parallel~2~--fsdp"},
        {"lora", "lora_base", "4", "~--context-parallel~2~--recompute"},
    };
    char arguments[1024];
    if (!TEST_HAVE_UCX && _i > 0)
        SKIP("the library was built without UCX");
    snprintf(arguments, sizeof arguments,
             "-n~%s~" TEST_TOOL "~finetune~" RECORDED "%s~--reference~" RECORDED
             "%s_trajectory.json~--text~" TEST_TEXT "~--steps~3~--log~%s%s",
             cases[_i].ranks, cases[_i].base, cases[_i].run, in_folder("log"), cases[_i].options);
    launched job = launch(arguments);
    ck_assert_msg(job.status == 0, "%s", job.err);
    assert_as_recorded(cases[_i].run, "log", 3);
    done(&job);
}
END_TEST

/* Preferences ---------------------------------------------------------------------------------- */

/* The formula by itself, for one pair. */
static double loss_of_pair(double beta, const double own[2], const double reference[2])
{
    const double z = beta * ((own[0] - reference[0]) - (own[1] - reference[1]));
    return -log(1 / (1 + exp(-z)));
}

START_TEST(preferences_are_as_the_formula)
{
    int32_t labels[12] = {-100, 3, 4, 1, -100, 2, -100, -100, -100, -100, -100, -100};
    const data_batch rows = {.rows = 6, .context = 2, .labels = labels};
    const double own[6] = {-3, -5, -2, -2.5, -1, -1}, reference[6] = {-4, -4.5, -1, -1, -9, -9},
                 beta = 0.3, scale = 0.5, step = 1e-6;
    double slopes[6], moved[6];
    const double sum = training_dpo(&rows, beta, own, reference, scale, slopes);
    /* the last pair has no labels */
    ck_assert_double_eq_tol(
        sum,
        scale * (loss_of_pair(beta, own, reference) + loss_of_pair(beta, own + 2, reference + 2)),
        1e-14);
    for (int i = 0; i < 6; i++) {
        double ignored[6];
        memcpy(moved, own, sizeof moved);
        moved[i] += step;
        const double up = training_dpo(&rows, beta, moved, reference, scale, ignored);
        moved[i] -= 2 * step;
        const double down = training_dpo(&rows, beta, moved, reference, scale, ignored);
        /* a slope is the derivative by minus the log-probability */
        ck_assert_double_eq_tol(slopes[i], -(up - down) / (2 * step), 1e-9);
    }
    /* neither overflows nor becomes infinite */
    const double far[6] = {-1e6, 0, 0, -1e6, 0, 0};
    ck_assert(isfinite(training_dpo(&rows, 1, far, reference, 1, slopes)));
}
END_TEST

/* The second step of a training with preferences, computed in double precision. */
enum { PAIRS = 2, MODULES = 2, RANK = 2, HALF = RANK * MADE_WIDTH, LONGEST = 12 };
#define BETA 0.5
#define ALPHA 6

typedef struct preferences {
    made_model made;
    float *base[MODULES];             /* the weights of q of each layer */
    double adapter[MODULES][2][HALF]; /* A [RANK, width] and B [width, RANK] */
    double reference[2 * PAIRS];      /* log-probabilities of the base */
} preferences;

static const char *const pair_texts[PAIRS][3] = {{"abcd", "efg", "hi"}, {"jk", "lm", "nopq"}};

/* The log-probability of a text after its prompt. The token of a letter is its number. */
static double log_probability(preferences *p, const char *prompt, const char *text)
{
    static double logits[LONGEST * MADE_VOCABULARY];
    int32_t ids[LONGEST];
    int count = 0;
    double sum = 0;
    for (const char *at = prompt; *at; at++)
        ids[count++] = *at - 'a';
    const int first = count;
    for (const char *at = text; *at; at++)
        ids[count++] = *at - 'a';
    made_logits(&p->made, count, ids, logits);
    for (int i = first; i < count; i++) {
        const double *row = logits + (i - 1) * MADE_VOCABULARY;
        double all = 0;
        for (int v = 0; v < MADE_VOCABULARY; v++)
            all += exp(row[v]);
        sum += row[ids[i]] - log(all);
    }
    return sum;
}

/* Sets the model's weights to those of the base plus the adapter's. */
static void apply_adapter(preferences *p, double scale)
{
    for (int m = 0; m < MODULES; m++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%d.self_attn.q_proj.weight", m);
        float *values = made_find(&p->made, name)->values;
        for (int o = 0; o < MADE_WIDTH; o++)
            for (int i = 0; i < MADE_WIDTH; i++) {
                double sum = 0;
                for (int r = 0; r < RANK; r++)
                    sum += p->adapter[m][1][o * RANK + r] * p->adapter[m][0][r * MADE_WIDTH + i];
                values[o * MADE_WIDTH + i] =
                    (float)((double)p->base[m][o * MADE_WIDTH + i] + scale * sum);
            }
    }
}

static double loss_of_preferences(preferences *p)
{
    double sum = 0;
    apply_adapter(p, (double)ALPHA / RANK);
    for (int i = 0; i < PAIRS; i++) {
        const double own[2] = {log_probability(p, pair_texts[i][0], pair_texts[i][1]),
                               log_probability(p, pair_texts[i][0], pair_texts[i][2])};
        sum += loss_of_pair(BETA, own, p->reference + (ptrdiff_t)2 * i);
    }
    return sum / PAIRS;
}

/* Reads the adapter that the first step has written. */
static void read_adapter(preferences *p, const char *path)
{
    tsr_shard_list *list = NULL;
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(tsr_shard_list_open(path, &list), TSR_OK);
    ck_assert_uint_eq(tsr_shard_list_param_count(list), 2 * MODULES);
    for (uint64_t t = 0; t < 2 * MODULES; t++) {
        const tsr_shard_param *tensor = tsr_shard_list_param(list, t);
        float values[HALF];
        int layer;
        char half;
        ck_assert_int_eq(sscanf(tensor->name,
                                "base_model.model.model.layers.%d.self_attn.q_proj.lora_%c", &layer,
                                &half),
                         2);
        ck_assert_int_eq(fseek(file, (long)tensor->offset_bytes, SEEK_SET), 0);
        ck_assert_uint_eq(fread(values, sizeof *values, HALF, file), HALF);
        for (int i = 0; i < HALF; i++)
            p->adapter[layer][half == 'B'][i] = (double)values[i];
    }
    tsr_shard_list_destroy(&list);
    fclose(file);
}

/* The norm of the gradient, by differences. */
static double norm_of_preferences(preferences *p)
{
    const double step = 1e-3;
    double square = 0;
    for (int m = 0; m < MODULES; m++)
        for (int i = 0; i < 2 * HALF; i++) {
            double *at = &p->adapter[m][i / HALF][i % HALF], kept = *at;
            *at = kept + step;
            const double up = loss_of_preferences(p);
            *at = kept - step;
            const double down = loss_of_preferences(p);
            *at = kept;
            square += (up - down) * (up - down) / (4 * step * step);
        }
    return sqrt(square);
}

static void write_made(preferences *p)
{
    char path[160];
    snprintf(path, sizeof path, "%s/tokenizer.json", made_write_hf(&p->made));
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, "
          "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, "
          "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": "
          "\"BPE\", \"vocab\": {",
          file);
    for (int c = 0; c < 26; c++)
        fprintf(file, "%s\"%c\": %d", c == 0 ? "" : ", ", 'a' + c, c);
    fputs("}, \"merges\": []}}", file);
    ck_assert_int_eq(fclose(file), 0);
    char text[512] = "";
    for (int i = 0; i < PAIRS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "{\"prompt\": \"%s\", \"chosen\": \"%s\", \"rejected\": \"%s\"}\n",
                 pair_texts[i][0], pair_texts[i][1], pair_texts[i][2]);
    write_file("pairs.jsonl", text);
}

/* Trains on all pairs, for this many steps. */
static void train_pairs(preferences *p, int steps)
{
    char arguments[1024], folder[128];
    snprintf(folder, sizeof folder, "%s", in_folder(""));
    snprintf(arguments, sizeof arguments,
             "-n~1~" TEST_TOOL "~finetune~%s~--data~%spairs.jsonl~--objective~dpo~--beta~%g"
             "~--batch~%d~--context~%d~--steps~%d~--targets~q~--lora-rank~%d~--lora-alpha~%d"
             "~--learning-rate~0.03~--schedule~constant~--warmup~0~--held-out~0"
             "~--output~%sadapter~--log~%slog",
             p->made.folder, folder, BETA, PAIRS, LONGEST, steps, RANK, ALPHA, folder, folder);
    launched job = launch(arguments);
    ck_assert_msg(job.status == 0, "%s", job.err);
    done(&job);
}

START_TEST(a_step_of_preferences_is_as_in_double_precision)
{
    preferences *p = calloc(1, sizeof *p);
    char path[160];
    ck_assert_ptr_nonnull(p);
    made_init(&p->made, &made_families[0], 11);
    write_made(p);
    for (int m = 0; m < MODULES; m++) {
        char name[64];
        snprintf(name, sizeof name, "layers.%d.self_attn.q_proj.weight", m);
        p->base[m] = calloc(MADE_WIDTH * MADE_WIDTH, sizeof(float));
        ck_assert_ptr_nonnull(p->base[m]);
        memcpy(p->base[m], made_find(&p->made, name)->values,
               MADE_WIDTH * MADE_WIDTH * sizeof(float));
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        p->reference[i] = log_probability(p, pair_texts[i / 2][0], pair_texts[i / 2][1 + i % 2]);
    train_pairs(p, 1);
    snprintf(path, sizeof path, "%s", in_folder("adapter/adapter_model.safetensors"));
    read_adapter(p, path);
    train_pairs(p, 2);
    char *log = read_file("log"), *second = strstr(log, "{\"step\": 1, ");
    double loss, norm;
    ck_assert_ptr_nonnull(second);
    ck_assert_int_eq(
        sscanf(second, "{\"step\": 1, \"loss\": %lf, \"grad_norm\": %lf", &loss, &norm), 2);
    const double want = loss_of_preferences(p), want_norm = norm_of_preferences(p);
    ck_assert_msg(want < 0.69, "the first step has changed nothing: the loss is %g", want);
    ck_assert_double_eq_tol(loss, want, 1e-5 * want);
    ck_assert_double_eq_tol(norm, want_norm, 1e-4 * want_norm);
    free(log);
    for (int m = 0; m < MODULES; m++)
        free(p->base[m]);
    snprintf(path, sizeof path, "%s/tokenizer.json", p->made.folder);
    ck_assert_int_eq(remove(path), 0);
    made_finish(&p->made);
    free(p);
}
END_TEST

/* Memory -----------------------------------------------------------------------------------------
 */

/* The plan's peak is that of a training, with and without recomputation. */
START_TEST(the_peak_is_as_planned)
{
    char arguments[1024];
    /* An eighth of the memory is for temporary tensors, of which at least half are used. */
    const char *memory = _i == 0 ? "160M" : "120M";
    snprintf(arguments, sizeof arguments,
             "plan " STORIES " --goal finetune --ranks 1 --batch 16 "
             "--context 256 --memory %s --json",
             memory);
    json_t *plan = tool_json(arguments, "tessera.plan.finetune");
    const json_t *grid = json_array_get(tool_member(plan, "grids"), 0),
                 *rank = json_array_get(tool_member(grid, "ranks"), 0);
    const double planned = tool_number(rank, _i == 0 ? "peak_bytes" : "recomputed_peak_bytes");
    snprintf(arguments, sizeof arguments,
             "-n~1~" TEST_TOOL "~finetune~" STORIES "~--data~" TEST_TEXT
             "~--batch~16~--context~256~--memory~%s~--steps~1~--log~%s%s",
             memory, in_folder("log"), _i == 0 ? "" : "~--recompute");
    launched job = launch(arguments);
    ck_assert_msg(job.status == 0, "%s", job.err);
    char *log = read_file("log"), *at = strstr(log, "\"memory_bytes\": ");
    ck_assert_ptr_nonnull(at);
    const double measured = atof(at + strlen("\"memory_bytes\": "));
    ck_assert_msg(fabs(planned - measured) <= 0.1 * measured, "planned %.0f, measured %.0f",
                  planned, measured);
    free(log);
    json_decref(plan);
    done(&job);
}
END_TEST

/* Adds a tensor in bf16 to the header of a safetensors file. Its data are a hole in the file. */
static void add_hole(char *header, size_t size, uint64_t *bytes, const char *name, int rows,
                     int columns)
{
    const uint64_t all = 2 * (uint64_t)rows * (uint64_t)(columns > 0 ? columns : 1);
    const size_t used = strlen(header);
    char shape[32];
    snprintf(shape, sizeof shape, columns > 0 ? "%d, %d" : "%d", rows, columns);
    const int length = snprintf(header + used, size - used,
                                "%s\"%s\": {\"dtype\": \"BF16\", \"shape\": [%s], "
                                "\"data_offsets\": [%" PRIu64 ", %" PRIu64 "]}",
                                used > 1 ? ", " : "", name, shape, *bytes, *bytes + all);
    ck_assert_uint_lt(used + (size_t)length, size);
    *bytes += all;
}

/* Writes a model with the sizes of Qwen3 8B, whose weights are a hole. */
static void write_8b(void)
{
    enum { WIDTH = 4096, INNER = 12288, WORDS = 151936, LAYERS = 36 };
    static const struct {
        const char *name;
        int rows, columns;
    } parts[] = {
        {"input_layernorm", WIDTH, 0},      {"post_attention_layernorm", WIDTH, 0},
        {"self_attn.q_proj", WIDTH, WIDTH}, {"self_attn.k_proj", 1024, WIDTH},
        {"self_attn.v_proj", 1024, WIDTH},  {"self_attn.o_proj", WIDTH, WIDTH},
        {"self_attn.q_norm", 128, 0},       {"self_attn.k_norm", 128, 0},
        {"mlp.gate_proj", INNER, WIDTH},    {"mlp.up_proj", INNER, WIDTH},
        {"mlp.down_proj", WIDTH, INNER},
    };
    static char header[1 << 17] = "{";
    uint64_t bytes = 0;
    header[1] = '\0';
    add_hole(header, sizeof header, &bytes, "model.embed_tokens.weight", WORDS, WIDTH);
    add_hole(header, sizeof header, &bytes, "lm_head.weight", WORDS, WIDTH);
    add_hole(header, sizeof header, &bytes, "model.norm.weight", WIDTH, 0);
    for (int l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            char name[96];
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, parts[i].name);
            add_hole(header, sizeof header, &bytes, name, parts[i].rows, parts[i].columns);
        }
    strcat(header, "}"); /* NOLINT: fits */
    write_file(
        "config.json",
        "{\"model_type\": \"qwen3\", \"hidden_size\": 4096, \"intermediate_size\": 12288, "
        "\"num_hidden_layers\": 36, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, "
        "\"head_dim\": 128, \"vocab_size\": 151936, \"max_position_embeddings\": 40960, "
        "\"rms_norm_eps\": 1e-6, \"rope_theta\": 1e6, \"tie_word_embeddings\": false, "
        "\"hidden_act\": \"silu\"}");
    const uint64_t length = strlen(header);
    FILE *file = fopen(in_folder("model.safetensors"), "wb");
    ck_assert(file && fwrite(&length, sizeof length, 1, file) == 1 &&
              fwrite(header, 1, length, file) == length && fflush(file) == 0);
    ck_assert_int_eq(ftruncate(fileno(file), (off_t)(sizeof length + length + bytes)), 0);
    ck_assert_int_eq(fclose(file), 0);
}

/* An adapter of an 8B model in q4_k is trained on rows of 2048 tokens with 12 GiB. */
START_TEST(an_8b_model_fits_12_gib)
{
    char arguments[512];
    write_8b();
    snprintf(arguments, sizeof arguments,
             "plan %s --goal finetune --ranks 1 --memory 12G --dtype q4_k --lora-rank 16 --batch 1 "
             "--context 2048 --json",
             in_folder(""));
    json_t *plan = tool_json(arguments, "tessera.plan.finetune");
    const json_t *grid = json_array_get(tool_member(plan, "grids"), 0),
                 *rank = json_array_get(tool_member(grid, "ranks"), 0);
    const double peak = tool_number(rank, "recomputed_peak_bytes"), gib = 1 << 30;
    /* 8.2e9 weights with 4.5 bits each have 4.3 GiB; the inputs of 36 layers, 1.1 GiB */
    ck_assert_msg(peak > 5.4 * gib && peak <= 12 * gib, "%.2f GiB", peak / gib);
    json_decref(plan);
}
END_TEST

/* Context ranks have the activations of their tokens, and gather keys and values of whole rows. */
START_TEST(the_plan_divides_rows)
{
    double activations[2], passing[2];
    for (int i = 0; i < 2; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments,
                 "plan " STORIES " --goal finetune --batch 1 --context %s --memory 1G --json",
                 i == 0 ? "64 --ranks 1" : "192 --ranks 3 --context-parallel 3");
        json_t *plan = tool_json(arguments, "tessera.plan.finetune");
        const json_t *grid = json_array_get(tool_member(plan, "grids"), 0);
        const json_t *rank = json_array_get(tool_member(grid, "ranks"), 0);
        ck_assert_double_eq(tool_number(grid, "context"), i == 0 ? 1 : 3);
        activations[i] = tool_number(rank, "activation_bytes");
        passing[i] = tool_number(rank, "passing_bytes");
        if (i == 1)
            ck_assert_str_eq(json_string_value(tool_member(plan, "options")),
                             "--context-parallel 3");
        json_decref(plan);
    }
    ck_assert_double_eq(activations[0], activations[1]);
    /* keys and values of 192 tokens, of 4 heads of 8 features, in 4 groups of which 2 exist at
     * once, in two orders, with gradients */
    ck_assert_double_eq(passing[1] - passing[0], 192.0 * 2 * 8 * 4 * 2 * 2 * 2);
}
END_TEST

/* With --fsdp, each of two ranks keeps half of the weights, and two layers while it needs them. */
START_TEST(the_plan_divides_weights)
{
    double weights[2], trained[2];
    for (int fsdp = 0; fsdp < 2; fsdp++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments,
                 "plan " STORIES " --goal finetune --ranks 2 --batch 2 --context 16 %s --json",
                 fsdp ? "--fsdp" : "");
        json_t *plan = tool_json(arguments, "tessera.plan.finetune");
        size_t index = 0;
        while (tool_number(json_array_get(tool_member(plan, "grids"), index), "data") != 2)
            index++;
        const json_t *grid = json_array_get(tool_member(plan, "grids"), index);
        const json_t *rank = json_array_get(tool_member(grid, "ranks"), 0);
        weights[fsdp] = tool_number(rank, "weight_bytes");
        trained[fsdp] = tool_number(rank, "trained_bytes");
        json_decref(plan);
    }
    ck_assert_double_eq(trained[1], trained[0]);
    ck_assert_msg(weights[1] > weights[0] / 2 && weights[1] < weights[0], "%.0f of %.0f bytes",
                  weights[1], weights[0]);
}
END_TEST

/* An adapter of the head: 4 bytes for each of 2 · (64 + 65) numbers, its gradient and 2 moments. */
START_TEST(the_plan_counts_an_adapter_of_the_head)
{
    double trained[2];
    for (int head = 0; head < 2; head++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments,
                 "plan " RECORDED "lora_base --goal finetune --ranks 1 --batch 1 --context 64 "
                 "--lora-rank 2 --targets q%s --json",
                 head ? ",head" : "");
        json_t *plan = tool_json(arguments, "tessera.plan.finetune");
        const json_t *grid = json_array_get(tool_member(plan, "grids"), 0);
        trained[head] = tool_number(json_array_get(tool_member(grid, "ranks"), 0), "trained_bytes");
        json_decref(plan);
    }
    ck_assert_double_eq(trained[1] - trained[0], 16 * 2 * (64 + 65));
}
END_TEST

/* Of 4 layers of DeepSeek, the first has no experts; the others have 8, and one that is shared.
 * Each has three matrices of 64 by 32 numbers. Latent attention has adapters of q_a, q_b,
 * kv_a_proj_with_mqa, kv_b and o. */
START_TEST(the_plan_counts_adapters_of_experts)
{
    static const char *const targets[] = {"experts", "q,k,v,o"};
    static const double numbers[] = {3 * 9 * 3 * (64 + 32),
                                     4 * (64 + 24 + 24 + 120 + 64 + 40 + 32 + 168 + 96 + 64)};
    for (int i = 0; i < 2; i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments,
                 "plan " TEST_DATA "/model/families/deepseek2/hf --goal finetune --ranks 1 "
                 "--lora-rank 2 --targets %s --json",
                 targets[i]);
        json_t *plan = tool_json(arguments, "tessera.plan.finetune");
        const json_t *grid = json_array_get(tool_member(plan, "grids"), 0);
        ck_assert_double_eq(
            tool_number(json_array_get(tool_member(grid, "ranks"), 0), "trained_bytes"),
            16 * 2 * numbers[i]);
        json_decref(plan);
    }
}
END_TEST

/* Mistakes ---------------------------------------------------------------------------------------
 */

START_TEST(mistakes_are_named)
{
    static const char *const wrong[][2] = {
        {"finetune", "tessera: finetune: missing MODEL, a folder or a file\n"},
        {"finetune m", "tessera: finetune: missing --data FILE\n"},
        {"finetune m --reference r",
         "tessera: finetune: --reference FILE and --text FILE need each "
         "other\n"},
        {"finetune m --data d --full --dora",
         "tessera: finetune: --dora is for adapters, so --full cannot be given\n"},
        {"finetune m --data d --steps 1 --epochs 1",
         "tessera: finetune: --steps and --epochs contradict each other\n"},
        {"finetune m --data d --targets q,x",
         "tessera: finetune: --targets takes q, k, v, o, gate, "
         "up, down, experts and head, separated by commas, not 'q,x'\n"},
        {"finetune m --data d --targets q --full",
         "tessera: finetune: --targets is for adapters, so --full cannot be given\n"},
        {"finetune m --data d --lora-rank 8 --full",
         "tessera: finetune: --lora-rank is for adapters, so --full cannot be given\n"},
        {"finetune m --data d --layers 1 --full --elastic",
         "tessera: finetune: --elastic with --full trains all layers, so --layers cannot be "
         "given\n"},
        {"finetune m --data d --dora --lora-dropout 0.1",
         "tessera: finetune: --dora and --lora-dropout contradict each other\n"},
        {"finetune m --data d --dora --targets q,experts",
         "tessera: finetune: --dora: adapters of experts cannot have magnitudes\n"},
        {"finetune m --data d --dora -o a.gguf", "tessera: finetune: --dora: a GGUF file cannot "
                                                 "have magnitudes, so --output must be a folder, "
                                                 "not a.gguf\n"},
        {"finetune m --data d --objective x",
         "tessera: finetune: --objective takes sft or dpo, not 'x'\n"},
        {"finetune m --data d --schedule x",
         "tessera: finetune: --schedule takes constant, linear or cosine, not 'x'\n"},
        {"finetune m --data d --held-out 0.9",
         "tessera: finetune: --held-out takes a part from 0 to 0.5, or a file, not '0.9'\n"},
        {"finetune m --data :2", "tessera: finetune: --data takes a file, and a weight above 0 "
                                 "behind a colon, not ':2'\n"},
        {"finetune m --data d --full --objective dpo",
         "tessera: finetune: --objective dpo compares an adapter with its base, so --full cannot "
         "be given\n"},
        {"finetune m --data d --epochs 10001",
         "tessera: finetune: --epochs takes an integer from 1 to 10000, not '10001'\n"},
        {"finetune m --data d --full -o f.gguf/",
         "tessera: finetune: --full writes a folder, so --output cannot be f.gguf\n"},
        {"finetune m --data d --full --dtype q8_0",
         "tessera: finetune: --full trains layers in f32 or bf16, not q8_0\n"},
        {"finetune m --data d --elastic --stages 2",
         "tessera: finetune: with --elastic all ranks are data-parallel, so --stages, --rates and "
         "--data-parallel cannot be given\n"},
        {"finetune m --data d --elastic --context-parallel 2",
         "tessera: finetune: --context-parallel 2 cannot go with --elastic\n"},
        {"finetune m --data d --lora-dropout 0.1 --context-parallel 2",
         "tessera: finetune: --context-parallel 2 cannot go with --lora-dropout\n"},
        {"finetune m --data d --elastic --fsdp",
         "tessera: finetune: --elastic needs a whole base on each rank, so --fsdp needs --full\n"},
        {"finetune m --data d --batch 3 --accumulate 2",
         "tessera: finetune: --accumulate 2 does not divide --batch 3\n"},
        {"plan . --ranks 2 --lora-rank 4",
         "tessera: plan: --lora-rank, --targets, --full and --fsdp need --goal finetune\n"},
        {"plan . --goal finetune --cluster c",
         "tessera: plan: --goal finetune takes --ranks N, not --cluster\n"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        tool_refuses(wrong[i][0], wrong[i][1]);
    tool_fails("finetune " STORIES " --data " TEST_TEXT " -o /nonexistent/adapter",
               "/nonexistent/adapter: its folder cannot be written");
    tool_fails("finetune m --data d --checkpoint /nonexistent/c",
               "/nonexistent/c: its folder cannot be written");
    tool_fails("finetune m --data d --curve /nonexistent/c.svg",
               "/nonexistent/c.svg: its folder cannot be written");
    tool_fails("finetune m --data d --curve /", "/ is a folder, but --curve takes a file");
    tool_fails("finetune m --data d -o /dev/null", "/dev/null exists, and is no folder");
    tool_fails("finetune m --data d --checkpoint /", "/ exists, and is no regular file");
    tool_fails("finetune " RECORDED "lora_base --data d --full -o " RECORDED "lora_base/",
               "lora_base is the model " RECORDED "lora_base, which would be overwritten");
    tool_fails("finetune " STORIES " --data " TEST_TEXT " --targets q,head",
               "lora: no layer of the model has head.weight");
    tool_fails("finetune " STORIES " --data " TEST_TEXT " --layers 0-9",
               "lora: layers is '0-9'; numbers from 0 to 4 and ranges of them, such as 0-3,7, are "
               "needed");
    tool_fails("finetune " STORIES " --data " TEST_TEXT " --context 100000",
               "rows of 100000 tokens, but the model was made for 512");
    tool_fails("finetune --resume " STORIES, "this is no checkpoint of finetune");
    tool_fails("finetune " RECORDED "lora_base --reference " RECORDED
               "lora_trajectory.json --text " RECORDED "lora_trajectory.json",
               "different characters, but");
}
END_TEST

/* Ranks that have read different files end, with what they have read. */
START_TEST(different_data_are_refused)
{
    char arguments[1024];
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    write_file("data.0", "Tom has a red ball.");
    write_file("data.1", "Tom has a red ball, and Lily has a blue one.");
    snprintf(arguments, sizeof arguments,
             "-n~2~--no-prefix~sh~-c~exec " TEST_TOOL " finetune " STORIES
             " --data $FOLDER/data.$RANK --steps 1 -o $FOLDER/adapter");
    launched job = launch(arguments);
    ck_assert_int_eq(job.status, 1);
    assert_has(job.err, "tessera: finetune: the ranks have different data: rank ");
    assert_has(job.err, " tokens, but the ranks have from ");
    done(&job);
}
END_TEST

/* Endings -------------------------------------------------------------------------------------- */

static void write_texts(void)
{
    char text[4096] = "";
    for (int i = 0; i < 24; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used,
                 "{\"prompt\": \"Tom has %d red balls. \", \"completion\": \"Lily has %d.\"}\n", i,
                 i + 1);
    }
    write_file("texts.jsonl", text);
}

/* Returns what all runs of this test have in common. */
static const char *common(void)
{
    static char text[512];
    char folder[128];
    snprintf(folder, sizeof folder, "%s", in_folder(""));
    snprintf(text, sizeof text,
             "~finetune~" STORIES
             "~--data~%stexts.jsonl~--batch~2~--context~32~--learning-rate~1e-3"
             "~--checkpoint-every~3",
             folder);
    return text;
}

static launched begin(const char *ranks, const char *options)
{
    char arguments[2048];
    snprintf(arguments, sizeof arguments,
             "-n~%s~%s~sh~-c~echo $$ >>$FOLDER/pid.$RANK; exec \"$@\"~sh~" TEST_TOOL "%s~%s", ranks,
             strstr(options, "--elastic") ? "--respawn~1" : "--no-prefix", common(), options);
    return start(arguments);
}

/* Compares the losses of two logs. */
static void assert_same_losses(const char *a, const char *b, int steps, double tolerance)
{
    char *texts[2] = {read_file(a), read_file(b)}, *rest[2] = {texts[0], texts[1]};
    for (int i = 0; i < steps; i++) {
        double losses[2];
        for (int t = 0; t < 2; t++) {
            int step;
            ck_assert_msg(sscanf(rest[t], "{\"step\": %d, \"loss\": %lf", &step, &losses[t]) == 2 &&
                              step == i,
                          "log %d, step %d: %.200s", t, i, rest[t]);
            rest[t] = strchr(rest[t], '\n') + 1;
        }
        ck_assert_msg(fabs(losses[0] - losses[1]) <= tolerance * losses[0],
                      "step %d: losses %.9g and %.9g", i, losses[0], losses[1]);
    }
    free(texts[0]);
    free(texts[1]);
}

/* A training that was killed goes on with other ranks, as if nothing had happened. */
START_TEST(a_killed_training_goes_on_from_its_checkpoint)
{
    char options[512], arguments[512];
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    write_texts();
    snprintf(options, sizeof options, "--steps~8~--lora-dropout~0.3~--log~%s", in_folder("whole"));
    launched whole = begin("1", options);
    finish(&whole);
    ck_assert_msg(whole.status == 0, "%s", whole.err);
    done(&whole);
    remove(in_folder("pid.0"));
    snprintf(options, sizeof options, "--steps~8~--lora-dropout~0.3~--log~%s~--checkpoint~%s",
             in_folder("log"), in_folder("checkpoint"));
    launched job = begin("1", options);
    wait_for_text("log", "{\"step\": 3,", 1);
    char *number = read_file("pid.0");
    ck_assert_int_eq(kill(atoi(number), SIGKILL), 0);
    free(number);
    finish(&job);
    ck_assert_int_eq(job.status, 128 + SIGKILL);
    done(&job);
    snprintf(arguments, sizeof arguments, "-n~2~" TEST_TOOL "~finetune~--resume~%s~--log~%s",
             in_folder("checkpoint"), in_folder("log"));
    job = launch(arguments);
    ck_assert_msg(job.status == 0, "%s", job.err);
    done(&job);
    assert_same_losses("whole", "log", 8, 1e-5);
}
END_TEST

/* A training goes on only with tensors that the checkpoint has. */
static void assert_fixed(const char *checkpoint)
{
    static const char *const wrong[][2] = {
        {"--lora-rank 4", "--lora-rank is 4, but the training in "},
        {"--lora-alpha 3", " was begun with 32"},
        {"--targets q,up", "--targets is q,up, but the training in "},
        {"--rslora", " was begun without --rslora, so it cannot go on with that"},
        {"--full", " was begun without --full, so it cannot go on with that"},
    };
    char arguments[512];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(arguments, sizeof arguments, "finetune --resume %s %s", checkpoint, wrong[i][0]);
        tool_fails(arguments, wrong[i][1]);
    }
}

/* Blanks a text in the header of a checkpoint, up to `end`. */
static void blank(char *header, const char *text, char end)
{
    char *at = strstr(header, text);
    ck_assert_msg(at && strchr(at, end), "the checkpoint has no %s", text);
    memset(at, ' ', (size_t)(strchr(at, end) + 1 - at));
}

/* Checkpoints of versions without these options are read. */
static void assert_older(const char *checkpoint)
{
    static char header[1 << 16];
    char arguments[512];
    FILE *file = fopen(checkpoint, "r+b");
    ck_assert(file && fseek(file, 8, SEEK_SET) == 0);
    const size_t size = fread(header, 1, sizeof header - 1, file);
    blank(header, "\\\"passes\\\":", ',');
    blank(header, "\\\"dora\\\":", ',');
    blank(header, "\\\"layers\\\":", ',');
    char *checksum = strstr(header, "tessera.crc32c");
    ck_assert_ptr_nonnull(checksum);
    *checksum = 'T';
    ck_assert_int_eq(fseek(file, 8, SEEK_SET), 0);
    ck_assert_uint_eq(fwrite(header, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    snprintf(arguments, sizeof arguments, "finetune --resume %s --dora", checkpoint);
    tool_fails(arguments, " was begun without --dora, so it cannot go on with that");
    snprintf(arguments, sizeof arguments, "finetune --resume %s --layers 0", checkpoint);
    tool_fails(arguments, " was begun with all");
}

/* Ctrl-C saves the adapter and a checkpoint. */
START_TEST(an_interrupt_saves)
{
    char options[512];
    write_texts();
    snprintf(options, sizeof options, "--steps~5000~--log~%s~--checkpoint~%s~--output~",
             in_folder("log"), in_folder("checkpoint"));
    strcat(options, in_folder("adapter.gguf"));
    launched job = begin("1", options);
    wait_for_text("log", "{\"step\": 1,", 1);
    send_signal(&job, SIGINT);
    finish(&job);
    ck_assert_int_eq(job.status, 128 + SIGINT);
    assert_has(job.err, "; go on with: tessera finetune --resume ");
    assert_has(job.err, "adapter.gguf\n");
    assert_fixed(in_folder("checkpoint"));
    ck_assert_int_eq(access(in_folder("adapter.gguf"), R_OK), 0);
    ck_assert_int_eq(access(in_folder("checkpoint"), R_OK), 0);
    assert_older(in_folder("checkpoint"));
    done(&job);
}
END_TEST

/* What was learnt is kept if the checkpoint cannot be. */
START_TEST(a_failed_checkpoint_leaves_the_adapter)
{
    char options[512];
    write_texts();
    ck_assert_int_eq(mkdir(in_folder("checkpoint.partial"), 0777), 0);
    snprintf(options, sizeof options, "--steps~1~--checkpoint~%s~--output~",
             in_folder("checkpoint"));
    strcat(options, in_folder("adapter.gguf"));
    launched job = begin("1", options);
    finish(&job);
    ck_assert_int_eq(job.status, 1);
    assert_has(job.err, "tessera: finetune: step 1: the checkpoint could not be saved: ");
    assert_has(job.err, "; what was learnt is in ");
    ck_assert_int_eq(access(in_folder("adapter.gguf"), R_OK), 0);
    ck_assert_int_eq(rmdir(in_folder("checkpoint.partial")), 0);
    done(&job);
}
END_TEST

/* A lost rank costs no more than a step, and another takes its place. */
START_TEST(a_lost_rank_is_replaced)
{
    char options[512];
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    write_texts();
    snprintf(options, sizeof options, "--elastic~--steps~16~--timeout~20~--log~%s",
             in_folder("log"));
    launched job = begin("2", options);
    wait_for_text("log", "{\"step\": 2,", 1);
    char *number = read_file("pid.1");
    ck_assert_int_eq(kill(atoi(number), SIGKILL), 0);
    free(number);
    finish(&job);
    ck_assert_msg(job.status == 0, "%s", job.err);
    assert_has(job.err, "going on with 1 rank after ");
    char *log = read_file("log");
    ck_assert_int_eq(count(log, "{\"step\": "), 16);
    free(log);
    done(&job);
}
END_TEST

/* Texts during a training of a model with delta nets, whose cache has states, are those that it
 * writes otherwise. The model's folder gets the tokenizer of another one. */
START_TEST(texts_are_written_with_states)
{
    static const char from[] = TEST_DATA "/model/families/qwen35moe/hf/", *const names[] = {
                                                                              "config.json",
                                                                              "model.safetensors"};
    char arguments[512], folder[128], path[256], wanted[1024];
    write_texts();
    snprintf(folder, sizeof folder, "%s", in_folder("q"));
    snprintf(arguments, sizeof arguments, "convert " STORIES " %s", folder);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    tool_result_free(&result);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        snprintf(arguments, sizeof arguments, "%s%s", from, names[i]);
        ck_assert(remove(path) == 0 && symlink(arguments, path) == 0);
    }
    snprintf(arguments, sizeof arguments, "generate %s --prompt Once --greedy -n 64", folder);
    result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0 && strncmp(result.out, "Once", 4) == 0, "%s", result.err);
    snprintf(wanted, sizeof wanted, "--- step 0\n%s--- step 1\n", result.out + 4);
    tool_result_free(&result);
    snprintf(arguments, sizeof arguments,
             "finetune %s --data %s --steps 1 --batch 1 --context 32 --layers 3 --targets q "
             "--lora-rank 1 --sample-every Once",
             folder, in_folder("texts.jsonl"));
    result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_msg(strncmp(result.out, wanted, strlen(wanted)) == 0, "'%s', not '%s'", result.out,
                  wanted);
    tool_result_free(&result);
}
END_TEST

/* A loss that explodes ends the training, and what was saved before stays. */
START_TEST(a_training_that_diverges_ends)
{
    char options[512];
    write_texts();
    snprintf(options, sizeof options,
             "--steps~60~--learning-rate~1000~--warmup~0~--clip~0~--checkpoint~%s",
             in_folder("checkpoint"));
    launched job = begin("1", options);
    finish(&job);
    ck_assert_int_eq(job.status, 1);
    assert_has(job.err, "tessera: finetune: step ");
    assert_has(job.err, ", so the training ends; ");
    assert_has(job.err, "a lower --learning-rate may help\n");
    done(&job);
}
END_TEST

TESTS(finetune)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_loop_test(tests, losses_are_as_recorded, 0, 5);
    tcase_add_test(tests, preferences_are_as_the_formula);
    tcase_add_test(tests, a_step_of_preferences_is_as_in_double_precision);
    tcase_add_loop_test(tests, the_peak_is_as_planned, 0, 2);
    tcase_add_test(tests, an_8b_model_fits_12_gib);
    tcase_add_test(tests, the_plan_divides_rows);
    tcase_add_test(tests, the_plan_counts_an_adapter_of_the_head);
    tcase_add_test(tests, the_plan_counts_adapters_of_experts);
    tcase_add_test(tests, the_plan_divides_weights);
    tcase_add_test(tests, mistakes_are_named);
    tcase_add_test(tests, different_data_are_refused);
    tcase_add_test(tests, a_killed_training_goes_on_from_its_checkpoint);
    tcase_add_test(tests, an_interrupt_saves);
    tcase_add_test(tests, a_failed_checkpoint_leaves_the_adapter);
    tcase_add_test(tests, a_lost_rank_is_replaced);
    tcase_add_test(tests, a_training_that_diverges_ends);
    tcase_add_test(tests, texts_are_written_with_states);
}
