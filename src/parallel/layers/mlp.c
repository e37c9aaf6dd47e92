/* MLP: a column-parallel layer, an activation function on this rank's features, and a row-parallel
 * layer. */
#include "base/alloc.h"
#include "base/struct_size.h"
#include "parallel/internal.h"
#include "parallel/layers/adapter.h"

enum { UP, DOWN };

typedef struct mlp {
    tsr_layer base; /* child UP computes up, or gate and up; child DOWN computes y */
    bool gated;
    tsr_activation activation;
    tsr_activation_fn activate;
    tsr_activation_grad_fn activate_grad;
    void *user;
} mlp;

/* The activation ----------------------------------------------------------------------------- */

static tsr_status activate(const mlp *m, tsr_tensor *y, const tsr_tensor *x)
{
    if (m->activate)
        return m->activate(m->user, m->base.stream, y, x);
    return tsr_activate(m->base.stream, y, x, NULL, m->activation);
}

/* y = act(x) · b. */
static tsr_status activate_mul(const mlp *m, tsr_tensor *y, const tsr_tensor *x,
                               const tsr_tensor *b)
{
    if (!m->activate)
        return tsr_activate(m->base.stream, y, x, b, m->activation);
    TSR__TRY(activate(m, y, x));
    return tsr_binary(m->base.stream, y, y, b, TSR_BINARY_MUL);
}

static tsr_status activate_grad(const mlp *m, tsr_tensor *dx, const tsr_tensor *x,
                                const tsr_tensor *dy)
{
    if (m->activate)
        return m->activate_grad(m->user, m->base.stream, dx, x, dy);
    return tsr_activate_grad(m->base.stream, dx, x, dy, m->activation);
}

/* Creates views of gate and up in the output of the column-parallel layer. */
static tsr_status split_gate_up(tsr__temps *temps, const tsr_tensor *hidden, tsr_tensor **gate,
                                tsr_tensor **up)
{
    const tsr_layout *layout = tsr_tensor_layout(hidden);
    int64_t length = layout->shape[layout->ndim - 1] / 2;
    TSR__TRY(tsr__temp_slice(temps, hidden, -1, 0, length, gate));
    return tsr__temp_slice(temps, hidden, -1, length, length, up);
}

/* Computes the input of the row-parallel layer. If `keep` is true, `hidden` must not be
 * overwritten. */
static tsr_status apply_activation(const mlp *m, tsr__temps *temps, tsr_tensor *hidden, bool keep,
                                   tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(hidden);
    tsr_tensor *gate = hidden, *up = NULL;
    if (m->gated)
        TSR__TRY(split_gate_up(temps, hidden, &gate, &up));
    if (!m->gated && !keep)
        *out = hidden;
    else
        TSR__TRY(
            tsr__temp_like(temps, gate, layout->dtype, 0, tsr_tensor_layout(gate)->shape[0], out));
    return up ? activate_mul(m, *out, gate, up) : activate(m, *out, gate);
}

/* Passes ------------------------------------------------------------------------------------- */

/* Computes *y from `hidden`, gate and up in one tensor. */
static tsr_status forward_down(const mlp *m, tsr__temps *temps, const tsr_tensor *hidden,
                               const tsr_tensor *added, tsr_tensor **y)
{
    tsr_tensor *gate, *up;
    TSR__TRY(split_gate_up(temps, hidden, &gate, &up));
    return tsr__row_forward_gated(m->base.child[DOWN], gate, up, m->activation, added, y);
}

/* Computes *y by a product that applies the norm, and one that activates and multiplies gate and
 * up. If no kernel can apply the norm, *y is unchanged. */
static tsr_status forward_normed_gated(const mlp *m, tsr__temps *temps, const tsr_layer *norm,
                                       const tsr_tensor *x, const tsr_tensor *added, tsr_tensor **y)
{
    tsr_tensor *hidden = NULL;
    TSR__TRY(tsr__column_forward_normed(m->base.child[UP], norm, x, false, TSR_ACT_NONE, &hidden));
    if (!hidden)
        return TSR_OK;
    TSR__TRY(tsr__temp_keep(temps, hidden));
    return forward_down(m, temps, hidden, added, y);
}

/* A forward pass without a backward pass. One product also applies the norm, if this is not NULL,
 * and the activation, and multiplies by the gate if there is one; or two dispatches do this. If no
 * kernel can do that, *y is unchanged. */
static tsr_status forward_fused(const mlp *m, const tsr_layer *norm, const tsr_tensor *x,
                                const tsr_tensor *added, tsr_tensor **y)
{
    tsr_tensor *hidden = NULL;
    if (tsr__layer_is_adapted(m->base.child[UP]))
        return TSR_OK;
    if (norm && m->gated) {
        tsr__temps temps = {.stream = m->base.stream};
        TSR__TRY(
            tsr__column_forward_normed(m->base.child[UP], norm, x, true, m->activation, &hidden));
        if (!hidden) {
            const tsr_status status = forward_normed_gated(m, &temps, norm, x, added, y);
            tsr__temps_finish(&temps);
            return status;
        }
    } else if (norm)
        TSR__TRY(
            tsr__column_forward_normed(m->base.child[UP], norm, x, false, m->activation, &hidden));
    else if (m->gated)
        TSR__TRY(tsr__column_forward_gated(m->base.child[UP], x, m->activation, &hidden));
    else
        TSR__TRY(tsr__column_forward_activated(m->base.child[UP], x, m->activation, NULL, &hidden));
    if (!hidden)
        return TSR_OK;
    tsr_status status = tsr__layer_forward_added(m->base.child[DOWN], hidden, NULL, added, NULL, y);
    tsr_tensor_destroy(&hidden);
    return status;
}

