/* Functions that need a device. Programs use only fields that older headers have, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

static tsr_device *device;
static tsr_stream *stream;
static tsr_group *group;

static tsr_tensor *made(int ndim, const int64_t *shape)
{
    tsr_tensor *tensor = NULL;
    OK(tsr_tensor_create(device, TSR_F32, ndim, shape, &tensor));
    return tensor;
}

/* A tensor of random numbers. */
static tsr_tensor *drawn(uint64_t seed, int ndim, const int64_t *shape)
{
    tsr_tensor *tensor = made(ndim, shape);
    tsr_random_params params = TSR_INIT(tsr_random_params);
    params.seed = seed;
    OK(tsr_random_uniform(stream, tensor, -1, 1, &params));
    return tensor;
}

static void print_tensor(const char *name, const tsr_tensor *tensor)
{
    float data[256];
    double values[256];
    const int64_t count = tsr_layout_count(tsr_tensor_layout(tensor));
    OK(tsr_tensor_download(stream, tensor, data, (uint64_t)count * sizeof *data));
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)data[i];
    abi_print(name, count, values);
}

static void open_device(void)
{
    tsr_device_params params = TSR_INIT(tsr_device_params);
    params.cache_in_memory = true;
    OK(tsr_device_open(&params, &device));
    tsr_device *refused = NULL;
    REFUSED(tsr_device_params, params, tsr_device_open(&params, &refused));
    OK(tsr_stream_create(device, &stream));
    tsr_group_params of_group = TSR_INIT(tsr_group_params);
    OK(tsr_group_create(NULL, stream, &of_group, &group));
    tsr_group *refused_group = NULL;
    REFUSED(tsr_group_params, of_group, tsr_group_create(NULL, stream, &of_group, &refused_group));
}

static void operations(void)
{
    tsr_tensor *a = drawn(1, 2, (int64_t[]){4, 8}), *b = drawn(2, 2, (int64_t[]){8, 4}),
               *y = made(2, (int64_t[]){4, 4});
    print_tensor("uniform", a);
    REFUSED_ALONE(tsr_random_params, tsr_random_uniform(stream, a, -1, 1, &given));
    tsr_matmul_params product = TSR_INIT(tsr_matmul_params);
    OK(tsr_matmul(stream, y, a, b, &product));
    print_tensor("product", y);
    REFUSED(tsr_matmul_params, product, tsr_matmul(stream, y, a, b, &product));
    tsr_sgd_params sgd = TSR_INIT(tsr_sgd_params);
    sgd.learning_rate = 0.5f;
    OK(tsr_sgd_step(stream, y, y, NULL, NULL, &sgd));
    print_tensor("step", y);
    REFUSED(tsr_sgd_params, sgd, tsr_sgd_step(stream, y, y, NULL, NULL, &sgd));
    REFUSED_ALONE(tsr_adamw_params, tsr_adamw_step(stream, y, y, y, y, NULL, &given));
    REFUSED_ALONE(tsr_attention_params, tsr_attention(stream, y, NULL, a, a, a, &given));
    tsr_route_params route = TSR_INIT(tsr_route_params);
    REFUSED(tsr_route_params, route, tsr_route(stream, y, a, b, &route));
    REFUSED_ALONE(tsr_matmul_grouped_params, tsr_matmul_grouped(stream, y, a, b, y, &given));
    tsr_delta_rule_params rule = TSR_INIT(tsr_delta_rule_params);
    REFUSED(tsr_delta_rule_params, rule, tsr_delta_rule(stream, y, NULL, a, a, a, a, a, &rule));
    tsr_delta_rule_grads rule_grads = TSR_INIT(tsr_delta_rule_grads);
    REFUSED(tsr_delta_rule_grads, rule_grads,
            tsr_delta_rule_grad(stream, &rule_grads, y, NULL, a, a, a, a, a, &rule));
    tsr_causal_conv_params convolution = TSR_INIT(tsr_causal_conv_params);
    REFUSED(tsr_causal_conv_params, convolution,
            tsr_causal_conv(stream, y, NULL, a, a, &convolution));
    tsr_causal_conv_grads convolution_grads = TSR_INIT(tsr_causal_conv_grads);
    REFUSED(tsr_causal_conv_grads, convolution_grads,
            tsr_causal_conv_grad(stream, &convolution_grads, y, NULL, a, a, &convolution));
    tsr_rope *rope = NULL;
    REFUSED_ALONE(tsr_rope_params, tsr_rope_create(stream, &given, &rope));
    tsr_kernel *kernel = NULL;
    REFUSED_ALONE(tsr_kernel_params, tsr_kernel_create(device, &given, &kernel));
    /* OpEntryPoint GLCompute "main" with LocalSize 1 1 1, which returns at once */
    static const uint32_t empty[] = {
        0x07230203, 0x00010000, 0, 5,          0,          0x00020011, 1,          0x0003000e, 0, 1,
        0x0005000f, 5,          1, 0x6e69616d, 0,          0x00060010, 1,          17,         1, 1,
        1,          0x00020013, 2, 0x00030021, 3,          2,          0x00050036, 2,          1, 0,
        3,          0x000200f8, 4, 0x000100fd, 0x00010038,
    };
    const uint32_t groups[] = {1, 1, 1};
    tsr_kernel_params of_kernel = TSR_INIT(tsr_kernel_params);
    of_kernel.spirv = empty;
    of_kernel.spirv_words = sizeof empty / sizeof *empty;
    of_kernel.tensor_count = 2;
    OK(tsr_kernel_create(device, &of_kernel, &kernel));
    tsr_kernel_argument arguments[] = {TSR_INIT(tsr_kernel_argument),
                                       TSR_INIT(tsr_kernel_argument)};
    arguments[0].tensor = a;
    arguments[1].tensor = b;
    OK(tsr_kernel_run(stream, kernel, arguments, NULL, groups));
    REFUSED(tsr_kernel_argument, arguments[1],
            tsr_kernel_run(stream, kernel, arguments, NULL, groups));
    tsr_kernel_destroy(&kernel);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&y);
}

