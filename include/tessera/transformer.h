/* Layers of transformers, divided over the ranks of a group: normalisation, self-attention, delta
 * nets, and blocks of these with an MLP. They are layers as layer.h describes them: forward and
 * backward passes, parameters by name, deferred or not, the same initial values for any number of
 * ranks.
 *
 *     tsr_layer *block = NULL;
 *     tsr_block_create(
 *         tsr_block_params(.name = "block", .size = 128, .norm = tsr_norm_params(.bias = true),
 *                          .attention = tsr_self_attention_params(.heads = 4, .causal = true),
 *                          .mlp = tsr_mlp_params(.hidden_size = 512,
 *                                                .activation = TSR_ACT_GELU_TANH)),
 *         &block);
 *     tsr_layer_forward(block, x, &saved, &y);    // x and y are [batch, tokens, 128]
 *     tsr_layer_backward(block, saved, dy, &dx);
 *
 * Errors and threads: as in layer.h. */
#ifndef TESSERA_TRANSFORMER_H
#define TESSERA_TRANSFORMER_H

#include "tessera/kv_cache.h"
#include "tessera/moe.h"
#include "tessera/rope.h"
#include "tessera/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Normalisation ------------------------------------------------------------------------------ */

/* Fields that tsr_linear_params has as well, and that have no comment here, are as there. */
typedef struct tsr_norm_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size; /* the size of the last dimension */
    tsr_norm_kind kind;
    bool bias;     /* for TSR_NORM_LAYER; TSR_NORM_RMS never has one */
    float epsilon; /* 0: 1e-5 */
    /* x is this rank's shard of a sequence. The gradients of the parameters are then summed over
     * the ranks, in one all-reduce. */
    bool sequence;
    tsr_dtype dtype, grad_dtype;
    bool deferred;
} tsr_norm_params;
#define tsr_norm_params(...)                                                                       \
    (&(tsr_norm_params){.struct_size = sizeof(tsr_norm_params), __VA_ARGS__})

/* Creates a normalisation layer: y[…, size] = (normalised x) · "weight" + "bias". The initial
 * weight is 1, and the initial bias is 0. Every rank has all elements of both. */
TSR_API TSR_NODISCARD tsr_status tsr_norm_create(const tsr_norm_params *params, tsr_layer **out);

/* Self-attention --------------------------------------------------------------------------------
 *
 *    q, k, v = x · wᵀ + bias, with "q", "k" and "v", divided into heads of head_dim features (v: of
 *           value_dim)
 *    q, k = tsr_norm (RMS) of each head or of all heads, with "q_norm.weight" and "k_norm.weight",
 *           as `qk_norm` says
 *    q, k = rotated by tsr_rope_apply at the tokens' positions 0, 1, …, if `rope` is set
 *    q = q · (1 + temperature · log(1 + ⌊position / temperature_length⌋)), if `temperature` is set
 *    v = tsr_norm (RMS, without a weight) of each head, if `value_norm` is set
 *    y = tsr_attention(q, k, v); with "sinks" [heads], one for each query head, if `sinks` is set
 *    y = y · σ(gate), with gate = x · wᵀ + bias, "gate" [heads · value_dim], if `output_gate`
 *           is set
 *    y = y · "o.weight"ᵀ + "o.bias"
 *
 * x and y are [.., tokens, size]. q, k, v and gate are computed in one column-parallel product,
 * which gives each rank complete heads. The output product is row-parallel. A forward pass needs
 * one all-reduce, and so does a backward pass; with `sequence` they need all-gathers and
 * reduce-scatters instead, as in an MLP. Head h reads key and value head h · kv_heads / heads.
 * Source: Shoeybi et al., "Megatron-LM" (2019).
 *
 * If there are at least as many kv heads as ranks, `partition` divides the kv heads, and each rank
 * also gets the query heads that read its kv heads. If there are fewer kv heads than ranks,
 * `partition` divides the query heads. Every rank then keeps the parameters of all kv heads, and
 * computes the kv heads that its query heads read; a separate all-reduce sums the gradients of
 * these parameters over the ranks. The gradients of the norms of heads are summed over the ranks in
 * the same way. With TSR_QK_NORM_WHOLE, the weights are divided as the features are; a forward pass
 * then sums two numbers for each token over the ranks, and so does a backward pass. Each rank has
 * the sinks of its query heads. Their initial values are those of a bias of head_dim inputs. */

