// One step of AdamW.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/optimizer.glsl"
#include "include/optimizer_step.glsl"

void main()
{
    if (!tsr_opt_begin())
        return;
    float mean = tsr_opt_state(TSR_OPT_STATE), square = tsr_opt_state(TSR_OPT_STATE2);
    float parameter = adamw_step(tsr_opt_parameter(), tsr_opt_gradient(), mean, square);
    tsr_opt_set_state(TSR_OPT_STATE, mean);
    tsr_opt_set_state(TSR_OPT_STATE2, square);
    tsr_opt_set_parameter(parameter);
}
