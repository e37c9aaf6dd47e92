/* Mixtures of experts: the choice of experts for each token, and products with the matrices of the
 * chosen experts only.
 *
 * A router gives each token a logit per expert. Each token has `chosen` experts, in the order of
 * selection. A pair is a token and one of its experts; tensors of pairs are [tokens, chosen, …].
 *
 *     tsr_matmul(stream, logits, x, router, tsr_matmul_params(.transpose_b = true));
 *     tsr_route(stream, ids, weights, logits, tsr_route_params(.normalise = true));
 *     tsr_matmul_grouped(stream, hidden, x, gate, ids,
 *                        tsr_matmul_grouped_params(.up = up, .activation = TSR_EXPERT_SWIGLU));
 *     tsr_matmul_grouped(stream, y, hidden, down, ids,
 *                        tsr_matmul_grouped_params(.weights = weights));
 *
 * The rules at the head of ops.h hold for all functions here. The host never waits for a choice.
 *
 * Experimental: each release until 1.0 may change what this header declares. */
#ifndef TESSERA_MOE_H
#define TESSERA_MOE_H

#include "tessera/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Choice --------------------------------------------------------------------------------------- */

#define TSR_MAX_EXPERTS 1024
#define TSR_MAX_EXPERTS_USED 32 /* of a token */

/* The scores of experts, functions of a token's logits. */
typedef enum tsr_gating {
    TSR_GATING_SOFTMAX = 0,       /* softmax over all experts */
    TSR_GATING_SIGMOID = 1,       /* 1 / (1 + e^-logit) of each */
    TSR_GATING_SOFTMAX_CHOSEN = 2 /* softmax over the chosen experts; they are chosen by logits */
} tsr_gating;

typedef struct tsr_route_params {
    size_t struct_size;
    tsr_gating gating;
    /* [experts], f32 and contiguous: added to the scores for the choice only, not for the weights.
     * NULL: none. */
    const tsr_tensor *bias;
    /* Experts are `groups` groups of neighbours, of the same size. Only experts in the
     * `groups_used` groups whose two largest scores, with the bias, have the largest sum can be
     * chosen. 0 or 1: no groups. */
    int groups, groups_used;
    /* Divide the weights by max(their sum, least_sum) + epsilon. */
    bool normalise;
    float least_sum, epsilon;
    float scale; /* the factor of all weights; 0: 1 */
} tsr_route_params;
#define tsr_route_params(...)                                                                      \
    (&(tsr_route_params){.struct_size = sizeof(tsr_route_params), __VA_ARGS__})

/* Chooses the experts with the largest scores. ids [tokens, chosen] are their numbers, i32, from
 * the largest score to the smallest; of equal scores, the lower number comes first. weights
 * [tokens, chosen] are their scores without the bias, normalised and scaled. logits is [tokens,
 * experts]. weights and logits are f32; the last dimensions of all tensors are contiguous. A NaN
 * among the logits counts as the largest score: ids are then experts all the same, and the weights
 * are NaN. `params` may be NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_route(tsr_stream *stream, tsr_tensor *ids, tsr_tensor *weights,
                                           const tsr_tensor *logits,
                                           const tsr_route_params *params);

/* The gradient of tsr_route: dlogits [tokens, experts] from dweights [tokens, chosen], and from
 * dprobabilities [experts], the gradient of each token's softmax over all experts, whatever the
 * gating function is. One of the two may be NULL. All are f32.
 *
 * dprobabilities is for a loss that balances the loads. With f_e = the share of all pairs of all
 * layers that chose expert e, times `chosen`, and P_e = the mean of the softmax probabilities, the
 * loss of Switch Transformers (Fedus et al. 2021) is experts · Σ f_e·P_e, and dprobabilities[e] =
 * factor · experts · f_e / (layers · tokens). */
TSR_API TSR_NODISCARD tsr_status tsr_route_grad(tsr_stream *stream, tsr_tensor *dlogits,
                                                const tsr_tensor *logits, const tsr_tensor *ids,
                                                const tsr_tensor *dweights,
                                                const tsr_tensor *dprobabilities,
                                                const tsr_route_params *params);

/* Sorts the pairs by expert. order [tokens · chosen] are the numbers of pairs, token · chosen +
 * rank, expert by expert, and for each expert in ascending order. The pairs of expert e are at
 * offsets[e] … offsets[e + 1] − 1, so offsets is [experts + 1], and differences of neighbours are
 * the experts' loads. All are i32 and contiguous in their last dimension. Pairs whose id is not
 * from 0 to experts − 1 are left out; elements of order from offsets[experts] on keep their
 * contents. */
