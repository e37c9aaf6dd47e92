/* The depthwise causal convolution with a state, and its gradients. */
#include "tessera/recurrent.h"

#include "base/struct_size.h"
#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "gpu/ops/recurrent/tokens.h"
#include "shaders/params/causal_conv.h"
#include "shaders/params/slots.h"
#include "tensor/check.h"

enum { WORKGROUP = 64, ROWS_OF_PART = 256 };

typedef struct conv {
    tsr__tokens tokens;
    tsr_causal_conv_params params;
    const tsr_tensor *x, *weight;
    int64_t channels, taps;
    uint32_t x_stride;
} conv;

static tsr_status check_state(const conv *c, const char *name, int64_t states,
                              const tsr_tensor *state)
{
    const int64_t shape[3] = {states, c->channels, c->taps - 1};
    return state ? tsr__tokens_check_dense(&c->tokens, name, state, 3, shape) : TSR_OK;
}

/* Checks the inputs that the convolution and its gradients share. */
static tsr_status conv_of(const char *op, tsr_stream *stream, const tsr_tensor *x,
                          const tsr_tensor *weight, const tsr_tensor *new_state,
                          const tsr_causal_conv_params *params, conv *out)
{
    TSR__TRY(tsr__require_float(op, "x", stream, x));
    TSR__TRY(tsr__require_float(op, "weight", stream, weight));
    const tsr_layout *l = &x->layout, *w = &weight->layout;
    TSR__REQUIRE(l->ndim == 3, "%s: x is %s; [batch,tokens,channels] is needed", op,
                 TSR__SHAPE(l->ndim, l->shape));
    TSR__REQUIRE(w->ndim == 2 && w->shape[1] >= 1 && w->shape[1] <= TSR_MAX_CAUSAL_CONV_TAPS,
                 "%s: weight is %s; [channels,taps] with 1 to %d taps is needed", op,
                 TSR__SHAPE(w->ndim, w->shape), TSR_MAX_CAUSAL_CONV_TAPS);
    *out =
        (conv){.tokens = {.op = op, .stream = stream, .batch = l->shape[0], .tokens = l->shape[1]},
               .params = *params,
               .x = x,
               .weight = weight,
               .channels = l->shape[2],
               .taps = w->shape[1]};
    const int64_t shape[2] = {out->channels, out->taps};
    TSR__REQUIRE(out->channels <= INT32_MAX / 64 &&
                     (l->shape[0] == 0 || l->shape[1] + out->taps <= INT32_MAX / l->shape[0]),
                 "%s: x is %s; at most 2^25 channels, and 2^31 - 1 tokens, are possible", op,
                 TSR__SHAPE(l->ndim, l->shape));
    TSR__TRY(tsr__tokens_check(&out->tokens, "x", x, 0, out->channels, 3, true, &out->x_stride));
    TSR__TRY(tsr__tokens_check_dense(&out->tokens, "weight", weight, 2, shape));
    if (params->bias)
        TSR__TRY(tsr__tokens_check_dense(&out->tokens, "bias", params->bias, 1, shape));
    TSR__TRY(tsr__tokens_take_slots(&out->tokens, params->read_slots, params->write_slots,
                                    params->state, new_state, out->channels));
    TSR__TRY(check_state(out, "state", tsr__tokens_states(&out->tokens, false), params->state));
    return tsr__tokens_check_documents(&out->tokens, params->lengths, params->starts,
                                       params->read_slots);
}

static struct tsr_causal_conv_push push_of(const conv *c)
{
    return (struct tsr_causal_conv_push){
        .x = tsr__tokens_address(c->x),
        .weight = tsr__tokens_address(c->weight),
        .bias = tsr__tokens_address(c->params.bias),
        .state = tsr__tokens_address(c->params.state),
        .lengths = tsr__tokens_address(c->params.lengths),
        .starts = tsr__tokens_address(c->params.starts),
        .batch = (uint32_t)c->tokens.batch,
        .tokens = (uint32_t)c->tokens.tokens,
        .channels = (uint32_t)c->channels,
        .x_stride = c->x_stride,
        .flags = c->params.silu ? TSR_CONV_SILU : 0,
        .read_slots = tsr__tokens_address(c->tokens.read_slots),
        .write_slots = tsr__tokens_address(c->tokens.write_slots),
        .slots = (uint32_t)c->tokens.slots,
    };
}

