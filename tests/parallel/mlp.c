/* Compares MLP blocks with a reference in double precision and with finite differences. */
#include <stdio.h>

#include "parallel/linear_case.h"

typedef struct mlp_case {
    tsr_mlp_params params;
    int64_t m; /* rows of the full x */
    bool by_function;
    uint64_t sequence;
} mlp_case;

/* The block in double precision: parameters and their gradients, in the layer's order. */
typedef struct host_mlp {
    const tsr_mlp_params *params;
    int64_t m, in, hidden, out;
    double *parameter[6], *gradient[6];
    int count;
    double *x, *dx;
} host_mlp;

static int weight_at(const host_mlp *h, int which) /* 0: gate, 1: up, 2: down */
{
    int place = h->params->gated ? which : which - 1;
    return place * (h->params->bias ? 2 : 1);
}

static int64_t size_of(const host_mlp *h, int index)
{
    int step = h->params->bias ? 2 : 1, place = index / step;
    bool down = place == (h->params->gated ? 2 : 1), weight = index % step == 0;
    return (down ? h->out : h->hidden) * (weight ? down ? h->hidden : h->in : 1);
}

static double *linear(const host_mlp *h, int which, const double *x, int64_t k, int64_t n)
{
    int at = weight_at(h, which);
    measured y = reference_linear(x, h->parameter[at],
                                  h->params->bias ? h->parameter[at + 1] : NULL, h->m, k, n);
    free(y.magnitude);
    return y.value;
}

typedef struct hidden_state {
    double *gate, *up, *product;
} hidden_state;

static double *host_forward(const host_mlp *h, hidden_state *state)
{
    const int64_t count = h->m * h->hidden;
    state->gate = h->params->gated ? linear(h, 0, h->x, h->in, h->hidden) : NULL;
    state->up = linear(h, 1, h->x, h->in, h->hidden);
    state->product = doubles(count);
    for (int64_t i = 0; i < count; i++)
        state->product[i] =
            state->gate ? reference_activation(h->params->activation, state->gate[i]) * state->up[i]
                        : reference_activation(h->params->activation, state->up[i]);
    return linear(h, 2, state->product, h->hidden, h->out);
}

static void state_free(hidden_state *state)
{
    free(state->gate);
    free(state->up);
    free(state->product);
}

static void add_linear_gradients(host_mlp *h, int which, const double *x, const double *dy,
                                 int64_t k, int64_t n, double *dx)
{
    int at = weight_at(h, which);
    measured w = reference_dw(dy, x, h->m, k, n), b = reference_db(dy, h->m, n);
    measured d = reference_dx(dy, h->parameter[at], h->m, k, n);
    for (int64_t i = 0; i < w.count; i++)
        h->gradient[at][i] += w.value[i];
    for (int64_t i = 0; i < n && h->params->bias; i++)
        h->gradient[at + 1][i] += b.value[i];
    for (int64_t i = 0; i < d.count; i++)
        dx[i] += d.value[i];
    measured_free(&w);
    measured_free(&b);
    measured_free(&d);
}

static void host_backward(host_mlp *h, const double *dy)
{
    const tsr_activation act = h->params->activation;
    hidden_state s;
    free(host_forward(h, &s));
    const int64_t count = h->m * h->hidden;
    double *da = doubles(count), *dgate = doubles(count), *dup = doubles(count);
    add_linear_gradients(h, 2, s.product, dy, h->hidden, h->out, da);
    for (int64_t i = 0; i < count; i++) {
        dup[i] = s.gate ? da[i] * reference_activation(act, s.gate[i])
                        : da[i] * reference_derivative(act, s.up[i]);
        if (s.gate)
            dgate[i] = da[i] * s.up[i] * reference_derivative(act, s.gate[i]);
    }
    if (s.gate)
        add_linear_gradients(h, 0, h->x, dgate, h->in, h->hidden, h->dx);
    add_linear_gradients(h, 1, h->x, dup, h->in, h->hidden, h->dx);
    free(da);
    free(dgate);
    free(dup);
    state_free(&s);
}

