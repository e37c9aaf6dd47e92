/* The passes of short convolutions. A column-parallel layer computes b, c and x; this rank's
 * channels of b · x are convolved over time and multiplied by c; and a row-parallel layer computes
 * y. */
#include "parallel/layers/short_conv.h"

#include "base/alloc.h"
#include "gpu/internal.h"
#include "parallel/layers/context.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/self_attention.h"
#include "tessera/recurrent.h"

/* What a token has of the projections, or of their gradients: [batch, tokens, channels]. */
typedef struct projections {
    tsr_tensor *b, *c, *x;
} projections;

static tsr_status split_projections(const tsr__short_conv *conv, tsr__temps *temps,
                                    const tsr_tensor *projected, projections *out)
{
    const int64_t channels = conv->channels;
    tsr_tensor *rows, **const parts[] = {&out->b, &out->c, &out->x};
    TSR__TRY(tsr__temp_by_rows(temps, projected, &rows));
    for (int i = 0; i < 3; i++)
        TSR__TRY(tsr__temp_slice(temps, rows, 2, i * channels, channels, parts[i]));
    return TSR_OK;
}

static const tsr_tensor *weight_of(const tsr__short_conv *conv)
{
    return conv->base.parameter[TSR__SHORT_CONV_WEIGHT]->seen.tensor;
}

static tsr_status check_input(const tsr__short_conv *conv, const tsr_tensor *x)
{
    TSR__TRY(tsr__layer_check_input(&conv->base, "x", x));
    TSR__REQUIRE(tsr_tensor_layout(x)->ndim >= 2, "%s: x is %s; [.., tokens, features] is needed",
                 conv->base.who, TSR__SHAPE_OF(x));
    return TSR_OK;
}

/* Forward ------------------------------------------------------------------------------------- */

/* How a pass convolves. */
typedef struct manner {
    const tsr_causal_conv_params *params; /* which states it begins with */
    tsr_tensor *state;                    /* gets the new ones; or NULL */
    /* of rows that a context group divides, for which the members above are not read */
    const tsr__context *context;
    tsr_tensor **before; /* [2], as in tsr__context_convolve */
} manner;

/* *gated [.., tokens, channels] = c · (the convolution of b · x), and *convolved the convolution.
 */
static tsr_status convolve(const tsr__short_conv *conv, tsr__temps *temps,
                           const tsr_tensor *projected, const manner *how, tsr_tensor **convolved,
                           tsr_tensor **gated)
{
    tsr_stream *stream = conv->base.stream;
    projections in;
    tsr_tensor *product, *rows;
    TSR__TRY(tsr__temp_like(temps, projected, tsr_tensor_layout(projected)->dtype, -1,
                            conv->channels, gated));
    *convolved = NULL;
    if (conv->channels == 0)
        return TSR_OK;
    TSR__TRY(split_projections(conv, temps, projected, &in));
    const tsr_layout *layout = tsr_tensor_layout(in.b);
    TSR__TRY(tsr__temp_new(temps, layout->dtype, 3, layout->shape, &product));
    TSR__TRY(tsr__temp_new(temps, layout->dtype, 3, layout->shape, convolved));
    TSR__TRY(tsr__temp_by_rows(temps, *gated, &rows));
    TSR__TRY(tsr_binary(stream, product, in.b, in.x, TSR_BINARY_MUL));
    if (how->context)
        TSR__TRY(tsr__context_convolve(
            &(tsr__context_conv){conv, how->context, temps, product, weight_of(conv),
                                 conv->documents ? conv->documents->chunk_starts : NULL},
            *convolved, how->before));
    else
        TSR__TRY(
            tsr_causal_conv(stream, *convolved, how->state, product, weight_of(conv), how->params));
    return tsr_binary(stream, rows, *convolved, in.c, TSR_BINARY_MUL);
}

static tsr_status forward_with(tsr__short_conv *conv, tsr__temps *temps, const tsr_tensor *x,
                               const tsr_tensor *added, tsr_layer_saved *saved, tsr_tensor **y)
{
    const tsr_layer *layer = &conv->base;
    const tsr_tensor *starts = conv->documents ? conv->documents->starts : NULL;
    tsr_tensor *projected = NULL, *convolved, *gated, *before[2] = {NULL, NULL};
    tsr__context *context;
    TSR__TRY(check_input(conv, x));
    TSR__TRY(tsr__context_find(conv->context_group, conv->documents, tsr_tensor_layout(x),
                               &conv->context, &context));
    TSR__TRY(tsr_layer_forward(layer->child[TSR__SHORT_CONV_INPUT], x,
                               saved ? &saved->child[TSR__SHORT_CONV_INPUT] : NULL, &projected));
    TSR__TRY(tsr__temp_keep(temps, projected));
    TSR__TRY(convolve(conv, temps, projected,
                      &(manner){.params = tsr_causal_conv_params(.starts = starts),
                                .context = context,
                                .before = saved ? before : NULL},
                      &convolved, &gated));
    TSR__TRY(tsr__layer_forward_added(layer->child[TSR__SHORT_CONV_OUTPUT], gated, NULL, added,
                                      saved ? &saved->child[TSR__SHORT_CONV_OUTPUT] : NULL, y));
    if (!saved)
        return TSR_OK;
    TSR__TRY(tsr__documents_keep(conv->documents, saved));
    if (context && !saved->context)
        saved->context = tsr__context_keep(context);
    for (int i = 0; i < 2; i++)
        if (before[i])
            saved->before[i] = tsr__temp_take(temps, before[i]);
    saved->hidden = tsr__temp_take(temps, projected);
    if (convolved)
        saved->convolved = tsr__temp_take(temps, convolved);
    return TSR_OK;
}

