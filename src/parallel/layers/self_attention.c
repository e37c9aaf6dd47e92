/* The passes of self-attention layers. A column-parallel layer computes queries, keys and values;
 * after the attention of this rank's heads, a row-parallel layer computes y. */
#include "parallel/layers/self_attention.h"
#include "parallel/layers/delta_net.h"
#include "parallel/layers/short_conv.h"

#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "gpu/internal.h"
#include "parallel/internal.h"
#include "parallel/layers/context.h"
#include "parallel/layers/latent_attention.h"
#include "parallel/layers/linear.h"
#include "parallel/layers/norm_layer.h"
#include "tensor/dtype.h"

/* The index of the sinks among the layer's own parameters. */
static int sinks_index(const tsr__attention *a)
{
    return !a->qk_norm ? 0 : a->shared_keys ? TSR__K_NORM : TSR__K_NORM + 1;
}

static tsr_attention_params params_of(const tsr__attention *a, const tsr_tensor *starts)
{
    return (tsr_attention_params){
        .struct_size = sizeof(tsr_attention_params),
        .scale = a->scale,
        .softcap = a->softcap,
        .causal = a->causal,
        .window = a->window,
        .temperature = a->temperature,
        .temperature_length = a->temperature_length,
        .kv_head = a->regular ? NULL : a->kv_head,
        .sinks = a->sinks ? a->base.parameter[sinks_index(a)]->seen.tensor : NULL,
        .starts = starts,
    };
}

/* Forward ------------------------------------------------------------------------------------ */

/* Computes the attention of this rank's heads: *y [.., tokens, heads · value_dim]. `context` and
 * `lse` may be NULL. */
static tsr_status attend_heads(tsr__attention *a, tsr__temps *temps, const tsr_tensor *qkv,
                               const tsr__context *context, const tsr__qkv_heads *in,
                               tsr_tensor **lse, tsr_tensor **y)
{
    const tsr_layout *layout = tsr_tensor_layout(qkv), *q = tsr_tensor_layout(in->q);
    tsr_tensor *view;
    TSR__TRY(tsr__temp_like(temps, qkv, layout->dtype, -1, a->heads.count * a->heads.value_dim, y));
    if (lse)
        TSR__TRY(tsr__temp_new(temps, TSR_F32, 3, q->shape, lse));
    if (a->heads.count == 0)
        return TSR_OK;
    const tsr_attention_params params = params_of(a, a->documents ? a->documents->starts : NULL);
    TSR__TRY(tsr__by_heads(a, temps, *y, &view));
    if (context)
        return tsr__context_attend(a, context, &params, in, view, lse ? *lse : NULL);
    return tsr_attention(a->base.stream, view, lse ? *lse : NULL, in->q, in->k, in->v, &params);
}

/* Makes a view [batch, tokens, heads, head_dim] of a view of heads. */
static tsr_status by_tokens(tsr__temps *temps, const tsr_tensor *heads, tsr_tensor **out)
{
    return tsr__temp_transpose(temps, heads, 1, 2, out);
}

/* y = x · σ(gate) for x and y [.., tokens, heads · value_dim]. y may be x. */
static tsr_status apply_gate(const tsr__attention *a, tsr__temps *temps, const tsr_tensor *gate,
                             const tsr_tensor *x, const tsr_tensor *y)
{
    tsr_tensor *from, *to, *factor;
    TSR__TRY(tsr__by_heads(a, temps, x, &from));
    TSR__TRY(tsr__by_heads(a, temps, y, &to));
    TSR__TRY(by_tokens(temps, from, &from));
    TSR__TRY(by_tokens(temps, to, &to));
    TSR__TRY(by_tokens(temps, gate, &factor));
    return tsr__gated_heads(a->base.stream, to, from, factor, NULL, 0);
}

/* Multiplies the heads' results by the gate, if there is one: in their place, or, if `keep` is
 * true, to new memory. */
