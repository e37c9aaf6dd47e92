/* The parts of a column-parallel layer. If their tensors follow each other in memory, one product
 * computes all of them. */
#include "parallel/layers/linear.h"

#include "gpu/stream/host_access.h"
#include "tensor/dtype.h"

/* Joint memory ------------------------------------------------------------------------------- */

/* Returns a pointer to a part's weight (`which` is 0) or bias (1) or, if `grad` is true, to the
 * gradient of this parameter. */
static tsr_tensor **memory_of(tsr__linear *linear, int part, int which, bool grad)
{
    tsr_parameter *seen = &linear->base.parameter[tsr__weight_of(linear, part) + which].seen;
    return grad ? &seen->grad : &seen->tensor;
}

/* If the tensors of all parts follow each other in one buffer, creates a view of all of them.
 * Otherwise sets *out to NULL. The buffer may be the layer's, an FSDP model's or the caller's. */
static tsr_status join(tsr__linear *linear, tsr__temps *temps, int which, bool grad,
                       tsr_tensor **out)
{
    *out = NULL;
    const tsr_tensor *first = *memory_of(linear, 0, which, grad);
    if (!first || !tsr_layout_is_contiguous(tsr_tensor_layout(first)))
        return TSR_OK;
    tsr_layout joint = *tsr_tensor_layout(first), next = joint;
    joint.shape[0] = 0;
    for (int p = 0; p < linear->parts; p++) {
        const tsr_tensor *tensor = *memory_of(linear, p, which, grad);
        next.shape[0] = tsr__part_rows(&linear->part[p]);
        if (!tensor || tsr_tensor_layout(tensor)->dtype != next.dtype ||
            !tsr__tensor_is_view(tensor, first, &next))
            return TSR_OK;
        joint.shape[0] += next.shape[0];
        next.offset += next.shape[0] * next.strides[0];
    }
    TSR__TRY(tsr_tensor_view(first, &joint, out));
    tsr__temp_keep(temps, *out);
    return TSR_OK;
}

/* Returns whether this rank computes all rows of the parameters that it keeps. If so, a view of all
 * parts contains no other rows. */
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
    tsr_tensor *joint = NULL, *joint_bias = NULL;
    *count = linear->parts;
    if (linear->parts > 1 && computes_all(linear))
        TSR__TRY(join(linear, temps, 0, false, &joint));
    if (joint && linear->has_bias)
        TSR__TRY(join(linear, temps, 1, false, &joint_bias));
    if (joint && (joint_bias || !linear->has_bias)) {
        blocks[0] = (tsr__block){joint, joint_bias, 0, linear->features};
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

tsr_status tsr__weight_floats(const tsr__linear *linear, tsr__temps *temps,
                              const tsr_tensor *weight, const tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(weight);
    *out = weight;
    if (!tsr__dtype_is_block(layout->dtype))
        return TSR_OK;
    tsr_tensor *floats;
    TSR__TRY(tsr__temp_new(temps, linear->base.parameter[0].seen.dtype, layout->ndim, layout->shape,
                           &floats));
    TSR__TRY(tsr_copy(linear->base.stream, floats, weight));
    *out = floats;
    return TSR_OK;
}

/* Gradients ---------------------------------------------------------------------------------- */

/* Allocates one tensor for the gradients of all parts, unless a gradient already has memory. Each
 * part gets a view of this tensor. */
static tsr_status need_joint_grad(tsr__linear *linear, tsr__temps *temps, int which)
{
    const tsr_layer *layer = &linear->base;
    const tsr__layer_parameter *first = &layer->parameter[which];
    for (int p = 0; p < linear->parts; p++)
        if (*memory_of(linear, p, which, true))
            return TSR_OK;
    tsr_tensor *joint;
    int64_t shape[2], at = 0;
    tsr__parameter_shape(first, shape);
    shape[0] = linear->features;
    TSR__TRY(tsr__temp_new(temps, first->grad_dtype, first->seen.ndim, shape, &joint));
    for (int p = 0; p < linear->parts; p++) {
        const int64_t rows = tsr__part_rows(&linear->part[p]);
        TSR__TRY(tsr_tensor_slice(joint, 0, at, at + rows, 1, memory_of(linear, p, which, true)));
        at += rows;
    }
    return TSR_OK;
}

/* Returns whether the new gradients of all parts are added to the old ones, or all overwrite the
 * old ones. */
static bool alike(const tsr__linear *linear, int which)
{
    const tsr__layer_parameter *parameter = linear->base.parameter;
    for (int p = 1; p < linear->parts; p++)
        if (parameter[tsr__weight_of(linear, p) + which].grad_empty != parameter[which].grad_empty)
            return false;
    return true;
}

/* Gets a view of the gradients of the weights (`which` is 0) or biases (1) of all parts if one
 * product can compute them. Otherwise sets *joint to NULL. */
static tsr_status find_joint_grad(tsr__linear *linear, tsr__temps *temps, int which,
                                  tsr_tensor **joint)
{
    *joint = NULL;
    if (linear->parts == 1 || !computes_all(linear))
        return TSR_OK;
    for (int p = 0; p < linear->parts; p++)
        if (linear->part[p].replicated)
            return TSR_OK;
    TSR__TRY(need_joint_grad(linear, temps, which));
    return alike(linear, which) ? join(linear, temps, which, true, joint) : TSR_OK;
}

static void filled(tsr__linear *linear, int which)
{
    for (int p = 0; p < linear->parts; p++)
        linear->base.parameter[tsr__weight_of(linear, p) + which].grad_empty = false;
}

/* Adds the gradient of the weight (`which` is 0) or bias (1) of part p, which is not replicated. */
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
    tsr_tensor *grad;
    TSR__TRY(find_joint_grad(linear, temps, which, &grad));
    if (grad) {
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
