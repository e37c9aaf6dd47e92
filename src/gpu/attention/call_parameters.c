/* Writes the parameters of a call to device memory, and records the dispatches that read them. */
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "gpu/attention/call.h"
#include "gpu/ops/rope/rope.h"

/* means "no window": it exceeds every distance between a query and a key */
#define NO_WINDOW (UINT32_C(1) << 31)

static struct tsr_attention_operand operand_of(const tsr_tensor *tensor, const tsr_layout *layout)
{
    struct tsr_attention_operand operand = {0};
    if (!tensor)
        return operand;
    const tsr_dtype dtype = layout->dtype;
    operand.at = tensor->buffer->address + tsr__dtype_bytes(dtype, (uint64_t)layout->offset);
    operand.batch = tsr__dtype_bytes(dtype, (uint64_t)layout->strides[0]);
    operand.head = tsr__dtype_bytes(dtype, (uint64_t)layout->strides[1]);
    operand.row = tsr__dtype_bytes(dtype, (uint64_t)layout->strides[2]);
    /* of blocks, which have no stride between columns, it is 0 and not used */
    operand.column = layout->ndim > 3 ? tsr__dtype_bytes(dtype, (uint64_t)layout->strides[3]) : 0;
    return operand;
}

static struct tsr_attention_operand operand(const tsr_tensor *tensor)
{
    return operand_of(tensor, tensor ? &tensor->layout : NULL);
}

static void set_list(uint64_t *at, uint64_t *step, const tsr_tensor *tensor)
{
    if (!tensor)
        return;
    const struct tsr_layout *layout = &tensor->layout;
    *at = tsr__tensor_address(tensor);
    *step = (uint64_t)layout->strides[0] * tsr_dtype_size(layout->dtype);
}

static struct tsr_attention_call values_of(const tsr__attention *c, const tsr__buffer *delta)
{
    const tsr_attention_params *p = &c->params;
    struct tsr_attention_call values = {
        .q = operand(c->q),
        .k = operand(c->k),
        .v = operand(c->v),
        .y = operand(c->y),
        .dy = operand(c->dy),
        .dq = operand(c->dq),
        .dk = operand(c->dk),
        .dv = operand(c->dv),
        .mask = operand_of(p->mask, &c->mask),
        .lse = operand(c->lse),
        .new_k = operand(c->new_k),
        .new_v = operand(c->new_v),
        .batch = (uint32_t)c->batch,
        .heads = (uint32_t)c->heads,
        .kv_heads = (uint32_t)c->kv_heads,
        .q_len = (uint32_t)c->q_len,
        .kv_len = (uint32_t)c->kv_len,
        .head_dim = (uint32_t)c->head_dim,
        .value_dim = (uint32_t)c->value_dim,
        .page_len = (uint32_t)c->page_len,
        .page_count = (uint32_t)c->page_count,
        .causal = p->causal,
        .window = p->window > 0 && p->window < NO_WINDOW ? (uint32_t)p->window : NO_WINDOW,
        .scale = p->scale,
        .softcap = p->softcap,
        .temperature = p->temperature,
        .temperature_length = (uint32_t)p->temperature_length,
    };
    if (c->rope) {
        values.rope_table = tsr__tensor_address(tsr__rope_table(c->rope));
        values.rope_scale = (float)tsr__rope_params_of(c->rope)->attention_factor;
    }
    if (delta)
        values.delta = (struct tsr_attention_operand){
            .at = delta->address,
            .batch = 4 * (uint64_t)c->heads * (uint64_t)c->q_len,
            .head = 4 * (uint64_t)c->q_len,
            .row = 4,
        };
    set_list(&values.q_lengths, &values.q_lengths_step, p->q_lengths);
    set_list(&values.kv_lengths, &values.kv_lengths_step, p->kv_lengths);
    set_list(&values.sinks, &values.sinks_step, p->sinks);
    set_list(&values.starts, &values.starts_batch, p->starts);
    if (p->starts)
        values.starts_row = 4 * (uint64_t)p->starts->layout.strides[1];
    set_list(&values.pages, &values.pages_batch, p->pages);
    if (p->pages)
        values.pages_row = 4 * (uint64_t)p->pages->layout.strides[1];
    return values;
}

/* Reserves device memory for d->bytes. If the host can write it, copies the bytes and frees
 * them. */
