/* The cache of keys, values and states: its memory, and the tensors that describe a step. */
#include "gpu/kv_cache/kv_cache.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/struct_size.h"
#include "gpu/internal.h"
#include "gpu/stream/stream.h"
#include "tensor/check.h"
#include "tensor/dtype.h"
#include "tessera/ops.h"

#define PAGE_TOKENS 64
#define MOST_FLOATS (INT32_MAX / 4) /* of a state */

/* Making ------------------------------------------------------------------------------------- */

/* If layers have different sizes, each begins at a multiple of this many elements. */
#define LAYER_ALIGN 128

static int64_t kv_heads_of(const tsr_kv_cache_params *p, int layer)
{
    return p->layer_kv_heads ? p->layer_kv_heads[layer] : p->kv_heads;
}

static int64_t floats_of(const int64_t *floats, int layer)
{
    return floats ? floats[layer] : 0;
}

static bool has_state(const tsr_kv_cache_params *p, int layer)
{
    return floats_of(p->layer_conv_floats, layer) != 0 ||
           floats_of(p->layer_state_floats, layer) != 0;
}

static int64_t head_dim_of(const tsr_kv_cache_params *p, int layer)
{
    return p->layer_head_dims ? p->layer_head_dims[layer] : p->head_dim;
}

static int64_t value_dim_of(const tsr_kv_cache_params *p, int layer)
{
    return p->layer_value_dims ? p->layer_value_dims[layer] : head_dim_of(p, layer);
}

static bool values_in_keys(const tsr_kv_cache_params *p, int layer)
{
    return p->layer_values_in_keys && p->layer_values_in_keys[layer];
}

static tsr_status check_heads(const tsr_kv_cache_params *p, int layer)
{
    const int64_t kv_heads = kv_heads_of(p, layer), head_dim = head_dim_of(p, layer),
                  value_dim = value_dim_of(p, layer);
    TSR__REQUIRE(kv_heads >= 0 && kv_heads <= TSR_MAX_HEADS && head_dim >= 1 &&
                     head_dim <= TSR_MAX_HEAD_DIM,
                 "kv_cache_create: kv_heads is %lld, head_dim %lld; 0 to %d and 1 to %d are "
                 "possible",
                 (long long)kv_heads, (long long)head_dim, TSR_MAX_HEADS, TSR_MAX_HEAD_DIM);
    TSR__REQUIRE(value_dim >= 1 && value_dim <= TSR_MAX_HEAD_DIM &&
                     (!values_in_keys(p, layer) || value_dim <= head_dim),
                 "kv_cache_create: values of layer %d have %lld features and keys %lld; 1 to %d "
                 "are possible, and at most those of keys for values in keys",
                 layer, (long long)value_dim, (long long)head_dim, TSR_MAX_HEAD_DIM);
    const int64_t block = (int64_t)tsr__dtype_block(p->dtype);
    TSR__REQUIRE(head_dim % block == 0 && value_dim % block == 0,
                 "kv_cache_create: the keys of layer %d have %lld features and its values %lld; "
                 "%s needs multiples of %lld",
                 layer, (long long)head_dim, (long long)value_dim, tsr_dtype_name(p->dtype),
                 (long long)block);
    TSR__REQUIRE(kv_heads * p->page_tokens <= INT32_MAX / 4 / (head_dim + value_dim),
                 "kv_cache_create: %lld kv heads, %lld tokens and %lld features make pages of 2^31 "
                 "bytes or more",
                 (long long)kv_heads, (long long)p->page_tokens, (long long)head_dim);
    return TSR_OK;
}