/* Which features of queries and keys are normalised together. */
typedef enum tsr_qk_norm {
    TSR_QK_NORM_NONE = 0,
    TSR_QK_NORM_HEADS = 1, /* those of a head; both weights are [head_dim] */
    /* those of all heads of q, and those of all heads of k; the weights are [heads · head_dim] and
     * [kv_heads · head_dim] */
    TSR_QK_NORM_WHOLE = 2
} tsr_qk_norm;

/* Fields that tsr_linear_params has as well, and that have no comment here, are as there. */
typedef struct tsr_self_attention_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size;                /* the size of the last dimension of x and y */
    int64_t heads, kv_heads;     /* kv_heads divides heads; 0: heads */
    int64_t head_dim;            /* at most TSR_MAX_HEAD_DIM; 0: size / heads */
    bool bias;                   /* q, k, v and gate have a bias */
    bool output_bias;            /* o has a bias */
    const tsr_rope_params *rope; /* NULL: none. Read during the call */
    tsr_qk_norm qk_norm;
    float norm_epsilon;   /* the epsilon of qk_norm; 0: 1e-5 */
    tsr_dtype norm_dtype; /* the dtype of the weights of qk_norm; 0: `dtype` */
    /* A token sees only itself and the tokens before it. If false, every token sees every token. */
    bool causal;
    int64_t window; /* as in tsr_attention_params: needs `causal` */
    float scale, softcap;
    bool sinks;    /* f32, whatever `dtype` is; see attention.h */
    bool sequence; /* x and y are divided along sequence_dim */
    int sequence_dim;
    /* how the kv heads or the query heads are divided, see above; `align` is a number of these
     * heads */
    const tsr_partition_params *partition;
    tsr_dtype dtype;
    const tsr_init_params *init;
    /* The initial values of "o"; NULL, or of the kind DEFAULT: `init`. */
    const tsr_init_params *output_init;
    tsr_dtype grad_dtype;
    bool reduce_f32;
    int overlap_parts;
    bool deferred;
    float temperature;          /* 0: none */
    int64_t temperature_length; /* in positions, at least 1; unused without temperature */
    bool output_gate;           /* see above */
    bool value_norm;            /* see above */
    /* There is no "v": v is k as it is before its norm and rotation. A forward pass whose results
     * are saved then needs a qk_norm. */
    bool keys_as_values;
    /* There are no "k", "v" and "k_norm": the layer reads the keys and values that another layer
     * has put into layer `cache_layer` of the cache in the same step, and stores none. That layer
     * must have the same heads on this rank. In passes without a cache, only a tsr_stack (stack.h)
     * gives layers the keys of others; other callers are refused (TSR_ERR_UNSUPPORTED). */
    bool shared_keys;
    /* the head_dim of values, and of the heads' results and gates; 0: head_dim. Another one does
     * not go with keys_as_values, nor with a context_group of several ranks. */
    int64_t value_dim;
    /* The ranks of this group divide the tokens of each row, see below; `causal` must be set. Its
     * stream is that of `group`. NULL, or a group of one rank: they are not divided. Passes with a
     * cache are not divided. */
    tsr_group *context_group;
} tsr_self_attention_params;
#define tsr_self_attention_params(...)                                                             \
    (&(tsr_self_attention_params){.struct_size = sizeof(tsr_self_attention_params), __VA_ARGS__})

TSR_API TSR_NODISCARD tsr_status tsr_self_attention_create(const tsr_self_attention_params *params,
                                                           tsr_layer **out);

