/* Sequences that the ranks of a context group divide: self-attention gives each rank its part of
 * what an undivided layer gives, and the ranks' gradients add up to that layer's. */
#include "parallel/internal.h"
#include "parallel/spmd.h"

enum { ROWS = 2, SIZE = 24 };

/* What rank r gets, for r < 4; in other jobs each rank gets the same. */
static const double unequal[] = {3, 1, 2, 0.5, 1, 1, 1, 1};

/* Dropout of blocks depends on the place of a token in its row. */
static const tsr_random_params masks = {.struct_size = sizeof masks, .seed = 5, .offset = 9};

typedef struct run {
    const tsr_self_attention_params *params; /* NULL: a delta net or a short convolution */
    bool is_conv;
    bool in_block; /* a block of it, with dropout */
    tsr_group *alone;
    int64_t tokens;
    const tsr_partition_params *partition;
    tsr_shard_range chunks[2];
} run;

/* Returns this rank's tokens of values [ROWS, tokens, SIZE]; free() them. */
static double *own_of(const run *r, const double *values)
{
    const int64_t shape[] = {ROWS, r->tokens, SIZE};
    const int64_t counts[] = {(int64_t)r->chunks[0].count * SIZE,
                              (int64_t)r->chunks[1].count * SIZE},
                  own = counts[0] + counts[1];
    double *out = doubles(ROWS * own);
    for (int i = 0; i < 2; i++) {
        double *part =
            slice_of(values, 3, shape, 1, (int64_t)r->chunks[i].start, (int64_t)r->chunks[i].count);
        for (int row = 0; row < ROWS; row++)
            memcpy(out + row * own + i * counts[0], part + row * counts[i],
                   (size_t)counts[i] * sizeof *out);
        free(part);
    }
    return out;
}

static void check_near(const char *what, const double *got, const double *want, int64_t count,
                       double floor, double limit)
{
    double most = floor;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < count; i++)
        CHECK(fabs(got[i] - want[i]) <= limit * most,
              "%s: element %lld of %lld is %.9g, not %.9g (largest %.3g)", what, (long long)i,
              (long long)count, got[i], want[i], most);
}

static tsr_layer *create(const run *r, tsr_group *context)
{
    tsr_layer *layer = NULL;
    const tsr_init_params *init = tsr_init_params(.kind = TSR_INIT_TORCH, .seed = 3);
    if (!r->params && r->is_conv) {
        OK(tsr_short_conv_create(tsr_short_conv_params(.group = r->alone, .name = "conv",
                                                       .size = SIZE, .taps = 4, .init = init,
                                                       .context_group = context),
                                 &layer));
        return layer;
    }
    if (!r->params) {
        OK(tsr_delta_net_create(tsr_delta_net_params(.group = r->alone, .name = "delta",
                                                     .size = SIZE, .key_heads = 2, .heads = 4,
                                                     .key_dim = 8, .value_dim = 8, .init = init,
                                                     .context_group = context),
                                &layer));
        return layer;
    }
    tsr_self_attention_params p = *r->params;
    p.group = r->alone;
    p.context_group = context;
    p.causal = true;
    p.init = init;
    if (r->in_block) {
        OK(tsr_block_create(
            tsr_block_params(.group = r->alone, .name = "block", .size = SIZE,
                             .recompute = context != NULL, .attention = &p,
                             .mlp = tsr_mlp_params(.hidden_size = 16, .init = init)),
            &layer));
        OK(tsr_block_set_dropout(layer, 0.3F, &masks));
        return layer;
    }
    p.name = "attention";
    p.size = SIZE;
    OK(tsr_self_attention_create(&p, &layer));
    return layer;
}

/* Documents end after a third and two thirds of a row, and in the second row one token later. */
static int32_t start_of(int64_t tokens, int row, int64_t token)
{
    const int64_t third = tokens / 3 + row;
    return (int32_t)(token < third ? 0 : token < 2 * third ? third : 2 * third);
}

