#include "shaders/params/activation.h"
#include "gpu/ops/elementwise/elementwise.h"
#include "tessera/ops.h"

_Static_assert(TSR_ACT_NONE == TSR_ACTIVATION_NONE && TSR_ACT_RELU == TSR_ACTIVATION_RELU &&
                   TSR_ACT_GELU_TANH == TSR_ACTIVATION_GELU_TANH &&
                   TSR_ACT_GELU_ERF == TSR_ACTIVATION_GELU_ERF &&
                   TSR_ACT_SILU == TSR_ACTIVATION_SILU,
               "shaders/params/activation.h repeats tsr_activation");

static tsr_status check_activation(const char *op, tsr_activation activation)
{
    TSR__REQUIRE(activation >= TSR_ACT_NONE && activation <= TSR_ACT_SILU,
                 "%s: unknown activation %d", op, (int)activation);
    return TSR_OK;
}

tsr_status tsr_activate(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, const tsr_tensor *b,
                        tsr_activation activation)
{
    TSR__TRY(check_activation("activate", activation));
    tsr__elementwise work = {
        .op = "activate",
        .activation = true,
        .multiplied = b != NULL,
        .function = activation,
        .y = y,
        .y_name = "y",
        .in = {{x, "x"}},
    };
    if (b)
        work.in[1] = (tsr__elementwise_input){b, "b"};
    return tsr__elementwise_run(stream, &work, 1);
}

tsr_status tsr_activate_grad(tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *x,
                             const tsr_tensor *dy, tsr_activation activation)
{
    TSR__TRY(check_activation("activate_grad", activation));
    tsr__elementwise work = {
        .op = "activate_grad",
        .activation = true,
        .function = activation,
        .y = dx,
        .y_name = "dx",
        .in = {{x, "x"}, {dy, "dy"}},
    };
    return tsr__elementwise_run(stream, &work, 1);
}