/* Computes *product, the input of the row-parallel layer, and *hidden, which the backward pass
 * needs (see tsr_layer_saved in layer.h): the derivative of the activation function if one kernel
 * computes both, otherwise the function's input. */
static tsr_status forward_hidden(const mlp *m, tsr__temps *temps, const tsr_tensor *x,
                                 tsr_layer_saved *saved, tsr_tensor **hidden, tsr_tensor **product)
{
    tsr_tensor *slope = NULL, *y = NULL;
    if (saved && !m->gated && !m->activate)
        TSR__TRY(tsr__column_forward_sloped(m->base.child[UP], x, m->activation, &saved->child[UP],
                                            &slope, &y));
    if (y) {
        tsr_status status = tsr__temp_keep(temps, slope);
        if (status != TSR_OK)
            tsr_tensor_destroy(&y);
        TSR__TRY(status);
        TSR__TRY(tsr__temp_keep(temps, y));
        saved->sloped = true;
        *hidden = slope;
        *product = y;
        return TSR_OK;
    }
    TSR__TRY(tsr_layer_forward(m->base.child[UP], x, saved ? &saved->child[UP] : NULL, hidden));
    TSR__TRY(tsr__temp_keep(temps, *hidden));
    return apply_activation(m, temps, *hidden, saved != NULL, product);
}

static tsr_status mlp_forward_with(const mlp *m, tsr__temps *temps, const tsr_tensor *x,
                                   const tsr_tensor *added, tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr_tensor *hidden = NULL, *product;
    if (m->gated && !m->activate && !saved) {
        TSR__TRY(tsr_layer_forward(m->base.child[UP], x, NULL, &hidden));
        TSR__TRY(tsr__temp_keep(temps, hidden));
        return forward_down(m, temps, hidden, added, y);
    }
    TSR__TRY(forward_hidden(m, temps, x, saved, &hidden, &product));
    TSR__TRY(tsr__layer_forward_added(m->base.child[DOWN], product, NULL, added,
                                      saved ? &saved->child[DOWN] : NULL, y));
    if (saved)
        saved->hidden = tsr__temp_take(temps, hidden);
    return TSR_OK;
}

static tsr_status mlp_forward_added(tsr_layer *layer, const tsr_tensor *x,
                                    const tsr__cached *cached, const tsr_tensor *added,
                                    tsr_layer_saved *saved, tsr_tensor **y)
{
    const mlp *m = (const mlp *)layer;
    tsr_layer *norm = cached ? cached->norm : NULL;
    tsr_tensor *fused = NULL, *normalised = NULL;
    if (!saved && !m->activate)
        TSR__TRY(forward_fused(m, norm, x, added, &fused));
    if (fused) {
        *y = fused;
        return TSR_OK;
    }
    if (norm) {
        TSR__TRY(tsr_layer_forward(norm, x, NULL, &normalised));
        const tsr_status after = mlp_forward_added(layer, normalised, NULL, added, saved, y);
        tsr_tensor_destroy(&normalised);
        return after;
    }
    tsr__temps temps = {.stream = layer->stream};
    tsr_status status = mlp_forward_with(m, &temps, x, added, saved, y);
    tsr__temps_finish(&temps);
    return status;
}

static tsr_status mlp_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                              tsr_tensor **y)
{
    return mlp_forward_added(layer, x, NULL, NULL, saved, y);
}

/* Computes the gradient of `hidden` from `da`, the gradient of the activation's output. Overwrites
 * `da`. */
static tsr_status hidden_gradient(const mlp *m, tsr__temps *temps, const tsr_tensor *hidden,
                                  tsr_tensor *da, tsr_tensor **out)
{
    if (!m->gated) {
        *out = da;
        return activate_grad(m, da, hidden, da);
    }
    tsr_stream *stream = m->base.stream;
    tsr_tensor *gate, *up, *dgate, *dup;
    const tsr_layout *layout = tsr_tensor_layout(hidden);
    TSR__TRY(tsr__temp_like(temps, hidden, layout->dtype, 0, layout->shape[0], out));
    TSR__TRY(split_gate_up(temps, hidden, &gate, &up));
    TSR__TRY(split_gate_up(temps, *out, &dgate, &dup));
    TSR__TRY(activate_mul(m, dup, gate, da));
    TSR__TRY(tsr_binary(stream, da, da, up, TSR_BINARY_MUL));
    return activate_grad(m, dgate, gate, da);
}

