/* The backward pass of a mixture of experts. An expert's output is w · (act · downᵀ + bias), so the
 * gradient of the hidden features before the weight, da = dy · down, also gives the weight's: dw =
 * act · da + dy · bias. The ranks' contributions to dw, and to the gradient of x, are summed; the
 * router's gradients then are the same on all ranks. */
#include "parallel/layers/moe.h"

#include <math.h>

#include "tensor/dtype.h"
#include "tessera/ops.h"

typedef struct backward_pass {
    tsr__moe *m;
    tsr__temps *temps;
    const tsr_layer_saved *saved;
    tsr_dtype dtype; /* of x */
    int64_t tokens, chosen;
    int64_t experts;                /* of which this rank has weights */
    tsr_tensor *weights;            /* [tokens,chosen] */
    tsr_tensor *raw2;               /* the layer's input */
    tsr_tensor *x2, *router_x2;     /* what experts and the router read: it, or its norms */
    tsr_tensor *dy2, *dx2;          /* dx2: the gradient of x2; NULL: not needed */
    tsr_tensor *draw2;              /* the gradient of raw2; NULL: not needed */
    tsr_tensor *dweights, *dshared; /* [tokens,chosen] and [tokens,1], parts of one tensor */
    tsr_tensor *all_dweights;
} backward_pass;

static tsr_tensor *kept(const backward_pass *p, tsr__expert_saved which)
{
    return p->saved->expert[which];
}

/* Gets a weight as floats: itself, or a converted copy. */
static tsr_status weight_floats(const backward_pass *p, tsr__moe_parameter which, tsr_tensor **out)
{
    tsr_tensor *weight = tsr__moe_tensor(p->m, which);
    const tsr_layout *layout = tsr_tensor_layout(weight);
    *out = weight;
    if (!tsr__dtype_is_block(layout->dtype))
        return TSR_OK;
    TSR__TRY(tsr__temp_new(p->temps, p->m->base.parameter[p->m->index[which]]->seen.dtype,
                           layout->ndim, layout->shape, out));
    return tsr_copy(p->m->base.stream, *out, weight);
}

/* Creates a view of a matrix [experts,n] as [experts,n,1] or, if `rows` is true, [experts,1,n]. */
static tsr_status with_dimension(const backward_pass *p, const tsr_tensor *matrix, bool rows,
                                 tsr_tensor **out)
{
    tsr_layout layout = *tsr_tensor_layout(matrix);
    layout.ndim = 3;
    layout.shape[2] = rows ? layout.shape[1] : 1;
    layout.strides[2] = rows ? layout.strides[1] : 1;
    layout.strides[1] = rows ? layout.shape[1] : layout.strides[1];
    layout.shape[1] = rows ? 1 : layout.shape[1];
    tsr_tensor *view = NULL;
    TSR__TRY(tsr_tensor_view(matrix, &layout, &view));
    *out = view;
    return tsr__temp_keep(p->temps, view);
}

/* Gradients of experts ----------------------------------------------------------------------- */

/* Adds Σ dyᵀ · x over each expert's pairs to the gradient of a parameter [experts,rows,columns] or
 * [experts,rows]; x then has one column. */
static tsr_status add_expert_grad(const backward_pass *p, tsr__moe_parameter which,
                                  const tsr_tensor *dy, const tsr_tensor *x)
{
    tsr__moe *m = p->m;
    const int index = m->index[which];
    if (index < 0)
        return TSR_OK;
    TSR__TRY(tsr__parameter_need_grad(&m->base, index));
    tsr__layer_parameter *parameter = m->base.parameter[index];
    tsr_tensor *grad = parameter->seen.grad;
    if (p->experts > 0) {
        if (parameter->seen.ndim == 2)
            TSR__TRY(with_dimension(p, grad, false, &grad));
        TSR__TRY(tsr_matmul_grouped_grad(m->base.stream, grad, dy, x, kept(p, TSR__SAVED_ORDER),
                                         kept(p, TSR__SAVED_OFFSETS), p->chosen,
                                         !parameter->grad_empty));
    }
    parameter->grad_empty = false;
    return TSR_OK;
}

