/* The norms of queries and keys in self-attention layers: of each head, or of all heads together.
 * In the latter case several ranks have the features of a row, and two sums for each row, one for q
 * and one for k, are summed over the ranks:
 *
 *    forward     Σ x², which gives r = 1 / √(Σ x² / n + epsilon) and y = x · r · weight
 *    backward    t = Σ dy · weight · x, which gives dx = r · (dy · weight − x · r² · t / n)
 *
 * If there are fewer kv heads than ranks, several ranks compute a kv head. Only one of them counts
 * it in the forward sum. In the backward pass each of them has the part of dy that comes from its
 * own queries, and all parts count in t; the rank that counts the head subtracts the second term of
 * its dx. */
#include "parallel/layers/norm_layer.h"
#include "parallel/layers/self_attention.h"
#include "tessera/ops.h"

/* Norms of heads ----------------------------------------------------------------------------- */

/* Returns the last norm that the layer has. */
static int last_norm(const tsr__attention *a)
{
    return a->shared_keys ? TSR__Q_NORM : TSR__K_NORM;
}

static tsr_status normalise_heads(const tsr__attention *a, const tsr__qkv_heads *in,
                                  const tsr__qkv_heads *to)
{
    const tsr_layer *layer = &a->base;
    tsr_stream *stream = layer->stream;
    TSR__TRY(tsr_norm(stream, to->q, in->q, layer->parameter[TSR__Q_NORM]->seen.tensor, NULL,
                      TSR_NORM_RMS, a->norm_epsilon));
    if (a->shared_keys)
        return TSR_OK;
    return tsr_norm(stream, to->k, in->k, layer->parameter[TSR__K_NORM]->seen.tensor, NULL,
                    TSR_NORM_RMS, a->norm_epsilon);
}

/* Backward pass of one norm (`which` is TSR__Q_NORM or TSR__K_NORM), in place in `d`. `raw` are the
 * heads before normalisation. */
static tsr_status head_grad(tsr__attention *a, const tsr__qkv_heads *raw, const tsr__qkv_heads *d,
                            int which, tsr_tensor *dweight, bool accumulate)
{
    tsr_stream *stream = a->base.stream;
    tsr_tensor *dx = which == TSR__Q_NORM ? d->q : d->k;
    return tsr_norm_grad(stream, dx, dweight, NULL, which == TSR__Q_NORM ? raw->q : raw->k, dx,
                         a->base.parameter[which]->seen.tensor, TSR_NORM_RMS, a->norm_epsilon,
                         accumulate);
}

/* Backward pass of the norms, with gradients of the weights that are summed over the ranks. */
static tsr_status sum_head_grads(tsr__attention *a, tsr__replicated_grads *grads,
                                 const tsr__qkv_heads *raw, const tsr__qkv_heads *d)
{
    for (int i = TSR__Q_NORM; i <= last_norm(a); i++)
        TSR__TRY(tsr__replicated_grads_add(grads, i));
    TSR__TRY(tsr__replicated_grads_allocate(grads, false));
    for (int i = TSR__Q_NORM; i <= last_norm(a); i++) {
        tsr_tensor *contribution;
        TSR__TRY(tsr__replicated_grads_get(grads, i, &contribution));
        TSR__TRY(head_grad(a, raw, d, i, contribution, false));
    }
    TSR__TRY(tsr__replicated_grads_start(grads));
    return tsr__replicated_grads_finish(grads);
}

static tsr_status head_grads(tsr__attention *a, tsr__temps *temps, const tsr_tensor *qkv,
                             const tsr_tensor *dqkv)
{
    tsr_layer *layer = &a->base;
    tsr__replicated_grads grads = {.layer = layer, .temps = temps};
    tsr__qkv_heads raw = {0}, d = {0};
    TSR__TRY(tsr__qkv_split(a, temps, qkv, &raw));
    TSR__TRY(tsr__qkv_split(a, temps, dqkv, &d));
    for (int i = TSR__Q_NORM; layer->frozen && i <= last_norm(a); i++)
        TSR__TRY(head_grad(a, &raw, &d, i, NULL, false));
    if (layer->frozen)
        return TSR_OK;
    if (layer->size == 1) {
        for (int i = TSR__Q_NORM; i <= last_norm(a); i++) {
            tsr__layer_parameter *parameter = layer->parameter[i];
            TSR__TRY(tsr__parameter_need_grad(layer, i));
            TSR__TRY(head_grad(a, &raw, &d, i, parameter->seen.grad, !parameter->grad_empty));
            parameter->grad_empty = false;
        }
        return TSR_OK;
    }
    tsr_status status = sum_head_grads(a, &grads, &raw, &d);
    tsr__replicated_grads_cancel(&grads);
    return status;
}

