/* Structs of model.h, generator.h and convert.h that are shorter or longer than the library's. The
 * structs of functions that need a device are in generation.c. */
#include "model/open.h"
#include "support/check_main.h"
#include "support/struct_sizes.h"

#define STORIES TEST_DATA "/model/stories260K-f32.gguf"

static tsr_model_file *file;

static void setup(void)
{
    ck_assert_ok(tsr_model_file_open(STORIES, &file));
}

static void teardown(void)
{
    tsr_model_file_close(&file);
}

static void check(const struct_sizes_case *c)
{
    const char *problem = struct_sizes_problem(c);
    ck_assert_msg(!problem, "%s", problem);
}

#define CHECK_PARAMS(type, good, shortest, function)                                               \
    check(&(struct_sizes_case){#type, sizeof(type), good, shortest, false, function})
#define CHECK_RESULT(type, shortest, function)                                                     \
    check(&(struct_sizes_case){#type, sizeof(type), &TSR_INIT(type), shortest, true, function})

static const uint64_t memory[] = {1};

static tsr_status plan_by(void *given)
{
    tsr_model_rank_plan one = TSR_INIT(tsr_model_rank_plan);
    return tsr_model_plan(file, given, NULL, &one, NULL);
}

static tsr_status plan_to(void *given)
{
    return tsr_model_plan(file, NULL, NULL, given, NULL);
}

static tsr_status fit_to(void *given)
{
    tsr_model_rank_plan one = TSR_INIT(tsr_model_rank_plan);
    return tsr_model_plan(file, NULL, memory, &one, given);
}

START_TEST(plans)
{
    const tsr_model_plan_params good = {.struct_size = sizeof good, .ranks = 1, .context = 8};
    CHECK_PARAMS(tsr_model_plan_params, &good, sizeof(size_t), plan_by);
    CHECK_RESULT(tsr_model_rank_plan, 3 * sizeof(size_t), plan_to);
    CHECK_RESULT(tsr_model_fit, 2 * sizeof(size_t), fit_to);
}
END_TEST

/* The ranks of a plan are an array, whose stride is the struct_size of the first one. */
START_TEST(arrays_of_ranks)
{
    struct {
        size_t struct_size;
        int64_t heads;
    } older[2] = {{sizeof *older, 0}, {sizeof *older, 0}};
    const tsr_model_plan_params *params = tsr_model_plan_params(.ranks = 2);
    ck_assert_ok(tsr_model_plan(file, params, NULL, (tsr_model_rank_plan *)older, NULL));
    ck_assert(older[0].heads == 4 && older[1].heads == 4 &&
              older[1].struct_size == sizeof older[1]);
    tsr_model_rank_plan ranks[2] = {TSR_INIT(tsr_model_rank_plan)};
    ck_assert_error(tsr_model_plan(file, params, NULL, ranks, NULL), TSR_ERR_INVALID,
                    "tsr_model_rank_plan: struct_size of element 1 is 0, of element 0 216");
}
END_TEST

static tsr_status config_of(void *given)
{
    tsr_model_file *random = NULL;
    const tsr_status status = tsr_model_file_open_random(given, TSR_F32, 1, &random);
    tsr_model_file_close(&random);
    return status;
}

static tsr_status layer_of_config(void *given)
{
    tsr_model_config config = *tsr_model_file_config(file);
    config.kinds = (const tsr_model_layer *const[]){given};
    return config_of(&config);
}

static tsr_status experts_of_config(void *given)
{
    const tsr_model_config *from = tsr_model_file_config(file);
    tsr_model_layer layer = *from->kinds[0];
    tsr_model_config config = *from;
    layer.experts = given;
    config.architecture = "qwen3_moe";
    config.kinds = (const tsr_model_layer *const[]){&layer};
    return config_of(&config);
}

/* Descriptions of experts, of which a model of another family has none. */
START_TEST(descriptions_of_experts)
{
    const tsr_model_experts good = {
        .struct_size = sizeof good, .count = 4, .used = 2, .hidden = 32, .normalise = true};
    static const struct {
        tsr_model_experts experts;
        const char *text;
    } mistakes[] = {
        {{.count = 0, .used = 1, .hidden = 1}, "there are 0 experts; 1 to 1024 are possible"},
        {{.count = 64, .used = 33, .hidden = 1},
         "a token uses 33 of 64 experts; 1 to 32, and at most all, are possible"},
        {{.count = 4, .used = 2, .hidden = 1, .shared_gate = true},
         "there is a gate of a shared expert, but no shared expert"},
        {{.count = 4, .used = 2, .hidden = 1, .gating = (tsr_gating)3},
         "the gating function of experts is number 3, which is not a tsr_gating"},
        {{.count = 4, .used = 2, .hidden = 1, .activation = (tsr_expert_activation)3},
         "the activation of experts is number 3, which is not a tsr_expert_activation"},
        {{.count = 4, .used = 2, .hidden = 1, .scale = INFINITY},
         "the factor of the experts' weights is inf, and the limit of their activation 0"},
    };
    CHECK_PARAMS(tsr_model_experts, &good, offsetof(tsr_model_experts, gating), experts_of_config);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        char text[160];
        tsr_model_experts wrong = mistakes[i].experts;
        wrong.struct_size = sizeof wrong;
        snprintf(text, sizeof text, "model: configuration: %s", mistakes[i].text);
        ck_assert_error(experts_of_config(&wrong), TSR_ERR_INVALID, text);
    }
    tsr_model_layer layer = *tsr_model_file_config(file)->kinds[0];
    layer.experts = &good;
    ck_assert_error(
        layer_of_config(&layer), TSR_ERR_INVALID,
        "model: configuration: a layer has experts, but models of architecture llama do "
        "not");
}
END_TEST

static tsr_status delta_net_of_config(void *given)
{
    const tsr_model_config *from = tsr_model_file_config(file);
    const tsr_model_layer layer = {.struct_size = sizeof layer,
                                   .hidden = from->kinds[0]->hidden,
                                   .gated = true,
                                   .activation = TSR_ACT_SILU,
                                   .delta_net = given};
    tsr_model_config config = *from;
    config.architecture = "qwen3_5_text";
    config.kinds = (const tsr_model_layer *const[]){&layer};
    return config_of(&config);
}

static void refused_layer(const tsr_model_layer *layer, const char *architecture, int next_layers,
                          const char *mistake)
{
    char text[200];
    tsr_model_config config = *tsr_model_file_config(file);
    config.architecture = architecture;
    config.kinds = (const tsr_model_layer *const[]){layer};
    config.next_token_layers = next_layers;
    snprintf(text, sizeof text, "model: configuration: %s", mistake);
    ck_assert_error(config_of(&config), TSR_ERR_INVALID, text);
}

/* Descriptions of delta nets, and of layers that cannot have one. */
START_TEST(descriptions_of_delta_nets)
{
    const tsr_model_delta_net good = {
        .struct_size = sizeof good, .key_heads = 2, .heads = 6, .key_dim = 16, .value_dim = 8};
    static const struct {
        tsr_model_delta_net net;
        const char *text;
    } mistakes[] = {
        {{.key_heads = 0, .heads = 4, .key_dim = 8, .value_dim = 8},
         "a delta net has 0 key heads and 4 heads; 1 to 4096 are possible"},
        {{.key_heads = 3, .heads = 4, .key_dim = 8, .value_dim = 8},
         "4 heads of a delta net do not divide over 3 key heads"},
        {{.key_heads = 2, .heads = 4, .key_dim = 6, .value_dim = 8},
         "the key size of a delta net is 6; a multiple of 4, at most 256, is possible"},
        {{.key_heads = 2, .heads = 4, .key_dim = 8, .value_dim = 260},
         "the value size of a delta net is 260; a multiple of 4, at most 256, is possible"},
        {{.key_heads = 2, .heads = 4, .key_dim = 8, .value_dim = 8, .taps = 17},
         "the convolution of a delta net has 17 taps; 2 to 16 are possible"},
    };
    CHECK_PARAMS(tsr_model_delta_net, &good, sizeof good, delta_net_of_config);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        char text[160];
        tsr_model_delta_net wrong = mistakes[i].net;
        wrong.struct_size = sizeof wrong;
        snprintf(text, sizeof text, "model: configuration: %s", mistakes[i].text);
        ck_assert_error(delta_net_of_config(&wrong), TSR_ERR_INVALID, text);
    }
    /* convolutions have no blocks */
    const tsr_model_delta_net net = {
        .struct_size = sizeof net, .key_heads = 2, .heads = 4, .key_dim = 16, .value_dim = 16};
    tsr_model_layer layer = {.struct_size = sizeof layer, .hidden = 96, .delta_net = &net};
    tsr_model_config blocks = *tsr_model_file_config(file);
    tsr_model_file *random = NULL;
    tsr_model_rank_plan planned = TSR_INIT(tsr_model_rank_plan);
    blocks.architecture = "qwen3_5_text";
    blocks.kinds = (const tsr_model_layer *const[]){&layer};
    ck_assert_ok(tsr_model_file_open_random(&blocks, TSR_Q8_0, 1, &random));
    ck_assert_ok(tsr_model_plan(random, NULL, NULL, &planned, NULL));
    ck_assert_int_gt((int64_t)planned.state_bytes, 0);
    tsr_model_file_close(&random);
    layer = *tsr_model_file_config(file)->kinds[0];
    refused_layer(&layer, "llama", -1, "next_token_layers is -1; 0 to 8 is possible");
    refused_layer(&layer, "llama", 1,
                  "next_token_layers is 1, but models of architecture llama have none");
    layer.output_gate = true;
    refused_layer(&layer, "qwen3", 0,
                  "output_gate is true, but attention has no gate in models of architecture qwen3");
    layer.delta_net = &good;
    refused_layer(&layer, "llama", 0,
                  "a layer has a delta net, but models of architecture llama do not");
    refused_layer(&layer, "qwen3_5_text", 0,
                  "a layer with a delta net has heads 8, which only attention has");
    layer = (tsr_model_layer){.struct_size = sizeof layer, .hidden = 64, .delta_net = &good};
    layer.softcap = 30;
    refused_layer(&layer, "qwen3_5_text", 0,
                  "a layer with a delta net has softcap 30, which only attention has");
    layer.softcap = 0;
    refused_layer(&layer, "qwen3_5_text", 1, "next_token_layers is 1, but no layer has attention");
}
END_TEST

START_TEST(configurations)
{
    const tsr_model_config *config = tsr_model_file_config(file);
    ck_assert_uint_eq(config->struct_size, sizeof *config);
    ck_assert_uint_eq(config->kinds[0]->struct_size, sizeof *config->kinds[0]);
    CHECK_PARAMS(tsr_model_config, config, offsetof(tsr_model_config, layer_kinds), config_of);
    CHECK_PARAMS(tsr_model_layer, config->kinds[0], offsetof(tsr_model_layer, window),
                 layer_of_config);
    tsr_model_config other = *config;
    other.kinds = (const tsr_model_layer *const[]){NULL};
    ck_assert_error(config_of(&other), TSR_ERR_INVALID, "model: configuration: kinds[0] is NULL");
    ck_assert_uint_eq(tsr_model_config_parameters(&other, -1), 0);
    ck_assert_uint_eq(tsr_model_config_parameters(NULL, -1), 0);
    ck_assert_uint_eq(tsr_model_config_parameters(config, config->layers), 0);
}
END_TEST

static tsr_status draw(void *given)
{
    int32_t token;
    return tsr_sampling_draw(given, 0, 0, 2, (const float[]){1, 2}, 0, NULL, &token);
}

START_TEST(sampling)
{
    const tsr_sampling_params good = {.struct_size = sizeof good, .temperature = 1, .top_p = 0.5};
    CHECK_PARAMS(tsr_sampling_params, &good, sizeof(size_t), draw);
}
END_TEST

TESTS(model_sizes)
{
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, plans);
    tcase_add_test(tests, arrays_of_ranks);
    tcase_add_test(tests, configurations);
    tcase_add_test(tests, descriptions_of_experts);
    tcase_add_test(tests, descriptions_of_delta_nets);
    tcase_add_test(tests, sampling);
}
