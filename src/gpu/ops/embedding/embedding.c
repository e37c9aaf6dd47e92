/* Embedding: selects rows of a table by their indices. Also computes the gradient of the table. */
#include "shaders/params/embedding.h"
#include "base/checked.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/internal.h"
#include "gpu/ops/common/rows.h"
#include "gpu/quant/dequantize.h"
#include "tensor/check.h"

#define WORKGROUP 64
#define ROWS_MAX (INT64_C(1) << 26) /* the largest number of rows of one dispatch */
#define WIDTH_MAX (INT64_C(1) << 24)
/* In the kernel for the gradient, the rows of the table are divided into buckets, and a workgroup
 * computes some columns of the rows of one bucket. More buckets keep more of the device busy, but
 * every workgroup reads all indices. Each processor of a GPU gets up to GROUPS_PER_PROCESSOR
 * workgroups of up to WIDEST invocations, all of which run at the same time. CPU drivers have few
 * cores. They get narrow workgroups, and only as many buckets as are necessary to have
 * GROUPS_ON_CPU workgroups. */
#define GROUPS_PER_PROCESSOR 8
#define WIDEST 256
#define GROUPS_ON_CPU 8
#define WORKGROUP_ON_CPU 8
/* The number of indices that an invocation reads before it looks at the first of them, on GPUs. */
#define SCAN 8

static tsr_status check(const char *op, tsr_stream *stream, const char *table_name,
                        const tsr_tensor *table, const char *y_name, const tsr_tensor *y,
                        const tsr_tensor *indices, int64_t first)
{
    TSR__TRY(tsr__require_float(op, y_name, stream, y));
    TSR__TRY(tsr__require_tensor(op, "indices", stream, indices));
    tsr_dtype dtype = indices->layout.dtype;
    TSR__REQUIRE(dtype == TSR_I32 || dtype == TSR_I64 || dtype == TSR_U32 || dtype == TSR_U8,
                 "%s: indices are %s, not i32, i64, u32 or u8", op, tsr_dtype_name(dtype));
    TSR__REQUIRE(table->layout.ndim == 2, "%s: %s is %s, not [rows,width]", op, table_name,
                 TSR__SHAPE(table->layout.ndim, table->layout.shape));
    TSR__REQUIRE(
        indices->layout.ndim == 1 && y->layout.ndim == 2 &&
            y->layout.shape[0] == indices->layout.shape[0] &&
            y->layout.shape[1] == table->layout.shape[1],
        "%s: %s is %s, indices are %s, %s is %s; [n,width], [n] and [rows,width] are needed", op,
        y_name, TSR__SHAPE(y->layout.ndim, y->layout.shape),
        TSR__SHAPE(indices->layout.ndim, indices->layout.shape), table_name,
        TSR__SHAPE(2, table->layout.shape));
    TSR__REQUIRE(first >= 0 && first <= INT32_MAX && table->layout.shape[0] <= INT32_MAX - first,
                 "%s: first row %lld and %lld rows are not within [0,%d)", op, (long long)first,
                 (long long)table->layout.shape[0], (int)INT32_MAX);
    TSR__REQUIRE(table->layout.shape[1] <= WIDTH_MAX, "%s: rows of %lld elements; at most %lld", op,
                 (long long)table->layout.shape[1], (long long)WIDTH_MAX);
    return TSR_OK;
}

/* Sets the push constants of the dispatch for the rows of y from `from` on, at most ROWS_MAX. */
static void fill_push(struct tsr_embedding_params *push, const tsr_tensor *table,
                      const tsr_tensor *y, const tsr_tensor *indices, int64_t first, int64_t from)
{
    int64_t rows = y->layout.shape[0] - from;
    *push = (struct tsr_embedding_params){
        .table = tsr__tensor_address(table),
        .table_stride = tsr__stride_bytes(table, 0),
        .table_step = tsr__stride_bytes(table, 1),
        .indices = tsr__tensor_address(indices) + (uint64_t)from * tsr__stride_bytes(indices, 0),
        .indices_stride = tsr__stride_bytes(indices, 0),
        .y = tsr__tensor_address(y) + (uint64_t)from * tsr__stride_bytes(y, 0),
        .y_stride = tsr__stride_bytes(y, 0),
        .y_step = tsr__stride_bytes(y, 1),
        .rows = (uint32_t)(rows < ROWS_MAX ? rows : ROWS_MAX),
        .width = (uint32_t)table->layout.shape[1],
        .first = (uint32_t)first,
        .here = (uint32_t)table->layout.shape[0],
        .index_bytes = (uint32_t)tsr_dtype_size(indices->layout.dtype),
        .buckets = 1,
    };
}