static void collectives(void)
{
    tsr_tensor *a = drawn(3, 1, (int64_t[]){8});
    tsr_collective_params params = TSR_INIT(tsr_collective_params);
    params.wire = TSR_BF16;
    OK(tsr_group_all_reduce(group, a, TSR_OP_SUM, &params, NULL));
    print_tensor("sum", a);
    REFUSED(tsr_collective_params, params,
            tsr_group_all_reduce(group, a, TSR_OP_SUM, &params, NULL));
    RESULT(tsr_group_stats) stats;
    RESULT_BEGIN(tsr_group_stats, stats);
    OK(tsr_group_get_stats(group, &stats.value));
    RESULT_END(tsr_group_stats, stats);
    printf("operations %llu\n", (unsigned long long)stats.value.operations);
    tsr_tensor_destroy(&a);
}

static void experts(void)
{
    tsr_moe_params params = TSR_INIT(tsr_moe_params);
    params.group = group;
    params.input_size = 8;
    params.hidden_size = 4;
    params.experts = 4;
    params.experts_used = 2;
    tsr_layer *layer = NULL, *refused = NULL;
    OK(tsr_moe_create(&params, &layer));
    REFUSED(tsr_moe_params, params, tsr_moe_create(&params, &refused));
    tsr_tensor *x = drawn(4, 2, (int64_t[]){2, 8}), *y = NULL;
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(layer, x, &saved, &y));
    RESULT(tsr_moe_choice) choice;
    RESULT_BEGIN(tsr_moe_choice, choice);
    OK(tsr_moe_get_choice(saved, &choice.value));
    RESULT_END(tsr_moe_choice, choice);
    print_tensor("router's logits", choice.value.logits);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_layer_destroy(&layer);
}

