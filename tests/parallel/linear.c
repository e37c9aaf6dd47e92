/* Column- and row-parallel linear layers: the tests that their specification names, and every
 * combination of their options compared with a reference in double precision. */
#include "parallel/linear_case.h"

/* 1, 2, 3, 4, 6 and 8 ranks divide these sizes evenly. */
#define IN 24
#define OUT 48

static tsr_layer *new_row(const tsr_linear_params *params)
{
    tsr_layer *layer = NULL;
    OK(tsr_row_linear_create(params, &layer));
    return layer;
}

static void run_row(tsr_linear_params params, int lead_ndim, const int64_t *lead, uint64_t sequence)
{
    linear_case c = {.row = true, .params = params, .lead_ndim = lead_ndim, .sequence = sequence};
    for (int d = 0; d < lead_ndim; d++)
        c.lead[d] = lead[d];
    linear_case_run(&c);
}

/* The specification's tests ------------------------------------------------------------------ */

CASE(sharded_input, "forward pass with sharded input returns correct full output")
{
    run_row((tsr_linear_params){.struct_size = sizeof(tsr_linear_params),
                                .input_size = IN,
                                .output_size = OUT,
                                .bias = true},
            1, (int64_t[]){7}, 1);
}

CASE(unsharded_input, "forward pass with unsharded input slices and processes correctly")
{
    run_row((tsr_linear_params){.struct_size = sizeof(tsr_linear_params),
                                .input_size = IN,
                                .output_size = OUT,
                                .input = TSR_LAYOUT_FULL,
                                .bias = true},
            1, (int64_t[]){7}, 2);
}

CASE(output_dimensions, "output dimensions are [batch_size, ..., output_size]")
{
    tsr_linear_params params = {
        .struct_size = sizeof params, .input_size = IN, .output_size = OUT, .bias = true};
    run_row(params, 0, NULL, 3);
    run_row(params, 1, (int64_t[]){5}, 4);
    run_row(params, 2, (int64_t[]){2, 3}, 5);
    run_row(params, 3, (int64_t[]){2, 1, 4}, 6);
    run_row(params, 4, (int64_t[]){2, 2, 1, 3}, 7);
}

CASE(sum_of_locals, "output matches the expected sum of rank-local computations")
{
    /* All weights are 1, and rank r's input is r + 1. */
    tsr_layer *layer =
        new_row(tsr_linear_params(.input_size = 4 * ranks, .output_size = 3, .name = "sum"));
    OK(tsr_fill(queue, shard_of(layer).weight, 1));
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){2, 4}), *y = NULL;
    OK(tsr_fill(queue, x, my_rank + 1));
    OK(tsr_layer_forward(layer, x, NULL, &y));
    double *got = values_of(y);
    for (int i = 0; i < 6; i++)
        CHECK(got[i] == 2.0 * ranks * (ranks + 1), "%g", got[i]);
    free(got);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_layer_destroy(&layer);
}

CASE(weight_shape, "weight shard shape is [output_size, input_size/world_size]")
{
    tsr_layer *layer =
        new_row(tsr_linear_params(.input_size = IN, .output_size = OUT, .bias = true));
    const tsr_layout *weight = tsr_tensor_layout(shard_of(layer).weight);
    const tsr_linear_shard shard = shard_of(layer);
    CHECK(shard.rows == OUT && shard.columns == IN / ranks, "[%lld,%lld]", (long long)shard.rows,
          (long long)shard.columns);
    CHECK(weight->ndim == 2 && weight->shape[0] == OUT && weight->shape[1] == IN / ranks,
          "[%lld,%lld]", (long long)weight->shape[0], (long long)weight->shape[1]);
    CHECK(tsr_tensor_layout(shard_of(layer).bias)->shape[0] == OUT, "a bias that is cut");
    const tsr_parameter *p = tsr_layer_parameter(layer, 0);
    CHECK(p->shard_dim == 1 && p->offset == my_rank * (IN / ranks) && p->length == IN / ranks,
          "elements %lld to %lld of dimension %d", (long long)p->offset,
          (long long)(p->offset + p->length), p->shard_dim);
    CHECK(p->global_shape[0] == OUT && p->global_shape[1] == IN, "another whole");
    CHECK(tsr_layer_parameter(layer, 1)->shard_dim == -1, "a bias that is cut");
    tsr_layer_destroy(&layer);
}

