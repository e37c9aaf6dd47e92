/* Reductions along one dimension, and argmax.
 *
 * A long row is divided into chunks of a fixed length. Each chunk is reduced to one value in
 * scratch memory. The values of a row form a shorter row, which is divided again if it is long. A
 * chunk is reduced as a tree (shaders/include/reduce.glsl). Therefore the order of additions
 * depends only on the shape, and not on strides, on the kernels that run, or on the device.
 *
 * On GPUs, if a row has few chunks, one workgroup reduces all of them and then their values. This
 * needs neither scratch memory nor a second dispatch. */
#include "gpu/ops/reduce/reduce.h"

#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/memory/tensor.h"
#include "shaders/params/reduce.h"
#include "tensor/check.h"
#include "tessera/ops.h"

#include "base/checked.h"

#define WORKGROUP 64
#define LONG_CHUNK 1024 /* fewer passes (dispatches one after the other) than with short chunks */
#define SHORT_CHUNK 256 /* more work at the same time than with long chunks, for few rows */
#define ENOUGH_JOBS 4096
#define SHORT_ROW 32 /* rows of up to this length are reduced by one invocation each */
/* The following numbers are for GPUs. */
#define AHEAD_OF_LONG 256   /* rows of at least this length are reduced with more loads in flight */
#define LARGE_WORKGROUP 256 /* the largest workgroup in reductions of columns */
/* the least number of groups of four neighbouring columns in a workgroup */
#define LEAST_COLUMNS 4u
/* this many invocations keep a processor of a GPU busy if each has 8 loads of 16 bytes in flight */
#define INVOCATIONS_WANTED 256u
#define PASSES_MAX 8 /* enough for 2^63 elements if each pass divides the length by 256 */

/* One call: its dispatches, and what they have in common. */
typedef struct pass_list {
    tsr_stream *stream;
    uint32_t kind; /* TSR_REDUCE_KIND_… */
    float scale;
    bool accumulate;
    tsr__buffer *scratch;
    /* the range of scratch memory for reduce_columns of device->cpu */
    uint64_t slices_offset, slices_bytes;
    tsr__dispatches *list;
} pass_list;

static bool is_argmax(const pass_list *r)
{
    return r->kind == TSR_REDUCE_KIND_ARGMAX;
}

/* The input or output of a dispatch: a tensor, or partial results in scratch memory. */
typedef struct place {
    tsr_layout layout; /* the layout without the reduced dimension */
    uint64_t address;  /* the device address from which the layout's offset counts */
    tsr__access access;
    /* size and stride, in elements, of the reduced dimension; for inputs only */
    int64_t count, step;
    bool partial;
} place;

/* The length of a chunk. It depends on the shape only, because it determines the order of
 * additions. */
static int64_t chunk_length(int64_t rows, int64_t count)
{
    int64_t chunks = count / LONG_CHUNK + 1;
    return rows >= ENOUGH_JOBS / chunks ? LONG_CHUNK : SHORT_CHUNK;
}

/* Returns TSR_ROW_DENSE4 or TSR_ROW_ALIGNED4 (shaders/params/rows.h) if a kernel can load four
 * neighbouring columns of x at once, and otherwise TSR_ROW_STRIDED. The innermost dimension of x
 * must be contiguous, and every group of four must start at a multiple of 4 bytes. */
static uint32_t columns_form(const tsr__piece *piece, const place *x, uint64_t address)
{
    uint64_t size = tsr_dtype_size(x->layout.dtype);
    int inner = piece->ndim - 1;
    if (x->count <= SHORT_ROW || x->step == 1 || piece->strides[0][inner] != 1 ||
        piece->shape[inner] < 4)
        return TSR_ROW_STRIDED;
    uint64_t misaligned = address | (uint64_t)x->step * size;
    /* the last group of four overlaps the one before it, so that it ends with the last column */
    if (piece->shape[inner] % 4 != 0)
        misaligned |= piece->shape[inner] * size;
    for (int d = 0; d < inner; d++)
        misaligned |= piece->strides[0][d] * size;
    if (misaligned % (4 * size) == 0 && !x->access.buffer->device->traits.narrow_accesses)
        return TSR_ROW_ALIGNED4;
    return misaligned % 4 == 0 ? TSR_ROW_DENSE4 : TSR_ROW_STRIDED;
}

/* The number of invocations that together reduce one chunk, of `count` elements in each column, of
 * four neighbouring columns. `groups` is the number of groups of four columns, times the number of
 * their chunks. */
