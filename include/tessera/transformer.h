/* Layers of transformers, divided over the ranks of a group: normalisation, self-attention and
 * blocks of both with an MLP. They are layers as layer.h describes them: forward and backward
 * passes, parameters by name, deferred or not, the same initial values for any number of ranks.
 *
 *     tsr_layer *block = NULL;
 *     tsr_block_create(tsr_block_params(.name = "block", .size = 128,
 *                                       .attention = {.heads = 4},
 *                                       .mlp = {.hidden_size = 512,
 *                                               .activation = TSR_ACT_GELU_TANH}), &block);
 *     tsr_layer_forward(block, x, &saved, &y);    // x and y are [batch, tokens, 128]
 *     tsr_layer_backward(block, saved, dy, &dx);
 *
 * Errors and threads: as in layer.h. */
#ifndef TESSERA_TRANSFORMER_H
#define TESSERA_TRANSFORMER_H

#include "tessera/kv_cache.h"
#include "tessera/layer.h"
#include "tessera/rope.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Normalisation ---------------------------------------------------------------------------------
 */

typedef enum tsr_norm_kind {
    TSR_NORM_LAYER = 0, /* tsr_layer_norm */
    TSR_NORM_RMS = 1    /* tsr_rms_norm; has no bias */
} tsr_norm_kind;

typedef struct tsr_norm_params {
    tsr_group *group;
    const char *name;
    int64_t size; /* of the last dimension */
    tsr_norm_kind kind;
    bool no_bias;
    float epsilon; /* 0: 1e-5 */
    /* x is this rank's part of a sequence: gradients of the parameters are summed over the ranks,
     * in one all-reduce. */
    bool sequence;
    tsr_dtype dtype, grad_dtype;
    bool deferred;
} tsr_norm_params;
#define tsr_norm_params(...) (&(tsr_norm_params){__VA_ARGS__})

/* y[…, size] = normalised x, times "weight", which begins as 1, plus "bias", which begins as 0.
 * Every rank has all of both. */
TSR_API TSR_NODISCARD tsr_status tsr_norm_create(const tsr_norm_params *params, tsr_layer **out);

/* Self-attention --------------------------------------------------------------------------------
 *
 * q, k, v = x · wᵀ + bias of "q", "k" and "v", cut into heads of head_dim features
 * q, k = RMS normalisation of each head times "q_norm.weight", "k_norm.weight" [head_dim] (qk_norm)
 * q, k = turned by their tokens' positions 0, 1, … (rope)
 * y = tsr_attention(q, k, v) · "o.weight"ᵀ + "o.bias"
 *
 * x and y are [.., tokens, size]. Query, key and value are one column-parallel product, which gives
 * each rank whole heads; the output is row-parallel: one all-reduce forward, one backward, or with
 * `sequence` all-gathers and reduce-scatters as in an MLP. Head h reads key and value head
 * h · kv_heads / heads. Source: Shoeybi et al., "Megatron-LM" (2019).
 *
 * If there are at least as many kv heads as ranks, `partition` cuts the kv heads, and each rank
 * gets their query heads, too. If there are fewer, it cuts the query heads: every rank keeps the
 * parameters of all kv heads, computes those that its query heads read, and their gradients are
 * summed over the ranks in an all-reduce of their own. So are gradients of q_norm and k_norm.
 */

typedef struct tsr_self_attention_params {
    tsr_group *group;
    const char *name;
    int64_t size;                /* of x and y */
    int64_t heads, kv_heads;     /* kv_heads divides heads; 0: heads */
    int64_t head_dim;            /* at most TSR_MAX_HEAD_DIM; 0: size / heads */
    bool no_bias;                /* of q, k, v and o */
    bool no_output_bias;         /* of o */
    const tsr_rope_params *rope; /* NULL: none. Read during the call */
    bool qk_norm;
    float norm_epsilon; /* of qk_norm; 0: 1e-5 */
    bool not_causal;    /* every token sees every token; otherwise itself and those before it */
    int64_t window;     /* as tsr_attention_params */
    float scale, softcap;
    bool sequence; /* x and y are divided along sequence_dim */
    int sequence_dim;
    tsr_partition_params partition; /* of kv heads or heads; `align` is not looked at */
    tsr_dtype dtype;
    tsr_init_params init;
    tsr_init_params output_init; /* of "o"; kind DEFAULT: init */
    tsr_dtype grad_dtype;
    bool reduce_f32;
    int overlap_parts;
    bool deferred;
} tsr_self_attention_params;
#define tsr_self_attention_params(...) (&(tsr_self_attention_params){__VA_ARGS__})

