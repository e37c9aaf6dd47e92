/* Compares self-attention, delta nets, short convolutions, normalisation and blocks with double
 * precision and central differences. */
#include "parallel/host_transformer.h"
#include "parallel/internal.h"
#include "parallel/linear_case.h"

typedef struct run {
    host_model host;
    tsr_layer *layer;
    tsr_dtype dtype;
    bool sequence;
    int sequence_dim;
    int64_t lead[2]; /* the sizes of batch and tokens; the batch is 1 if no_batch */
    bool no_batch;   /* x is [tokens,size] */
    tsr_random_params random;
    float p;
} run;

static double tolerance(tsr_dtype dtype)
{
    return dtype == TSR_F32 ? 4e-5 : dtype == TSR_F16 ? 2e-2 : 1.5e-1;
}

/* Checks that errors are small relative to the largest value. They are not small relative to
 * each value, because the values are sums of sums that may cancel. */
static void check_near(const char *what, const tsr_tensor *tensor, const double *want,
                       int64_t count, double limit)
{
    double most = 0.1, *got = values_of(tensor);
    CHECK(tsr_layout_count(tsr_tensor_layout(tensor)) == count, "%s has %lld elements, not %lld",
          what, (long long)tsr_layout_count(tsr_tensor_layout(tensor)), (long long)count);
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < count; i++)
        CHECK(fabs(got[i] - want[i]) <= limit * most,
              "%s: element %lld of %lld is %.9g, not %.9g (largest %.3g)", what, (long long)i,
              (long long)count, got[i], want[i], most);
    free(got);
}

static int part_of_x(const run *r, int64_t shape[3], int64_t *start, int64_t *count)
{
    const host_model *h = &r->host;
    const int64_t whole[] = {h->batch, h->tokens, h->size};
    const int ndim = r->no_batch ? 2 : 3;
    memcpy(shape, whole + (3 - ndim), (size_t)ndim * sizeof *shape);
    *start = 0;
    *count = shape[r->sequence_dim];
    if (r->sequence) {
        *count /= ranks;
        *start = *count * my_rank;
    }
    return ndim;
}

/* Returns this rank's part of values that have x's or y's shape. */
static double *part_of(const run *r, const double *values, int64_t *elements)
{
    int64_t shape[3], start, count;
    const int ndim = part_of_x(r, shape, &start, &count);
    double *part = slice_of(values, ndim, shape, r->sequence_dim, start, count);
    *elements = count_of(ndim, shape) / shape[r->sequence_dim] * count;
    return part;
}

static tsr_tensor *tensor_of_part(const run *r, const double *values)
{
    int64_t shape[3], start, count, elements;
    const int ndim = part_of_x(r, shape, &start, &count);
    double *part = part_of(r, values, &elements);
    shape[r->sequence_dim] = count;
    tsr_tensor *tensor = tensor_of(r->dtype, ndim, shape, part);
    free(part);
    return tensor;
}

static void check_part(const run *r, const char *what, const tsr_tensor *tensor,
                       const double *whole)
{
    int64_t elements;
    double *want = part_of(r, whole, &elements);
    check_near(what, tensor, want, elements, tolerance(r->dtype));
    free(want);
}

/* Checks that gradients are `times` those of the reference. */
static void check_gradients(const run *r, double *const *whole, double times)
{
    for (int i = 0; i < r->host.count; i++) {
        const tsr_parameter *q = tsr_layer_parameter(r->layer, i);
        const int dim = q->shard_dim < 0 ? 0 : q->shard_dim;
        const int64_t count = r->host.elements[i] / q->global_shape[dim] * q->length;
        double *want = slice_of(whole[i], q->ndim, q->global_shape, dim, q->offset, q->length);
        for (int64_t k = 0; k < count; k++)
            want[k] *= times;
        check_near(q->name, q->grad, want, count, tolerance(r->dtype));
        free(want);
    }
}

/* Gives different values to the weights of norms and to scales, which are 1 initially. */
static void vary_norms(const tsr_layer *layer)
{
    for (int i = 0; i < tsr_layer_parameter_count(layer); i++) {
        const tsr_parameter *p = tsr_layer_parameter(layer, i);
        const int64_t first = p->shard_dim < 0 ? 0 : p->offset,
                      count = p->shard_dim < 0 ? p->global_shape[0] : p->length;
        const bool norm = strstr(p->name, "norm") && strstr(p->name, ".weight");
        if (p->ndim != 1 || !(norm || strstr(p->name, "scale")))
            continue;
        double *values = doubles(count);
        for (int64_t k = 0; k < count; k++)
            values[k] = 0.5 + (double)((first + k) * 3 % 8) / 8;
        tsr_tensor *varied = tensor_of(p->dtype, 1, &count, values);
        OK(tsr_copy(queue, p->tensor, varied));
        tsr_tensor_destroy(&varied);
        free(values);
    }
}