CASE(different_weights, "each rank has different weight values")
{
    tsr_layer *layer =
        new_row(tsr_linear_params(.input_size = IN, .output_size = OUT, .bias = true));
    int64_t shape[] = {ranks, OUT, IN / ranks};
    tsr_tensor *all = tensor_new(TSR_F32, 3, shape), *mine = NULL;
    OK(tsr_tensor_reshape(shard_of(layer).weight, 3, (int64_t[]){1, OUT, IN / ranks}, &mine));
    OK(tsr_group_all_gather(group, all, mine, 0, NULL, NULL));
    double *values = values_of(all);
    const int64_t each = OUT * (IN / ranks);
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < a; b++)
            for (int64_t i = 0; i < each; i++)
                CHECK(values[a * each + i] != values[b * each + i], "ranks %d and %d share %g", a,
                      b, values[a * each + i]);
    free(values);
    tsr_tensor_destroy(&mine);
    tsr_tensor_destroy(&all);
    tsr_layer_destroy(&layer);
}

CASE(concatenated_weights, "concatenated weights across ranks equal the full weight")
{
    /* A group of one process has the full weight as its shard. */
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    tsr_linear_params params = {.struct_size = sizeof params,
                                .input_size = IN,
                                .output_size = OUT,
                                .init = tsr_init_params(.seed = 5),
                                .bias = true};
    tsr_layer *layer = new_row(&params);
    params.group = alone;
    tsr_layer *full = new_row(&params);
    double *got = whole_parameter(layer, 0), *want = values_of(shard_of(full).weight);
    CHECK(memcmp(got, want, IN * OUT * sizeof *got) == 0, "the weights differ");
    free(got);
    free(want);
    tsr_layer_destroy(&full);
    tsr_layer_destroy(&layer);
    tsr_group_destroy(&alone);
}

CASE(bias_once, "bias is added after all-reduce, once and not per rank")
{
    tsr_layer *layer =
        new_row(tsr_linear_params(.input_size = IN, .output_size = OUT,
                                  .init = tsr_init_params(.kind = TSR_INIT_ZEROS), .bias = true));
    OK(tsr_fill(queue, shard_of(layer).bias, 0.75));
    for (int m = 1; m < 2000; m *= 40) {
        tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){m, IN / ranks}), *y = NULL;
        OK(tsr_fill(queue, x, 1));
        OK(tsr_layer_forward(layer, x, NULL, &y));
        double *got = values_of(y);
        for (int64_t i = 0; i < m * OUT; i++)
            CHECK(got[i] == 0.75, "%g", got[i]);
        free(got);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&y);
    }
    tsr_layer_destroy(&layer);
}

CASE(same_bias, "bias values are the same across all ranks")
{
    tsr_layer *layer =
        new_row(tsr_linear_params(.input_size = IN, .output_size = OUT,
                                  .init = tsr_init_params(.kind = TSR_INIT_TORCH, .seed = 3),
                                  .bias = true));
    double *mine = values_of(shard_of(layer).bias);
    tsr_tensor *sum = tensor_of(TSR_F32, 1, (int64_t[]){OUT}, mine);
    OK(tsr_group_all_reduce(group, sum, TSR_OP_MAX, NULL, NULL));
    double *most = values_of(sum);
    OK(tsr_group_all_reduce(group, sum, TSR_OP_MIN, NULL, NULL));
    double *least = values_of(sum);
    for (int i = 0; i < OUT; i++)
        CHECK(mine[i] == most[i] && mine[i] == least[i] && mine[i] != 0, "bias %d is %g here", i,
              mine[i]);
    free(mine);
    free(most);
    free(least);
    tsr_tensor_destroy(&sum);
    tsr_layer_destroy(&layer);
}

