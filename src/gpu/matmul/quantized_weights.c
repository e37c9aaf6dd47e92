#include "gpu/matmul/quantized_weights.h"

#include "base/checked.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/device/vendors.h"
#include "gpu/matmul/common/problem.h"
#include "gpu/matmul/kernels/kernels.h"
#include "gpu/matmul/plan.h"
#include "gpu/quant/dequantize.h"
#include "quant/block_format.h"
#include "shaders/params/matmul.h"
#include "tensor/check.h"

tsr_status tsr__matmul_check_quant(const tsr_tensor *b, const tsr_matmul_params *params)
{
    const tsr_layout *l = &b->layout;
    TSR__REQUIRE(l->ndim == 2 && params && params->transpose_b,
                 "matmul: b is %s %s; in a block format, b must be [n,k] with transpose_b",
                 tsr_dtype_name(l->dtype), TSR__SHAPE(l->ndim, l->shape));
    return TSR_OK;
}

/* Few rows ------------------------------------------------------------------------------------- */

enum { THREADS = 64, MAX_ROWS = 8 };

/* True unless the kernel has failed its self-test. */
static bool admitted(tsr__shader shader, const tsr_tensor *b, const tsr__matmul_problem *p)
{
    uint32_t spec[TSR_QUANT_SPECS + 4] = {0};
    tsr__quant_describe(b->layout.dtype, spec);
    spec[TSR_QUANT_SPECS + 3] = (uint32_t)p->a.dtype;
    return tsr__shader_admitted(b->buffer->device, shader, spec, TSR_QUANT_SPECS + 4);
}

/* True if the kernel for few rows should compute the product. On SwiftShader, compiling it would
 * take seconds. */
static bool suits_few(const tsr_tensor *b, const tsr__matmul_problem *p)
{
    return !b->buffer->device->traits.slow_decoding && !p->swapped && p->batch_dims == 0 &&
           p->m <= MAX_ROWS && tsr__matmul_y_narrow(p, MAX_ROWS, 4) &&
           tsr__matmul_side_narrow(&p->a, p->m, p->k) &&
           tsr__dtype_bytes(b->layout.dtype, (uint64_t)b->layout.strides[0]) <= UINT32_MAX &&
           admitted(TSR__SHADER_MATMUL_QUANT, b, p);
}

/* Kernels for one or two long rows, whose invocations multiply 32 elements of a column at once: a
 * block or a chunk of a large one. */
enum {
    BLOCKS_ROWS = 2,
    CHUNK = 32,
    CHUNKS_MIN = 32, /* the smallest number of chunks in a row */
    MAX_COLUMNS = 8, /* the largest number of columns that a workgroup computes */
    BLOCKS_MAX_SHARED =
        32 * 1024, /* the most bytes of shared memory, so that another workgroup has room */
};

/* How b's blocks come into shared memory: STAGED of matmul_blocks.glsl or matmul_quant.comp. CPU
 * drivers, whose invocations do not load together, gain nothing by that. */
static uint32_t staging_of(const tsr__matmul_call *call, tsr__shader shader)
{
    const tsr_layout *l = &call->b->layout;
    const uint64_t row = tsr__dtype_bytes(l->dtype, (uint64_t)l->shape[1]);
    const uint64_t stride = tsr__dtype_bytes(l->dtype, (uint64_t)l->strides[0]);
    const tsr__quant_large large = tsr__quant_large_planes(l->dtype);

    if (tsr_stream_device(call->stream)->traits.few_invocations)
        return 0;
    if (shader == TSR__SHADER_MATMUL_QUANT)
        return 1;
    if (large == TSR__QUANT_VECTORS)
        return 0;
    return (row | stride | tsr__tensor_address(call->b)) % 16 == 0 ? 1
           : large == TSR__QUANT_STAGED                            ? 2
                                                                   : 0;
}

/* The number of invocations of a workgroup: if possible one for each chunk of a row, and otherwise
 * a number for which the last pass over a row occupies about as many as the other passes. 0: the
 * device has too little shared memory. */
