/* Cross-entropy on Mesa's CPU driver. It uses the kernels of softmax_chunks.h, but its second
 * kernel is shaders/cpu_drivers/cross_entropy_rows.comp. */
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/softmax_chunks.h"
#include "gpu/ops/common/rows.h"

enum {
    WORKGROUP = 64,
};

static tsr__softmax_operand operand_of(const tsr_tensor *tensor, tsr__access access)
{
    return (tsr__softmax_operand){.address = tsr__tensor_address(tensor),
                                  .stride = tsr__stride_bytes(tensor, 0),
                                  .dtype = tensor->layout.dtype,
                                  .access = access};
}

static tsr__softmax_rows rows_of(const tsr__cross_entropy *call)
{
    tsr__softmax_rows work = {
        .device = call->logits->buffer->device,
        .function = TSR_SOFTMAX_LOSS,
        .y = {.dtype = TSR_F32},
        .a = operand_of(call->logits, tsr__read_of(call->logits)),
        .b = {.dtype = TSR_F32},
        .rows = (uint32_t)call->logits->layout.shape[0],
        .count = (uint32_t)call->logits->layout.shape[1],
    };
    if (call->gradient)
        work.y = operand_of(call->gradient, tsr__write_of(call->gradient));
    return work;
}

static bool suits(const tsr__cross_entropy *call)
{
    if (call->logits->layout.shape[0] > INT32_MAX || !tsr__softmax_without_gaps(call->logits) ||
        !tsr__softmax_without_gaps(call->gradient))
        return false;
    tsr__softmax_rows work = rows_of(call);
    return tsr__softmax_chunks_suit(&work);
}

static void set_losses(const tsr__cross_entropy *call, struct tsr_cross_entropy_rows_push *push,
                       tsr__dispatch *dispatch)
{
    if (!call->loss)
        return;
    push->loss = tsr__tensor_address(call->loss);
    push->loss_stride = tsr__stride_bytes(call->loss, 0);
    dispatch->spec[3] = (uint32_t)call->loss->layout.dtype;
    dispatch->access[dispatch->access_count++] = tsr__write_of(call->loss);
}

static void set_gradient(const tsr__cross_entropy *call, const tsr__softmax_rows *work,
                         struct tsr_cross_entropy_rows_push *push, tsr__dispatch *dispatch)
{
    if (!call->gradient)
        return;
    tsr__access stats = tsr__softmax_row_stats(work, true);
    push->stats = tsr__access_address(stats);
    push->gradient = work->y.address;
    push->gradient_row = (uint32_t)work->y.stride;
    dispatch->spec[4] = (uint32_t)work->y.dtype;
    dispatch->access[dispatch->access_count++] = stats;
    if (tsr__softmax_rest(work) > 0)
        dispatch->access[dispatch->access_count++] = work->y.access;
}

static void set_parts(const tsr__cross_entropy *call, const tsr__softmax_rows *work,
                      struct tsr_cross_entropy_rows_push *push, tsr__dispatch *dispatch)
{
    if (call->step != TSR_ROWS_WHOLE) {
        tsr__access chunks = tsr__softmax_chunk_stats(work, false);
        push->chunks = tsr__access_address(chunks);
        push->across = tsr__softmax_across(work);
        dispatch->access[dispatch->access_count++] = chunks;
    }
    if (call->step != TSR_ROWS_ALONE) {
        push->planes = tsr__tensor_address(call->stats);
        push->plane_bytes = (uint64_t)work->rows * sizeof(float);
        dispatch->access[dispatch->access_count++] =
            call->step == TSR_ROWS_SHARD ? tsr__write_of(call->stats) : tsr__read_of(call->stats);
    }
}

static tsr_status add_rows(tsr__dispatches *list, const tsr__cross_entropy *call,
                           const tsr__softmax_rows *work)
{
    bool whole = call->step == TSR_ROWS_WHOLE, alone = call->step == TSR_ROWS_ALONE;
    struct tsr_cross_entropy_rows_push push = {
        .logits = work->a.address,
        .logits_row = (uint32_t)work->a.stride,
        .labels = tsr__tensor_address(call->labels),
        .labels_stride = tsr__stride_bytes(call->labels, 0),
        .label_bytes = (uint32_t)tsr_dtype_size(call->labels->layout.dtype),
        .rows = work->rows,
        .here = work->count,
        .whole = work->count - tsr__softmax_rest(work),
        .first = alone ? 0 : (uint32_t)call->first,
        .classes = alone ? work->count : (uint32_t)call->classes,
        .ranks = whole ? (uint32_t)call->stats->layout.shape[0] : 1,
        .scale = call->scale,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_CROSS_ENTROPY_ROWS,
        .spec_count = 5,
        .spec = {WORKGROUP, call->step, (uint32_t)work->a.dtype, TSR_F32, TSR_F32},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 2,
        .access = {work->a.access, tsr__read_of(call->labels)},
    };

    set_parts(call, work, &push, &dispatch);
    set_losses(call, &push, &dispatch);
    set_gradient(call, work, &push, &dispatch);
    tsr__groups_for(work->rows, WORKGROUP, dispatch.groups);
    return tsr__dispatches_add(list, &dispatch);
}

tsr_status tsr__cpu_cross_entropy(tsr__dispatches *list, tsr_stream *stream,
                                  const tsr__cross_entropy *call, bool *done)
{
    *done = suits(call);
    if (!*done)
        return TSR_OK;
    tsr__softmax_rows work = rows_of(call);
    tsr__buffer *scratch;

    TSR__TRY(tsr__stream_scratch(stream, tsr__softmax_scratch_bytes(&work), &scratch));
    work.scratch = tsr__write_buffer(scratch);
    if (call->step != TSR_ROWS_WHOLE)
        TSR__TRY(tsr__softmax_chunks_add(list, &work));
    TSR__TRY(add_rows(list, call, &work));
    return call->gradient ? tsr__softmax_apply_add(list, &work) : TSR_OK;
}
