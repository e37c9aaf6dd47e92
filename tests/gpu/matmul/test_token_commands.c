/* Counts the commands of a token of a model with TinyLlama's shape, narrower and with fewer layers,
 * by the kernels for GPUs: no norm, rotary embedding, copy or sum of its own. Also compares its
 * logits with those that the device's usual kernels give. On devices with matrix units, such as
 * lavapipe of Mesa 26.2, also checks that these compute all large products of a prompt and of
 * training in 16 bits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu/device/device.h"
#include "gpu/stream/profile.h"
#include "parallel/layers/layer.h"
#include "support/check_main.h"
#include "support/gpu.h"
#include "tessera/tessera.h"

enum { LAYERS = 3, WIDTH = 256, HEADS = 8, KV_HEADS = 1, HIDDEN = 704, VOCABULARY = 512 };
/* After a long prompt, attention has several ranges of keys. The prompt is computed in pieces. */
enum { PROMPT = 5, LONG_PROMPT = 130, PIECE = 5, TOKENS = 3, CONTEXT = LONG_PROMPT + TOKENS };

static const tsr_model_layer layer = {
    .struct_size = sizeof(tsr_model_layer),
    .heads = HEADS,
    .kv_heads = KV_HEADS,
    .head_dim = WIDTH / HEADS,
    .hidden = HIDDEN,
    .gated = true,
    .activation = TSR_ACT_SILU,
    .rope = &(const tsr_rope_params){.struct_size = sizeof(tsr_rope_params),
                                     .rotary_dim = WIDTH / HEADS},
};

static const tsr_model_config config = {
    .struct_size = sizeof(tsr_model_config),
    .architecture = "llama",
    .layers = LAYERS,
    .width = WIDTH,
    .vocabulary = VOCABULARY,
    .context = CONTEXT,
    .norm_epsilon = 1e-5,
    .norm = TSR_NORM_RMS,
    .bos = 1,
    .kind_count = 1,
    .kinds = (const tsr_model_layer *const[]){&layer},
};

static void keep(void *user, int sequence, int64_t position, const float *logits)
{
    float(*all)[VOCABULARY] = user;
    ck_assert(sequence == 0 && position < CONTEXT);
    memcpy(all[position], logits, sizeof all[position]);
}

/* Generates tokens after a prompt, keeps the logits of all positions, and counts the commands of
 * the last token. The tokens are those of `ids` if it has any; otherwise they are written to it. */
static void generate(tsr_dtype dtype, int prompt_count, float logits[CONTEXT][VOCABULARY],
                     int32_t ids[TOKENS], tsr__profile *profile)
{
    int32_t prompt[LONG_PROMPT];
    tsr_group *group = NULL;
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    tsr_generator *generator = NULL;
    int number, given;
    for (int i = 0; i < prompt_count; i++)
        prompt[i] = i * i % VOCABULARY;
    GPU_OK(tsr_group_create(NULL, queue, NULL, &group));
    GPU_OK(tsr_model_file_open_random(&config, dtype, 7, &file));
    GPU_OK(tsr_model_open(file, tsr_model_params(.group = group), &model));
    tsr_model_file_close(&file);
    GPU_OK(tsr_generator_create(tsr_generator_params(.model = model, .context = CONTEXT,
                                                     .cache_dtype = TSR_F32, .prefill = PIECE,
                                                     .logits = logits ? keep : NULL, .user = logits,
                                                     .logits_positions = logits ? CONTEXT : 0),
                                &generator));
    GPU_OK(tsr_generator_add(generator,
                             tsr_sequence_params(.prompt = prompt, .prompt_count = prompt_count,
                                                 .max_tokens = TOKENS, .ignore_end = true),
                             &number));
    for (int i = 0; i < TOKENS; i++) {
        if (profile && i == TOKENS - 1)
            GPU_OK(tsr__stream_profile_begin(queue));
        GPU_OK(tsr_generator_step(generator, &given));
        ck_assert_int_eq(given, 1);
        ids[i] = tsr_generator_token(generator, 0)->token;
    }
    if (profile)
        GPU_OK(tsr__stream_profile_end(queue, profile));
    tsr_generator_destroy(&generator);
    tsr_model_close(&model);
    tsr_group_destroy(&group);
}

static uint64_t count_of(const tsr__profile *profile, const char *part)
{
    uint64_t count = 0;
    for (int i = 0; i < profile->kernel_count; i++)
        if (strstr(profile->kernels[i].name, part))
            count += profile->kernels[i].commands;
    return count;
}

