/* Products of a few rows and a matrix in q8_0, q4_0, mxfp4, q4_k, q5_k or q6_k, and conversions of
 * such matrices to floats, on lavapipe. k is divided into splits of several
 * steps. A step multiplies one vector of k or, with `by_block`, one block. A subgroup computes one
 * split of a tile, which is some columns of y. */
#include "gpu/cpu_drivers/matmul/quant_rows.h"
#include "base/checked.h"
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/matmul/plan.h"
#include "gpu/matmul/common/call.h"
#include "gpu/matmul/common/problem.h"
#include "shaders/params/matmul.h"
#include "shaders/params/matmul_quant_rows.h"

enum {
    MAX_ROWS = 16,    /* the largest number of rows; more rows are faster with panels of floats */
    ROWS_AT_ONCE = 4, /* the largest number of rows that one dispatch computes */
    MAX_SPLITS = 64,
    MAX_COLUMNS = 1 << 18
};

/* A format that the kernels read. The kernels divide k into vectors. A vector is `per_lane`
 * elements for each lane, or one block. */
typedef struct row_format {
    tsr_dtype dtype;
    uint32_t name; /* TSR_QUANT_ROWS_… */
    tsr__shader rows, dequantize;
    uint32_t per_lane; /* elements of a vector, for each lane; 0: a vector is a block */
    bool by_block;     /* a step of the shader `rows` multiplies a block, not a vector of k */
    /* The largest number of steps. More steps make the code of a pipeline longer, which takes
     * longer to compile. With fewer steps, k is divided into more splits, which cost time and, from
     * two splits on, a barrier. */
    uint32_t most_steps;
    uint32_t most_units; /* the largest number of vectors that a workgroup dequantises */
} row_format;

static const row_format row_formats[] = {
    {TSR_Q8_0, TSR_QUANT_ROWS_Q8_0, TSR__SHADER_MATMUL_QUANT_BYTES, TSR__SHADER_DEQUANTIZE_VECTORS,
     4, true, 176, 8},
    {TSR_Q4_0, TSR_QUANT_ROWS_Q4_0, TSR__SHADER_MATMUL_QUANT_BYTES, TSR__SHADER_DEQUANTIZE_VECTORS,
     8, true, 176, 8},
    {TSR_MXFP4, TSR_QUANT_ROWS_MXFP4, TSR__SHADER_MATMUL_QUANT_ROWS, TSR__SHADER_DEQUANTIZE_VECTORS,
     8, false, 32, 8},
    {TSR_Q4_K, TSR_QUANT_ROWS_Q4_K, TSR__SHADER_MATMUL_QUANT_K, TSR__SHADER_DEQUANTIZE_K, 0, true,
     4, 1},
    {TSR_Q5_K, TSR_QUANT_ROWS_Q5_K, TSR__SHADER_MATMUL_QUANT_K, TSR__SHADER_DEQUANTIZE_K, 0, true,
     4, 1},
    {TSR_Q6_K, TSR_QUANT_ROWS_Q6_K, TSR__SHADER_MATMUL_QUANT_K, TSR__SHADER_DEQUANTIZE_K, 0, true,
     4, 1},
};

/* Returns the format of a tensor if the kernels run on its device, or NULL. They need eight or
 * sixteen lanes. */
static const row_format *format_of(const tsr_tensor *tensor)
{
    const tsr_device *device = tensor->buffer->device;
    const uint32_t lanes = device->info.subgroup_size;
    if (device->traits.device_class != TSR__CLASS_LAVAPIPE || device->storage != TSR__STORAGE_S16 ||
        !device->info.int8)
        return NULL;
    for (size_t i = 0; i < sizeof row_formats / sizeof *row_formats; i++)
        if (row_formats[i].dtype == tensor->layout.dtype)
            return lanes == 8 || lanes == 16 ? &row_formats[i] : NULL;
    return NULL;
}

/* Returns the number of elements of a vector. */
static uint32_t vector_of(const row_format *format, uint32_t lanes)
{
    return format->per_lane > 0 ? format->per_lane * lanes
                                : (uint32_t)tsr__dtype_block(format->dtype);
}

/* Returns the bytes from one row of a matrix, or of several, to the next. */
static uint64_t row_bytes(const tsr_tensor *matrix)
{
    const tsr_layout *l = &matrix->layout;
    return tsr__dtype_bytes(l->dtype, (uint64_t)l->strides[l->ndim - 2]);
}

/* k is divided into `splits` splits of `steps` steps. */
typedef struct division {
    uint32_t steps, splits;
} division;

