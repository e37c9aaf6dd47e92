/* Layer and RMS normalisation (the forward pass), and the choice of kernels for one plane of
 * rows. */
#include "gpu/ops/norm/norm.h"

#include "base/checked.h"
#include "gpu/internal.h"
#include "gpu/ops/common/segments.h"
#include "tensor/check.h"
#include "tessera/ops.h"

tsr__norm_kernels tsr__norm_kernels_of(const tsr__norm *norm, const tsr__norm_plane *plane,
                                       uint32_t output)
{
    const tsr__cpu_kernels *cpu = norm->operand[0]->buffer->device->cpu;
    return cpu ? cpu->norm_kernels(norm, plane, output) : TSR__NORM_GENERAL;
}

/* Adds the dispatch of the general kernel or of the kernel for short rows. The dispatch writes the
 * result to operand 1 and the statistics of the rows to `stats`, or one of them, as `output` says.
 * `partials` is used if the rows are divided into segments. */
static tsr_status add_norm(tsr__dispatches *list, const tsr__norm *norm,
                           const tsr__norm_plane *plane, tsr__buffer *partials, uint32_t output,
                           tsr__buffer *stats)
{
    const bool only_stats = output == TSR_NORM_STATS;
    if (tsr__norm_kernels_of(norm, plane, output) == TSR__NORM_SHORT)
        return norm->operand[0]->buffer->device->cpu->norm_short(list, norm, plane, output, stats);
    const tsr_tensor *x = norm->operand[0], *y = only_stats ? NULL : norm->operand[1];
    const tsr_tensor *weight = only_stats ? NULL : norm->weight,
                     *bias = only_stats ? NULL : norm->bias;
    struct tsr_norm_push params = {
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
        .access = {tsr__read_of(x), only_stats ? tsr__write_buffer(stats) : tsr__write_of(y)},
    };
    if (output == TSR_NORM_BOTH)
        dispatch.access[dispatch.access_count++] = tsr__write_buffer(stats);
    if (stats)
        params.stats = tsr__norm_stats_address(plane, stats);
    tsr__norm_vector(weight, &params.weight, &params.weight_step, &dispatch);
    tsr__norm_vector(bias, &params.bias, &params.bias_step, &dispatch);
    if (tsr__segments_chosen(x->buffer->device, &dispatch, plane->rows, params.count)) {
        params.partials = partials->address;
        return tsr__segments_add(list, &dispatch, plane->rows, params.count,
                                 norm->centred ? TSR_PHASE_FIRST : TSR_PHASE_SECOND, partials);
    }
    tsr__thread_group_hold(&dispatch, x->buffer->device, threads, params.count);
    tsr__groups_for(plane->rows, tsr__thread_group_workgroup(threads) / threads, dispatch.groups);
    return tsr__dispatches_add(list, &dispatch);
}

tsr_status tsr__norm_stats_add(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, tsr__buffer *partials,
                               tsr__buffer *stats)
{
    return add_norm(list, norm, plane, partials, TSR_NORM_STATS, stats);
}

tsr_status tsr__norm_partials(const tsr__norm *norm, tsr_stream *stream, uint64_t max_rows,
                              tsr__buffer **out)
{
    const tsr_device *device = tsr_stream_device(stream);
    const uint32_t columns = tsr__norm_columns(norm);
    uint64_t rows = 0;
    tsr__norm_planes planes;
    tsr__norm_plane plane;

    *out = NULL;
    tsr__norm_planes_init(&planes, norm, max_rows);
    while (tsr__norm_planes_next(&planes, &plane))
        if (tsr__segments_suit(device, plane.rows, columns))
            rows = tsr__max_u64(rows, plane.rows);
    return rows == 0 ? TSR_OK : tsr__segments_scratch(stream, rows, columns, out);
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
    return tsr__norm_kernels_of(norm, plane, TSR_NORM_RESULT) == TSR__NORM_CHUNKS;
}

/* Scratch memory; a member is NULL if no plane uses it. `scratch` and `stats` are for the kernels
 * that divide rows into chunks, `partials` is for rows that are divided into segments. */
typedef struct row_buffers {
    tsr__buffer *scratch, *stats;
    tsr__buffer *partials;
} row_buffers;

/* Requests all scratch memory. This must come first, because a stream provides it only before an
 * operation's first dispatch. */
