/* Push constants of kv_append.comp. */
#ifndef TSR_PARAMS_KV_APPEND_H
#define TSR_PARAMS_KV_APPEND_H

#include "types.h"

/* Strides are in bytes. */
struct tsr_kv_append_push {
    TSR_ADDRESS source;    /* [batch, heads, tokens, head_dim] */
    TSR_ADDRESS cache;     /* [pages, heads, page_tokens, head_dim] */
    TSR_ADDRESS pages;     /* i32 [batch, pages_per_sequence] */
    TSR_ADDRESS positions; /* i32 [batch, tokens] */
    TSR_ADDRESS lengths;   /* i32 [batch]: the number of tokens to store */
    TSR_UINT items;        /* invocations: batch · heads · tokens · groups */
    /* groups: groups of four elements, or blocks if the cache has them, in a row of head_dim
     * elements. */
    TSR_UINT heads, tokens, head_dim, groups, page_tokens, pages_per_sequence;
    TSR_UINT source_strides[4];
    TSR_UINT cache_strides[2]; /* strides of pages and of heads */
};
TSR_PUSH_CHECK(tsr_kv_append_push);

#endif
