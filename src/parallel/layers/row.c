/* Passes of row-parallel layers. From some features of x, each rank computes a contribution to all
 * features of y. The forward pass sums the contributions over the ranks and then adds the bias. The
 * backward pass sends nothing, unless dy is divided, or x was not divided. */
#include "parallel/layers/linear.h"

#include "gpu/matmul/activated.h"

#include <string.h>

/* The input ---------------------------------------------------------------------------------- */

static tsr_status check_input(const tsr__linear *linear, const tsr_tensor *x)
{
    const tsr_layer *layer = &linear->base;
    TSR__TRY(tsr__layer_check_input(layer, "x", x));
    const tsr_layout *layout = tsr_tensor_layout(x);
    int64_t last = layout->shape[layout->ndim - 1];
    if (linear->input == TSR_LAYOUT_FULL)
        TSR__REQUIRE(last == linear->input_size,
                     "%s: x is %s; a full input has %lld as its last dimension", layer->who,
                     TSR__SHAPE_OF(x), (long long)linear->input_size);
    int64_t want =
        linear->input == TSR_LAYOUT_GATHER ? linear->other_sizes[layer->rank] : linear->length;
    TSR__REQUIRE(linear->input == TSR_LAYOUT_FULL || last == want,
                 "%s: expected sharded input with last dimension %lld, but got %s; if the input is "
                 "not sharded, set input = TSR_LAYOUT_FULL",
                 layer->who, (long long)want, TSR__SHAPE_OF(x));
    return TSR_OK;
}

static bool gathers(const tsr__linear *linear)
{
    return linear->input == TSR_LAYOUT_GATHER && !linear->same_split;
}

/* Gathers x from all ranks. This is needed if this rank's part of x does not have the features that
 * its columns of the weight multiply. */
static tsr_status gather(const tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x,
                         tsr_tensor **out)
{
    TSR__TRY(tsr__temp_like(temps, x, tsr_tensor_layout(x)->dtype, -1, linear->input_size, out));
    return tsr_group_all_gather_wire(linear->base.group, *out, x, -1, linear->other_sizes,
                                     tsr_group_wire(linear->base.group));
}

/* Gets x2 [rows, length], the features of x that belong to this rank's columns of the weight. */
static tsr_status own_features(const tsr__linear *linear, tsr__temps *temps,
                               const tsr_tensor *ready, tsr_tensor **x2)
{
    TSR__TRY(tsr__temp_flatten(temps, ready, x2));
    if (linear->input == TSR_LAYOUT_SHARDED || linear->same_split)
        return TSR_OK;
    return tsr__temp_slice(temps, *x2, 1, linear->first, linear->length, x2);
}

/* The output --------------------------------------------------------------------------------- */

/* Gets the dimension along which y is divided (-1: y is not divided), the sizes of all ranks along
 * it, and this rank's size. */
static tsr_status divided_along(const tsr__linear *linear, const tsr_tensor *whole_like, int *dim,
                                const int64_t **sizes, int64_t *mine)
{
    const tsr_layer *layer = &linear->base;
    const tsr_layout *layout = tsr_tensor_layout(whole_like);
    *dim = -1;
    *sizes = NULL;
    *mine = linear->output_size;
    if (linear->output == TSR_LAYOUT_SEQUENCE)
        TSR__TRY(tsr__layer_has_sequence_dim(layer, linear->sequence_dim, layout));
    if (layer->size == 1 || linear->output == TSR_LAYOUT_FULL)
        return TSR_OK;
    if (linear->output == TSR_LAYOUT_SHARDED) {
        *dim = layout->ndim - 1;
        *sizes = linear->other_sizes;
        *mine = linear->other_sizes[layer->rank];
        return TSR_OK;
    }
    *dim = linear->sequence_dim;
    TSR__REQUIRE(layout->shape[*dim] % layer->size == 0,
                 "%s: dimension %d of %s is not divisible by %d ranks", layer->who, *dim,
                 TSR__SHAPE_OF(whole_like), layer->size);
    *mine = layout->shape[*dim] / layer->size;
    return TSR_OK;
}

/* Checks that y can be divided as the layer's output layout requires. This is done before x is
 * gathered. */
static tsr_status check_output(const tsr__linear *linear, const tsr_tensor *x)
{
    int dim;
    const int64_t *sizes;
    int64_t mine;
    return divided_along(linear, x, &dim, &sizes, &mine);
}

/* Forward ------------------------------------------------------------------------------------ */

