/* The forward pass of a mixture of experts. Every rank computes the router's logits of all tokens
 * from the same bits, so all choose alike. Each then computes what its weights contribute, and one
 * all-reduce sums the contributions. */
#include "parallel/layers/moe.h"

#include <math.h>

#include "tessera/ops.h"

/* The most tokens for which products do not need sorted pairs. */
enum { FEW_TOKENS = 8 };

typedef struct forward_pass {
    tsr__moe *m;
    tsr__temps *temps;
    tsr_layer_saved *saved;
    tsr_dtype dtype; /* of x */
    int64_t tokens, chosen;
    int64_t experts;                           /* of which this rank has weights */
    tsr_tensor *x2;                            /* [tokens,input_size], what experts read */
    tsr_tensor *router_x2;                     /* the same, what the router reads */
    tsr_tensor *logits, *ids, *weights, *here; /* `here`: ids of this rank's experts */
    tsr_tensor *order, *offsets;               /* NULL: not sorted */
    tsr_tensor *unscaled; /* with a backward pass: weights before their scale, or NULL */
} forward_pass;

tsr_status tsr__moe_reduce(const tsr__moe *m, tsr_tensor *tensor, tsr_dtype wire)
{
    if (m->base.size == 1)
        return TSR_OK;
    return tsr_group_all_reduce(m->base.group, tensor, TSR_OP_SUM,
                                tsr_collective_params(.wire = wire), NULL);
}

/* Inputs ------------------------------------------------------------------------------------- */

static const char *inference_only(const tsr__moe *m)
{
    return m->in_teams ? "teams" : NULL;
}

tsr_status tsr__moe_normalise(const tsr__moe *m, tsr__temps *temps, tsr__moe_parameter which,
                              tsr_tensor *x, tsr_tensor **out)
{
    const tsr_tensor *weight = tsr__moe_tensor(m, which);
    const tsr_layout *l = tsr_tensor_layout(x);
    tsr_tensor *normalised = x;
    if (weight) {
        TSR__TRY(tsr__temp_new(temps, l->dtype, l->ndim, l->shape, &normalised));
        TSR__TRY(
            tsr_norm(m->base.stream, normalised, x, weight, NULL, TSR_NORM_RMS, m->norm_epsilon));
    }
    *out = normalised;
    return TSR_OK;
}

static tsr_status make_inputs(forward_pass *p)
{
    const tsr__moe *m = p->m;
    const char *what = p->saved ? inference_only(m) : NULL;
    if (what)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "%s: with %s, there is no backward pass", m->base.who,
                         what);
    tsr_tensor *x2 = p->x2;
    TSR__TRY(tsr__moe_normalise(m, p->temps, TSR__MOE_ROUTER_SCALE, x2, &p->router_x2));
    return tsr__moe_normalise(m, p->temps, TSR__MOE_NORM, x2, &p->x2);
}

/* Choice ------------------------------------------------------------------------------------- */

tsr_status tsr__moe_scale_weights(const tsr__moe *m, tsr__temps *temps, const tsr_tensor *ids,
                                  const tsr_tensor *weights, tsr_tensor *scaled)
{
    const int64_t *shape = tsr_tensor_layout(ids)->shape, pairs = shape[0] * shape[1];
    tsr_tensor *flat, *factors;
    TSR__TRY(tsr__temp_reshape(temps, ids, 1, &pairs, &flat));
    TSR__TRY(tsr__temp_new(temps, TSR_F32, 1, &pairs, &factors));
    TSR__TRY(tsr_index_select(m->base.stream, factors, tsr__moe_tensor(m, TSR__MOE_EXPERT_SCALE), 0,
                              flat));
    TSR__TRY(tsr__temp_reshape(temps, factors, 2, shape, &factors));
    return tsr_binary(m->base.stream, scaled, weights, factors, TSR_BINARY_MUL);
}