static tsr_status check_params(const tsr_kv_cache_params *p)
{
    TSR__REQUIRE(p->stream, "kv_cache_create: stream is NULL");
    TSR__REQUIRE(p->layers >= 1 && p->sequences >= 1,
                 "kv_cache_create: layers is %d, sequences %d; both must be at least 1", p->layers,
                 p->sequences);
    TSR__REQUIRE(tsr__dtype_is_float(p->dtype) || tsr__dtype_is_cached_block(p->dtype),
                 "kv_cache_create: dtype is %s; f32, f16, bf16, q8_0 or q4_0 is needed",
                 tsr_dtype_name(p->dtype));
    TSR__REQUIRE(p->page_tokens >= 1 && p->page_tokens <= 65536,
                 "kv_cache_create: page_tokens is %lld; 1 to 65536 are possible",
                 (long long)p->page_tokens);
    for (int i = 0; i < p->layers; i++) {
        const int64_t conv = floats_of(p->layer_conv_floats, i),
                      state = floats_of(p->layer_state_floats, i);
        TSR__REQUIRE(conv >= 0 && state >= 0 && conv <= MOST_FLOATS && state <= MOST_FLOATS,
                     "kv_cache_create: layer %d has states of %lld and %lld floats; 0 to %d are "
                     "possible",
                     i, (long long)conv, (long long)state, MOST_FLOATS);
        if (!has_state(p, i))
            TSR__TRY(check_heads(p, i));
    }
    TSR__REQUIRE(p->pages >= 1 && p->pages <= INT32_MAX,
                 "kv_cache_create: pages is %lld; 1 to %d are possible", (long long)p->pages,
                 INT32_MAX);
    return TSR_OK;
}

/* Describes the memory of a layer's pages. */
static tsr_status describe_layer(const tsr_kv_cache_params *p, tsr__kv_layer *layer)
{
    const int64_t row = layer->kv_heads * p->page_tokens;
    if (layer->value_dim != layer->head_dim && !layer->values_in_keys)
        return tsr_layout_init(p->dtype, 2,
                               (int64_t[]){p->pages, row * (layer->head_dim + layer->value_dim)},
                               &layer->layout);
    const int64_t heads = (layer->values_in_keys ? 1 : 2) * layer->kv_heads;
    return tsr_layout_init(
        p->dtype, 4, (int64_t[]){p->pages, heads, p->page_tokens, layer->head_dim}, &layer->layout);
}

/* Describes the layers, and sets *elements to the number of elements of all of them. */
static tsr_status place_layers(tsr_kv_cache *cache, int64_t *elements)
{
    const tsr_kv_cache_params *p = &cache->params;
    uint64_t at = 0;
    cache->equal = true;
    for (int i = 0; i < p->layers; i++) {
        tsr__kv_layer *layer = &cache->layers[i];
        const bool state = has_state(p, i);
        const int64_t none = (int64_t)tsr__dtype_block(p->dtype); /* the features of no head */
        *layer = (tsr__kv_layer){.kv_heads = state ? 0 : kv_heads_of(p, i),
                                 .head_dim = state ? none : head_dim_of(p, i),
                                 .value_dim = state ? none : value_dim_of(p, i),
                                 .values_in_keys = !state && values_in_keys(p, i),
                                 .has_state = state};
        cache->equal = cache->equal && layer->kv_heads == cache->layers[0].kv_heads &&
                       layer->head_dim == cache->layers[0].head_dim &&
                       layer->value_dim == layer->head_dim && !layer->values_in_keys;
    }
    for (int i = 0; i < p->layers; i++) {
        tsr__kv_layer *layer = &cache->layers[i];
        TSR__TRY(describe_layer(p, layer));
        layer->layout.offset = (int64_t)at;
        uint64_t count = (uint64_t)tsr_layout_count(&layer->layout);
        if (!cache->equal)
            count = (count + LAYER_ALIGN - 1) / LAYER_ALIGN * LAYER_ALIGN;
        if (!tsr__add_u64(at, count, &at) || at > INT64_MAX)
            return tsr__fail(TSR_ERR_OVERFLOW,
                             "kv_cache_create: %d layers of %lld pages have 2^63 elements or more",
                             p->layers, (long long)p->pages);
    }
    *elements = (int64_t)at;
    return TSR_OK;
}

