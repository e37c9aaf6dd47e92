/* Runs attention_step.comp. A workgroup attends to the keys of one page. */
#include "gpu/cpu_drivers/attention/kernels.h"

#include "gpu/cpu_drivers/ops/vectors.h"
#include "gpu/ops/common/rows.h"
#include "shaders/params/attention_step.h"

enum {
    /* The largest number of elements in the keys of a page. The code for them is unrolled; with
     * more, it would not stay in a processor's cache. */
    MAX_ELEMENTS = 8192,
    MIN_KEYS =
        8, /* keys of a page; with fewer, starting a workgroup takes more time than its work */
    MAX_GROUPS = 65535,
    MAX_INDEX = 1 << 18, /* indices that the shader looks up in identity[] (lavapipe.glsl) must be
                            less than this */
    ALIGNMENT = 4,       /* the alignment in bytes that loads and stores of floats need */
};

/* Suitability -------------------------------------------------------------------------------- */

static bool strides_suit(const tsr_tensor *x)
{
    if (x->layout.strides[3] != 1)
        return false;
    for (int d = 0; d < 3; d++)
        if (x->layout.strides[d] < 0 || tsr__stride_bytes(x, d) > UINT32_MAX)
            return false;
    return true;
}

/* True if every kv head is read by the same number of heads, in order. */
static bool heads_are_even(const tsr__attention *c)
{
    const uint32_t *kv_head = tsr__attention_kv_head(c);
    if (c->kv_heads < 1 || c->heads % c->kv_heads != 0)
        return false;
    for (int64_t h = 0; h < c->heads; h++)
        if (kv_head[h] != h / (c->heads / c->kv_heads))
            return false;
    return true;
}

static bool tensors_suit(const tsr__attention *c)
{
    const tsr_device *device = tsr_stream_device(c->stream);
    const tsr_dtype cached = c->k->layout.dtype;
    if (!strides_suit(c->q) || !strides_suit(c->y) || !strides_suit(c->k) || !strides_suit(c->v))
        return false;
    for (int d = 0; d < 3; d++)
        if (c->k->layout.strides[d] != c->v->layout.strides[d])
            return false;
    return c->q->layout.dtype == TSR_F32 && c->y->layout.dtype == TSR_F32 &&
           c->v->layout.dtype == cached &&
           (cached == TSR_F32 ||
            (tsr__dtype_is_float(cached) && device->storage == TSR__STORAGE_S16)) &&
           tsr__tensor_address(c->q) % ALIGNMENT == 0 && tsr__tensor_address(c->y) % ALIGNMENT == 0;
}

static bool lists_suit(const tsr_attention_params *p)
{
    return p->pages && p->kv_lengths && !p->q_lengths && !p->mask && !p->starts &&
           !(p->softcap > 0) && p->temperature == 0 &&
           (p->pages->layout.strides[1] == 1 || p->pages->layout.shape[1] == 1) &&
           tsr__stride_bytes(p->pages, 0) <= UINT32_MAX &&
           (p->kv_lengths->layout.strides[0] == 1 || p->kv_lengths->layout.shape[0] == 1);
}

bool tsr__attention_step_suits(const tsr__attention *c)
{
    const tsr_device *device = tsr_stream_device(c->stream);
    const int64_t lanes = device->info.subgroup_size;
    if (!tsr__vectors_suit(device) || (lanes != 8 && lanes != 16) || c->q_len != 1 || c->dy ||
        c->lse || !lists_suit(&c->params) || !heads_are_even(c) || !tensors_suit(c))
        return false;
    return c->head_dim % lanes == 0 && c->value_dim == c->head_dim && c->page_len >= MIN_KEYS &&
           c->page_len <= MAX_ELEMENTS / c->head_dim && c->page_count <= MAX_INDEX &&
           c->kv_len > 0 && c->batch <= MAX_GROUPS && c->heads <= MAX_GROUPS &&
           c->kv_len / c->page_len <= MAX_GROUPS;
}

/* Dispatches --------------------------------------------------------------------------------- */

