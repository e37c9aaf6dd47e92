/* The largest elements along a dimension. */
#include "shaders/params/topk.h"
#include "base/checked.h"
#include "gpu/ops/common/rows.h"
#include "gpu/ops/common/walk.h"
#include "tensor/check.h"
#include "tessera/ops.h"

typedef struct call {
    const tsr_tensor *values, *indices, *x;
    int dim;
} call;

static void fill_shape(struct tsr_topk_params *push, const tsr__piece *piece)
{
    uint32_t *strides[] = {push->x_strides, push->values_strides, push->indices_strides};
    for (int d = 0; d < TSR_ROW_DIMS; d++) {
        push->shape[d] = d < piece->ndim ? piece->shape[d] : 1;
        for (int i = 0; i < 3; i++)
            strides[i][d] = d < piece->ndim ? piece->strides[i][d] : 0;
    }
}

/* The number of iterations that an invocation needs when its thread group searches a row for the
 * next largest element. */
static uint32_t search_length(int64_t count, uint32_t threads)
{
    return (uint32_t)((count - 1) / ((int64_t)threads * TSR_TOPK_UNROLLED)) + 1;
}

static tsr_status run_piece(tsr_stream *stream, const call *c, const tsr__piece *piece)
{
    const tsr_device *device = c->x->buffer->device;
    const int64_t count = c->x->layout.shape[c->dim];
    const uint32_t k = (uint32_t)c->values->layout.shape[c->dim];
    const uint32_t threads = tsr__thread_group_for(device, piece->count, count);
    const uint32_t workgroup = tsr__thread_group_workgroup(threads);
    struct tsr_topk_params push = {
        .x = tsr__piece_address(piece, 0, c->x),
        .values = tsr__piece_address(piece, 1, c->values),
        .indices = tsr__piece_address(piece, 2, c->indices),
        .x_step = tsr__stride_bytes(c->x, c->dim),
        .values_step = tsr__stride_bytes(c->values, c->dim),
        .indices_step = tsr__stride_bytes(c->indices, c->dim),
        .jobs = piece->count,
        .count = (uint32_t)count,
    };
    fill_shape(&push, piece);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_TOPK,
        .spec_count = 3,
        .spec = {workgroup, (uint32_t)c->x->layout.dtype, threads},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 3,
        .access = {tsr__read_of(c->x), tsr__write_of(c->values), tsr__write_of(c->indices)},
    };
    tsr__groups_for(piece->count, workgroup / threads, dispatch.groups);
    const uint32_t most = (uint32_t)tsr__steps_within_work(device, (double)piece->count * threads);
    /* A dispatch finds `rounds` of the k largest elements. For each of them, an invocation needs
     * one iteration of the loop over outputs, one for every eight invocations of the group, whose
     * candidates it compares, and those of at most one search. */
    const uint32_t search = search_length(count, threads);
    const uint32_t rounds = (most > search ? most - search : 0) / (search + threads / 8 + 1) + 1;
    for (push.from = 0; push.from < k; push.from = push.to) {
        push.to = k - push.from > rounds ? push.from + rounds : k;
        TSR__TRY(tsr__stream_dispatch(stream, &dispatch));
    }
    return TSR_OK;
}

static tsr_status run_pieces(tsr_stream *stream, void *work)
{
    const call *c = work;
    const tsr_layout x = tsr__layout_without(&c->x->layout, c->dim);
    const tsr_layout values = tsr__layout_without(&c->values->layout, c->dim);
    const tsr_layout indices = tsr__layout_without(&c->indices->layout, c->dim);
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, 3, (const tsr_layout *[]){&x, &values, &indices}, 0);
    while (tsr__pieces_next(&walk, &piece))
        TSR__TRY(run_piece(stream, c, &piece));
    return TSR_OK;
}

tsr_status tsr_topk(tsr_stream *stream, tsr_tensor *values, tsr_tensor *indices,
                    const tsr_tensor *x, int dim)
{
    const char *op = "topk";
    TSR__TRY(tsr__require_float(op, "values", stream, values));
    TSR__TRY(tsr__require_tensor(op, "indices", stream, indices));
    TSR__TRY(tsr__require_float(op, "x", stream, x));
    TSR__REQUIRE(indices->layout.dtype == TSR_I32, "%s: indices are %s; i32 is needed", op,
                 tsr_dtype_name(indices->layout.dtype));
    TSR__REQUIRE(values->layout.dtype == x->layout.dtype,
                 "%s: values are %s and x is %s; they must be the same", op,
                 tsr_dtype_name(values->layout.dtype), tsr_dtype_name(x->layout.dtype));
    TSR__TRY(tsr__require_dim(op, x, dim, &dim));
    TSR__TRY(tsr__require_same_shape(op, "values", values, "indices", indices));
    tsr_layout expected = x->layout;
    const int64_t count = x->layout.shape[dim];
    if (values->layout.ndim == expected.ndim)
        expected.shape[dim] = values->layout.shape[dim];
    TSR__REQUIRE(tsr__layout_same_shape(&values->layout, &expected),
                 "%s: values are %s; x is %s, and may differ along dim %d only", op,
                 TSR__SHAPE(values->layout.ndim, values->layout.shape),
                 TSR__SHAPE(x->layout.ndim, x->layout.shape), dim);
    TSR__REQUIRE(expected.shape[dim] <= count,
                 "%s: %lld elements are wanted, but x has %lld in dim %d", op,
                 (long long)expected.shape[dim], (long long)count, dim);
    TSR__REQUIRE(count <= INT32_MAX, "%s: dim %d of x has %lld elements; i32 indices reach %d", op,
                 dim, (long long)count, (int)INT32_MAX);
    const tsr_device *device = x->buffer->device;
    TSR__REQUIRE(search_length(count > 0 ? count : 1, 128) < tsr__most_iterations(device) / 2,
                 "%s: dim %d of x has %lld elements; at most %lld on this device", op, dim,
                 (long long)count,
                 (long long)tsr__most_iterations(device) / 2 * 128 * TSR_TOPK_UNROLLED);
    TSR__TRY(tsr__require_disjoint(op, "values", values, "x", x, false));
    TSR__TRY(tsr__require_disjoint(op, "indices", indices, "x", x, false));
    TSR__TRY(tsr__require_disjoint(op, "values", values, "indices", indices, false));
    if (tsr_layout_count(&values->layout) == 0)
        return TSR_OK;
    call c = {.values = values, .indices = indices, .x = x, .dim = dim};
    return tsr__stream_atomic(stream, run_pieces, &c);
}
