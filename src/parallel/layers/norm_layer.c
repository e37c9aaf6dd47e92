/* Normalisation layers. Every rank has all parameters, and normalises the rows of its own shard of
 * x. */
#include "parallel/layers/norm_layer.h"

#include <math.h>

#include "base/struct_size.h"
#include "gpu/internal.h"

typedef struct norm {
    tsr_layer base; /* parameter 0 is the weight; parameter 1 is the bias, if there is one */
    int64_t size;
    tsr_norm_kind kind;
    float epsilon;
    bool sequence;
} norm;

static bool has_bias(const norm *n)
{
    return n->base.parameter_count > 1;
}

static const tsr_tensor *bias_of(const norm *n)
{
    return has_bias(n) ? n->base.parameter[1]->seen.tensor : NULL;
}

/* Passes ------------------------------------------------------------------------------------- */

static tsr_status norm_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                               tsr_tensor **y)
{
    const norm *n = (const norm *)layer;
    TSR__TRY(tsr__layer_check_input(layer, "x", x));
    const tsr_layout *layout = tsr_tensor_layout(x);
    TSR__REQUIRE(layout->shape[layout->ndim - 1] == n->size,
                 "%s: x is %s; its last dimension must be %lld", layer->who, TSR__SHAPE_OF(x),
                 (long long)n->size);
    tsr__temps temps = {.stream = layer->stream};
    tsr_tensor *out;
    tsr_status status = tsr__temp_new(&temps, layout->dtype, layout->ndim, layout->shape, &out);
    if (status == TSR_OK && saved)
        status = tsr__norm_new_stats(x, &saved->norm_stats);
    if (status == TSR_OK) {
        const tsr_tensor *weight = layer->parameter[0]->seen.tensor;
        status = tsr__norm_with_stats(layer->stream, out, x, weight, bias_of(n), n->kind,
                                      n->epsilon, saved ? saved->norm_stats : NULL);
    }
    if (status == TSR_OK)
        *y = tsr__temp_take(&temps, out);
    tsr__temps_finish(&temps);
    return status;
}

bool tsr__norm_for_product(const tsr_layer *layer, tsr__matmul_norm *out)
{
    const norm *n = (const norm *)layer;
    if (n->kind != TSR_NORM_RMS || has_bias(n) || n->sequence)
        return false;
    *out = (tsr__matmul_norm){.weight = layer->parameter[0]->seen.tensor, .epsilon = n->epsilon};
    return out->weight != NULL;
}

/* The tensors that a backward pass reads. `added` is added to dx; it may be NULL. `stats` is what
 * the forward pass has saved, or NULL. */
typedef struct incoming {
    const tsr_tensor *x, *dy, *added, *stats;
} incoming;

static tsr_status norm_gradients(const norm *n, tsr_tensor *dx, tsr_tensor *dweight,
                                 tsr_tensor *dbias, const incoming *in, bool accumulate)
{
    tsr_stream *stream = n->base.stream;
    const tsr_tensor *weight = n->base.parameter[0]->seen.tensor;
    return tsr__norm_grad_added(stream, dx, dweight, dbias, in->x, in->dy, weight, in->added,
                                in->stats, n->kind, n->epsilon, accumulate);
}

/* Computes dx, and this rank's contributions to the gradients of the weight and the bias. */
static tsr_status contribute_norm_grads(const norm *n, tsr__replicated_grads *grads,
                                        const incoming *in, tsr_tensor *dx)
{
    tsr_tensor *dweight, *dbias = NULL;
    for (int i = 0; i < n->base.parameter_count; i++)
        TSR__TRY(tsr__replicated_grads_add(grads, i));
    TSR__TRY(tsr__replicated_grads_allocate(grads, false));
    TSR__TRY(tsr__replicated_grads_get(grads, 0, &dweight));
    if (has_bias(n))
        TSR__TRY(tsr__replicated_grads_get(grads, 1, &dbias));
    return norm_gradients(n, dx, dweight, dbias, in, false);
}

/* Computes dx, and the gradients of the weight and the bias, which are summed over the ranks
 * because each rank has different rows of x. */
static tsr_status add_summed(norm *n, tsr__temps *temps, const incoming *in, tsr_tensor *dx)
{
    tsr__replicated_grads grads = {.layer = &n->base, .temps = temps};
    tsr_status status = contribute_norm_grads(n, &grads, in, dx);
    if (status == TSR_OK)
        status = tsr__replicated_grads_start(&grads);
    if (status == TSR_OK)
        status = tsr__replicated_grads_finish(&grads);
    tsr__replicated_grads_cancel(&grads);
    return status;
}

/* Does the same as add_summed if every rank has all rows of x, so that nothing is summed. */
static tsr_status add_local_norm_grads(norm *n, const incoming *in, tsr_tensor *dx)
{
    tsr__layer_parameter *const *parameter = n->base.parameter;
    for (int i = 0; i < n->base.parameter_count; i++)
        TSR__TRY(tsr__parameter_need_grad(&n->base, i));
    tsr_tensor *weight = parameter[0]->seen.grad,
               *bias = has_bias(n) ? parameter[1]->seen.grad : NULL;
    if (!bias || parameter[0]->grad_empty == parameter[1]->grad_empty) {
        TSR__TRY(norm_gradients(n, dx, weight, bias, in, !parameter[0]->grad_empty));
    } else {
        TSR__TRY(norm_gradients(n, NULL, NULL, bias, in, !parameter[1]->grad_empty));
        TSR__TRY(norm_gradients(n, dx, weight, NULL, in, !parameter[0]->grad_empty));
    }
    for (int i = 0; i < n->base.parameter_count; i++)
        parameter[i]->grad_empty = false;
    return TSR_OK;
}

