/* Passes of column-parallel layers. Each rank computes some features of y from all features of x.
 * The forward pass sends nothing, unless it gathers x or y. The backward pass sums the gradients of
 * x over the ranks while the device computes the gradient of the weight. */
#include "parallel/layers/linear.h"

#include "gpu/matmul/activated.h"
#include "gpu/matmul/gated.h"

/* The input ---------------------------------------------------------------------------------- */

static tsr_status check_input(const tsr__linear *linear, const tsr_tensor *x)
{
    const tsr_layer *layer = &linear->base;
    TSR__TRY(tsr__layer_check_input(layer, "x", x));
    const tsr_layout *layout = tsr_tensor_layout(x);
    int64_t last = layout->shape[layout->ndim - 1], want = linear->input_size;
    if (linear->input == TSR_LAYOUT_GATHER)
        want = linear->other_sizes[layer->rank];
    TSR__REQUIRE(last == want, "%s: x is %s; its last dimension must be %lld", layer->who,
                 TSR__SHAPE_OF(x), (long long)want);
    return linear->input == TSR_LAYOUT_SEQUENCE
               ? tsr__layer_has_sequence_dim(layer, linear->sequence_dim, layout)
               : TSR_OK;
}

static bool gathers(const tsr__linear *linear)
{
    return linear->base.size > 1 && linear->input != TSR_LAYOUT_FULL;
}

/* Gets the dimension along which x is divided, and the sizes of all ranks' parts along it. */
static void divided_along(const tsr__linear *linear, const tsr_tensor *x, int *dim,
                          const int64_t **sizes)
{
    bool gathered = linear->input == TSR_LAYOUT_GATHER;
    *sizes = gathered ? linear->other_sizes : NULL;
    *dim = gathered ? tsr_tensor_layout(x)->ndim - 1 : linear->sequence_dim;
}

/* Starts to gather x from all ranks. */
static tsr_status gather_start(const tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x,
                               tsr_tensor **out, tsr_group_request **request)
{
    int dim;
    const int64_t *sizes;
    divided_along(linear, x, &dim, &sizes);
    int64_t size =
        sizes ? linear->input_size : tsr_tensor_layout(x)->shape[dim] * (int64_t)linear->base.size;
    TSR__TRY(tsr__temp_like(temps, x, tsr_tensor_layout(x)->dtype, dim, size, out));
    tsr_group *group = linear->base.group;
    return tsr_group_all_gather_wire_start(group, *out, x, dim, sizes, tsr_group_wire(group),
                                           request);
}

static tsr_status gather(const tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x,
                         tsr_tensor **out)
{
    tsr_group_request *request = NULL;
    TSR__TRY(gather_start(linear, temps, x, out, &request));
    return tsr_group_wait(&request);
}

/* Forward ------------------------------------------------------------------------------------ */

static tsr_status multiply(tsr__linear *linear, tsr__temps *temps, tsr_tensor *y,
                           const tsr_tensor *ready, tsr_activation activation)
{
    tsr__block blocks[TSR__MAX_LINEAR_PARTS];
    int count;
    tsr_tensor *x2, *y2;
    TSR__TRY(tsr__column_blocks(linear, temps, blocks, &count));
    TSR__TRY(tsr__temp_flatten(temps, ready, &x2));
    TSR__TRY(tsr__temp_flatten(temps, y, &y2));
    for (int i = 0; i < count; i++) {
        tsr_tensor *part;
        TSR__TRY(tsr__temp_slice(temps, y2, 1, blocks[i].first, blocks[i].count, &part));
        TSR__TRY(tsr_matmul(
            linear->base.stream, part, x2, blocks[i].weight,
            tsr_matmul_params(.transpose_b = true, .bias = blocks[i].bias, .activation = activation,
                              .allow_int8 = tsr_group_allows_int8(linear->base.group))));
    }
    return TSR_OK;
}

