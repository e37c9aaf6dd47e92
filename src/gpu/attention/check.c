/* Checks of the arguments of tsr_attention and tsr_attention_grad. */
#include "gpu/attention/call.h"

#include <math.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/given.h"
#include "tensor/check.h"

#define LENGTH_MAX INT32_MAX

/* Shapes ------------------------------------------------------------------------------------- */

static tsr_status check_four(const tsr__attention *c, const char *name, const tsr_tensor *x)
{
    TSR__TRY(tsr__require_float(c->op, name, c->stream, x));
    TSR__REQUIRE(x->layout.ndim == 4, "%s: %s is %s; 4 dimensions are needed", c->op, name,
                 TSR__SHAPE(x->layout.ndim, x->layout.shape));
    return TSR_OK;
}

/* Checks keys or values, which can be in blocks if no gradients are computed. */
static tsr_status check_cached(const tsr__attention *c, const char *name, const tsr_tensor *x)
{
    if (c->dy || !x || !tsr__dtype_is_cached_block(x->layout.dtype))
        return check_four(c, name, x);
    TSR__TRY(tsr__require_on_device(c->op, name, c->stream, x));
    TSR__REQUIRE(x->layout.ndim == 4, "%s: %s is %s; 4 dimensions are needed", c->op, name,
                 TSR__SHAPE(x->layout.ndim, x->layout.shape));
    return TSR_OK;
}

static tsr_status check_same(const tsr__attention *c, const char *name, const tsr_tensor *x,
                             const char *as_name, const tsr_tensor *as)
{
    TSR__TRY(tsr__require_float(c->op, name, c->stream, x));
    return tsr__require_same_shape(c->op, name, x, as_name, as);
}

static tsr_status check_i32(const tsr__attention *c, const char *name, const tsr_tensor *x,
                            int ndim)
{
    TSR__TRY(tsr__require_tensor(c->op, name, c->stream, x));
    TSR__REQUIRE(x->layout.dtype == TSR_I32, "%s: %s is %s; i32 is needed", c->op, name,
                 tsr_dtype_name(x->layout.dtype));
    TSR__REQUIRE(x->layout.ndim == ndim && x->layout.shape[0] == c->batch,
                 "%s: %s is %s; %s with a batch of %lld is needed", c->op, name,
                 TSR__SHAPE(x->layout.ndim, x->layout.shape), ndim == 1 ? "[batch]" : "[batch, n]",
                 (long long)c->batch);
    return TSR_OK;
}

