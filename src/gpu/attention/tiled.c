/* Attention by the kernel for GPUs, attention.comp. */
#include "base/checked.h"
#include "base/error.h"
#include "gpu/attention/call.h"
#include "gpu/device/vendors.h"
#include "gpu/ops/common/rows.h"

#define COLUMNS 64 /* a chunk: columns that the shader processes together */
/* The largest number of chunks of the result of a dispatch, and the same on Intel's GPUs. More need
 * too many registers. */
#define MAX_CHUNKS 4
#define INTEL_CHUNKS 2
#define DELTA_WORKGROUP 64
#define DELTA_ROWS (DELTA_WORKGROUP / 8)
#define SINKS_WORKGROUP 128
#define DELTA_BLOCK (UINT32_C(1) << 28) /* the largest number of rows of a dispatch */

/* The size of a workgroup's tile. shared_bytes() must equal the shared memory that the shader
 * declares. */
typedef struct tile {
    uint32_t threads, tn;
} tile;

static uint32_t rows_of(const tile *t)
{
    return t->threads / 4;
}

static uint32_t shared_bytes(const tile *t)
{
    const uint32_t bx = rows_of(t), by = 16 * t->tn;
    return (bx + by) * (COLUMNS + 4) * 4 + bx * (by + 4) * 4 +
           (2 * t->threads + bx + (bx > by ? bx : by)) * 4;
}

static tile tile_for(const tsr_device *device, int64_t rows)
{
    static const tile tiles[] = {{256, 2}, {128, 2}, {64, 1}};
    for (int i = rows > 32 && !device->traits.few_invocations ? 0 : 1; i < 2; i++)
        if (shared_bytes(&tiles[i]) <= device->info.max_shared_memory_bytes &&
            tiles[i].threads <= device->info.max_workgroup_invocations)
            return tiles[i];
    return tiles[2];
}

static uint32_t dtype_of(const tsr_tensor *tensor)
{
    return tensor ? (uint32_t)tensor->layout.dtype : 0;
}

static uint32_t chunks_of(int64_t columns)
{
    return (uint32_t)(columns + COLUMNS - 1) / COLUMNS;
}

/* True if a pass runs on matrix units. */
static bool by_matrices(const tsr__attention_pass *p)
{
    return tsr__attention_coopmat2_suits(p) || tsr__attention_coopmat_suits(p);
}

static tsr_status run_pass(const tsr__attention_pass *p)
{
    const tsr__attention *c = p->call;
    if (tsr__attention_coopmat2_suits(p))
        return tsr__attention_coopmat2(p);
    if (tsr__attention_coopmat_suits(p))
        return tsr__attention_coopmat(p);
    const tsr_device *device = tsr_stream_device(c->stream);
    const tsr_layout *own = &p->out->layout;
    const tile t = tile_for(device, own->shape[2]);
    uint64_t blocks = tsr__div_up_u64((uint64_t)own->shape[2], rows_of(&t));
    blocks *= (uint64_t)(own->shape[0] * own->shape[1]);
    if (blocks == 0)
        return TSR_OK;
    /* Several dispatches compute equally many chunks, with one pipeline; the last may have chunks
     * past the end. */
    const bool to_delta = p->kind == TSR_ATTENTION_DELTA;
    const uint32_t chunks = to_delta ? 1 : chunks_of(own->shape[3]);
    const uint32_t most_chunks =
        device->info.vendor_id == TSR__VENDOR_INTEL ? INTEL_CHUNKS : MAX_CHUNKS;
    const uint32_t now = (uint32_t)tsr__div_up_u64(chunks, tsr__div_up_u64(chunks, most_chunks));
    struct tsr_attention_push push = {.call = p->description->address,
                                      .quads = TSR_ATTENTION_QUADS};
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ATTENTION,
        .independent_group = p->independent_group,
        .spec_count = 17,
        .spec = {t.threads, t.tn, now, p->kind, dtype_of(c->q), dtype_of(c->k), dtype_of(c->v),
                 dtype_of(c->dy), dtype_of(p->out), dtype_of(c->params.mask),
                 tsr__attention_load(c), tsr__attention_scores_kind(c), c->params.pages != NULL,
                 device->info.vendor_id == TSR__VENDOR_INTEL, device->info.type == TSR_DEVICE_CPU,
                 chunks_of(c->head_dim), chunks_of(c->value_dim)},
    };
    tsr__attention_pass_access(p, &dispatch);
    const double work = tsr__attention_pass_work(p, rows_of(&t));
    const uint64_t most = tsr__attention_within_work(c, work);
    for (; push.first_chunk < chunks; push.first_chunk += now)
        TSR__TRY(tsr__attention_dispatch(c->stream, &dispatch, push, blocks, most, 1, 1, work));
    return TSR_OK;
}

