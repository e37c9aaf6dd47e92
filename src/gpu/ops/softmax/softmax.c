/* Softmax, its logarithm, and the gradients of both. */
#include "shaders/params/softmax.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/ops/common/rows.h"
#include "gpu/ops/common/segments.h"
#include "gpu/ops/common/walk.h"
#include "shaders/params/softmax_chunks.h"
#include "tensor/check.h"
#include "tessera/ops.h"

typedef struct softmax_call {
    const char *op;
    tsr_tensor *y;
    const char *y_name;
    const tsr_tensor *a, *b; /* b is used only for gradients */
    const char *a_name;
    bool gradient, logarithm;
} softmax_call;

static tsr_status check(const softmax_call *call, tsr_stream *stream)
{
    TSR__TRY(tsr__require_float(call->op, call->y_name, stream, call->y));
    TSR__TRY(tsr__require_float(call->op, call->a_name, stream, call->a));
    if (call->gradient)
        TSR__TRY(tsr__require_float(call->op, "dy", stream, call->b));
    TSR__REQUIRE(call->a->layout.ndim > 0, "%s: %s is a scalar and has no last dimension", call->op,
                 call->a_name);
    TSR__TRY(tsr__require_same_shape(call->op, call->y_name, call->y, call->a_name, call->a));
    if (call->gradient)
        TSR__TRY(tsr__require_same_shape(call->op, call->y_name, call->y, "dy", call->b));
    TSR__TRY(tsr__require_disjoint(call->op, call->y_name, call->y, call->a_name, call->a, true));
    if (call->gradient)
        TSR__TRY(tsr__require_disjoint(call->op, call->y_name, call->y, "dy", call->b, true));
    TSR__REQUIRE(call->a->layout.shape[call->a->layout.ndim - 1] <= INT32_MAX,
                 "%s: rows of %lld elements; at most %d", call->op,
                 (long long)call->a->layout.shape[call->a->layout.ndim - 1], (int)INT32_MAX);
    return TSR_OK;
}

static void choose(tsr__dispatch *dispatch, const softmax_call *call, uint32_t rows, int64_t count,
                   uint32_t form)
{
    uint32_t threads = tsr__thread_group_for(call->y->buffer->device, rows, count),
             workgroup = tsr__thread_group_workgroup(threads);
    int n = 0;
    dispatch->shader = call->gradient ? TSR__SHADER_SOFTMAX_GRAD : TSR__SHADER_SOFTMAX;
    dispatch->spec[n++] = workgroup;
    dispatch->spec[n++] = threads;
    dispatch->spec[n++] = (uint32_t)call->a->layout.dtype;
    if (call->gradient)
        dispatch->spec[n++] = (uint32_t)call->b->layout.dtype;
    dispatch->spec[n++] = (uint32_t)call->y->layout.dtype;
    dispatch->spec[n++] = form;
    dispatch->spec[n++] = call->logarithm;
    dispatch->spec_count = n;
    /* does nothing for rows that may be divided into segments */
    tsr__thread_group_hold(dispatch, call->y->buffer->device, threads, count);
    tsr__groups_for(rows, workgroup / threads, dispatch->groups);
}

/* Writes a, b and y to `tensors`. A forward pass has no b; its input a is written twice, so that
 * there are always three tensors. */
static void tensors_of(const softmax_call *call, const tsr_tensor *tensors[3])
{
    tensors[0] = call->a;
    tensors[1] = call->gradient ? call->b : call->a;
    tensors[2] = call->y;
}

static uint32_t function_of(const softmax_call *call)
{
    if (call->gradient)
        return call->logarithm ? TSR_SOFTMAX_LOG_GRAD : TSR_SOFTMAX_GRAD;
    return call->logarithm ? TSR_SOFTMAX_LOG : TSR_SOFTMAX;
}

/* Adds the dispatches, one for each phase, of a piece whose rows are divided into segments
 * (segments.h). */
static tsr_status add_segments(const softmax_call *call, tsr_stream *stream, tsr__dispatches *list,
                               tsr__dispatch *dispatch, struct tsr_softmax_params *params)
{
    tsr__buffer *scratch;
    TSR__TRY(tsr__segments_scratch(stream, params->jobs, params->count, &scratch));
    params->a_strides[TSR_ROW_DIMS - 1] = (uint32_t)scratch->address;
    params->b_strides[TSR_ROW_DIMS - 1] = (uint32_t)(scratch->address >> 32);
    return tsr__segments_add(list, dispatch, params->jobs, params->count,
                             call->gradient ? TSR_PHASE_SECOND : TSR_PHASE_FIRST, scratch);
}

