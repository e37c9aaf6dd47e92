/* Gradients of parameters that every rank has completely, while each rank computes only its
 * contribution to the gradient, called its share. The shares of several parameters are in one
 * tensor. One all-reduce sums this tensor over the ranks, and the sums are then added to the
 * gradients. */
#include "parallel/layers/layer.h"

static int64_t count_of(const tsr__layer_parameter *parameter, int64_t shape[2])
{
    shape[0] = shape[1] = 1;
    tsr__parameter_shape(parameter, shape);
    return shape[0] * (parameter->seen.ndim > 1 ? shape[1] : 1);
}

tsr_status tsr__partials_begin(tsr__partials *sums, const int *indices, int count, bool zeros)
{
    int64_t total = 0, at = 0, shape[2];
    for (int i = 0; i < count; i++)
        total += count_of(&sums->layer->parameter[indices[i]], shape);
    TSR__TRY(tsr__temp_new(sums->temps, TSR_F32, 1, &total, &sums->all));
    if (zeros)
        TSR__TRY(tsr_fill(sums->layer->stream, sums->all, 0));
    for (int i = 0; i < count; i++) {
        const tsr__layer_parameter *parameter = &sums->layer->parameter[indices[i]];
        const int64_t size = count_of(parameter, shape);
        tsr_tensor *part;
        TSR__TRY(tsr__temp_slice(sums->temps, sums->all, 0, at, size, &part));
        TSR__TRY(tsr__temp_reshape(sums->temps, part, parameter->seen.ndim, shape, &part));
        sums->item[i].index = indices[i];
        sums->item[i].share = part;
        at += size;
    }
    sums->count = count;
    return TSR_OK;
}

tsr_status tsr__partials_take(const tsr__partials *sums, int index, tsr_tensor **out)
{
    for (int i = 0; i < sums->count; i++)
        if (sums->item[i].index == index) {
            *out = sums->item[i].share;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_INVALID, "%s: parameter %d has no share", sums->layer->who, index);
}

tsr_status tsr__partials_start(tsr__partials *sums)
{
    return tsr_group_all_reduce_start(sums->layer->group, sums->all, TSR_OP_SUM, &sums->request);
}

tsr_status tsr__partials_finish(tsr__partials *sums)
{
    TSR__TRY(tsr_group_wait(&sums->request));
    for (int i = 0; i < sums->count; i++) {
        const int index = sums->item[i].index;
        tsr__layer_parameter *parameter = &sums->layer->parameter[index];
        TSR__TRY(tsr__parameter_need_grad(sums->layer, index));
        TSR__TRY(parameter->grad_empty
                     ? tsr_copy(sums->layer->stream, parameter->seen.grad, sums->item[i].share)
                     : tsr_axpy(sums->layer->stream, parameter->seen.grad, 1, sums->item[i].share));
        parameter->grad_empty = false;
    }
    return TSR_OK;
}

void tsr__partials_cancel(tsr__partials *sums)
{
    tsr_group_cancel(&sums->request);
}
