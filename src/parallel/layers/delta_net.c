/* The passes of delta nets. A column-parallel layer computes the projections: q, k and v, which the
 * causal convolution continues, z, and what beta and the decay are computed from. After the delta
 * rule of this rank's heads, and their norm and gate, a row-parallel layer computes y. */
#include "parallel/layers/delta_net.h"

#include "base/alloc.h"
#include "gpu/internal.h"
#include "parallel/layers/context.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/self_attention.h"
#include "tessera/recurrent.h"

/* Is added to the sum of the squares of a head of q or k before they are divided by its root. */
#define UNIT_EPSILON 1e-6F

/* Views --------------------------------------------------------------------------------------- */

/* What a token has of the projections, or of their gradients: [batch, tokens, …]. */
typedef struct projections {
    tsr_tensor *mixed; /* q, k and v, channel by channel */
    tsr_tensor *z;     /* [.., heads, value_dim] */
    tsr_tensor *beta, *alpha;
} projections;

/* q, k and v after the convolution: [batch, tokens, heads, dim]. */
typedef struct rule_inputs {
    tsr_tensor *q, *k, *v;
} rule_inputs;

static int64_t channels_of(const tsr__delta_net *net)
{
    return 2 * net->key_heads * net->key_dim + net->heads * net->value_dim;
}

/* Makes a view [batch, tokens, heads, dim] of features `first` and so on of [batch, tokens, ..]. */
static tsr_status heads_view(tsr__temps *temps, const tsr_tensor *in, int64_t first, int64_t heads,
                             int64_t dim, tsr_tensor **out)
{
    tsr_layout layout = *tsr_tensor_layout(in);
    layout.ndim = 4;
    layout.shape[2] = heads;
    layout.shape[3] = dim;
    layout.strides[2] = dim;
    layout.strides[3] = 1;
    layout.offset += first;
    TSR__TRY(tsr_tensor_view(in, &layout, out));
    return tsr__temp_keep(temps, *out);
}

static tsr_status split_projections(const tsr__delta_net *net, tsr__temps *temps,
                                    const tsr_tensor *rows, projections *out)
{
    const int64_t channels = channels_of(net), values = net->heads * net->value_dim;
    TSR__TRY(tsr__temp_slice(temps, rows, 2, 0, channels, &out->mixed));
    TSR__TRY(heads_view(temps, rows, channels, net->heads, net->value_dim, &out->z));
    TSR__TRY(tsr__temp_slice(temps, rows, 2, channels + values, net->heads, &out->beta));
    return tsr__temp_slice(temps, rows, 2, channels + values + net->heads, net->heads, &out->alpha);
}

static tsr_status split_convolved(const tsr__delta_net *net, tsr__temps *temps,
                                  const tsr_tensor *convolved, rule_inputs *out)
{
    const int64_t keys = net->key_heads * net->key_dim;
    TSR__TRY(heads_view(temps, convolved, 0, net->key_heads, net->key_dim, &out->q));
    TSR__TRY(heads_view(temps, convolved, keys, net->key_heads, net->key_dim, &out->k));
    return heads_view(temps, convolved, 2 * keys, net->heads, net->value_dim, &out->v);
}

/* The states of a layer in a step of a cache, and which of them the sequences read and write. */
typedef struct cached_states {
    tsr_tensor *conv, *state, *read_slots, *write_slots;
} cached_states;

/* Parameters ---------------------------------------------------------------------------------- */

static tsr_tensor *parameter_of(const tsr__delta_net *net, int index)
{
    return net->base.parameter[index]->seen.tensor;
}

/* Gets the weights of the convolution [channels, taps]: a view if they follow each other in memory,
 * otherwise a copy. */
