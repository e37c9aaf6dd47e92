/* Tests plans of what ranks will hold, and of what would fit. families.c checks that models keep
 * the planned bytes. */
#include "base/fault.h"
#include "model/open.h"
#include "model/weights/weights.h"
#include "support/check_main.h"
#include "tessera/model.h"
#include "tessera/shard.h"

#define STORIES TEST_DATA "/model/stories260K-f32.gguf"

START_TEST(params_are_checked)
{
    tsr_model_rank_plan ranks[2];
    tsr_model_fit fit;
    ck_assert_error(plan_model(NULL, NULL, NULL, ranks, NULL), TSR_ERR_INVALID,
                    "model: path is NULL");
    ck_assert_error(plan_model(STORIES, NULL, NULL, NULL, NULL), TSR_ERR_INVALID,
                    "model: ranks is NULL");
    ck_assert_error(plan_model(STORIES, NULL, NULL, ranks, &fit), TSR_ERR_INVALID,
                    "model: memory_bytes and fit go together");
    ck_assert_error(plan_model(STORIES, tsr_model_plan_params(.ranks = 65537), NULL, ranks, NULL),
                    TSR_ERR_INVALID, "model: ranks is 65537; 1 to 65536 is possible");
    ck_assert_error(plan_model(STORIES, tsr_model_plan_params(.context = -1), NULL, ranks, NULL),
                    TSR_ERR_INVALID, "model: context is -1; 1 to 1073741824 is possible");
    ck_assert_error(plan_model(STORIES, tsr_model_plan_params(.sequences = -1), NULL, ranks, NULL),
                    TSR_ERR_INVALID, "model: sequences is -1; 1 to 1000000 is possible");
    ck_assert_error(
        plan_model(STORIES, tsr_model_plan_params(.cache_dtype = TSR_I32), NULL, ranks, NULL),
        TSR_ERR_INVALID,
        "model: the cache cannot be i32; f32, f16, bf16, q8_0 and q4_0 are possible");
    ck_assert_error(
        plan_model(STORIES, tsr_model_plan_params(.ranks = 2, .stages = 3), NULL, ranks, NULL),
        TSR_ERR_INVALID, "model: 3 stages do not divide 2 ranks");
    ck_assert_error(
        plan_model(STORIES,
                   tsr_model_plan_params(.ranks = 2, .stages = 2, .stage_layers = (int[]){3, 3}),
                   NULL, ranks, NULL),
        TSR_ERR_INVALID, "model: the stages have 6 layers, but the model has 5");
    ck_assert_int_eq(plan_model("/proc/nonexistent", NULL, NULL, ranks, NULL), TSR_ERR_NOT_FOUND);
}
END_TEST

/* What all ranks hold together must be the model once, except that several ranks hold the norms. */
START_TEST(shares_add_up)
{
    tsr_model_rank_plan one, four[4];
    uint64_t weights = 0, norms = 0, cache = 0;
    ck_assert_ok(plan_model(STORIES, NULL, NULL, &one, NULL));
    ck_assert_ok(plan_model(STORIES, tsr_model_plan_params(.ranks = 4), NULL, four, NULL));
    for (int r = 0; r < 4; r++) {
        weights += four[r].weight_bytes - four[r].norm_bytes;
        norms += four[r].norm_bytes;
        cache += four[r].cache_bytes;
    }
    ck_assert_uint_eq(weights, one.weight_bytes - one.norm_bytes);
    ck_assert_uint_eq(norms, 4 * one.norm_bytes);
    ck_assert_uint_eq(cache, one.cache_bytes);
    ck_assert_uint_eq(one.token_bytes, one.weight_bytes);
}
END_TEST

/* Checks a prediction of what would fit by making a plan for it. */
START_TEST(what_would_fit_fits)
{
    tsr_model_rank_plan ranks[TSR_MODEL_PLAN_MAX_ADVICE];
    tsr_model_fit fit;
    uint64_t memory[TSR_MODEL_PLAN_MAX_ADVICE];
    for (int r = 0; r < TSR_MODEL_PLAN_MAX_ADVICE; r++)
        memory[r] = 500000;
    tsr_model_plan_params params = {.struct_size = sizeof params, .context = 64};
    ck_assert_ok(plan_model(STORIES, &params, memory, ranks, &fit));
    ck_assert_uint_eq(fit.missing_bytes, ranks[0].total_bytes - 500000);
    ck_assert_int_eq(fit.rank, 0);
    ck_assert(fit.ranks > 1 && fit.dtype != 0);
    params.ranks = fit.ranks - 1;
    ck_assert_ok(plan_model(STORIES, &params, memory, ranks, &fit));
    ck_assert_uint_gt(fit.missing_bytes, 0);
    params.ranks++;
    ck_assert_ok(plan_model(STORIES, &params, memory, ranks, &fit));
    ck_assert(fit.missing_bytes == 0 && fit.rank == -1 && fit.ranks == 0 && fit.dtype == 0);
    params = (tsr_model_plan_params){.struct_size = sizeof params, .context = 64, .dtype = TSR_F16};
    memory[0] = 610000;
    ck_assert_ok(plan_model(STORIES, &params, memory, ranks, &fit));
    ck_assert_uint_eq(fit.missing_bytes, 0);
    memory[0] = 10;
    ck_assert_ok(plan_model(STORIES, &params, memory, ranks, &fit));
    ck_assert(fit.missing_bytes > 0 && fit.ranks == 0 && fit.dtype == 0);
    memory[0] = 0;
    ck_assert_ok(plan_model(STORIES, &params, memory, ranks, &fit));
    ck_assert_uint_eq(fit.missing_bytes, 0);
}
END_TEST

