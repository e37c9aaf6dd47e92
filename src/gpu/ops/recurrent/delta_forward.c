/* The gated delta rule in chunks: the forward pass. */
#include "gpu/internal.h"
#include "gpu/ops/recurrent/delta.h"
#include "shaders/params/delta.h"

enum { CHUNK = TSR_DELTA_CHUNK, WORKGROUP = 64 };

static tsr_status run_decay(const tsr__delta_chunks *c)
{
    const tsr__delta *call = c->call;
    const struct tsr_delta_decay_push push = {
        .beta = tsr__tokens_address(call->beta),
        .g = tsr__tokens_address(call->g),
        .lengths = tsr__tokens_address(call->params.lengths),
        .starts = tsr__tokens_address(call->params.starts),
        .work = tsr__tokens_address(c->work),
        .batch = (uint32_t)call->tokens.batch,
        .tokens = (uint32_t)call->tokens.tokens,
        .chunks = (uint32_t)c->chunks,
        .beta_stride = call->beta_stride,
        .g_stride = call->g_stride,
        .decay = c->place[TSR__DELTA_DECAY],
    };
    tsr__dispatch d = tsr__delta_dispatch(call, TSR__SHADER_DELTA_DECAY, WORKGROUP);
    d.push = &push;
    d.push_bytes = sizeof push;
    tsr__groups_for((uint64_t)(call->tokens.batch * c->chunks * call->heads), WORKGROUP, d.groups);
    tsr__tokens_read(&d, call->beta);
    tsr__tokens_read(&d, call->g);
    tsr__tokens_read(&d, call->params.lengths);
    tsr__tokens_read(&d, call->params.starts);
    tsr__delta_write(c, &d, TSR__DELTA_DECAY);
    return tsr__stream_dispatch(call->tokens.stream, &d);
}

static tsr_status run_triangle(const tsr__delta_chunks *c)
{
    const tsr__delta *call = c->call;
    const int64_t count = call->tokens.batch * c->chunks;
    const struct tsr_delta_triangle_push push = {
        .work = tsr__tokens_address(c->work),
        .count = (uint32_t)count,
        .decay = c->place[TSR__DELTA_DECAY],
        .key_key = c->place[TSR__DELTA_KEY_KEY],
        .query_key = c->place[TSR__DELTA_QUERY_KEY],
        .inverse = c->place[TSR__DELTA_INVERSE],
        .carried = c->place[TSR__DELTA_CARRIED],
        .weights = c->place[TSR__DELTA_WEIGHTS],
    };
    tsr__dispatch d = tsr__delta_dispatch(call, TSR__SHADER_DELTA_TRIANGLE, CHUNK);
    d.spec[d.spec_count++] = c->products ? TSR__DELTA_BLOCK : CHUNK;
    d.push = &push;
    d.push_bytes = sizeof push;
    d.work = (double)(count * call->heads) * CHUNK * CHUNK * CHUNK / 6;
    tsr__groups_for((uint64_t)(count * call->heads), 1, d.groups);
    if (c->products)
        tsr__delta_write(c, &d, TSR__DELTA_DECAY);
    else
        tsr__delta_read(c, &d, TSR__DELTA_DECAY);
    tsr__delta_read(c, &d, TSR__DELTA_KEY_KEY);
    tsr__delta_read(c, &d, TSR__DELTA_QUERY_KEY);
    tsr__delta_write(c, &d, TSR__DELTA_INVERSE);
    if (!c->products)
        tsr__delta_write(c, &d, TSR__DELTA_CARRIED);
    tsr__delta_write(c, &d, TSR__DELTA_WEIGHTS);
    return tsr__stream_dispatch(call->tokens.stream, &d);
}