static tsr_status conv_weight(const tsr__delta_net *net, tsr__temps *temps, tsr_tensor **out)
{
    const tsr_tensor *first = parameter_of(net, TSR__DELTA_NET_CONV);
    const int64_t shape[2] = {channels_of(net), net->taps};
    tsr_layout joint = *tsr_tensor_layout(first), next = joint;
    bool is_joint = tsr_layout_is_contiguous(&joint);
    joint.shape[0] = shape[0];
    for (int i = 0; i < TSR__DELTA_NET_CONV_COUNT; i++) {
        const tsr_tensor *part = parameter_of(net, TSR__DELTA_NET_CONV + i);
        next.shape[0] = tsr_tensor_layout(part)->shape[0];
        is_joint = is_joint && tsr__tensor_is_view(part, first, &next);
        next.offset += next.shape[0] * net->taps;
    }
    if (is_joint) {
        TSR__TRY(tsr_tensor_view(first, &joint, out));
        return tsr__temp_keep(temps, *out);
    }
    int64_t start = 0;
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, shape, out));
    for (int i = 0; i < TSR__DELTA_NET_CONV_COUNT; i++) {
        const tsr_tensor *part = parameter_of(net, TSR__DELTA_NET_CONV + i);
        const int64_t rows = tsr_tensor_layout(part)->shape[0];
        tsr_tensor *to;
        TSR__TRY(tsr__temp_slice(temps, *out, 0, start, rows, &to));
        TSR__TRY(tsr_copy(net->base.stream, to, part));
        start += rows;
    }
    return TSR_OK;
}

/* How the layer multiplies in its forward pass. */
static tsr_precision precision_of(const tsr__delta_net *net)
{
    const tsr_layer *input = net->base.child[TSR__DELTA_NET_INPUT];
    return tsr__group_precision(net->base.group, input->parameter[0]->seen.tensor);
}

static tsr__delta_gates gates_of(const tsr__delta_net *net, const projections *p)
{
    return (tsr__delta_gates){.x = p->beta,
                              .alpha = p->alpha,
                              .a_log = parameter_of(net, TSR__DELTA_NET_A_LOG),
                              .dt_bias = parameter_of(net, TSR__DELTA_NET_DT_BIAS)};
}

static tsr_status check_input(const tsr__delta_net *net, const tsr_tensor *x)
{
    TSR__TRY(tsr__layer_check_input(&net->base, "x", x));
    TSR__REQUIRE(tsr_tensor_layout(x)->ndim >= 2, "%s: x is %s; [.., tokens, features] is needed",
                 net->base.who, TSR__SHAPE_OF(x));
    return TSR_OK;
}

/* Forward ------------------------------------------------------------------------------------- */

/* The tensors between the projections and the result of the heads. */
typedef struct between {
    tsr_tensor *convolved, *beta, *decay, *heads;
} between;

/* Allocates the results of the heads for rows [batch, tokens, ..] of projections. */
static tsr_status new_heads(const tsr__delta_net *net, tsr__temps *temps, const tsr_tensor *rows,
                            tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(rows);
    const int64_t heads[4] = {layout->shape[0], layout->shape[1], net->heads, net->value_dim};
    return tsr__temp_new(temps, layout->dtype, 4, heads, out);
}

/* Allocates what is before them. */
static tsr_status new_between(const tsr__delta_net *net, tsr__temps *temps, const tsr_tensor *rows,
                              between *out)
{
    const tsr_layout *layout = tsr_tensor_layout(rows);
    const int64_t *shape = layout->shape, channels[3] = {shape[0], shape[1], channels_of(net)},
                  heads[3] = {shape[0], shape[1], net->heads};
    TSR__TRY(tsr__temp_new(temps, layout->dtype, 3, channels, &out->convolved));
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 3, heads, &out->beta));
    return tsr__temp_new(temps, TSR_F32, 3, heads, &out->decay);
}

/* Computes the results of the heads. `states`, those before the tokens, become those after them;
 * {0}: states begin with 0, and are not kept. */
static tsr_status run_heads(const tsr__delta_net *net, tsr__temps *temps, const projections *in,
                            const tsr_tensor *starts, const tsr__delta_states *states,
                            const between *to)
{
    tsr_stream *stream = net->base.stream;
    const tsr__delta_gates gates = gates_of(net, in);
    rule_inputs rule = {0};
    tsr_tensor *weight;
    TSR__TRY(conv_weight(net, temps, &weight));
    TSR__TRY(tsr_causal_conv(
        stream, to->convolved, states->conv, in->mixed, weight,
        tsr_causal_conv_params(.state = states->conv, .starts = starts, .silu = true)));
    TSR__TRY(tsr__delta_gates_forward(stream, &gates, to->beta, to->decay));
    TSR__TRY(split_convolved(net, temps, to->convolved, &rule));
    return tsr_delta_rule(
        stream, to->heads, states->state, rule.q, rule.k, rule.v, to->beta, to->decay,
        tsr_delta_rule_params(.state = states->state, .starts = starts,
                              .norm_epsilon = UNIT_EPSILON, .tiled_heads = net->tiled_heads,
                              .precision = precision_of(net)));
}

