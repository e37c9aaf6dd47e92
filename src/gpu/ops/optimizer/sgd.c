/* Stochastic gradient descent with momentum. */
#include <math.h>

#include "base/struct_size.h"
#include "gpu/ops/optimizer/optimizer.h"
#include "gpu/ops/optimizer/step_params.h"

tsr_status tsr__sgd_check(const char *op, const tsr_sgd_params *params)
{
    TSR__REQUIRE(params != NULL, "%s: params is NULL", op);
    TSR__TRY(tsr__optimizer_require_rate(op, "learning_rate", params->learning_rate));
    TSR__TRY(tsr__optimizer_require_rate(op, "momentum", params->momentum));
    TSR__TRY(tsr__optimizer_require_rate(op, "weight_decay", params->weight_decay));
    TSR__REQUIRE(isfinite(params->dampening), "%s: dampening is %g; it must be finite", op,
                 (double)params->dampening);
    TSR__REQUIRE(!params->nesterov || (params->momentum > 0 && params->dampening == 0),
                 "%s: nesterov needs momentum > 0 and dampening 0; they are %g and %g", op,
                 (double)params->momentum, (double)params->dampening);
    return TSR_OK;
}

static uint32_t mode_of(const tsr_sgd_params *params)
{
    if (params->momentum == 0)
        return TSR_SGD_PLAIN;
    if (params->nesterov)
        return params->first_step ? TSR_SGD_NESTEROV_FIRST : TSR_SGD_NESTEROV_NEXT;
    return params->first_step ? TSR_SGD_MOMENTUM_FIRST : TSR_SGD_MOMENTUM_NEXT;
}

tsr_status tsr__sgd_step(tsr_stream *stream, tsr_tensor *parameter, const tsr_tensor *gradient,
                         tsr_tensor *velocity, tsr_tensor *master, const tsr_sgd_params *params,
                         tsr__gradient_scale scale)
{
    static const char op[] = "sgd_step";
    TSR__TRY(tsr__sgd_check(op, params));
    TSR__REQUIRE(params->momentum == 0 || velocity != NULL,
                 "%s: momentum is %g but velocity is NULL", op, (double)params->momentum);
    const tsr__optimizer optimizer = {
        .op = op,
        .operand = {[TSR_OPT_PARAMETER] = parameter,
                    [TSR_OPT_GRADIENT] = (tsr_tensor *)gradient,
                    [TSR_OPT_MASTER] = master,
                    [TSR_OPT_STATE] = params->momentum == 0 ? NULL : velocity},
        .name = {[TSR_OPT_PARAMETER] = "parameter",
                 [TSR_OPT_GRADIENT] = "gradient",
                 [TSR_OPT_MASTER] = "master",
                 [TSR_OPT_STATE] = "velocity"},
    };
    TSR__TRY(tsr__optimizer_check(stream, &optimizer));

    const float numbers[TSR_OPT_NUMBERS] = {
        [TSR_SGD_LEARNING_RATE] = params->learning_rate,
        [TSR_SGD_MOMENTUM] = params->momentum,
        [TSR_SGD_DAMPED] = 1 - params->dampening,
        [TSR_SGD_WEIGHT_DECAY] = params->weight_decay,
        [TSR_OPT_GRADIENT_SCALE] = scale.value,
    };
    return tsr__optimizer_record(stream, &optimizer, TSR__SHADER_SGD, mode_of(params), numbers,
                                 scale.at);
}

tsr_status tsr_sgd_step(tsr_stream *stream, tsr_tensor *parameter, const tsr_tensor *gradient,
                        tsr_tensor *velocity, tsr_tensor *master, const tsr_sgd_params *params)
{
    TSR__REQUIRE(params, "sgd_step: params is NULL");
    TSR__TAKE(tsr_sgd_params, params);
    return tsr__sgd_step(stream, parameter, gradient, velocity, master, params,
                         (tsr__gradient_scale){.value = 1});
}