/* Plans two stages of two ranks each; the last rank is three times as fast as the others. The
 * embedding of stories260K is also its output matrix, so the first and the last stage both have
 * it. */
START_TEST(stages_add_up)
{
    tsr_model_rank_plan one, ranks[4];
    const double rates[4] = {1, 1, 1, 3};
    uint64_t layers = 0, norms = 0, cache = 0;
    ck_assert_ok(plan_model(STORIES, NULL, NULL, &one, NULL));
    ck_assert_ok(plan_model(
        STORIES,
        tsr_model_plan_params(.ranks = 4, .stages = 2, .stage_layers = (int[]){2, 3},
                              .partition = tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED,
                                                                .rates = rates)),
        NULL, ranks, NULL));
    for (int r = 0; r < 4; r++) {
        ck_assert_int_eq(ranks[r].stage, r / 2);
        ck_assert_int_eq(ranks[r].first_layer, r < 2 ? 0 : 2);
        ck_assert_int_eq(ranks[r].layers, r < 2 ? 2 : 3);
        layers += ranks[r].attention_bytes + ranks[r].mlp_bytes;
        norms += ranks[r].norm_bytes;
        cache += ranks[r].cache_bytes;
    }
    ck_assert_uint_eq(layers, one.attention_bytes + one.mlp_bytes);
    ck_assert_uint_eq(norms, 2 * one.norm_bytes);
    ck_assert_uint_eq(cache, one.cache_bytes);
    for (int stage = 0; stage < 2; stage++)
        ck_assert_uint_eq(ranks[2 * stage].embedding_bytes + ranks[2 * stage + 1].embedding_bytes,
                          one.embedding_bytes);
    ck_assert(ranks[0].heads == 4 && ranks[2].heads == 2 && ranks[3].heads == 6);
    /* Only the last stage computes logits. */
    ck_assert_uint_eq(ranks[0].token_bytes,
                      ranks[0].attention_bytes + ranks[0].mlp_bytes + ranks[0].norm_bytes);
    ck_assert_uint_eq(ranks[2].token_bytes, ranks[2].weight_bytes);
}
END_TEST

/* Plans three stages of one rank each with this memory. Checks how many layers each stage has, and
 * whether the plan fits. */
static void expect_layers(const uint64_t *memory, const int *layers, bool fits)
{
    tsr_model_rank_plan ranks[3];
    tsr_model_fit fit;
    ck_assert_ok(plan_model(STORIES, tsr_model_plan_params(.ranks = 3, .stages = 3, .context = 64),
                            memory, ranks, &fit));
    for (int s = 0; s < 3; s++)
        ck_assert_msg(ranks[s].layers == layers[s], "stage %d has %d layers, not %d", s,
                      ranks[s].layers, layers[s]);
    ck_assert_int_eq(fit.missing_bytes == 0, fits);
}

/* Layers move only from stages that have too little memory. */
START_TEST(stages_have_what_their_memory_holds)
{
    tsr_model_rank_plan one;
    ck_assert_ok(plan_model(STORIES, tsr_model_plan_params(.context = 64), NULL, &one, NULL));
    /* The last stage has one more norm than the others. */
    const uint64_t norm = 64 * sizeof(float), ends = one.embedding_bytes + norm,
                   layer = (one.total_bytes - ends) / 5;
    expect_layers((uint64_t[]){0, 0, 0}, (int[]){2, 2, 1}, true);
    expect_layers((uint64_t[]){ends + 2 * layer, 2 * layer, ends + layer}, (int[]){2, 2, 1}, true);
    expect_layers((uint64_t[]){ends + layer, 0, 0}, (int[]){1, 2, 2}, true);
    expect_layers((uint64_t[]){ends + 2 * layer - 1 - norm, 2 * layer, 0}, (int[]){1, 2, 2}, true);
    expect_layers((uint64_t[]){0, layer, ends + layer}, (int[]){3, 1, 1}, true);
    expect_layers((uint64_t[]){ends + layer, layer, ends + 2 * layer}, (int[]){1, 2, 2}, false);
    expect_layers((uint64_t[]){1, 1, 0}, (int[]){1, 1, 3}, false);
    expect_layers((uint64_t[]){1, 1, 1}, (int[]){2, 2, 1}, false);
}
END_TEST

