/* Compares logits and greedy tokens with recorded ones: tokens of llama.cpp, or of a computation in
 * double precision, and logits that were computed in double precision from the same (dequantised)
 * weights. The files are in tests/data/model; those of families with few ingredients in common with
 * Llama are in families/. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/open.h"
#include "parallel/spmd.h"
#include "tessera/convert.h"
#include "tessera/lora.h"
#include "tessera/stack.h"

enum { MOST_SEQUENCES = 4, TOKENS = 24, POSITIONS = 40 };

/* The largest allowed error of a logit, if the model is in f32 with exactly dequantised weights.
 * The largest logits are about 20. */
#define TOLERANCE 2e-4

typedef struct recording {
    int64_t positions, vocabulary;
    float *logits[MOST_SEQUENCES]; /* [positions, vocabulary] */
} recording;

static void record(void *user, int sequence, int64_t position, const float *logits)
{
    recording *r = user;
    CHECK(sequence < MOST_SEQUENCES && position < r->positions,
          "logits of sequence %d, position %d", sequence, (int)position);
    memcpy(r->logits[sequence] + position * r->vocabulary, logits,
           (size_t)r->vocabulary * sizeof *logits);
}

/* The folder of the recorded models. To check further families, let it be a folder with a folder
 * families/, and TEST_FAMILIES the names of those to check, as in the table below. */
static const char *root(void)
{
    const char *given = getenv("TEST_MODELS");
    return given ? given : TEST_DATA "/model";
}

/* Files of JSON ------------------------------------------------------------------------------ */

static json_t *load(const char *name)
{
    char path[512];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s.json", root(), name);
    json_t *document = json_load_file(path, 0, &error);
    CHECK(document, "%s: %s", path, error.text);
    return document;
}

static const json_t *list_of(const json_t *object, const char *name)
{
    const json_t *list = json_object_get(object, name);
    CHECK(json_array_size(list) > 0, "\"%s\" is no list, or an empty one", name);
    return list;
}

/* Decodes the numbers of {"dtype": "f32" or "f64", shape, b64}; free() them. */
static double *decode(const json_t *tensor, int64_t *count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *text = json_string_value(json_object_get(tensor, "b64"));
    const json_t *shape = json_object_get(tensor, "shape");
    const char *dtype = json_string_value(json_object_get(tensor, "dtype"));
    const bool single = dtype && strcmp(dtype, "f32") == 0;
    CHECK(text && dtype && (single || strcmp(dtype, "f64") == 0), "no numbers");
    *count =
        json_integer_value(json_array_get(shape, 0)) * json_integer_value(json_array_get(shape, 1));
    double *values = doubles(*count);
    uint8_t *bytes = (uint8_t *)values;
    uint32_t word = 0;
    int bits = 0;
    for (size_t at = 0; *text && *text != '='; text++) {
        word = word << 6 | (uint32_t)(strchr(digits, *text) - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            CHECK(at < (size_t)*count * (single ? sizeof(float) : sizeof *values),
                  "too many numbers");
            bytes[at++] = (uint8_t)(word >> bits);
        }
    }
    for (int64_t i = *count - 1; single && i >= 0; i--) {
        float value;
        memcpy(&value, bytes + (size_t)i * sizeof value, sizeof value);
        values[i] = (double)value;
    }
    return values;
}

