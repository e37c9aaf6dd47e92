/* Attention as matrix products; kernels.h describes the method. A slice is a group of heads that
 * are computed together (blocks.h). A block is some queries of a slice's heads, some keys of its kv
 * heads, or the scores of both. The readers of a kv head are the heads that read it. A copy in
 * which rows of different pages or lengths are next to each other is called gathered (gather.h). */
#include "gpu/cpu_drivers/attention/kernels.h"

#include <math.h>

#include "base/error.h"
#include "gpu/cpu_drivers/attention/gather.h"
#include "gpu/cpu_drivers/attention/scores.h"
#include "gpu/cpu_drivers/matmul/plan.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "tessera/matmul.h"
#include "tessera/ops.h"

enum {
    /* The largest number of scores in a block. A block of this size stays in the last-level cache.
     * The backward call has two blocks of half this size. */
    MAX_SCORES = 1 << 22,
    /* With fewer multiply-adds, starting the dispatches takes more time than the work. */
    MIN_WORK = 1 << 16,
    /* The same for keys in pages: the kernels for GPUs, whose invocations wait for each other after
     * each page, are slower on these drivers. */
    MIN_PAGED_WORK = 1 << 10,
    /* The largest number of elements in a copy of the keys or values of a slice, if it has several
     * heads. */
    MAX_COPIED = 1 << 20,
    /* With fewer queries or keys, transposing keys and values takes more time than it saves. */
    MIN_QUERIES = 128,
    MIN_KEYS = 256,
    KEPT = 12,
};

typedef struct work {
    const tsr__attention *call;
    tsr__attention_blocks blocks;
    tsr__attention_slice slice;
    int64_t unit;
    /* Elements from one row to the next in copies and sums of keys, and in those of values. */
    int64_t k_columns, y_columns;
    /* The keys and values of the slice as products read them: the caller's tensors, or the copies
     * in k_gathered and v_gathered, which are f32 [batches, kv_heads, kv_len, k_columns or
     * y_columns]. */
    tsr_tensor k, v;
    tsr__buffer *k_gathered, *v_gathered; /* NULL for the caller's tensors */
    /* i32 [batches, 2]: the numbers of queries and keys of each sequence. NULL if all sequences
     * have q_len and kv_len. */
    tsr__buffer *lengths;
    /* Transposed copies of the slice's keys and values: f32 [batches, kv_heads, head_dim, kv_len],
     * with `line` elements from one line to the next. Products read them without making copies of
     * their own. NULL if transposing takes more time than it saves. */
    tsr__buffer *k_transposed, *v_transposed;
    int64_t line;
    tsr__buffer *kept[KEPT]; /* the scratch buffers that are given back at the end */
    int kept_count;
    tsr__buffer *scores, *gradient, *mask, *state;
    /* f32 sums of y or dq for a block of queries; NULL if they are not needed */
    tsr__buffer *sums;
    tsr__buffer *delta; /* Σ dy·y for each query of the block, in the backward call */
    /* [batch, heads, q_len] without gaps: the caller's tensor, or scratch memory */
    tsr_tensor lse;
    /* f32 sums, in the caller's tensors or in scratch memory. They have no buffer if the caller
     * does not need the gradient. */
    tsr_tensor dk, dv;
    int64_t row, rows; /* the current block of queries */
} work;

/* Scratch ------------------------------------------------------------------------------------ */

static tsr_status keep(work *w, uint64_t elements, tsr__buffer **out)
{
    TSR__TRY(tsr__stream_keep_scratch(w->call->stream, 4 * elements, out));
    w->kept[w->kept_count++] = *out;
    return TSR_OK;
}

static void give_back(work *w)
{
    for (int i = 0; i < w->kept_count; i++)
        tsr__stream_return_scratch(w->call->stream, w->kept[i]);
}

/* Sets `out` to the tensor itself if it is f32, and has no gaps if `dense` is set. Otherwise sets
 * `out` to f32 scratch memory of the same shape. */
static tsr_status keep_f32(work *w, const tsr_tensor *tensor, bool dense, tsr_tensor *out)
{
    if (tensor->layout.dtype == TSR_F32 && (!dense || tsr_layout_is_contiguous(&tensor->layout))) {
        *out = *tensor;
        return TSR_OK;
    }
    const tsr_layout *like = &tensor->layout;
    TSR__TRY(tsr_layout_init(TSR_F32, like->ndim, like->shape, &out->layout));
    return keep(w, (uint64_t)tsr_layout_count(like), &out->buffer);
}

