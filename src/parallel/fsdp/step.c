#include "parallel/fsdp/fsdp.h"

#include "gpu/internal.h"
#include "tessera/ops.h"

static void clear_grads(tsr_fsdp *model)
{
    for (int i = 0; i < model->param_count; i++)
        model->params[i].grad_holds = false;
}

/* Returns whether a parameter has weight decay. */
static bool has_decay(const tsr__fsdp_step *how, const tsr__fsdp_param *p)
{
    return !how->decay_matrices || p->seen.ndim >= 2;
}

static tsr_status step_param(tsr_fsdp *model, const tsr__fsdp_step *how, tsr__fsdp_param *p,
                             bool decay)
{
    if (how->sgd) {
        tsr_sgd_params params = *how->sgd;
        params.weight_decay = decay ? params.weight_decay : 0;
        return tsr__sgd_step(model->stream, p->value, p->grad, p->moment1, p->master, &params,
                             how->scale);
    }
    tsr_adamw_params params = *how->adamw;
    params.weight_decay = decay ? params.weight_decay : 0;
    return tsr__adamw_step(model->stream, p->value, p->grad, p->moment1, p->moment2, p->master,
                           &params, how->scale);
}

static bool has_step(const tsr__fsdp_param *p)
{
    return p->grad_holds && p->range.count > 0;
}

/* Returns whether the region of `next` directly follows that of `last`. */
static bool follows_in_memory(const tsr_tensor *last, const tsr_tensor *next)
{
    if (!last || !next)
        return last == next;
    tsr_layout layout = *tsr_tensor_layout(next);
    const tsr_layout *before = tsr_tensor_layout(last);
    layout.offset = before->offset + (int64_t)tsr__fsdp_region_elements((uint64_t)before->shape[0]);
    return layout.dtype == before->dtype && tsr__tensor_is_view(next, last, &layout);
}

static bool can_join(const tsr__fsdp_param *last, const tsr__fsdp_param *next)
{
    return follows_in_memory(last->value, next->value) &&
           follows_in_memory(last->grad, next->grad) &&
           follows_in_memory(last->moment1, next->moment1) &&
           follows_in_memory(last->moment2, next->moment2) &&
           follows_in_memory(last->master, next->master);
}

/* Returns the place in memory of the last parameter that one dispatch can update together with the
 * parameter at `first`. Joining parameters saves time, because a dispatch costs as much as
 * thousands of elements, and most parameters are small. */
static int last_joined(const tsr_fsdp *model, tsr__fsdp_param *params, int first)
{
    const tsr__fsdp_step *how = &model->next;
    int last = first;
    for (int place = first + 1; place < tsr__fsdp_places(model); place++) {
        const tsr__fsdp_param *p = tsr__fsdp_in_memory(model, params, place);
        if (!p || p->range.count == 0)
            continue;
        if (!has_step(p) ||
            has_decay(how, p) != has_decay(how, tsr__fsdp_in_memory(model, params, first)) ||
            !can_join(tsr__fsdp_in_memory(model, params, last), p))
            break;
        last = place;
    }
    return last;
}

/* Creates a view from the first element of `first` to the last element of `last`. The padding
 * between two regions is unused, so the step may change it. */
static tsr_status join_tensors(const tsr_tensor *first, const tsr_tensor *last, tsr_tensor **out)
{
    if (!first)
        return TSR_OK;
    tsr_layout layout = *tsr_tensor_layout(first);
    const tsr_layout *end = tsr_tensor_layout(last);
    layout.shape[0] = end->offset + end->shape[0] - layout.offset;
    return tsr_tensor_view(first, &layout, out);
}

static tsr_status join_params(const tsr__fsdp_param *first, const tsr__fsdp_param *last,
                              tsr__fsdp_param *out)
{
    TSR__TRY(join_tensors(first->value, last->value, &out->value));
    TSR__TRY(join_tensors(first->grad, last->grad, &out->grad));
    TSR__TRY(join_tensors(first->moment1, last->moment1, &out->moment1));
    TSR__TRY(join_tensors(first->moment2, last->moment2, &out->moment2));
    return join_tensors(first->master, last->master, &out->master);
}

