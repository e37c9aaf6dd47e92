/* Gradients of parameters that every rank has completely, while each rank computes only its
 * contribution to the gradient. The contributions to several parameters' gradients are in one
 * tensor. One all-reduce sums this tensor over the ranks, and the sums are then added to the
 * gradients. */
#include "parallel/layers/layer.h"

#include "base/alloc.h"

typedef struct tsr__grad_contribution contribution;

/* Returns the number of a parameter's elements on this rank, and sets its shape. */
static int64_t elements_of(const tsr__layer_parameter *parameter,
                           int64_t shape[TSR__PARAMETER_DIMS])
{
    shape[0] = shape[1] = shape[2] = 1;
    tsr__parameter_shape(parameter, shape);
    return shape[0] * shape[1] * shape[2];
}

static const tsr__layer_parameter *parameter_of(const tsr__replicated_grads *grads, int i)
{
    return grads->layer->parameter[grads->item[i].index];
}

tsr_status tsr__replicated_grads_add(tsr__replicated_grads *grads, int index)
{
    void *item = grads->item;
    tsr_status status =
        tsr__grow(&item, &grads->capacity, (size_t)grads->count + 1, sizeof *grads->item);
    grads->item = item;
    TSR__TRY(status);
    grads->item[grads->count++] = (contribution){.index = index};
    return TSR_OK;
}

tsr_status tsr__replicated_grads_allocate(tsr__replicated_grads *grads, bool zeros)
{
    int64_t total = 0, start = 0, shape[TSR__PARAMETER_DIMS];
    for (int i = 0; i < grads->count; i++)
        total += elements_of(parameter_of(grads, i), shape);
    TSR__TRY(tsr__temp_new(grads->temps, TSR_F32, 1, &total, &grads->joint));
    if (zeros)
        TSR__TRY(tsr_fill(grads->layer->stream, grads->joint, 0));
    for (int i = 0; i < grads->count; i++) {
        const int64_t elements = elements_of(parameter_of(grads, i), shape);
        tsr_tensor *range;
        TSR__TRY(tsr__temp_slice(grads->temps, grads->joint, 0, start, elements, &range));
        TSR__TRY(tsr__temp_reshape(grads->temps, range, parameter_of(grads, i)->seen.ndim, shape,
                                   &grads->item[i].contribution));
        start += elements;
    }
    return TSR_OK;
}

tsr_status tsr__replicated_grads_get(const tsr__replicated_grads *grads, int index,
                                     tsr_tensor **out)
{
    for (int i = 0; i < grads->count; i++)
        if (grads->item[i].index == index) {
            *out = grads->item[i].contribution;
            return TSR_OK;
        }
    return tsr__fail(TSR_ERR_INVALID, "%s: the gradient of parameter %d is not summed",
                     grads->layer->who, index);
}

tsr_status tsr__replicated_grads_start(tsr__replicated_grads *grads)
{
    return tsr_group_all_reduce(grads->layer->group, grads->joint, TSR_OP_SUM, NULL,
                                &grads->request);
}

tsr_status tsr__replicated_grads_finish(tsr__replicated_grads *grads)
{
    tsr_stream *stream = grads->layer->stream;
    TSR__TRY(tsr_request_wait(&grads->request));
    for (int i = 0; i < grads->count; i++) {
        const contribution *sum = &grads->item[i];
        tsr__layer_parameter *parameter = grads->layer->parameter[sum->index];
        TSR__TRY(tsr__parameter_need_grad(grads->layer, sum->index));
        TSR__TRY(parameter->grad_empty
                     ? tsr_copy(stream, parameter->seen.grad, sum->contribution)
                     : tsr_axpy(stream, parameter->seen.grad, 1, sum->contribution));
        parameter->grad_empty = false;
    }
    return TSR_OK;
}

void tsr__replicated_grads_cancel(tsr__replicated_grads *grads)
{
    tsr_request_cancel(&grads->request);
    tsr__free(grads->item);
    grads->item = NULL;
}