/* Runs forward passes with and without saving. Then runs two backward passes whose gradients are
 * added, the second one without dx, and one more backward pass after zero_grad. */
static void run_all(run *r, uint64_t sequence)
{
    host_model *h = &r->host;
    const int64_t count = h->batch * h->tokens * h->size;
    vary_norms(r->layer);
    host_model_load(h, r->layer);
    h->x = numbers(sequence, count, r->dtype);
    double *dy = numbers(sequence + 1, count, r->dtype), *y = host_model_forward(h);
    double *dx = host_model_dx(h, dy), *gradients[HOST_MOST_PARAMETERS];
    for (int i = 0; i < h->count; i++)
        gradients[i] = host_model_gradient(h, i, dy);
    tsr_tensor *tx = tensor_of_part(r, h->x), *tdy = tensor_of_part(r, dy), *ty = NULL, *tdx = NULL;
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(r->layer, tx, NULL, &ty));
    check_part(r, "y", ty, y);
    tsr_tensor_destroy(&ty);
    OK(tsr_layer_forward(r->layer, tx, &saved, &ty));
    check_part(r, "y", ty, y);
    OK(tsr_layer_backward(r->layer, saved, tdy, &tdx));
    check_part(r, "dx", tdx, dx);
    check_gradients(r, gradients, 1);
    OK(tsr_layer_backward(r->layer, saved, tdy, NULL));
    check_gradients(r, gradients, 2);
    tsr_layer_zero_grad(r->layer);
    OK(tsr_layer_backward(r->layer, saved, tdy, NULL));
    check_gradients(r, gradients, 1);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor *all[] = {tx, tdy, ty, tdx};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    for (int i = 0; i < h->count; i++)
        free(gradients[i]);
    free(dy);
    free(y);
    free(dx);
    host_model_free(h);
    tsr_layer_destroy(&r->layer);
}

/* Normalisation ------------------------------------------------------------------------------ */

CASE(norm_layers, "norm layers: gradients over divided rows are those over all rows")
{
    for (int i = 0; i < 8; i++) {
        const bool sequence = i % 2, rms = i / 2 % 2, bias = !rms && i / 4;
        const int64_t rows = 6 * (int64_t)ranks, size = 10, mine = sequence ? 6 : rows;
        tsr_layer *norm = NULL;
        OK(tsr_norm_create(tsr_norm_params(.name = "norm", .size = size,
                                           .kind = rms ? TSR_NORM_RMS : TSR_NORM_LAYER,
                                           .bias = bias, .sequence = sequence),
                           &norm));
        CHECK(tsr_layer_parameter_count(norm) == (bias ? 2 : 1), "%d parameters",
              tsr_layer_parameter_count(norm));
        double *x = numbers(5, rows * size, TSR_F32), *dy = numbers(6, rows * size, TSR_F32);
        const int64_t start = sequence ? my_rank * mine * size : 0, shape[] = {mine, size};
        tsr_tensor *tx = tensor_of(TSR_F32, 2, shape, x + start),
                   *tdy = tensor_of(TSR_F32, 2, shape, dy + start), *ty = NULL, *dx = NULL;
        tsr_layer_saved *saved = NULL;
        OK(tsr_layer_forward(norm, tx, &saved, &ty));
        OK(tsr_layer_backward(norm, saved, tdy, &dx));
        OK(tsr_layer_backward(norm, saved, tdy, NULL));
        double *dweight = doubles(size), *dbias = doubles(size), *z = doubles(rows * size);
        for (int64_t r = 0; r < rows; r++) {
            double mean = 0, squares = 0;
            for (int64_t k = 0; k < size; k++)
                mean += rms ? 0 : x[r * size + k] / (double)size;
            for (int64_t k = 0; k < size; k++)
                squares += pow(x[r * size + k] - mean, 2) / (double)size;
            for (int64_t k = 0; k < size; k++) {
                z[r * size + k] = (x[r * size + k] - mean) / sqrt(squares + 1e-5);
                dweight[k] += 2 * dy[r * size + k] * z[r * size + k];
                dbias[k] += 2 * dy[r * size + k];
            }
        }
        check_near("y", ty, z + start, mine * size, 1e-5);
        check_near("dweight", tsr_layer_parameter(norm, 0)->grad, dweight, size, 1e-5);
        if (bias)
            check_near("dbias", tsr_layer_parameter(norm, 1)->grad, dbias, size, 1e-5);
        tsr_layer_saved_destroy(&saved);
        tsr_tensor *all[] = {tx, tdy, ty, dx};
        for (int k = 0; k < 4; k++)
            tsr_tensor_destroy(&all[k]);
        double *values[] = {x, dy, dweight, dbias, z};
        for (int k = 0; k < 5; k++)
            free(values[k]);
        tsr_layer_destroy(&norm);
    }
}

