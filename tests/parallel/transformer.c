/* Transformer layers: generation with a cache, initial values, memory of the caller, and errors. */
#include "gpu/internal.h"
#include "parallel/fsdp_case.h"
#include "parallel/host_transformer.h"
#include "parallel/internal.h"
#include "parallel/layers/latent_attention.h"
#include "parallel/linear_case.h"

static const tsr_rope_params turned = {.struct_size = sizeof turned, .rotary_dim = 4};

static tsr_block_params small_block(int64_t heads, int64_t kv_heads)
{
    static const tsr_partition_params uneven = {.struct_size = sizeof uneven,
                                                .kind = TSR_PARTITION_UNEVEN};
    static const tsr_init_params inits[] = {{.struct_size = sizeof inits[0], .seed = 3},
                                            {.struct_size = sizeof inits[0], .seed = 4}};
    static const tsr_norm_params norm = {.struct_size = sizeof norm, .kind = TSR_NORM_RMS};
    static tsr_self_attention_params attention;
    static const tsr_mlp_params mlp = {.struct_size = sizeof mlp,
                                       .hidden_size = 12,
                                       .gated = true,
                                       .activation = TSR_ACT_SILU,
                                       .init = &inits[1],
                                       .partition = &uneven,
                                       .bias = true};
    attention =
        *tsr_self_attention_params(.heads = heads, .kv_heads = kv_heads, .head_dim = 4,
                                   .qk_norm = TSR_QK_NORM_HEADS, .sinks = true, .output_gate = true,
                                   .value_dim = kv_heads < heads ? 6 : 0, .rope = &turned,
                                   .init = &inits[0], .partition = &uneven, .bias = true,
                                   .output_bias = true, .causal = true);
    return *tsr_block_params(.name = "h.0", .size = 4 * heads, .norm = &norm,
                             .attention = &attention, .mlp = &mlp);
}

/* Generation --------------------------------------------------------------------------------- */

enum { SEQUENCES = 2, LONGEST = 28, KEPT = 9, NET_DIM = 8 };

typedef struct generation {
    tsr_layer *layer;
    tsr_kv_cache *cache;
    int64_t size;
    double *x, *y; /* [SEQUENCES,LONGEST,size]: complete sequences */
    int64_t length[SEQUENCES];
} generation;

/* Feeds tokens[i] further tokens of each sequence, and compares the outputs. */
static void feed(generation *g, const int *sequences, const int64_t *tokens)
{
    const int64_t most = tokens[0] > tokens[1] ? tokens[0] : tokens[1], size = g->size;
    double *in = doubles(SEQUENCES * most * size);
    for (int i = 0; i < SEQUENCES; i++)
        memcpy(in + i * most * size, g->x + (i * LONGEST + g->length[i]) * size,
               (size_t)(tokens[i] * size) * sizeof *in);
    tsr_tensor *x = tensor_of(TSR_F32, 3, (int64_t[]){SEQUENCES, most, size}, in), *y = NULL;
    OK(tsr_kv_cache_begin(g->cache, SEQUENCES, sequences, tokens, NULL));
    OK(tsr_layer_forward_cached(g->layer, x, g->cache, 1, &y));
    double *got = values_of(y);
    for (int i = 0; i < SEQUENCES; i++) {
        for (int64_t k = 0; k < tokens[i] * size; k++) {
            const double want = g->y[(i * LONGEST + g->length[i]) * size + k];
            const double is = got[i * most * size + k];
            CHECK(fabs(is - want) <= 2e-5 * (1 + fabs(want)),
                  "sequence %d from token %lld on: element %lld is %.9g, not %.9g", i,
                  (long long)g->length[i], (long long)k, is, want);
        }
        g->length[i] += tokens[i];
    }
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    free(got);
    free(in);
}

/* Creates a cache for `layer`, which becomes its layer 1. */
static tsr_kv_cache *cache_of(const tsr_layer *layer, bool has_net)
{
    tsr_heads mine = TSR_INIT(tsr_heads);
    tsr_kv_cache *cache = NULL;
    OK(tsr_self_attention_get_heads(layer, &mine));
    const int64_t conv[] = {0, mine.conv_floats}, state[] = {0, mine.state_floats};
    const int64_t value_dims[] = {mine.value_dim, mine.value_dim};
    const bool in_keys[] = {mine.values_in_keys, mine.values_in_keys};
    OK(tsr_kv_cache_create(
        tsr_kv_cache_params(.stream = queue, .layers = 2, .kv_heads = mine.kv_count,
                            .head_dim = mine.head_dim, .layer_value_dims = value_dims,
                            .layer_values_in_keys = in_keys, .page_tokens = 4, .pages = 16,
                            .sequences = 3, .layer_conv_floats = has_net ? conv : NULL,
                            .layer_state_floats = has_net ? state : NULL,
                            .kept_tokens = has_net ? KEPT : 0),
        &cache));
    return cache;
}

/* Sets matrices of heads to numbers that q8_0 represents, and *blocks to these numbers in q8_0. If
 * *blocks is not NULL, puts it in their place. */
