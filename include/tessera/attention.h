/* Attention: y = softmax(scale · q·kᵀ + mask) · v, forward and backward, without the score matrix
 * in memory.
 *
 *     tsr_attention(stream, y, lse, q, k, v, tsr_attention_params(.causal = true));
 *     tsr_attention_grad(stream, dq, dk, dv, dy, y, lse, q, k, v,
 *                        tsr_attention_params(.causal = true));
 *
 * Source: Dao, "FlashAttention-2" (2023), for the computation in blocks of queries and keys and the
 * recomputation of scores in the backward pass. The rules at the top of ops.h hold here, too. */
#ifndef TESSERA_ATTENTION_H
#define TESSERA_ATTENTION_H

#include "tessera/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TSR_MAX_HEAD_DIM 576 /* latents of 512 features with 64 rotated ones are the widest */
#define TSR_MAX_HEADS 4096

/* The score of query i and key j is s = scale · Σ_d q[i,d]·k[j,d]; then, with `temperature`, s *= 1
 * + temperature · ln(1 + ⌊p / temperature_length⌋), where p is the query's position (or 0 if it is
 * negative); then, if softcap is not 0, s = softcap · tanh(s / softcap); then s += mask[i,j]; and
 * −inf if query i does not see key j.
 *
 * The lengths of sequence b are q_length = q_lengths[b] and kv_length = kv_lengths[b]; without
 * these tensors they are q_len and kv_len. Only the first q_length queries and the first kv_length
 * keys of a sequence are used. Query i has the position p = kv_length − q_length + i among the
 * keys, so that the last query is at the position of the last key. A query sees the keys j <
 * kv_length; with `causal` only those with j ≤ p; with `window` only those with p − window < j ≤ p;
 * with `starts` only those with j ≥ starts[b,i], and the temperature's position is p − starts[b,i].
 *
 * With `sinks`, the softmax of a query of head h has one more score, sinks[h], whose value is 0:
 * p_j = exp(s_j) / (Σ_j exp(s_j) + exp(sinks[h])), and lse includes it, too. A sink is not scaled,
 * capped or masked. A sink of −inf has no effect.
 *
 * If a query sees no key, or only keys with a score of −inf, its y is 0 and its lse is −inf, or its
 * head's sink. The
 * queries from q_length on have the same y and lse. The gradients of these queries, and of the keys
 * from kv_length on, are 0. The elements of k and v from kv_length on may have any value, also
 * NaN. */
typedef struct tsr_attention_params {
    size_t struct_size;
    float scale;   /* 0: 1/√head_dim; TSR_ZERO is possible */
    float softcap; /* 0: none; otherwise positive */
    bool causal;
    int64_t window; /* 0: none; otherwise positive, and `causal` is set */
    /* f32, f16 or bf16; broadcasts to [batch, heads, q_len, kv_len]. −inf hides a key.
     * NULL: none. */
    const tsr_tensor *mask;
    /* i32 [batch]. The lengths of the sequences. Values outside 0 … q_len and 0 … kv_len are
     * clamped to these limits. NULL: q_len or kv_len for all sequences. */
    const tsr_tensor *q_lengths, *kv_lengths;
    /* i32 [batch, n]: k and v are caches [pages, kv_heads, page_len, head_dim], and key j of
     * sequence b is row j % page_len of page pages[b, j / page_len]; kv_len is n · page_len.
     * Entries for pages without a key below kv_length are not read. All other entries must be
     * numbers of pages; those outside 0 … pages − 1 are not reported, but clamped to these limits.
     * For tsr_attention only. NULL: k and v are [batch, kv_heads, kv_len, head_dim]. */
    const tsr_tensor *pages;
    /* The kv head that each head reads: [heads], each from 0 to kv_heads − 1. It is in host memory
     * and is read during the call. NULL: head h reads h · kv_heads / heads. */
    const int32_t *kv_head;
    /* f32 [heads]: the sink of each head. NULL: none. */
    const tsr_tensor *sinks;
    /* f32 [heads]: the gradient of `sinks`, which tsr_attention_grad writes; tsr_attention does not
     * use it. NULL: not computed. */
    tsr_tensor *dsinks;
    float temperature;          /* 0: none */
    int64_t temperature_length; /* in positions; 1 to 2^31 − 1, unused without temperature */
    /* i32 [batch, q_len]: the first key that each query sees, with `causal` only. Rows of several
     * documents are packed so: a token's start is the first token of its document. Starts must not
     * decrease along a sequence; otherwise results are undefined. NULL: 0. */
    const tsr_tensor *starts;
} tsr_attention_params;