static void layers(void)
{
    tsr_init_params init = TSR_INIT(tsr_init_params);
    init.kind = TSR_INIT_XAVIER_UNIFORM;
    init.seed = 5;
    tsr_linear_params params = TSR_INIT(tsr_linear_params);
    params.group = group;
    params.name = "linear";
    params.input_size = 8;
    params.output_size = 4;
    params.bias = true;
    params.init = &init;
    tsr_layer *layer = NULL, *refused = NULL;
    OK(tsr_column_linear_create(&params, &layer));
    REFUSED(tsr_linear_params, params, tsr_column_linear_create(&params, &refused));
    REFUSED(tsr_init_params, init, tsr_column_linear_create(&params, &refused));
    RESULT(tsr_linear_shard) shard;
    RESULT_BEGIN(tsr_linear_shard, shard);
    OK(tsr_linear_get_shard(layer, &shard.value));
    RESULT_END(tsr_linear_shard, shard);
    print_tensor("initial weight", shard.value.weight);
    REFUSED_ALONE(tsr_mlp_params, tsr_mlp_create(&given, &refused));
    REFUSED_ALONE(tsr_embedding_params, tsr_embedding_create(&given, &refused));
    REFUSED_ALONE(tsr_norm_params, tsr_norm_create(&given, &refused));
    tsr_self_attention_params self = TSR_INIT(tsr_self_attention_params);
    self.group = group;
    self.size = 8;
    self.heads = 2;
    tsr_layer *attention = NULL;
    OK(tsr_self_attention_create(&self, &attention));
    REFUSED(tsr_self_attention_params, self, tsr_self_attention_create(&self, &refused));
    RESULT(tsr_heads) heads;
    RESULT_BEGIN(tsr_heads, heads);
    OK(tsr_self_attention_get_heads(attention, &heads.value));
    RESULT_END(tsr_heads, heads);
    printf("heads %lld, %lld for keys\n", (long long)heads.value.count,
           (long long)heads.value.kv_count);
    tsr_layer_destroy(&attention);
    REFUSED_ALONE(tsr_delta_net_params, tsr_delta_net_create(&given, &refused));
    REFUSED_ALONE(tsr_short_conv_params, tsr_short_conv_create(&given, &refused));
    tsr_latent_attention_params latent = TSR_INIT(tsr_latent_attention_params);
    latent.group = group;
    latent.size = 8;
    latent.heads = 2;
    latent.kv_lora_rank = 6;
    latent.nope_dim = latent.rope_dim = latent.value_dim = 4;
    OK(tsr_latent_attention_create(&latent, &attention));
    REFUSED(tsr_latent_attention_params, latent, tsr_latent_attention_create(&latent, &refused));
    tsr_layer_destroy(&attention);
    REFUSED_ALONE(tsr_block_params, tsr_block_create(&given, &refused));

    tsr_optimizer_params kind = TSR_INIT(tsr_optimizer_params);
    kind.stream = stream;
    kind.kind = TSR_OPTIMIZER_ADAMW;
    tsr_optimizer *optimizer = NULL, *refused_optimizer = NULL;
    OK(tsr_optimizer_create(&kind, &optimizer));
    REFUSED(tsr_optimizer_params, kind, tsr_optimizer_create(&kind, &refused_optimizer));
    OK(tsr_optimizer_add_layer(optimizer, layer));
    tsr_tensor *x = drawn(3, 2, (int64_t[]){2, 8}), *y = NULL;
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(layer, x, &saved, &y));
    print_tensor("linear", y);
    OK(tsr_layer_backward(layer, saved, y, NULL));
    tsr_optimizer_clip_params clip = TSR_INIT(tsr_optimizer_clip_params);
    double norm = 0;
    OK(tsr_optimizer_clip(optimizer, 1, &clip, &norm));
    abi_print("norm", 1, &norm);
    REFUSED(tsr_optimizer_clip_params, clip, tsr_optimizer_clip(optimizer, 1, &clip, &norm));
    REFUSED_ALONE(tsr_optimizer_file_params, tsr_optimizer_save(optimizer, "x", &given));
    OK(tsr_optimizer_step(optimizer, 0.1f));
    print_tensor("weight", tsr_layer_parameter(layer, 0)->tensor);
    tsr_parameter own = TSR_INIT(tsr_parameter);
    own.name = "own";
    own.tensor = own.grad = x;
    OK(tsr_optimizer_add_parameter(optimizer, &own));
    REFUSED(tsr_parameter, own, tsr_optimizer_add_parameter(optimizer, &own));
    tsr_optimizer_destroy(&optimizer);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);

    /* the layer's parameters, divided over one rank */
    tsr_fsdp_params divided = TSR_INIT(tsr_fsdp_params);
    divided.group = group;
    divided.unit_count = 1;
    tsr_fsdp_unit unit = TSR_INIT(tsr_fsdp_unit);
    unit.layer = layer;
    divided.units = &unit;
    tsr_fsdp *model = NULL, *refused_model = NULL;
    OK(tsr_fsdp_create(&divided, &model));
    printf("parameters %llu\n",
           (unsigned long long)tsr_shard_plan_param_count(tsr_fsdp_plan(model)));
    REFUSED(tsr_fsdp_params, divided, tsr_fsdp_create(&divided, &refused_model));
    REFUSED(tsr_fsdp_unit, unit, tsr_fsdp_create(&divided, &refused_model));
    RESULT(tsr_fsdp_memory) memory;
    RESULT_BEGIN(tsr_fsdp_memory, memory);
    OK(tsr_fsdp_get_memory(model, &memory.value));
    RESULT_END(tsr_fsdp_memory, memory);
    RESULT(tsr_fsdp_shard) part;
    RESULT_BEGIN(tsr_fsdp_shard, part);
    OK(tsr_fsdp_get_shard(model, 0, &part.value));
    RESULT_END(tsr_fsdp_shard, part);
    printf("sharded %llu bytes, %llu elements\n", (unsigned long long)memory.value.parameter_bytes,
           (unsigned long long)part.value.range.count);
    tsr_fsdp_destroy(&model);
    tsr_layer_destroy(&layer);
}