static tsr_status run_rows(const tsr__delta_net *net, tsr__temps *temps, const tsr_tensor *rows,
                           const tsr_tensor *starts, const tsr__delta_states *states,
                           tsr_tensor *heads)
{
    projections in = {0};
    between to = {0};
    TSR__TRY(split_projections(net, temps, rows, &in));
    TSR__TRY(new_between(net, temps, rows, &to));
    to.heads = heads;
    return run_heads(net, temps, &in, starts, states, &to);
}

/* Computes the norm and the gate of the heads: *out [.., tokens, heads · value_dim], with the first
 * dimensions of `projected`. */
static tsr_status finish_heads(const tsr__delta_net *net, tsr__temps *temps,
                               const tsr_tensor *projected, const tsr_tensor *heads,
                               const tsr_tensor *z, tsr_tensor **out)
{
    tsr_tensor *view;
    TSR__TRY(tsr__temp_like(temps, projected, tsr_tensor_layout(projected)->dtype, -1,
                            net->heads * net->value_dim, out));
    if (net->heads == 0)
        return TSR_OK;
    TSR__TRY(tsr__temp_reshape(temps, *out, 4, tsr_tensor_layout(heads)->shape, &view));
    return tsr__gated_heads(net->base.stream, view, heads, z,
                            parameter_of(net, TSR__DELTA_NET_NORM), net->norm_epsilon);
}

static tsr_status delta_forward_with(tsr__delta_net *net, tsr__temps *temps, const tsr_tensor *x,
                                     const tsr_tensor *added, tsr_layer_saved *saved,
                                     tsr_tensor **y)
{
    const tsr_layer *layer = &net->base;
    const tsr_tensor *starts = net->documents ? net->documents->starts : NULL;
    tsr_tensor *projected = NULL, *rows, *gated, *before[2] = {NULL, NULL};
    tsr__context *context;
    projections in = {0};
    between to = {0};
    TSR__TRY(check_input(net, x));
    TSR__TRY(tsr__context_find(net->context_group, net->documents, tsr_tensor_layout(x),
                               &net->context, &context));
    TSR__TRY(tsr_layer_forward(layer->child[TSR__DELTA_NET_INPUT], x,
                               saved ? &saved->child[TSR__DELTA_NET_INPUT] : NULL, &projected));
    TSR__TRY(tsr__temp_keep(temps, projected));
    if (net->heads > 0) {
        TSR__TRY(tsr__temp_by_rows(temps, projected, &rows));
        TSR__TRY(split_projections(net, temps, rows, &in));
        TSR__TRY(new_heads(net, temps, rows, &to.heads));
        if (!context)
            TSR__TRY(new_between(net, temps, rows, &to));
        TSR__TRY(context
                     ? tsr__context_delta_run(net, context, temps, run_rows, rows,
                                              net->documents ? net->documents->chunk_starts : NULL,
                                              to.heads, saved ? before : NULL)
                     : run_heads(net, temps, &in, starts, &(tsr__delta_states){0}, &to));
    }
    TSR__TRY(finish_heads(net, temps, projected, to.heads, in.z, &gated));
    TSR__TRY(tsr__layer_forward_added(layer->child[TSR__DELTA_NET_OUTPUT], gated, NULL, added,
                                      saved ? &saved->child[TSR__DELTA_NET_OUTPUT] : NULL, y));
    if (!saved)
        return TSR_OK;
    TSR__TRY(tsr__documents_keep(net->documents, saved));
    if (context && !saved->context)
        saved->context = tsr__context_keep(context);
    saved->hidden = tsr__temp_take(temps, projected);
    for (int i = 0; i < 2; i++)
        if (before[i])
            saved->before[i] = tsr__temp_take(temps, before[i]);
    if (net->heads > 0)
        saved->heads = tsr__temp_take(temps, to.heads);
    if (to.convolved)
        saved->convolved = tsr__temp_take(temps, to.convolved);
    return TSR_OK;
}

