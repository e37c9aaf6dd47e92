/* Passes of row-parallel layers. From some features of x, each rank computes a contribution to all
 * features of y. The forward pass sums the contributions over the ranks and then adds the bias. The
 * backward pass sends nothing, unless dy is divided, or x was not divided. */
#include "parallel/layers/adapter.h"

#include "gpu/internal.h"

#include <string.h>

/* The input ---------------------------------------------------------------------------------- */

static tsr_status row_check_input(const tsr__row_linear *row, const tsr_tensor *x)
{
    const tsr__linear *linear = &row->linear;
    const tsr_layer *layer = &linear->base;
    TSR__TRY(tsr__layer_check_input(layer, "x", x));
    const tsr_layout *layout = tsr_tensor_layout(x);
    int64_t last = layout->shape[layout->ndim - 1];
    if (linear->input == TSR_LAYOUT_FULL)
        TSR__REQUIRE(last == linear->input_size,
                     "%s: x is %s; a full input has %lld as its last dimension", layer->who,
                     TSR__SHAPE_OF(x), (long long)linear->input_size);
    int64_t want = linear->input == TSR_LAYOUT_GATHER ? row->input_division.length
                                                      : row->weight_division.length;
    TSR__REQUIRE(linear->input == TSR_LAYOUT_FULL || last == want,
                 "%s: expected sharded input with last dimension %lld, but got %s; if the input is "
                 "not sharded, set input = TSR_LAYOUT_FULL",
                 layer->who, (long long)want, TSR__SHAPE_OF(x));
    return TSR_OK;
}

static bool gathers_input(const tsr__row_linear *row)
{
    return row->linear.input == TSR_LAYOUT_GATHER && !row->same_division;
}

/* Gathers x from all ranks. This is needed if this rank's shard of x does not have the features
 * that its columns of the weight multiply. */
static tsr_status gather_input(const tsr__row_linear *row, tsr__temps *temps, const tsr_tensor *x,
                               tsr_tensor **out)
{
    tsr_group *group = row->linear.base.group;
    TSR__TRY(
        tsr__temp_like(temps, x, tsr_tensor_layout(x)->dtype, -1, row->linear.input_size, out));
    return tsr_group_all_gather(
        group, *out, x, -1,
        tsr_collective_params(.wire = tsr__group_wire(group), .sizes = row->input_division.sizes),
        NULL);
}

/* Gets x2 [rows, length], the features of x that belong to this rank's columns of the weight. `x`
 * has been gathered if that is needed. */
static tsr_status local_features(const tsr__row_linear *row, tsr__temps *temps, const tsr_tensor *x,
                                 tsr_tensor **x2)
{
    TSR__TRY(tsr__temp_flatten(temps, x, x2));
    if (row->linear.input == TSR_LAYOUT_SHARDED || row->same_division)
        return TSR_OK;
    return tsr__temp_slice(temps, *x2, 1, row->weight_division.first, row->weight_division.length,
                           x2);
}

/* The output --------------------------------------------------------------------------------- */

/* The division of y among the ranks. */
typedef struct output_shards {
    int dim;              /* the divided dimension; -1: y is not divided */
    const int64_t *sizes; /* the sizes of all ranks' shards along `dim`; NULL: equal sizes */
    int64_t length;       /* the size of this rank's shard */
} output_shards;

/* Gets the division of y. `x` has all dimensions of y except the last. Fails if y cannot be divided
 * as the layer's output layout requires. */
static tsr_status divide_output(const tsr__row_linear *row, const tsr_tensor *x, output_shards *out)
{
    const tsr__linear *linear = &row->linear;
    const tsr_layer *layer = &linear->base;
    const tsr_layout *layout = tsr_tensor_layout(x);
    *out = (output_shards){.dim = -1, .length = linear->output_size};
    if (linear->output == TSR_LAYOUT_SEQUENCE)
        TSR__TRY(tsr__layer_has_sequence_dim(layer, linear->sequence_dim, layout));
    if (layer->size == 1 || linear->output == TSR_LAYOUT_FULL)
        return TSR_OK;
    if (linear->output == TSR_LAYOUT_SHARDED) {
        *out = (output_shards){layout->ndim - 1, row->output_division.sizes,
                               row->output_division.length};
        return TSR_OK;
    }
    const int dim = linear->sequence_dim;
    TSR__REQUIRE(layout->shape[dim] % layer->size == 0,
                 "%s: dimension %d of %s is not divisible by %d ranks", layer->who, dim,
                 TSR__SHAPE_OF(x), layer->size);
    *out = (output_shards){.dim = dim, .length = layout->shape[dim] / layer->size};
    return TSR_OK;
}