static int32_t *ids_of(const json_t *list, int64_t *count)
{
    *count = (int64_t)json_array_size(list);
    int32_t *ids = calloc((size_t)*count + 1, sizeof *ids);
    CHECK(ids, "no memory");
    for (int64_t i = 0; i < *count; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return ids;
}

/* Returns how many tokens of a recorded text can be compared. llama.cpp rounds activations, which
 * changes a few of its tokens. The file says which tokens differ from those of a computation in
 * double precision; only the tokens before them are compared. */
static int64_t comparable(const json_t *one, int64_t count)
{
    const json_t *differs = json_object_get(one, "exact_argmax_differs_at");
    return json_array_size(differs) > 0 ? json_integer_value(json_array_get(differs, 0)) : count;
}

/* Compares logits from position `first` on with those called `name`. */
static void compare_some(const char *file, const json_t *one, const char *name, int64_t first,
                         int64_t vocabulary, const float *got)
{
    const json_t *recorded = json_object_get(one, name), *rms = json_object_get(one, "logits_rms");
    int64_t numbers_there;
    if (!recorded)
        return;
    double worst = 0, *want = decode(recorded, &numbers_there);
    for (int64_t i = 0; i < numbers_there; i++)
        worst = fmax(worst, fabs((double)got[first * vocabulary + i] - want[i]));
    CHECK(worst <= TOLERANCE * (rms ? json_number_value(rms) : 1),
          "%s: a logit of %s differs by %g", file, name, worst);
    free(want);
}

static void compare_logits(const char *file, const json_t *one, int64_t vocabulary,
                           const float *got)
{
    const int64_t last = (int64_t)json_array_size(json_object_get(one, "prompt_ids")) - 1;
    CHECK(json_object_get(one, "logits_exact"), "%s: there are no logits", file);
    compare_some(file, one, "logits_exact", 0, vocabulary, got);
    compare_some(file, one, "logits_exact_last", last, vocabulary, got);
}

static void add_prompt(tsr_generator *generator, const json_t *one, int number)
{
    int64_t count;
    int sequence;
    int32_t *prompt = ids_of(list_of(one, "prompt_ids"), &count);
    OK(tsr_generator_add(
        generator,
        tsr_sequence_params(.prompt = prompt, .prompt_count = count, .max_tokens = TOKENS),
        &sequence));
    CHECK(sequence == number, "sequence %d, not %d", sequence, number);
    free(prompt);
}

/* Generates from all prompts of a file together. */
static void continue_all(const char *file, tsr_generator *generator, const json_t *list)
{
    tsr_generated tokens[MOST_SEQUENCES];
    int32_t *want[MOST_SEQUENCES];
    int64_t counts[MOST_SEQUENCES], done[MOST_SEQUENCES] = {0};
    const int sequences = (int)json_array_size(list);
    int count = 0;
    for (int i = 0; i < sequences; i++) {
        const json_t *one = json_array_get(list, (size_t)i);
        want[i] = ids_of(list_of(one, "generated_ids"), &counts[i]);
        counts[i] = comparable(one, counts[i]);
        counts[i] = counts[i] < TOKENS ? counts[i] : TOKENS;
        add_prompt(generator, one, i);
    }
    for (;;) {
        OK(step_tokens(generator, tokens, &count));
        if (count == 0)
            break;
        for (int t = 0; t < count; t++) {
            const int s = tokens[t].sequence;
            CHECK(done[s] >= counts[s] || tokens[t].token == want[s][done[s]],
                  "%s: token %d of prompt %d is %d, not %d", file, (int)done[s], s,
                  (int)tokens[t].token, (int)want[s][done[s]]);
            done[s]++;
        }
    }
    for (int i = 0; i < sequences; i++) {
        CHECK(done[i] >= counts[i], "%s: %d tokens", file, (int)done[i]);
        free(want[i]);
    }
}

/* How a model computes. */
typedef struct manner {
    tsr_model_params model;
    int64_t prefill; /* tokens of a prompt in one pass */
} manner;

/* On one rank, texts whose prompts are computed in short passes have passes in flight. */
static void check_manner(const char *file, const char *golden, const manner *how)
{
    json_t *document = load(golden);
    const json_t *list = list_of(document, "cases");
    tsr_model *model = NULL;
    tsr_generator *generator = NULL;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root(), file);
    OK(open_model(path, &how->model, &model));
    OK(tsr_model_get_stats(model, &stats));
    CHECK(how->model.dtype != (tsr_dtype)0 || !strstr(file, "-q") || ranks > 1 ||
              stats.weight_bytes < stats.parameters * 2,
          "%s: %d bytes are kept of %d parameters", file, (int)stats.weight_bytes,
          (int)stats.parameters);
    recording r = {.positions = POSITIONS, .vocabulary = tsr_model_get_config(model)->vocabulary};
    for (int i = 0; i < MOST_SEQUENCES; i++) {
        r.logits[i] = calloc((size_t)(r.positions * r.vocabulary), sizeof(float));
        CHECK(r.logits[i], "no memory");
    }
    OK(tsr_generator_create(
        tsr_generator_params(.model = model, .sequences = (int)json_array_size(list),
                             .context = 128, .prefill = how->prefill, .logits = record, .user = &r,
                             .logits_positions = r.positions,
                             .ahead = ranks == 1 && how->prefill < 64 ? 3 : TSR_GENERATOR_WAITS),
        &generator));
    continue_all(file, generator, list);
    tsr_generator_destroy(&generator);
    for (int i = 0; i < (int)json_array_size(list); i++)
        compare_logits(file, json_array_get(list, (size_t)i), r.vocabulary, r.logits[i]);
    for (int i = 0; i < MOST_SEQUENCES; i++)
        free(r.logits[i]);
    tsr_model_close(&model);
    json_decref(document);
}

static void check_file(const char *file, const char *golden, tsr_dtype dtype, tsr_group *on)
{
    char name[128];
    snprintf(name, sizeof name, "gen_%s", golden);
    check_manner(file, name,
                 &(manner){.model = *tsr_model_params(.group = on, .dtype = dtype), .prefill = 5});
}

