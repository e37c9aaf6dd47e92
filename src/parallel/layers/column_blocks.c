/* The products and gradients of column blocks. One product computes blocks whose tensors follow
 * each other in memory. */
#include "parallel/layers/linear.h"

#include "gpu/internal.h"
#include "tensor/dtype.h"

/* Joint memory ------------------------------------------------------------------------------- */

static tsr__layer_parameter *parameter_of(const tsr__column_linear *column, int block,
                                          tsr__weight_or_bias which)
{
    return column->linear.base.parameter[tsr__block_parameter(column, block, which)];
}

/* Returns a pointer to a block's weight or bias or, if `grad` is true, to the gradient of this
 * parameter. */
static tsr_tensor **memory_of(const tsr__column_linear *column, int block,
                              tsr__weight_or_bias which, bool grad)
{
    tsr_parameter *seen = &parameter_of(column, block, which)->seen;
    return grad ? &seen->grad : &seen->tensor;
}

/* Returns how many blocks, from `first` on, have tensors that follow each other in one buffer, at
 * least 1. The buffer may be the layer's, an FSDP model's or the caller's. */
static int run_of(const tsr__column_linear *column, int first, tsr__weight_or_bias which, bool grad)
{
    const tsr_tensor *start = *memory_of(column, first, which, grad);
    int end = first;
    if (!start || !tsr_layout_is_contiguous(tsr_tensor_layout(start)))
        return 1;
    tsr_layout next = *tsr_tensor_layout(start);
    for (; end < column->block_count; end++) {
        const tsr_tensor *tensor = *memory_of(column, end, which, grad);
        next.shape[0] = tsr__block_rows(&column->block[end]);
        if (!tensor || tsr_tensor_layout(tensor)->dtype != next.dtype ||
            !tsr__tensor_is_view(tensor, start, &next))
            break;
        next.offset += next.shape[0] * next.strides[0];
    }
    return end > first ? end - first : 1;
}

/* Creates a view of the tensors of `count` blocks, which follow each other. */
static tsr_status join_tensors(const tsr__column_linear *column, tsr__temps *temps, int first,
                               int count, tsr__weight_or_bias which, bool grad, tsr_tensor **out)
{
    const tsr_tensor *start = *memory_of(column, first, which, grad);
    tsr_layout joint = *tsr_tensor_layout(start);
    joint.shape[0] = 0;
    for (int i = first; i < first + count; i++)
        joint.shape[0] += tsr__block_rows(&column->block[i]);
    TSR__TRY(tsr_tensor_view(start, &joint, out));
    return tsr__temp_keep(temps, *out);
}

/* Returns whether this rank computes all rows of a block's parameters that it keeps. */
static bool computes_all_rows(const tsr__column_block *block)
{
    return tsr__block_rows(block) == block->division.length;
}

/* Products ----------------------------------------------------------------------------------- */

/* Returns how many blocks, from `first` on, one product computes. A view of their tensors contains
 * no rows that this rank does not compute. */
static int blocks_of_product(const tsr__column_linear *column, int first)
{
    int count = run_of(column, first, TSR__WEIGHT, false), computed = 0;
    if (column->features == 0)
        return 1;
    if (column->linear.has_bias) {
        const int biases = run_of(column, first, TSR__BIAS, false);
        count = biases < count ? biases : count;
    }
    while (computed < count && computes_all_rows(&column->block[first + computed]))
        computed++;
    return computed > 1 ? computed : 1;
}

/* Gets the product of one block. */
static tsr_status product_of_block(const tsr__column_linear *column, tsr__temps *temps, int index,
                                   tsr__column_product *out)
{
    const tsr__column_block *block = &column->block[index];
    const tsr__division *own = &block->division;
    tsr_tensor *weight = *memory_of(column, index, TSR__WEIGHT, false);
    tsr_tensor *bias = column->linear.has_bias ? *memory_of(column, index, TSR__BIAS, false) : NULL;
    if (block->replicated) {
        TSR__TRY(tsr__temp_slice(temps, weight, 0, own->first, own->length, &weight));
        if (bias)
            TSR__TRY(tsr__temp_slice(temps, bias, 0, own->first, own->length, &bias));
    }
    *out = (tsr__column_product){weight, bias, block->start, own->length};
    return TSR_OK;
}

