/* The backward pass of latent attention. Keys and values are computed again from the latents. Each
 * rank computes what its heads contribute to the gradients of compressed queries and of latents;
 * one all-reduce sums both. From the sums, every rank computes the gradients of the parameters that
 * all ranks have, and dx. */
#include "parallel/layers/latent_attention.h"

#include "gpu/internal.h"
#include "parallel/layers/linear.h"
#include "tensor/dtype.h"

typedef struct pass {
    tsr__latent_attention *a;
    tsr__temps *temps;
    const tsr_layer_saved *saved;
    const tsr_tensor *positions;
    tsr_tensor *x2;           /* x as [rows, size] */
    tsr_tensor *dq, *dk, *dv; /* as the queries, keys and values of tsr__latent_expand */
    /* The sums over the ranks of the gradients of what queries are computed from, and of the
     * latents: columns of one tensor [rows, ..]. */
    tsr_tensor *joint, *dqueries, *dlatents, *drotated;
} pass;

/* Attention ---------------------------------------------------------------------------------- */

static tsr_status attend_back(pass *p, const tsr_tensor *dheads)
{
    tsr__latent_attention *a = p->a;
    tsr__temps *temps = p->temps;
    const tsr_layer_saved *saved = p->saved;
    const int64_t each = a->nope + a->rotary, value = a->value;
    const tsr_tensor *latents = saved->latent[TSR__SAVED_LATENTS];
    const tsr_dtype dtype = tsr_tensor_layout(latents)->dtype;
    const tsr_tensor *k_b, *v_b;
    tsr_tensor *k, *v, *in[3], *d[3], *dy, *y, *rotated;
    TSR__TRY(tsr__temp_like(temps, latents, dtype, -1, a->division.length * each, &p->dq));
    TSR__TRY(tsr__temp_like(temps, latents, dtype, -1, a->division.length * each, &p->dk));
    TSR__TRY(tsr__temp_like(temps, latents, dtype, -1, a->division.length * value, &p->dv));
    if (a->division.length == 0)
        return TSR_OK;
    const tsr_attention_params params = tsr__latent_params(a, saved->starts);
    TSR__TRY(tsr__temp_like(temps, p->dk, dtype, -1, a->division.length * each, &k));
    TSR__TRY(tsr__temp_like(temps, p->dv, dtype, -1, a->division.length * value, &v));
    TSR__TRY(tsr__latent_floats(a, temps, TSR__LATENT_K_B, &k_b));
    TSR__TRY(tsr__latent_floats(a, temps, TSR__LATENT_V_B, &v_b));
    TSR__TRY(tsr__latent_expand(a, temps, latents, k_b, v_b, 0, a->division.length, k, v));
    TSR__TRY(tsr__latent_view(temps, saved->hidden, each, 0, each, &in[0]));
    TSR__TRY(tsr__latent_view(temps, k, each, 0, each, &in[1]));
    TSR__TRY(tsr__latent_view(temps, v, value, 0, value, &in[2]));
    TSR__TRY(tsr__latent_view(temps, p->dq, each, 0, each, &d[0]));
    TSR__TRY(tsr__latent_view(temps, p->dk, each, 0, each, &d[1]));
    TSR__TRY(tsr__latent_view(temps, p->dv, value, 0, value, &d[2]));
    TSR__TRY(tsr__latent_view(temps, dheads, value, 0, value, &dy));
    TSR__TRY(tsr__latent_view(temps, saved->child[0]->x, value, 0, value, &y));
    TSR__TRY(tsr_attention_grad(a->base.stream, d[0], d[1], d[2], dy, y, saved->lse, in[0], in[1],
                                in[2], &params));
    if (!a->rope)
        return TSR_OK;
    TSR__TRY(tsr__latent_view(temps, p->dq, each, a->nope, a->rotary, &rotated));
    return tsr_rope_grad(a->base.stream, a->rope, rotated, rotated, p->positions);
}

/* Contributions ------------------------------------------------------------------------------ */

static tsr_status new_joint(pass *p)
{
    const tsr__latent_attention *a = p->a;
    const tsr_dtype dtype = tsr_tensor_layout(p->x2)->dtype;
    const int64_t queries = a->q_rank > 0 ? a->q_rank : a->size,
                  shape[] = {tsr_tensor_layout(p->x2)->shape[0], queries + a->kv_rank + a->rotary};
    TSR__TRY(tsr__temp_new(p->temps, a->reduce_f32 && a->base.size > 1 ? TSR_F32 : dtype, 2, shape,
                           &p->joint));
    TSR__TRY(tsr__temp_slice(p->temps, p->joint, 1, 0, queries, &p->dqueries));
    TSR__TRY(tsr__temp_slice(p->temps, p->joint, 1, queries, a->kv_rank, &p->dlatents));
    return tsr__temp_slice(p->temps, p->joint, 1, queries + a->kv_rank, a->rotary, &p->drotated);
}