/* Makes the documents of this rank's tokens, or of whole rows. */
static void make_documents(const run *r, bool divided, tsr__documents *out)
{
    const tsr_shard_range all[2] = {{0, (uint64_t)r->tokens}, {0, 0}},
                          *chunks = divided ? r->chunks : all;
    const int64_t own = (int64_t)(chunks[0].count + chunks[1].count), shape[] = {ROWS, own};
    int32_t *starts = calloc((size_t)(ROWS * own) + 1, sizeof *starts),
            *here = calloc((size_t)(ROWS * own) + 1, sizeof *here);
    CHECK(starts && here, "no memory");
    int64_t n = 0;
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < 2; i++)
            for (uint64_t t = 0; t < chunks[i].count; t++, n++) {
                starts[n] = start_of(r->tokens, row, (int64_t)(chunks[i].start + t));
                here[n] = (int32_t)(starts[n] - (int64_t)chunks[i].start);
            }
    *out = (tsr__documents){.starts = tensor_new(TSR_I32, 2, shape),
                            .positions = tensor_new(TSR_I32, 2, shape),
                            .chunk_starts = divided ? tensor_new(TSR_I32, 2, shape) : NULL};
    OK(tsr_tensor_upload(queue, out->starts, starts, (uint64_t)n * sizeof *starts));
    OK(tsr_fill(queue, out->positions, 0)); /* delta nets do not read them */
    if (divided)
        OK(tsr_tensor_upload(queue, out->chunk_starts, here, (uint64_t)n * sizeof *here));
    free(starts);
    free(here);
}

static void free_documents(tsr__documents *documents)
{
    tsr_tensor_destroy(&documents->starts);
    tsr_tensor_destroy(&documents->positions);
    tsr_tensor_destroy(&documents->chunk_starts);
}

/* Makes two passes of a layer, whose gradients are added. */
static void pass(tsr_layer *layer, const double *x, const double *dy, int64_t tokens, double **y,
                 double **dx)
{
    const int64_t shape[] = {ROWS, tokens, SIZE};
    tsr_tensor *tx = tensor_of(TSR_F32, 3, shape, x), *tdy = tensor_of(TSR_F32, 3, shape, dy),
               *ty = NULL, *tdx = NULL;
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(layer, tx, NULL, &ty));
    tsr_tensor_destroy(&ty);
    OK(tsr_layer_forward(layer, tx, &saved, &ty));
    OK(tsr_layer_backward(layer, saved, tdy, NULL));
    OK(tsr_layer_backward(layer, saved, tdy, &tdx));
    *y = values_of(ty);
    *dx = values_of(tdx);
    tsr_tensor *all[] = {tx, tdy, ty, tdx};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    tsr_layer_saved_destroy(&saved);
}