/* Norms of all heads ------------------------------------------------------------------------- */

/* This rank's features of q or of k, as [rows, count] matrices. */
typedef struct whole {
    int64_t rows, count;
    int64_t counted_first, counted; /* those that this rank counts */
    tsr_tensor *x, *weight;         /* weight: [count] */
} whole;

static int64_t count_of(const tsr__attention *a, int which)
{
    return (which == TSR__Q_NORM ? a->heads.count : a->heads.kv_count) * a->heads.head_dim;
}

/* Makes a view [rows, count] of the features of q or k in a contiguous tensor [.., features]. */
static tsr_status rows_of(const tsr__attention *a, tsr__temps *temps, const tsr_tensor *features,
                          int which, tsr_tensor **out)
{
    tsr_tensor *flat;
    TSR__TRY(tsr__temp_flatten(temps, features, &flat));
    return tsr__temp_slice(temps, flat, 1, which == TSR__Q_NORM ? 0 : count_of(a, TSR__Q_NORM),
                           count_of(a, which), out);
}

static tsr_status describe(const tsr__attention *a, tsr__temps *temps, const tsr_tensor *qkv,
                           int which, whole *out)
{
    const int64_t d = a->heads.head_dim;
    const bool slices = which == TSR__K_NORM && a->replicated;
    tsr_tensor *weight = a->base.parameter[which]->seen.tensor;
    *out = (whole){.count = count_of(a, which), .counted = count_of(a, which), .weight = weight};
    TSR__TRY(rows_of(a, temps, qkv, which, &out->x));
    out->rows = tsr_tensor_layout(out->x)->shape[0];
    if (which == TSR__K_NORM) {
        out->counted_first = a->counted_first * d;
        out->counted = a->counted * d;
    }
    return slices
               ? tsr__temp_slice(temps, weight, 0, a->heads.kv_first * d, out->count, &out->weight)
               : TSR_OK;
}

/* Makes a view of a column of a tensor [rows, 2]. */
static tsr_status column_of(tsr__temps *temps, const tsr_tensor *sums, int which, tsr_tensor **out)
{
    return tsr__temp_slice(temps, sums, 1, which, 1, out);
}

/* Sets column `which` of sums to Σ a · b over each row. a and b are [rows, count]. */
static tsr_status sum_products(const tsr__attention *at, tsr__temps *temps, const tsr_tensor *a,
                               const tsr_tensor *b, const tsr_tensor *sums, int which)
{
    tsr_stream *stream = at->base.stream;
    tsr_tensor *column, *products;
    TSR__TRY(column_of(temps, sums, which, &column));
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, tsr_tensor_layout(a)->shape, &products));
    TSR__TRY(tsr_binary(stream, products, a, b, TSR_BINARY_MUL));
    return tsr_reduce(stream, column, products, 1, TSR_REDUCE_SUM, false);
}

/* Computes the inverse root mean squares [rows, 2] of the rows of q and k. */
static tsr_status inverse_rms_of(const tsr__attention *a, tsr__temps *temps, const whole parts[2],
                                 tsr_tensor **out)
{
    tsr_stream *stream = a->base.stream;
    tsr_tensor *column;
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, (int64_t[]){parts->rows, 2}, out));
    for (int i = TSR__Q_NORM; i <= TSR__K_NORM; i++) {
        tsr_tensor *counted;
        TSR__TRY(tsr__temp_slice(temps, parts[i].x, 1, parts[i].counted_first, parts[i].counted,
                                 &counted));
        TSR__TRY(sum_products(a, temps, counted, counted, *out, i));
    }
    TSR__TRY(tsr_group_all_reduce(a->base.group, *out, TSR_OP_SUM, NULL, NULL));
    for (int i = TSR__Q_NORM; i <= TSR__K_NORM; i++) {
        TSR__TRY(column_of(temps, *out, i, &column));
        TSR__TRY(tsr_scale(stream, column, column, 1 / (float)a->whole[i], a->norm_epsilon));
    }
    return tsr_unary(stream, *out, *out, TSR_UNARY_RSQRT);
}