/* Views -------------------------------------------------------------------------------------- */

/* Returns a view of x: the rows of the current block of queries in the slice's heads, [batches,
 * kv_heads, readers, rows, head_dim]. */
static tsr_tensor queries(const work *w, const tsr_tensor *x)
{
    const tsr__attention_slice *s = &w->slice;
    const tsr_layout *l = &x->layout;
    const tsr_layout view = {
        .dtype = l->dtype,
        .ndim = 5,
        .shape = {s->batches, s->kv_heads, s->readers, w->rows, l->shape[3]},
        .strides = {l->strides[0], l->strides[1] * s->step, l->strides[1], l->strides[2],
                    l->strides[3]},
        .offset =
            l->offset + s->batch * l->strides[0] + s->head * l->strides[1] + w->row * l->strides[2],
    };
    return tsr__tensor_alias(x, &view);
}

/* Returns a view of keys or values, or of their gradients: `count` rows from `first` on, in the
 * slice's kv heads, [batches, kv_heads, 1, count, head_dim]. */
static tsr_tensor keys(const work *w, const tsr_tensor *x, int64_t first, int64_t count)
{
    const tsr__attention_slice *s = &w->slice;
    const tsr_layout *l = &x->layout;
    const tsr_layout view = {
        .dtype = l->dtype,
        .ndim = 5,
        .shape = {s->batches, s->kv_heads, 1, count, l->shape[3]},
        .strides = {l->strides[0], l->strides[1], 0, l->strides[2], l->strides[3]},
        .offset = l->offset + s->batch * l->strides[0] + s->kv_head * l->strides[1] +
                  first * l->strides[2],
    };
    return tsr__tensor_alias(x, &view);
}

/* Returns a view of w->k_transposed or w->v_transposed: `count` columns from `first` on, [batches,
 * kv_heads, 1, head_dim, count]. */
static tsr_tensor transposed(const work *w, tsr__buffer *buffer, int64_t first, int64_t count)
{
    const tsr__attention_slice *s = &w->slice;
    const int64_t dim = buffer == w->k_transposed ? w->call->head_dim : w->call->value_dim;
    const int64_t head = dim * w->line;
    return (tsr_tensor){
        .layout = {.dtype = TSR_F32,
                   .ndim = 5,
                   .shape = {s->batches, s->kv_heads, 1, dim, count},
                   .strides = {head * s->kv_heads, head, 0, w->line, 1},
                   .offset = first},
        .buffer = buffer,
    };
}

/* Returns scratch memory as a tensor [batches, kv_heads, readers, rows, columns]. Rows are
 * `row_columns` elements apart. */
static tsr_tensor block(const work *w, tsr__buffer *buffer, int64_t columns, int64_t row_columns)
{
    const tsr__attention_slice *s = &w->slice;
    const int64_t head = w->rows * row_columns;
    return (tsr_tensor){
        .layout = {.dtype = TSR_F32,
                   .ndim = 5,
                   .shape = {s->batches, s->kv_heads, s->readers, w->rows, columns},
                   .strides = {head * s->readers * s->kv_heads, head * s->readers, head,
                               row_columns, 1}},
        .buffer = buffer,
    };
}

/* Returns the part of a view that belongs to one reader. */
static tsr_tensor reader(tsr_tensor view, int64_t number)
{
    view.layout.offset += number * view.layout.strides[2];
    view.layout.shape[2] = 1;
    return view;
}

/* Changes the view so that the rows of all readers are rows of a single one. Returns false if there
 * are gaps between the readers. */
static bool merge_readers(tsr_tensor *view)
{
    tsr_layout *l = &view->layout;
    if (l->shape[2] > 1 && l->strides[2] != l->shape[3] * l->strides[3])
        return false;
    l->shape[3] *= l->shape[2];
    l->shape[2] = 1;
    return true;
}

/* Steps of the forward and of the backward pass ----------------------------------------------- */

/* Returns the slice's copy of keys or values as a tensor [batch, kv_heads, kv_len, head_dim]. Only
 * the slice's part of it is in memory. */