/* Returns a dispatch for `rows` rows of the channels, which reads the inputs. */
static tsr__dispatch dispatch_of(const conv *c, tsr__shader shader, int64_t rows)
{
    tsr__dispatch d = {
        .shader = shader,
        .spec_count = 3,
        .spec = {WORKGROUP, (uint32_t)c->taps, (uint32_t)c->x->layout.dtype},
        .work = (double)rows * (double)c->channels * (double)c->taps,
    };
    const int64_t across = (c->channels + WORKGROUP - 1) / WORKGROUP;
    tsr__groups_for((uint64_t)(rows * across), 1, d.groups);
    tsr__tokens_read(&d, c->params.lengths);
    tsr__tokens_read(&d, c->params.starts);
    tsr__tokens_read(&d, c->tokens.read_slots);
    tsr__tokens_read(&d, c->tokens.write_slots);
    return d;
}

/* Computes y, or with `dy` the gradient of z. `new_state` is NULL, except for rows of one token. */
static tsr_status convolve(const conv *c, const tsr_tensor *y, uint32_t y_stride,
                           const tsr_tensor *new_state, const tsr_tensor *dy, uint32_t dy_stride)
{
    struct tsr_causal_conv_push push = push_of(c);
    push.y = tsr__tokens_address(y);
    push.y_stride = y_stride;
    push.dy = tsr__tokens_address(dy);
    push.dy_stride = dy_stride;
    push.flags |= dy ? TSR_CONV_GRAD : 0;
    push.new_state = tsr__tokens_address(new_state);
    tsr__dispatch d = dispatch_of(c, TSR__SHADER_CAUSAL_CONV, c->tokens.batch * c->tokens.tokens);
    d.spec[d.spec_count++] = (uint32_t)y->layout.dtype;
    d.spec[d.spec_count++] = (uint32_t)(dy ? dy->layout.dtype : TSR_F32);
    d.spec[d.spec_count++] = new_state              ? tsr__tokens_slots(&c->tokens)
                             : c->tokens.read_slots ? TSR_SLOTS_READ
                                                    : 0;
    d.spec[d.spec_count++] = new_state != NULL;
    d.push = &push;
    d.push_bytes = sizeof push;
    tsr__tokens_read(&d, c->x);
    tsr__tokens_read(&d, c->weight);
    tsr__tokens_read(&d, c->params.bias);
    tsr__tokens_read(&d, c->params.state);
    tsr__tokens_read(&d, dy);
    tsr__tokens_write(&d, y);
    tsr__tokens_write(&d, new_state);
    return tsr__stream_dispatch(c->tokens.stream, &d);
}

static tsr_status keep_state(const conv *c, const tsr_tensor *new_state)
{
    struct tsr_causal_conv_push push = push_of(c);
    push.new_state = tsr__tokens_address(new_state);
    tsr__dispatch d = dispatch_of(c, TSR__SHADER_CAUSAL_CONV_STATE, 1);
    d.spec[d.spec_count++] = tsr__tokens_slots(&c->tokens);
    d.push = &push;
    d.push_bytes = sizeof push;
    tsr__groups_for((uint64_t)(c->tokens.batch * c->channels), WORKGROUP, d.groups);
    tsr__tokens_read(&d, c->x);
    tsr__tokens_read(&d, c->params.state);
    tsr__tokens_write(&d, new_state);
    return tsr__stream_dispatch(c->tokens.stream, &d);
}

typedef struct forward_work {
    const conv *c;
    const tsr_tensor *y, *new_state;
    uint32_t y_stride;
} forward_work;

static tsr_status record_forward(tsr_stream *stream, void *opaque)
{
    const forward_work *w = opaque;
    (void)stream;
    const tsr_tensor *new_state = w->c->taps > 1 ? w->new_state : NULL;
    const bool one_token = w->c->tokens.tokens == 1;
    TSR__TRY(convolve(w->c, w->y, w->y_stride, one_token ? new_state : NULL, NULL, 0));
    return new_state && !one_token ? keep_state(w->c, new_state) : TSR_OK;
}

tsr_status tsr_causal_conv(tsr_stream *stream, tsr_tensor *y, tsr_tensor *new_state,
                           const tsr_tensor *x, const tsr_tensor *weight,
                           const tsr_causal_conv_params *params)
{
    const char *op = "causal_conv";
    conv c;
    forward_work w = {.c = &c, .y = y, .new_state = new_state};
    TSR__TAKE(tsr_causal_conv_params, params);
    TSR__TRY(conv_of(op, stream, x, weight, new_state, params, &c));
    TSR__TRY(tsr__tokens_check(&c.tokens, "y", y, 0, c.channels, 3, true, &w.y_stride));
    TSR__TRY(check_state(&c, "new_state", tsr__tokens_states(&c.tokens, true), new_state));
    const tsr_tensor *in[] = {x,
                              weight,
                              params->bias,
                              params->state,
                              params->lengths,
                              params->starts,
                              params->read_slots,
                              params->write_slots};
    static const char *const names[] = {"x",       "weight", "bias",       "state",
                                        "lengths", "starts", "read_slots", "write_slots"};
    for (int i = 0; i < 8; i++) {
        if (!in[i])
            continue;
        TSR__TRY(tsr__require_disjoint(op, "y", y, names[i], in[i], false));
        if (new_state)
            TSR__TRY(tsr__require_disjoint(op, "new_state", new_state, names[i], in[i],
                                           in[i] == params->state));
    }
    if (new_state)
        TSR__TRY(tsr__require_disjoint(op, "new_state", new_state, "y", y, false));
    return tsr__stream_atomic(stream, record_forward, &w);
}

