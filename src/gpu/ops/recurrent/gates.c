/* The gates of delta nets and of heads. */
#include "shaders/params/gates.h"
#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "gpu/ops/recurrent/tokens.h"
#include "tensor/check.h"

enum { WORKGROUP = 64, HEAD_THREADS = 8 };

/* Gates of delta nets ------------------------------------------------------------------------ */

static tsr_status check_dtype(const tsr__tokens *t, const char *name, const tsr_tensor *tensor,
                              const tsr_tensor *x)
{
    TSR__REQUIRE(tensor->layout.dtype == x->layout.dtype, "%s: %s is %s, but x is %s", t->op, name,
                 tsr_dtype_name(tensor->layout.dtype), tsr_dtype_name(x->layout.dtype));
    return TSR_OK;
}

/* Checks the inputs of both passes, and sets the sizes, addresses and strides of `push`. */
static tsr_status gates_push(tsr__tokens *t, const tsr__delta_gates *in,
                             struct tsr_delta_gates_push *push)
{
    TSR__TRY(tsr__require_float(t->op, "x", t->stream, in->x));
    const tsr_layout *l = &in->x->layout;
    TSR__REQUIRE(l->ndim == 3, "%s: x is %s; [batch,tokens,heads] is needed", t->op,
                 TSR__SHAPE(l->ndim, l->shape));
    const int64_t heads = l->shape[2];
    t->batch = l->shape[0];
    t->tokens = l->shape[1];
    *push = (struct tsr_delta_gates_push){
        .x = tsr__tokens_address(in->x),
        .alpha = tsr__tokens_address(in->alpha),
        .a_log = tsr__tokens_address(in->a_log),
        .dt_bias = tsr__tokens_address(in->dt_bias),
        .rows = (uint32_t)(t->batch * t->tokens),
        .heads = (uint32_t)heads,
    };
    TSR__TRY(tsr__tokens_check(t, "x", in->x, 0, heads, 3, true, &push->x_stride));
    TSR__TRY(tsr__tokens_check(t, "alpha", in->alpha, 0, heads, 3, true, &push->alpha_stride));
    TSR__TRY(check_dtype(t, "alpha", in->alpha, in->x));
    TSR__TRY(tsr__tokens_check_dense(t, "a_log", in->a_log, 1, &heads));
    return tsr__tokens_check_dense(t, "dt_bias", in->dt_bias, 1, &heads);
}

static tsr_status dispatch_gates(const tsr__tokens *t, const tsr__delta_gates *in, bool grad,
                                 const struct tsr_delta_gates_push *push,
                                 const tsr_tensor *const *others, int reads, int writes)
{
    tsr__dispatch d = {
        .shader = TSR__SHADER_DELTA_GATES,
        .spec_count = 3,
        .spec = {WORKGROUP, (uint32_t)in->x->layout.dtype, grad},
        .push = push,
        .push_bytes = sizeof *push,
        .work = 40.0 * (double)push->rows * (double)push->heads,
    };
    if (push->rows == 0 || push->heads == 0)
        return TSR_OK;
    tsr__groups_for((uint64_t)push->rows * push->heads, WORKGROUP, d.groups);
    tsr__tokens_read(&d, in->x);
    tsr__tokens_read(&d, in->alpha);
    tsr__tokens_read(&d, in->a_log);
    tsr__tokens_read(&d, in->dt_bias);
    for (int i = 0; i < reads; i++)
        tsr__tokens_read(&d, others[i]);
    for (int i = reads; i < reads + writes; i++)
        tsr__tokens_write(&d, others[i]);
    return tsr__stream_dispatch(t->stream, &d);
}

tsr_status tsr__delta_gates_forward(tsr_stream *stream, const tsr__delta_gates *in,
                                    tsr_tensor *beta, tsr_tensor *g)
{
    tsr__tokens t = {.op = "delta_gates", .stream = stream};
    struct tsr_delta_gates_push push;
    TSR__TRY(gates_push(&t, in, &push));
    const int64_t shape[3] = {t.batch, t.tokens, push.heads};
    TSR__TRY(tsr__tokens_check_dense(&t, "beta", beta, 3, shape));
    TSR__TRY(tsr__tokens_check_dense(&t, "g", g, 3, shape));
    push.beta = tsr__tokens_address(beta);
    push.g = tsr__tokens_address(g);
    return dispatch_gates(&t, in, false, &push, (const tsr_tensor *[]){beta, g}, 0, 2);
}

