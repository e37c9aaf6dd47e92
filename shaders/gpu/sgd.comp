// One step of stochastic gradient descent.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/optimizer.glsl"
#include "include/optimizer_step.glsl"

layout(constant_id = 4) const uint MODE = TSR_SGD_PLAIN;

void main()
{
    if (!tsr_opt_begin())
        return;
    float velocity = 0.0;
    if (MODE == TSR_SGD_MOMENTUM_NEXT || MODE == TSR_SGD_NESTEROV_NEXT)
        velocity = tsr_opt_state(TSR_OPT_STATE);
    float parameter = sgd_step(tsr_opt_parameter(), tsr_opt_gradient(), velocity, MODE);
    if (MODE != TSR_SGD_PLAIN)
        tsr_opt_set_state(TSR_OPT_STATE, velocity);
    tsr_opt_set_parameter(parameter);
}