static tsr_status add_expert_grads(const backward_pass *p, const tsr_tensor *weighted,
                                   const tsr_tensor *dgate, const tsr_tensor *dup)
{
    const tsr__moe *m = p->m;
    tsr_tensor *weights, *ones;
    TSR__TRY(add_expert_grad(p, TSR__MOE_DOWN, p->dy2, weighted));
    TSR__TRY(add_expert_grad(p, TSR__MOE_GATE, dgate, p->x2));
    TSR__TRY(add_expert_grad(p, TSR__MOE_UP, dup, p->x2));
    if (m->index[TSR__MOE_DOWN_BIAS] < 0)
        return TSR_OK;
    TSR__TRY(
        tsr__temp_reshape(p->temps, p->weights, 3, (int64_t[]){p->tokens, p->chosen, 1}, &weights));
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, (int64_t[]){p->tokens, 1}, &ones));
    TSR__TRY(tsr_fill(m->base.stream, ones, 1));
    TSR__TRY(add_expert_grad(p, TSR__MOE_DOWN_BIAS, p->dy2, weights));
    TSR__TRY(add_expert_grad(p, TSR__MOE_GATE_BIAS, dgate, ones));
    return add_expert_grad(p, TSR__MOE_UP_BIAS, dup, ones);
}

/* The part of the weights' gradient that comes from the output biases. */
static tsr_status add_bias_part(const backward_pass *p)
{
    const tsr__moe *m = p->m;
    if (!tsr__moe_adds_bias(m))
        return TSR_OK;
    tsr_tensor *rows, *result, *products;
    TSR__TRY(with_dimension(p, tsr__moe_tensor(m, TSR__MOE_DOWN_BIAS), true, &rows));
    TSR__TRY(with_dimension(p, p->dweights, false, &result));
    /* Rows of one element of dweights are not at equal distances if it has the shared expert's
     * column, so the product has memory of its own. */
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 3, (int64_t[]){p->tokens, p->chosen, 1}, &products));
    TSR__TRY(tsr_fill(m->base.stream, products, 0));
    TSR__TRY(tsr_matmul_grouped(m->base.stream, products, p->dy2, rows, kept(p, TSR__SAVED_HERE),
                                tsr_matmul_grouped_params(.order = kept(p, TSR__SAVED_ORDER),
                                                          .offsets = kept(p, TSR__SAVED_OFFSETS))));
    return tsr_axpy(m->base.stream, result, 1, products);
}

static tsr__moe_pairs pairs_of(const backward_pass *p)
{
    return (tsr__moe_pairs){p->chosen, kept(p, TSR__SAVED_HERE), kept(p, TSR__SAVED_ORDER),
                            kept(p, TSR__SAVED_OFFSETS), p->weights};
}

/* Adds the experts' part of dx. */
static tsr_status multiply_back(const backward_pass *p, const tsr_tensor *dgate,
                                const tsr_tensor *dup)
{
    const tsr__moe *m = p->m;
    tsr_stream *stream = m->base.stream;
    if (!p->dx2)
        return TSR_OK;
    tsr_tensor *gate, *up, *rows;
    const tsr_tensor *here = kept(p, TSR__SAVED_HERE), *order = kept(p, TSR__SAVED_ORDER),
                     *offsets = kept(p, TSR__SAVED_OFFSETS);
    TSR__TRY(weight_floats(p, TSR__MOE_GATE, &gate));
    TSR__TRY(weight_floats(p, TSR__MOE_UP, &up));
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 3, (int64_t[]){p->tokens, p->chosen, m->input_size},
                           &rows));
    TSR__TRY(tsr_matmul_grouped(
        stream, rows, dgate, gate, here,
        tsr_matmul_grouped_params(.order = order, .offsets = offsets, .transpose_w = true)));
    TSR__TRY(
        tsr_matmul_grouped(stream, rows, dup, up, here,
                           tsr_matmul_grouped_params(.order = order, .offsets = offsets,
                                                     .transpose_w = true, .accumulate = true)));
    const tsr__moe_pairs pairs = pairs_of(p);
    TSR__TRY(tsr__moe_adapters_input_grad(m, p->temps, &pairs, TSR__MOE_GATE, dgate, rows));
    TSR__TRY(tsr__moe_adapters_input_grad(m, p->temps, &pairs, TSR__MOE_UP, dup, rows));
    return tsr__pair_sum(stream, p->dx2, rows, here, p->experts, NULL, false);
}