/* Attention ---------------------------------------------------------------------------------- */

static const double rates[] = {3, 1, 2, 0, 1, 1, 1, 1};
static const tsr_rope_params halves = {.struct_size = sizeof halves, .rotary_dim = 4};
static const tsr_rope_params adjacent = {.struct_size = sizeof adjacent,
                                         .rotary_dim = 2,
                                         .pairing = TSR_ROPE_ADJACENT,
                                         .scaling = TSR_ROPE_SCALING_LINEAR,
                                         .factor = 2,
                                         .theta = 100};

static void run_attention(tsr_self_attention_params p, bool no_batch, uint64_t sequence)
{
    tsr_layer *layer = NULL;
    p.name = "attention";
    /* the initial values of sinks are 0, except with TSR_INIT_TORCH */
    p.init = p.sinks ? tsr_init_params(.kind = TSR_INIT_TORCH, .seed = sequence)
                     : tsr_init_params(.seed = sequence);
    OK(tsr_self_attention_create(&p, &layer));
    p.kv_heads = p.kv_heads ? p.kv_heads : p.heads;
    p.head_dim = p.head_dim ? p.head_dim : p.size / p.heads;
    tsr_heads heads = TSR_INIT(tsr_heads);
    OK(tsr_self_attention_get_heads(layer, &heads));
    CHECK(heads.head_dim == p.head_dim &&
              heads.value_dim == (p.value_dim ? p.value_dim : p.head_dim) &&
              heads.first + heads.count <= p.heads && heads.kv_first + heads.kv_count <= p.kv_heads,
          "%lld heads from %lld on", (long long)heads.count, (long long)heads.first);
    run r = {.host = {.attention = &p,
                      .batch = no_batch ? 1 : 2,
                      .tokens = p.sequence && ranks > 2 ? ranks
                                : 2 * ranks > 5         ? 5
                                                        : 6,
                      .size = p.size},
             .layer = layer,
             .dtype = p.dtype ? p.dtype : TSR_F32,
             .sequence = p.sequence,
             .sequence_dim = p.sequence_dim,
             .no_batch = no_batch};
    if (p.sequence && r.host.tokens % ranks != 0)
        r.host.tokens = 2 * (int64_t)ranks;
    run_all(&r, 1000 + 2 * sequence);
}

CASE(attention_plain, "self-attention: output and gradients, heads divided evenly and unevenly")
{
    run_attention(
        (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                    .size = 12,
                                    .heads = 4,
                                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                    .bias = true,
                                    .output_bias = true,
                                    .causal = true},
        false, 1);
    run_attention(
        (tsr_self_attention_params){
            .struct_size = sizeof(tsr_self_attention_params),
            .group = staged,
            .size = 10,
            .heads = 8,
            .head_dim = 3,
            .scale = 0.7F,
            .overlap_parts = 2,
            .partition = tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates),
            .bias = true},
        true, 2);
}

