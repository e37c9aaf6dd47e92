/* The norm of all gradients, and clipping by it: comparison with PyTorch, every way to divide
 * parameters, loss scaling and accumulation, weight decay of matrices only. */
#include "parallel/fsdp_case.h"

#include <jansson.h>

#include "base/fault.h"
#include "parallel/optimizer/optimizer.h"

/* PyTorch's results -------------------------------------------------------------------------- */

#define TENSORS 20

typedef struct golden {
    const char *name;
    int count;
    int ndim[TENSORS];
    int64_t shape[TENSORS][TSR_MAX_DIMS];
    double *grad[TENSORS], *want[TENSORS];
    double max_norm, norm;
} golden;

static int sextet(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = strchr(digits, c);
    return at && c ? (int)(at - digits) : -1;
}

/* Decodes the elements of a tensor in the file: {dtype, shape, b64}. */
static double *decode(const json_t *tensor, int *ndim, int64_t *shape)
{
    const bool is_f64 = strcmp(json_string_value(json_object_get(tensor, "dtype")), "f64") == 0;
    const char *text = json_string_value(json_object_get(tensor, "b64"));
    const json_t *sizes = json_object_get(tensor, "shape");
    *ndim = (int)json_array_size(sizes);
    for (int d = 0; d < *ndim; d++)
        shape[d] = json_integer_value(json_array_get(sizes, (size_t)d));
    const int64_t count = count_of(*ndim, shape);
    const size_t size = is_f64 ? 8 : 4, length = strlen(text);
    uint8_t *bytes = malloc(length + 8);
    CHECK(bytes, "no memory");
    size_t at = 0;
    uint32_t bits = 0;
    for (size_t i = 0; i < length && sextet(text[i]) >= 0; i++) {
        bits = bits << 6 | (uint32_t)sextet(text[i]);
        if (i % 4 > 0)
            bytes[at++] = (uint8_t)(bits >> (6 - 2 * (i % 4)));
    }
    CHECK(at == (size_t)count * size, "%zu bytes for %lld numbers", at, (long long)count);
    double *values = doubles(count);
    for (int64_t i = 0; i < count; i++) {
        float f32;
        memcpy(is_f64 ? (void *)&values[i] : (void *)&f32, bytes + (size_t)i * size, size);
        if (!is_f64)
            values[i] = (double)f32;
    }
    free(bytes);
    return values;
}

static double decimal(const json_t *object, const char *name)
{
    return strtod(json_string_value(json_object_get(object, name)), NULL);
}

static golden golden_of(const json_t *c)
{
    golden g = {.name = json_string_value(json_object_get(c, "name")),
                .max_norm = decimal(c, "max_norm"),
                .norm = decimal(c, "total_norm_f64")};
    const json_t *grads = json_object_get(c, "grads"), *want = json_object_get(c, "clipped_f64");
    g.count = (int)json_array_size(grads);
    CHECK(g.count > 0 && g.count <= TENSORS && json_array_size(want) == (size_t)g.count,
          "%s: %d tensors", g.name, g.count);
    for (int i = 0; i < g.count; i++) {
        g.grad[i] = decode(json_array_get(grads, (size_t)i), &g.ndim[i], g.shape[i]);
        g.want[i] = decode(json_array_get(want, (size_t)i), &g.ndim[i], g.shape[i]);
    }
    return g;
}

static void golden_finish(golden *g)
{
    for (int i = 0; i < g->count; i++) {
        free(g->grad[i]);
        free(g->want[i]);
    }
}

/* Checks a parameter that was 0 before a step of SGD with a rate of 1: it must be the negative
 * gradient. */
static void check_parameter(const golden *g, int i, const tsr_tensor *tensor, int64_t first,
                            const char *way)
{
    double *got = values_of(tensor);
    const int64_t count = tsr_layout_count(tsr_tensor_layout(tensor));
    for (int64_t n = 0; n < count; n++) {
        const double want = g->want[i][first + n];
        CHECK(isnan(want) ? isnan(got[n]) : fabs(-got[n] - want) <= 2e-6 * fabs(want) + 1e-37,
              "%s, %s: tensor %d, element %lld: %.9g instead of %.9g", g->name, way, i,
              (long long)(first + n), -got[n], want);
    }
    free(got);
}

static void check_norm(const char *what, double got, double want)
{
    CHECK(isnan(want)   ? isnan(got)
          : isinf(want) ? got == want
                        : fabs(got - want) <= 2e-6 * want,
          "%s: the norm is %.9g instead of %.9g", what, got, want);
}

static tsr_optimizer *sgd_optimizer(void)
{
    tsr_optimizer *optimizer = NULL;
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue, .kind = TSR_OPTIMIZER_SGD),
                            &optimizer));
    return optimizer;
}

static void clip_and_step(tsr_optimizer *optimizer, const golden *g)
{
    double norm;
    OK(tsr_optimizer_clip(optimizer, (float)g->max_norm, NULL, &norm));
    check_norm(g->name, norm, g->norm);
    OK(tsr_optimizer_step(optimizer, 1));
}

/* Checks tensors of PyTorch's results. All ranks have them in full or, if `divided`, each rank has
 * a range of their dim 0 (tensors of one element are not divided). */
