/* The gated delta rule, and its recurrence token by token. */
#include <string.h>

#include "base/struct_size.h"
#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "gpu/ops/recurrent/delta.h"
#include "shaders/params/delta.h"
#include "tensor/check.h"

enum { STEP_WORKGROUP = 64, ITERATIONS_OF_TOKEN = 80 };

static double bytes_of_token(const tsr_tensor *tensor)
{
    const tsr_layout *l = &tensor->layout;
    return (double)(l->shape[2] * (l->ndim == 4 ? l->shape[3] : 1)) *
           (double)tsr_dtype_size(l->dtype);
}

/* Says what a dispatch with slots reads and writes: each state once, not all slots. */
static void count_bytes(const tsr__delta *c, const tsr_tensor *y, tsr__dispatch *d)
{
    const double tokens = (double)(c->tokens.batch * c->tokens.tokens),
                 states = (double)(c->tokens.batch * c->heads * c->key_dim * c->value_dim) *
                          sizeof(float);
    if (!c->tokens.read_slots || !c->tokens.write_slots)
        return;
    d->read_bytes =
        states + tokens * (bytes_of_token(c->q) + bytes_of_token(c->k) + bytes_of_token(c->v) +
                           bytes_of_token(c->beta) + bytes_of_token(c->g));
    d->written_bytes = states + tokens * bytes_of_token(y);
}

/* The multiply-adds of the recurrence. */
static double steps_work(const tsr__delta *c)
{
    return 4.0 * (double)(c->tokens.batch * c->tokens.tokens * c->heads) *
           (double)(c->key_dim * c->value_dim);
}

/* True if the recurrence of one sequence, which cannot be divided, is within the device's limit on
 * work. */
static bool steps_fit(const tsr__delta *c)
{
    const double limit = tsr_stream_device(c->tokens.stream)->work_limit;
    return steps_work(c) <= limit * (double)c->tokens.batch;
}

static tsr_status run_steps(const tsr__delta *c, const tsr_tensor *y, uint32_t y_stride,
                            const tsr_tensor *new_state)
{
    const struct tsr_delta_step_push push = {
        .q = tsr__tokens_address(c->q),
        .k = tsr__tokens_address(c->k),
        .v = tsr__tokens_address(c->v),
        .beta = tsr__tokens_address(c->beta),
        .g = tsr__tokens_address(c->g),
        .y = tsr__tokens_address(y),
        .state = tsr__tokens_address(c->params.state),
        .new_state = tsr__tokens_address(new_state),
        .lengths = tsr__tokens_address(c->params.lengths),
        .starts_or_read_slots =
            tsr__tokens_address(c->tokens.read_slots ? c->tokens.read_slots : c->params.starts),
        .write_slots = tsr__tokens_address(c->tokens.write_slots),
        .batch = (uint32_t)c->tokens.batch,
        .tokens = (uint32_t)c->tokens.tokens,
        .slots = (uint32_t)c->tokens.slots,
        .q_stride = c->q_stride,
        .k_stride = c->k_stride,
        .v_stride = c->v_stride,
        .beta_stride = c->beta_stride,
        .g_stride = c->g_stride,
        .y_stride = y_stride,
        .scale = c->scale,
    };
    uint32_t epsilon_bits;
    memcpy(&epsilon_bits, &c->params.norm_epsilon, sizeof epsilon_bits);
    const int64_t columns = STEP_WORKGROUP / (int64_t)TSR_DELTA_LANES,
                  blocks = (c->value_dim + columns - 1) / columns;
    tsr__dispatch d = tsr__delta_dispatch(c, TSR__SHADER_DELTA_STEP, STEP_WORKGROUP);
    d.spec[d.spec_count++] = (uint32_t)c->q->layout.dtype;
    d.spec[d.spec_count++] = (uint32_t)c->k->layout.dtype;
    d.spec[d.spec_count++] = (uint32_t)c->v->layout.dtype;
    d.spec[d.spec_count++] = (uint32_t)y->layout.dtype;
    d.spec[d.spec_count++] = epsilon_bits;
    d.spec[d.spec_count++] = tsr__tokens_slots(&c->tokens);
    d.push = &push;
    d.push_bytes = sizeof push;
    d.work = d.multiply_adds = steps_work(c);
    tsr__groups_for((uint64_t)(c->tokens.batch * c->heads * blocks), 1, d.groups);
    count_bytes(c, y, &d);
    const tsr_tensor *in[] = {c->q,
                              c->k,
                              c->v,
                              c->beta,
                              c->g,
                              c->params.state,
                              c->params.lengths,
                              c->params.starts,
                              c->tokens.read_slots,
                              c->tokens.write_slots};
    for (int i = 0; i < 10; i++)
        tsr__tokens_read(&d, in[i]);
    tsr__tokens_write(&d, y);
    tsr__tokens_write(&d, new_state);
    return tsr__stream_dispatch(c->tokens.stream, &d);
}

