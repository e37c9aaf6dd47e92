/* The gradients of layer and RMS normalisation, in four steps. The first step computes the
 * statistics of each row, as in the forward pass. The second step divides the rows into chunks and
 * computes, for the gradients of weight and bias, the sums over the rows of each chunk. It comes
 * before the third step, which computes dx, because dx may overwrite x or dy. The fourth step adds
 * up the sums of all chunks.
 *
 * On Mesa's CPU driver, special kernels can replace the second and fourth step: they write the
 * products dy · normalised x, which the gradient of the weight sums over all rows, to scratch
 * memory, and a reduction adds up their columns. The kernels for short rows need no statistics. */
#include <string.h>

#include "base/checked.h"
#include "gpu/internal.h"
#include "gpu/ops/common/segments.h"
#include "gpu/ops/norm/norm.h"
#include "gpu/ops/reduce/reduce.h"
#include "tensor/check.h"
#include "tessera/ops.h"

#define WORKGROUP 64
/* the largest number of products in scratch memory: 64 MiB of f32 */
#define MAX_PRODUCTS (UINT64_C(1) << 24)

/* One call of tsr_norm_grad. */
typedef struct gradient {
    /* its operands are x, dy, dx if it is computed, and `added` if the kernel adds it; its bias is
     * unused */
    tsr__norm norm;
    tsr_tensor *dx, *dweight, *dbias;
    const tsr_tensor *added; /* another gradient, which is added to dx; or NULL */
    bool accumulate;
    bool dx_adds; /* norm_grad.comp adds `added` */
    /* the statistics of all rows: 1 / √(variance + ε) and the mean (shaders/params/norm.h) */
    tsr__buffer *stats;
    bool has_stats; /* they are those of tsr__norm_with_stats */
    /* scratch memory of the kernels that divide long rows into chunks; large enough
     * for any plane */
    tsr__buffer *parts;
    uint64_t parts_bytes;
    /* partial results of rows that are divided into segments, see tsr__norm_partials */
    tsr__buffer *partials;
    /* the number of chunks into which the rows are divided for the second step */
    uint64_t chunks;
    /* The matrices whose columns are added up for dweight and dbias. Usually they are f32 [chunks,
     * columns], one after the other in one scratch buffer. */
    tsr_tensor sums[2];
    /* sums[] are the products (TSR_NORM_PRODUCTS) and dy, which have a row for each row of x
     * instead of each chunk of rows */
    bool has_products;
    /* Each workgroup of one kernel for CPU drivers computes both sums over its rows, and sums[] has
     * a row for each workgroup. The choice does not depend on whether dx is computed, so the bits
     * of the sums do not either. */
    bool in_parts;
    bool dx_in_parts; /* if in_parts is set: the kernel also computes dx, and adds `added` */
    tsr__dispatches list;
} gradient;

static tsr_status check_outputs(const gradient *g)
{
    const char *op = g->norm.op;
    const tsr_tensor *x = g->norm.operand[0], *dy = g->norm.operand[1], *weight = g->norm.weight;
    tsr_tensor *outputs[] = {g->dx, g->dweight, g->dbias};
    static const char *const names[] = {"dx", "dweight", "dbias"};
    for (int i = 0; i < 3; i++) {
        if (!outputs[i])
            continue;
        TSR__TRY(tsr__require_disjoint(op, names[i], outputs[i], "x", x, i == 0));
        TSR__TRY(tsr__require_disjoint(op, names[i], outputs[i], "dy", dy, i == 0));
        if (weight)
            TSR__TRY(tsr__require_disjoint(op, names[i], outputs[i], "weight", weight, false));
        if (g->added)
            TSR__TRY(tsr__require_disjoint(op, names[i], outputs[i], "added", g->added, false));
        for (int j = 0; j < i; j++)
            if (outputs[j])
                TSR__TRY(
                    tsr__require_disjoint(op, names[i], outputs[i], names[j], outputs[j], false));
    }
    return TSR_OK;
}

