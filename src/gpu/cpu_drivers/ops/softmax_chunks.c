/* Runs the kernels of softmax_chunks.h. The first divides rows into chunks, the third into blocks;
 * chunks and blocks are the spans of rows that subgroups compute (row_spans.h). */
#include "gpu/cpu_drivers/ops/softmax_chunks.h"

#include "base/checked.h"
#include "gpu/cpu_drivers/ops/row_spans.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "shaders/params/vectors.h"

enum {
    MIN_ELEMENTS = 1 << 15, /* with fewer, three dispatches cost more time than they save */
    MIN_COLUMNS = 256,      /* with fewer, a span saves less time than its start takes */
    MAX_STEPS = 64,         /* with more, compilation takes more time than they save */
    MAX_UNITS = 8,          /* vectors per lane */
    ROWS_WORKGROUP = 64,
    MAX_SCRATCH = 1 << 28,
};

static uint32_t lanes_of(const tsr__softmax_rows *work)
{
    return work->device->info.subgroup_size;
}

static uint32_t group_of(const tsr__softmax_rows *work)
{
    return TSR_VECTOR_BYTES / (uint32_t)tsr_dtype_size(work->y.dtype);
}

static tsr__row_cut chunks_of(const tsr__softmax_rows *work)
{
    return tsr__cut_row(work->count, lanes_of(work), MAX_STEPS);
}

static tsr__row_cut blocks_of(const tsr__softmax_rows *work)
{
    return tsr__cut_row(work->count / group_of(work), lanes_of(work), MAX_UNITS);
}

bool tsr__softmax_without_gaps(const tsr_tensor *tensor)
{
    return !tensor || tensor->layout.strides[tensor->layout.ndim - 1] == 1;
}

uint32_t tsr__softmax_alignment(const tsr__softmax_operand *operand)
{
    return tsr__vectors_common(operand->address | operand->stride);
}

static bool suits(const tsr__softmax_rows *work, const tsr__softmax_operand *operand)
{
    bool narrow = work->device->storage == TSR__STORAGE_S16;

    return operand->address == 0 ||
           ((operand->dtype == TSR_F32 || narrow) && operand->stride <= UINT32_MAX &&
            tsr__softmax_alignment(operand) >= tsr__vectors_least_alignment(work->device));
}

/* The size in bytes of the statistics of all chunks. They are the first part of the scratch memory,
 * two floats per chunk. Four floats per row follow them. */
static uint64_t chunks_bytes(const tsr__softmax_rows *work)
{
    uint64_t bytes = (uint64_t)work->rows * chunks_of(work).across * TSR_SOFTMAX_CHUNK_BYTES;

    return tsr__align_up_u64(bytes, TSR_SOFTMAX_ROW_BYTES);
}

uint64_t tsr__softmax_scratch_bytes(const tsr__softmax_rows *work)
{
    return chunks_bytes(work) + (uint64_t)work->rows * TSR_SOFTMAX_ROW_BYTES;
}

bool tsr__softmax_operands_suit(const tsr__softmax_rows *work)
{
    return tsr__vectors_suit(work->device) && suits(work, &work->a) && suits(work, &work->b) &&
           suits(work, &work->y);
}

bool tsr__softmax_chunks_suit(const tsr__softmax_rows *work)
{
    if (!tsr__softmax_operands_suit(work) || work->count < MIN_COLUMNS ||
        (uint64_t)work->rows * work->count < MIN_ELEMENTS)
        return false;
    return blocks_of(work).across <= TSR__MAX_SPANS && chunks_of(work).across <= TSR__MAX_SPANS &&
           tsr__softmax_scratch_bytes(work) <= MAX_SCRATCH;
}

tsr__access tsr__softmax_chunk_stats(const tsr__softmax_rows *work, bool write)
{
    uint64_t begin = work->scratch.begin_bytes;

    return (tsr__access){work->scratch.buffer, begin, begin + chunks_bytes(work), write};
}

tsr__access tsr__softmax_row_stats(const tsr__softmax_rows *work, bool write)
{
    uint64_t begin = work->scratch.begin_bytes;

    return (tsr__access){work->scratch.buffer, begin + chunks_bytes(work),
                         begin + tsr__softmax_scratch_bytes(work), write};
}

uint32_t tsr__softmax_across(const tsr__softmax_rows *work)
{
    return chunks_of(work).across;
}

uint32_t tsr__softmax_rest(const tsr__softmax_rows *work)
{
    return work->count % group_of(work);
}

/* Adds the dispatches of a kernel that works on spans of rows. Each dispatch covers as many rows as
 * possible. This function sets the push constants and groups of `dispatch`; the caller sets the
 * other fields. */