/* What the keys and values contribute to the gradient of the latents. */
static tsr_status contribute_latents(pass *p)
{
    const tsr__latent_attention *a = p->a;
    tsr_stream *stream = a->base.stream;
    const int64_t heads = a->division.length, each = a->nope + a->rotary,
                  rows = tsr_tensor_layout(p->x2)->shape[0];
    const tsr_dtype dtype = tsr_tensor_layout(p->dk)->dtype;
    const tsr_tensor *k_b, *v_b;
    tsr_tensor *from, *nope, *to, *dv2, *turned, *matrices, *matrices2, *values, *latents;
    TSR__TRY(tsr__latent_floats(a, p->temps, TSR__LATENT_K_B, &k_b));
    TSR__TRY(tsr__latent_floats(a, p->temps, TSR__LATENT_V_B, &v_b));
    /* The parts of keys that are not rotated, next to each other. */
    TSR__TRY(tsr__temp_new(p->temps, dtype, 2, (int64_t[]){rows, heads * a->nope}, &nope));
    TSR__TRY(tsr__latent_by_heads(p->temps, p->dk, each, 0, a->nope, &from));
    TSR__TRY(tsr__latent_by_heads(p->temps, nope, a->nope, 0, a->nope, &to));
    TSR__TRY(tsr_copy(stream, to, from));
    /* [heads · nope, kv_rank], so that one product sums over the heads. */
    TSR__TRY(tsr__temp_transpose(p->temps, k_b, 1, 2, &turned));
    TSR__TRY(tsr__temp_new(p->temps, tsr_tensor_layout(k_b)->dtype, 3,
                           (int64_t[]){heads, a->nope, a->kv_rank}, &matrices));
    TSR__TRY(tsr_copy(stream, matrices, turned));
    TSR__TRY(tsr__temp_reshape(p->temps, matrices, 2, (int64_t[]){heads * a->nope, a->kv_rank},
                               &matrices2));
    TSR__TRY(tsr_matmul(stream, p->dlatents, nope, matrices2, NULL));
    TSR__TRY(tsr__temp_flatten(p->temps, p->dv, &dv2));
    TSR__TRY(tsr__temp_reshape_any(p->temps, v_b, 2, (int64_t[]){heads * a->value, a->kv_rank},
                                   &values));
    TSR__TRY(tsr_matmul(stream, p->dlatents, dv2, values, tsr_matmul_params(.accumulate = true)));
    TSR__TRY(tsr__latent_rows(a, p->temps, p->saved->latent[TSR__SAVED_LATENTS], &latents));
    TSR__TRY(tsr__latent_adapters_back(a, p->temps, TSR__LATENT_K_B, nope, latents, p->dlatents));
    return tsr__latent_adapters_back(a, p->temps, TSR__LATENT_V_B, dv2, latents, p->dlatents);
}

/* Gets what queries are computed from: compressed queries after their norm, or x. */
static tsr_status queries_from(const pass *p, tsr_tensor **out)
{
    *out = p->x2;
    return p->a->q_rank > 0
               ? tsr__temp_flatten(p->temps, p->saved->latent[TSR__SAVED_Q_NORMED], out)
               : TSR_OK;
}

static tsr_status contribute(pass *p)
{
    const tsr__latent_attention *a = p->a;
    const int64_t each = a->nope + a->rotary;
    const tsr_tensor *q;
    tsr_tensor *dq2, *rotated, *from2;
    if (a->division.length == 0) {
        TSR__TRY(tsr__latent_adapters_empty(a));
        return tsr_fill(a->base.stream, p->joint, 0);
    }
    TSR__TRY(tsr__latent_floats(a, p->temps, TSR__LATENT_Q, &q));
    TSR__TRY(tsr__temp_flatten(p->temps, p->dq, &dq2));
    TSR__TRY(tsr_matmul(a->base.stream, p->dqueries, dq2, q, NULL));
    TSR__TRY(queries_from(p, &from2));
    TSR__TRY(tsr__latent_adapters_back(a, p->temps, TSR__LATENT_Q, dq2, from2, p->dqueries));
    TSR__TRY(contribute_latents(p));
    TSR__TRY(tsr__latent_by_heads(p->temps, p->dk, each, a->nope, a->rotary, &rotated));
    return tsr_reduce(a->base.stream, p->drotated, rotated, 0, TSR_REDUCE_SUM, false);
}

/* Parameters --------------------------------------------------------------------------------- */