#define tsr_attention_params(...)                                                                  \
    (&(tsr_attention_params){.struct_size = sizeof(tsr_attention_params), __VA_ARGS__})

/* Computes y and lse from q, k and v.
 *
 * q is [batch, heads, q_len, head_dim], k and v are [batch, kv_heads, kv_len, head_dim] (or caches,
 * see `pages`), lse is [batch, heads, q_len]. The head_dim of v may be another than that of q and
 * k; y has it, too: [batch, heads, q_len, head_dim of v]. lse is the natural logarithm of the sum
 * of the exponentials of a query's scores. Only tsr_attention_grad needs it; otherwise it may be
 * NULL. head_dim is 1 to TSR_MAX_HEAD_DIM, heads at most TSR_MAX_HEADS, q_len and kv_len are below
 * 2^31; other sizes may be 0. q, k, v and y are f32, f16 or bf16 in any mixture, lse is f32; k and
 * v may be q8_0 or q4_0, too. The tensors may have any strides, so that views of caches, and of a
 * product that computes q, k and v together, need no copy. y and lse may not overlap another
 * argument.
 *
 * Products and sums are computed in f32. Their order depends only on shapes, dtypes, strides, the
 * params and the device. With f32 tensors, the error of a result is at most about 2e-6 of the
 * largest result, plus 2^-24 of it for each unit of the largest score: a score s is rounded to f32,
 * and the exponential turns this error of |s| · 2^-24 into a relative one. The scratch memory is
 * O(batch · heads · q_len · head_dim), plus an amount that does not grow with the sizes; on
 * lavapipe also f32 copies of the keys and values of one kv head. `params` may be NULL.
 *
 * Errors: TSR_ERR_INVALID (shapes, dtypes, devices, params, overlap, naming the values), and those
 * of recording (ops.h). */
TSR_API TSR_NODISCARD tsr_status tsr_attention(tsr_stream *stream, tsr_tensor *y, tsr_tensor *lse,
                                               const tsr_tensor *q, const tsr_tensor *k,
                                               const tsr_tensor *v,
                                               const tsr_attention_params *params);

/* Computes the gradients dq, dk and dv, which have the shapes of q, k and v. dy is the gradient of
 * y and has its shape. The other inputs are the arguments and results of the call of tsr_attention.
 * The gradients of a kv head are summed over the heads that read it, in the order of the heads.
 * params->dsinks[h] gets −Σ exp(sinks[h] − lse) · (dy·y), summed over all queries of head h.
 * Those of dq, dk, dv and params->dsinks that are NULL are not computed; at least one must be
 * given. No gradient may overlap another argument. The mask gets no gradient. `params` are those of
 * the forward call, without `pages`.
 *
 * The scores are computed again from q, k and lse, and their errors count as in tsr_attention,
 * relative to the largest terms of the sums. Sums are in a fixed order, and the results are
 * the same on every run. The scratch memory is O(batch · heads · q_len), plus an amount that does
 * not grow with the sizes; on lavapipe also f32 copies of the keys and values of one kv head, and
 * f32 sums of the sizes of k and v, if these are not f32.
 *
 * Errors: as tsr_attention; TSR_ERR_UNSUPPORTED on lavapipe if q_lengths or kv_lengths is given, or
 * starts with gaps between its elements, and there are more than about 10,000 keys, or more than
 * about 10,000 queries in all heads that read one kv head together. */
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