static void check_tensors(const golden *g, bool divided)
{
    tsr_optimizer *optimizer = sgd_optimizer();
    tsr_tensor *tensor[TENSORS], *grad[TENSORS];
    int64_t first[TENSORS] = {0};
    for (int i = 0; i < g->count; i++) {
        tsr_parameter p = {.struct_size = sizeof p,
                           .name = "p",
                           .dtype = TSR_F32,
                           .ndim = g->ndim[i],
                           .shard_dim = -1};
        int64_t shape[TSR_MAX_DIMS], inner = 1;
        memcpy(shape, g->shape[i], sizeof shape);
        memcpy(p.global_shape, shape, sizeof shape);
        for (int d = 1; d < p.ndim; d++)
            inner *= shape[d];
        if (divided && shape[0] > 1) {
            p.shard_dim = 0;
            p.offset = shape[0] * my_rank / ranks;
            p.length = shape[0] = shape[0] * (my_rank + 1) / ranks - p.offset;
            first[i] = p.offset * inner;
        }
        tensor[i] = tensor_new(TSR_F32, p.ndim, shape);
        OK(tsr_fill(queue, tensor[i], 0));
        grad[i] = tensor_of(TSR_F32, p.ndim, shape, g->grad[i] + first[i]);
        p.tensor = tensor[i];
        p.grad = grad[i];
        OK(tsr_optimizer_add_parameter(optimizer, &p));
    }
    double norm;
    OK(tsr_optimizer_clip(optimizer, (float)g->max_norm, tsr_optimizer_clip_params(.group = group),
                          &norm));
    check_norm(g->name, norm, g->norm);
    OK(tsr_optimizer_step(optimizer, 1));
    for (int i = 0; i < g->count; i++)
        check_parameter(g, i, tensor[i], first[i], divided ? "divided" : "whole");
    tsr_optimizer_destroy(&optimizer);
    for (int i = 0; i < g->count; i++) {
        tsr_tensor_destroy(&tensor[i]);
        tsr_tensor_destroy(&grad[i]);
    }
}

/* Checks the same tensors as parameters of an FSDP model. Only rank 0 contributes gradients. Some
 * of the tensors are always gathered. */
static void check_shards(const golden *g)
{
    static const char *const gather[] = {"1", "3", "5", "7", NULL};
    static const char *const names[] = {"0",  "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",
                                        "10", "11", "12", "13", "14", "15", "16", "17", "18", "19"};
    tsr_parameter p[TENSORS] = {{0}};
    for (int i = 0; i < g->count; i++) {
        p[i] = (tsr_parameter){.struct_size = sizeof(tsr_parameter),
                               .name = names[i],
                               .dtype = TSR_F32,
                               .ndim = g->ndim[i],
                               .shard_dim = -1};
        memcpy(p[i].global_shape, g->shape[i], sizeof p[i].global_shape);
        p[i].length = g->shape[i][0];
    }
    tsr_fsdp_unit unit = {.struct_size = sizeof unit, .parameter_count = g->count, .parameters = p};
    tsr_fsdp *fsdp = NULL;
    OK(tsr_fsdp_create(tsr_fsdp_params(.group = group, .unit_count = 1, .units = &unit,
                                       .gather = gather, .optimizer = TSR_OPTIMIZER_SGD,
                                       .plain_sgd = true, .reduction = TSR_OP_SUM),
                       &fsdp));
    tsr_optimizer *optimizer = sgd_optimizer();
    OK(tsr_optimizer_add_fsdp(optimizer, fsdp));
    OK(tsr_fsdp_begin(fsdp, 0, TSR_PASS_BACKWARD));
    for (int i = 0; i < g->count; i++) {
        tsr_tensor *grad = tsr_fsdp_parameter(fsdp, 0, i)->grad;
        if (my_rank == 0)
            tensor_put(grad, g->grad[i]);
        else
            OK(tsr_fill(queue, grad, 0));
    }
    OK(tsr_fsdp_end(fsdp, 0));
    clip_and_step(optimizer, g);
    for (int i = 0; i < g->count; i++) {
        tsr_fsdp_shard shard = TSR_INIT(tsr_fsdp_shard);
        OK(tsr_fsdp_get_shard(fsdp, (uint64_t)i, &shard));
        if (shard.value)
            check_parameter(g, i, shard.value, (int64_t)shard.range.start, "sharded");
    }
    tsr_optimizer_destroy(&optimizer);
    tsr_fsdp_destroy(&fsdp);
}

CASE(clip_golden, "clipping: PyTorch's numbers, whole, divided and sharded")
{
    json_error_t error;
    json_t *document = json_load_file(TEST_DATA "/clip_grad_norm.json", 0, &error), *c;
    CHECK(document, "clip_grad_norm.json: %s", error.text);
    size_t i;
    int compared = 0;
    json_array_foreach(json_object_get(document, "cases"), i, c)
    {
        if (decimal(c, "norm_type") != 2) /* tsr_optimizer_clip supports only this norm */
            continue;
        golden g = golden_of(c);
        check_tensors(&g, false);
        check_tensors(&g, true);
        check_shards(&g);
        golden_finish(&g);
        compared++;
    }
    CHECK(compared == 12, "%d cases", compared);
    json_decref(document);
}

/* Gradients of layers ------------------------------------------------------------------------ */

