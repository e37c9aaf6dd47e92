/* Attention: y = softmax(scale · q·kᵀ + mask) · v, forward and backward, without the score matrix
 * in memory.
 *
 *     tsr_attention(stream, y, lse, q, k, v, tsr_attention_params(.causal = true));
 *     tsr_attention_grad(stream, dq, dk, dv, dy, y, lse, q, k, v,
 *                        tsr_attention_params(.causal = true));
 *
 * Source: Dao, "FlashAttention-2" (2023), for the blocks and for what the backward pass recomputes.
 * The rules at the top of ops.h hold here, too. */
#ifndef TESSERA_ATTENTION_H
#define TESSERA_ATTENTION_H

#include "tessera/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_MAX_HEAD_DIM 256
#define TSR_MAX_HEADS 4096

/* The score of query i and key j is s = scale · Σ_d q[i,d]·k[j,d]; then, if softcap is not 0, s =
 * softcap · tanh(s / softcap); then s += mask[i,j]; and −inf if query i does not see key j.
 *
 * A sequence of the batch has q_lengths queries and kv_lengths keys, the first ones of their
 * dimension; without these tensors it has q_len and kv_len. Its query i stands at the key position
 * p = kv_length − q_length + i: the last query stands at the last key. It sees the keys j below
 * kv_length; with `causal` only those up to p; with `window` only the last `window` of these, p −
 * window < j ≤ p. A query that sees no key, or only keys with a score of −inf, gives y = 0 and lse
 * = −inf, and so does a query from q_length on. Their gradients, and those of the keys from
 * kv_length on, are 0. What k and v hold from kv_length on is not used and may be anything, NaN as
 * well. */
typedef struct tsr_attention_params {
    float scale;   /* 0: 1/√head_dim */
    float softcap; /* 0: none; otherwise positive */
    bool causal;
    int64_t window; /* 0: none; otherwise positive, and `causal` is set */
    /* f32, f16 or bf16; broadcasts to [batch, heads, q_len, kv_len]. −inf hides a key.
     * NULL: none. */
    const tsr_tensor *mask;
    /* i32 [batch]. Values outside 0 … q_len, 0 … kv_len count as the nearest of these. NULL: all.
     */
    const tsr_tensor *q_lengths, *kv_lengths;
    /* i32 [batch, n]: k and v are caches [pages, kv_heads, page_len, head_dim], and key j of
     * sequence b is row j % page_len of page pages[b, j / page_len]; kv_len is n · page_len. Pages
     * that no key below kv_length is in are not looked up. Other entries must be pages of the
     * cache; they are not checked, but one outside 0 … pages − 1 counts as the nearest of these.
     * Forward only. NULL: k and v are [batch, kv_heads, kv_len, head_dim]. */
    const tsr_tensor *pages;
    /* The kv head that each head reads: `heads` numbers from 0 to kv_heads − 1, in host memory that
     * is read during the call. NULL: head h reads h · kv_heads / heads. */
    const int32_t *kv_head;
} tsr_attention_params;

#define tsr_attention_params(...) (&(tsr_attention_params){__VA_ARGS__})

/* y and lse from q, k and v.
 *
 * q and y are [batch, heads, q_len, head_dim], k and v [batch, kv_heads, kv_len, head_dim] (or
 * caches of pages), lse [batch, heads, q_len]: the natural logarithm of the sum of exponentials of
 * a query's scores, which the backward pass needs; NULL if nobody does. head_dim is 1 to
 * TSR_MAX_HEAD_DIM, heads at most TSR_MAX_HEADS, q_len and kv_len are below 2^31; other sizes may
 * be 0. q, k, v and y are f32, f16 or bf16 in any mixture, lse is f32. Strides are any, so that
 * parts of a fused product and caches need no copy. y and lse may not overlap another argument.
 *
 * Products and sums are in f32, in an order that depends on shapes, dtypes, strides, the params and
 * the device only. Scratch memory is bounded but for O(batch · heads · q_len · head_dim). `params`
 * may be NULL.
 *
 * Errors: TSR_ERR_INVALID (shapes, dtypes, devices, params, overlap, naming the values), and those
 * of recording (ops.h). */
TSR_API TSR_NODISCARD tsr_status tsr_attention(tsr_stream *stream, tsr_tensor *y, tsr_tensor *lse,
                                               const tsr_tensor *q, const tsr_tensor *k,
                                               const tsr_tensor *v,
                                               const tsr_attention_params *params);

/* The gradients dq, dk and dv, of the shapes of q, k and v, from dy, which has y's shape, and from
 * the arguments and results of the forward call. A kv head's gradients are the sums over the heads
 * that read it, in their order. Any two of dq, dk and dv may be NULL; no gradient may overlap
 * another argument. The mask gets no gradient. `params` are those of the forward call, without
 * `pages`.
 *
 * The scores are computed again from q, k and lse. Sums are in a fixed order, and the results are
 * the same on every run. Scratch memory is bounded but for O(batch · heads · q_len) and, for k and
 * v that are not f32, f32 sums of their size on CPU drivers. Errors: as tsr_attention. */
TSR_API TSR_NODISCARD tsr_status tsr_attention_grad(tsr_stream *stream, tsr_tensor *dq,
                                                    tsr_tensor *dk, tsr_tensor *dv,
                                                    const tsr_tensor *dy, const tsr_tensor *y,
                                                    const tsr_tensor *lse, const tsr_tensor *q,
                                                    const tsr_tensor *k, const tsr_tensor *v,
                                                    const tsr_attention_params *params);

#ifdef __cplusplus
}
#endif

#endif
