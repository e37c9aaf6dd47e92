/* The choice among the kernels for attention on Mesa's CPU driver. */
#include "gpu/cpu_drivers/attention/kernels.h"
#include "gpu/cpu_drivers/hooks.h"

tsr_status tsr__cpu_attention(const tsr__attention *call, bool *done)
{
    *done = true;
    if (tsr__attention_short_suits(call))
        return tsr__attention_short(call);
    if (tsr__attention_step_suits(call))
        return tsr__attention_step(call);
    if (tsr__attention_products_suit(call))
        return tsr__attention_products(call);
    *done = false;
    return TSR_OK;
}

tsr_status tsr__cpu_attention_grad(const tsr__attention *call, bool *done)
{
    const bool only_sinks = !call->dq && !call->dk && !call->dv;
    *done = !only_sinks;
    if (only_sinks)
        return TSR_OK;
    if (tsr__attention_short_suits(call))
        return tsr__attention_short_grad(call);
    *done = tsr__attention_products_suit(call);
    if (!*done)
        return TSR_OK;
    TSR__TRY(tsr__attention_products_grad(call));
    return call->params.dsinks ? tsr__attention_sinks_grad(call) : TSR_OK;
}