enum {
    IN = 6,
    HIDDEN = 11,
    OUT = 5,
    ROWS = 4,
};

static tsr_layer *mlp_in(tsr_group *in, tsr_dtype dtype)
{
    tsr_layer *mlp = NULL;
    OK(tsr_mlp_create(
        tsr_mlp_params(.group = in, .name = "mlp", .input_size = IN, .hidden_size = HIDDEN,
                       .output_size = OUT, .dtype = dtype, .activation = TSR_ACT_GELU_TANH,
                       .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                       .bias = true),
        &mlp));
    return mlp;
}

/* Runs a pass that adds `scale` times the gradients of rows first … first + rows − 1, which are the
 * same on all ranks. */
static void mlp_pass(tsr_layer *mlp, int64_t first, int64_t rows, float scale)
{
    double *x_values = doubles(rows * IN), *dy_values = doubles(rows * OUT);
    for (int64_t i = 0; i < rows * IN; i++)
        x_values[i] = number(71, first * IN + i);
    for (int64_t i = 0; i < rows * OUT; i++)
        dy_values[i] = number(72, first * OUT + i);
    tsr_tensor *x = tensor_of(TSR_F32, 2, (int64_t[]){rows, IN}, x_values), *y = NULL;
    tsr_tensor *dy = tensor_of(TSR_F32, 2, (int64_t[]){rows, OUT}, dy_values);
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(mlp, x, &saved, &y));
    OK(tsr_axpy(queue, dy, 0.5f, y));
    OK(tsr_scale(queue, dy, dy, scale, 0));
    OK(tsr_layer_backward(mlp, saved, dy, NULL));
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&dy);
    free(x_values);
    free(dy_values);
}

/* Checks that the norm has the same bits on all ranks. */
static void check_same_everywhere(double norm)
{
    int64_t bits, most, least;
    memcpy(&bits, &norm, sizeof bits);
    most = least = bits;
    if (!world)
        return;
    OK(tsr_comm_all_reduce(world, &bits, &most, 1, TSR_I64, TSR_OP_MAX, NULL));
    OK(tsr_comm_all_reduce(world, &bits, &least, 1, TSR_I64, TSR_OP_MIN, NULL));
    CHECK(most == least, "ranks have different norms; here it is %.17g", norm);
}

static double layer_norm_in(tsr_group *in)
{
    tsr_layer *mlp = mlp_in(in, TSR_F32);
    tsr_optimizer *optimizer = sgd_optimizer();
    OK(tsr_optimizer_add_layer(optimizer, mlp));
    double none, norm;
    OK(tsr_optimizer_clip(optimizer, 1, NULL, &none));
    CHECK(none == 0, "without gradients the norm is %g", none);
    mlp_pass(mlp, 0, ROWS, 1);
    OK(tsr_optimizer_clip(optimizer, 1, NULL, &norm));
    tsr_optimizer_destroy(&optimizer);
    tsr_layer_destroy(&mlp);
    return norm;
}

CASE(clip_layers, "clipping: tensor-parallel layers have the norm of the whole layer")
{
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    const double want = layer_norm_in(alone), got = layer_norm_in(group);
    CHECK(want > 0.1, "the norm is %g", want);
    check_norm("an MLP", got, want);
    check_same_everywhere(got);
    tsr_group_destroy(&alone);
}

/* Returns the norm of the gradients of self-attention. If there are more ranks than kv heads, every
 * rank keeps the parameters of all kv heads. */
static double attention_norm_in(tsr_group *in)
{
    tsr_layer *layer = NULL;
    OK(tsr_self_attention_create(
        tsr_self_attention_params(.group = in, .name = "attention", .size = 16, .heads = 8,
                                  .kv_heads = 1, .head_dim = 4,
                                  .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                  .qk_norm = TSR_QK_NORM_HEADS, .bias = true, .output_bias = true,
                                  .causal = true),
        &layer));
    tsr_optimizer *optimizer = sgd_optimizer();
    OK(tsr_optimizer_add_layer(optimizer, layer));
    double *values = numbers(81, 5 * 16, TSR_F32), norm;
    tsr_tensor *x = tensor_of(TSR_F32, 2, (int64_t[]){5, 16}, values), *y = NULL;
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(layer, x, &saved, &y));
    OK(tsr_layer_backward(layer, saved, x, NULL));
    OK(tsr_optimizer_clip(optimizer, 1, NULL, &norm));
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    free(values);
    tsr_optimizer_destroy(&optimizer);
    tsr_layer_destroy(&layer);
    return norm;
}

CASE(clip_attention, "clipping: kv heads that all ranks keep count once")
{
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    const double want = attention_norm_in(alone), got = attention_norm_in(group);
    CHECK(want > 0.1, "the norm is %g", want);
    check_norm("attention", got, want);
    check_same_everywhere(got);
    tsr_group_destroy(&alone);
}

/* Returns the norm of a model's gradients after a pass over all rows, which are divided among the
 * data ranks. */
static double model_norm(const model_case *c, int data_rank, int data_ranks)
{
    model m;
    model_make(c, &m);
    tsr_optimizer *optimizer = NULL;
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue), &optimizer));
    OK(tsr_optimizer_add_fsdp(optimizer, m.sharded));
    const int64_t rows = 2 * MODEL_ROWS / data_ranks;
    model_pass(&m, rows * data_rank, rows, 50, 0.25f);
    double norm;
    OK(tsr_optimizer_clip(optimizer, 1, NULL, &norm));
    tsr_optimizer_destroy(&optimizer);
    model_finish(&m);
    return norm;
}