static tsr_tensor gathered(const work *w, tsr__buffer *buffer)
{
    const tsr__attention *c = w->call;
    const tsr__attention_slice *s = &w->slice;
    const bool of_keys = buffer == w->k_gathered;
    const int64_t columns = of_keys ? w->k_columns : w->y_columns, head = c->kv_len * columns;
    return (tsr_tensor){
        .layout = {.dtype = TSR_F32,
                   .ndim = 4,
                   .shape = {c->batch, c->kv_heads, c->kv_len,
                             of_keys ? c->head_dim : c->value_dim},
                   .strides = {head * s->kv_heads, head, columns, 1},
                   .offset = -head * (s->kv_heads * s->batch + s->kv_head)},
        .buffer = buffer,
    };
}

/* Copies the mask of a block of keys to w->mask: f32 [batches, heads, rows, keys], laid out like
 * the scores. */
static tsr_status copy_mask(const work *w, int64_t key, int64_t count)
{
    const tsr__attention_slice *s = &w->slice;
    const tsr_layout *l = &w->call->mask;
    const int64_t heads = s->kv_heads * s->readers, row_keys = w->blocks.row_keys;
    const tsr_layout from = {
        .dtype = l->dtype,
        .ndim = 4,
        .shape = {s->batches, heads, w->rows, count},
        .strides = {l->strides[0], l->strides[1], l->strides[2], l->strides[3]},
        .offset = l->offset + s->batch * l->strides[0] + s->head * l->strides[1] +
                  w->row * l->strides[2] + key * l->strides[3],
    };
    tsr_tensor to = {
        .layout = {.dtype = TSR_F32,
                   .ndim = 4,
                   .shape = {s->batches, heads, w->rows, count},
                   .strides = {heads * w->rows * row_keys, w->rows * row_keys, row_keys, 1}},
        .buffer = w->mask,
    };
    const tsr_tensor mask = tsr__tensor_alias(w->call->params.mask, &from);
    return tsr_copy(w->call->stream, &to, &mask);
}

static tsr_status multiply(const work *w, const tsr_tensor *y, const tsr_tensor *a,
                           const tsr_tensor *b, bool transpose_a, bool transpose_b, bool accumulate)
{
    tsr_tensor out = *y;
    return tsr_matmul(w->call->stream, &out, a, b,
                      tsr_matmul_params(.transpose_a = transpose_a, .transpose_b = transpose_b,
                                        .accumulate = accumulate));
}

/* Fills w->k_transposed or w->v_transposed. */
static tsr_status transpose(const work *w, const tsr_tensor *of_keys, tsr__buffer *to)
{
    const int64_t count = w->call->kv_len;
    tsr_tensor out = transposed(w, to, 0, count), rows = keys(w, of_keys, 0, count);
    tsr_layout *l = &rows.layout;
    const int64_t shape = l->shape[3], stride = l->strides[3];
    l->shape[3] = l->shape[4];
    l->strides[3] = l->strides[4];
    l->shape[4] = shape;
    l->strides[4] = stride;
    return tsr_copy(w->call->stream, &out, &rows);
}

/* Multiplies the block's queries by a block of keys, or the gradients of y by a block of values.
 * `copy` is the transposed copy of the keys or values, or NULL. */
static tsr_status score(const work *w, tsr__buffer *to, const tsr_tensor *of_queries,
                        const tsr_tensor *of_keys, tsr__buffer *copy, int64_t key, int64_t count)
{
    const tsr_tensor out = block(w, to, count, w->blocks.row_keys), a = queries(w, of_queries),
                     b = copy ? transposed(w, copy, key, count) : keys(w, of_keys, key, count);
    return multiply(w, &out, &a, &b, false, !copy, false);
}

/* Multiplies a block of scores by a block of keys or values. `copy` is as in score(). */
static tsr_status combine(const work *w, const tsr_tensor *out, tsr__buffer *scores,
                          const tsr_tensor *of_keys, tsr__buffer *copy, int64_t key, int64_t count,
                          bool accumulate)
{
    const tsr_tensor a = block(w, scores, count, w->blocks.row_keys),
                     b = copy ? transposed(w, copy, key, count) : keys(w, of_keys, key, count);
    return multiply(w, out, &a, &b, false, copy, accumulate);
}

