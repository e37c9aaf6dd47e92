/* Self-attention with a cache whose tokens the ranks of a context group divide. Each rank has the
 * keys and values of some pages of a sequence, so for the queries of all ranks it computes what its
 * keys give, and the partial results are merged by their logarithms of sums:
 *
 *    gather    queries, keys and values of the step's tokens, if ranks divide these
 *    store     the keys and values that this rank's pages have
 *    attend    all queries with the keys that this rank stored before the step
 *    exchange  the partial results: to the ranks that have the queries, or to all
 *    attend    this rank's queries with the step's keys, causally
 *    merge     y = Σ_i exp(lse_i − lse) · y_i, in the order of ranks, the step's keys last
 *
 * If no sequence had tokens before the step, the step's own attention is the result. */
#include "base/error.h"
#include "gpu/internal.h"
#include "parallel/group/group.h"
#include "parallel/layers/context.h"
#include "parallel/layers/self_attention.h"
#include "tessera/ops.h"

typedef struct cached_pass {
    const tsr__attention *a;
    const tsr__cached *cached;
    const tsr_attention_params *params;
    tsr__temps *temps;
    tsr_stream *stream;
    tsr__kv_division division;
    int64_t count;      /* sequences of the step */
    int64_t rows;       /* of this rank's queries: sequences · tokens */
    tsr__qkv_heads all; /* of all tokens of the step: views [sequences, heads, tokens, features] */
} cached_pass;

/* Results of attention for which there is more to merge: f32 [.., heads, value_dim + 1], y and then
 * lse of each query. */
static int64_t partial_width(const cached_pass *p)
{
    return p->a->heads.value_dim + 1;
}

/* Makes views of partial results [sequences · tokens, heads, value_dim + 1] as tsr_attention writes
 * them: *y [sequences, heads, tokens, value_dim] and *lse [sequences, heads, tokens]. */
static tsr_status partial_views(const cached_pass *p, const tsr_tensor *partial, int64_t tokens,
                                tsr_tensor **y, tsr_tensor **lse)
{
    const int64_t shape[] = {p->count, tokens, p->a->heads.count, partial_width(p)};
    tsr_tensor *whole, *last, *selected = NULL;
    TSR__TRY(tsr__temp_reshape(p->temps, partial, 4, shape, &whole));
    TSR__TRY(tsr__temp_transpose(p->temps, whole, 1, 2, &whole));
    TSR__TRY(tsr__temp_slice(p->temps, whole, 3, 0, p->a->heads.value_dim, y));
    last = whole;
    TSR__TRY(tsr_tensor_select(last, 3, p->a->heads.value_dim, &selected));
    TSR__TRY(tsr__temp_keep(p->temps, selected));
    *lse = selected;
    return TSR_OK;
}

/* Gathers the features of all tokens of the step if ranks divide them, and finds their heads. */
static tsr_status gather_step(cached_pass *p, const tsr_tensor *qkv)
{
    tsr_group *group = p->a->context_group;
    const tsr_layout *own = tsr_tensor_layout(qkv);
    const int64_t features = own->shape[own->ndim - 1];
    tsr_tensor *whole, *rows, *to;
    if (p->division.own == p->division.tokens)
        return tsr__qkv_split(p->a, p->temps, qkv, &p->all);
    TSR__TRY(tsr__temp_new(p->temps, own->dtype, 3, (int64_t[]){1, p->division.tokens, features},
                           &whole));
    TSR__TRY(tsr__temp_reshape(p->temps, whole, 2, (int64_t[]){p->division.tokens, features}, &to));
    TSR__TRY(tsr__temp_reshape(p->temps, qkv, 2, (int64_t[]){p->division.own, features}, &rows));
    TSR__TRY(tsr_group_all_gather(group, to, rows, 0,
                                  tsr_collective_params(.wire = tsr__group_wire(group)), NULL));
    return tsr__qkv_split(p->a, p->temps, whole, &p->all);
}

/* Attends all queries of the step to the keys that this rank stored before it, and exchanges the
 * results: merged[0 … ranks − 1], of this rank's queries. */
static tsr_status attend_before(const cached_pass *p, const tsr_tensor *merged)
{
    tsr_group *group = p->a->context_group;
    const int64_t ranks = p->division.ranks, heads = p->a->heads.count,
                  width = heads * partial_width(p), all = p->count * p->division.tokens;
    tsr_attention_params params = {.struct_size = sizeof params,
                                   .scale = p->params->scale,
                                   .softcap = p->params->softcap,
                                   .kv_head = p->params->kv_head};
    tsr_tensor *partial, *y, *lse, *to, *from;
    TSR__TRY(
        tsr__temp_new(p->temps, TSR_F32, 3, (int64_t[]){all, heads, partial_width(p)}, &partial));
    TSR__TRY(partial_views(p, partial, p->division.tokens, &y, &lse));
    TSR__TRY(
        tsr__kv_cache_attend(p->cached->cache, p->cached->layer, NULL, y, lse, p->all.q, &params));
    TSR__TRY(tsr__temp_slice(p->temps, merged, 0, 0, ranks, &to));
    TSR__TRY(tsr__temp_reshape(p->temps, to, 2, (int64_t[]){ranks * p->rows, width}, &to));
    TSR__TRY(tsr__temp_reshape(p->temps, partial, 2, (int64_t[]){all, width}, &from));
    if (p->rows == all)
        return tsr_group_all_gather(group, to, from, 0, NULL, NULL);
    int64_t rows[TSR_MAX_COMM_SIZE];
    for (int64_t r = 0; r < ranks; r++)
        rows[r] = p->rows;
    return tsr__group_all_to_all(group, to, from, &(tsr__group_rows){rows, rows, p->rows});
}

