/* Rotates queries and keys (RoPE) and stores keys and values. This header contains no Vulkan types,
 * so that layers can include it. */
#ifndef TSR_GPU_KV_CACHE_ROTATED_H
#define TSR_GPU_KV_CACHE_ROTATED_H

#include "tessera/kv_cache.h"
#include "tessera/rope.h"

/* Rotates the step's queries in place, and stores its rotated keys and its values for one layer.
 * This takes one dispatch if all are neighbouring heads of one tensor. The shapes are those of
 * tsr_kv_cache_append and tsr_kv_cache_attention. k may be rotated in place, too. */
tsr_status tsr__kv_cache_append_rotated(tsr_kv_cache *cache, int layer, const tsr_rope *rope,
                                        tsr_tensor *q, tsr_tensor *k,
                                        const tsr_tensor *v) TSR_NODISCARD;

#endif