/* Gets the states of a step as [slots, channels, taps − 1]. */
static tsr_status states_of(const tsr__short_conv *conv, tsr__temps *temps,
                            const tsr__cached *cached, tsr_causal_conv_params *out)
{
    tsr_tensor *states = NULL, *unused, *read_slots, *write_slots, *view;
    const tsr_status status = tsr__kv_cache_states(cached->cache, cached->layer, &states, &unused,
                                                   &read_slots, &write_slots);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s", conv->base.who);
    const int64_t *shape = tsr_tensor_layout(states)->shape,
                  needed = conv->channels * (conv->taps - 1),
                  wanted[3] = {shape[0], conv->channels, conv->taps - 1};
    TSR__REQUIRE(shape[1] == needed,
                 "%s: layer %d of the cache has states of %lld floats; %lld are needed",
                 conv->base.who, cached->layer, (long long)shape[1], (long long)needed);
    TSR__TRY(tsr__temp_reshape(temps, states, 3, wanted, &view));
    out->state = view;
    out->read_slots = read_slots;
    out->write_slots = write_slots;
    return TSR_OK;
}

static tsr_status step_with(const tsr__short_conv *conv, tsr__temps *temps, const tsr_tensor *x,
                            const tsr__cached *cached, const tsr_tensor *added, tsr_tensor **y)
{
    const tsr_layer *layer = &conv->base;
    tsr_tensor *projected = NULL, *convolved, *gated;
    tsr_causal_conv_params params = {.struct_size = sizeof params};
    TSR__TRY(check_input(conv, x));
    TSR__TRY(
        tsr__layer_check_step(layer, tsr_tensor_layout(x), tsr__kv_cache_positions(cached->cache)));
    TSR__TRY(tsr__layer_check_forward(layer->child[TSR__SHORT_CONV_OUTPUT]));
    if (conv->channels > 0)
        TSR__TRY(states_of(conv, temps, cached, &params));
    params.lengths = tsr__kv_cache_lengths(cached->cache);
    TSR__TRY(tsr__column_forward_after(layer->child[TSR__SHORT_CONV_INPUT], cached->norm, x,
                                       &projected));
    TSR__TRY(tsr__temp_keep(temps, projected));
    TSR__TRY(convolve(conv, temps, projected,
                      &(manner){.params = &params, .state = (tsr_tensor *)params.state}, &convolved,
                      &gated));
    return tsr__layer_forward_added(layer->child[TSR__SHORT_CONV_OUTPUT], gated, NULL, added, NULL,
                                    y);
}

static tsr_status forward_added(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                const tsr_tensor *added, tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr__short_conv *conv = (tsr__short_conv *)layer;
    tsr__temps temps = {.stream = layer->stream};
    const tsr_status status = cached ? step_with(conv, &temps, x, cached, added, y)
                                     : forward_with(conv, &temps, x, added, saved, y);
    tsr__temps_finish(&temps);
    return status;
}

static tsr_status forward_cached(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                 tsr_tensor **y)
{
    return forward_added(layer, x, cached, NULL, NULL, y);
}

static tsr_status forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                          tsr_tensor **y)
{
    return forward_added(layer, x, NULL, NULL, saved, y);
}

/* Backward ------------------------------------------------------------------------------------ */

/* Adds `sum` to the gradient of the weight, or what a rank without channels has: nothing. */
static tsr_status add_weight_grad(tsr__short_conv *conv, const tsr_tensor *sum)
{
    tsr_layer *layer = &conv->base;
    tsr__layer_parameter *weight = layer->parameter[TSR__SHORT_CONV_WEIGHT];
    TSR__TRY(tsr__parameter_need_grad(layer, TSR__SHORT_CONV_WEIGHT));
    if (sum)
        TSR__TRY(weight->grad_empty ? tsr_copy(layer->stream, weight->seen.grad, sum)
                                    : tsr_axpy(layer->stream, weight->seen.grad, 1, sum));
    weight->grad_empty = false;
    return TSR_OK;
}

