/* Tests models of every family with random weights: compares them with a forward pass in double
 * precision, and checks which bytes a rank reads. Also tests files that contradict themselves. */
#include "model/made.h"
#include "model/open.h"
#include "parallel/spmd.h"

enum { TOKENS = 20, SEED = 11 };

static void record(void *user, int sequence, int64_t position, const float *logits)
{
    float *all = user;
    CHECK(sequence == 0 && position < TOKENS, "logits of position %d", (int)position);
    memcpy(all + position * MADE_VOCABULARY, logits, MADE_VOCABULARY * sizeof *logits);
}

static void make_prompt(uint64_t seed, int32_t ids[TOKENS])
{
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (int32_t)((number(seed, i) + 1) / 2 * MADE_VOCABULARY);
}

/* Computes the logits of a prompt in passes of at most 7 tokens. */
static void compute(tsr_model *model, const int32_t *ids, float *logits)
{
    tsr_generator *generator = NULL;
    tsr_generated token;
    int sequence, count;
    OK(tsr_generator_create(tsr_generator_params(.model = model, .prefill = 7, .logits = record,
                                                 .user = logits, .logits_positions = TOKENS),
                            &generator));
    OK(tsr_generator_add(generator, tsr_sequence_params(.prompt = ids, .prompt_count = TOKENS),
                         &sequence));
    OK(step_tokens(generator, &token, &count));
    CHECK(count == 1 && token.position == TOKENS, "%d tokens", count);
    tsr_generator_destroy(&generator);
}

static void check_model(made_model *made, const char *path, const char *what,
                        const tsr_model_params *params)
{
    int32_t ids[TOKENS];
    static double want[TOKENS * MADE_VOCABULARY];
    static float got[TOKENS * MADE_VOCABULARY];
    tsr_model *model = NULL;
    double worst = 0;
    make_prompt(3, ids);
    made_logits(made, TOKENS, ids, want);
    OK(open_model(path, params, &model));
    compute(model, ids, got);
    for (int i = 0; i < TOKENS * MADE_VOCABULARY; i++)
        worst = fmax(worst, fabs((double)got[i] - want[i]));
    CHECK(worst < 1e-4, "%s as %s: a logit differs by %g", made->family.type, what, worst);
    tsr_model_close(&model);
}

CASE(families_hf, "families: Hugging Face folders")
{
    for (int f = 0; f < made_family_count; f++) {
        made_model made;
        made_init(&made, &made_families[f], SEED + (uint64_t)f);
        check_model(&made, made_write_hf(&made), "a folder", tsr_model_params(.group = group));
        made_finish(&made);
    }
}

CASE(families_gguf, "families: GGUF files, in one to three parts")
{
    for (int f = 0; f < made_family_count; f++) {
        made_model made;
        made_family family = made_families[f];
        /* Skips what a format cannot express: GGUF has no parameters for this scaling, and
         * llama.cpp has no window in Qwen 2. */
        if (family.scaling == MADE_LLAMA3)
            family.scaling = MADE_NONE;
        if (strcmp(family.type, "qwen2") == 0)
            family.window = 0;
        made_init(&made, &family, SEED + (uint64_t)f);
        check_model(&made, made_write_gguf(&made, 1 + f % 3), "GGUF", NULL);
        made_finish(&made);
    }
}

/* Rounds the weights as the type q8_0 does. Matrices stay as they are if their rows, or the columns
 * that a rank holds of them, are not whole blocks; so do position embeddings. */
static void round_to_blocks(made_model *made)
{
    const tsr_dtype dtype = TSR_Q8_0;
    const int block = tsr_quant_format_of(dtype)->block_count;
    for (int t = 0; t < made->count; t++) {
        const made_tensor *tensor = &made->tensors[t];
        const bool turned = made->family.transposed && strncmp(tensor->name, "h.", 2) == 0,
                   output = strstr(tensor->name, "o_proj") || strstr(tensor->name, "attn.c_proj");
        const int64_t rows = tensor->shape[turned], columns = tensor->shape[!turned];
        if (tensor->ndim < 2 || columns % block != 0 || (output && ranks > 1) ||
            strstr(tensor->name, "wpe"))
            continue;
        for (int64_t r = 0; r < rows; r++) {
            float row[MADE_WIDTH];
            char blocks[64];
            uint64_t bytes;
            CHECK(columns == MADE_WIDTH, "%d columns", (int)columns);
            for (int64_t c = 0; c < columns; c++)
                row[c] = tensor->values[turned ? c * rows + r : r * columns + c];
            OK(tsr_quant_bytes(dtype, columns, &bytes));
            OK(tsr_quantize(dtype, row, columns, blocks, bytes));
            OK(tsr_dequantize(dtype, blocks, bytes, row, columns));
            for (int64_t c = 0; c < columns; c++)
                tensor->values[turned ? c * rows + r : r * columns + c] = row[c];
        }
    }
}