CASE(clip_grid, "clipping: a grid of sharded, divided and gathered parameters has the same norm")
{
    static const char *const biases[] = {"bias", NULL};
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    const double want =
        model_norm(&(model_case){.sharded = {.group = alone, .reduction = TSR_OP_SUM}}, 0, 1);
    for (int tensor = 1; tensor <= ranks; tensor++) {
        const int data = ranks / tensor;
        if (ranks % tensor != 0 || 2 * MODEL_ROWS % data != 0)
            continue;
        tsr_comm *tensor_comm = NULL, *data_comm = NULL;
        tsr_group *tensor_group = NULL, *data_group = NULL;
        if (world) {
            OK(tsr_comm_split(world, my_rank / tensor, 0, &tensor_comm));
            OK(tsr_comm_split(world, my_rank % tensor, 0, &data_comm));
        }
        OK(tsr_group_create(tensor_comm, queue, NULL, &tensor_group));
        OK(tsr_group_create(data_comm, queue, NULL, &data_group));
        for (int way = 0; way < 3; way++) {
            const model_case c = {.tensor = tensor_group,
                                  .sharded = {.group = data_group,
                                              .reduction = TSR_OP_SUM,
                                              .gather = way == 0   ? NULL
                                                        : way == 1 ? biases
                                                                   : everything}};
            const double got = model_norm(&c, my_rank / tensor, data);
            check_norm("a grid", got, want);
            check_same_everywhere(got);
        }
        tsr_group_destroy(&data_group);
        tsr_group_destroy(&tensor_group);
        tsr_comm_destroy(&data_comm);
        tsr_comm_destroy(&tensor_comm);
    }
    tsr_group_destroy(&alone);
}

/* Ranges of a parameter that several ranks have ---------------------------------------------- */

typedef struct part {
    tsr_optimizer *optimizer;
    tsr_tensor *tensor, *grad;
} part;

/* Returns columns offset … offset + length − 1 of a [2,12] parameter with gradients of 1. */
static part part_of(int64_t offset, int64_t length)
{
    part p = {.optimizer = sgd_optimizer()};
    const int64_t shape[] = {2, length};
    p.tensor = tensor_new(TSR_F32, 2, shape);
    p.grad = tensor_new(TSR_F32, 2, shape);
    OK(tsr_fill(queue, p.tensor, 0));
    OK(tsr_fill(queue, p.grad, 1));
    OK(tsr_optimizer_add_parameter(p.optimizer,
                                   &(tsr_parameter){.struct_size = sizeof(tsr_parameter),
                                                    .name = "heads",
                                                    .tensor = p.tensor,
                                                    .grad = p.grad,
                                                    .dtype = TSR_F32,
                                                    .ndim = 2,
                                                    .global_shape = {2, 12},
                                                    .shard_dim = 1,
                                                    .offset = offset,
                                                    .length = length}));
    return p;
}

static void part_finish(part *p)
{
    tsr_optimizer_destroy(&p->optimizer);
    tsr_tensor_destroy(&p->tensor);
    tsr_tensor_destroy(&p->grad);
}

CASE(clip_replicas, "clipping: parts that several ranks have count once")
{
    if (ranks == 1) {
        case_skip("one rank has no replicas");
        return;
    }
    const tsr_optimizer_clip_params *params = tsr_optimizer_clip_params(.group = group);
    const int64_t parts = (ranks + 1) / 2, mine = my_rank / 2;
    double norm;
    part p = part_of(12 * mine / parts, 12 * (mine + 1) / parts - 12 * mine / parts);
    OK(tsr_optimizer_clip(p.optimizer, 1, params, &norm));
    check_norm("pairs of ranks", norm, sqrt(24));
    part_finish(&p);

    /* Each rank's part overlaps the next rank's part by three columns. */
    const int64_t begin = 12 * my_rank / ranks, end = 12 * (my_rank + 1) / ranks;
    p = part_of(begin, (end + 3 < 12 ? end + 3 : 12) - begin);
    OK(tsr_optimizer_clip(p.optimizer, 1, params, &norm));
    check_norm("overlapping parts", norm, sqrt(24));
    part_finish(&p);

    if (ranks == 2) {
        p = my_rank == 0 ? part_of(4, 2) : part_of(0, 10);
        if (my_rank == 1)
            FAILS(
                tsr_optimizer_clip(p.optimizer, 1, params, &norm), TSR_ERR_INVALID,
                "optimizer_clip: 'heads': a rank has elements 0 to 10 of dim 1, and another has 4 "
                "to 6 inside them");
        else
            FAILS(tsr_optimizer_clip(p.optimizer, 1, params, &norm), TSR_ERR_INVALID,
                  "optimizer_clip: another rank could not sum the squares of its gradients; its "
                  "error "
                  "says why");
        part_finish(&p);
    }
}

/* Loss scaling and accumulation -------------------------------------------------------------- */