static tsr_status gate_heads(const tsr__attention *a, tsr__temps *temps, const tsr__qkv_heads *in,
                             bool keep, tsr_tensor *heads, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(heads);
    *out = heads;
    if (!a->output_gate || a->heads.count == 0)
        return TSR_OK;
    if (keep)
        TSR__TRY(tsr__temp_new(temps, layout->dtype, layout->ndim, layout->shape, out));
    return apply_gate(a, temps, in->gate, heads, *out);
}

static tsr_status check_input(const tsr__attention *a, const tsr_tensor *x)
{
    TSR__TRY(tsr__layer_check_input(&a->base, "x", x));
    TSR__REQUIRE(tsr_tensor_layout(x)->ndim >= 2, "%s: x is %s; [.., tokens, features] is needed",
                 a->base.who, TSR__SHAPE_OF(x));
    return TSR_OK;
}

/* Refuses passes that layers with these properties do not have. */
static tsr_status check_pass(const tsr__attention *a, const tsr_layer_saved *saved)
{
    /* Without norms of keys, the rotation replaces the keys that are the values. */
    return saved && a->keys_as_values && !a->qk_norm
               ? tsr__fail(TSR_ERR_UNSUPPORTED,
                           "%s: with keys_as_values and no qk_norm, there is no backward pass",
                           a->base.who)
               : TSR_OK;
}

/* Keys and values of other layers ------------------------------------------------------------ */

void tsr__shared_keys_finish(tsr__shared_keys *keys)
{
    tsr_tensor_destroy(&keys->k);
    tsr_tensor_destroy(&keys->v);
    tsr_tensor_destroy(&keys->dk);
    tsr_tensor_destroy(&keys->dv);
}

void tsr__layer_set_shared_keys(tsr_layer *layer, tsr__shared_keys *keys)
{
    tsr__attention *attention = tsr__attention_of(layer);
    if (attention)
        attention->shared = keys;
}

/* Creates a contiguous copy with this dtype. */
static tsr_status copy_of(tsr_stream *stream, const tsr_tensor *from, tsr_dtype dtype,
                          tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(from);
    TSR__TRY(tsr_tensor_create(tsr_stream_device(stream), dtype, layout->ndim, layout->shape, out));
    const tsr_status status = tsr_copy(stream, *out, from);
    if (status != TSR_OK)
        tsr_tensor_destroy(out);
    return status;
}

/* Sets the keys and values of a layer that reads those of another. */
static tsr_status read_shared(const tsr__attention *a, tsr__qkv_heads *heads)
{
    const tsr__shared_keys *shared = a->shared;
    if (a->heads.count == 0)
        return TSR_OK;
    if (!shared || !shared->k)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: with shared_keys, there is no pass without the keys of another layer",
                         a->base.who);
    const tsr_layout *q = tsr_tensor_layout(heads->q), *k = tsr_tensor_layout(shared->k);
    TSR__REQUIRE(k->shape[0] == q->shape[0] && k->shape[1] == a->heads.kv_count &&
                     k->shape[2] == q->shape[2] && k->shape[3] == q->shape[3],
                 "%s: the keys of another layer are %s; queries are %s", a->base.who,
                 TSR__SHAPE_OF(shared->k), TSR__SHAPE_OF(heads->q));
    heads->k = shared->k;
    heads->v = shared->v;
    return TSR_OK;
}

/* Reads the keys and values of another layer, or keeps copies of this layer's for others, unless
 * the pass runs again. */
static tsr_status share_keys(const tsr__attention *a, tsr__qkv_heads *heads)
{
    tsr__shared_keys *shared = a->shared;
    if (a->shared_keys)
        return read_shared(a, heads);
    if (!shared || shared->k || a->heads.count == 0)
        return TSR_OK;
    const tsr_dtype dtype = tsr_tensor_layout(heads->k)->dtype;
    TSR__TRY(copy_of(a->base.stream, heads->v, dtype, &shared->v));
    return copy_of(a->base.stream, heads->k, dtype, &shared->k);
}

