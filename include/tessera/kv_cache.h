/* A cache of keys and values for generating text. It stores the keys and values of a rank's kv
 * heads, for all layers of a model and for several sequences of different lengths. Its memory is
 * divided into pages for a fixed number of tokens, and is allocated when the cache is created. A
 * sequence and its forks use the same pages until one of them writes to a page, which is then
 * copied.
 *
 * Layers such as those of recurrent.h have a state instead, of the same size for any number of
 * tokens. States are in slots: a step reads a sequence's slot and writes another one, or the same
 * if nothing else uses it, so forks share slots, too, and nothing is copied. An empty sequence has
 * no slot; its state is 0.
 *
 *     tsr_kv_cache_add(cache, -1, &sequence);                  // an empty sequence
 *     tsr_kv_cache_begin(cache, 1, &sequence, &tokens, NULL);  // room for a step's tokens
 *     for each layer: tsr_layer_forward_cached(block[i], x, cache, i, &y);
 *
 * Threads: only one thread at a time may use a cache, together with its stream. */
#ifndef TESSERA_KV_CACHE_H
#define TESSERA_KV_CACHE_H

#include "tessera/attention.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_kv_cache tsr_kv_cache;

typedef struct tsr_kv_cache_params {
    size_t struct_size;
    tsr_stream *stream; /* all work with the cache is recorded there */
    int layers;
    /* This rank's number of kv heads, which may be 0, and their size, as
     * tsr_self_attention_get_heads gives them. */
    int64_t kv_heads, head_dim;
    /* f32, f16, bf16, or q8_0 or q4_0, whose blocks are along head_dim, which must then be a
     * multiple of 32, as must the size of values; 0: f32. A key or value is the block that
     * tsr_quantize makes of it, with two exceptions: if the scale of a block is subnormal in f32,
     * its elements are 0, and if an element is NaN or infinite, or the scale does not fit f16, they
     * are NaN or infinite. */
    tsr_dtype dtype;
    int64_t page_tokens; /* 0: 64 */
    int64_t pages;       /* the number of pages for all sequences together */
    int sequences;       /* the largest number of sequences at the same time */
    /* [layers]: the number and the size of each layer's kv heads, if they differ between layers.
     * NULL: kv_heads and head_dim in all layers. Read during the call. */
    const int64_t *layer_kv_heads, *layer_head_dims;
    /* [layers]: the floats of a sequence's state in each layer: the last inputs of its convolution,
     * and the state of its delta rule. A layer for which one of them is not 0 has no pages, and its
     * kv heads are not read. If one of these is not NULL, sequences have states, even if all of
     * them have 0 floats on this rank. NULL: 0 in all layers. Read during the call. */
    const int64_t *layer_conv_floats, *layer_state_floats;
    /* Which states stay, so that tsr_kv_cache_truncate can go back to them:
     *
     *     kept_tokens      those after each of a sequence's last kept_tokens tokens before the
     *                      present one, at most TSR_MAX_KEPT_TOKENS, for up to kept_sequences
     *                      sequences (0: all). A step with more sequences or more than 16 tokens
     *                      of one of them keeps none of its own
     *     snapshot_tokens  those at which a step ends after a multiple of so many tokens, which is
     *                      a multiple of page_tokens, until `snapshots` of them are used. The least
     *                      recently used ones then leave first. 0: no step takes a snapshot */
    int kept_tokens, kept_sequences;
    int64_t snapshot_tokens;
    int snapshots;
    /* [layers]: the size of each layer's values, if it is not that of its keys. NULL: head_dim, or
     * layer_head_dims. */
    const int64_t *layer_value_dims;
    /* [layers]: the values of a layer are the first features of its keys, as those of latent
     * attention, and are not stored apart. NULL: none are. */
    const bool *layer_values_in_keys;
} tsr_kv_cache_params;
#define TSR_MAX_KEPT_TOKENS 15
#define tsr_kv_cache_params(...)                                                                   \
    (&(tsr_kv_cache_params){.struct_size = sizeof(tsr_kv_cache_params), __VA_ARGS__})

