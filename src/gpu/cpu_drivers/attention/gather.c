#include "gpu/cpu_drivers/attention/gather.h"

#include "base/checked.h"
#include "gpu/cpu_drivers/attention/scores.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "gpu/ops/common/rows.h"
#include "shaders/params/attention_gather.h"
#include "shaders/params/vectors.h"

enum {
    SUBGROUPS = 8, /* the number of subgroups per workgroup, at most the length of identity[]
                      (lavapipe.glsl) */
    MAX_GROUPS = 65535,
    /* Shaders split an index into digits of this many bits and look each up in identity[], so that
     * the driver's compiler takes the index for the same in all lanes (lavapipe.glsl). */
    DIGIT_BITS = 3,
};

/* Returns the largest alignment, up to 8 bytes, that all loads from x have. */
static uint32_t alignment_of(const tsr_tensor *x, int64_t unit)
{
    const tsr_layout *l = &x->layout;
    uint64_t bits =
        tsr__tensor_address(x) | (uint64_t)(l->shape[3] - unit) * tsr_dtype_size(l->dtype);
    for (int d = 0; d < 3; d++)
        bits |= l->shape[d] > 1 ? tsr__stride_bytes(x, d) : 0;
    return tsr__vectors_common(bits);
}

/* Rows of blocks are loaded in a way of their own, which needs no more than blocks have. */
static bool rows_suit(const tsr__attention *c, const tsr_tensor *x)
{
    const tsr_device *device = tsr_stream_device(c->stream);
    const int64_t unit = tsr__attention_scores_unit(device);
    const tsr_layout *l = &x->layout;
    if (l->strides[3] != 1 || l->shape[3] < unit)
        return false;
    for (int d = 0; d < 3; d++)
        if (tsr__stride_bytes(x, d) > UINT32_MAX)
            return false;
    return tsr__dtype_is_block(l->dtype) ||
           alignment_of(x, unit) >= tsr__vectors_least_alignment(device);
}

/* Whether a list of one number per sequence is without gaps. */
static bool list_suits(const tsr_tensor *list)
{
    return !list || list->layout.shape[0] == 1 || list->layout.strides[0] == 1;
}

bool tsr__attention_gather_suits(const tsr__attention *c)
{
    const tsr_tensor *pages = c->params.pages;
    if (pages && ((pages->layout.strides[1] != 1 && pages->layout.shape[1] > 1) ||
                  tsr__stride_bytes(pages, 0) > UINT32_MAX))
        return false;
    /* Calls with an lse are followed by a backward call, which recomputes the scores with the
     * kernel for GPUs. If this kernel added the sums in another order, the errors of both would add
     * up. */
    if (c->dy || (c->lse && !pages))
        return false;
    return c->kv_len > 0 && c->kv_len <= (int64_t)SUBGROUPS * MAX_GROUPS &&
           c->batch <= MAX_GROUPS && list_suits(c->params.q_lengths) &&
           list_suits(c->params.kv_lengths) && rows_suit(c, c->k) && rows_suit(c, c->v);
}

static uint64_t address_of(const tsr_tensor *list, int64_t first)
{
    return list ? tsr__tensor_address(list) + 4 * (uint64_t)(first * list->layout.strides[0]) : 0;
}

tsr_status tsr__attention_gather(const tsr__attention *c, const tsr__attention_slice *slice,
                                 const tsr_tensor *x, int64_t line, tsr__buffer *to,
                                 tsr__buffer *lengths)
{
    const tsr_attention_params *p = &c->params;
    const tsr_device *device = tsr_stream_device(c->stream);
    const uint32_t lanes = device->info.subgroup_size;
    const uint64_t outer = tsr__stride_bytes(x, 0), head = tsr__stride_bytes(x, 1);
    struct tsr_attention_gather_push push = {
        .identity = {TSR_IDENTITY_8},
        .from = tsr__tensor_address(x) + (uint64_t)slice->kv_head * head +
                (p->pages ? 0 : (uint64_t)slice->batch * outer),
        .to = to->address,
        .lengths = lengths ? lengths->address : 0,
        .q_lengths = address_of(p->q_lengths, slice->batch),
        .kv_lengths = address_of(p->kv_lengths, slice->batch),
        .pages = address_of(p->pages, slice->batch),
        .outer_stride = (uint32_t)outer,
        .head_stride = (uint32_t)head,
        .row_stride = (uint32_t)tsr__stride_bytes(x, 2),
        .pages_stride = p->pages ? (uint32_t)tsr__stride_bytes(p->pages, 0) : 0,
        .heads = (uint32_t)slice->kv_heads,
        .q_len = (uint32_t)c->q_len,
        .kv_len = (uint32_t)c->kv_len,
        .page_len = (uint32_t)c->page_len,
        .page_count = (uint32_t)c->page_count,
    };
    if (p->pages)
        tsr__walk_divisor(push.page_len, &push.page_magic, &push.page_shift);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ATTENTION_GATHER,
        .spec_count = 8,
        .spec = {SUBGROUPS * lanes, lanes, (uint32_t)x->layout.shape[3], (uint32_t)line,
                 (uint32_t)x->layout.dtype, alignment_of(x, tsr__attention_scores_unit(device)),
                 (p->pages ? TSR_GATHER_PAGES : 0) | (p->q_lengths ? TSR_GATHER_Q_LENGTHS : 0) |
                     (p->kv_lengths ? TSR_GATHER_KV_LENGTHS : 0),
                 p->pages ? tsr__vectors_digits((uint32_t)c->page_count - 1, DIGIT_BITS) : 0},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32((uint32_t)c->kv_len, SUBGROUPS), (uint32_t)slice->kv_heads,
                   (uint32_t)slice->batches},
        .access = {tsr__read_of(x), tsr__write_buffer(to)},
        .access_count = 2,
    };
    const tsr_tensor *lists[] = {p->q_lengths, p->kv_lengths, p->pages};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (lists[i])
            dispatch.access[dispatch.access_count++] = tsr__read_of(lists[i]);
    if (lengths)
        dispatch.access[dispatch.access_count++] = tsr__write_buffer(lengths);
    return tsr__stream_dispatch(c->stream, &dispatch);
}
