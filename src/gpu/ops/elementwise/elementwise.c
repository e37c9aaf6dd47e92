/* Element-wise operations: y = f(a, b). */
#include "gpu/ops/elementwise/elementwise.h"

#include <string.h>

#include "gpu/cpu_drivers/copy/contiguous.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "shaders/params/elementwise.h"
#include "shaders/params/vectors.h"
#include "tessera/ops.h"

/* y, a and, if there is one, b. Inputs have been broadcast to y's shape. */
typedef struct operand_set {
    int count;
    tsr_tensor tensor[3];
} operand_set;

static tsr_status add_input(const tsr__elementwise *work, const tsr_stream *stream,
                            const tsr_tensor *in, const char *name, operand_set *out)
{
    TSR__TRY(tsr__require_float(work->op, name, stream, in));
    tsr_layout layout;
    TSR__TRY(tsr__require_broadcast(work->op, name, in, work->y_name, work->y, &layout));
    tsr_tensor *operand = &out->tensor[out->count++];
    *operand = tsr__tensor_alias(in, &layout);
    return tsr__require_disjoint(work->op, work->y_name, work->y, name, operand, true);
}

static tsr_status check(const tsr__elementwise *work, const tsr_stream *stream, operand_set *out)
{
    TSR__TRY(tsr__require_float(work->op, work->y_name, stream, work->y));
    *out = (operand_set){.count = 1, .tensor = {*work->y}};
    TSR__TRY(add_input(work, stream, work->a, work->a_name, out));
    if (work->b_name)
        TSR__TRY(add_input(work, stream, work->b, work->b_name, out));
    return tsr__device_check(work->y->buffer->device);
}

static uint32_t inner_mode(const tsr__piece *piece, int operand, const tsr_tensor *tensor)
{
    if (tsr__piece_aligned(piece, operand, tensor, 4 * tsr_dtype_size(tensor->layout.dtype)))
        return TSR_EW_ALIGNED;
    switch (tsr__piece_inner_stride(piece, operand)) {
    case 0:
        return TSR_EW_ONE;
    case 1:
        /* Loads treat a run like any stride; stores do not. */
        return operand == 0 ? TSR_EW_RUN : TSR_EW_STRIDED;
    }
    return TSR_EW_STRIDED;
}

