/* The gradients of the gated delta rule, in chunks. With S the state before a chunk, and dS the
 * gradient of the state after it:
 *
 *     D = T·R, R = beta · (v − carry · K·S)          the changes of the state
 *     dR = Tᵀ·dD, dA = −dR·Dᵀ                        T = (1 + A)^−1
 *     X = dy·Sᵀ, Z = dR·Sᵀ, M = D·dSᵀ                what S and dS contribute to dq and dk */
#include "base/struct_size.h"
#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "gpu/ops/recurrent/delta.h"
#include "shaders/params/delta.h"
#include "tensor/check.h"

enum { CHUNK = TSR_DELTA_CHUNK, ROWS_WORKGROUP = 64, ROW_THREADS = 8 };

typedef struct gradient_work {
    tsr__delta_chunks chunks;
    tsr_delta_rule_grads grads;
    const tsr_tensor *dy, *dnew_state;
    uint32_t dy_stride, dq_stride, dk_stride, dv_stride, dbeta_stride, dg_stride;
} gradient_work;

/* Takes the gradient of the states from `from`, after chunk end − 1, to `to`, before chunk `first`;
 * both may be NULL. */
static tsr_status scan_part(const gradient_work *w, int64_t first, int64_t end,
                            const tsr_tensor *from, const tsr_tensor *to)
{
    const tsr__delta_chunks *c = &w->chunks;
    const tsr__delta *call = c->call;
    const struct tsr_delta_scan_grad_push push = {
        .work = tsr__tokens_address(c->work),
        .dy = tsr__tokens_address(w->dy),
        .dnew_state = tsr__tokens_address(from),
        .dstate = tsr__tokens_address(to),
        .lengths = tsr__tokens_address(call->params.lengths),
        .batch = (uint32_t)call->tokens.batch,
        .tokens = (uint32_t)call->tokens.tokens,
        .chunks = (uint32_t)c->chunks,
        .first_chunk = (uint32_t)first,
        .end_chunk = (uint32_t)end,
        .dy_stride = w->dy_stride,
        .decay = c->place[TSR__DELTA_DECAY],
        .queries = c->place[TSR__DELTA_QUERIES],
        .keys = c->place[TSR__DELTA_KEYS],
        .weights = c->place[TSR__DELTA_WEIGHTS],
        .w = c->place[TSR__DELTA_W],
        .states = c->place[TSR__DELTA_STATES],
        .dstates = c->place[TSR__DELTA_DSTATES],
        .ddeltas = c->place[TSR__DELTA_DDELTAS],
        .dy_rows = c->place[TSR__DELTA_DY],
        .dots = c->place[TSR__DELTA_DOTS],
    };
    tsr__dispatch d =
        tsr__delta_scan_dispatch(c, TSR__SHADER_DELTA_SCAN_GRAD, w->dy->layout.dtype, end - first);
    d.push = &push;
    d.push_bytes = sizeof push;
    static const tsr__delta_array read[] = {TSR__DELTA_DECAY, TSR__DELTA_QUERIES,
                                            TSR__DELTA_KEYS,  TSR__DELTA_WEIGHTS,
                                            TSR__DELTA_W,     TSR__DELTA_STATES};
    static const tsr__delta_array written[] = {TSR__DELTA_DSTATES, TSR__DELTA_DDELTAS,
                                               TSR__DELTA_DY, TSR__DELTA_DOTS};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        tsr__delta_read(c, &d, read[i]);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        tsr__delta_write(c, &d, written[i]);
    tsr__tokens_read(&d, w->dy);
    tsr__tokens_read(&d, from);
    tsr__tokens_read(&d, call->params.lengths);
    tsr__tokens_write(&d, to);
    return tsr__stream_dispatch(call->tokens.stream, &d);
}

static tsr_status run_scan(const gradient_work *w)
{
    const tsr__delta_chunks *c = &w->chunks;
    int64_t end = c->chunks;
    do {
        const int64_t first = end > c->part_chunks ? end - c->part_chunks : 0;
        TSR__TRY(scan_part(w, first, end, end == c->chunks ? w->dnew_state : c->carry,
                           first == 0 ? w->grads.dstate : c->carry));
        end = first;
    } while (end > 0);
    return TSR_OK;
}

