/* Passes of column-parallel layers. Each rank computes some features of y from all features of x.
 * The forward pass sends nothing, unless it gathers x or y. The backward pass sums the gradients of
 * x over the ranks while the device computes the gradient of the weight. */
#include "parallel/layers/linear.h"

#include "gpu/internal.h"
#include "parallel/internal.h"
#include "parallel/layers/adapter.h"
#include "parallel/layers/norm_layer.h"

/* The input ---------------------------------------------------------------------------------- */

static tsr_status column_check_input(const tsr__column_linear *column, const tsr_tensor *x)
{
    const tsr__linear *linear = &column->linear;
    const tsr_layer *layer = &linear->base;
    TSR__TRY(tsr__layer_check_input(layer, "x", x));
    const tsr_layout *layout = tsr_tensor_layout(x);
    int64_t last = layout->shape[layout->ndim - 1], want = linear->input_size;
    if (linear->input == TSR_LAYOUT_GATHER)
        want = column->input_division.length;
    TSR__REQUIRE(last == want, "%s: x is %s; its last dimension must be %lld", layer->who,
                 TSR__SHAPE_OF(x), (long long)want);
    return linear->input == TSR_LAYOUT_SEQUENCE
               ? tsr__layer_has_sequence_dim(layer, linear->sequence_dim, layout)
               : TSR_OK;
}

static bool gathers_input(const tsr__column_linear *column)
{
    return column->linear.base.size > 1 && column->linear.input != TSR_LAYOUT_FULL;
}

static bool gathers_output(const tsr__column_linear *column)
{
    return column->linear.base.size > 1 && column->linear.output == TSR_LAYOUT_FULL;
}

/* Gets the dimension along which x is divided, and the sizes of all ranks' shards along this
 * dimension (NULL: equal sizes). */
static void input_shards(const tsr__column_linear *column, const tsr_tensor *x, int *dim,
                         const int64_t **sizes)
{
    const bool by_features = column->linear.input == TSR_LAYOUT_GATHER;
    *sizes = by_features ? column->input_division.sizes : NULL;
    *dim = by_features ? tsr_tensor_layout(x)->ndim - 1 : column->linear.sequence_dim;
}

/* Starts to gather x from all ranks. */
static tsr_status start_gathering(const tsr__column_linear *column, tsr__temps *temps,
                                  const tsr_tensor *x, tsr_tensor **out, tsr_request **request)
{
    const tsr__linear *linear = &column->linear;
    tsr_group *group = linear->base.group;
    int dim;
    const int64_t *sizes;
    input_shards(column, x, &dim, &sizes);
    int64_t size =
        sizes ? linear->input_size : tsr_tensor_layout(x)->shape[dim] * (int64_t)linear->base.size;
    TSR__TRY(tsr__temp_like(temps, x, tsr_tensor_layout(x)->dtype, dim, size, out));
    return tsr_group_all_gather(
        group, *out, x, dim, tsr_collective_params(.wire = tsr__group_wire(group), .sizes = sizes),
        request);
}

static tsr_status gather_input(const tsr__column_linear *column, tsr__temps *temps,
                               const tsr_tensor *x, tsr_tensor **out)
{
    tsr_request *request = NULL;
    TSR__TRY(start_gathering(column, temps, x, out, &request));
    return tsr_request_wait(&request);
}

/* Forward ------------------------------------------------------------------------------------ */

