/* Tests models with random weights: the weights must be the same for any number of ranks, and in
 * every type except for rounding. Also tests the sizes of models, and mistakes. */
#include "base/fault.h"
#include "model/open.h"
#include "parallel/spmd.h"

enum { TOKENS = 6, VOCABULARY = 96, LAYERS = 2, WIDTH = 64, HIDDEN = 96, SEED = 7 };

static const flat_config llama = {
    .architecture = "llama",
    .layers = LAYERS,
    .width = WIDTH,
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 16,
    .hidden = HIDDEN,
    .vocabulary = VOCABULARY,
    .context = 32,
    .norm_epsilon = 1e-5,
    .norm = TSR_NORM_RMS,
    .gated = true,
    .activation = TSR_ACT_SILU,
    .rope = {.rotary_dim = 16},
    .bos = -1,
};

/* Returns a configuration whose files have q, k and v in one tensor, and matrices as [in, out]. */
static flat_config gpt2(void)
{
    flat_config config = llama;
    config.architecture = "gpt2";
    config.kv_heads = config.heads;
    config.norm = TSR_NORM_LAYER;
    config.norm_bias = config.qkv_bias = config.output_bias = config.mlp_bias = true;
    config.gated = false;
    config.activation = TSR_ACT_GELU_TANH;
    config.learned_positions = true;
    config.tied = true;
    return config;
}

static void record(void *user, int sequence, int64_t position, const float *logits)
{
    float *all = user;
    CHECK(sequence == 0 && position < TOKENS, "logits of position %d", (int)position);
    memcpy(all + position * VOCABULARY, logits, VOCABULARY * sizeof *logits);
}

static void compute(tsr_model *model, float logits[TOKENS * VOCABULARY])
{
    const int32_t ids[TOKENS] = {3, 1, 4, 1, 5, 9};
    tsr_generator *generator = NULL;
    tsr_generated token;
    int sequence, count;
    OK(tsr_generator_create(tsr_generator_params(.model = model, .logits = record, .user = logits,
                                                 .logits_positions = TOKENS),
                            &generator));
    OK(tsr_generator_add(generator, tsr_sequence_params(.prompt = ids, .prompt_count = TOKENS),
                         &sequence));
    OK(step_tokens(generator, &token, &count));
    tsr_generator_destroy(&generator);
}

static void logits_of(const flat_config *config, tsr_dtype dtype, uint64_t seed, tsr_group *by,
                      float logits[TOKENS * VOCABULARY])
{
    tsr_model *model = NULL;
    OK(create_random(config, dtype, seed, tsr_model_params(.group = by, .dtype = TSR_F32), &model));
    compute(model, logits);
    tsr_model_close(&model);
}

static double distance(const float *a, const float *b)
{
    double most = 0;
    for (int i = 0; i < TOKENS * VOCABULARY; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

static void check_logits(const float *logits)
{
    double sum = 0, squares = 0;
    const int count = TOKENS * VOCABULARY;
    for (int i = 0; i < count; i++) {
        CHECK(isfinite(logits[i]), "logit %d is %g", i, (double)logits[i]);
        sum += (double)logits[i];
        squares += (double)logits[i] * (double)logits[i];
    }
    /* Logits must have a deviation of about 1, because the norm of a row of the output matrix is
     * about 1, and so are the features. */
    const double deviation = sqrt(squares / count - sum / count * sum / count);
    CHECK(deviation > 0.5 && deviation < 2, "logits have a standard deviation of %g", deviation);
}

CASE(ranks_agree, "random models: weights do not depend on the number of ranks")
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_Q8_0, TSR_Q4_0};
    static float together[TOKENS * VOCABULARY], alone[TOKENS * VOCABULARY],
        exact[TOKENS * VOCABULARY];
    tsr_group *own = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &own));
    logits_of(&llama, TSR_F32, SEED, own, exact);
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        logits_of(&llama, dtypes[d], SEED, group, together);
        logits_of(&llama, dtypes[d], SEED, own, alone);
        check_logits(alone);
        CHECK(distance(together, alone) < 1e-4, "%s: logits differ by %g",
              tsr_dtype_name(dtypes[d]), distance(together, alone));
        /* In another type, the model must have the same values, except for rounding. */
        const double most = dtypes[d] == TSR_Q4_0 ? 2 : 0.2;
        CHECK(distance(alone, exact) < most, "%s: logits differ by %g from those in f32",
              tsr_dtype_name(dtypes[d]), distance(alone, exact));
    }
    tsr_group_destroy(&own);
}

