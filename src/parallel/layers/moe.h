/* The layer of a mixture of experts. moe.c creates it; moe_forward.c and moe_backward.c have its
 * passes, moe_adapters.c the low-rank adapters of experts, and moe_exchange.c what data-parallel
 * ranks send if they divide the experts. */
#ifndef TSR_PARALLEL_LAYERS_MOE_H
#define TSR_PARALLEL_LAYERS_MOE_H

#include "gpu/internal.h"
#include "parallel/layers/layer.h"
#include "tessera/moe.h"

/* The parameters that a layer can have, and their order. */
typedef enum tsr__moe_parameter {
    TSR__MOE_NORM,
    TSR__MOE_ROUTER,
    TSR__MOE_ROUTER_BIAS,
    TSR__MOE_CHOICE_BIAS,
    TSR__MOE_ROUTER_SCALE,
    TSR__MOE_EXPERT_SCALE,
    TSR__MOE_GATE,
    TSR__MOE_GATE_BIAS,
    TSR__MOE_UP,
    TSR__MOE_UP_BIAS,
    TSR__MOE_DOWN,
    TSR__MOE_DOWN_BIAS,
    TSR__MOE_SHARED_GATE,
    TSR__MOE_SHARED_UP,
    TSR__MOE_SHARED_DOWN,
    TSR__MOE_SHARED_ROUTER,
    TSR__MOE_PARAMETERS
} tsr__moe_parameter;

typedef struct tsr__moe {
    tsr_layer base;
    int64_t input_size, hidden_size, experts, chosen, shared_size;
    bool by_experts;      /* ranks have whole experts; otherwise a part of each expert */
    bool in_teams;        /* teams have whole experts, of which ranks have a part each */
    bool leads;           /* this rank is the first one of its team, or of all ranks */
    int64_t first, count; /* in_teams: the experts of this rank's team */
    bool divisible;       /* data-parallel ranks may divide the experts of this rank */
    bool reduce_f32;
    tsr_route_params route; /* without its bias */
    tsr_expert_activation activation;
    float limit, norm_epsilon;
    tsr__division division, shared_division;
    int index[TSR__MOE_PARAMETERS]; /* among the layer's parameters; -1: the layer has none */
    /* by_experts with several ranks: [experts], i32: each expert's number on this rank, or -1 */
    tsr_tensor *local;
    tsr_tensor *shared_id, *shared_weight; /* if there is a shared expert: one element, 0 and 1 */
    tsr_tensor *balance; /* the gradient of probabilities (tsr_moe_set_balance), or NULL */
} tsr__moe;

/* Returns the memory of a parameter, or NULL if the layer does not have it. */
static inline tsr_tensor *tsr__moe_tensor(const tsr__moe *m, tsr__moe_parameter which)
{
    return m->index[which] < 0 ? NULL : m->base.parameter[m->index[which]]->seen.tensor;
}

/* The number of experts, and of hidden features of an expert, of which this rank has weights. */
static inline int64_t tsr__moe_experts_here(const tsr__moe *m)
{
    return m->in_teams ? m->count : m->by_experts ? m->division.length : m->experts;
}
static inline int64_t tsr__moe_hidden_here(const tsr__moe *m)
{
    return m->by_experts ? m->hidden_size : m->division.length;
}
/* Whether this rank adds the experts' output biases: one rank does, or one of each team, if each
 * has a part of all experts. */
static inline bool tsr__moe_adds_bias(const tsr__moe *m)
{
    return m->index[TSR__MOE_DOWN_BIAS] >= 0 && (m->by_experts || m->leads);
}

/* How data-parallel ranks divide this rank's experts. */
static inline const tsr__over_data *tsr__moe_over_data(const tsr__moe *m)
{
    return &m->base.parameter[m->index[TSR__MOE_GATE]]->over_data;
}

/* The functions of tsr__layer_type. */
tsr_status tsr__moe_forward_added(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                  const tsr_tensor *added, tsr_layer_saved *saved,
                                  tsr_tensor **y) TSR_NODISCARD;
tsr_status tsr__moe_backward(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                             tsr_tensor **dx) TSR_NODISCARD;

/* moe_forward.c: *out = the RMS norm of x with this weight, or x itself if the layer does not have
 * it. */
tsr_status tsr__moe_normalise(const tsr__moe *m, tsr__temps *temps, tsr__moe_parameter which,
                              tsr_tensor *x, tsr_tensor **out) TSR_NODISCARD;
/* scaled [tokens,chosen] = weights · the scale of the pair's expert. They may be equal. */
tsr_status tsr__moe_scale_weights(const tsr__moe *m, tsr__temps *temps, const tsr_tensor *ids,
                                  const tsr_tensor *weights, tsr_tensor *scaled) TSR_NODISCARD;