static tsr_status check_keys(tsr__attention *c)
{
    const tsr_layout *q = &c->q->layout, *k = &c->k->layout;
    const tsr_tensor *pages = c->params.pages;
    c->batch = q->shape[0];
    c->heads = q->shape[1];
    c->q_len = q->shape[2];
    c->head_dim = q->shape[3];
    c->kv_heads = k->shape[1];
    TSR__REQUIRE(k->shape[3] == c->head_dim, "%s: q is %s and k is %s; their head_dims differ",
                 c->op, TSR__SHAPE(4, q->shape), TSR__SHAPE(4, k->shape));
    c->value_dim = c->v->layout.shape[3];
    TSR__REQUIRE(c->head_dim >= 1 && c->head_dim <= TSR_MAX_HEAD_DIM,
                 "%s: head_dim is %lld; 1 to %d are possible", c->op, (long long)c->head_dim,
                 TSR_MAX_HEAD_DIM);
    TSR__REQUIRE(c->value_dim >= 1 && c->value_dim <= TSR_MAX_HEAD_DIM,
                 "%s: the head_dim of v is %lld; 1 to %d are possible", c->op,
                 (long long)c->value_dim, TSR_MAX_HEAD_DIM);
    TSR__REQUIRE(c->heads <= TSR_MAX_HEADS && c->kv_heads <= TSR_MAX_HEADS,
                 "%s: there are %lld heads and %lld kv heads; at most %d are possible", c->op,
                 (long long)c->heads, (long long)c->kv_heads, TSR_MAX_HEADS);
    TSR__REQUIRE(c->heads == 0 || c->kv_heads > 0,
                 "%s: there are %lld heads, which need a kv head, but k is %s", c->op,
                 (long long)c->heads, TSR__SHAPE(4, k->shape));
    if (!pages) {
        TSR__REQUIRE(k->shape[0] == c->batch, "%s: q is %s and k is %s; their batches differ",
                     c->op, TSR__SHAPE(4, q->shape), TSR__SHAPE(4, k->shape));
        c->kv_len = k->shape[2];
    } else {
        TSR__TRY(check_i32(c, "pages", pages, 2));
        c->page_count = k->shape[0];
        c->page_len = k->shape[2];
        const int64_t count = pages->layout.shape[1];
        TSR__REQUIRE(count == 0 || c->batch == 0 || (c->page_count > 0 && c->page_len > 0),
                     "%s: pages is %s, but k is %s, which has no pages", c->op,
                     TSR__SHAPE(2, pages->layout.shape), TSR__SHAPE(4, k->shape));
        TSR__REQUIRE(c->page_len <= LENGTH_MAX && c->page_count <= LENGTH_MAX,
                     "%s: k is %s; pages and page_len are at most %d", c->op,
                     TSR__SHAPE(4, k->shape), LENGTH_MAX);
        TSR__REQUIRE(c->page_len == 0 || count <= LENGTH_MAX / c->page_len,
                     "%s: %lld pages of %lld keys; a sequence has at most %d keys", c->op,
                     (long long)count, (long long)c->page_len, LENGTH_MAX);
        c->kv_len = count * c->page_len;
    }
    TSR__REQUIRE(c->q_len <= LENGTH_MAX && c->kv_len <= LENGTH_MAX,
                 "%s: there are %lld queries and %lld keys; at most %d are possible", c->op,
                 (long long)c->q_len, (long long)c->kv_len, LENGTH_MAX);
    return TSR_OK;
}

static tsr_status check_lse(const tsr__attention *c)
{
    TSR__TRY(tsr__require_tensor(c->op, "lse", c->stream, c->lse));
    const tsr_layout *lse = &c->lse->layout;
    TSR__REQUIRE(lse->dtype == TSR_F32, "%s: lse is %s; f32 is needed", c->op,
                 tsr_dtype_name(lse->dtype));
    TSR__REQUIRE(lse->ndim == 3 && lse->shape[0] == c->batch && lse->shape[1] == c->heads &&
                     lse->shape[2] == c->q_len,
                 "%s: lse is %s; [%lld,%lld,%lld] is needed", c->op,
                 TSR__SHAPE(lse->ndim, lse->shape), (long long)c->batch, (long long)c->heads,
                 (long long)c->q_len);
    return TSR_OK;
}

/* Params ------------------------------------------------------------------------------------- */

static tsr_status check_numbers(tsr__attention *c)
{
    tsr_attention_params *p = &c->params;
    TSR__REQUIRE(isfinite(p->scale), "%s: scale is %g", c->op, (double)p->scale);
    TSR__REQUIRE(isfinite(p->softcap) && p->softcap >= 0,
                 "%s: softcap is %g; 0 (none) or a positive number is needed", c->op,
                 (double)p->softcap);
    TSR__REQUIRE(p->window >= 0, "%s: window is %lld; 0 (none) or a positive number is needed",
                 c->op, (long long)p->window);
    TSR__REQUIRE(p->window == 0 || p->causal, "%s: window is %lld, but causal is not set", c->op,
                 (long long)p->window);
    TSR__REQUIRE(isfinite(p->temperature) &&
                     (p->temperature == 0 ||
                      (p->temperature_length >= 1 && p->temperature_length <= LENGTH_MAX)),
                 "%s: temperature is %g and temperature_length %lld; a length of 1 to %d is "
                 "needed",
                 c->op, (double)p->temperature, (long long)p->temperature_length, LENGTH_MAX);
    TSR__REQUIRE(!p->starts || p->causal, "%s: starts is given, but causal is not set", c->op);
    TSR__REQUIRE(p->sinks || !p->dsinks, "%s: dsinks is given, but sinks is NULL", c->op);
    TSR__REQUIRE(!p->pages || !c->dy, "%s: there are no gradients of pages", c->op);
    p->scale = tsr__given_float(p->scale, (float)(1 / sqrt((double)c->head_dim)));
    return TSR_OK;
}