/* Computes y from x, which has all features and tokens. */
static tsr_status column_multiply(tsr__column_linear *column, tsr__temps *temps, tsr_tensor *y,
                                  const tsr_tensor *x, tsr_activation activation)
{
    const tsr_layer *layer = &column->linear.base;
    tsr__column_products products;
    tsr_tensor *x2, *y2;
    TSR__TRY(tsr__column_products_find(column, temps, &products));
    TSR__TRY(tsr__temp_flatten(temps, x, &x2));
    TSR__TRY(tsr__temp_flatten(temps, y, &y2));
    for (int i = 0; i < products.count; i++) {
        const tsr__column_product product = products.product[i];
        tsr_tensor *columns;
        TSR__TRY(tsr__temp_slice(temps, y2, 1, product.start, product.length, &columns));
        TSR__TRY(tsr_matmul(
            layer->stream, columns, x2, product.weight,
            tsr_matmul_params(.transpose_b = true, .bias = product.bias, .activation = activation,
                              .allow_int8 = tsr__group_allows_int8(layer->group),
                              .precision = tsr__group_precision(layer->group, product.weight))));
    }
    if (!tsr__layer_is_adapted(layer))
        return TSR_OK;
    TSR__TRY(tsr__adapters_forward(&column->linear, temps, x2, y2));
    return tsr__adapter_norms_forward(&column->linear, temps, y2);
}

/* Creates a tensor with the shape of `in`, except for the last dimension, and with the distance
 * tsr__row_pitch from row to row. */
static tsr_status new_pitched(tsr__temps *temps, const tsr_tensor *in, tsr_dtype dtype,
                              int64_t size, tsr_tensor **out)
{
    const int64_t pitch = tsr__row_pitch(tsr_stream_device(temps->stream), dtype, size);
    tsr_tensor *rows;
    TSR__TRY(tsr__temp_like(temps, in, dtype, -1, pitch, &rows));
    return tsr__temp_slice(temps, rows, -1, 0, size, out);
}

static tsr_status column_forward_with(tsr__column_linear *column, tsr__temps *temps,
                                      const tsr_tensor *x, tsr_activation activation, bool pitched,
                                      tsr_layer_saved *saved, tsr_tensor **y)
{
    const tsr__linear *linear = &column->linear;
    const tsr_layer *layer = &linear->base;
    const tsr_dtype dtype = tsr_tensor_layout(x)->dtype;
    TSR__TRY(column_check_input(column, x));
    const tsr_tensor *full_x = x;
    tsr_tensor *gathered, *local, *whole;
    if (gathers_input(column)) {
        TSR__TRY(gather_input(column, temps, x, &gathered));
        full_x = gathered;
    }
    TSR__TRY(pitched ? new_pitched(temps, full_x, dtype, column->features, &local)
                     : tsr__temp_like(temps, full_x, dtype, -1, column->features, &local));
    TSR__TRY(column_multiply(column, temps, local, full_x, activation));
    /* A gathered sequence is not kept. The backward pass gathers it again, because the sequence is
     * divided in order to save this memory. */
    if (saved && gathers_input(column) && linear->input == TSR_LAYOUT_GATHER &&
        (!layer->frozen || tsr__layer_trains_adapters(layer)))
        TSR__TRY(tsr__keep(full_x, &saved->gathered_x));
    if (gathers_output(column)) {
        TSR__TRY(tsr__temp_like(temps, full_x, dtype, -1, linear->output_size, &whole));
        TSR__TRY(
            tsr_group_all_gather(layer->group, whole, local, -1,
                                 tsr_collective_params(.wire = tsr__group_wire(layer->group),
                                                       .sizes = column->block[0].division.sizes),
                                 NULL));
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
    tsr_status status =
        column_forward_with((tsr__column_linear *)layer, &temps, x, activation, false, saved, y);
    tsr__temps_finish(&temps);
    return status;
}

tsr_status tsr__column_forward_pitched(tsr_layer *layer, const tsr_tensor *x,
                                       tsr_layer_saved **saved, tsr_tensor **y)
{
    tsr__temps temps = {.stream = layer->stream};
    tsr_layer_saved *keep = NULL;
    tsr_tensor *result = NULL;
    TSR__TRY(tsr__layer_check_forward(layer));
    if (saved)
        TSR__TRY(tsr__layer_saved_new(layer, x, &keep));
    const tsr_status status = column_forward_with((tsr__column_linear *)layer, &temps, x,
                                                  TSR_ACT_NONE, true, keep, &result);
    tsr__temps_finish(&temps);
    if (status != TSR_OK) {
        tsr_layer_saved_destroy(&keep);
        return status;
    }
    if (saved)
        *saved = keep;
    *y = result;
    return TSR_OK;
}

tsr_status tsr__column_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                               tsr_tensor **y)
{
    return tsr__column_forward_activated(layer, x, TSR_ACT_NONE, saved, y);
}