static tsr__dispatch dispatch_of(tsr__shader shader, const struct tsr_embedding_params *push,
                                 const tsr_tensor *table, const tsr_tensor *y,
                                 const tsr_tensor *indices, bool grad)
{
    uint32_t form = tsr__matrix_row_form(table);
    if (tsr__matrix_row_form(y) < form)
        form = tsr__matrix_row_form(y);
    return (tsr__dispatch){
        .shader = shader,
        .spec_count = 4,
        .spec = {WORKGROUP, (uint32_t)table->layout.dtype, (uint32_t)y->layout.dtype, form},
        .push = push,
        .push_bytes = sizeof *push,
        .access_count = 3,
        .access = {grad ? tsr__write_of(table) : tsr__read_of(table),
                   grad ? tsr__read_of(y) : tsr__write_of(y), tsr__read_of(indices)},
    };
}

static tsr_status look_up(tsr__dispatches *list, const tsr_tensor *y, const tsr_tensor *table,
                          const tsr_tensor *indices, int64_t first)
{
    const int64_t per_row = (table->layout.shape[1] + 3) / 4;
    if (per_row == 0)
        return TSR_OK;
    /* The number of invocations of a dispatch must fit in 32 bits. */
    const int64_t step = INT32_MAX / per_row < ROWS_MAX ? INT32_MAX / per_row : ROWS_MAX;
    for (int64_t from = 0; from < y->layout.shape[0]; from += step) {
        struct tsr_embedding_params push;
        fill_push(&push, table, y, indices, first, from);
        if (push.rows > (uint32_t)step)
            push.rows = (uint32_t)step;
        tsr__dispatch dispatch =
            dispatch_of(TSR__SHADER_EMBEDDING, &push, table, y, indices, false);
        tsr__groups_for((uint64_t)push.rows * (uint64_t)per_row, WORKGROUP, dispatch.groups);
        dispatch.read_bytes =
            (double)push.rows * ((double)push.width * (double)tsr_dtype_size(table->layout.dtype) +
                                 (double)push.index_bytes);
        TSR__TRY(tsr__dispatches_add(list, &dispatch));
    }
    return TSR_OK;
}

tsr_status tsr__embedding(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *table,
                          const tsr_tensor *indices, int64_t first)
{
    const char *op = "embedding";
    TSR__TRY(tsr__require_on_device(op, "table", stream, table));
    const bool blocks = tsr__dtype_is_block(table->layout.dtype);
    if (!blocks)
        TSR__TRY(tsr__require_float(op, "table", stream, table));
    TSR__TRY(check(op, stream, "table", table, "y", y, indices, first));
    TSR__TRY(tsr__require_disjoint(op, "y", y, "table", table, false));
    TSR__TRY(tsr__require_disjoint(op, "y", y, "indices", indices, false));
    if (blocks)
        return tsr__dequantize_rows(stream, y, table, indices, first);
    tsr__dispatches list = {0};
    const tsr__cpu_kernels *cpu = tsr_stream_device(stream)->cpu;
    bool done = false;
    tsr_status status = cpu ? cpu->embedding(&list, y, table, indices, first, &done) : TSR_OK;
    if (status == TSR_OK && !done)
        status = look_up(&list, y, table, indices, first);
    if (status == TSR_OK)
        status = tsr__dispatches_record(&list, stream);
    tsr__dispatches_finish(&list);
    return status;
}

/* The workgroups of the gradient's kernel: the number of invocations of each, the number of
 * workgroups into which the columns are divided, and the number of buckets of rows, a power of two.
 */
typedef struct division {
    uint32_t workgroup, across, buckets;
} division;

