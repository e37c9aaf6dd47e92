/* A cache of keys and values for generation: the keys and values of a rank's kv heads, of all
 * layers of a model, for several sequences of different lengths. Memory comes in pages of a fixed
 * number of tokens, made at the start; sequences that were forked share pages until one of them
 * writes.
 *
 *     tsr_kv_cache_add(cache, &sequence);
 *     tsr_kv_cache_begin(cache, 1, &sequence, &tokens);        // room for a step's tokens
 *     for each layer: tsr_layer_forward_cached(block[i], x, cache, i, &y);
 *
 * Threads: one thread at a time per cache, as its stream. */
#ifndef TESSERA_KV_CACHE_H
#define TESSERA_KV_CACHE_H

#include "tessera/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_kv_cache tsr_kv_cache;

typedef struct tsr_kv_cache_params {
    tsr_stream *stream; /* all work with the cache is recorded there */
    int layers;
    int64_t kv_heads, head_dim; /* this rank's: see tsr_self_attention_heads. kv_heads may be 0 */
    tsr_dtype dtype;            /* f32, f16 or bf16; 0: f32 */
    int64_t page_tokens;        /* 0: 64 */
    int64_t pages;              /* of all sequences together */
    int sequences;              /* the most at a time */
} tsr_kv_cache_params;
#define tsr_kv_cache_params(...) (&(tsr_kv_cache_params){__VA_ARGS__})

/* Errors: TSR_ERR_INVALID naming the value, TSR_ERR_OVERFLOW, and those of tsr_tensor_create. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_create(const tsr_kv_cache_params *params,
                                                     tsr_kv_cache **out);
/* Work that was recorded still finishes. NULL is fine; sets NULL. */
TSR_API void tsr_kv_cache_destroy(tsr_kv_cache **cache);

/* Sequences, numbered 0 … sequences − 1. Errors of all: TSR_ERR_INVALID for one that does not
 * exist, TSR_ERR_NO_MEMORY. */

/* A new, empty sequence. TSR_ERR_INVALID if there are as many as there can be. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_add(tsr_kv_cache *cache, int *out);
/* A new sequence with the tokens that `sequence` has now. Copies nothing. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_fork(tsr_kv_cache *cache, int sequence, int *out);
/* Forgets the tokens from `length` on, which is 0 to the sequence's length. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_truncate(tsr_kv_cache *cache, int sequence,
                                                       int64_t length);
/* Ends a sequence; its number may come again. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_remove(tsr_kv_cache *cache, int sequence);
/* In tokens; -1 if there is no such sequence. */
TSR_API int64_t tsr_kv_cache_length(const tsr_kv_cache *cache, int sequence);
/* Pages that no sequence has. */
TSR_API int64_t tsr_kv_cache_free_pages(const tsr_kv_cache *cache);

/* Begins a step with a batch of `count` different sequences: makes sequences[i] longer by tokens[i]
 * (0 or more), whose keys and values each layer then has to append. Pages that other sequences
 * share and that this step writes to are copied first. Errors, upon which all sequences are as they
 * were: TSR_ERR_INVALID (a sequence that does not exist or is named twice; more than 2^31 − 1
 * tokens), TSR_ERR_DEVICE_MEMORY when there are too few free pages, and those of recording. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_begin(tsr_kv_cache *cache, int count,
                                                    const int *sequences, const int64_t *tokens);

/* The positions of the step's tokens, i32 [count, most tokens]: token t of sequence i is at its
 * earlier length + t. It belongs to the cache, until the next step; NULL before the first. */
TSR_API tsr_tensor *tsr_kv_cache_positions(const tsr_kv_cache *cache);

/* Stores the keys and values of the step's tokens for one layer, [count, kv_heads, most tokens,
 * head_dim] of any float dtype and strides. Of sequence i the first tokens[i] count. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_append(tsr_kv_cache *cache, int layer,
                                                     const tsr_tensor *k, const tsr_tensor *v);

/* tsr_attention of the step's tokens, q and y [count, heads, most tokens, head_dim], with all keys
 * and values that the sequences have in this layer. lse may be NULL. The cache sets q_lengths,
 * kv_lengths and pages, which must be NULL in `params`. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_attention(tsr_kv_cache *cache, int layer,
                                                        tsr_tensor *y, tsr_tensor *lse,
                                                        const tsr_tensor *q,
                                                        const tsr_attention_params *params);

#ifdef __cplusplus
}
#endif

#endif
