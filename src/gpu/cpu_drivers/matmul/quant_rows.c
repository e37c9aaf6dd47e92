#include "gpu/cpu_drivers/matmul/quant_rows.h"

#include "base/checked.h"
#include "gpu/matmul/common/loads.h"
#include "shaders/params/matmul.h"
#include "shaders/params/matmul_quant_rows.h"

enum {
    MAX_ROWS = 16,    /* more rows are faster with panels of floats */
    ROWS_AT_ONCE = 4, /* of one dispatch */
    MAX_PARTS = 64,
    MAX_COLUMNS = 1 << 18 /* shaders find their columns by an index of 16 bits */
};

/* How k is divided: `parts` times `steps` vectors of one word per lane. */
typedef struct division {
    uint32_t steps, parts;
} division;

/* More steps make the code of a pipeline longer, which takes longer to compile. More parts cost a
 * barrier and time for each part. */
static uint32_t most_steps(tsr_dtype dtype)
{
    return dtype == TSR_Q8_0 ? 64 : 32;
}

static bool divide(tsr_dtype dtype, int64_t k, uint32_t lanes, division *out)
{
    const int64_t vector = (int64_t)lanes * (dtype == TSR_Q8_0 ? 4 : 8), vectors = k / vector;
    if (k % vector != 0)
        return false;
    out->steps = most_steps(dtype);
    while (vectors % out->steps != 0)
        out->steps--;
    out->parts = (uint32_t)tsr__min_u64((uint64_t)vectors / out->steps, MAX_PARTS + 1);
    return out->parts <= MAX_PARTS;
}

bool tsr__quant_rows_suit(const tsr__matmul_call *call)
{
    const tsr__matmul_problem *p = call->problem;
    const tsr_device *device = call->b->buffer->device;
    const tsr_dtype dtype = call->b->layout.dtype;
    const uint32_t lanes = device->info.subgroup_size;
    division k = {1, 1};
    return device->device_class == TSR__CLASS_LAVAPIPE && device->storage == TSR__STORAGE_S16 &&
           (lanes == 8 || lanes == 16) && (dtype == TSR_Q8_0 || dtype == TSR_Q4_0) && !p->swapped &&
           p->batch_dims == 0 && p->m <= MAX_ROWS && p->n <= MAX_COLUMNS && p->a.col == 1 &&
           p->a.row <= (int64_t)UINT32_MAX && tsr__matmul_y_narrow(p, p->m, p->n) &&
           tsr__dtype_bytes(dtype, (uint64_t)call->b->layout.strides[0]) <= UINT32_MAX &&
           divide(dtype, p->k, lanes, &k) &&
           k.parts * lanes <= device->info.max_workgroup_invocations;
}

/* Records the dispatch for up to ROWS_AT_ONCE rows of a. */
static tsr_status record_rows(const tsr__matmul_call *call, int64_t row, uint32_t rows)
{
    const tsr__matmul_problem *p = call->problem;
    const tsr_dtype dtype = call->b->layout.dtype;
    const uint32_t lanes = call->b->buffer->device->info.subgroup_size;
    const uint32_t columns = rows > 2 ? lanes / 2 : lanes;
    division k = {1, 1};
    divide(dtype, p->k, lanes, &k);
    struct tsr_matmul_quant_rows_push push = {
        .identity = {TSR_IDENTITY_16},
        .a = tsr__matmul_address(call->a, &p->a, row * p->a.row),
        .b = tsr__tensor_address(call->b),
        .y = tsr__matmul_address(call->y, &p->y, row * p->y.row),
        .bias = call->bias ? tsr__matmul_address(call->bias, &p->bias, row * p->bias.row) : 0,
        .b_stride = (uint32_t)tsr__dtype_bytes(dtype, (uint64_t)call->b->layout.strides[0]),
        .a_row = (uint32_t)p->a.row,
        .y_row = (uint32_t)p->y.row,
        .y_col = (uint32_t)p->y.col,
        .bias_row = (uint32_t)p->bias.row,
        .bias_col = (uint32_t)p->bias.col,
        .m_n = (rows - 1) << 28 | (uint32_t)p->n,
        .alpha = p->alpha,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_MATMUL_QUANT_ROWS,
        .spec_count = 8,
        .spec = {lanes * k.parts, lanes, rows > 2 ? ROWS_AT_ONCE : rows, columns, k.steps,
                 p->a.dtype, dtype == TSR_Q8_0 ? TSR_QUANT_ROWS_Q8_0 : TSR_QUANT_ROWS_Q4_0,
                 tsr__matmul_mode(p)},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32((uint32_t)p->n, columns), 1, 1},
        .work = (double)rows * (double)p->n * (double)p->k,
        .access_count = call->bias ? 4 : 3,
        .access = {tsr__read_of(call->a), tsr__read_of(call->b), tsr__write_of(call->y)},
    };
    if (call->bias)
        dispatch.access[3] = tsr__read_of(call->bias);
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

tsr_status tsr__quant_rows(const tsr__matmul_call *call)
{
    tsr__matmul_call copy = *call;
    return tsr__stream_atomic(call->stream, record, &copy);
}

/* Panels --------------------------------------------------------------------------------------- */

static uint32_t words_per_row(const tsr_tensor *x)
{
    const uint32_t elements = x->layout.dtype == TSR_Q8_0 ? 4 : 8;
    return (uint32_t)(x->layout.shape[1] / elements);
}

bool tsr__dequantize_vectors_suit(const tsr_tensor *y, const tsr_tensor *x)
{
    const tsr_device *device = x->buffer->device;
    const tsr_layout *from = &x->layout, *to = &y->layout;
    const uint32_t lanes = device->info.subgroup_size;
    return device->device_class == TSR__CLASS_LAVAPIPE && device->storage == TSR__STORAGE_S16 &&
           (lanes == 8 || lanes == 16) && (from->dtype == TSR_Q8_0 || from->dtype == TSR_Q4_0) &&
           to->dtype == TSR_F32 && from->shape[0] <= UINT16_MAX && from->shape[1] <= MAX_COLUMNS &&
           words_per_row(x) % lanes == 0 && tsr__tensor_address(y) % 8 == 0 &&
           tsr_layout_is_contiguous(to) &&
           tsr__dtype_bytes(from->dtype, (uint64_t)from->strides[0]) <= UINT32_MAX;
}

tsr_status tsr__dequantize_vectors(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *x)
{
    const uint32_t lanes = x->buffer->device->info.subgroup_size;
    const uint32_t vectors = words_per_row(x) / lanes;
    uint32_t units = 8;
    while (vectors % units != 0)
        units--;
    const struct tsr_dequantize_vectors_push push = {
        .identity = {TSR_IDENTITY_16},
        .x = tsr__tensor_address(x),
        .y = tsr__tensor_address(y),
        .x_stride = (uint32_t)tsr__dtype_bytes(x->layout.dtype, (uint64_t)x->layout.strides[0]),
        .y_stride = (uint32_t)x->layout.shape[1] * 4,
    };
    const tsr__dispatch dispatch = {
        .shader = TSR__SHADER_DEQUANTIZE_VECTORS,
        .spec_count = 3,
        .spec = {lanes, units,
                 x->layout.dtype == TSR_Q8_0 ? TSR_QUANT_ROWS_Q8_0 : TSR_QUANT_ROWS_Q4_0},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {vectors / units, (uint32_t)x->layout.shape[0], 1},
        .access_count = 2,
        .access = {tsr__write_of(y), tsr__read_of(x)},
    };
    return tsr__stream_dispatch(stream, &dispatch);
}
