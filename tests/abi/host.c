/* Functions that need no device. Programs use only fields that older headers have, too. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

static void partitions(void)
{
    tsr_partition_params even = TSR_INIT(tsr_partition_params);
    tsr_shard_range ranges[3];
    OK(tsr_partition(10, 3, &even, ranges));
    for (int i = 0; i < 3; i++)
        printf("partition %d: %llu %llu\n", i, (unsigned long long)ranges[i].start,
               (unsigned long long)ranges[i].count);
    REFUSED(tsr_partition_params, even, tsr_partition(10, 3, &even, ranges));
    tsr_pipeline_divide_params divide = TSR_INIT(tsr_pipeline_divide_params);
    divide.blocks = 7;
    divide.stages = 2;
    int counts[2];
    OK(tsr_pipeline_divide(&divide, counts));
    printf("blocks of stages: %d %d\n", counts[0], counts[1]);
    REFUSED(tsr_pipeline_divide_params, divide, tsr_pipeline_divide(&divide, counts));
}

static void schedules(void)
{
    tsr_schedule schedule = TSR_INIT(tsr_schedule);
    schedule.learning_rate = 0.5;
    schedule.warmup_steps = 3;
    const double rate = tsr_schedule_rate(&schedule, 1);
    abi_print("learning rate", 1, &rate);
    REFUSED(tsr_schedule, schedule, tsr_schedule_check(&schedule));
}

/* A strategy of the caller's own: rank 0 keeps everything. */
static tsr_status give_rank_0(void *user, const tsr_shard_request *request, tsr_shard_range *ranges)
{
    (void)user;
    for (uint64_t p = 0; p < request->param_count; p++)
        ranges[p * (uint64_t)request->ranks].count = tsr_shard_request_param(request, p)->count;
    return TSR_OK;
}

static void plans(void)
{
    tsr_shard_strategy_params kind = TSR_INIT(tsr_shard_strategy_params);
    kind.kind = TSR_SHARD_HYBRID;
    tsr_shard_strategy *strategy = NULL;
    OK(tsr_shard_strategy_create(&kind, &strategy));
    tsr_shard_strategy *other = NULL;
    REFUSED(tsr_shard_strategy_params, kind, tsr_shard_strategy_create(&kind, &other));
    tsr_shard_param params[] = {
        {.struct_size = sizeof(tsr_shard_param),
         .name = "transformer.0.weight",
         .ndim = 2,
         .shape = {10, 3}},
        {.struct_size = sizeof(tsr_shard_param), .name = "head.weight", .ndim = 2, .shape = {5, 3}},
    };
    tsr_shard_plan_params ranks = TSR_INIT(tsr_shard_plan_params);
    ranks.ranks = 2;
    tsr_shard_plan *plan = NULL;
    OK(tsr_shard_plan_create(strategy, 2, params, &ranks, &plan));
    char text[4096];
    size_t size = 0;
    OK(tsr_shard_plan_save_json(plan, sizeof text, text, &size));
    printf("plan %.*s", (int)size, text);
    RESULT(tsr_shard_summary) summary;
    RESULT_BEGIN(tsr_shard_summary, summary);
    OK(tsr_shard_plan_get_summary(plan, &summary.value));
    RESULT_END(tsr_shard_summary, summary);
    RESULT(tsr_shard_rank_total) total;
    RESULT_BEGIN(tsr_shard_rank_total, total);
    OK(tsr_shard_plan_get_rank_total(plan, 1, &total.value));
    RESULT_END(tsr_shard_rank_total, total);
    printf("%s: %llu bytes, rank 1 %llu\n", summary.value.strategy,
           (unsigned long long)summary.value.model_bytes,
           (unsigned long long)total.value.total_bytes);
    tsr_shard_plan *refused = NULL;
    REFUSED(tsr_shard_plan_params, ranks,
            tsr_shard_plan_create(strategy, 2, params, &ranks, &refused));
    REFUSED(tsr_shard_param, params[1],
            tsr_shard_plan_create(strategy, 2, params, &ranks, &refused));
    tsr_shard_strategy own = TSR_INIT(tsr_shard_strategy);
    own.name = "own";
    own.assign = give_rank_0;
    tsr_shard_plan *first = NULL;
    OK(tsr_shard_plan_create(&own, 2, params, &ranks, &first));
    REFUSED(tsr_shard_strategy, own, tsr_shard_plan_create(&own, 2, params, &ranks, &refused));
    tsr_shard_range range;
    OK(tsr_shard_plan_range(first, 1, 0, &range));
    printf("own strategy: %llu elements\n", (unsigned long long)range.count);
    tsr_shard_plan_destroy(&first);
    tsr_shard_plan_destroy(&plan);
    tsr_shard_strategy_destroy(&strategy);
}