/* Context parallelism ---------------------------------------------------------------------------
 *
 * The ranks of a context group divide the tokens of each row, for sequences whose activations one
 * rank cannot hold. A rank that has n tokens of a row has ⌈n / 2⌉ from the front of the sequence,
 * in the order of ranks, and then ⌊n / 2⌋ from the back, in the opposite order, so that a causal
 * token's work is on average the same on all ranks. x and y have these tokens only. Ranks may have
 * different numbers of tokens, also none; those of a pass are told in one small exchange. They must
 * have the same heads of each layer. Rotary positions, windows and documents are those of the
 * undivided sequence.
 *
 * Only self-attention, delta nets and short convolutions combine the tokens of a divided row: rows
 * of latent attention cannot be divided. Delta nets and short convolutions compute the chunks in
 * the order of the sequence, and broadcast the states between them. Attention gathers keys and
 * values of all tokens, a few heads at a time, while the heads before are computed, and a backward
 * pass gathers them again and sums their gradients over the ranks. For t tokens in all, k kv heads
 * of this rank and e bytes of an element, a forward pass receives at most 2 · t · k · head_dim · e
 * bytes, and a backward pass as many and sends 8 · t · k · head_dim bytes of gradients. Attention
 * of a query is computed by one call of tsr_attention over the keys in the order of the sequence:
 * results are those of an undivided sequence, up to the shapes that kernels are chosen by. The
 * gradients of keys and values are added in the order of ranks.
 *
 * Each rank computes the gradients of parameters through its own tokens, as a data-parallel rank
 * does: sum them over the context group, too, most simply by sharding over the ranks of both. */

/* Gets the tokens of `rank` if `ranks` ranks divide a sequence of `tokens` as `partition` says
 * (NULL: parts differ by at most one): chunks[0] from the front and chunks[1] from the back. Needs
 * no device. Errors: those of tsr_partition; TSR_ERR_INVALID for a negative number, or a rank that
 * there is not. */
TSR_API TSR_NODISCARD tsr_status tsr_context_divide(int64_t tokens, int ranks,
                                                    const tsr_partition_params *partition, int rank,
                                                    tsr_shard_range chunks[2]);

/* Which heads this rank has: its query heads are first … first + count − 1, and the kv heads that
 * they read are kv_first … kv_first + kv_count − 1. For tsr_kv_cache_params, a delta net or a short
 * convolution has no kv heads, a head_dim of 1, and the floats of a sequence's state. */
typedef struct tsr_heads {
    size_t struct_size;
    int64_t first, count, kv_first, kv_count, head_dim;
    int64_t value_dim;                 /* the head_dim of values */
    bool values_in_keys;               /* as in tsr_kv_cache_params: latent attention */
    int64_t conv_floats, state_floats; /* 0: the layer has keys and values */
} tsr_heads;
/* Gets the heads of a self-attention layer, a layer of latent attention, a delta net, a short
 * convolution or a block. The kv heads are those that a cache has: with latent attention a single
 * one, the latents, on each rank that has heads. Errors: TSR_ERR_INVALID for another kind of layer.
 */
TSR_API TSR_NODISCARD tsr_status tsr_self_attention_get_heads(const tsr_layer *layer,
                                                              tsr_heads *out);

/* Delta nets ------------------------------------------------------------------------------------
 *
 *    q, k, v, z, beta, alpha = x · wᵀ, with "q.weight" and "k.weight" [key_heads · key_dim, size],
 *           "v.weight" and "z.weight" [heads · value_dim, size], "beta.weight" and "alpha.weight"
 *           [heads, size]
 *    q, k, v = silu(tsr_causal_conv(…)) over the tokens, with "q_conv.weight" and "k_conv.weight"
 *           [key_heads · key_dim, taps] and "v_conv.weight" [heads · value_dim, taps], whose last
 *           column the newest token meets
 *    q, k = each head divided by √(Σ x² + 1e-6)
 *    decay = −exp(a_log) · softplus(alpha + dt_bias), with "a_log" and "dt_bias" [heads]
 *    y = tsr_delta_rule(q, k, v, σ(beta), decay)
 *    y = tsr_norm (RMS) of each head · silu(z), with "norm.weight" [value_dim]
 *    y = y · "o.weight"ᵀ
 *
 * x and y are [.., tokens, size]. The layer remembers earlier tokens in a state of fixed size for
 * each head, in place of keys and values. Head h reads key head h · key_heads / heads, unless
 * `tiled_heads` is set. The weights of the convolution, a_log, dt_bias and the norm's are f32,
 * whatever `dtype` is.
 *
 * `partition` divides the key heads, and each rank also has the heads that read its key heads; a
 * rank may have none. The projections are computed in one column-parallel product, and the last
 * product is row-parallel, so that a forward pass needs one all-reduce, and so does a backward
 * pass; a separate all-reduce sums the gradients of the norm's weight over the ranks, unless the
 * layer is frozen.
 *
 * Parameters come in this order: "q_conv.weight", "k_conv.weight", "v_conv.weight", "a_log",
 * "dt_bias", "norm.weight", then the weights of the projections in the order above, "o.weight".
 * Unless `init` is TSR_INIT_NONE, the weights of the convolution are uniform in ±1/√taps, e^a_log
 * is uniform from 1 to 16, and dt_bias and the norm's weight are 1. Source: Yang et al., "Gated
 * Delta Networks" (2024). */