static void caches(void)
{
    tsr_kv_cache_params params = TSR_INIT(tsr_kv_cache_params);
    params.stream = stream;
    params.layers = 1;
    params.kv_heads = 1;
    params.head_dim = 8;
    params.pages = 2;
    tsr_kv_cache *cache = NULL, *refused = NULL;
    REFUSED(tsr_kv_cache_params, params, tsr_kv_cache_create(&params, &refused));
    if (tsr_kv_cache_create(&params, &cache) != TSR_OK)
        printf("%s\n", tsr_last_error()); /* sequences is 0 */
    tsr_kv_cache_destroy(&cache);
}

static void others(void)
{
    REFUSED_ALONE(tsr_checkpoint_params, tsr_checkpoint_save("x", NULL, NULL, 0, NULL, &given));
    double rates[1];
    REFUSED_ALONE(tsr_calibrate_params, tsr_calibrate(group, &given, rates));
    tsr_pipeline_params params = TSR_INIT(tsr_pipeline_params);
    params.stream = stream;
    tsr_pipeline *pipeline = NULL, *refused = NULL;
    REFUSED(tsr_pipeline_params, params, tsr_pipeline_create(&params, &refused));
    OK(tsr_pipeline_create(tsr_pipeline_params(.stream = stream), &pipeline));
    REFUSED_ALONE(tsr_pipeline_run_params, tsr_pipeline_run(pipeline, &given));
    RESULT(tsr_pipeline_stats) stats;
    RESULT_BEGIN(tsr_pipeline_stats, stats);
    OK(tsr_pipeline_get_stats(pipeline, &stats.value));
    RESULT_END(tsr_pipeline_stats, stats);
    tsr_pipeline_destroy(&pipeline);
    tsr_stack *stack = NULL;
    REFUSED_ALONE(tsr_stack_params, tsr_stack_create(&given, &stack));
}

