/* Layers with a state instead of a cache of keys and values: the depthwise causal convolution and
 * the gated delta rule, forward and backward.
 *
 *     tsr_causal_conv(stream, qkv, conv_state, projected, weight,
 *                     tsr_causal_conv_params(.state = conv_state, .silu = true));
 *     … q, k and v are views of qkv …
 *     tsr_delta_rule(stream, y, state, q, k, v, beta, decay,
 *                    tsr_delta_rule_params(.state = state, .norm_epsilon = 1e-6f));
 *
 * In both, rows of a batch are sequences, or documents packed into rows:
 *
 *     lengths   i32 [batch]: only the first lengths[b] tokens of row b count. The others change no
 *               state; their results and gradients are 0. NULL: all count
 *     starts    i32 [batch, tokens]: the index, in the row, of the first token of each token's
 *               document; below 0: the document began before the row, and goes on with `state`.
 *               Nothing is carried from one document to the next, and a new state is that of the
 *               last document. Not together with read_slots. NULL: a row is one sequence
 *
 * Both are contiguous, and values out of range are clamped. The states of many sequences can be
 * kept in one tensor, a slot for each, so that a batch of some of them needs no copies:
 *
 *     read_slots    i32 [batch]: `state` is [slots, …] instead of [batch, …], and row b begins with
 *                   slot read_slots[b], or with 0 if that is not the number of a slot, such as −1.
 *                   NULL: row b of `state`
 *     write_slots   i32 [batch]: the same of the new state. Row b writes nothing if write_slots[b]
 *                   is not the number of a slot. NULL: row b of the new state. An i32 [batch,
 *                   tokens] has a slot for the state after each token instead, so that any of them
 *                   can be gone back to; the delta rule must be a recurrence then
 *
 * With both, the two tensors have equally many slots, and may be one tensor; no row may then write
 * the slot that another one reads or writes. Gradients refuse slots. The rules at the head of ops.h
 * hold for all functions here.
 *
 * Experimental: each release until 1.0 may change what this header declares. */
#ifndef TESSERA_RECURRENT_H
#define TESSERA_RECURRENT_H

#include "tessera/stream.h"
#include "tessera/tensor.h"
#include "tessera/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Causal convolution --------------------------------------------------------------------------- */

#define TSR_MAX_CAUSAL_CONV_TAPS 16

typedef struct tsr_causal_conv_params {
    size_t struct_size;
    const tsr_tensor *bias; /* f32 [channels]; NULL: none */
    /* f32 [batch, channels, taps − 1]: the inputs before the first token, oldest first. NULL: 0 */
    const tsr_tensor *state;
    const tsr_tensor *lengths, *starts;         /* see above */
    bool silu;                                  /* y = z / (1 + e^−z) instead of z */
    const tsr_tensor *read_slots, *write_slots; /* see above */
} tsr_causal_conv_params;
#define tsr_causal_conv_params(...)                                                                \
    (&(tsr_causal_conv_params){.struct_size = sizeof(tsr_causal_conv_params), __VA_ARGS__})

/* Each channel is convolved by itself: z[b,t,c] = bias[c] + Σ_j weight[c,j] · u[b,c,t+j], where u
 * is the state followed by x over time. x and y are [batch, tokens, channels], f32, f16 or bf16,
 * with contiguous channels; weight is f32 [channels, taps] and contiguous, with 1 to
 * TSR_MAX_CAUSAL_CONV_TAPS taps. new_state [batch, channels, taps − 1] becomes the last inputs of
 * u; it may be the same tensor as params->state, or NULL. y may not overlap x. `params` may be
 * NULL. Errors: TSR_ERR_INVALID (shapes, dtypes, devices, overlap, naming the values), and those of
 * recording. */
TSR_API TSR_NODISCARD tsr_status tsr_causal_conv(tsr_stream *stream, tsr_tensor *y,
                                                 tsr_tensor *new_state, const tsr_tensor *x,
                                                 const tsr_tensor *weight,
                                                 const tsr_causal_conv_params *params);

/* What tsr_causal_conv_grad computes; NULL: not computed. */
typedef struct tsr_causal_conv_grads {
    size_t struct_size;
    tsr_tensor *dx; /* as x */
    tsr_tensor *dweight,
        *dbias;         /* f32, as weight and bias; summed over all tokens in a fixed order */
    tsr_tensor *dstate; /* as params->state */
} tsr_causal_conv_grads;
#define tsr_causal_conv_grads(...)                                                                 \
    (&(tsr_causal_conv_grads){.struct_size = sizeof(tsr_causal_conv_grads), __VA_ARGS__})

/* The gradients of tsr_causal_conv, from dy and, unless it is NULL, dnew_state. z is computed again
 * from x. No gradient may overlap another argument. Errors: as tsr_causal_conv, and those of
 * tsr_tensor_create. */
TSR_API TSR_NODISCARD tsr_status tsr_causal_conv_grad(tsr_stream *stream,
                                                      const tsr_causal_conv_grads *grads,
                                                      const tsr_tensor *dy,
                                                      const tsr_tensor *dnew_state,
                                                      const tsr_tensor *x, const tsr_tensor *weight,
                                                      const tsr_causal_conv_params *params);