static tsr_status run_strided(tsr_stream *stream, const tsr__elementwise *work,
                              const operand_set *operands, const tsr__piece *piece)
{
    struct tsr_elementwise_params push = {
        .y = tsr__piece_address(piece, 0, &operands->tensor[0]),
        .a = tsr__piece_address(piece, 1, &operands->tensor[1]),
        .alpha = work->alpha,
        .beta = work->beta,
    };
    tsr__walk_init(&push.walk, piece, 4);
    tsr__walk_strides(piece, 0, push.y_strides);
    tsr__walk_strides(piece, 1, push.a_strides);
    if (operands->count > 2) {
        push.b = tsr__piece_address(piece, 2, &operands->tensor[2]);
        tsr__walk_strides(piece, 2, push.b_strides);
    }

    tsr__dispatch dispatch = {
        .shader = work->shader,
        .spec_count = 8,
        .spec = {TSR__WALK_WORKGROUP},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = operands->count,
        .access = {tsr__write_of(&operands->tensor[0])},
    };
    for (int i = 0; i < operands->count; i++) {
        dispatch.spec[1 + i] = operands->tensor[i].layout.dtype;
        dispatch.spec[4 + i] = inner_mode(piece, i, &operands->tensor[i]);
        if (i > 0)
            dispatch.access[i] = tsr__read_of(&operands->tensor[i]);
    }
    dispatch.spec[7] = work->function;
    tsr__groups_for(push.walk.items, TSR__WALK_WORKGROUP, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

static tsr__vectors vectors_of(const tsr__elementwise *work, const operand_set *operands)
{
    tsr__vectors vectors = {.function = work->function,
                            .alpha = work->alpha,
                            .beta = work->beta,
                            .count = operands->count};

    if (work->shader == TSR__SHADER_ACTIVATE) {
        vectors.function = operands->count > 2 ? TSR_VECTORS_ACTIVATE_GRAD : TSR_VECTORS_ACTIVATE;
        vectors.activation = work->function;
    }
    for (int i = 0; i < operands->count; i++)
        vectors.tensor[i] = &operands->tensor[i];
    return vectors;
}

static tsr_status run_piece(tsr_stream *stream, const tsr__elementwise *work,
                            const operand_set *operands, const tsr__piece *piece)
{
    tsr__vectors vectors = vectors_of(work, operands);
    tsr__piece fast, rest;

    if (!tsr__vectors_cut(&vectors, piece, &fast, &rest))
        return run_strided(stream, work, operands, piece);
    TSR__TRY(tsr__vectors_run(stream, &vectors, &fast));
    return rest.count == 0 ? TSR_OK : run_strided(stream, work, operands, &rest);
}

typedef struct call {
    const tsr__elementwise *work;
    const operand_set *operands;
} call;

static tsr_status run_pieces(tsr_stream *stream, void *opaque)
{
    const call *c = opaque;
    const operand_set *operands = c->operands;
    const tsr_layout *layouts[3];
    for (int i = 0; i < operands->count; i++)
        layouts[i] = &operands->tensor[i].layout;
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, operands->count, layouts, 0);
    while (tsr__pieces_next(&walk, &piece))
        TSR__TRY(run_piece(stream, c->work, operands, &piece));
    return TSR_OK;
}

tsr_status tsr__elementwise_run(tsr_stream *stream, const tsr__elementwise *work)
{
    operand_set operands;
    TSR__TRY(check(work, stream, &operands));
    if (tsr_layout_count(&work->y->layout) == 0)
        return TSR_OK;
    tsr__contiguous inputs = {.count = operands.count - 1};
    memcpy(inputs.input, &operands.tensor[1], (size_t)inputs.count * sizeof *inputs.input);
    tsr_status status = tsr__make_contiguous(stream, &operands.tensor[0], &inputs);
    memcpy(&operands.tensor[1], inputs.input, (size_t)inputs.count * sizeof *inputs.input);
    if (status == TSR_OK)
        status = tsr__stream_atomic(stream, run_pieces, &(call){work, &operands});
    tsr__contiguous_finish(&inputs);
    return status;
}

static tsr_status binary(tsr_stream *stream, const char *op, uint32_t function, tsr_tensor *y,
                         const tsr_tensor *a, const tsr_tensor *b)
{
    tsr__elementwise work = {
        .op = op,
        .shader = TSR__SHADER_ELEMENTWISE,
        .function = function,
        .y = y,
        .a = a,
        .b = b,
        .y_name = "y",
        .a_name = "a",
        .b_name = "b",
    };
    return tsr__elementwise_run(stream, &work);
}

tsr_status tsr_add(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    return binary(stream, "add", TSR_EW_ADD, y, a, b);
}

tsr_status tsr_sub(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    return binary(stream, "sub", TSR_EW_SUB, y, a, b);
}

tsr_status tsr_mul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    return binary(stream, "mul", TSR_EW_MUL, y, a, b);
}

tsr_status tsr_scale(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, float scale,
                     float shift)
{
    tsr__elementwise work = {
        .op = "scale",
        .shader = TSR__SHADER_ELEMENTWISE,
        .function = TSR_EW_SCALE,
        .alpha = scale,
        .beta = shift,
        .y = y,
        .a = x,
        .y_name = "y",
        .a_name = "x",
    };
    return tsr__elementwise_run(stream, &work);
}

tsr_status tsr_axpy(tsr_stream *stream, tsr_tensor *y, float alpha, const tsr_tensor *x)
{
    tsr__elementwise work = {
        .op = "axpy",
        .shader = TSR__SHADER_ELEMENTWISE,
        .function = TSR_EW_AXPY,
        .alpha = alpha,
        .y = y,
        .a = x,
        .b = y,
        .y_name = "y",
        .a_name = "x",
        .b_name = "y",
    };
    return tsr__elementwise_run(stream, &work);
}