static uint32_t column_threads(const tsr_device *device, uint64_t groups, int64_t count)
{
    const uint64_t enough = (uint64_t)tsr__processors(device) * INVOCATIONS_WANTED;
    uint32_t threads = 4;

    if (device->traits.few_invocations)
        return threads;
    /* Double the number as long as there are too few invocations to keep the GPU busy, and each
     * would still have at least 8 loads, as many as it has in flight. */
    while (threads < 32 && threads * groups < enough && 16 * (int64_t)threads <= count)
        threads *= 2;
    return threads;
}

static uint32_t column_workgroup(const tsr_device *device, uint32_t threads)
{
    const uint32_t wanted = 16 * threads < LARGE_WORKGROUP ? 16 * threads : LARGE_WORKGROUP;

    return tsr__min_u32(wanted, device->info.max_workgroup_invocations);
}

/* True if one workgroup should reduce all chunks of a row of x, and then their values. Rows that
 * are not contiguous may be reduced as columns; all chunks of LEAST_COLUMNS groups of four columns
 * must then fit in a workgroup. */
static bool reduces_chunks(const pass_list *r, const place *x, int64_t chunk)
{
    const tsr_device *device = x->access.buffer->device;
    const int64_t rows = tsr_layout_count(&x->layout);
    const int64_t chunks = x->count / chunk + (x->count % chunk != 0);
    uint32_t threads;

    if (device->traits.few_invocations || is_argmax(r) || chunks > SHORT_ROW ||
        8 * tsr__pow2_above((uint32_t)chunks) > device->info.max_workgroup_invocations)
        return false;
    if (x->step == 1)
        return true;
    threads = column_threads(device, (uint64_t)(rows / 4 * chunks), chunk);
    return chunks <= 4 && threads * tsr__pow2_above((uint32_t)chunks) * LEAST_COLUMNS <=
                              column_workgroup(device, threads);
}

static void choose_argmax(tsr__dispatch *dispatch, const struct tsr_reduce_params *params,
                          const place *x, const place *y, uint32_t form)
{
    const tsr_device *device = x->access.buffer->device;
    /* True if neighbouring invocations read neighbouring elements of a row; otherwise they read the
     * same element of neighbouring rows. */
    bool together = x->step == 1 || params->jobs < ENOUGH_JOBS;
    bool alone = x->count <= SHORT_ROW || !together || tsr__rows_alone(device, params->jobs);
    uint32_t threads = alone ? 1 : 8;
    dispatch->shader = TSR__SHADER_ARGMAX;
    dispatch->spec_count = 6;
    dispatch->spec[0] = WORKGROUP;
    dispatch->spec[1] = x->partial ? TSR_F32 : (uint32_t)x->layout.dtype;
    dispatch->spec[2] = threads;
    dispatch->spec[3] = form;
    dispatch->spec[4] = x->partial ? TSR_ARGMAX_PAIRS : TSR_ARGMAX_VALUES;
    dispatch->spec[5] = y->partial ? TSR_ARGMAX_PAIRS : TSR_ARGMAX_INDICES;
    tsr__groups_for(params->jobs, WORKGROUP / threads, dispatch->groups);
}

/* Chooses the kernel that reduces rows of x whose elements are columns in memory. `columns` is what
 * columns_form() returned. The rows are divided into chunks of params->unit elements if this is
 * more than 1. */
static void choose_columns(tsr__dispatch *dispatch, struct tsr_reduce_params *params,
                           const place *x, uint32_t columns)
{
    const tsr_device *device = x->access.buffer->device;
    const uint32_t inner = params->shape[params->ndim - 1];
    const uint32_t length = params->unit > 1 ? params->unit : params->count;
    const uint32_t chunks = tsr__div_up_u32(params->count, length);
    const uint32_t slots = tsr__pow2_above(chunks);

    params->jobs = params->jobs / inner * tsr__div_up_u32(inner, 4);
    uint32_t threads = column_threads(device, (uint64_t)params->jobs * chunks, length);
    while (threads > 4 && threads * slots * LEAST_COLUMNS > column_workgroup(device, threads))
        threads /= 2;
    const uint32_t workgroup = column_workgroup(device, threads);
    dispatch->shader = TSR__SHADER_REDUCE_COLUMNS;
    dispatch->spec_count = 7;
    dispatch->spec[0] = workgroup;
    dispatch->spec[4] = threads;
    dispatch->spec[5] = slots;
    dispatch->spec[6] = columns;
    tsr__groups_for(params->jobs, workgroup / (threads * slots), dispatch->groups);
}