/* Computes y = act(gate) · up. Sets *y to NULL if no kernel does that in one product. */
static tsr_status forward_gated(tsr__column_linear *column, tsr__temps *temps, const tsr_tensor *x,
                                tsr_activation activation, tsr_tensor **y)
{
    const tsr_layer *layer = &column->linear.base;
    tsr__column_products products;
    tsr_tensor *local, *x2, *y2;
    bool recorded = false;
    *y = NULL;
    TSR__TRY(column_check_input(column, x));
    TSR__TRY(tsr__column_products_find(column, temps, &products));
    if (column->block_count != 2 || products.count != 1 || gathers_input(column) ||
        gathers_output(column) || tsr__layer_is_adapted(layer))
        return TSR_OK;
    const tsr__column_product product = products.product[0];
    TSR__TRY(
        tsr__temp_like(temps, x, tsr_tensor_layout(x)->dtype, -1, column->features / 2, &local));
    TSR__TRY(tsr__temp_flatten(temps, x, &x2));
    TSR__TRY(tsr__temp_flatten(temps, local, &y2));
    TSR__TRY(tsr__matmul_gated(layer->stream, y2, x2, product.weight, product.bias, activation,
                               tsr__group_allows_int8(layer->group), &recorded));
    if (recorded)
        *y = tsr__temp_take(temps, local);
    return TSR_OK;
}

tsr_status tsr__column_forward_gated(tsr_layer *layer, const tsr_tensor *x,
                                     tsr_activation activation, tsr_tensor **y)
{
    tsr__temps temps = {.stream = layer->stream};
    tsr_status status = forward_gated((tsr__column_linear *)layer, &temps, x, activation, y);
    tsr__temps_finish(&temps);
    return status;
}

/* Records the products of norm(x) or, if `only_ask` is true, sets *recorded to whether they all
 * have kernels. */
static tsr_status multiply_normed(tsr__column_linear *column, tsr__temps *temps,
                                  const tsr__column_products *products,
                                  const tsr__matmul_fusion *common, const tsr_tensor *x2,
                                  const tsr_tensor *y2, bool *recorded)
{
    *recorded = true;
    for (int i = 0; *recorded && i < products->count; i++) {
        tsr__matmul_fusion fusion = *common;
        const tsr__column_product product = products->product[i];
        tsr_tensor *columns;
        TSR__TRY(tsr__temp_slice(temps, y2, 1, product.start,
                                 common->gated ? product.length / 2 : product.length, &columns));
        fusion.bias = product.bias;
        fusion.precision = tsr__group_precision(column->linear.base.group, product.weight);
        TSR__TRY(tsr__matmul_fused(column->linear.base.stream, columns, x2, product.weight, &fusion,
                                   recorded));
    }
    return TSR_OK;
}

static tsr_status forward_normed(tsr__column_linear *column, tsr__temps *temps,
                                 tsr__matmul_fusion *fusion, const tsr_tensor *x, tsr_tensor **y)
{
    tsr__column_products products;
    tsr_tensor *local, *x2, *y2;
    TSR__TRY(column_check_input(column, x));
    TSR__TRY(tsr__column_products_find(column, temps, &products));
    if (gathers_input(column) || gathers_output(column) || column->features == 0 ||
        tsr__layer_is_adapted(&column->linear.base) ||
        (fusion->gated && (column->block_count != 2 || products.count != 1)))
        return TSR_OK;
    TSR__TRY(tsr__temp_like(temps, x, tsr_tensor_layout(x)->dtype, -1,
                            fusion->gated ? column->features / 2 : column->features, &local));
    TSR__TRY(tsr__temp_flatten(temps, x, &x2));
    TSR__TRY(tsr__temp_flatten(temps, local, &y2));
    for (int i = 0; i < 2; i++) {
        bool recorded;
        fusion->only_ask = i == 0;
        TSR__TRY(multiply_normed(column, temps, &products, fusion, x2, y2, &recorded));
        if (!recorded)
            return TSR_OK;
    }
    *y = tsr__temp_take(temps, local);
    return TSR_OK;
}