static tsr_status experts_backward(backward_pass *p)
{
    const tsr__moe *m = p->m;
    const int64_t features = tsr__moe_hidden_here(m);
    const int64_t narrow[] = {p->tokens, p->chosen, features},
                  wide[] = {p->tokens, p->chosen, 2 * features};
    tsr_tensor *down, *da, *weighted, *dhidden, *dgate, *dup;
    TSR__TRY(weight_floats(p, TSR__MOE_DOWN, &down));
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 3, narrow, &da));
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 3, narrow, &weighted));
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 3, wide, &dhidden));
    TSR__TRY(tsr_matmul_grouped(m->base.stream, da, p->dy2, down, kept(p, TSR__SAVED_HERE),
                                tsr_matmul_grouped_params(.order = kept(p, TSR__SAVED_ORDER),
                                                          .offsets = kept(p, TSR__SAVED_OFFSETS),
                                                          .transpose_w = true)));
    const tsr__moe_pairs pairs = pairs_of(p);
    TSR__TRY(tsr__moe_adapters_input_grad(m, p->temps, &pairs, TSR__MOE_DOWN, p->dy2, da));
    TSR__TRY(
        tsr__pair_activate(m->base.stream, &(tsr__pair_activation){.ids = kept(p, TSR__SAVED_HERE),
                                                                   .hidden = p->saved->hidden,
                                                                   .y = weighted,
                                                                   .dy = da,
                                                                   .weights = p->weights,
                                                                   .dhidden = dhidden,
                                                                   .dweights = p->dweights,
                                                                   .experts = p->experts,
                                                                   .activation = m->activation,
                                                                   .limit = m->limit}));
    TSR__TRY(add_bias_part(p));
    TSR__TRY(tsr__temp_slice(p->temps, dhidden, 2, 0, features, &dgate));
    TSR__TRY(tsr__temp_slice(p->temps, dhidden, 2, features, features, &dup));
    if (!m->base.frozen)
        TSR__TRY(add_expert_grads(p, weighted, dgate, dup));
    TSR__TRY(tsr__moe_adapters_grads(m, p->temps, &pairs, TSR__MOE_DOWN, p->dy2, weighted));
    TSR__TRY(tsr__moe_adapters_grads(m, p->temps, &pairs, TSR__MOE_GATE, dgate, p->x2));
    TSR__TRY(tsr__moe_adapters_grads(m, p->temps, &pairs, TSR__MOE_UP, dup, p->x2));
    return multiply_back(p, dgate, dup);
}

/* Computes dx and the weights' gradients of the rows that have arrived, and sends them back. */
static tsr_status backward_exchanged(backward_pass *p, const tsr__moe_exchange *x)
{
    const tsr__moe *m = p->m;
    tsr_stream *stream = m->base.stream;
    tsr_tensor *weights, *column, *rows;
    const int64_t pairs = p->tokens * m->chosen, received[] = {x->received, m->input_size};
    backward_pass q = *p; /* of the rows that have arrived, each of which has one expert */
    q.tokens = x->received;
    q.chosen = 1;
    q.experts = tsr__moe_over_data(m)->sizes[tsr_group_rank(x->group)];
    q.x2 = kept(p, TSR__SAVED_RECEIVED);
    TSR__TRY(tsr__temp_reshape(p->temps, p->weights, 2, (int64_t[]){pairs, 1}, &weights));
    TSR__TRY(tsr__moe_exchange_send(x, p->temps, weights, x->pairs, &q.weights));
    TSR__TRY(tsr__moe_exchange_send(x, p->temps, p->dy2, x->rows, &q.dy2));
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, (int64_t[]){x->received, 1}, &q.dweights));
    if (p->dx2)
        TSR__TRY(tsr__temp_new(p->temps, p->dtype, 2, received, &q.dx2));
    TSR__TRY(experts_backward(&q));
    TSR__TRY(tsr__moe_exchange_return(x, p->temps, q.dweights, &column));
    TSR__TRY(tsr__temp_reshape(p->temps, column, 2, (int64_t[]){p->tokens, m->chosen}, &column));
    TSR__TRY(tsr_copy(stream, p->dweights, column));
    if (!p->dx2)
        return TSR_OK;
    TSR__TRY(tsr__moe_exchange_return(x, p->temps, q.dx2, &rows));
    TSR__TRY(tsr__temp_reshape(p->temps, rows, 3, (int64_t[]){p->tokens, m->chosen, m->input_size},
                               &rows));
    return tsr__pair_sum(stream, p->dx2, rows, kept(p, TSR__SAVED_IDS), m->experts, NULL, false);
}

