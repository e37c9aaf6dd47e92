/* Lists of dispatches, and the choice of thread groups, for operations on rows. */
#include "gpu/ops/common/rows.h"

#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "tensor/check.h"

tsr_status tsr__dispatches_add(tsr__dispatches *list, const tsr__dispatch *dispatch)
{
    size_t needed = list->count + 1;
    void *items = list->items, *push = list->push;
    TSR__TRY(tsr__grow(&items, &list->items_capacity, needed, sizeof *list->items));
    list->items = items;
    TSR__TRY(tsr__grow(&push, &list->push_capacity, needed, sizeof *list->push));
    list->push = push;
    list->items[list->count] = *dispatch;
    memcpy(list->push[list->count], dispatch->push, dispatch->push_bytes);
    list->count = needed;
    return TSR_OK;
}

static tsr_status record_list(tsr_stream *stream, void *work)
{
    const tsr__dispatches *list = work;
    for (size_t i = 0; i < list->count; i++)
        TSR__TRY(tsr__stream_dispatch(stream, &list->items[i]));
    return TSR_OK;
}

tsr_status tsr__dispatches_record(tsr__dispatches *list, tsr_stream *stream)
{
    for (size_t i = 0; i < list->count; i++)
        /* Set the pointers to the push constants only now, because list->push may have moved when
         * it grew. */
        list->items[i].push = list->push[i];
    return tsr__stream_atomic(stream, record_list, list);
}

void tsr__dispatches_finish(tsr__dispatches *list)
{
    tsr__free(list->items);
    tsr__free(list->push);
    *list = (tsr__dispatches){0};
}

tsr_status tsr__require_dim(const char *op, const tsr_tensor *x, int dim, int *out)
{
    int ndim = x->layout.ndim;
    TSR__REQUIRE(dim >= -ndim && dim < ndim, "%s: dim %d is outside a tensor of %d dimensions", op,
                 dim, ndim);
    *out = dim < 0 ? dim + ndim : dim;
    return TSR_OK;
}

tsr_layout tsr__layout_without(const tsr_layout *layout, int dim)
{
    tsr_layout rest = *layout;
    rest.ndim = 0;
    for (int d = 0; d < layout->ndim; d++) {
        if (d == dim)
            continue;
        rest.shape[rest.ndim] = layout->shape[d];
        rest.strides[rest.ndim++] = layout->strides[d];
    }
    return rest;
}

tsr_status tsr__require_reduced(const char *op, const tsr_tensor *y, const tsr_tensor *x, int dim,
                                tsr_layout *out)
{
    tsr_layout rows = tsr__layout_without(&x->layout, dim);
    if (y->layout.ndim == x->layout.ndim && y->layout.shape[dim] == 1)
        *out = tsr__layout_without(&y->layout, dim);
    else
        *out = y->layout;
    TSR__REQUIRE(tsr__layout_same_shape(out, &rows), "%s: y is %s; x %s without dim %d is %s", op,
                 TSR__SHAPE(y->layout.ndim, y->layout.shape),
                 TSR__SHAPE(x->layout.ndim, x->layout.shape), dim,
                 TSR__SHAPE(rows.ndim, rows.shape));
    return TSR_OK;
}

uint32_t tsr__row_form(const tsr_device *device, const tsr__piece *piece, int operand,
                       tsr_dtype dtype, uint64_t address, int64_t step, int64_t count)
{
    const uint64_t limit = UINT64_C(1) << 31;
    uint64_t size = tsr_dtype_size(dtype);
    if (count > 1 && (uint64_t)step > limit / size / (uint64_t)count)
        return TSR_ROW_WIDE;
    if (step != 1 || count % 4 != 0)
        return TSR_ROW_STRIDED;
    uint64_t misaligned = address;
    for (int d = 0; d < piece->ndim; d++) {
        if (piece->shape[d] > 1)
            misaligned |= piece->strides[operand][d] * size;
    }
    if (misaligned % (4 * size) == 0 && !device->traits.narrow_accesses)
        return TSR_ROW_ALIGNED4;
    return misaligned % 4 == 0 ? TSR_ROW_DENSE4 : TSR_ROW_STRIDED;
}