CASE(seeds, "random models: seeds differ, and equal seeds do not")
{
    static float first[TOKENS * VOCABULARY], same[TOKENS * VOCABULARY], other[TOKENS * VOCABULARY];
    logits_of(&llama, TSR_F16, SEED, group, first);
    logits_of(&llama, TSR_F16, SEED, group, same);
    logits_of(&llama, TSR_F16, SEED + 1, group, other);
    CHECK(memcmp(first, same, sizeof first) == 0, "logits of equal seeds differ by %g",
          distance(first, same));
    CHECK(distance(first, other) > 0.5, "logits of other seeds differ by %g only",
          distance(first, other));
}

CASE(fused, "random models: GPT-2, whose files join q, k and v")
{
    static float together[TOKENS * VOCABULARY], alone[TOKENS * VOCABULARY];
    const flat_config config = gpt2();
    tsr_group *own = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &own));
    logits_of(&config, TSR_F32, SEED, group, together);
    logits_of(&config, TSR_F32, SEED, own, alone);
    for (int i = 0; i < TOKENS * VOCABULARY; i++)
        CHECK(isfinite(alone[i]), "logit %d is %g", i, (double)alone[i]);
    CHECK(distance(together, alone) < 1e-4, "logits differ by %g", distance(together, alone));
    tsr_group_destroy(&own);
}

/* Layers of three kinds: heads, kv heads, their size, hidden features, rotary positions, window and
 * norms of q and k differ. */
static tsr_status open_kinds(const tsr_model_params *params, tsr_model_file **file,
                             tsr_model **model)
{
    static const tsr_rope_params wide = {.struct_size = sizeof wide, .rotary_dim = 32},
                                 narrow = {
                                     .struct_size = sizeof narrow, .rotary_dim = 8, .theta = 100};
    const tsr_model_layer usual = {.struct_size = sizeof usual,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 32,
                                   .hidden = HIDDEN,
                                   .rope = &wide,
                                   .gated = true,
                                   .activation = TSR_ACT_SILU};
    tsr_model_layer small = usual, plain = usual;
    small.heads = small.kv_heads = 6;
    small.head_dim = 16;
    small.hidden = 64;
    small.rope = &narrow;
    small.window = 3;
    plain.kv_heads = 1;
    plain.rope = NULL;
    plain.qk_norm = TSR_QK_NORM_HEADS;
    const tsr_model_config config = {.struct_size = sizeof config,
                                     .architecture = "qwen3",
                                     .layers = 5,
                                     .width = WIDTH,
                                     .vocabulary = VOCABULARY,
                                     .context = 32,
                                     .norm_epsilon = 1e-5,
                                     .norm = TSR_NORM_RMS,
                                     .bos = -1,
                                     .kind_count = 3,
                                     .kinds =
                                         (const tsr_model_layer *const[]){&usual, &small, &plain},
                                     .layer_kinds = (const uint16_t[]){0, 1, 2, 1, 0}};
    OK(tsr_model_file_open_random(&config, TSR_F32, SEED, file));
    return tsr_model_open(*file, params, model);
}

/* Computes the logits in passes of `prefill` tokens. */
static void compute_kinds(const tsr_model_params *params, int64_t prefill,
                          float logits[TOKENS * VOCABULARY])
{
    const int32_t ids[TOKENS] = {3, 1, 4, 1, 5, 9};
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    tsr_generator *generator = NULL;
    tsr_generated token;
    int sequence, count;
    OK(open_kinds(params, &file, &model));
    OK(tsr_generator_create(tsr_generator_params(.model = model, .logits = record, .user = logits,
                                                 .prefill = prefill, .logits_positions = TOKENS),
                            &generator));
    OK(tsr_generator_add(generator, tsr_sequence_params(.prompt = ids, .prompt_count = TOKENS),
                         &sequence));
    OK(step_tokens(generator, &token, &count));
    tsr_generator_destroy(&generator);
    tsr_model_close(&model);
    tsr_model_file_close(&file);
}