static void check_layers_same(tsr_layer *a, tsr_layer *b, const char *what, double tolerance)
{
    for (int i = 0; i < tsr_layer_parameter_count(a); i++) {
        const tsr_tensor *x = tsr_layer_parameter(a, i)->tensor,
                         *y = tsr_layer_parameter(b, i)->tensor;
        const int64_t count = tsr_layout_count(tsr_tensor_layout(x));
        double *got = values_of(x), *want = values_of(y);
        for (int64_t n = 0; n < count; n++)
            CHECK(fabs(got[n] - want[n]) <= tolerance * fmax(fabs(want[n]), 0.01),
                  "%s: parameter %d, element %lld is %.9g instead of %.9g", what, i, (long long)n,
                  got[n], want[n]);
        free(got);
        free(want);
    }
}

CASE(loss_scales, "clipping: a scaled loss gives the norm and the step of the loss itself")
{
    tsr_layer *mlp = mlp_in(group, TSR_F32), *scaled = mlp_in(group, TSR_F32);
    tsr_optimizer *optimizer = sgd_optimizer(), *other = sgd_optimizer();
    double norm, scaled_norm;
    OK(tsr_optimizer_add_layer(optimizer, mlp));
    OK(tsr_optimizer_add_layer(other, scaled));
    mlp_pass(mlp, 0, ROWS, 1);
    mlp_pass(scaled, 0, ROWS, 4096);
    OK(tsr_optimizer_clip(optimizer, 0.5f, NULL, &norm));
    OK(tsr_optimizer_clip(other, 0.5f, tsr_optimizer_clip_params(.loss_scale = 4096),
                          &scaled_norm));
    CHECK(norm == scaled_norm, "%.17g and %.17g", norm, scaled_norm);
    OK(tsr_optimizer_step(optimizer, 0.5f));
    OK(tsr_optimizer_step(other, 0.5f));
    check_layers_same(scaled, mlp, "a scaled loss", 1e-6);
    tsr_optimizer_destroy(&optimizer);
    tsr_optimizer_destroy(&other);
    tsr_layer_destroy(&mlp);
    tsr_layer_destroy(&scaled);
}

CASE(accumulation, "clipping: the mean of several micro-batches is that of the whole batch")
{
    tsr_layer *whole = mlp_in(group, TSR_F32), *parts = mlp_in(group, TSR_F32);
    tsr_optimizer *optimizer = sgd_optimizer(), *other = sgd_optimizer();
    double norm, parts_norm;
    OK(tsr_optimizer_add_layer(optimizer, whole));
    OK(tsr_optimizer_add_layer(other, parts));
    for (int step = 0; step < 3; step++) {
        mlp_pass(whole, 6 * step, 6, 1.0f / 6);
        for (int i = 0; i < 3; i++)
            mlp_pass(parts, 6 * step + 2 * i, 2, 1.0f / 2);
        OK(tsr_optimizer_clip(optimizer, INFINITY, NULL, &norm));
        OK(tsr_optimizer_clip(other, INFINITY, tsr_optimizer_clip_params(.loss_scale = 3),
                              &parts_norm));
        check_norm("micro-batches", parts_norm, norm);
        OK(tsr_optimizer_step(optimizer, 0.5f));
        OK(tsr_optimizer_step(other, 0.5f));
        OK(tsr_optimizer_zero_grad(optimizer));
        OK(tsr_optimizer_zero_grad(other));
    }
    check_layers_same(parts, whole, "micro-batches", 1e-5);
    tsr_optimizer_destroy(&optimizer);
    tsr_optimizer_destroy(&other);
    tsr_layer_destroy(&whole);
    tsr_layer_destroy(&parts);
}

CASE(overflow, "clipping: a gradient that overflows on one rank makes all ranks skip the step")
{
    tsr_layer *mlp = mlp_in(group, TSR_F16), *unchanged = mlp_in(group, TSR_F16);
    tsr_optimizer *optimizer = sgd_optimizer();
    tsr_loss_scaler scaler;
    int skipped = 0;
    OK(tsr_loss_scaler_init(&scaler, tsr_loss_scaler_params(.scale = 1024, .interval = 2)));
    OK(tsr_optimizer_add_layer(optimizer, mlp));
    for (int step = 0; step < 4; step++) {
        double norm;
        mlp_pass(mlp, step, ROWS, scaler.scale);
        if (step == 1 && my_rank == ranks - 1)
            OK(tsr_fill(queue, tsr_layer_parameter(mlp, 0)->grad, INFINITY));
        OK(tsr_optimizer_clip(optimizer, 1, tsr_optimizer_clip_params(.loss_scale = scaler.scale),
                              &norm));
        if (tsr_loss_scaler_update(&scaler, norm))
            OK(tsr_optimizer_step(optimizer, 0));
        else
            skipped++;
        OK(tsr_optimizer_zero_grad(optimizer));
    }
    CHECK(skipped == 1 && tsr_optimizer_steps(optimizer) == 3, "%d steps were skipped", skipped);
    CHECK(scaler.scale == 1024, "the scale is %g",
          (double)scaler.scale); /* the scale was halved once and doubled once */
    check_layers_same(mlp, unchanged, "skipped", 0);
    tsr_optimizer_destroy(&optimizer);
    tsr_layer_destroy(&mlp);
    tsr_layer_destroy(&unchanged);
}