TSR_API TSR_NODISCARD tsr_status tsr_route_sort(tsr_stream *stream, tsr_tensor *order,
                                                tsr_tensor *offsets, const tsr_tensor *ids);

/* Products ------------------------------------------------------------------------------------- */

typedef struct tsr_matmul_grouped_params {
    size_t struct_size;
    /* tsr_route_sort's results for ids. NULL: the product sorts them itself if it needs that. Give
     * both or neither. */
    const tsr_tensor *order, *offsets;
    bool transpose_w;       /* w is [experts,k,n] instead of [experts,n,k] */
    const tsr_tensor *bias; /* [experts,n], a float; NULL: none */
    /* If given, y[token,n] = Σ weights[token,rank] · (product + bias), in the order of ranks.
     * [tokens, chosen], f32. */
    const tsr_tensor *weights;
    /* If given, a second matrix with the shape and dtype of w, and y = activation(x·wᵀ + bias,
     * x·upᵀ + up_bias). */
    const tsr_tensor *up, *up_bias;
    tsr_expert_activation activation;
    float limit;     /* of TSR_EXPERT_SWIGLU_OAI; 0: 7 */
    bool accumulate; /* add to y's contents; not with `up` */
    /* The number of experts that ids were chosen from, if w has only some of them: the size of
     * tiles follows the rows that an expert has on average. 0: those of w. */
    int64_t all_experts;
} tsr_matmul_grouped_params;
#define tsr_matmul_grouped_params(...)                                                             \
    (&(tsr_matmul_grouped_params){.struct_size = sizeof(tsr_matmul_grouped_params), __VA_ARGS__})

/* y[token,rank,n] = x[row,k] · w[id,n,k]ᵀ + bias[id,n], where id = ids[token,rank]. x is
 * [tokens,chosen,k] with a row for each pair, or [tokens,k] with a row for each token. y, x and
 * bias are floats; w is a float or, without transpose_w, in a block format. Products and sums are
 * in f32. The rows of x and of y are contiguous and at equal distances; so are rows of w. ids is
 * i32.
 *
 * Only matrices of chosen experts are read. Pairs whose id is not from 0 to experts − 1 are left
 * out: they add nothing to a weighted sum, and their rows of y keep their contents. On GPUs, a few
 * tokens take one dispatch; for more, the pairs are sorted, and tiles of rows of one expert are
 * multiplied. y must not overlap the inputs. `params` may be NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_matmul_grouped(tsr_stream *stream, tsr_tensor *y,
                                                    const tsr_tensor *x, const tsr_tensor *w,
                                                    const tsr_tensor *ids,
                                                    const tsr_matmul_grouped_params *params);

/* The gradient of w: dw[e,n,k] = Σ dy[pair,n]ᵀ · x[pair,k] over the pairs of expert e; 0 if it has
 * none. dy and x are [tokens,chosen,…] or [tokens,…], and floats, as is dw. order and offsets are
 * tsr_route_sort's. `accumulate` adds to dw. The gradient of x is tsr_matmul_grouped of dy with
 * transpose_w, summed over ranks. */
TSR_API TSR_NODISCARD tsr_status tsr_matmul_grouped_grad(tsr_stream *stream, tsr_tensor *dw,
                                                         const tsr_tensor *dy, const tsr_tensor *x,
                                                         const tsr_tensor *order,
                                                         const tsr_tensor *offsets, int64_t chosen,
                                                         bool accumulate);

/* Layer ---------------------------------------------------------------------------------------
 *
 * y = Σ over the chosen experts of weight · expert(x), plus the shared expert, for x [batch, …,
 * input_size]. An expert is activation(x·gateᵀ + bias, x·upᵀ + bias)·downᵀ + bias.
 *
 * The parameters are "router.weight" [experts, input_size] and "router.bias", which are f32 and
 * whole on every rank, so that all ranks choose alike; "experts.gate.weight" and
 * "experts.up.weight" [experts, hidden_size, input_size]; "experts.down.weight" [experts,
 * input_size, hidden_size]; each with ".bias" instead of ".weight" if there are biases;
 * "shared.gate.weight", "shared.up.weight", "shared.down.weight" of a shared expert, and
 * "shared.router.weight" [1, input_size], f32, of its gate; "router.choice_bias" [experts], f32,
 * which is added to the scores for the choice only. Its gradient is 0; the caller changes it, for
 * example by ±0.001 after each step, against the experts' loads.
 *
 * A forward pass needs one all-reduce, and a backward pass two, of which one has a number for each
 * pair. Experts that no token chose have a gradient of 0. */