static void generators(void)
{
    tsr_model_layer layer = TSR_INIT(tsr_model_layer);
    layer.heads = layer.kv_heads = 2;
    layer.head_dim = 8;
    layer.hidden = 32;
    layer.rope = tsr_rope_params(.rotary_dim = 8);
    tsr_model_config config = TSR_INIT(tsr_model_config);
    config.architecture = "llama";
    config.layers = 1;
    config.width = 16;
    config.vocabulary = 20;
    config.context = 8;
    config.norm_epsilon = 1e-5;
    config.kind_count = 1;
    config.kinds = (const tsr_model_layer *const[]){&layer};
    tsr_model_file *file = NULL;
    OK(tsr_model_file_open_random(&config, TSR_F32, 1, &file));
    tsr_model_params params = TSR_INIT(tsr_model_params);
    params.group = group;
    tsr_model *model = NULL, *refused = NULL;
    OK(tsr_model_open(file, &params, &model));
    REFUSED(tsr_model_params, params, tsr_model_open(file, &params, &refused));
    RESULT(tsr_model_stats) stats;
    RESULT_BEGIN(tsr_model_stats, stats);
    OK(tsr_model_get_stats(model, &stats.value));
    RESULT_END(tsr_model_stats, stats);
    printf("model of %llu bytes\n", (unsigned long long)stats.value.weight_bytes);

    tsr_stack_params stacked = TSR_INIT(tsr_stack_params);
    stacked.config = &config;
    stacked.group = group;
    tsr_stack *stack = NULL;
    OK(tsr_stack_create(&stacked, &stack));
    RESULT(tsr_stack_info) blocks;
    RESULT_BEGIN(tsr_stack_info, blocks);
    OK(tsr_stack_get_info(stack, &blocks.value));
    RESULT_END(tsr_stack_info, blocks);
    printf("%d block, %lld logits\n", blocks.value.blocks, (long long)blocks.value.logits);
    tsr_tensor *hidden = made(3, (int64_t[]){1, 2, 16});
    REFUSED_ALONE(tsr_head_loss_params, tsr_stack_head_loss(stack, hidden, &given, NULL));
    tsr_tensor_destroy(&hidden);
    tsr_stack_destroy(&stack);

    tsr_lora_params attached = TSR_INIT(tsr_lora_params);
    attached.stack = tsr_model_stack(model);
    tsr_lora *lora = NULL, *refused_lora = NULL;
    OK(tsr_lora_create(&attached, &lora));
    REFUSED(tsr_lora_params, attached, tsr_lora_create(&attached, &refused_lora));
    RESULT(tsr_lora_info) adapter;
    RESULT_BEGIN(tsr_lora_info, adapter);
    OK(tsr_lora_get_info(lora, &adapter.value));
    RESULT_END(tsr_lora_info, adapter);
    printf("adapter of rank %d\n", adapter.value.rank);
    tsr_lora_destroy(&lora);

    tsr_generator_params create = TSR_INIT(tsr_generator_params);
    create.model = model;
    tsr_generator *generator = NULL, *refused_generator = NULL;
    OK(tsr_generator_create(&create, &generator));
    REFUSED(tsr_generator_params, create, tsr_generator_create(&create, &refused_generator));
    tsr_sequence_params add = TSR_INIT(tsr_sequence_params);
    add.prompt = (const int32_t[]){1, 2};
    add.prompt_count = 2;
    int sequence, count;
    OK(tsr_generator_add(generator, &add, &sequence));
    REFUSED(tsr_sequence_params, add, tsr_generator_add(generator, &add, &sequence));
    OK(tsr_generator_step(generator, &count));
    printf("generated %d\n", (int)tsr_generator_token(generator, 0)->token);
    RESULT(tsr_generator_stats) times;
    RESULT_BEGIN(tsr_generator_stats, times);
    OK(tsr_generator_get_stats(generator, &times.value));
    RESULT_END(tsr_generator_stats, times);
    printf("of a prompt: %llu\n", (unsigned long long)times.value.prompt_tokens);
    tsr_generator_destroy(&generator);
    tsr_model_close(&model);
    tsr_model_file_close(&file);
}

void abi_device(void)
{
    open_device();
    operations();
    collectives();
    layers();
    experts();
    caches();
    others();
    generators();
    tsr_group_destroy(&group);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
}