/* The layers of this model have different sizes. If a division of the layers needs exactly the
 * memory that there is, the library must find a division that fits. */
START_TEST(stages_of_different_layers)
{
    static const int all[][3] = {{1, 1, 3}, {1, 2, 2}, {1, 3, 1}, {2, 1, 2}, {2, 2, 1}, {3, 1, 1}};
    const char *path = TEST_DATA "/model/stories260K-q4_k_m.gguf";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tsr_model_rank_plan ranks[3];
        tsr_model_fit fit;
        uint64_t memory[3];
        tsr_model_plan_params params = {
            .struct_size = sizeof params, .ranks = 3, .stages = 3, .stage_layers = all[i]};
        ck_assert_ok(plan_model(path, &params, NULL, ranks, NULL));
        for (int s = 0; s < 3; s++)
            memory[s] = ranks[s].total_bytes;
        params.stage_layers = NULL;
        ck_assert_ok(plan_model(path, &params, memory, ranks, &fit));
        ck_assert_msg(fit.missing_bytes == 0, "%d, %d and %d layers", ranks[0].layers,
                      ranks[1].layers, ranks[2].layers);
    }
}
END_TEST

/* If a model does not fit, tsr_model_plan says with how many ranks, or with which dtype, it would
 * fit. */
START_TEST(what_would_fit_stages_fits)
{
    tsr_model_rank_plan ranks[10];
    tsr_model_fit fit;
    uint64_t memory[10];
    tsr_model_plan_params params = {
        .struct_size = sizeof params, .ranks = 4, .stages = 2, .context = 64};
    for (int r = 0; r < 10; r++)
        memory[r] = 270000;
    ck_assert_ok(plan_model(STORIES, &params, memory, ranks, &fit));
    ck_assert(fit.missing_bytes > 0 && fit.rank >= 0);
    ck_assert_uint_eq(fit.missing_bytes, ranks[fit.rank].total_bytes - memory[0]);
    ck_assert(fit.ranks > 4 && fit.ranks % 2 == 0 && fit.ranks <= 10 && fit.dtype != 0);
    const tsr_model_fit advice = fit;
    params.dtype = advice.dtype;
    ck_assert_ok(plan_model(STORIES, &params, memory, ranks, &fit));
    ck_assert_uint_eq(fit.missing_bytes, 0);
    params = (tsr_model_plan_params){.struct_size = sizeof params,
                                     .ranks = advice.ranks,
                                     .stages = advice.ranks / 2,
                                     .context = 64};
    ck_assert_ok(plan_model(STORIES, &params, memory, ranks, &fit));
    ck_assert_uint_eq(fit.missing_bytes, 0);
}
END_TEST

START_TEST(memory_runs_out)
{
    tsr_model_rank_plan ranks[3];
    tsr_model_fit fit;
    const uint64_t memory[3] = {200000, 200000, 200000};
    uint64_t nth = 0;
    for (bool reached = true; reached; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        const tsr_status status = plan_model(
            STORIES, tsr_model_plan_params(.ranks = 3, .stages = 3), memory, ranks, &fit);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
    }
    ck_assert_uint_gt(nth, 20);
}
END_TEST

#define GPT_OSS TEST_DATA "/model/families/gptoss/hf"

/* gpt-oss's small model has 4 layers of 8 experts, of which a token uses 3. An expert has 32 hidden
 * features, one block of MXFP4, and 3 matrices of 32 x 64 elements in blocks of 17 bytes. */
START_TEST(experts_are_planned)
{
    enum { BIASES = 4 * 8 * (32 + 32 + 64) * 2, MATRICES = 4 * 8 * 3 * 64 * 17 };
    tsr_model_rank_plan one, three[3];
    ck_assert_ok(plan_model(GPT_OSS, NULL, NULL, &one, NULL));
    ck_assert(one.experts == 8 && one.expert_hidden == 32);
    ck_assert_uint_eq(one.expert_bytes, MATRICES + BIASES);
    /* A token does not read 5 of 8 experts, and one row of the embedding. */
    ck_assert_uint_eq(one.token_bytes,
                      one.weight_bytes - one.embedding_bytes - one.expert_bytes / 8 * 5);
    /* One block cannot be divided over three ranks, which therefore get whole experts. */
    ck_assert_ok(plan_model(GPT_OSS, tsr_model_plan_params(.ranks = 3), NULL, three, NULL));
    uint64_t bytes = 0;
    int64_t experts = 0;
    for (int r = 0; r < 3; r++) {
        ck_assert(three[r].expert_hidden == 32 && three[r].experts >= 2 && three[r].experts <= 3);
        bytes += three[r].expert_bytes;
        experts += three[r].experts;
    }
    ck_assert(experts == 8 && bytes == one.expert_bytes);
    /* Inside, parts of a block are kept as bf16, in which the embedding is. */
    ck_assert_ok(plan_model(
        GPT_OSS, tsr_model_plan_params(.ranks = 2, .expert_division = TSR_EXPERT_DIVISION_INSIDE),
        NULL, three, NULL));
    ck_assert(three[0].experts == 8 && three[0].expert_hidden == 16);
    /* Rows of gate and up are still blocks; the output's biases are on both ranks. */
    ck_assert_uint_eq(three[0].expert_bytes,
                      4 * 8 * (2 * 16 * 2 * 17 + 64 * 16 * 2 + (16 + 16 + 64) * 2));
    ck_assert_error(
        plan_model(GPT_OSS, tsr_model_plan_params(.expert_division = (tsr_expert_division)4), NULL,
                   &one, NULL),
        TSR_ERR_INVALID, "model: expert_division is 4, which is not a tsr_expert_division");
}
END_TEST