CASE(families_quantised, "families: Hugging Face folders, quantised while they are read")
{
    for (int f = 0; f < made_family_count; f++) {
        made_model made;
        made_init(&made, &made_families[f], SEED + (uint64_t)f);
        const char *path = made_write_hf(&made);
        round_to_blocks(&made);
        check_model(&made, path, "q8_0", tsr_model_params(.group = group, .dtype = TSR_Q8_0));
        made_finish(&made);
    }
}

/* Opens a model, and compares what this rank holds with what was planned for it. */
static void check_plan(const char *path, tsr_dtype dtype, const tsr_partition_params *partition,
                       tsr_expert_division experts, int host)
{
    tsr_model *model = NULL;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    tsr_model_rank_plan planned[64];
    OK(plan_model(path,
                  tsr_model_plan_params(.ranks = ranks, .dtype = dtype, .partition = partition,
                                        .expert_division = experts, .host_experts = host),
                  NULL, planned, NULL));
    OK(open_model(path,
                  tsr_model_params(.group = group, .dtype = dtype, .partition = partition,
                                   .expert_division = experts, .host_experts = host),
                  &model));
    OK(tsr_model_get_stats(model, &stats));
    const tsr_model_rank_plan *own = &planned[my_rank];
    CHECK(own->weight_bytes == stats.weight_bytes, "%s: %d bytes were planned, %d are held", path,
          (int)own->weight_bytes, (int)stats.weight_bytes);
    CHECK(own->host_bytes == stats.host_bytes, "%s: %d bytes were planned for the host, not %d",
          path, (int)own->host_bytes, (int)stats.host_bytes);
    CHECK(own->expert_bytes > 0 || own->weight_bytes - own->token_bytes == stats.table_bytes,
          "%s: tables of %d bytes", path, (int)stats.table_bytes);
    CHECK(own->heads == stats.heads && own->kv_heads == stats.kv_heads, "%s: %d heads, %d kv heads",
          path, (int)stats.heads, (int)stats.kv_heads);
    CHECK(own->weight_bytes == own->embedding_bytes + own->attention_bytes + own->mlp_bytes +
                                   own->norm_bytes + own->head_bytes,
          "%s: the parts do not sum up", path);
    tsr_model_close(&model);
}

CASE(families_planned, "families: Hugging Face folders and GGUF files need what was planned")
{
    static const tsr_dtype dtypes[] = {0, TSR_F16, TSR_Q8_0};
    static const char *const files[] = {"stories260K-q8_0mix.gguf", "synth-A-q4_k_m.gguf",
                                        "stories260K-hf"};
    static const char *const experts[] = {"gptoss/hf", "qwen2moe/hf", "glm4moe/glm4moe-f16.gguf",
                                          "qwen3next/hf"};
    double rates[64];
    char path[512];
    for (int r = 0; r < ranks; r++)
        rates[r] = r == 1 ? 0 : r + 1;
    const tsr_partition_params even = TSR_INIT(tsr_partition_params),
                               weighted = {.struct_size = sizeof weighted,
                                           .kind = TSR_PARTITION_WEIGHTED,
                                           .rates = rates};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        for (int f = 0; f < made_family_count; f++) {
            made_model made;
            made_init(&made, &made_families[f], SEED + (uint64_t)f);
            const char *folder = made_write_hf(&made);
            check_plan(folder, dtypes[d], &even, 0, 0);
            check_plan(folder, dtypes[d], &weighted, 0, 0);
            made_finish(&made);
        }
        for (size_t f = 0; f < sizeof files / sizeof *files; f++) {
            snprintf(path, sizeof path, "%s/model/%s", TEST_DATA, files[f]);
            check_plan(path, dtypes[d], &even, 0, 0);
        }
        for (size_t f = 0; f < sizeof experts / sizeof *experts; f++) {
            snprintf(path, sizeof path, "%s/model/families/%s", TEST_DATA, experts[f]);
            check_plan(path, dtypes[d], &even, TSR_EXPERT_DIVISION_INSIDE, 0);
            check_plan(path, dtypes[d], &weighted, TSR_EXPERT_DIVISION_WHOLE, 2);
        }
    }
}