/* Returns the form of the rows of a matrix, as if each had `count` elements. */
static uint32_t matrix_form(const tsr_tensor *matrix, int64_t count)
{
    const tsr_layout *layout = &matrix->layout;
    /* The form depends only on the stride between rows modulo 4 elements. Strides in a piece have
     * 32 bits, so this piece of two rows has the remainder as its stride. */
    tsr__piece rows = {.ndim = 1, .shape = {layout->shape[0] > 1 ? 2 : 1}};
    rows.strides[0][0] = (uint32_t)(layout->strides[0] % 4);
    return tsr__row_form(matrix->buffer->device, &rows, 0, layout->dtype,
                         tsr__tensor_address(matrix), layout->strides[1], count);
}

uint32_t tsr__matrix_row_form(const tsr_tensor *matrix)
{
    return matrix_form(matrix, matrix->layout.shape[1]);
}

uint32_t tsr__class_row_form(const tsr_tensor *matrix)
{
    const int64_t count = matrix->layout.shape[1];

    if (count % 4 != 0 && matrix_form(matrix, count + 4 - count % 4) == TSR_ROW_ALIGNED4)
        return TSR_ROW_ENDS4;
    return matrix_form(matrix, count);
}

uint64_t tsr__stride_bytes(const tsr_tensor *tensor, int dim)
{
    return tsr__dtype_bytes(tensor->layout.dtype, (uint64_t)tensor->layout.strides[dim]);
}

bool tsr__rows_alone(const tsr_device *device, uint64_t rows)
{
    return device->traits.slow_barriers && rows >= 256;
}

uint32_t tsr__processors(const tsr_device *device)
{
    const uint32_t least = 32; /* used if the driver does not report the number */

    return device->info.processor_count > 0 ? device->info.processor_count : least;
}

uint32_t tsr__most_iterations(const tsr_device *device)
{
    return device->traits.most_iterations;
}

int64_t tsr__steps_within_work(const tsr_device *device, double step_work)
{
    const int64_t most = tsr__most_iterations(device);
    const double steps =
        device->work_limit / (step_work > TSR__STEP_WORK ? step_work : TSR__STEP_WORK);

    return steps >= (double)most ? most : steps < 1 ? 1 : (int64_t)steps;
}

uint32_t tsr__thread_group_for(const tsr_device *device, uint64_t rows, int64_t count)
{
    /* One invocation per row reads the row up to four times, four elements per iteration, so it
     * needs up to `count` iterations. */
    const bool alone = tsr__rows_alone(device, rows) && count <= tsr__most_iterations(device);
    /* Long rows get more invocations, because a few of them would otherwise leave most of a GPU
     * idle. The number of invocations determines the order of additions. It does not depend on the
     * number of rows, so that a row gives the same bits whatever that number is. */
    const uint32_t many = 512;
    const bool many_run =
        !device->traits.few_invocations && device->info.max_workgroup_invocations >= many;
    if (count <= 16 || alone)
        return 1;
    return count <= 256 ? 8 : count <= 4096 || !many_run ? 128 : many;
}

uint32_t tsr__thread_group_workgroup(uint32_t threads)
{
    return threads > 64 ? threads : 64;
}

void tsr__thread_group_hold(tsr__dispatch *dispatch, const tsr_device *device, uint32_t threads,
                            int64_t count)
{
    /* groups of four elements that an invocation keeps: 32 elements of each operand */
    const int64_t most = 8;
    const int64_t at_once = 4 * (int64_t)threads, fours = (count + at_once - 1) / at_once;

    if (device->traits.few_registers || fours > most)
        return;
    if (threads > TSR_UNDIVIDED_THREADS && count > TSR_SEGMENT_LENGTH((uint32_t)count))
        return;
    dispatch->spec[dispatch->spec_count++] = TSR_PHASE_WHOLE;
    dispatch->spec[dispatch->spec_count++] = tsr__pow2_above((uint32_t)fours);
}
