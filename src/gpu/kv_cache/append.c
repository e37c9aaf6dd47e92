/* Stores the keys and values of a step's tokens in the cache. */
#include <string.h>

#include "base/checked.h"
#include "gpu/internal.h"
#include "gpu/kv_cache/kv_cache.h"
#include "gpu/ops/common/rows.h"
#include "gpu/ops/rope/rope.h"
#include "shaders/params/kv_append.h"
#include "shaders/params/rope_append.h"
#include "tensor/check.h"
#include "tensor/dtype.h"

enum {
    WORKGROUP = 64,
    /* With more tokens, rope.comp is faster on CPU drivers, because it computes the angles of a
     * position once for all heads. */
    MAX_TOKENS_ON_CPU = 16,
};

tsr_status tsr__kv_cache_check_rows(const tsr_kv_cache *cache, const char *name,
                                    const tsr_tensor *tensor, int64_t heads, int64_t head_dim)
{
    const char *op = "kv_cache_append";
    const int64_t want[] = {cache->step.count, heads, cache->step.tokens, head_dim};
    TSR__TRY(tsr__require_float(op, name, cache->params.stream, tensor));
    const tsr_layout *layout = &tensor->layout;
    TSR__REQUIRE(layout->ndim == 4 && memcmp(layout->shape, want, sizeof want) == 0,
                 "%s: %s is %s; this step's are %s", op, name,
                 TSR__SHAPE(layout->ndim, layout->shape), TSR__SHAPE(4, want));
    for (int d = 0; d < 4; d++)
        TSR__REQUIRE(tsr__stride_bytes(tensor, d) <= UINT32_MAX,
                     "%s: dimension %d of %s has a stride of %lld elements; less than 2^32 bytes "
                     "are needed",
                     op, d, name, (long long)layout->strides[d]);
    return tsr__require_disjoint(op, "the cache", cache->memory, name, tensor, false);
}

tsr_status tsr__kv_cache_check_new(const tsr_kv_cache *cache, int layer, const tsr_tensor *k,
                                   const tsr_tensor *v)
{
    const tsr__kv_layer *of = &cache->layers[layer];
    TSR__TRY(tsr__kv_cache_check_rows(cache, "k", k, of->kv_heads, of->head_dim));
    if (!of->values_in_keys)
        return tsr__kv_cache_check_rows(cache, "v", v, of->kv_heads, of->value_dim);
    TSR__REQUIRE(!v, "kv_cache_append: v is given, but the values of layer %d are in its keys",
                 layer);
    return TSR_OK;
}

/* Appends `source` to the heads of the cache that `cached` is a view of. */
static tsr_status add_append(const tsr_kv_cache *cache, tsr__dispatches *list, tsr_tensor cached,
                             const tsr_tensor *source)
{
    const tsr_layout *layout = &source->layout;
    const int64_t heads = layout->shape[1], dim = layout->shape[3];
    const uint64_t block = tsr__dtype_block(cached.layout.dtype),
                   groups = tsr__div_up_u64((uint64_t)dim, block == 1 ? 4 : block);
    const uint64_t items = (uint64_t)(layout->shape[0] * heads * layout->shape[2]) * groups;
    if (items == 0)
        return TSR_OK;
    TSR__REQUIRE(items <= INT32_MAX, "kv_cache_append: %s is too much for one step",
                 TSR__SHAPE(4, layout->shape));
    struct tsr_kv_append_push push = {
        .source = tsr__tensor_address(source),
        .cache = tsr__tensor_address(&cached),
        .pages = tsr__tensor_address(cache->step.pages),
        .positions =
            tsr__tensor_address(cache->step.rows ? cache->step.rows : cache->step.positions),
        .lengths = tsr__tensor_address(cache->step.q_lengths),
        .items = (uint32_t)items,
        .heads = (uint32_t)heads,
        .tokens = (uint32_t)layout->shape[2],
        .head_dim = (uint32_t)dim,
        .groups = (uint32_t)groups,
        .page_tokens = (uint32_t)cache->params.page_tokens,
        .pages_per_sequence = (uint32_t)cache->step.pages->layout.shape[1],
        .cache_strides = {(uint32_t)tsr__stride_bytes(&cached, 0),
                          (uint32_t)tsr__stride_bytes(&cached, 1)},
    };
    for (int d = 0; d < 4; d++)
        push.source_strides[d] = (uint32_t)tsr__stride_bytes(source, d);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_KV_APPEND,
        .spec_count = 3,
        .spec = {WORKGROUP, (uint32_t)cached.layout.dtype, (uint32_t)layout->dtype},
        .push = &push,
        .push_bytes = sizeof push,
        .written_bytes =
            (double)tsr__dtype_bytes(cached.layout.dtype, (uint64_t)tsr_layout_count(layout)),
        .access_count = 3,
        .access = {tsr__write_of(&cached), tsr__read_of(source), tsr__read_of(cache->step.all)},
    };
    tsr__groups_for(items, WORKGROUP, dispatch.groups);
    return tsr__dispatches_add(list, &dispatch);
}