/* Forward ------------------------------------------------------------------------------------ */

/* What a forward pass computes: x, or act(x) · up if `up` is not NULL, times the weight, plus
 * `added` if that is not NULL. */
typedef struct row_operands {
    const tsr_tensor *x, *up;
    tsr_activation activation;
    const tsr_tensor *added;
    tsr_dtype dtype; /* of y; 0: that of x */
} row_operands;

/* Computes y from x2, this rank's features. */
static tsr_status multiply_reduced(tsr__row_linear *row, tsr__temps *temps, const row_operands *in,
                                   const tsr_tensor *x2, tsr_tensor **out)
{
    const tsr_tensor *x = in->x;
    tsr_tensor *up2 = NULL;
    if (in->up)
        TSR__TRY(local_features(row, temps, in->up, &up2));
    const tsr_layer *layer = &row->linear.base;
    tsr_layout whole = *tsr_tensor_layout(x);
    whole.shape[whole.ndim - 1] = row->linear.output_size;
    if (in->dtype)
        whole.dtype = in->dtype;
    output_shards shards;
    TSR__TRY(divide_output(row, x, &shards));
    tsr_layout y = whole;
    if (shards.dim >= 0)
        y.shape[shards.dim] = shards.length;
    TSR__TRY(tsr__temp_new(temps, whole.dtype, y.ndim, y.shape, out));
    const bool normed = tsr__layer_is_normed(layer); /* the factors come before `added` */
    TSR__REQUIRE(!normed || shards.dim != y.ndim - 1,
                 "%s: with magnitudes (DoRA), the ranks cannot divide the features of y",
                 layer->who);
    tsr_tensor *bias = row->linear.has_bias ? layer->parameter[1]->seen.tensor : NULL;
    if (bias && shards.dim == y.ndim - 1)
        TSR__TRY(tsr__temp_slice(temps, bias, 0, row->output_division.first, shards.length, &bias));
    const tsr__reduced_product product = {
        .x2 = x2,
        .up2 = up2,
        .activation = in->activation,
        .weight = layer->parameter[0]->seen.tensor,
        .bias = bias,
        .added = normed ? NULL : in->added,
        .y = *out,
        .whole = &whole,
        .dim = shards.dim,
        .sizes = shards.sizes,
    };
    TSR__TRY(tsr__product_reduced(row, temps, &product));
    if (!normed)
        return TSR_OK;
    tsr_tensor *y2;
    TSR__TRY(tsr__temp_flatten(temps, *out, &y2));
    TSR__TRY(tsr__adapter_norms_forward(&row->linear, temps, y2));
    return in->added ? tsr_axpy(layer->stream, *out, 1, in->added) : TSR_OK;
}

static tsr_status row_forward_with(tsr__row_linear *row, tsr__temps *temps, const row_operands *in,
                                   tsr_layer_saved *saved, tsr_tensor **y)
{
    const tsr_tensor *x = in->x;
    output_shards shards;
    TSR__TRY(row_check_input(row, x));
    /* Check that y can be divided before x is gathered. */
    TSR__TRY(divide_output(row, x, &shards));
    const tsr_tensor *full_x = x;
    tsr_tensor *gathered, *x2, *sum;
    if (gathers_input(row)) {
        TSR__TRY(gather_input(row, temps, x, &gathered));
        full_x = gathered;
        if (saved)
            TSR__TRY(tsr__keep(full_x, &saved->gathered_x));
    }
    TSR__TRY(local_features(row, temps, full_x, &x2));
    TSR__TRY(multiply_reduced(row, temps, in, x2, &sum));
    *y = tsr__temp_take(temps, sum);
    return TSR_OK;
}

tsr_status tsr__row_forward_added(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                  const tsr_tensor *added, tsr_layer_saved *saved, tsr_tensor **y)
{
    (void)cached;
    tsr__temps temps = {.stream = layer->stream};
    const row_operands in = {.x = x, .added = added};
    tsr_status status = row_forward_with((tsr__row_linear *)layer, &temps, &in, saved, y);
    tsr__temps_finish(&temps);
    return status;
}

/* A forward pass that no backward pass follows. */
static tsr_status row_infer(tsr_layer *layer, const row_operands *in, tsr_tensor **y)
{
    tsr__temps temps = {.stream = layer->stream};
    TSR__TRY(tsr__layer_check_forward(layer));
    tsr_status status = row_forward_with((tsr__row_linear *)layer, &temps, in, NULL, y);
    tsr__temps_finish(&temps);
    return status;
}