static tsr_status run_mask(const tsr__delta_chunks *c)
{
    const tsr__delta *call = c->call;
    const int64_t count = call->tokens.batch * c->chunks;
    const struct tsr_delta_mask_grad_push push = {
        .work = tsr__tokens_address(c->work),
        .count = (uint32_t)count,
        .decay = c->place[TSR__DELTA_DECAY],
        .key_key = c->place[TSR__DELTA_KEY_KEY],
        .query_key = c->place[TSR__DELTA_QUERY_KEY],
        .dweights = c->place[TSR__DELTA_DWEIGHTS],
        .dtriangle = c->place[TSR__DELTA_DTRIANGLE],
        .dquery_key = c->place[TSR__DELTA_DQUERY_KEY],
        .dkey_key = c->place[TSR__DELTA_DKEY_KEY],
        .parts = c->place[TSR__DELTA_PARTS],
    };
    tsr__dispatch d = tsr__delta_dispatch(call, TSR__SHADER_DELTA_MASK_GRAD, CHUNK);
    d.push = &push;
    d.push_bytes = sizeof push;
    tsr__groups_for((uint64_t)(count * call->heads), 1, d.groups);
    static const tsr__delta_array read[] = {TSR__DELTA_DECAY, TSR__DELTA_KEY_KEY,
                                            TSR__DELTA_QUERY_KEY, TSR__DELTA_DWEIGHTS,
                                            TSR__DELTA_DTRIANGLE};
    static const tsr__delta_array written[] = {TSR__DELTA_DQUERY_KEY, TSR__DELTA_DKEY_KEY,
                                               TSR__DELTA_PARTS};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        tsr__delta_read(c, &d, read[i]);
    for (size_t i = 0; i < sizeof written / sizeof *written; i++)
        tsr__delta_write(c, &d, written[i]);
    return tsr__stream_dispatch(call->tokens.stream, &d);
}

static tsr_status run_tokens(const gradient_work *w)
{
    const tsr__delta_chunks *c = &w->chunks;
    const tsr__delta *call = c->call;
    const struct tsr_delta_token_grad_push push = {
        .work = tsr__tokens_address(c->work),
        .v = tsr__tokens_address(call->v),
        .dv = tsr__tokens_address(w->grads.dv),
        .dbeta = tsr__tokens_address(w->grads.dbeta),
        .dg = tsr__tokens_address(w->grads.dg),
        .batch = (uint32_t)call->tokens.batch,
        .tokens = (uint32_t)call->tokens.tokens,
        .chunks = (uint32_t)c->chunks,
        .v_stride = call->v_stride,
        .dv_stride = w->dv_stride,
        .dbeta_stride = w->dbeta_stride,
        .dg_stride = w->dg_stride,
        .decay = c->place[TSR__DELTA_DECAY],
        .queries = c->place[TSR__DELTA_QUERIES],
        .keys = c->place[TSR__DELTA_KEYS],
        .x = c->place[TSR__DELTA_X],
        .z = c->place[TSR__DELTA_Z],
        .m = c->place[TSR__DELTA_M],
        .dr = c->place[TSR__DELTA_DR],
        .parts = c->place[TSR__DELTA_PARTS],
        .dots = c->place[TSR__DELTA_DOTS],
    };
    tsr__dispatch d = tsr__delta_dispatch(call, TSR__SHADER_DELTA_TOKEN_GRAD, CHUNK);
    d.spec[d.spec_count++] = (uint32_t)call->v->layout.dtype;
    d.spec[d.spec_count++] = (uint32_t)w->grads.dv->layout.dtype;
    d.spec[d.spec_count++] = (uint32_t)c->blocks;
    d.push = &push;
    d.push_bytes = sizeof push;
    tsr__groups_for((uint64_t)(call->tokens.batch * c->chunks * call->heads), 1, d.groups);
    static const tsr__delta_array read[] = {TSR__DELTA_DECAY, TSR__DELTA_QUERIES, TSR__DELTA_KEYS,
                                            TSR__DELTA_X,     TSR__DELTA_Z,       TSR__DELTA_M,
                                            TSR__DELTA_DR,    TSR__DELTA_PARTS,   TSR__DELTA_DOTS};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        tsr__delta_read(c, &d, read[i]);
    tsr__tokens_read(&d, call->v);
    tsr__tokens_write(&d, w->grads.dv);
    tsr__tokens_write(&d, w->grads.dbeta);
    tsr__tokens_write(&d, w->grads.dg);
    return tsr__stream_dispatch(call->tokens.stream, &d);
}