/* True if the heads of `next` follow those of `first` in one buffer with the same strides, as if
 * both were one tensor. This is so if one matrix product has computed keys and values. */
static bool follows(const tsr_tensor *first, const tsr_tensor *next)
{
    const tsr_layout *a = &first->layout, *b = &next->layout;
    return first->buffer == next->buffer && a->dtype == b->dtype &&
           memcmp(a->strides, b->strides, 4 * sizeof *a->strides) == 0 &&
           b->offset == a->offset + a->shape[1] * a->strides[1];
}

tsr_status tsr_kv_cache_append(tsr_kv_cache *cache, int layer, const tsr_tensor *k,
                               const tsr_tensor *v)
{
    TSR__TRY(tsr__kv_cache_check_pages("kv_cache_append", cache, layer));
    TSR__TRY(tsr__kv_cache_check_new(cache, layer, k, v));
    tsr__dispatches list = {0};
    tsr_tensor cached;
    tsr_status status;
    if (v && cache->layers[layer].value_dim == cache->layers[layer].head_dim && follows(k, v)) {
        tsr_tensor both = *k;
        both.layout.shape[1] *= 2;
        status = tsr__kv_cache_both(cache, layer, &cached);
        if (status == TSR_OK)
            status = add_append(cache, &list, cached, &both);
    } else {
        status = tsr__kv_cache_keys(cache, layer, &cached);
        if (status == TSR_OK)
            status = add_append(cache, &list, cached, k);
        if (status == TSR_OK && v)
            status = tsr__kv_cache_values(cache, layer, &cached);
        if (status == TSR_OK && v)
            status = add_append(cache, &list, cached, v);
    }
    if (status == TSR_OK)
        status = tsr__dispatches_record(&list, cache->params.stream);
    tsr__dispatches_finish(&list);
    return status;
}

/* With rotation ------------------------------------------------------------------------------ */

/* True if every group of four components of a row can be read and written as one vector, because it
 * starts at a multiple of its size in x and in the cache. */
static bool in_vectors(const tsr_tensor *x, const tsr_tensor *cached)
{
    const tsr_layout *l = &x->layout;
    const uint64_t vector = 4 * tsr_dtype_size(l->dtype);
    bool aligned = l->strides[3] == 1 && l->shape[3] % 8 == 0 &&
                   tsr__tensor_address(x) % vector == 0 &&
                   tsr__tensor_address(cached) % (4 * tsr_dtype_size(cached->layout.dtype)) == 0;
    for (int d = 0; d < 3; d++)
        aligned = aligned && l->strides[d] % 4 == 0;
    return aligned;
}