/* Without a cache ---------------------------------------------------------------------------------
 */

/* Computes a recorded prompt and its text at once, without a cache, and compares logits and the
 * most likely tokens. */
static void check_pass(const char *file, const json_t *one, tsr_model *model)
{
    int64_t start, count;
    int32_t *ids = ids_of(list_of(one, "prompt_ids"), &start),
            *text = ids_of(list_of(one, "generated_ids"), &count);
    const int64_t length = start + count, vocabulary = tsr_model_get_config(model)->vocabulary;
    tsr_tensor *x = NULL, *hidden = NULL, *logits = NULL;
    float *got = calloc((size_t)(length * vocabulary), sizeof *got);
    ids = realloc(ids, (size_t)length * sizeof *ids);
    CHECK(ids && got, "no memory");
    memcpy(ids + start, text, (size_t)count * sizeof *ids);
    OK(tsr_tensor_create(gpu, TSR_I32, 2, (int64_t[]){1, length}, &x));
    OK(tsr_tensor_upload(queue, x, ids, (uint64_t)length * sizeof *ids));
    OK(tsr_stack_forward(tsr_model_stack(model), x, NULL, NULL, &hidden));
    OK(tsr_stack_head_forward(tsr_model_stack(model), hidden, NULL, &logits));
    OK(tsr_stack_gather_logits(tsr_model_stack(model), logits, got));
    compare_logits(file, one, vocabulary, got);
    for (int64_t i = 0; i < count; i++) {
        const float *of = got + (start - 1 + i) * vocabulary;
        int64_t best = 0;
        for (int64_t v = 1; v < vocabulary; v++)
            best = of[v] > of[best] ? v : best;
        CHECK(best == text[i], "%s: token %d is %d, not %d", file, (int)i, (int)best, (int)text[i]);
    }
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&hidden);
    tsr_tensor_destroy(&logits);
    free(got);
    free(ids);
    free(text);
}

static void check_passes(const char *file, const char *golden, const tsr_model_params *params)
{
    char path[512];
    json_t *document = load(golden);
    tsr_model *model = NULL;
    const json_t *one;
    size_t number;
    snprintf(path, sizeof path, "%s/%s", root(), file);
    OK(open_model(path, params, &model));
    json_array_foreach(list_of(document, "cases"), number, one) check_pass(file, one, model);
    tsr_model_close(&model);
    json_decref(document);
}

/* Blocks of q8_0 have columns of two heads, which the GGUF file has in tiled order. A model keeps
 * them so, if each rank gets whole blocks; its logits are those of the same weights as floats. */
static void check_tiles(void)
{
    static const char from[] = TEST_DATA "/model/families/qwen35moe/qwen35moe-f16.gguf";
    enum { LENGTH = 9, LOGITS = LENGTH * 512 };
    static float got[2][LOGITS];
    static const int32_t ids[LENGTH] = {1, 400, 3, 77, 200, 5, 9, 310, 42};
    char folder[] = "/tmp/tessera-tiles-XXXXXX", path[64];
    tsr_tensor *x = NULL;
    tsr_model_file *file = NULL;
    CHECK(mkdtemp(folder), "no folder");
    snprintf(path, sizeof path, "%s/t.gguf", folder);
    OK(tsr_model_file_open(from, &file));
    OK(tsr_model_convert(
        file, path, tsr_convert_params(.dtype = TSR_Q8_0, .weights_only = true, .replace = true),
        NULL));
    tsr_model_file_close(&file);
    OK(tsr_tensor_create(gpu, TSR_I32, 2, (int64_t[]){1, LENGTH}, &x));
    OK(tsr_tensor_upload(queue, x, ids, sizeof ids));
    for (int i = 0; i < 2; i++) {
        tsr_model *model = NULL;
        tsr_lora *lora = NULL;
        tsr_tensor *hidden = NULL, *logits = NULL;
        OK(open_model(path, tsr_model_params(.group = group, .dtype = i == 0 ? 0 : TSR_F32),
                      &model));
        tsr_stack *stack = tsr_model_stack(model);
        OK(tsr_stack_forward(stack, x, NULL, NULL, &hidden));
        OK(tsr_stack_head_forward(stack, hidden, NULL, &logits));
        OK(tsr_stack_gather_logits(stack, logits, got[i]));
        tsr_tensor_destroy(&hidden);
        tsr_tensor_destroy(&logits);
        if (i == 0)
            FAILS(tsr_lora_create(tsr_lora_params(.stack = stack), &lora), TSR_ERR_UNSUPPORTED,
                  "lora: model.layers.0.linear_attn.in_proj_qkv.weight cannot have an adapter, "
                  "because the model keeps blocks of its GGUF file in which heads are in another "
                  "order; a dtype or a folder helps");
        tsr_model_close(&model);
    }
    double worst = 0;
    for (int i = 0; i < LOGITS; i++)
        worst = fmax(worst, fabs((double)got[0][i] - (double)got[1][i]));
    CHECK(worst <= 1e-3, "a logit differs by %g", worst);
    tsr_tensor_destroy(&x);
    remove(path);
    rmdir(folder);
}

