#include "parallel/fsdp/fsdp.h"

#include "gpu/ops/optimizer/step_params.h"
#include "gpu/stream/host_access.h"
#include "tessera/ops.h"

static void forget_grads(tsr_fsdp *model)
{
    for (int i = 0; i < model->param_count; i++)
        model->params[i].grad_holds = false;
}

static tsr_status sgd(tsr_fsdp *model, tsr__fsdp_param *p, const tsr_sgd_params *params)
{
    return tsr_sgd_step(model->stream, p->value, p->grad, p->moment1, p->master, params);
}

static tsr_status adamw(tsr_fsdp *model, tsr__fsdp_param *p, const tsr_adamw_params *params)
{
    return tsr_adamw_step(model->stream, p->value, p->grad, p->moment1, p->moment2, p->master,
                          params);
}

static bool steps(const tsr__fsdp_param *p)
{
    return p->grad_holds && p->range.count > 0;
}

/* Returns whether `next` is the part after `last` in the same memory. */
static bool follows(const tsr_tensor *last, const tsr_tensor *next)
{
    if (!last || !next)
        return last == next;
    tsr_layout layout = *tsr_tensor_layout(next);
    const tsr_layout *before = tsr_tensor_layout(last);
    layout.offset = before->offset + (int64_t)tsr__fsdp_part_elements((uint64_t)before->shape[0]);
    return layout.dtype == before->dtype && tsr__tensor_is_view(next, last, &layout);
}

static bool joins(const tsr__fsdp_param *last, const tsr__fsdp_param *next)
{
    return follows(last->value, next->value) && follows(last->grad, next->grad) &&
           follows(last->moment1, next->moment1) && follows(last->moment2, next->moment2) &&
           follows(last->master, next->master);
}

/* Returns the last of the parameters that one dispatch can step together with the first. A dispatch
 * costs as much as thousands of elements, and most parameters are small. */
static int last_joined(const tsr_fsdp *model, int first)
{
    int last = first;
    for (int i = first + 1; i < model->param_count; i++) {
        const tsr__fsdp_param *p = &model->params[i];
        if (p->range.count == 0)
            continue;
        if (!steps(p) || !joins(&model->params[last], p))
            break;
        last = i;
    }
    return last;
}

/* Makes a view from the first element of `first` to the last one of `last`. The padding between two
 * parts is unused, and may be stepped too. */
static tsr_status join(const tsr_tensor *first, const tsr_tensor *last, tsr_tensor **out)
{
    if (!first)
        return TSR_OK;
    tsr_layout layout = *tsr_tensor_layout(first);
    const tsr_layout *end = tsr_tensor_layout(last);
    layout.shape[0] = end->offset + end->shape[0] - layout.offset;
    return tsr_tensor_view(first, &layout, out);
}

static tsr_status join_all(const tsr__fsdp_param *first, const tsr__fsdp_param *last,
                           tsr__fsdp_param *out)
{
    TSR__TRY(join(first->value, last->value, &out->value));
    TSR__TRY(join(first->grad, last->grad, &out->grad));
    TSR__TRY(join(first->moment1, last->moment1, &out->moment1));
    TSR__TRY(join(first->moment2, last->moment2, &out->moment2));
    return join(first->master, last->master, &out->master);
}

static tsr_status step_joined(tsr_fsdp *model, int first, int last,
                              const tsr_sgd_params *sgd_params,
                              const tsr_adamw_params *adamw_params)
{
    tsr__fsdp_param all = {0};
    tsr_status status = join_all(&model->params[first], &model->params[last], &all);
    if (status == TSR_OK)
        status = sgd_params ? sgd(model, &all, sgd_params) : adamw(model, &all, adamw_params);
    tsr_tensor_destroy(&all.value);
    tsr_tensor_destroy(&all.grad);
    tsr_tensor_destroy(&all.moment1);
    tsr_tensor_destroy(&all.moment2);
    tsr_tensor_destroy(&all.master);
    return status;
}

/* Exactly one of the two params is not NULL. They have been checked before, because a rank without
 * anything to step must fail or count like the others. */
static tsr_status step(tsr_fsdp *model, const char *who, const tsr_sgd_params *sgd_params,
                       const tsr_adamw_params *adamw_params)
{
    TSR__TRY(tsr__fsdp_idle(model, who));
    TSR__TRY(tsr__fsdp_collect_all(model));
    TSR__TRY(tsr__fsdp_forget(model));
    for (int i = 0; i < model->param_count; i++) {
        const int first = i;
        if (steps(&model->params[first])) {
            i = last_joined(model, first);
            TSR__TRY(step_joined(model, first, i, sgd_params, adamw_params));
        }
        /* A call after a failure does not step them again. */
        for (int done = first; done <= i; done++)
            model->params[done].grad_holds = false;
    }
    model->steps++;
    return TSR_OK;
}

static tsr_status check(const tsr_fsdp *model, const char *who, const void *params,
                        tsr_optimizer_kind optimizer)
{
    TSR__REQUIRE(model && params, "%s: %s is NULL", who, model ? "params" : "model");
    TSR__REQUIRE(model->optimizer == optimizer, "%s: the model was created for another optimizer",
                 who);
    return TSR_OK;
}

tsr_status tsr_fsdp_sgd_step(tsr_fsdp *model, const tsr_sgd_params *params)
{
    TSR__TRY(check(model, "fsdp_sgd_step", params, TSR_OPTIMIZER_SGD));
    TSR__REQUIRE(params->momentum == 0 || model->momentum,
                 "fsdp_sgd_step: momentum is %g, but the model was created with no_momentum",
                 (double)params->momentum);
    tsr_sgd_params this_step = *params;
    this_step.first_step = model->steps == 0 && params->momentum != 0;
    TSR__TRY(tsr__sgd_check("fsdp_sgd_step", &this_step));
    return step(model, "fsdp_sgd_step", &this_step, NULL);
}

tsr_status tsr_fsdp_adamw_step(tsr_fsdp *model, const tsr_adamw_params *params)
{
    TSR__TRY(check(model, "fsdp_adamw_step", params, TSR_OPTIMIZER_ADAMW));
    tsr_adamw_params this_step = *params;
    this_step.step = model->steps + 1;
    TSR__TRY(tsr__adamw_check("fsdp_adamw_step", &this_step));
    return step(model, "fsdp_adamw_step", NULL, &this_step);
}

tsr_status tsr_fsdp_zero_grad(tsr_fsdp *model)
{
    TSR__TRY(tsr__fsdp_idle(model, "fsdp_zero_grad"));
    TSR__TRY(tsr__fsdp_collect_all(model));
    forget_grads(model);
    return TSR_OK;
}

int64_t tsr_fsdp_steps(const tsr_fsdp *model)
{
    return model ? model->steps : 0;
}