/* Multiplies the weights of the pairs by the factors of their experts, if there are any. */
static tsr_status scale_weights(forward_pass *p)
{
    tsr_tensor *unscaled = p->weights;
    if (p->m->index[TSR__MOE_EXPERT_SCALE] < 0)
        return TSR_OK;
    if (p->saved) {
        const int64_t shape[] = {p->tokens, p->chosen};
        p->unscaled = unscaled;
        TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, shape, &p->weights));
    }
    return tsr__moe_scale_weights(p->m, p->temps, p->ids, unscaled, p->weights);
}

static tsr_status choose(forward_pass *p)
{
    const tsr__moe *m = p->m;
    tsr_stream *stream = m->base.stream;
    const int64_t of_logits[] = {p->tokens, m->experts}, of_pairs[] = {p->tokens, m->chosen};
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, of_logits, &p->logits));
    TSR__TRY(tsr__temp_new(p->temps, TSR_I32, 2, of_pairs, &p->ids));
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, of_pairs, &p->weights));
    TSR__TRY(tsr_matmul(stream, p->logits, p->router_x2, tsr__moe_tensor(m, TSR__MOE_ROUTER),
                        tsr_matmul_params(.transpose_b = true,
                                          .alpha = tsr__moe_tensor(m, TSR__MOE_ROUTER_SCALE)
                                                       ? 1 / sqrtf((float)m->input_size)
                                                       : 0,
                                          .bias = tsr__moe_tensor(m, TSR__MOE_ROUTER_BIAS))));
    tsr_route_params route = m->route;
    route.bias = tsr__moe_tensor(m, TSR__MOE_CHOICE_BIAS);
    p->here = p->ids;
    if (m->local)
        TSR__TRY(tsr__temp_new(p->temps, TSR_I32, 2, of_pairs, &p->here));
    TSR__TRY(tsr__route_local(stream, p->ids, p->weights, p->logits, &route, m->local,
                              m->local ? p->here : NULL));
    return scale_weights(p);
}

/* Sorts the pairs of this rank's experts. */
static tsr_status sort_pairs(forward_pass *p)
{
    const int64_t pairs = p->tokens * p->chosen;
    if ((p->tokens <= FEW_TOKENS && !p->saved) || p->experts == 0)
        return TSR_OK;
    TSR__TRY(tsr__temp_new(p->temps, TSR_I32, 1, &pairs, &p->order));
    TSR__TRY(tsr__temp_new(p->temps, TSR_I32, 1, (int64_t[]){p->experts + 1}, &p->offsets));
    return tsr_route_sort(p->m->base.stream, p->order, p->offsets, p->here);
}

static tsr__moe_pairs pairs_of(const forward_pass *p)
{
    return (tsr__moe_pairs){p->chosen, p->here, p->order, p->offsets, p->weights};
}

/* Experts ------------------------------------------------------------------------------------ */

/* The experts from which the pairs of this rank's products were chosen; 0: those that it has. */
static int64_t all_experts(const tsr__moe *m)
{
    return m->in_teams ? 0 : m->experts;
}

