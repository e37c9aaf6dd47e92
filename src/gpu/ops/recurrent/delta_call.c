/* The operands of the gated delta rule, and what several of its kernels need. */
#include <math.h>

#include "base/given.h"
#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "gpu/ops/recurrent/delta.h"
#include "shaders/params/delta.h"
#include "tensor/check.h"

tsr__dispatch tsr__delta_dispatch(const tsr__delta *call, tsr__shader shader, uint32_t workgroup)
{
    return (tsr__dispatch){
        .shader = shader,
        .spec_count = TSR__DELTA_SPEC,
        .spec = {workgroup, (uint32_t)call->heads, (uint32_t)call->key_heads,
                 (uint32_t)call->key_dim, (uint32_t)call->value_dim, call->params.tiled_heads},
    };
}

tsr_status tsr__delta_check_state(const tsr__delta *call, const char *name, int64_t states,
                                  const tsr_tensor *state)
{
    const int64_t shape[4] = {states, call->heads, call->key_dim, call->value_dim};
    return state ? tsr__tokens_check_dense(&call->tokens, name, state, 4, shape) : TSR_OK;
}

/* Checks that the head sizes are possible. */
static tsr_status check_heads(const char *op, const tsr__delta *c)
{
    TSR__REQUIRE(c->key_heads >= 1 && c->heads >= 1 && c->heads % c->key_heads == 0 &&
                     c->heads <= TSR_MAX_HEADS,
                 "%s: %lld value heads and %lld key heads; the first must be a multiple of the "
                 "second, and at most %d",
                 op, (long long)c->heads, (long long)c->key_heads, TSR_MAX_HEADS);
    TSR__REQUIRE(c->key_dim >= 4 && c->key_dim % 4 == 0 && c->key_dim <= TSR_MAX_DELTA_DIM &&
                     c->value_dim >= 4 && c->value_dim % 4 == 0 &&
                     c->value_dim <= TSR_MAX_DELTA_DIM,
                 "%s: key_dim is %lld and value_dim %lld; multiples of 4 up to %d are needed", op,
                 (long long)c->key_dim, (long long)c->value_dim, TSR_MAX_DELTA_DIM);
    TSR__REQUIRE(c->tokens.batch == 0 ||
                     c->tokens.tokens <= INT32_MAX / 64 / c->heads / c->tokens.batch - 64,
                 "%s: %lld rows of %lld tokens with %lld heads are too many for one call", op,
                 (long long)c->tokens.batch, (long long)c->tokens.tokens, (long long)c->heads);
    return TSR_OK;
}

tsr_status tsr__delta_check_inputs(const char *op, tsr_stream *stream, const tsr_tensor *q,
                                   const tsr_tensor *k, const tsr_tensor *v, const tsr_tensor *beta,
                                   const tsr_tensor *g, const tsr_tensor *new_state,
                                   const tsr_delta_rule_params *params, tsr__delta *out)
{
    TSR__TRY(tsr__require_float(op, "q", stream, q));
    TSR__TRY(tsr__require_float(op, "v", stream, v));
    const tsr_layout *a = &q->layout, *b = &v->layout;
    TSR__REQUIRE(a->ndim == 4 && b->ndim == 4,
                 "%s: q is %s and v is %s; [batch,tokens,heads,dim] is needed", op,
                 TSR__SHAPE(a->ndim, a->shape), TSR__SHAPE(b->ndim, b->shape));
    *out = (tsr__delta){
        .tokens = {.op = op, .stream = stream, .batch = b->shape[0], .tokens = b->shape[1]},
        .params = *params,
        .q = q,
        .k = k,
        .v = v,
        .beta = beta,
        .g = g,
        .key_heads = a->shape[2],
        .heads = b->shape[2],
        .key_dim = a->shape[3],
        .value_dim = b->shape[3],
    };
    TSR__TRY(check_heads(op, out));
    const tsr__tokens *t = &out->tokens;
    TSR__TRY(tsr__tokens_check(t, "q", q, out->key_heads, out->key_dim, 4, true, &out->q_stride));
    TSR__TRY(tsr__tokens_check(t, "k", k, out->key_heads, out->key_dim, 4, true, &out->k_stride));
    TSR__TRY(tsr__tokens_check(t, "v", v, out->heads, out->value_dim, 4, true, &out->v_stride));
    TSR__TRY(tsr__tokens_check(t, "beta", beta, 0, out->heads, 3, false, &out->beta_stride));
    TSR__TRY(tsr__tokens_check(t, "g", g, 0, out->heads, 3, false, &out->g_stride));
    TSR__TRY(tsr__tokens_take_slots(&out->tokens, params->read_slots, params->write_slots,
                                    params->state, new_state, out->heads));
    TSR__TRY(tsr__delta_check_state(out, "state", tsr__tokens_states(t, false), params->state));
    TSR__TRY(tsr__tokens_check_documents(t, params->lengths, params->starts, params->read_slots));
    TSR__REQUIRE(isfinite(params->scale) && isfinite(params->norm_epsilon) &&
                     params->norm_epsilon >= 0,
                 "%s: scale is %g and norm_epsilon %g; both must be finite, and the second not "
                 "negative",
                 op, (double)params->scale, (double)params->norm_epsilon);
    TSR__REQUIRE(params->precision >= TSR_PRECISION_DEFAULT &&
                     params->precision <= TSR_PRECISION_MEDIUM,
                 "%s: unknown precision %d", op, (int)params->precision);
    TSR__REQUIRE(params->recurrent_tokens >= TSR_DELTA_CHUNKS, "%s: recurrent_tokens is %lld", op,
                 (long long)params->recurrent_tokens);
    out->scale = tsr__given_float(params->scale, 1 / sqrtf((float)out->key_dim));
    return TSR_OK;
}

tsr_status tsr__delta_check_output(const tsr__delta *c, const char *name, const tsr_tensor *out,
                                   const tsr_tensor *same)
{
    const tsr_tensor *in[] = {c->q,
                              c->k,
                              c->v,
                              c->beta,
                              c->g,
                              c->params.state,
                              c->params.lengths,
                              c->params.starts,
                              c->params.read_slots,
                              c->params.write_slots};
    static const char *const names[] = {"q",     "k",       "v",      "beta",       "g",
                                        "state", "lengths", "starts", "read_slots", "write_slots"};
    for (int i = 0; i < 10; i++)
        if (in[i])
            TSR__TRY(
                tsr__require_disjoint(c->tokens.op, name, out, names[i], in[i], in[i] == same));
    return TSR_OK;
}

/* Some drivers end all loops of an invocation together after 65535 iterations. */
enum { MOST_ITERATIONS = 60000 };

bool tsr__delta_may_iterate(const tsr__delta *c, int64_t iterations)
{
    return !tsr_stream_device(c->tokens.stream)->traits.ends_loops || iterations <= MOST_ITERATIONS;
}

void tsr__delta_read(const tsr__delta_chunks *c, tsr__dispatch *dispatch, tsr__delta_array array)
{
    tsr__tokens_read(dispatch, c->array[array]);
}

void tsr__delta_write(const tsr__delta_chunks *c, tsr__dispatch *dispatch, tsr__delta_array array)
{
    tsr__tokens_write(dispatch, c->array[array]);
}

double tsr__delta_scan_work(const tsr__delta_chunks *c, int64_t chunks)
{
    const tsr__delta *call = c->call;
    return (double)(call->tokens.batch * chunks * call->heads) * TSR_DELTA_CHUNK *
           (double)call->value_dim * (3.0 * (double)call->key_dim + TSR_DELTA_CHUNK);
}