static void put_blocks(tsr_layer *layer, const char *name, tsr_tensor **blocks)
{
    const tsr_parameter *p = NULL;
    int index = 0;
    OK(tsr_layer_find_parameter(layer, name, &p));
    while (tsr_layer_parameter(layer, index) != p)
        index++;
    if (*blocks) {
        OK(tsr_layer_set_parameter(layer, index, *blocks, NULL, false));
        return;
    }
    *blocks = tensor_new(TSR_Q8_0, 3, tsr_tensor_layout(p->tensor)->shape);
    OK(tsr_copy(queue, *blocks, p->tensor));
    OK(tsr_copy(queue, p->tensor, *blocks));
}

static void generate(tsr_block_params b)
{
    const char *inner = b.delta_net          ? "delta_net h.0.delta_net"
                        : b.short_conv       ? "short_conv h.0.short_conv"
                        : b.latent_attention ? "latent_attention h.0.attention"
                                             : "self_attention h.0.attention";
    const bool in_blocks = b.latent_attention && b.latent_attention->kv_lora_rank == 64;
    tsr_tensor *blocks[2] = {NULL, NULL};
    tsr_layer *layer = NULL;
    OK(tsr_block_create(&b, &layer));
    for (int i = 0; in_blocks && i < 2; i++)
        put_blocks(layer, i == 0 ? "k_b.weight" : "v_b.weight", &blocks[i]);
    host_model host = {.block = &b, .batch = SEQUENCES, .tokens = LONGEST, .size = b.size};
    host_model_load(&host, layer);
    for (int i = 0; in_blocks && i < 2; i++) {
        put_blocks(layer, i == 0 ? "k_b.weight" : "v_b.weight", &blocks[i]);
        tsr_tensor_destroy(&blocks[i]);
    }
    host.x = numbers(31, SEQUENCES * LONGEST * b.size, TSR_F32);
    generation g = {.layer = layer,
                    .cache = cache_of(layer, b.delta_net || b.short_conv),
                    .size = b.size,
                    .x = host.x,
                    .y = host_model_forward(&host)};
    int sequences[SEQUENCES];
    for (int i = SEQUENCES - 1; i >= 0; i--)
        OK(tsr_kv_cache_add(g.cache, -1, &sequences[i]));
    tsr_layer *norm = NULL;
    tsr_tensor *x = tensor_new(TSR_F32, 3, (int64_t[]){SEQUENCES, 2, b.size}), *y = NULL;
    char text[200];
    OK(tsr_fill(queue, x, 1));
    snprintf(text, sizeof text, "%s: the cache has no step; tsr_kv_cache_begin starts one", inner);
    FAILS(tsr_layer_forward_cached(layer, x, g.cache, 1, &y), TSR_ERR_INVALID, text);
    feed(&g, sequences, (int64_t[]){3, 5}); /* prompts */
    snprintf(text, sizeof text,
             "%s: x is [2,2,%lld]; the cache's step has 2 sequences of up to 5 tokens", inner,
             (long long)b.size);
    FAILS(tsr_layer_forward_cached(layer, x, g.cache, 1, &y), TSR_ERR_INVALID, text);
    FAILS(tsr_layer_forward_cached(layer, x, NULL, 1, &y), TSR_ERR_INVALID,
          "layer_forward_cached: cache is NULL");
    if (b.delta_net && ranks == 1) {
        tsr_tensor *five = tensor_new(TSR_F32, 3, (int64_t[]){SEQUENCES, 5, b.size});
        FAILS(tsr_layer_forward_cached(layer, five, g.cache, 0, &y), TSR_ERR_INVALID,
              "delta_net h.0.delta_net: layer 0 of the cache has states of 0 and 0 floats; 128 and "
              "256 are needed");
        tsr_tensor_destroy(&five);
    }
    if (b.short_conv && ranks == 1) {
        tsr_tensor *five = tensor_new(TSR_F32, 3, (int64_t[]){SEQUENCES, 5, b.size});
        FAILS(tsr_layer_forward_cached(layer, five, g.cache, 0, &y), TSR_ERR_INVALID,
              "short_conv h.0.short_conv: layer 0 of the cache has states of 0 floats; 48 are "
              "needed");
        tsr_tensor_destroy(&five);
    }
    for (int i = 0; i < 3; i++)
        feed(&g, sequences, (int64_t[]){1, 1});
    /* Tokens that were truncated can be fed again. */
    OK(tsr_kv_cache_truncate(g.cache, sequences[0], 2));
    g.length[0] = 2;
    feed(&g, sequences, (int64_t[]){4, 0});
    feed(&g, sequences, (int64_t[]){2, 1});
    if (b.latent_attention) {
        /* Keys and values of many tokens are expanded, of three heads at most at a time: of tokens
         * in the cache, too, and of whole prompts. */
        tsr__latent_attention *a = tsr__latent_of(layer);
        a->most_expanded = (int64_t)SEQUENCES * LONGEST * (a->nope + a->rotary + a->value) * 3;
        feed(&g, sequences, (int64_t[]){19, 17});
        CHECK(tsr__latent_expands(a, SEQUENCES, 19, LONGEST, tsr__kv_cache_step_pairs(g.cache)),
              "a pass of 19 tokens is not expanded");
        for (int i = 0; i < SEQUENCES; i++) {
            OK(tsr_kv_cache_truncate(g.cache, sequences[i], 0));
            g.length[i] = 0;
        }
        feed(&g, sequences, (int64_t[]){17, 20});
        feed(&g, sequences, (int64_t[]){1, 1});
    }
    OK(tsr_norm_create(tsr_norm_params(.name = "n", .size = b.size, .bias = true), &norm));
    FAILS(tsr_layer_forward_cached(norm, x, g.cache, 0, &y), TSR_ERR_INVALID,
          "norm n: it has no attention and cannot use a cache; use tsr_layer_forward");
    CHECK(!y, "an output of a call that failed");
    tsr_tensor_destroy(&x);
    tsr_layer_destroy(&norm);
    tsr_layer_destroy(&layer);
    tsr_kv_cache_destroy(&g.cache);
    free(g.y);
    host_model_free(&host);
}