/* Computes act [tokens,chosen,hidden], and keeps gate and up for a backward pass. */
static tsr_status hidden_features(forward_pass *p, tsr_tensor **act)
{
    const tsr__moe *m = p->m;
    tsr_stream *stream = m->base.stream;
    const int64_t features = tsr__moe_hidden_here(m);
    const int64_t narrow[] = {p->tokens, p->chosen, features},
                  wide[] = {p->tokens, p->chosen, 2 * features};
    const tsr_tensor *gate = tsr__moe_tensor(m, TSR__MOE_GATE),
                     *up = tsr__moe_tensor(m, TSR__MOE_UP),
                     *gate_bias = tsr__moe_tensor(m, TSR__MOE_GATE_BIAS),
                     *up_bias = tsr__moe_tensor(m, TSR__MOE_UP_BIAS);
    const tsr__moe_pairs pairs = pairs_of(p);
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 3, narrow, act));
    if (!p->saved && !tsr__moe_is_adapted(m, false))
        return tsr_matmul_grouped(
            stream, *act, p->x2, gate, p->here,
            tsr_matmul_grouped_params(.order = p->order, .offsets = p->offsets, .bias = gate_bias,
                                      .up = up, .up_bias = up_bias, .activation = m->activation,
                                      .limit = m->limit, .all_experts = all_experts(m)));
    tsr_tensor *hidden, *part;
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 3, wide, &hidden));
    TSR__TRY(tsr__temp_slice(p->temps, hidden, 2, 0, features, &part));
    TSR__TRY(tsr_matmul_grouped(stream, part, p->x2, gate, p->here,
                                tsr_matmul_grouped_params(.order = p->order, .offsets = p->offsets,
                                                          .bias = gate_bias,
                                                          .all_experts = all_experts(m))));
    TSR__TRY(tsr__moe_adapters_forward(m, p->temps, &pairs, TSR__MOE_GATE, p->x2, part));
    TSR__TRY(tsr__temp_slice(p->temps, hidden, 2, features, features, &part));
    TSR__TRY(tsr_matmul_grouped(stream, part, p->x2, up, p->here,
                                tsr_matmul_grouped_params(.order = p->order, .offsets = p->offsets,
                                                          .bias = up_bias,
                                                          .all_experts = all_experts(m))));
    TSR__TRY(tsr__moe_adapters_forward(m, p->temps, &pairs, TSR__MOE_UP, p->x2, part));
    if (p->saved)
        TSR__TRY(tsr__keep(hidden, &p->saved->hidden));
    return tsr__pair_activate(stream, &(tsr__pair_activation){.ids = p->here,
                                                              .hidden = hidden,
                                                              .y = *act,
                                                              .experts = p->experts,
                                                              .activation = m->activation,
                                                              .limit = m->limit});
}

/* The shared expert -------------------------------------------------------------------------- */

/* A view [tokens,1] of a tensor with one element. */
static tsr_status repeated(tsr__temps *temps, const tsr_tensor *one, int64_t tokens,
                           tsr_tensor **out)
{
    tsr_layout layout = *tsr_tensor_layout(one);
    layout.ndim = 2;
    layout.shape[0] = tokens;
    layout.shape[1] = 1;
    layout.strides[0] = 0;
    layout.strides[1] = 1;
    tsr_tensor *view = NULL;
    TSR__TRY(tsr_tensor_view(one, &layout, &view));
    *out = view;
    return tsr__temp_keep(temps, view);
}

tsr_status tsr__moe_shared_pairs(const tsr__moe *m, tsr__temps *temps, int64_t tokens,
                                 tsr_tensor *gates, tsr_tensor **ids, tsr_tensor **weights)
{
    TSR__TRY(repeated(temps, m->shared_id, tokens, ids));
    *weights = gates;
    return gates ? TSR_OK : repeated(temps, m->shared_weight, tokens, weights);
}

/* Computes the gate of the shared expert, [tokens,1], or NULL. */
static tsr_status shared_gates(forward_pass *p, tsr_tensor **out)
{
    const tsr__moe *m = p->m;
    const tsr_tensor *router = tsr__moe_tensor(m, TSR__MOE_SHARED_ROUTER);
    *out = NULL;
    if (!router)
        return TSR_OK;
    const int64_t shape[] = {p->tokens, 1};
    tsr_tensor *logits;
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, shape, &logits));
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, shape, out));
    TSR__TRY(
        tsr_matmul(m->base.stream, logits, p->x2, router, tsr_matmul_params(.transpose_b = true)));
    if (p->saved)
        TSR__TRY(tsr__keep(logits, &p->saved->expert[TSR__SAVED_SHARED_LOGITS]));
    return tsr_unary(m->base.stream, *out, logits, TSR_UNARY_SIGMOID);
}

/* A weight [n,k] of the shared expert as a matrix of one expert. */
static tsr_status shared_matrix(const forward_pass *p, tsr__moe_parameter which, tsr_tensor **out)
{
    tsr_tensor *weight = tsr__moe_tensor(p->m, which);
    const tsr_layout *l = tsr_tensor_layout(weight);
    return tsr__temp_reshape(p->temps, weight, 3, (int64_t[]){1, l->shape[0], l->shape[1]}, out);
}

