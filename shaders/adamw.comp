// One step of AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019), as torch.optim.AdamW does it.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "optimizer.glsl"

void main()
{
    if (!tsr_opt_begin())
        return;
    float parameter = tsr_opt_parameter() * p.number[TSR_ADAMW_KEPT];
    float gradient = tsr_opt_gradient();

    float beta1 = p.number[TSR_ADAMW_BETA1];
    float beta2 = p.number[TSR_ADAMW_BETA2];
    float mean = beta1 * tsr_opt_state(TSR_OPT_STATE) + (1.0 - beta1) * gradient;
    float square = beta2 * tsr_opt_state(TSR_OPT_STATE2) + (1.0 - beta2) * gradient * gradient;
    tsr_opt_set_state(TSR_OPT_STATE, mean);
    tsr_opt_set_state(TSR_OPT_STATE2, square);

    float scale = sqrt(square) * p.number[TSR_ADAMW_ROOT_SCALE] + p.number[TSR_ADAMW_EPSILON];
    tsr_opt_set_parameter(parameter - p.number[TSR_ADAMW_STEP] * mean / scale);
}