/* The gated delta rule ------------------------------------------------------------------------- */

#define TSR_MAX_DELTA_DIM 256

typedef struct tsr_delta_rule_params {
    size_t struct_size;
    /* f32 [batch, heads, key_dim, value_dim], contiguous: the state before the first token.
     * NULL: 0 */
    const tsr_tensor *state;
    const tsr_tensor *lengths, *starts; /* see above */
    float scale;                        /* of q; 0: 1/√key_dim */
    /* If not 0, each row x of q and of k is first divided by √(Σ x² + norm_epsilon). */
    float norm_epsilon;
    /* The key head of value head h: h · key_heads / heads, or, if true, h % key_heads. */
    bool tiled_heads;
    /* The most tokens for which the recurrence is computed token by token; more are computed in
     * chunks of 64, which has more, but parallel work. 0: 16; TSR_DELTA_CHUNKS: none. */
    int64_t recurrent_tokens;
    const tsr_tensor *read_slots, *write_slots; /* see above */
    /* How chunks may be computed by GPUs with matrix units (types.h): with TSR_PRECISION_HIGH and
     * MEDIUM, rows of q and k, the state and its changes are multiplied as terms of f16 where the
     * state is involved, with a scale for each row, or for several columns of the state. For
     * tsr_delta_rule_grad: HIGHEST, whatever is given. TSR_PRECISION_DEFAULT: HIGHEST. */
    tsr_precision precision;
    uint32_t reserved; /* 0 */
} tsr_delta_rule_params;
#define TSR_DELTA_CHUNKS (-1)
#define tsr_delta_rule_params(...)                                                                 \
    (&(tsr_delta_rule_params){.struct_size = sizeof(tsr_delta_rule_params), __VA_ARGS__})

/* For each token, in order, with q, k, v, beta and g those of the token and head:
 *
 *     S ← e^g · S;   S ← S + k ⊗ beta · (v − Sᵀk);   y = Sᵀq · scale
 *
 * q and k are [batch, tokens, key_heads, key_dim], v and y [batch, tokens, heads, value_dim], f32,
 * f16 or bf16; g, the logarithm of the decay, and beta are f32 [batch, tokens, heads]. The heads of
 * a token must be contiguous, and tokens at equal distances through the whole batch: views of one
 * tensor that has q, k and v side by side are possible. key_heads divides heads; key_dim and
 * value_dim are multiples of 4, at most TSR_MAX_DELTA_DIM. new_state, f32 [batch, heads, key_dim,
 * value_dim], may be the same tensor as params->state, or NULL. All sums are computed in f32.
 * `params` may be NULL. Source: Yang et al., "Gated Delta Networks" (2024), and for the chunks
 * "Parallelizing Linear Transformers with the Delta Rule" (2024).
 *
 * A call for one token reads each state once and writes it once. Chunks need scratch memory of at
 * most tokens · heads · (2 · value_dim + 3 · key_dim + 330) floats, with tokens in whole chunks;
 * and tokens · heads · (3 · key_dim + 80) more if rows are narrowed for matrix units, or on CPU
 * drivers the states of 16 chunks of each row. Errors: TSR_ERR_INVALID (shapes, dtypes, devices,
 * overlap, naming the values); those of recording and of tsr_tensor_create. */
TSR_API TSR_NODISCARD tsr_status tsr_delta_rule(tsr_stream *stream, tsr_tensor *y,
                                                tsr_tensor *new_state, const tsr_tensor *q,
                                                const tsr_tensor *k, const tsr_tensor *v,
                                                const tsr_tensor *beta, const tsr_tensor *g,
                                                const tsr_delta_rule_params *params);

/* The gradients of tsr_delta_rule, shaped as their operands. dstate may be NULL. */
typedef struct tsr_delta_rule_grads {
    size_t struct_size;
    tsr_tensor *dq, *dk, *dv, *dbeta, *dg;
    tsr_tensor *dstate; /* as params->state */
} tsr_delta_rule_grads;
#define tsr_delta_rule_grads(...)                                                                  \
    (&(tsr_delta_rule_grads){.struct_size = sizeof(tsr_delta_rule_grads), __VA_ARGS__})

/* Computes the gradients from dy and, unless it is NULL, dnew_state, in chunks of 64 tokens. The
 * states between the chunks are computed again, and need heads · key_dim · value_dim floats for
 * each chunk, twice; the other scratch memory is at most tokens · heads · (6 · value_dim + 8 ·
 * key_dim + 588) floats. Gradients of a key head are summed over its value heads in their order. No
 * gradient may overlap another argument, except that dstate may be dnew_state. Errors: as
 * tsr_delta_rule. */
TSR_API TSR_NODISCARD tsr_status tsr_delta_rule_grad(
    tsr_stream *stream, const tsr_delta_rule_grads *grads, const tsr_tensor *dy,
    const tsr_tensor *dnew_state, const tsr_tensor *q, const tsr_tensor *k, const tsr_tensor *v,
    const tsr_tensor *beta, const tsr_tensor *g, const tsr_delta_rule_params *params);

#ifdef __cplusplus
}
#endif

#endif