static tsr__attention_scores scores_of(const work *w, int64_t key, int64_t count)
{
    const tsr__attention *c = w->call;
    const tsr_tensor *starts = c->params.starts;
    const uint64_t head = (uint64_t)(w->slice.batch * c->heads + w->slice.head);
    return (tsr__attention_scores){
        .call = c,
        .sequences = w->slice.batches,
        .heads = w->slice.kv_heads * w->slice.readers,
        .row = w->row,
        .rows = w->rows,
        .key = key,
        .keys = count,
        .row_keys = w->blocks.row_keys,
        .scores = w->scores,
        .gradient = w->gradient,
        .mask = w->mask,
        .state = w->state,
        .lse_buffer = w->lse.buffer,
        .lse = tsr__tensor_address(&w->lse) + 4 * head * (uint64_t)c->q_len,
        .lengths = w->lengths,
        .starts =
            starts ? tsr__tensor_address(starts) + 4 * (uint64_t)(w->slice.batch * c->q_len) : 0,
        .y_columns = w->y_columns,
    };
}

/* Sets w->k and w->v for the slice, and makes the copies that the products read. */
static tsr_status prepare_slice(work *w)
{
    const tsr__attention *c = w->call;
    w->k = *c->k;
    w->v = *c->v;
    if (w->k_gathered) {
        TSR__TRY(
            tsr__attention_gather(c, &w->slice, c->k, w->k_columns, w->k_gathered, w->lengths));
        TSR__TRY(tsr__attention_gather(c, &w->slice, c->v, w->y_columns, w->v_gathered, NULL));
        w->k = gathered(w, w->k_gathered);
        w->v = gathered(w, w->v_gathered);
    }
    if (!w->k_transposed)
        return TSR_OK;
    TSR__TRY(transpose(w, &w->k, w->k_transposed));
    return transpose(w, &w->v, w->v_transposed);
}

typedef tsr_status block_of_queries(work *w);

static tsr_status each_block(work *w, block_of_queries *run)
{
    const tsr__attention *c = w->call;
    bool more = tsr__attention_first_slice(&w->blocks, &w->slice);
    for (; more; more = tsr__attention_next_slice(&w->blocks, &w->slice)) {
        TSR__TRY(prepare_slice(w));
        for (w->row = 0; w->row < c->q_len; w->row += w->blocks.rows) {
            w->rows = c->q_len - w->row < w->blocks.rows ? c->q_len - w->row : w->blocks.rows;
            TSR__TRY(run(w));
        }
    }
    return TSR_OK;
}

static int64_t count_from(const work *w, int64_t key, int64_t end)
{
    return end - key < w->blocks.keys ? end - key : w->blocks.keys;
}

static bool one_block_of_keys(const work *w)
{
    return w->call->kv_len <= w->blocks.keys;
}

/* Whether to transpose keys and values. Products read the transposed copies directly if their k,
 * which is head_dim, has one of a few lengths; see docs/design/cpu_drivers.md. */
static bool transposing_pays(const tsr__attention *c)
{
    const int64_t readers = c->kv_heads > 0 ? c->heads / c->kv_heads : 0;
    return tsr__lavapipe_is_short(c->head_dim) && tsr__lavapipe_is_short(c->value_dim) &&
           c->q_len * readers >= MIN_QUERIES && c->kv_len >= MIN_KEYS;
}