static void choose_rows(tsr__dispatch *dispatch, const struct tsr_reduce_params *params,
                        const place *x, uint32_t form)
{
    const tsr_device *device = x->access.buffer->device;
    const uint32_t length = params->unit > 1 ? params->unit : params->count;
    const uint32_t slots = tsr__pow2_above(tsr__div_up_u32(params->count, length));
    const uint32_t threads = tsr__rows_alone(device, params->jobs) ? 1 : 8;
    const uint32_t workgroup = threads * slots > WORKGROUP ? threads * slots : WORKGROUP;
    const bool many = !device->traits.few_registers && length >= AHEAD_OF_LONG;

    dispatch->shader = TSR__SHADER_REDUCE_ROWS;
    dispatch->spec_count = 8;
    dispatch->spec[0] = workgroup;
    dispatch->spec[4] = form;
    dispatch->spec[5] = threads;
    dispatch->spec[6] = threads == 1 || many ? 8 : 4;
    dispatch->spec[7] = slots;
    tsr__groups_for(params->jobs, workgroup / (threads * slots), dispatch->groups);
}

static void choose_reduce(tsr__dispatch *dispatch, struct tsr_reduce_params *params,
                          const pass_list *r, const place *x, const place *y, uint32_t form,
                          uint32_t columns)
{
    dispatch->spec[0] = WORKGROUP;
    dispatch->spec[1] = (uint32_t)x->layout.dtype;
    dispatch->spec[2] = (uint32_t)y->layout.dtype;
    dispatch->spec[3] = r->kind;
    if (columns >= TSR_ROW_DENSE4) {
        choose_columns(dispatch, params, x, columns);
    } else if (x->count > SHORT_ROW) {
        choose_rows(dispatch, params, x, form);
    } else {
        dispatch->shader = TSR__SHADER_REDUCE_SHORT;
        dispatch->spec_count = 6;
        dispatch->spec[4] = form;
        /* the constant QUADS of reduce_short.comp: how many groups of four elements cover a row */
        dispatch->spec[5] = x->count <= 4 ? 1 : x->count <= 16 ? 4 : 8;
        tsr__groups_for(params->jobs, WORKGROUP, dispatch->groups);
    }
}

static tsr_status add_pass(pass_list *r, const place *x, const place *y, uint32_t unit);

/* Adds the dispatches of reduce_columns of device->cpu, which divides each column into
 * TSR__REDUCTION_SLICES slices and reduces each to one value, and then the pass that reduces
 * the values of each column. */
static tsr_status add_columns(pass_list *r, const tsr__reduction *own, const place *y)
{
    const struct tsr_reduce_params *params = own->params;
    uint64_t bytes = (uint64_t)params->jobs * TSR__REDUCTION_SLICES * sizeof(float);
    place partial = {
        .layout = {.dtype = TSR_F32, .ndim = (int)params->ndim},
        .address = r->scratch->address + r->slices_offset,
        .access = {r->scratch, r->slices_offset, r->slices_offset + bytes, false},
        .count = TSR__REDUCTION_SLICES,
        .step = params->jobs,
    };
    place out = *y;

    out.layout.ndim = (int)params->ndim;
    out.layout.offset = (int64_t)((params->y - y->address) / tsr_dtype_size(y->layout.dtype));
    for (int d = (int)params->ndim - 1, stride = 1; d >= 0; d--) {
        partial.layout.shape[d] = out.layout.shape[d] = params->shape[d];
        partial.layout.strides[d] = stride;
        out.layout.strides[d] = params->y_strides[d];
        stride *= (int)params->shape[d];
    }
    TSR__TRY(own->device->cpu->reduce_columns(r->list, own, partial.address, partial.access));
    return add_pass(r, &partial, &out, 1);
}

/* Adds the dispatches that reduce rows of x, of x->count elements each, to the elements of y. For
 * argmax, `unit` is how many elements of the tensor each element of x represents: 1, or more if x
 * has partial results. For other reductions, `unit` is the length of the chunks into which the
 * kernel itself divides rows, or 1 if it does not. */