/* Experts over data-parallel ranks: with `experts_over_data`, the ranks of the FSDP model (fsdp.h)
 * that has the layer divide its experts, in proportion to the model's `rates`, whatever its
 * strategy is; a rank may have none. Each rank sends the rows of its tokens to the ranks that have
 * their experts, and gets the results back, with an all-to-all each; no token is dropped. A
 * backward pass has four of them. The parameters of experts are neither gathered, nor are their
 * gradients reduced: a rank has them, with their gradients and their state, for its own experts
 * only. In each forward pass the host waits for the choice. Without an FSDP model of several ranks,
 * the field changes nothing.
 *
 * Fields that tsr_mlp_params has as well, and that have no comment here, are as there. */
typedef struct tsr_moe_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t input_size, hidden_size; /* hidden_size: of one expert */
    int64_t experts, experts_used;   /* experts_used: of a token */
    const tsr_route_params *route;   /* without `bias`; NULL: the defaults */
    bool router_bias;                /* the layer has "router.bias" */
    bool choice_bias;                /* the layer has "router.choice_bias" */
    bool bias;                       /* all products of experts have a bias */
    tsr_expert_activation activation;
    float limit;         /* as in tsr_matmul_grouped_params */
    int64_t shared_size; /* the hidden size of a shared expert; 0: there is none */
    bool shared_gate;    /* multiply the shared expert by sigmoid(x · shared.routerᵀ) */
    /* Ranks have whole experts, as `partition` divides their number; a rank may have none.
     * Otherwise `partition` divides the hidden size of each expert. */
    bool whole_experts;
    const tsr_partition_params *partition, *shared_partition;
    tsr_dtype dtype; /* of all parameters but routers */
    const tsr_init_params *init, *output_init;
    tsr_dtype grad_dtype;
    bool reduce_f32;
    bool deferred;
    /* In an FSDP model, data-parallel ranks divide the experts of this rank, see below. */
    bool experts_over_data;
    /* For inference: a forward pass whose results are saved is refused (TSR_ERR_UNSUPPORTED).
     * [ranks]: the team of each rank, 0 to ranks − 1, read during the call. Teams, such as the
     * ranks of a host, have whole experts, in proportion to the sums of their ranks' rates, and the
     * ranks of a team divide the hidden features of these. Goes with `deferred`, and not with
     * whole_experts or experts_over_data. NULL: there are no teams. */
    const int *teams;
    bool input_norm;    /* experts read the RMS norm of x, with "norm.weight" */
    bool router_norm;   /* the router reads the RMS norm of x · "router.scale" / √input_size */
    bool expert_scale;  /* weights are multiplied by "router.expert_scale" [experts] */
    float norm_epsilon; /* of both norms; 0: 1e-5 */
} tsr_moe_params;
#define tsr_moe_params(...) (&(tsr_moe_params){.struct_size = sizeof(tsr_moe_params), __VA_ARGS__})

/* Creates a mixture of experts, without communication. Errors: as for linear layers, and those of
 * tsr_route for the choice. */
TSR_API TSR_NODISCARD tsr_status tsr_moe_create(const tsr_moe_params *params, tsr_layer **out);

/* What a forward pass of a mixture of experts, or of a block with one, chose. The tensors are those
 * of tsr_route, and valid as long as `saved`. */
typedef struct tsr_moe_choice {
    size_t struct_size;
    const tsr_tensor *logits, *ids, *weights;
} tsr_moe_choice;
/* Errors: TSR_ERR_INVALID if `saved` is not from such a layer. */
TSR_API TSR_NODISCARD tsr_status tsr_moe_get_choice(const tsr_layer_saved *saved,
                                                    tsr_moe_choice *out);

/* Sets dprobabilities of tsr_route_grad for the backward passes that follow, of a mixture of
 * experts or of a block with one. The layer keeps a view of it. NULL: none. Errors:
 * TSR_ERR_INVALID. */
TSR_API TSR_NODISCARD tsr_status tsr_moe_set_balance(tsr_layer *layer,
                                                     const tsr_tensor *dprobabilities);

#ifdef __cplusplus
}
#endif

#endif