/* Fields that tsr_linear_params has as well, and that have no comment here, are as there. */
typedef struct tsr_delta_net_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size;               /* the size of the last dimension of x and y */
    int64_t key_heads, heads;   /* key_heads divides heads, at most TSR_MAX_HEADS */
    int64_t key_dim, value_dim; /* multiples of 4, at most TSR_MAX_DELTA_DIM (recurrent.h) */
    int taps;                   /* of the convolution; 0: 4 */
    float norm_epsilon;         /* 0: 1e-5 */
    const tsr_partition_params *partition; /* how the key heads are divided; `align` counts them */
    tsr_dtype dtype;
    const tsr_init_params *init;
    /* The initial values of "o"; NULL, or of the kind DEFAULT: `init`. */
    const tsr_init_params *output_init;
    tsr_dtype grad_dtype;
    bool reduce_f32;
    int overlap_parts;
    bool deferred;
    /* Head h of a rank reads key head h % n of the rank's n key heads, so that those that read the
     * same key head are n apart. Gathered parameters, and initial values, are then in the order of
     * each rank's heads. */
    bool tiled_heads;
    tsr_group *context_group; /* as in tsr_self_attention_params */
} tsr_delta_net_params;
#define tsr_delta_net_params(...)                                                                  \
    (&(tsr_delta_net_params){.struct_size = sizeof(tsr_delta_net_params), __VA_ARGS__})

TSR_API TSR_NODISCARD tsr_status tsr_delta_net_create(const tsr_delta_net_params *params,
                                                      tsr_layer **out);

/* Short convolutions ----------------------------------------------------------------------------
 *
 *    b, c, x' = x · Wᵀ for the weight W of each, "b", "c" and "x", of `size` features
 *    y = (c · tsr_causal_conv(b · x')) · oᵀ, products element by element inside
 *
 * x and y are [.., tokens, size]. As in LFM2. `partition` divides the features; a rank may have
 * none. A forward pass needs one all-reduce, and so does a backward pass. A cache has the last
 * taps − 1 inputs of the convolution, in place of keys and values. Parameters come in this order:
 * "conv.weight" [size, taps], which is f32 whatever `dtype` is, "b.weight", "c.weight", "x.weight"
 * and "o.weight" [size, size]. Unless `init` is TSR_INIT_NONE, the weights of the convolution are
 * uniform in ±1/√taps. */

/* Fields that tsr_linear_params has as well, and that have no comment here, are as there. */
typedef struct tsr_short_conv_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size;                          /* the size of the last dimension of x and y */
    int taps;                              /* 2 to TSR_MAX_CAUSAL_CONV_TAPS (recurrent.h); 0: 3 */
    const tsr_partition_params *partition; /* how the features are divided */
    tsr_dtype dtype;
    const tsr_init_params *init;
    /* The initial values of "o"; NULL, or of the kind DEFAULT: `init`. */
    const tsr_init_params *output_init;
    tsr_dtype grad_dtype;
    bool reduce_f32;
    int overlap_parts;
    bool deferred;
    tsr_group *context_group; /* as in tsr_self_attention_params */
} tsr_short_conv_params;
#define tsr_short_conv_params(...)                                                                 \
    (&(tsr_short_conv_params){.struct_size = sizeof(tsr_short_conv_params), __VA_ARGS__})

TSR_API TSR_NODISCARD tsr_status tsr_short_conv_create(const tsr_short_conv_params *params,
                                                       tsr_layer **out);