static tsr_status forward_with(tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x,
                               tsr_activation activation, tsr_layer_saved *saved, tsr_tensor **y)
{
    TSR__TRY(check_input(linear, x));
    const tsr_tensor *ready = x;
    tsr_tensor *all, *local, *whole;
    if (gathers(linear)) {
        TSR__TRY(gather(linear, temps, x, &all));
        ready = all;
    }
    TSR__TRY(
        tsr__temp_like(temps, ready, tsr_tensor_layout(x)->dtype, -1, linear->features, &local));
    TSR__TRY(multiply(linear, temps, local, ready, activation));
    /* A gathered sequence is not kept. The backward pass gathers it again, because the sequence is
     * divided in order to save this memory. */
    if (saved && gathers(linear) && linear->input == TSR_LAYOUT_GATHER && !linear->base.frozen)
        TSR__TRY(tsr__keep(ready, &saved->ready));
    if (linear->output == TSR_LAYOUT_FULL && linear->base.size > 1) {
        TSR__TRY(tsr__temp_like(temps, ready, tsr_tensor_layout(x)->dtype, -1, linear->output_size,
                                &whole));
        TSR__TRY(tsr_group_all_gather_wire(linear->base.group, whole, local, -1, linear->sizes,
                                           tsr_group_wire(linear->base.group)));
        local = whole;
    }
    *y = tsr__temp_take(temps, local);
    return TSR_OK;
}

tsr_status tsr__column_forward_activated(tsr_layer *layer, const tsr_tensor *x,
                                         tsr_activation activation, tsr_layer_saved *saved,
                                         tsr_tensor **y)
{
    tsr__temps temps = {.stream = layer->stream};
    tsr_status status = forward_with((tsr__linear *)layer, &temps, x, activation, saved, y);
    tsr__temps_finish(&temps);
    return status;
}

tsr_status tsr__column_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                               tsr_tensor **y)
{
    return tsr__column_forward_activated(layer, x, TSR_ACT_NONE, saved, y);
}

/* Computes y = act(gate) · up. Sets *y to NULL if no kernel does that in one product. */
static tsr_status forward_gated(tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x,
                                tsr_activation activation, tsr_tensor **y)
{
    tsr__block blocks[TSR__MAX_LINEAR_PARTS];
    tsr_tensor *local, *x2, *y2;
    bool recorded = false;
    int count;
    *y = NULL;
    TSR__TRY(check_input(linear, x));
    TSR__TRY(tsr__column_blocks(linear, temps, blocks, &count));
    if (linear->parts != 2 || count != 1 || gathers(linear) ||
        (linear->output == TSR_LAYOUT_FULL && linear->base.size > 1))
        return TSR_OK;
    TSR__TRY(
        tsr__temp_like(temps, x, tsr_tensor_layout(x)->dtype, -1, linear->features / 2, &local));
    TSR__TRY(tsr__temp_flatten(temps, x, &x2));
    TSR__TRY(tsr__temp_flatten(temps, local, &y2));
    TSR__TRY(tsr__matmul_gated(linear->base.stream, y2, x2, blocks[0].weight, blocks[0].bias,
                               activation, tsr_group_allows_int8(linear->base.group), &recorded));
    if (recorded)
        *y = tsr__temp_take(temps, local);
    return TSR_OK;
}

tsr_status tsr__column_forward_gated(tsr_layer *layer, const tsr_tensor *x,
                                     tsr_activation activation, tsr_tensor **y)
{
    tsr__temps temps = {.stream = layer->stream};
    tsr_status status = forward_gated((tsr__linear *)layer, &temps, x, activation, y);
    tsr__temps_finish(&temps);
    return status;
}

/* Computes y and *slope, the derivative of the activation. Sets *y to NULL if no kernel computes
 * both in one product. */
