/* Attention of few queries. attention_few.comp computes ranges of the keys. If there are several
 * ranges, the last workgroup of the dispatch or attention_merge.comp merges their results. */
#include <string.h>

#include "base/checked.h"
#include "gpu/attention/call.h"
#include "gpu/device/vendors.h"
#include "gpu/ops/rope/rope.h"

enum {
    THREADS = 128,
    MAX_ROWS = 8, /* the largest number of queries of a workgroup */
    FEW_QUERIES = 16,
    MAX_SHARED = 128, /* the most heads of a token, with one kv head */
    WIDE = 256,
    /* The smallest number of keys in a range: MIN_KEYS on CPU drivers, GPU_MIN_KEYS on GPUs. On an
     * H200, a range took 16 µs with 80 keys and 34 µs with 210, and merging ranges took 5 µs. */
    MIN_KEYS = 256,
    GPU_MIN_KEYS = 128,
    /* The largest number of keys in a range. The loops of an invocation then need fewer than the
     * 65535 iterations after which lavapipe ends them. */
    MAX_KEYS = 8192,
    MERGE_WORKGROUP = 64,
    /* More counters are not worth sending with each call. */
    MAX_COUNTERS = 2048,
    /* The most loads before the first of them is used. Intel's compiler spills registers of more.
     */
    AHEAD = 8,
    INTEL_AHEAD = 4,
    MAX_NEW = 4, /* the most tokens of a sequence whose keys and values the kernel stores */
};

/* How the work is divided among workgroups. Each workgroup computes some queries for one range of
 * the keys. */
typedef struct cut {
    uint32_t rows;               /* queries of a workgroup */
    uint32_t row_blocks;         /* workgroups for all queries that read a kv head */
    uint32_t range_keys, ranges; /* the number of keys in a range, and of ranges */
    uint64_t groups;             /* workgroups of the call */
} cut;

/* The largest number of queries that read one kv head. */
static uint64_t max_queries(const tsr__attention *c)
{
    const uint32_t *first = tsr__attention_first_reader(c);
    uint32_t most = 0;
    for (int64_t g = 0; g < c->kv_heads; g++)
        if (first[g + 1] - first[g] > most)
            most = first[g + 1] - first[g];
    return most * (uint64_t)c->q_len;
}

static cut cut_of(const tsr__attention *c)
{
    const bool gpu = !tsr_stream_device(c->stream)->traits.few_invocations;
    const uint64_t queries = max_queries(c), enough = gpu ? 512 : 16;
    /* With more columns, more rows need more shared memory than many devices have. */
    const bool few_rows = queries <= MAX_ROWS / 2 || c->head_dim > WIDE;
    cut out = {.rows = few_rows ? MAX_ROWS / 2 : MAX_ROWS};
    out.row_blocks = (uint32_t)tsr__div_up_u64(queries, out.rows);
    const uint64_t groups = out.row_blocks * (uint64_t)(c->kv_heads * c->batch);
    const uint64_t kv_len = c->kv_len > 0 ? (uint64_t)c->kv_len : 1;
    uint64_t keys = tsr__div_up_u64(kv_len, tsr__div_up_u64(enough, groups));
    const uint64_t least = gpu ? GPU_MIN_KEYS : MIN_KEYS;
    keys = keys < least ? least : keys > MAX_KEYS ? MAX_KEYS : keys;
    out.range_keys = (uint32_t)(tsr__div_up_u64(keys, THREADS) * THREADS);
    out.ranges = (uint32_t)tsr__div_up_u64(kv_len, out.range_keys);
    out.groups = groups * out.ranges;
    return out;
}

uint32_t tsr__attention_part_floats(const tsr__attention *call)
{
    return TSR_ATTENTION_PART_FLOATS((uint32_t)call->value_dim);
}

static uint64_t rows_of(const tsr__attention *c)
{
    return (uint64_t)(c->batch * c->heads * c->q_len);
}