static tsr_status add_dispatches(const softmax_call *call, tsr_stream *stream,
                                 tsr__dispatches *list)
{
    const tsr__cpu_kernels *cpu = tsr_stream_device(stream)->cpu;
    const tsr_tensor *tensors[3];
    tensors_of(call, tensors);
    int last = call->a->layout.ndim - 1;
    int64_t count = call->a->layout.shape[last];
    tsr_layout rows[3];
    const tsr_layout *layouts[3];
    for (int i = 0; i < 3; i++) {
        rows[i] = tsr__layout_without(&tensors[i]->layout, last);
        layouts[i] = &rows[i];
    }

    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, 3, layouts, 0);
    while (tsr__pieces_next(&walk, &piece)) {
        bool done = false;
        if (cpu)
            TSR__TRY(cpu->softmax(list, stream, function_of(call),
                                  (const tsr_tensor *[]){call->a, call->b, call->y}, &piece,
                                  &done));
        if (done)
            continue;
        uint64_t address[3], step[3];
        uint32_t form = TSR_ROW_ALIGNED4;
        for (int i = 0; i < 3; i++) {
            uint64_t size = tsr_dtype_size(rows[i].dtype);
            int64_t stride = tensors[i]->layout.strides[last];
            address[i] = tensors[i]->buffer->address + (uint64_t)piece.offset[i] * size;
            step[i] = (uint64_t)stride * size;
            uint32_t own = tsr__row_form(tensors[i]->buffer->device, &piece, i, rows[i].dtype,
                                         address[i], stride, count);
            form = own < form ? own : form;
        }
        struct tsr_softmax_params params = {
            .a = address[0],
            .b = address[1],
            .y = address[2],
            .a_step = step[0],
            .b_step = step[1],
            .y_step = step[2],
            .count = (uint32_t)count,
            .jobs = piece.count,
            .ndim = (uint32_t)piece.ndim,
        };
        for (int d = 0; d < piece.ndim; d++) {
            params.shape[d] = piece.shape[d];
            params.a_strides[d] = piece.strides[0][d];
            params.b_strides[d] = piece.strides[1][d];
            params.y_strides[d] = piece.strides[2][d];
        }
        tsr__dispatch dispatch = {
            .push = &params,
            .push_bytes = sizeof params,
            .access_count = 3,
            .access = {tsr__read_of(tensors[0]), tsr__read_of(tensors[1]), tsr__write_of(call->y)},
        };
        choose(&dispatch, call, piece.count, count, form);
        if (piece.ndim < TSR_ROW_DIMS &&
            tsr__segments_chosen(call->y->buffer->device, &dispatch, piece.count, count))
            TSR__TRY(add_segments(call, stream, list, &dispatch, &params));
        else
            TSR__TRY(tsr__dispatches_add(list, &dispatch));
    }
    return TSR_OK;
}

static tsr_status run_softmax(const softmax_call *call, tsr_stream *stream)
{
    TSR__TRY(check(call, stream));
    if (tsr_layout_count(&call->y->layout) == 0)
        return TSR_OK;
    tsr__dispatches list = {0};
    tsr_status status = add_dispatches(call, stream, &list);
    if (status == TSR_OK)
        status = tsr__dispatches_record(&list, stream);
    tsr__dispatches_finish(&list);
    return status;
}

tsr_status tsr_softmax(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, bool logarithm)
{
    return run_softmax(&(softmax_call){.op = logarithm ? "log_softmax" : "softmax",
                                       .y = y,
                                       .y_name = "y",
                                       .a = x,
                                       .a_name = "x",
                                       .logarithm = logarithm},
                       stream);
}

tsr_status tsr_softmax_grad(tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *y,
                            const tsr_tensor *dy, bool logarithm)
{
    return run_softmax(&(softmax_call){.op = logarithm ? "log_softmax_grad" : "softmax_grad",
                                       .y = dx,
                                       .y_name = "dx",
                                       .a = y,
                                       .a_name = "y",
                                       .b = dy,
                                       .gradient = true,
                                       .logarithm = logarithm},
                       stream);
}
