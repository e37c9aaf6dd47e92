// One step of stochastic gradient descent, as torch.optim.SGD does it.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "optimizer.glsl"

layout(constant_id = 4) const uint MODE = TSR_SGD_PLAIN;

void main()
{
    if (!tsr_opt_begin())
        return;
    float parameter = tsr_opt_parameter();
    float direction = tsr_opt_gradient();
    // With a factor of 0 the parameter does not count, even where it is infinite.
    if (p.number[TSR_SGD_WEIGHT_DECAY] != 0.0)
        direction += p.number[TSR_SGD_WEIGHT_DECAY] * parameter;

    if (MODE != TSR_SGD_PLAIN) {
        float momentum = p.number[TSR_SGD_MOMENTUM];
        float velocity = direction;
        if (MODE == TSR_SGD_MOMENTUM_NEXT || MODE == TSR_SGD_NESTEROV_NEXT)
            velocity = momentum * tsr_opt_state(TSR_OPT_STATE) + p.number[TSR_SGD_DAMPED] * direction;
        tsr_opt_set_state(TSR_OPT_STATE, velocity);
        if (MODE == TSR_SGD_NESTEROV_FIRST || MODE == TSR_SGD_NESTEROV_NEXT)
            direction += momentum * velocity;
        else
            direction = velocity;
    }
    tsr_opt_set_parameter(parameter - p.number[TSR_SGD_LEARNING_RATE] * direction);
}