static tsr_status check(const gradient *g, const tsr_stream *stream)
{
    const char *op = g->norm.op;
    const tsr_tensor *x = g->norm.operand[0], *dy = g->norm.operand[1];
    TSR__REQUIRE(g->dx || g->dweight || g->dbias, "%s: dx, dweight and dbias are all NULL", op);
    TSR__TRY(tsr__norm_check(&g->norm, stream));
    TSR__TRY(tsr__require_float(op, "dy", stream, dy));
    TSR__TRY(tsr__require_same_shape(op, "dy", dy, "x", x));
    if (g->dx) {
        TSR__TRY(tsr__require_float(op, "dx", stream, g->dx));
        TSR__TRY(tsr__require_same_shape(op, "dx", g->dx, "x", x));
    }
    if (g->added) {
        TSR__TRY(tsr__require_float(op, "added", stream, g->added));
        TSR__TRY(tsr__require_same_shape(op, "added", g->added, "x", x));
    }
    if (g->dweight)
        TSR__TRY(tsr__norm_check_vector(&g->norm, stream, "dweight", g->dweight));
    if (g->dbias)
        TSR__TRY(tsr__norm_check_vector(&g->norm, stream, "dbias", g->dbias));
    return check_outputs(g);
}

/* The largest number of rows in a plane. A dispatch of norm_columns.comp has one invocation for
 * each four columns of a chunk, and the number of invocations must fit in 32 bits. */
static uint64_t max_rows(const gradient *g)
{
    uint64_t across = tsr__norm_columns(&g->norm) / 4 + 1;
    return (INT32_MAX / across + 1) * TSR_NORM_CHUNK;
}

static uint64_t chunks_of(const tsr__norm_plane *plane)
{
    return tsr__div_up_u32(plane->rows, TSR_NORM_CHUNK);
}

static tsr_status add_columns(gradient *g, const tsr__norm_plane *plane, uint64_t chunk)
{
    const tsr_tensor *x = g->norm.operand[0], *dy = g->norm.operand[1];
    struct tsr_norm_columns_params params = {
        .x = plane->operand[0],
        .dy = plane->operand[1],
        .stats = tsr__norm_stats_address(plane, g->stats),
        .count = tsr__norm_columns(&g->norm),
        .rows = plane->rows,
        .inner = plane->inner,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_NORM_COLUMNS,
        .spec_count = 5,
        .spec = {WORKGROUP, tsr__norm_dtype(x), tsr__norm_dtype(dy), plane->form,
                 !x->buffer->device->traits.few_registers},
        .push = &params,
        .push_bytes = sizeof params,
        .access_count = 3,
        .access = {tsr__read_of(x), tsr__read_of(dy), tsr__read_buffer(g->stats)},
    };
    uint64_t *addresses[] = {&params.dweight, &params.dbias};
    tsr_tensor *outputs[] = {g->dweight, g->dbias};
    for (int i = 0; i < 2; i++)
        if (outputs[i]) {
            *addresses[i] = tsr__tensor_address(&g->sums[i]) + chunk * params.count * sizeof(float);
            dispatch.access[dispatch.access_count++] = tsr__write_of(&g->sums[i]);
        }
    tsr__groups_for(chunks_of(plane) * tsr__div_up_u32(params.count, 4), WORKGROUP,
                    dispatch.groups);
    return tsr__dispatches_add(&g->list, &dispatch);
}

static const tsr__cpu_kernels *cpu_of(const gradient *g)
{
    return g->norm.operand[0]->buffer->device->cpu;
}

static bool is_short(const gradient *g, const tsr__norm_plane *plane, uint32_t output)
{
    return tsr__norm_kernels_of(&g->norm, plane, output) == TSR__NORM_SHORT;
}

static bool in_chunks(const gradient *g, const tsr__norm_plane *plane, uint32_t output)
{
    return tsr__norm_kernels_of(&g->norm, plane, output) == TSR__NORM_CHUNKS;
}