/* With a cache -------------------------------------------------------------------------------- */

/* Gets the states of a step: *conv [slots, channels, taps − 1], NULL with one tap, and *state
 * [slots, heads, key_dim, value_dim]. */
static tsr_status states_of(const tsr__delta_net *net, tsr__temps *temps, const tsr__cached *cached,
                            cached_states *out)
{
    const int64_t channels = channels_of(net);
    tsr_tensor *conv = NULL, *state = NULL;
    const tsr_status status = tsr__kv_cache_states(cached->cache, cached->layer, &conv, &state,
                                                   &out->read_slots, &out->write_slots);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s", net->base.who);
    const int64_t slots = tsr_tensor_layout(state)->shape[0],
                  has[2] = {tsr_tensor_layout(conv)->shape[1], tsr_tensor_layout(state)->shape[1]},
                  needs[2] = {channels * (net->taps - 1),
                              net->heads * net->key_dim * net->value_dim},
                  conv_shape[3] = {slots, channels, net->taps - 1},
                  shape[4] = {slots, net->heads, net->key_dim, net->value_dim};
    TSR__REQUIRE(has[0] == needs[0] && has[1] == needs[1],
                 "%s: layer %d of the cache has states of %lld and %lld floats; %lld and %lld are "
                 "needed",
                 net->base.who, cached->layer, (long long)has[0], (long long)has[1],
                 (long long)needs[0], (long long)needs[1]);
    if (net->taps > 1)
        TSR__TRY(tsr__temp_reshape(temps, conv, 3, conv_shape, &out->conv));
    return tsr__temp_reshape(temps, state, 4, shape, &out->state);
}

/* Computes the results of the heads of a step, whose states it reads and writes. */
static tsr_status run_step(const tsr__delta_net *net, tsr__temps *temps, const tsr__cached *cached,
                           const projections *in, const between *to)
{
    tsr_stream *stream = net->base.stream;
    const tsr_tensor *lengths = tsr__kv_cache_lengths(cached->cache);
    const tsr__delta_gates gates = gates_of(net, in);
    cached_states states = {0};
    rule_inputs rule = {0};
    tsr_tensor *weight;
    TSR__TRY(states_of(net, temps, cached, &states));
    TSR__TRY(conv_weight(net, temps, &weight));
    TSR__TRY(tsr_causal_conv(
        stream, to->convolved, states.conv, in->mixed, weight,
        tsr_causal_conv_params(.state = states.conv, .lengths = lengths, .silu = true,
                               .read_slots = states.conv ? states.read_slots : NULL,
                               .write_slots = states.conv ? states.write_slots : NULL)));
    TSR__TRY(tsr__delta_gates_forward(stream, &gates, to->beta, to->decay));
    TSR__TRY(split_convolved(net, temps, to->convolved, &rule));
    return tsr_delta_rule(
        stream, to->heads, states.state, rule.q, rule.k, rule.v, to->beta, to->decay,
        tsr_delta_rule_params(.state = states.state, .lengths = lengths,
                              .norm_epsilon = UNIT_EPSILON, .tiled_heads = net->tiled_heads,
                              .read_slots = states.read_slots, .write_slots = states.write_slots,
                              .precision = precision_of(net)));
}

static tsr_status delta_step_with(const tsr__delta_net *net, tsr__temps *temps, const tsr_tensor *x,
                                  const tsr__cached *cached, const tsr_tensor *added,
                                  tsr_tensor **y)
{
    const tsr_layer *layer = &net->base;
    tsr_tensor *projected = NULL, *gated;
    projections in = {0};
    between to = {0};
    TSR__TRY(check_input(net, x));
    TSR__TRY(
        tsr__layer_check_step(layer, tsr_tensor_layout(x), tsr__kv_cache_positions(cached->cache)));
    TSR__TRY(tsr__layer_check_forward(layer->child[TSR__DELTA_NET_OUTPUT]));
    TSR__TRY(
        tsr__column_forward_after(layer->child[TSR__DELTA_NET_INPUT], cached->norm, x, &projected));
    TSR__TRY(tsr__temp_keep(temps, projected));
    if (net->heads > 0) {
        TSR__TRY(split_projections(net, temps, projected, &in));
        TSR__TRY(new_heads(net, temps, projected, &to.heads));
        TSR__TRY(new_between(net, temps, projected, &to));
        TSR__TRY(run_step(net, temps, cached, &in, &to));
    }
    TSR__TRY(finish_heads(net, temps, projected, to.heads, in.z, &gated));
    return tsr__layer_forward_added(layer->child[TSR__DELTA_NET_OUTPUT], gated, NULL, added, NULL,
                                    y);
}