static tsr_status run_rows(const gradient_work *w, bool is_key)
{
    const tsr__delta_chunks *c = &w->chunks;
    const tsr__delta *call = c->call;
    const tsr_tensor *dx = is_key ? w->grads.dk : w->grads.dq;
    const tsr__delta_array rows = is_key ? TSR__DELTA_KEYS : TSR__DELTA_QUERIES,
                           inverse = is_key ? TSR__DELTA_K_INVERSE : TSR__DELTA_Q_INVERSE,
                           products = is_key ? TSR__DELTA_DKEYS : TSR__DELTA_DQUERIES;
    const bool normalise = call->params.norm_epsilon > 0;
    const struct tsr_delta_row_grad_push push = {
        .work = tsr__tokens_address(c->work),
        .dx = tsr__tokens_address(dx),
        .batch = (uint32_t)call->tokens.batch,
        .tokens = (uint32_t)call->tokens.tokens,
        .chunks = (uint32_t)c->chunks,
        .dx_stride = is_key ? w->dk_stride : w->dq_stride,
        .decay = c->place[TSR__DELTA_DECAY],
        .rows = c->place[rows],
        .inverse = c->place[inverse],
        .products = c->place[products],
        .x = c->place[TSR__DELTA_X],
        .z = c->place[TSR__DELTA_Z],
        .m = c->place[TSR__DELTA_M],
        .is_key = is_key,
        .factor = is_key ? 1 : call->scale,
    };
    tsr__dispatch d = tsr__delta_dispatch(call, TSR__SHADER_DELTA_ROW_GRAD, ROWS_WORKGROUP);
    d.spec[d.spec_count++] = (uint32_t)dx->layout.dtype;
    d.spec[d.spec_count++] = normalise;
    d.push = &push;
    d.push_bytes = sizeof push;
    tsr__groups_for((uint64_t)(call->tokens.batch * c->chunks * call->key_heads * CHUNK),
                    ROWS_WORKGROUP / ROW_THREADS, d.groups);
    tsr__delta_read(c, &d, TSR__DELTA_DECAY);
    tsr__delta_read(c, &d, rows);
    tsr__delta_read(c, &d, products);
    if (normalise)
        tsr__delta_read(c, &d, inverse);
    if (is_key) {
        tsr__delta_read(c, &d, TSR__DELTA_Z);
        tsr__delta_read(c, &d, TSR__DELTA_M);
    } else {
        tsr__delta_read(c, &d, TSR__DELTA_X);
    }
    tsr__tokens_write(&d, dx);
    return tsr__stream_dispatch(call->tokens.stream, &d);
}

/* The products of a chunk's backward pass, in order; run_mask follows the first MASKED of them. The
 * first one is not needed if the gradient of the state goes from chunk to chunk by products. */
static const struct {
    tsr__delta_array out, a, b;
    bool transpose_a, transpose_b, accumulate;
} products[] = {
    {TSR__DELTA_DR, TSR__DELTA_INVERSE, TSR__DELTA_DDELTAS, true, false, false},
    {TSR__DELTA_X, TSR__DELTA_DY, TSR__DELTA_STATES, false, true, false},
    {TSR__DELTA_Z, TSR__DELTA_DR, TSR__DELTA_STATES, false, true, false},
    {TSR__DELTA_M, TSR__DELTA_DELTAS, TSR__DELTA_DSTATES, false, true, false},
    {TSR__DELTA_DWEIGHTS, TSR__DELTA_DY, TSR__DELTA_DELTAS, false, true, false},
    {TSR__DELTA_DTRIANGLE, TSR__DELTA_DR, TSR__DELTA_DELTAS, false, true, false},
    {TSR__DELTA_DQUERIES, TSR__DELTA_DQUERY_KEY, TSR__DELTA_KEYS, false, false, false},
    {TSR__DELTA_DKEYS, TSR__DELTA_DQUERY_KEY, TSR__DELTA_QUERIES, true, false, false},
    {TSR__DELTA_DKEYS, TSR__DELTA_DKEY_KEY, TSR__DELTA_KEYS, false, false, true},
    {TSR__DELTA_DKEYS, TSR__DELTA_DKEY_KEY, TSR__DELTA_KEYS, true, false, true},
};
enum { MASKED = 6 };