static bool divide(const row_format *format, int64_t k, uint32_t lanes, division *out)
{
    const int64_t step = format->by_block ? (int64_t)tsr__dtype_block(format->dtype)
                                          : vector_of(format, lanes),
                  vectors = k / step;
    if (k % step != 0)
        return false;
    out->steps = format->most_steps;
    while (vectors % out->steps != 0)
        out->steps--;
    out->splits = (uint32_t)tsr__min_u64((uint64_t)vectors / out->steps, MAX_SPLITS + 1);
    return out->splits <= MAX_SPLITS;
}

bool tsr__cpu_quant_rows_suit(const tsr__matmul_call *call)
{
    const tsr__matmul_problem *p = call->problem;
    const tsr_device_info *info = &call->b->buffer->device->info;
    const row_format *format = format_of(call->b);
    division k = {1, 1};
    return format && !p->swapped && p->batch_dims == 0 && p->m <= MAX_ROWS && p->n <= MAX_COLUMNS &&
           p->a.col == 1 && p->a.row <= (int64_t)UINT32_MAX &&
           tsr__matmul_y_narrow(p, p->m, p->n) && row_bytes(call->b) <= UINT32_MAX &&
           divide(format, p->k, info->subgroup_size, &k) &&
           k.splits * info->subgroup_size <= info->max_workgroup_invocations;
}

/* Returns the number of columns that a subgroup computes. The code of a kernel that reads bytes
 * must fit in the processor's instruction cache together with other code. It may take about 20 KiB,
 * or twice as much if the subgroups of a workgroup wait for each other. */
static uint32_t columns_of(const row_format *format, const division *k, uint32_t rows,
                           uint32_t lanes, uint32_t n)
{
    uint32_t columns = 8;
    if (format->rows != TSR__SHADER_MATMUL_QUANT_BYTES)
        return rows > 2 ? lanes / 2 : lanes;
    while (columns > (k->splits > 1 ? 2 : 1) && columns * k->steps > 176)
        columns /= 2;
    while (n / columns >= UINT16_MAX) /* shaders find their tile by an index of 16 bits */
        columns *= 2;
    return columns;
}

/* Returns the dispatch of `rows` rows, without its operands. */
static tsr__dispatch dispatch_of(const tsr_tensor *b, int64_t n, int64_t k, uint32_t rows,
                                 tsr_dtype a, uint32_t mode)
{
    const uint32_t lanes = b->buffer->device->info.subgroup_size;
    const row_format *format = format_of(b);
    division d = {1, 1};
    divide(format, k, lanes, &d);
    const uint32_t columns = columns_of(format, &d, rows, lanes, (uint32_t)n);
    /* a workgroup computes either all splits of a tile or several tiles */
    const uint32_t all_tiles = tsr__div_up_u32((uint32_t)n, columns);
    const uint32_t tiles = format->rows == TSR__SHADER_MATMUL_QUANT_BYTES && d.splits == 1
                               ? tsr__lavapipe_subgroups(all_tiles)
                               : 1;
    return (tsr__dispatch){
        .shader = format->rows,
        .spec_count = 10,
        .spec = {lanes * d.splits * tiles, lanes, rows > 2 ? ROWS_AT_ONCE : rows, columns, d.steps,
                 a, format->name, mode, tiles, false},
        .groups = {tsr__div_up_u32(all_tiles, tiles), 1, 1},
    };
}

/* Records the dispatch for up to ROWS_AT_ONCE rows of a. */
static tsr_status record_rows(const tsr__matmul_call *call, int64_t row, uint32_t rows)
{
    const tsr__matmul_problem *p = call->problem;
    struct tsr_matmul_quant_rows_push push = {
        .identity = {TSR_IDENTITY_16},
        .a = tsr__matmul_address(call->a, &p->a, row * p->a.row),
        .b = tsr__tensor_address(call->b),
        .y = tsr__matmul_address(call->y, &p->y, row * p->y.row),
        .bias = call->bias ? tsr__matmul_address(call->bias, &p->bias, row * p->bias.row) : 0,
        .b_stride = (uint32_t)row_bytes(call->b),
        .a_row = (uint32_t)p->a.row,
        .y_row = (uint32_t)p->y.row,
        .y_col = (uint32_t)p->y.col,
        .bias_row = (uint32_t)p->bias.row,
        .bias_col = (uint32_t)p->bias.col,
        .m_n = (rows - 1) << 28 | (uint32_t)p->n,
        .alpha = p->alpha,
    };
    tsr__dispatch dispatch =
        dispatch_of(call->b, p->n, p->k, rows, p->a.dtype, tsr__matmul_mode(p));
    dispatch.push = &push;
    dispatch.push_bytes = sizeof push;
    dispatch.work = dispatch.multiply_adds = (double)rows * (double)p->n * (double)p->k;
    dispatch.access[0] = tsr__read_of(call->a);
    dispatch.access[1] = tsr__read_of(call->b);
    dispatch.access[2] = tsr__write_of(call->y);
    dispatch.access_count = 3;
    if (call->bias)
        dispatch.access[dispatch.access_count++] = tsr__read_of(call->bias);
    return tsr__stream_dispatch(call->stream, &dispatch);
}