/* experts_backward if data-parallel ranks divided the experts in the forward pass. */
static tsr_status divided_backward(backward_pass *p)
{
    tsr__moe_exchange x;
    tsr__moe_exchange_saved(p->m, p->saved, &x);
    return backward_exchanged(p, &x);
}

/* The shared expert -------------------------------------------------------------------------- */

static tsr_status shared_backward(backward_pass *p)
{
    tsr__moe *m = p->m;
    tsr_stream *stream = m->base.stream;
    if (m->shared_size == 0)
        return TSR_OK;
    const int64_t features = m->shared_division.length;
    const int64_t narrow[] = {p->tokens, 1, features}, flat[] = {p->tokens, features},
                  wide[] = {p->tokens, 1, 2 * features}, flat_wide[] = {p->tokens, 2 * features},
                  one[] = {p->tokens, 1};
    const tsr_tensor *logits = kept(p, TSR__SAVED_SHARED_LOGITS);
    tsr_tensor *gates = NULL, *ids, *weights, *hidden, *da, *da2, *weighted, *weighted2, *dhidden,
               *dhidden2, *dgate, *dup, *down, *gate, *up;
    if (logits) {
        TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, one, &gates));
        TSR__TRY(tsr_unary(stream, gates, logits, TSR_UNARY_SIGMOID));
    }
    TSR__TRY(tsr__moe_shared_pairs(m, p->temps, p->tokens, gates, &ids, &weights));
    TSR__TRY(tsr__temp_reshape(p->temps, kept(p, TSR__SAVED_SHARED_HIDDEN), 3, wide, &hidden));
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 3, narrow, &da));
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 3, narrow, &weighted));
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 3, wide, &dhidden));
    TSR__TRY(tsr__temp_reshape(p->temps, da, 2, flat, &da2));
    TSR__TRY(tsr__temp_reshape(p->temps, weighted, 2, flat, &weighted2));
    TSR__TRY(tsr__temp_reshape(p->temps, dhidden, 2, flat_wide, &dhidden2));
    TSR__TRY(weight_floats(p, TSR__MOE_SHARED_DOWN, &down));
    TSR__TRY(tsr_matmul(stream, da2, p->dy2, down, NULL));
    TSR__TRY(tsr__moe_adapters_input_grad(m, p->temps, NULL, TSR__MOE_SHARED_DOWN, p->dy2, da2));
    TSR__TRY(tsr__pair_activate(stream, &(tsr__pair_activation){.ids = ids,
                                                                .hidden = hidden,
                                                                .y = weighted,
                                                                .dy = da,
                                                                .weights = weights,
                                                                .dhidden = dhidden,
                                                                .dweights = p->dshared,
                                                                .experts = 1,
                                                                .activation = m->activation,
                                                                .limit = m->limit}));
    TSR__TRY(tsr__temp_slice(p->temps, dhidden2, 1, 0, features, &dgate));
    TSR__TRY(tsr__temp_slice(p->temps, dhidden2, 1, features, features, &dup));
    if (!m->base.frozen) {
        const int *index = m->index;
        TSR__TRY(tsr__parameter_add_weight_grad(&m->base, index[TSR__MOE_SHARED_DOWN], p->dy2,
                                                weighted2));
        TSR__TRY(
            tsr__parameter_add_weight_grad(&m->base, index[TSR__MOE_SHARED_GATE], dgate, p->x2));
        TSR__TRY(tsr__parameter_add_weight_grad(&m->base, index[TSR__MOE_SHARED_UP], dup, p->x2));
    }
    TSR__TRY(tsr__moe_adapters_grads(m, p->temps, NULL, TSR__MOE_SHARED_DOWN, p->dy2, weighted2));
    TSR__TRY(tsr__moe_adapters_grads(m, p->temps, NULL, TSR__MOE_SHARED_GATE, dgate, p->x2));
    TSR__TRY(tsr__moe_adapters_grads(m, p->temps, NULL, TSR__MOE_SHARED_UP, dup, p->x2));
    if (!p->dx2)
        return TSR_OK;
    TSR__TRY(tsr__moe_adapters_input_grad(m, p->temps, NULL, TSR__MOE_SHARED_GATE, dgate, p->dx2));
    TSR__TRY(tsr__moe_adapters_input_grad(m, p->temps, NULL, TSR__MOE_SHARED_UP, dup, p->dx2));
    TSR__TRY(weight_floats(p, TSR__MOE_SHARED_GATE, &gate));
    TSR__TRY(weight_floats(p, TSR__MOE_SHARED_UP, &up));
    TSR__TRY(tsr_matmul(stream, p->dx2, dgate, gate, tsr_matmul_params(.accumulate = true)));
    return tsr_matmul(stream, p->dx2, dup, up, tsr_matmul_params(.accumulate = true));
}