static uint32_t quads_of(int64_t columns)
{
    uint32_t quads = 1;
    while ((int64_t)quads * 4 < columns)
        quads *= 2;
    return quads;
}

static uint32_t rope_of(const tsr__attention *c)
{
    if (!c->rope)
        return TSR_ATTENTION_ROPE_NONE;
    return tsr__rope_params_of(c->rope)->pairing == TSR_ROPE_ADJACENT ? TSR_ATTENTION_ROPE_ADJACENT
                                                                      : TSR_ATTENTION_ROPE_HALVES;
}

/* The specialization constants of attention_few.comp. */
enum { SPEC_LANES = 17, SPECS = 19 };

/* Specializes the kernel. `ranges` is whether there are several, and `joined` whether the kernel
 * merges them. `lanes` invocations share a key. */
static void specialize_for(const tsr__attention *c, bool ranges, bool joined, uint32_t lanes,
                           tsr__dispatch *dispatch)
{
    const tsr_attention_params *p = &c->params;
    const tsr_device *device = tsr_stream_device(c->stream);
    const uint32_t spec[SPECS] = {
        THREADS,
        cut_of(c).rows,
        quads_of(c->head_dim),
        (uint32_t)c->q->layout.dtype,
        (uint32_t)c->k->layout.dtype,
        (uint32_t)c->v->layout.dtype,
        p->mask ? (uint32_t)p->mask->layout.dtype : 0,
        tsr__attention_load(c),
        tsr__attention_scores_kind(c),
        p->pages != NULL,
        ranges && !joined ? 0 : (uint32_t)c->y->layout.dtype,
        device->traits.slow_pipelines,
        device->info.type == TSR_DEVICE_CPU,
        quads_of(c->value_dim),
        ranges && joined,
        c->new_k ? (uint32_t)c->q_len : 0,
        rope_of(c),
        lanes,
        device->info.vendor_id == TSR__VENDOR_INTEL ? INTEL_AHEAD : AHEAD,
    };
    dispatch->shader = TSR__SHADER_ATTENTION_FEW;
    dispatch->spec_count = SPECS;
    memcpy(dispatch->spec, spec, sizeof spec);
}

/* The same, with the quads of subgroups if the device has them and that form of the kernel has
 * passed its self-test. A call with lse gets the bits that the backward pass computes again.
 * Intel's compiler spills registers of that form. */
static void specialize(const tsr__attention *c, bool ranges, bool joined, tsr__dispatch *dispatch)
{
    tsr_device *device = tsr_stream_device(c->stream);

    if (device->subgroup_quads && device->info.vendor_id != TSR__VENDOR_INTEL &&
        !device->traits.few_invocations && !c->lse && quads_of(c->head_dim) >= 8) {
        specialize_for(c, ranges, joined, 4, dispatch);
        if (tsr__shader_admitted(device, dispatch->shader, dispatch->spec, dispatch->spec_count))
            return;
    }
    specialize_for(c, ranges, joined, 1, dispatch);
}

static bool admitted(const tsr__attention *c, bool ranges, bool joined)
{
    tsr__dispatch dispatch = {0};
    specialize(c, ranges, joined, &dispatch);
    return tsr__shader_admitted(tsr_stream_device(c->stream), dispatch.shader, dispatch.spec,
                                dispatch.spec_count);
}

/* The number of blocks of queries, each of which has a counter if the kernel merges ranges. */
static uint64_t blocks_of(const cut *how)
{
    return how->groups / how->ranges;
}

/* True if the kernel can merge ranges, and is the fastest way. */
static bool joins(const tsr__attention *c, const cut *how)
{
    const tsr_device *device = tsr_stream_device(c->stream);
    return !device->traits.few_invocations && !device->isolates_workgroups &&
           blocks_of(how) <= MAX_COUNTERS && admitted(c, true, true);
}