static void print_indices(const char *name, tsr_sampler *sampler)
{
    int64_t indices[32];
    double values[32];
    uint64_t count = 0;
    OK(tsr_sampler_fill(sampler, 32, indices, NULL, &count));
    for (uint64_t i = 0; i < count; i++)
        values[i] = (double)indices[i];
    abi_print(name, (int64_t)count, values);
}

/* A sampler of the caller's own, of the indices 3, 2, 1, 0. */
static tsr_status fill_down(void *self, uint64_t capacity, int64_t *indices, uint8_t *mask,
                            uint64_t *count)
{
    int64_t *next = self;
    (void)mask;
    *count = 0;
    while (*count<capacity && * next> 0)
        indices[(*count)++] = --*next;
    return TSR_OK;
}
static tsr_status start_down(void *self, int64_t epoch)
{
    (void)epoch;
    *(int64_t *)self = 4;
    return TSR_OK;
}

static void samplers(void)
{
    tsr_sampler *random = NULL, *batches = NULL, *own = NULL, *refused = NULL;
    tsr_sampler_random_params shuffled = TSR_INIT(tsr_sampler_random_params);
    shuffled.n = 12;
    shuffled.seed = 7;
    OK(tsr_sampler_create_random(&shuffled, &random));
    print_indices("random", random);
    REFUSED(tsr_sampler_random_params, shuffled, tsr_sampler_create_random(&shuffled, &refused));

    tsr_sampler_distributed_params share = TSR_INIT(tsr_sampler_distributed_params);
    share.n = 11;
    share.ranks = 2;
    share.rank = 1;
    share.seed = 7;
    tsr_sampler *distributed = NULL;
    OK(tsr_sampler_create_distributed(&share, &distributed));
    print_indices("distributed", distributed);
    REFUSED(tsr_sampler_distributed_params, share,
            tsr_sampler_create_distributed(&share, &refused));

    tsr_sampler_batch_params batch = TSR_INIT(tsr_sampler_batch_params);
    batch.base = random;
    batch.batch_size = 5;
    OK(tsr_sampler_create_batch(&batch, &batches));
    RESULT(tsr_sampler_info) info;
    RESULT_BEGIN(tsr_sampler_info, info);
    OK(tsr_sampler_get_info(batches, &info.value));
    RESULT_END(tsr_sampler_info, info);
    printf("%s: %llu indices\n", info.value.name, (unsigned long long)info.value.batch_max);
    printf("batches %llu\n", (unsigned long long)tsr_sampler_length(batches));
    REFUSED(tsr_sampler_batch_params, batch, tsr_sampler_create_batch(&batch, &refused));

    tsr_sampler_ops down = TSR_INIT(tsr_sampler_ops);
    down.fill = fill_down;
    down.set_epoch = start_down;
    int64_t next = 4;
    OK(tsr_sampler_create(&down, &next, &own));
    print_indices("own", own);
    REFUSED(tsr_sampler_ops, down, tsr_sampler_create(&down, &next, &refused));

    REFUSED_ALONE(tsr_sampler_subset_params, tsr_sampler_create_subset(&given, &refused));
    REFUSED_ALONE(tsr_sampler_weighted_params, tsr_sampler_create_weighted(&given, &refused));
    REFUSED_ALONE(tsr_sampler_length_sorted_params,
                  tsr_sampler_create_length_sorted(&given, &refused));
    REFUSED_ALONE(tsr_sampler_stratified_params, tsr_sampler_create_stratified(&given, &refused));
    REFUSED_ALONE(tsr_sampler_curriculum_params, tsr_sampler_create_curriculum(&given, &refused));
    tsr_sampler_destroy(&own);
    tsr_sampler_destroy(&batches);
    tsr_sampler_destroy(&distributed);
    tsr_sampler_destroy(&random);
}

static tsr_status load_square(void *user, tsr_loader_work *work, int64_t index, void *item)
{
    (void)user;
    (void)work;
    *(int64_t *)item = index * index;
    return TSR_OK;
}