/* Normalises q and k into `to` [.., features of q and k], or in place if `to` is qkv. */
static tsr_status normalise_whole(const tsr__attention *a, tsr__temps *temps, const tsr_tensor *qkv,
                                  const tsr_tensor *to, tsr_tensor **inverse_rms)
{
    tsr_stream *stream = a->base.stream;
    whole parts[2];
    for (int i = TSR__Q_NORM; i <= TSR__K_NORM; i++)
        TSR__TRY(describe(a, temps, qkv, i, &parts[i]));
    if (a->base.size > 1)
        TSR__TRY(inverse_rms_of(a, temps, parts, inverse_rms));
    for (int i = TSR__Q_NORM; i <= TSR__K_NORM; i++) {
        tsr_tensor *y, *inverse;
        TSR__TRY(rows_of(a, temps, to, i, &y));
        if (a->base.size == 1) {
            TSR__TRY(tsr_norm(stream, y, parts[i].x, parts[i].weight, NULL, TSR_NORM_RMS,
                              a->norm_epsilon));
            continue;
        }
        TSR__TRY(column_of(temps, *inverse_rms, i, &inverse));
        TSR__TRY(tsr_binary(stream, y, parts[i].x, inverse, TSR_BINARY_MUL));
        TSR__TRY(tsr_binary(stream, y, y, parts[i].weight, TSR_BINARY_MUL));
    }
    return TSR_OK;
}

/* Adds Σ dy · x · inverse over all rows to the gradient of a weight, of which this rank has
 * `count` elements. If `replicated` is not NULL, this is a contribution that is summed over the
 * ranks. */
static tsr_status add_weight_grad(tsr__attention *a, tsr__temps *temps, int which,
                                  const whole *part, const tsr_tensor *dy,
                                  const tsr_tensor *inverse, tsr__replicated_grads *replicated)
{
    tsr_layer *layer = &a->base;
    tsr_stream *stream = layer->stream;
    tsr_tensor *products, *grad;
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, tsr_tensor_layout(dy)->shape, &products));
    TSR__TRY(tsr_binary(stream, products, dy, part->x, TSR_BINARY_MUL));
    TSR__TRY(tsr_binary(stream, products, products, inverse, TSR_BINARY_MUL));
    if (replicated) {
        TSR__TRY(tsr__replicated_grads_get(replicated, which, &grad));
        TSR__TRY(tsr__temp_slice(temps, grad, 0, a->heads.kv_first * a->heads.head_dim, part->count,
                                 &grad));
        return tsr_reduce(stream, grad, products, 0, TSR_REDUCE_SUM, false);
    }
    tsr__layer_parameter *parameter = layer->parameter[which];
    TSR__TRY(tsr__parameter_need_grad(layer, which));
    TSR__TRY(tsr_reduce(stream, parameter->seen.grad, products, 0, TSR_REDUCE_SUM,
                        !parameter->grad_empty));
    parameter->grad_empty = false;
    return TSR_OK;
}

/* Sets d [rows, count] to the gradient of x. `g` is dy · weight; `inverse` and `sums` are columns
 * of the inverse root mean squares and of t. */