static tsr_status record(tsr_stream *stream, void *opaque)
{
    const gradient_work *w = opaque;
    const tsr__delta_chunks *c = &w->chunks;
    (void)stream;
    TSR__TRY(tsr__delta_chunks_forward(c, NULL, 0, NULL));
    if (c->products)
        TSR__TRY(
            tsr__delta_scan_grad_products(c, w->dy, w->dy_stride, w->dnew_state, w->grads.dstate));
    else
        TSR__TRY(run_scan(w));
    for (int i = c->products ? 1 : 0; i < (int)(sizeof products / sizeof *products); i++) {
        if (i == MASKED)
            TSR__TRY(run_mask(c));
        TSR__TRY(tsr__delta_product(c, products[i].out, products[i].a, products[i].transpose_a,
                                    products[i].b, products[i].transpose_b,
                                    products[i].accumulate));
    }
    TSR__TRY(run_tokens(w));
    TSR__TRY(run_rows(w, false));
    return run_rows(w, true);
}

static tsr_status check_gradients(const tsr__delta *c, gradient_work *w)
{
    const tsr_delta_rule_grads *g = &w->grads;
    const tsr__tokens *t = &c->tokens;
    const tsr_tensor *out[] = {g->dq, g->dk, g->dv, g->dbeta, g->dg, g->dstate};
    static const char *const names[] = {"dq", "dk", "dv", "dbeta", "dg", "dstate"};
    TSR__TRY(tsr__tokens_check(t, "dy", w->dy, c->heads, c->value_dim, 4, true, &w->dy_stride));
    TSR__TRY(tsr__delta_check_state(c, "dnew_state", t->batch, w->dnew_state));
    TSR__TRY(tsr__tokens_check(t, "dq", g->dq, c->key_heads, c->key_dim, 4, true, &w->dq_stride));
    TSR__TRY(tsr__tokens_check(t, "dk", g->dk, c->key_heads, c->key_dim, 4, true, &w->dk_stride));
    TSR__TRY(tsr__tokens_check(t, "dv", g->dv, c->heads, c->value_dim, 4, true, &w->dv_stride));
    TSR__TRY(tsr__tokens_check(t, "dbeta", g->dbeta, 0, c->heads, 3, false, &w->dbeta_stride));
    TSR__TRY(tsr__tokens_check(t, "dg", g->dg, 0, c->heads, 3, false, &w->dg_stride));
    TSR__REQUIRE(!g->dstate || c->params.state, "%s: dstate is given, but no state", t->op);
    TSR__TRY(tsr__delta_check_state(c, "dstate", t->batch, g->dstate));
    for (int i = 0; i < 6; i++) {
        if (!out[i])
            continue;
        TSR__TRY(tsr__delta_check_output(c, names[i], out[i], NULL));
        TSR__TRY(tsr__require_disjoint(t->op, names[i], out[i], "dy", w->dy, false));
        if (w->dnew_state)
            TSR__TRY(tsr__require_disjoint(t->op, names[i], out[i], "dnew_state", w->dnew_state,
                                           out[i] == g->dstate));
        for (int k = 0; k < i; k++)
            if (out[k])
                TSR__TRY(tsr__require_disjoint(t->op, names[i], out[i], names[k], out[k], false));
    }
    return TSR_OK;
}

tsr_status tsr_delta_rule_grad(tsr_stream *stream, const tsr_delta_rule_grads *grads,
                               const tsr_tensor *dy, const tsr_tensor *dnew_state,
                               const tsr_tensor *q, const tsr_tensor *k, const tsr_tensor *v,
                               const tsr_tensor *beta, const tsr_tensor *g,
                               const tsr_delta_rule_params *params)
{
    tsr__delta c;
    gradient_work w = {.dy = dy, .dnew_state = dnew_state};
    TSR__TAKE(tsr_delta_rule_params, params);
    TSR__TAKE(tsr_delta_rule_grads, grads);
    w.grads = *grads;
    TSR__TRY(tsr__tokens_refuse_slots("delta_rule_grad", params->read_slots, params->write_slots));
    TSR__TRY(
        tsr__delta_check_inputs("delta_rule_grad", stream, q, k, v, beta, g, NULL, params, &c));
    TSR__TRY(check_gradients(&c, &w));
    if (c.tokens.batch == 0)
        return TSR_OK;
    TSR__TRY(tsr__delta_chunks_create(&c, true, &w.chunks));
    const tsr_status status = tsr__stream_atomic(stream, record, &w);
    tsr__delta_chunks_finish(&w.chunks);
    return status;
}