static void loaders(void)
{
    tsr_loader_params params = TSR_INIT(tsr_loader_params);
    params.n = 6;
    params.batch_size = 4;
    params.shuffle = true;
    params.seed = 3;
    params.load_item = load_square;
    params.item_bytes = sizeof(int64_t);
    params.order = TSR_ORDER_TORCH;
    tsr_torch_options torch = TSR_INIT(tsr_torch_options);
    params.torch = &torch;
    tsr_loader *loader = NULL, *refused = NULL;
    OK(tsr_loader_create(&params, &loader));
    REFUSED(tsr_loader_params, params, tsr_loader_create(&params, &refused));
    REFUSED(tsr_torch_options, torch, tsr_loader_create(&params, &refused));
    RESULT(tsr_loader_batch) batch;
    RESULT_BEGIN(tsr_loader_batch, batch);
    bool got = false;
    OK(tsr_loader_next(loader, &batch.value, &got));
    RESULT_END(tsr_loader_batch, batch);
    for (uint64_t i = 0; got && i < batch.value.count; i++)
        printf("loaded %lld\n", (long long)((const int64_t *)batch.value.data)[i]);
    RESULT(tsr_loader_info) info;
    RESULT_BEGIN(tsr_loader_info, info);
    OK(tsr_loader_get_info(loader, &info.value));
    RESULT_END(tsr_loader_info, info);
    printf("batch %llu of %llu\n", (unsigned long long)info.value.position,
           (unsigned long long)info.value.length);
    tsr_loader_destroy(&loader);
}

static void checkpoints(const char *data)
{
    tsr_checkpoint_entry entry = TSR_INIT(tsr_checkpoint_entry);
    entry.name = "a";
    entry.dtype = TSR_F32;
    entry.ndim = 1; /* no elements, which need no memory */
    entry.shard_dim = -1;
    printf("no folder: %d\n",
           (int)tsr_checkpoint_save("/proc/nonexistent/a", NULL, NULL, 1, &entry, NULL));
    REFUSED(tsr_checkpoint_entry, entry, tsr_checkpoint_save("a", NULL, NULL, 1, &entry, NULL));
    char a[1024], b[1024];
    snprintf(a, sizeof a, "%s/checkpoint_parts/a/model", data);
    snprintf(b, sizeof b, "%s/checkpoint_parts/b/model", data);
    const char *const paths[] = {a, b};
    tsr_checkpoint_files *files = NULL;
    OK(tsr_checkpoint_files_open(2, paths, &files));
    RESULT(tsr_checkpoint_slice) slice;
    RESULT_BEGIN(tsr_checkpoint_slice, slice);
    OK(tsr_checkpoint_files_get_slice(files, 0, 0, &slice.value));
    RESULT_END(tsr_checkpoint_slice, slice);
    printf("slice of part %d: %llu elements\n", slice.value.part,
           (unsigned long long)slice.value.count);
    tsr_checkpoint_files_close(&files);
}

static void seeds(void)
{
    tsr_seed_manager_params params = TSR_INIT(tsr_seed_manager_params);
    params.strategy = TSR_SEED_STRATEGY_HASHED;
    tsr_seed_manager *manager = NULL, *refused = NULL;
    OK(tsr_seed_manager_create(&params, &manager));
    REFUSED(tsr_seed_manager_params, params, tsr_seed_manager_create(&params, &refused));
    OK(tsr_seed_global(manager, 42));
    int64_t seed = 0;
    OK(tsr_seed_of(manager, TSR_SEED_PROCESS, 0, &seed));
    printf("seed %lld\n", (long long)seed);
    RESULT(tsr_seed_event) event;
    RESULT_BEGIN(tsr_seed_event, event);
    OK(tsr_seed_get_event(manager, 1, &event.value));
    RESULT_END(tsr_seed_event, event);
    printf("event %s %d\n", tsr_seed_kind_name(event.value.kind), event.value.id);
    tsr_seed_manager_destroy(&manager);
}

static void loss_scalers(void)
{
    tsr_loss_scaler_params params = TSR_INIT(tsr_loss_scaler_params);
    params.scale = 256;
    tsr_loss_scaler scaler;
    OK(tsr_loss_scaler_init(&scaler, &params));
    abi_print("scaler", 3,
              (double[]){(double)scaler.scale, (double)scaler.smallest, (double)scaler.largest});
    REFUSED(tsr_loss_scaler_params, params, tsr_loss_scaler_init(&scaler, &params));
}