static uint32_t threads_for(const tsr__matmul_call *call, tsr__shader shader, uint32_t rows,
                            uint32_t columns)
{
    const tsr_device *device = tsr_stream_device(call->stream);
    const tsr_dtype format = call->b->layout.dtype;
    const bool large = tsr__quant_large_planes(format) != TSR__QUANT_NOT_LARGE;
    const int64_t chunks = call->problem->k / CHUNK;
    const uint32_t staging = staging_of(call, shader),
                   block = large ? 8 : 1; /* chunks of a block */
    const uint32_t bytes = (uint32_t)tsr__dtype_bytes(format, (uint64_t)block * CHUNK);
    const uint32_t staged = staging ? tsr__div_up_u32(columns * bytes, block) : 0;
    const uint32_t spare = staging == 2 ? columns * 16 : 0;
    const uint32_t unit = large || device->info.subgroup_size > 32 ? 64 : 32;
    const uint32_t shared = tsr__min_u32(device->info.max_shared_memory_bytes, BLOCKS_MAX_SHARED);
    const uint32_t each_shared = rows * (9 * 16 + 4 * (columns + 1)) + staged;
    const uint32_t most =
        tsr__min_u32((shared - spare) / each_shared, device->info.max_workgroup_invocations) /
        unit * unit;
    if (most == 0)
        return 0;
    const uint64_t passes = tsr__div_up_u64((uint64_t)chunks, most);
    const uint64_t each = tsr__div_up_u64((uint64_t)chunks, passes);
    return (uint32_t)tsr__div_up_u64(each, unit) * unit;
}

/* True if the kernel can load b's blocks. CPU drivers have other kernels for large blocks. */
static bool loads_blocks(const tsr__matmul_call *call)
{
    const tsr_layout *l = &call->b->layout;
    const uint64_t stride = tsr__dtype_bytes(l->dtype, (uint64_t)l->strides[0]);

    switch (tsr__quant_large_planes(l->dtype)) {
    case TSR__QUANT_VECTORS:
        return !tsr_stream_device(call->stream)->traits.few_invocations &&
               (stride | tsr__tensor_address(call->b)) % 16 == 0;
    case TSR__QUANT_STAGED:
        return !tsr_stream_device(call->stream)->traits.few_invocations;
    case TSR__QUANT_NOT_LARGE:
        break;
    }
    return tsr__quant_is_scaled_words(l->dtype);
}

/* The number of rows of b that a workgroup multiplies. Rounding a row of a to 8 bits takes as long
 * as multiplying it by two of them, so the kernel of integers takes eight, if registers have room
 * for their blocks. With many rows of a, GPUs take as long to load them as to multiply, so four
 * columns share the loads; Intel's GPUs have registers for two columns of eight rows, or of four
 * rows if blocks begin with 16 bytes of scales, and CPU drivers for one. */
static uint32_t columns_for(const tsr__matmul_call *call, uint32_t rows, tsr__shader shader)
{
    if (rows == 1 && shader == TSR__SHADER_MATMUL_BLOCKS_INT8 && call->b->layout.dtype != TSR_Q8_0)
        return MAX_COLUMNS;
    const tsr_device *device = tsr_stream_device(call->stream);
    if (!device->traits.few_invocations) {
        const uint32_t most =
            tsr__quant_format_of(call->b->layout.dtype)->scales == TSR__QUANT_6_6 ? 2 : 4;
        return rows > most && device->info.vendor_id == TSR__VENDOR_INTEL ? 2 : 4;
    }
    return rows > 4 ? 1 : rows > 2 ? 2 : 4;
}

static bool suits_blocks(const tsr__matmul_call *call, tsr__shader shader)
{
    const tsr__matmul_problem *p = call->problem;
    const uint32_t rows = (uint32_t)p->m; /* at most MAX_ROWS */
    return p->m <= BLOCKS_ROWS && loads_blocks(call) && p->k / CHUNK >= CHUNKS_MIN &&
           threads_for(call, shader, rows, columns_for(call, rows, shader)) > 0 &&
           admitted(shader, call->b, p);
}

/* Returns the kernel that multiplies few rows by blocks: one that loads whole blocks if possible,
 * otherwise matmul_quant.comp. */
static tsr__shader shader_for(const tsr__matmul_call *call)
{
    if (call->problem->allow_int8 && tsr_stream_device(call->stream)->int8_dot &&
        tsr__quant_is_scaled_words(call->b->layout.dtype) &&
        suits_blocks(call, TSR__SHADER_MATMUL_BLOCKS_INT8))
        return TSR__SHADER_MATMUL_BLOCKS_INT8;
    return suits_blocks(call, TSR__SHADER_MATMUL_BLOCKS) ? TSR__SHADER_MATMUL_BLOCKS
                                                         : TSR__SHADER_MATMUL_QUANT;
}

/* A product with few rows. Each dispatch computes some columns of y, which are rows of b. */
typedef struct few_rows {
    const tsr__matmul_call *call;
    tsr__dispatch dispatch;
    struct tsr_matmul_push push;
    uint32_t columns; /* columns of y per workgroup */
    int64_t at_once;  /* columns of y per dispatch, a multiple of `columns` */
} few_rows;

