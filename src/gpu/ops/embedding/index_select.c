/* Selection by index along a dimension, and its gradient. The kernels of the embedding are used if
 * the dimension is the first one and the other dimensions can be viewed as one row. */
#include "shaders/params/index_select.h"
#include "base/checked.h"
#include "gpu/internal.h"
#include "gpu/ops/common/rows.h"
#include "gpu/ops/common/walk.h"
#include "tensor/check.h"

enum {
    WORKGROUP = 64,
    /* The number of buckets into which the indices along `dim` of the gradient are divided, on
     * GPUs. A workgroup computes the elements of one bucket, as in embedding.c. */
    BUCKETS = 64,
    GROUPS_ON_CPU = 8,
};

/* The arguments of the selection or of its gradient. Elements are selected from x, or their
 * gradients are added to the gradient of x. y, or its gradient, contains the selected elements. */
typedef struct selection {
    const char *op, *x_name, *y_name;
    tsr_stream *stream;
    const tsr_tensor *x, *y, *indices;
    int dim;
} selection;

static tsr_status check(selection *s, int dim)
{
    const char *op = s->op;
    TSR__TRY(tsr__require_on_device(op, s->x_name, s->stream, s->x));
    TSR__TRY(tsr__require_tensor(op, s->y_name, s->stream, s->y));
    TSR__TRY(tsr__require_tensor(op, "indices", s->stream, s->indices));
    const tsr_layout *x = &s->x->layout, *y = &s->y->layout, *indices = &s->indices->layout;
    TSR__REQUIRE(indices->dtype == TSR_I32 || indices->dtype == TSR_I64 ||
                     indices->dtype == TSR_U32 || indices->dtype == TSR_U8,
                 "%s: indices are %s, not i32, i64, u32 or u8", op, tsr_dtype_name(indices->dtype));
    TSR__REQUIRE(indices->ndim == 1, "%s: indices are %s; they must have one dimension", op,
                 TSR__SHAPE(indices->ndim, indices->shape));
    TSR__TRY(tsr__require_dim(op, s->x, dim, &s->dim));
    tsr_layout expected = *x;
    expected.shape[s->dim] = indices->shape[0];
    TSR__REQUIRE(tsr__layout_same_shape(y, &expected),
                 "%s: %s is %s; %s %s with %lld indices along dim %d is %s", op, s->y_name,
                 TSR__SHAPE(y->ndim, y->shape), s->x_name, TSR__SHAPE(x->ndim, x->shape),
                 (long long)indices->shape[0], s->dim, TSR__SHAPE(expected.ndim, expected.shape));
    TSR__REQUIRE(x->shape[s->dim] <= INT32_MAX, "%s: dim %d of %s has %lld elements; at most %d",
                 op, s->dim, s->x_name, (long long)x->shape[s->dim], (int)INT32_MAX);
    return TSR_OK;
}

/* Views an operand as [size of dim, all other dimensions]. Returns false if that is impossible. */
static bool as_matrix(const selection *s, const tsr_tensor *tensor, tsr_tensor *out)
{
    const tsr_layout *layout = &tensor->layout;
    const tsr_layout rest = tsr__layout_without(layout, s->dim);
    const int64_t width = tsr_layout_count(&rest);
    tsr_layout row, matrix = *layout;
    if (s->dim != 0 || width == 0 || width > INT64_C(1) << 24 ||
        tsr_layout_reshape(&rest, 1, &width, &row) != TSR_OK)
        return false;
    matrix.ndim = 2;
    matrix.shape[1] = width;
    matrix.strides[1] = row.strides[0];
    *out = tsr__tensor_alias(tensor, &matrix);
    return true;
}

static bool is_float(tsr_dtype dtype)
{
    return dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16;
}

/* Selecting ---------------------------------------------------------------------------------- */