/* Returns whether the shared expert is multiplied as a matrix of one expert. */
static bool shared_is_grouped(const forward_pass *p)
{
    return p->tokens <= FEW_TOKENS && !p->saved && !tsr__moe_is_adapted(p->m, true);
}

/* Computes gate and up of the shared expert in one product, and keeps them for a backward pass. */
static tsr_status shared_features(forward_pass *p, const tsr_tensor *ids, tsr_tensor *act)
{
    const tsr__moe *m = p->m;
    tsr_stream *stream = m->base.stream;
    const int64_t features = m->shared_division.length;
    const int64_t wide[] = {p->tokens, 2 * features}, wide_pairs[] = {p->tokens, 1, 2 * features};
    tsr_tensor *gate, *up, *hidden, *part;
    if (shared_is_grouped(p)) {
        TSR__TRY(shared_matrix(p, TSR__MOE_SHARED_GATE, &gate));
        TSR__TRY(shared_matrix(p, TSR__MOE_SHARED_UP, &up));
        return tsr_matmul_grouped(
            stream, act, p->x2, gate, ids,
            tsr_matmul_grouped_params(.up = up, .activation = m->activation, .limit = m->limit));
    }
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 2, wide, &hidden));
    TSR__TRY(tsr__temp_slice(p->temps, hidden, 1, 0, features, &part));
    TSR__TRY(tsr_matmul(stream, part, p->x2, tsr__moe_tensor(m, TSR__MOE_SHARED_GATE),
                        tsr_matmul_params(.transpose_b = true)));
    TSR__TRY(tsr__moe_adapters_forward(m, p->temps, NULL, TSR__MOE_SHARED_GATE, p->x2, part));
    TSR__TRY(tsr__temp_slice(p->temps, hidden, 1, features, features, &part));
    TSR__TRY(tsr_matmul(stream, part, p->x2, tsr__moe_tensor(m, TSR__MOE_SHARED_UP),
                        tsr_matmul_params(.transpose_b = true)));
    TSR__TRY(tsr__moe_adapters_forward(m, p->temps, NULL, TSR__MOE_SHARED_UP, p->x2, part));
    if (p->saved)
        TSR__TRY(tsr__keep(hidden, &p->saved->expert[TSR__SAVED_SHARED_HIDDEN]));
    TSR__TRY(tsr__temp_reshape(p->temps, hidden, 3, wide_pairs, &hidden));
    return tsr__pair_activate(stream, &(tsr__pair_activation){.ids = ids,
                                                              .hidden = hidden,
                                                              .y = act,
                                                              .experts = 1,
                                                              .activation = m->activation,
                                                              .limit = m->limit});
}

/* y2 += the shared expert's contribution. */
static tsr_status add_shared_expert(forward_pass *p, tsr_tensor *y2)
{
    const tsr__moe *m = p->m;
    tsr_stream *stream = m->base.stream;
    if (m->shared_size == 0)
        return TSR_OK;
    const int64_t features = m->shared_division.length;
    const int64_t narrow[] = {p->tokens, 1, features}, flat[] = {p->tokens, features};
    tsr_tensor *gates, *ids, *weights, *act, *act2, *down;
    TSR__TRY(shared_gates(p, &gates));
    TSR__TRY(tsr__moe_shared_pairs(m, p->temps, p->tokens, gates, &ids, &weights));
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 3, narrow, &act));
    TSR__TRY(shared_features(p, ids, act));
    if (shared_is_grouped(p)) {
        TSR__TRY(shared_matrix(p, TSR__MOE_SHARED_DOWN, &down));
        return tsr_matmul_grouped(
            stream, y2, act, down, ids,
            tsr_matmul_grouped_params(.weights = weights, .accumulate = true));
    }
    if (gates) {
        TSR__TRY(tsr__temp_new(p->temps, p->dtype, 2, flat, &act2));
        TSR__TRY(tsr__pair_sum(stream, act2, act, ids, 1, weights, false));
    } else {
        TSR__TRY(tsr__temp_reshape(p->temps, act, 2, flat, &act2));
    }
    TSR__TRY(tsr_matmul(stream, y2, act2, tsr__moe_tensor(m, TSR__MOE_SHARED_DOWN),
                        tsr_matmul_params(.transpose_b = true, .accumulate = true)));
    return tsr__moe_adapters_forward(m, p->temps, NULL, TSR__MOE_SHARED_DOWN, act2, y2);
}