CASE(clip_once, "clipping: it holds for one step, until gradients are set to 0")
{
    tsr_tensor *tensor = tensor_new(TSR_F32, 1, (int64_t[]){1}), *grad = NULL;
    OK(tsr_fill(queue, tensor, 0));
    OK(tsr_tensor_create(gpu, TSR_F32, 1, (int64_t[]){1}, &grad));
    OK(tsr_fill(queue, grad, 4));
    tsr_optimizer *optimizer = sgd_optimizer();
    OK(tsr_optimizer_add_parameter(optimizer,
                                   tsr_parameter(.name = "t", .tensor = tensor, .grad = grad)));
    OK(tsr_optimizer_clip(optimizer, 1, NULL, NULL));
    OK(tsr_optimizer_clip(optimizer, 2, NULL, NULL)); /* replaces the result of the first call */
    OK(tsr_optimizer_step(optimizer, 1));
    OK(tsr_optimizer_step(optimizer, 1));
    double *value = values_of(tensor);
    CHECK(fabs(*value + 6) < 1e-5, "2 and 4 make %g", -*value);
    free(value);
    OK(tsr_optimizer_clip(optimizer, 1, NULL, NULL));
    OK(tsr_optimizer_zero_grad(optimizer));
    OK(tsr_fill(queue, grad, 4));
    OK(tsr_optimizer_step(optimizer, 1));
    value = values_of(tensor);
    CHECK(fabs(*value + 10) < 1e-5, "6 and 4 make %g", -*value);
    free(value);
    tsr_optimizer_destroy(&optimizer);
    tsr_tensor_destroy(&tensor);
    tsr_tensor_destroy(&grad);
}

/* Compares two optimizers with the same gradients. One of them computes the factor of clipping on
 * the device while the host continues. */
static void check_deferred(float max_norm, float loss_scale)
{
    tsr_layer *mlp = mlp_in(group, TSR_F32), *other = mlp_in(group, TSR_F32);
    tsr_optimizer *now = sgd_optimizer(), *later = sgd_optimizer();
    const tsr_optimizer_clip_params at_once = {.struct_size = sizeof at_once,
                                               .loss_scale = loss_scale},
                                    deferred = {.struct_size = sizeof deferred,
                                                .loss_scale = loss_scale,
                                                .deferred = true};
    double norm[3], got = 0;
    OK(tsr_optimizer_add_layer(now, mlp));
    OK(tsr_optimizer_add_layer(later, other));
    for (int step = 0; step < 3; step++) {
        mlp_pass(mlp, step, ROWS, loss_scale);
        mlp_pass(other, step, ROWS, loss_scale);
        OK(tsr_optimizer_clip(now, max_norm, &at_once, &norm[step]));
        if (step > 0) { /* reads the norm of the previous step */
            OK(tsr_optimizer_norm(later, &got));
            CHECK(got == norm[step - 1], "step %d: %.17g and %.17g", step, got, norm[step - 1]);
        }
        OK(tsr_optimizer_clip(later, max_norm, &deferred, NULL));
        OK(tsr_optimizer_step(now, 0.5f));
        OK(tsr_optimizer_step(later, 0.5f));
        OK(tsr_optimizer_zero_grad(now));
        OK(tsr_optimizer_zero_grad(later));
        /* Gives both optimizers' layers the same parameters, so that the next norms have the
         * same bits. */
        check_layers_same(other, mlp, "deferred", 2e-6);
        for (int i = 0; i < tsr_layer_parameter_count(mlp); i++)
            OK(tsr_copy(queue, tsr_layer_parameter(other, i)->tensor,
                        tsr_layer_parameter(mlp, i)->tensor));
    }
    OK(tsr_optimizer_norm(later, &got));
    CHECK(got == norm[2] && got > 0, "the last step: %.17g and %.17g", got, norm[2]);
    OK(tsr_optimizer_norm(now, &got));
    CHECK(got == norm[2], "the norm that is known: %.17g and %.17g", got, norm[2]);
    tsr_optimizer_destroy(&now);
    tsr_optimizer_destroy(&later);
    tsr_layer_destroy(&mlp);
    tsr_layer_destroy(&other);
}

CASE(deferred, "clipping: a norm that is read later makes the same steps")
{
    check_deferred(0.25f, 1);
    check_deferred(0.25f, 1024);
    check_deferred(INFINITY, 3);
    check_deferred(1000, 1);
}

/* If the gradients of a step are not finite, the optimizer's state must not change either. */
CASE(deferred_overflow, "clipping: a norm that is read later and is not finite skips the step")
{
    tsr_layer *mlp = mlp_in(group, TSR_F32), *unchanged = mlp_in(group, TSR_F32);
    tsr_optimizer *optimizer = NULL;
    double norm = 0;
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue), &optimizer));
    OK(tsr_optimizer_add_layer(optimizer, mlp));
    for (int step = 0; step < 3; step++) {
        mlp_pass(mlp, step, ROWS, 1);
        if (step < 2 && my_rank == ranks - 1)
            OK(tsr_fill(queue, tsr_layer_parameter(mlp, 0)->grad, step == 0 ? INFINITY : NAN));
        OK(tsr_optimizer_clip(optimizer, 1, tsr_optimizer_clip_params(.deferred = true), NULL));
        OK(tsr_optimizer_step(optimizer, 0.5f));
        OK(tsr_optimizer_zero_grad(optimizer));
        OK(tsr_optimizer_norm(optimizer, &norm));
        CHECK(isfinite(norm) == (step == 2), "step %d: the norm is %g", step, norm);
        double *moment = values_of(optimizer->items[0].moment1);
        CHECK((*moment == 0) == (step < 2), "step %d: a moment is %g", step, *moment);
        free(moment);
        if (step < 2)
            check_layers_same(mlp, unchanged, "skipped", 0);
    }
    CHECK(tsr_optimizer_steps(optimizer) == 3, "%lld steps",
          (long long)tsr_optimizer_steps(optimizer));
    tsr_optimizer_destroy(&optimizer);
    tsr_layer_destroy(&mlp);
    tsr_layer_destroy(&unchanged);
}