/* Computes delta, one number for each row: Σ dy·y if `from_y`, otherwise the same number as Σ
 * p·dp. */
static tsr_status run_delta(const tsr__attention *c, const tsr__attention_description *d,
                            tsr__buffer *delta, bool from_y)
{
    const uint64_t rows = (uint64_t)(c->batch * c->heads * c->q_len);
    if (!from_y)
        return run_pass(&(tsr__attention_pass){
            .call = c, .description = d, .kind = TSR_ATTENTION_DELTA, .out = c->y, .delta = delta});
    const struct tsr_attention_push push = {.call = d->address};
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ATTENTION_DELTA,
        .spec_count = 3,
        .spec = {DELTA_WORKGROUP, dtype_of(c->y), dtype_of(c->dy)},
        .access_count = 4,
        .access = {d->range, tsr__read_of(c->y), tsr__read_of(c->dy), tsr__write_buffer(delta)},
    };
    return tsr__attention_dispatch(c->stream, &dispatch, push, rows, DELTA_BLOCK, 1, DELTA_ROWS, 0);
}

/* Computes the gradients of the sinks from delta. */
static tsr_status run_sinks(const tsr__attention *c, const tsr__attention_description *d,
                            tsr__buffer *delta)
{
    const struct tsr_attention_push push = {
        .call = d->address,
        .dsinks = tsr__tensor_address(c->params.dsinks),
        .dsinks_step = tsr__stride_bytes(c->params.dsinks, 0),
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ATTENTION_SINKS_GRAD,
        .spec_count = 1,
        .spec = {SINKS_WORKGROUP},
        .access_count = 5,
        .access = {d->range, tsr__read_of(c->params.sinks), tsr__read_of(c->lse),
                   tsr__read_buffer(delta), tsr__write_of(c->params.dsinks)},
    };
    return tsr__attention_dispatch(c->stream, &dispatch, push, (uint64_t)c->heads, DELTA_BLOCK, 1,
                                   1, (double)(c->batch * c->q_len));
}

/* Checks that the numbers of all rows fit 32 bits. */
static tsr_status check_count(const tsr__attention *c)
{
    const uint64_t rows = (uint64_t)(c->batch * c->heads) * (uint64_t)c->q_len;
    TSR__REQUIRE(c->q_len == 0 || rows <= UINT32_MAX,
                 "%s: %lld sequences of %lld heads with %lld queries; at most 2^32 - 1 rows "
                 "are possible",
                 c->op, (long long)c->batch, (long long)c->heads, (long long)c->q_len);
    return TSR_OK;
}

/* Fails if the loops could need too many iterations: lavapipe ends all loops of an invocation
 * after 65535 iterations in total. Kernels for lavapipe compute most calls that need more; this
 * file gets only those with lengths or starts. The count is an upper bound for all loops but
 * those of the last block, for which the limit of 60000 leaves room. */
static tsr_status check_iterations(const tsr__attention *c)
{
    const double most_iterations = 60000, block = 32;
    if (!tsr_stream_device(c->stream)->traits.ends_loops)
        return TSR_OK;
    const int64_t widest = c->head_dim > c->value_dim ? c->head_dim : c->value_dim;
    const int64_t chunks = chunks_of(widest);
    const double product = (double)chunks * 21, sum = (double)chunks * 13 + 17;
    const uint32_t *first = tsr__attention_first_reader(c);
    uint32_t readers = 0;
    for (int64_t g = 0; g < c->kv_heads; g++)
        readers = first[g + 1] - first[g] > readers ? first[g + 1] - first[g] : readers;
    const double queries = (double)c->q_len * readers; /* the queries that read one kv head */
    const double rows = c->dy && queries > (double)c->kv_len ? queries : (double)c->kv_len;
    const double iterations = (rows / block + 1) * ((c->dy ? 2 : 1) * product + sum);
    if (iterations > most_iterations)
        return tsr__fail(TSR_ERR_UNSUPPORTED,
                         "%s: %lld queries of %lld heads and %lld keys, with lengths or starts, "
                         "are too many for one call on %s",
                         c->op, (long long)c->q_len, (long long)c->heads, (long long)c->kv_len,
                         tsr_stream_device(c->stream)->info.name);
    return TSR_OK;
}