/* grad[h] += dy[h]ᵀ · x[h] for each head, where one of both is the same for all heads. */
static tsr_status add_matrices_grad(pass *p, tsr__latent_parameter which, const tsr_tensor *dy,
                                    const tsr_tensor *x)
{
    tsr_layer *layer = &p->a->base;
    const int index = p->a->index[which];
    TSR__TRY(tsr__parameter_need_grad(layer, index));
    tsr__layer_parameter *parameter = layer->parameter[index];
    TSR__TRY(
        tsr_matmul(layer->stream, parameter->seen.grad, dy, x,
                   tsr_matmul_params(.transpose_a = true, .accumulate = !parameter->grad_empty)));
    parameter->grad_empty = false;
    return TSR_OK;
}

/* The same on a rank without heads, whose parts of these parameters have no elements. */
static tsr_status empty_grads(tsr__latent_attention *a)
{
    static const tsr__latent_parameter divided[] = {TSR__LATENT_Q, TSR__LATENT_K_B,
                                                    TSR__LATENT_V_B};
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++) {
        TSR__TRY(tsr__parameter_need_grad(&a->base, a->index[divided[i]]));
        a->base.parameter[a->index[divided[i]]]->grad_empty = false;
    }
    return TSR_OK;
}

/* The gradients of parameters that the ranks divide by heads. */
static tsr_status add_heads_grads(pass *p)
{
    tsr__latent_attention *a = p->a;
    const int64_t each = a->nope + a->rotary;
    const tsr_tensor *latents = p->saved->latent[TSR__SAVED_LATENTS];
    tsr_tensor *dq2, *from2, *one, *dnope, *dvalues;
    if (a->base.frozen)
        return TSR_OK;
    if (a->division.length == 0)
        return empty_grads(a);
    TSR__TRY(queries_from(p, &from2));
    TSR__TRY(tsr__temp_flatten(p->temps, p->dq, &dq2));
    TSR__TRY(tsr__parameter_add_weight_grad(&a->base, a->index[TSR__LATENT_Q], dq2, from2));
    TSR__TRY(tsr__latent_by_heads(p->temps, latents, a->kv_rank + a->rotary, 0, a->kv_rank, &one));
    TSR__TRY(tsr__latent_by_heads(p->temps, p->dk, each, 0, a->nope, &dnope));
    TSR__TRY(add_matrices_grad(p, TSR__LATENT_K_B, one, dnope));
    TSR__TRY(tsr__latent_by_heads(p->temps, p->dv, a->value, 0, a->value, &dvalues));
    return add_matrices_grad(p, TSR__LATENT_V_B, dvalues, one);
}

/* The gradient of a norm: writes dx. */
static tsr_status norm_back(pass *p, tsr__latent_parameter which, tsr_tensor *dx,
                            const tsr_tensor *x, const tsr_tensor *dy)
{
    tsr_layer *layer = &p->a->base;
    const int index = p->a->index[which];
    tsr__layer_parameter *parameter = layer->parameter[index];
    if (!layer->frozen)
        TSR__TRY(tsr__parameter_need_grad(layer, index));
    TSR__TRY(tsr_norm_grad(layer->stream, dx, layer->frozen ? NULL : parameter->seen.grad, NULL, x,
                           dy, parameter->seen.tensor, TSR_NORM_RMS, p->a->norm_epsilon,
                           !parameter->grad_empty));
    if (!layer->frozen)
        parameter->grad_empty = false;
    return TSR_OK;
}

/* The backward pass of a projection of x that all ranks have: adds its gradient, and adds to dx or,
 * if `first` is true, writes it. dx may be NULL. */
static tsr_status project_back(pass *p, tsr__latent_parameter which, const tsr_tensor *dy2,
                               bool first, tsr_tensor *dx2)
{
    tsr__latent_attention *a = p->a;
    const tsr_tensor *weight;
    if (!a->base.frozen)
        TSR__TRY(tsr__parameter_add_weight_grad(&a->base, a->index[which], dy2, p->x2));
    if (dx2) {
        TSR__TRY(tsr__latent_floats(a, p->temps, which, &weight));
        TSR__TRY(
            tsr_matmul(a->base.stream, dx2, dy2, weight, tsr_matmul_params(.accumulate = !first)));
    }
    return tsr__latent_adapters_back(a, p->temps, which, dy2, p->x2, dx2);
}