static tsr_status norm_backward_with(tsr_layer *layer, const tsr_layer_saved *saved,
                                     const tsr_tensor *dy, const tsr_tensor *added, tsr_tensor **dx)
{
    norm *n = (norm *)layer;
    const incoming in = {saved->x, dy, added, saved->norm_stats};
    const tsr_layout *layout = tsr_tensor_layout(saved->x);
    TSR__REQUIRE(tsr__layout_same_shape(layout, tsr_tensor_layout(dy)), "%s: dy is %s; y was %s",
                 layer->who, TSR__SHAPE_OF(dy), TSR__SHAPE_OF(saved->x));
    TSR__TRY(tsr__parameter_require(layer, 0));
    tsr__temps temps = {.stream = layer->stream};
    tsr_tensor *out = NULL;
    tsr_status status =
        dx ? tsr__temp_new(&temps, layout->dtype, layout->ndim, layout->shape, &out) : TSR_OK;
    if (status == TSR_OK)
        status = layer->frozen                    ? norm_gradients(n, out, NULL, NULL, &in, false)
                 : n->sequence && layer->size > 1 ? add_summed(n, &temps, &in, out)
                                                  : add_local_norm_grads(n, &in, out);
    if (status == TSR_OK && dx)
        *dx = tsr__temp_take(&temps, out);
    tsr__temps_finish(&temps);
    return status;
}

static tsr_status norm_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, tsr_tensor **dx)
{
    return norm_backward_with(layer, saved, dy, NULL, dx);
}

tsr_status tsr__norm_backward_added(tsr_layer *layer, const tsr_layer_saved *saved,
                                    const tsr_tensor *dy, const tsr_tensor *added, tsr_tensor **dx)
{
    TSR__TRY(tsr__layer_check_input(layer, "dy", dy));
    TSR__TRY(tsr__layer_check_backward(layer, true, saved->x, dy));
    return norm_backward_with(layer, saved, dy, added, dx);
}

/* Creating ----------------------------------------------------------------------------------- */

static const tsr__layer_type norm_type = {
    .name = "norm", .forward = norm_forward, .backward = norm_backward};

tsr_status tsr__norm_parameter_add(tsr_layer *layer, const char *name, int64_t size,
                                   tsr_dtype dtype, tsr_dtype grad_dtype, bool bias)
{
    tsr__parameter_spec spec = {
        .name = name,
        .ndim = 1,
        .shape = {size, 0},
        .shard_dim = -1,
        .init = {.kind = bias ? TSR_INIT_ZEROS : TSR_INIT_DEFAULT},
        .fan_in = size,
        .fan_out = size,
        .bias = bias,
        .ones = !bias,
    };
    spec.dtype = dtype;
    spec.grad_dtype = grad_dtype;
    return tsr__norm_parameter_add_divided(layer, &spec);
}

tsr_status tsr__norm_parameter_add_divided(tsr_layer *layer, const tsr__parameter_spec *given)
{
    tsr__parameter_spec spec = *given;
    TSR__TRY(tsr__layer_dtype(layer, "dtype", given->dtype, &spec.dtype));
    TSR__TRY(tsr__layer_dtype(layer, "grad_dtype", given->grad_dtype, &spec.grad_dtype));
    return tsr__parameter_add(layer, &spec);
}

tsr_status tsr__norm_epsilon(const tsr_layer *layer, const char *what, float given, float *out)
{
    *out = given == 0 ? 1e-5F : given;
    TSR__REQUIRE(isfinite(*out) && *out >= 0x1p-126F, "%s: %s is %g; at least 2^-126 is needed",
                 layer->who, what, (double)given);
    return TSR_OK;
}

static tsr_status init_norm(norm *n, const tsr_norm_params *params)
{
    tsr_layer *layer = &n->base;
    TSR__REQUIRE(params->size >= 1, "%s: size is %lld; it must be at least 1", layer->who,
                 (long long)params->size);
    TSR__REQUIRE((unsigned)params->kind <= TSR_NORM_RMS, "%s: kind %d is not a tsr_norm_kind",
                 layer->who, (int)params->kind);
    TSR__TRY(tsr__norm_epsilon(layer, "epsilon", params->epsilon, &n->epsilon));
    n->size = params->size;
    n->kind = params->kind;
    n->sequence = params->sequence;
    TSR__TRY(tsr__norm_parameter_add(layer, "weight", n->size, params->dtype, params->grad_dtype,
                                     false));
    if (n->kind == TSR_NORM_LAYER && params->bias)
        TSR__TRY(tsr__norm_parameter_add(layer, "bias", n->size, params->dtype, params->grad_dtype,
                                         true));
    for (int i = 0; i < layer->parameter_count && !params->deferred; i++)
        TSR__TRY(tsr__parameter_allocate(layer, i));
    return TSR_OK;
}

tsr_status tsr_norm_create(const tsr_norm_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params && out, "norm: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_norm_params, params);
    tsr_layer *layer;
    TSR__TRY(tsr__layer_new(&norm_type, sizeof(norm), params->group, params->name, &layer));
    tsr_status status = init_norm((norm *)layer, params);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}
