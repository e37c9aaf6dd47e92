/* The parts of a column-parallel layer. If their memory is one tensor, one product computes all of
 * them. */
#include "parallel/layers/linear.h"

#include "gpu/stream/host_access.h"

/* Joint memory ---------------------------------------------------------------------------------
 */

/* Returns a pointer to a part's tensor: its weight (`which` is 0) or bias (1), or the gradient of
 * that. */
static tsr_tensor **memory_of(tsr__linear *linear, int part, int which, bool grad)
{
    tsr_parameter *seen = &linear->base.parameter[tsr__weight_of(linear, part) + which].seen;
    return grad ? &seen->grad : &seen->tensor;
}

/* Returns whether the memory of all parts is still in the joint tensor. The caller may have set
 * other memory for a parameter. Then the joint tensor is destroyed. */
static bool still_joint(tsr__linear *linear, int which, bool grad)
{
    tsr_tensor **joint = grad ? &linear->joint_grad[which] : &linear->joint[which];
    int64_t at = 0;
    for (int p = 0; *joint && p < linear->parts; p++) {
        const tsr_tensor *tensor = *memory_of(linear, p, which, grad);
        const int64_t rows = tsr__part_rows(&linear->part[p]);
        tsr_layout layout;
        bool same = tensor && tsr_layout_slice(tsr_tensor_layout(*joint), 0, at, at + rows, 1,
                                               &layout) == TSR_OK;
        if (!same || !tsr__tensor_is_view(tensor, *joint, &layout))
            tsr_tensor_destroy(joint);
        at += rows;
    }
    return *joint != NULL;
}

/* Returns whether this rank computes all rows of the parameters that it keeps. If so, the joint
 * tensor contains no other rows. */
static bool computes_all(const tsr__linear *linear)
{
    for (int p = 0; p < linear->parts; p++)
        if (tsr__part_rows(&linear->part[p]) != linear->part[p].length)
            return false;
    return linear->features > 0;
}

tsr_status tsr__column_blocks(tsr__linear *linear, tsr__temps *temps,
                              tsr__block blocks[TSR__MAX_LINEAR_PARTS], int *count)
{
    *count = linear->parts;
    if (linear->parts > 1 && computes_all(linear) && still_joint(linear, 0, false) &&
        (!linear->has_bias || still_joint(linear, 1, false))) {
        blocks[0] = (tsr__block){linear->joint[0], linear->joint[1], 0, linear->features};
        *count = 1;
        return TSR_OK;
    }
    for (int p = 0; p < linear->parts; p++) {
        const tsr__column_part *part = &linear->part[p];
        tsr_tensor *weight = *memory_of(linear, p, 0, false);
        tsr_tensor *bias = linear->has_bias ? *memory_of(linear, p, 1, false) : NULL;
        if (part->replicated) {
            TSR__TRY(tsr__temp_slice(temps, weight, 0, part->first, part->length, &weight));
            if (bias)
                TSR__TRY(tsr__temp_slice(temps, bias, 0, part->first, part->length, &bias));
        }
        blocks[p] = (tsr__block){weight, bias, part->at, part->length};
    }
    return TSR_OK;
}

/* Gradients ------------------------------------------------------------------------------------
 */

/* Allocates a joint tensor for the gradients of all parts, unless a gradient already has memory. */
static tsr_status need_joint_grad(tsr__linear *linear, int which)
{
    const tsr_layer *layer = &linear->base;
    const tsr__layer_parameter *first = &layer->parameter[which];
    for (int p = 0; p < linear->parts; p++)
        if (*memory_of(linear, p, which, true))
            return TSR_OK;
    int64_t shape[2], at = 0;
    tsr__parameter_shape(first, shape);
    shape[0] = linear->features;
    tsr_tensor_destroy(&linear->joint_grad[which]);
    TSR__TRY(tsr_tensor_create(layer->device, first->grad_dtype, first->seen.ndim, shape,
                               &linear->joint_grad[which]));
    for (int p = 0; p < linear->parts; p++) {
        const int64_t rows = tsr__part_rows(&linear->part[p]);
        TSR__TRY(tsr_tensor_slice(linear->joint_grad[which], 0, at, at + rows, 1,
                                  memory_of(linear, p, which, true)));
        at += rows;
    }
    return TSR_OK;
}

/* Returns whether all parts treat their gradients alike: all are added to, or all are
 * overwritten. */
static bool alike(const tsr__linear *linear, int which)
{
    const tsr__layer_parameter *parameter = linear->base.parameter;
    for (int p = 1; p < linear->parts; p++)
        if (parameter[tsr__weight_of(linear, p) + which].grad_empty != parameter[which].grad_empty)
            return false;
    return true;
}

/* Sets *joint to whether one product can compute the gradients of the weights (`which` is 0) or
 * biases (1) of all parts. */