CASE(generation_with_cache, "tokens that come one by one give what whole sequences give")
{
    static const tsr_partition_params uneven = {.struct_size = sizeof uneven,
                                                .kind = TSR_PARTITION_UNEVEN};
    tsr_delta_net_params net = {.struct_size = sizeof net,
                                .key_heads = 2,
                                .heads = 4,
                                .key_dim = NET_DIM,
                                .value_dim = NET_DIM,
                                .taps = 3,
                                .tiled_heads = true,
                                .partition = &uneven};
    generate(small_block(6, 2));
    tsr_block_params b = small_block(6, 6);
    b.attention = NULL;
    b.latent_attention = tsr_latent_attention_params(
            .heads = 5, .q_lora_rank = 6, .kv_lora_rank = 8, .nope_dim = 3, .rope_dim = 4,
            .value_dim = 5, .rope = tsr_rope_params(.rotary_dim = 4, .pairing = TSR_ROPE_ADJACENT),
            .causal = true, .scale = 0.3F,
            .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN));
    generate(b);
    tsr_latent_attention_params latent = *b.latent_attention;
    latent.kv_lora_rank = 64;
    latent.nope_dim = 32;
    b.latent_attention = &latent;
    generate(b);
    b = small_block(6, 2);
    b.attention = NULL;
    b.delta_net = &net;
    generate(b);
    b.delta_net = NULL;
    b.short_conv = tsr_short_conv_params(.taps = 3, .partition = &uneven);
    generate(b);
}

/* Parameters --------------------------------------------------------------------------------- */

static void check_same(const tsr_layer *layer, const char *name, int64_t rows, int64_t columns,
                       bool bias)
{
    char full[64];
    tsr_layer *column = NULL;
    const tsr_parameter *found = NULL;
    snprintf(full, sizeof full, "a.%s", name);
    OK(tsr_column_linear_create(
        tsr_linear_params(.name = full, .input_size = columns, .output_size = rows,
                          .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                          .init = tsr_init_params(.kind = TSR_INIT_TORCH, .seed = 9), .bias = true),
        &column));
    for (int k = 0; k < 1 + bias; k++) {
        snprintf(full, sizeof full, "a.%s.%s", name, k ? "bias" : "weight");
        OK(tsr_layer_find_parameter(layer, full, &found));
        int index = 0;
        while (tsr_layer_parameter(layer, index) != found)
            index++;
        double *got = whole_parameter(layer, index), *want = whole_parameter(column, k);
        for (int64_t i = 0; i < rows * (k ? 1 : columns); i++)
            CHECK(got[i] == want[i], "%s: element %lld is %.9g, not %.9g", full, (long long)i,
                  got[i], want[i]);
        free(got);
        free(want);
    }
    tsr_layer_destroy(&column);
}

CASE(attention_initial, "initial weights of attention are those of linear layers of the same names")
{
    for (int i = 0; i < 2; i++) { /* kv heads are divided, or replicated on several ranks */
        tsr_layer *layer = NULL;
        OK(tsr_self_attention_create(
            tsr_self_attention_params(.name = "a", .size = 12, .heads = 8, .kv_heads = i ? 1 : 8,
                                      .head_dim = 3, .qk_norm = TSR_QK_NORM_HEADS,
                                      .partition =
                                          tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                      .init = tsr_init_params(.kind = TSR_INIT_TORCH, .seed = 9),
                                      .bias = true, .output_bias = true, .causal = true),
            &layer));
        CHECK(tsr_layer_parameter_count(layer) == 10, "%d parameters",
              tsr_layer_parameter_count(layer));
        check_same(layer, "q", 24, 12, true);
        check_same(layer, "k", i ? 3 : 24, 12, true);
        check_same(layer, "v", i ? 3 : 24, 12, true);
        check_same(layer, "o", 12, 24, true);
        for (int k = 0; k < 2; k++) {
            double *ones = whole_parameter(layer, k);
            for (int d = 0; d < 3; d++)
                CHECK(ones[d] == 1, "%s begins as %g", tsr_layer_parameter(layer, k)->name,
                      ones[d]);
            free(ones);
        }
        tsr_layer_destroy(&layer);
    }
}

/* Every parameter uses the caller's memory, as a tensor of its own. Products are then not joined,
 * and the results are the same. */