static tsr_status add_dx(gradient *g, const tsr__norm_plane *plane)
{
    if (is_short(g, plane, TSR_NORM_GRADIENT))
        return cpu_of(g)->norm_short(&g->list, &g->norm, plane, TSR_NORM_GRADIENT, NULL);
    if (in_chunks(g, plane, TSR_NORM_GRADIENT))
        return cpu_of(g)->norm_chunks(&g->list, &g->norm, plane, TSR_NORM_GRADIENT, g->parts,
                                      g->stats, NULL);
    const tsr_tensor *x = g->norm.operand[0], *dy = g->norm.operand[1];
    struct tsr_norm_grad_params params = {
        .x = plane->operand[0],
        .dy = plane->operand[1],
        .dx = plane->operand[2],
        .stats = tsr__norm_stats_address(plane, g->stats),
        .count = tsr__norm_columns(&g->norm),
        .rows = plane->rows,
        .inner = plane->inner,
    };
    uint32_t threads = tsr__thread_group_for(x->buffer->device, plane->rows, params.count);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_NORM_GRAD,
        .spec_count = 9,
        .spec = {tsr__thread_group_workgroup(threads), threads, tsr__norm_dtype(x),
                 tsr__norm_dtype(dy), tsr__norm_dtype(g->dx), tsr__norm_dtype(g->norm.weight),
                 plane->form, g->norm.centred, g->dx_adds},
        .push = &params,
        .push_bytes = sizeof params,
        .access_count = 4,
        .access = {tsr__read_of(x), tsr__read_of(dy), tsr__write_of(g->dx),
                   tsr__read_buffer(g->stats)},
    };
    tsr__norm_vector(g->norm.weight, &params.weight, &params.weight_step, &dispatch);
    if (g->dx_adds) {
        params.added = plane->operand[3].at;
        dispatch.access[dispatch.access_count++] = tsr__read_of(g->added);
    }
    if (tsr__segments_chosen(x->buffer->device, &dispatch, plane->rows, params.count)) {
        params.partials = g->partials->address;
        return tsr__segments_add(&g->list, &dispatch, plane->rows, params.count, TSR_PHASE_SECOND,
                                 g->partials);
    }
    tsr__thread_group_hold(&dispatch, x->buffer->device, threads, params.count);
    tsr__groups_for(plane->rows, tsr__thread_group_workgroup(threads) / threads, dispatch.groups);
    return tsr__dispatches_add(&g->list, &dispatch);
}

/* True if kernels for Mesa's CPU driver should write the products dy · normalised x to scratch
 * memory, or sum them. The plane must contain all rows. */
static bool takes_products(const gradient *g, const tsr__norm_plane *plane)
{
    return (g->dweight || g->dbias) && plane->rows == (uint64_t)tsr__norm_rows(&g->norm) &&
           (uint64_t)plane->rows * tsr__norm_columns(&g->norm) <= MAX_PRODUCTS &&
           tsr__norm_kernels_of(&g->norm, plane, TSR_NORM_PRODUCTS) != TSR__NORM_GENERAL;
}

/* True if the kernel should be used whose workgroups sum the products over their rows. */
static bool takes_parts(const gradient *g, const tsr__norm_plane *plane)
{
    return is_short(g, plane, TSR_NORM_PRODUCTS) &&
           cpu_of(g)->norm_short_sums_suit(&g->norm, plane);
}

/* Returns which statistics of the plane's rows the later steps need: TSR_NORM_STATS,
 * TSR_NORM_GRADIENT, or TSR_NORM_RESULT, which means none. */
static uint32_t stats_needed(const gradient *g, const tsr__norm_plane *plane)
{
    const bool columns = (g->dweight || g->dbias) && !g->has_products;
    const bool products = g->dweight && g->has_products;

    if (g->dx && in_chunks(g, plane, TSR_NORM_GRADIENT))
        return TSR_NORM_GRADIENT;
    if (columns || (g->dx && !is_short(g, plane, TSR_NORM_GRADIENT)) ||
        (products && !is_short(g, plane, TSR_NORM_PRODUCTS)))
        return TSR_NORM_STATS;
    return TSR_NORM_RESULT;
}

static bool is_divided(const gradient *g, const tsr__norm_plane *plane)
{
    const uint32_t output = stats_needed(g, plane);

    return output != TSR_NORM_RESULT && in_chunks(g, plane, output);
}

static tsr_status add_stats(gradient *g, const tsr__norm_plane *plane)
{
    const uint32_t output = stats_needed(g, plane);

    if (output == TSR_NORM_RESULT || g->has_stats)
        return TSR_OK;
    if (is_divided(g, plane))
        return cpu_of(g)->norm_chunks_stats(&g->list, &g->norm, plane, output, g->parts, g->stats);
    return tsr__norm_stats_add(&g->list, &g->norm, plane, g->partials, g->stats);
}