static tsr_status check_sinks(const tsr__attention *c, const char *name, const tsr_tensor *x)
{
    TSR__TRY(tsr__require_tensor(c->op, name, c->stream, x));
    TSR__REQUIRE(x->layout.dtype == TSR_F32, "%s: %s is %s; f32 is needed", c->op, name,
                 tsr_dtype_name(x->layout.dtype));
    TSR__REQUIRE(x->layout.ndim == 1 && x->layout.shape[0] == c->heads,
                 "%s: %s is %s; [%lld], one number for each head, is needed", c->op, name,
                 TSR__SHAPE(x->layout.ndim, x->layout.shape), (long long)c->heads);
    return TSR_OK;
}

static tsr_status check_starts(const tsr__attention *c)
{
    const tsr_tensor *starts = c->params.starts;
    TSR__TRY(check_i32(c, "starts", starts, 2));
    TSR__REQUIRE(starts->layout.shape[1] == c->q_len,
                 "%s: starts is %s; [%lld,%lld], one number for each query, is needed", c->op,
                 TSR__SHAPE(2, starts->layout.shape), (long long)c->batch, (long long)c->q_len);
    return TSR_OK;
}

static tsr_status check_options(tsr__attention *c)
{
    const tsr_attention_params *p = &c->params;
    if (p->sinks)
        TSR__TRY(check_sinks(c, "sinks", p->sinks));
    if (p->dsinks && c->dy)
        TSR__TRY(check_sinks(c, "dsinks", p->dsinks));
    if (p->q_lengths)
        TSR__TRY(check_i32(c, "q_lengths", p->q_lengths, 1));
    if (p->kv_lengths)
        TSR__TRY(check_i32(c, "kv_lengths", p->kv_lengths, 1));
    if (p->starts)
        TSR__TRY(check_starts(c));
    if (p->mask) {
        TSR__TRY(tsr__require_float(c->op, "mask", c->stream, p->mask));
        const int64_t shape[] = {c->batch, c->heads, c->q_len, c->kv_len};
        if (tsr_layout_broadcast(&p->mask->layout, 4, shape, &c->mask) != TSR_OK)
            return tsr__fail(TSR_ERR_INVALID, "%s: mask %s does not broadcast to %s", c->op,
                             TSR__SHAPE(p->mask->layout.ndim, p->mask->layout.shape),
                             TSR__SHAPE(4, shape));
    }
    return TSR_OK;
}

/* Allocates c->table and writes the lists of heads that call.h describes. The caller must free the
 * table. */
static tsr_status make_table(tsr__attention *c)
{
    const size_t heads = (size_t)c->heads, kv_heads = (size_t)c->kv_heads;
    uint32_t *table = tsr__calloc(2 * heads + kv_heads + 1, sizeof *table);
    if (!table)
        return TSR_ERR_NO_MEMORY;
    uint32_t *reader = table + heads, *first = reader + heads;
    for (size_t h = 0; h < heads; h++) {
        const int32_t *given = c->params.kv_head;
        table[h] = given ? (uint32_t)given[h] : (uint32_t)(h * kv_heads / heads);
        if (table[h] >= kv_heads) {
            tsr__free(table);
            return tsr__fail(TSR_ERR_INVALID, "%s: kv_head[%lld] is %lld; there are %lld kv heads",
                             c->op, (long long)h, (long long)given[h], (long long)kv_heads);
        }
        first[table[h] + 1]++;
    }
    for (size_t g = 0; g < kv_heads; g++)
        first[g + 1] += first[g];
    for (size_t g = 0; g < kv_heads; g++)
        for (size_t h = 0, n = first[g]; n < first[g + 1]; h++)
            if (table[h] == g)
                reader[n++] = (uint32_t)h;
    c->table = table;
    return TSR_OK;
}

/* Overlap ------------------------------------------------------------------------------------ */

typedef struct named {
    const char *name;
    const tsr_tensor *tensor; /* NULL if the caller did not pass it */
} named;