static tsr_status prepare(work *w, const tsr__attention *call, int64_t max_scores)
{
    w->call = call;
    w->unit = tsr__attention_scores_unit(tsr_stream_device(call->stream));
    w->k_columns = (call->head_dim + w->unit - 1) / w->unit * w->unit;
    w->y_columns = (call->value_dim + w->unit - 1) / w->unit * w->unit;
    const int64_t widest = call->head_dim > call->value_dim ? call->head_dim : call->value_dim;
    const bool transposes = transposing_pays(call), gathers = tsr__attention_gathers(call);
    tsr__attention_blocks_init(&w->blocks, call, w->unit, max_scores,
                               transposes || gathers ? MAX_COPIED / widest : INT64_MAX);
    TSR__TRY(keep(w, (uint64_t)w->blocks.max_scores, &w->scores));
    const uint64_t heads = (uint64_t)(w->blocks.group * w->blocks.sequences);
    if (gathers) {
        const uint64_t rows = heads * (uint64_t)call->kv_len;
        TSR__TRY(keep(w, rows * (uint64_t)w->k_columns, &w->k_gathered));
        TSR__TRY(keep(w, rows * (uint64_t)w->y_columns, &w->v_gathered));
        TSR__TRY(keep(w, 2 * (uint64_t)w->blocks.sequences, &w->lengths));
    }
    if (transposes) {
        w->line = ((call->kv_len + w->unit - 1) / w->unit | 1) * w->unit;
        const uint64_t lines = heads * (uint64_t)w->line;
        TSR__TRY(keep(w, lines * (uint64_t)call->head_dim, &w->k_transposed));
        TSR__TRY(keep(w, lines * (uint64_t)call->value_dim, &w->v_transposed));
    }
    if (call->params.mask)
        TSR__TRY(keep(w, (uint64_t)w->blocks.max_scores, &w->mask));
    return TSR_OK;
}

static uint64_t max_rows(const work *w)
{
    return (uint64_t)(w->blocks.max_scores / w->blocks.row_keys);
}

/* Forward ------------------------------------------------------------------------------------ */

static tsr_status fill_rows(const work *w, tsr_tensor rows, double value)
{
    return tsr_fill(w->call->stream, &rows, value);
}

/* Returns a view of the sinks of the slice's heads, broadcast to [batches, kv_heads, readers, rows,
 * 1]. */
static tsr_tensor sinks(const work *w)
{
    const tsr__attention_slice *s = &w->slice;
    const tsr_layout *l = &w->call->params.sinks->layout;
    const tsr_layout view = {
        .dtype = TSR_F32,
        .ndim = 5,
        .shape = {s->batches, s->kv_heads, s->readers, w->rows, 1},
        .strides = {0, l->strides[0] * s->step, l->strides[0], 0, 1},
        .offset = l->offset + s->head * l->strides[0],
    };
    return tsr__tensor_alias(w->call->params.sinks, &view);
}

/* Initialises the state of the block's rows: the largest score is the sink, and the sum is 1. */
static tsr_status start_from_sinks(const work *w)
{
    tsr_tensor largest = block(w, w->state, 1, 2), sum = largest;
    sum.layout.offset = 1;
    const tsr_tensor of_heads = sinks(w);
    TSR__TRY(tsr_copy(w->call->stream, &largest, &of_heads));
    return tsr_fill(w->call->stream, &sum, 1);
}

/* Writes the results of queries that see no key: 0 to y, −∞ or the sink to lse. */
static tsr_status nothing(work *w)
{
    tsr_tensor lse = w->lse;
    lse.layout.ndim = 4;
    lse.layout.shape[3] = 1;
    lse.layout.strides[3] = 1;
    TSR__TRY(fill_rows(w, queries(w, w->call->y), 0));
    lse = queries(w, &lse);
    if (!w->call->params.sinks)
        return fill_rows(w, lse, -INFINITY);
    const tsr_tensor of_heads = sinks(w);
    return tsr_copy(w->call->stream, &lse, &of_heads);
}

static tsr_status forward_block(work *w)
{
    const tsr__attention *c = w->call;
    int64_t first, end;
    tsr__attention_range(c, w->row, w->rows, &first, &end);
    if (first == end)
        return nothing(w);
    if (c->params.sinks)
        TSR__TRY(start_from_sinks(w));
    const bool alone = end - first <= w->blocks.keys;
    tsr_tensor y = queries(w, c->y);
    const tsr_tensor sums = alone ? y : block(w, w->sums, c->value_dim, w->y_columns);
    for (int64_t key = first; key < end; key += w->blocks.keys) {
        const int64_t count = count_from(w, key, end);
        TSR__TRY(score(w, w->scores, c->q, &w->k, w->k_transposed, key, count));
        if (c->params.mask)
            TSR__TRY(copy_mask(w, key, count));
        tsr__attention_scores s = scores_of(w, key, count);
        s.first = key == first;
        s.sinks = s.first && c->params.sinks;
        s.y = w->sums;
        TSR__TRY(tsr__attention_scores_run(c->stream, &s));
        TSR__TRY(combine(w, &sums, w->scores, &w->v, w->v_transposed, key, count, key > first));
    }
    return alone ? TSR_OK : tsr_copy(c->stream, &y, &sums);
}