/* The same in a stage of several, and in layers with different numbers of experts. */
START_TEST(experts_by_memory_of_stages_and_kinds)
{
    tsr_model_rank_plan even[4], moved[4];
    tsr_model_fit fit;
    const int layers[] = {2, 2};
    const tsr_model_plan_params params = {.struct_size = sizeof params,
                                          .ranks = 4,
                                          .stages = 2,
                                          .stage_layers = layers,
                                          .expert_division = TSR_EXPERT_DIVISION_WHOLE,
                                          .context = 8};
    ck_assert_ok(plan_model(GPT_OSS, &params, NULL, even, NULL));
    const uint64_t each = even[3].expert_bytes / 4;
    const uint64_t memory[] = {even[0].total_bytes, even[1].total_bytes, even[2].total_bytes + each,
                               even[3].total_bytes - each};
    ck_assert_ok(plan_model(GPT_OSS, &params, memory, moved, &fit));
    ck_assert_int_eq(fit.rank, -1);
    for (int r = 0; r < 4; r++)
        ck_assert_int_eq(moved[r].experts, r == 2 ? 5 : r == 3 ? 3 : 4);
    /* Experts move to the other rank of the stage before a layer moves to another stage. */
    const tsr_model_plan_params divided = {.struct_size = sizeof divided,
                                           .ranks = 4,
                                           .stages = 2,
                                           .expert_division = TSR_EXPERT_DIVISION_WHOLE,
                                           .context = 8};
    ck_assert_ok(plan_model(GPT_OSS, &divided, NULL, even, NULL));
    ck_assert_int_eq(even[2].layers, 2);
    const uint64_t tight[] = {even[0].total_bytes, even[1].total_bytes, even[2].total_bytes + each,
                              even[3].total_bytes - each};
    ck_assert_ok(plan_model(GPT_OSS, &divided, tight, moved, &fit));
    ck_assert(fit.rank == -1 && moved[2].layers == 2 && moved[2].experts == 5 &&
              moved[3].experts == 3);
    /* The stage lacks memory for an expert. */
    const uint64_t less[] = {0, 0, even[2].total_bytes, even[3].total_bytes - each};
    ck_assert_ok(plan_model(GPT_OSS, &divided, less, moved, &fit));
    ck_assert(fit.rank == -1 && moved[2].layers == 1 && moved[0].layers == 3);
    tsr_rope_params rope = {.struct_size = sizeof rope, .rotary_dim = 8};
    const tsr_model_experts few = {.struct_size = sizeof few, .count = 4, .used = 2, .hidden = 64},
                            many = {
                                .struct_size = sizeof many, .count = 12, .used = 2, .hidden = 32};
    tsr_model_layer kinds[2] = {{.struct_size = sizeof kinds[0],
                                 .heads = 2,
                                 .kv_heads = 2,
                                 .head_dim = 8,
                                 .rope = &rope,
                                 .qk_norm = TSR_QK_NORM_HEADS,
                                 .gated = true,
                                 .activation = TSR_ACT_SILU,
                                 .experts = &few}};
    kinds[1] = kinds[0];
    kinds[1].experts = &many;
    const tsr_model_config config = {.struct_size = sizeof config,
                                     .architecture = "qwen3_moe",
                                     .layers = 2,
                                     .width = 16,
                                     .vocabulary = 32,
                                     .context = 64,
                                     .norm_epsilon = 1e-5,
                                     .norm = TSR_NORM_RMS,
                                     .bos = -1,
                                     .kind_count = 2,
                                     .kinds =
                                         (const tsr_model_layer *const[]){&kinds[0], &kinds[1]},
                                     .layer_kinds = (const uint16_t[]){0, 1}};
    const tsr_model_plan_params two = {.struct_size = sizeof two,
                                       .ranks = 2,
                                       .expert_division = TSR_EXPERT_DIVISION_WHOLE,
                                       .context = 8};
    tsr_model_file *file = NULL;
    ck_assert_ok(tsr_model_file_open_random(&config, TSR_F32, 1, &file));
    ck_assert_ok(tsr_model_plan(file, &two, NULL, even, NULL));
    ck_assert_int_eq(even[0].experts, 2);
    const uint64_t quarter = even[0].expert_bytes / 2;
    const uint64_t uneven[] = {even[0].total_bytes - quarter, even[1].total_bytes + quarter};
    ck_assert_ok(tsr_model_plan(file, &two, uneven, moved, &fit));
    ck_assert_int_eq(fit.rank, -1);
    ck_assert(moved[0].experts == 1 && moved[1].experts == 3); /* of the layer with 4 */
    ck_assert_uint_eq(moved[0].total_bytes, uneven[0]);
    tsr_model_file_close(&file);
}
END_TEST