static tsr_tensor matrix(tsr_dtype dtype, uint64_t offset, uint64_t rows, uint64_t columns,
                         uint64_t stride, tsr__buffer *buffer)
{
    return (tsr_tensor){.layout = {.dtype = dtype,
                                   .ndim = 2,
                                   .offset = (int64_t)offset,
                                   .shape = {(int64_t)rows, (int64_t)columns},
                                   .strides = {(int64_t)stride, 1}},
                        .buffer = buffer};
}

/* Requests scratch memory for the matrices sums[0] and sums[1], with `rows` rows each. Each matrix
 * is followed by unused memory of `room` times its size. */
static tsr_status prepare_sums(gradient *g, tsr_stream *stream, uint64_t rows, uint64_t room)
{
    const uint64_t columns = tsr__norm_columns(&g->norm), all = rows * (1 + room) * columns;
    tsr__buffer *sums;
    TSR__TRY(tsr__stream_scratch(stream, all * 2 * sizeof(float), &sums));
    for (uint64_t i = 0; i < 2; i++)
        g->sums[i] = matrix(TSR_F32, all * i, rows, columns, columns, sums);
    return TSR_OK;
}

static tsr_status prepare_products(gradient *g, const tsr__norm_plane *plane, tsr_stream *stream)
{
    if (g->in_parts)
        return prepare_sums(g, stream, cpu_of(g)->norm_short_partials(&g->norm, plane),
                            TSR__NORM_SHORT_PARTIALS_ROOM);
    const tsr_tensor *dy = g->norm.operand[1];
    const uint32_t columns = tsr__norm_columns(&g->norm);
    const uint64_t offset =
        (plane->operand[1].at - dy->buffer->address) / tsr_dtype_size(dy->layout.dtype);
    tsr__buffer *products;
    TSR__TRY(
        tsr__stream_scratch(stream, (uint64_t)plane->rows * columns * sizeof(float), &products));
    g->sums[0] = matrix(TSR_F32, 0, plane->rows, columns, columns, products);
    g->sums[1] = matrix(dy->layout.dtype, offset, plane->rows, columns,
                        plane->operand[1].strides[1], dy->buffer);
    return TSR_OK;
}

/* Requests all scratch memory. This must come first, because a stream provides it only before an
 * operation's first dispatch. */