tsr_status tsr__delta_gates_grad(tsr_stream *stream, const tsr__delta_gates *in,
                                 const tsr_tensor *dbeta, const tsr_tensor *dg, tsr_tensor *dx,
                                 tsr_tensor *dalpha, tsr_tensor *terms)
{
    tsr__tokens t = {.op = "delta_gates_grad", .stream = stream};
    struct tsr_delta_gates_push push;
    TSR__TRY(gates_push(&t, in, &push));
    const int64_t shape[3] = {t.batch, t.tokens, push.heads},
                  pairs[2] = {push.rows, 2 * (int64_t)push.heads};
    TSR__TRY(tsr__tokens_check_dense(&t, "dbeta", dbeta, 3, shape));
    TSR__TRY(tsr__tokens_check_dense(&t, "dg", dg, 3, shape));
    TSR__TRY(tsr__tokens_check_dense(&t, "terms", terms, 2, pairs));
    TSR__TRY(tsr__tokens_check(&t, "dx", dx, 0, push.heads, 3, true, &push.dx_stride));
    TSR__TRY(tsr__tokens_check(&t, "dalpha", dalpha, 0, push.heads, 3, true, &push.dalpha_stride));
    TSR__TRY(check_dtype(&t, "dx", dx, in->x));
    TSR__TRY(check_dtype(&t, "dalpha", dalpha, in->x));
    push.beta = tsr__tokens_address(dbeta);
    push.g = tsr__tokens_address(dg);
    push.dx = tsr__tokens_address(dx);
    push.dalpha = tsr__tokens_address(dalpha);
    push.terms = tsr__tokens_address(terms);
    return dispatch_gates(&t, in, true, &push, (const tsr_tensor *[]){dbeta, dg, dx, dalpha, terms},
                          2, 3);
}

/* Gates of heads ----------------------------------------------------------------------------- */

tsr_status tsr__gated_heads(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                            const tsr_tensor *gate, const tsr_tensor *weight, float epsilon)
{
    tsr__tokens t = {.op = "gated_heads", .stream = stream};
    TSR__TRY(tsr__require_float(t.op, "x", stream, x));
    const tsr_layout *l = &x->layout;
    TSR__REQUIRE(l->ndim == 4, "%s: x is %s; [batch,tokens,heads,dim] is needed", t.op,
                 TSR__SHAPE(l->ndim, l->shape));
    const int64_t heads = l->shape[2], dim = l->shape[3];
    t.batch = l->shape[0];
    t.tokens = l->shape[1];
    struct tsr_gated_heads_push push = {
        .x = tsr__tokens_address(x),
        .gate = tsr__tokens_address(gate),
        .weight = tsr__tokens_address(weight),
        .y = tsr__tokens_address(y),
        .tokens = (uint32_t)(t.batch * t.tokens),
        .heads = (uint32_t)heads,
        .dim = (uint32_t)dim,
        .epsilon = epsilon,
    };
    TSR__TRY(tsr__tokens_check(&t, "x", x, heads, dim, 4, true, &push.x_stride));
    TSR__TRY(tsr__tokens_check(&t, "gate", gate, heads, dim, 4, true, &push.gate_stride));
    TSR__TRY(tsr__tokens_check(&t, "y", y, heads, dim, 4, true, &push.y_stride));
    if (weight)
        TSR__TRY(tsr__tokens_check_dense(&t, "weight", weight, 1, &dim));
    tsr__dispatch d = {
        .shader = TSR__SHADER_GATED_HEADS,
        .spec_count = 5,
        .spec = {WORKGROUP, (uint32_t)l->dtype, (uint32_t)gate->layout.dtype,
                 (uint32_t)y->layout.dtype, weight != NULL},
        .push = &push,
        .push_bytes = sizeof push,
        .work = 20.0 * (double)push.tokens * (double)(heads * dim),
    };
    if (push.tokens == 0 || heads == 0)
        return TSR_OK;
    tsr__groups_for((uint64_t)push.tokens * (uint64_t)heads, WORKGROUP / HEAD_THREADS, d.groups);
    tsr__tokens_read(&d, x);
    tsr__tokens_read(&d, gate);
    tsr__tokens_read(&d, weight);
    tsr__tokens_write(&d, y);
    return tsr__stream_dispatch(stream, &d);
}