/* Hosts have whole experts, and their ranks parts of these, in whole blocks of 32 features. */
START_TEST(experts_mixed_over_hosts)
{
    tsr_model_rank_plan three[3];
    const int hosts[] = {0, 1, 1}, wrong[] = {0, 3, 1};
    const double rates[] = {2, 1, 1};
    const tsr_partition_params weighted = {
        .struct_size = sizeof weighted, .kind = TSR_PARTITION_WEIGHTED, .rates = rates};
    tsr_model_plan_params params = {.struct_size = sizeof params,
                                    .ranks = 3,
                                    .partition = &weighted,
                                    .hosts = hosts,
                                    .expert_division = TSR_EXPERT_DIVISION_MIXED,
                                    .context = 8};
    ck_assert_ok(plan_model(GPT_OSS, &params, NULL, three, NULL));
    for (int r = 0; r < 3; r++) {
        ck_assert_int_eq(three[r].experts, 4);
        ck_assert_int_eq(three[r].expert_hidden, r == 0 ? 32 : 16);
    }
    ck_assert_int_eq(three[0].expert_division, TSR_EXPERT_DIVISION_MIXED);
    params.hosts = wrong;
    ck_assert_error(plan_model(GPT_OSS, &params, NULL, three, NULL), TSR_ERR_INVALID,
                    "model: hosts: rank 1 is in team 3; 0 to 2 are possible");
}
END_TEST

/* A rank that lacks memory for its share of whole experts leaves some to the others, unless all
 * together lack memory. */
START_TEST(experts_by_memory)
{
    tsr_model_rank_plan even[2], moved[2];
    tsr_model_fit fit;
    const tsr_model_plan_params params = {.struct_size = sizeof params,
                                          .ranks = 2,
                                          .expert_division = TSR_EXPERT_DIVISION_WHOLE,
                                          .context = 8};
    ck_assert_ok(plan_model(GPT_OSS, &params, NULL, even, NULL));
    ck_assert(even[0].experts == 4 && even[1].experts == 4);
    const uint64_t each = even[0].expert_bytes / 4;
    for (uint64_t short_of = 0; short_of <= 4; short_of++) {
        const uint64_t memory[2] = {even[0].total_bytes - short_of * each,
                                    even[1].total_bytes + short_of * each};
        ck_assert_ok(plan_model(GPT_OSS, &params, memory, moved, &fit));
        ck_assert_uint_eq((uint64_t)moved[0].experts, 4 - short_of);
        ck_assert_uint_eq((uint64_t)moved[1].experts, 4 + short_of);
        ck_assert(fit.rank == -1 && moved[0].total_bytes == memory[0]);
    }
    const uint64_t little[2] = {even[0].total_bytes - each, even[1].total_bytes};
    ck_assert_ok(plan_model(GPT_OSS, &params, little, moved, &fit));
    ck_assert(moved[0].experts == 4 && fit.rank == 0 && fit.missing_bytes == each);
}
END_TEST