/* Describes the states [slots, floats] of a layer, which begin at element *at of their memory. */
static tsr_status place_state(const tsr_kv_cache *cache, int64_t floats, int64_t *at,
                              tsr_layout *out)
{
    const int64_t shape[] = {cache->states.slots, floats};
    TSR__TRY(tsr_layout_init(TSR_F32, 2, shape, out));
    out->offset = *at;
    *at += (tsr_layout_count(out) + LAYER_ALIGN - 1) / LAYER_ALIGN * LAYER_ALIGN;
    return *at <= INT64_MAX / 4
               ? TSR_OK
               : tsr__fail(TSR_ERR_OVERFLOW, "kv_cache_create: %d states have 2^63 bytes or more",
                           cache->states.slots);
}

static tsr_status create_states(tsr_kv_cache *cache)
{
    const tsr_kv_cache_params *p = &cache->params;
    int64_t elements = 0, at = 0;
    tsr_layout layout;
    if (!cache->states.on)
        return TSR_OK;
    for (int i = 0; i < p->layers; i++) {
        TSR__TRY(place_state(cache, floats_of(p->layer_conv_floats, i), &elements, &layout));
        TSR__TRY(place_state(cache, floats_of(p->layer_state_floats, i), &elements, &layout));
    }
    TSR__TRY(tsr_tensor_create(tsr_stream_device(p->stream), TSR_F32, 1, &elements,
                               &cache->states_memory));
    for (int i = 0; i < p->layers; i++) {
        TSR__TRY(place_state(cache, floats_of(p->layer_conv_floats, i), &at, &layout));
        TSR__TRY(tsr_tensor_view(cache->states_memory, &layout, &cache->layers[i].conv));
        TSR__TRY(place_state(cache, floats_of(p->layer_state_floats, i), &at, &layout));
        TSR__TRY(tsr_tensor_view(cache->states_memory, &layout, &cache->layers[i].state));
    }
    return TSR_OK;
}

static tsr_status create_memory(tsr_kv_cache *cache)
{
    const tsr_kv_cache_params *p = &cache->params;
    const tsr__kv_layer *first = cache->layers;
    int64_t elements;
    TSR__TRY(place_layers(cache, &elements));
    const int64_t shape[] = {p->layers, p->pages, 2 * first->kv_heads, p->page_tokens,
                             first->head_dim};
    return tsr_tensor_create(tsr_stream_device(p->stream), p->dtype, cache->equal ? 5 : 1,
                             cache->equal ? shape : &elements, &cache->memory);
}

static tsr_status create(const tsr_kv_cache_params *params, int ranks, int rank, tsr_kv_cache **out)
{
    tsr_kv_cache_params p = *params;
    p.dtype = p.dtype == (tsr_dtype)0 ? TSR_F32 : p.dtype;
    p.page_tokens = p.page_tokens == 0 ? PAGE_TOKENS : p.page_tokens;
    TSR__TRY(check_params(&p));
    tsr_kv_cache *cache = tsr__calloc(1, sizeof *cache);
    if (!cache)
        return TSR_ERR_NO_MEMORY;
    cache->params = p;
    cache->ranks = ranks;
    cache->rank = rank;
    cache->params.pages += ranks > 1; /* for what other ranks store */
    cache->layers = tsr__calloc((size_t)p.layers, sizeof *cache->layers);
    tsr_status status = cache->layers ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__pages_init(&cache->table, p.page_tokens * ranks, p.pages, p.sequences);
    if (status == TSR_OK)
        status = tsr__states_init(&cache->states, &p);
    if (status == TSR_OK)
        status = create_memory(cache);
    if (status == TSR_OK)
        status = create_states(cache);
    /* the caller's */
    cache->params.layer_kv_heads = cache->params.layer_head_dims = NULL;
    cache->params.layer_conv_floats = cache->params.layer_state_floats = NULL;
    cache->params.layer_value_dims = NULL;
    cache->params.layer_values_in_keys = NULL;
    if (status != TSR_OK) {
        tsr_kv_cache_destroy(&cache);
        return status;
    }
    *out = cache;
    return TSR_OK;
}