CASE(wrong_input, "an error when sharded input has wrong dimensions")
{
    tsr_layer *layer = new_row(tsr_linear_params(.input_size = 6 * ranks, .output_size = 3,
                                                 .name = "mlp.down", .bias = true));
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){5, 7}), *y = NULL;
    FAILS(
        tsr_layer_forward(layer, x, NULL, &y), TSR_ERR_INVALID,
        "row_linear mlp.down: expected sharded input with last dimension 6, but got [5,7]; if the "
        "input is not sharded, set input = TSR_LAYOUT_FULL");
    CHECK(!y, "an output was written");
    tsr_layer_destroy(&layer);
    layer =
        new_row(tsr_linear_params(.input_size = 12, .output_size = 3, .input = TSR_LAYOUT_FULL,
                                  .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                  .bias = true));
    FAILS(tsr_layer_forward(layer, x, NULL, &y), TSR_ERR_INVALID,
          "row_linear: x is [5,7]; a full input has 12 as its last dimension");
    tsr_layer_destroy(&layer);
    tsr_tensor_destroy(&x);
}

CASE(not_divisible, "an error when input_size is not divisible by world_size")
{
    tsr_layer *layer = NULL;
    char text[200];
    if (ranks == 1)
        return;
    snprintf(text, sizeof text,
             "row_linear: input_size %d is not divisible by %d ranks; partition UNEVEN or WEIGHTED "
             "allows it",
             5 * ranks + 1, ranks);
    FAILS(
        tsr_row_linear_create(
            tsr_linear_params(.input_size = 5 * ranks + 1, .output_size = 3, .bias = true), &layer),
        TSR_ERR_INVALID, text);
    FAILS(tsr_row_linear_create(
              tsr_linear_params(.input_size = 5 * ranks + 1, .output_size = 3,
                                .partition = tsr_partition_params(.kind = TSR_PARTITION_STRICT),
                                .bias = true),
              &layer),
          TSR_ERR_INVALID, text);
    snprintf(text, sizeof text,
             "column_linear up: output_size %d is not divisible by %d ranks; partition UNEVEN or "
             "WEIGHTED allows it",
             5 * ranks + 1, ranks);
    FAILS(tsr_column_linear_create(tsr_linear_params(.input_size = 3, .output_size = 5 * ranks + 1,
                                                     .name = "up", .bias = true),
                                   &layer),
          TSR_ERR_INVALID, text);
    CHECK(!layer, "a layer was made");
}

CASE(zero_bias, "with zero bias")
{
    tsr_linear_params params = {.struct_size = sizeof params, .input_size = IN, .output_size = OUT};
    tsr_layer *layer = new_row(&params);
    CHECK(!shard_of(layer).bias && tsr_layer_parameter_count(layer) == 1, "a bias");
    tsr_layer_destroy(&layer);
    run_row(params, 1, (int64_t[]){4}, 20);
    params.bias = true;
    layer = new_row(&params);
    double *bias = values_of(shard_of(layer).bias);
    for (int i = 0; i < OUT; i++)
        CHECK(bias[i] == 0, "a bias starts with %g", bias[i]);
    free(bias);
    tsr_layer_destroy(&layer);
}

CASE(batch_sizes, "with different batch sizes")
{
    tsr_linear_params params = {
        .struct_size = sizeof params, .input_size = IN, .output_size = OUT, .bias = true};
    for (int64_t m = 0; m < 300; m = 3 * m + 1)
        run_row(params, 1, &m, 30 + (uint64_t)m);
}