static tsr_status attention_forward_with(tsr__attention *a, tsr__temps *temps, const tsr_tensor *x,
                                         const tsr_tensor *added, tsr_layer_saved *saved,
                                         tsr_tensor **y)
{
    tsr_layer *layer = &a->base;
    tsr_tensor *qkv = NULL, *heads, *gated, *positions = NULL, *lse, *normalised, *inverse_rms;
    tsr__qkv_heads in = {0};
    tsr__context *context;
    TSR__TRY(check_pass(a, saved));
    TSR__TRY(check_input(a, x));
    TSR__TRY(tsr_layer_forward(layer->child[TSR__ATTENTION_QKV], x,
                               saved ? &saved->child[TSR__ATTENTION_QKV] : NULL, &qkv));
    TSR__TRY(tsr__temp_keep(temps, qkv));
    const tsr_layout *layout = tsr_tensor_layout(qkv);
    TSR__TRY(tsr__context_find(a->context_group, a->documents, layout, &a->context, &context));
    if (a->rope && a->documents)
        positions = a->documents->positions;
    else if (a->rope && context)
        positions = context->positions;
    else if (a->rope)
        TSR__TRY(tsr__need_positions(layer, &a->positions, temps, layout->shape[layout->ndim - 2],
                                     &positions));
    TSR__TRY(
        tsr__attention_normalise(a, temps, qkv, saved != NULL, &in, &normalised, &inverse_rms));
    if (a->rope && a->heads.count > 0)
        TSR__TRY(tsr_rope_apply(layer->stream, a->rope, in.qk, in.qk, positions));
    TSR__TRY(share_keys(a, &in));
    TSR__TRY(attend_heads(a, temps, qkv, context, &in, saved ? &lse : NULL, &heads));
    TSR__TRY(gate_heads(a, temps, &in, saved != NULL, heads, &gated));
    TSR__TRY(tsr__layer_forward_added(layer->child[TSR__ATTENTION_OUTPUT], gated, NULL, added,
                                      saved ? &saved->child[TSR__ATTENTION_OUTPUT] : NULL, y));
    if (!saved)
        return TSR_OK;
    TSR__TRY(tsr__documents_keep(a->documents, saved));
    if (context && !saved->context)
        saved->context = tsr__context_keep(context);
    saved->hidden = tsr__temp_take(temps, qkv);
    saved->lse = tsr__temp_take(temps, lse);
    if (gated != heads)
        saved->heads = tsr__temp_take(temps, heads);
    if (normalised)
        saved->normalised = tsr__temp_take(temps, normalised);
    if (inverse_rms)
        saved->inverse_rms = tsr__temp_take(temps, inverse_rms);
    return TSR_OK;
}

/* With a cache ------------------------------------------------------------------------------- */

/* Checks that x has the shape of the cache's step. If x is divided over the ranks, checks the shape
 * that x has after it has been gathered. */
static tsr_status check_step(const tsr__attention *a, const tsr_tensor *x,
                             const tsr_tensor *positions)
{
    const tsr__linear *qkv = (const tsr__linear *)a->base.child[TSR__ATTENTION_QKV];
    tsr_layout whole = *tsr_tensor_layout(x);
    if (qkv->input == TSR_LAYOUT_SEQUENCE && qkv->sequence_dim < whole.ndim)
        whole.shape[qkv->sequence_dim] *= a->base.size;
    return tsr__layer_check_step(&a->base, &whole, positions);
}

/* Computes the results of this rank's heads with a cache that the context group divides. */
static tsr_status attend_divided(const tsr__attention *a, tsr__temps *temps,
                                 const tsr__cached *cached, const tsr_tensor *qkv,
                                 const tsr__qkv_heads *in, tsr_tensor **heads)
{
    const tsr_attention_params params = params_of(a, NULL);
    TSR__TRY(tsr__temp_like(temps, qkv, TSR_F32, -1, a->heads.count * a->heads.value_dim, heads));
    if (a->heads.count == 0)
        return TSR_OK;
    if (a->window > 0 || a->temperature != 0 || a->shared_keys || a->keys_as_values || !a->causal)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: ranks cannot divide the cache of a layer with %s", a->base.who,
                         a->window > 0         ? "a window"
                         : a->temperature != 0 ? "a temperature"
                         : !a->causal          ? "attention that is not causal"
                                               : "keys that are not its own");
    TSR__TRY(tsr__context_attend_cached(a, temps, cached, &params, qkv, in, *heads));
    return gate_heads(a, temps, in, false, *heads, heads);
}