tsr_status tsr_kv_cache_create(const tsr_kv_cache_params *params, tsr_kv_cache **out)
{
    TSR__REQUIRE(params && out, "kv_cache_create: %s is NULL", params ? "out" : "params");
    TSR__TAKE(tsr_kv_cache_params, params);
    return create(params, 1, 0, out);
}

tsr_status tsr__kv_cache_create_divided(const tsr_kv_cache_params *params, int ranks, int rank,
                                        tsr_kv_cache **out)
{
    TSR__REQUIRE(!params->layer_conv_floats && !params->layer_state_floats,
                 "kv_cache_create: %d ranks cannot divide states", ranks);
    TSR__REQUIRE(params->pages < INT32_MAX && params->page_tokens <= INT32_MAX / ranks,
                 "kv_cache_create: %lld pages of %lld tokens on each of %d ranks are too many",
                 (long long)params->pages, (long long)params->page_tokens, ranks);
    return create(params, ranks, rank, out);
}

static void step_finish(tsr__kv_step *s)
{
    tsr_tensor **tensors[] = {&s->pages,       &s->positions, &s->q_lengths,
                              &s->kv_lengths,  &s->rows,      &s->read_slots,
                              &s->write_slots, &s->own,       &s->all};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tsr_tensor_destroy(tensors[i]);
    *s = (tsr__kv_step){0};
}

void tsr_kv_cache_destroy(tsr_kv_cache **cache)
{
    if (!cache || !*cache)
        return;
    step_finish(&(*cache)->step);
    for (int i = 0; (*cache)->layers && i < (*cache)->params.layers; i++) {
        tsr_tensor_destroy(&(*cache)->layers[i].conv);
        tsr_tensor_destroy(&(*cache)->layers[i].state);
    }
    tsr_tensor_destroy(&(*cache)->memory);
    tsr_tensor_destroy(&(*cache)->states_memory);
    tsr__pages_finish(&(*cache)->table);
    tsr__states_finish(&(*cache)->states);
    tsr__free((*cache)->layers);
    tsr__free(*cache);
    *cache = NULL;
}

tsr_tensor *tsr__kv_cache_memory(const tsr_kv_cache *cache)
{
    return cache->memory;
}

/* Sequences ---------------------------------------------------------------------------------- */

tsr_status tsr_kv_cache_add(tsr_kv_cache *cache, int source, int *out)
{
    TSR__REQUIRE(cache && out, "kv_cache_add: %s is NULL", cache ? "out" : "cache");
    int sequence = -1;
    if (source == -1) {
        TSR__TRY(tsr__pages_add(&cache->table, &sequence));
        tsr__states_add(&cache->states, sequence);
    } else {
        TSR__TRY(tsr__pages_fork(&cache->table, source, &sequence));
        tsr__states_fork(&cache->states, source, sequence);
    }
    *out = sequence;
    return TSR_OK;
}

tsr_status tsr_kv_cache_truncate(tsr_kv_cache *cache, int sequence, int64_t length)
{
    TSR__REQUIRE(cache, "kv_cache_truncate: cache is NULL");
    const int64_t present = tsr_kv_cache_length(cache, sequence);
    const int64_t restorable = tsr_kv_cache_restorable(cache, sequence, length);
    TSR__REQUIRE(restorable < 0 || restorable == length,
                 "kv_cache: sequence %d has %lld tokens, but no state for %lld; it can go back to "
                 "%lld",
                 sequence, (long long)present, (long long)length, (long long)restorable);
    TSR__TRY(tsr__pages_truncate(&cache->table, sequence, length));
    tsr__states_restore(&cache->states, sequence, present, length);
    return TSR_OK;
}

int64_t tsr_kv_cache_restorable(const tsr_kv_cache *cache, int sequence, int64_t length)
{
    const int64_t present = tsr_kv_cache_length(cache, sequence);
    return present < 0 || length < 0 || length > present
               ? -1
               : tsr__states_restorable(&cache->states, sequence, present, length);
}