static tsr_status add_pass(pass_list *r, const place *x, const place *y, uint32_t unit)
{
    const tsr_layout *layouts[2] = {&x->layout, &y->layout};
    uint64_t x_size = tsr_dtype_size(x->layout.dtype);
    uint64_t y_size = tsr_dtype_size(y->layout.dtype);
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, 2, layouts, 0);
    while (tsr__pieces_next(&walk, &piece)) {
        struct tsr_reduce_params params = {
            .x = x->address + (uint64_t)piece.offset[0] * x_size,
            .y = y->address + (uint64_t)piece.offset[1] * y_size,
            .step = (uint64_t)x->step * x_size,
            .count = (uint32_t)x->count,
            .jobs = piece.count,
            .ndim = (uint32_t)piece.ndim,
            .accumulate = !y->partial && r->accumulate,
            .scale = y->partial ? 1.0f : r->scale,
            .unit = unit,
        };
        for (int d = 0; d < piece.ndim; d++) {
            params.shape[d] = piece.shape[d];
            params.x_strides[d] = piece.strides[0][d];
            params.y_strides[d] = piece.strides[1][d];
        }
        tsr__dispatch dispatch = {
            .push = &params,
            .push_bytes = sizeof params,
            .access_count = 2,
            .access = {x->access, y->access},
        };
        dispatch.access[1].write = true;
        tsr__reduction own = {.device = x->access.buffer->device,
                              .kind = r->kind,
                              .x_dtype = x->layout.dtype,
                              .y_dtype = y->layout.dtype,
                              .params = &params,
                              .x = dispatch.access[0],
                              .y = dispatch.access[1]};
        const tsr__cpu_kernels *cpu = own.device->cpu;
        if (cpu && cpu->reduce_rows_suit(&own)) {
            TSR__TRY(cpu->reduce_rows(r->list, &own));
            continue;
        }
        if (cpu && cpu->reduce_columns_suit(&own) &&
            params.jobs <= r->slices_bytes / (TSR__REDUCTION_SLICES * sizeof(float))) {
            TSR__TRY(add_columns(r, &own, y));
            continue;
        }
        uint32_t form =
            tsr__row_form(own.device, &piece, 0, x->layout.dtype, params.x, x->step, x->count);
        if (is_argmax(r))
            choose_argmax(&dispatch, &params, x, y, form);
        else
            choose_reduce(&dispatch, &params, r, x, y, form, columns_form(&piece, x, params.x));
        TSR__TRY(tsr__dispatches_add(r->list, &dispatch));
    }
    return TSR_OK;
}

/* Describes the partial results of `chunks` chunks of each row, from chunk number `first` on. The
 * partial results of all chunks are row-major [chunks, rows…] and begin at `offset_bytes` in the
 * scratch buffer. */
static place partials(const pass_list *r, const tsr_layout *rows, tsr__buffer *scratch,
                      uint64_t offset_bytes, int64_t first, int64_t chunks)
{
    place at = {.layout = {.dtype = is_argmax(r) ? TSR_I64 : TSR_F32, .ndim = rows->ndim + 1},
                .partial = true};
    int64_t stride = 1;
    for (int d = rows->ndim; d > 0; d--) {
        at.layout.shape[d] = rows->shape[d - 1];
        at.layout.strides[d] = stride;
        stride *= rows->shape[d - 1];
    }
    at.layout.shape[0] = chunks;
    at.layout.strides[0] = stride;
    uint64_t size = tsr_dtype_size(at.layout.dtype);
    uint64_t begin = offset_bytes + (uint64_t)(first * stride) * size;
    at.address = scratch->address + begin;
    at.access = (tsr__access){scratch, begin, begin + (uint64_t)(chunks * stride) * size, false};
    return at;
}

/* Describes x as if each chunk of a row were a row of its own: [chunks, rows…]. */
static place chunks_of(const place *x, int64_t chunk, int64_t first, int64_t chunks, int64_t count)
{
    place cut = *x;
    cut.layout.ndim++;
    for (int d = x->layout.ndim; d > 0; d--) {
        cut.layout.shape[d] = x->layout.shape[d - 1];
        cut.layout.strides[d] = x->layout.strides[d - 1];
    }
    cut.layout.shape[0] = chunks;
    cut.layout.strides[0] = chunk * x->step;
    cut.layout.offset += first * chunk * x->step;
    cut.count = count;
    return cut;
}

/* Adds the dispatches that reduce x's chunks to partial results: first the complete chunks, then
 * the last one if it is shorter. Afterwards *x describes the partial results. */