/* Weight decay ------------------------------------------------------------------------------- */

static tsr_optimizer *decaying(tsr_optimizer_kind kind, bool matrices)
{
    tsr_optimizer *optimizer = NULL;
    OK(tsr_optimizer_create(
        tsr_optimizer_params(.stream = queue, .kind = kind,
                             .adamw = tsr_adamw_params(.weight_decay = matrices ? 0.5f : 0),
                             .sgd = tsr_sgd_params(.weight_decay = matrices ? 0.5f : 0),
                             .decay_matrices = matrices),
        &optimizer));
    return optimizer;
}

CASE(decay_layers, "optimizer: decay_matrices changes weights and leaves biases alone")
{
    for (int kind = TSR_OPTIMIZER_ADAMW; kind <= TSR_OPTIMIZER_SGD; kind++) {
        tsr_layer *with = mlp_in(group, TSR_F32), *without = mlp_in(group, TSR_F32);
        tsr_optimizer *a = decaying((tsr_optimizer_kind)kind, true),
                      *b = decaying((tsr_optimizer_kind)kind, false);
        OK(tsr_optimizer_add_layer(a, with));
        OK(tsr_optimizer_add_layer(b, without));
        mlp_pass(with, 0, ROWS, 1);
        mlp_pass(without, 0, ROWS, 1);
        OK(tsr_optimizer_step(a, 0.1f));
        OK(tsr_optimizer_step(b, 0.1f));
        for (int i = 0; i < tsr_layer_parameter_count(with); i++) {
            const tsr_parameter *p = tsr_layer_parameter(with, i);
            uint64_t size, other_size;
            uint8_t *x = bytes_of(p->tensor, &size),
                    *y = bytes_of(tsr_layer_parameter(without, i)->tensor, &other_size);
            CHECK((memcmp(x, y, size) == 0) == (p->ndim < 2 || size == 0), "kind %d: %s %s", kind,
                  p->name, p->ndim < 2 ? "decays" : "does not decay");
            free(x);
            free(y);
        }
        tsr_optimizer_destroy(&a);
        tsr_optimizer_destroy(&b);
        tsr_layer_destroy(&with);
        tsr_layer_destroy(&without);
    }
}

/* Trains a model with an optimizer, and returns the bytes of the model. */
static uint8_t *decayed_model(tsr_group *in, const char *const *gather, uint64_t *size)
{
    model m;
    tsr_optimizer *optimizer = NULL;
    model_make(&(model_case){.sharded = {.group = in, .gather = gather}}, &m);
    OK(tsr_optimizer_create(
        tsr_optimizer_params(.stream = queue,
                             .adamw = tsr_adamw_params(.epsilon = 1e-3f, .weight_decay = 0.1f),
                             .decay_matrices = true),
        &optimizer));
    OK(tsr_optimizer_add_fsdp(optimizer, m.sharded));
    for (int i = 0; i < 2; i++) {
        model_pass(&m, i * 100, MODEL_ROWS, 50, 1.0f / MODEL_ROWS);
        OK(tsr_optimizer_clip(optimizer, 0.1f, NULL, NULL));
        adamw_steps = 0;
        OK(tsr_optimizer_step(optimizer, 0.01f));
        CHECK(adamw_steps == 2, "%d launches for the matrices and all others", adamw_steps);
        OK(tsr_optimizer_zero_grad(optimizer));
    }
    uint8_t *bytes = model_bytes(&m, size);
    tsr_optimizer_destroy(&optimizer);
    model_finish(&m);
    return bytes;
}

/* The order of the additions in the norm depends on the shards. Therefore models that gather
 * different parameters must have the same bits only in a group of one rank. */
CASE(decay_models, "optimizer: decay_matrices and clipping have the same bits in FSDP models")
{
    tsr_group *alone = NULL;
    OK(tsr_group_create(NULL, queue, NULL, &alone));
    uint64_t size, want_size;
    uint8_t *want = decayed_model(alone, everything, &want_size);
    uint8_t *got = decayed_model(alone, NULL, &size);
    CHECK(size == want_size && memcmp(got, want, size) == 0, "other bits");
    free(got);
    free(want);
    tsr_group_destroy(&alone);
}

/* Refused calls ------------------------------------------------------------------------------ */