/* Latent attention ------------------------------------------------------------------------------
 *
 *    q = norm(x · q_aᵀ) · q_bᵀ, or x · qᵀ, divided into heads of nope_dim + rope_dim features
 *    c = norm(x · kv_aᵀ), the latents: kv_lora_rank features, with a norm, and rope_dim features
 *    for each head h: k = c · k_b[h], v = c · v_b[h]ᵀ, of the features with a norm
 *    the last rope_dim features of q, and those of c, which are a part of every head's k, are
 *        rotated
 *    y = tsr_attention(q, k, v) · oᵀ
 *
 * x and y are [.., tokens, size]. The parameters are "q_a.weight" [q_lora_rank, size],
 * "q_a_norm.weight" [q_lora_rank] and "q_b.weight" [heads · (nope_dim + rope_dim), q_lora_rank], or
 * "q.weight" [heads · (nope_dim + rope_dim), size] without q_lora_rank; "kv_a.weight"
 * [kv_lora_rank + rope_dim, size], "kv_a_norm.weight" [kv_lora_rank], "k_b.weight" [heads,
 * kv_lora_rank, nope_dim], "v_b.weight" [heads, value_dim, kv_lora_rank] and "o.weight" [size,
 * heads · value_dim]. `partition` divides the heads; a rank may have none. Every rank has all of
 * q_a, kv_a and the norms, and computes the latents of all tokens. A forward pass needs one
 * all-reduce, and so does a backward pass, of q_lora_rank (or size) + kv_lora_rank + rope_dim
 * features.
 *
 * A cache has the latents only: one head of kv_lora_rank + rope_dim features, of which the first
 * kv_lora_rank are also the values, on every rank that has heads. With a cache and few tokens, q ·
 * k_b[h]ᵀ is multiplied with latents, and the result with v_b[h]. Without a cache, keys and values
 * of all heads are computed; and with one, too, for more than 16 tokens of a sequence, if that
 * takes fewer multiplications: of a whole prompt, or of a part of it that is not too short for the
 * tokens before it. They need at most 2^25 numbers at a time, or those of one head. Source:
 * DeepSeek-AI, "DeepSeek-V2" (2024). */

/* Fields that tsr_self_attention_params has as well, and that have no comment here, are as there.
 */
typedef struct tsr_latent_attention_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size, heads;
    int64_t q_lora_rank; /* 0: queries are computed from x directly */
    int64_t kv_lora_rank, nope_dim, rope_dim, value_dim;
    const tsr_rope_params *rope; /* of rope_dim components; NULL: none. Read during the call */
    float norm_epsilon;
    tsr_dtype norm_dtype;
    bool causal;
    float scale;                           /* 0: 1/√(nope_dim + rope_dim) */
    const tsr_partition_params *partition; /* how the heads are divided */
    tsr_dtype dtype;
    const tsr_init_params *init;
    const tsr_init_params *output_init;
    tsr_dtype grad_dtype;
    bool reduce_f32;
    int overlap_parts;
    bool deferred;
} tsr_latent_attention_params;
#define tsr_latent_attention_params(...)                                                           \
    (&(tsr_latent_attention_params){.struct_size = sizeof(tsr_latent_attention_params),            \
                                    __VA_ARGS__})

TSR_API TSR_NODISCARD tsr_status
tsr_latent_attention_create(const tsr_latent_attention_params *params, tsr_layer **out);

/* Blocks ----------------------------------------------------------------------------------------
 *
 * z = x + residual_scale · dropout(post_norm1(attention(norm1(x))))
 * y = z + residual_scale · dropout(post_norm2(mlp(norm2(z))))
 *
 * `norms` says which of the normalisations there are. Parameters are named "norm1.weight",
 * "attention.q.weight", "post_norm1.weight", "norm2.weight", "mlp.up.weight", "post_norm2.weight"
 * and so on, and come in this order. Those of a delta net or a short convolution, which may take
 * the place of attention, are named "delta_net.q.weight", "short_conv.b.weight" and so on.
 *
 * With `experts` beside `mlp`, mlp(norm2(z)) becomes mlp_norm(mlp(norm2(z))) +
 * experts_norm(experts(z)): the experts read z itself, which they may normalise (moe.h). With
 * `layer_input` or `output_scale`, the result is
 *
 *    (y + end.norm((gelu(y · end.gateᵀ) ⊙ p) · end.outᵀ)) · end.scale
 *
 * with p [.., layer_input], which tsr_stack (stack.h) gives. */

typedef enum tsr_block_norms {
    TSR_BLOCK_NORMS_BEFORE = 0, /* norm1 and norm2, as in GPT-2 and Llama */
    TSR_BLOCK_NORMS_AFTER = 1,  /* post_norm1 and post_norm2, as in OLMo 2 */
    TSR_BLOCK_NORMS_BOTH = 2    /* all four, as in Gemma 2 */
} tsr_block_norms;