static tsr_status prepare(gradient *g, tsr_stream *stream)
{
    uint64_t rows = (uint64_t)tsr__norm_rows(&g->norm), columns = tsr__norm_columns(&g->norm);
    uint64_t stats_bytes, elements, bytes;
    tsr__norm_planes planes;
    tsr__norm_plane plane = {0};
    tsr__norm_planes_init(&planes, &g->norm, max_rows(g));
    while (tsr__norm_planes_next(&planes, &plane)) {
        g->has_products = takes_products(g, &plane);
        g->in_parts = g->has_products && takes_parts(g, &plane);
        g->chunks += chunks_of(&plane);
        if (is_divided(g, &plane))
            g->parts_bytes =
                tsr__max_u64(g->parts_bytes, cpu_of(g)->norm_chunks_bytes(&g->norm, &plane));
    }
    if (!tsr__mul_u64(rows, TSR_NORM_STATS_BYTES, &stats_bytes) ||
        !tsr__mul_u64(g->chunks, columns, &elements) || !tsr__mul_u64(elements, 8, &bytes) ||
        stats_bytes > INT64_MAX || bytes > INT64_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: too many partial results", g->norm.op);
    if (!g->has_stats)
        TSR__TRY(tsr__stream_scratch(stream, stats_bytes, &g->stats));
    TSR__TRY(tsr__norm_partials(&g->norm, stream, max_rows(g), &g->partials));
    if (g->parts_bytes > 0)
        TSR__TRY(tsr__stream_scratch(stream, g->parts_bytes, &g->parts));
    if (g->has_products)
        return prepare_products(g, &plane, stream);
    if (!g->dweight && !g->dbias)
        return TSR_OK;
    return prepare_sums(g, stream, g->chunks, 0);
}

/* Returns the distance from dweight to dbias in elements, if one reduction can compute both as the
 * rows of a matrix; otherwise 0. */
static int64_t distance_of_outputs(const gradient *g)
{
    if (!g->dweight || !g->dbias || g->has_products || g->dweight->buffer != g->dbias->buffer)
        return 0;
    const tsr_layout *weight = &g->dweight->layout, *bias = &g->dbias->layout;
    const int64_t distance = bias->offset - weight->offset;
    return weight->dtype == TSR_F32 && bias->dtype == TSR_F32 && weight->strides[0] == 1 &&
                   bias->strides[0] == 1 && distance > 0 && distance < INT32_MAX
               ? distance
               : 0;
}

/* Adds up both matrices of sums, which follow each other in memory. */
static tsr_status add_both_sums(gradient *g, tsr_stream *stream, int64_t distance)
{
    const tsr_layout *sums = &g->sums[0].layout;
    const int64_t columns = sums->shape[1];
    tsr_tensor x = g->sums[0], y = *g->dweight;
    x.layout =
        (tsr_layout){.dtype = TSR_F32,
                     .ndim = 3,
                     .offset = sums->offset,
                     .shape = {sums->shape[0], 2, columns},
                     .strides = {sums->strides[0], g->sums[1].layout.offset - sums->offset, 1}};
    y.layout = (tsr_layout){.dtype = TSR_F32,
                            .ndim = 2,
                            .offset = g->dweight->layout.offset,
                            .shape = {2, columns},
                            .strides = {distance, 1}};
    return tsr__sum_columns_add(&g->list, stream, g->norm.op, &y, &x, g->accumulate);
}

static tsr_status add_sums(gradient *g, tsr_stream *stream)
{
    tsr_tensor *outputs[] = {g->dweight, g->dbias};
    const int64_t distance = distance_of_outputs(g);
    if (distance > 0)
        return add_both_sums(g, stream, distance);
    for (int i = 0; i < 2; i++)
        if (outputs[i])
            TSR__TRY(tsr__sum_columns_add(&g->list, stream, g->norm.op, outputs[i], &g->sums[i],
                                          g->accumulate));
    return TSR_OK;
}

/* Adds the dispatches that compute sums[] (products of each row, or sums over the rows of each
 * workgroup), and those that add up its columns. They must come before the dispatches for dx, which
 * may overwrite dy, unless they also compute dx. */
static tsr_status add_products(gradient *g, const tsr__norm_plane *plane, tsr_stream *stream)
{
    tsr__buffer *products = g->sums[0].buffer;
    if (g->in_parts)
        TSR__TRY(cpu_of(g)->norm_short_sums(&g->list, &g->norm, plane, g->dx_in_parts,
                                            g->dweight ? &g->sums[0] : NULL,
                                            g->dbias ? &g->sums[1] : NULL));
    else if (g->dweight)
        TSR__TRY(is_short(g, plane, TSR_NORM_PRODUCTS)
                     ? cpu_of(g)->norm_short(&g->list, &g->norm, plane, TSR_NORM_PRODUCTS, products)
                     : cpu_of(g)->norm_chunks(&g->list, &g->norm, plane, TSR_NORM_PRODUCTS, NULL,
                                              g->stats, products));
    return add_sums(g, stream);
}

/* False if the kernel that adds `added` has failed its self-test. */
static bool adds(const gradient *g)
{
    uint32_t spec[9] = {0};
    spec[2] = tsr__norm_dtype(g->norm.operand[0]);
    spec[8] = 1;
    return tsr__shader_admitted(g->dx->buffer->device, TSR__SHADER_NORM_GRAD, spec, 9);
}

/* True if norm_grad.comp can add `added`: its rows are then those of dx at another address. */
static bool can_add(const gradient *g)
{
    const tsr_layout *dx = &g->dx->layout, *added = &g->added->layout;
    return added->dtype == dx->dtype &&
           memcmp(added->strides, dx->strides, (size_t)dx->ndim * sizeof *dx->strides) == 0;
}

/* Sets g->dx_in_parts and g->dx_adds. If one of them is true, `added` becomes an operand of
 * g->norm.
 */
static void choose_dx_in_parts(gradient *g)
{
    tsr__norm_planes planes;
    tsr__norm_plane plane;
    if (!cpu_of(g)) {
        g->dx_adds = g->dx && g->added && can_add(g) && adds(g);
        if (g->dx_adds)
            g->norm.operand[g->norm.count++] = g->added;
        return;
    }
    if (!g->dx || g->dx->layout.dtype != TSR_F32)
        return;
    if (g->added)
        g->norm.operand[g->norm.count++] = g->added;
    tsr__norm_planes_init(&planes, &g->norm, max_rows(g));
    g->dx_in_parts = tsr__norm_planes_next(&planes, &plane) && takes_products(g, &plane) &&
                     takes_parts(g, &plane) && is_short(g, &plane, TSR_NORM_GRADIENT) &&
                     (!g->added || g->added->layout.dtype == TSR_F32);
    if (g->added && !g->dx_in_parts)
        g->norm.count--;
}

static tsr_status add_dispatches(gradient *g, tsr_stream *stream)
{
    tsr__norm_planes planes;
    tsr__norm_plane plane;
    uint64_t chunk = 0;
    choose_dx_in_parts(g);
    TSR__TRY(prepare(g, stream));
    const bool has_chunks = (g->dweight || g->dbias) && !g->has_products;
    tsr__norm_planes_init(&planes, &g->norm, max_rows(g));
    while (tsr__norm_planes_next(&planes, &plane)) {
        TSR__TRY(add_stats(g, &plane));
        if (g->has_products)
            TSR__TRY(add_products(g, &plane, stream));
        if (has_chunks)
            TSR__TRY(add_columns(g, &plane, chunk));
        if (g->dx && !g->dx_in_parts)
            TSR__TRY(add_dx(g, &plane));
        chunk += chunks_of(&plane);
    }
    return has_chunks ? add_sums(g, stream) : TSR_OK;
}

/* Sets the gradients to 0, which is their value if there are no rows. */
static tsr_status clear(tsr_stream *stream, void *work)
{
    const gradient *g = work;
    if (g->dweight && !g->accumulate)
        TSR__TRY(tsr_fill(stream, g->dweight, 0));
    return g->dbias && !g->accumulate ? tsr_fill(stream, g->dbias, 0) : TSR_OK;
}

static tsr_status run_gradient(gradient *g, tsr_stream *stream)
{
    g->norm.operand[2] = g->dx;
    g->norm.count = g->dx ? 3 : 2;
    g->added = g->dx ? g->added : NULL;
    TSR__TRY(check(g, stream));
    if (tsr__norm_columns(&g->norm) == 0)
        return TSR_OK;
    if (tsr__norm_rows(&g->norm) == 0)
        return tsr__stream_atomic(stream, clear, g);
    tsr_status status = add_dispatches(g, stream);
    if (status == TSR_OK)
        status = tsr__dispatches_record(&g->list, stream);
    tsr__dispatches_finish(&g->list);
    if (status == TSR_OK && g->added && !g->dx_in_parts && !g->dx_adds)
        status = tsr_binary(stream, g->dx, g->dx, g->added, TSR_BINARY_ADD);
    return status;
}

tsr_status tsr__norm_grad_added(tsr_stream *stream, tsr_tensor *dx, tsr_tensor *dweight,
                                tsr_tensor *dbias, const tsr_tensor *x, const tsr_tensor *dy,
                                const tsr_tensor *weight, const tsr_tensor *added,
                                const tsr_tensor *stats, tsr_norm_kind kind, float epsilon,
                                bool accumulate)
{
    /* Rows of contiguous tensors have the numbers that they had in the forward pass. */
    const bool saved = stats && x && dy && tsr_layout_is_contiguous(&x->layout) &&
                       tsr_layout_is_contiguous(&dy->layout) &&
                       (!dx || tsr_layout_is_contiguous(&dx->layout));
    TSR__TRY(tsr__norm_check_kind("norm_grad", kind, "dbias", dbias));
    return run_gradient(
        &(gradient){.norm = {.op = kind == TSR_NORM_RMS ? "rms_norm_grad" : "layer_norm_grad",
                             .centred = kind == TSR_NORM_LAYER,
                             .epsilon = epsilon,
                             .weight = weight,
                             .operand = {x, dy}},
                    .dx = dx,
                    .dweight = dweight,
                    .dbias = dbias,
                    .added = added,
                    .stats = saved ? stats->buffer : NULL,
                    .has_stats = saved,
                    .accumulate = accumulate},
        stream);
}

tsr_status tsr_norm_grad(tsr_stream *stream, tsr_tensor *dx, tsr_tensor *dweight, tsr_tensor *dbias,
                         const tsr_tensor *x, const tsr_tensor *dy, const tsr_tensor *weight,
                         tsr_norm_kind kind, float epsilon, bool accumulate)
{
    return tsr__norm_grad_added(stream, dx, dweight, dbias, x, dy, weight, NULL, NULL, kind,
                                epsilon, accumulate);
}
