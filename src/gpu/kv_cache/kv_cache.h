/* The memory of a key-value cache, for its self-test. */
#ifndef TSR_GPU_KV_CACHE_KV_CACHE_H
#define TSR_GPU_KV_CACHE_KV_CACHE_H

#include "tessera/kv_cache.h"

/* [layers, pages, 2 · kv_heads, page_tokens, head_dim]. In each page, the heads of keys come first,
 * then those of values. Sequences take the pages with the lowest numbers first. */
tsr_tensor *tsr__kv_cache_memory(const tsr_kv_cache *cache);

#endif
