/* Layer and RMS normalisation. */
#include "gpu/ops/norm/norm.h"

#include <float.h>

#include "base/checked.h"
#include "gpu/cpu_drivers/ops/norm_chunks.h"
#include "gpu/cpu_drivers/ops/norm_short.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "gpu/ops/common/walk.h"
#include "tensor/check.h"
#include "tessera/ops.h"

tsr_status tsr__norm_check_vector(const tsr__norm *norm, const tsr_stream *stream, const char *name,
                                  const tsr_tensor *vector)
{
    const tsr_layout *x = &norm->operand[0]->layout;
    TSR__TRY(tsr__require_float(norm->op, name, stream, vector));
    TSR__REQUIRE(vector->layout.ndim == 1 && vector->layout.shape[0] == x->shape[x->ndim - 1],
                 "%s: %s is %s; x %s takes an element for each of a row", norm->op, name,
                 TSR__SHAPE(vector->layout.ndim, vector->layout.shape),
                 TSR__SHAPE(x->ndim, x->shape));
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
    /* Devices may take smaller numbers for 0. */
    TSR__REQUIRE(norm->epsilon >= FLT_MIN && norm->epsilon <= FLT_MAX,
                 "%s: epsilon is %g; it has to be finite and at least %g", norm->op,
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

void tsr__norm_walk_init(tsr__norm_walk *walk, const tsr__norm *norm, uint64_t most_rows)
{
    tsr_layout rows[TSR__NORM_OPERANDS];
    const tsr_layout *layouts[TSR__NORM_OPERANDS];
    for (int i = 0; i < norm->count; i++) {
        rows[i] = tsr__layout_without(&norm->operand[i]->layout, norm->operand[i]->layout.ndim - 1);
        layouts[i] = &rows[i];
    }
    *walk = (tsr__norm_walk){.norm = norm};
    tsr__pieces_init(&walk->pieces, norm->count, layouts, most_rows);
}

static uint32_t smaller_form(uint32_t form, const tsr__piece *piece, int operand,
                             const tsr_tensor *tensor, uint64_t address)
{
    const tsr_layout *layout = &tensor->layout;
    int last = layout->ndim - 1;
    uint32_t own = tsr__row_form(piece, operand, layout->dtype, address, layout->strides[last],
                                 layout->shape[last]);
    return own < form ? own : form;
}

bool tsr__norm_next(tsr__norm_walk *walk, tsr__norm_plane *plane)
{
    const tsr__norm *norm = walk->norm;
    const tsr__piece *piece = &walk->piece;
    if (walk->plane == walk->planes && !tsr__pieces_next(&walk->pieces, &walk->piece))
        return false;

    int inner = piece->ndim - 1, outer = piece->ndim - 2;
    *plane = (tsr__norm_plane){
        .rows = piece->shape[inner] * (outer >= 0 ? piece->shape[outer] : 1),
        .inner = piece->shape[inner],
        .first = walk->rows,
        .form = TSR_ROW_DENSE4,
    };
    if (walk->plane == walk->planes) {
        walk->plane = 0;
        walk->planes = piece->count / plane->rows;
    }
    for (int i = 0; i < norm->count; i++) {
        const tsr_tensor *tensor = norm->operand[i];
        uint64_t skip = tsr__piece_plane(piece, i, outer, inner, walk->plane);
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
    walk->rows += plane->rows;
    walk->plane++;
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

tsr__norm_way tsr__norm_way_of(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output)
{
    /* From here on chunks are about as fast, and their pipelines are made in a quarter of the time.
     */
    const uint32_t many_columns = 768;
    if (!tsr__vectors_suit(norm->operand[0]->buffer->device))
        return TSR__NORM_GENERAL;
    bool is_short = tsr__norm_short_suit(norm, plane, output);
    if ((tsr__norm_columns(norm) > many_columns || !is_short) &&
        tsr__norm_chunks_suit(norm, plane, output))
        return TSR__NORM_CHUNKS;
    return is_short ? TSR__NORM_SHORT : TSR__NORM_GENERAL;
}

/* The result, to operand 1; or where `stats` is not NULL, the statistics. */
static tsr_status add(tsr__dispatches *list, const tsr__norm *norm, const tsr__norm_plane *plane,
                      tsr__buffer *stats)
{
    uint32_t output = stats ? TSR_NORM_STATS : TSR_NORM_RESULT;
    if (tsr__norm_way_of(norm, plane, output) == TSR__NORM_SHORT)
        return tsr__norm_short_add(list, norm, plane, output, stats);
    const tsr_tensor *x = norm->operand[0], *y = stats ? NULL : norm->operand[1];
    const tsr_tensor *weight = stats ? NULL : norm->weight, *bias = stats ? NULL : norm->bias;
    struct tsr_norm_params params = {
        .x = plane->operand[0],
        .y = plane->operand[1],
        .count = tsr__norm_columns(norm),
        .rows = plane->rows,
        .inner = plane->inner,
        .epsilon = norm->epsilon,
    };
    uint32_t threads = tsr__thread_group_for(x->buffer->device, plane->rows, params.count);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_NORM,
        .spec_count = 9,
        .spec = {tsr__thread_group_workgroup(threads), threads, tsr__norm_dtype(x),
                 tsr__norm_dtype(y), tsr__norm_dtype(weight), tsr__norm_dtype(bias), plane->form,
                 norm->centred, output},
        .push = &params,
        .push_bytes = sizeof params,
        .access_count = 2,
        .access = {tsr__read_of(x), stats ? tsr__write_buffer(stats) : tsr__write_of(y)},
    };
    if (stats)
        params.stats = tsr__norm_stats_address(plane, stats);
    tsr__norm_vector(weight, &params.weight, &params.weight_step, &dispatch);
    tsr__norm_vector(bias, &params.bias, &params.bias_step, &dispatch);
    tsr__groups_for(plane->rows, tsr__thread_group_workgroup(threads) / threads, dispatch.groups);
    return tsr__dispatches_add(list, &dispatch);
}

tsr_status tsr__norm_stats_add(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, tsr__buffer *stats)
{
    return add(list, norm, plane, stats);
}

static tsr_status check(const tsr__norm *norm, const tsr_stream *stream, const tsr_tensor *y)
{
    const tsr_tensor *x = norm->operand[0];
    TSR__TRY(tsr__require_float(norm->op, "y", stream, y));
    TSR__TRY(tsr__norm_check(norm, stream));
    TSR__TRY(tsr__require_same_shape(norm->op, "y", y, "x", x));
    TSR__TRY(tsr__require_disjoint(norm->op, "y", y, "x", x, true));
    if (norm->weight)
        TSR__TRY(tsr__require_disjoint(norm->op, "y", y, "weight", norm->weight, false));
    if (norm->bias)
        TSR__TRY(tsr__require_disjoint(norm->op, "y", y, "bias", norm->bias, false));
    return TSR_OK;
}

static bool in_chunks(const tsr__norm *norm, const tsr__norm_plane *plane)
{
    return tsr__norm_way_of(norm, plane, TSR_NORM_RESULT) == TSR__NORM_CHUNKS;
}

/* Scratch memory; NULL where nothing is made from chunks. */
typedef struct chunk_buffers {
    tsr__buffer *scratch, *stats;
} chunk_buffers;

/* Before the first dispatch, as streams lend it. */
static tsr_status prepare(const tsr__norm *norm, tsr_stream *stream, chunk_buffers *out)
{
    uint64_t bytes = 0;
    tsr__norm_walk walk;
    tsr__norm_plane plane;
    tsr__norm_walk_init(&walk, norm, 0);
    while (tsr__norm_next(&walk, &plane))
        if (in_chunks(norm, &plane))
            bytes = tsr__max_u64(bytes, tsr__norm_chunks_scratch_bytes(norm, &plane));
    if (bytes == 0)
        return TSR_OK;
    TSR__TRY(tsr__stream_scratch(stream, bytes, &out->scratch));
    return tsr__stream_scratch(stream, (uint64_t)tsr__norm_rows(norm) * TSR_NORM_STATS_BYTES,
                               &out->stats);
}

static tsr_status add_chunks(tsr__dispatches *list, const tsr__norm *norm,
                             const tsr__norm_plane *plane, const chunk_buffers *rows)
{
    TSR__TRY(
        tsr__norm_chunks_add_stats(list, norm, plane, TSR_NORM_STATS, rows->scratch, rows->stats));
    return tsr__norm_chunks_add(list, norm, plane, TSR_NORM_RESULT, NULL, rows->stats, NULL);
}

static tsr_status add_dispatches(tsr__dispatches *list, const tsr__norm *norm, tsr_stream *stream)
{
    chunk_buffers rows = {NULL, NULL};
    tsr__norm_walk walk;
    tsr__norm_plane plane;
    TSR__TRY(prepare(norm, stream, &rows));
    tsr__norm_walk_init(&walk, norm, 0);
    while (tsr__norm_next(&walk, &plane))
        TSR__TRY(in_chunks(norm, &plane) ? add_chunks(list, norm, &plane, &rows)
                                         : add(list, norm, &plane, NULL));
    return TSR_OK;
}

static tsr_status run(const tsr__norm *norm, tsr_stream *stream)
{
    TSR__TRY(check(norm, stream, norm->operand[1]));
    if (tsr__norm_columns(norm) == 0)
        return TSR_OK;
    tsr__dispatches list = {0};
    tsr_status status = add_dispatches(&list, norm, stream);
    if (status == TSR_OK)
        status = tsr__dispatches_record(&list, stream);
    tsr__dispatches_finish(&list);
    return status;
}

tsr_status tsr_layer_norm(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                          const tsr_tensor *weight, const tsr_tensor *bias, float epsilon)
{
    return run(&(tsr__norm){.op = "layer_norm",
                            .centred = true,
                            .epsilon = epsilon,
                            .weight = weight,
                            .bias = bias,
                            .count = 2,
                            .operand = {x, y}},
               stream);
}

tsr_status tsr_rms_norm(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                        const tsr_tensor *weight, float epsilon)
{
    return run(
        &(tsr__norm){
            .op = "rms_norm", .epsilon = epsilon, .weight = weight, .count = 2, .operand = {x, y}},
        stream);
}