CASE(golden_delta_nets, "golden: families with delta nets or keys of other layers, without a cache")
{
    if (ranks == 1)
        check_tiles();
    const tsr_model_params *params = tsr_model_params(.group = group, .dtype = TSR_F32);
    check_passes("families/qwen3next/hf", "families/qwen3next/gen_qwen3next-f16", params);
    check_passes("families/gemma4/gemma4-f16.gguf", "families/gemma4/gen_gemma4-f16", params);
}

/* Prompts that are computed in one pass ------------------------------------------------------- */

/* Computes a prompt that consists of a recorded prompt and its text, and compares logits and,
 * unless the cache has blocks, the most likely tokens at all positions of the text. Returns the
 * largest error of a logit. */
static double check_prompt(const char *file, const json_t *one, tsr_model *model, int64_t prefill,
                           tsr_dtype cached)
{
    int64_t start, count;
    int sequence;
    int32_t *prompt = ids_of(list_of(one, "prompt_ids"), &start);
    int32_t *text = ids_of(list_of(one, "generated_ids"), &count);
    const int64_t compared = comparable(one, count), length = start + compared;
    int32_t *ids = realloc(prompt, (size_t)length * sizeof *ids);
    tsr_generated tokens[1];
    tsr_generator *generator = NULL;
    recording r = {.positions = length, .vocabulary = tsr_model_get_config(model)->vocabulary};
    r.logits[0] = calloc((size_t)(length * r.vocabulary), sizeof(float));
    CHECK(ids && r.logits[0], "no memory");
    memcpy(ids + start, text, (size_t)compared * sizeof *ids);
    OK(tsr_generator_create(tsr_generator_params(.model = model, .context = 128, .prefill = prefill,
                                                 .cache_dtype = cached, .logits = record,
                                                 .user = &r, .logits_positions = length),
                            &generator));
    OK(tsr_generator_add(
        generator, tsr_sequence_params(.prompt = ids, .prompt_count = length, .max_tokens = 1),
        &sequence));
    int produced = 0;
    OK(step_tokens(generator, tokens, &produced));
    for (int64_t i = 0; i < compared && !tsr_quant_format_of(cached); i++) {
        const float *logits = r.logits[0] + (start - 1 + i) * r.vocabulary;
        int64_t best = 0;
        for (int64_t v = 1; v < r.vocabulary; v++)
            best = logits[v] > logits[best] ? v : best;
        CHECK(best == text[i], "%s: token %d is %d, not %d", file, (int)i, (int)best, (int)text[i]);
    }
    int64_t numbers_there;
    double worst = 0, *want = decode(json_object_get(one, "logits_exact"), &numbers_there);
    for (int64_t i = 0; i < numbers_there; i++)
        worst = fmax(worst, fabs((double)r.logits[0][i] - want[i]));
    free(want);
    free(r.logits[0]);
    free(ids);
    free(text);
    tsr_generator_destroy(&generator);
    return worst;
}