/* The pass ----------------------------------------------------------------------------------- */

/* Keeps what the backward pass needs. */
static tsr_status save(const forward_pass *p)
{
    const tsr_tensor *const kept[] = {
        [TSR__SAVED_LOGITS] = p->logits,     [TSR__SAVED_IDS] = p->ids,
        [TSR__SAVED_WEIGHTS] = p->weights,   [TSR__SAVED_HERE] = p->here,
        [TSR__SAVED_ORDER] = p->order,       [TSR__SAVED_OFFSETS] = p->offsets,
        [TSR__SAVED_UNSCALED] = p->unscaled,
    };
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (kept[i])
            TSR__TRY(tsr__keep(kept[i], &p->saved->expert[i]));
    return TSR_OK;
}

/* sum = the weighted sum over each token's experts, plus `added2` if that is not NULL. */
static tsr_status sum_experts(forward_pass *p, tsr_tensor *sum, const tsr_tensor *added2)
{
    const tsr__moe *m = p->m;
    tsr_tensor *act;
    TSR__TRY(sort_pairs(p));
    TSR__TRY(hidden_features(p, &act));
    TSR__TRY(tsr__matmul_grouped_added(
        m->base.stream, sum, act, tsr__moe_tensor(m, TSR__MOE_DOWN), p->here,
        tsr_matmul_grouped_params(.order = p->order, .offsets = p->offsets, .weights = p->weights,
                                  .bias = tsr__moe_adds_bias(m)
                                              ? tsr__moe_tensor(m, TSR__MOE_DOWN_BIAS)
                                              : NULL,
                                  .all_experts = all_experts(m)),
        added2));
    const tsr__moe_pairs pairs = pairs_of(p);
    return tsr__moe_adapters_forward(m, p->temps, &pairs, TSR__MOE_DOWN, act, sum);
}

/* Computes the rows that arrive, sends them back, and sums those of this rank's tokens. */
static tsr_status sum_exchanged(forward_pass *p, const tsr__moe_exchange *x, tsr_tensor *sum)
{
    const tsr__moe *m = p->m;
    const tsr_tensor *bias = tsr__moe_adds_bias(m) ? tsr__moe_tensor(m, TSR__MOE_DOWN_BIAS) : NULL;
    tsr_tensor *act, *rows, *flat, *pairs;
    forward_pass q = *p; /* of the rows that arrive, each of which has one expert */
    q.tokens = x->received;
    q.chosen = 1;
    q.experts = tsr__moe_over_data(m)->sizes[tsr_group_rank(x->group)];
    TSR__TRY(tsr__moe_exchange_send(x, p->temps, p->x2, x->rows, &q.x2));
    TSR__TRY(sort_pairs(&q));
    TSR__TRY(hidden_features(&q, &act));
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, 3, (int64_t[]){q.tokens, 1, m->input_size}, &rows));
    TSR__TRY(tsr_matmul_grouped(
        m->base.stream, rows, act, tsr__moe_tensor(m, TSR__MOE_DOWN), q.here,
        tsr_matmul_grouped_params(.order = q.order, .offsets = q.offsets, .bias = bias)));
    TSR__TRY(tsr__temp_reshape(p->temps, rows, 2, (int64_t[]){q.tokens, m->input_size}, &flat));
    TSR__TRY(tsr__moe_exchange_return(x, p->temps, flat, &pairs));
    TSR__TRY(tsr__temp_reshape(p->temps, pairs, 3, (int64_t[]){p->tokens, m->chosen, m->input_size},
                               &pairs));
    TSR__TRY(tsr__pair_sum(m->base.stream, sum, pairs, p->ids, m->experts, p->weights, false));
    p->order = q.order;
    p->offsets = q.offsets;
    return p->saved ? tsr__keep(q.x2, &p->saved->expert[TSR__SAVED_RECEIVED]) : TSR_OK;
}