typedef struct tsr_block_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t size; /* the size of the last dimension of x, y and z */
    /* The params of normalisation, attention and MLP. The block sets these fields itself: group,
     * name, the sizes of x and y, sequence, sequence_dim, dtype, grad_dtype and deferred;
     * the dtype of the normalisation only if it is 0. */
    const tsr_norm_params *norm;
    const tsr_self_attention_params *attention;
    const tsr_mlp_params *mlp;
    /* Activation checkpointing: a forward pass saves only its input, and the backward pass computes
     * the forward pass again. The results are the same, bit for bit. */
    bool recompute;
    bool sequence; /* x and y are divided along sequence_dim */
    int sequence_dim;
    tsr_dtype dtype, grad_dtype;
    bool deferred;
    /* A mixture of experts in place of the MLP or, if `mlp` is not NULL, beside it. The block sets
     * the same fields of it. Not with `sequence`. */
    const tsr_moe_params *experts;
    tsr_block_norms norms;
    float residual_scale; /* 0: 1 */
    /* A delta net in place of attention; `attention` must then be NULL. The block sets the same
     * fields of it. Not with `sequence`. */
    const tsr_delta_net_params *delta_net;
    /* Latent attention in place of `attention`, which must then be NULL; the child has the same
     * name, "attention". The block sets the same fields of it. Not with `sequence`. */
    const tsr_latent_attention_params *latent_attention;
    int64_t layer_input; /* features of a token's input of this layer alone; 0: none */
    bool output_scale;   /* the block has "end.scale", of one element */
    /* A short convolution in place of attention; `attention` must then be NULL. The block sets the
     * same fields of it. Not with `sequence`. */
    const tsr_short_conv_params *short_conv;
} tsr_block_params;
#define tsr_block_params(...)                                                                      \
    (&(tsr_block_params){.struct_size = sizeof(tsr_block_params), __VA_ARGS__})

TSR_API TSR_NODISCARD tsr_status tsr_block_create(const tsr_block_params *params, tsr_layer **out);

/* Sets the dropout that later forward passes apply to the outputs of attention and MLP. A new block
 * has no dropout, and p = 0 turns it off again. A backward pass uses the dropout of its forward
 * pass.
 *
 * The random word of an element (tsr_random_params) has:
 *
 *    seed           params->seed
 *    subsequence    the 64-bit FNV-1a hash of the block's name, then "attention" or "mlp", then
 *                   the 8 bytes of params->subsequence, the lowest first
 *    index          params->offset plus the row-major index of the element in the complete tensor,
 *                   of which each rank has a shard if sequence parallelism divides it
 *
 * The mask is therefore the same for any number of ranks. Each training step should pass another
 * subsequence. A replica that has other sequences of the same batch should pass the index of its
 * first element in the batch as offset. Errors: TSR_ERR_INVALID for another kind of layer, p
 * outside 0 <= p < 1, params that are NULL with p > 0, and index_strides. */
TSR_API TSR_NODISCARD tsr_status tsr_block_set_dropout(tsr_layer *block, float p,
                                                       const tsr_random_params *params);

/* Generation --------------------------------------------------------------------------------- */

/* Computes y = layer(x) for a self-attention layer, a layer of latent attention, a delta net, a
 * short convolution or a block. Each token also sees the tokens that its sequence has in the cache.
 * tsr_kv_cache_begin must have been called with the sequences and their numbers of tokens. x is
 * [count, largest number of tokens, size]; of sequence i only the first tokens[i] rows are used.
 * Their keys and values are appended to layer `cache_layer` of the cache; a delta net or a short
 * convolution changes its states there. The positions of the tokens follow those that are in the
 * cache. There is no dropout, and no backward pass. Errors: TSR_ERR_INVALID for another kind of
 * layer, a cache for which tsr_kv_cache_begin was not called, and other shapes, and those of
 * tsr_layer_forward. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_forward_cached(tsr_layer *layer, const tsr_tensor *x,
                                                          tsr_kv_cache *cache, int cache_layer,
                                                          tsr_tensor **y);

#ifdef __cplusplus
}
#endif

#endif
