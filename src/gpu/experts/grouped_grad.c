/* The gradient of the matrices of experts. */
#include <math.h>

#include "base/checked.h"
#include "gpu/device/device.h"
#include "gpu/experts/experts.h"
#include "shaders/params/grouped.h"
#include "tensor/check.h"

/* A workgroup's tile, as in grouped.c. */
enum { THREADS = 64, ROWS = 32, COLUMNS = 64, DEPTH = 16, OWN_ROWS = 4, OWN_COLUMNS = 8 };

typedef struct gradient_work {
    struct tsr_grouped_grad_push *push;
    tsr__dispatch *dispatch;
    double row_work; /* the multiply-adds of a row of all matrices */
} gradient_work;

/* Records the tiles of some rows of all experts at a time, as many as the device's work limit
 * allows. */
static tsr_status record_gradient(tsr_stream *stream, void *arg)
{
    const gradient_work *work = arg;
    struct tsr_grouped_grad_push *push = work->push;
    tsr__dispatch dispatch = *work->dispatch;
    const uint32_t tiles = (uint32_t)tsr__div_up_u64(push->rows, ROWS);
    const double tile_work = work->row_work * ROWS,
                 most = fmax(tsr_stream_device(stream)->work_limit / tile_work, 1);
    const uint32_t step = most < tiles ? (uint32_t)most : tiles;
    if (step < tiles)
        dispatch.independent_group = tsr__stream_new_independent_group(stream);
    for (push->first_tile = 0; push->first_tile < tiles; push->first_tile += step) {
        const uint32_t count = push->first_tile + step < tiles ? step : tiles - push->first_tile;
        push->last_tile = push->first_tile + count;
        dispatch.work = tile_work * count;
        dispatch.multiply_adds = work->dispatch->multiply_adds * count / tiles;
        tsr__groups_for((uint64_t)push->experts * count * tsr__div_up_u64(push->columns, COLUMNS),
                        1, dispatch.groups);
        TSR__TRY(tsr__stream_dispatch(stream, &dispatch));
    }
    return TSR_OK;
}

static tsr_status check_gradient(const char *op, tsr_stream *stream, tsr_tensor *dw,
                                 const tsr__pair_rows *dy, const tsr__pair_rows *x, int64_t experts)
{
    TSR__TRY(tsr__require_float(op, "dw", stream, dw));
    const tsr_layout *l = &dw->layout;
    TSR__REQUIRE(l->ndim == 3 && l->shape[0] == experts && l->shape[1] == dy->width &&
                     l->shape[2] == x->width,
                 "%s: dw is %s; [%lld,%lld,%lld] is needed", op, TSR__SHAPE(l->ndim, l->shape),
                 (long long)experts, (long long)dy->width, (long long)x->width);
    TSR__REQUIRE(tsr_layout_count(l) == 0 || ((l->strides[2] == 1 || l->shape[2] == 1) &&
                                              l->strides[0] >= 0 && l->strides[1] >= 0),
                 "%s: the rows of dw must be contiguous", op);
    return TSR_OK;
}

tsr_status tsr_matmul_grouped_grad(tsr_stream *stream, tsr_tensor *dw, const tsr_tensor *dy,
                                   const tsr_tensor *x, const tsr_tensor *order,
                                   const tsr_tensor *offsets, int64_t chosen, bool accumulate)
{
    const char *op = "matmul_grouped_grad";
    tsr__pair_rows of_dy, of_x;
    tsr__sorted sorted;
    int64_t experts;
    TSR__TRY(tsr__require_tensor(op, "order", stream, order));
    TSR__TRY(tsr__require_tensor(op, "dy", stream, dy));
    const int64_t pairs = order->layout.ndim == 1 ? order->layout.shape[0] : 0;
    TSR__REQUIRE(chosen >= 1 && pairs % chosen == 0 && pairs <= INT32_MAX,
                 "%s: order has %lld pairs, and each token has %lld", op, (long long)pairs,
                 (long long)chosen);
    TSR__TRY(tsr__pair_rows_of(op, "dy", stream, dy, pairs / chosen, chosen, &of_dy));
    TSR__TRY(tsr__pair_rows_of(op, "x", stream, x, pairs / chosen, chosen, &of_x));
    TSR__TRY(tsr__sorted_of(op, stream, order, offsets, pairs, &experts, &sorted));
    TSR__TRY(check_gradient(op, stream, dw, &of_dy, &of_x, experts));
    const tsr_tensor *inputs[] = {dy, x, order, offsets};
    const char *const names[] = {"dy", "x", "order", "offsets"};
    for (int i = 0; i < 4; i++)
        TSR__TRY(tsr__require_disjoint(op, "dw", dw, names[i], inputs[i], false));
    const uint32_t most = tsr_stream_device(stream)->traits.most_iterations;
    TSR__REQUIRE(pairs / 3 < most, "%s: there are %lld pairs; at most %u on this device", op,
                 (long long)pairs, most * 3);
    if (tsr_layout_count(&dw->layout) == 0 || (pairs == 0 && accumulate))
        return TSR_OK;
    const tsr_dtype dtype = dw->layout.dtype;
    struct tsr_grouped_grad_push push = {
        .dy = tsr__tensor_address(dy),
        .x = tsr__tensor_address(x),
        .dw = tsr__tensor_address(dw),
        .order = tsr__access_address(sorted.order),
        .offsets = tsr__access_address(sorted.offsets),
        .dw_expert = tsr__dtype_bytes(dtype, (uint64_t)dw->layout.strides[0]),
        .dw_row = tsr__dtype_bytes(dtype, (uint64_t)dw->layout.strides[1]),
        .experts = (uint32_t)experts,
        .rows = (uint32_t)of_dy.width,
        .columns = (uint32_t)of_x.width,
        .dy_stride = of_dy.stride,
        .dy_divide = of_dy.divide,
        .x_stride = of_x.stride,
        .x_divide = of_x.divide,
        .flags = accumulate ? TSR_GROUPED_ACCUMULATE : 0,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_MATMUL_GROUPED_GRAD,
        .spec_count = 9,
        .spec = {THREADS, ROWS, COLUMNS, DEPTH, OWN_ROWS, OWN_COLUMNS, (uint32_t)dy->layout.dtype,
                 (uint32_t)x->layout.dtype, (uint32_t)dtype},
        .push = &push,
        .push_bytes = sizeof push,
        .multiply_adds = (double)pairs * (double)of_dy.width * (double)of_x.width,
        .access_count = 5,
        .access = {tsr__read_of(dy), tsr__read_of(x), tsr__write_of(dw), sorted.order,
                   sorted.offsets},
    };
    gradient_work work = {.push = &push,
                          .dispatch = &dispatch,
                          .row_work = fmax((double)pairs, (double)experts) * (double)of_x.width};
    return tsr__stream_atomic(stream, record_gradient, &work);
}