/* An activation function of the caller, which calls the library's functions. */
static tsr_status apply(void *user, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x)
{
    return tsr_activate(stream, y, x, NULL, *(const tsr_activation *)user);
}
static tsr_status apply_grad(void *user, tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *x,
                             const tsr_tensor *dy)
{
    return tsr_activate_grad(stream, dx, x, dy, *(const tsr_activation *)user);
}

/* Checks that errors are small relative to the largest value. They are not small relative to
 * each value, because the values are sums of sums that may cancel. */
static void check_near(const char *what, const double *got, const double *want, int64_t count,
                       double tolerance)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < count; i++)
        CHECK(fabs(got[i] - want[i]) <= tolerance * most, "%s: element %lld is %.9g, not %.9g",
              what, (long long)i, got[i], want[i]);
}

static void check_part(const char *what, const tsr_tensor *tensor, const double *whole, int ndim,
                       const int64_t *shape, int dim, int64_t start, int64_t count,
                       double tolerance)
{
    double *got = values_of(tensor), *want = slice_of(whole, ndim, shape, dim, start, count);
    int64_t total = tsr_layout_count(tsr_tensor_layout(tensor));
    CHECK(total == count * (count_of(ndim, shape) / shape[dim]), "%s has %lld elements", what,
          (long long)total);
    check_near(what, got, want, total, tolerance);
    free(got);
    free(want);
}

static void load(host_mlp *h, const tsr_layer *layer)
{
    h->count = tsr_layer_parameter_count(layer);
    for (int i = 0; i < h->count; i++) {
        h->parameter[i] = whole_parameter(layer, i);
        h->gradient[i] = doubles(size_of(h, i));
    }
}

static void host_free(host_mlp *h)
{
    for (int i = 0; i < h->count; i++) {
        free(h->parameter[i]);
        free(h->gradient[i]);
    }
    free(h->x);
    free(h->dx);
}

static void mlp_case_run(mlp_case c)
{
    tsr_mlp_params *p = &c.params;
    p->struct_size = sizeof *p;
    tsr_dtype dtype = p->dtype ? p->dtype : TSR_F32;
    double tolerance = dtype == TSR_F32 ? 2e-5 : dtype == TSR_F16 ? 1e-2 : 8e-2;
    tsr_activation act = p->activation;
    if (c.by_function) {
        p->activate = apply;
        p->activate_grad = apply_grad;
        p->user = &act;
    }
    host_mlp h = {.params = p,
                  .m = c.m,
                  .in = p->input_size,
                  .hidden = p->hidden_size,
                  .out = p->output_size};
    tsr_layer *layer = NULL;
    OK(tsr_mlp_create(p, &layer));
    load(&h, layer);
    h.x = numbers(c.sequence, h.m * h.in, dtype);
    h.dx = doubles(h.m * h.in);
    double *dy = numbers(c.sequence + 1, h.m * h.out, dtype);
    const int64_t x_shape[] = {h.m, h.in}, y_shape[] = {h.m, h.out};
    int64_t start = p->sequence ? part_start(h.m, my_rank) : 0;
    int64_t rows = p->sequence ? part_count(h.m, my_rank) : h.m;
    tsr_tensor *x = tensor_of(dtype, 2, (int64_t[]){rows, h.in}, h.x + start * h.in);
    tsr_tensor *tdy = tensor_of(dtype, 2, (int64_t[]){rows, h.out}, dy + start * h.out);
    hidden_state state;
    double *y = host_forward(&h, &state);
    state_free(&state);

    tsr_tensor *ty = NULL, *dx = NULL;
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(layer, x, NULL, &ty));
    check_part("y", ty, y, 2, y_shape, 0, start, rows, tolerance);
    tsr_tensor_destroy(&ty);
    OK(tsr_layer_forward(layer, x, &saved, &ty));
    check_part("y", ty, y, 2, y_shape, 0, start, rows, tolerance);
    OK(tsr_layer_backward(layer, saved, tdy, &dx));
    host_backward(&h, dy);
    check_part("dx", dx, h.dx, 2, x_shape, 0, start, rows, tolerance);
    for (int i = 0; i < h.count; i++) {
        const tsr_parameter *q = tsr_layer_parameter(layer, i);
        check_part(q->name, q->grad, h.gradient[i], q->ndim, q->global_shape,
                   q->shard_dim < 0 ? 0 : q->shard_dim, q->offset, q->length, tolerance);
    }
    tsr_layer_saved_destroy(&saved);
    tsr_tensor *all[] = {x, tdy, ty, dx};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    tsr_layer_destroy(&layer);
    host_free(&h);
    free(y);
    free(dy);
}