static void check(tsr_dtype dtype, int prompt)
{
    static float usual[CONTEXT][VOCABULARY], got[CONTEXT][VOCABULARY];
    static tsr__profile profile;
    int32_t usual_ids[TOKENS], ids[TOKENS];
    const tsr__device_class device_class = gpu->traits.device_class;
    generate(dtype, prompt, usual, usual_ids, NULL);
    gpu->host_copies = false;
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    generate(dtype, prompt, got, ids, NULL);
    generate(dtype, prompt, NULL, ids, &profile);
    tsr__device_treat_as(gpu, device_class);
    for (int i = 0; i < prompt + TOKENS - 1; i++)
        for (int j = 0; j < VOCABULARY; j++)
            ck_assert_msg(fabsf(got[i][j] - usual[i][j]) <= 2e-4F * (1 + fabsf(usual[i][j])),
                          "%s: logit %d of position %d is %g, not %g", tsr_dtype_name(dtype), j, i,
                          (double)got[i][j], (double)usual[i][j]);
    uint64_t commands = 0, barriers = 0;
    for (int i = 0; i < profile.kernel_count; i++) {
        commands += profile.kernels[i].commands;
        barriers += profile.kernels[i].barriers;
    }
    ck_assert_uint_eq(count_of(&profile, "norm"), 0);
    ck_assert_uint_eq(count_of(&profile, "copy"), 0);
    ck_assert_uint_eq(count_of(&profile, "matmul_sum"), 0);
    ck_assert_uint_eq(count_of(&profile, "activate"), 0);
    ck_assert_uint_eq(count_of(&profile, "rope"), 0);
    ck_assert_uint_eq(count_of(&profile, "attention"), LAYERS);
    /* query, key and value; output; gate and up; down; and the head */
    ck_assert_uint_eq(count_of(&profile, "matmul"), 4 * LAYERS + 1);
    /* and attention with rotary embedding and cache; outside the layers, embedding and head */
    ck_assert_msg(commands <= 5 * LAYERS + 2, "%s: %llu commands", tsr_dtype_name(dtype),
                  (unsigned long long)commands);
    ck_assert_msg(barriers <= commands + profile.batches, "%s: %llu barriers, %llu commands",
                  tsr_dtype_name(dtype), (unsigned long long)barriers,
                  (unsigned long long)commands);
}

START_TEST(a_token_of_f16_takes_five_commands_a_layer)
{
    check(TSR_F16, LONG_PROMPT);
}
END_TEST

START_TEST(a_token_of_q8_0_takes_five_commands_a_layer)
{
    check(TSR_Q8_0, PROMPT);
}
END_TEST

/* Training ------------------------------------------------------------------------------------- */

enum { STEP_LAYERS = 2, STEP_WIDTH = 128, STEP_ROWS = 12, STEP_TOKENS = 64, STEP_WORDS = 65 };

/* Forward and backward pass, loss and update of examples/gpt's model with biases, with fewer
 * layers. */
static void training_step(tsr_stack *stack, tsr_optimizer *optimizer, tsr_tensor *const io[3])
{
    tsr_stack_saved *saved = NULL;
    tsr_tensor *y = NULL, *dy = NULL;
    GPU_OK(tsr_stack_forward(stack, io[0], NULL, &saved, &y));
    GPU_OK(tsr_stack_head_loss(stack, y,
                               tsr_head_loss_params(.labels = io[1], .losses = io[2],
                                                    .scale = 1.0F / (STEP_ROWS * STEP_TOKENS)),
                               &dy));
    GPU_OK(tsr_stack_backward(stack, saved, dy, NULL));
    GPU_OK(tsr_optimizer_step(optimizer, 1e-3F));
    GPU_OK(tsr_optimizer_zero_grad(optimizer));
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&dy);
    tsr_stack_saved_destroy(&saved);
}

static const tsr_model_layer gpt_layer = {.struct_size = sizeof gpt_layer,
                                          .heads = 4,
                                          .kv_heads = 4,
                                          .head_dim = STEP_WIDTH / 4,
                                          .hidden = 4 * STEP_WIDTH,
                                          .activation = TSR_ACT_GELU_ERF,
                                          .qkv_bias = true,
                                          .output_bias = true,
                                          .mlp_bias = true};
