#include "parallel/fsdp_steps.h"

#include "parallel/fsdp/fsdp.h"

static tsr_status with_optimizer(tsr_fsdp *model, const tsr_adamw_params *adamw,
                                 const tsr_sgd_params *sgd, tsr_optimizer **out)
{
    TSR__TRY(
        tsr_optimizer_create(tsr_optimizer_params(.stream = model->stream, .kind = model->optimizer,
                                                  .adamw = adamw, .sgd = sgd),
                             out));
    const tsr_status status = tsr_optimizer_add_fsdp(*out, model);
    if (status != TSR_OK)
        tsr_optimizer_destroy(out);
    return status;
}

static tsr_status step(tsr_fsdp *model, const tsr_adamw_params *adamw, const tsr_sgd_params *sgd,
                       float rate)
{
    tsr_optimizer *optimizer = NULL;
    TSR__TRY(with_optimizer(model, adamw, sgd, &optimizer));
    const tsr_status status = tsr_optimizer_step(optimizer, rate);
    tsr_optimizer_destroy(&optimizer);
    return status;
}

tsr_status fsdp_adamw_step(tsr_fsdp *model, const tsr_adamw_params *params)
{
    return step(model, params, NULL, params->learning_rate);
}

tsr_status fsdp_sgd_step(tsr_fsdp *model, const tsr_sgd_params *params)
{
    return step(model, NULL, params, params->learning_rate);
}

tsr_status fsdp_zero_grad(tsr_fsdp *model)
{
    tsr_optimizer *optimizer = NULL;
    TSR__TRY(with_optimizer(model, NULL, NULL, &optimizer));
    const tsr_status status = tsr_optimizer_zero_grad(optimizer);
    tsr_optimizer_destroy(&optimizer);
    return status;
}

tsr_status fsdp_save(tsr_fsdp *model, const char *path, const tsr_optimizer_file_params *params)
{
    tsr_optimizer *optimizer = NULL;
    TSR__TRY(with_optimizer(model, NULL, NULL, &optimizer));
    const tsr_status status = tsr_optimizer_save(optimizer, path, params);
    tsr_optimizer_destroy(&optimizer);
    return status;
}

tsr_status fsdp_load(tsr_fsdp *model, const char *path, const tsr_optimizer_file_params *params)
{
    tsr_optimizer *optimizer = NULL;
    TSR__TRY(with_optimizer(model, NULL, NULL, &optimizer));
    const tsr_status status = tsr_optimizer_load(optimizer, path, params);
    tsr_optimizer_destroy(&optimizer);
    return status;
}

int64_t fsdp_steps(tsr_fsdp *model)
{
    tsr_optimizer *optimizer = NULL;
    if (with_optimizer(model, NULL, NULL, &optimizer) != TSR_OK)
        return -1;
    const int64_t steps = tsr_optimizer_steps(optimizer);
    tsr_optimizer_destroy(&optimizer);
    return steps;
}