static tsr_status sum_up(tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x,
                         const tsr_tensor *x2, const tsr_tensor *added, tsr_tensor **out)
{
    tsr_layer *layer = &linear->base;
    tsr_layout whole = *tsr_tensor_layout(x);
    whole.shape[whole.ndim - 1] = linear->output_size;
    tsr__product product = {
        .x2 = x2, .weight = layer->parameter[0].seen.tensor, .added = added, .whole = &whole};
    int64_t mine;
    TSR__TRY(divided_along(linear, x, &product.dim, &product.sizes, &mine));
    tsr_layout y = whole;
    if (product.dim >= 0)
        y.shape[product.dim] = mine;
    TSR__TRY(tsr__temp_new(temps, whole.dtype, y.ndim, y.shape, out));
    product.y = *out;
    tsr_tensor *bias = linear->has_bias ? layer->parameter[1].seen.tensor : NULL;
    if (bias && product.dim == y.ndim - 1)
        TSR__TRY(tsr__temp_slice(temps, bias, 0, linear->other_first, mine, &bias));
    product.bias = bias;
    return tsr__product_reduced(linear, temps, &product);
}

static tsr_status forward_with(tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x,
                               const tsr_tensor *added, tsr_layer_saved *saved, tsr_tensor **y)
{
    TSR__TRY(check_input(linear, x));
    TSR__TRY(check_output(linear, x));
    const tsr_tensor *ready = x;
    tsr_tensor *all, *x2, *sum;
    if (gathers(linear)) {
        TSR__TRY(gather(linear, temps, x, &all));
        ready = all;
        if (saved)
            TSR__TRY(tsr__keep(ready, &saved->ready));
    }
    TSR__TRY(own_features(linear, temps, ready, &x2));
    TSR__TRY(sum_up(linear, temps, x, x2, added, &sum));
    *y = tsr__temp_take(temps, sum);
    return TSR_OK;
}

tsr_status tsr__row_forward_added(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                  const tsr_tensor *added, tsr_layer_saved *saved, tsr_tensor **y)
{
    (void)cached;
    tsr__temps temps = {.stream = layer->stream};
    tsr_status status = forward_with((tsr__linear *)layer, &temps, x, added, saved, y);
    tsr__temps_finish(&temps);
    return status;
}

tsr_status tsr__row_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                            tsr_tensor **y)
{
    return tsr__row_forward_added(layer, x, NULL, NULL, saved, y);
}

/* Backward ----------------------------------------------------------------------------------- */

typedef struct back {
    tsr__linear *linear;
    tsr__temps *temps;
    const tsr_tensor *x;      /* the x that was passed to the forward pass */
    const tsr_tensor *factor; /* see tsr__row_backward_times; or NULL */
    tsr_group_request *gathering;
} back;

/* Gets dy2 [rows, output_size] of the full dy. If dy is divided, gathers it from all ranks. */
static tsr_status whole_gradient(back *pass, const tsr_tensor *dy, tsr_tensor **dy2)
{
    const tsr__linear *linear = pass->linear;
    int dim;
    const int64_t *sizes;
    int64_t mine;
    TSR__TRY(divided_along(linear, pass->x, &dim, &sizes, &mine));
    tsr_layout whole = *tsr_tensor_layout(pass->x), part;
    whole.shape[whole.ndim - 1] = linear->output_size;
    part = whole;
    if (dim >= 0)
        part.shape[dim] = mine;
    TSR__REQUIRE(tsr_layout_same_shape(&part, tsr_tensor_layout(dy)), "%s: dy is %s; y was %s",
                 linear->base.who, TSR__SHAPE_OF(dy), TSR__SHAPE(part.ndim, part.shape));
    if (dim < 0)
        return tsr__temp_flatten(pass->temps, dy, dy2);
    tsr_tensor *gathered;
    TSR__TRY(tsr__temp_new(pass->temps, tsr_tensor_layout(dy)->dtype, whole.ndim, whole.shape,
                           &gathered));
    TSR__TRY(tsr_group_all_gather_wire(linear->base.group, gathered, dy, dim, sizes,
                                       tsr_group_wire(linear->base.group)));
    return tsr__temp_flatten(pass->temps, gathered, dy2);
}

static tsr_status add_weight_grads(tsr__linear *linear, const tsr_tensor *dy2, const tsr_tensor *x2)
{
    TSR__TRY(tsr__parameter_add_weight_grad(&linear->base, 0, dy2, x2));
    return linear->has_bias ? tsr__parameter_add_bias_grad(&linear->base, 1, dy2) : TSR_OK;
}

