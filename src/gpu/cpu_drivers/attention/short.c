/* Runs attention_short.comp. A lane computes one query, or one key, with all keys or queries of its
 * head. */
#include "gpu/cpu_drivers/attention/kernels.h"

#include "base/checked.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "gpu/device/mesa.h"
#include "gpu/ops/common/rows.h"
#include "shaders/params/attention_short.h"

enum {
    GROUP = 8,   /* scores that the kernel computes at a time; it divides q_len and kv_len */
    COLUMNS = 8, /* columns that the kernel adds up at a time; it divides head_dim */
    /* The largest number of products of a lane. They are unrolled: with more, compiling takes
     * seconds, and their code does not stay in a processor's cache. */
    MAX_PRODUCTS = 2048,
    MIN_ROWS = 256, /* with fewer rows in all heads together, a pipeline is not worth compiling */
    SUBGROUPS = 8,  /* the number of subgroups per workgroup, at most the length of identity[]
                       (lavapipe.glsl) */
    MAX_GROUPS = 65535,
    WORD_BYTES = 8, /* the size and alignment of a store */
};

/* Suitability -------------------------------------------------------------------------------- */

/* True if the kernel can read or write the rows of a tensor. */
static bool rows_suit(const tsr_tensor *x)
{
    const tsr_layout *l = &x->layout;
    uint64_t bits = tsr__tensor_address(x);
    if (l->dtype != TSR_F32 || l->strides[3] != 1)
        return false;
    for (int d = 0; d < 3; d++) {
        if (l->strides[d] < 0 || tsr__stride_bytes(x, d) > INT32_MAX)
            return false;
        bits |= l->shape[d] > 1 ? tsr__stride_bytes(x, d) : 0;
    }
    return bits % WORD_BYTES == 0;
}

/* True if the kernel can read or write the rows of b, and if b has the strides of a. The kernel
 * gets one set of strides for both. */
static bool same_strides(const tsr_tensor *a, const tsr_tensor *b)
{
    for (int d = 0; d < 3; d++)
        if (a->layout.strides[d] != b->layout.strides[d])
            return false;
    return rows_suit(b);
}

static bool has_own_head(const tsr__attention *c)
{
    const uint32_t *kv_head = tsr__attention_kv_head(c);
    for (int64_t h = 0; h < c->heads; h++)
        if (kv_head[h] != h)
            return false;
    return c->heads == c->kv_heads;
}

/* True for a softmax over all keys, or over those up to the query's position. */
static bool is_plain(const tsr__attention *c)
{
    const tsr_attention_params *p = &c->params;
    return !p->mask && !p->sinks && !p->starts && !p->pages && !p->q_lengths && !p->kv_lengths &&
           !(p->softcap > 0) && p->temperature == 0 && !(p->window > 0);
}

static bool sizes_suit(const tsr__attention *c)
{
    return c->batch <= MAX_GROUPS && c->heads <= MAX_GROUPS && c->q_len > 0 &&
           c->q_len % GROUP == 0 && c->kv_len > 0 && c->kv_len % GROUP == 0 &&
           c->head_dim % COLUMNS == 0 && c->value_dim == c->head_dim && c->q_len <= MAX_PRODUCTS &&
           c->kv_len <= MAX_PRODUCTS && c->kv_len * c->head_dim <= MAX_PRODUCTS &&
           (!c->dy || c->q_len * c->head_dim <= MAX_PRODUCTS) &&
           c->batch * c->heads * c->q_len >= MIN_ROWS;
}

bool tsr__attention_short_suits(const tsr__attention *c)
{
    const tsr_device *device = tsr_stream_device(c->stream);
    /* Barriers divide this kernel into phases. Without them, products are faster (Mesa 26.2). */
    if (!tsr__vectors_suit(device) || !is_plain(c) || !has_own_head(c) || !sizes_suit(c) ||
        !tsr__mesa_takes_phases(device->info.driver_info))
        return false;
    if (!rows_suit(c->q) || !same_strides(c->q, c->k) || !same_strides(c->q, c->v) ||
        !rows_suit(c->y) || (c->lse && !tsr_layout_is_contiguous(&c->lse->layout)))
        return false;
    return !c->dy || (c->dq && c->dk && c->dv && rows_suit(c->dy) && rows_suit(c->dq) &&
                      same_strides(c->dq, c->dk) && same_strides(c->dq, c->dv));
}

/* Dispatches --------------------------------------------------------------------------------- */

static uint64_t address_of(const tsr_tensor *tensor)
{
    return tensor ? tsr__tensor_address(tensor) : 0;
}