static tsr_status check_overlap(const tsr__attention *c)
{
    const tsr_attention_params *p = &c->params;
    const named forward[] = {{"y", c->y}, {"lse", c->lse}},
                backward[] = {{"dq", c->dq}, {"dk", c->dk}, {"dv", c->dv}, {"dsinks", p->dsinks}},
                in[] = {{"q", c->q},
                        {"k", c->k},
                        {"v", c->v},
                        {"mask", p->mask},
                        {"q_lengths", p->q_lengths},
                        {"kv_lengths", p->kv_lengths},
                        {"pages", p->pages},
                        {"sinks", p->sinks},
                        {"starts", p->starts},
                        {"the new k", c->new_k},
                        {"the new v", c->new_v},
                        {"dy", c->dy},
                        {"y", c->dy ? c->y : NULL},
                        {"lse", c->dy ? c->lse : NULL}};
    const named *out = c->dy ? backward : forward;
    const int outs = c->dy ? 4 : 2;
    for (int i = 0; i < outs; i++) {
        if (!out[i].tensor)
            continue;
        TSR__TRY(tsr__require_writable(c->op, out[i].name, out[i].tensor));
        for (size_t j = 0; j < sizeof in / sizeof *in; j++)
            if (in[j].tensor)
                TSR__TRY(tsr__require_disjoint(c->op, out[i].name, out[i].tensor, in[j].name,
                                               in[j].tensor, false));
        for (int j = i + 1; j < outs; j++)
            if (out[j].tensor)
                TSR__TRY(tsr__require_disjoint(c->op, out[i].name, out[i].tensor, out[j].name,
                                               out[j].tensor, false));
    }
    return TSR_OK;
}

/* Checks y or dy, which have the rows of q and the columns of v. */
static tsr_status check_y(const tsr__attention *c, const char *name, const tsr_tensor *y)
{
    TSR__TRY(check_four(c, name, y));
    const int64_t *shape = y->layout.shape;
    TSR__REQUIRE(shape[0] == c->batch && shape[1] == c->heads && shape[2] == c->q_len &&
                     shape[3] == c->value_dim,
                 "%s: %s is %s; [%lld,%lld,%lld,%lld], the shape of q with the head_dim of v, is "
                 "needed",
                 c->op, name, TSR__SHAPE(4, shape), (long long)c->batch, (long long)c->heads,
                 (long long)c->q_len, (long long)c->value_dim);
    return TSR_OK;
}

static tsr_status check_v(const tsr__attention *c)
{
    TSR__TRY(check_cached(c, "v", c->v));
    for (int d = 0; d < 3; d++)
        TSR__REQUIRE(c->v->layout.shape[d] == c->k->layout.shape[d],
                     "%s: k is %s and v is %s; only their head_dims may differ", c->op,
                     TSR__SHAPE(4, c->k->layout.shape), TSR__SHAPE(4, c->v->layout.shape));
    return TSR_OK;
}

static tsr_status check_results(const tsr__attention *c)
{
    TSR__TRY(check_y(c, "y", c->y));
    if (c->lse || c->dy)
        TSR__TRY(check_lse(c));
    if (!c->dy)
        return TSR_OK;
    TSR__TRY(check_y(c, "dy", c->dy));
    if (c->dq)
        TSR__TRY(check_same(c, "dq", c->dq, "q", c->q));
    if (c->dk)
        TSR__TRY(check_same(c, "dk", c->dk, "k", c->k));
    return c->dv ? check_same(c, "dv", c->dv, "v", c->v) : TSR_OK;
}

tsr_status tsr__attention_check(tsr__attention *c)
{
    TSR__TRY(check_four(c, "q", c->q));
    TSR__TRY(check_cached(c, "k", c->k));
    TSR__TRY(check_v(c));
    TSR__TRY(check_keys(c));
    TSR__TRY(check_numbers(c));
    TSR__TRY(check_options(c));
    TSR__TRY(check_results(c));
    TSR__TRY(check_overlap(c));
    TSR__TRY(tsr__device_check(tsr_stream_device(c->stream)));
    return make_table(c);
}

void tsr__attention_finish(tsr__attention *call)
{
    tsr__free(call->table);
    call->table = NULL;
}