static tsr_status forward_sloped(tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x,
                                 tsr_activation activation, tsr_tensor **slope, tsr_tensor **y)
{
    tsr__block blocks[TSR__MAX_LINEAR_PARTS];
    tsr_tensor *local, *other, *x2, *y2, *slope2;
    bool recorded = false;
    int count;
    *slope = *y = NULL;
    TSR__TRY(check_input(linear, x));
    TSR__TRY(tsr__column_blocks(linear, temps, blocks, &count));
    if (count != 1 || gathers(linear) ||
        (linear->output == TSR_LAYOUT_FULL && linear->base.size > 1))
        return TSR_OK;
    const tsr_dtype dtype = tsr_tensor_layout(x)->dtype;
    if (dtype != TSR_F32 || !tsr__matmul_may_fuse(linear->base.stream))
        return TSR_OK;
    TSR__TRY(tsr__temp_like(temps, x, dtype, -1, linear->features, &local));
    TSR__TRY(tsr__temp_like(temps, x, dtype, -1, linear->features, &other));
    TSR__TRY(tsr__temp_flatten(temps, x, &x2));
    TSR__TRY(tsr__temp_flatten(temps, local, &y2));
    TSR__TRY(tsr__temp_flatten(temps, other, &slope2));
    TSR__TRY(tsr__matmul_with_slope(linear->base.stream, y2, slope2, x2, blocks[0].weight,
                                    blocks[0].bias, activation, &recorded));
    if (recorded) {
        *slope = tsr__temp_take(temps, other);
        *y = tsr__temp_take(temps, local);
    }
    return TSR_OK;
}

tsr_status tsr__column_forward_sloped(tsr_layer *layer, const tsr_tensor *x,
                                      tsr_activation activation, tsr_layer_saved **saved,
                                      tsr_tensor **slope, tsr_tensor **y)
{
    tsr__temps temps = {.stream = layer->stream};
    tsr_status status = forward_sloped((tsr__linear *)layer, &temps, x, activation, slope, y);
    tsr__temps_finish(&temps);
    if (status == TSR_OK && *y)
        status = tsr__layer_saved_new(layer, x, saved);
    if (status != TSR_OK) {
        tsr_tensor_destroy(slope);
        tsr_tensor_destroy(y);
    }
    return status;
}

/* Backward ----------------------------------------------------------------------------------- */

/* Checks that dy has the shape of y. */
static tsr_status check_gradient(const tsr__linear *linear, const tsr_tensor *x,
                                 const tsr_tensor *dy)
{
    const tsr_layer *layer = &linear->base;
    tsr_layout want = *tsr_tensor_layout(x);
    want.shape[want.ndim - 1] =
        linear->output == TSR_LAYOUT_FULL ? linear->output_size : linear->features;
    if (linear->input == TSR_LAYOUT_SEQUENCE)
        want.shape[linear->sequence_dim] *= layer->size;
    TSR__REQUIRE(tsr_layout_same_shape(&want, tsr_tensor_layout(dy)), "%s: dy is %s; y was %s",
                 layer->who, TSR__SHAPE_OF(dy), TSR__SHAPE(want.ndim, want.shape));
    return TSR_OK;
}

/* Computes this rank's contribution to the gradient of the full input. The contributions of all
 * ranks must be summed. */
static tsr_status multiply_back(tsr__linear *linear, tsr__temps *temps, const tsr_tensor *dy2,
                                tsr_tensor *dx2)
{
    tsr__block blocks[TSR__MAX_LINEAR_PARTS];
    int count;
    TSR__TRY(tsr__column_blocks(linear, temps, blocks, &count));
    for (int i = 0; i < count; i++) {
        const tsr_tensor *weight;
        tsr_tensor *part;
        TSR__TRY(tsr__weight_floats(linear, temps, blocks[i].weight, &weight));
        TSR__TRY(tsr__temp_slice(temps, dy2, 1, blocks[i].first, blocks[i].count, &part));
        TSR__TRY(tsr_matmul(linear->base.stream, dx2, part, weight,
                            tsr_matmul_params(.accumulate = i > 0)));
    }
    return TSR_OK;
}

typedef struct back {
    tsr__linear *linear;
    tsr__temps *temps;
    const tsr_layer_saved *saved;
    tsr_tensor *ready; /* x, gathered from all ranks */
    tsr_tensor *partial, *dx;
    tsr_group_request *gathering, *reducing;
} back;