static const tsr_model_config gpt = {.struct_size = sizeof gpt,
                                     .architecture = "gpt2",
                                     .layers = STEP_LAYERS,
                                     .width = STEP_WIDTH,
                                     .vocabulary = STEP_WORDS,
                                     .context = STEP_TOKENS,
                                     .norm_epsilon = 1e-5,
                                     .norm = TSR_NORM_LAYER,
                                     .norm_bias = true,
                                     .learned_positions = true,
                                     .tied = true,
                                     .kind_count = 1,
                                     .kinds = (const tsr_model_layer *const[]){&gpt_layer}};

/* Makes steps, counts the commands of the last one, and writes the mean loss of each. */
static void train(int steps, double *losses, tsr__profile *profile)
{
    static const char *const everything[] = {"*", NULL};
    const int64_t rows = STEP_ROWS * STEP_TOKENS;
    int32_t ids[STEP_ROWS * STEP_TOKENS + 1];
    float all[STEP_ROWS * STEP_TOKENS];
    tsr_group *group = NULL;
    tsr_stack *stack = NULL;
    tsr_optimizer *optimizer = NULL;
    const int64_t shape[] = {STEP_ROWS, STEP_TOKENS};
    tsr_tensor *io[] = {gpu_new(TSR_I32, 2, shape), gpu_new(TSR_I32, 2, shape),
                        gpu_new(TSR_F32, 2, shape)};
    for (int i = 0; i <= rows; i++)
        ids[i] = i * i % STEP_WORDS;
    GPU_OK(tsr_tensor_upload(queue, io[0], ids, (uint64_t)rows * sizeof *ids));
    GPU_OK(tsr_tensor_upload(queue, io[1], ids + 1, (uint64_t)rows * sizeof *ids));
    GPU_OK(tsr_group_create(NULL, queue, NULL, &group));
    GPU_OK(tsr_stack_create(
        tsr_stack_params(.config = &gpt, .group = group, .layers = STEP_LAYERS, .seed = 1),
        &stack));
    GPU_OK(tsr_stack_shard(stack, tsr_fsdp_params(.group = group, .gather = everything)));
    GPU_OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue), &optimizer));
    GPU_OK(tsr_stack_add_to(stack, optimizer));
    for (int step = 0; step < steps; step++) {
        if (step == steps - 1)
            GPU_OK(tsr__stream_profile_begin(queue));
        training_step(stack, optimizer, io);
        if (step == steps - 1)
            GPU_OK(tsr__stream_profile_end(queue, profile));
        GPU_OK(tsr_tensor_download(queue, io[2], all, sizeof all));
        losses[step] = 0;
        for (int i = 0; i < rows; i++)
            losses[step] += (double)all[i] / (double)rows;
    }
    tsr_optimizer_destroy(&optimizer);
    tsr_stack_destroy(&stack);
    tsr_group_destroy(&group);
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&io[i]);
}

/* On GPUs, products add biases and residuals, apply the activation and multiply by its derivative;
 * norms keep the statistics of their rows, and their gradients add that of the residual. */
START_TEST(training_steps_have_few_commands)
{
    enum { STEPS = 3 };
    static tsr__profile profile;
    double usual[STEPS], losses[STEPS];
    uint64_t commands = 0;
    train(STEPS, usual, &profile);
    gpu->host_copies = false;
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    train(STEPS, losses, &profile);
    for (int i = 0; i < STEPS; i++)
        ck_assert_msg(fabs(losses[i] - usual[i]) < 1e-5 && (i == 0 || losses[i] < losses[i - 1]),
                      "loss %d is %.9g, by the usual kernels %.9g", i, losses[i], usual[i]);
    ck_assert_uint_eq(count_of(&profile, "activate"), 0);
    /* one for each norm's result, one for dx, and one for the sums over rows */
    ck_assert_uint_eq(count_of(&profile, "norm"), 3 * (2 * STEP_LAYERS + 1));
    /* none in the layers */
    ck_assert_uint_le(count_of(&profile, "elementwise"), 2);
    /* products add up the gradients of biases; one sum for each norm, and one of the positions */
    ck_assert_uint_eq(count_of(&profile, "reduce"), 2 * STEP_LAYERS + 1 + 1);
    ck_assert_uint_eq(count_of(&profile, "cross_entropy"), 1);
    for (int i = 0; i < profile.kernel_count; i++)
        commands += profile.kernels[i].commands;
    ck_assert_msg(commands <= 75, "%llu commands", (unsigned long long)commands);
}
END_TEST

/* A mixture of experts with `shared` features of a shared expert, for one token in a residual
 * branch. */