/* True unless one of the kernels has failed its self-test. */
static bool kernels_admitted(const tsr__attention *c, const cut *how)
{
    const uint32_t merge[] = {MERGE_WORKGROUP, (uint32_t)c->y->layout.dtype};
    if (how->ranges == 1)
        return admitted(c, false, false);
    return joins(c, how) || (admitted(c, true, false) &&
                             tsr__shader_admitted(tsr_stream_device(c->stream),
                                                  TSR__SHADER_ATTENTION_MERGE, merge, 2));
}

/* The bytes of shared memory that the kernel declares. */
static uint64_t shared_bytes(const tsr__attention *c)
{
    const uint64_t rows = cut_of(c).rows, news = c->new_k ? (uint64_t)c->q_len : 0,
                   quads = quads_of(c->head_dim), v_quads = quads_of(c->value_dim);
    return 16 * (rows * quads + THREADS + tsr__max_u64(news * (quads + v_quads), 1)) +
           4 * ((rows + 2) * THREADS + rows + tsr__max_u64(news * rows, 1) + 1);
}

/* True for one token of each sequence whose heads read the same keys on a GPU. attention.comp reads
 * these keys once for each head, in a tile of which one row is used, and does not divide them; this
 * kernel reads them once for each block of rows. */
static bool is_shared_token(const tsr__attention *c)
{
    return !tsr_stream_device(c->stream)->traits.few_invocations && c->q_len == 1 &&
           max_queries(c) <= MAX_SHARED;
}

bool tsr__attention_few_suit(const tsr__attention *c)
{
    const tsr_device *device = tsr_stream_device(c->stream);
    const cut how = cut_of(c);
    const bool few = max_queries(c) <= FEW_QUERIES || is_shared_token(c);
    const bool loops_end = device->traits.ends_loops && c->kv_len > MAX_KEYS;
    return !c->params.starts && (few || loops_end) && how.groups <= UINT32_MAX &&
           rows_of(c) <= UINT32_MAX / how.ranges &&
           device->info.max_workgroup_invocations >= THREADS && quads_of(c->value_dim) <= THREADS &&
           shared_bytes(c) <= device->info.max_shared_memory_bytes && kernels_admitted(c, &how);
}

static bool all_heads_are_read(const tsr__attention *c)
{
    const uint32_t *first = tsr__attention_first_reader(c);
    for (int64_t g = 0; g < c->kv_heads; g++)
        if (first[g] == first[g + 1])
            return false;
    return true;
}

bool tsr__attention_few_append_suits(const tsr__attention *c)
{
    const tsr_device *device = tsr_stream_device(c->stream);
    const tsr_dtype dtype = c->q->layout.dtype;
    return !device->traits.few_invocations && c->q_len <= MAX_NEW && !c->lse &&
           c->new_k->layout.dtype == dtype && c->new_v->layout.dtype == dtype &&
           c->head_dim % 8 == 0 && c->value_dim % 4 == 0 &&
           (!c->rope || tsr__rope_params_of(c->rope)->rotary_dim == c->head_dim) &&
           tsr__attention_load(c) != TSR_ATTENTION_LOAD_SCALAR && all_heads_are_read(c) &&
           tsr__attention_few_suit(c);
}

typedef struct few {
    const tsr__attention *call;
    tsr__attention_description description;
    tsr__buffer *partial; /* the results of ranges; NULL if one range has all keys */
    cut cut;
    bool joined; /* the kernel merges the ranges */
} few;

static struct tsr_attention_push push_of(const few *f)
{
    return (struct tsr_attention_push){
        .call = f->description.address,
        .partial = f->partial ? f->partial->address : 0,
        .counters = f->description.counters,
        .part_keys = f->cut.range_keys,
        .parts = f->cut.ranges,
        .quads = THREADS,
        .row_blocks = f->cut.row_blocks,
    };
}