/* Layers that use the keys of others have no cache, and are in one stage with them. */
START_TEST(shared_keys)
{
    const char *gemma = TEST_DATA "/model/families/gemma4/gemma4-f16.gguf";
    tsr_model_rank_plan one, two[2];
    ck_assert_ok(plan_model(gemma, tsr_model_plan_params(.context = 64), NULL, &one, NULL));
    ck_assert_uint_eq(one.cache_bytes, 2 * 2 * (16 + 16 + 32) * 64 * sizeof(float));
    ck_assert_error(
        plan_model(gemma, tsr_model_plan_params(.ranks = 2, .stages = 2), NULL, two, NULL),
        TSR_ERR_INVALID,
        "model: 2 stages; layers of this model have inputs of their own, which need "
        "the tokens, and cannot be divided into stages");
    tsr_rope_params rope = {.struct_size = sizeof rope, .rotary_dim = 8};
    tsr_model_layer own = {.struct_size = sizeof own,
                           .heads = 2,
                           .kv_heads = 1,
                           .head_dim = 8,
                           .hidden = 32,
                           .rope = &rope,
                           .gated = true,
                           .activation = TSR_ACT_SILU},
                    shared = own;
    shared.shared_keys = true;
    const tsr_model_config config = {.struct_size = sizeof config,
                                     .architecture = "llama",
                                     .layers = 4,
                                     .width = 16,
                                     .vocabulary = 32,
                                     .context = 64,
                                     .norm_epsilon = 1e-5,
                                     .norm = TSR_NORM_RMS,
                                     .bos = -1,
                                     .kind_count = 2,
                                     .kinds = (const tsr_model_layer *const[]){&own, &shared},
                                     .layer_kinds = (const uint16_t[]){0, 0, 1, 1}};
    tsr_model_file *file = NULL;
    const int good[] = {1, 3}, bad[] = {2, 2};
    ck_assert_ok(tsr_model_file_open_random(&config, TSR_F32, 1, &file));
    for (int i = 0; i < 2; i++)
        two[i].struct_size = sizeof two[i];
    ck_assert_ok(
        tsr_model_plan(file, tsr_model_plan_params(.ranks = 2, .stages = 2, .stage_layers = good),
                       NULL, two, NULL));
    ck_assert_uint_eq(two[0].cache_bytes, two[1].cache_bytes);
    ck_assert_error(
        tsr_model_plan(file, tsr_model_plan_params(.ranks = 2, .stages = 2, .stage_layers = bad),
                       NULL, two, NULL),
        TSR_ERR_UNSUPPORTED,
        "model: layer 2, in stage 1, uses the keys of layer 1, which is in an earlier stage; these "
        "layers must be in one stage");
    tsr_model_file_close(&file);
}
END_TEST

/* Experts in the host's memory do not count, and a model that is too large says how many layers of
 * them would make room. */
START_TEST(experts_on_the_host)
{
    enum { MATRICES = 8 * 3 * 64 * 17 };
    tsr_model_rank_plan all, host;
    tsr_model_fit fit;
    ck_assert_ok(plan_model(GPT_OSS, tsr_model_plan_params(.context = 8), NULL, &all, NULL));
    ck_assert(all.host_bytes == 0 && all.host_token_bytes == 0);
    for (int layers = 1; layers <= 5; layers++) {
        const uint64_t there = (uint64_t)(layers < 4 ? layers : 4) * MATRICES;
        ck_assert_ok(plan_model(GPT_OSS,
                                tsr_model_plan_params(.context = 8, .host_experts = layers), NULL,
                                &host, NULL));
        ck_assert_uint_eq(host.host_bytes, there);
        ck_assert_uint_eq(host.host_token_bytes, there / 8 * 3);
        ck_assert_uint_eq(host.total_bytes, all.total_bytes - there);
        ck_assert_uint_eq(host.expert_bytes, all.expert_bytes - there);
        ck_assert_uint_eq(host.token_bytes, all.token_bytes - there / 8 * 3);
        ck_assert_uint_eq(host.token_parameters, all.token_parameters);
        const uint64_t memory = host.total_bytes;
        ck_assert_ok(
            plan_model(GPT_OSS, tsr_model_plan_params(.context = 8), &memory, &host, &fit));
        ck_assert_int_eq(fit.host_experts, layers < 4 ? layers : 4);
    }
    const uint64_t little = host.total_bytes - 4 * MATRICES - 1;
    ck_assert_ok(plan_model(GPT_OSS, tsr_model_plan_params(.context = 8), &little, &host, &fit));
    ck_assert(fit.rank == 0 && fit.host_experts == 0);
    ck_assert_error(
        plan_model(GPT_OSS, tsr_model_plan_params(.host_experts = -1), NULL, &host, NULL),
        TSR_ERR_INVALID, "model: host_experts is -1; it must be at least 0");
}
END_TEST

/* Experts of the layer that predicts further tokens are on the host after all others, and only
 * drafts read them. */
START_TEST(experts_of_drafts_on_the_host)
{
    tsr_model_file *given = NULL, *file = NULL;
    tsr_model_rank_plan one[3];
    ck_assert_ok(
        tsr_model_file_open(TEST_DATA "/model/families/qwen35moe/qwen35moe-f16.gguf", &given));
    tsr_model_config config = *tsr_model_file_config(given);
    config.next_token_layers = 1;
    ck_assert_ok(tsr_model_file_open_random(&config, TSR_F32, 1, &file));
    for (int i = 0; i < 3; i++) {
        one[i] = TSR_INIT(tsr_model_rank_plan);
        ck_assert_ok(tsr_model_plan(
            file, tsr_model_plan_params(.next_token = i > 0, .host_experts = config.layers + i / 2),
            NULL, &one[i], NULL));
        ck_assert_uint_eq(one[i].host_token_bytes, one[0].host_token_bytes);
        ck_assert_uint_eq(one[i].token_parameters, one[0].token_parameters);
        ck_assert_uint_eq(one[i].token_bytes, one[0].token_bytes);
    }
    ck_assert(one[0].host_bytes == one[1].host_bytes && one[1].host_bytes < one[2].host_bytes);
    ck_assert_uint_eq(one[1].weight_bytes - one[2].weight_bytes,
                      one[2].host_bytes - one[1].host_bytes);
    tsr_model_file_close(&file);
    tsr_model_file_close(&given);
}
END_TEST