static void compare_rows(const tsr_self_attention_params *params, bool in_block, int64_t tokens,
                         bool is_unequal, bool is_packed, bool is_conv)
{
    if (ranks == 1) {
        case_skip("one rank");
        return;
    }
    run r = {.params = params, .is_conv = is_conv, .in_block = in_block, .tokens = tokens};
    const tsr_partition_params by_rates = {
        .struct_size = sizeof by_rates, .kind = TSR_PARTITION_WEIGHTED, .rates = unequal};
    r.partition = is_unequal ? &by_rates : NULL;
    OK(tsr_group_create(NULL, queue, NULL, &r.alone));
    OK(tsr_context_divide(tokens, ranks, r.partition, my_rank, r.chunks));
    const int64_t count = ROWS * tokens * SIZE,
                  own = (int64_t)(r.chunks[0].count + r.chunks[1].count);
    double *x = numbers(41, count, TSR_F32), *dy = numbers(42, count, TSR_F32), *y, *dx, *own_y,
           *own_dx, *own_x = own_of(&r, x), *own_dy = own_of(&r, dy);
    tsr_layer *whole = create(&r, NULL), *divided = create(&r, group);
    tsr__documents documents[2] = {0};
    if (is_packed) {
        make_documents(&r, false, &documents[0]);
        make_documents(&r, true, &documents[1]);
        tsr__layer_set_documents(whole, &documents[0]);
        tsr__layer_set_documents(divided, &documents[1]);
    }
    pass(whole, x, dy, tokens, &y, &dx);
    pass(divided, own_x, own_dy, own, &own_y, &own_dx);
    double *want_y = own_of(&r, y), *want_dx = own_of(&r, dx);
    /* Gradients of the delta rule's decay are small differences of the sums that make up others. */
    const double floor = params ? 1e-3 : 1, limit = params ? 4e-6 : 4e-5;
    check_near("y", own_y, want_y, ROWS * own * SIZE, floor, limit);
    check_near("dx", own_dx, want_dx, ROWS * own * SIZE, floor, limit);
    for (int i = 0; i < tsr_layer_parameter_count(whole); i++) {
        const tsr_parameter *w = tsr_layer_parameter(whole, i),
                            *d = tsr_layer_parameter(divided, i);
        OK(tsr_group_all_reduce(group, d->grad, TSR_OP_SUM, NULL, NULL));
        double *want = values_of(w->grad), *got = values_of(d->grad);
        check_near(w->name, got, want, tsr_layout_count(tsr_tensor_layout(w->grad)), floor, limit);
        free(want);
        free(got);
    }
    double *all[] = {x, dy, y, dx, own_x, own_dx, own_y, own_dy, want_y, want_dx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    tsr_layer_destroy(&whole);
    tsr_layer_destroy(&divided);
    free_documents(&documents[0]);
    free_documents(&documents[1]);
    tsr_group_destroy(&r.alone);
}

static void compare(const tsr_self_attention_params *params, bool in_block, int64_t tokens,
                    bool is_unequal)
{
    compare_rows(params, in_block, tokens, is_unequal, false, false);
}

CASE(context_attention, "context: attention of divided sequences is that of whole ones")
{
    const tsr_rope_params *rope = tsr_rope_params(.rotary_dim = 8);
    compare(tsr_self_attention_params(.heads = 4, .kv_heads = 2, .head_dim = 8, .rope = rope),
            false, 13, false);
    /* only the first rank has a token */
    compare(tsr_self_attention_params(.heads = 4, .kv_heads = 2, .head_dim = 8, .rope = rope),
            false, 1, false);
    compare(tsr_self_attention_params(.heads = 4, .kv_heads = 2, .head_dim = 8, .rope = rope), true,
            13, true);
    compare(tsr_self_attention_params(.heads = 4, .kv_heads = 2, .head_dim = 8, .rope = rope,
                                      .qk_norm = TSR_QK_NORM_HEADS, .window = 6, .softcap = 3,
                                      .sinks = true, .temperature = 0.5F, .temperature_length = 4,
                                      .keys_as_values = true, .value_norm = true),
            false, 17, true);
}

CASE(context_delta_net, "context: delta nets of divided sequences are those of whole ones")
{
    compare(NULL, false, 1, false); /* only the first rank has a token */
    compare(NULL, false, 70, true);
    /* packed rows, by the recurrence and by chunks: documents that begin and end in chunks, and
     * that chunks pass on */
    compare_rows(NULL, false, 19, false, true, false);
    compare_rows(NULL, false, 130, true, true, false);
}

CASE(context_short_conv, "context: short convolutions of divided sequences are those of whole ones")
{
    /* chunks without tokens, chunks that are shorter than what they pass on, and packed rows */
    compare_rows(NULL, false, 1, false, false, true);
    compare_rows(NULL, false, 7, false, false, true);
    compare_rows(NULL, false, 23, true, true, true);
}

/* Keys and values of more than half a megabyte are gathered by groups of heads. */
CASE(context_groups, "context: heads are gathered by groups")
{
    compare(tsr_self_attention_params(.heads = 64, .head_dim = 8, .sinks = true), false, 68, true);
}

/* The other ranks wait for a group that advances in pieces, and only then take part. */
CASE(context_waits, "context: other groups advance while the ranks agree on a division")
{
    const int64_t elements = 1 << 18;
    tsr_group *alone = NULL;
    tsr_layer *layer = NULL;
    tsr_request *request = NULL;
    tsr_tensor *y = NULL, *sum = tensor_new(TSR_F32, 1, &elements);
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    OK(tsr_self_attention_create(tsr_self_attention_params(.group = alone, .size = SIZE, .heads = 3,
                                                           .causal = true, .context_group = group),
                                 &layer));
    tsr_tensor *x = tensor_new(TSR_F32, 3, (int64_t[]){1, 2, SIZE});
    OK(tsr_fill(queue, x, 1));
    OK(tsr_fill(queue, sum, 1));
    OK(tsr_group_all_reduce(staged, sum, TSR_OP_SUM, NULL, &request));
    if (my_rank > 0)
        OK(tsr_request_wait(&request));
    OK(tsr_layer_forward(layer, x, NULL, &y));
    OK(tsr_request_wait(&request));
    double *values = values_of(sum);
    CHECK(values[elements - 1] == ranks, "the sum is %g", values[elements - 1]);
    free(values);
    tsr_tensor *all[] = {x, y, sum};
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&all[i]);
    tsr_layer_destroy(&layer);
    tsr_group_destroy(&alone);
}