/* On GPUs with matrix units, prompts of at least 32 tokens use them (tsr_precision). */
CASE(golden_prompts, "golden: prompts in one pass")
{
    static const struct {
        const char *name;
        double medium; /* the largest allowed error with TSR_PRECISION_MEDIUM */
    } files[] = {{"stories260K-f16", 0.03},     {"stories260K-bf16", 0.3},
                 {"stories260K-f32", 0.03},     {"stories260K-q4_0mix", 0.03},
                 {"stories260K-q8_0mix", 0.03}, {"synth-A-q4_k_m", 0.03}};
    static const tsr_precision precisions[] = {TSR_PRECISION_DEFAULT, TSR_PRECISION_HIGHEST,
                                               TSR_PRECISION_HIGH, TSR_PRECISION_MEDIUM};

    for (size_t p = 0; p < sizeof precisions / sizeof *precisions; p++) {
        tsr_group *precise = NULL;
        OK(tsr_group_create(world, queue, tsr_group_params(.precision = precisions[p]), &precise));
        /* all with the default, and each other precision with every third */
        for (size_t f = p == 0 ? 0 : p - 1; f < sizeof files / sizeof *files; f += p == 0 ? 1 : 3) {
            char path[64];
            snprintf(path, sizeof path, "%s.gguf", files[f].name);
            char golden[64], full[512];
            snprintf(golden, sizeof golden, "gen_%s", files[f].name);
            snprintf(full, sizeof full, "%s/model/%s", TEST_DATA, path);
            json_t *document = load(golden);
            const json_t *list = list_of(document, "cases"), *one;
            tsr_model *model = NULL;
            OK(open_model(full, tsr_model_params(.group = precise), &model));
            size_t number;
            double worst = 0;
            json_array_foreach(list, number, one) worst =
                fmax(worst, check_prompt(path, one, model, 128, 0));
            const double allowed =
                precisions[p] == TSR_PRECISION_MEDIUM ? files[f].medium : TOLERANCE;
            printf("# %s, precision %d: largest error of a logit %.2g\n", path, (int)precisions[p],
                   worst);
            CHECK(worst <= allowed, "%s, precision %d: a logit differs by %g", path,
                  (int)precisions[p], worst);
            tsr_model_close(&model);
            json_decref(document);
        }
        tsr_group_destroy(&precise);
    }
}

/* Logits with a cache of blocks, in passes of few tokens and in one pass, against recorded ones, of
 * which the largest are 17 and 11. The weights of the first model are random, and its logits depend
 * so much on its keys that they differ by 0.01 with a cache in f16. */
CASE(golden_cached_blocks, "golden: keys and values in blocks")
{
    static const struct {
        const char *file, *golden;
        double allowed[2]; /* with q8_0 and q4_0; 0: not checked */
    } files[] = {{"synth-A-f16.gguf", "gen_synth-A-f32", {1, 8}},
                 {"families/qwen3next/hf", "families/qwen3next/gen_qwen3next-f16", {0.05, 0}}};
    static const tsr_dtype dtypes[] = {TSR_Q8_0, TSR_Q4_0};
    static const int64_t prefill[] = {3, 128};
    for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
        char path[512];
        json_t *document = load(files[f].golden);
        const json_t *list = list_of(document, "cases"), *one;
        tsr_model *model = NULL;
        size_t number;
        snprintf(path, sizeof path, "%s/model/%s", TEST_DATA, files[f].file);
        OK(open_model(path,
                      tsr_model_params(.group = group, .dtype = TSR_F32, .context = 128,
                                       .cache_dtype = TSR_Q8_0),
                      &model));
        for (int d = 0; d < 2 && files[f].allowed[d] > 0; d++) {
            if (ranks > 1 && f == 0 && d == 0) /* the other file has this dtype on several ranks */
                continue;
            double worst = 0;
            json_array_foreach(list, number, one) worst =
                fmax(worst, check_prompt(path, one, model, prefill[d], dtypes[d]));
            printf("# %s, cache in %s: largest error of a logit %.2g\n", files[f].file,
                   tsr_dtype_name(dtypes[d]), worst);
            CHECK(worst <= files[f].allowed[d], "%s, cache in %s: a logit differs by %g",
                  files[f].file, tsr_dtype_name(dtypes[d]), worst);
        }
        tsr_model_close(&model);
        json_decref(document);
    }
    tsr_model *model = NULL;
    FAILS(open_model(TEST_DATA "/model/stories260K-f16.gguf",
                     tsr_model_params(.group = group, .context = 8, .cache_dtype = TSR_Q8_0),
                     &model),
          TSR_ERR_INVALID,
          "model: the cache cannot be q8_0, which has blocks of 32 features: the keys of a head of "
          "layer 0 have 8 features, and its values 8");
}

CASE(golden_hf, "golden: a Hugging Face folder")
{
    check_file("stories260K-hf", "stories260K-f32", (tsr_dtype)0, group);
}

CASE(golden_gguf_floats, "golden: GGUF in f32, f16 and bf16")
{
    check_file("stories260K-f32.gguf", "stories260K-f32", (tsr_dtype)0, group);
    check_file("stories260K-f16.gguf", "stories260K-f16", (tsr_dtype)0, group);
    check_file("stories260K-bf16.gguf", "stories260K-bf16", (tsr_dtype)0, group);
    check_file("synth-A-f16.gguf", "synth-A-f32", TSR_F32, group);
}

