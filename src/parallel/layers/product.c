/* A product whose partial results are summed over the ranks. It is divided into parts: while one
 * part is being reduced, the device computes the next one.
 *
 * If there are so many rows that one part of them still uses the full device, the parts are ranges
 * of rows. Such parts are contiguous in y and can be reduced in place. Otherwise the parts are
 * ranges of columns, so that the weight is still read only once, which takes most of the time. Such
 * parts have memory of their own, and are copied to y when the bias is added. */
#include "parallel/layers/linear.h"

/* Limits of the parts. With smaller parts, messages would cost more time than the overlap saves.
 * More parts would save little additional time. */
#define PART_BYTES (UINT64_C(512) << 10)
#define MAX_PARTS_BY_SIZE 8
#define PART_ROWS 64
#define MAX_PARTS 16

typedef struct part {
    int64_t first, count; /* the part's range of rows or columns of y */
    tsr_tensor *y;        /* the part's view of y */
    tsr_tensor *sum;      /* the tensor that is reduced over the ranks; may be `y` */
    tsr_group_request *request;
} part;

typedef struct summing {
    const tsr__linear *linear;
    tsr__temps *temps;
    const tsr__product *product;
    tsr_dtype dtype; /* dtype of the partial sums */
    bool rows;
    int count;
    part part[MAX_PARTS];
} summing;

/* Returns the number of parts of a product [m,n] that has size_bytes bytes; 1 means that the
 * product is not divided. Sets *rows to whether the parts are ranges of rows. */
static int count_parts(const tsr__linear *linear, int64_t m, int64_t n, uint64_t size_bytes,
                       bool may_cut_rows, bool *rows)
{
    int64_t wanted = linear->overlap_parts;
    if (wanted == 0) {
        uint64_t by_size = size_bytes / PART_BYTES;
        wanted = (int64_t)(by_size < MAX_PARTS_BY_SIZE ? by_size : MAX_PARTS_BY_SIZE);
    }
    *rows = may_cut_rows && m >= wanted * PART_ROWS;
    int64_t most = *rows ? m : n;
    wanted = wanted < most ? wanted : most;
    return wanted > 1 ? (int)wanted : 1;
}

static int64_t rows_of(const tsr_tensor *x2)
{
    return tsr_tensor_layout(x2)->shape[0];
}

static tsr_status multiply(const summing *work, tsr_tensor *y2, const tsr_tensor *x2,
                           const tsr_tensor *weight, const tsr_tensor *bias)
{
    return tsr_matmul(
        work->linear->base.stream, y2, x2, weight,
        tsr_matmul_params(.transpose_b = true, .bias = bias,
                          .allow_int8 = tsr_group_allows_int8(work->linear->base.group)));
}

/* Computes the part's product into `sum`, [.., columns] or [rows, n]. */
static tsr_status compute(summing *work, part *each)
{
    const tsr__product *product = work->product;
    tsr_tensor *x2 = NULL, *weight = NULL, *sum2;
    TSR__TRY(tsr__temp_flatten(work->temps, each->sum, &sum2));
    TSR__TRY(tsr__temp_slice(work->temps, product->x2, 0, work->rows ? each->first : 0,
                             work->rows ? each->count : rows_of(product->x2), &x2));
    TSR__TRY(tsr__temp_slice(
        work->temps, product->weight, 0, work->rows ? 0 : each->first,
        work->rows ? tsr_tensor_layout(product->weight)->shape[0] : each->count, &weight));
    return multiply(work, sum2, x2, weight, NULL);
}

/* Sets the view of y, and the tensor that is reduced, of a part that is a range of rows. */
static tsr_status place_rows(summing *work, part *each)
{
    tsr_tensor *y2;
    TSR__TRY(tsr__temp_flatten(work->temps, work->product->y, &y2));
    TSR__TRY(tsr__temp_slice(work->temps, y2, 0, each->first, each->count, &each->y));
    const tsr_layout *layout = tsr_tensor_layout(each->y);
    if (layout->dtype == work->dtype) {
        each->sum = each->y;
        return TSR_OK;
    }
    return tsr__temp_new(work->temps, work->dtype, 2, layout->shape, &each->sum);
}

/* Sets the view of y, and the tensor that is reduced, of a part that is a range of columns. */
static tsr_status place_columns(summing *work, part *each)
{
    const tsr__product *product = work->product;
    tsr_layout sum = *product->whole;
    sum.shape[sum.ndim - 1] = each->count;
    if (work->count > 1) {
        TSR__TRY(tsr__temp_slice(work->temps, product->y, -1, each->first, each->count, &each->y));
        return tsr__temp_new(work->temps, work->dtype, sum.ndim, sum.shape, &each->sum);
    }
    each->y = product->y;
    if (product->dim < 0 && tsr_tensor_layout(product->y)->dtype == work->dtype) {
        each->sum = product->y;
        return TSR_OK;
    }
    return tsr__temp_new(work->temps, work->dtype, sum.ndim, sum.shape, &each->sum);
}