CASE(factory_mlp_block, "factory CreateMLPBlock: a column- and a row-parallel layer")
{
    tsr_layer *column = NULL, *row = NULL;
    OK(tsr_column_linear_create(
        tsr_linear_params(.name = "last.up", .input_size = 20, .output_size = 24, .bias = true),
        &column));
    OK(tsr_row_linear_create(
        tsr_linear_params(.name = "last.down", .input_size = 24, .output_size = 10, .bias = true),
        &row));
    tsr_layer *mlp = NULL;
    OK(tsr_mlp_create(tsr_mlp_params(.name = "last", .input_size = 20, .hidden_size = 24,
                                     .output_size = 10, .bias = true),
                      &mlp));
    for (int i = 0; i < 4; i++) {
        const tsr_parameter *parameter = tsr_layer_parameter(i < 2 ? column : row, i % 2);
        const tsr_parameter *of_mlp = tsr_layer_parameter(mlp, i);
        uint64_t size, mlp_size;
        uint8_t *bytes = bytes_of(parameter->tensor, &size);
        uint8_t *mlp_bytes = bytes_of(of_mlp->tensor, &mlp_size);
        CHECK(strcmp(parameter->name, of_mlp->name) == 0, "%s, and %s in an MLP", parameter->name,
              of_mlp->name);
        CHECK(size == mlp_size && memcmp(bytes, mlp_bytes, size) == 0, "%s has other values",
              parameter->name);
        free(bytes);
        free(mlp_bytes);
    }
    tsr_layer_destroy(&mlp);
    tsr_layer_destroy(&column);
    tsr_layer_destroy(&row);
    char text[128];
    snprintf(text, sizeof text,
             "column_linear big: input_size is 2147483648, output_size %d; both must be 1 to "
             "2^31 - 1",
             ranks);
    FAILS(tsr_mlp_create(tsr_mlp_params(.name = "big", .input_size = INT64_C(1) << 31,
                                        .hidden_size = ranks, .output_size = 10, .bias = true),
                         &mlp),
          TSR_ERR_INVALID, text);
    CHECK(!mlp, "a layer that failed");
}

CASE(factory_forward_mlp, "factory ForwardMLP: ColumnParallelLinear to RowParallelLinear pipeline")
{
    tsr_layer *column = NULL, *row = NULL;
    tsr_activation relu = TSR_ACT_RELU;
    const int64_t m = 6, in = 20, hidden = 24, out = 10;
    OK(tsr_column_linear_create(
        tsr_linear_params(.name = "up", .input_size = in, .output_size = hidden, .bias = true),
        &column));
    OK(tsr_row_linear_create(
        tsr_linear_params(.name = "down", .input_size = hidden, .output_size = out, .bias = true),
        &row));
    double *up = whole_parameter(column, 0), *down = whole_parameter(row, 0);
    double *x = numbers(1, m * in, TSR_F32);
    tsr_tensor *tx = tensor_of(TSR_F32, 3, (int64_t[]){2, 3, in}, x), *hx = NULL, *ty = NULL;
    OK(tsr_layer_forward(column, tx, NULL, &hx));
    OK(apply(&relu, queue, hx, hx));
    OK(tsr_layer_forward(row, hx, NULL, &ty));
    measured h = reference_linear(x, up, NULL, m, in, hidden);
    for (int64_t i = 0; i < h.count; i++)
        h.value[i] = fmax(h.value[i], 0);
    measured y = reference_linear(h.value, down, NULL, m, hidden, out);
    const tsr_layout *layout = tsr_tensor_layout(ty);
    CHECK(layout->ndim == 3 && layout->shape[0] == 2 && layout->shape[1] == 3 &&
              layout->shape[2] == out,
          "another shape");
    double *got = values_of(ty);
    check_near("y", got, y.value, m * out, 1e-5);
    free(got);
    free(up);
    free(down);
    free(x);
    measured_free(&h);
    measured_free(&y);
    tsr_tensor_destroy(&tx);
    tsr_tensor_destroy(&hx);
    tsr_tensor_destroy(&ty);
    tsr_layer_destroy(&column);
    tsr_layer_destroy(&row);
}

