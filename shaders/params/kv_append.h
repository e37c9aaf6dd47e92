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
    TSR_ADDRESS lengths;   /* i32 [batch]: the number of tokens of each sequence */
    TSR_UINT items;        /* batch · heads · tokens · groups */
    TSR_UINT heads, tokens, head_dim, groups, page_tokens, pages_per_sequence;
    TSR_UINT source_strides[4];
    TSR_UINT cache_strides[2]; /* of pages and heads */
};
TSR_PUSH_CHECK(tsr_kv_append_push);

#endif