/* Records one kernel. `y` is y or dy. The kernel writes `result`, and `result_v` and `delta` if
 * they are not NULL. */
static tsr_status run(const tsr__attention *c, uint32_t function, const tsr_tensor *y,
                      const tsr_tensor *result, const tsr_tensor *result_v, tsr__buffer *delta)
{
    const bool keys = function == TSR_SHORT_DK_DV, forward = function == TSR_SHORT_Y;
    const tsr_tensor *dx = forward ? result : c->dq;
    const uint32_t lanes = tsr_stream_device(c->stream)->info.subgroup_size;
    const int64_t rows = keys ? c->kv_len : c->q_len, others = keys ? c->q_len : c->kv_len;
    struct tsr_attention_short_push push = {
        .identity = {TSR_IDENTITY_8},
        .own_x = tsr__tensor_address(keys ? c->k : c->q),
        .own_y = tsr__tensor_address(keys ? c->v : y),
        .other_x = tsr__tensor_address(keys ? c->q : c->k),
        .other_y = tsr__tensor_address(keys ? y : c->v),
        .lse = address_of(c->lse),
        .delta = delta ? delta->address : 0,
        .result = tsr__tensor_address(result),
        .result_v = address_of(result_v),
        .x_batch = (uint32_t)tsr__stride_bytes(c->q, 0),
        .x_head = (uint32_t)tsr__stride_bytes(c->q, 1),
        .y_batch = (uint32_t)tsr__stride_bytes(y, 0),
        .y_head = (uint32_t)tsr__stride_bytes(y, 1),
        .dx_batch = (uint32_t)tsr__stride_bytes(dx, 0),
        .dx_head = (uint32_t)tsr__stride_bytes(dx, 1),
        .heads = (uint32_t)c->heads,
        .scale = c->params.scale,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ATTENTION_SHORT,
        .spec_count = 11,
        .spec = {SUBGROUPS * lanes, lanes, (uint32_t)others, (uint32_t)c->head_dim / 4, function,
                 c->params.causal, (uint32_t)(int32_t)(c->kv_len - c->q_len),
                 (uint32_t)tsr__stride_bytes(c->q, 2), (uint32_t)tsr__stride_bytes(y, 2),
                 (uint32_t)tsr__stride_bytes(dx, 2), (uint32_t)rows},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32((uint32_t)rows, SUBGROUPS * lanes), (uint32_t)c->heads,
                   (uint32_t)c->batch},
        .work = (double)(c->batch * c->heads * c->head_dim) * (double)rows * (double)others *
                (forward ? 2
                 : keys  ? 4
                         : 3),
        .access = {tsr__read_of(c->q), tsr__read_of(c->k), tsr__read_of(c->v),
                   tsr__write_of(result)},
        .access_count = 4,
    };
    dispatch.multiply_adds = dispatch.work;
    if (!forward)
        dispatch.access[dispatch.access_count++] = tsr__read_of(y);
    if (result_v)
        dispatch.access[dispatch.access_count++] = tsr__write_of(result_v);
    if (c->lse)
        dispatch.access[dispatch.access_count++] =
            forward ? tsr__write_of(c->lse) : tsr__read_of(c->lse);
    if (delta)
        dispatch.access[dispatch.access_count++] =
            keys ? tsr__read_buffer(delta) : tsr__write_buffer(delta);
    return tsr__stream_dispatch(c->stream, &dispatch);
}

tsr_status tsr__attention_short(const tsr__attention *c)
{
    return run(c, TSR_SHORT_Y, c->y, c->y, NULL, NULL);
}

typedef struct backward_work {
    const tsr__attention *call;
    tsr__buffer *delta;
} backward_work;

static tsr_status record_backward(tsr_stream *stream, void *opaque)
{
    const backward_work *w = opaque;
    const tsr__attention *c = w->call;
    (void)stream;
    TSR__TRY(run(c, TSR_SHORT_DQ, c->dy, c->dq, NULL, w->delta));
    return run(c, TSR_SHORT_DK_DV, c->dy, c->dk, c->dv, w->delta);
}

tsr_status tsr__attention_short_grad(const tsr__attention *c)
{
    backward_work w = {.call = c};
    TSR__TRY(tsr__stream_keep_scratch(c->stream, 4 * (uint64_t)(c->batch * c->heads * c->q_len),
                                      &w.delta));
    tsr_status status = tsr__stream_atomic(c->stream, record_backward, &w);
    tsr__stream_return_scratch(c->stream, w.delta);
    return status;
}