static tsr_status add_partial_pass(pass_list *r, place *x, int64_t chunk, tsr__buffer *scratch,
                                   uint64_t offset_bytes, uint32_t unit)
{
    int64_t whole = x->count / chunk, rest = x->count % chunk;
    const tsr_layout *rows = &x->layout;
    place from = chunks_of(x, chunk, 0, whole, chunk);
    place to = partials(r, rows, scratch, offset_bytes, 0, whole);
    TSR__TRY(add_pass(r, &from, &to, unit));
    if (rest > 0) {
        from = chunks_of(x, chunk, whole, 1, rest);
        to = partials(r, rows, scratch, offset_bytes, whole, 1);
        TSR__TRY(add_pass(r, &from, &to, unit));
    }

    place all = partials(r, rows, scratch, offset_bytes, 0, whole + (rest > 0));
    all.count = all.layout.shape[0];
    all.step = all.layout.strides[0];
    all.layout = tsr__layout_without(&all.layout, 0);
    *x = all;
    return TSR_OK;
}

/* Plans the passes that write partial results: each pass reduces the chunks of all rows to one
 * value each, until a row is one chunk. Writes the length of each pass's chunks, the number of
 * passes, and the size in bytes of all partial results together. */
static tsr_status plan_passes(const char *op, int64_t rows, int64_t count, uint64_t size,
                              int64_t *chunks, int *passes, uint64_t *scratch_bytes)
{
    *passes = 0;
    *scratch_bytes = 0;
    for (int64_t chunk; chunk = chunk_length(rows, count), count > chunk;) {
        uint64_t elements, bytes;
        count = count / chunk + (count % chunk != 0);
        chunks[(*passes)++] = chunk;
        if (!tsr__mul_u64((uint64_t)rows, (uint64_t)count, &elements) ||
            !tsr__mul_u64(elements, size, &bytes) || bytes > INT64_MAX / 2)
            return tsr__fail(TSR_ERR_OVERFLOW, "%s: too many partial results", op);
        *scratch_bytes += tsr__align_up_u64(bytes, 256);
    }
    return TSR_OK;
}

static tsr_status add_passes(pass_list *r, const char *op, place *x, const place *y)
{
    int64_t chunks[PASSES_MAX];
    int passes;
    uint64_t scratch_bytes, size = is_argmax(r) ? 8 : 4;
    int64_t rows = tsr_layout_count(&x->layout);
    TSR__TRY(plan_passes(op, rows, x->count, size, chunks, &passes, &scratch_bytes));
    if (passes == 1 && reduces_chunks(r, x, chunks[0]))
        return add_pass(r, x, y, (uint32_t)chunks[0]);
    r->slices_offset = scratch_bytes;
    const tsr_device *device = x->access.buffer->device;
    r->slices_bytes = is_argmax(r) || !device->cpu
                          ? 0
                          : device->cpu->reduce_columns_bytes(device, rows, x->count,
                                                              passes > 0 ? chunks[0] : x->count);
    if (scratch_bytes + r->slices_bytes > 0)
        TSR__TRY(tsr__stream_scratch(r->stream, scratch_bytes + r->slices_bytes, &r->scratch));
    uint64_t offset_bytes = 0;
    uint32_t unit = 1;
    for (int i = 0; i < passes; i++) {
        TSR__TRY(add_partial_pass(r, x, chunks[i], r->scratch, offset_bytes, unit));
        offset_bytes += tsr__align_up_u64((uint64_t)(rows * x->count) * size, 256);
        unit *= is_argmax(r) ? (uint32_t)chunks[i] : 1;
    }
    return add_pass(r, x, y, unit);
}

static tsr_status add_reduction(pass_list *r, const char *op, tsr_tensor *y,
                                const tsr_layout *y_rows, const tsr_tensor *x, int dim)
{
    place from = {
        .layout = tsr__layout_without(&x->layout, dim),
        .address = x->buffer->address,
        .access = tsr__read_of(x),
        .count = x->layout.shape[dim],
        .step = x->layout.strides[dim],
    };
    place to = {
        .layout = *y_rows,
        .address = y->buffer->address,
        .access = tsr__write_of(y),
    };
    if (tsr_layout_count(&to.layout) == 0)
        return TSR_OK;
    return add_passes(r, op, &from, &to);
}

static tsr_status run_reduction(pass_list *r, const char *op, tsr_tensor *y,
                                const tsr_layout *y_rows, const tsr_tensor *x, int dim)
{
    tsr__dispatches list = {0};
    r->list = &list;
    tsr_status status = add_reduction(r, op, y, y_rows, x, dim);
    if (status == TSR_OK)
        status = tsr__dispatches_record(&list, r->stream);
    tsr__dispatches_finish(&list);
    return status;
}

