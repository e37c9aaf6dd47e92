/* Self-attention of sequences that ranks divide. Each rank has the queries of its two chunks, and
 * sees the keys of a prefix of the sequence: keys and values of a few kv heads at a time are
 * gathered from all ranks and put into the order of the sequence, and tsr_attention computes each
 * chunk with the prefix that ends at it, so that masks, windows, sinks and documents are those of
 * an undivided sequence. While the device computes with some heads, the next heads are gathered.
 *
 *    forward     gather 0 │ attend 0 │ attend 1 │ attend 2
 *                         │ gather 1 │ gather 2 │
 *
 * The backward pass gathers keys and values again, and reduces the gradients of each group of
 * heads, in f32 and in the order of ranks, while the next group is computed. */
#include "base/error.h"
#include "parallel/layers/context.h"
#include "parallel/layers/self_attention.h"

/* The heads are divided into groups of at least this many gathered bytes: with smaller groups,
 * messages would cost more time than the overlap saves. */
#define LEAST_GROUP_BYTES (INT64_C(1) << 18)
#define MOST_GROUPS 8

typedef struct head_group {
    tsr__temps temps; /* its tensors, until its heads have been computed */
    int64_t kv_first, kv_count, first, count;
    tsr_tensor *gathered; /* [tokens, rows, 2, kv_count, head_dim]: keys, values; by ranks */
    tsr_tensor *reduced;  /* the same for this rank's tokens: gradients, f32 */
    tsr_request *request; /* of the collective operation that is in progress; or NULL */
} head_group;

typedef struct context_pass {
    const tsr__attention *a;
    const tsr__context *context;
    const tsr_attention_params *params;
    const tsr__qkv_heads *in;
    tsr_stream *stream;
    int count;
    head_group groups[MOST_GROUPS];
} context_pass;

static void begin(context_pass *p)
{
    const tsr_heads *h = &p->a->heads;
    const tsr_layout *k = tsr_tensor_layout(p->in->k);
    const int64_t bytes = 2 * (int64_t)tsr_dtype_size(k->dtype) * p->context->rows *
                          p->context->tokens * h->kv_count * h->head_dim;
    int64_t wanted = bytes / LEAST_GROUP_BYTES;
    if (!p->a->regular || h->count % h->kv_count != 0)
        wanted = 1;
    wanted = wanted < h->kv_count ? wanted : h->kv_count;
    wanted = wanted < MOST_GROUPS ? wanted : MOST_GROUPS;
    p->stream = p->a->base.stream;
    p->count = wanted > 1 ? (int)wanted : 1;
    for (int i = 0; i < p->count; i++) {
        head_group *g = &p->groups[i];
        g->temps.stream = p->stream;
        g->kv_first = h->kv_count * i / p->count;
        g->kv_count = h->kv_count * (i + 1) / p->count - g->kv_first;
        g->first = p->count == 1 ? 0 : g->kv_first * (h->count / h->kv_count);
        g->count = p->count == 1 ? h->count : g->kv_count * (h->count / h->kv_count);
    }
}

static void finish(context_pass *p)
{
    for (int i = 0; i < p->count; i++) {
        tsr_request_cancel(&p->groups[i].request);
        tsr__temps_finish(&p->groups[i].temps);
    }
}

/* Makes a view [rows, kv_count, tokens, head_dim] of the keys (0) or values (1) of a tensor
 * [tokens, rows, 2, kv_count, head_dim], as far as the token `end`. */
static tsr_status view_of(tsr__temps *temps, const tsr_tensor *packed, int which, int64_t end,
                          tsr_tensor **out)
{
    tsr_tensor *view = NULL;
    TSR__TRY(tsr__temp_slice(temps, packed, 0, 0, end, &view));
    tsr_tensor *selected = NULL;
    TSR__TRY(tsr_tensor_select(view, 2, which, &selected));
    TSR__TRY(tsr__temp_keep(temps, selected));
    TSR__TRY(tsr__temp_transpose(temps, selected, 0, 1, &view));
    return tsr__temp_transpose(temps, view, 1, 2, out);
}