/* Rank 0 has memory for one expert less than its share, and the others for one more. */
CASE(families_memory, "families: whole experts move from a rank with too little memory")
{
    static const char path[] = TEST_DATA "/model/families/gptoss/hf";
    tsr_model_rank_plan even[64], moved[64];
    tsr_model *model = NULL;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    uint64_t memory[64];
    tsr_model_fit fit = TSR_INIT(tsr_model_fit);
    const tsr_model_plan_params *plan =
        tsr_model_plan_params(.ranks = ranks, .expert_division = TSR_EXPERT_DIVISION_WHOLE,
                              .context = 8);
    if (ranks == 1 || ranks > 8) {
        case_skip("%d ranks", ranks);
        return;
    }
    OK(plan_model(path, plan, NULL, even, NULL));
    const uint64_t each = even[0].expert_bytes / (uint64_t)even[0].experts;
    for (int r = 0; r < ranks; r++)
        memory[r] = r == 0 ? even[r].total_bytes - each : even[r].total_bytes + each;
    OK(plan_model(path, plan, memory, moved, &fit));
    CHECK(fit.rank == -1 && moved[0].experts == even[0].experts - 1, "rank 0 has %d experts",
          (int)moved[0].experts);
    OK(open_model(path,
                  tsr_model_params(.group = group, .expert_division = TSR_EXPERT_DIVISION_WHOLE,
                                   .context = 8, .cache_dtype = TSR_F32,
                                   .memory_bytes = memory[my_rank]),
                  &model));
    OK(tsr_model_get_stats(model, &stats));
    CHECK(stats.weight_bytes == moved[my_rank].weight_bytes, "%d bytes were planned, %d are held",
          (int)moved[my_rank].weight_bytes, (int)stats.weight_bytes);
    tsr_model_close(&model);
}

CASE(families_rates, "families: shares by rate, even none")
{
    double rates[64];
    made_model made;
    for (int r = 0; r < ranks; r++)
        rates[r] = r == 1 ? 0 : r + 1;
    made_init(&made, &made_families[3], SEED);
    check_model(&made, made_write_hf(&made), "a folder by rates",
                tsr_model_params(.partition = tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED,
                                                                   .rates = rates)));
    made_finish(&made);
}

/* The bytes that ranks read ------------------------------------------------------------------ */

typedef struct progress {
    uint64_t calls, done, total;
} progress;

static void note(void *user, uint64_t done, uint64_t total)
{
    progress *p = user;
    CHECK(done >= p->done && done <= total, "%d of %d bytes", (int)done, (int)total);
    p->calls++;
    p->done = done;
    p->total = total;
}

/* Checks what a rank reads of a model. With two ranks, each has half of the kv heads, and therefore
 * half of everything except the norms. */
static void check_bytes(const made_model *made, const char *path)
{
    tsr_model *model = NULL;
    tsr_model_stats stats = TSR_INIT(tsr_model_stats);
    progress seen = {0};
    OK(open_model(path, tsr_model_params(.progress = note, .user = &seen), &model));
    OK(tsr_model_get_stats(model, &stats));
    CHECK(stats.read_bytes == stats.weight_bytes, "%s: %d bytes were read for %d", path,
          (int)stats.read_bytes, (int)stats.weight_bytes);
    CHECK(seen.calls > 0 && seen.done == seen.total && seen.total == stats.read_bytes,
          "%s: progress ends at %d of %d", path, (int)seen.done, (int)seen.total);
    uint64_t all = 0, norms = (uint64_t)(2 * MADE_LAYERS + 1) * MADE_WIDTH * 4;
    for (int i = 0; i < made->count; i++)
        all += (uint64_t)(made->tensors[i].shape[0] * made->tensors[i].shape[1]) * 4;
    CHECK(stats.parameters * 4 == all, "%s: %d parameters", path, (int)stats.parameters);
    if (ranks <= 2)
        CHECK(stats.read_bytes == norms + (all - norms) / (uint64_t)ranks, "%s: %d of %d bytes",
              path, (int)stats.read_bytes, (int)all);
    else
        CHECK(stats.read_bytes < norms + (all - norms) / 2 + 1, "%s: %d of %d bytes", path,
              (int)stats.read_bytes, (int)all);
    tsr_model_close(&model);
}

CASE(bytes, "families: a rank reads the bytes of its part only, of one file and of several")
{
    made_model made;
    made_init(&made, &made_families[0], SEED);
    check_bytes(&made, made_write_hf(&made));
    check_bytes(&made, made_write_gguf(&made, 1));
    check_bytes(&made, made_write_gguf(&made, 3));
    made_finish(&made);
}

/* Refused files ------------------------------------------------------------------------------ */