static tsr_status record_few(tsr_stream *stream, void *work)
{
    const few_rows *few = work;
    const tsr__matmul_call *call = few->call;
    const tsr__matmul_problem *p = call->problem;
    tsr__dispatch dispatch = few->dispatch;
    struct tsr_matmul_push push = few->push;

    dispatch.push = &push;
    for (int64_t from = 0; from < p->n; from += few->at_once) {
        const int64_t now = tsr__matmul_min(few->at_once, p->n - from);
        push.n = (uint32_t)now;
        push.b = tsr__tensor_address(call->b) + (uint64_t)from * few->push.b_col;
        push.y = tsr__matmul_address(call->y, &p->y, from * p->y.col);
        if (call->bias)
            push.bias = tsr__matmul_address(call->bias, &p->bias, from * p->bias.col);
        dispatch.work = dispatch.multiply_adds = (double)p->m * (double)now * (double)p->k;
        dispatch.multiply_adds *= call->gated ? 2 : 1;
        tsr__groups_for(tsr__div_up_u64((uint64_t)now, few->columns), 1, dispatch.groups);
        TSR__TRY(tsr__stream_dispatch(stream, &dispatch));
    }
    return TSR_OK;
}

/* The number of columns of y that a dispatch can compute within the device's limit on work. */
static int64_t columns_at_once(const tsr__matmul_call *call, uint32_t columns)
{
    const tsr__matmul_problem *p = call->problem;
    const double groups = tsr_stream_device(call->stream)->work_limit /
                          ((double)p->m * (double)p->k * (double)columns);

    return (groups < 1 ? 1 : groups > 0x1p30 ? INT64_C(1) << 30 : (int64_t)groups) * columns;
}

static void plan_few(const tsr__matmul_call *call, tsr__matmul_plan *out)
{
    const tsr__matmul_problem *p = call->problem;
    const uint32_t rows = p->m > 4 ? 8 : p->m > 2 ? 4 : (uint32_t)p->m;
    const tsr__shader shader = shader_for(call);
    const uint32_t b_rows = columns_for(call, rows, shader);

    out->method = TSR__MATMUL_BLOCKS;
    out->gated = call->gated;
    out->blocks.shader = shader;
    out->blocks.threads =
        shader == TSR__SHADER_MATMUL_QUANT ? THREADS : threads_for(call, shader, rows, b_rows);
    const tsr__matmul_device device = tsr__matmul_device_of(tsr_stream_device(call->stream));
    out->blocks.subgroup = tsr__matmul_subgroup_of(&device, out->blocks.threads);
    out->blocks.staging = staging_of(call, shader);
    out->blocks.rows = rows;
    out->blocks.b_rows = b_rows;
    out->blocks.at_once = columns_at_once(call, call->gated ? b_rows / 2 : b_rows);
}

static tsr_status run_few(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    const tsr__matmul_problem *p = call->problem;
    few_rows few = {
        .call = call,
        .push = {.a = tsr__matmul_address(call->a, &p->a, 0)},
        .columns = plan->gated ? plan->blocks.b_rows / 2 : plan->blocks.b_rows,
        .at_once = plan->blocks.at_once,
        .dispatch = {
            .shader = plan->blocks.shader,
            .spec_count = TSR_QUANT_SPECS + 9,
            .push_bytes = sizeof(struct tsr_matmul_push),
            .independent_group = tsr__stream_new_independent_group(call->stream),
            .access_count = call->bias ? 4 : 3,
            .access = {tsr__read_of(call->a), tsr__read_of(call->b), tsr__write_of(call->y)},
        }};
    if (call->bias)
        few.dispatch.access[3] = tsr__read_of(call->bias);
    tsr__matmul_epilogue(p, &few.push);
    few.push.k = few.push.k_chunk = (uint32_t)p->k;
    few.push.a_row = (uint32_t)p->a.row;
    few.push.a_k = (uint32_t)p->a.col;
    few.push.b_col =
        (uint32_t)tsr__dtype_bytes(call->b->layout.dtype, (uint64_t)call->b->layout.strides[0]);
    uint32_t *spec = few.dispatch.spec + TSR_QUANT_SPECS;
    tsr__quant_describe(call->b->layout.dtype, few.dispatch.spec);
    spec[0] = plan->blocks.threads;
    spec[1] = plan->blocks.rows;
    spec[2] = plan->blocks.b_rows;
    spec[3] = p->a.dtype;
    spec[4] =
        tsr__matmul_a_load(p, 4) == TSR_MM_LOAD_VEC_K ? TSR_MM_LOAD_VEC_K : TSR_MM_LOAD_SCALAR;
    spec[5] = plan->gated;
    spec[7] = plan->blocks.subgroup;
    spec[8] = plan->blocks.staging;
    if (call->norm) {
        spec[6] = (uint32_t)call->norm->weight->layout.dtype;
        few.dispatch.access[few.dispatch.access_count++] = tsr__read_of(call->norm->weight);
        tsr__matmul_push_norm(call, &few.push);
    }
    /* A single dispatch is atomic by itself. */
    return few.at_once >= p->n ? record_few(call->stream, &few)
                               : tsr__stream_atomic(call->stream, record_few, &few);
}