static tsr_status run_parts(const few *f)
{
    const tsr__attention *c = f->call;
    tsr__dispatch dispatch = {0};
    specialize(c, f->partial != NULL, f->joined, &dispatch);
    int count = tsr__attention_reads(c, &f->description, dispatch.access);
    dispatch.access[0].write = f->joined; /* the counters */
    if (f->partial)
        dispatch.access[count++] = tsr__write_buffer(f->partial);
    if (!f->partial || f->joined)
        dispatch.access[count++] = tsr__write_of(c->y);
    if ((!f->partial || f->joined) && c->lse)
        dispatch.access[count++] = tsr__write_of(c->lse);
    dispatch.access_count = count;
    dispatch.read_bytes = tsr__attention_read_bytes(c);
    if (f->partial)
        dispatch.written_bytes =
            4.0 * (double)(rows_of(c) * f->cut.ranges) * (double)tsr__attention_part_floats(c);
    else if (c->new_k) /* a small part of the cache */
        dispatch.written_bytes =
            (double)rows_of(c) * (double)c->value_dim * (double)tsr_dtype_size(c->y->layout.dtype);
    /* each query of the workgroup is multiplied with the keys of its range, and with their values
     */
    const double work =
        1.0 * f->cut.rows * f->cut.range_keys * (double)(c->head_dim + c->value_dim);
    const uint64_t at_once = tsr__min_u64(UINT64_C(1) << 18, tsr__attention_within_work(c, work));
    return tsr__attention_dispatch(c->stream, &dispatch, push_of(f), f->cut.groups, at_once, 1, 1,
                                   work);
}

tsr_status tsr__attention_merge(const tsr__attention *c,
                                const tsr__attention_description *description, tsr__buffer *partial,
                                uint32_t ranges)
{
    const struct tsr_attention_push push = {
        .call = description->address, .partial = partial->address, .parts = ranges};
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ATTENTION_MERGE,
        .spec_count = 2,
        .spec = {MERGE_WORKGROUP, (uint32_t)c->y->layout.dtype},
        .access_count = 3,
        .access = {description->range, tsr__read_buffer(partial), tsr__write_of(c->y)},
    };
    dispatch.read_bytes =
        4.0 * (double)(rows_of(c) * ranges) * (double)tsr__attention_part_floats(c);
    if (c->params.sinks)
        dispatch.access[dispatch.access_count++] = tsr__read_of(c->params.sinks);
    if (c->lse)
        dispatch.access[dispatch.access_count++] = tsr__write_of(c->lse);
    const uint64_t at_once = UINT64_C(1) << 22;
    return tsr__attention_dispatch(c->stream, &dispatch, push, rows_of(c), at_once,
                                   (uint32_t)(c->value_dim + 3) / 4, MERGE_WORKGROUP, 0);
}

static tsr_status record(tsr_stream *stream, void *opaque)
{
    const few *f = opaque;
    TSR__TRY(tsr__attention_send(stream, &f->description));
    TSR__TRY(run_parts(f));
    return f->partial && !f->joined
               ? tsr__attention_merge(f->call, &f->description, f->partial, f->cut.ranges)
               : TSR_OK;
}

tsr_status tsr__attention_few(const tsr__attention *call)
{
    few f = {.call = call, .cut = cut_of(call)};
    const uint64_t results = rows_of(call) * f.cut.ranges;
    f.joined = f.cut.ranges > 1 && joins(call, &f.cut);
    if (f.cut.ranges > 1)
        TSR__TRY(tsr__stream_scratch(call->stream, 4 * results * tsr__attention_part_floats(call),
                                     &f.partial));
    TSR__TRY(tsr__attention_describe(call, NULL, f.joined ? (uint32_t)blocks_of(&f.cut) : 0,
                                     &f.description));
    tsr_status status = tsr__stream_atomic(call->stream, record, &f);
    tsr__attention_description_finish(&f.description);
    return status;
}