static tsr__dispatch rotated_dispatch(const tsr_kv_cache *cache, const tsr_rope *rope,
                                      const tsr_tensor *q, const tsr_tensor *cached,
                                      const tsr_tensor *own_q)
{
    return (tsr__dispatch){
        .shader = TSR__SHADER_ROPE_APPEND,
        .spec_count = 6,
        .spec = {WORKGROUP, (uint32_t)cache->memory->layout.dtype, (uint32_t)q->layout.dtype,
                 in_vectors(q, cached) && (!own_q || tsr__tensor_address(own_q) % 16 == 0),
                 tsr__rope_params_of(rope)->pairing == TSR_ROPE_ADJACENT,
                 own_q ? (uint32_t)own_q->layout.dtype : 0},
    };
}

/* Returns the number of invocations that rope_append.comp needs. */
static uint64_t rotated_items(const tsr_tensor *q, int64_t kv_heads)
{
    const int64_t *shape = q->layout.shape;
    return (uint64_t)(shape[0] * (shape[1] + 2 * kv_heads) * shape[2]) *
           (((uint64_t)shape[3] / 2 + 3) / 4);
}

/* True if rope_append.comp can rotate and store the step's queries, keys and values, and is the
 * fastest way. Its invocations have four pairs each, too little for a block. */
static bool rotated_suits(const tsr_kv_cache *cache, int layer, const tsr_rope *rope,
                          const tsr_tensor *q, const tsr_tensor *k, const tsr_tensor *v)
{
    tsr_device *device = tsr_stream_device(cache->params.stream);
    if (tsr__dtype_is_block(cache->params.dtype))
        return false;
    const tsr__dispatch dispatch = rotated_dispatch(cache, rope, q, cache->memory, NULL);
    return v && cache->layers[layer].value_dim == cache->layers[layer].head_dim && follows(q, k) &&
           follows(k, v) &&
           tsr__rope_params_of(rope)->rotary_dim == cache->layers[layer].head_dim &&
           (!device->traits.few_invocations ||
            cache->step.count * cache->step.tokens <= MAX_TOKENS_ON_CPU) &&
           rotated_items(q, cache->layers[layer].kv_heads) <= INT32_MAX &&
           tsr__shader_admitted(device, TSR__SHADER_ROPE_APPEND, dispatch.spec, 3);
}

/* False if the kernel that writes queries to a tensor of their own has failed its self-test. */
static bool writes_own(const tsr_kv_cache *cache, const tsr_rope *rope, const tsr_tensor *q,
                       const tsr_tensor *own_q)
{
    const tsr__dispatch dispatch = rotated_dispatch(cache, rope, q, cache->memory, own_q);
    return tsr__shader_admitted(tsr_stream_device(cache->params.stream), TSR__SHADER_ROPE_APPEND,
                                dispatch.spec, dispatch.spec_count);
}