/* From the sums over the ranks to dx, which may be NULL. */
static tsr_status finish_back(pass *p, tsr_tensor *dx2)
{
    const tsr__latent_attention *a = p->a;
    const tsr_dtype dtype = tsr_tensor_layout(p->x2)->dtype;
    const int64_t rows = tsr_tensor_layout(p->x2)->shape[0], wide = a->kv_rank + a->rotary;
    tsr_tensor *dq_raw, *raw, *dkv, *dkv_latents, *dkv_rotated, *kv_raw, *kv_latents;
    if (a->q_rank > 0) {
        TSR__TRY(tsr__temp_new(p->temps, dtype, 2, (int64_t[]){rows, a->q_rank}, &dq_raw));
        TSR__TRY(tsr__temp_flatten(p->temps, p->saved->latent[TSR__SAVED_Q_RAW], &raw));
        TSR__TRY(norm_back(p, TSR__LATENT_Q_A_NORM, dq_raw, raw, p->dqueries));
        TSR__TRY(project_back(p, TSR__LATENT_Q_A, dq_raw, true, dx2));
    } else if (dx2) {
        TSR__TRY(tsr_copy(a->base.stream, dx2, p->dqueries));
    }
    TSR__TRY(tsr__temp_new(p->temps, dtype, 2, (int64_t[]){rows, wide}, &dkv));
    TSR__TRY(tsr__temp_slice(p->temps, dkv, 1, 0, a->kv_rank, &dkv_latents));
    TSR__TRY(tsr__temp_slice(p->temps, dkv, 1, a->kv_rank, a->rotary, &dkv_rotated));
    TSR__TRY(tsr__temp_flatten(p->temps, p->saved->latent[TSR__SAVED_KV_RAW], &kv_raw));
    TSR__TRY(tsr__temp_slice(p->temps, kv_raw, 1, 0, a->kv_rank, &kv_latents));
    TSR__TRY(norm_back(p, TSR__LATENT_KV_A_NORM, dkv_latents, kv_latents, p->dlatents));
    TSR__TRY(tsr_copy(a->base.stream, dkv_rotated, p->drotated));
    if (a->rope && rows > 0) {
        const tsr_layout *layout = tsr_tensor_layout(p->saved->x);
        const int64_t tokens = layout->shape[layout->ndim - 2];
        tsr_tensor *view;
        TSR__TRY(
            tsr__temp_reshape(p->temps, dkv, 3, (int64_t[]){rows / tokens, tokens, wide}, &view));
        TSR__TRY(tsr__latent_view(p->temps, view, wide, a->kv_rank, a->rotary, &view));
        TSR__TRY(tsr_rope_grad(a->base.stream, a->rope, view, view, p->positions));
    }
    return project_back(p, TSR__LATENT_KV_A, dkv, false, dx2);
}

static tsr_status backward_with(pass *p, const tsr_tensor *dheads, tsr_tensor **dx)
{
    tsr__latent_attention *a = p->a;
    const tsr_layout *layout = tsr_tensor_layout(p->saved->x);
    tsr_tensor *positions = p->saved->positions, *out = NULL, *dx2 = NULL;
    if (a->rope && !positions)
        TSR__TRY(tsr__latent_positions(a, p->temps, layout->shape[layout->ndim - 2], &positions));
    p->positions = positions;
    TSR__TRY(tsr__temp_flatten(p->temps, p->saved->x, &p->x2));
    TSR__TRY(attend_back(p, dheads));
    TSR__TRY(new_joint(p));
    TSR__TRY(contribute(p));
    tsr_request *request = NULL;
    if (a->base.size > 1)
        TSR__TRY(tsr_group_all_reduce(a->base.group, p->joint, TSR_OP_SUM,
                                      tsr_collective_params(.wire = tsr__group_wire(a->base.group)),
                                      &request));
    tsr_status status = add_heads_grads(p);
    if (status == TSR_OK && request)
        status = tsr_stream_submit(a->base.stream);
    if (status == TSR_OK)
        status = tsr_request_wait(&request);
    tsr_request_cancel(&request);
    TSR__TRY(status);
    if (dx) {
        TSR__TRY(tsr__temp_new(p->temps, layout->dtype, layout->ndim, layout->shape, &out));
        TSR__TRY(tsr__temp_flatten(p->temps, out, &dx2));
    }
    TSR__TRY(finish_back(p, dx2));
    if (dx)
        *dx = tsr__temp_take(p->temps, out);
    return TSR_OK;
}

tsr_status tsr__latent_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr__temps temps = {.stream = layer->stream};
    pass p = {.a = (tsr__latent_attention *)layer, .temps = &temps, .saved = saved};
    tsr_tensor *dheads = NULL;
    for (int i = 0; i < layer->parameter_count; i++)
        TSR__TRY(tsr__parameter_require(layer, i));
    tsr_status status = tsr_layer_backward(layer->child[0], saved->child[0], dy, &dheads);
    if (status == TSR_OK)
        status = backward_with(&p, dheads, dx);
    tsr_tensor_destroy(&dheads);
    tsr__temps_finish(&temps);
    return status;
}