static tsr_status scan_part(const tsr__delta_chunks *c, const tsr_tensor *y, uint32_t y_stride,
                            const tsr__delta_part *part)
{
    const tsr__delta *call = c->call;
    const struct tsr_delta_scan_push push = {
        .work = tsr__tokens_address(c->work),
        .y = tsr__tokens_address(y),
        .state = tsr__tokens_address(part->from),
        .new_state = tsr__tokens_address(part->to),
        .read_slots = tsr__tokens_address(call->tokens.read_slots),
        .write_slots = tsr__tokens_address(call->tokens.write_slots),
        .slots = (uint32_t)call->tokens.slots,
        .batch = (uint32_t)call->tokens.batch,
        .tokens = (uint32_t)call->tokens.tokens,
        .chunks = (uint32_t)c->chunks,
        .first_chunk = (uint32_t)part->first,
        .end_chunk = (uint32_t)part->end,
        .y_stride = y_stride,
        .decay = c->place[TSR__DELTA_DECAY],
        .queries = c->place[TSR__DELTA_QUERIES],
        .keys = c->place[TSR__DELTA_KEYS],
        .weights = c->place[TSR__DELTA_WEIGHTS],
        .u = c->place[TSR__DELTA_U],
        .w = c->place[TSR__DELTA_W],
        .states = c->backward ? c->place[TSR__DELTA_STATES] : TSR_DELTA_NOT_KEPT,
        .deltas = c->backward ? c->place[TSR__DELTA_DELTAS] : TSR_DELTA_NOT_KEPT,
    };
    tsr__dispatch d = tsr__delta_scan_dispatch(
        c, TSR__SHADER_DELTA_SCAN, y ? y->layout.dtype : TSR_F32, part->end - part->first);
    d.spec[d.spec_count++] = part->slots;
    d.push = &push;
    d.push_bytes = sizeof push;
    static const tsr__delta_array read[] = {TSR__DELTA_DECAY,   TSR__DELTA_QUERIES, TSR__DELTA_KEYS,
                                            TSR__DELTA_WEIGHTS, TSR__DELTA_U,       TSR__DELTA_W};
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        tsr__delta_read(c, &d, read[i]);
    tsr__tokens_read(&d, part->from);
    tsr__tokens_read(&d, call->tokens.read_slots);
    tsr__tokens_read(&d, call->tokens.write_slots);
    tsr__tokens_write(&d, y);
    tsr__tokens_write(&d, part->to);
    if (c->backward) {
        tsr__delta_write(c, &d, TSR__DELTA_STATES);
        tsr__delta_write(c, &d, TSR__DELTA_DELTAS);
    }
    return tsr__stream_dispatch(call->tokens.stream, &d);
}

tsr_status tsr__delta_chunks_forward(const tsr__delta_chunks *c, const tsr_tensor *y,
                                     uint32_t y_stride, const tsr_tensor *new_state)
{
    TSR__TRY(run_decay(c));
    TSR__TRY(tsr__delta_rows(c));
    TSR__TRY(tsr__delta_product(c, TSR__DELTA_KEY_KEY, TSR__DELTA_KEYS, false, TSR__DELTA_KEYS,
                                true, false));
    TSR__TRY(tsr__delta_product(c, TSR__DELTA_QUERY_KEY, TSR__DELTA_QUERIES, false, TSR__DELTA_KEYS,
                                true, false));
    TSR__TRY(run_triangle(c));
    if (c->products) {
        TSR__TRY(tsr__delta_join_blocks(c));
        return tsr__delta_scan_products(c, y, y_stride, new_state);
    }
    TSR__TRY(tsr__delta_product(c, TSR__DELTA_U, TSR__DELTA_INVERSE, false, TSR__DELTA_VALUES,
                                false, false));
    TSR__TRY(tsr__delta_product(c, TSR__DELTA_W, TSR__DELTA_CARRIED, false, TSR__DELTA_KEYS, false,
                                false));
    if (c->matrices.terms > 0)
        TSR__TRY(tsr__delta_narrow(c));
    /* There is a part even for no chunks, which copies states. */
    for (int64_t first = 0; first == 0 || first < c->chunks; first += c->part_chunks) {
        const tsr__delta_part part = tsr__delta_part_at(c, first, new_state);
        TSR__TRY(c->matrices.terms > 0 ? tsr__delta_scan_matrices(c, y, y_stride, &part)
                                       : scan_part(c, y, y_stride, &part));
    }
    return TSR_OK;
}