/* Tests every activation, with and without gate, bias, sequence parallelism, staging and functions
 * of the caller, in three dtypes. */
static void all_mlps(bool gated)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_F32, TSR_BF16};
    const int first = gated ? 10 : 0; /* both ranges have functions of the caller */
    for (int i = first; i < first + 8; i++) {
        mlp_case c = {.params = {.group = i % 4 == 3 ? staged : group,
                                 .input_size = 17,
                                 .hidden_size = i % 2 ? 24 : 23,
                                 .output_size = 9,
                                 .gated = gated,
                                 .bias = i % 3 != 1,
                                 .activation = (tsr_activation)(i % 5),
                                 .sequence = i % 3 == 2,
                                 .dtype = dtypes[i % 4],
                                 .overlap_parts = i % 5,
                                 .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                                 .init = tsr_init_params(.seed = (uint64_t)i)},
                      .m = 3 * ranks,
                      .by_function = i % 5 == i % 3,
                      .sequence = 100 + 2 * (uint64_t)i};
        mlp_case_run(c);
    }
}

CASE(mlp_plain, "output of combined MLP is correct, and so are all gradients")
{
    all_mlps(false);
}

CASE(mlp_gated, "gated MLP (SwiGLU and others): output and all gradients")
{
    all_mlps(true);
}

/* Returns the sum of y · dy over all elements, as the layer computes y. */
static double objective(tsr_layer *layer, const tsr_tensor *x, const double *dy)
{
    tsr_tensor *y = NULL;
    OK(tsr_layer_forward(layer, x, NULL, &y));
    double *got = values_of(y), sum = 0;
    for (int64_t i = 0; i < tsr_layout_count(tsr_tensor_layout(y)); i++)
        sum += got[i] * dy[i];
    free(got);
    tsr_tensor_destroy(&y);
    return sum;
}

CASE(finite_differences, "gradients match finite differences of the layer itself")
{
    for (int gated = 0; gated < 2; gated++) {
        enum { M = 3, IN = 5, OUT = 4 };
        const double h = 0x1p-8;
        tsr_layer *layer = NULL;
        OK(tsr_mlp_create(
            tsr_mlp_params(.input_size = IN, .hidden_size = 7, .output_size = OUT,
                           .gated = gated != 0, .activation = TSR_ACT_SILU,
                           .partition = tsr_partition_params(.kind = TSR_PARTITION_UNEVEN),
                           .init = tsr_init_params(.kind = TSR_INIT_NORMAL), .bias = true),
            &layer));
        double *x = numbers(5, M * IN, TSR_F32), *dy = numbers(6, M * OUT, TSR_F32);
        tsr_tensor *tx = tensor_of(TSR_F32, 2, (int64_t[]){M, IN}, x), *y = NULL, *dx = NULL;
        tsr_tensor *tdy = tensor_of(TSR_F32, 2, (int64_t[]){M, OUT}, dy);
        tsr_layer_saved *saved = NULL;
        OK(tsr_layer_forward(layer, tx, &saved, &y));
        OK(tsr_layer_backward(layer, saved, tdy, &dx));
        double *got = values_of(dx);
        for (int i = 0; i < M * IN; i++) {
            double kept = x[i];
            x[i] = kept + h;
            tensor_put(tx, x);
            double up = objective(layer, tx, dy);
            x[i] = kept - h;
            tensor_put(tx, x);
            double want = (up - objective(layer, tx, dy)) / (2 * h);
            x[i] = kept;
            CHECK(fabs(got[i] - want) < 2e-3, "dx %d is %g, not %g", i, got[i], want);
        }
        tensor_put(tx, x);
        free(got);
        /* Every rank changes the same element of the full parameter, if it has that element. */
        for (int index = 0; index < tsr_layer_parameter_count(layer); index++) {
            const tsr_parameter *p = tsr_layer_parameter(layer, index);
            int64_t total = count_of(p->ndim, p->global_shape);
            int64_t columns = p->ndim == 2 ? p->global_shape[1] : 1;
            for (int64_t e = 0; e < total; e += total / 7 + 1) {
                int64_t at[2] = {e / columns, e % columns};
                bool mine = p->shard_dim < 0 || (at[p->shard_dim] >= p->offset &&
                                                 at[p->shard_dim] < p->offset + p->length);
                if (p->shard_dim >= 0)
                    at[p->shard_dim] -= p->offset;
                const int64_t width = tsr_tensor_layout(p->tensor)->shape[p->ndim - 1];
                const int64_t place = p->ndim == 2 ? at[0] * width + at[1] : at[0];
                double *values = values_of(p->tensor), *grads = values_of(p->grad), sums[2];
                double kept = mine ? values[place] : 0;
                for (int side = 0; side < 2; side++) {
                    if (mine)
                        values[place] = kept + (side ? -h : h);
                    tensor_put(p->tensor, values);
                    sums[side] = objective(layer, tx, dy);
                }
                if (mine)
                    values[place] = kept;
                tensor_put(p->tensor, values);
                double want = (sums[0] - sums[1]) / (2 * h);
                CHECK(!mine || fabs(grads[place] - want) < 2e-3, "%s %lld is %g, not %g", p->name,
                      (long long)e, grads[place], want);
                free(values);
                free(grads);
            }
        }
        tsr_layer_saved_destroy(&saved);
        tsr_tensor *all[] = {tx, tdy, y, dx};
        for (int i = 0; i < 4; i++)
            tsr_tensor_destroy(&all[i]);
        free(x);
        free(dy);
        tsr_layer_destroy(&layer);
    }
}