static tsr_status delta_forward_added(tsr_layer *layer, const tsr_tensor *x,
                                      const tsr__cached *cached, const tsr_tensor *added,
                                      tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr__delta_net *net = (tsr__delta_net *)layer;
    tsr__temps temps = {.stream = layer->stream};
    const tsr_status status = cached ? delta_step_with(net, &temps, x, cached, added, y)
                                     : delta_forward_with(net, &temps, x, added, saved, y);
    tsr__temps_finish(&temps);
    return status;
}

static tsr_status delta_forward_cached(tsr_layer *layer, const tsr_tensor *x,
                                       const tsr__cached *cached, tsr_tensor **y)
{
    return delta_forward_added(layer, x, cached, NULL, NULL, y);
}

static tsr_status delta_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                                tsr_tensor **y)
{
    return delta_forward_added(layer, x, NULL, NULL, saved, y);
}

/* Backward ------------------------------------------------------------------------------------ */

/* A backward pass between the two products. */
typedef struct delta_backward {
    tsr__delta_net *net;
    tsr__temps *temps;
    const tsr_layer_saved *saved;
    projections in, d; /* the projections, and their gradients */
    bool trains;       /* gradients of the layer's own parameters are needed */
    const tsr_tensor *convolved, *starts;
    /* the states before the tokens, and the gradients of those after them, which become those of
     * the states before; {0}: there are none */
    tsr__delta_states before, dstates;
} delta_backward;

/* The gradient of the norm: *dheads from `dnormed`, which has the norm's output. `dweight` may be
 * NULL. */
static tsr_status norm_grad(const delta_backward *b, const tsr_tensor *dnormed, tsr_tensor *dweight,
                            bool accumulate, tsr_tensor *dheads)
{
    const tsr__delta_net *net = b->net;
    return tsr_norm_grad(net->base.stream, dheads, dweight, NULL, b->saved->heads, dnormed,
                         parameter_of(net, TSR__DELTA_NET_NORM), TSR_NORM_RMS, net->norm_epsilon,
                         accumulate);
}

/* The same, and the gradient of the norm's weight, which several ranks contribute to. */
static tsr_status sum_norm_grads(const delta_backward *b, tsr__replicated_grads *grads,
                                 const tsr_tensor *dnormed, tsr_tensor *dheads)
{
    tsr_tensor *contribution;
    TSR__TRY(tsr__replicated_grads_add(grads, TSR__DELTA_NET_NORM));
    TSR__TRY(tsr__replicated_grads_allocate(grads, b->net->heads == 0));
    TSR__TRY(tsr__replicated_grads_get(grads, TSR__DELTA_NET_NORM, &contribution));
    if (b->net->heads > 0)
        TSR__TRY(norm_grad(b, dnormed, contribution, false, dheads));
    TSR__TRY(tsr__replicated_grads_start(grads));
    return tsr__replicated_grads_finish(grads);
}

static tsr_status norm_backward(const delta_backward *b, const tsr_tensor *dnormed,
                                tsr_tensor *dheads)
{
    tsr_layer *layer = &b->net->base;
    tsr__layer_parameter *weight = layer->parameter[TSR__DELTA_NET_NORM];
    if (!b->trains)
        return b->net->heads > 0 ? norm_grad(b, dnormed, NULL, false, dheads) : TSR_OK;
    if (layer->size == 1) {
        TSR__TRY(tsr__parameter_need_grad(layer, TSR__DELTA_NET_NORM));
        TSR__TRY(norm_grad(b, dnormed, weight->seen.grad, !weight->grad_empty, dheads));
        weight->grad_empty = false;
        return TSR_OK;
    }
    tsr__replicated_grads grads = {.layer = layer, .temps = b->temps};
    const tsr_status status = sum_norm_grads(b, &grads, dnormed, dheads);
    tsr__replicated_grads_cancel(&grads);
    return status;
}