static tsr_status prepare(const tsr__norm *norm, tsr_stream *stream, row_buffers *out)
{
    uint64_t bytes = 0;
    tsr__norm_planes planes;
    tsr__norm_plane plane;
    tsr__norm_planes_init(&planes, norm, 0);
    while (tsr__norm_planes_next(&planes, &plane))
        if (in_chunks(norm, &plane))
            bytes = tsr__max_u64(bytes,
                                 tsr_stream_device(stream)->cpu->norm_chunks_bytes(norm, &plane));
    TSR__TRY(tsr__norm_partials(norm, stream, 0, &out->partials));
    if (bytes == 0)
        return TSR_OK;
    TSR__TRY(tsr__stream_scratch(stream, bytes, &out->scratch));
    return tsr__stream_scratch(stream, (uint64_t)tsr__norm_rows(norm) * TSR_NORM_STATS_BYTES,
                               &out->stats);
}

static tsr_status add_chunks(tsr__dispatches *list, const tsr__norm *norm,
                             const tsr__norm_plane *plane, const row_buffers *rows)
{
    const tsr__cpu_kernels *cpu = norm->operand[0]->buffer->device->cpu;
    TSR__TRY(cpu->norm_chunks_stats(list, norm, plane, TSR_NORM_STATS, rows->scratch, rows->stats));
    return cpu->norm_chunks(list, norm, plane, TSR_NORM_RESULT, NULL, rows->stats, NULL);
}

/* `stats` may be NULL. */
static tsr_status add_dispatches(tsr__dispatches *list, const tsr__norm *norm, tsr_stream *stream,
                                 tsr__buffer *stats)
{
    row_buffers rows = {NULL, NULL, NULL};
    tsr__norm_planes planes;
    tsr__norm_plane plane;
    TSR__TRY(prepare(norm, stream, &rows));
    tsr__norm_planes_init(&planes, norm, 0);
    while (tsr__norm_planes_next(&planes, &plane))
        TSR__TRY(in_chunks(norm, &plane)
                     ? add_chunks(list, norm, &plane, &rows)
                     : add_norm(list, norm, &plane, rows.partials,
                                stats ? TSR_NORM_BOTH : TSR_NORM_RESULT, stats));
    return TSR_OK;
}

static tsr_status run_norm(const tsr__norm *norm, tsr_stream *stream, tsr__buffer *stats)
{
    TSR__TRY(check(norm, stream, norm->operand[1]));
    if (tsr__norm_columns(norm) == 0)
        return TSR_OK;
    tsr__dispatches list = {0};
    tsr_status status = add_dispatches(&list, norm, stream, stats);
    if (status == TSR_OK)
        status = tsr__dispatches_record(&list, stream);
    tsr__dispatches_finish(&list);
    return status;
}

tsr_status tsr__norm_with_stats(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                                const tsr_tensor *weight, const tsr_tensor *bias,
                                tsr_norm_kind kind, float epsilon, tsr_tensor *stats)
{
    TSR__TRY(tsr__norm_check_kind("norm", kind, "bias", bias));
    return run_norm(&(tsr__norm){.op = kind == TSR_NORM_RMS ? "rms_norm" : "layer_norm",
                                 .centred = kind == TSR_NORM_LAYER,
                                 .epsilon = epsilon,
                                 .weight = weight,
                                 .bias = bias,
                                 .count = 2,
                                 .operand = {x, y}},
                    stream, stats ? stats->buffer : NULL);
}

/* False if the kernel that also writes statistics has failed its self-test. */
static bool saves_stats(tsr_device *device, tsr_dtype dtype)
{
    uint32_t spec[9] = {0};
    spec[2] = (uint32_t)dtype;
    spec[8] = TSR_NORM_BOTH;
    return tsr__shader_admitted(device, TSR__SHADER_NORM, spec, 9);
}

tsr_status tsr__norm_new_stats(const tsr_tensor *x, tsr_tensor **out)
{
    tsr_device *device = x->buffer->device;
    const int last = x->layout.ndim - 1;
    int64_t rows = 1;
    *out = NULL;
    for (int d = 0; d < last; d++)
        rows *= x->layout.shape[d];
    if (device->cpu || rows == 0 || last < 0 || !tsr_layout_is_contiguous(&x->layout) ||
        !saves_stats(device, x->layout.dtype))
        return TSR_OK;
    const int64_t shape[] = {rows, TSR_NORM_STATS_BYTES / (int64_t)sizeof(float)};
    return tsr_tensor_create(device, TSR_F32, 2, shape, out);
}

tsr_status tsr_norm(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                    const tsr_tensor *weight, const tsr_tensor *bias, tsr_norm_kind kind,
                    float epsilon)
{
    return tsr__norm_with_stats(stream, y, x, weight, bias, kind, epsilon, NULL);
}