/* Returns the dtype in which the heads' results are written: a cache's, if matrix units compute
 * attention and can read them as they are for the output product; otherwise qkv's. */
static tsr_dtype heads_dtype(const tsr__attention *a, const tsr__cached *cached,
                             const tsr__qkv_heads *in, const tsr_attention_params *params)
{
    const tsr_layer *output = a->base.child[TSR__ATTENTION_OUTPUT];
    const tsr_dtype own = tsr_tensor_layout(in->q)->dtype,
                    weight = tsr_tensor_layout(output->parameter[0]->seen.tensor)->dtype,
                    result =
                        tsr__kv_cache_result_dtype(cached->cache, cached->layer, in->q, params);
    return weight == result || (tsr__dtype_is_block(weight) && result == TSR_F16) ? result : own;
}

static tsr_status attention_forward_cached_with(tsr__attention *a, tsr__temps *temps,
                                                const tsr_tensor *x, const tsr__cached *cached,
                                                const tsr_tensor *added, tsr_tensor **y)
{
    tsr_layer *layer = &a->base;
    const tsr_tensor *step = tsr__kv_cache_positions(cached->cache);
    tsr_tensor *qkv = NULL, *heads, *normalised, *inverse_rms, *view;
    tsr__qkv_heads in = {0};
    tsr_attention_params params;
    TSR__TRY(check_input(a, x));
    TSR__TRY(check_step(a, x, step));
    TSR__TRY(tsr__layer_check_forward(layer->child[TSR__ATTENTION_OUTPUT]));
    TSR__TRY(tsr__column_forward_after(layer->child[TSR__ATTENTION_QKV], cached->norm, x, &qkv));
    TSR__TRY(tsr__temp_keep(temps, qkv));
    TSR__TRY(tsr__attention_normalise(a, temps, qkv, false, &in, &normalised, &inverse_rms));
    const tsr_dtype dtype = tsr_tensor_layout(qkv)->dtype;
    if (tsr__kv_cache_division(cached->cache).ranks > 1) {
        TSR__TRY(attend_divided(a, temps, cached, qkv, &in, &heads));
        return tsr__layer_forward_added(layer->child[TSR__ATTENTION_OUTPUT], heads, NULL, added,
                                        NULL, y);
    }
    params = params_of(a, NULL);
    const tsr_dtype narrow = a->heads.count > 0 ? heads_dtype(a, cached, &in, &params) : dtype;
    TSR__TRY(tsr__temp_like(temps, qkv, narrow, -1, a->heads.count * a->heads.value_dim, &heads));
    if (a->heads.count > 0) {
        TSR__TRY(tsr__by_heads(a, temps, heads, &view));
        TSR__TRY(a->shared_keys
                     ? tsr__kv_cache_attend(cached->cache, cached->layer, a->rope, view, NULL, in.q,
                                            &params)
                     : tsr__kv_cache_append_and_attend(cached->cache, cached->layer, a->rope, view,
                                                       in.q, in.k, in.v, &params));
        TSR__TRY(gate_heads(a, temps, &in, false, heads, &heads));
    }
    if (narrow != dtype)
        return tsr__row_forward_as(layer->child[TSR__ATTENTION_OUTPUT], heads, dtype, added, y);
    return tsr__layer_forward_added(layer->child[TSR__ATTENTION_OUTPUT], heads, NULL, added, NULL,
                                    y);
}