/* The routers -------------------------------------------------------------------------------- */

/* Adds the gradient of the weight of an RMS norm of the layer's input, and sets *dx, if it is not
 * NULL, to that of the input. dy is [tokens,input_size]. */
static tsr_status norm_backward(backward_pass *p, tsr__moe_parameter which, const tsr_tensor *dy,
                                tsr_tensor *dx)
{
    tsr__moe *m = p->m;
    const int index = m->index[which];
    tsr__layer_parameter *parameter = m->base.parameter[index];
    const bool trains = !m->base.frozen;
    if (trains)
        TSR__TRY(tsr__parameter_need_grad(&m->base, index));
    if (!trains && !dx)
        return TSR_OK;
    TSR__TRY(tsr_norm_grad(m->base.stream, dx, trains ? parameter->seen.grad : NULL, NULL, p->raw2,
                           dy, parameter->seen.tensor, TSR_NORM_RMS, m->norm_epsilon,
                           trains && !parameter->grad_empty));
    parameter->grad_empty = parameter->grad_empty && !trains;
    return TSR_OK;
}

/* Sets draw2 to the gradient of the layer's input through the experts and their norm. */
static tsr_status input_norm_backward(backward_pass *p)
{
    if (p->m->index[TSR__MOE_NORM] < 0)
        return TSR_OK;
    return norm_backward(p, TSR__MOE_NORM, p->dx2, p->draw2);
}

/* Adds the gradients of the router's parameters, and its part of draw2. */
static tsr_status router_backward(backward_pass *p, const tsr_tensor *dlogits)
{
    tsr__moe *m = p->m;
    tsr_stream *stream = m->base.stream;
    const bool has_norm = m->index[TSR__MOE_ROUTER_SCALE] >= 0;
    const int64_t of_x[] = {p->tokens, m->input_size}, of_logits[] = {p->tokens, m->experts};
    const tsr_tensor *weight = tsr__moe_tensor(m, TSR__MOE_ROUTER);
    tsr_tensor *dproduct, *dnormalised, *dx;
    if (!m->base.frozen && m->index[TSR__MOE_ROUTER_BIAS] >= 0)
        TSR__TRY(tsr__parameter_add_bias_grad(&m->base, m->index[TSR__MOE_ROUTER_BIAS], dlogits));
    if (!has_norm) {
        if (!m->base.frozen)
            TSR__TRY(tsr__parameter_add_weight_grad(&m->base, m->index[TSR__MOE_ROUTER], dlogits,
                                                    p->router_x2));
        return p->draw2 ? tsr_matmul(stream, p->draw2, dlogits, weight,
                                     tsr_matmul_params(.accumulate = true))
                        : TSR_OK;
    }
    /* The product is multiplied by 1 / √width. */
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, of_logits, &dproduct));
    TSR__TRY(tsr_scale(stream, dproduct, dlogits, 1 / sqrtf((float)m->input_size), 0));
    if (!m->base.frozen)
        TSR__TRY(tsr__parameter_add_weight_grad(&m->base, m->index[TSR__MOE_ROUTER], dproduct,
                                                p->router_x2));
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, of_x, &dnormalised));
    TSR__TRY(tsr_matmul(stream, dnormalised, dproduct, weight, NULL));
    if (!p->draw2)
        return norm_backward(p, TSR__MOE_ROUTER_SCALE, dnormalised, NULL);
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, of_x, &dx));
    TSR__TRY(norm_backward(p, TSR__MOE_ROUTER_SCALE, dnormalised, dx));
    return tsr_axpy(stream, p->draw2, 1, dx);
}