CASE(parameters, "parameters are found by name and index, and describe their part")
{
    static const char *const names[] = {"block.gate.weight", "block.gate.bias",
                                        "block.up.weight",   "block.up.bias",
                                        "block.down.weight", "block.down.bias"};
    tsr_layer *layer = NULL;
    OK(tsr_mlp_create(tsr_mlp_params(.name = "block", .input_size = 4, .hidden_size = 2 * ranks,
                                     .output_size = 3, .gated = true, .bias = true),
                      &layer));
    CHECK(tsr_layer_parameter_count(layer) == 6, "%d", tsr_layer_parameter_count(layer));
    const tsr_parameter *found;
    for (int i = 0; i < 6; i++) {
        const tsr_parameter *p = tsr_layer_parameter(layer, i);
        CHECK(strcmp(p->name, names[i]) == 0, "%s, not %s", p->name, names[i]);
        OK(tsr_layer_find_parameter(layer, names[i], &found));
        CHECK(found == p, "%s is another", names[i]);
        OK(tsr_layer_find_parameter(layer, names[i] + sizeof "block", &found));
        CHECK(found == p, "%s is another", names[i] + sizeof "block");
        CHECK(p->length == (i == 5 ? 3 : 2) &&
                  p->shard_dim == (i == 5   ? -1
                                   : i == 4 ? 1
                                            : 0) &&
                  p->offset == (i == 5 ? 0 : 2 * my_rank) && !p->grad && p->dtype == TSR_F32,
              "%s: dimension %d, %lld from %lld", p->name, p->shard_dim, (long long)p->length,
              (long long)p->offset);
    }
    CHECK(!tsr_layer_parameter(layer, 6) && !tsr_layer_parameter(layer, -1) &&
              !tsr_layer_parameter(NULL, 0),
          "there is one more");
    FAILS(tsr_layer_find_parameter(layer, "gate", &found), TSR_ERR_NOT_FOUND,
          "mlp block: there is no parameter 'gate'");
    FAILS(tsr_layer_find_parameter(layer, "bias", &found), TSR_ERR_INVALID,
          "mlp block: 'bias' matches both block.gate.bias and block.up.bias");
    FAILS(tsr_layer_find_parameter(layer, NULL, &found), TSR_ERR_INVALID,
          "layer_find_parameter: name is NULL");
    tsr_tensor *none = NULL;
    FAILS(tsr_layer_gather_parameter(layer, 9, &none), TSR_ERR_INVALID,
          "layer_gather_parameter: index 9 is outside 6 parameters");
    tsr_linear_shard shard = TSR_INIT(tsr_linear_shard);
    FAILS(tsr_linear_get_shard(layer, &shard), TSR_ERR_INVALID,
          "mlp block: it is not a linear layer");
    CHECK(!shard.weight, "a weight");
    tsr_layer_destroy(&layer);
}