/* Panels --------------------------------------------------------------------------------------- */

/* The largest size of the scratch memory for rows of b as floats. If a single row is larger, the
 * memory has the size of the row. */
#define PANEL_BYTES_ON_GPU (INT64_C(64) << 20)
#define PANEL_BYTES_ON_CPU (INT64_C(8) << 20)

typedef struct panels {
    const tsr__matmul_call *call;
    tsr_tensor panel; /* scratch memory for `rows` rows of b */
    int64_t rows;
} panels;

static tsr_status slice(const tsr_tensor *tensor, int dim, int64_t start, int64_t stop,
                        tsr_tensor *out)
{
    out->buffer = tensor->buffer;
    return tsr_layout_slice(&tensor->layout, dim, start, stop, 1, &out->layout);
}

/* Computes y = a · bᵀ, where b is of floats, as the caller's params say. */
static tsr_status multiply_floats(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                                  const tsr_tensor *b, const tsr_matmul_params *params)
{
    tsr__matmul_problem problem;
    tsr__matmul_plan plan;
    TSR__TRY(tsr__matmul_problem_init(&y->layout, &a->layout, &b->layout,
                                      params->bias ? &params->bias->layout : NULL, params,
                                      &problem));
    const tsr__matmul_call call = {.stream = stream,
                                   .problem = &problem,
                                   .y = y,
                                   .a = problem.swapped ? b : a,
                                   .b = problem.swapped ? a : b,
                                   .bias = params->bias};
    TSR__TRY(tsr__matmul_plan_floats(&call, NULL, &plan));
    return plan.config->family->run(&call, &plan);
}

/* Multiplies rows `start` to `stop` of b, which give these columns of y. */
static tsr_status multiply_rows(tsr_stream *stream, const panels *p, int64_t start, int64_t stop)
{
    tsr_tensor y, b, panel, bias;
    tsr_matmul_params params = *p->call->params;
    TSR__TRY(slice(p->call->y, -1, start, stop, &y));
    TSR__TRY(slice(p->call->b, 0, start, stop, &b));
    TSR__TRY(slice(&p->panel, 0, 0, stop - start, &panel));
    if (params.bias != NULL && params.bias->layout.ndim > 0 &&
        params.bias->layout.shape[params.bias->layout.ndim - 1] > 1) {
        TSR__TRY(slice(params.bias, -1, start, stop, &bias));
        params.bias = &bias;
    }
    const tsr__cpu_kernels *cpu = tsr_stream_device(stream)->cpu;
    bool done = false;
    if (cpu)
        TSR__TRY(cpu->dequantize(stream, &panel, &b, &done));
    if (!done)
        TSR__TRY(tsr__dequantize(stream, &panel, &b));
    return multiply_floats(stream, &y, p->call->a, &panel, &params);
}

static tsr_status record_panels(tsr_stream *stream, void *work)
{
    const panels *p = work;
    const int64_t n = p->call->b->layout.shape[0];
    for (int64_t start = 0; start < n; start += p->rows)
        TSR__TRY(multiply_rows(stream, p, start, tsr__matmul_min(start + p->rows, n)));
    return TSR_OK;
}

static void plan_panels(const tsr__matmul_call *call, tsr__matmul_plan *out)
{
    const tsr_device *device = tsr_stream_device(call->stream);
    const int64_t n = call->b->layout.shape[0], k = call->b->layout.shape[1], step = 64;
    const int64_t most = device->traits.few_invocations ? PANEL_BYTES_ON_CPU : PANEL_BYTES_ON_GPU;
    /* f16 can represent the weights, and products of f16 are the fastest ones. */
    const tsr_dtype dtype = call->a->layout.dtype == TSR_F16 ? TSR_F16 : TSR_F32;
    int64_t rows = most / (k * (int64_t)tsr_dtype_size(dtype));

    rows = rows > step ? rows / step * step : rows > 1 ? rows : 1;
    out->method = TSR__MATMUL_PANELS;
    out->panel.dtype = dtype;
    out->panel.rows = tsr__matmul_min(rows, n);
}