static tsr_status add_spans(tsr__dispatches *list, const tsr__softmax_rows *work,
                            tsr__row_cut spans, uint32_t extent, uint64_t stats,
                            uint32_t stats_bytes, tsr__dispatch *dispatch)
{
    struct tsr_softmax_spans_push push = {
        .identity = {TSR_IDENTITY_8},
        .a_row = (uint32_t)work->a.stride,
        .b_row = (uint32_t)work->b.stride,
        .y_row = (uint32_t)work->y.stride,
        .spans = tsr__row_spans_of(spans, extent),
    };

    dispatch->push = &push;
    dispatch->push_bytes = sizeof push;
    for (uint64_t row = 0; row < work->rows; row += push.spans.rows) {
        tsr__row_spans_take(&push.spans, work->rows - row, dispatch->groups);
        push.a = work->a.address + row * work->a.stride;
        push.b = work->b.address + row * work->b.stride;
        push.y = work->y.address + row * work->y.stride;
        push.stats = stats + row * stats_bytes;
        TSR__TRY(tsr__dispatches_add(list, dispatch));
    }
    return TSR_OK;
}

static void add_access(tsr__dispatch *dispatch, const tsr__softmax_operand *operand, bool write)
{
    if (operand->address == 0)
        return;
    dispatch->access[dispatch->access_count] = operand->access;
    dispatch->access[dispatch->access_count++].write = write;
}

tsr_status tsr__softmax_chunks_add(tsr__dispatches *list, const tsr__softmax_rows *work)
{
    tsr__row_cut chunks = chunks_of(work);
    uint32_t lanes = lanes_of(work);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_SOFTMAX_CHUNKS,
        .spec_count = 6,
        .spec = {TSR__SPAN_SUBGROUPS * lanes, lanes, chunks.steps, work->function,
                 (uint32_t)work->a.dtype, (uint32_t)work->b.dtype},
        .access_count = 1,
        .access = {tsr__softmax_chunk_stats(work, true)},
    };

    add_access(&dispatch, &work->a, false);
    add_access(&dispatch, &work->b, false);
    return add_spans(list, work, chunks, work->count,
                     tsr__access_address(tsr__softmax_chunk_stats(work, true)),
                     chunks.across * TSR_SOFTMAX_CHUNK_BYTES, &dispatch);
}

static uint64_t column_address(const tsr__softmax_operand *operand, uint32_t column)
{
    return operand->address == 0 ? 0 : operand->address + column * tsr_dtype_size(operand->dtype);
}

tsr_status tsr__softmax_rows_add(tsr__dispatches *list, const tsr__softmax_rows *work)
{
    uint32_t rest = tsr__softmax_rest(work);
    struct tsr_softmax_rows_push push = {
        .chunks = tsr__access_address(tsr__softmax_chunk_stats(work, false)),
        .stats = tsr__access_address(tsr__softmax_row_stats(work, true)),
        .a = column_address(&work->a, work->count - rest),
        .b = column_address(&work->b, work->count - rest),
        .y = column_address(&work->y, work->count - rest),
        .a_row = (uint32_t)work->a.stride,
        .b_row = (uint32_t)work->b.stride,
        .y_row = (uint32_t)work->y.stride,
        .rows = work->rows,
        .across = chunks_of(work).across,
        .rest = rest,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_SOFTMAX_ROWS,
        .spec_count = 5,
        .spec = {ROWS_WORKGROUP, work->function, (uint32_t)work->y.dtype, (uint32_t)work->a.dtype,
                 (uint32_t)work->b.dtype},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 2,
        .access = {tsr__softmax_chunk_stats(work, false), tsr__softmax_row_stats(work, true)},
    };

    if (rest > 0) {
        add_access(&dispatch, &work->a, false);
        add_access(&dispatch, &work->b, false);
        add_access(&dispatch, &work->y, true);
    }
    tsr__groups_for(work->rows, ROWS_WORKGROUP, dispatch.groups);
    return tsr__dispatches_add(list, &dispatch);
}

tsr_status tsr__softmax_apply_add(tsr__dispatches *list, const tsr__softmax_rows *work)
{
    tsr__row_cut blocks = blocks_of(work);
    uint32_t lanes = lanes_of(work);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_SOFTMAX_APPLY,
        .spec_count = 10,
        .spec = {TSR__SPAN_SUBGROUPS * lanes, lanes, blocks.steps, work->function,
                 (uint32_t)work->y.dtype, (uint32_t)work->a.dtype, (uint32_t)work->b.dtype,
                 tsr__softmax_alignment(&work->y), tsr__softmax_alignment(&work->a),
                 tsr__softmax_alignment(&work->b)},
        .access_count = 1,
        .access = {tsr__softmax_row_stats(work, false)},
    };

    add_access(&dispatch, &work->a, false);
    add_access(&dispatch, &work->b, false);
    add_access(&dispatch, &work->y, true);
    return add_spans(list, work, blocks, work->count / group_of(work),
                     tsr__access_address(tsr__softmax_row_stats(work, false)),
                     TSR_SOFTMAX_ROW_BYTES, &dispatch);
}
