/* AdamW. */
#include <inttypes.h>
#include <math.h>

#include "base/given.h"
#include "base/struct_size.h"
#include "gpu/ops/optimizer/optimizer.h"
#include "gpu/ops/optimizer/step_params.h"

tsr_status tsr__adamw_check(const char *op, const tsr_adamw_params *params)
{
    TSR__REQUIRE(params != NULL, "%s: params is NULL", op);
    TSR__TRY(tsr__optimizer_require_rate(op, "learning_rate", params->learning_rate));
    TSR__TRY(tsr__optimizer_require_rate(op, "epsilon", params->epsilon));
    TSR__TRY(tsr__optimizer_require_rate(op, "weight_decay", params->weight_decay));
    TSR__REQUIRE(params->beta1 >= 0 && params->beta1 < 1,
                 "%s: beta1 is %g; 0 <= beta1 < 1 is needed", op, (double)params->beta1);
    TSR__REQUIRE(params->beta2 >= 0 && params->beta2 < 1,
                 "%s: beta2 is %g; 0 <= beta2 < 1 is needed", op, (double)params->beta2);
    TSR__REQUIRE(params->step >= 1, "%s: step is %" PRId64 "; steps count from 1", op,
                 params->step);
    return TSR_OK;
}

tsr_status tsr__adamw_step(tsr_stream *stream, tsr_tensor *parameter, const tsr_tensor *gradient,
                           tsr_tensor *moment1, tsr_tensor *moment2, tsr_tensor *master,
                           const tsr_adamw_params *params, tsr__gradient_scale scale)
{
    static const char op[] = "adamw_step";
    TSR__TRY(tsr__adamw_check(op, params));
    TSR__REQUIRE(moment1 != NULL, "%s: moment1 is NULL", op);
    TSR__REQUIRE(moment2 != NULL, "%s: moment2 is NULL", op);
    const tsr__optimizer optimizer = {
        .op = op,
        .operand = {[TSR_OPT_PARAMETER] = parameter,
                    [TSR_OPT_GRADIENT] = (tsr_tensor *)gradient,
                    [TSR_OPT_MASTER] = master,
                    [TSR_OPT_STATE] = moment1,
                    [TSR_OPT_STATE2] = moment2},
        .name = {[TSR_OPT_PARAMETER] = "parameter",
                 [TSR_OPT_GRADIENT] = "gradient",
                 [TSR_OPT_MASTER] = "master",
                 [TSR_OPT_STATE] = "moment1",
                 [TSR_OPT_STATE2] = "moment2"},
    };
    TSR__TRY(tsr__optimizer_check(stream, &optimizer));

    float beta1 = tsr__given_float(params->beta1, 0.9f);
    float beta2 = tsr__given_float(params->beta2, 0.999f);
    double correction1 = 1 - pow((double)beta1, (double)params->step);
    double correction2 = 1 - pow((double)beta2, (double)params->step);
    double rate = (double)params->learning_rate;
    const float numbers[TSR_OPT_NUMBERS] = {
        [TSR_ADAMW_KEPT] = (float)(1 - rate * (double)params->weight_decay),
        [TSR_ADAMW_BETA1] = beta1,
        [TSR_ADAMW_BETA2] = beta2,
        [TSR_ADAMW_STEP] = (float)(rate / correction1),
        [TSR_ADAMW_ROOT_SCALE] = (float)(1 / sqrt(correction2)),
        [TSR_ADAMW_EPSILON] = tsr__given_float(params->epsilon, 1e-8f),
        [TSR_OPT_GRADIENT_SCALE] = scale.value,
    };
    return tsr__optimizer_record(stream, &optimizer, TSR__SHADER_ADAMW, 0, numbers, scale.at);
}

tsr_status tsr_adamw_step(tsr_stream *stream, tsr_tensor *parameter, const tsr_tensor *gradient,
                          tsr_tensor *moment1, tsr_tensor *moment2, tsr_tensor *master,
                          const tsr_adamw_params *params)
{
    TSR__REQUIRE(params, "adamw_step: params is NULL");
    TSR__TAKE(tsr_adamw_params, params);
    return tsr__adamw_step(stream, parameter, gradient, moment1, moment2, master, params,
                           (tsr__gradient_scale){.value = 1});
}