CASE(golden_gguf_quantised, "golden: quantised GGUF")
{
    check_file("stories260K-q4_0mix.gguf", "stories260K-q4_0mix", (tsr_dtype)0, group);
    check_file("stories260K-q4_k_m.gguf", "stories260K-q4_k_m", (tsr_dtype)0, group);
    check_file("stories260K-q8_0mix.gguf", "stories260K-q8_0mix", (tsr_dtype)0, group);
    check_file("synth-A-q4_k_m.gguf", "synth-A-q4_k_m", (tsr_dtype)0, group);
    check_file("synth-A-q5_k_m.gguf", "synth-A-q5_k_m", (tsr_dtype)0, group);
}

CASE(golden_gguf_dequantised, "golden: quantised GGUF, dequantised")
{
    check_file("stories260K-q4_0mix.gguf", "stories260K-q4_0mix", TSR_F32, group);
    check_file("synth-A-q5_k_m.gguf", "synth-A-q5_k_m", TSR_F32, group);
}

CASE(golden_staged, "golden: collectives through host memory")
{
    check_file("stories260K-hf", "stories260K-f32", (tsr_dtype)0, staged);
}

/* Families ----------------------------------------------------------------------------------- */

/* `gguf` is the type in the name of the GGUF file and its recording, `hf` the same for the folder;
 * NULL: there is no such file. Rows with `elsewhere` are checked only if TEST_FAMILIES names them,
 * because their files are not here. */
static const struct family {
    const char *name, *gguf, *hf;
    bool elsewhere;
} families[] = {
    {"smollm3", "f16", "f16", false},      {"granite", "f16", "f16", false},
    {"olmo2", "f16", "f16", false},        {"olmo3", "f16", "f16", false},
    {"gemma2", "f16", "f16", false},       {"gemma3", "f16", "f16", false},
    {"phi3", "f16", "f16", false},         {"phi3short", "f16", "f16", false},
    {"ministral3", "f16", "f16", false},   {"gptoss", NULL, "hf", false},
    {"qwen2moe", NULL, "f16", false},      {"qwen2moe", "f16", NULL, true},
    {"glm4moe", "f16", NULL, false},       {"glm4moe", NULL, "f16", true},
    {"qwen3moe", "f16", "f16", true},      {"qwen3moe", "q8_0", NULL, false},
    {"gptoss", "mxfp4", NULL, true},       {"qwen3moe_k", "q4_k_m", NULL, true},
    {"mixtral", "f16", NULL, false},       {"mixtral", NULL, "f16", true},
    {"granitemoe", "f16", "f16", true},    {"minimaxm2", "f16", "f16", true},
    {"qwen3next", NULL, "f16", false},     {"qwen35moe", "f16", NULL, false},
    {"qwen3next", "f16", NULL, true},      {"qwen35moe", NULL, "f16", true},
    {"qwen35", "f16", "f16", true},        {"deepseek2", "f16", "f16", false},
    {"deepseek2lite", "f16", "f16", true}, {"gemma4", "f16", NULL, false},
    {"gemma4moe", NULL, "f16", false},     {"gemma4", NULL, "f16", true},
    {"gemma4moe", "f16", NULL, true},      {"lfm2moe", NULL, "f16", false},
    {"lfm2moe", "f16", NULL, true},        {"lfm2", "f16", "f16", true},
};
enum { FAMILIES = sizeof families / sizeof *families };

enum { FOLDER = 1, GGUF = 2 };

/* Checks a family's Hugging Face folder, its GGUF file, or both. The context decides about the
 * factors of LongRoPE. */
static void check_family(const struct family *family, int which, const manner *how)
{
    char file[128], golden[128];
    const char *wanted = getenv("TEST_FAMILIES"), *name = family->name;
    manner with_context = *how;
    if (wanted ? !strstr(wanted, name) : family->elsewhere)
        return;
    with_context.model.context = 128;
    if (family->hf && which & FOLDER) {
        snprintf(file, sizeof file, "families/%s/hf", name);
        snprintf(golden, sizeof golden, "families/%s/gen_%s-%s", name, name, family->hf);
        check_manner(file, golden, &with_context);
    }
    if (!family->gguf || !(which & GGUF))
        return;
    snprintf(file, sizeof file, "families/%s/%s-%s.gguf", name, name, family->gguf);
    snprintf(golden, sizeof golden, "families/%s/gen_%s-%s", name, name, family->gguf);
    check_manner(file, golden, &with_context);
}

/* A case reads one of a family's two files, and the case with the other turn the other one. */
static int files_of(int family, int turn)
{
    return (family + turn) % 2 ? FOLDER : GGUF;
}

static bool has_experts(const struct family *family)
{
    return strstr(family->name, "moe") || strstr(family->name, "gptoss") ||
           strstr(family->name, "mixtral") || strstr(family->name, "minimax") ||
           strstr(family->name, "next") || strstr(family->name, "deepseek");
}