static tsr_status attention_forward_added(tsr_layer *layer, const tsr_tensor *x,
                                          const tsr__cached *cached, const tsr_tensor *added,
                                          tsr_layer_saved *saved, tsr_tensor **y)
{
    tsr__attention *a = (tsr__attention *)layer;
    tsr__temps temps = {.stream = layer->stream};
    tsr_status status = cached ? attention_forward_cached_with(a, &temps, x, cached, added, y)
                               : attention_forward_with(a, &temps, x, added, saved, y);
    tsr__temps_finish(&temps);
    return status;
}

static tsr_status attention_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                                    tsr_tensor **y)
{
    return attention_forward_added(layer, x, NULL, NULL, saved, y);
}

static tsr_status attention_forward_cached(tsr_layer *layer, const tsr_tensor *x,
                                           const tsr__cached *cached, tsr_tensor **y)
{
    return attention_forward_added(layer, x, cached, NULL, NULL, y);
}

/* Backward ----------------------------------------------------------------------------------- */

/* Creates the tensor for the gradients of this rank's sinks: *row [1, heads], and a view of it
 * [heads], which the gradient of attention writes. */
static tsr_status new_sink_grads(const tsr__attention *a, tsr__temps *temps, tsr_tensor **row,
                                 tsr_tensor **out)
{
    const int64_t shape[] = {1, a->heads.count};
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, shape, row));
    return tsr__temp_reshape(temps, *row, 1, &shape[1], out);
}

/* Computes the gradient of the gate, to d->gate, and *dattended, that of the heads' results before
 * the gate. */
static tsr_status gate_grad(const tsr__attention *a, tsr__temps *temps,
                            const tsr_layer_saved *saved, const tsr_tensor *dheads,
                            const tsr__qkv_heads *in, const tsr__qkv_heads *d,
                            tsr_tensor **dattended)
{
    const tsr_layout *layout = tsr_tensor_layout(dheads);
    tsr_stream *stream = a->base.stream;
    tsr_tensor *product, *by_heads;
    TSR__TRY(tsr__temp_new(temps, TSR_F32, layout->ndim, layout->shape, &product));
    TSR__TRY(tsr_binary(stream, product, dheads, saved->heads, TSR_BINARY_MUL));
    TSR__TRY(tsr__by_heads(a, temps, product, &by_heads));
    TSR__TRY(tsr_unary_grad(stream, d->gate, in->gate, by_heads, TSR_UNARY_SIGMOID));
    TSR__TRY(tsr__temp_new(temps, layout->dtype, layout->ndim, layout->shape, dattended));
    return apply_gate(a, temps, in->gate, dheads, *dattended);
}

static tsr_status new_like(tsr__temps *temps, const tsr_tensor *tensor, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    return tsr__temp_new(temps, layout->dtype, layout->ndim, layout->shape, out);
}

/* Gets the memory for the gradients of keys and values, into->k and into->v: that of dqkv, or new
 * memory where dqkv has none. `in` are the heads whose gradients they are. */
static tsr_status key_value_grads(const tsr__attention *a, tsr__temps *temps,
                                  const tsr__qkv_heads *in, tsr__qkv_heads *into)
{
    if (a->shared_keys)
        TSR__TRY(new_like(temps, in->k, &into->k));
    return a->shared_keys || a->keys_as_values ? new_like(temps, in->v, &into->v) : TSR_OK;
}

/* Replaces *sum by *sum + addend; a *sum of NULL counts as 0. */
static tsr_status add_to_sum(tsr_stream *stream, tsr_tensor **sum, const tsr_tensor *addend)
{
    return *sum ? tsr_axpy(stream, *sum, 1, addend) : copy_of(stream, addend, TSR_F32, sum);
}

/* Adds gradients of keys and values to the sums, if the layer reads those of another; or adds the
 * sums to the gradients, if others read its own. */