tsr_status tsr__column_forward_normed(tsr_layer *layer, const tsr_layer *norm, const tsr_tensor *x,
                                      bool gated, tsr_activation activation, tsr_tensor **y)
{
    tsr__temps temps = {.stream = layer->stream};
    tsr__matmul_norm how;
    tsr__matmul_fusion fusion = {.norm = &how,
                                 .gated = gated,
                                 .activation = activation,
                                 .allow_int8 = tsr__group_allows_int8(layer->group)};
    *y = NULL;
    if (!tsr__norm_for_product(norm, &how))
        return TSR_OK;
    const tsr_status status = forward_normed((tsr__column_linear *)layer, &temps, &fusion, x, y);
    tsr__temps_finish(&temps);
    return status;
}

tsr_status tsr__column_forward_after(tsr_layer *layer, tsr_layer *norm, const tsr_tensor *x,
                                     tsr_tensor **y)
{
    tsr_tensor *normalised = NULL;
    if (!norm)
        return tsr_layer_forward(layer, x, NULL, y);
    TSR__TRY(tsr__column_forward_normed(layer, norm, x, false, TSR_ACT_NONE, y));
    if (*y)
        return TSR_OK;
    TSR__TRY(tsr_layer_forward(norm, x, NULL, &normalised));
    const tsr_status status = tsr_layer_forward(layer, normalised, NULL, y);
    tsr_tensor_destroy(&normalised);
    return status;
}

/* Computes y and *slope, the derivative of the activation. Sets *y to NULL if no kernel computes
 * both in one product. */
static tsr_status forward_sloped(tsr__column_linear *column, tsr__temps *temps, const tsr_tensor *x,
                                 tsr_activation activation, tsr_tensor **slope, tsr_tensor **y)
{
    tsr_stream *stream = column->linear.base.stream;
    tsr__column_products products;
    tsr_tensor *local, *derivative, *x2, *y2, *slope2;
    bool recorded = false;
    *slope = *y = NULL;
    TSR__TRY(column_check_input(column, x));
    TSR__TRY(tsr__column_products_find(column, temps, &products));
    if (products.count != 1 || gathers_input(column) || gathers_output(column) ||
        tsr__layer_is_adapted(&column->linear.base))
        return TSR_OK;
    const tsr_dtype dtype = tsr_tensor_layout(x)->dtype;
    if (!tsr__matmul_may_fuse(stream, dtype))
        return TSR_OK;
    const tsr__column_product product = products.product[0];
    TSR__TRY(tsr__temp_like(temps, x, dtype, -1, column->features, &local));
    TSR__TRY(tsr__temp_like(temps, x, dtype, -1, column->features, &derivative));
    TSR__TRY(tsr__temp_flatten(temps, x, &x2));
    TSR__TRY(tsr__temp_flatten(temps, local, &y2));
    TSR__TRY(tsr__temp_flatten(temps, derivative, &slope2));
    TSR__TRY(tsr__matmul_with_slope(stream, y2, slope2, x2, product.weight, product.bias,
                                    activation, &recorded));
    if (recorded) {
        *slope = tsr__temp_take(temps, derivative);
        *y = tsr__temp_take(temps, local);
    }
    return TSR_OK;
}

