/* Attention of a step's tokens with the keys and values in the cache. */
#include <string.h>

#include "base/struct_size.h"
#include "gpu/attention/call.h"
#include "gpu/device/coopmat.h"
#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "gpu/kv_cache/kv_cache.h"
#include "tensor/check.h"

/* The step's keys and values in the cache. */
typedef struct cached {
    tsr_tensor k, v;
    tsr_attention_params params;
} cached;

/* Sets the lengths of the step's sequences. If all have equally many tokens, leaves out q_lengths:
 * without them, kernels know which keys no query sees. */
static void set_lengths(const tsr__kv_step *step, tsr_attention_params *out)
{
    out->q_lengths = step->even ? NULL : step->q_lengths;
    out->kv_lengths = step->kv_lengths;
}

/* Checks the arguments, and completes the params. */
static tsr_status prepare(const tsr_kv_cache *cache, int layer, const tsr_tensor *q,
                          const tsr_attention_params *params, cached *out)
{
    const char *op = "kv_cache_attention";
    TSR__TRY(tsr__kv_cache_check_pages(op, cache, layer));
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
    TSR__TRY(tsr__kv_cache_keys(cache, layer, &out->k));
    TSR__TRY(tsr__kv_cache_values(cache, layer, &out->v));
    out->params = *params;
    out->params.pages = cache->step.pages;
    set_lengths(&cache->step, &out->params);
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

/* With matrix units --------------------------------------------------------------------------- */

tsr_dtype tsr__kv_cache_usual_dtype(const tsr_device *device)
{
    return !device->traits.not_a_chip && tsr__coopmat_used(device, TSR_F16) ? TSR_F16 : TSR_F32;
}

/* As tsr__attention_narrow_dtype for the step's queries. */
static tsr_dtype narrow_dtype(const tsr_kv_cache *cache, const cached *step, const tsr_tensor *q)
{
    return tsr__attention_narrow_dtype(cache->params.stream, q, &step->k, &step->v, &step->params);
}

tsr_dtype tsr__kv_cache_result_dtype(const tsr_kv_cache *cache, int layer, const tsr_tensor *q,
                                     const tsr_attention_params *params)
{
    cached step;
    tsr_dtype narrow = TSR_F32;
    if (prepare(cache, layer, q, params, &step) == TSR_OK)
        narrow = narrow_dtype(cache, &step, q);
    return narrow == TSR_F32 ? q->layout.dtype : narrow;
}

/* Stores the step's keys and values, rotated if `rope` is not NULL, and then rotated queries in
 * own_q if that is not NULL. */
static tsr_status append(tsr_kv_cache *cache, int layer, const tsr_rope *rope, tsr_tensor *q,
                         tsr_tensor *k, const tsr_tensor *v, tsr_tensor *own_q)
{
    if (rope)
        return tsr__kv_cache_append_rotated(cache, layer, rope, q, k, v, own_q);
    TSR__TRY(tsr_kv_cache_append(cache, layer, k, v));
    return own_q ? tsr_copy(cache->params.stream, own_q, q) : TSR_OK;
}

tsr_status tsr__kv_cache_append_and_attend(tsr_kv_cache *cache, int layer, const tsr_rope *rope,
                                           tsr_tensor *y, tsr_tensor *q, tsr_tensor *k,
                                           const tsr_tensor *v, const tsr_attention_params *params)
{
    cached step;
    TSR__TRY(prepare(cache, layer, q, params, &step));
    TSR__TRY(tsr__kv_cache_check_new(cache, layer, k, v));
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
    tsr_stream *stream = cache->params.stream;
    const tsr_dtype narrow = narrow_dtype(cache, &step, q);
    tsr_tensor *narrow_q = NULL;
    bool done = false;
    /* The checks of a narrow y are those of tsr__attention_narrowed. */
    if (v && (narrow == TSR_F32 || y->layout.dtype == q->layout.dtype))
        TSR__TRY(tsr__attention_forward(&call, &done));
    if (done)
        return TSR_OK;
    if (narrow != TSR_F32)
        TSR__TRY(
            tsr_tensor_create(tsr_stream_device(stream), narrow, 4, q->layout.shape, &narrow_q));
    tsr_status status = append(cache, layer, rope, q, k, v, narrow_q);
    if (status == TSR_OK)
        status = tsr__attention_narrowed(stream, narrow, y, NULL, narrow_q ? narrow_q : q, &step.k,
                                         &step.v, &step.params);
    tsr_tensor_destroy(&narrow_q);
    return status;
}

tsr_status tsr__kv_cache_attend(tsr_kv_cache *cache, int layer, const tsr_rope *rope, tsr_tensor *y,
                                tsr_tensor *lse, tsr_tensor *q, const tsr_attention_params *params)
{
    cached step;
    TSR__TRY(prepare(cache, layer, q, params, &step));
    if (rope)
        TSR__TRY(tsr__kv_cache_rotate(cache, rope, q, NULL));
    return tsr__attention_narrowed(cache->params.stream, narrow_dtype(cache, &step, q), y, lse, q,
                                   &step.k, &step.v, &step.params);
}

/* With other keys and values ------------------------------------------------------------------ */

double tsr__kv_cache_step_pairs(const tsr_kv_cache *cache)
{
    return cache->step.pairs;
}

int64_t tsr__kv_cache_step_keys(const tsr_kv_cache *cache, tsr_attention_params *params)
{
    if (params)
        set_lengths(&cache->step, params);
    return cache->step.pages->layout.shape[1] * cache->params.page_tokens;
}

tsr_status tsr__kv_cache_read_keys(const tsr_kv_cache *cache, int layer, const tsr_tensor *y)
{
    const char *op = "kv_cache_read_keys";
    TSR__TRY(tsr__kv_cache_check_pages(op, cache, layer));
    const tsr__kv_layer *of = &cache->layers[layer];
    const tsr__kv_step *step = &cache->step;
    const int64_t want[] = {step->count, tsr__kv_cache_step_keys(cache, NULL), of->head_dim},
                  pages = tsr_layout_count(&step->pages->layout),
                  width = cache->params.page_tokens * of->head_dim;
    TSR__REQUIRE(of->kv_heads == 1, "%s: layer %d has %lld kv heads; 1 is needed", op, layer,
                 (long long)of->kv_heads);
    TSR__REQUIRE(y && y->layout.ndim == 3 && memcmp(y->layout.shape, want, sizeof want) == 0,
                 "%s: y is %s; %s is needed", op,
                 y ? TSR__SHAPE(y->layout.ndim, y->layout.shape) : "NULL", TSR__SHAPE(3, want));
    /* Each page is a row of a table. */
    tsr_tensor table, rows = *y, ids = *step->pages;
    TSR__TRY(tsr__kv_cache_keys(cache, layer, &table));
    table.layout.ndim = 2;
    table.layout.shape[1] = width;
    table.layout.strides[1] = 1;
    TSR__TRY(tsr_layout_reshape(&y->layout, 2, (int64_t[]){pages, width}, &rows.layout));
    TSR__TRY(tsr_layout_reshape(&step->pages->layout, 1, &pages, &ids.layout));
    return tsr__embedding(cache->params.stream, &rows, &table, &ids, 0);
}