/* Creates the tensor of this rank's contribution to the gradient of the full input. */
static tsr_status new_partial(back *pass, tsr_dtype dtype)
{
    const tsr__linear *linear = pass->linear;
    tsr_layout whole = *tsr_tensor_layout(pass->saved->x);
    if (linear->input == TSR_LAYOUT_SEQUENCE)
        whole.shape[linear->sequence_dim] *= linear->base.size;
    whole.shape[whole.ndim - 1] = linear->input_size;
    return tsr__temp_new(pass->temps, dtype, whole.ndim, whole.shape, &pass->partial);
}

/* Computes this rank's contribution to the gradient of x, and starts to sum the contributions of
 * all ranks. */
static tsr_status start_reducing(back *pass, const tsr_tensor *dy2)
{
    tsr__linear *linear = pass->linear;
    const tsr_tensor *x = pass->saved->x;
    const tsr_dtype dtype = tsr_tensor_layout(x)->dtype;
    const bool alone = linear->base.size == 1;
    const tsr_dtype sums = linear->reduce_f32 && !alone ? TSR_F32 : dtype;
    tsr_group *group = linear->base.group;
    tsr_tensor *dx2;
    TSR__TRY(new_partial(pass, sums));
    TSR__TRY(tsr__temp_flatten(pass->temps, pass->partial, &dx2));
    TSR__TRY(multiply_back(linear, pass->temps, dy2, dx2));
    pass->dx = pass->partial;
    if (alone)
        return TSR_OK;
    if (linear->input == TSR_LAYOUT_FULL)
        return tsr_group_all_reduce_wire_start(group, pass->partial, tsr_group_wire(group),
                                               &pass->reducing);
    int dim;
    const int64_t *sizes;
    divided_along(linear, x, &dim, &sizes);
    TSR__TRY(
        tsr__temp_like(pass->temps, x, sums, dim, tsr_tensor_layout(x)->shape[dim], &pass->dx));
    return tsr_group_reduce_scatter_wire_start(group, pass->dx, pass->partial, dim, sizes,
                                               tsr_group_wire(group), &pass->reducing);
}

static tsr_status run_back(back *pass, const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr__linear *linear = pass->linear;
    const tsr_tensor *x = pass->saved->x;
    TSR__TRY(check_gradient(linear, x, dy));
    pass->ready = pass->saved->ready ? pass->saved->ready : pass->saved->x;
    if (gathers(linear) && !pass->saved->ready && !linear->base.frozen)
        TSR__TRY(gather_start(linear, pass->temps, x, &pass->ready, &pass->gathering));

    tsr_tensor *dy2, *x2;
    TSR__TRY(tsr__temp_flatten(pass->temps, dy, &dy2));
    if (linear->output == TSR_LAYOUT_FULL)
        TSR__TRY(tsr__temp_slice(pass->temps, dy2, 1, linear->first, linear->length, &dy2));
    if (dx)
        TSR__TRY(start_reducing(pass, dy2));
    TSR__TRY(tsr_group_wait(&pass->gathering));
    if (!linear->base.frozen) {
        TSR__TRY(tsr__temp_flatten(pass->temps, pass->ready, &x2));
        TSR__TRY(tsr__column_add_grads(linear, pass->temps, dy2, x2));
    }
    if (!dx)
        return TSR_OK;
    if (pass->reducing)
        TSR__TRY(tsr_stream_submit(linear->base.stream));
    TSR__TRY(tsr_group_wait(&pass->reducing));
    const tsr_dtype dtype = tsr_tensor_layout(x)->dtype;
    tsr_tensor *result = pass->dx;
    if (tsr_tensor_layout(result)->dtype != dtype) {
        TSR__TRY(tsr__temp_like(pass->temps, result, dtype, 0, tsr_tensor_layout(result)->shape[0],
                                &result));
        TSR__TRY(tsr_copy(linear->base.stream, result, pass->dx));
    }
    *dx = tsr__temp_take(pass->temps, result);
    return TSR_OK;
}

tsr_status tsr__column_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr__temps temps = {.stream = layer->stream};
    back pass = {.linear = (tsr__linear *)layer, .temps = &temps, .saved = saved};
    tsr_status status = run_back(&pass, dy, dx);
    tsr_group_cancel(&pass.gathering);
    tsr_group_cancel(&pass.reducing);
    tsr__temps_finish(&temps);
    return status;
}