tsr_status tsr__row_forward_gated(tsr_layer *layer, const tsr_tensor *gate, const tsr_tensor *up,
                                  tsr_activation activation, const tsr_tensor *added,
                                  tsr_tensor **y)
{
    return row_infer(
        layer, &(row_operands){.x = gate, .up = up, .activation = activation, .added = added}, y);
}

tsr_status tsr__row_forward_as(tsr_layer *layer, const tsr_tensor *x, tsr_dtype dtype,
                               const tsr_tensor *added, tsr_tensor **y)
{
    return row_infer(layer, &(row_operands){.x = x, .dtype = dtype, .added = added}, y);
}

tsr_status tsr__row_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                            tsr_tensor **y)
{
    return tsr__row_forward_added(layer, x, NULL, NULL, saved, y);
}

/* Backward ----------------------------------------------------------------------------------- */

typedef struct backward_pass {
    tsr__row_linear *row;
    tsr__temps *temps;
    const tsr_tensor *x;      /* the x that was passed to the forward pass */
    const tsr_tensor *full_x; /* the same, gathered if that is needed */
    const tsr_tensor *factor; /* see tsr__row_backward_times in linear.h; or NULL */
    tsr_request *gathering;
} backward_pass;

/* Gets dy2 [rows, output_size] of the full dy. If dy is divided, gathers dy from all ranks. */
static tsr_status whole_gradient(backward_pass *pass, const tsr_tensor *dy, tsr_tensor **dy2)
{
    const tsr__linear *linear = &pass->row->linear;
    output_shards shards;
    TSR__TRY(divide_output(pass->row, pass->x, &shards));
    tsr_layout whole = *tsr_tensor_layout(pass->x), local;
    whole.shape[whole.ndim - 1] = linear->output_size;
    local = whole;
    if (shards.dim >= 0)
        local.shape[shards.dim] = shards.length;
    TSR__REQUIRE(tsr__layout_same_shape(&local, tsr_tensor_layout(dy)), "%s: dy is %s; y was %s",
                 linear->base.who, TSR__SHAPE_OF(dy), TSR__SHAPE(local.ndim, local.shape));
    if (shards.dim < 0)
        return tsr__temp_flatten(pass->temps, dy, dy2);
    tsr_tensor *gathered;
    TSR__TRY(tsr__temp_new(pass->temps, tsr_tensor_layout(dy)->dtype, whole.ndim, whole.shape,
                           &gathered));
    TSR__TRY(tsr_group_all_gather(
        linear->base.group, gathered, dy, shards.dim,
        tsr_collective_params(.wire = tsr__group_wire(linear->base.group), .sizes = shards.sizes),
        NULL));
    return tsr__temp_flatten(pass->temps, gathered, dy2);
}

static tsr_status add_parameter_grads(tsr__row_linear *row, const tsr_tensor *dy2,
                                      const tsr_tensor *x2)
{
    tsr_layer *layer = &row->linear.base;
    return tsr__parameter_add_linear_grads(layer, 0, row->linear.has_bias ? 1 : -1, dy2, x2);
}

/* The backward pass of the layer's adapters. dx2 may be NULL. */
static tsr_status adapters_backward(backward_pass *pass, const tsr_tensor *dy2, tsr_tensor *dx2)
{
    tsr_tensor *x2;
    TSR__TRY(local_features(pass->row, pass->temps, pass->full_x, &x2));
    return tsr__adapters_backward(&pass->row->linear, pass->temps, dy2, x2, dx2);
}

/* dx2 = the gradient of x through weight and adapters, multiplied by pass->factor. */
static tsr_status row_multiply_back(backward_pass *pass, tsr_tensor *dx2, const tsr_tensor *dy2)
{
    const tsr__linear *linear = &pass->row->linear;
    tsr_stream *stream = linear->base.stream;
    const tsr_tensor *weight;
    tsr_tensor *factor2 = NULL;
    bool recorded = false;
    const bool adapted = tsr__layer_is_adapted(&linear->base);
    TSR__TRY(
        tsr__weight_floats(linear, pass->temps, linear->base.parameter[0]->seen.tensor, &weight));
    if (pass->factor)
        TSR__TRY(tsr__temp_flatten(pass->temps, pass->factor, &factor2));
    if (pass->factor && !adapted) {
        TSR__TRY(tsr__matmul_times(stream, dx2, dy2, weight, factor2, &recorded));
    }
    if (recorded)
        return TSR_OK;
    TSR__TRY(tsr_matmul(stream, dx2, dy2, weight, NULL));
    if (adapted)
        TSR__TRY(adapters_backward(pass, dy2, dx2));
    return factor2 ? tsr_binary(stream, dx2, dx2, factor2, TSR_BINARY_MUL) : TSR_OK;
}