tsr_status tsr_kv_cache_remove(tsr_kv_cache *cache, int sequence)
{
    TSR__REQUIRE(cache, "kv_cache_remove: cache is NULL");
    TSR__TRY(tsr__pages_remove(&cache->table, sequence));
    tsr__states_remove(&cache->states, sequence);
    return TSR_OK;
}

int64_t tsr_kv_cache_length(const tsr_kv_cache *cache, int sequence)
{
    const tsr__sequence *found = cache ? tsr__pages_find(&cache->table, sequence) : NULL;
    return found ? found->length : -1;
}

int64_t tsr_kv_cache_free_pages(const tsr_kv_cache *cache)
{
    return cache ? cache->table.free_count : 0;
}

/* Steps -------------------------------------------------------------------------------------- */

/* Creates a view of `all` that begins with element number *at, and advances *at past the view. */
static tsr_status section(const tsr_tensor *all, int64_t *at, int ndim, const int64_t *shape,
                          tsr_tensor **out)
{
    tsr_layout layout;
    TSR__TRY(tsr_layout_init(TSR_I32, ndim, shape, &layout));
    layout.offset = *at;
    *at += tsr_layout_count(&layout);
    return tsr_tensor_view(all, &layout, out);
}

/* Returns how many of the first `length` tokens of a sequence this rank has. */
static int64_t own_length(const tsr_kv_cache *cache, int64_t length)
{
    const int64_t each = cache->params.page_tokens, page = each * cache->ranks,
                  last = length % page - each * cache->rank;
    return length / page * each + (last < 0 ? 0 : last < each ? last : each);
}

/* Returns the place of a token among those of the pages of its sequence, of which there are `pages`
 * and then the page of other ranks' tokens. */
static int64_t row_of(const tsr_kv_cache *cache, int64_t token, int64_t pages)
{
    const int64_t each = cache->params.page_tokens, page = each * cache->ranks;
    const bool own = token % page / each == cache->rank;
    return (own ? token / page : pages) * each + token % each;
}

/* What ranks that divide the cache need instead of kv_lengths, `before`, and in `rows`. */
static void describe_own(const tsr_kv_cache *cache, const tsr__kv_step *s, int64_t pages,
                         const int *sequences, const int64_t *tokens, int32_t *before,
                         int32_t *rows)
{
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t length = tsr__pages_find(&cache->table, sequences[i])->length - tokens[i];
        before[i] = (int32_t)own_length(cache, length);
        for (int64_t t = 0; t < s->tokens; t++)
            rows[i * s->tokens + t] = (int32_t)(t < tokens[i] ? row_of(cache, length + t, pages)
                                                              : pages * cache->params.page_tokens);
    }
}

/* Writes the contents of a step's tensors to `out`, except those of states: pages, positions,
 * q_lengths, kv_lengths and rows. */
static void describe(const tsr_kv_cache *cache, const tsr__kv_step *s, int64_t per_sequence,
                     const int *sequences, const int64_t *tokens, int32_t *out)
{
    int32_t *positions = out + s->count * per_sequence, *lengths = positions + s->count * s->tokens;
    for (int64_t i = 0; i < s->count; i++) {
        const tsr__sequence *sequence = tsr__pages_find(&cache->table, sequences[i]);
        const int64_t before = sequence->length - tokens[i];
        if (sequence->count > 0)
            memcpy(out + i * per_sequence, sequence->pages,
                   (size_t)sequence->count * sizeof *sequence->pages);
        for (int64_t t = 0; t < s->tokens; t++)
            positions[i * s->tokens + t] =
                (int32_t)(t < tokens[i] || before + t <= INT32_MAX ? before + t : INT32_MAX);
        lengths[i] = (int32_t)tokens[i];
        lengths[s->count + i] = (int32_t)sequence->length;
        if (cache->ranks > 1)
            out[(i + 1) * per_sequence - 1] = (int32_t)cache->table.pages;
    }
    if (cache->ranks > 1)
        describe_own(cache, s, per_sequence - 1, sequences, tokens, lengths + s->count,
                     lengths + 2 * s->count);
}

