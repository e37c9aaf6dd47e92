/* The internals of a key-value cache. */
#ifndef TSR_GPU_KV_CACHE_KV_CACHE_H
#define TSR_GPU_KV_CACHE_KV_CACHE_H

#include "gpu/kv_cache/pages.h"
#include "gpu/kv_cache/states.h"
#include "tessera/kv_cache.h"
#include "tessera/rope.h"

/* A step appends tokens to some sequences. `all` is an i32 tensor that describes the step; the
 * other tensors but `own` are views of it, one behind the other in this order. If ranks divide the
 * cache, `pages` has one more column, the page of other ranks' tokens, `rows` says where tokens are
 * among those of a sequence's pages, in place of `positions`, and kv_lengths are the lengths before
 * the step; both count this rank's tokens. */
typedef struct tsr__kv_step {
    /* count: the number of sequences; tokens: the largest number of tokens of a sequence */
    int64_t count, tokens;
    bool even;    /* all sequences have `tokens` tokens in this step */
    double pairs; /* of the step's tokens and those up to them, of all sequences together */
    tsr_tensor *all, *pages, *positions, *q_lengths, *kv_lengths;
    tsr_tensor *rows;                     /* as positions; NULL: no ranks divide the cache */
    tsr_tensor *read_slots, *write_slots; /* NULL without states */
    int64_t before;                       /* the tokens of the longest sequence before the step */
    tsr_tensor *own; /* the positions of this rank's tokens, if ranks divide the step's; or NULL */
} tsr__kv_step;

/* What the cache has of one layer. */
typedef struct tsr__kv_layer {
    int64_t kv_heads, head_dim, value_dim;
    bool values_in_keys;
    /* in the cache's memory: [pages, 2 · kv_heads, page_tokens, head_dim]; [pages, kv_heads,
     * page_tokens, head_dim] if only keys are stored; [pages, elements of a page] if values have
     * another size than keys */
    tsr_layout layout;
    bool has_state;           /* instead of pages */
    tsr_tensor *conv, *state; /* views of the memory of states: [slots, floats]; or NULL */
} tsr__kv_layer;

struct tsr_kv_cache {
    tsr_kv_cache_params params;
    tsr__page_table table;
    tsr__states states;
    tsr_tensor *memory;        /* described at tsr__kv_cache_memory() */
    tsr_tensor *states_memory; /* f32: one layer after the other; NULL without states */
    tsr__kv_layer *layers;     /* [params.layers] */
    bool equal;                /* all layers have the same sizes */
    /* Which of the ranks this one is that divide the tokens of a page of the table: each has
     * params.page_tokens of them. */
    int rank, ranks;
    tsr__kv_step step;
};

/* The tensor with all keys and values: [layers, pages, 2 · kv_heads, page_tokens, head_dim], or, if
 * layers have different sizes, one dimension with one layer after the other. In each page, the
 * heads of keys come first, then those of values. Sequences take the free pages with the lowest
 * numbers first. */
tsr_tensor *tsr__kv_cache_memory(const tsr_kv_cache *cache);

/* Checks that a step has begun and that the layer exists. */
tsr_status tsr__kv_cache_check_step(const char *op, const tsr_kv_cache *cache,
                                    int layer) TSR_NODISCARD;

/* Checks that a step has begun and that the layer exists and has pages. */
tsr_status tsr__kv_cache_check_pages(const char *op, const tsr_kv_cache *cache,
                                     int layer) TSR_NODISCARD;

/* Checks that the tensor has `heads` heads of `head_dim` features of the step's tokens, for an
 * operation that stores some of them in the cache. `name` is for error texts. */
tsr_status tsr__kv_cache_check_rows(const tsr_kv_cache *cache, const char *name,
                                    const tsr_tensor *tensor, int64_t heads,
                                    int64_t head_dim) TSR_NODISCARD;
/* Checks the keys and values of a step's tokens in this way. v must be NULL if the layer's values
 * are in its keys. */
tsr_status tsr__kv_cache_check_new(const tsr_kv_cache *cache, int layer, const tsr_tensor *k,
                                   const tsr_tensor *v) TSR_NODISCARD;

/* Make *out a view of one layer: of its keys or values, [pages, kv_heads, page_tokens, head_dim],
 * or of both, keys first, if they have the same size. */
tsr_status tsr__kv_cache_keys(const tsr_kv_cache *cache, int layer, tsr_tensor *out) TSR_NODISCARD;
tsr_status tsr__kv_cache_values(const tsr_kv_cache *cache, int layer,
                                tsr_tensor *out) TSR_NODISCARD;
tsr_status tsr__kv_cache_both(const tsr_kv_cache *cache, int layer, tsr_tensor *out) TSR_NODISCARD;

#endif