static void check_experts(int64_t shared, bool shared_gate, uint64_t most)
{
    static tsr__profile profile;
    static const float zeros[WIDTH];
    tsr_group *group = NULL;
    tsr_layer *experts = NULL;
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){1, WIDTH}), *y = NULL;
    const tsr__device_class device_class = gpu->traits.device_class;
    const bool host_copies = gpu->host_copies;
    GPU_OK(tsr_tensor_upload(queue, x, zeros, sizeof zeros));
    GPU_OK(tsr_group_create(NULL, queue, NULL, &group));
    GPU_OK(tsr_moe_create(
        tsr_moe_params(.group = group, .name = "moe", .input_size = WIDTH, .hidden_size = 128,
                       .experts = 16, .experts_used = 4, .dtype = TSR_F16, .shared_size = shared,
                       .shared_gate = shared_gate, .route = tsr_route_params(.normalise = true)),
        &experts));
    gpu->host_copies = false;
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    GPU_OK(tsr__stream_profile_begin(queue));
    GPU_OK(tsr__layer_forward_added(experts, x, NULL, x, NULL, &y));
    GPU_OK(tsr__stream_profile_end(queue, &profile));
    tsr__device_treat_as(gpu, device_class);
    gpu->host_copies = host_copies;
    uint64_t commands = 0;
    double bytes = 0;
    for (int i = 0; i < profile.kernel_count; i++) {
        commands += profile.kernels[i].commands;
        if (strstr(profile.kernels[i].name, "matmul_grouped"))
            bytes += profile.kernels[i].read_bytes;
    }
    ck_assert_msg(commands <= most, "%llu commands of at most %llu", (unsigned long long)commands,
                  (unsigned long long)most);
    /* three matrices of four of the sixteen experts, and of the shared expert */
    ck_assert_equal(bytes, 3.0 * 2 * WIDTH * (4 * 128 + (double)shared));
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_layer_destroy(&experts);
    tsr_group_destroy(&group);
}

/* router, choice, gate and up, and down with the weighted sum and the residual */
START_TEST(experts_take_four_commands)
{
    check_experts(0, false, 4);
}
END_TEST

/* and gate and up, and down; with a gate, its logit and the sigmoid, too */
START_TEST(a_shared_expert_takes_two_or_four_more)
{
    check_experts(64, false, 6);
    check_experts(64, true, 8);
}
END_TEST

/* Matrix units --------------------------------------------------------------------------------- */

#define NEEDS_MATRICES                                                                             \
    if (gpu->info.coopmat_used < 0)                                                                \
    SKIP("no cooperative matrices of f16")

/* Checks that matrix units compute all products and attention that were counted, except `others`
 * operations. */
static void check_units(const tsr__profile *profile, double others)
{
    double by_units = 0, by_others = 0;
    for (int i = 0; i < profile->kernel_count; i++)
        *(profile->kernels[i].matrix_units ? &by_units : &by_others) +=
            profile->kernels[i].operations;
    ck_assert(by_units > 0);
    if (by_others <= others)
        return;
    for (int i = 0; i < profile->kernel_count; i++)
        printf("# %s: %g operations%s\n", profile->kernels[i].name, profile->kernels[i].operations,
               profile->kernels[i].matrix_units ? " by matrix units" : "");
    ck_abort_msg("%g operations by other kernels, of which %g were expected", by_others, others);
}