CASE(block_deferred, "a deferred block computes with the memory it is given")
{
    tsr_block_params b = small_block(8, 4);
    tsr_layer *own = NULL, *deferred = NULL;
    OK(tsr_block_create(&b, &own));
    b.deferred = true;
    OK(tsr_block_create(&b, &deferred));
    const int count = tsr_layer_parameter_count(own);
    double *values = numbers(8, 2 * 4 * b.size, TSR_F32);
    tsr_tensor *x = tensor_of(TSR_F32, 3, (int64_t[]){2, 4, b.size}, values), *y[2] = {0},
               *dx[2] = {0}, *tensor[24], *grad[24];
    FAILS(tsr_layer_forward(deferred, x, NULL, &y[1]), TSR_ERR_INVALID,
          "norm h.0.norm1: h.0.norm1.weight has no memory");
    CHECK(count <= 24 && count == tsr_layer_parameter_count(deferred), "%d parameters", count);
    for (int i = 0; i < count; i++) {
        const tsr_parameter *p = tsr_layer_parameter(own, i);
        const tsr_layout *layout = tsr_tensor_layout(p->tensor);
        const int64_t elements = tsr_layout_count(layout);
        tsr_tensor *flat = NULL;
        tensor[i] = tensor_new(TSR_F32, layout->ndim, layout->shape);
        grad[i] = tensor_new(TSR_F32, layout->ndim, layout->shape);
        OK(tsr_tensor_reshape(tensor[i], 1, &elements, &flat));
        OK(tsr__layer_initial(deferred, i, queue, 0, flat));
        tsr_tensor_destroy(&flat);
        OK(tsr_layer_set_parameter(deferred, i, tensor[i], grad[i], false));
    }
    for (int i = 0; i < 2; i++) {
        tsr_layer_saved *saved = NULL;
        tsr_layer *layer = i ? deferred : own;
        OK(tsr_layer_forward(layer, x, &saved, &y[i]));
        OK(tsr_layer_backward(layer, saved, x, &dx[i]));
        tsr_layer_saved_destroy(&saved);
    }
    double *first = values_of(y[0]), *second = values_of(y[1]);
    for (int64_t i = 0; i < 2 * 4 * b.size; i++)
        CHECK(fabs(first[i] - second[i]) < 1e-5, "element %lld of y is %g, not %g", (long long)i,
              second[i], first[i]);
    free(first);
    free(second);
    for (int i = 0; i < count; i++) {
        first = values_of(tsr_layer_parameter(own, i)->grad);
        second = values_of(grad[i]);
        const int64_t elements = tsr_layout_count(tsr_tensor_layout(grad[i]));
        for (int64_t k = 0; k < elements; k++)
            CHECK(fabs(first[k] - second[k]) < 1e-4, "element %lld of %s is %g, not %g",
                  (long long)k, tsr_layer_parameter(own, i)->name, second[k], first[k]);
        free(first);
        free(second);
        OK(tsr_layer_set_parameter(deferred, i, NULL, NULL, false));
        tsr_tensor_destroy(&tensor[i]);
        tsr_tensor_destroy(&grad[i]);
    }
    for (int i = 0; i < 2; i++) {
        tsr_tensor_destroy(&y[i]);
        tsr_tensor_destroy(&dx[i]);
    }
    tsr_tensor_destroy(&x);
    tsr_layer_destroy(&own);
    tsr_layer_destroy(&deferred);
    free(values);
}

/* FSDP --------------------------------------------------------------------------------------- */

/* Runs two steps of two blocks, with a different batch on each rank, and returns the values of all
 * parameters. */
static uint8_t *train_blocks(const char *const *gather, bool recompute, uint64_t *size)
{
    tsr_group *alone = NULL;
    tsr_layer *blocks[2] = {0};
    tsr_fsdp_unit units[2];
    tsr_fsdp *sharded = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    for (int i = 0; i < 2; i++) {
        tsr_block_params b = small_block(4, 2);
        b.group = alone;
        b.name = i ? "h.1" : "h.0";
        b.recompute = recompute;
        b.deferred = true;
        OK(tsr_block_create(&b, &blocks[i]));
        units[i] = *tsr_fsdp_unit(.layer = blocks[i]);
    }
    OK(tsr_fsdp_create(tsr_fsdp_params(.unit_count = 2, .units = units, .gather = gather),
                       &sharded));
    for (int step = 0; step < 2; step++) {
        double *values = numbers(60 + (uint64_t)(2 * step + my_rank), 2 * 5 * 16, TSR_F32);
        tsr_tensor *x = tensor_of(TSR_F32, 3, (int64_t[]){2, 5, 16}, values), *between = NULL,
                   *y = NULL, *dbetween = NULL;
        tsr_layer_saved *saved[2] = {0};
        OK(tsr_fsdp_forward(sharded, 0, x, &saved[0], &between));
        OK(tsr_fsdp_forward(sharded, 1, between, &saved[1], &y));
        OK(tsr_fsdp_backward(sharded, 1, saved[1], y, &dbetween));
        OK(tsr_fsdp_backward(sharded, 0, saved[0], dbetween, NULL));
        OK(fsdp_adamw_step(sharded, tsr_adamw_params(.learning_rate = 0.01f)));
        for (int i = 0; i < 2; i++)
            tsr_layer_saved_destroy(&saved[i]);
        tsr_tensor *all[] = {x, between, y, dbetween};
        for (int i = 0; i < 4; i++)
            tsr_tensor_destroy(&all[i]);
        free(values);
    }
    char path[SHARED_PATH];
    shared_path(world, "blocks", path);
    OK(fsdp_save(sharded, path, NULL));
    uint8_t *bytes = file_bytes(path, size);
    if (world)
        OK(tsr_comm_barrier(world, NULL));
    remove(path);
    tsr_fsdp_destroy(&sharded);
    for (int i = 0; i < 2; i++)
        tsr_layer_destroy(&blocks[i]);
    tsr_group_destroy(&alone);
    return bytes;
}