/* Gradients ---------------------------------------------------------------------------------- */

typedef struct backward_work {
    const conv *c;
    tsr_causal_conv_grads grads;
    const tsr_tensor *dy, *dnew_state;
    uint32_t dy_stride, dx_stride;
    int64_t parts;
    tsr_tensor *dz;       /* [batch, tokens, channels] */
    tsr_tensor *partial;  /* [parts, channels, taps + 1] */
    tsr_tensor *views[2]; /* of `partial`: those of the weight, and those of the bias */
} backward_work;

static struct tsr_causal_conv_grad_push grad_push_of(const backward_work *w)
{
    const conv *c = w->c;
    return (struct tsr_causal_conv_grad_push){
        .dz = tsr__tokens_address(w->dz),
        .x = tsr__tokens_address(c->x),
        .weight = tsr__tokens_address(c->weight),
        .state = tsr__tokens_address(c->params.state),
        .lengths = tsr__tokens_address(c->params.lengths),
        .starts = tsr__tokens_address(c->params.starts),
        .batch = (uint32_t)c->tokens.batch,
        .tokens = (uint32_t)c->tokens.tokens,
        .channels = (uint32_t)c->channels,
        .x_stride = c->x_stride,
        .rows = ROWS_OF_PART,
        .parts = (uint32_t)w->parts,
    };
}

static tsr_status grad_of_inputs(const backward_work *w)
{
    const conv *c = w->c;
    const tsr_tensor *dx = w->grads.dx, *dstate = c->taps > 1 ? w->grads.dstate : NULL;
    struct tsr_causal_conv_grad_push push = grad_push_of(w);
    push.dx = tsr__tokens_address(dx);
    push.dx_stride = w->dx_stride;
    push.dstate = tsr__tokens_address(dstate);
    push.dnew_state = c->taps > 1 ? tsr__tokens_address(w->dnew_state) : 0;
    tsr__dispatch d = dispatch_of(c, TSR__SHADER_CAUSAL_CONV_GRAD,
                                  c->tokens.batch * (c->tokens.tokens + c->taps - 1));
    d.spec[2] = (uint32_t)(dx ? dx->layout.dtype : TSR_F32);
    d.push = &push;
    d.push_bytes = sizeof push;
    tsr__tokens_read(&d, w->dz);
    tsr__tokens_read(&d, c->weight);
    tsr__tokens_read(&d, push.dnew_state ? w->dnew_state : NULL);
    tsr__tokens_write(&d, dx);
    tsr__tokens_write(&d, dstate);
    return tsr__stream_dispatch(c->tokens.stream, &d);
}

static tsr_status grad_of_weight(const backward_work *w)
{
    const conv *c = w->c;
    struct tsr_causal_conv_grad_push push = grad_push_of(w);
    push.dx = tsr__tokens_address(w->partial);
    tsr__dispatch d = dispatch_of(c, TSR__SHADER_CAUSAL_CONV_WEIGHT_GRAD, w->parts);
    d.work = (double)c->tokens.batch * (double)c->tokens.tokens * (double)c->channels *
             (double)(c->taps + 1);
    d.push = &push;
    d.push_bytes = sizeof push;
    tsr__tokens_read(&d, w->dz);
    tsr__tokens_read(&d, c->x);
    tsr__tokens_read(&d, c->params.state);
    tsr__tokens_write(&d, w->partial);
    TSR__TRY(tsr__stream_dispatch(c->tokens.stream, &d));
    if (w->grads.dweight)
        TSR__TRY(
            tsr_reduce(c->tokens.stream, w->grads.dweight, w->views[0], 0, TSR_REDUCE_SUM, false));
    return w->grads.dbias
               ? tsr_reduce(c->tokens.stream, w->grads.dbias, w->views[1], 0, TSR_REDUCE_SUM, false)
               : TSR_OK;
}

static tsr_status record_backward(tsr_stream *stream, void *opaque)
{
    const backward_work *w = opaque;
    (void)stream;
    TSR__TRY(convolve(w->c, w->dz, (uint32_t)w->c->channels, NULL, w->dy, w->dy_stride));
    if (w->grads.dx || (w->grads.dstate && w->c->taps > 1))
        TSR__TRY(grad_of_inputs(w));
    return w->partial ? grad_of_weight(w) : TSR_OK;
}