static tsr_status new_packed(const context_pass *p, head_group *g, tsr_dtype dtype, int64_t tokens,
                             tsr_tensor **out)
{
    return tsr__temp_new(
        &g->temps, dtype, 5,
        (int64_t[]){tokens, p->context->rows, 2, g->kv_count, p->a->heads.head_dim}, out);
}

/* Returns the number of tokens that this rank has. */
static int64_t own_tokens(const context_pass *p)
{
    return p->context->sizes[tsr_group_rank(p->context->group)];
}

/* Copies this rank's keys and values between the views of heads and a packed tensor. */
static tsr_status copy_packed(const context_pass *p, head_group *g, const tsr__qkv_heads *heads,
                              tsr_tensor *packed, bool packs)
{
    tsr_tensor *const parts[] = {heads->k, heads->v};
    for (int i = 0; i < 2; i++) {
        tsr_tensor *own, *view;
        TSR__TRY(tsr__temp_slice(&g->temps, parts[i], 1, g->kv_first, g->kv_count, &own));
        TSR__TRY(view_of(&g->temps, packed, i, own_tokens(p), &view));
        TSR__TRY(packs ? tsr_copy(p->stream, view, own) : tsr_copy(p->stream, own, view));
    }
    return TSR_OK;
}

/* Starts gathering the keys and values of a group of heads. */
static tsr_status start_gather(context_pass *p, head_group *g)
{
    const tsr_dtype dtype = tsr_tensor_layout(p->in->k)->dtype;
    const tsr__context *c = p->context;
    tsr_tensor *own;
    TSR__TRY(new_packed(p, g, dtype, own_tokens(p), &own));
    TSR__TRY(new_packed(p, g, dtype, c->tokens, &g->gathered));
    TSR__TRY(copy_packed(p, g, p->in, own, true));
    return tsr_group_all_gather(
        c->group, g->gathered, own, 0,
        tsr_collective_params(.wire = tsr__group_wire(c->group), .sizes = c->sizes), &g->request);
}

/* Waits for the keys and values, and puts them into the order of the sequence. */
static tsr_status end_gather(context_pass *p, head_group *g, tsr_tensor **out)
{
    const tsr_dtype dtype = tsr_tensor_layout(p->in->k)->dtype;
    TSR__TRY(tsr_request_wait(&g->request));
    TSR__TRY(new_packed(p, g, dtype, p->context->tokens, out));
    return tsr_index_select(p->stream, *out, g->gathered, 0, p->context->gathered);
}

/* One call of attention: the queries of a chunk, for a group of heads. */
typedef struct chunk_call {
    int64_t first, count; /* the chunk's tokens among those of this rank */
    int64_t end;          /* of the keys that it sees */
    tsr_attention_params params;
} chunk_call;

static tsr_status describe_chunk(const context_pass *p, head_group *g, int chunk, chunk_call *out)
{
    const tsr_shard_range *range = &p->context->chunks[chunk];
    tsr_tensor *part = NULL;
    out->first = chunk == 0 ? 0 : (int64_t)p->context->chunks[0].count;
    out->count = (int64_t)range->count;
    out->end = (int64_t)(range->start + range->count);
    out->params = *p->params;
    if (p->params->starts) {
        TSR__TRY(tsr__temp_slice(&g->temps, p->params->starts, 1, out->first, out->count, &part));
        out->params.starts = part;
    }
    if (p->params->sinks) {
        TSR__TRY(tsr__temp_slice(&g->temps, p->params->sinks, 0, g->first, g->count, &part));
        out->params.sinks = part;
    }
    return TSR_OK;
}

/* Makes a view of a chunk's queries, or of what has one value for each query, for a group of
 * heads. */
static tsr_status queries_of(head_group *g, const chunk_call *c, const tsr_tensor *all,
                             tsr_tensor **out)
{
    tsr_tensor *heads;
    TSR__TRY(tsr__temp_slice(&g->temps, all, 1, g->first, g->count, &heads));
    return tsr__temp_slice(&g->temps, heads, 2, c->first, c->count, out);
}

/* Forward ------------------------------------------------------------------------------------ */