/* A rank of rate 0 has no experts, and less memory than it needs is named. */
START_TEST(experts_by_rates)
{
    const double rates[3] = {3, 0, 1};
    const uint64_t memory[3] = {90000, 0, 100000};
    tsr_model_rank_plan three[3];
    tsr_model_fit fit;
    const tsr_model_plan_params params = {
        .struct_size = sizeof params,
        .ranks = 3,
        .expert_division = TSR_EXPERT_DIVISION_WHOLE,
        .context = 8,
        .partition = tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates)};
    ck_assert_ok(plan_model(GPT_OSS, &params, memory, three, &fit));
    ck_assert(three[0].experts == 6 && three[1].experts == 0 && three[2].experts == 2);
    ck_assert(three[1].expert_bytes == 0 && three[0].expert_bytes == 3 * three[2].expert_bytes);
    ck_assert(fit.rank == 0 && fit.missing_bytes == three[0].total_bytes - memory[0]);
}
END_TEST

/* A cache of latents is the same on each rank that has heads. */
START_TEST(latents_are_planned)
{
    static const char path[] = TEST_DATA "/model/families/deepseek2/hf";
    static const double rates[] = {2, 0, 1};
    tsr_model_rank_plan three[3];
    tsr_model_plan_params p = {
        .struct_size = sizeof p,
        .ranks = 3,
        .context = 32,
        .sequences = 2,
        .cache_dtype = TSR_F16,
        .partition = tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates)};
    ck_assert_ok(plan_model(path, &p, NULL, three, NULL));
    ck_assert(three[0].heads == 4 && three[1].heads == 0 && three[2].heads == 2);
    ck_assert(three[0].kv_heads == 1 && three[1].kv_heads == 0 && three[2].kv_heads == 1);
    ck_assert_uint_eq(three[0].cache_bytes, 4 * 2 * 32 * (32 + 8) * 2);
    ck_assert_uint_eq(three[2].cache_bytes, three[0].cache_bytes);
    ck_assert_uint_eq(three[1].cache_bytes, 0);
    /* what all ranks have of a layer: q_a and kv_a; and of a head: q_b, k_b, v_b and o */
    const uint64_t all = 24 * 64 + 40 * 64, head = 20 * 24 + 32 * 12 + 16 * 32 + 64 * 16;
    ck_assert_uint_eq(three[1].attention_bytes, 4 * all * 2);
    ck_assert_uint_eq(three[0].attention_bytes, 4 * (all + 4 * head) * 2);
    /* in blocks of 32 columns: all but q_b and k_b, which have 24 and 12 columns */
    p.ranks = 1;
    p.partition = NULL;
    p.dtype = TSR_Q8_0;
    ck_assert_ok(plan_model(path, &p, NULL, three, NULL));
    ck_assert_uint_eq(three[0].attention_bytes, 4 * ((all + 6 * (16 * 32 + 64 * 16)) / 32 * 34 +
                                                     6 * (20 * 24 + 32 * 12) * 2));
}
END_TEST

/* Key heads of delta nets are divided with their heads. A rank may have none. */
START_TEST(delta_nets_are_planned)
{
    static const char path[] = TEST_DATA "/model/families/qwen3next/hf";
    tsr_model_rank_plan one, three[3];
    const tsr_model_plan_params p = {
        .struct_size = sizeof p, .ranks = 3, .context = 32, .sequences = 2};
    tsr_model_plan_params alone = p;
    alone.ranks = 1;
    ck_assert_ok(plan_model(path, &alone, NULL, &one, NULL));
    ck_assert_ok(plan_model(path, &p, NULL, three, NULL));
    /* of a key head in a layer: 2 heads with 16 · 16 numbers, and 3 inputs of 4 · 16 channels */
    const uint64_t state = 2 * (2 * 16 * 16 + 3 * 64) * sizeof(float);
    /* of two sequences, which may be forks, so that a step has three states, and keeps up to four
     * earlier ones of each, and reads a fifth */
    ck_assert_uint_eq(one.used_state_bytes, 3 * 2 * state);
    ck_assert_uint_eq(one.state_bytes, 3 * 2 * state / 2 * (3 + 2 * 5));
    ck_assert_uint_eq(one.cache_bytes, one.state_bytes + 2 * 2 * 32 * 32 * sizeof(float));
    ck_assert(one.heads == 3 && one.kv_heads == 1 && three[1].heads == 1);
    uint64_t attention = 0, states = 0;
    for (int r = 0; r < 3; r++) {
        attention += three[r].attention_bytes;
        states += three[r].state_bytes;
    }
    /* every rank has the weights of the only kv head */
    ck_assert_uint_eq(attention, one.attention_bytes + 2 * 2 * 32 * 64 * 2);
    ck_assert_uint_eq(states, one.state_bytes);
    ck_assert(three[0].used_state_bytes == 3 * state && three[2].state_bytes == 0);
    alone.draft_tokens = 7;
    alone.snapshots = 16;
    ck_assert_ok(plan_model(path, &alone, NULL, &one, NULL));
    ck_assert_uint_eq(one.state_bytes, 3 * 2 * state / 2 * (3 + 2 * 8 + 16));
    alone.snapshots = -1;
    ck_assert_error(plan_model(path, &alone, NULL, &one, NULL), TSR_ERR_INVALID,
                    "model: draft_tokens is 7, snapshots -1; 0 to 15 and 0 to 65536 are possible");
}
END_TEST

