/* tsr_attention and tsr_attention_grad: check the arguments and choose the kernels. */
#include "tessera/attention.h"

#include "base/error.h"
#include "base/struct_size.h"
#include "gpu/attention/call.h"
#include "gpu/cpu_drivers/cpu_drivers.h"

static tsr_status forward(const tsr__attention *call)
{
    const tsr__cpu_kernels *cpu = tsr_stream_device(call->stream)->cpu;
    bool done = false;
    if (cpu)
        TSR__TRY(cpu->attention(call, &done));
    if (done)
        return TSR_OK;
    return tsr__attention_few_suit(call) ? tsr__attention_few(call) : tsr__attention_tiled(call);
}

static tsr_status backward(const tsr__attention *call)
{
    const tsr__cpu_kernels *cpu = tsr_stream_device(call->stream)->cpu;
    bool done = false;
    if (cpu)
        TSR__TRY(cpu->attention_grad(call, &done));
    return done ? TSR_OK : tsr__attention_tiled_grad(call);
}

tsr_status tsr__attention_forward(tsr__attention *call, bool *done)
{
    TSR__TRY(tsr__attention_check(call));
    const bool empty = tsr_layout_count(&call->q->layout) == 0;
    tsr_status status = TSR_OK;
    *done = !call->new_k || (!empty && tsr__attention_few_append_suits(call));
    if (*done && call->new_k)
        status = tsr__attention_few(call);
    else if (*done && !empty)
        status = forward(call);
    tsr__attention_finish(call);
    return status;
}

tsr_status tsr_attention(tsr_stream *stream, tsr_tensor *y, tsr_tensor *lse, const tsr_tensor *q,
                         const tsr_tensor *k, const tsr_tensor *v,
                         const tsr_attention_params *params)
{
    TSR__TAKE(tsr_attention_params, params);
    tsr__attention call = {.op = "attention",
                           .stream = stream,
                           .y = y,
                           .lse = lse,
                           .q = q,
                           .k = k,
                           .v = v,
                           .params = *params};
    bool done;
    return tsr__attention_forward(&call, &done);
}

tsr_status tsr_attention_grad(tsr_stream *stream, tsr_tensor *dq, tsr_tensor *dk, tsr_tensor *dv,
                              const tsr_tensor *dy, const tsr_tensor *y, const tsr_tensor *lse,
                              const tsr_tensor *q, const tsr_tensor *k, const tsr_tensor *v,
                              const tsr_attention_params *params)
{
    TSR__TAKE(tsr_attention_params, params);
    TSR__REQUIRE(dq || dk || dv || params->dsinks,
                 "attention_grad: dq, dk, dv and dsinks are all NULL");
    TSR__REQUIRE(dy, "attention_grad: dy is NULL");
    tsr__attention call = {.op = "attention_grad",
                           .stream = stream,
                           .y = y,
                           .lse = lse,
                           .dq = dq,
                           .dk = dk,
                           .dv = dv,
                           .dy = dy,
                           .q = q,
                           .k = k,
                           .v = v,
                           .params = *params};
    TSR__TRY(tsr__attention_check(&call));
    tsr_status status = backward(&call);
    tsr__attention_finish(&call);
    return status;
}