CASE(contexts, "the default group and custom groups work")
{
    tsr_layer *layer =
        new_row(tsr_linear_params(.input_size = IN, .output_size = OUT, .bias = true));
    CHECK(tsr_layer_group(layer) == group, "not the default group");
    tsr_layer_destroy(&layer);
    tsr_group_set_default(NULL);
    FAILS(tsr_row_linear_create(
              tsr_linear_params(.input_size = IN, .output_size = OUT, .bias = true), &layer),
          TSR_ERR_INVALID, "row_linear: no group is given, and there is no default one");
    run_row((tsr_linear_params){.struct_size = sizeof(tsr_linear_params),
                                .group = staged,
                                .input_size = IN,
                                .output_size = OUT,
                                .bias = true},
            1, (int64_t[]){9}, 40);
    tsr_group_set_default(group);

    /* A group of this rank alone has the full layer, for any number of ranks in the job. */
    tsr_comm *own = NULL;
    tsr_group *alone = NULL;
    if (world)
        OK(tsr_comm_split(world, my_rank, 0, &own));
    OK(tsr_group_create(own, queue, NULL, &alone));
    tsr_comm_destroy(&own);
    layer = new_row(
        tsr_linear_params(.group = alone, .input_size = 23, .output_size = OUT, .bias = true));
    CHECK(shard_of(layer).columns == 23, "%lld columns", (long long)shard_of(layer).columns);
    tsr_layer_destroy(&layer);
    tsr_group_destroy(&alone);
}

/* Returns this rank's features of x [2,IN], as `partition` divides them; NULL: all features. */
static tsr_tensor *features(const double *x, const tsr_partition_params *partition)
{
    tsr_shard_range ranges[64] = {[0].count = IN};
    if (partition)
        OK(tsr_partition(IN, ranks, partition, ranges));
    const tsr_shard_range *mine = &ranges[partition ? my_rank : 0];
    int64_t count = (int64_t)mine->count;
    double *part = doubles(2 * count);
    for (int64_t i = 0; i < 2 * count; i++)
        part[i] = x[i / count * IN + (int64_t)mine->start + i % count];
    tsr_tensor *tensor = tensor_of(TSR_F32, 2, (int64_t[]){2, count}, part);
    free(part);
    return tensor;
}

static void check_product(const tsr_tensor *y, const double *x, const double *weight)
{
    CHECK(tsr_tensor_layout(y)->shape[1] == OUT, "another size of y");
    double *got = values_of(y);
    for (int64_t e = 0; e < 2 * OUT; e++) {
        double want = 0;
        for (int64_t i = 0; i < IN; i++)
            want += x[e / OUT * IN + i] * weight[e % OUT * IN + i];
        CHECK(fabs(got[e] - want) < 1e-5, "element %lld is %g, not %g", (long long)e, got[e], want);
    }
    free(got);
}

/* Checks a layer with these parameters on x [2,IN]. This rank has the features that `partition`
 * gives it. */
static void check_factory(const tsr_linear_params *params, const tsr_partition_params *partition)
{
    tsr_layer *layer = NULL;
    double *x = numbers(80, 2 * IN, TSR_F32);
    OK(tsr_row_linear_create(params, &layer));
    const tsr_linear_shard shard = shard_of(layer);
    CHECK(shard.rows == OUT && shard.columns == IN / ranks, "[%lld,%lld]", (long long)shard.rows,
          (long long)shard.columns);
    CHECK((shard.bias != NULL) == params->bias, "the bias");
    double *weight = whole_parameter(layer, 0);
    tsr_tensor *part = features(x, partition), *y = NULL;
    OK(tsr_layer_forward(layer, part, NULL, &y));
    check_product(y, x, weight);
    tsr_tensor_destroy(&part);
    tsr_tensor_destroy(&y);
    free(weight);
    free(x);
    tsr_layer_destroy(&layer);
}