/* Experts of every second family are in the host's memory. */
CASE(golden_families, "golden: folders and GGUF files of families")
{
    for (int i = 0; i < FAMILIES; i++)
        check_family(
            &families[i], files_of(i, 0),
            &(manner){.model = *tsr_model_params(.group = group, .dtype = TSR_F32,
                                                 .host_experts =
                                                     i % 2 && has_experts(&families[i]) ? 100 : 0),
                      .prefill = i % 2 ? 7 : 64});
}

/* On three ranks and more, the families whose layers are divided in ways of their own. */
CASE(golden_families_rates,
     "golden: Hugging Face folders of families, by rates and in the other pieces")
{
    static const char divided[] = "olmo2 gemma3 phi3 qwen2moe qwen3moe qwen3next deepseek2 gemma4";
    double rates[64];
    for (int r = 0; r < ranks; r++)
        rates[r] = r + 1;
    const tsr_partition_params weighted = {
        .struct_size = sizeof weighted, .kind = TSR_PARTITION_WEIGHTED, .rates = rates};
    for (int i = 0; i < FAMILIES; i++)
        if (ranks < 3 || strstr(divided, families[i].name))
            check_family(
                &families[i], files_of(i, 1),
                &(manner){.model = *tsr_model_params(.group = group, .partition = &weighted),
                          .prefill = i % 2 ? 64 : 7});
}

/* By these rates, one rank has no expert of any layer. The families differ in what the experts have
 * beside them, and in how tokens choose them. */
CASE(golden_whole_experts, "golden: folders and GGUF files of families, with whole experts")
{
    double rates[64];
    for (int r = 0; r < ranks; r++)
        rates[r] = r == 1 ? 0 : r + 1;
    const tsr_partition_params weighted = {
        .struct_size = sizeof weighted, .kind = TSR_PARTITION_WEIGHTED, .rates = rates};
    for (int i = 0; i < FAMILIES && ranks > 1; i++)
        if (has_experts(&families[i]) &&
            strstr("gptoss qwen2moe qwen3moe gemma4moe deepseek2", families[i].name))
            check_family(
                &families[i], families[i].gguf ? GGUF : FOLDER,
                &(manner){.model = *tsr_model_params(.group = group, .partition = &weighted,
                                                     .expert_division = TSR_EXPERT_DIVISION_WHOLE),
                          .prefill = 7});
}

static void keep_message(void *user, tsr_log_level level, const char *message)
{
    (void)level;
    if (strncmp(message, "model: experts", 14) == 0)
        snprintf(user, 256, "%s", message);
}

/* Experts of 4 blocks are mixed over hosts if the caller does not say how they are divided: they
 * have too few blocks for three ranks, and whole experts would be more unequal. */
static void check_choice(const tsr_partition_params *by, const int *hosts)
{
    static const tsr_rope_params rope = {.struct_size = sizeof rope, .rotary_dim = 16};
    static const tsr_model_experts experts = {
        .struct_size = sizeof experts, .count = 8, .used = 3, .hidden = 128};
    static const tsr_model_layer layer = {.struct_size = sizeof layer,
                                          .heads = 4,
                                          .kv_heads = 4,
                                          .head_dim = 16,
                                          .rope = &rope,
                                          .qk_norm = TSR_QK_NORM_HEADS,
                                          .gated = true,
                                          .activation = TSR_ACT_SILU,
                                          .experts = &experts};
    const tsr_model_config config = {.struct_size = sizeof config,
                                     .architecture = "qwen3_moe",
                                     .layers = 1,
                                     .width = 64,
                                     .vocabulary = 32,
                                     .context = 16,
                                     .norm_epsilon = 1e-5,
                                     .norm = TSR_NORM_RMS,
                                     .bos = -1,
                                     .kind_count = 1,
                                     .kinds = (const tsr_model_layer *const[]){&layer}};
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    tsr_model_rank_plan planned[3];
    char message[256] = "";
    for (int r = 0; r < 3; r++)
        planned[r] = TSR_INIT(tsr_model_rank_plan);
    OK(tsr_model_file_open_random(&config, TSR_Q8_0, 1, &file));
    OK(tsr_model_plan(file, tsr_model_plan_params(.ranks = 3, .partition = by, .hosts = hosts),
                      NULL, planned, NULL));
    tsr_log_set(keep_message, message, TSR_LOG_INFO);
    OK(tsr_model_open(file, tsr_model_params(.group = group, .partition = by, .hosts = hosts),
                      &model));
    tsr_log_set(NULL, NULL, TSR_LOG_INFO);
    OK(tsr_model_get_stats(model, &stats));
    CHECK(planned[my_rank].expert_division == TSR_EXPERT_DIVISION_MIXED &&
              stats.weight_bytes == planned[my_rank].weight_bytes,
          "division %d, %llu bytes instead of %llu", (int)planned[my_rank].expert_division,
          (unsigned long long)stats.weight_bytes,
          (unsigned long long)planned[my_rank].weight_bytes);
    CHECK(my_rank > 0 || strstr(message, "stage 0 are divided mixed (chosen); the slowest rank"),
          "'%s'", message);
    tsr_model_close(&model);
    tsr_model_file_close(&file);
}