CASE(deferred, "a deferred layer uses the memory that it is lent, and only that long")
{
    tsr_mlp_params params = {.struct_size = sizeof params,
                             .input_size = 6,
                             .hidden_size = 2 * ranks,
                             .output_size = 3,
                             .gated = true,
                             .activation = TSR_ACT_SILU,
                             .bias = true};
    tsr_layer *layer = NULL, *deferred = NULL;
    OK(tsr_mlp_create(&params, &layer));
    params.deferred = true;
    OK(tsr_mlp_create(&params, &deferred));
    double *x = numbers(3, 12, TSR_F32);
    tsr_tensor *tx = tensor_of(TSR_F32, 2, (int64_t[]){2, 6}, x), *want = NULL, *got = NULL;
    tsr_layer_saved *first = NULL;
    tsr_tensor *dx = NULL;
    OK(tsr_layer_forward(layer, tx, &first, &want));
    OK(tsr_layer_backward(layer, first, want, &dx));
    double *want_dx = values_of(dx);
    tsr_tensor_destroy(&dx);
    tsr_layer_saved_destroy(&first);
    FAILS(tsr_layer_forward(deferred, tx, NULL, &got), TSR_ERR_INVALID,
          "column_linear: gate.weight has no memory");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 6; i++) {
            const tsr_parameter *p = tsr_layer_parameter(layer, i);
            const tsr_layout *layout = tsr_tensor_layout(p->tensor);
            tsr_tensor *memory = tensor_new(TSR_F32, layout->ndim, layout->shape);
            tsr_tensor *grad = tensor_new(TSR_F32, layout->ndim, layout->shape);
            OK(tsr_copy(queue, memory, p->tensor));
            OK(tsr_fill(queue, grad, 1));
            OK(tsr_layer_set_parameter(deferred, i, memory, grad, round == 1));
            tsr_tensor_destroy(&memory);
            tsr_tensor_destroy(&grad);
        }
        tsr_layer_saved *saved = NULL;
        OK(tsr_layer_forward(deferred, tx, &saved, &got));
        double *a = values_of(got), *b = values_of(want);
        check_near("y", a, b, 6, 1e-6);
        OK(tsr_layer_backward(deferred, saved, got, NULL));
        double *bias = values_of(tsr_layer_parameter(deferred, 5)->grad);
        for (int j = 0; j < 3; j++)
            CHECK(fabs(bias[j] - (a[j] + a[j + 3] + round)) < 1e-5, "gradient %g", bias[j]);
        free(a);
        free(b);
        free(bias);
        tsr_layer_saved_destroy(&saved);
        tsr_tensor_destroy(&got);
    }
    OK(tsr_layer_set_parameter(deferred, 4, NULL, NULL, false));
    FAILS(tsr_layer_forward(deferred, tx, NULL, &got), TSR_ERR_INVALID,
          "row_linear: down.weight has no memory");
    /* One parameter is in the caller's memory, and the others are in the layer's own. Since gate
     * and up are then not adjacent, they need two products. */
    OK(tsr_layer_set_parameter(layer, 0, tsr_layer_parameter(deferred, 0)->tensor, NULL, false));
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(layer, tx, &saved, &got));
    double *a = values_of(got), *b = values_of(want);
    check_near("y", a, b, 6, 1e-6);
    free(a);
    free(b);
    OK(tsr_layer_backward(layer, saved, got, &dx));
    a = values_of(dx);
    check_near("dx", a, want_dx, 12, 1e-6);
    free(a);
    free(want_dx);
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&dx);
    FAILS(tsr_layer_set_parameter(layer, 6, NULL, NULL, false), TSR_ERR_INVALID,
          "layer_set_parameter: index 6 is outside 6 parameters");
    FAILS(tsr_layer_set_parameter(layer, 5, tx, NULL, false), TSR_ERR_INVALID,
          "row_linear: the tensor of down.bias must be f32 [3], but is f32 [2,6]");
    FAILS(tsr_layer_set_parameter(layer, 5, NULL, tx, false), TSR_ERR_INVALID,
          "row_linear: the gradient of down.bias must be a float [3], but is f32 [2,6]");
    free(x);
    tsr_tensor_destroy(&tx);
    tsr_tensor_destroy(&want);
    tsr_tensor_destroy(&got);
    tsr_layer_destroy(&layer);
    tsr_layer_destroy(&deferred);
}