static void run_latent(tsr_latent_attention_params p, bool packed, bool no_batch, uint64_t sequence)
{
    static const int32_t starts[2][5] = {{0, 0, 2, 2, 2}, {0, 1, 1, 1, 4}},
                         positions[2][5] = {{0, 1, 0, 1, 2}, {0, 0, 1, 2, 0}};
    tsr_layer *layer = NULL;
    tsr__documents documents = {0};
    p.name = "attention";
    p.init = tsr_init_params(.seed = sequence);
    OK(tsr_latent_attention_create(&p, &layer));
    tsr_heads heads = TSR_INIT(tsr_heads);
    OK(tsr_self_attention_get_heads(layer, &heads));
    CHECK(heads.head_dim == p.kv_lora_rank + p.rope_dim && heads.value_dim == p.kv_lora_rank &&
              heads.values_in_keys && heads.kv_first == 0 && heads.kv_count == (heads.count > 0) &&
              heads.first + heads.count <= p.heads,
          "%lld heads from %lld on", (long long)heads.count, (long long)heads.first);
    run r = {.host = {.latent = &p, .batch = no_batch ? 1 : 2, .tokens = 5, .size = p.size},
             .layer = layer,
             .dtype = p.dtype != 0 ? p.dtype : TSR_F32,
             .no_batch = no_batch};
    if (packed) {
        r.host.starts = starts[0];
        documents.starts = tensor_new(TSR_I32, 2, (int64_t[]){2, 5});
        documents.positions = tensor_new(TSR_I32, 3, (int64_t[]){2, 1, 5});
        OK(tsr_tensor_upload(queue, documents.starts, starts, sizeof starts));
        OK(tsr_tensor_upload(queue, documents.positions, positions, sizeof positions));
        tsr__layer_set_documents(layer, &documents);
    }
    run_all(&r, 3000 + 2 * sequence);
    tsr_tensor_destroy(&documents.starts);
    tsr_tensor_destroy(&documents.positions);
}

CASE(attention_latent,
     "latent attention: output and gradients, with and without compressed queries, and in bf16")
{
    run_latent(*tsr_latent_attention_params(.size = 9, .heads = 5, .q_lora_rank = 7,
                                            .kv_lora_rank = 6, .nope_dim = 3, .rope_dim = 2,
                                            .value_dim = 4, .rope = &adjacent, .causal = true,
                                            .norm_epsilon = 1e-3F, .reduce_f32 = true,
                                            .partition =
                                                tsr_partition_params(.kind = TSR_PARTITION_UNEVEN)),
               true, false, 1);
    run_latent(*tsr_latent_attention_params(.group = staged, .size = 8, .heads = 4,
                                            .kv_lora_rank = 6, .nope_dim = 4, .rope_dim = 2,
                                            .value_dim = 3, .scale = 0.4F, .overlap_parts = 2,
                                            .partition =
                                                tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED,
                                                                     .rates = rates)),
               false, true, 2);
    run_latent(*tsr_latent_attention_params(.size = 8, .heads = 3, .q_lora_rank = 6,
                                            .kv_lora_rank = 4, .nope_dim = 2, .rope_dim = 4,
                                            .value_dim = 5, .rope = &halves, .causal = true,
                                            .dtype = TSR_BF16, .norm_dtype = TSR_F32,
                                            .reduce_f32 = true,
                                            .partition =
                                                tsr_partition_params(.kind = TSR_PARTITION_UNEVEN)),
               false, false, 3);
}

CASE(attention_grouped, "self-attention with grouped queries, rotary embedding and narrow values")
{
    run_attention(
        (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                    .size = 9,
                                    .heads = 8,
                                    .kv_heads = 4,
                                    .head_dim = 4,
                                    .value_dim = 3,
                                    .rope = &halves,
                                    .window = 3,
                                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                    .causal = true},
        false, 3);
    run_attention(
        (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                    .size = 8,
                                    .heads = 6,
                                    .kv_heads = 3,
                                    .head_dim = 3,
                                    .rope = &adjacent,
                                    .softcap = 1.5F,
                                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                    .bias = true,
                                    .output_bias = true,
                                    .causal = true},
        false, 4);
}

CASE(attention_replicated, "self-attention with fewer kv heads than ranks, and with wide values")
{
    run_attention(
        (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                    .size = 8,
                                    .heads = 8,
                                    .kv_heads = 1,
                                    .head_dim = 4,
                                    .rope = &halves,
                                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                    .bias = true,
                                    .output_bias = true,
                                    .causal = true},
        false, 5);
    run_attention(
        (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                    .size = 8,
                                    .heads = 6,
                                    .kv_heads = 2,
                                    .head_dim = 4,
                                    .value_dim = 6,
                                    .qk_norm = TSR_QK_NORM_HEADS,
                                    .norm_epsilon = 1e-3F,
                                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                    .bias = true,
                                    .output_bias = true,
                                    .causal = true},
        false, 6);
}