static const tsr_partition_params evenly = {.struct_size = sizeof evenly};

CASE(factory_create, "factory Create: the default params, and an input that is full")
{
    check_factory(tsr_linear_params(.input_size = IN, .output_size = OUT, .bias = true), &evenly);
    check_factory(tsr_linear_params(.input_size = IN, .output_size = OUT), &evenly);
    check_factory(tsr_linear_params(.input_size = IN, .output_size = OUT, .input = TSR_LAYOUT_FULL,
                                    .bias = true),
                  NULL);
}

CASE(factory_mlp_output, "factory CreateForMLPOutput: the default params")
{
    check_factory(
        tsr_linear_params(.name = "mlp.down", .input_size = IN, .output_size = OUT, .bias = true),
        &evenly);
}

CASE(factory_with_gather, "factory CreateWithGather: a GATHER input, divided in any way")
{
    static const double rates[64] = {3, 1, 2, 1, 1, 5, 1, 1};
    const tsr_partition_params unequal = {
        .struct_size = sizeof unequal, .kind = TSR_PARTITION_WEIGHTED, .rates = rates};
    tsr_linear_params params = {.struct_size = sizeof params,
                                .input_size = IN,
                                .output_size = OUT,
                                .input = TSR_LAYOUT_GATHER,
                                .bias = true};
    check_factory(&params, &evenly);
    params.other_partition = &unequal;
    check_factory(&params, &unequal);
}

CASE(names_of_layers, "layers with different names have different weights and parameter names")
{
    static const char *const names[3] = {NULL, "plain", "mlp.down"};
    static const char *const parameters[3] = {"weight", "plain.weight", "mlp.down.weight"};
    double *weights[3];
    for (int i = 0; i < 3; i++) {
        tsr_layer *layer = NULL;
        OK(tsr_row_linear_create(
            tsr_linear_params(.name = names[i], .input_size = IN, .output_size = OUT, .bias = true),
            &layer));
        CHECK(strcmp(tsr_layer_parameter(layer, 0)->name, parameters[i]) == 0, "layer %d: %s", i,
              tsr_layer_parameter(layer, 0)->name);
        weights[i] = whole_parameter(layer, 0);
        tsr_layer_destroy(&layer);
    }
    for (int i = 1; i < 3; i++)
        for (int64_t e = 0; e < OUT * IN; e++)
            CHECK(weights[i][e] != weights[0][e], "layers %d and 0 both begin with %g", i,
                  weights[0][e]);
    for (int i = 0; i < 3; i++)
        free(weights[i]);
}

/* All combinations of options ---------------------------------------------------------------- */

static const tsr_layer_layout inputs[2][3] = {
    {TSR_LAYOUT_FULL, TSR_LAYOUT_GATHER, TSR_LAYOUT_SEQUENCE},
    {TSR_LAYOUT_SHARDED, TSR_LAYOUT_FULL, TSR_LAYOUT_GATHER}};
static const tsr_layer_layout outputs[2][3] = {
    {TSR_LAYOUT_SHARDED, TSR_LAYOUT_FULL, TSR_LAYOUT_DEFAULT},
    {TSR_LAYOUT_FULL, TSR_LAYOUT_SHARDED, TSR_LAYOUT_SEQUENCE}};