static tsr_status attend_group(context_pass *p, head_group *g, tsr_tensor *y, tsr_tensor *lse)
{
    tsr_tensor *packed;
    TSR__TRY(end_gather(p, g, &packed));
    for (int i = 0; i < 2; i++) {
        chunk_call c;
        tsr_tensor *k, *v, *q, *to, *sums = NULL;
        TSR__TRY(describe_chunk(p, g, i, &c));
        if (c.count == 0)
            continue;
        TSR__TRY(view_of(&g->temps, packed, 0, c.end, &k));
        TSR__TRY(view_of(&g->temps, packed, 1, c.end, &v));
        TSR__TRY(queries_of(g, &c, p->in->q, &q));
        TSR__TRY(queries_of(g, &c, y, &to));
        if (lse)
            TSR__TRY(queries_of(g, &c, lse, &sums));
        TSR__TRY(tsr_attention(p->stream, to, sums, q, k, v, &c.params));
    }
    return tsr_stream_submit(p->stream);
}

static tsr_status attend(context_pass *p, tsr_tensor *y, tsr_tensor *lse)
{
    TSR__TRY(start_gather(p, &p->groups[0]));
    for (int i = 0; i < p->count; i++) {
        if (i + 1 < p->count)
            TSR__TRY(start_gather(p, &p->groups[i + 1]));
        TSR__TRY(attend_group(p, &p->groups[i], y, lse));
        tsr__temps_finish(&p->groups[i].temps);
    }
    return TSR_OK;
}

tsr_status tsr__context_attend(const tsr__attention *a, const tsr__context *context,
                               const tsr_attention_params *params, const tsr__qkv_heads *in,
                               tsr_tensor *y, tsr_tensor *lse)
{
    context_pass p = {.a = a, .context = context, .params = params, .in = in};
    begin(&p);
    const tsr_status status = attend(&p, y, lse);
    finish(&p);
    return status;
}

/* Backward ----------------------------------------------------------------------------------- */

typedef struct gradients {
    const tsr__qkv_heads *d;
    const tsr_tensor *dy, *y, *lse;
    tsr_tensor *sinks; /* f32 [2, heads]: of each chunk; or NULL */
} gradients;

/* Makes a view of the gradients of a group's sinks through the queries of a chunk. */
static tsr_status sinks_of(head_group *g, const gradients *to, int chunk, tsr_tensor **out)
{
    tsr_tensor *row = NULL;
    TSR__TRY(tsr_tensor_select(to->sinks, 0, chunk, &row));
    TSR__TRY(tsr__temp_keep(&g->temps, row));
    return tsr__temp_slice(&g->temps, row, 0, g->first, g->count, out);
}

/* Computes the gradients of a chunk: those of queries, and in `dpacked` [tokens, …] those of keys
 * and values of the sequence up to the chunk's end. */
static tsr_status chunk_grad(context_pass *p, head_group *g, const gradients *to, int chunk,
                             const tsr_tensor *packed, const tsr_tensor *dpacked)
{
    chunk_call c;
    tsr_tensor *k, *v, *q, *dk, *dv, *dq, *dy, *y, *lse;
    TSR__TRY(describe_chunk(p, g, chunk, &c));
    TSR__TRY(view_of(&g->temps, packed, 0, c.end, &k));
    TSR__TRY(view_of(&g->temps, packed, 1, c.end, &v));
    TSR__TRY(view_of(&g->temps, dpacked, 0, c.end, &dk));
    TSR__TRY(view_of(&g->temps, dpacked, 1, c.end, &dv));
    TSR__TRY(queries_of(g, &c, p->in->q, &q));
    TSR__TRY(queries_of(g, &c, to->d->q, &dq));
    TSR__TRY(queries_of(g, &c, to->dy, &dy));
    TSR__TRY(queries_of(g, &c, to->y, &y));
    TSR__TRY(queries_of(g, &c, to->lse, &lse));
    if (to->sinks)
        TSR__TRY(sinks_of(g, to, chunk, &c.params.dsinks));
    return tsr_attention_grad(p->stream, dq, dk, dv, dy, y, lse, q, k, v, &c.params);
}

/* Computes the gradients of a group of heads through both chunks: *out is a packed tensor in the
 * order of the sequence. */