/* Computes the gradients of z and of the heads' results from `dgated`, that of the input of the
 * last product. */
static tsr_status finish_backward(const delta_backward *b, const tsr_tensor *dgated,
                                  tsr_tensor **dheads)
{
    const tsr__delta_net *net = b->net;
    tsr_stream *stream = net->base.stream;
    tsr_tensor *dy, *normed, *dnormed;
    if (net->heads == 0)
        return norm_backward(b, NULL, NULL);
    const tsr_layout *layout = tsr_tensor_layout(b->saved->heads);
    TSR__TRY(tsr__temp_reshape(b->temps, dgated, 4, layout->shape, &dy));
    TSR__TRY(tsr__temp_new(b->temps, TSR_F32, 4, layout->shape, &normed));
    TSR__TRY(tsr__temp_new(b->temps, layout->dtype, 4, layout->shape, &dnormed));
    TSR__TRY(tsr__temp_new(b->temps, layout->dtype, 4, layout->shape, dheads));
    TSR__TRY(tsr_norm(stream, normed, b->saved->heads, parameter_of(net, TSR__DELTA_NET_NORM), NULL,
                      TSR_NORM_RMS, net->norm_epsilon));
    TSR__TRY(tsr_activate(stream, dnormed, b->in.z, dy, TSR_ACT_SILU));
    TSR__TRY(tsr_binary(stream, normed, normed, dy, TSR_BINARY_MUL));
    TSR__TRY(tsr_activate_grad(stream, b->d.z, b->in.z, normed, TSR_ACT_SILU));
    return norm_backward(b, dnormed, *dheads);
}

/* Adds rows start … of `sum` to the gradient of a parameter. */
static tsr_status add_grad(const delta_backward *b, int index, const tsr_tensor *sum, int64_t start)
{
    tsr_layer *layer = &b->net->base;
    tsr__layer_parameter *parameter = layer->parameter[index];
    tsr_tensor *own;
    TSR__TRY(tsr__temp_slice(b->temps, sum, 0, start, parameter->seen.length, &own));
    TSR__TRY(tsr__parameter_need_grad(layer, index));
    TSR__TRY(parameter->grad_empty ? tsr_copy(layer->stream, parameter->seen.grad, own)
                                   : tsr_axpy(layer->stream, parameter->seen.grad, 1, own));
    parameter->grad_empty = false;
    return TSR_OK;
}

static tsr_status conv_backward(const delta_backward *b, const tsr_tensor *dconvolved)
{
    const tsr__delta_net *net = b->net;
    const int64_t shape[2] = {channels_of(net), net->taps};
    tsr_tensor *weight, *dweight = NULL;
    TSR__TRY(conv_weight(net, b->temps, &weight));
    if (b->trains)
        TSR__TRY(tsr__temp_new(b->temps, TSR_F32, 2, shape, &dweight));
    tsr_tensor *dstate = NULL;
    if (b->dstates.conv) {
        const tsr_layout *layout = tsr_tensor_layout(b->dstates.conv);
        TSR__TRY(tsr__temp_new(b->temps, TSR_F32, layout->ndim, layout->shape, &dstate));
    }
    TSR__TRY(tsr_causal_conv_grad(
        net->base.stream,
        tsr_causal_conv_grads(.dx = b->d.mixed, .dweight = dweight, .dstate = dstate), dconvolved,
        b->dstates.conv, b->in.mixed, weight,
        tsr_causal_conv_params(.state = b->before.conv, .starts = b->starts, .silu = true)));
    if (dstate)
        TSR__TRY(tsr_copy(net->base.stream, b->dstates.conv, dstate));
    int64_t start = 0;
    for (int i = 0; b->trains && i < TSR__DELTA_NET_CONV_COUNT; i++) {
        TSR__TRY(add_grad(b, TSR__DELTA_NET_CONV + i, dweight, start));
        start += net->base.parameter[TSR__DELTA_NET_CONV + i]->seen.length;
    }
    return TSR_OK;
}