static tsr_status share_grads(const tsr__attention *a, const tsr__qkv_heads *d)
{
    tsr_stream *stream = a->base.stream;
    tsr__shared_keys *shared = a->shared;
    if (a->shared_keys) {
        TSR__TRY(add_to_sum(stream, &shared->dk, d->k));
        return add_to_sum(stream, &shared->dv, d->v);
    }
    if (!shared || !shared->dk)
        return TSR_OK;
    TSR__TRY(tsr_axpy(stream, d->k, 1, shared->dk));
    TSR__TRY(tsr_axpy(stream, d->v, 1, shared->dv));
    tsr_tensor_destroy(&shared->dk);
    tsr_tensor_destroy(&shared->dv);
    return TSR_OK;
}

/* Computes the gradient of attention: *dqkv, with the shape of qkv, [.., tokens, features]. */
static tsr_status attend_heads_grad(tsr__attention *a, tsr__temps *temps,
                                    const tsr_layer_saved *saved, const tsr_tensor *dheads,
                                    tsr_tensor **dqkv)
{
    const tsr_layout *layout = tsr_tensor_layout(saved->hidden);
    tsr_tensor *dy, *y, *dattended, *positions, *sink_grads = NULL;
    const tsr_tensor *attended =
        a->output_gate ? saved->heads : saved->child[TSR__ATTENTION_OUTPUT]->x;
    tsr__qkv_heads in = {0}, d = {0}, into = {0}, raw = {0};
    const bool trains_sinks = a->sinks && !a->base.frozen;
    TSR__TRY(tsr__temp_new(temps, layout->dtype, layout->ndim, layout->shape, dqkv));
    tsr_attention_params params = params_of(a, saved->starts);
    if (trains_sinks)
        TSR__TRY(new_sink_grads(a, temps, &sink_grads, &params.dsinks));
    if (a->heads.count > 0) {
        TSR__TRY(tsr__qkv_split(a, temps, saved->hidden, &raw));
        in = raw;
        TSR__TRY(tsr__attention_values(a, temps, true, &in));
        const tsr__qkv_heads with_values = in;
        if (saved->normalised) {
            TSR__TRY(tsr__qkv_split(a, temps, saved->normalised, &in));
            in.v = with_values.v;
            in.gate = raw.gate;
        }
        if (a->shared_keys)
            TSR__TRY(read_shared(a, &in));
        TSR__TRY(tsr__qkv_split(a, temps, *dqkv, &d));
        into = d;
        TSR__TRY(key_value_grads(a, temps, &in, &into));
        if (a->output_gate) {
            TSR__TRY(gate_grad(a, temps, saved, dheads, &in, &d, &dattended));
            dheads = dattended;
        }
        TSR__TRY(tsr__by_heads(a, temps, dheads, &dy));
        TSR__TRY(tsr__by_heads(a, temps, attended, &y));
        TSR__TRY(saved->context ? tsr__context_attend_grad(a, saved->context, &params, &in, &into,
                                                           dy, y, saved->lse)
                                : tsr_attention_grad(a->base.stream, into.q, into.k, into.v, dy, y,
                                                     saved->lse, in.q, in.k, in.v, &params));
        TSR__TRY(share_grads(a, &into));
        if (a->rope) {
            positions = saved->positions         ? saved->positions
                        : saved->context != NULL ? saved->context->positions
                                                 : NULL;
            if (!positions)
                TSR__TRY(tsr__need_positions(&a->base, &a->positions, temps,
                                             layout->shape[layout->ndim - 2], &positions));
            TSR__TRY(tsr_rope_grad(a->base.stream, a->rope, d.qk, d.qk, positions));
        }
    }
    if (trains_sinks)
        TSR__TRY(tsr__parameter_add_bias_grad(&a->base, sinks_index(a), sink_grads));
    if (a->qk_norm)
        TSR__TRY(tsr__attention_norm_grads(a, temps, saved, *dqkv));
    return a->heads.count > 0 ? tsr__attention_value_grads(a, &raw, into.v, &d) : TSR_OK;
}