CASE(blocks_fsdp, "blocks train with sharded parameters as with data parallelism, bit for bit")
{
    uint64_t want_size, size;
    uint8_t *want = train_blocks(everything, false, &want_size);
    for (int i = 0; i < 2; i++) {
        uint8_t *got = train_blocks(NULL, i == 1, &size);
        CHECK(size == want_size && memcmp(got, want, size) == 0, "other values%s",
              i ? " with recomputation" : "");
        free(got);
    }
    free(want);
}

/* Mistakes ----------------------------------------------------------------------------------- */

#define ATTENTION_FAILS(text, ...)                                                                 \
    FAILS(tsr_self_attention_create(tsr_self_attention_params(.name = "a", __VA_ARGS__), &layer),  \
          TSR_ERR_INVALID, "self_attention a: " text)

#define DELTA_NET_FAILS(text, ...)                                                                 \
    FAILS(tsr_delta_net_create(tsr_delta_net_params(.name = "d", __VA_ARGS__), &layer),            \
          TSR_ERR_INVALID, "delta_net d: " text)

CASE(delta_net_mistakes, "mistakes in params of delta nets are named")
{
    tsr_layer *layer = NULL;
    FAILS(tsr_delta_net_create(NULL, &layer), TSR_ERR_INVALID, "delta_net: params is NULL");
    DELTA_NET_FAILS("size is 0; it must be at least 1", .heads = 4);
    DELTA_NET_FAILS(
        "key_heads is 3, heads 4; the first must divide the second, which is at most 4096",
        .size = 8, .heads = 4, .key_heads = 3);
    DELTA_NET_FAILS(
        "key_heads is 0, heads 4; the first must divide the second, which is at most 4096",
        .size = 8, .heads = 4);
    DELTA_NET_FAILS("key_dim is 6; multiples of 4 up to 256 are possible", .size = 8, .heads = 4,
                    .key_heads = 2, .key_dim = 6, .value_dim = 8);
    DELTA_NET_FAILS("value_dim is 260; multiples of 4 up to 256 are possible", .size = 8,
                    .heads = 4, .key_heads = 2, .key_dim = 8, .value_dim = 260);
    DELTA_NET_FAILS("taps is 17; 1 to 16 are possible", .size = 8, .heads = 4, .key_heads = 2,
                    .key_dim = 8, .value_dim = 8, .taps = 17);
    DELTA_NET_FAILS("partition.align is 5000; at most 4096 key heads are possible", .size = 8,
                    .heads = 4, .key_heads = 2, .key_dim = 8, .value_dim = 8,
                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN, .align = 5000));
    DELTA_NET_FAILS("norm_epsilon is -1; at least 2^-126 is needed", .size = 8, .heads = 4,
                    .key_heads = 2, .key_dim = 8, .value_dim = 8, .norm_epsilon = -1);
    const tsr_delta_net_params *net =
        tsr_delta_net_params(.heads = 4, .key_heads = 4, .key_dim = 4, .value_dim = 4);
    FAILS(tsr_block_create(tsr_block_params(.name = "b", .size = 8, .delta_net = net,
                                            .attention = tsr_self_attention_params(.heads = 4),
                                            .mlp = tsr_mlp_params(.hidden_size = 8)),
                           &layer),
          TSR_ERR_INVALID, "block b: attention and delta_net are given; only one is possible");
    FAILS(tsr_block_create(tsr_block_params(.name = "b", .size = 8, .delta_net = net,
                                            .sequence = true,
                                            .mlp = tsr_mlp_params(.hidden_size = 8)),
                           &layer),
          TSR_ERR_INVALID, "block b: delta_net is given with sequence, which is not possible");
}

CASE(short_conv_mistakes, "mistakes in params of short convolutions are named")
{
    tsr_layer *layer = NULL;
    FAILS(tsr_short_conv_create(NULL, &layer), TSR_ERR_INVALID, "short_conv: params is NULL");
    FAILS(tsr_short_conv_create(tsr_short_conv_params(.name = "s"), &layer), TSR_ERR_INVALID,
          "short_conv s: size is 0; it must be at least 1");
    FAILS(tsr_short_conv_create(tsr_short_conv_params(.name = "s", .size = 8, .taps = 17), &layer),
          TSR_ERR_INVALID, "short_conv s: taps is 17; 2 to 16 are possible");
    FAILS(tsr_short_conv_create(tsr_short_conv_params(.name = "s", .size = 8, .taps = 1), &layer),
          TSR_ERR_INVALID, "short_conv s: taps is 1; 2 to 16 are possible");
    FAILS(tsr_block_create(tsr_block_params(.name = "b", .size = 8,
                                            .short_conv = tsr_short_conv_params(.taps = 3),
                                            .attention = tsr_self_attention_params(.heads = 4)),
                           &layer),
          TSR_ERR_INVALID, "block b: attention and short_conv are given; only one is possible");
}