CASE(attention_whole_norms, "self-attention with norms over all heads of q and of k")
{
    /* kv heads are divided; kv heads are shared by ranks; some ranks have no heads; a sequence */
    static const struct {
        int64_t heads, kv_heads;
        bool sequence;
    } cases[] = {{8, 4, false}, {6, 2, false}, {8, 1, false}, {2, 2, false}, {8, 2, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_attention(
            (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                        .size = 8,
                                        .heads = cases[i].heads,
                                        .kv_heads = cases[i].kv_heads,
                                        .head_dim = 4,
                                        .qk_norm = TSR_QK_NORM_WHOLE,
                                        .norm_epsilon = 1e-3F,
                                        .rope = &halves,
                                        .sequence = cases[i].sequence,
                                        .sequence_dim = 1,
                                        .partition =
                                            tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                        .bias = true,
                                        .causal = true},
            false, 30 + i);
}

CASE(attention_temperature, "self-attention with a temperature that grows with the position")
{
    run_attention(
        (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                    .size = 8,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .head_dim = 4,
                                    .rope = &halves,
                                    .temperature = 0.7F,
                                    .temperature_length = 2,
                                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                    .causal = true},
        false, 40);
}

CASE(attention_few_heads, "self-attention with fewer heads than ranks: some ranks have none")
{
    run_attention(
        (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                    .size = 8,
                                    .heads = 2,
                                    .qk_norm = TSR_QK_NORM_HEADS,
                                    .rope = &halves,
                                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                    .bias = true,
                                    .output_bias = true,
                                    .causal = true},
        false, 7);
}

CASE(attention_sinks,
     "self-attention with sinks and a gate: a rank has those of its heads, or none")
{
    tsr_self_attention_params p = {
        .struct_size = sizeof p,
        .size = 9,
        .heads = 6,
        .kv_heads = 3,
        .head_dim = 4,
        .sinks = true,
        .output_gate = true,
        .rope = &halves,
        .window = 3,
        .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
        .causal = true,
    };
    run_attention(p, false, 20);
    p.heads = 2; /* with three ranks, one has no head */
    p.kv_heads = 1;
    p.qk_norm = TSR_QK_NORM_HEADS;
    p.value_dim = 5;
    p.dtype = TSR_F16;
    p.reduce_f32 = true;
    run_attention(p, false, 21);
    p.dtype = TSR_F32;
    p.heads = 8;
    p.kv_heads = 4;
    p.bias = true;
    p.partition = tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates);
    p.overlap_parts = 2;
    run_attention(p, false, 22);
}

CASE(attention_sequence, "self-attention with sequence parallelism and per-head norms")
{
    run_attention(
        (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                    .size = 8,
                                    .heads = 8,
                                    .kv_heads = 2,
                                    .head_dim = 4,
                                    .qk_norm = TSR_QK_NORM_HEADS,
                                    .rope = &halves,
                                    .sequence = true,
                                    .sequence_dim = 1,
                                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                    .bias = true,
                                    .output_bias = true,
                                    .causal = true},
        false, 8);
    run_attention(
        (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                    .size = 8,
                                    .heads = 4,
                                    .sequence = true,
                                    .sequence_dim = 0,
                                    .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                    .bias = true,
                                    .output_bias = true,
                                    .causal = true},
        true, 9);
}

CASE(attention_dtypes, "self-attention in f16 and bf16")
{
    static const tsr_dtype dtypes[] = {TSR_F16, TSR_BF16};
    for (int i = 0; i < 2; i++)
        run_attention(
            (tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params),
                                        .size = 8,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .rope = &adjacent,
                                        .qk_norm = i == 1,
                                        .dtype = dtypes[i],
                                        .reduce_f32 = true,
                                        .partition =
                                            tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                        .bias = true,
                                        .output_bias = true,
                                        .causal = true},
            false, 10 + (uint64_t)i);
}

/* Delta nets --------------------------------------------------------------------------------- */

static tsr_delta_net_params small_net(void)
{
    static const tsr_partition_params uneven = {.struct_size = sizeof uneven,
                                                .kind = TSR_PARTITION_UNEVEN};
    return (tsr_delta_net_params){
        .struct_size = sizeof(tsr_delta_net_params),
        .size = 6,
        .key_heads = 3,
        .heads = 6,
        .key_dim = 4,
        .value_dim = 8,
        .taps = 3,
        .norm_epsilon = 1e-3F,
        .partition = &uneven,
    };
}