/* Runs all layouts of one kind of layer, with changing shapes, dtypes and partitions. */
static void all_layouts(bool row, tsr_group *through)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const double rates[64] = {3, 1, 2, 1, 1, 5, 1, 1};
    uint64_t turn = row ? 1000 : 2000;
    for (int i = 0; i < 3; i++)
        for (int o = 0; o < 3; o++)
            for (int kind = 0; kind < 3; kind++) {
                linear_case c = {.row = row, .lead_ndim = 2, .sequence = ++turn * 10};
                tsr_linear_params *p = &c.params;
                p->group = through;
                p->input = inputs[row][i];
                p->output = outputs[row][o];
                if (row && p->input == TSR_LAYOUT_GATHER && p->output == TSR_LAYOUT_SHARDED)
                    continue;
                tsr_partition_params partition = TSR_INIT(tsr_partition_params);
                partition.kind = kind == 0   ? TSR_PARTITION_EVEN
                                 : kind == 1 ? TSR_PARTITION_UNEVEN
                                             : TSR_PARTITION_WEIGHTED;
                tsr_partition_params other = partition;
                other.kind = kind == 2 ? TSR_PARTITION_UNEVEN : partition.kind;
                partition.rates = kind == 2 ? rates : NULL;
                partition.align = kind > 0 && turn % 2 == 0 ? 4 : 0;
                p->struct_size = sizeof *p;
                p->partition = &partition;
                p->other_partition = &other;
                p->input_size = kind == 0 ? IN : 25;
                p->output_size = kind == 0 ? OUT : 19;
                p->sequence_dim = (int)(turn % 2);
                c.lead[0] = p->sequence_dim == 0 ? 2 * ranks : 3;
                c.lead[1] = p->sequence_dim == 1 ? 3 * ranks : 2;
                p->bias = turn % 5 != 0;
                p->dtype = dtypes[turn % 3];
                c.x_dtype = turn % 4 == 0 ? TSR_F32 : p->dtype;
                p->reduce_f32 = turn % 4 == 1;
                p->overlap_parts = (int)(turn % 7);
                p->grad_dtype = turn % 11 == 0 ? p->dtype : (tsr_dtype)0;
                c.gaps = turn % 3 == 0;
                linear_case_run(&c);
            }
}

CASE(columns_direct, "column-parallel: every input, output and partition, forward and backward")
{
    all_layouts(false, group);
}

CASE(rows_direct, "row-parallel: every input, output and partition, forward and backward")
{
    all_layouts(true, group);
}

CASE(columns_staged, "column-parallel through host memory")
{
    all_layouts(false, staged);
}

CASE(rows_staged, "row-parallel through host memory")
{
    all_layouts(true, staged);
}

CASE(more_ranks, "fewer features than ranks leave some ranks without any")
{
    tsr_linear_params params = {.struct_size = sizeof params,
                                .input_size = 1,
                                .output_size = 2,
                                .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                .other_partition =
                                    tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                .bias = true};
    for (int row = 0; row < 2; row++) {
        linear_case c = {.row = row, .params = params, .lead_ndim = 1, .lead = {3}, .sequence = 50};
        linear_case_run(&c);
    }
}

CASE(overlap, "a product in parts has the result of a product in one piece")
{
    uint64_t sequence = 60;
    for (int parts = 1; parts <= 16; parts += 5)
        for (int64_t m = 3; m < 200; m += 190) {
            tsr_linear_params params = {.struct_size = sizeof params,
                                        .input_size = IN,
                                        .output_size = OUT,
                                        .overlap_parts = parts,
                                        .bias = true};
            run_row(params, 1, &m, ++sequence);
            params.group = staged;
            params.dtype = TSR_F16;
            params.reduce_f32 = parts > 6;
            run_row(params, 1, &m, ++sequence);
        }
}