TSR_API TSR_NODISCARD tsr_status tsr_self_attention_create(const tsr_self_attention_params *params,
                                                           tsr_layer **out);

/* Which heads this rank has: the first and the number of its query heads, and of the kv heads that
 * they read. `layer` is self-attention, or a block that has it. Errors: TSR_ERR_INVALID for another
 * kind of layer. */
typedef struct tsr_heads {
    int64_t first, count, kv_first, kv_count, head_dim;
} tsr_heads;
TSR_API TSR_NODISCARD tsr_status tsr_self_attention_heads(const tsr_layer *layer, tsr_heads *out);

/* Blocks ----------------------------------------------------------------------------------------
 *
 * z = x + dropout(attention(norm1(x)))
 * y = z + dropout(mlp(norm2(z)))
 *
 * Pre-norm, as in GPT-2 and Llama. Parameters are named "norm1.weight", "attention.q.weight",
 * "norm2.weight", "mlp.up.weight" and so on, and come in this order.
 */

typedef struct tsr_block_params {
    tsr_group *group;
    const char *name;
    int64_t size; /* of x, y and all that is between the parts */
    /* The parts. The block sets their group, name, sizes of x and y, sequence, sequence_dim, dtype,
     * grad_dtype and deferred. */
    tsr_norm_params norm;
    tsr_self_attention_params attention;
    tsr_mlp_params mlp;
    /* A forward pass saves its input only, and the backward pass runs it again: activation
     * checkpointing. Results are the same, bit for bit. */
    bool recompute;
    bool sequence; /* x and y are divided along sequence_dim */
    int sequence_dim;
    tsr_dtype dtype, grad_dtype;
    bool deferred;
} tsr_block_params;
#define tsr_block_params(...) (&(tsr_block_params){__VA_ARGS__})

TSR_API TSR_NODISCARD tsr_status tsr_block_create(const tsr_block_params *params, tsr_layer **out);

/* Dropout of the block's two branches in forward passes from now on; it begins without, and p = 0
 * ends it. A backward pass uses what its forward pass used.
 *
 * An element's random word is that of `params->seed`, of the 64-bit FNV-1a hash of the block's
 * name, "attention" or "mlp" and the 8 bytes of `params->subsequence`, the low one first, as
 * subsequence, and of params->offset plus the element's row-major index in the complete tensor, of
 * which sequence parallelism divides a dimension: the mask is the same for any number of ranks. A
 * step of training chooses another subsequence; a replica that has other sequences of a batch
 * passes the index of their first element as offset. Errors: TSR_ERR_INVALID for another kind of
 * layer, p outside 0 <= p < 1, params that are NULL with p > 0, and index_strides. */
TSR_API TSR_NODISCARD tsr_status tsr_block_set_dropout(tsr_layer *block, float p,
                                                       const tsr_random_params *params);

/* Generation ------------------------------------------------------------------------------------
 */

/* y = layer(x) of self-attention or a block, where each token also sees the tokens that its
 * sequence has in the cache. x is [count, most tokens, size] of the step that has begun with the
 * cache, of which sequence i has the first tokens[i]; their keys and values are appended to layer
 * `cache_layer` of the cache. Positions go on where the sequence was. No dropout, and nothing to go
 * backward from. Errors: TSR_ERR_INVALID for another kind of layer, a cache without a step and
 * other shapes, and those of tsr_layer_forward. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_forward_cached(tsr_layer *layer, const tsr_tensor *x,
                                                          tsr_kv_cache *cache, int cache_layer,
                                                          tsr_tensor **y);

#ifdef __cplusplus
}
#endif

#endif