CASE(context_mistakes, "context: mistakes")
{
    tsr_layer *layer = NULL;
    tsr_tensor *y = NULL;
    tsr_group *alone = NULL;
    tsr_shard_range chunks[2];
    FAILS(tsr_context_divide(4, 2, NULL, 2, chunks), TSR_ERR_INVALID,
          "context_divide: rank 2 of 2");
    FAILS(tsr_context_divide(-1, 2, NULL, 0, chunks), TSR_ERR_INVALID,
          "context_divide: tokens is -1");
    FAILS(tsr_context_divide(4, 2, NULL, 0, NULL), TSR_ERR_INVALID,
          "context_divide: chunks is NULL");
    OK(tsr_context_divide(11, 3, NULL, 1, chunks)); /* of 4, 4 and 3 */
    CHECK(chunks[0].start == 2 && chunks[0].count == 2 && chunks[1].start == 7 &&
              chunks[1].count == 2,
          "%d, %d and %d, %d", (int)chunks[0].start, (int)chunks[0].count, (int)chunks[1].start,
          (int)chunks[1].count);
    if (ranks == 1)
        return;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    FAILS(tsr_self_attention_create(tsr_self_attention_params(.group = alone, .size = SIZE,
                                                              .heads = 2, .context_group = group),
                                    &layer),
          TSR_ERR_INVALID, "self_attention: context_group goes with causal attention");
    FAILS(
        tsr_self_attention_create(tsr_self_attention_params(.group = alone, .size = SIZE,
                                                            .heads = 2, .value_dim = 4,
                                                            .causal = true, .context_group = group),
                                  &layer),
        TSR_ERR_INVALID,
        "self_attention: value_dim is 4 and head_dim 12; with a context_group they must be equal");
    const tsr_mlp_params *mlp = tsr_mlp_params(.hidden_size = 8);
    OK(tsr_block_create(
        tsr_block_params(.group = alone, .size = SIZE,
                         .attention = tsr_self_attention_params(.heads = 2, .causal = true,
                                                                .context_group = group),
                         .mlp = mlp),
        &layer));
    tsr_tensor *x = tensor_new(TSR_F32, 3, (int64_t[]){1 + (my_rank == 1), 3, SIZE});
    FAILS(tsr_layer_forward(layer, x, NULL, &y), TSR_ERR_INVALID,
          "context group: rank 1 has 2 rows, but rank 0 has 1");
    tsr_layer_destroy(&layer);
    OK(tsr_block_create(
        tsr_block_params(.group = alone, .size = SIZE, .sequence = true,
                         .attention = tsr_self_attention_params(.heads = 2, .causal = true,
                                                                .context_group = group),
                         .mlp = mlp),
        &layer));
    FAILS(tsr_block_set_dropout(layer, 0.5F, tsr_random_params(.seed = 1)), TSR_ERR_UNSUPPORTED,
          "block: dropout with sequence and a context_group is not supported");
    tsr_layer_destroy(&layer);
    OK(tsr_delta_net_create(tsr_delta_net_params(.group = alone, .size = SIZE, .key_heads = 2,
                                                 .heads = 2, .key_dim = 4, .value_dim = 4,
                                                 .context_group = group),
                            &layer));
    tsr_layer_destroy(&layer);
    tsr_stream *other = NULL;
    tsr_group *elsewhere = NULL;
    OK(tsr_stream_create(gpu, &other));
    OK(tsr_group_create(NULL, other, NULL, &elsewhere));
    FAILS(tsr_self_attention_create(tsr_self_attention_params(.group = elsewhere, .size = SIZE,
                                                              .heads = 2, .causal = true,
                                                              .context_group = group),
                                    &layer),
          TSR_ERR_INVALID, "self_attention: context_group has another stream than group");
    FAILS(tsr_delta_net_create(tsr_delta_net_params(.group = elsewhere, .size = SIZE,
                                                    .key_heads = 2, .heads = 2, .key_dim = 4,
                                                    .value_dim = 4, .context_group = group),
                               &layer),
          TSR_ERR_INVALID, "delta_net: context_group has another stream than group");
    tsr_group_destroy(&elsewhere);
    tsr_stream_destroy(&other);
    tsr_tensor_destroy(&x);
    tsr_group_destroy(&alone);
}
