/* Products whose b is in a block format. If a has few rows, they are multiplied by the blocks
 * directly. Otherwise, some rows of b at a time, a panel, are converted to floats in scratch
 * memory, and the panel is multiplied. */
#include "gpu/matmul/quant.h"

#include "base/checked.h"
#include "gpu/cpu_drivers/matmul/quant_rows.h"
#include "gpu/matmul/common/loads.h"
#include "gpu/matmul/matmul.h"
#include "gpu/quant/dequantize.h"
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

/* Kernels for one or two long rows, whose invocations load whole blocks. */
enum {
    BLOCKS_ROWS = 2,
    BLOCKS_MIN = 32, /* the smallest number of blocks in a row */
    MAX_COLUMNS = 8, /* the largest number of columns that a workgroup computes */
    BLOCKS_MAX_SHARED =
        32 * 1024, /* the most bytes of shared memory, so that another workgroup has room */
};

/* The number of invocations of a workgroup: if possible one for each block of a row, and otherwise
 * a number for which the last pass over a row occupies about as many as the other passes. 0: the
 * device has too little shared memory. */
static uint32_t threads_for(const tsr_device *device, int64_t blocks, uint32_t rows,
                            uint32_t columns)
{
    const uint32_t subgroup = device->info.subgroup_size > 32 ? 64 : 32;
    const uint32_t shared = tsr__min_u32(device->info.max_shared_memory_bytes, BLOCKS_MAX_SHARED);
    const uint32_t most = tsr__min_u32(shared / (rows * (9 * 16 + 4 * columns)),
                                       device->info.max_workgroup_invocations) /
                          subgroup * subgroup;
    if (most == 0)
        return 0;
    const uint64_t passes = tsr__div_up_u64((uint64_t)blocks, most);
    const uint64_t each = tsr__div_up_u64((uint64_t)blocks, passes);
    return (uint32_t)tsr__div_up_u64(each, subgroup) * subgroup;
}

static bool suits_blocks(const tsr__matmul_call *call, tsr__shader shader)
{
    const tsr__matmul_problem *p = call->problem;
    return p->m <= BLOCKS_ROWS && tsr__quant_is_scaled_words(call->b->layout.dtype) &&
           p->k / 32 >= BLOCKS_MIN &&
           threads_for(tsr_stream_device(call->stream), p->k / 32, (uint32_t)p->m, MAX_COLUMNS) >
               0 &&
           admitted(shader, call->b, p);
}

/* Returns the kernel that multiplies few rows by blocks: one that loads whole blocks if possible,
 * otherwise matmul_quant.comp. */