CASE(kinds, "random models: weights and plans of layers that differ in size")
{
    static float together[TOKENS * VOCABULARY], alone[TOKENS * VOCABULARY],
        pieces[TOKENS * VOCABULARY];
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_Q8_0};
    double rates[64];
    tsr_group *own = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &own));
    for (int r = 0; r < ranks; r++)
        rates[r] = r + 1;
    const tsr_partition_params weighted = {
        .struct_size = sizeof weighted, .kind = TSR_PARTITION_WEIGHTED, .rates = rates};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        if (ranks > 1 && dtypes[d] == TSR_F16) /* is divided like f32 */
            continue;
        const tsr_model_params *by = tsr_model_params(.group = group, .dtype = dtypes[d],
                                                      .partition = d == 0 ? &weighted : NULL);
        tsr_model_file *file = NULL;
        tsr_model *model = NULL;
        tsr_model_rank_plan planned[64];
        tsr_model_stats stats = TSR_INIT(tsr_model_stats);
        compute_kinds(tsr_model_params(.group = own, .dtype = dtypes[d]), TOKENS, alone);
        if (ranks == 1)
            compute_kinds(tsr_model_params(.group = own, .dtype = dtypes[d]), 2, pieces);
        compute_kinds(by, TOKENS, together);
        check_logits(alone);
        CHECK(ranks > 1 || distance(pieces, alone) < 1e-4, "in pieces, logits differ by %g",
              distance(pieces, alone));
        /* Ranks keep matrices in floats whose blocks they cannot divide. */
        CHECK(distance(together, alone) < (dtypes[d] == TSR_Q8_0 ? 0.1 : 2e-4),
              "%s: logits differ by %g", tsr_dtype_name(dtypes[d]), distance(together, alone));
        OK(open_kinds(by, &file, &model));
        OK(tsr_model_get_stats(model, &stats));
        for (int r = 0; r < ranks; r++)
            planned[r] = TSR_INIT(tsr_model_rank_plan);
        OK(tsr_model_plan(
            file,
            tsr_model_plan_params(.ranks = ranks, .dtype = dtypes[d], .partition = by->partition),
            NULL, planned, NULL));
        CHECK(planned[my_rank].weight_bytes == stats.weight_bytes,
              "%d bytes were planned, %d are held", (int)planned[my_rank].weight_bytes,
              (int)stats.weight_bytes);
        CHECK(planned[my_rank].heads == stats.heads && planned[my_rank].kv_heads == stats.kv_heads,
              "%d heads, %d kv heads", (int)stats.heads, (int)stats.kv_heads);
        uint64_t cache = 0; /* of a token on all ranks, which may share kv heads */
        for (int r = 0; r < ranks; r++)
            cache += planned[r].cache_bytes;
        CHECK(cache >= 2 * 4 * 32 * (2 * 2 * 32 + 2 * 6 * 16 + 1 * 32), "a cache of %d bytes",
              (int)cache);
        CHECK(ranks > 1 || cache == 2 * 4 * 32 * (2 * 2 * 32 + 2 * 6 * 16 + 1 * 32),
              "a cache of %d bytes", (int)cache);
        tsr_model_close(&model);
        tsr_model_file_close(&file);
    }
    tsr_group_destroy(&own);
}

CASE(sizes, "random models: parameters, bytes and tables")
{
    tsr_model *model = NULL;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    const uint64_t table = VOCABULARY * WIDTH,
                   layer = 2 * WIDTH * WIDTH + 2 * 32 * WIDTH + 3 * HIDDEN * WIDTH + 2 * WIDTH;
    OK(create_random(&llama, TSR_F16, SEED, tsr_model_params(.group = group), &model));
    OK(tsr_model_get_stats(model, &stats));
    CHECK(stats.dtype == TSR_F16, "%s", tsr_dtype_name(stats.dtype));
    CHECK(strcmp(tsr_model_get_config(model)->architecture, "llama") == 0, "another architecture");
    CHECK(stats.parameters == 2 * table + WIDTH + LAYERS * layer, "%d parameters",
          (int)stats.parameters);
    /* Here the output matrix is separate from the embedding. The embedding is a table: a token
     * reads only one of its rows. */
    if (ranks == 1)
        CHECK(stats.table_bytes == 2 * table, "tables of %d bytes", (int)stats.table_bytes);
    CHECK(stats.table_bytes > 0 && stats.table_bytes < stats.weight_bytes, "tables of %d bytes",
          (int)stats.table_bytes);
    tsr_model_close(&model);
    flat_config tied = llama;
    tied.tied = true;
    OK(create_random(&tied, TSR_F16, SEED, tsr_model_params(.group = group), &model));
    OK(tsr_model_get_stats(model, &stats));
    CHECK(stats.table_bytes == 0, "tables of %d bytes", (int)stats.table_bytes);
    tsr_model_close(&model);
}