static tsr_status mlp_backward(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                               tsr_tensor **dx)
{
    const mlp *m = (const mlp *)layer;
    TSR__REQUIRE(!m->activate || m->activate_grad,
                 "%s: activate_grad is NULL; a backward pass needs it", layer->who);
    tsr__temps temps = {.stream = layer->stream};
    tsr_tensor *da = NULL, *dhidden;
    tsr_status status = saved->sloped
                            ? tsr__row_backward_times(layer->child[DOWN], saved->child[DOWN], dy,
                                                      saved->hidden, &da)
                            : tsr_layer_backward(layer->child[DOWN], saved->child[DOWN], dy, &da);
    if (status == TSR_OK && saved->sloped)
        dhidden = da;
    else if (status == TSR_OK)
        status = hidden_gradient(m, &temps, saved->hidden, da, &dhidden);
    if (status == TSR_OK)
        status = tsr_layer_backward(layer->child[UP], saved->child[UP], dhidden, dx);
    tsr_tensor_destroy(&da);
    tsr__temps_finish(&temps);
    return status;
}

/* Creating ----------------------------------------------------------------------------------- */

static const tsr__layer_type mlp_type = {.name = "mlp",
                                         .forward = mlp_forward,
                                         .backward = mlp_backward,
                                         .forward_added = mlp_forward_added,
                                         .normalises = true};

/* Checks the sizes. The child layers would check them too, but they have no hidden_size, and error
 * texts must use the names of tsr_mlp_params. */
static tsr_status check_mlp_params(const tsr_layer *layer, const tsr_mlp_params *params)
{
    tsr__division division;
    tsr_init_params output_init;
    TSR__REQUIRE(
        params->input_size >= 1 && params->hidden_size >= 1 && params->output_size >= 1,
        "%s: input_size is %lld, hidden_size %lld, output_size %lld; all must be at least 1",
        layer->who, (long long)params->input_size, (long long)params->hidden_size,
        (long long)params->output_size);
    TSR__TRY(tsr__linear_check(
        layer, tsr_linear_params(.overlap_parts = params->overlap_parts, .init = params->init,
                                 .dtype = params->dtype, .grad_dtype = params->grad_dtype)));
    TSR__TRY(tsr__layer_init(layer, "output_init", params->output_init, &output_init));
    if (params->sequence)
        TSR__TRY(tsr__layer_check_sequence_dim(layer, params->sequence_dim));
    TSR__TRY(tsr__layer_partition(layer, "hidden_size", params->hidden_size, "partition",
                                  params->partition, &division));
    tsr__free(division.sizes);
    return TSR_OK;
}

static tsr_status create_children(mlp *m, const tsr_mlp_params *params)
{
    tsr_linear_params up = {
        .struct_size = sizeof up,
        .group = m->base.group,
        .name = params->name,
        .input_size = params->input_size,
        .output_size = params->hidden_size,
        .bias = params->bias,
        .dtype = params->dtype,
        .input = params->sequence ? TSR_LAYOUT_SEQUENCE : TSR_LAYOUT_FULL,
        .sequence_dim = params->sequence_dim,
        .partition = params->partition,
        .init = params->init,
        .grad_dtype = params->grad_dtype,
        .reduce_f32 = params->reduce_f32,
        .overlap_parts = params->overlap_parts,
        .deferred = params->deferred,
    };
    tsr_linear_params down = up;
    down.input_size = params->hidden_size;
    down.output_size = params->output_size;
    down.input = TSR_LAYOUT_SHARDED;
    tsr_init_params output_init;
    TSR__TRY(tsr__layer_init(&m->base, "output_init", params->output_init, &output_init));
    if (output_init.kind != TSR_INIT_DEFAULT)
        down.init = params->output_init;
    down.output = params->sequence ? TSR_LAYOUT_SEQUENCE : TSR_LAYOUT_FULL;
    static const tsr__column_block gate_up[] = {{.name = "gate"}, {.name = "up"}};
    tsr_layer *child;
    TSR__TRY(tsr__column_create(&up, params->gated ? 2 : 1, params->gated ? gate_up : gate_up + 1,
                                &child));
    TSR__TRY(tsr__layer_add_child(&m->base, child));
    TSR__TRY(tsr__row_create(&down, "down", &child));
    return tsr__layer_add_child(&m->base, child);
}

tsr_status tsr_mlp_create(const tsr_mlp_params *params, tsr_layer **out)
{
    TSR__REQUIRE(params && out, "mlp: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_mlp_params, params);
    TSR__REQUIRE((unsigned)params->activation <= TSR_ACT_SILU,
                 "mlp: activation %d is not a tsr_activation", (int)params->activation);
    tsr_layer *layer;
    TSR__TRY(tsr__layer_new(&mlp_type, sizeof(mlp), params->group, params->name, &layer));
    mlp *m = (mlp *)layer;
    m->gated = params->gated;
    m->activation = params->activation;
    m->activate = params->activate;
    m->activate_grad = params->activate_grad;
    m->user = params->user;
    tsr_status status = check_mlp_params(layer, params);
    if (status == TSR_OK)
        status = create_children(m, params);
    if (status != TSR_OK) {
        tsr_layer_destroy(&layer);
        return status;
    }
    *out = layer;
    return TSR_OK;
}