static tsr_status record(tsr_stream *stream, void *work)
{
    const tsr__matmul_call *call = work;
    (void)stream;
    for (int64_t row = 0; row < call->problem->m; row += ROWS_AT_ONCE)
        TSR__TRY(record_rows(call, row,
                             (uint32_t)tsr__matmul_min(ROWS_AT_ONCE, call->problem->m - row)));
    return TSR_OK;
}

tsr_status tsr__cpu_quant_rows(const tsr__matmul_call *call)
{
    tsr__matmul_call copy = *call;
    return tsr__stream_atomic(call->stream, record, &copy);
}

/* Grouped products ----------------------------------------------------------------------------- */

bool tsr__lavapipe_quant_tiles_suit(const tsr_tensor *w)
{
    const row_format *format = format_of(w);
    division k = {1, 1};
    const tsr_device_info *info = &w->buffer->device->info;
    return format && w->layout.shape[1] <= MAX_COLUMNS && row_bytes(w) <= UINT32_MAX &&
           divide(format, w->layout.shape[2], info->subgroup_size, &k) &&
           k.splits * info->subgroup_size <= info->max_workgroup_invocations;
}

tsr__dispatch tsr__lavapipe_quant_tiles(const tsr_tensor *w, uint32_t rows,
                                        struct tsr_matmul_quant_rows_push *push)
{
    const tsr_layout *l = &w->layout;
    const uint64_t matrix = tsr__dtype_bytes(l->dtype, (uint64_t)l->strides[0]);
    tsr__dispatch dispatch =
        dispatch_of(w, l->shape[1], l->shape[2], rows, TSR_F32, TSR_F32 << TSR_MM_Y_DTYPE_SHIFT);
    dispatch.spec[dispatch.spec_count - 1] = true;
    *push = (struct tsr_matmul_quant_rows_push){
        .identity = {TSR_IDENTITY_16},
        .b = tsr__tensor_address(w),
        .b_stride = (uint32_t)row_bytes(w),
        .y_col = 1,
        .bias_row = (uint32_t)matrix,
        .bias_col = (uint32_t)(matrix >> 32),
        .m_n = (rows - 1) << 28 | (uint32_t)l->shape[1],
        .alpha = 1,
    };
    return dispatch;
}

/* Panels --------------------------------------------------------------------------------------- */

static bool dequantizes(const tsr_tensor *y, const tsr_tensor *x)
{
    const tsr_layout *from = &x->layout, *to = &y->layout;
    const row_format *format = format_of(x);
    return format && to->dtype == TSR_F32 && from->shape[0] <= UINT16_MAX &&
           from->shape[1] <= MAX_COLUMNS &&
           from->shape[1] % vector_of(format, x->buffer->device->info.subgroup_size) == 0 &&
           tsr__tensor_address(y) % 8 == 0 && tsr_layout_is_contiguous(to) &&
           row_bytes(x) <= UINT32_MAX;
}

tsr_status tsr__cpu_dequantize(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *x,
                               bool *done)
{
    *done = dequantizes(y, x);
    if (!*done)
        return TSR_OK;
    const uint32_t lanes = x->buffer->device->info.subgroup_size;
    const row_format *format = format_of(x);
    const uint32_t vectors = (uint32_t)x->layout.shape[1] / vector_of(format, lanes);
    uint32_t units = format->most_units;
    while (vectors % units != 0)
        units--;
    const struct tsr_dequantize_vectors_push push = {
        .identity = {TSR_IDENTITY_16},
        .x = tsr__tensor_address(x),
        .y = tsr__tensor_address(y),
        .x_stride = (uint32_t)row_bytes(x),
        .y_stride = (uint32_t)x->layout.shape[1] * 4,
    };
    const tsr__dispatch dispatch = {
        .shader = format->dequantize,
        .spec_count = 3,
        .spec = {lanes, units, format->name},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {vectors / units, (uint32_t)x->layout.shape[0], 1},
        .access_count = 2,
        .access = {tsr__write_of(y), tsr__read_of(x)},
    };
    return tsr__stream_dispatch(stream, &dispatch);
}