/* Adds the gradient of the experts' scales, and replaces the gradient of the scaled weights by that
 * of the weights before. Every rank has the choices of all tokens, also of other ranks' experts. */
static tsr_status scales_backward(backward_pass *p)
{
    tsr__moe *m = p->m;
    const int index = m->index[TSR__MOE_EXPERT_SCALE];
    const int64_t pairs = p->tokens * p->chosen, column[] = {p->tokens, p->chosen, 1},
                  of_scales[] = {m->experts, 1, 1}, offsets_of[] = {m->experts + 1};
    tsr_tensor *order, *offsets, *products, *scaled, *unscaled, *grad;
    if (index < 0)
        return TSR_OK;
    if (!m->base.frozen) {
        tsr__layer_parameter *parameter = m->base.parameter[index];
        TSR__TRY(tsr__parameter_need_grad(&m->base, index));
        TSR__TRY(tsr__temp_new(p->temps, TSR_I32, 1, &pairs, &order));
        TSR__TRY(tsr__temp_new(p->temps, TSR_I32, 1, offsets_of, &offsets));
        TSR__TRY(tsr_route_sort(m->base.stream, order, offsets, kept(p, TSR__SAVED_IDS)));
        TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, column, &products));
        TSR__TRY(tsr_copy(m->base.stream, products, p->dweights)); /* contiguous */
        TSR__TRY(tsr__temp_reshape(p->temps, products, 3, column, &scaled));
        TSR__TRY(tsr__temp_reshape(p->temps, kept(p, TSR__SAVED_UNSCALED), 3, column, &unscaled));
        TSR__TRY(tsr__temp_reshape(p->temps, parameter->seen.grad, 3, of_scales, &grad));
        TSR__TRY(tsr_matmul_grouped_grad(m->base.stream, grad, scaled, unscaled, order, offsets,
                                         p->chosen, !parameter->grad_empty));
        parameter->grad_empty = false;
    }
    return tsr__moe_scale_weights(m, p->temps, kept(p, TSR__SAVED_IDS), p->dweights, p->dweights);
}

/* The bias for the choice has no gradient, and is stepped with 0. */
static tsr_status clear_choice_grad(tsr__moe *m)
{
    const int index = m->index[TSR__MOE_CHOICE_BIAS];
    if (index < 0 || m->base.frozen || !m->base.parameter[index]->grad_empty)
        return TSR_OK;
    TSR__TRY(tsr__parameter_need_grad(&m->base, index));
    TSR__TRY(tsr_fill(m->base.stream, m->base.parameter[index]->seen.grad, 0));
    m->base.parameter[index]->grad_empty = false;
    return TSR_OK;
}

/* The gate of the shared expert reads what experts read. */
static tsr_status shared_router_backward(backward_pass *p)
{
    tsr__moe *m = p->m;
    tsr_stream *stream = m->base.stream;
    const tsr_tensor *logits = kept(p, TSR__SAVED_SHARED_LOGITS);
    tsr_tensor *dgates;
    if (!logits)
        return TSR_OK;
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, (int64_t[]){p->tokens, 1}, &dgates));
    TSR__TRY(tsr_unary_grad(stream, dgates, logits, p->dshared, TSR_UNARY_SIGMOID));
    if (!m->base.frozen)
        TSR__TRY(tsr__parameter_add_weight_grad(&m->base, m->index[TSR__MOE_SHARED_ROUTER], dgates,
                                                p->x2));
    return p->dx2 ? tsr_matmul(stream, p->dx2, dgates, tsr__moe_tensor(m, TSR__MOE_SHARED_ROUTER),
                               tsr_matmul_params(.accumulate = true))
                  : TSR_OK;
}