/* Compares a layer, packed: with rows of several documents. */
static void run_packed(run *r, bool packed, uint64_t sequence)
{
    static const int32_t starts[2][6] = {{0, 0, 2, 2, 4, 4}, {0, 1, 1, 1, 1, 1}};
    tsr__documents documents = {0};
    if (packed) {
        r->host.starts = starts[0];
        documents.starts = tensor_new(TSR_I32, 2, (int64_t[]){2, 6});
        OK(tsr_tensor_upload(queue, documents.starts, starts, sizeof starts));
        documents.positions = documents.starts; /* it has no use for them */
        tsr__layer_set_documents(r->layer, &documents);
    }
    run_all(r, 3000 + 2 * sequence);
    tsr_tensor_destroy(&documents.starts);
}

static void run_delta_net(tsr_delta_net_params p, bool packed, bool no_batch, uint64_t sequence)
{
    tsr_layer *layer = NULL;
    p.name = "delta";
    p.init = tsr_init_params(.kind = TSR_INIT_XAVIER_UNIFORM, .seed = sequence);
    OK(tsr_delta_net_create(&p, &layer));
    CHECK(tsr_layer_parameter_count(layer) == 13, "%d parameters",
          tsr_layer_parameter_count(layer));
    p.taps = p.taps ? p.taps : 4;
    run r = {
        .host = {.delta_net = &p, .batch = no_batch ? 1 : 2, .tokens = 6, .size = p.size},
        .layer = layer,
        .dtype = p.dtype ? p.dtype : TSR_F32,
        .no_batch = no_batch,
    };
    run_packed(&r, packed, sequence);
}

CASE(delta_net, "delta nets: output and gradients, key heads divided evenly and unevenly")
{
    tsr_delta_net_params p = small_net();
    p.tiled_heads = true;
    run_delta_net(p, true, false, 1);
    p.key_heads = 1; /* with several ranks, some have no head */
    p.heads = 2;
    p.taps = 1;
    run_delta_net(p, false, true, 2);
    p = small_net();
    p.taps = 0;
    p.dtype = TSR_BF16;
    p.reduce_f32 = true;
    p.partition = tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates);
    run_delta_net(p, false, false, 3);
}

static void run_short_conv(tsr_short_conv_params p, bool packed, uint64_t sequence)
{
    tsr_layer *layer = NULL;
    p.name = "conv";
    p.init = tsr_init_params(.kind = TSR_INIT_XAVIER_UNIFORM, .seed = sequence);
    OK(tsr_short_conv_create(&p, &layer));
    CHECK(tsr_layer_parameter_count(layer) == 5, "%d parameters", tsr_layer_parameter_count(layer));
    p.taps = p.taps ? p.taps : 3;
    run r = {.host = {.short_conv = &p, .batch = 2, .tokens = 6, .size = p.size},
             .layer = layer,
             .dtype = p.dtype ? p.dtype : TSR_F32};
    run_packed(&r, packed, sequence);
}

CASE(short_conv, "short convolutions: output and gradients, features divided evenly and unevenly")
{
    run_short_conv(
        *tsr_short_conv_params(.size = 6,
                               .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN)),
        true, 4);
    run_short_conv(
        *tsr_short_conv_params(.size = 8, .taps = 2, .dtype = TSR_BF16, .reduce_f32 = true,
                               .partition = tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED,
                                                                 .rates = rates)),
        false, 5);
}

/* Blocks ------------------------------------------------------------------------------------- */

static uint64_t fnv(uint64_t hash, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const uint8_t *)data)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Returns the factors by which dropout multiplies a branch of the complete tensor. */
static double *mask_of(const char *name, const char *branch, float p,
                       const tsr_random_params *random, int64_t count)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(random->subsequence >> (8 * i));
    uint64_t hash = fnv(UINT64_C(0xcbf29ce484222325), name, strlen(name));
    hash = fnv(fnv(hash, branch, strlen(branch)), bytes, 8);
    const tsr_random_params params = {.struct_size = sizeof params,
                                      .seed = random->seed,
                                      .subsequence = hash,
                                      .offset = random->offset};
    tsr_tensor *ones = tensor_new(TSR_F32, 1, &count);
    OK(tsr_fill(queue, ones, 1));
    OK(tsr_dropout(queue, ones, ones, p, &params));
    double *mask = values_of(ones);
    tsr_tensor_destroy(&ones);
    return mask;
}