static tsr_status reduce(summing *work, part *each)
{
    const tsr__product *product = work->product;
    tsr_group *group = work->linear->base.group;
    if (product->dim < 0)
        return tsr_group_all_reduce_wire_start(group, each->sum, tsr_group_wire(group),
                                               &each->request);
    const tsr_layout *y = tsr_tensor_layout(each->y);
    tsr_tensor *mine;
    TSR__TRY(tsr__temp_new(work->temps, work->dtype, y->ndim, y->shape, &mine));
    TSR__TRY(tsr_group_reduce_scatter_wire_start(group, mine, each->sum, product->dim,
                                                 product->sizes, tsr_group_wire(group),
                                                 &each->request));
    each->sum = mine;
    return TSR_OK;
}

/* Waits until a part has been reduced, and computes y = sum + bias. */
static tsr_status finish_part(summing *work, part *each)
{
    tsr_stream *stream = work->linear->base.stream;
    const tsr_tensor *bias = work->product->bias;
    TSR__TRY(tsr_group_wait(&each->request));
    if (!bias)
        return each->y == each->sum ? TSR_OK : tsr_copy(stream, each->y, each->sum);
    tsr_tensor *own;
    if (!work->rows && work->count > 1) {
        TSR__TRY(tsr__temp_slice(work->temps, bias, 0, each->first, each->count, &own));
        bias = own;
    }
    return tsr_add(stream, each->y, each->sum, bias);
}

static tsr_status run(summing *work)
{
    const int64_t size = work->rows ? rows_of(work->product->x2)
                                    : tsr_tensor_layout(work->product->weight)->shape[0];
    for (int i = 0; i < work->count; i++) {
        part *each = &work->part[i];
        each->first = size / work->count * i + size % work->count * i / work->count;
        int64_t end = size / work->count * (i + 1) + size % work->count * (i + 1) / work->count;
        each->count = end - each->first;
        TSR__TRY(work->rows ? place_rows(work, each) : place_columns(work, each));
        TSR__TRY(compute(work, each));
        TSR__TRY(reduce(work, each));
    }
    for (int i = 0; i < work->count; i++)
        TSR__TRY(finish_part(work, &work->part[i]));
    return TSR_OK;
}

static tsr_status add(const summing *work, const tsr_tensor *added)
{
    tsr_tensor *y = work->product->y;
    return added ? tsr_add(work->linear->base.stream, y, y, added) : TSR_OK;
}

/* Computes the product in a group of one rank. There is nothing to sum, so the product adds the
 * bias or, if there is none, `added`. */
static tsr_status multiply_alone(summing *work)
{
    const tsr__product *product = work->product;
    const tsr_tensor *bias = product->bias, *added = product->added;
    tsr_tensor *y2, *added2;
    TSR__TRY(tsr__temp_flatten(work->temps, product->y, &y2));
    if (added && !bias) {
        TSR__TRY(tsr__temp_flatten(work->temps, added, &added2));
        bias = added2;
        added = NULL;
    }
    TSR__TRY(multiply(work, y2, product->x2, product->weight, bias));
    return add(work, added);
}

tsr_status tsr__product_reduced(const tsr__linear *linear, tsr__temps *temps,
                                const tsr__product *product)
{
    const tsr_layout *y = tsr_tensor_layout(product->y);
    summing work = {.linear = linear, .temps = temps, .product = product};
    if (linear->base.size == 1)
        return multiply_alone(&work);
    work.dtype = linear->reduce_f32 ? TSR_F32 : y->dtype;
    /* If y is divided along its columns, a range of columns could belong to other ranks, so the
     * product is not divided into parts. */
    bool features_divided = product->dim == product->whole->ndim - 1;
    int64_t m = rows_of(product->x2), n = tsr_tensor_layout(product->weight)->shape[0];
    uint64_t size_bytes = (uint64_t)tsr_layout_count(product->whole) * tsr_dtype_size(work.dtype);
    work.count =
        features_divided ? 1 : count_parts(linear, m, n, size_bytes, product->dim < 0, &work.rows);
    tsr_status status = run(&work);
    for (int i = 0; i < work.count; i++)
        tsr_group_cancel(&work.part[i].request);
    return status == TSR_OK ? add(&work, product->added) : status;
}
