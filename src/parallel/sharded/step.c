#include "parallel/sharded/sharded.h"

#include "gpu/ops/step_params.h"
#include "tessera/ops.h"

static void forget_grads(tsr_sharded *model)
{
    for (int i = 0; i < model->param_count; i++)
        model->params[i].grad_holds = false;
}

static tsr_status sgd(tsr_sharded *model, tsr__sharded_param *p, const tsr_sgd_params *params)
{
    return tsr_sgd_step(model->stream, p->value, p->grad, p->moment1, p->master, params);
}

static tsr_status adamw(tsr_sharded *model, tsr__sharded_param *p, const tsr_adamw_params *params)
{
    return tsr_adamw_step(model->stream, p->value, p->grad, p->moment1, p->moment2, p->master,
                          params);
}

/* One of both has params, which are checked: a rank may have nothing to step, and counts all the
 * same. */
static tsr_status step(tsr_sharded *model, const char *who, const tsr_sgd_params *sgd_params,
                       const tsr_adamw_params *adamw_params)
{
    TSR__TRY(tsr__sharded_idle(model, who));
    TSR__TRY(tsr__sharded_collect_all(model));
    TSR__TRY(tsr__sharded_forget(model));
    for (int i = 0; i < model->param_count; i++) {
        tsr__sharded_param *p = &model->params[i];
        if (p->grad_holds && p->range.count > 0)
            TSR__TRY(sgd_params ? sgd(model, p, sgd_params) : adamw(model, p, adamw_params));
        p->grad_holds = false; /* whoever calls again after a failure does not step it again */
    }
    model->steps++;
    return TSR_OK;
}

static tsr_status check(const tsr_sharded *model, const char *who, const void *params,
                        tsr_optimizer optimizer)
{
    TSR__REQUIRE(model && params, "%s: %s is NULL", who, model ? "params" : "model");
    TSR__REQUIRE(model->optimizer == optimizer, "%s: the model has another optimizer", who);
    return TSR_OK;
}

tsr_status tsr_sharded_sgd_step(tsr_sharded *model, const tsr_sgd_params *params)
{
    TSR__TRY(check(model, "sharded_sgd_step", params, TSR_OPTIMIZER_SGD));
    TSR__REQUIRE(params->momentum == 0 || model->momentum,
                 "sharded_sgd_step: momentum is %g, and the model has no velocity",
                 (double)params->momentum);
    tsr_sgd_params this_step = *params;
    this_step.first_step = model->steps == 0 && params->momentum != 0;
    TSR__TRY(tsr__sgd_check("sharded_sgd_step", &this_step));
    return step(model, "sharded_sgd_step", &this_step, NULL);
}

tsr_status tsr_sharded_adamw_step(tsr_sharded *model, const tsr_adamw_params *params)
{
    TSR__TRY(check(model, "sharded_adamw_step", params, TSR_OPTIMIZER_ADAMW));
    tsr_adamw_params this_step = *params;
    this_step.step = model->steps + 1;
    TSR__TRY(tsr__adamw_check("sharded_adamw_step", &this_step));
    return step(model, "sharded_adamw_step", NULL, &this_step);
}

tsr_status tsr_sharded_zero_grad(tsr_sharded *model)
{
    TSR__TRY(tsr__sharded_idle(model, "sharded_zero_grad"));
    TSR__TRY(tsr__sharded_collect_all(model));
    forget_grads(model);
    return TSR_OK;
}

int64_t tsr_sharded_steps(const tsr_sharded *model)
{
    return model ? model->steps : 0;
}