/* A block, with the params that it points to. It has the delta net if `has_net` is true. */
typedef struct block_case {
    tsr_norm_params norm;
    tsr_delta_net_params net;
    bool has_net;
    tsr_self_attention_params attention;
    tsr_latent_attention_params latent; /* in place of it if its heads are not 0 */
    tsr_mlp_params mlp;
    tsr_moe_params experts; /* beside the MLP if there are any */
    tsr_block_params block;
} block_case;

static void run_block(block_case c, float p, uint64_t sequence)
{
    tsr_layer *layer = NULL;
    tsr_block_params b = c.block;
    b.norm = &c.norm;
    b.attention = c.has_net || c.latent.heads ? NULL : &c.attention;
    b.delta_net = c.has_net ? &c.net : NULL;
    b.latent_attention = c.latent.heads ? &c.latent : NULL;
    b.mlp = &c.mlp;
    b.experts = c.experts.experts > 0 ? &c.experts : NULL;
    const tsr_random_params random = {
        .struct_size = sizeof random, .seed = 5, .subsequence = 77 + sequence, .offset = 3};
    b.name = "h.1";
    c.attention.init = c.net.init = c.latent.init = c.mlp.init = c.experts.init =
        tsr_init_params(.seed = sequence);
    c.attention.partition = c.latent.partition = c.mlp.partition = c.experts.partition =
        tsr_partition_params(.kind = TSR_PARTITION_UNEVEN);
    OK(tsr_block_create(&b, &layer));
    OK(tsr_block_set_dropout(layer, p, p > 0 ? &random : NULL));
    if (!c.attention.kv_heads)
        c.attention.kv_heads = c.attention.heads;
    c.attention.head_dim = b.size / c.attention.heads;
    run r = {.host = {.block = &b, .batch = 2, .tokens = ranks > 2 ? ranks : 4, .size = b.size},
             .layer = layer,
             .dtype = b.dtype ? b.dtype : TSR_F32,
             .sequence = b.sequence,
             .sequence_dim = b.sequence_dim};
    const int64_t count = r.host.batch * r.host.tokens * r.host.size;
    double *masks[2] = {0};
    for (int i = 0; i < 2 && p > 0; i++)
        r.host.mask[i] = masks[i] = mask_of("h.1", i ? "mlp" : "attention", p, &random, count);
    run_all(&r, 2000 + 2 * sequence);
    free(masks[0]);
    free(masks[1]);
}

static const tsr_rope_params pairs = {.struct_size = sizeof pairs, .rotary_dim = 2};

static block_case gpt_block(void)
{
    return (block_case){
        .norm = *tsr_norm_params(.bias = true),
        .attention = *tsr_self_attention_params(.heads = 4, .bias = true, .output_bias = true,
                                                .causal = true),
        .latent = TSR_INIT(tsr_latent_attention_params),
        .mlp = *tsr_mlp_params(.hidden_size = 10, .activation = TSR_ACT_GELU_TANH, .bias = true),
        .block = *tsr_block_params(.size = 8)};
}

static block_case llama_block(void)
{
    return (block_case){
        .norm = *tsr_norm_params(.kind = TSR_NORM_RMS),
        .attention =
            *tsr_self_attention_params(.heads = 4, .kv_heads = 2, .rope = &pairs, .causal = true),
        .mlp = *tsr_mlp_params(.hidden_size = 9, .gated = true, .activation = TSR_ACT_SILU),
        .block = *tsr_block_params(.size = 8)};
}

CASE(block_gpt, "a block with layer norm, biases and GELU")
{
    run_block(gpt_block(), 0, 1);
    block_case b = gpt_block();
    b.block.recompute = true;
    run_block(b, 0.3F, 2);
}

CASE(block_llama, "a block with RMS norm, grouped queries, rotary embedding and a gate")
{
    run_block(llama_block(), 0.2F, 3);
    block_case b = llama_block();
    b.block.recompute = true;
    b.attention.qk_norm = TSR_QK_NORM_HEADS;
    run_block(b, 0, 4);
}

CASE(block_latent, "a block with latent attention, also with recomputation")
{
    block_case b = llama_block();
    b.latent = *tsr_latent_attention_params(.heads = 3, .q_lora_rank = 5, .kv_lora_rank = 4,
                                            .nope_dim = 3, .rope_dim = 2, .value_dim = 4,
                                            .rope = &adjacent, .causal = true);
    b.block.recompute = true;
    run_block(b, 0.2F, 14);
}