#define REFUSED(status, text, dtype, ...)                                                          \
    do {                                                                                           \
        flat_config changed = llama;                                                               \
        __VA_ARGS__;                                                                               \
        FAILS(create_random(&changed, dtype, SEED, tsr_model_params(.group = group), &model),      \
              status, text);                                                                       \
        CHECK(!model, "there is a model");                                                         \
    } while (0)

CASE(refused, "random models: mistakes")
{
    tsr_model *model = NULL;
    FAILS(create_random(NULL, TSR_F32, SEED, NULL, &model), TSR_ERR_INVALID,
          "model: config is NULL");
    FAILS(create_random(&llama, TSR_F32, SEED, NULL, NULL), TSR_ERR_INVALID, "model: out is NULL");
    REFUSED(TSR_ERR_INVALID, "model: architecture is bert; known are " MODEL_FAMILIES, TSR_F32,
            changed.architecture = "bert");
    REFUSED(TSR_ERR_INVALID, "model: architecture is NULL; known are " MODEL_FAMILIES, TSR_F32,
            changed.architecture = NULL);
    REFUSED(TSR_ERR_INVALID, "model: dtype i32 is neither f32, f16, bf16 nor a block format",
            TSR_I32, (void)changed);
    REFUSED(TSR_ERR_INVALID, "model: configuration: number of layers is 0; 1 to 1024 is possible",
            TSR_F32, changed.layers = 0);
    REFUSED(TSR_ERR_INVALID, "model: configuration: 4 heads do not divide over 3 kv heads", TSR_F32,
            changed.kv_heads = 3);
    REFUSED(TSR_ERR_INVALID, "model: configuration: end_count is 17; 0 to 16 is possible", TSR_F32,
            changed.end_count = 17);
    REFUSED(TSR_ERR_INVALID, "model: architecture llama has no positions.weight", TSR_F32,
            changed.learned_positions = true);
    REFUSED(TSR_ERR_INVALID,
            "model: tensor model.layers.0.mlp.down_proj.weight has 80 columns, which are not "
            "whole blocks of q8_0's 32 elements",
            TSR_Q8_0, changed.hidden = 80);
    flat_config large = llama; /* its cache would have 2^64 bytes */
    large.layers = 8;
    large.kv_heads = large.heads;
    large.head_dim = 512 / large.heads;
    large.context = TSR_MODEL_MAX_CONTEXT;
    FAILS(create_random(
              &large, TSR_F32, SEED,
              tsr_model_params(.group = group, .context = large.context, .sequences = 524288),
              &model),
          TSR_ERR_OVERFLOW,
          "model: the cache of 524288 sequences of 1073741824 tokens is larger than 2^63 - 1 "
          "bytes");
    const tsr_status status =
        create_random(&llama, TSR_IQ4_NL, SEED, tsr_model_params(.group = group), &model);
    CHECK(status == TSR_ERR_UNSUPPORTED, "%s", tsr_status_name(status));
}

/* Creates a model while the nth allocation fails. Returns whether there was such an allocation. */
static bool fails_at(uint64_t nth)
{
    tsr_model *model = NULL;
    tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
    const tsr_status status = create_random(&llama, TSR_F16, SEED, NULL, &model);
    const bool reached = tsr__fault_site() != NULL;
    tsr__fault_disarm();
    CHECK(reached || status == TSR_OK, "%s", tsr_last_error());
    CHECK((model != NULL) == (status == TSR_OK), "a model, but %s", tsr_status_name(status));
    tsr_model_close(&model);
    return reached;
}

CASE(no_memory, "random models: memory runs out")
{
    if (ranks > 1) {
        case_skip("one rank alone shows the same");
        return;
    }
    for (uint64_t nth = 0; fails_at(nth); nth += 1 + nth / 2)
        ;
}