static tsr_status run_rotated(tsr_kv_cache *cache, int layer, const tsr_rope *rope, tsr_tensor *q,
                              const tsr_tensor *k, const tsr_tensor *v, tsr_tensor *own_q)
{
    const int64_t kv_heads = cache->layers[layer].kv_heads,
                  pairs = cache->layers[layer].head_dim / 2;
    const uint64_t items = rotated_items(q, kv_heads);
    tsr_tensor cached;
    TSR__TRY(tsr__kv_cache_both(cache, layer, &cached));
    struct tsr_rope_append_push push = {
        .x = tsr__tensor_address(q),
        .cache = tsr__tensor_address(&cached),
        .step = tsr__tensor_address(cache->step.all),
        .table = tsr__tensor_address(tsr__rope_table(rope)),
        .q = own_q ? tsr__tensor_address(own_q) : 0,
        .items = (uint32_t)items,
        .batch = (uint32_t)cache->step.count,
        .heads = (uint32_t)q->layout.shape[1],
        .kv_heads = (uint32_t)kv_heads,
        .tokens = (uint32_t)cache->step.tokens,
        .pairs = (uint32_t)pairs,
        .groups = (uint32_t)(pairs + 3) / 4,
        .page_tokens = (uint32_t)cache->params.page_tokens,
        .pages_per_sequence = (uint32_t)cache->step.pages->layout.shape[1],
        .cache_strides = {(uint32_t)tsr__stride_bytes(&cached, 0),
                          (uint32_t)tsr__stride_bytes(&cached, 1)},
        .scale = (float)tsr__rope_params_of(rope)->attention_factor,
    };
    for (int d = 0; d < 4; d++)
        push.x_strides[d] = (uint32_t)tsr__stride_bytes(q, d);
    tsr__dispatch dispatch = rotated_dispatch(cache, rope, q, &cached, own_q);
    const tsr__access access[] = {own_q ? tsr__read_of(q) : tsr__write_of(q),
                                  tsr__write_of(&cached),
                                  tsr__read_of(k),
                                  tsr__read_of(v),
                                  tsr__read_of(cache->step.all),
                                  tsr__read_of(tsr__rope_table(rope))};
    /* q, k and v are read; q, and in the cache k and v, are written */
    dispatch.read_bytes = (double)(items * 8 * tsr_dtype_size(q->layout.dtype));
    dispatch.written_bytes = dispatch.read_bytes;
    dispatch.push = &push;
    dispatch.push_bytes = sizeof push;
    dispatch.access_count = sizeof access / sizeof *access;
    memcpy(dispatch.access, access, sizeof access);
    if (own_q)
        dispatch.access[dispatch.access_count++] = tsr__write_of(own_q);
    tsr__groups_for(items, WORKGROUP, dispatch.groups);
    return tsr__stream_dispatch(cache->params.stream, &dispatch);
}

tsr_status tsr__kv_cache_rotate(const tsr_kv_cache *cache, const tsr_rope *rope, tsr_tensor *q,
                                tsr_tensor *k)
{
    tsr_stream *stream = cache->params.stream;
    const tsr_tensor *of = tsr__kv_cache_positions(cache);
    const int64_t *step = of->layout.shape;
    tsr_layout layout;
    TSR__TRY(tsr_layout_reshape(&of->layout, 3, (int64_t[]){step[0], 1, step[1]}, &layout));
    const tsr_tensor positions = tsr__tensor_alias(of, &layout);
    if (k && follows(q, k)) {
        tsr_tensor both = *q;
        both.layout.shape[1] += k->layout.shape[1];
        return tsr_rope_apply(stream, rope, &both, &both, &positions);
    }
    TSR__TRY(tsr_rope_apply(stream, rope, q, q, &positions));
    return k ? tsr_rope_apply(stream, rope, k, k, &positions) : TSR_OK;
}

tsr_status tsr__kv_cache_append_rotated(tsr_kv_cache *cache, int layer, const tsr_rope *rope,
                                        tsr_tensor *q, tsr_tensor *k, const tsr_tensor *v,
                                        tsr_tensor *own_q)
{
    const char *op = "kv_cache_append";
    TSR__TRY(tsr__kv_cache_check_pages(op, cache, layer));
    TSR__TRY(tsr__kv_cache_check_rows(cache, "q", q, tsr_tensor_layout(q)->shape[1],
                                      cache->layers[layer].head_dim));
    TSR__TRY(tsr__kv_cache_check_new(cache, layer, k, v));
    if (q->layout.shape[1] > 0 && cache->layers[layer].kv_heads > 0 && cache->step.tokens > 0 &&
        rotated_suits(cache, layer, rope, q, k, v) && (!own_q || writes_own(cache, rope, q, own_q)))
        return run_rotated(cache, layer, rope, q, k, v, own_q);
    TSR__TRY(tsr__kv_cache_rotate(cache, rope, q, k));
    TSR__TRY(tsr_kv_cache_append(cache, layer, k, v));
    return own_q ? tsr_copy(cache->params.stream, own_q, q) : TSR_OK;
}