/* Chooses the step's slots of states, too. After an error these are as before. */
static tsr_status fill_step(tsr_kv_cache *cache, int count, const int *sequences,
                            const int64_t *tokens, tsr__kv_step *s)
{
    int64_t per_sequence = 1, total, at = 0;
    s->count = count;
    s->even = true;
    for (int i = 0; i < count; i++) {
        const tsr__sequence *sequence = tsr__pages_find(&cache->table, sequences[i]);
        per_sequence = sequence->count > per_sequence ? sequence->count : per_sequence;
        s->tokens = tokens[i] > s->tokens ? tokens[i] : s->tokens;
        s->even = s->even && tokens[i] == tokens[0];
        s->before =
            sequence->length - tokens[i] > s->before ? sequence->length - tokens[i] : s->before;
        s->pairs += (double)tokens[i] * ((double)sequence->length - (double)(tokens[i] - 1) / 2);
    }
    per_sequence += cache->ranks > 1;
    /* Attention gets the number of keys for which the pages of a sequence have room as kv_len, and
     * requires that it is less than 2^31. */
    TSR__REQUIRE(per_sequence <= INT32_MAX / cache->params.page_tokens,
                 "kv_cache: %lld pages of %lld tokens in one sequence; less than 2^31 tokens are "
                 "possible",
                 (long long)per_sequence, (long long)cache->params.page_tokens);
    const bool states = cache->states.on,
               each = tsr__states_keeps_each(&cache->states, count, s->tokens);
    const int64_t writes[] = {count, s->tokens},
                  described = count * (per_sequence + (cache->ranks > 1 ? 2 : 1) * s->tokens + 2);
    total = described + (states ? count * (each ? 1 + s->tokens : 2) : 0);
    int32_t *numbers = tsr__calloc((size_t)total, sizeof *numbers);
    if (!numbers)
        return TSR_ERR_NO_MEMORY;
    describe(cache, s, per_sequence, sequences, tokens, numbers);
    tsr_status status = tsr__states_begin(&cache->states, count, sequences, tokens, s->tokens,
                                          numbers + described, numbers + described + count);
    if (status != TSR_OK) {
        tsr__free(numbers);
        return status;
    }
    status =
        tsr_tensor_create(tsr_stream_device(cache->params.stream), TSR_I32, 1, &total, &s->all);
    if (status == TSR_OK)
        status = section(s->all, &at, 2, (int64_t[]){count, per_sequence}, &s->pages);
    if (status == TSR_OK)
        status = section(s->all, &at, 2, (int64_t[]){count, s->tokens}, &s->positions);
    if (status == TSR_OK)
        status = section(s->all, &at, 1, &s->count, &s->q_lengths);
    if (status == TSR_OK)
        status = section(s->all, &at, 1, &s->count, &s->kv_lengths);
    if (status == TSR_OK && cache->ranks > 1)
        status = section(s->all, &at, 2, writes, &s->rows);
    if (status == TSR_OK && states)
        status = section(s->all, &at, 1, &s->count, &s->read_slots);
    if (status == TSR_OK && states)
        status = section(s->all, &at, each ? 2 : 1, writes, &s->write_slots);
    if (status == TSR_OK)
        status = tsr_tensor_upload(cache->params.stream, s->all, numbers,
                                   (uint64_t)total * sizeof *numbers);
    tsr__free(numbers);
    if (status != TSR_OK)
        tsr__states_undo(&cache->states);
    return status;
}

typedef struct copying {
    const tsr_kv_cache *cache;
    int count;
    const tsr__page_copy *copies;
} copying;

/* Makes *out a view of page number `page` in a layer or, if all layers have the same sizes, in all
 * layers. */