/* Computes the gradient of the projections from that of the input of the last product. */
static tsr_status convolve_backward(tsr__short_conv *conv, tsr__temps *temps,
                                    const tsr_layer_saved *saved, const tsr_tensor *dgated,
                                    tsr_tensor *dprojected)
{
    tsr_stream *stream = conv->base.stream;
    projections in, d;
    tsr_tensor *dy, *product, *dconvolved, *dproduct, *dweight = NULL;
    const bool trains = !conv->base.frozen;
    if (conv->channels == 0)
        return trains ? add_weight_grad(conv, NULL) : TSR_OK;
    TSR__TRY(split_projections(conv, temps, saved->hidden, &in));
    TSR__TRY(split_projections(conv, temps, dprojected, &d));
    TSR__TRY(tsr__temp_by_rows(temps, dgated, &dy));
    const tsr_layout *layout = tsr_tensor_layout(saved->convolved);
    tsr_tensor **const made[] = {&product, &dconvolved, &dproduct};
    for (int i = 0; i < 3; i++)
        TSR__TRY(tsr__temp_new(temps, layout->dtype, 3, layout->shape, made[i]));
    if (trains)
        TSR__TRY(
            tsr__temp_new(temps, TSR_F32, 2, (int64_t[]){conv->channels, conv->taps}, &dweight));
    TSR__TRY(tsr_binary(stream, product, in.b, in.x, TSR_BINARY_MUL));
    TSR__TRY(tsr_binary(stream, d.c, dy, saved->convolved, TSR_BINARY_MUL));
    TSR__TRY(tsr_binary(stream, dconvolved, dy, in.c, TSR_BINARY_MUL));
    if (saved->context)
        TSR__TRY(
            tsr__context_convolve_grad(&(tsr__context_conv){conv, saved->context, temps, product,
                                                            weight_of(conv), saved->chunk_starts},
                                       saved->before, dconvolved, dproduct, dweight));
    else
        TSR__TRY(tsr_causal_conv_grad(
            stream, tsr_causal_conv_grads(.dx = dproduct, .dweight = dweight), dconvolved, NULL,
            product, weight_of(conv), tsr_causal_conv_params(.starts = saved->starts)));
    TSR__TRY(tsr_binary(stream, d.b, dproduct, in.x, TSR_BINARY_MUL));
    TSR__TRY(tsr_binary(stream, d.x, dproduct, in.b, TSR_BINARY_MUL));
    return trains ? add_weight_grad(conv, dweight) : TSR_OK;
}

static tsr_status backward(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                           tsr_tensor **dx)
{
    tsr__short_conv *conv = (tsr__short_conv *)layer;
    tsr__temps temps = {.stream = layer->stream};
    tsr_tensor *dgated = NULL, *dprojected;
    TSR__TRY(tsr__parameter_require(layer, TSR__SHORT_CONV_WEIGHT));
    const tsr_layout *layout = tsr_tensor_layout(saved->hidden);
    tsr_status status = tsr_layer_backward(layer->child[TSR__SHORT_CONV_OUTPUT],
                                           saved->child[TSR__SHORT_CONV_OUTPUT], dy, &dgated);
    if (status == TSR_OK)
        status = tsr__temp_new(&temps, layout->dtype, layout->ndim, layout->shape, &dprojected);
    if (status == TSR_OK)
        status = convolve_backward(conv, &temps, saved, dgated, dprojected);
    if (status == TSR_OK)
        status = tsr_layer_backward(layer->child[TSR__SHORT_CONV_INPUT],
                                    saved->child[TSR__SHORT_CONV_INPUT], dprojected, dx);
    tsr_tensor_destroy(&dgated);
    tsr__temps_finish(&temps);
    return status;
}

/* The type ------------------------------------------------------------------------------------ */

static void finish(tsr_layer *layer)
{
    tsr__context_forget(&((tsr__short_conv *)layer)->context);
    tsr__free(((tsr__short_conv *)layer)->division.sizes);
}

const tsr__layer_type tsr__short_conv_type = {.name = "short_conv",
                                              .forward = forward,
                                              .backward = backward,
                                              .finish = finish,
                                              .forward_cached = forward_cached,
                                              .forward_added = forward_added,
                                              .normalises = true};

tsr__short_conv *tsr__short_conv_of(const tsr_layer *layer)
{
    const tsr_layer *found = layer->type == &tsr__short_conv_type ? layer : NULL;
    for (int i = 0; i < layer->child_count; i++)
        if (layer->child[i]->type == &tsr__short_conv_type)
            found = layer->child[i];
    return (tsr__short_conv *)found;
}