static tsr_status record_forward(tsr_stream *stream, void *opaque)
{
    work *w = opaque;
    TSR__TRY(each_block(w, forward_block));
    if (!w->call->lse || w->call->lse->buffer == w->lse.buffer)
        return TSR_OK;
    tsr_tensor lse = *w->call->lse;
    return tsr_copy(stream, &lse, &w->lse);
}

static tsr_status prepare_forward(work *w, const tsr__attention *call)
{
    TSR__TRY(prepare(w, call, MAX_SCORES));
    TSR__TRY(keep(w, 2 * max_rows(w), &w->state));
    if (!one_block_of_keys(w))
        TSR__TRY(keep(w, max_rows(w) * (uint64_t)w->y_columns, &w->sums));
    if (call->lse)
        return keep_f32(w, call->lse, true, &w->lse);
    const int64_t shape[] = {call->batch, call->heads, call->q_len};
    tsr_tensor like = {0};
    TSR__TRY(tsr_layout_init(TSR_F16, 3, shape, &like.layout));
    return keep_f32(w, &like, true, &w->lse);
}

tsr_status tsr__attention_products(const tsr__attention *call)
{
    work w = {0};
    tsr_status status = prepare_forward(&w, call);
    if (status == TSR_OK)
        status = tsr__stream_atomic(call->stream, record_forward, &w);
    give_back(&w);
    return status;
}

/* Backward ----------------------------------------------------------------------------------- */

/* Computes the scores of one block of keys and their gradients, as `function` (TSR_SCORES_…)
 * specifies. */
static tsr_status gradient_scores(work *w, int64_t key, int64_t count, uint32_t function)
{
    const tsr__attention *c = w->call;
    TSR__TRY(score(w, w->scores, c->q, &w->k, w->k_transposed, key, count));
    TSR__TRY(score(w, w->gradient, c->dy, &w->v, w->v_transposed, key, count));
    if (c->params.mask)
        TSR__TRY(copy_mask(w, key, count));
    tsr__attention_scores s = scores_of(w, key, count);
    s.backward = true;
    s.function = function;
    return tsr__attention_scores_run(c->stream, &s);
}

/* Computes Σ dy·y for each query of the block. */
static tsr_status delta_of_y(work *w)
{
    const tsr__attention *c = w->call;
    const tsr_tensor dy = queries(w, c->dy), y = queries(w, c->y);
    tsr_tensor product = block(w, w->delta, c->value_dim, c->value_dim),
               sums = block(w, w->state, 1, 1);
    TSR__TRY(tsr_binary(c->stream, &product, &dy, &y, TSR_BINARY_MUL));
    return tsr_reduce(c->stream, &sums, &product, -1, TSR_REDUCE_SUM, false);
}

/* Adds (scores)ᵀ · rows to the gradient of each kv head. The readers of a kv head are added in
 * their order. */
static tsr_status add_to_keys(const work *w, const tsr_tensor *sums, tsr__buffer *scores,
                              const tsr_tensor *of_queries, int64_t key, int64_t count)
{
    const tsr_tensor out = keys(w, sums, key, count);
    tsr_tensor a = block(w, scores, count, w->blocks.row_keys), b = queries(w, of_queries);
    tsr_tensor merged = b;
    if (merge_readers(&merged) && merge_readers(&a))
        return multiply(w, &out, &a, &merged, true, false, true);
    for (int64_t n = 0; n < w->slice.readers; n++) {
        const tsr_tensor one_a = reader(a, n), one_b = reader(b, n);
        TSR__TRY(multiply(w, &out, &one_a, &one_b, true, false, true));
    }
    return TSR_OK;
}

