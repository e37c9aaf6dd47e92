#include "gpu/cpu_drivers/ops/norm_operands.h"

static tsr__softmax_operand take(tsr__norm_operands *out, const tsr_tensor *tensor,
                                 uint64_t address, uint64_t stride_bytes, bool write)
{
    int last = tensor->layout.ndim - 1;
    out->gaps = out->gaps || tensor->layout.strides[last] != 1;
    return (tsr__softmax_operand){
        .address = address,
        .stride = stride_bytes,
        .dtype = tensor->layout.dtype,
        .access = write ? tsr__write_of(tensor) : tsr__read_of(tensor),
    };
}

static tsr__softmax_operand take_rows(tsr__norm_operands *out, const tsr__norm *norm,
                                      const tsr__norm_plane *plane, int i, bool write)
{
    const tsr_tensor *tensor = norm->operand[i];
    return take(out, tensor, plane->operand[i].at,
                (uint64_t)plane->operand[i].strides[1] * tsr_dtype_size(tensor->layout.dtype),
                write);
}

tsr__norm_operands tsr__norm_operands_of(const tsr__norm *norm, const tsr__norm_plane *plane,
                                         uint32_t output)
{
    tsr__norm_operands out = {
        .rows = {.device = norm->operand[0]->buffer->device,
                 .y = {.dtype = TSR_F32},
                 .rows = plane->rows,
                 .count = tsr__norm_columns(norm)},
        .gaps = plane->inner != plane->rows,
    };
    out.vectors.device = out.rows.device;
    out.rows.a = take_rows(&out, norm, plane, 0, false);
    if (output == TSR_NORM_GRADIENT || output == TSR_NORM_PRODUCTS)
        out.rows.b = take_rows(&out, norm, plane, 1, false);
    if (output == TSR_NORM_PRODUCTS)
        out.rows.y.stride = out.rows.count * sizeof(float);
    if (output == TSR_NORM_RESULT || output == TSR_NORM_GRADIENT)
        out.rows.y = take_rows(&out, norm, plane, output == TSR_NORM_GRADIENT ? 2 : 1, true);
    if (norm->weight && (output == TSR_NORM_RESULT || output == TSR_NORM_GRADIENT))
        out.vectors.a = take(&out, norm->weight, tsr__tensor_address(norm->weight), 0, false);
    if (norm->bias && output == TSR_NORM_RESULT)
        out.vectors.b = take(&out, norm->bias, tsr__tensor_address(norm->bias), 0, false);
    if (norm->count > 3 && output == TSR_NORM_GRADIENT)
        out.vectors.b = take_rows(&out, norm, plane, 3, false);
    return out;
}

bool tsr__norm_operands_suit(const tsr__norm_operands *operands)
{
    return !operands->gaps && tsr__softmax_operands_suit(&operands->rows) &&
           tsr__softmax_operands_suit(&operands->vectors);
}

void tsr__norm_operands_order(const tsr__norm_operands *operands,
                              const tsr__softmax_operand *order[TSR__NORM_ORDER])
{
    order[0] = &operands->rows.y;
    order[1] = &operands->rows.a;
    order[2] = &operands->rows.b;
    order[3] = &operands->vectors.a;
    order[4] = &operands->vectors.b;
}

void tsr__norm_operands_access(const tsr__norm_operands *operands, uint32_t *spec,
                               tsr__dispatch *dispatch)
{
    const tsr__softmax_operand *order[TSR__NORM_ORDER];

    tsr__norm_operands_order(operands, order);
    for (int i = 0; i < TSR__NORM_ORDER; i++) {
        spec[i] = (uint32_t)order[i]->dtype;
        if (order[i]->address != 0)
            dispatch->access[dispatch->access_count++] = order[i]->access;
    }
}