static tsr_status step_joined(tsr_fsdp *model, const tsr__fsdp_param *first,
                              const tsr__fsdp_param *last)
{
    tsr__fsdp_param all = {0};
    tsr_status status = join_params(first, last, &all);
    if (status == TSR_OK)
        status = step_param(model, &model->next, &all, has_decay(&model->next, first));
    tsr_tensor_destroy(&all.value);
    tsr_tensor_destroy(&all.grad);
    tsr_tensor_destroy(&all.moment1);
    tsr_tensor_destroy(&all.moment2);
    tsr_tensor_destroy(&all.master);
    return status;
}

/* Updates a set of shards: params[param_count]. */
static tsr_status step_set(tsr_fsdp *model, tsr__fsdp_param *params)
{
    for (int place = 0; place < tsr__fsdp_places(model); place++) {
        const int first = place;
        tsr__fsdp_param *p = tsr__fsdp_in_memory(model, params, first);
        if (!p)
            continue;
        if (has_step(p)) {
            place = last_joined(model, params, first);
            TSR__TRY(step_joined(model, p, tsr__fsdp_in_memory(model, params, place)));
        }
        /* If a later parameter fails, the caller may call again. That call must not update these
         * parameters a second time. */
        for (int done = first; done <= place; done++)
            if (tsr__fsdp_in_memory(model, params, done))
                tsr__fsdp_in_memory(model, params, done)->grad_holds = false;
    }
    return TSR_OK;
}

static void set_next_step(tsr_fsdp *model, const tsr__fsdp_step *how)
{
    model->next = *how;
    if (how->sgd) {
        model->next_sgd = *how->sgd;
        model->next_sgd.first_step = model->steps == 0 && how->sgd->momentum != 0;
        model->next.sgd = &model->next_sgd;
    } else {
        model->next_adamw = *how->adamw;
        model->next_adamw.step = model->steps + 1;
        model->next.adamw = &model->next_adamw;
    }
}

tsr_status tsr__fsdp_prepare(tsr_fsdp *model, const tsr__fsdp_step *how)
{
    const char *who = "optimizer_step";
    TSR__TRY(tsr__fsdp_check_not_in_use(model, who));
    /* The previous step has failed while it was applied: this call makes the rest of it. */
    if (model->progress == TSR__FSDP_MET) {
        set_next_step(model, how);
        return TSR_OK;
    }
    model->progress = TSR__FSDP_IDLE;
    TSR__TRY(tsr__fsdp_collect_all(model));
    TSR__TRY(tsr__fsdp_discard_gathered(model));
    tsr_status status = tsr__fsdp_send_gradients(model);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s", who);
    set_next_step(model, how);
    model->progress = TSR__FSDP_PREPARED;
    return TSR_OK;
}

tsr_status tsr__fsdp_meet(tsr_fsdp *model)
{
    return model->progress == TSR__FSDP_PREPARED && model->replica.comm
               ? tsr_comm_barrier(model->replica.comm, NULL)
               : TSR_OK;
}

void tsr__fsdp_have_met(tsr_fsdp *model)
{
    model->progress = TSR__FSDP_MET;
}

tsr_status tsr__fsdp_apply(tsr_fsdp *model)
{
    TSR__TRY(step_set(model, model->params));
    if (model->replica.params)
        TSR__TRY(step_set(model, model->replica.params));
    model->steps++;
    model->progress = TSR__FSDP_IDLE;
    return TSR_OK;
}

tsr_status tsr__fsdp_zero_grad(tsr_fsdp *model)
{
    TSR__TRY(tsr__fsdp_check_not_in_use(model, "optimizer_zero_grad"));
    TSR__TRY(tsr__fsdp_collect_all(model));
    model->progress = TSR__FSDP_IDLE;
    TSR__TRY(tsr__fsdp_stop_sending(model));
    clear_grads(model);
    return TSR_OK;
}