static tsr_status routers_backward(backward_pass *p)
{
    tsr__moe *m = p->m;
    tsr_tensor *dlogits;
    TSR__TRY(shared_router_backward(p));
    TSR__TRY(input_norm_backward(p));
    TSR__TRY(scales_backward(p));
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, (int64_t[]){p->tokens, m->experts}, &dlogits));
    TSR__TRY(tsr_route_grad(m->base.stream, dlogits, kept(p, TSR__SAVED_LOGITS),
                            kept(p, TSR__SAVED_IDS), p->dweights, m->balance, &m->route));
    TSR__TRY(router_backward(p, dlogits));
    return clear_choice_grad(m);
}

/* The pass ----------------------------------------------------------------------------------- */

static tsr_status run_backward(backward_pass *p, const tsr_layer_saved *saved, const tsr_tensor *dy,
                               tsr_tensor **dx)
{
    const tsr__moe *m = p->m;
    const tsr_layout *layout = tsr_tensor_layout(saved->x);
    tsr_tensor *result = NULL, *final = NULL;
    const bool trains_norm = m->index[TSR__MOE_NORM] >= 0 && !m->base.frozen;
    TSR__TRY(tsr__temp_flatten(p->temps, saved->x, &p->raw2));
    TSR__TRY(tsr__moe_normalise(m, p->temps, TSR__MOE_NORM, p->raw2, &p->x2));
    TSR__TRY(tsr__moe_normalise(m, p->temps, TSR__MOE_ROUTER_SCALE, p->raw2, &p->router_x2));
    TSR__TRY(tsr__temp_flatten(p->temps, dy, &p->dy2));
    p->tokens = tsr_tensor_layout(p->raw2)->shape[0];
    p->chosen = m->chosen;
    p->experts = tsr__moe_experts_here(m);
    p->weights = kept(p, TSR__SAVED_WEIGHTS);
    const int64_t flat[] = {p->tokens, m->input_size}, gates = m->shared_size > 0 ? 1 : 0;
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, (int64_t[]){p->tokens, m->chosen + gates},
                           &p->all_dweights));
    TSR__TRY(tsr__temp_slice(p->temps, p->all_dweights, 1, 0, m->chosen, &p->dweights));
    if (gates)
        TSR__TRY(tsr__temp_slice(p->temps, p->all_dweights, 1, m->chosen, 1, &p->dshared));
    if (dx) {
        TSR__TRY(tsr__temp_new(p->temps, p->dtype, layout->ndim, layout->shape, &result));
        TSR__TRY(tsr__temp_reshape(p->temps, result, 2, flat, &final));
        p->draw2 = final;
        if (m->reduce_f32 && m->base.size > 1 && p->dtype != TSR_F32)
            TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, flat, &p->draw2));
        p->dx2 = p->draw2;
    }
    if (m->index[TSR__MOE_NORM] >= 0 && (dx || trains_norm))
        TSR__TRY(tsr__temp_new(p->temps, m->reduce_f32 ? TSR_F32 : p->dtype, 2, flat, &p->dx2));
    TSR__TRY(saved->exchanged ? divided_backward(p) : experts_backward(p));
    TSR__TRY(shared_backward(p));
    TSR__TRY(tsr__moe_reduce(m, p->all_dweights, (tsr_dtype)0));
    if (p->dx2)
        TSR__TRY(tsr__moe_reduce(m, p->dx2, tsr__group_wire(m->base.group)));
    TSR__TRY(routers_backward(p));
    if (!dx)
        return TSR_OK;
    if (p->draw2 != final)
        TSR__TRY(tsr_copy(m->base.stream, final, p->draw2));
    *dx = tsr__temp_take(p->temps, result);
    return TSR_OK;
}

tsr_status tsr__moe_backward(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                             tsr_tensor **dx)
{
    const tsr_layout *layout = tsr_tensor_layout(saved->x);
    TSR__REQUIRE(tsr__layout_same_shape(layout, tsr_tensor_layout(dy)), "%s: dy is %s; y was %s",
                 layer->who, TSR__SHAPE_OF(dy), TSR__SHAPE_OF(saved->x));
    tsr__temps temps = {.stream = layer->stream};
    backward_pass pass = {
        .m = (tsr__moe *)layer, .temps = &temps, .saved = saved, .dtype = layout->dtype};
    tsr_status status = run_backward(&pass, saved, dy, dx);
    tsr__temps_finish(&temps);
    return status;
}