/* Computes the gradient of the features of x that belong to this rank. If x has the features of
 * other ranks too, starts to gather their gradients from those ranks. */
static tsr_status input_gradient(backward_pass *pass, const tsr_tensor *dy2, tsr_tensor **dx)
{
    const tsr__row_linear *row = pass->row;
    const tsr_layer *layer = &row->linear.base;
    const tsr_dtype dtype = tsr_tensor_layout(pass->x)->dtype;
    tsr_tensor *local, *local2;
    TSR__TRY(tsr__temp_like(pass->temps, pass->x, dtype, -1, row->weight_division.length, &local));
    TSR__TRY(tsr__temp_flatten(pass->temps, local, &local2));
    TSR__TRY(row_multiply_back(pass, local2, dy2));
    *dx = local;
    if (layer->size == 1 || row->linear.input == TSR_LAYOUT_SHARDED || row->same_division)
        return TSR_OK;
    TSR__TRY(tsr__temp_like(pass->temps, pass->x, dtype, -1, row->linear.input_size, dx));
    return tsr_group_all_gather(layer->group, *dx, local, -1,
                                tsr_collective_params(.wire = tsr__group_wire(layer->group),
                                                      .sizes = row->weight_division.sizes),
                                &pass->gathering);
}

static tsr_status run_backward(backward_pass *pass, const tsr_layer_saved *saved,
                               const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr__row_linear *row = pass->row;
    tsr_layer *layer = &row->linear.base;
    tsr_tensor *dy2, *x2, *result = NULL;
    TSR__TRY(whole_gradient(pass, dy, &dy2));
    pass->full_x = saved->gathered_x ? saved->gathered_x : saved->x;
    if (tsr__layer_is_normed(layer)) {
        TSR__TRY(local_features(row, pass->temps, pass->full_x, &x2));
        TSR__TRY(tsr__adapter_norms_backward(&row->linear, pass->temps, x2, &dy2));
    }
    if (dx)
        TSR__TRY(input_gradient(pass, dy2, &result));
    else if (tsr__layer_is_adapted(layer))
        TSR__TRY(adapters_backward(pass, dy2, NULL));
    if (!layer->frozen) {
        TSR__TRY(local_features(row, pass->temps, pass->full_x, &x2));
        TSR__TRY(add_parameter_grads(row, dy2, x2));
    }
    if (!dx)
        return TSR_OK;
    if (pass->gathering)
        TSR__TRY(tsr_stream_submit(layer->stream));
    TSR__TRY(tsr_request_wait(&pass->gathering));
    if (gathers_input(row)) {
        const tsr__division *own = &row->input_division;
        tsr_tensor *view, *copy;
        TSR__TRY(tsr__temp_slice(pass->temps, result, -1, own->first, own->length, &view));
        TSR__TRY(tsr__temp_like(pass->temps, view, tsr_tensor_layout(view)->dtype, -1, own->length,
                                &copy));
        TSR__TRY(tsr_copy(layer->stream, copy, view));
        result = copy;
    }
    *dx = tsr__temp_take(pass->temps, result);
    return TSR_OK;
}

static tsr_status row_backward_with(tsr_layer *layer, const tsr_layer_saved *saved,
                                    const tsr_tensor *dy, const tsr_tensor *factor, tsr_tensor **dx)
{
    tsr__temps temps = {.stream = layer->stream};
    backward_pass pass = {
        .row = (tsr__row_linear *)layer, .temps = &temps, .x = saved->x, .factor = factor};
    tsr_status status = run_backward(&pass, saved, dy, dx);
    tsr_request_cancel(&pass.gathering);
    tsr__temps_finish(&temps);
    return status;
}

tsr_status tsr__row_backward(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                             tsr_tensor **dx)
{
    return row_backward_with(layer, saved, dy, NULL, dx);
}

tsr_status tsr__row_backward_times(tsr_layer *layer, const tsr_layer_saved *saved,
                                   const tsr_tensor *dy, const tsr_tensor *factor, tsr_tensor **dx)
{
    TSR__TRY(tsr__layer_check_input(layer, "dy", dy));
    TSR__TRY(tsr__layer_check_backward(layer, true, saved->x, dy));
    return row_backward_with(layer, saved, dy, factor, dx);
}