/* Gets the product of several blocks. */
static tsr_status product_of_run(const tsr__column_linear *column, tsr__temps *temps, int first,
                                 int count, tsr__column_product *out)
{
    const tsr__column_block *last = &column->block[first + count - 1];
    tsr_tensor *weight, *bias = NULL;
    TSR__TRY(join_tensors(column, temps, first, count, TSR__WEIGHT, false, &weight));
    if (column->linear.has_bias)
        TSR__TRY(join_tensors(column, temps, first, count, TSR__BIAS, false, &bias));
    const int64_t start = column->block[first].start;
    *out = (tsr__column_product){weight, bias, start, last->start + last->division.length - start};
    return TSR_OK;
}

tsr_status tsr__column_products_find(tsr__column_linear *column, tsr__temps *temps,
                                     tsr__column_products *out)
{
    *out = (tsr__column_products){0};
    for (int first = 0; first < column->block_count;) {
        const int count = blocks_of_product(column, first);
        tsr__column_product *product = &out->product[out->count++];
        TSR__TRY(count == 1 ? product_of_block(column, temps, first, product)
                            : product_of_run(column, temps, first, count, product));
        first += count;
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
    TSR__TRY(tsr__temp_new(temps, linear->base.parameter[0]->seen.dtype, layout->ndim,
                           layout->shape, &floats));
    TSR__TRY(tsr_copy(linear->base.stream, floats, weight));
    *out = floats;
    return TSR_OK;
}

/* Gradients ---------------------------------------------------------------------------------- */

/* Returns whether the gradients of a block's parameters are sums over the ranks. */
static bool sums_gradients(const tsr__column_block *block)
{
    return block->replicated && !block->whole;
}

/* Allocates one tensor for the gradients of all blocks, unless a gradient already has memory. Each
 * block gets a view of this tensor. */
static tsr_status need_joint_grad(tsr__column_linear *column, tsr__temps *temps,
                                  tsr__weight_or_bias which)
{
    const tsr__layer_parameter *first = parameter_of(column, 0, which);
    for (int i = 0; i < column->block_count; i++)
        if (*memory_of(column, i, which, true))
            return TSR_OK;
    tsr_tensor *joint;
    int64_t shape[TSR__PARAMETER_DIMS], start = 0;
    tsr__parameter_shape(first, shape);
    shape[0] = column->features;
    TSR__TRY(tsr__temp_new(temps, first->grad_dtype, first->seen.ndim, shape, &joint));
    for (int i = 0; i < column->block_count; i++) {
        const int64_t rows = tsr__block_rows(&column->block[i]);
        TSR__TRY(
            tsr_tensor_slice(joint, 0, start, start + rows, 1, memory_of(column, i, which, true)));
        start += rows;
    }
    return TSR_OK;
}

/* Returns whether the new gradients of all blocks are added to the old ones, or all overwrite the
 * old ones. */
static bool same_grad_empty(const tsr__column_linear *column, tsr__weight_or_bias which)
{
    const bool first = parameter_of(column, 0, which)->grad_empty;
    for (int i = 1; i < column->block_count; i++)
        if (parameter_of(column, i, which)->grad_empty != first)
            return false;
    return true;
}

/* Gets a view of the gradients of the weights or biases of all blocks if one product can compute
 * them. Otherwise sets *joint to NULL. */
static tsr_status find_joint_grad(tsr__column_linear *column, tsr__temps *temps,
                                  tsr__weight_or_bias which, tsr_tensor **joint)
{
    const int count = column->block_count;
    *joint = NULL;
    if (count == 1 || column->features == 0)
        return TSR_OK;
    for (int i = 0; i < count; i++)
        if (sums_gradients(&column->block[i]) || !computes_all_rows(&column->block[i]))
            return TSR_OK;
    TSR__TRY(need_joint_grad(column, temps, which));
    return same_grad_empty(column, which) && run_of(column, 0, which, true) == count
               ? join_tensors(column, temps, 0, count, which, true, joint)
               : TSR_OK;
}

/* Adds the gradient of the weight or bias of a block whose gradients are not summed over the ranks.
 */
static tsr_status add_block_grad(tsr__column_linear *column, tsr__temps *temps, int index,
                                 tsr__weight_or_bias which, const tsr_tensor *dy2,
                                 const tsr_tensor *x2)
{
    tsr_layer *layer = &column->linear.base;
    const tsr__column_block *block = &column->block[index];
    const int parameter = tsr__block_parameter(column, index, which);
    tsr_tensor *dy;
    TSR__TRY(tsr__temp_slice(temps, dy2, 1, block->start, block->division.length, &dy));
    return which == TSR__WEIGHT ? tsr__parameter_add_weight_grad(layer, parameter, dy, x2)
                                : tsr__parameter_add_bias_grad(layer, parameter, dy);
}

/* Adds the gradients of the weights or biases of all blocks whose gradients are not sums. */
static tsr_status add_grads_of(tsr__column_linear *column, tsr__temps *temps,
                               tsr__weight_or_bias which, const tsr_tensor *dy2,
                               const tsr_tensor *x2)
{
    tsr_stream *stream = column->linear.base.stream;
    tsr_tensor *grad;
    TSR__TRY(find_joint_grad(column, temps, which, &grad));
    if (grad) {
        const bool add = !parameter_of(column, 0, which)->grad_empty;
        TSR__TRY(which == TSR__WEIGHT
                     ? tsr_matmul(stream, grad, dy2, x2,
                                  tsr_matmul_params(.transpose_a = true, .accumulate = add))
                     : tsr_reduce(stream, grad, dy2, 0, TSR_REDUCE_SUM, add));
        for (int i = 0; i < column->block_count; i++)
            parameter_of(column, i, which)->grad_empty = false;
        return TSR_OK;
    }
    for (int i = 0; i < column->block_count; i++)
        if (!sums_gradients(&column->block[i]))
            TSR__TRY(add_block_grad(column, temps, i, which, dy2, x2));
    return TSR_OK;
}

/* Adds the gradients of the weight and the bias of each block whose gradients are not sums. */
static tsr_status add_block_grads(tsr__column_linear *column, tsr__temps *temps,
                                  const tsr_tensor *dy2, const tsr_tensor *x2)
{
    for (int i = 0; i < column->block_count; i++) {
        const tsr__column_block *block = &column->block[i];
        tsr_tensor *dy;
        if (sums_gradients(block))
            continue;
        TSR__TRY(tsr__temp_slice(temps, dy2, 1, block->start, block->division.length, &dy));
        TSR__TRY(tsr__parameter_add_linear_grads(
            &column->linear.base, tsr__block_parameter(column, i, TSR__WEIGHT),
            tsr__block_parameter(column, i, TSR__BIAS), dy, x2));
    }
    return TSR_OK;
}

/* Adds the gradients of all blocks whose gradients are not sums. */
static tsr_status add_divided_grads(tsr__column_linear *column, tsr__temps *temps,
                                    const tsr_tensor *dy2, const tsr_tensor *x2)
{
    tsr_tensor *weight, *bias;
    if (!column->linear.has_bias)
        return add_grads_of(column, temps, TSR__WEIGHT, dy2, x2);
    TSR__TRY(find_joint_grad(column, temps, TSR__WEIGHT, &weight));
    TSR__TRY(find_joint_grad(column, temps, TSR__BIAS, &bias));
    if (!weight && !bias)
        return add_block_grads(column, temps, dy2, x2);
    if (!weight || !bias) {
        TSR__TRY(add_grads_of(column, temps, TSR__WEIGHT, dy2, x2));
        return add_grads_of(column, temps, TSR__BIAS, dy2, x2);
    }
    TSR__TRY(tsr__linear_grads(column->linear.base.stream, weight, bias, dy2, x2,
                               !parameter_of(column, 0, TSR__WEIGHT)->grad_empty,
                               !parameter_of(column, 0, TSR__BIAS)->grad_empty));
    for (int i = 0; i < column->block_count; i++)
        parameter_of(column, i, TSR__WEIGHT)->grad_empty =
            parameter_of(column, i, TSR__BIAS)->grad_empty = false;
    return TSR_OK;
}

/* Computes this rank's contributions to the gradients of a replicated block. */
static tsr_status contribute_block(tsr__column_linear *column, tsr__replicated_grads *grads,
                                   int index, const tsr_tensor *dy2, const tsr_tensor *x2)
{
    tsr__temps *temps = grads->temps;
    tsr_stream *stream = column->linear.base.stream;
    const tsr__column_block *block = &column->block[index];
    const tsr__division *own = &block->division;
    tsr_tensor *dy, *weight, *bias;
    TSR__TRY(tsr__temp_slice(temps, dy2, 1, block->start, own->length, &dy));
    TSR__TRY(tsr__replicated_grads_get(grads, tsr__block_parameter(column, index, TSR__WEIGHT),
                                       &weight));
    TSR__TRY(tsr__temp_slice(temps, weight, 0, own->first, own->length, &weight));
    TSR__TRY(tsr_matmul(stream, weight, dy, x2, tsr_matmul_params(.transpose_a = true)));
    if (!column->linear.has_bias)
        return TSR_OK;
    TSR__TRY(
        tsr__replicated_grads_get(grads, tsr__block_parameter(column, index, TSR__BIAS), &bias));
    TSR__TRY(tsr__temp_slice(temps, bias, 0, own->first, own->length, &bias));
    return tsr_reduce(stream, bias, dy, 0, TSR_REDUCE_SUM, false);
}

/* Computes this rank's contributions to the gradients of all replicated blocks, and starts to sum
 * those of all ranks. */
static tsr_status start_replicated(tsr__column_linear *column, tsr__replicated_grads *grads,
                                   const tsr_tensor *dy2, const tsr_tensor *x2)
{
    for (int i = 0; i < column->block_count; i++) {
        if (!sums_gradients(&column->block[i]))
            continue;
        TSR__TRY(tsr__replicated_grads_add(grads, tsr__block_parameter(column, i, TSR__WEIGHT)));
        if (column->linear.has_bias)
            TSR__TRY(tsr__replicated_grads_add(grads, tsr__block_parameter(column, i, TSR__BIAS)));
    }
    if (grads->count == 0)
        return TSR_OK;
    TSR__TRY(tsr__replicated_grads_allocate(grads, true));
    for (int i = 0; i < column->block_count; i++)
        if (sums_gradients(&column->block[i]))
            TSR__TRY(contribute_block(column, grads, i, dy2, x2));
    return tsr__replicated_grads_start(grads);
}

tsr_status tsr__column_add_grads(tsr__column_linear *column, tsr__temps *temps,
                                 const tsr_tensor *dy2, const tsr_tensor *x2)
{
    tsr__replicated_grads grads = {.layer = &column->linear.base, .temps = temps};
    tsr_status status = start_replicated(column, &grads, dy2, x2);
    if (status == TSR_OK)
        status = add_divided_grads(column, temps, dy2, x2);
    if (status == TSR_OK && grads.count > 0)
        status = tsr__replicated_grads_finish(&grads);
    tsr__replicated_grads_cancel(&grads);
    return status;
}
