#include "gpu/ops/norm/norm_plane.h"

#include <float.h>

#include "gpu/ops/common/walk.h"
#include "tensor/check.h"

tsr_status tsr__norm_check_vector(const tsr__norm *norm, const tsr_stream *stream, const char *name,
                                  const tsr_tensor *vector)
{
    const tsr_layout *x = &norm->operand[0]->layout;
    TSR__TRY(tsr__require_float(norm->op, name, stream, vector));
    int64_t columns = x->shape[x->ndim - 1];
    TSR__REQUIRE(vector->layout.ndim == 1 && vector->layout.shape[0] == columns,
                 "%s: %s is %s; rows of x %s have %lld elements", norm->op, name,
                 TSR__SHAPE(vector->layout.ndim, vector->layout.shape),
                 TSR__SHAPE(x->ndim, x->shape), (long long)columns);
    return TSR_OK;
}

tsr_status tsr__norm_check_kind(const char *op, tsr_norm_kind kind, const char *name,
                                const tsr_tensor *bias)
{
    TSR__REQUIRE(kind == TSR_NORM_LAYER || kind == TSR_NORM_RMS, "%s: unknown kind %d", op,
                 (int)kind);
    TSR__REQUIRE(kind == TSR_NORM_LAYER || !bias, "%s: %s must be NULL for TSR_NORM_RMS", op, name);
    return TSR_OK;
}

tsr_status tsr__norm_check(const tsr__norm *norm, const tsr_stream *stream)
{
    const tsr_tensor *x = norm->operand[0];
    TSR__TRY(tsr__require_float(norm->op, "x", stream, x));
    TSR__REQUIRE(x->layout.ndim > 0, "%s: x is a scalar and has no last dimension", norm->op);
    TSR__REQUIRE(x->layout.shape[x->layout.ndim - 1] <= INT32_MAX,
                 "%s: rows of %lld elements; at most %d", norm->op,
                 (long long)x->layout.shape[x->layout.ndim - 1], (int)INT32_MAX);
    if (norm->weight)
        TSR__TRY(tsr__norm_check_vector(norm, stream, "weight", norm->weight));
    if (norm->bias)
        TSR__TRY(tsr__norm_check_vector(norm, stream, "bias", norm->bias));
    /* Smaller numbers are subnormal, and a device may treat them as 0. */
    TSR__REQUIRE(norm->epsilon >= FLT_MIN && norm->epsilon <= FLT_MAX,
                 "%s: epsilon is %g; it must be finite and at least %g", norm->op,
                 (double)norm->epsilon, (double)FLT_MIN);
    return TSR_OK;
}

int64_t tsr__norm_rows(const tsr__norm *norm)
{
    const tsr_layout *x = &norm->operand[0]->layout;
    tsr_layout rows = tsr__layout_without(x, x->ndim - 1);
    return tsr_layout_count(&rows);
}

uint32_t tsr__norm_columns(const tsr__norm *norm)
{
    const tsr_layout *x = &norm->operand[0]->layout;
    return (uint32_t)x->shape[x->ndim - 1];
}

void tsr__norm_planes_init(tsr__norm_planes *planes, const tsr__norm *norm, uint64_t max_rows)
{
    tsr_layout rows[TSR__NORM_OPERANDS];
    const tsr_layout *layouts[TSR__NORM_OPERANDS];
    for (int i = 0; i < norm->count; i++) {
        rows[i] = tsr__layout_without(&norm->operand[i]->layout, norm->operand[i]->layout.ndim - 1);
        layouts[i] = &rows[i];
    }
    *planes = (tsr__norm_planes){.norm = norm};
    tsr__pieces_init(&planes->pieces, norm->count, layouts, max_rows);
}

static uint32_t smaller_form(uint32_t form, const tsr__piece *piece, int operand,
                             const tsr_tensor *tensor, uint64_t address)
{
    const tsr_layout *layout = &tensor->layout;
    int last = layout->ndim - 1;
    uint32_t own = tsr__row_form(tensor->buffer->device, piece, operand, layout->dtype, address,
                                 layout->strides[last], layout->shape[last]);
    return own < form ? own : form;
}

bool tsr__norm_planes_next(tsr__norm_planes *planes, tsr__norm_plane *plane)
{
    const tsr__norm *norm = planes->norm;
    const tsr__piece *piece = &planes->piece;
    if (planes->plane == planes->planes_of_piece &&
        !tsr__pieces_next(&planes->pieces, &planes->piece))
        return false;

    int inner = piece->ndim - 1, outer = piece->ndim - 2;
    *plane = (tsr__norm_plane){
        .rows = piece->shape[inner] * (outer >= 0 ? piece->shape[outer] : 1),
        .inner = piece->shape[inner],
        .first = planes->rows,
        .form = TSR_ROW_ALIGNED4,
    };
    if (planes->plane == planes->planes_of_piece) {
        planes->plane = 0;
        planes->planes_of_piece = piece->count / plane->rows;
    }
    for (int i = 0; i < norm->count; i++) {
        const tsr_tensor *tensor = norm->operand[i];
        uint64_t skip = tsr__piece_plane(piece, i, outer, inner, planes->plane);
        uint64_t address =
            tsr__piece_address(piece, i, tensor) + skip * tsr_dtype_size(tensor->layout.dtype);
        plane->operand[i] = (struct tsr_norm_rows){
            .at = address,
            .step = tsr__stride_bytes(tensor, tensor->layout.ndim - 1),
            .strides = {outer >= 0 ? piece->strides[i][outer] : 0, piece->strides[i][inner]},
        };
        plane->form = smaller_form(plane->form, piece, i, tensor, address);
    }
    const tsr_tensor *vectors[] = {norm->weight, norm->bias};
    for (int i = 0; i < 2; i++)
        if (vectors[i])
            plane->form = smaller_form(plane->form, &(tsr__piece){0}, 0, vectors[i],
                                       tsr__tensor_address(vectors[i]));
    planes->rows += plane->rows;
    planes->plane++;
    return true;
}

uint64_t tsr__norm_stats_address(const tsr__norm_plane *plane, const tsr__buffer *stats)
{
    return stats->address + plane->first * TSR_NORM_STATS_BYTES;
}

uint32_t tsr__norm_dtype(const tsr_tensor *tensor)
{
    return tensor ? (uint32_t)tensor->layout.dtype : 0;
}

void tsr__norm_vector(const tsr_tensor *vector, uint64_t *address, uint64_t *step,
                      tsr__dispatch *dispatch)
{
    if (!vector)
        return;
    *address = tsr__tensor_address(vector);
    *step = tsr__stride_bytes(vector, 0);
    dispatch->access[dispatch->access_count++] = tsr__read_of(vector);
}