static void refuse(made_model *made, tsr_status status, const char *words)
{
    tsr_model *model = NULL;
    const tsr_status got = open_model(made_write_hf(made), NULL, &model);
    CHECK(got == status && !model, "%s, not %s", tsr_status_name(got), tsr_status_name(status));
    CHECK(strstr(tsr_last_error(), words), "\"%s\" lacks \"%s\"", tsr_last_error(), words);
}

CASE(mistakes, "families: tensors that are missing or have another shape")
{
    made_model made;
    made_init(&made, &made_families[0], SEED);
    made_tensor *up = made_find(&made, "layers.1.mlp.up_proj.weight");
    up->shape[0] = MADE_HIDDEN / 2;
    up->shape[1] = MADE_WIDTH * 2;
    refuse(&made, TSR_ERR_INVALID,
           "model: tensor model.layers.1.mlp.up_proj.weight is [24,64]; the sizes in config.json "
           "need [48,32]");
    up->shape[0] = MADE_HIDDEN;
    up->shape[1] = MADE_WIDTH;
    made_remove(&made, "layers.1.self_attn.o_proj.weight");
    refuse(&made, TSR_ERR_NOT_FOUND, "has no tensor model.layers.1.self_attn.o_proj.weight");
    made_remove(&made, "lm_head.weight");
    refuse(&made, TSR_ERR_NOT_FOUND, "has no tensor lm_head.weight");
    tsr_model *model = NULL;
    FAILS(open_model(NULL, NULL, &model), TSR_ERR_INVALID, "model: path is NULL");
    FAILS(tsr_model_open(NULL, NULL, NULL), TSR_ERR_INVALID, "model: out is NULL");
    FAILS(tsr_model_open(NULL, NULL, &model), TSR_ERR_INVALID, "model: file is NULL");
    FAILS(open_model("/proc/nowhere", NULL, &model), TSR_ERR_NOT_FOUND,
          "model: cannot open /proc/nowhere: No such file or directory");
    made_finish(&made);
    made_init(&made, &made_families[0], SEED);
    FAILS(
        open_model(made_write_hf(&made), tsr_model_params(.dtype = TSR_I32), &model),
        TSR_ERR_INVALID,
        "model: weights cannot be kept as i32; f32, f16, bf16 and block formats that tsr_quantize "
        "supports are possible");
    made_finish(&made);
}

CASE(unquantisable, "families: weights that cannot be quantised")
{
    made_model made;
    tsr_model *model = NULL;
    made_init(&made, &made_families[0], SEED);
    made_find(&made, "layers.0.mlp.gate_proj.weight")->values[3 * MADE_WIDTH] = INFINITY;
    FAILS(open_model(made_write_hf(&made), tsr_model_params(.dtype = TSR_Q4_0), &model),
          TSR_ERR_INVALID,
          my_rank == 0
              ? "model: tensor model.layers.0.mlp.gate_proj.weight, rows from 0: quantize: "
                "element 96 is infinite"
              : "model: rank 0 could not open the model");
    made_finish(&made);
}

CASE(one_rank_fails, "families: a rank without files fails all ranks")
{
    made_model made;
    tsr_model *model = NULL;
    made_init(&made, &made_families[0], SEED);
    const char *path = my_rank == ranks - 1 ? "/proc/nowhere" : made_write_hf(&made);
    const tsr_status status = open_model(path, NULL, &model);
    CHECK(status != TSR_OK && !model, "it opens");
    if (my_rank < ranks - 1) {
        char text[64];
        snprintf(text, sizeof text, "model: rank %d could not open the model", ranks - 1);
        CHECK(strcmp(tsr_last_error(), text) == 0, "\"%s\"", tsr_last_error());
    }
    made_finish(&made);
}

CASE(no_room, "families: a device that is too small")
{
    made_model made;
    tsr_device *small = NULL;
    tsr_stream *stream = NULL;
    tsr_group *own = NULL;
    tsr_model *model = NULL;
    made_init(&made, &made_families[0], SEED);
    OK(tsr_device_open(tsr_device_params(.memory_limit_bytes = 8192), &small));
    OK(tsr_stream_create(small, &stream));
    OK(tsr_group_create(NULL, stream, NULL, &own));
    const tsr_status status =
        open_model(made_write_hf(&made), tsr_model_params(.group = own), &model);
    CHECK(status == TSR_ERR_DEVICE_MEMORY, "%s: %s", tsr_status_name(status), tsr_last_error());
    CHECK(strstr(tsr_last_error(), "model: the weights of rank 0 of 1 need ") &&
              strstr(tsr_last_error(), " KiB more than its 8.0 KiB; "),
          "\"%s\"", tsr_last_error());
    tsr_group_destroy(&own);
    tsr_stream_destroy(&stream);
    tsr_device_close(&small);
    made_finish(&made);
}