static tsr_status run_panels(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    tsr_stream *stream = call->stream;
    const int64_t k = call->b->layout.shape[1];
    const uint64_t row_bytes = (uint64_t)k * tsr_dtype_size(plan->panel.dtype);
    panels p = {.call = call, .rows = plan->panel.rows};
    TSR__TRY(tsr_layout_init(plan->panel.dtype, 2, (int64_t[]){p.rows, k}, &p.panel.layout));
    TSR__TRY(tsr__stream_keep_scratch(stream, (uint64_t)p.rows * row_bytes, &p.panel.buffer));
    /* On CPU drivers, the host may read the operands of a product already while the product is
     * recorded, if no recorded work uses them. The panel, however, gets its values only when
     * recorded work runs. This fill is recorded work that uses the panel, also in the preflight. */
    tsr__access first = tsr__write_buffer(p.panel.buffer);
    first.end_bytes = first.begin_bytes + 4;
    tsr_status status = tsr__stream_fill(stream, first, 0);
    if (status == TSR_OK)
        status = tsr__stream_atomic(stream, record_panels, &p);
    tsr__stream_return_scratch(stream, p.panel.buffer);
    return status;
}

/* A product without elements of k, or with the factor 0, does not read b. Any floats can stand for
 * it: here one f32 that is repeated. */
static tsr_status run_unread(const tsr__matmul_call *call)
{
    tsr_tensor unread = {.buffer = NULL};
    const int64_t one = 1;
    tsr_layout element;
    TSR__TRY(tsr_layout_init(TSR_F32, 1, &one, &element));
    TSR__TRY(tsr_layout_broadcast(&element, 2, call->b->layout.shape, &unread.layout));
    TSR__TRY(tsr__stream_keep_scratch(call->stream, sizeof(float), &unread.buffer));
    tsr_status status = multiply_floats(call->stream, call->y, call->a, &unread, call->params);
    tsr__stream_return_scratch(call->stream, unread.buffer);
    return status;
}

/* All ways ------------------------------------------------------------------------------------- */

/* True if a kernel for CPU drivers should compute the product. */
static bool suits_cpu(const tsr__matmul_call *call)
{
    const tsr__cpu_kernels *cpu = tsr_stream_device(call->stream)->cpu;
    return cpu && cpu->quant_rows_suit(call);
}

static void plan_fused(const tsr__matmul_call *call, tsr__matmul_plan *out)
{
    const tsr__matmul_problem *p = call->problem;
    /* One dispatch must compute all of y, because the shader expects the second factors' rows of b
     * and bias push.n rows after those of the first factors. */
    if (p->k > 0 && !suits_cpu(call) && suits_few(call->b, p) && p->m <= MAX_ROWS / 2 &&
        columns_at_once(call, 1) >= p->n &&
        (!call->norm || tsr__matmul_a_load(p, 4) == TSR_MM_LOAD_VEC_K))
        plan_few(call, out);
}

void tsr__matmul_plan_blocks(const tsr__matmul_call *call, tsr__matmul_plan *out)
{
    *out = (tsr__matmul_plan){.method = TSR__MATMUL_NOTHING};
    if (call->gated || call->norm)
        plan_fused(call, out);
    else if (call->slope || call->times)
        return;
    else if (call->problem->k == 0)
        out->method = TSR__MATMUL_BLOCKS_UNREAD;
    else if (suits_cpu(call))
        out->method = TSR__MATMUL_BLOCKS_CPU;
    else if (suits_few(call->b, call->problem))
        plan_few(call, out);
    else
        plan_panels(call, out);
}

tsr_status tsr__matmul_record_blocks(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    switch (plan->method) {
    case TSR__MATMUL_BLOCKS:
        return run_few(call, plan);
    case TSR__MATMUL_BLOCKS_CPU:
        return tsr_stream_device(call->stream)->cpu->quant_rows(call);
    case TSR__MATMUL_PANELS:
        return run_panels(call, plan);
    case TSR__MATMUL_BLOCKS_UNREAD:
        return run_unread(call);
    case TSR__MATMUL_NOTHING:
    case TSR__MATMUL_FLOATS:
    case TSR__MATMUL_NARROWED:
        break;
    }
    return TSR_OK;
}