static tsr_status page_of(const tsr_kv_cache *cache, int layer, int32_t page, tsr_tensor *out)
{
    tsr_layout layout;
    TSR__TRY(cache->equal
                 ? tsr_layout_slice(&cache->memory->layout, 1, page, page + 1, 1, &layout)
                 : tsr_layout_slice(&cache->layers[layer].layout, 0, page, page + 1, 1, &layout));
    *out = tsr__tensor_alias(cache->memory, &layout);
    return TSR_OK;
}

static tsr_status copy_page(tsr_stream *stream, const tsr_kv_cache *cache,
                            const tsr__page_copy *copy)
{
    const int views = cache->equal ? 1 : cache->params.layers;
    for (int layer = 0; layer < views; layer++) {
        tsr_tensor from, to;
        if (tsr_layout_count(&cache->layers[layer].layout) == 0)
            continue;
        TSR__TRY(page_of(cache, layer, copy->from, &from));
        TSR__TRY(page_of(cache, layer, copy->to, &to));
        TSR__TRY(tsr_copy(stream, &to, &from));
    }
    return TSR_OK;
}

static tsr_status copy_pages(tsr_stream *stream, void *opaque)
{
    const copying *work = opaque;
    for (int i = 0; i < work->count; i++) {
        if (work->copies[i].from >= 0)
            TSR__TRY(copy_page(stream, work->cache, &work->copies[i]));
    }
    return TSR_OK;
}

tsr_status tsr_kv_cache_begin(tsr_kv_cache *cache, int count, const int *sequences,
                              const int64_t *tokens, tsr_tensor **positions)
{
    TSR__REQUIRE(cache && sequences && tokens, "kv_cache_begin: %s is NULL",
                 !cache      ? "cache"
                 : sequences ? "tokens"
                             : "sequences");
    TSR__REQUIRE(count >= 1 && count <= cache->params.sequences,
                 "kv_cache_begin: %d sequences; 1 to %d are possible", count,
                 cache->params.sequences);
    tsr__page_copy *copies = tsr__calloc((size_t)count, sizeof *copies);
    if (!copies)
        return TSR_ERR_NO_MEMORY;
    tsr__kv_step next = {0};
    tsr_status status = tsr__pages_extend(&cache->table, count, sequences, tokens, copies);
    if (status == TSR_OK) {
        status = fill_step(cache, count, sequences, tokens, &next);
        if (status == TSR_OK) {
            status = tsr__stream_atomic(cache->params.stream, copy_pages,
                                        &(copying){cache, count, copies});
            if (status != TSR_OK)
                tsr__states_undo(&cache->states);
        }
        if (status != TSR_OK)
            tsr__pages_shrink(&cache->table, count, sequences, tokens, copies);
    }
    tsr__free(copies);
    if (status != TSR_OK) {
        step_finish(&next);
        return status;
    }
    step_finish(&cache->step);
    cache->step = next;
    for (int i = 0; i < count; i++)
        if (tokens[i] > 0)
            tsr__states_end_step(&cache->states, sequences[i],
                                 tsr_kv_cache_length(cache, sequences[i]));
    if (positions)
        *positions = next.positions;
    return TSR_OK;
}

tsr_tensor *tsr__kv_cache_positions(const tsr_kv_cache *cache)
{
    return !cache ? NULL : cache->step.own ? cache->step.own : cache->step.positions;
}

tsr_status tsr__kv_cache_divide_step(tsr_kv_cache *cache, tsr__kv_division *out)
{
    const tsr__kv_step *step = &cache->step;
    TSR__REQUIRE(step->all && step->count == 1 && step->tokens % cache->ranks == 0,
                 "kv_cache: a step of %lld sequences with %lld tokens is not divided over %d ranks",
                 (long long)step->count, (long long)step->tokens, cache->ranks);
    const int64_t each = step->tokens / cache->ranks;
    TSR__TRY(tsr_tensor_slice(step->positions, 1, cache->rank * each, (cache->rank + 1) * each, 1,
                              &cache->step.own));
    *out = tsr__kv_cache_division(cache);
    return TSR_OK;
}