static void tokenizers(const char *data)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tokenizer/stories260K-vocab.gguf", data);
    tsr_tokenizer *tokenizer = NULL;
    OK(tsr_tokenizer_open(path, &tokenizer));
    tsr_encode_params encode = TSR_INIT(tsr_encode_params);
    encode.add = TSR_ENCODE_ADD_NONE;
    int32_t *ids = NULL;
    uint64_t count = 0;
    OK(tsr_tokenizer_encode(tokenizer, "Once upon", 9, &encode, &ids, &count));
    tsr_text_stream_params params = TSR_INIT(tsr_text_stream_params);
    params.tokenizer = tokenizer;
    tsr_text_stream *stream = NULL;
    OK(tsr_text_stream_create(&params, &stream));
    for (uint64_t i = 0; i < count; i++) {
        const char *text = NULL;
        size_t size = 0;
        bool stopped = false;
        OK(tsr_text_stream_add(stream, ids[i], &text, &size, &stopped));
        printf("token %d \"%.*s\"\n", (int)ids[i], (int)size, text);
    }
    tsr_decode_state state = TSR_INIT(tsr_decode_state);
    const char *bytes = NULL;
    size_t bytes_size = 0;
    for (uint64_t i = 0; i < count; i++) {
        OK(tsr_tokenizer_decode_next(tokenizer, &state, ids[i], &bytes, &bytes_size));
        printf("bytes %.*s\n", (int)bytes_size, bytes);
    }
    REFUSED(tsr_decode_state, state,
            tsr_tokenizer_decode_next(tokenizer, &state, ids[0], &bytes, &bytes_size));
    RESULT(tsr_token_info) token;
    RESULT_BEGIN(tsr_token_info, token);
    OK(tsr_tokenizer_get_token(tokenizer, ids[0], &token.value));
    RESULT_END(tsr_token_info, token);
    printf("spelled %s\n", token.value.text);
    RESULT(tsr_tokenizer_info) info;
    RESULT_BEGIN(tsr_tokenizer_info, info);
    OK(tsr_tokenizer_get_info(tokenizer, &info.value));
    RESULT_END(tsr_tokenizer_info, info);
    printf("words %s\n", info.value.words);
    tsr_tokenizer_free_ids(&ids);
    REFUSED(tsr_encode_params, encode,
            tsr_tokenizer_encode(tokenizer, "Once", 4, &encode, &ids, &count));
    tsr_text_stream *refused = NULL;
    REFUSED(tsr_text_stream_params, params, tsr_text_stream_create(&params, &refused));
    tsr_chat_message messages[2] = {TSR_INIT(tsr_chat_message), TSR_INIT(tsr_chat_message)};
    messages[1].role = TSR_CHAT_USER;
    tsr_chat_params chat = TSR_INIT(tsr_chat_params);
    chat.format = TSR_CHAT_ZEPHYR;
    chat.messages = messages;
    chat.count = 2;
    OK(tsr_chat_encode(tokenizer, &chat, &ids, &count));
    printf("ids of a chat %llu\n", (unsigned long long)count);
    tsr_tokenizer_free_ids(&ids);
    REFUSED(tsr_chat_params, chat, tsr_chat_encode(tokenizer, &chat, &ids, &count));
    REFUSED(tsr_chat_message, messages[1], tsr_chat_encode(tokenizer, &chat, &ids, &count));
    tsr_text_stream_destroy(&stream);
    tsr_grammar_params of_grammar = TSR_INIT(tsr_grammar_params);
    tsr_grammar *grammar = NULL;
    of_grammar.tokenizer = tokenizer;
    of_grammar.text = "root ::= [12]";
    of_grammar.size_bytes = strlen(of_grammar.text);
    OK(tsr_grammar_create(&of_grammar, &grammar));
    tsr_grammar_state *text = NULL;
    OK(tsr_grammar_state_create(grammar, NULL, &text));
    OK(tsr_grammar_state_add_text(text, "2", 1));
    printf("end of the text %d\n", (int)tsr_grammar_state_end(text));
    tsr_grammar_state_destroy(&text);
    tsr_grammar_destroy(&grammar);
    REFUSED(tsr_grammar_params, of_grammar, tsr_grammar_create(&of_grammar, &grammar));
    tsr_tokenizer_close(&tokenizer);
}