static tsr__shader shader_for(const tsr__matmul_call *call)
{
    if (call->problem->allow_int8 && tsr_stream_device(call->stream)->int8_dot &&
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
        dispatch.work = (double)p->m * (double)now * (double)p->k;
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

/* The number of rows of b that a workgroup multiplies. Rounding a row of a to 8 bits takes as long
 * as multiplying it by two of them, so the kernel of integers takes eight, if registers have room
 * for their blocks. */
static uint32_t columns_for(uint32_t rows, tsr__shader shader, tsr_dtype blocks)
{
    if (rows == 1 && shader == TSR__SHADER_MATMUL_BLOCKS_INT8 && blocks != TSR_Q8_0)
        return MAX_COLUMNS;
    return rows > 4 ? 1 : rows > 2 ? 2 : 4;
}

static tsr_status run_few(const tsr__matmul_call *call, bool gated)
{
    const tsr__matmul_problem *p = call->problem;
    const uint32_t rows = p->m > 4 ? 8 : p->m > 2 ? 4 : (uint32_t)p->m;
    const tsr__shader shader = shader_for(call);
    const uint32_t columns = columns_for(rows, shader, call->b->layout.dtype);
    const uint32_t own = gated ? columns / 2 : columns;
    few_rows few = {
        .call = call,
        .push = {.a = tsr__matmul_address(call->a, &p->a, 0)},
        .columns = own,
        .at_once = columns_at_once(call, own),
        .dispatch = {
            .shader = shader,
            .spec_count = TSR_QUANT_SPECS + 6,
            .push_bytes = sizeof(struct tsr_matmul_push),
            .pieces = tsr__stream_new_pieces(call->stream),
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
    spec[0] = shader == TSR__SHADER_MATMUL_QUANT
                  ? THREADS
                  : threads_for(tsr_stream_device(call->stream), p->k / 32, rows, columns);
    spec[1] = rows;
    spec[2] = columns;
    spec[3] = p->a.dtype;
    spec[4] =
        tsr__matmul_a_load(p, 4) == TSR_MM_LOAD_VEC_K ? TSR_MM_LOAD_VEC_K : TSR_MM_LOAD_SCALAR;
    spec[5] = gated;
    /* A single dispatch is atomic by itself. */
    return few.at_once >= p->n ? record_few(call->stream, &few)
                               : tsr__stream_atomic(call->stream, record_few, &few);
}

tsr_status tsr__matmul_few_gated(const tsr__matmul_call *call, bool *recorded)
{
    const tsr__matmul_problem *p = call->problem;
    /* One dispatch must compute all of y, because the shader expects the second factors' rows of b
     * and bias (gated.h) push.n rows after those of the first factors. */
    if (p->k == 0 || tsr__quant_rows_suit(call) || !suits_few(call->b, p) || p->m > MAX_ROWS / 2 ||
        columns_at_once(call, 1) < p->n)
        return TSR_OK;
    TSR__TRY(run_few(call, true));
    *recorded = true;
    return TSR_OK;
}

/* Panels --------------------------------------------------------------------------------------- */

/* The largest size of the scratch memory for rows of b as floats. If a single row is larger, the
 * memory has the size of the row. */
#define PANEL_BYTES_ON_GPU (INT64_C(64) << 20)
#define PANEL_BYTES_ON_CPU (INT64_C(8) << 20)

typedef struct panels {
    tsr_tensor *y;
    const tsr_tensor *a, *b;
    const tsr_matmul_params *params;
    tsr_tensor panel; /* scratch memory for `rows` rows of b */
    int64_t rows;
} panels;

static tsr_status slice(const tsr_tensor *tensor, int dim, int64_t start, int64_t stop,
                        tsr_tensor *out)
{
    out->buffer = tensor->buffer;
    return tsr_layout_slice(&tensor->layout, dim, start, stop, 1, &out->layout);
}

/* Multiplies rows `start` to `stop` of b, which give these columns of y. */
static tsr_status multiply_rows(tsr_stream *stream, const panels *p, int64_t start, int64_t stop)
{
    tsr_tensor y, b, panel, bias;
    tsr_matmul_params params = *p->params;
    TSR__TRY(slice(p->y, -1, start, stop, &y));
    TSR__TRY(slice(p->b, 0, start, stop, &b));
    TSR__TRY(slice(&p->panel, 0, 0, stop - start, &panel));
    if (params.bias != NULL && params.bias->layout.ndim > 0 &&
        params.bias->layout.shape[params.bias->layout.ndim - 1] > 1) {
        TSR__TRY(slice(params.bias, -1, start, stop, &bias));
        params.bias = &bias;
    }
    TSR__TRY(tsr__dequantize_vectors_suit(&panel, &b) ? tsr__dequantize_vectors(stream, &panel, &b)
                                                      : tsr__dequantize(stream, &panel, &b));
    return tsr__matmul_run(stream, &y, p->a, &panel, &params, NULL);
}

static tsr_status record_panels(tsr_stream *stream, void *work)
{
    const panels *p = work;
    const int64_t n = p->b->layout.shape[0];
    for (int64_t start = 0; start < n; start += p->rows)
        TSR__TRY(multiply_rows(stream, p, start, tsr__matmul_min(start + p->rows, n)));
    return TSR_OK;
}

static tsr_status run_panels(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_matmul_params *params)
{
    const tsr_device *device = tsr_stream_device(stream);
    const int64_t n = b->layout.shape[0], k = b->layout.shape[1], step = 64;
    const int64_t most = device->traits.few_invocations ? PANEL_BYTES_ON_CPU : PANEL_BYTES_ON_GPU;
    panels p = {.y = y, .a = a, .b = b, .params = params};
    /* f16 can represent the weights, and products of f16 are the fastest ones. */
    const tsr_dtype dtype = a->layout.dtype == TSR_F16 ? TSR_F16 : TSR_F32;
    const int64_t row_bytes = k * (int64_t)tsr_dtype_size(dtype);
    p.rows = most / row_bytes;
    p.rows = p.rows > step ? p.rows / step * step : p.rows > 1 ? p.rows : 1;
    p.rows = tsr__matmul_min(p.rows, n);
    TSR__TRY(tsr_layout_init(dtype, 2, (int64_t[]){p.rows, k}, &p.panel.layout));
    TSR__TRY(tsr__stream_keep_scratch(stream, (uint64_t)(p.rows * row_bytes), &p.panel.buffer));
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
static tsr_status run_unread(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                             const tsr_tensor *b, const tsr_matmul_params *params)
{
    tsr_tensor unread = {.buffer = NULL};
    const int64_t one = 1;
    tsr_layout element;
    TSR__TRY(tsr_layout_init(TSR_F32, 1, &one, &element));
    TSR__TRY(tsr_layout_broadcast(&element, 2, b->layout.shape, &unread.layout));
    TSR__TRY(tsr__stream_keep_scratch(stream, sizeof(float), &unread.buffer));
    tsr_status status = tsr__matmul_run(stream, y, a, &unread, params, NULL);
    tsr__stream_return_scratch(stream, unread.buffer);
    return status;
}

tsr_status tsr__matmul_run_quant(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                 const tsr_tensor *b, const tsr_matmul_params *params,
                                 const tsr__matmul_problem *problem)
{
    const tsr__matmul_call call = {
        .stream = stream, .problem = problem, .y = y, .a = a, .b = b, .bias = params->bias};
    if (problem->k == 0)
        return run_unread(stream, y, a, b, params);
    if (tsr__quant_rows_suit(&call))
        return tsr__quant_rows(&call);
    if (suits_few(b, problem))
        return run_few(&call, false);
    return run_panels(stream, y, a, b, params);
}