CASE(attention_mistakes, "mistakes in self-attention's params are named")
{
    tsr_layer *layer = NULL;
    const double none[8] = {0};
    FAILS(tsr_self_attention_create(NULL, &layer), TSR_ERR_INVALID,
          "self_attention: params is NULL");
    FAILS(tsr_self_attention_create(tsr_self_attention_params(.size = 4, .bias = true,
                                                              .output_bias = true, .causal = true),
                                    NULL),
          TSR_ERR_INVALID, "self_attention: out is NULL");
    ATTENTION_FAILS("size is 0, heads 4; both must be at least 1, and heads at most 4096",
                    .heads = 4);
    ATTENTION_FAILS("size is 8, heads 0; both must be at least 1, and heads at most 4096",
                    .size = 8);
    ATTENTION_FAILS("size is 8, heads 5000; both must be at least 1, and heads at most 4096",
                    .size = 8, .heads = 5000);
    ATTENTION_FAILS("kv_heads 3 does not divide heads 8", .size = 8, .heads = 8, .kv_heads = 3);
    ATTENTION_FAILS("kv_heads -1 does not divide heads 8", .size = 8, .heads = 8, .kv_heads = -1);
    ATTENTION_FAILS("heads 8 does not divide size 12; set head_dim", .size = 12, .heads = 8);
    ATTENTION_FAILS("head_dim is 600; 1 to 576 are possible", .size = 12, .heads = 8,
                    .head_dim = 600);
    ATTENTION_FAILS("value_dim is 577; 1 to 576 are possible", .size = 12, .heads = 4,
                    .value_dim = 577);
    ATTENTION_FAILS("keys_as_values is set, but value_dim is 2 and head_dim 3", .size = 12,
                    .heads = 4, .value_dim = 2, .keys_as_values = true, .causal = true);
    ATTENTION_FAILS("window is -1; it must be positive, and goes with causal attention", .size = 8,
                    .heads = 8, .window = -1, .causal = true);
    ATTENTION_FAILS("window is 4, not causal; it must be positive, and goes with causal attention",
                    .size = 8, .heads = 8, .window = 4);
    ATTENTION_FAILS("scale is inf", .size = 8, .heads = 8, .scale = INFINITY);
    ATTENTION_FAILS("softcap is -2; it must not be negative", .size = 8, .heads = 8, .softcap = -2);
    ATTENTION_FAILS("rope has a rotary_dim of 4, but head_dim is 2", .size = 8, .heads = 4,
                    .rope = &turned);
    ATTENTION_FAILS("rope: theta is -1; it must be above 0", .size = 16, .heads = 4,
                    .rope = tsr_rope_params(.rotary_dim = 4, .theta = -1),
                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN));
    ATTENTION_FAILS("init 9 is not a tsr_init", .size = 8, .heads = 8,
                    .init = tsr_init_params(.kind = (tsr_init)9));
    ATTENTION_FAILS("output_init 9 is not a tsr_init", .size = 8, .heads = 8,
                    .output_init = tsr_init_params(.kind = (tsr_init)9));
    ATTENTION_FAILS("sequence_dim is -1; dimensions count from 0", .size = 8, .heads = 8,
                    .sequence = true, .sequence_dim = -1);
    ATTENTION_FAILS("norm_epsilon is -1; at least 2^-126 is needed", .size = 840, .heads = 840,
                    .qk_norm = TSR_QK_NORM_HEADS, .norm_epsilon = -1);
    char text[160];
    snprintf(text, sizeof text, "self_attention a: kv_heads: partition: all %d rates are 0", ranks);
    FAILS(tsr_self_attention_create(
              tsr_self_attention_params(.name = "a", .size = 840, .heads = 840,
                                        .partition =
                                            tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED,
                                                                 .rates = none),
                                        .bias = true, .output_bias = true, .causal = true),
              &layer),
          TSR_ERR_INVALID, text);
    if (ranks > 1) {
        snprintf(text, sizeof text,
                 "self_attention a: kv_heads 841 is not divisible by %d ranks; partition UNEVEN or "
                 "WEIGHTED allows it",
                 ranks);
        FAILS(tsr_self_attention_create(
                  tsr_self_attention_params(.name = "a", .size = 841, .heads = 841, .bias = true,
                                            .output_bias = true, .causal = true),
                  &layer),
              TSR_ERR_INVALID, text);
        snprintf(text, sizeof text,
                 "self_attention a: heads 841 is not divisible by %d ranks; partition UNEVEN or "
                 "WEIGHTED allows it",
                 ranks);
        FAILS(tsr_self_attention_create(
                  tsr_self_attention_params(.name = "a", .size = 841, .heads = 841, .kv_heads = 1,
                                            .bias = true, .output_bias = true, .causal = true),
                  &layer),
              TSR_ERR_INVALID, text);
    }
    CHECK(!layer, "a layer that failed");
}