CASE(linear_mistakes, "mistakes in a linear layer's params are named")
{
    tsr_layer *layer = NULL;
    FAILS(tsr_row_linear_create(NULL, &layer), TSR_ERR_INVALID, "row_linear: params is NULL");
    FAILS(tsr_column_linear_create(tsr_linear_params(.input_size = 1, .bias = true), NULL),
          TSR_ERR_INVALID, "column_linear: out is NULL");
    FAILS(tsr_column_linear_create(tsr_linear_params(.input_size = 4, .bias = true), &layer),
          TSR_ERR_INVALID,
          "column_linear: input_size is 4, output_size 0; both must be 1 to 2^31 - 1");
    FAILS(tsr_mlp_create(tsr_mlp_params(.input_size = 4, .hidden_size = INT64_MAX / 840 * 840,
                                        .output_size = 4, .gated = true, .deferred = true,
                                        .bias = true),
                         &layer),
          TSR_ERR_INVALID,
          "column_linear: input_size is 4, output_size 9223372036854775800; both must be 1 to "
          "2^31 - 1");
#define WITH(...) tsr_linear_params(.input_size = IN, .output_size = OUT, __VA_ARGS__)
    FAILS(tsr_column_linear_create(WITH(.input = TSR_LAYOUT_SHARDED), &layer), TSR_ERR_INVALID,
          "column_linear: unsupported input layout SHARDED (2)");
    FAILS(tsr_column_linear_create(WITH(.output = TSR_LAYOUT_SEQUENCE), &layer), TSR_ERR_INVALID,
          "column_linear: unsupported output layout SEQUENCE (4)");
    FAILS(tsr_row_linear_create(WITH(.input = (tsr_layer_layout)17), &layer), TSR_ERR_INVALID,
          "row_linear: unsupported input layout ? (17)");
    FAILS(tsr_row_linear_create(WITH(.input = TSR_LAYOUT_GATHER, .output = TSR_LAYOUT_SHARDED),
                                &layer),
          TSR_ERR_INVALID, "row_linear: a GATHER input and a SHARDED output cannot be combined");
    FAILS(tsr_row_linear_create(WITH(.dtype = TSR_I32), &layer), TSR_ERR_INVALID,
          "row_linear: dtype is i32; f32, f16 or bf16 is needed");
    FAILS(tsr_row_linear_create(WITH(.grad_dtype = TSR_U8), &layer), TSR_ERR_INVALID,
          "row_linear: grad_dtype is u8; f32, f16 or bf16 is needed");
    FAILS(tsr_row_linear_create(WITH(.overlap_parts = 17), &layer), TSR_ERR_INVALID,
          "row_linear: overlap_parts is 17; 0 to 16 are possible");
    FAILS(tsr_row_linear_create(WITH(.init = tsr_init_params(.kind = (tsr_init)8)), &layer),
          TSR_ERR_INVALID, "row_linear: init 8 is not a tsr_init");
    FAILS(tsr_row_linear_create(WITH(.output = TSR_LAYOUT_SEQUENCE, .sequence_dim = -1), &layer),
          TSR_ERR_INVALID, "row_linear: sequence_dim is -1; dimensions count from 0");
    FAILS(tsr_column_linear_create(WITH(.input = TSR_LAYOUT_SEQUENCE, .sequence_dim = -2), &layer),
          TSR_ERR_INVALID, "column_linear: sequence_dim is -2; dimensions count from 0");
#undef WITH
    tsr_linear_shard shard = {0};
    FAILS(tsr_linear_get_shard(NULL, &shard), TSR_ERR_INVALID, "linear_get_shard: layer is NULL");

    OK(tsr_column_linear_create(
        tsr_linear_params(.group = group, .name = "sized", .input_size = 3, .output_size = ranks),
        &layer));
    FAILS(tsr_linear_get_shard(layer, NULL), TSR_ERR_INVALID, "linear_get_shard: out is NULL");
    FAILS(tsr_linear_get_shard(layer, &shard), TSR_ERR_INVALID,
          "tsr_linear_shard: struct_size is 0; use TSR_INIT(tsr_linear_shard)");
    tsr_layer_destroy(&layer);
}