tsr_status tsr__column_forward_sloped(tsr_layer *layer, const tsr_tensor *x,
                                      tsr_activation activation, tsr_layer_saved **saved,
                                      tsr_tensor **slope, tsr_tensor **y)
{
    tsr__temps temps = {.stream = layer->stream};
    tsr_status status =
        forward_sloped((tsr__column_linear *)layer, &temps, x, activation, slope, y);
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
static tsr_status check_gradient(const tsr__column_linear *column, const tsr_tensor *x,
                                 const tsr_tensor *dy)
{
    const tsr__linear *linear = &column->linear;
    tsr_layout want = *tsr_tensor_layout(x);
    want.shape[want.ndim - 1] =
        linear->output == TSR_LAYOUT_FULL ? linear->output_size : column->features;
    if (linear->input == TSR_LAYOUT_SEQUENCE)
        want.shape[linear->sequence_dim] *= linear->base.size;
    TSR__REQUIRE(tsr__layout_same_shape(&want, tsr_tensor_layout(dy)), "%s: dy is %s; y was %s",
                 linear->base.who, TSR__SHAPE_OF(dy), TSR__SHAPE(want.ndim, want.shape));
    return TSR_OK;
}

/* Computes this rank's contribution to the gradient of the full input. The contributions of all
 * ranks must be summed. */
static tsr_status column_multiply_back(tsr__column_linear *column, tsr__temps *temps,
                                       const tsr_tensor *dy2, tsr_tensor *dx2)
{
    tsr__column_products products;
    TSR__TRY(tsr__column_products_find(column, temps, &products));
    for (int i = 0; i < products.count; i++) {
        const tsr__column_product product = products.product[i];
        const tsr_tensor *weight;
        tsr_tensor *columns;
        TSR__TRY(tsr__weight_floats(&column->linear, temps, product.weight, &weight));
        TSR__TRY(tsr__temp_slice(temps, dy2, 1, product.start, product.length, &columns));
        TSR__TRY(tsr_matmul(column->linear.base.stream, dx2, columns, weight,
                            tsr_matmul_params(.accumulate = i > 0)));
    }
    return TSR_OK;
}

typedef struct backward_pass {
    tsr__column_linear *column;
    tsr__temps *temps;
    const tsr_layer_saved *saved;
    tsr_tensor *full_x;       /* x, gathered from all ranks */
    tsr_tensor *contribution; /* this rank's contribution to the gradient of full_x */
    tsr_tensor *dx;           /* the sum of the contributions, or this rank's shard of the sum */
    tsr_request *gathering, *reducing;
} backward_pass;

static tsr_status new_contribution(backward_pass *pass, tsr_dtype dtype)
{
    const tsr__linear *linear = &pass->column->linear;
    tsr_layout whole = *tsr_tensor_layout(pass->saved->x);
    if (linear->input == TSR_LAYOUT_SEQUENCE)
        whole.shape[linear->sequence_dim] *= linear->base.size;
    whole.shape[whole.ndim - 1] = linear->input_size;
    return tsr__temp_new(pass->temps, dtype, whole.ndim, whole.shape, &pass->contribution);
}

/* The backward pass of the layer's adapters. dx2 may be NULL. */
static tsr_status adapters_backward(backward_pass *pass, const tsr_tensor *dy2, tsr_tensor *dx2)
{
    tsr_tensor *x2;
    TSR__TRY(tsr_request_wait(&pass->gathering));
    TSR__TRY(tsr__temp_flatten(pass->temps, pass->full_x, &x2));
    return tsr__adapters_backward(&pass->column->linear, pass->temps, dy2, x2, dx2);
}

/* Multiplies *dy2 by the factors of an adapter with magnitudes. */
static tsr_status norms_backward(backward_pass *pass, tsr_tensor **dy2)
{
    tsr_tensor *x2;
    TSR__TRY(tsr_request_wait(&pass->gathering));
    TSR__TRY(tsr__temp_flatten(pass->temps, pass->full_x, &x2));
    return tsr__adapter_norms_backward(&pass->column->linear, pass->temps, x2, dy2);
}

/* Computes this rank's contribution to the gradient of x, and starts to sum the contributions of
 * all ranks. */
static tsr_status start_reducing(backward_pass *pass, const tsr_tensor *dy2)
{
    const tsr__linear *linear = &pass->column->linear;
    const tsr_tensor *x = pass->saved->x;
    const tsr_dtype dtype = tsr_tensor_layout(x)->dtype;
    const bool one_rank = linear->base.size == 1 || pass->column->block[0].whole;
    const tsr_dtype sum_dtype = linear->reduce_f32 && !one_rank ? TSR_F32 : dtype;
    tsr_group *group = linear->base.group;
    tsr_tensor *dx2;
    TSR__TRY(new_contribution(pass, sum_dtype));
    TSR__TRY(tsr__temp_flatten(pass->temps, pass->contribution, &dx2));
    TSR__TRY(column_multiply_back(pass->column, pass->temps, dy2, dx2));
    if (tsr__layer_is_adapted(&linear->base))
        TSR__TRY(adapters_backward(pass, dy2, dx2));
    pass->dx = pass->contribution;
    if (one_rank)
        return TSR_OK;
    if (linear->input == TSR_LAYOUT_FULL)
        return tsr_group_all_reduce(group, pass->contribution, TSR_OP_SUM,
                                    tsr_collective_params(.wire = tsr__group_wire(group)),
                                    &pass->reducing);
    int dim;
    const int64_t *sizes;
    input_shards(pass->column, x, &dim, &sizes);
    TSR__TRY(tsr__temp_like(pass->temps, x, sum_dtype, dim, tsr_tensor_layout(x)->shape[dim],
                            &pass->dx));
    return tsr_group_reduce_scatter(
        group, pass->dx, pass->contribution, dim, TSR_OP_SUM,
        tsr_collective_params(.wire = tsr__group_wire(group), .sizes = sizes), &pass->reducing);
}

static tsr_status run_backward(backward_pass *pass, const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr__column_linear *column = pass->column;
    const tsr__linear *linear = &column->linear;
    const tsr_layer *layer = &linear->base;
    const tsr_tensor *x = pass->saved->x;
    TSR__TRY(check_gradient(column, x, dy));
    pass->full_x = pass->saved->gathered_x ? pass->saved->gathered_x : pass->saved->x;
    if (gathers_input(column) && !pass->saved->gathered_x &&
        (!layer->frozen || tsr__layer_trains_adapters(layer)))
        TSR__TRY(start_gathering(column, pass->temps, x, &pass->full_x, &pass->gathering));

    tsr_tensor *dy2, *x2;
    TSR__TRY(tsr__temp_flatten(pass->temps, dy, &dy2));
    if (linear->output == TSR_LAYOUT_FULL) {
        const tsr__division *own = &column->block[0].division;
        TSR__TRY(tsr__temp_slice(pass->temps, dy2, 1, own->first, own->length, &dy2));
    }
    if (tsr__layer_is_normed(layer))
        TSR__TRY(norms_backward(pass, &dy2));
    if (dx)
        TSR__TRY(start_reducing(pass, dy2));
    else if (tsr__layer_is_adapted(layer))
        TSR__TRY(adapters_backward(pass, dy2, NULL));
    TSR__TRY(tsr_request_wait(&pass->gathering));
    if (!layer->frozen) {
        TSR__TRY(tsr__temp_flatten(pass->temps, pass->full_x, &x2));
        TSR__TRY(tsr__column_add_grads(column, pass->temps, dy2, x2));
    }
    if (!dx)
        return TSR_OK;
    if (pass->reducing)
        TSR__TRY(tsr_stream_submit(layer->stream));
    TSR__TRY(tsr_request_wait(&pass->reducing));
    const tsr_dtype dtype = tsr_tensor_layout(x)->dtype;
    tsr_tensor *result = pass->dx;
    if (tsr_tensor_layout(result)->dtype != dtype) {
        TSR__TRY(tsr__temp_like(pass->temps, result, dtype, 0, tsr_tensor_layout(result)->shape[0],
                                &result));
        TSR__TRY(tsr_copy(layer->stream, result, pass->dx));
    }
    *dx = tsr__temp_take(pass->temps, result);
    return TSR_OK;
}

tsr_status tsr__column_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr__temps temps = {.stream = layer->stream};
    backward_pass pass = {.column = (tsr__column_linear *)layer, .temps = &temps, .saved = saved};
    tsr_status status = run_backward(&pass, dy, dx);
    tsr_request_cancel(&pass.gathering);
    tsr_request_cancel(&pass.reducing);
    tsr__temps_finish(&temps);
    return status;
}