static tsr_status gates_backward(const delta_backward *b, const tsr_tensor *dbeta,
                                 const tsr_tensor *ddecay)
{
    tsr__delta_net *net = b->net;
    const int64_t *rows = tsr_tensor_layout(dbeta)->shape,
                  shape[2] = {rows[0] * rows[1], 2 * net->heads};
    const tsr__delta_gates gates = gates_of(net, &b->in);
    tsr_tensor *terms;
    TSR__TRY(tsr__temp_new(b->temps, TSR_F32, 2, shape, &terms));
    TSR__TRY(tsr__delta_gates_grad(net->base.stream, &gates, dbeta, ddecay, b->d.beta, b->d.alpha,
                                   terms));
    for (int i = 0; b->trains && i < 2; i++) {
        tsr_tensor *own;
        TSR__TRY(tsr__temp_slice(b->temps, terms, 1, i * net->heads, net->heads, &own));
        TSR__TRY(tsr__parameter_add_bias_grad(&net->base, TSR__DELTA_NET_A_LOG + i, own));
    }
    return TSR_OK;
}

/* Computes the gradients of all projections but z. */
static tsr_status rule_backward(const delta_backward *b, const tsr_tensor *dheads)
{
    const tsr__delta_net *net = b->net;
    tsr_stream *stream = net->base.stream;
    const tsr__delta_gates gates = gates_of(net, &b->in);
    const tsr_layout *layout = tsr_tensor_layout(b->convolved);
    tsr_tensor *beta, *decay, *dbeta, *ddecay, *dconvolved;
    rule_inputs in = {0}, d = {0};
    const int64_t heads[3] = {layout->shape[0], layout->shape[1], net->heads};
    tsr_tensor **numbers[] = {&beta, &decay, &dbeta, &ddecay};
    for (int i = 0; i < 4; i++)
        TSR__TRY(tsr__temp_new(b->temps, TSR_F32, 3, heads, numbers[i]));
    TSR__TRY(tsr__temp_new(b->temps, layout->dtype, 3, layout->shape, &dconvolved));
    TSR__TRY(split_convolved(net, b->temps, b->convolved, &in));
    TSR__TRY(split_convolved(net, b->temps, dconvolved, &d));
    TSR__TRY(tsr__delta_gates_forward(stream, &gates, beta, decay));
    TSR__TRY(tsr_delta_rule_grad(
        stream,
        tsr_delta_rule_grads(.dq = d.q, .dk = d.k, .dv = d.v, .dbeta = dbeta, .dg = ddecay,
                             .dstate = b->dstates.state),
        dheads, b->dstates.state, in.q, in.k, in.v, beta, decay,
        tsr_delta_rule_params(.state = b->before.state, .starts = b->starts,
                              .norm_epsilon = UNIT_EPSILON, .tiled_heads = b->net->tiled_heads)));
    TSR__TRY(gates_backward(b, dbeta, ddecay));
    return conv_backward(b, dconvolved);
}

static tsr_status run_rows_grad(tsr__delta_net *net, tsr__temps *temps, const tsr_tensor *rows,
                                const tsr_tensor *starts, const tsr__delta_states *before,
                                const tsr__delta_states *d, const tsr_tensor *dheads,
                                tsr_tensor *drows)
{
    delta_backward b = {.net = net,
                        .temps = temps,
                        .trains = !net->base.frozen,
                        .starts = starts,
                        .before = *before,
                        .dstates = *d};
    between to = {0};
    tsr_tensor *weight;
    TSR__TRY(split_projections(net, temps, rows, &b.in));
    TSR__TRY(split_projections(net, temps, drows, &b.d));
    TSR__TRY(new_between(net, temps, rows, &to));
    TSR__TRY(conv_weight(net, temps, &weight));
    TSR__TRY(tsr_causal_conv(
        net->base.stream, to.convolved, NULL, b.in.mixed, weight,
        tsr_causal_conv_params(.state = before->conv, .starts = starts, .silu = true)));
    b.convolved = to.convolved;
    return rule_backward(&b, dheads);
}