/* One rank must get the same errors as several. Dimension 2 of x is the last one, the features. */
CASE(sequence_mistakes, "a sequence_dim that x does not have is an error")
{
    static const int wrong[] = {2, 3, 7};
    for (int i = 0; i < 6; i++) {
        const bool row = i >= 3;
        tsr_linear_params params = {.struct_size = sizeof params,
                                    .input_size = 2 * ranks,
                                    .output_size = 2 * ranks,
                                    .sequence_dim = wrong[i % 3],
                                    .input = row ? TSR_LAYOUT_DEFAULT : TSR_LAYOUT_SEQUENCE,
                                    .output = row ? TSR_LAYOUT_SEQUENCE : TSR_LAYOUT_DEFAULT,
                                    .bias = true};
        const int64_t last = row ? 2 : 2 * ranks;
        char text[200];
        snprintf(text, sizeof text,
                 "%s: sequence_dim %d of [%d,3,%lld] is not before its last dimension",
                 row ? "row_linear" : "column_linear", wrong[i % 3], ranks, (long long)last);
        tsr_layer *layer = NULL;
        tsr_layer_saved *saved = NULL;
        tsr_tensor *x = tensor_new(TSR_F32, 3, (int64_t[]){ranks, 3, last}), *y = NULL;
        OK(row ? tsr_row_linear_create(&params, &layer)
               : tsr_column_linear_create(&params, &layer));
        FAILS(tsr_layer_forward(layer, x, &saved, &y), TSR_ERR_INVALID, text);
        CHECK(!saved && !y, "something was written");
        tsr_tensor_destroy(&x);
        tsr_layer_destroy(&layer);
    }
}

CASE(pass_mistakes, "mistakes in the arguments of passes are named")
{
    tsr_layer *layer =
        new_row(tsr_linear_params(.input_size = 6 * ranks, .output_size = 3, .bias = true));
    tsr_layer *other =
        new_row(tsr_linear_params(.input_size = 6 * ranks, .output_size = 3, .bias = true));
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){5, 6}), *y = NULL, *dx = NULL;
    tsr_tensor *ids = tensor_new(TSR_I32, 2, (int64_t[]){5, 6});
    tsr_tensor *scalar = tensor_new(TSR_F32, 0, NULL);
    tsr_layer_saved *saved = NULL;
    OK(tsr_fill(queue, x, 1));
    FAILS(tsr_layer_forward(NULL, x, NULL, &y), TSR_ERR_INVALID, "layer_forward: layer is NULL");
    FAILS(tsr_layer_forward(layer, NULL, NULL, &y), TSR_ERR_INVALID, "layer_forward: x is NULL");
    FAILS(tsr_layer_forward(layer, x, NULL, NULL), TSR_ERR_INVALID, "layer_forward: y is NULL");
    FAILS(tsr_layer_forward(layer, ids, NULL, &y), TSR_ERR_INVALID,
          "row_linear: x is i32; f32, f16 or bf16 is needed");
    FAILS(tsr_layer_forward(layer, scalar, &saved, &y), TSR_ERR_INVALID,
          "row_linear: x is a scalar; at least one dimension is needed");
    CHECK(!saved && !y, "something was written");
    OK(tsr_layer_forward(layer, x, &saved, &y));
    FAILS(tsr_layer_backward(layer, NULL, y, &dx), TSR_ERR_INVALID,
          "layer_backward: saved is NULL");
    FAILS(tsr_layer_backward(layer, saved, x, &dx), TSR_ERR_INVALID,
          "row_linear: dy is [5,6]; y was [5,3]");
    FAILS(tsr_layer_backward(other, saved, y, &dx), TSR_ERR_INVALID,
          "row_linear: `saved` is from row_linear");
    FAILS(tsr_layer_backward(layer, saved, ids, &dx), TSR_ERR_INVALID,
          "row_linear: dy is i32; f32, f16 or bf16 is needed");
    CHECK(!dx, "something was written");
    tsr_layer_saved_destroy(&saved);
    tsr_layer_saved_destroy(&saved);
    tsr_layer_saved_destroy(NULL);
    tsr_layer_destroy(NULL);
    tsr_tensor *all[] = {x, y, ids, scalar};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    tsr_layer_destroy(&layer);
    tsr_layer_destroy(&other);
}
