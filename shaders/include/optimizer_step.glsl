// The arithmetic of the optimizers for one element, whose gradient has been multiplied by its
// factor. The including file declares push constants `p` with `number`.
#ifndef TSR_OPTIMIZER_STEP_GLSL
#define TSR_OPTIMIZER_STEP_GLSL

#include "params/optimizer.h"

// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019), with the
// definition of torch.optim.AdamW.
float adamw_step(float parameter, float gradient, inout float mean, inout float square)
{
    float beta1 = p.number[TSR_ADAMW_BETA1];
    float beta2 = p.number[TSR_ADAMW_BETA2];
    mean = beta1 * mean + (1.0 - beta1) * gradient;
    square = beta2 * square + (1.0 - beta2) * gradient * gradient;
    float scale = sqrt(square) * p.number[TSR_ADAMW_ROOT_SCALE] + p.number[TSR_ADAMW_EPSILON];
    return parameter * p.number[TSR_ADAMW_KEPT] - p.number[TSR_ADAMW_STEP] * mean / scale;
}

// Stochastic gradient descent, with the definition of torch.optim.SGD.
float sgd_step(float parameter, float gradient, inout float velocity, uint mode)
{
    // With a weight decay of 0 the parameter has no influence, even if it is infinite.
    float decay = p.number[TSR_SGD_WEIGHT_DECAY];
    float direction = mix(gradient, gradient + decay * parameter, decay != 0.0);
    if (mode != TSR_SGD_PLAIN) {
        float momentum = p.number[TSR_SGD_MOMENTUM];
        if (mode == TSR_SGD_MOMENTUM_NEXT || mode == TSR_SGD_NESTEROV_NEXT)
            velocity = momentum * velocity + p.number[TSR_SGD_DAMPED] * direction;
        else
            velocity = direction;
        if (mode == TSR_SGD_NESTEROV_FIRST || mode == TSR_SGD_NESTEROV_NEXT)
            direction += momentum * velocity;
        else
            direction = velocity;
    }
    return parameter - p.number[TSR_SGD_LEARNING_RATE] * direction;
}

#endif