static tsr_status whole_input_grad(const tsr__attention *a, tsr__temps *temps, int which,
                                   const whole *part, tsr_tensor *g, const tsr_tensor *inverse,
                                   const tsr_tensor *sums, tsr_tensor *d)
{
    tsr_stream *stream = a->base.stream;
    tsr_tensor *factor, *counted, *x, *term;
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, (int64_t[]){part->rows, 1}, &factor));
    TSR__TRY(tsr_binary(stream, factor, inverse, inverse, TSR_BINARY_MUL));
    TSR__TRY(tsr_binary(stream, factor, factor, sums, TSR_BINARY_MUL));
    TSR__TRY(tsr_scale(stream, factor, factor, 1 / (float)a->whole[which], 0));
    TSR__TRY(tsr__temp_slice(temps, g, 1, part->counted_first, part->counted, &counted));
    TSR__TRY(tsr__temp_slice(temps, part->x, 1, part->counted_first, part->counted, &x));
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, (int64_t[]){part->rows, part->counted}, &term));
    TSR__TRY(tsr_binary(stream, term, x, factor, TSR_BINARY_MUL));
    TSR__TRY(tsr_binary(stream, counted, counted, term, TSR_BINARY_SUB));
    return tsr_binary(stream, d, g, inverse, TSR_BINARY_MUL);
}

/* The backward pass on several ranks. */
static tsr_status divided_grads(tsr__attention *a, tsr__temps *temps, const whole parts[2],
                                const tsr_tensor *inverse_rms, tsr_tensor *const d[2],
                                tsr__replicated_grads *replicated)
{
    tsr_stream *stream = a->base.stream;
    tsr_tensor *sums, *g[2];
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, (int64_t[]){parts->rows, 2}, &sums));
    for (int i = TSR__Q_NORM; i <= TSR__K_NORM; i++) {
        tsr_tensor *inverse;
        TSR__TRY(column_of(temps, inverse_rms, i, &inverse));
        if (!a->base.frozen)
            TSR__TRY(add_weight_grad(a, temps, i, &parts[i], d[i], inverse,
                                     i == TSR__K_NORM ? replicated : NULL));
        TSR__TRY(tsr__temp_new(temps, TSR_F32, 2, tsr_tensor_layout(d[i])->shape, &g[i]));
        TSR__TRY(tsr_binary(stream, g[i], d[i], parts[i].weight, TSR_BINARY_MUL));
        TSR__TRY(sum_products(a, temps, g[i], parts[i].x, sums, i));
    }
    TSR__TRY(tsr_group_all_reduce(a->base.group, sums, TSR_OP_SUM, NULL, NULL));
    for (int i = TSR__Q_NORM; i <= TSR__K_NORM; i++) {
        tsr_tensor *inverse, *sum;
        TSR__TRY(column_of(temps, inverse_rms, i, &inverse));
        TSR__TRY(column_of(temps, sums, i, &sum));
        TSR__TRY(whole_input_grad(a, temps, i, &parts[i], g[i], inverse, sum, d[i]));
    }
    return TSR_OK;
}

static tsr_status divided_and_summed(tsr__attention *a, tsr__temps *temps, const whole parts[2],
                                     const tsr_tensor *inverse_rms, tsr_tensor *const d[2],
                                     tsr__replicated_grads *grads)
{
    TSR__TRY(tsr__replicated_grads_add(grads, TSR__K_NORM));
    TSR__TRY(tsr__replicated_grads_allocate(grads, true));
    TSR__TRY(divided_grads(a, temps, parts, inverse_rms, d, grads));
    TSR__TRY(tsr__replicated_grads_start(grads));
    return tsr__replicated_grads_finish(grads);
}

static tsr_status whole_grads(tsr__attention *a, tsr__temps *temps, const tsr_layer_saved *saved,
                              const tsr_tensor *dqkv)
{
    tsr_layer *layer = &a->base;
    tsr_stream *stream = layer->stream;
    whole parts[2];
    tsr_tensor *d[2];
    for (int i = TSR__Q_NORM; i <= TSR__K_NORM; i++) {
        TSR__TRY(describe(a, temps, saved->hidden, i, &parts[i]));
        TSR__TRY(rows_of(a, temps, dqkv, i, &d[i]));
    }
    for (int i = TSR__Q_NORM; layer->size == 1 && i <= TSR__K_NORM; i++) {
        tsr__layer_parameter *parameter = layer->parameter[i];
        if (!layer->frozen)
            TSR__TRY(tsr__parameter_need_grad(layer, i));
        TSR__TRY(tsr_norm_grad(stream, d[i], layer->frozen ? NULL : parameter->seen.grad, NULL,
                               parts[i].x, d[i], parts[i].weight, TSR_NORM_RMS, a->norm_epsilon,
                               !layer->frozen && !parameter->grad_empty));
        parameter->grad_empty = parameter->grad_empty && layer->frozen;
    }
    if (layer->size == 1)
        return TSR_OK;
    if (layer->frozen || !a->replicated)
        return divided_grads(a, temps, parts, saved->inverse_rms, d, NULL);
    tsr__replicated_grads grads = {.layer = layer, .temps = temps};
    const tsr_status status = divided_and_summed(a, temps, parts, saved->inverse_rms, d, &grads);
    tsr__replicated_grads_cancel(&grads);
    return status;
}

