/* Attention of a step's tokens with the keys and values in the cache. */
#include "base/struct_size.h"
#include "gpu/attention/call.h"
#include "gpu/internal.h"
#include "gpu/kv_cache/kv_cache.h"
#include "tensor/check.h"

/* The step's keys and values in the cache. */
typedef struct cached {
    tsr_tensor k, v;
    tsr_attention_params params;
} cached;

/* Checks the arguments, and completes the params. */
static tsr_status prepare(const tsr_kv_cache *cache, int layer, const tsr_tensor *q,
                          const tsr_attention_params *params, cached *out)
{
    const char *op = "kv_cache_attention";
    TSR__TRY(tsr__kv_cache_check_step(op, cache, layer));
    TSR__REQUIRE(!params->pages && !params->q_lengths && !params->kv_lengths,
                 "%s: %s is the cache's to set", op,
                 params->pages       ? "pages"
                 : params->q_lengths ? "q_lengths"
                                     : "kv_lengths");
    TSR__REQUIRE(q, "%s: q is NULL", op);
    TSR__REQUIRE(q->layout.ndim == 4 && q->layout.shape[0] == cache->step.count &&
                     q->layout.shape[2] == cache->step.tokens,
                 "%s: q is %s; this step has %lld sequences of up to %lld tokens", op,
                 TSR__SHAPE(q->layout.ndim, q->layout.shape), (long long)cache->step.count,
                 (long long)cache->step.tokens);
    const int64_t kv_heads = cache->layers[layer].kv_heads;
    TSR__TRY(tsr__kv_cache_heads(cache, layer, 0, kv_heads, &out->k));
    TSR__TRY(tsr__kv_cache_heads(cache, layer, kv_heads, kv_heads, &out->v));
    out->params = *params;
    out->params.pages = cache->step.pages;
    /* If all sequences have equally many tokens, leave out q_lengths: without them, kernels know
     * which keys no query sees. */
    out->params.q_lengths = cache->step.even ? NULL : cache->step.q_lengths;
    out->params.kv_lengths = cache->step.kv_lengths;
    return TSR_OK;
}

tsr_status tsr_kv_cache_attention(tsr_kv_cache *cache, int layer, tsr_tensor *y, tsr_tensor *lse,
                                  const tsr_tensor *q, const tsr_attention_params *params)
{
    TSR__TAKE(tsr_attention_params, params);
    cached step;
    TSR__TRY(prepare(cache, layer, q, params, &step));
    return tsr_attention(cache->params.stream, y, lse, q, &step.k, &step.v, &step.params);
}

tsr_status tsr__kv_cache_append_and_attend(tsr_kv_cache *cache, int layer, const tsr_rope *rope,
                                           tsr_tensor *y, tsr_tensor *q, tsr_tensor *k,
                                           const tsr_tensor *v, const tsr_attention_params *params)
{
    cached step;
    TSR__TRY(prepare(cache, layer, q, params, &step));
    TSR__TRY(tsr__kv_cache_check_rows(cache, layer, "k", k, cache->layers[layer].kv_heads));
    TSR__TRY(tsr__kv_cache_check_rows(cache, layer, "v", v, cache->layers[layer].kv_heads));
    tsr__attention call = {
        .op = "kv_cache_attention",
        .stream = cache->params.stream,
        .y = y,
        .q = q,
        .k = &step.k,
        .v = &step.v,
        .new_k = k,
        .new_v = v,
        .rope = rope,
        .params = step.params,
    };
    bool done;
    TSR__TRY(tsr__attention_forward(&call, &done));
    if (done)
        return TSR_OK;
    TSR__TRY(rope ? tsr__kv_cache_append_rotated(cache, layer, rope, q, k, v)
                  : tsr_kv_cache_append(cache, layer, k, v));
    return tsr_attention(cache->params.stream, y, NULL, q, &step.k, &step.v, &step.params);
}