static tsr_status sum_chunks(context_pass *p, head_group *g, const gradients *to,
                             const tsr_tensor *packed, tsr_tensor **out)
{
    const tsr_shard_range *chunks = p->context->chunks;
    const int64_t tokens = p->context->tokens;
    const int last = chunks[1].count > 0 ? 1 : 0;
    const int64_t end = (int64_t)(chunks[last].start + chunks[last].count),
                  front = (int64_t)(chunks[0].start + chunks[0].count);
    tsr_tensor *rest, *first, *sum;
    TSR__TRY(new_packed(p, g, TSR_F32, tokens, out));
    const int64_t written = chunks[last].count > 0 ? end : 0;
    TSR__TRY(tsr__temp_slice(&g->temps, *out, 0, written, tokens - written, &rest));
    if (written < tokens)
        TSR__TRY(tsr_fill(p->stream, rest, 0));
    if (written > 0)
        TSR__TRY(chunk_grad(p, g, to, last, packed, *out));
    if (last == 0 || chunks[0].count == 0)
        return TSR_OK;
    TSR__TRY(new_packed(p, g, TSR_F32, front, &first));
    TSR__TRY(chunk_grad(p, g, to, 0, packed, first));
    TSR__TRY(tsr__temp_slice(&g->temps, *out, 0, 0, front, &sum));
    return tsr_binary(p->stream, sum, sum, first, TSR_BINARY_ADD);
}

static tsr_status grad_group(context_pass *p, head_group *g, const gradients *to)
{
    const tsr__context *c = p->context;
    tsr_tensor *packed, *dpacked, *by_ranks;
    TSR__TRY(end_gather(p, g, &packed));
    TSR__TRY(sum_chunks(p, g, to, packed, &dpacked));
    TSR__TRY(new_packed(p, g, TSR_F32, c->tokens, &by_ranks));
    TSR__TRY(tsr_index_select(p->stream, by_ranks, dpacked, 0, c->places));
    TSR__TRY(new_packed(p, g, TSR_F32, own_tokens(p), &g->reduced));
    return tsr_group_reduce_scatter(
        c->group, g->reduced, by_ranks, 0, TSR_OP_SUM,
        tsr_collective_params(.wire = tsr__group_wire(c->group), .sizes = c->sizes), &g->request);
}

static tsr_status end_group(context_pass *p, head_group *g, const gradients *to)
{
    TSR__TRY(tsr_request_wait(&g->request));
    TSR__TRY(copy_packed(p, g, to->d, g->reduced, false));
    tsr__temps_finish(&g->temps);
    return TSR_OK;
}

static tsr_status grad(context_pass *p, const gradients *to)
{
    TSR__TRY(start_gather(p, &p->groups[0]));
    for (int i = 0; i < p->count; i++) {
        if (i + 1 < p->count)
            TSR__TRY(start_gather(p, &p->groups[i + 1]));
        TSR__TRY(grad_group(p, &p->groups[i], to));
        if (i > 0)
            TSR__TRY(end_group(p, &p->groups[i - 1], to));
    }
    return end_group(p, &p->groups[p->count - 1], to);
}

tsr_status tsr__context_attend_grad(const tsr__attention *a, const tsr__context *context,
                                    const tsr_attention_params *params, const tsr__qkv_heads *in,
                                    const tsr__qkv_heads *d, const tsr_tensor *dy,
                                    const tsr_tensor *y, const tsr_tensor *lse)
{
    context_pass p = {.a = a, .context = context, .params = params, .in = in};
    tsr__temps temps = {.stream = a->base.stream};
    gradients to = {.d = d, .dy = dy, .y = y, .lse = lse};
    begin(&p);
    tsr_status status = TSR_OK;
    if (params->dsinks)
        status = tsr__temp_new(&temps, TSR_F32, 2, (int64_t[]){2, a->heads.count}, &to.sinks);
    if (to.sinks && status == TSR_OK)
        status = tsr_fill(p.stream, to.sinks, 0);
    if (status == TSR_OK)
        status = grad(&p, &to);
    if (to.sinks && status == TSR_OK)
        status = tsr_reduce(p.stream, params->dsinks, to.sinks, 0, TSR_REDUCE_SUM, false);
    finish(&p);
    tsr__temps_finish(&temps);
    return status;
}