static tsr_status select_piece(tsr_stream *stream, const selection *s, const tsr__piece *piece)
{
    struct tsr_index_select_params push = {
        .y = tsr__piece_address(piece, 0, s->y),
        .x = tsr__piece_address(piece, 1, s->x),
        .indices = tsr__piece_address(piece, 2, s->indices),
        .x_stride = tsr__stride_bytes(s->x, s->dim),
        .size = (uint32_t)s->x->layout.shape[s->dim],
    };
    tsr__walk_init(&push.walk, piece, 4);
    tsr__walk_strides(piece, 0, push.y_strides);
    tsr__walk_strides(piece, 1, push.x_strides);
    tsr__walk_strides(piece, 2, push.indices_strides);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_INDEX_SELECT,
        .spec_count = 5,
        .spec = {WORKGROUP, (uint32_t)s->x->layout.dtype, (uint32_t)s->y->layout.dtype,
                 (uint32_t)tsr_dtype_size(s->x->layout.dtype),
                 (uint32_t)tsr_dtype_size(s->indices->layout.dtype)},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 3,
        .access = {tsr__write_of(s->y), tsr__read_of(s->x), tsr__read_of(s->indices)},
    };
    tsr__groups_for(push.walk.items, WORKGROUP, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

static tsr_status select_pieces(tsr_stream *stream, void *work)
{
    const selection *s = work;
    tsr_layout x = s->y->layout, indices = s->y->layout;
    for (int d = 0; d < x.ndim; d++) {
        x.strides[d] = d == s->dim ? 0 : s->x->layout.strides[d];
        indices.strides[d] = d == s->dim ? s->indices->layout.strides[0] : 0;
    }
    x.dtype = s->x->layout.dtype;
    x.offset = s->x->layout.offset;
    indices.dtype = s->indices->layout.dtype;
    indices.offset = s->indices->layout.offset;
    const tsr_layout *layouts[] = {&s->y->layout, &x, &indices};
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, 3, layouts, 0);
    while (tsr__pieces_next(&walk, &piece))
        TSR__TRY(select_piece(stream, s, &piece));
    return TSR_OK;
}

tsr_status tsr_index_select(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, int dim,
                            const tsr_tensor *indices)
{
    const char *op = "index_select";
    selection s = {.op = op,
                   .x_name = "x",
                   .y_name = "y",
                   .stream = stream,
                   .x = x,
                   .y = y,
                   .indices = indices};
    TSR__TRY(check(&s, dim));
    const tsr_dtype from = x->layout.dtype, to = y->layout.dtype;
    const bool blocks = tsr__dtype_is_block(from);
    TSR__REQUIRE(!blocks || (x->layout.ndim == 2 && s.dim == 0 && is_float(to)),
                 "%s: x is %s %s, dim %d, y %s; in a block format, x must have two dimensions, dim "
                 "must be 0, and y f32, f16 or bf16",
                 op, tsr_dtype_name(from), TSR__SHAPE(x->layout.ndim, x->layout.shape), s.dim,
                 tsr_dtype_name(to));
    TSR__REQUIRE(blocks || from == to || (is_float(from) && is_float(to)),
                 "%s: x is %s and y %s; dtypes other than floats must be the same", op,
                 tsr_dtype_name(from), tsr_dtype_name(to));
    TSR__TRY(tsr__require_disjoint(op, "y", y, "x", x, false));
    TSR__TRY(tsr__require_disjoint(op, "y", y, "indices", indices, false));
    if (tsr_layout_count(&y->layout) == 0)
        return TSR_OK;
    if (tsr_layout_count(&x->layout) == 0)
        return tsr_fill(stream, y, 0);
    tsr_tensor rows, table;
    if (blocks)
        return tsr__embedding(stream, y, x, indices, 0);
    if (is_float(from) && as_matrix(&s, y, &rows) && as_matrix(&s, x, &table))
        return tsr__embedding(stream, &rows, &table, indices, 0);
    return tsr__stream_atomic(stream, select_pieces, &s);
}

/* Gradient ----------------------------------------------------------------------------------- */

typedef struct addition {
    selection s;
    tsr_tensor *dx;
    bool accumulate;
} addition;

static uint32_t buckets_for(const tsr_device *device, uint32_t items)
{
    const uint32_t groups = tsr__div_up_u32(items, WORKGROUP);
    uint32_t buckets = 1;
    while (buckets < BUCKETS &&
           (!device->traits.few_invocations || buckets * groups < GROUPS_ON_CPU))
        buckets *= 2;
    return buckets;
}