static tsr_status place(tsr_stream *stream, uint64_t size, tsr__attention_description *d)
{
    tsr__buffer *scratch;
    TSR__TRY(tsr__stream_post(stream, d->bytes, size, &d->range));
    if (d->range.buffer) {
        tsr__free(d->bytes);
        d->bytes = NULL;
    } else {
        TSR__TRY(tsr__stream_scratch(stream, size, &scratch));
        d->range = (tsr__access){scratch, 0, size, false};
    }
    d->address = tsr__access_address(d->range);
    return TSR_OK;
}

tsr_status tsr__attention_describe(const tsr__attention *call, const tsr__buffer *delta,
                                   uint32_t counters, tsr__attention_description *out)
{
    const struct tsr_attention_call values = values_of(call, delta);
    const size_t table = (2 * (size_t)call->heads + (size_t)call->kv_heads + 1) * 4;
    const uint64_t size = sizeof values + table + 4 * (uint64_t)counters;
    tsr__attention_description d = {.bytes = tsr__calloc(1, size)};
    if (!d.bytes)
        return TSR_ERR_NO_MEMORY;
    memcpy(d.bytes, &values, sizeof values);
    memcpy((char *)d.bytes + sizeof values, call->table, table);
    const tsr_status status = place(call->stream, size, &d);
    if (status != TSR_OK) {
        tsr__free(d.bytes);
        return status;
    }
    d.counters = d.address + sizeof values + table;
    *out = d;
    return TSR_OK;
}

void tsr__attention_description_finish(tsr__attention_description *description)
{
    tsr__free(description->bytes);
    description->bytes = NULL;
}

int tsr__attention_reads(const tsr__attention *call, const tsr__attention_description *description,
                         tsr__access *access)
{
    const tsr_attention_params *p = &call->params;
    const tsr_tensor *read[] = {call->q,
                                call->dy,
                                p->mask,
                                p->q_lengths,
                                p->kv_lengths,
                                p->pages,
                                p->sinks,
                                p->starts,
                                call->new_k,
                                call->new_v,
                                call->rope ? tsr__rope_table(call->rope) : NULL};
    int count = 0;
    access[count++] = description->range;
    access[count++] = call->new_k ? tsr__write_of(call->k) : tsr__read_of(call->k);
    access[count++] = call->new_v ? tsr__write_of(call->v) : tsr__read_of(call->v);
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        if (read[i])
            access[count++] = tsr__read_of(read[i]);
    return count;
}

static double bytes_of(const tsr_tensor *tensor)
{
    return (double)tsr_layout_count(&tensor->layout) * (double)tsr_dtype_size(tensor->layout.dtype);
}

double tsr__attention_read_bytes(const tsr__attention *c)
{
    const double keys = (double)(c->batch * c->kv_heads * c->kv_len);
    const tsr_tensor *mask = c->params.mask;
    return bytes_of(c->q) + (mask ? bytes_of(mask) : 0) +
           keys * (double)(tsr__dtype_bytes(c->k->layout.dtype, (uint64_t)c->head_dim) +
                           tsr__dtype_bytes(c->v->layout.dtype, (uint64_t)c->value_dim));
}

double tsr__attention_pass_work(const tsr__attention_pass *pass, uint32_t rows)
{
    const tsr__attention *c = pass->call;
    const uint32_t kind = pass->kind;
    const bool owns_keys =
        kind == TSR_ATTENTION_DK || kind == TSR_ATTENTION_DV || kind == TSR_ATTENTION_DKV;
    const double readers =
        owns_keys ? (double)c->heads / (double)c->kv_heads * (double)c->q_len : (double)c->kv_len;
    const double of_qk = (double)c->head_dim, of_v = (double)c->value_dim;
    const double columns = kind == TSR_ATTENTION_FORWARD || kind == TSR_ATTENTION_DV ? of_qk + of_v
                           : kind == TSR_ATTENTION_DKV ? 2 * (of_qk + of_v)
                                                       : 2 * of_qk + of_v;
    return (double)rows * readers * columns;
}

void tsr__attention_pass_access(const tsr__attention_pass *pass, tsr__dispatch *dispatch)
{
    const tsr__attention *c = pass->call;
    const bool to_delta = pass->kind == TSR_ATTENTION_DELTA;
    int count = tsr__attention_reads(c, pass->description, dispatch->access);
    if (!to_delta)
        dispatch->access[count++] = tsr__write_of(pass->out);
    if (pass->also)
        dispatch->access[count++] = tsr__write_of(pass->also);
    if (c->lse)
        dispatch->access[count++] = c->dy ? tsr__read_of(c->lse) : tsr__write_of(c->lse);
    if (pass->delta)
        dispatch->access[count++] =
            to_delta ? tsr__write_buffer(pass->delta) : tsr__read_buffer(pass->delta);
    dispatch->access_count = count;
    dispatch->read_bytes = c->params.pages ? tsr__attention_read_bytes(c) : 0;
}