static tsr_status create_temporary(backward_work *w)
{
    const conv *c = w->c;
    tsr_device *device = tsr_stream_device(c->tokens.stream);
    const int64_t rows = c->tokens.batch * c->tokens.tokens,
                  shape[3] = {c->tokens.batch, c->tokens.tokens, c->channels};
    TSR__TRY(tsr_tensor_create(device, TSR_F32, 3, shape, &w->dz));
    if (!w->grads.dweight && !w->grads.dbias)
        return TSR_OK;
    w->parts = (rows + ROWS_OF_PART - 1) / ROWS_OF_PART;
    const int64_t parts[3] = {w->parts, c->channels, c->taps + 1};
    TSR__TRY(tsr_tensor_create(device, TSR_F32, 3, parts, &w->partial));
    TSR__TRY(tsr_tensor_slice(w->partial, 2, 0, c->taps, 1, &w->views[0]));
    return tsr_tensor_select(w->partial, 2, c->taps, &w->views[1]);
}

static tsr_status check_gradients(backward_work *w)
{
    const conv *c = w->c;
    const tsr_causal_conv_grads *g = &w->grads;
    const char *op = c->tokens.op;
    const int64_t shape[2] = {c->channels, c->taps};
    TSR__REQUIRE(g->dx || g->dweight || g->dbias || g->dstate, "%s: all gradients are NULL", op);
    TSR__REQUIRE(!g->dbias || c->params.bias, "%s: dbias is given, but no bias", op);
    TSR__REQUIRE(!g->dstate || c->params.state, "%s: dstate is given, but no state", op);
    TSR__TRY(tsr__tokens_check(&c->tokens, "dy", w->dy, 0, c->channels, 3, true, &w->dy_stride));
    TSR__TRY(check_state(c, "dnew_state", c->tokens.batch, w->dnew_state));
    if (g->dx)
        TSR__TRY(
            tsr__tokens_check(&c->tokens, "dx", g->dx, 0, c->channels, 3, true, &w->dx_stride));
    if (g->dweight)
        TSR__TRY(tsr__tokens_check_dense(&c->tokens, "dweight", g->dweight, 2, shape));
    if (g->dbias)
        TSR__TRY(tsr__tokens_check_dense(&c->tokens, "dbias", g->dbias, 1, shape));
    TSR__TRY(check_state(c, "dstate", c->tokens.batch, g->dstate));
    const tsr_tensor *out[] = {g->dx, g->dweight, g->dbias, g->dstate};
    const tsr_tensor *in[] = {w->dy,
                              w->dnew_state,
                              c->x,
                              c->weight,
                              c->params.bias,
                              c->params.state,
                              c->params.lengths,
                              c->params.starts};
    static const char *const out_names[] = {"dx", "dweight", "dbias", "dstate"};
    static const char *const in_names[] = {"dy",   "dnew_state", "x",       "weight",
                                           "bias", "state",      "lengths", "starts"};
    for (int i = 0; i < 4; i++) {
        for (int k = 0; out[i] && k < 8; k++)
            if (in[k])
                TSR__TRY(
                    tsr__require_disjoint(op, out_names[i], out[i], in_names[k], in[k], false));
        for (int k = 0; out[i] && k < i; k++)
            if (out[k])
                TSR__TRY(
                    tsr__require_disjoint(op, out_names[i], out[i], out_names[k], out[k], false));
    }
    return TSR_OK;
}

tsr_status tsr_causal_conv_grad(tsr_stream *stream, const tsr_causal_conv_grads *grads,
                                const tsr_tensor *dy, const tsr_tensor *dnew_state,
                                const tsr_tensor *x, const tsr_tensor *weight,
                                const tsr_causal_conv_params *params)
{
    conv c;
    TSR__TAKE(tsr_causal_conv_params, params);
    TSR__TAKE(tsr_causal_conv_grads, grads);
    TSR__TRY(tsr__tokens_refuse_slots("causal_conv_grad", params->read_slots, params->write_slots));
    TSR__TRY(conv_of("causal_conv_grad", stream, x, weight, NULL, params, &c));
    backward_work w = {.c = &c, .grads = *grads, .dy = dy, .dnew_state = dnew_state};
    TSR__TRY(check_gradients(&w));
    tsr_status status = create_temporary(&w);
    if (status == TSR_OK)
        status = tsr__stream_atomic(stream, record_backward, &w);
    tsr_tensor_destroy(&w.views[0]);
    tsr_tensor_destroy(&w.views[1]);
    tsr_tensor_destroy(&w.partial);
    tsr_tensor_destroy(&w.dz);
    return status;
}