static tsr_status attention_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                     const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr__attention *a = (tsr__attention *)layer;
    tsr__temps temps = {.stream = layer->stream};
    tsr_tensor *dheads = NULL, *dqkv;
    for (int i = 0; i < layer->parameter_count; i++)
        TSR__TRY(tsr__parameter_require(layer, i));
    tsr_status status = tsr_layer_backward(layer->child[TSR__ATTENTION_OUTPUT],
                                           saved->child[TSR__ATTENTION_OUTPUT], dy, &dheads);
    if (status == TSR_OK)
        status = attend_heads_grad(a, &temps, saved, dheads, &dqkv);
    if (status == TSR_OK)
        status = tsr_layer_backward(layer->child[TSR__ATTENTION_QKV],
                                    saved->child[TSR__ATTENTION_QKV], dqkv, dx);
    tsr_tensor_destroy(&dheads);
    tsr__temps_finish(&temps);
    return status;
}

static void attention_finish(tsr_layer *layer)
{
    tsr__attention *a = (tsr__attention *)layer;
    tsr_tensor_destroy(&a->positions);
    tsr__context_forget(&a->context);
    tsr_rope_destroy(&a->rope);
    tsr__free(a->kv_head);
    tsr__free(a->head_sizes);
    for (int i = TSR__Q_NORM; i <= TSR__K_NORM; i++)
        tsr__free(a->weight_sizes[i]);
}

const tsr__layer_type tsr__self_attention_type = {.name = "self_attention",
                                                  .forward = attention_forward,
                                                  .backward = attention_backward,
                                                  .finish = attention_finish,
                                                  .forward_cached = attention_forward_cached,
                                                  .forward_added = attention_forward_added,
                                                  .normalises = true};

tsr__attention *tsr__attention_of(const tsr_layer *layer)
{
    const tsr_layer *found = layer->type == &tsr__self_attention_type ? layer : NULL;
    for (int i = 0; i < layer->child_count; i++)
        if (layer->child[i]->type == &tsr__self_attention_type)
            found = layer->child[i];
    return (tsr__attention *)found;
}

static tsr_heads heads_of_delta_net(const tsr__delta_net *net)
{
    const int64_t channels = 2 * net->key_heads * net->key_dim + net->heads * net->value_dim;
    return (tsr_heads){
        .struct_size = sizeof(tsr_heads),
        .head_dim = 1,
        .value_dim = 1,
        .conv_floats = channels * (net->taps - 1),
        .state_floats = net->heads * net->key_dim * net->value_dim,
    };
}

static tsr_heads heads_of_short_conv(const tsr__short_conv *conv)
{
    return (tsr_heads){.struct_size = sizeof(tsr_heads),
                       .head_dim = 1,
                       .value_dim = 1,
                       .conv_floats = conv->channels * (conv->taps - 1)};
}

tsr_status tsr_self_attention_get_heads(const tsr_layer *layer, tsr_heads *out)
{
    TSR__REQUIRE(layer && out, "self_attention_get_heads: %s is NULL", layer ? "out" : "layer");
    const tsr__attention *found = tsr__attention_of(layer);
    const tsr__latent_attention *latent = tsr__latent_of(layer);
    if (latent) {
        const int64_t heads = latent->division.length;
        const tsr_heads own = {.struct_size = sizeof own,
                               .first = latent->division.first,
                               .count = heads,
                               .kv_count = heads > 0 ? 1 : 0,
                               .head_dim = latent->kv_rank + latent->rotary,
                               .value_dim = latent->kv_rank,
                               .values_in_keys = true};
        TSR__GIVE(tsr_heads, &own, out);
        return TSR_OK;
    }
    const tsr__delta_net *net = tsr__delta_net_of(layer);
    const tsr__short_conv *conv = tsr__short_conv_of(layer);
    TSR__REQUIRE(found || net || conv,
                 "%s: it has neither self-attention nor a delta net or a short convolution",
                 layer->who);
    const tsr_heads heads = found ? found->heads
                            : net ? heads_of_delta_net(net)
                                  : heads_of_short_conv(conv);
    TSR__GIVE(tsr_heads, &heads, out);
    return TSR_OK;
}