static tsr_status find_joint_grad(tsr__linear *linear, int which, bool *joint)
{
    *joint = false;
    if (linear->parts == 1 || !computes_all(linear))
        return TSR_OK;
    for (int p = 0; p < linear->parts; p++)
        if (linear->part[p].replicated)
            return TSR_OK;
    TSR__TRY(need_joint_grad(linear, which));
    *joint = still_joint(linear, which, true) && alike(linear, which);
    return TSR_OK;
}

static void filled(tsr__linear *linear, int which)
{
    for (int p = 0; p < linear->parts; p++)
        linear->base.parameter[tsr__weight_of(linear, p) + which].grad_empty = false;
}

/* Adds the gradient of a part that is not replicated. */
static tsr_status add_part(tsr__linear *linear, tsr__temps *temps, int p, int which,
                           const tsr_tensor *dy2, const tsr_tensor *x2)
{
    const tsr__column_part *part = &linear->part[p];
    const int index = tsr__weight_of(linear, p) + which;
    tsr_tensor *dy;
    TSR__TRY(tsr__temp_slice(temps, dy2, 1, part->at, part->length, &dy));
    return which == 0 ? tsr__parameter_add_weight_grad(&linear->base, index, dy, x2)
                      : tsr__parameter_add_bias_grad(&linear->base, index, dy);
}

static tsr_status add_grads(tsr__linear *linear, tsr__temps *temps, int which,
                            const tsr_tensor *dy2, const tsr_tensor *x2)
{
    tsr_stream *stream = linear->base.stream;
    bool joint;
    TSR__TRY(find_joint_grad(linear, which, &joint));
    if (joint) {
        tsr_tensor *grad = linear->joint_grad[which];
        const bool add = !linear->base.parameter[which].grad_empty;
        TSR__TRY(which == 0 ? tsr_matmul(stream, grad, dy2, x2,
                                         tsr_matmul_params(.transpose_a = true, .accumulate = add))
                            : tsr_reduce(stream, grad, dy2, 0, TSR_REDUCE_SUM, add));
        filled(linear, which);
        return TSR_OK;
    }
    for (int p = 0; p < linear->parts; p++)
        if (!linear->part[p].replicated)
            TSR__TRY(add_part(linear, temps, p, which, dy2, x2));
    return TSR_OK;
}

/* Computes this rank's contributions to the gradients of replicated parts. */
static tsr_status add_replicated(tsr__linear *linear, tsr__partials *sums, tsr__temps *temps,
                                 const tsr_tensor *dy2, const tsr_tensor *x2)
{
    tsr_stream *stream = linear->base.stream;
    for (int p = 0; p < linear->parts; p++) {
        const tsr__column_part *part = &linear->part[p];
        if (!part->replicated)
            continue;
        tsr_tensor *dy, *weight, *bias;
        TSR__TRY(tsr__temp_slice(temps, dy2, 1, part->at, part->length, &dy));
        TSR__TRY(tsr__partials_take(sums, tsr__weight_of(linear, p), &weight));
        TSR__TRY(tsr__temp_slice(temps, weight, 0, part->first, part->length, &weight));
        TSR__TRY(tsr_matmul(stream, weight, dy, x2, tsr_matmul_params(.transpose_a = true)));
        if (!linear->has_bias)
            continue;
        TSR__TRY(tsr__partials_take(sums, tsr__weight_of(linear, p) + 1, &bias));
        TSR__TRY(tsr__temp_slice(temps, bias, 0, part->first, part->length, &bias));
        TSR__TRY(tsr_reduce(stream, bias, dy, 0, TSR_REDUCE_SUM, false));
    }
    return TSR_OK;
}

tsr_status tsr__column_add_grads(tsr__linear *linear, tsr__temps *temps, const tsr_tensor *dy2,
                                 const tsr_tensor *x2)
{
    tsr__partials sums = {.layer = &linear->base, .temps = temps};
    int indices[TSR__MAX_LAYER_PARAMETERS], count = 0;
    for (int p = 0; p < linear->parts; p++)
        for (int which = 0; linear->part[p].replicated && which < 1 + linear->has_bias; which++)
            indices[count++] = tsr__weight_of(linear, p) + which;
    tsr_status status = TSR_OK;
    if (count > 0) {
        status = tsr__partials_begin(&sums, indices, count, true);
        if (status == TSR_OK)
            status = add_replicated(linear, &sums, temps, dy2, x2);
        if (status == TSR_OK)
            status = tsr__partials_start(&sums);
    }
    for (int which = 0; status == TSR_OK && which < 1 + linear->has_bias; which++)
        status = add_grads(linear, temps, which, dy2, x2);
    if (status == TSR_OK && count > 0)
        status = tsr__partials_finish(&sums);
    tsr__partials_cancel(&sums);
    return status;
}
