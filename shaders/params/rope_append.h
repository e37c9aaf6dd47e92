/* Push constants of rope_append.comp. */
#ifndef TSR_PARAMS_ROPE_APPEND_H
#define TSR_PARAMS_ROPE_APPEND_H

#include "types.h"

/* Strides are in bytes. A row has 2 · `pairs` components. An invocation computes four pairs, so
 * that a row has `groups` invocations. */
struct tsr_rope_append_push {
    TSR_ADDRESS x;     /* [batch, heads + 2 · kv_heads, tokens, head_dim]: queries, keys, values */
    TSR_ADDRESS cache; /* [pages, 2 · kv_heads, page_tokens, head_dim] */
    /* i32, one after the other: pages [batch, pages_per_sequence], positions [batch, tokens], and
     * lengths [batch], the number of tokens to store */
    TSR_ADDRESS step;
    TSR_ADDRESS table; /* as in params/rope.h */
    TSR_ADDRESS q;     /* [batch, heads, tokens, head_dim], contiguous; unless Q_DTYPE is 0 */
    TSR_UINT items;    /* invocations: batch · (heads + 2 · kv_heads) · tokens · groups */
    TSR_UINT batch, heads, kv_heads, tokens, pairs, groups, page_tokens, pages_per_sequence;
    TSR_UINT x_strides[4];
    TSR_UINT cache_strides[2]; /* strides of pages and of heads */
    TSR_FLOAT scale;
};
TSR_PUSH_CHECK(tsr_rope_append_push);

#endif