/* Values ------------------------------------------------------------------------------------- */

tsr_status tsr__attention_values(const tsr__attention *a, tsr__temps *temps, bool keep_raw,
                                 tsr__qkv_heads *heads)
{
    tsr_stream *stream = a->base.stream;
    const tsr_tensor *from = a->keys_as_values ? heads->k : heads->v;
    if (a->shared_keys || a->heads.kv_count == 0 || !(a->keys_as_values || a->value_norm))
        return TSR_OK;
    const tsr_layout *layout = tsr_tensor_layout(from);
    if (a->keys_as_values || keep_raw)
        TSR__TRY(tsr__temp_new(temps, layout->dtype, layout->ndim, layout->shape, &heads->v));
    return a->value_norm
               ? tsr_norm(stream, heads->v, from, NULL, NULL, TSR_NORM_RMS, a->norm_epsilon)
               : tsr_copy(stream, heads->v, from);
}

tsr_status tsr__attention_value_grads(const tsr__attention *a, const tsr__qkv_heads *raw,
                                      tsr_tensor *dv, const tsr__qkv_heads *d)
{
    tsr_stream *stream = a->base.stream;
    if (a->shared_keys || a->heads.kv_count == 0 || !(a->keys_as_values || a->value_norm))
        return TSR_OK;
    if (a->value_norm)
        TSR__TRY(tsr_norm_grad(stream, dv, NULL, NULL, a->keys_as_values ? raw->k : raw->v, dv,
                               NULL, TSR_NORM_RMS, a->norm_epsilon, false));
    if (!a->keys_as_values)
        return TSR_OK;
    return tsr_binary(stream, d->k, d->k, dv, TSR_BINARY_ADD);
}

/* All ---------------------------------------------------------------------------------------- */

tsr_status tsr__attention_normalise(tsr__attention *a, tsr__temps *temps, const tsr_tensor *qkv,
                                    bool keep_raw, tsr__qkv_heads *out, tsr_tensor **normalised,
                                    tsr_tensor **inverse_rms)
{
    *normalised = *inverse_rms = NULL;
    TSR__TRY(tsr__qkv_split(a, temps, qkv, out));
    TSR__TRY(tsr__attention_values(a, temps, keep_raw, out));
    if (a->qk_norm == TSR_QK_NORM_NONE)
        return TSR_OK;
    tsr__qkv_heads to = *out;
    if (keep_raw) {
        TSR__TRY(tsr__temp_like(temps, qkv, tsr_tensor_layout(qkv)->dtype, -1,
                                (a->heads.count + (a->shared_keys ? 0 : a->heads.kv_count)) *
                                    a->heads.head_dim,
                                normalised));
        TSR__TRY(tsr__qkv_split(a, temps, *normalised, &to));
    }
    TSR__TRY(a->qk_norm == TSR_QK_NORM_HEADS
                 ? normalise_heads(a, out, &to)
                 : normalise_whole(a, temps, qkv, keep_raw ? *normalised : qkv, inverse_rms));
    to.v = out->v;
    *out = to;
    return TSR_OK;
}

tsr_status tsr__attention_norm_grads(tsr__attention *a, tsr__temps *temps,
                                     const tsr_layer_saved *saved, tsr_tensor *dqkv)
{
    return a->qk_norm == TSR_QK_NORM_HEADS ? head_grads(a, temps, saved->hidden, dqkv)
                                           : whole_grads(a, temps, saved, dqkv);
}