static tsr_status add_piece(tsr_stream *stream, const selection *s, const tsr__piece *piece)
{
    struct tsr_index_add_params push = {
        .dx = tsr__piece_address(piece, 0, s->x),
        .indices_stride = tsr__stride_bytes(s->indices, 0),
        .dx_stride = tsr__stride_bytes(s->x, s->dim),
        .dy_stride = tsr__stride_bytes(s->y, s->dim),
        .size = (uint32_t)s->x->layout.shape[s->dim],
    };
    tsr__walk_init(&push.walk, piece, 1);
    tsr__walk_strides(piece, 0, push.dx_strides);
    tsr__walk_strides(piece, 1, push.dy_strides);
    push.buckets = buckets_for(s->x->buffer->device, push.walk.items);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_INDEX_ADD,
        .spec_count = 4,
        .spec = {WORKGROUP, (uint32_t)s->x->layout.dtype, (uint32_t)s->y->layout.dtype,
                 (uint32_t)tsr_dtype_size(s->indices->layout.dtype)},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 3,
        .access = {tsr__write_of(s->x), tsr__read_of(s->y), tsr__read_of(s->indices)},
    };
    tsr__groups_for(push.walk.items, WORKGROUP, dispatch.groups);
    dispatch.groups[2] = push.buckets;
    const int64_t rows = s->indices->layout.shape[0];
    /* The work of one index: for each of its elements, one of dy is read, and one of dx is read and
     * written. */
    const double row_work =
        (double)push.walk.items * TSR__BYTE_WORK *
        (double)(2 * tsr_dtype_size(s->x->layout.dtype) + tsr_dtype_size(s->y->layout.dtype));
    const int64_t most = tsr__steps_within_work(s->x->buffer->device, row_work);
    for (int64_t from = 0; from < rows; from += most) {
        push.rows = (uint32_t)(rows - from < most ? rows - from : most);
        push.dy = tsr__piece_address(piece, 1, s->y) + (uint64_t)from * push.dy_stride;
        push.indices = tsr__tensor_address(s->indices) + (uint64_t)from * push.indices_stride;
        dispatch.work = row_work * push.rows;
        TSR__TRY(tsr__stream_dispatch(stream, &dispatch));
    }
    return TSR_OK;
}

static tsr_status add_pieces(tsr_stream *stream, void *work)
{
    const addition *a = work;
    if (!a->accumulate)
        TSR__TRY(tsr_fill(stream, a->dx, 0));
    const tsr_layout dx = tsr__layout_without(&a->s.x->layout, a->s.dim);
    const tsr_layout dy = tsr__layout_without(&a->s.y->layout, a->s.dim);
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, 2, (const tsr_layout *[]){&dx, &dy}, 0);
    while (tsr__pieces_next(&walk, &piece))
        TSR__TRY(add_piece(stream, &a->s, &piece));
    return TSR_OK;
}

tsr_status tsr_index_select_grad(tsr_stream *stream, tsr_tensor *dx, const tsr_tensor *dy, int dim,
                                 const tsr_tensor *indices, bool accumulate)
{
    const char *op = "index_select_grad";
    addition a = {.s = {.op = op,
                        .x_name = "dx",
                        .y_name = "dy",
                        .stream = stream,
                        .x = dx,
                        .y = dy,
                        .indices = indices},
                  .dx = dx,
                  .accumulate = accumulate};
    TSR__TRY(check(&a.s, dim));
    TSR__TRY(tsr__require_float(op, "dx", stream, dx));
    TSR__TRY(tsr__require_float(op, "dy", stream, dy));
    TSR__TRY(tsr__require_disjoint(op, "dx", dx, "dy", dy, false));
    TSR__TRY(tsr__require_disjoint(op, "dx", dx, "indices", indices, false));
    tsr_tensor rows, table;
    if (tsr_layout_count(&dx->layout) > 0 && as_matrix(&a.s, dy, &rows) &&
        as_matrix(&a.s, dx, &table))
        return tsr__embedding_grad(stream, &table, &rows, indices, 0, accumulate);
    if (tsr_layout_count(&dx->layout) == 0)
        return TSR_OK;
    return tsr__stream_atomic(stream, add_pieces, &a);
}