static tsr_status backward_block(work *w)
{
    const tsr__attention *c = w->call;
    int64_t first, end;
    tsr__attention_range(c, w->row, w->rows, &first, &end);
    tsr_tensor dq;
    if (c->dq) {
        dq = queries(w, c->dq);
        if (first == end)
            return fill_rows(w, dq, 0);
    }
    const bool alone = end - first <= w->blocks.keys;
    uint32_t function = TSR_SCORES_ALONE;
    if (!alone) {
        function = TSR_SCORES_GRADIENT;
        if (c->y->layout.dtype == TSR_F32)
            TSR__TRY(delta_of_y(w));
        for (int64_t key = first; key < end && c->y->layout.dtype != TSR_F32; key += w->blocks.keys)
            TSR__TRY(
                gradient_scores(w, key, count_from(w, key, end),
                                key == first ? TSR_SCORES_DELTA_FIRST : TSR_SCORES_DELTA_MORE));
    }
    tsr_tensor sums = {0};
    if (c->dq)
        sums = alone || !w->sums ? dq : block(w, w->sums, c->head_dim, w->k_columns);
    for (int64_t key = first; key < end; key += w->blocks.keys) {
        const int64_t count = count_from(w, key, end);
        TSR__TRY(gradient_scores(w, key, count, function));
        if (c->dq)
            TSR__TRY(
                combine(w, &sums, w->gradient, &w->k, w->k_transposed, key, count, key > first));
        if (c->dk)
            TSR__TRY(add_to_keys(w, &w->dk, w->gradient, c->q, key, count));
        if (c->dv)
            TSR__TRY(add_to_keys(w, &w->dv, w->scores, c->dy, key, count));
    }
    return c->dq && !alone && w->sums ? tsr_copy(c->stream, &dq, &sums) : TSR_OK;
}

static tsr_status finish_sums(tsr_stream *stream, const tsr_tensor *out, const tsr_tensor *sums)
{
    if (!out || out->buffer == sums->buffer)
        return TSR_OK;
    tsr_tensor to = *out;
    return tsr_copy(stream, &to, sums);
}

static tsr_status record_backward(tsr_stream *stream, void *opaque)
{
    work *w = opaque;
    const tsr__attention *c = w->call;
    if (c->lse->buffer != w->lse.buffer)
        TSR__TRY(tsr_copy(stream, &w->lse, c->lse));
    if (c->dk)
        TSR__TRY(tsr_fill(stream, &w->dk, 0));
    if (c->dv)
        TSR__TRY(tsr_fill(stream, &w->dv, 0));
    TSR__TRY(each_block(w, backward_block));
    TSR__TRY(finish_sums(stream, c->dk, &w->dk));
    return finish_sums(stream, c->dv, &w->dv);
}

static tsr_status prepare_backward(work *w, const tsr__attention *call)
{
    TSR__TRY(prepare(w, call, MAX_SCORES / 2));
    TSR__TRY(keep(w, (uint64_t)w->blocks.max_scores, &w->gradient));
    TSR__TRY(keep(w, max_rows(w), &w->state));
    if (!one_block_of_keys(w)) {
        if (call->y->layout.dtype == TSR_F32)
            TSR__TRY(keep(w, max_rows(w) * (uint64_t)w->y_columns, &w->delta));
        if (call->dq && call->dq->layout.dtype != TSR_F32)
            TSR__TRY(keep(w, max_rows(w) * (uint64_t)w->k_columns, &w->sums));
    }
    TSR__TRY(keep_f32(w, call->lse, true, &w->lse));
    if (call->dk)
        TSR__TRY(keep_f32(w, call->dk, false, &w->dk));
    return call->dv ? keep_f32(w, call->dv, false, &w->dv) : TSR_OK;
}

tsr_status tsr__attention_products_grad(const tsr__attention *call)
{
    work w = {0};
    tsr_status status = prepare_backward(&w, call);
    if (status == TSR_OK)
        status = tsr__stream_atomic(call->stream, record_backward, &w);
    give_back(&w);
    return status;
}

/* Starts are read instead of the lengths of sequences, and without gaps. */
static bool starts_suit(const tsr__attention *c)
{
    const tsr_tensor *starts = c->params.starts;
    return !starts || (!tsr__attention_gathers(c) && tsr_layout_is_contiguous(&starts->layout));
}

bool tsr__attention_products_suit(const tsr__attention *c)
{
    const double scores =
        (double)c->batch * (double)c->heads * (double)c->q_len * (double)c->kv_len;
    const bool paged = tsr__attention_gathers(c);
    return starts_suit(c) && tsr__vectors_suit(tsr_stream_device(c->stream)) &&
           scores * (double)c->head_dim >= (paged ? MIN_PAGED_WORK : MIN_WORK) &&
           (!paged || tsr__attention_gather_suits(c));
}