CASE(clip_mistakes, "clipping: mistakes are errors that name the values")
{
    tsr_optimizer *optimizer = sgd_optimizer();
    double norm = 7;
    FAILS(tsr_optimizer_norm(optimizer, &norm), TSR_ERR_INVALID,
          "optimizer_norm: no norm has been computed; call optimizer_clip");
    FAILS(tsr_optimizer_norm(NULL, &norm), TSR_ERR_INVALID, "optimizer_norm: optimizer is NULL");
    FAILS(tsr_optimizer_norm(optimizer, NULL), TSR_ERR_INVALID, "optimizer_norm: out is NULL");
    FAILS(tsr_optimizer_clip(optimizer, 1, tsr_optimizer_clip_params(.deferred = true), &norm),
          TSR_ERR_INVALID,
          "optimizer_clip: norm must be NULL with `deferred`; tsr_optimizer_norm returns it");
    CHECK(norm == 7, "a failure writes the norm");
    OK(tsr_optimizer_clip(optimizer, 1, NULL, &norm));
    CHECK(norm == 0, "of nothing, the norm is %g", norm);
    OK(tsr_optimizer_clip(optimizer, 1, tsr_optimizer_clip_params(.deferred = true), NULL));
    norm = 7;
    OK(tsr_optimizer_norm(optimizer, &norm));
    CHECK(norm == 0, "of nothing, the norm is %g", norm);
    norm = 7;
    FAILS(tsr_optimizer_clip(NULL, 1, NULL, &norm), TSR_ERR_INVALID,
          "optimizer_clip: optimizer is NULL");
    FAILS(tsr_optimizer_clip(optimizer, -1, NULL, &norm), TSR_ERR_INVALID,
          "optimizer_clip: max_norm is -1; it must be at least 0");
    CHECK(tsr_optimizer_clip(optimizer, NAN, NULL, &norm) == TSR_ERR_INVALID, "max_norm NaN");
    FAILS(tsr_optimizer_clip(optimizer, 1, tsr_optimizer_clip_params(.loss_scale = -2), &norm),
          TSR_ERR_INVALID, "optimizer_clip: loss_scale is -2; it must be finite and more than 0");
    FAILS(
        tsr_optimizer_clip(optimizer, 1, tsr_optimizer_clip_params(.loss_scale = INFINITY), &norm),
        TSR_ERR_INVALID, "optimizer_clip: loss_scale is inf; it must be finite and more than 0");
    tsr_optimizer_destroy(&optimizer);
    part p = part_of(0, 6);
    FAILS(tsr_optimizer_clip(p.optimizer, 1, NULL, &norm), TSR_ERR_INVALID,
          "optimizer_clip: 'heads' is a part of [2,12]; set the group of the ranks that have the "
          "other "
          "parts");
    CHECK(norm == 7, "a failure writes the norm");
    part_finish(&p);

    model m;
    model_make(&(model_case){0}, &m);
    OK(tsr_optimizer_create(tsr_optimizer_params(.stream = queue), &optimizer));
    OK(tsr_optimizer_add_fsdp(optimizer, m.sharded));
    OK(tsr_fsdp_begin(m.sharded, 0, TSR_PASS_FORWARD));
    CHECK(tsr_optimizer_clip(optimizer, 1, NULL, &norm) == TSR_ERR_INVALID, "a unit is in use");
    OK(tsr_fsdp_end(m.sharded, 0));
    tsr_optimizer_destroy(&optimizer);
    model_finish(&m);
}

/* Clips repeatedly, each time with another allocation of the last rank failing. With `anew` each
 * call is the first one of its optimizer, which also allocates what later calls reuse. */
static void clip_with_failures(bool anew)
{
    tsr_layer *mlp = mlp_in(group, TSR_F32);
    tsr_optimizer *optimizer = sgd_optimizer();
    OK(tsr_optimizer_add_layer(optimizer, mlp));
    mlp_pass(mlp, 0, ROWS, 1);
    OK(tsr_optimizer_clip(optimizer, 1, NULL, NULL)); /* creates what later calls use */
    int32_t reached = 1, failed = 0;
    for (uint64_t nth = 0; reached; nth++) {
        if (anew) {
            tsr_optimizer_destroy(&optimizer);
            optimizer = sgd_optimizer();
            OK(tsr_optimizer_add_layer(optimizer, mlp));
        }
        if (my_rank == ranks - 1)
            tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        tsr_status status = tsr_optimizer_clip(optimizer, 1, NULL, NULL);
        reached = my_rank == ranks - 1 && tsr__fault_site() != NULL;
        tsr__fault_disarm();
        const bool mine = my_rank == ranks - 1;
        if (world)
            OK(tsr_comm_all_reduce(world, &reached, &reached, 1, TSR_I32, TSR_OP_MAX, NULL));
        CHECK(status == (!reached ? TSR_OK
                         : mine   ? TSR_ERR_NO_MEMORY
                                  : TSR_ERR_INVALID),
              "allocation %llu: %s: %s", (unsigned long long)nth, tsr_status_name(status),
              tsr_last_error());
        failed += reached;
    }
    CHECK(failed > 3, "only %d allocations", failed);
    tsr_optimizer_destroy(&optimizer);
    tsr_layer_destroy(&mlp);
}

/* If a rank runs out of memory, all ranks return an error. */
CASE(clip_failures, "clipping: no rank waits for one that failed")
{
    clip_with_failures(false);
    clip_with_failures(true);
}