/* The prompt's features are f32, and its cache f16. */
static void check_prompt(tsr_dtype dtype)
{
    enum { LONG = 48 };
    static tsr__profile profile;
    int32_t ids[LONG];
    tsr_group *group = NULL;
    tsr_model_file *file = NULL;
    tsr_model *model = NULL;
    tsr_generator *generator = NULL;
    uint64_t commands = 0;
    int number, given;
    NEEDS_MATRICES;
    for (int i = 0; i < LONG; i++)
        ids[i] = i % 7 + 1;
    gpu->host_copies = false;
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    GPU_OK(tsr_group_create(NULL, queue, NULL, &group));
    GPU_OK(tsr_model_file_open_random(&config, dtype, 7, &file));
    GPU_OK(tsr_model_open(file, tsr_model_params(.group = group), &model));
    tsr_model_file_close(&file);
    GPU_OK(tsr_generator_create(tsr_generator_params(.model = model, .context = 64), &generator));
    GPU_OK(tsr_generator_add(generator,
                             tsr_sequence_params(.prompt = ids, .prompt_count = LONG,
                                                 .max_tokens = 1, .ignore_end = true),
                             &number));
    GPU_OK(tsr__stream_profile_begin(queue));
    GPU_OK(tsr_generator_step(generator, &given));
    GPU_OK(tsr__stream_profile_end(queue, &profile));
    tsr_generator_destroy(&generator);
    tsr_model_close(&model);
    tsr_group_destroy(&group);
    for (int i = 0; i < profile.kernel_count; i++)
        commands += profile.kernels[i].commands;
    /* the head, which has one row */
    check_units(&profile, 2.0 * WIDTH * VOCABULARY);
    ck_assert_uint_eq(count_of(&profile, "matmul_coopmat"), 4 * LAYERS);
    ck_assert_uint_eq(count_of(&profile, "norm"), 0);
    ck_assert_uint_eq(count_of(&profile, "activate"), 0);
    ck_assert_uint_eq(count_of(&profile, "copy"), 0);
    ck_assert_uint_eq(count_of(&profile, "rope"), LAYERS);
    ck_assert_uint_eq(count_of(&profile, "attention"), LAYERS);
    /* Features are narrowed for queries, keys and values, for gate and up, and for down. Attention
     * gives f16. Weights in blocks are narrowed for all four products. */
    ck_assert_uint_eq(count_of(&profile, "matmul_narrow"), (dtype == TSR_F16 ? 3 : 3 + 4) * LAYERS);
    /* outside the layers, embedding and head; products with so few columns split k */
    ck_assert_uint_eq(commands - count_of(&profile, "matmul_sum"),
                      (dtype == TSR_F16 ? 9 : 13) * LAYERS + 2);
}

START_TEST(prompts_of_f16_take_matrix_units)
{
    check_prompt(TSR_F16);
}
END_TEST

START_TEST(prompts_of_q8_0_take_matrix_units)
{
    check_prompt(TSR_Q8_0);
}
END_TEST

/* A product, its two gradients, and attention with its gradients. */
START_TEST(training_in_16_bits_takes_matrix_units)
{
    enum { ROWS = 128, IN = 192, OUT = 256, DIM = 64 };
    static tsr__profile profile;
    NEEDS_MATRICES;
    gpu->host_copies = false;
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    tsr_tensor *x = gpu_new(TSR_F16, 2, (int64_t[]){ROWS, IN}),
               *w = gpu_new(TSR_F16, 2, (int64_t[]){OUT, IN}),
               *y = gpu_new(TSR_F16, 2, (int64_t[]){ROWS, OUT}), *heads[8], *lse;
    lse = gpu_new(TSR_F32, 3, (int64_t[]){1, 2, ROWS});
    for (int i = 0; i < 8; i++)
        heads[i] = gpu_new(TSR_F16, 4, (int64_t[]){1, 2, ROWS, DIM});
    GPU_OK(tsr__stream_profile_begin(queue));
    GPU_OK(tsr_matmul(queue, y, x, w, tsr_matmul_params(.transpose_b = true)));
    GPU_OK(tsr_matmul(queue, x, y, w, NULL));
    GPU_OK(tsr_matmul(queue, w, y, x, tsr_matmul_params(.transpose_a = true)));
    GPU_OK(tsr_attention(queue, heads[0], lse, heads[1], heads[2], heads[3],
                         tsr_attention_params(.causal = true)));
    GPU_OK(tsr_attention_grad(queue, heads[4], heads[5], heads[6], heads[7], heads[0], lse,
                              heads[1], heads[2], heads[3], tsr_attention_params(.causal = true)));
    GPU_OK(tsr__stream_profile_end(queue, &profile));
    check_units(&profile, 0);
    for (int i = 0; i < 8; i++)
        tsr_tensor_destroy(&heads[i]);
    tsr_tensor *all[] = {x, w, y, lse};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

TESTS(token_commands)
{
    tcase_add_checked_fixture(tests, gpu_setup_not_shared, gpu_teardown);
    tcase_add_test(tests, a_token_of_f16_takes_five_commands_a_layer);
    tcase_add_test(tests, a_token_of_q8_0_takes_five_commands_a_layer);
    tcase_add_test(tests, training_steps_have_few_commands);
    tcase_add_test(tests, experts_take_four_commands);
    tcase_add_test(tests, a_shared_expert_takes_two_or_four_more);
    tcase_add_test(tests, prompts_of_f16_take_matrix_units);
    tcase_add_test(tests, prompts_of_q8_0_take_matrix_units);
    tcase_add_test(tests, training_in_16_bits_takes_matrix_units);
}