static tsr_status refuse(void *user, tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x)
{
    (void)user, (void)stream, (void)y, (void)x;
    return TSR_ERR_UNSUPPORTED;
}

CASE(mlp_mistakes, "mistakes in an MLP's params are named")
{
    tsr_activation relu = TSR_ACT_RELU;
    tsr_layer *layer = NULL;
    tsr_tensor *x = tensor_new(TSR_F32, 2, (int64_t[]){2, 3}), *y = NULL;
    FAILS(tsr_mlp_create(NULL, &layer), TSR_ERR_INVALID, "mlp: params is NULL");
    FAILS(tsr_mlp_create(tsr_mlp_params(.activation = (tsr_activation)8, .bias = true), &layer),
          TSR_ERR_INVALID, "mlp: activation 8 is not a tsr_activation");
    FAILS(tsr_mlp_create(tsr_mlp_params(.input_size = 3, .bias = true), &layer), TSR_ERR_INVALID,
          "mlp: input_size is 3, hidden_size 0, output_size 0; all must be at least 1");
    char text[200];
    snprintf(text, sizeof text,
             "mlp block: input_size is 0, hidden_size %d, output_size 3; all must be at least 1",
             ranks);
    FAILS(tsr_mlp_create(
              tsr_mlp_params(.name = "block", .hidden_size = ranks, .output_size = 3, .bias = true),
              &layer),
          TSR_ERR_INVALID, text);
#define WITH(...) tsr_mlp_params(.input_size = 3, .output_size = 3, __VA_ARGS__)
    if (ranks > 1) {
        snprintf(text, sizeof text,
                 "mlp: hidden_size %d is not divisible by %d ranks; partition UNEVEN or WEIGHTED "
                 "allows it",
                 4 * ranks + 1, ranks);
        FAILS(tsr_mlp_create(WITH(.hidden_size = 4 * ranks + 1), &layer), TSR_ERR_INVALID, text);
        FAILS(tsr_mlp_create(WITH(.hidden_size = 4 * ranks + 1, .gated = true), &layer),
              TSR_ERR_INVALID, text);
    }
    FAILS(tsr_mlp_create(WITH(.hidden_size = ranks, .overlap_parts = 17), &layer), TSR_ERR_INVALID,
          "mlp: overlap_parts is 17; 0 to 16 are possible");
    FAILS(tsr_mlp_create(WITH(.hidden_size = ranks, .dtype = TSR_I32), &layer), TSR_ERR_INVALID,
          "mlp: dtype is i32; f32, f16 or bf16 is needed");
    FAILS(tsr_mlp_create(WITH(.hidden_size = ranks, .init = tsr_init_params(.kind = (tsr_init)8)),
                         &layer),
          TSR_ERR_INVALID, "mlp: init 8 is not a tsr_init");
    FAILS(tsr_mlp_create(WITH(.hidden_size = ranks, .sequence = true, .sequence_dim = -1), &layer),
          TSR_ERR_INVALID, "mlp: sequence_dim is -1; dimensions count from 0");
#undef WITH
    CHECK(!layer, "something was made");
    OK(tsr_mlp_create(tsr_mlp_params(.input_size = 3, .hidden_size = ranks, .output_size = 3,
                                     .activate = refuse, .bias = true),
                      &layer));
    CHECK(tsr_layer_forward(layer, x, NULL, &y) == TSR_ERR_UNSUPPORTED, "what it returns is lost");
    tsr_layer_destroy(&layer);
    OK(tsr_mlp_create(tsr_mlp_params(.input_size = 3, .hidden_size = ranks, .output_size = 3,
                                     .activate = apply, .user = &relu, .bias = true),
                      &layer));
    tsr_layer_saved *saved = NULL;
    OK(tsr_layer_forward(layer, x, &saved, &y));
    FAILS(tsr_layer_backward(layer, saved, y, NULL), TSR_ERR_INVALID,
          "mlp: activate_grad is NULL; a backward pass needs it");
    tsr_layer_saved_destroy(&saved);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_layer_destroy(&layer);
}