/* Sets gradients to which nothing has been added to 0: those of a rank without heads, which have no
 * elements, or of a context rank without tokens. */
static tsr_status clear_unwritten_grads(tsr__delta_net *net)
{
    for (int i = TSR__DELTA_NET_CONV; i <= TSR__DELTA_NET_DT_BIAS; i++) {
        tsr__layer_parameter *parameter = net->base.parameter[i];
        if (!parameter->grad_empty)
            continue;
        TSR__TRY(tsr__parameter_need_grad(&net->base, i));
        TSR__TRY(tsr_fill(net->base.stream, parameter->seen.grad, 0));
        parameter->grad_empty = false;
    }
    return TSR_OK;
}

/* Computes *dprojected from dgated. */
static tsr_status heads_backward(tsr__delta_net *net, tsr__temps *temps,
                                 const tsr_layer_saved *saved, const tsr_tensor *dgated,
                                 tsr_tensor **dprojected)
{
    const tsr_layout *layout = tsr_tensor_layout(saved->hidden);
    delta_backward b = {.net = net,
                        .temps = temps,
                        .saved = saved,
                        .trains = !net->base.frozen,
                        .convolved = saved->convolved,
                        .starts = saved->starts};
    tsr_tensor *rows = NULL, *drows = NULL, *dheads = NULL;
    TSR__TRY(tsr__temp_new(temps, layout->dtype, layout->ndim, layout->shape, dprojected));
    if (net->heads > 0) {
        TSR__TRY(tsr__temp_by_rows(temps, saved->hidden, &rows));
        TSR__TRY(tsr__temp_by_rows(temps, *dprojected, &drows));
        TSR__TRY(split_projections(net, temps, rows, &b.in));
        TSR__TRY(split_projections(net, temps, drows, &b.d));
    }
    TSR__TRY(finish_backward(&b, dgated, &dheads));
    if (net->heads > 0)
        TSR__TRY(saved->context ? tsr__context_delta_run_grad(
                                      net, saved->context, temps, run_rows_grad, rows,
                                      saved->chunk_starts, saved->before, dheads, drows)
                                : rule_backward(&b, dheads));
    return b.trains ? clear_unwritten_grads(net) : TSR_OK;
}

static tsr_status delta_backward_pass(tsr_layer *layer, const tsr_layer_saved *saved,
                                      const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr__delta_net *net = (tsr__delta_net *)layer;
    tsr__temps temps = {.stream = layer->stream};
    tsr_tensor *dgated = NULL, *dprojected;
    for (int i = 0; i < layer->parameter_count; i++)
        TSR__TRY(tsr__parameter_require(layer, i));
    tsr_status status = tsr_layer_backward(layer->child[TSR__DELTA_NET_OUTPUT],
                                           saved->child[TSR__DELTA_NET_OUTPUT], dy, &dgated);
    if (status == TSR_OK)
        status = heads_backward(net, &temps, saved, dgated, &dprojected);
    if (status == TSR_OK)
        status = tsr_layer_backward(layer->child[TSR__DELTA_NET_INPUT],
                                    saved->child[TSR__DELTA_NET_INPUT], dprojected, dx);
    tsr_tensor_destroy(&dgated);
    tsr__temps_finish(&temps);
    return status;
}

static void delta_finish(tsr_layer *layer)
{
    tsr__delta_net *net = (tsr__delta_net *)layer;
    tsr__context_forget(&net->context);
    tsr__free(net->key_sizes);
    tsr__free(net->value_sizes);
    tsr__free(net->head_sizes);
}

const tsr__layer_type tsr__delta_net_type = {.name = "delta_net",
                                             .forward = delta_forward,
                                             .backward = delta_backward_pass,
                                             .finish = delta_finish,
                                             .forward_cached = delta_forward_cached,
                                             .forward_added = delta_forward_added,
                                             .normalises = true};

tsr__delta_net *tsr__delta_net_of(const tsr_layer *layer)
{
    const tsr_layer *found = layer->type == &tsr__delta_net_type ? layer : NULL;
    for (int i = 0; i < layer->child_count; i++)
        if (layer->child[i]->type == &tsr__delta_net_type)
            found = layer->child[i];
    return (tsr__delta_net *)found;
}