CASE(block_norms, "blocks with norms after attention and MLP, and a factor of residual branches")
{
    block_case b = llama_block();
    b.block.norms = TSR_BLOCK_NORMS_AFTER;
    b.attention.qk_norm = TSR_QK_NORM_WHOLE;
    run_block(b, 0, 10);
    b.block.norms = TSR_BLOCK_NORMS_BOTH;
    b.block.residual_scale = 0.375F;
    b.block.recompute = true;
    run_block(b, 0.2F, 11);
    b = gpt_block();
    b.block.norms = TSR_BLOCK_NORMS_BOTH;
    b.block.sequence = true;
    b.block.sequence_dim = 1;
    run_block(b, 0, 12);
    b = llama_block();
    b.block.residual_scale = -2;
    run_block(b, 0, 13);
}

CASE(block_gemma,
     "a block of Gemma 4: norms of values that are keys, experts beside an MLP, a scale")
{
    block_case b = llama_block();
    b.attention.qk_norm = TSR_QK_NORM_HEADS;
    b.attention.value_norm = b.attention.keys_as_values = true;
    b.attention.scale = 1;
    b.mlp.activation = TSR_ACT_GELU_TANH;
    b.experts = *tsr_moe_params(.hidden_size = 5, .experts = 4, .experts_used = 2,
                                .route = tsr_route_params(.normalise = true),
                                .activation = TSR_EXPERT_GEGLU, .input_norm = true,
                                .router_norm = true, .expert_scale = true);
    b.block.norms = TSR_BLOCK_NORMS_BOTH;
    b.block.output_scale = true;
    run_block(b, 0, 15);
    b.attention.keys_as_values = false;
    b.block.recompute = true;
    run_block(b, 0.2F, 16);
}

CASE(block_delta_net, "a block with a delta net and dropout")
{
    block_case b = llama_block();
    b.net = small_net();
    b.has_net = true;
    b.block.recompute = true;
    run_block(b, 0.2F, 14);
}

CASE(block_sequence, "a block with sequence parallelism has the masks of the complete tensor")
{
    block_case b = gpt_block();
    b.block.sequence = true;
    b.block.sequence_dim = 1;
    run_block(b, 0.4F, 5);
    b = llama_block();
    b.block.sequence = true;
    b.block.sequence_dim = 1;
    b.block.recompute = true;
    run_block(b, 0.25F, 6);
}

static void compare_recomputed(block_case c)
{
    uint8_t *bytes[2][2];
    uint64_t size = 0;
    for (int i = 0; i < 2; i++) {
        tsr_block_params b = c.block;
        b.name = "b";
        b.recompute = i;
        b.norm = &c.norm;
        b.attention = c.has_net ? NULL : &c.attention;
        b.delta_net = c.has_net ? &c.net : NULL;
        b.mlp = &c.mlp;
        c.attention.partition = c.mlp.partition =
            tsr_partition_params(.kind = TSR_PARTITION_UNEVEN);
        tsr_layer *layer = NULL;
        tsr_layer_saved *saved = NULL;
        OK(tsr_block_create(&b, &layer));
        OK(tsr_block_set_dropout(layer, 0.5F, tsr_random_params(.seed = 1)));
        double *x = numbers(3, 2 * 4 * 8, TSR_F32);
        tsr_tensor *tx = tensor_of(TSR_F32, 3, (int64_t[]){2, 4, 8}, x), *y = NULL, *dx = NULL;
        OK(tsr_layer_forward(layer, tx, &saved, &y));
        OK(tsr_block_set_dropout(layer, 0.1F, tsr_random_params(.seed = 2)));
        OK(tsr_layer_backward(layer, saved, tx, &dx));
        bytes[i][0] = bytes_of(y, &size);
        bytes[i][1] = bytes_of(dx, &size);
        tsr_layer_saved_destroy(&saved);
        tsr_tensor_destroy(&tx);
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&dx);
        tsr_layer_destroy(&layer);
        free(x);
    }
    for (int k = 0; k < 2; k++) {
        CHECK(memcmp(bytes[0][k], bytes[1][k], size) == 0, "other bits with recomputation");
        free(bytes[0][k]);
        free(bytes[1][k]);
    }
}

CASE(block_recompute, "recomputation gives the same bits and keeps less memory")
{
    block_case c = gpt_block();
    compare_recomputed(c);
    c.net = small_net();
    c.has_net = true;
    compare_recomputed(c);
}