tsr_status tsr__attention_send(tsr_stream *stream, const tsr__attention_description *description)
{
    tsr__access access = description->range;
    if (!description->bytes)
        return TSR_OK;
    access.write = true;
    return tsr__stream_update(stream, access, description->bytes);
}

uint64_t tsr__attention_within_work(const tsr__attention *c, double work)
{
    const double most = tsr_stream_device(c->stream)->work_limit / (work + 1);
    return most < 1 ? 1 : most > 0x1p30 ? UINT64_C(1) << 30 : (uint64_t)most;
}

tsr_status tsr__attention_dispatch(tsr_stream *stream, tsr__dispatch *dispatch,
                                   struct tsr_attention_push push, uint64_t count, uint64_t at_once,
                                   uint32_t invocations, uint32_t workgroup, double work)
{
    dispatch->push = &push;
    dispatch->push_bytes = sizeof push;
    const uint32_t group = dispatch->independent_group;
    if (group == 0)
        dispatch->independent_group = tsr__stream_new_independent_group(stream);
    for (uint64_t first = 0; first < count; first += at_once) {
        const uint64_t now = tsr__min_u64(count - first, at_once);
        push.first = (uint32_t)first;
        push.count = (uint32_t)(now * invocations);
        dispatch->work = dispatch->multiply_adds = work * (double)now;
        tsr__groups_for(now * invocations, workgroup, dispatch->groups);
        TSR__TRY(tsr__stream_dispatch(stream, dispatch));
    }
    dispatch->independent_group = group;
    return TSR_OK;
}

tsr_status tsr__attention_pass_dispatch(const tsr__attention_pass *pass, tsr__dispatch *dispatch,
                                        uint32_t rows)
{
    const tsr__attention *c = pass->call;
    const tsr_layout *own = &pass->out->layout;
    const uint64_t blocks =
        tsr__div_up_u64((uint64_t)own->shape[2], rows) * (uint64_t)(own->shape[0] * own->shape[1]);
    const struct tsr_attention_push push = {.call = pass->description->address};
    const double work = tsr__attention_pass_work(pass, rows);
    dispatch->independent_group = pass->independent_group;
    tsr__attention_pass_access(pass, dispatch);
    return tsr__attention_dispatch(c->stream, dispatch, push, blocks,
                                   tsr__attention_within_work(c, work), 1, 1, work);
}

/* True if all rows of x consist of groups of four neighbouring elements, and begin at multiples of
 * `bytes`, or if x has blocks, which kernels load in one way only. */
static bool vectors(const tsr_tensor *x, uint64_t bytes)
{
    if (tsr__dtype_is_block(x->layout.dtype))
        return true;
    const tsr_layout *l = &x->layout;
    const uint64_t size = tsr_dtype_size(l->dtype);
    bool fits = l->strides[3] == 1 || l->shape[3] == 1;
    for (int d = 0; d < 3; d++)
        fits = fits && ((uint64_t)l->strides[d] * size % bytes == 0 || l->shape[d] == 1);
    return fits && l->shape[3] % 4 == 0 && tsr__tensor_address(x) % bytes == 0;
}

static bool all_vectors(const tsr__attention *c, uint64_t bytes)
{
    return vectors(c->q, bytes) && vectors(c->k, bytes) && vectors(c->v, bytes) &&
           (!c->dy || vectors(c->dy, bytes)) && (!c->new_k || vectors(c->new_k, bytes)) &&
           (!c->new_v || vectors(c->new_v, bytes));
}

uint32_t tsr__attention_scores_kind(const tsr__attention *c)
{
    return (c->params.softcap > 0 ? TSR_ATTENTION_CAPPED : 0) |
           (c->params.temperature != 0 ? TSR_ATTENTION_TEMPERED : 0) |
           (c->params.starts ? TSR_ATTENTION_STARTS : 0);
}

uint32_t tsr__attention_load(const tsr__attention *c)
{
    /* CPU drivers load as fast without the promise, which would only need further pipelines. */
    if (!tsr_stream_device(c->stream)->traits.few_invocations && all_vectors(c, 16))
        return TSR_ATTENTION_LOAD_ALIGNED;
    return all_vectors(c, 4) ? TSR_ATTENTION_LOAD_VECTOR : TSR_ATTENTION_LOAD_SCALAR;
}