/* Hosts have whole experts, and their ranks parts of these. The first rank is the only one of its
 * host, which has more experts by its rate. */
CASE(golden_mixed_experts, "golden: gpt-oss and Mixtral, with experts mixed over hosts")
{
    double rates[64];
    int hosts[64];
    for (int r = 0; r < ranks; r++) {
        rates[r] = r == 0 ? ranks : 1;
        hosts[r] = r > 0;
    }
    const tsr_partition_params weighted = {
        .struct_size = sizeof weighted, .kind = TSR_PARTITION_WEIGHTED, .rates = rates};
    for (int i = 0; i < FAMILIES && ranks > 2; i++)
        if (strcmp(families[i].name, "gptoss") == 0 || strcmp(families[i].name, "mixtral") == 0)
            check_family(
                &families[i], FOLDER | GGUF,
                &(manner){.model = *tsr_model_params(.group = group, .partition = &weighted,
                                                     .hosts = hosts,
                                                     .expert_division = TSR_EXPERT_DIVISION_MIXED),
                          .prefill = 64});
    if (ranks == 3)
        check_choice(&weighted, hosts);
}

/* Ranks of two drivers in the mixed job; one rank has no expert of any layer. */
CASE(golden_three, "golden: gpt-oss and Qwen 3 on three ranks, with whole experts")
{
    const double rates[3] = {2, 0, 1};
    const tsr_partition_params weighted = {
        .struct_size = sizeof weighted, .kind = TSR_PARTITION_WEIGHTED, .rates = rates};
    if (ranks != 3) {
        case_skip("%d ranks", ranks);
        return;
    }
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i].name, "gptoss") == 0 || strcmp(families[i].name, "qwen3moe") == 0)
            check_family(
                &families[i], FOLDER | GGUF,
                &(manner){.model = *tsr_model_params(.group = group, .partition = &weighted,
                                                     .expert_division = TSR_EXPERT_DIVISION_WHOLE),
                          .prefill = 64});
}

CASE(golden_families_stages, "stages: folders and GGUF files of families on two stages")
{
    tsr_comm *row = NULL, *stages = NULL;
    tsr_group *stage = NULL;
    if (ranks % 2 != 0) {
        case_skip("%d ranks", ranks);
        return;
    }
    const int each = ranks / 2;
    OK(tsr_comm_split(world, my_rank / each, my_rank, &row));
    OK(tsr_comm_split(world, my_rank % each, my_rank, &stages));
    OK(tsr_group_create(row, queue, NULL, &stage));
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i].name, "gemma4") != 0)
            check_family(
                &families[i], files_of(i, 0),
                &(manner){.model =
                              *tsr_model_params(.group = stage, .stages = stages, .dtype = TSR_F32,
                                                .host_experts = has_experts(&families[i]) ? 2 : 0),
                          .prefill = 7});
    tsr_model *model = NULL;
    FAILS(open_model(TEST_DATA "/model/families/gemma4/gemma4-f16.gguf",
                     tsr_model_params(.group = stage, .stages = stages), &model),
          TSR_ERR_INVALID,
          "model: 2 stages; layers of this model have inputs of their own, which need the tokens, "
          "and cannot be divided into stages");
    tsr_group_destroy(&stage);
    tsr_comm_destroy(&row);
    tsr_comm_destroy(&stages);
}

CASE(golden_longer, "golden: a generator whose context is longer than that of the model")
{
    char path[512];
    tsr_model *model = NULL;
    tsr_generator *generator = NULL;
    snprintf(path, sizeof path, "%s/model/families/phi3/hf", TEST_DATA);
    OK(open_model(path, tsr_model_params(.group = group, .context = 32), &model));
    FAILS(tsr_generator_create(tsr_generator_params(.model = model, .context = 33), &generator),
          TSR_ERR_INVALID,
          "generator: context is 33, but the model was opened for 32, and its rotary positions "
          "differ beyond 32");
    OK(tsr_generator_create(tsr_generator_params(.model = model, .context = 32), &generator));
    tsr_generator_destroy(&generator);
    tsr_model_close(&model);
}