tsr__kv_division tsr__kv_cache_division(const tsr_kv_cache *cache)
{
    const tsr__kv_step *step = &cache->step;
    const int64_t own = step->own ? step->tokens / cache->ranks : step->tokens;
    return (tsr__kv_division){.ranks = cache->ranks,
                              .rank = cache->rank,
                              .tokens = step->tokens,
                              .first = step->own ? cache->rank * own : 0,
                              .own = own,
                              .before = step->before,
                              .lengths = step->even ? NULL : step->q_lengths,
                              .dtype = cache->params.dtype};
}

tsr_tensor *tsr__kv_cache_lengths(const tsr_kv_cache *cache)
{
    return cache ? cache->step.q_lengths : NULL;
}

tsr_status tsr__kv_cache_states(tsr_kv_cache *cache, int layer, tsr_tensor **conv,
                                tsr_tensor **state, tsr_tensor **read_slots,
                                tsr_tensor **write_slots)
{
    const char *op = "kv_cache_states";
    TSR__TRY(tsr__kv_cache_check_step(op, cache, layer));
    TSR__REQUIRE(cache->states.on,
                 "%s: the cache has no states; layer_conv_floats and layer_state_floats were NULL",
                 op);
    *conv = cache->layers[layer].conv;
    *state = cache->layers[layer].state;
    *read_slots = cache->step.read_slots;
    *write_slots = cache->step.write_slots;
    return TSR_OK;
}

/* Keys and values ---------------------------------------------------------------------------- */

tsr_status tsr__kv_cache_both(const tsr_kv_cache *cache, int layer, tsr_tensor *out)
{
    *out = tsr__tensor_alias(cache->memory, &cache->layers[layer].layout);
    return TSR_OK;
}

/* Makes *out a view of heads with `dim` features each, whose first is `start` elements behind the
 * start of a page, and whose rows have `row` elements. */
static tsr_status heads_at(const tsr_kv_cache *cache, int layer, int64_t start, int64_t row,
                           int64_t dim, tsr_tensor *out)
{
    const tsr__kv_layer *of = &cache->layers[layer];
    const int64_t tokens = cache->params.page_tokens;
    tsr_layout view;
    TSR__TRY(tsr_layout_init(cache->params.dtype, 4,
                             (int64_t[]){cache->params.pages, of->kv_heads, tokens, dim}, &view));
    view.offset = of->layout.offset + start;
    view.strides[0] = of->layout.strides[0];
    view.strides[1] = tokens * row;
    view.strides[2] = row;
    *out = tsr__tensor_alias(cache->memory, &view);
    return TSR_OK;
}

tsr_status tsr__kv_cache_keys(const tsr_kv_cache *cache, int layer, tsr_tensor *out)
{
    const int64_t dim = cache->layers[layer].head_dim;
    return heads_at(cache, layer, 0, dim, dim, out);
}

tsr_status tsr__kv_cache_values(const tsr_kv_cache *cache, int layer, tsr_tensor *out)
{
    const tsr__kv_layer *of = &cache->layers[layer];
    if (of->values_in_keys)
        return heads_at(cache, layer, 0, of->head_dim, of->value_dim, out);
    return heads_at(cache, layer, of->kv_heads * cache->params.page_tokens * of->head_dim,
                    of->value_dim, of->value_dim, out);
}

tsr_status tsr__kv_cache_check_step(const char *op, const tsr_kv_cache *cache, int layer)
{
    TSR__REQUIRE(cache, "%s: cache is NULL", op);
    TSR__REQUIRE(cache->step.all, "%s: no step has begun", op);
    TSR__REQUIRE(layer >= 0 && layer < cache->params.layers, "%s: layer %d is outside 0 … %d", op,
                 layer, cache->params.layers - 1);
    return TSR_OK;
}

tsr_status tsr__kv_cache_check_pages(const char *op, const tsr_kv_cache *cache, int layer)
{
    TSR__TRY(tsr__kv_cache_check_step(op, cache, layer));
    TSR__REQUIRE(!cache->layers[layer].has_state, "%s: layer %d has a state, not keys and values",
                 op, layer);
    return TSR_OK;
}