/* The ids and weights of a shared expert: views [tokens,1] of a zero, and `gates`, or views of a
 * one if that is NULL. */
tsr_status tsr__moe_shared_pairs(const tsr__moe *m, tsr__temps *temps, int64_t tokens,
                                 tsr_tensor *gates, tsr_tensor **ids,
                                 tsr_tensor **weights) TSR_NODISCARD;
/* Sums `tensor` over the ranks; `kind` is the dtype of activations on the wire, or 0. */
tsr_status tsr__moe_reduce(const tsr__moe *m, tsr_tensor *tensor, tsr_dtype wire) TSR_NODISCARD;

/* moe_adapters.c: low-rank adapters of the experts (adapter.h). */

/* The pairs of a pass, and the weights of their experts. */
typedef struct tsr__moe_pairs {
    int64_t chosen;
    const tsr_tensor *ids, *order, *offsets, *weights;
} tsr__moe_pairs;
/* Returns whether a pass applies adapters of the experts, or of the shared expert. */
bool tsr__moe_is_adapted(const tsr__moe *m, bool shared);
/* Checks that the adapters can be applied. */
tsr_status tsr__moe_check_adapters(const tsr__moe *m) TSR_NODISCARD;
/* y += what the adapters of a weight add to x · weightᵀ; of down, to the weighted sum over the
 * experts. Weights of the shared expert have rows of tokens; `pairs` is not used. */
tsr_status tsr__moe_adapters_forward(const tsr__moe *m, tsr__temps *temps,
                                     const tsr__moe_pairs *pairs, tsr__moe_parameter which,
                                     const tsr_tensor *x, tsr_tensor *y) TSR_NODISCARD;
/* dx += the gradient of x, of which dx has the rows of pairs, through the adapters of a weight. */
tsr_status tsr__moe_adapters_input_grad(const tsr__moe *m, tsr__temps *temps,
                                        const tsr__moe_pairs *pairs, tsr__moe_parameter which,
                                        const tsr_tensor *dy, tsr_tensor *dx) TSR_NODISCARD;
/* Adds the gradients of the adapters of a weight. Of down, x is multiplied by the weights. */
tsr_status tsr__moe_adapters_grads(const tsr__moe *m, tsr__temps *temps,
                                   const tsr__moe_pairs *pairs, tsr__moe_parameter which,
                                   const tsr_tensor *dy, const tsr_tensor *x) TSR_NODISCARD;

/* moe_exchange.c: if data-parallel ranks divide the experts, each rank sends the rows of its pairs
 * to the ranks that have their experts, and gets the results back. Pairs are sent in the order of
 * their experts, so that those for a rank follow each other. */
typedef struct tsr__moe_exchange {
    tsr_group *group;
    int64_t sent, received; /* the numbers of rows */
    tsr__group_rows out, back;
    int64_t *numbers; /* [2 · ranks + 1]: those of `out` */
    /* i32: the token and the pair of each row sent, and the row of each pair, or −1 */
    tsr_tensor *rows, *pairs, *inverse;
} tsr__moe_exchange;
/* Agrees with the other ranks on what is sent; blocks until the device has computed `ids`, the
 * experts of this rank's pairs [tokens,chosen]. *local [received,1] are the experts of the rows
 * that arrive, counted from this rank's first. Call tsr__moe_exchange_finish in any case. */
tsr_status tsr__moe_exchange_init(const tsr__moe *m, tsr__temps *temps, const tsr_tensor *ids,
                                  tsr__moe_exchange *out, tsr_tensor **local) TSR_NODISCARD;
void tsr__moe_exchange_finish(tsr__moe_exchange *exchange);
/* Keeps an exchange for the backward pass, and brings it back. */
tsr_status tsr__moe_exchange_save(tsr__moe_exchange *exchange,
                                  tsr_layer_saved *saved) TSR_NODISCARD;
void tsr__moe_exchange_saved(const tsr__moe *m, const tsr_layer_saved *saved,
                             tsr__moe_exchange *out);
/* Sends the rows of x [n,width] at these indices, and receives *y [received,width]. */
tsr_status tsr__moe_exchange_send(const tsr__moe_exchange *exchange, tsr__temps *temps,
                                  const tsr_tensor *x, const tsr_tensor *indices,
                                  tsr_tensor **y) TSR_NODISCARD;
/* Sends x [received,width] back; *y [pairs,width] has the rows of all pairs, and 0 for those that
 * no rank computes. */
tsr_status tsr__moe_exchange_return(const tsr__moe_exchange *exchange, tsr__temps *temps,
                                    const tsr_tensor *x, tsr_tensor **y) TSR_NODISCARD;

#endif