typedef struct step {
    const tsr__attention *call;
    uint32_t pages; /* pages of the longest sequence */
    /* used if there are several pages, or sinks: the pages' results, and the call's parameters for
     * attention_merge.comp */
    tsr__buffer *partial;
    tsr__attention_description description;
} step;

static tsr_status run_pages(const step *s)
{
    const tsr__attention *c = s->call;
    const tsr_attention_params *p = &c->params;
    const uint32_t lanes = tsr_stream_device(c->stream)->info.subgroup_size;
    const uint32_t page_result_bytes = 4 * tsr__attention_part_floats(c);
    const struct tsr_attention_step_push push = {
        .identity = {TSR_IDENTITY_8},
        .q = tsr__tensor_address(c->q),
        .k = tsr__tensor_address(c->k),
        .v = tsr__tensor_address(c->v),
        .to = s->partial ? s->partial->address : tsr__tensor_address(c->y),
        .pages = tsr__tensor_address(p->pages),
        .kv_lengths = tsr__tensor_address(p->kv_lengths),
        .q_batch = (uint32_t)tsr__stride_bytes(c->q, 0),
        .q_head = (uint32_t)tsr__stride_bytes(c->q, 1),
        .y_batch = s->partial ? page_result_bytes * s->pages * (uint32_t)c->heads
                              : (uint32_t)tsr__stride_bytes(c->y, 0),
        .y_head = s->partial ? page_result_bytes * s->pages : (uint32_t)tsr__stride_bytes(c->y, 1),
        .page_stride = (uint32_t)tsr__stride_bytes(c->k, 0),
        .head_stride = (uint32_t)tsr__stride_bytes(c->k, 1),
        .row_stride = (uint32_t)tsr__stride_bytes(c->k, 2),
        .pages_stride = (uint32_t)tsr__stride_bytes(p->pages, 0),
        .page_count = (uint32_t)c->page_count,
        .window = p->window > 0 && p->window < INT32_MAX ? (uint32_t)p->window : INT32_MAX,
        .scale = p->scale,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ATTENTION_STEP,
        .spec_count = 7,
        .spec = {lanes, lanes, (uint32_t)c->page_len, (uint32_t)c->head_dim / lanes,
                 (uint32_t)c->k->layout.dtype, s->partial != NULL,
                 (uint32_t)(c->heads / c->kv_heads)},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {s->pages, (uint32_t)c->heads, (uint32_t)c->batch},
        .work = 2.0 * (double)(c->batch * c->heads * c->kv_len) * (double)c->head_dim,
        .multiply_adds = 2.0 * (double)(c->batch * c->heads * c->kv_len) * (double)c->head_dim,
        .read_bytes = tsr__attention_read_bytes(c),
        .access = {tsr__read_of(c->q), tsr__read_of(c->k), tsr__read_of(c->v),
                   tsr__read_of(p->pages), tsr__read_of(p->kv_lengths),
                   s->partial ? tsr__write_buffer(s->partial) : tsr__write_of(c->y)},
        .access_count = 6,
    };
    return tsr__stream_dispatch(c->stream, &dispatch);
}

static tsr_status record(tsr_stream *stream, void *opaque)
{
    const step *s = opaque;
    TSR__TRY(tsr__attention_send(stream, &s->description));
    TSR__TRY(run_pages(s));
    return tsr__attention_merge(s->call, &s->description, s->partial, s->pages);
}

tsr_status tsr__attention_step(const tsr__attention *call)
{
    step s = {.call = call, .pages = (uint32_t)(call->kv_len / call->page_len)};
    /* attention_merge.comp adds the sinks */
    if (s.pages == 1 && !call->params.sinks)
        return run_pages(&s);
    const uint64_t results = (uint64_t)(call->batch * call->heads) * s.pages;
    TSR__TRY(tsr__stream_scratch(call->stream, 4 * results * tsr__attention_part_floats(call),
                                 &s.partial));
    TSR__TRY(tsr__attention_describe(call, NULL, 0, &s.description));
    tsr_status status = tsr__stream_atomic(call->stream, record, &s);
    tsr__attention_description_finish(&s.description);
    return status;
}