static void communicators(void)
{
    tsr_comm_params params = TSR_INIT(tsr_comm_params);
    params.bootstrap = TSR_BOOTSTRAP_SINGLE;
    tsr_comm *comm = NULL, *refused = NULL;
    OK(tsr_comm_create(&params, &comm));
    printf("ranks %d\n", tsr_comm_size(comm));
    REFUSED(tsr_comm_params, params, tsr_comm_create(&params, &refused));
    REFUSED_ALONE(tsr_comm_shrink_params, tsr_comm_shrink(comm, &given, &refused));
    REFUSED_ALONE(tsr_comm_grow_params, tsr_comm_grow(comm, &given, &refused));
    tsr_comm_destroy(&comm);
}

static void clusters(const char *data)
{
    static const char hosts[] =
        "{\"hosts\": [{\"name\": \"left\", \"link\": {\"latency_us\": 5, \"gbytes_per_second\": "
        "12},"
        "\"ranks\": [{\"count\": 2, \"gflops\": 10, \"memory_gbytes_per_second\": 1}]}]}";
    tsr_cluster_params params = TSR_INIT(tsr_cluster_params);
    params.description_text = hosts;
    tsr_cluster *cluster = NULL, *refused = NULL;
    OK(tsr_cluster_create(&params, &cluster));
    REFUSED(tsr_cluster_params, params, tsr_cluster_create(&params, &refused));

    RESULT(tsr_cluster_host_info) host;
    RESULT_BEGIN(tsr_cluster_host_info, host);
    OK(tsr_cluster_get_host(cluster, 0, &host.value));
    RESULT_END(tsr_cluster_host_info, host);
    printf("host %s %d\n", host.value.name, host.value.ranks);
    RESULT(tsr_cluster_rank_info) rank;
    RESULT_BEGIN(tsr_cluster_rank_info, rank);
    OK(tsr_cluster_get_rank(cluster, 1, &rank.value));
    RESULT_END(tsr_cluster_rank_info, rank);
    printf("rank %d\n", rank.value.host);

    char path[4096];
    snprintf(path, sizeof path, "%s/model/stories260K-f16.gguf", data);
    tsr_model_file *model = NULL;
    OK(tsr_model_file_open(path, &model));
    tsr_cluster_plan_params goal = TSR_INIT(tsr_cluster_plan_params);
    goal.goal = TSR_PLAN_GENERATION;
    tsr_cluster_plan *plan = NULL, *refused_plan = NULL;
    OK(tsr_cluster_plan_create(cluster, model, &goal, &plan));
    REFUSED(tsr_cluster_plan_params, goal,
            tsr_cluster_plan_create(cluster, model, &goal, &refused_plan));
    RESULT(tsr_cluster_plan_info) info;
    RESULT_BEGIN(tsr_cluster_plan_info, info);
    OK(tsr_cluster_plan_get_info(plan, &info.value));
    RESULT_END(tsr_cluster_plan_info, info);
    printf("plan of %s: %d grids\n", info.value.architecture, info.value.grids);
    RESULT(tsr_cluster_grid) grid;
    RESULT_BEGIN(tsr_cluster_grid, grid);
    OK(tsr_cluster_plan_get_grid(plan, 0, &grid.value));
    RESULT_END(tsr_cluster_grid, grid);
    abi_print(
        "grid", 4,
        (double[]){grid.value.data, grid.value.tensor, grid.value.stages, grid.value.seconds});
    tsr_cluster_plan_destroy(&plan);
    tsr_model_file_close(&model);
    tsr_cluster_destroy(&cluster);
}