/* The reduction of rows of one element: copies x to y, or adds it to y if `accumulate` is set. */
static tsr_status take_single(tsr_stream *stream, const tsr_tensor *y, const tsr_layout *y_rows,
                              const tsr_tensor *x, int dim, bool accumulate)
{
    const tsr_layout x_rows = tsr__layout_without(&x->layout, dim);
    const tsr_tensor from = tsr__tensor_alias(x, &x_rows);
    tsr_tensor to = tsr__tensor_alias(y, y_rows);
    return accumulate ? tsr_axpy(stream, &to, 1, &from) : tsr_copy(stream, &to, &from);
}

tsr_status tsr__sum_columns_add(tsr__dispatches *list, tsr_stream *stream, const char *op,
                                tsr_tensor *y, const tsr_tensor *x, bool accumulate)
{
    pass_list r = {
        .stream = stream,
        .kind = TSR_REDUCE_KIND_SUM,
        .scale = 1.0f,
        .accumulate = accumulate,
        .list = list,
    };
    return add_reduction(&r, op, y, &y->layout, x, 0);
}

tsr_status tsr_reduce(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, int dim,
                      tsr_reduction reduction, bool accumulate)
{
    TSR__TRY(tsr__require_float("reduce", "y", stream, y));
    TSR__TRY(tsr__require_float("reduce", "x", stream, x));
    TSR__REQUIRE(reduction >= TSR_REDUCE_SUM && reduction <= TSR_REDUCE_MIN,
                 "reduce: unknown reduction %d", (int)reduction);
    bool sums = reduction == TSR_REDUCE_SUM || reduction == TSR_REDUCE_MEAN;
    TSR__REQUIRE(sums || !accumulate, "reduce: accumulate is not supported for %s",
                 reduction == TSR_REDUCE_MAX ? "max" : "min");
    TSR__TRY(tsr__require_dim("reduce", x, dim, &dim));
    tsr_layout rows;
    TSR__TRY(tsr__require_reduced("reduce", y, x, dim, &rows));
    int64_t count = x->layout.shape[dim];
    TSR__REQUIRE(count > 0 || reduction == TSR_REDUCE_SUM,
                 "reduce: dim %d of x %s has no elements to take the %s of", dim,
                 TSR__SHAPE(x->layout.ndim, x->layout.shape),
                 reduction == TSR_REDUCE_MEAN  ? "mean"
                 : reduction == TSR_REDUCE_MAX ? "max"
                                               : "min");
    TSR__TRY(tsr__require_disjoint("reduce", "y", y, "x", x, false));
    if (count == 0)
        return accumulate ? TSR_OK : tsr_fill(stream, y, 0);
    if (count == 1)
        return take_single(stream, y, &rows, x, dim, accumulate);

    pass_list r = {
        .stream = stream,
        .kind = sums                          ? TSR_REDUCE_KIND_SUM
                : reduction == TSR_REDUCE_MAX ? TSR_REDUCE_KIND_MAX
                                              : TSR_REDUCE_KIND_MIN,
        .scale = reduction == TSR_REDUCE_MEAN ? (float)(1.0 / (double)count) : 1.0f,
        .accumulate = accumulate,
    };
    return run_reduction(&r, "reduce", y, &rows, x, dim);
}

tsr_status tsr_argmax(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, int dim)
{
    TSR__TRY(tsr__require_tensor("argmax", "y", stream, y));
    TSR__REQUIRE(y->layout.dtype == TSR_I32, "argmax: y is %s; indices are i32",
                 tsr_dtype_name(y->layout.dtype));
    TSR__TRY(tsr__require_float("argmax", "x", stream, x));
    TSR__TRY(tsr__require_dim("argmax", x, dim, &dim));
    tsr_layout rows;
    TSR__TRY(tsr__require_reduced("argmax", y, x, dim, &rows));
    int64_t count = x->layout.shape[dim];
    TSR__REQUIRE(count > 0, "argmax: dim %d of x %s has no elements", dim,
                 TSR__SHAPE(x->layout.ndim, x->layout.shape));
    TSR__REQUIRE(count <= INT32_MAX, "argmax: dim %d of x has %lld elements; i32 indices reach %d",
                 dim, (long long)count, (int)INT32_MAX);
    TSR__TRY(tsr__require_disjoint("argmax", "y", y, "x", x, false));
    if (count == 1)
        return tsr_fill(stream, y, 0);

    pass_list r = {.stream = stream, .kind = TSR_REDUCE_KIND_ARGMAX};
    return run_reduction(&r, "argmax", y, &rows, x, dim);
}