/* Rounds keys or values of the step to the cache's dtype, as those of earlier tokens are. */
static tsr_status as_cached(const cached_pass *p, tsr_tensor **heads)
{
    const tsr_layout *layout = tsr_tensor_layout(*heads);
    tsr_tensor *rounded;
    if (layout->dtype == p->division.dtype)
        return TSR_OK;
    TSR__TRY(tsr__temp_new(p->temps, p->division.dtype, 4, layout->shape, &rounded));
    TSR__TRY(tsr_copy(p->stream, rounded, *heads));
    *heads = rounded;
    return TSR_OK;
}

/* Attends this rank's queries to the step's keys. */
static tsr_status attend_step(const cached_pass *p, tsr_tensor *y, tsr_tensor *lse,
                              const tsr_tensor *q)
{
    const int64_t end = p->division.first + p->division.own;
    tsr_attention_params params = *p->params;
    tsr_tensor *k = p->all.k, *v = p->all.v;
    params.q_lengths = params.kv_lengths = p->division.lengths;
    TSR__TRY(as_cached(p, &k));
    TSR__TRY(as_cached(p, &v));
    TSR__TRY(tsr__temp_slice(p->temps, k, 2, 0, end, &k));
    TSR__TRY(tsr__temp_slice(p->temps, v, 2, 0, end, &v));
    return tsr__attention_narrowed(p->stream,
                                   tsr__attention_narrow_dtype(p->stream, q, k, v, &params), y, lse,
                                   q, k, v, &params);
}

/* Merges partial results merged[parts, rows, heads, value_dim + 1] to y [rows, heads, value_dim].
 * This is attention, too: each query has a key for each part, with its lse as a score. */
static tsr_status merge(const cached_pass *p, const tsr_tensor *merged, const tsr_tensor *y)
{
    const int64_t parts = p->division.ranks + 1, rows = p->rows, heads = p->a->heads.count,
                  dim = p->a->heads.value_dim;
    tsr_tensor *zero, *q = NULL, *k = NULL, *by_rows, *values, *lse, *out;
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 4, (int64_t[]){1, 1, 1, 1}, &zero));
    TSR__TRY(tsr_fill(p->stream, zero, 0));
    TSR__TRY(tsr_tensor_broadcast(zero, 4, (int64_t[]){rows, heads, 1, 1}, &q));
    TSR__TRY(tsr__temp_keep(p->temps, q));
    TSR__TRY(tsr_tensor_broadcast(zero, 4, (int64_t[]){rows, heads, parts, 1}, &k));
    TSR__TRY(tsr__temp_keep(p->temps, k));
    TSR__TRY(tsr__temp_transpose(p->temps, merged, 0, 1, &by_rows));
    TSR__TRY(tsr__temp_transpose(p->temps, by_rows, 1, 2, &by_rows));
    TSR__TRY(tsr__temp_slice(p->temps, by_rows, 3, 0, dim, &values));
    TSR__TRY(tsr__temp_slice(p->temps, by_rows, 3, dim, 1, &lse));
    TSR__TRY(tsr__temp_transpose(p->temps, lse, 2, 3, &lse));
    TSR__TRY(tsr__temp_reshape(p->temps, y, 4, (int64_t[]){rows, heads, 1, dim}, &out));
    return tsr_attention(p->stream, out, NULL, q, k, values, tsr_attention_params(.mask = lse));
}

static tsr_status attend_merged(const cached_pass *p, const tsr_tensor *q, const tsr_tensor *heads)
{
    const int64_t parts = p->division.ranks + 1;
    tsr_tensor *merged, *own, *y, *lse;
    TSR__TRY(tsr__temp_new(p->temps, TSR_F32, 4,
                           (int64_t[]){parts, p->rows, p->a->heads.count, partial_width(p)},
                           &merged));
    TSR__TRY(attend_before(p, merged));
    TSR__TRY(tsr__temp_slice(p->temps, merged, 0, parts - 1, 1, &own));
    TSR__TRY(partial_views(p, own, p->division.own, &y, &lse));
    TSR__TRY(attend_step(p, y, lse, q));
    return merge(p, merged, heads);
}

tsr_status tsr__context_attend_cached(const tsr__attention *a, tsr__temps *temps,
                                      const tsr__cached *cached, const tsr_attention_params *params,
                                      const tsr_tensor *qkv, const tsr__qkv_heads *in,
                                      const tsr_tensor *heads)
{
    const tsr_layout *q = tsr_tensor_layout(in->q);
    cached_pass p = {.a = a,
                     .cached = cached,
                     .params = params,
                     .temps = temps,
                     .stream = a->base.stream,
                     .division = tsr__kv_cache_division(cached->cache),
                     .count = q->shape[0],
                     .rows = q->shape[0] * q->shape[2]};
    tsr_tensor *y;
    TSR__REQUIRE(a->context_group && tsr_group_size(a->context_group) == p.division.ranks,
                 "%s: the cache is divided over %d ranks, but the layer has %d context ranks",
                 a->base.who, p.division.ranks,
                 a->context_group ? tsr_group_size(a->context_group) : 1);
    if (a->rope)
        TSR__TRY(tsr__kv_cache_rotate(cached->cache, a->rope, in->q, in->k));
    TSR__TRY(gather_step(&p, qkv));
    TSR__TRY(tsr_kv_cache_append(cached->cache, cached->layer, p.all.k, p.all.v));
    if (p.division.before > 0)
        return attend_merged(&p, in->q, heads);
    TSR__TRY(tsr__by_heads(a, temps, heads, &y));
    return attend_step(&p, y, NULL, in->q);
}