/* A rank's key heads keep blocks of the file only if those of each tile begin with a whole block.
 */
START_TEST(tiles_begin_with_whole_blocks)
{
    static const struct {
        int64_t key_heads, value_dim;
        bool keeps;
    } cases[] = {{4, 16, true}, {3, 16, false}, {3, 32, true}};
    enum { EACH = 2, OWN = 2 }; /* heads of a key head; key heads of the first rank */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t dim = cases[i].value_dim, all = cases[i].key_heads * dim;
        const tsr_shard_param file = {.dtype = "q8_0", .ndim = 2, .shape = {1, EACH * all}};
        tsr__weight weight = {
            .file = &file,
            .rows = 1,
            .columns = EACH * all,
            .column_order = {.run = dim, .runs = EACH, .run_step = all, .group_step = dim}};
        tsr__weight_part part = {.rows = 1, .columns = EACH * OWN * dim};
        tsr__weight_keep_tiles(&weight, &part);
        ck_assert_int_eq(tsr__order_in_file(&weight.column_order, OWN * dim), all);
        ck_assert_msg(tsr__weight_keeps_blocks(&weight, TSR_Q8_0) == cases[i].keeps, "case %zu", i);
    }
}
END_TEST

/* One rank keeps every weight in the dtype of the file, also floats beside a quantised embedding.
 */
START_TEST(weights_are_kept_as_the_file_has_them)
{
    static const char *const paths[] = {
        TEST_DATA "/model/stories260K-f16.gguf",
        TEST_DATA "/model/stories260K-q8_0mix.gguf",
        TEST_DATA "/model/stories260K-q4_0mix.gguf",
        TEST_DATA "/model/stories260K-q4_k_m.gguf",
        TEST_DATA "/model/synth-A-q5_k_m.gguf",
        TEST_DATA "/model/families/gptoss/gptoss-mxfp4.gguf",
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        tsr_shard_list *list = NULL;
        tsr_model_file *model = NULL;
        tsr_model_rank_plan one = TSR_INIT(tsr_model_rank_plan);
        uint64_t bytes = 0;
        ck_assert_ok(tsr_shard_list_open(paths[i], &list));
        for (uint64_t p = 0; p < tsr_shard_list_param_count(list); p++)
            bytes += tsr_shard_list_param(list, p)->size_bytes;
        ck_assert_ok(tsr_model_file_open(paths[i], &model));
        ck_assert_ok(tsr_model_plan(model, NULL, NULL, &one, NULL));
        ck_assert_msg(one.weight_bytes == bytes, "%s: %llu bytes instead of %llu", paths[i],
                      (unsigned long long)one.weight_bytes, (unsigned long long)bytes);
        tsr_model_file_close(&model);
        tsr_shard_list_destroy(&list);
    }
}
END_TEST

TESTS(model_plan)
{
    tcase_add_test(tests, experts_are_planned);
    tcase_add_test(tests, experts_by_rates);
    tcase_add_test(tests, experts_by_memory);
    tcase_add_test(tests, experts_by_memory_of_stages_and_kinds);
    tcase_add_test(tests, experts_mixed_over_hosts);
    tcase_add_test(tests, shared_keys);
    tcase_add_test(tests, experts_on_the_host);
    tcase_add_test(tests, experts_of_drafts_on_the_host);
    tcase_add_test(tests, delta_nets_are_planned);
    tcase_add_test(tests, tiles_begin_with_whole_blocks);
    tcase_add_test(tests, latents_are_planned);
    tcase_add_test(tests, weights_are_kept_as_the_file_has_them);
    tcase_add_test(tests, params_are_checked);
    tcase_add_test(tests, shares_add_up);
    tcase_add_test(tests, what_would_fit_fits);
    tcase_add_test(tests, stages_add_up);
    tcase_add_test(tests, stages_have_what_their_memory_holds);
    tcase_add_test(tests, stages_of_different_layers);
    tcase_add_test(tests, what_would_fit_stages_fits);
    tcase_add_test(tests, memory_runs_out);
}