/* Creates a cache without sequences, and allocates its pages and the slots of states. Errors:
 * TSR_ERR_INVALID naming the value, TSR_ERR_OVERFLOW, and those of tsr_tensor_create. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_create(const tsr_kv_cache_params *params,
                                                     tsr_kv_cache **out);
/* Destroys a cache and sets *cache to NULL. NULL is allowed. Work that has been recorded with it
 * still completes. */
TSR_API void tsr_kv_cache_destroy(tsr_kv_cache **cache);

/* Sequences are numbered 0 … sequences − 1. Errors of all functions: TSR_ERR_INVALID for a sequence
 * that does not exist, TSR_ERR_NO_MEMORY. */

/* Creates a sequence: an empty one if `source` is -1, otherwise a fork, with the tokens that the
 * sequence `source` has now. Copies nothing. Errors: also TSR_ERR_INVALID if the cache already has
 * its largest number of sequences. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_add(tsr_kv_cache *cache, int source, int *out);
/* Removes the tokens of a sequence from `length` on. `length` must be between 0 and the sequence's
 * length, and with states it must be a length that tsr_kv_cache_restorable returns. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_truncate(tsr_kv_cache *cache, int sequence,
                                                       int64_t length);
/* Returns the greatest length, not above `length`, to which a sequence can be truncated: with
 * states, its own length, one whose state is kept, or 0. The caller then computes the tokens up to
 * `length` again. Returns -1 if there is no such sequence, or `length` is not one of 0 … its
 * length. */
TSR_API int64_t tsr_kv_cache_restorable(const tsr_kv_cache *cache, int sequence, int64_t length);
/* Removes a sequence. A new sequence may get its number. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_remove(tsr_kv_cache *cache, int sequence);
/* Returns the number of tokens of a sequence, or -1 if there is no such sequence. */
TSR_API int64_t tsr_kv_cache_length(const tsr_kv_cache *cache, int sequence);
/* Returns the number of pages that no sequence uses. */
TSR_API int64_t tsr_kv_cache_free_pages(const tsr_kv_cache *cache);

/* Begins a step with a batch of `count` different sequences. Records the work and does not wait.
 * sequences[i] becomes longer by tokens[i], which is 0 or more; each layer must then append the
 * keys and values of these tokens. A page that this step writes to is copied first if other
 * sequences use it as well. Errors: TSR_ERR_INVALID (a sequence that does not exist or is named
 * twice; more than 2^31 − 1 tokens), TSR_ERR_DEVICE_MEMORY if there are too few free pages, and
 * those of recording. After an error all sequences are unchanged.
 *
 * `positions` gets the positions of the step's tokens, i32 [count, largest of tokens[i]]: the
 * position of token t of a sequence is the sequence's length before the step, plus t. The tensor
 * belongs to the cache and is valid until the next step. `positions` may be NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_begin(tsr_kv_cache *cache, int count,
                                                    const int *sequences, const int64_t *tokens,
                                                    tsr_tensor **positions);

/* Stores the keys and values of the step's tokens for one layer. k and v are [count, kv_heads,
 * largest of tokens[i], head_dim], as in this layer, of any float dtype and any strides; the
 * head_dim of v is that of its values. v must be NULL if the values are in the keys. Only the first
 * tokens[i] tokens of sequence i are stored. Records the work and does not wait for it.
 * Errors: TSR_ERR_INVALID if no step has begun, for a layer that does not exist and for a wrong
 * shape, naming them; those of recording (ops.h). */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_append(tsr_kv_cache *cache, int layer,
                                                     const tsr_tensor *k, const tsr_tensor *v);

/* Computes tsr_attention of the step's tokens with all keys and values that their sequences have in
 * this layer. q and y are [count, heads, largest of tokens[i], head_dim], where y has that of
 * values. lse may be NULL. The cache sets q_lengths, kv_lengths and pages, which must be NULL in
 * `params`. Errors: those of tsr_kv_cache_append and of tsr_attention. */
TSR_API TSR_NODISCARD tsr_status tsr_kv_cache_attention(tsr_kv_cache *cache, int layer,
                                                        tsr_tensor *y, tsr_tensor *lse,
                                                        const tsr_tensor *q,
                                                        const tsr_attention_params *params);

#ifdef __cplusplus
}
#endif

#endif