static void models(const char *data)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/model/stories260K-f16.gguf", data);
    tsr_model_file *file = NULL, *refused = NULL;
    OK(tsr_model_file_open(path, &file));
    tsr_model_plan_params params = TSR_INIT(tsr_model_plan_params);
    params.context = 8;
    const uint64_t memory_bytes[] = {1};
    RESULT(tsr_model_rank_plan) rank;
    RESULT(tsr_model_fit) fit;
    RESULT_BEGIN(tsr_model_rank_plan, rank);
    RESULT_BEGIN(tsr_model_fit, fit);
    OK(tsr_model_plan(file, &params, memory_bytes, &rank.value, &fit.value));
    RESULT_END(tsr_model_rank_plan, rank);
    RESULT_END(tsr_model_fit, fit);
    printf("%lld heads, %llu bytes, %llu are missing\n", (long long)rank.value.heads,
           (unsigned long long)rank.value.total_bytes, (unsigned long long)fit.value.missing_bytes);
    REFUSED(tsr_model_plan_params, params, tsr_model_plan(file, &params, NULL, &rank.value, NULL));

    tsr_convert_params convert = TSR_INIT(tsr_convert_params);
    RESULT(tsr_convert_stats) stats;
    RESULT_BEGIN(tsr_convert_stats, stats);
    printf("%s\n", tsr_status_name(tsr_model_convert(file, "/proc/nonexistent/m.gguf", &convert,
                                                     &stats.value)));
    REFUSED(tsr_convert_params, convert, tsr_model_convert(file, "m.gguf", &convert, NULL));

    tsr_sampling_params sampling = TSR_INIT(tsr_sampling_params);
    sampling.temperature = 1;
    int32_t token = 0;
    OK(tsr_sampling_draw(&sampling, 0, 3, 4, (float[]){1, 2, 3, 1}, 0, NULL, &token));
    printf("drawn %d\n", (int)token);
    REFUSED(tsr_sampling_params, sampling,
            tsr_sampling_draw(&sampling, 0, 3, 4, (float[]){1, 2, 3, 1}, 0, NULL, &token));

    tsr_model_layer layer = TSR_INIT(tsr_model_layer);
    layer.heads = layer.kv_heads = 2;
    layer.head_dim = 8;
    layer.hidden = 32;
    tsr_model_config config = TSR_INIT(tsr_model_config);
    config.architecture = "llama";
    config.layers = 2;
    config.width = 16;
    config.vocabulary = 20;
    config.context = 8;
    config.norm_epsilon = 1e-5;
    config.kind_count = 1;
    config.kinds = (const tsr_model_layer *const[]){&layer};
    printf("parameters %llu\n", (unsigned long long)tsr_model_config_parameters(&config, -1));
    REFUSED(tsr_model_config, config, tsr_model_file_open_random(&config, TSR_F32, 1, &refused));
    REFUSED(tsr_model_layer, layer, tsr_model_file_open_random(&config, TSR_F32, 1, &refused));
    tsr_model_experts experts = TSR_INIT(tsr_model_experts);
    experts.count = 4;
    experts.used = 2;
    experts.hidden = 8;
    layer.experts = &experts;
    config.architecture = "qwen3_moe";
    printf("parameters %llu\n", (unsigned long long)tsr_model_config_parameters(&config, -1));
    REFUSED(tsr_model_experts, experts, tsr_model_file_open_random(&config, TSR_F32, 1, &refused));
    tsr_model_delta_net net = TSR_INIT(tsr_model_delta_net);
    net.key_heads = net.heads = 2;
    net.key_dim = net.value_dim = 8;
    layer = TSR_INIT(tsr_model_layer);
    layer.hidden = 32;
    layer.delta_net = &net;
    config.architecture = "qwen3_5_text";
    printf("parameters %llu\n", (unsigned long long)tsr_model_config_parameters(&config, -1));
    REFUSED(tsr_model_delta_net, net, tsr_model_file_open_random(&config, TSR_F32, 1, &refused));
    tsr_model_latent latent = TSR_INIT(tsr_model_latent);
    latent.kv_lora_rank = 8;
    latent.nope_dim = latent.rope_dim = 4;
    latent.value_dim = 6;
    layer = TSR_INIT(tsr_model_layer);
    layer.hidden = 32;
    layer.heads = layer.kv_heads = 2;
    layer.head_dim = 8;
    layer.latent = &latent;
    config.architecture = "deepseek_v2";
    printf("parameters %llu\n", (unsigned long long)tsr_model_config_parameters(&config, -1));
    REFUSED(tsr_model_latent, latent, tsr_model_file_open_random(&config, TSR_F32, 1, &refused));
    tsr_model_file_close(&file);
}

void abi_host(const char *data)
{
    partitions();
    schedules();
    plans();
    samplers();
    loaders();
    seeds();
    checkpoints(data);
    loss_scalers();
    tokenizers(data);
    communicators();
    clusters(data);
    models(data);
}