#define LATENT_FAILS(text, ...)                                                                    \
    FAILS(tsr_latent_attention_create(tsr_latent_attention_params(.name = "a", .kv_lora_rank = 8,  \
                                                                  .nope_dim = 4, .rope_dim = 4,    \
                                                                  .value_dim = 4, __VA_ARGS__),    \
                                      &layer),                                                     \
          TSR_ERR_INVALID, "latent_attention a: " text)

CASE(latent_forms, "many tokens are computed by expanded keys where that takes fewer products")
{
    /* as DeepSeek-V3: a matrix of a head has 512 · 128 elements */
    static const struct {
        int64_t sequences, tokens, keys;
        double pairs;
        bool expands;
    } cases[] = {
        {1, 16, 16, 16 * 17 / 2, false},
        {1, 17, 17, 17 * 18 / 2, true},
        {1, 512, 512, 512 * 513 / 2, true},
        {1, 168, 8192, 168 * (8192 - 83.5), false},
        {1, 169, 8192, 169 * 8108, true},
        {1, 64, 4096, 64 * (4096 - 31.5), false},
        {1, 64, 64, 64 * 65 / 2, true},
        {1, 512, 8192, 512 * (8192 - 255.5), true},
        {4, 512, 512, 4 * 512 * 513 / 2, true},
        /* a part of a prompt, and one token each of seven texts */
        {8, 512, 8192, 512 * (8192 - 255.5) + 7 * 8192, false},
    };
    tsr__latent_attention a = {
        .kv_rank = 512, .nope = 128, .rotary = 64, .value = 128, .causal = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(tsr__latent_expands(&a, cases[i].sequences, cases[i].tokens, cases[i].keys,
                                  cases[i].pairs) == cases[i].expands,
              "%lld tokens of %lld", (long long)cases[i].tokens, (long long)cases[i].keys);
    a.kv_rank = 100; /* latents are smaller than keys and values */
    CHECK(!tsr__latent_expands(&a, 1, 512, 512, 512 * 513 / 2), "small latents are expanded");
}

CASE(latent_mistakes, "mistakes in the params of latent attention are named")
{
    tsr_layer *layer = NULL;
    FAILS(tsr_latent_attention_create(NULL, &layer), TSR_ERR_INVALID,
          "latent_attention: params is NULL");
    LATENT_FAILS("size is 0, heads 2; both must be at least 1, and heads at most 4096", .size = 0,
                 .heads = 2);
    LATENT_FAILS("size is 8, heads 4097; both must be at least 1, and heads at most 4096",
                 .size = 8, .heads = 4097);
    LATENT_FAILS("q_lora_rank is -1, kv_lora_rank 8; the first must not be negative, and the "
                 "second at least 1",
                 .size = 8, .heads = 2, .q_lora_rank = -1);
    LATENT_FAILS("rope has a rotary_dim of 2, but rope_dim is 4", .size = 8, .heads = 2,
                 .rope = tsr_rope_params(.rotary_dim = 2));
    LATENT_FAILS("scale is nan", .size = 8, .heads = 2, .scale = NAN);
    LATENT_FAILS("norm_epsilon is -1; at least 2^-126 is needed", .size = 8, .heads = 2,
                 .norm_epsilon = -1);
    FAILS(tsr_latent_attention_create(
              tsr_latent_attention_params(.name = "a", .size = 8, .heads = 2, .kv_lora_rank = 570,
                                          .nope_dim = 4, .rope_dim = 8, .value_dim = 4),
              &layer),
          TSR_ERR_INVALID,
          "latent_attention a: kv_lora_rank is 570, nope_dim 4, rope_dim 8 and value_dim 4; the "
          "sums of rope_dim and one of the first two, and value_dim, may be at most 576");
    FAILS(tsr_latent_attention_create(
              tsr_latent_attention_params(.name = "a", .size = 8, .heads = 2, .kv_lora_rank = 4),
              &layer),
          TSR_ERR_INVALID,
          "latent_attention a: nope_dim is 0, rope_dim 0, value_dim 0; all must be at least 1");
    tsr_block_params b = small_block(4, 4);
    b.latent_attention = tsr_latent_attention_params(.heads = 2);
    FAILS(tsr_block_create(&b, &layer), TSR_ERR_INVALID,
          "block h.0: attention and latent_attention are given; only one is possible");
    b.attention = NULL;
    b.sequence = true;
    FAILS(tsr_block_create(&b, &layer), TSR_ERR_INVALID,
          "block h.0: latent_attention is given with sequence, which is not possible");
    CHECK(!layer, "a layer of a call that failed");
}

CASE(block_mistakes, "mistakes in a block's and a norm's params and in passes are named")
{
    tsr_layer *layer = NULL, *norm = NULL;
    tsr_heads heads = TSR_INIT(tsr_heads);
    FAILS(tsr_norm_create(NULL, &norm), TSR_ERR_INVALID, "norm: params is NULL");
    FAILS(tsr_norm_create(tsr_norm_params(.name = "n", .bias = true), &norm), TSR_ERR_INVALID,
          "norm n: size is 0; it must be at least 1");
    FAILS(
        tsr_norm_create(tsr_norm_params(.size = 4, .kind = (tsr_norm_kind)2, .bias = true), &norm),
        TSR_ERR_INVALID, "norm: kind 2 is not a tsr_norm_kind");
    FAILS(tsr_norm_create(tsr_norm_params(.size = 4, .epsilon = NAN, .bias = true), &norm),
          TSR_ERR_INVALID, "norm: epsilon is nan; at least 2^-126 is needed");
    FAILS(tsr_norm_create(tsr_norm_params(.size = 4, .dtype = TSR_I32, .bias = true), &norm),
          TSR_ERR_INVALID, "norm: dtype is i32; f32, f16 or bf16 is needed");
    FAILS(tsr_block_create(NULL, &layer), TSR_ERR_INVALID, "block: params is NULL");
    FAILS(tsr_block_create(tsr_block_params(.name = "b", .norm = tsr_norm_params(.bias = true)),
                           &layer),
          TSR_ERR_INVALID, "block b: size is 0; it must be at least 1");
    FAILS(tsr_block_create(
              tsr_block_params(.name = "b", .size = 8, .norm = tsr_norm_params(.bias = true)),
              &layer),
          TSR_ERR_INVALID,
          "self_attention b.attention: size is 8, heads 0; both must be at least 1, and heads at "
          "most 4096");
    FAILS(tsr_block_create(
              tsr_block_params(.name = "b", .size = 840,
                               .attention =
                                   tsr_self_attention_params(.heads = 840, .bias = true,
                                                             .output_bias = true, .causal = true),
                               .norm = tsr_norm_params(.bias = true)),
              &layer),
          TSR_ERR_INVALID,
          "mlp b.mlp: input_size is 840, hidden_size 0, output_size 840; all must be at least 1");

    tsr_block_params b = small_block(4, 4);
    const tsr_random_params random = {.struct_size = sizeof random, .seed = 1};
    const int64_t strides[] = {1};
    OK(tsr_block_create(&b, &layer));
    OK(tsr_norm_create(tsr_norm_params(.name = "n", .size = 16, .bias = true), &norm));
    FAILS(tsr_self_attention_get_heads(norm, &heads), TSR_ERR_INVALID,
          "norm n: it has neither self-attention nor a delta net or a short convolution");
    FAILS(tsr_self_attention_get_heads(layer, &(tsr_heads){0}), TSR_ERR_INVALID,
          "tsr_heads: struct_size is 0; use TSR_INIT(tsr_heads)");
    OK(tsr_self_attention_get_heads(layer, &heads));
    CHECK(heads.head_dim == 4, "head_dim %lld", (long long)heads.head_dim);
    FAILS(tsr_self_attention_get_heads(NULL, &heads), TSR_ERR_INVALID,
          "self_attention_get_heads: layer is NULL");
    FAILS(tsr_block_set_dropout(NULL, 0, NULL), TSR_ERR_INVALID,
          "block_set_dropout: layer is NULL");
    FAILS(tsr_block_set_dropout(norm, 0, NULL), TSR_ERR_INVALID, "norm n: it is not a block");
    FAILS(tsr_block_set_dropout(layer, 1, &random), TSR_ERR_INVALID,
          "block h.0: dropout p is 1; 0 <= p < 1 is needed");
    FAILS(tsr_block_set_dropout(layer, 0.5F, NULL), TSR_ERR_INVALID,
          "block h.0: dropout p is 0.5, but params is NULL");
    FAILS(tsr_block_set_dropout(layer, 0.5F, tsr_random_params(.index_strides = strides)),
          TSR_ERR_INVALID, "block h.0: index_strides must be NULL");

    double *values = numbers(8, 2 * 4 * 17, TSR_F32);
    tsr_tensor *x = tensor_of(TSR_F32, 3, (int64_t[]){2, 4, 16}, values),
               *line = tensor_of(TSR_F32, 1, (int64_t[]){16}, values),
               *other = tensor_of(TSR_F32, 3, (int64_t[]){2, 4, 17}, values), *y = NULL, *dx = NULL;
    tsr_layer_saved *saved = NULL, *none = NULL;
    FAILS(tsr_layer_forward(layer, other, &none, &y), TSR_ERR_INVALID,
          "norm h.0.norm1: x is [2,4,17]; its last dimension must be 16");
    FAILS(tsr_layer_forward(layer, line, &none, &y), TSR_ERR_INVALID,
          "self_attention h.0.attention: x is [16]; [.., tokens, features] is needed");
    CHECK(!y && !none, "an output of a call that failed");
    OK(tsr_layer_forward(layer, x, &saved, &y));
    FAILS(tsr_layer_backward(layer, saved, other, &dx), TSR_ERR_INVALID,
          "block h.0: dy is [2,4,17]; y was [2,4,16]");
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&y);
    OK(tsr_layer_forward(norm, x, &saved, &y));
    FAILS(tsr_layer_backward(norm, saved, other, &dx), TSR_ERR_INVALID,
          "norm n: dy is [2,4,17]; y was [2,4,16]");
    CHECK(!dx, "an output of a call that failed");
    tsr_layer_saved_destroy(&saved);
    tsr_tensor *all[] = {x, line, other, y};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    tsr_layer_destroy(&layer);
    tsr_layer_destroy(&norm);
    free(values);
}