/* sum_experts if data-parallel ranks divide the experts. */
static tsr_status sum_divided(forward_pass *p, tsr_tensor *sum)
{
    tsr__moe_exchange x;
    const tsr_tensor *ids = p->here;
    tsr_status status = tsr__moe_exchange_init(p->m, p->temps, ids, &x, &p->here);
    if (status == TSR_OK)
        status = sum_exchanged(p, &x, sum);
    if (status == TSR_OK && p->saved)
        status = tsr__moe_exchange_save(&x, p->saved);
    tsr__moe_exchange_finish(&x);
    return status;
}

static tsr_status run_forward(forward_pass *p, const tsr_tensor *x, const tsr_tensor *added,
                              tsr_tensor **y)
{
    const tsr__moe *m = p->m;
    tsr_stream *stream = m->base.stream;
    const tsr_layout *layout = tsr_tensor_layout(x);
    const int64_t flat[] = {p->tokens, m->input_size};
    const bool wide_sum = m->reduce_f32 && m->base.size > 1 && p->dtype != TSR_F32;
    const bool divided = tsr__moe_over_data(m)->group != NULL;
    tsr_tensor *out, *out2, *sum, *added2 = NULL;
    TSR__TRY(tsr__moe_check_adapters(m));
    TSR__TRY(make_inputs(p));
    TSR__TRY(choose(p));
    TSR__TRY(tsr__temp_new(p->temps, p->dtype, layout->ndim, layout->shape, &out));
    TSR__TRY(tsr__temp_reshape(p->temps, out, 2, flat, &out2));
    sum = out2;
    if (wide_sum)
        TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 2, flat, &sum));
    /* On one rank, the product adds `added`; on several, it is added to their sum. */
    if (added && m->base.size == 1 && !divided)
        TSR__TRY(tsr__temp_flatten(p->temps, added, &added2));
    const tsr_layout *of_added = added2 ? tsr_tensor_layout(added2) : NULL;
    const bool adds = of_added && of_added->dtype == p->dtype && of_added->strides[1] == 1 &&
                      (of_added->strides[0] == m->input_size || p->tokens <= 1);
    TSR__TRY(divided ? sum_divided(p, sum) : sum_experts(p, sum, adds ? added2 : NULL));
    TSR__TRY(add_shared_expert(p, sum));
    TSR__TRY(tsr__moe_reduce(m, sum, tsr__group_wire(m->base.group)));
    if (wide_sum)
        TSR__TRY(tsr_copy(stream, out2, sum));
    if (added && !adds)
        TSR__TRY(tsr_axpy(stream, out, 1, added));
    if (p->saved)
        TSR__TRY(save(p));
    *y = tsr__temp_take(p->temps, out);
    return TSR_OK;
}

tsr_status tsr__moe_forward_added(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                  const tsr_tensor *added, tsr_layer_saved *saved, tsr_tensor **y)
{
    (void)cached;
    tsr__moe *m = (tsr__moe *)layer;
    TSR__TRY(tsr__layer_check_input(layer, "x", x));
    const tsr_layout *layout = tsr_tensor_layout(x);
    TSR__REQUIRE(layout->shape[layout->ndim - 1] == m->input_size,
                 "%s: x is %s; its last dimension must be %lld", layer->who, TSR__SHAPE_OF(x),
                 (long long)m->input_size);
    tsr__temps temps = {.stream = layer->stream};
    forward_pass pass = {.m = m, .temps = &temps, .saved = saved, .dtype = layout->dtype};
    tsr_status status = tsr__temp_flatten(&temps, x, &pass.x2);
    if (status == TSR_OK) {
        pass.tokens = tsr_tensor_layout(pass.x2)->shape[0];
        pass.chosen = m->chosen;
        pass.experts = tsr__moe_experts_here(m);
        status = run_forward(&pass, x, added, y);
    }
    tsr__temps_finish(&temps);
    return status;
}