typedef struct work {
    const tsr__attention *call;
    tsr__attention_description description;
    tsr__buffer *delta;
} work;

static tsr_status record_forward(tsr_stream *stream, void *opaque)
{
    const work *w = opaque;
    TSR__TRY(tsr__attention_send(stream, &w->description));
    return run_pass(&(tsr__attention_pass){.call = w->call,
                                           .description = &w->description,
                                           .kind = TSR_ATTENTION_FORWARD,
                                           .out = w->call->y});
}

/* Lists the passes of the backward call. One pass computes dk and dv if a kernel can do both. */
static int list_passes(const work *w, tsr__attention_pass passes[3])
{
    const tsr__attention *c = w->call;
    const tsr_tensor *out[] = {c->dq, c->dk, c->dv};
    int count = 0;
    for (uint32_t i = 0; i < 3; i++) {
        tsr__attention_pass pass = {.call = c,
                                    .description = &w->description,
                                    .kind = TSR_ATTENTION_DQ + i,
                                    .out = out[i],
                                    .delta = w->delta};
        tsr__attention_pass both = pass;
        both.kind = TSR_ATTENTION_DKV;
        both.also = c->dv;
        if (i == 1 && c->dk && c->dv && by_matrices(&both)) {
            passes[count++] = both;
            break;
        }
        if (out[i])
            passes[count++] = pass;
    }
    return count;
}

/* True if delta may be computed from y. If y has 16 bits, its rounding errors would show in the
 * gradients, except with the kernels for matrix units, which round ds to 16 bits in any case. */
static bool delta_from_y(const tsr__attention *c, const tsr__attention_pass *passes, int count)
{
    bool matrices = true;
    for (int i = 0; i < count; i++)
        matrices = matrices && by_matrices(&passes[i]);
    return matrices || c->y->layout.dtype == TSR_F32;
}

static tsr_status record_grad(tsr_stream *stream, void *opaque)
{
    const work *w = opaque;
    const tsr__attention *c = w->call;
    tsr__attention_pass passes[3];
    const int count = list_passes(w, passes);
    TSR__TRY(tsr__attention_send(stream, &w->description));
    if (c->dq || c->dk || c->params.dsinks)
        TSR__TRY(run_delta(c, &w->description, w->delta, delta_from_y(c, passes, count)));
    if (c->params.dsinks)
        TSR__TRY(run_sinks(c, &w->description, w->delta));
    /* The results may be views of one tensor, whose ranges of bytes overlap. */
    const uint32_t group = tsr__stream_new_independent_group(stream);
    for (int i = 0; i < count; i++) {
        passes[i].independent_group = group;
        TSR__TRY(run_pass(&passes[i]));
    }
    return TSR_OK;
}

static tsr_status record_sinks_grad(tsr_stream *stream, void *opaque)
{
    const work *w = opaque;
    TSR__TRY(tsr__attention_send(stream, &w->description));
    TSR__TRY(run_delta(w->call, &w->description, w->delta, true));
    return run_sinks(w->call, &w->description, w->delta);
}

tsr_status tsr__attention_tiled(const tsr__attention *call)
{
    work w = {.call = call};
    TSR__TRY(check_count(call));
    TSR__TRY(check_iterations(call));
    TSR__TRY(tsr__attention_describe(call, NULL, 0, &w.description));
    tsr_status status = tsr__stream_atomic(call->stream, record_forward, &w);
    tsr__attention_description_finish(&w.description);
    return status;
}

/* Records the dispatches of `record`, which need delta. */
static tsr_status with_delta(const tsr__attention *call,
                             tsr_status (*record)(tsr_stream *stream, void *opaque))
{
    work w = {.call = call};
    TSR__TRY(check_count(call));
    const uint64_t rows = (uint64_t)(call->batch * call->heads * call->q_len);
    TSR__TRY(tsr__stream_scratch(call->stream, 4 * rows, &w.delta));
    TSR__TRY(tsr__attention_describe(call, w.delta, 0, &w.description));
    tsr_status status = tsr__stream_atomic(call->stream, record, &w);
    tsr__attention_description_finish(&w.description);
    return status;
}

tsr_status tsr__attention_tiled_grad(const tsr__attention *call)
{
    TSR__TRY(check_iterations(call));
    return with_delta(call, record_grad);
}

tsr_status tsr__attention_sinks_grad(const tsr__attention *call)
{
    return with_delta(call, record_sinks_grad);
}