/* dx2 = dy2 · weight, multiplied by pass->factor. */
static tsr_status multiply_back(back *pass, tsr_tensor *dx2, const tsr_tensor *dy2)
{
    const tsr_layer *layer = &pass->linear->base;
    const tsr_tensor *weight;
    tsr_tensor *factor2 = NULL;
    bool recorded = false;
    TSR__TRY(
        tsr__weight_floats(pass->linear, pass->temps, layer->parameter[0].seen.tensor, &weight));
    if (pass->factor) {
        TSR__TRY(tsr__temp_flatten(pass->temps, pass->factor, &factor2));
        TSR__TRY(tsr__matmul_times(layer->stream, dx2, dy2, weight, factor2, &recorded));
    }
    if (recorded)
        return TSR_OK;
    TSR__TRY(tsr_matmul(layer->stream, dx2, dy2, weight, NULL));
    return factor2 ? tsr_mul(layer->stream, dx2, dx2, factor2) : TSR_OK;
}

/* Computes the gradient of the features of x that belong to this rank. If x has the features of
 * other ranks too, starts to gather their gradients from those ranks. */
static tsr_status input_gradient(back *pass, const tsr_tensor *dy2, tsr_tensor **dx)
{
    const tsr__linear *linear = pass->linear;
    const tsr_layer *layer = &linear->base;
    const tsr_dtype dtype = tsr_tensor_layout(pass->x)->dtype;
    tsr_tensor *local, *local2;
    TSR__TRY(tsr__temp_like(pass->temps, pass->x, dtype, -1, linear->length, &local));
    TSR__TRY(tsr__temp_flatten(pass->temps, local, &local2));
    TSR__TRY(multiply_back(pass, local2, dy2));
    *dx = local;
    if (layer->size == 1 || linear->input == TSR_LAYOUT_SHARDED || linear->same_split)
        return TSR_OK;
    TSR__TRY(tsr__temp_like(pass->temps, pass->x, dtype, -1, linear->input_size, dx));
    return tsr_group_all_gather_wire_start(layer->group, *dx, local, -1, linear->sizes,
                                           tsr_group_wire(layer->group), &pass->gathering);
}

static tsr_status run_back(back *pass, const tsr_layer_saved *saved, const tsr_tensor *dy,
                           tsr_tensor **dx)
{
    tsr__linear *linear = pass->linear;
    tsr_tensor *dy2, *x2, *result = NULL;
    TSR__TRY(whole_gradient(pass, dy, &dy2));
    if (dx)
        TSR__TRY(input_gradient(pass, dy2, &result));
    if (!linear->base.frozen) {
        TSR__TRY(own_features(linear, pass->temps, saved->ready ? saved->ready : saved->x, &x2));
        TSR__TRY(add_weight_grads(linear, dy2, x2));
    }
    if (!dx)
        return TSR_OK;
    if (pass->gathering)
        TSR__TRY(tsr_stream_submit(linear->base.stream));
    TSR__TRY(tsr_group_wait(&pass->gathering));
    if (gathers(linear)) {
        tsr_tensor *mine, *part;
        TSR__TRY(tsr__temp_slice(pass->temps, result, -1, linear->other_first,
                                 linear->other_sizes[linear->base.rank], &part));
        TSR__TRY(tsr__temp_like(pass->temps, part, tsr_tensor_layout(part)->dtype, -1,
                                linear->other_sizes[linear->base.rank], &mine));
        TSR__TRY(tsr_copy(linear->base.stream, mine, part));
        result = mine;
    }
    *dx = tsr__temp_take(pass->temps, result);
    return TSR_OK;
}

static tsr_status backward_with(tsr_layer *layer, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, const tsr_tensor *factor, tsr_tensor **dx)
{
    tsr__temps temps = {.stream = layer->stream};
    back pass = {.linear = (tsr__linear *)layer, .temps = &temps, .x = saved->x, .factor = factor};
    tsr_status status = run_back(&pass, saved, dy, dx);
    tsr_group_cancel(&pass.gathering);
    tsr__temps_finish(&temps);
    return status;
}

tsr_status tsr__row_backward(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                             tsr_tensor **dx)
{
    return backward_with(layer, saved, dy, NULL, dx);
}

tsr_status tsr__row_backward_times(tsr_layer *layer, const tsr_layer_saved *saved,
                                   const tsr_tensor *dy, const tsr_tensor *factor, tsr_tensor **dx)
{
    TSR__TRY(tsr__layer_check_input(layer, "dy", dy));
    TSR__TRY(tsr__layer_check_backward(layer, true, saved->x, dy));
    return backward_with(layer, saved, dy, factor, dx);
}