static division divide_on_cpu(uint32_t width)
{
    division d = {.workgroup = WORKGROUP_ON_CPU,
                  .across = tsr__div_up_u32(width, 4 * WORKGROUP_ON_CPU),
                  .buckets = 1};

    while (d.buckets * d.across < GROUPS_ON_CPU)
        d.buckets *= 2;
    return d;
}

/* Returns the workgroups of the gradient's kernel. There are at most as many buckets as rows of dy,
 * rounded up to a power of two, because more would have nothing to do. */
static division divide_gradient(const tsr_device *device, uint32_t width, int64_t rows)
{
    const uint32_t most = GROUPS_PER_PROCESSOR * tsr__processors(device);
    division d = {.workgroup = WORKGROUP, .buckets = 1};

    if (device->traits.few_invocations)
        return divide_on_cpu(width);
    while (d.workgroup < WIDEST && 4 * d.workgroup < width &&
           2 * d.workgroup <= device->info.max_workgroup_invocations)
        d.workgroup *= 2;
    d.across = tsr__div_up_u32(width, 4 * d.workgroup);
    while (d.buckets < rows && 2 * d.buckets * d.across <= most)
        d.buckets *= 2;
    return d;
}

typedef struct addition {
    tsr__dispatches list;
    tsr_tensor *gradient;
    bool accumulate;
} addition;

static tsr_status record_addition(tsr_stream *stream, void *work)
{
    addition *a = work;
    if (!a->accumulate)
        TSR__TRY(tsr_fill(stream, a->gradient, 0));
    return tsr__dispatches_record(&a->list, stream);
}

tsr_status tsr__embedding_grad(tsr_stream *stream, tsr_tensor *gradient, const tsr_tensor *dy,
                               const tsr_tensor *indices, int64_t first, bool accumulate)
{
    const char *op = "embedding_grad";
    TSR__TRY(tsr__require_float(op, "gradient", stream, gradient));
    TSR__TRY(check(op, stream, "gradient", gradient, "dy", dy, indices, first));
    TSR__TRY(tsr__require_disjoint(op, "gradient", gradient, "dy", dy, false));
    TSR__TRY(tsr__require_disjoint(op, "gradient", gradient, "indices", indices, false));
    const tsr_device *device = gradient->buffer->device;
    const int64_t width = gradient->layout.shape[1];
    /* The work of one row of dy: it is read, and the row of the gradient to which it is added is
     * read and written. */
    const double row_work =
        (double)(width > 0 ? width : 1) * TSR__BYTE_WORK *
        (double)(2 * tsr_dtype_size(gradient->layout.dtype) + tsr_dtype_size(dy->layout.dtype));
    const int64_t most = tsr__steps_within_work(device, row_work);
    const division d =
        divide_gradient(device, width > 0 ? (uint32_t)width : 1, dy->layout.shape[0]);
    addition sum = {.gradient = gradient, .accumulate = accumulate};
    tsr_status status = TSR_OK;
    for (int64_t from = 0; status == TSR_OK && width > 0 && from < dy->layout.shape[0];
         from += most) {
        struct tsr_embedding_params push;
        fill_push(&push, gradient, dy, indices, first, from);
        if (push.rows > (uint32_t)most)
            push.rows = (uint32_t)most;
        push.buckets = d.buckets;
        tsr__dispatch dispatch =
            dispatch_of(TSR__SHADER_EMBEDDING_GRAD, &push, gradient, dy, indices, true);
        dispatch.spec[0] = d.workgroup;
        if (!device->traits.slow_barriers) {
            dispatch.spec[dispatch.spec_count++] = SCAN;
            dispatch.spec[dispatch.spec_count++] = push.index_bytes;
        }
        dispatch.work = row_work * push.rows;
        dispatch.groups[0] = d.across;
        dispatch.groups[1] = d.buckets;
        dispatch.groups[2] = 1;
        status = tsr__dispatches_add(&sum.list, &dispatch);
    }
    if (status == TSR_OK)
        status = tsr__stream_atomic(stream, record_addition, &sum);
    tsr__dispatches_finish(&sum.list);
    return status;
}
