#include "gpu/ops/norm_short.h"

#include "base/checked.h"
#include "gpu/ops/softmax_short.h"
#include "shaders/params/norm_short.h"

enum {
    SUBGROUPS = 8, /* of a workgroup: as many as the identity table counts */
    MANY_ELEMENTS = 1 << 20,
};

/* The longest row for which few elements are worth the pipeline, and the longest at all: those
 * between take 0.2 to 0.6 s to make even from the driver's cache, and save 1 to 17 ns an element.
 */
static uint32_t longest(const tsr__softmax_rows *rows)
{
    return (uint64_t)rows->rows * rows->count >= MANY_ELEMENTS ? 2048 : 1024;
}

/* What is read and written, as softmax_short.h takes it. */
typedef struct operands {
    tsr__softmax_rows rows;    /* a: x, b: dy */
    tsr__softmax_rows vectors; /* a: weight, b: bias */
    bool gaps;
} operands;

static tsr__softmax_operand take(operands *out, const tsr_tensor *tensor, uint64_t address,
                                 uint64_t stride_bytes, bool write)
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

static tsr__softmax_operand take_rows(operands *out, const tsr__norm *norm,
                                      const tsr__norm_plane *plane, int i, bool write)
{
    const tsr_tensor *tensor = norm->operand[i];
    return take(out, tensor, plane->operand[i].at,
                (uint64_t)plane->operand[i].strides[1] * tsr_dtype_size(tensor->layout.dtype),
                write);
}

static operands operands_of(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output)
{
    operands out = {
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
    return out;
}

bool tsr__norm_short_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output)
{
    operands all = operands_of(norm, plane, output);
    return !all.gaps && tsr__short_rows_of(&all.rows, longest(&all.rows)).units > 0 &&
           tsr__softmax_operands_suit(&all.vectors);
}

tsr_status tsr__norm_short_add(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch)
{
    operands all = operands_of(norm, plane, output);
    const tsr__softmax_rows *rows = &all.rows;
    const tsr__softmax_operand *order[] = {&rows->y, &rows->a, &rows->b, &all.vectors.a,
                                           &all.vectors.b};
    const uint32_t lanes = rows->device->info.subgroup_size;
    const tsr__short_rows cut = tsr__short_rows_of(rows, longest(rows));
    struct tsr_norm_short_push push = {
        .identity = {TSR_IDENTITY_8},
        .x = rows->a.address,
        .dy = rows->b.address,
        .y = output == TSR_NORM_STATS      ? tsr__norm_stats_address(plane, scratch)
             : output == TSR_NORM_PRODUCTS ? scratch->address
                                           : rows->y.address,
        .weight = all.vectors.a.address,
        .bias = all.vectors.b.address,
        .x_row = (uint32_t)rows->a.stride,
        .dy_row = (uint32_t)rows->b.stride,
        .y_row = (uint32_t)rows->y.stride,
        .rows = rows->rows,
        .overlap = cut.overlap,
        .epsilon = norm->epsilon,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_NORM_SHORT,
        .spec_count = 15,
        .spec = {SUBGROUPS * lanes, lanes, cut.units, norm->centred, output},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32(rows->rows, SUBGROUPS), 1, 1},
    };

    for (int i = 0; i < 5; i++) {
        dispatch.spec[5 + i] = (uint32_t)order[i]->dtype;
        dispatch.spec[10 + i] = tsr__short_rows_form(cut, order[i]);
        if (order[i]->address != 0)
            dispatch.access[dispatch.access_count++] = order[i]->access;
    }
    if (scratch)
        dispatch.access[dispatch.access_count++] = tsr__write_buffer(scratch);
    return tsr__dispatches_add(list, &dispatch);
}