typedef struct chunk_work {
    tsr__delta_chunks chunks;
    const tsr_tensor *y, *new_state;
    uint32_t y_stride;
} chunk_work;

static tsr_status record_chunks(tsr_stream *stream, void *opaque)
{
    const chunk_work *w = opaque;
    (void)stream;
    return tsr__delta_chunks_forward(&w->chunks, w->y, w->y_stride, w->new_state);
}

static tsr_status run_chunks(const tsr__delta *c, const tsr_tensor *y, uint32_t y_stride,
                             const tsr_tensor *new_state)
{
    chunk_work w = {.y = y, .new_state = new_state, .y_stride = y_stride};
    TSR__TRY(tsr__delta_chunks_create(c, false, &w.chunks));
    const tsr_status status = tsr__stream_atomic(c->tokens.stream, record_chunks, &w);
    tsr__delta_chunks_finish(&w.chunks);
    return status;
}

tsr_status tsr_delta_rule(tsr_stream *stream, tsr_tensor *y, tsr_tensor *new_state,
                          const tsr_tensor *q, const tsr_tensor *k, const tsr_tensor *v,
                          const tsr_tensor *beta, const tsr_tensor *g,
                          const tsr_delta_rule_params *params)
{
    tsr__delta c;
    uint32_t y_stride;
    TSR__TAKE(tsr_delta_rule_params, params);
    TSR__TRY(
        tsr__delta_check_inputs("delta_rule", stream, q, k, v, beta, g, new_state, params, &c));
    TSR__TRY(tsr__tokens_check(&c.tokens, "y", y, c.heads, c.value_dim, 4, true, &y_stride));
    TSR__TRY(
        tsr__delta_check_state(&c, "new_state", tsr__tokens_states(&c.tokens, true), new_state));
    TSR__TRY(tsr__delta_check_output(&c, "y", y, NULL));
    if (new_state) {
        TSR__TRY(tsr__delta_check_output(&c, "new_state", new_state, params->state));
        TSR__TRY(tsr__require_disjoint("delta_rule", "new_state", new_state, "y", y, false));
    }
    if (c.tokens.batch == 0)
        return TSR_OK;
    const int64_t given = params->recurrent_tokens, most = given == TSR_DELTA_CHUNKS ? 0
                                                           : given == 0
                                                               ? TSR__DELTA_RECURRENT_TOKENS
                                                               : given;
    if (c.tokens.tokens <= most && (steps_fit(&c) || c.tokens.each_token) &&
        tsr__delta_may_iterate(&c, c.tokens.tokens * ITERATIONS_OF_TOKEN))
        return run_steps(&c, y, y_stride, new_state);
    TSR__REQUIRE(!c.tokens.each_token,
                 "delta_rule: write_slots is [batch,tokens], which needs a recurrence; %lld tokens "
                 "are computed in chunks",
                 (long long)c.tokens.tokens);
    return run_chunks(&c, y, y_stride, new_state);
}
