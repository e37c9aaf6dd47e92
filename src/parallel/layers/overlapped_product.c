/* A product whose partial results are summed over the ranks. The product is divided into overlap
 * chunks: while one chunk is being reduced, the device computes the next one.
 *
 * If there are so many rows that the rows of one chunk still use the full device, the chunks are
 * ranges of rows. Such chunks are contiguous in y and can be reduced in place. Otherwise the chunks
 * are ranges of columns, so that the weight is still read only once: with few rows, reading the
 * weight takes most of the time. Such chunks have memory of their own, and are copied to y when the
 * bias is added. */
#include "parallel/layers/adapter.h"

#include "base/alloc.h"
#include "gpu/internal.h"

/* Limits of chunks whose number the caller did not choose. With smaller chunks, messages would cost
 * more time than the overlap saves. More chunks would save little additional time. */
#define MIN_CHUNK_BYTES (UINT64_C(512) << 10)
#define MAX_CHUNKS_BY_SIZE 8
/* The least number of rows of a chunk that is a range of rows. */
#define MIN_CHUNK_ROWS 64

typedef struct overlap_chunk {
    int64_t first, count; /* the chunk's range of rows or columns of y */
    tsr_tensor *y;        /* the chunk's view of y */
    tsr_tensor *sum;      /* the tensor that is reduced over the ranks; may be `y` */
    tsr_request *request;
} overlap_chunk;

typedef struct reduced_run {
    const tsr__row_linear *row;
    tsr__temps *temps;
    const tsr__reduced_product *product;
    tsr__adapter_terms adapters; /* what adapters add */
    tsr_dtype dtype;             /* dtype of the partial sums */
    bool by_rows;                /* chunks are ranges of rows; otherwise of columns */
    int count;
    overlap_chunk chunk[TSR__MAX_OVERLAP_CHUNKS];
} reduced_run;

/* Returns the number of chunks of a product [m,n] that has size_bytes bytes; 1 means that the
 * product is not divided. Sets *by_rows to whether the chunks are ranges of rows. */
static int count_chunks(const tsr__row_linear *row, int64_t m, int64_t n, uint64_t size_bytes,
                        bool may_cut_rows, bool *by_rows)
{
    int64_t wanted = row->overlap_chunks;
    if (wanted == 0) {
        uint64_t by_size = size_bytes / MIN_CHUNK_BYTES;
        wanted = (int64_t)(by_size < MAX_CHUNKS_BY_SIZE ? by_size : MAX_CHUNKS_BY_SIZE);
    }
    *by_rows = may_cut_rows && m >= wanted * MIN_CHUNK_ROWS;
    int64_t most = *by_rows ? m : n;
    wanted = wanted < most ? wanted : most;
    return wanted > 1 ? (int)wanted : 1;
}

static int64_t rows_of(const tsr_tensor *x2)
{
    return tsr_tensor_layout(x2)->shape[0];
}

/* Computes act(gate) · up in a tensor of its own. */
static tsr_status apply_gate(const reduced_run *run, const tsr_tensor *x2, const tsr_tensor *up2,
                             const tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(x2);
    tsr_tensor *product;
    TSR__TRY(tsr__temp_new(run->temps, layout->dtype, 2, layout->shape, &product));
    *out = product;
    return tsr_activate(run->row->linear.base.stream, product, x2, up2, run->product->activation);
}

/* Computes y2 = x2 · weightᵀ + bias, where x2 is an activation times up2 if up2 is not NULL. */
static tsr_status multiply(const reduced_run *run, tsr_tensor *y2, const tsr_tensor *x2,
                           const tsr_tensor *up2, const tsr_tensor *weight, const tsr_tensor *bias)
{
    const tsr_group *group = run->row->linear.base.group;
    const tsr__matmul_gate gate = {.up = up2, .activation = run->product->activation};
    bool recorded = false;
    if (up2)
        TSR__TRY(tsr__matmul_fused(
            run->row->linear.base.stream, y2, x2, weight,
            &(tsr__matmul_fusion){
                .gate = &gate, .bias = bias, .precision = tsr__group_precision(group, weight)},
            &recorded));
    if (recorded)
        return TSR_OK;
    if (up2)
        TSR__TRY(apply_gate(run, x2, up2, &x2));
    return tsr_matmul(run->row->linear.base.stream, y2, x2, weight,
                      tsr_matmul_params(.transpose_b = true, .bias = bias,
                                        .allow_int8 = tsr__group_allows_int8(group),
                                        .precision = tsr__group_precision(group, weight)));
}

/* Computes the chunk's product into `sum`, [.., columns] or [rows, n]. */
static tsr_status compute_chunk(reduced_run *run, overlap_chunk *chunk)
{
    const tsr__reduced_product *product = run->product;
    const int64_t first = run->by_rows ? chunk->first : 0,
                  rows = run->by_rows ? chunk->count : rows_of(product->x2);
    tsr_tensor *x2 = NULL, *up2 = NULL, *weight = NULL, *sum2;
    TSR__TRY(tsr__temp_flatten(run->temps, chunk->sum, &sum2));
    TSR__TRY(tsr__temp_slice(run->temps, product->x2, 0, first, rows, &x2));
    if (product->up2)
        TSR__TRY(tsr__temp_slice(run->temps, product->up2, 0, first, rows, &up2));
    TSR__TRY(tsr__temp_slice(
        run->temps, product->weight, 0, run->by_rows ? 0 : chunk->first,
        run->by_rows ? tsr_tensor_layout(product->weight)->shape[0] : chunk->count, &weight));
    TSR__TRY(multiply(run, sum2, x2, up2, weight, NULL));
    return tsr__adapter_terms_add(&run->row->linear, run->temps, &run->adapters,
                                  run->by_rows ? chunk->first : 0, run->by_rows ? 0 : chunk->first,
                                  tsr_tensor_layout(sum2)->shape[1], sum2);
}

/* Sets the view of y, and the tensor that is reduced, of a chunk that is a range of rows. */
static tsr_status place_rows(reduced_run *run, overlap_chunk *chunk)
{
    tsr_tensor *y2;
    TSR__TRY(tsr__temp_flatten(run->temps, run->product->y, &y2));
    TSR__TRY(tsr__temp_slice(run->temps, y2, 0, chunk->first, chunk->count, &chunk->y));
    const tsr_layout *layout = tsr_tensor_layout(chunk->y);
    if (layout->dtype == run->dtype) {
        chunk->sum = chunk->y;
        return TSR_OK;
    }
    return tsr__temp_new(run->temps, run->dtype, 2, layout->shape, &chunk->sum);
}

/* Sets the view of y, and the tensor that is reduced, of a chunk that is a range of columns. */
static tsr_status place_columns(reduced_run *run, overlap_chunk *chunk)
{
    const tsr__reduced_product *product = run->product;
    tsr_layout sum = *product->whole;
    sum.shape[sum.ndim - 1] = chunk->count;
    if (run->count > 1) {
        TSR__TRY(
            tsr__temp_slice(run->temps, product->y, -1, chunk->first, chunk->count, &chunk->y));
        return tsr__temp_new(run->temps, run->dtype, sum.ndim, sum.shape, &chunk->sum);
    }
    chunk->y = product->y;
    if (product->dim < 0 && tsr_tensor_layout(product->y)->dtype == run->dtype) {
        chunk->sum = product->y;
        return TSR_OK;
    }
    return tsr__temp_new(run->temps, run->dtype, sum.ndim, sum.shape, &chunk->sum);
}

static tsr_status start_reducing(reduced_run *run, overlap_chunk *chunk)
{
    const tsr__reduced_product *product = run->product;
    tsr_group *group = run->row->linear.base.group;
    if (product->dim < 0)
        return tsr_group_all_reduce(group, chunk->sum, TSR_OP_SUM,
                                    tsr_collective_params(.wire = tsr__group_wire(group)),
                                    &chunk->request);
    const tsr_layout *y = tsr_tensor_layout(chunk->y);
    tsr_tensor *mine;
    TSR__TRY(tsr__temp_new(run->temps, run->dtype, y->ndim, y->shape, &mine));
    TSR__TRY(tsr_group_reduce_scatter(
        group, mine, chunk->sum, product->dim, TSR_OP_SUM,
        tsr_collective_params(.wire = tsr__group_wire(group), .sizes = product->sizes),
        &chunk->request));
    chunk->sum = mine;
    return TSR_OK;
}

/* Waits until a chunk has been reduced, and computes y = sum + bias. */
static tsr_status finish_chunk(reduced_run *run, overlap_chunk *chunk)
{
    tsr_stream *stream = run->row->linear.base.stream;
    const tsr_tensor *bias = run->product->bias;
    TSR__TRY(tsr_request_wait(&chunk->request));
    if (!bias)
        return chunk->y == chunk->sum ? TSR_OK : tsr_copy(stream, chunk->y, chunk->sum);
    tsr_tensor *range;
    if (!run->by_rows && run->count > 1) {
        TSR__TRY(tsr__temp_slice(run->temps, bias, 0, chunk->first, chunk->count, &range));
        bias = range;
    }
    return tsr_binary(stream, chunk->y, chunk->sum, bias, TSR_BINARY_ADD);
}

static tsr_status run_chunks(reduced_run *run)
{
    const int64_t size = run->by_rows ? rows_of(run->product->x2)
                                      : tsr_tensor_layout(run->product->weight)->shape[0];
    for (int i = 0; i < run->count; i++) {
        overlap_chunk *chunk = &run->chunk[i];
        chunk->first = size / run->count * i + size % run->count * i / run->count;
        int64_t end = size / run->count * (i + 1) + size % run->count * (i + 1) / run->count;
        chunk->count = end - chunk->first;
        TSR__TRY(run->by_rows ? place_rows(run, chunk) : place_columns(run, chunk));
        TSR__TRY(compute_chunk(run, chunk));
        TSR__TRY(start_reducing(run, chunk));
    }
    for (int i = 0; i < run->count; i++)
        TSR__TRY(finish_chunk(run, &run->chunk[i]));
    return TSR_OK;
}

static tsr_status add_to_y(const reduced_run *run, const tsr_tensor *added)
{
    tsr_tensor *y = run->product->y;
    return added ? tsr_binary(run->row->linear.base.stream, y, y, added, TSR_BINARY_ADD) : TSR_OK;
}

/* Computes the product in a group of one rank. There is nothing to sum, so the product adds the
 * bias and `added`, if a kernel can add both, otherwise the bias or, if there is none, `added`. */
static tsr_status multiply_one_rank(reduced_run *run)
{
    const tsr__reduced_product *product = run->product;
    const tsr_tensor *bias = product->bias, *added = product->added;
    const tsr_group *group = run->row->linear.base.group;
    tsr_tensor *y2, *added2 = NULL;
    bool recorded = false;
    TSR__TRY(tsr__temp_flatten(run->temps, product->y, &y2));
    if (added)
        TSR__TRY(tsr__temp_flatten(run->temps, added, &added2));
    if (added && !bias) {
        bias = added2;
        added = NULL;
    } else if (added && !product->up2) {
        TSR__TRY(tsr__matmul_fused(
            run->row->linear.base.stream, y2, product->x2, product->weight,
            &(tsr__matmul_fusion){.bias = bias,
                                  .added = added2,
                                  .precision = tsr__group_precision(group, product->weight)},
            &recorded));
    }
    if (recorded)
        return TSR_OK;
    TSR__TRY(multiply(run, y2, product->x2, product->up2, product->weight, bias));
    TSR__TRY(tsr__adapter_terms_add(&run->row->linear, run->temps, &run->adapters, 0, 0,
                                    run->row->linear.output_size, y2));
    return add_to_y(run, added);
}

static tsr_status multiply_ranks(reduced_run *all)
{
    reduced_run run = *all;
    const tsr__reduced_product *product = run.product;
    const tsr__linear *linear = &run.row->linear;
    run.dtype = linear->reduce_f32 ? TSR_F32 : tsr_tensor_layout(product->y)->dtype;
    /* If rows have different adapters, one product adds these to all rows.
     * If y is divided along its columns, a range of columns could belong to other ranks, so the
     * product is not divided into chunks. */
    const bool features_divided = product->dim == product->whole->ndim - 1 ||
                                  (run.adapters.count > 0 && run.adapters.term->ids);
    int64_t m = rows_of(product->x2), n = tsr_tensor_layout(product->weight)->shape[0];
    uint64_t size_bytes = (uint64_t)tsr_layout_count(product->whole) * tsr_dtype_size(run.dtype);
    run.count = features_divided
                    ? 1
                    : count_chunks(run.row, m, n, size_bytes, product->dim < 0, &run.by_rows);
    /* Chunks of columns have the same rows, which are then activated once for all of them. */
    tsr__reduced_product activated = *product;
    if (product->up2 && run.count > 1 && !run.by_rows) {
        TSR__TRY(apply_gate(&run, product->x2, product->up2, &activated.x2));
        activated.up2 = NULL;
        run.product = &activated;
    }
    tsr_status status = run_chunks(&run);
    for (int i = 0; i < run.count; i++)
        tsr_request_cancel(&run.chunk[i].request);
    return status == TSR_OK ? add_to_y(&run, product->added) : status;
}

tsr_status tsr__product_reduced(const tsr__row_linear *row, tsr__temps *temps,
                                const tsr__reduced_product *product)
{
    reduced_run run = {.row = row, .temps = temps, .product = product};
    tsr__reduced_product activated = *product;
    if (product->up2 && tsr__layer_is_adapted(&row->linear.base)) { /* adapters read x, too */
        TSR__TRY(apply_gate(&run, product->x2, product->up2, &activated.x2));
        activated.up2 = NULL;
        run.product = product = &activated;
    }
    tsr_status status = tsr__adapter_terms_find(&row->linear, temps, product->x2, &run.adapters);
    if (status == TSR_OK)
        status = row->linear.base.size == 1 ? multiply_one_rank(&run) : multiply_ranks(&run);
    tsr__free(run.adapters.term);
    return status;
}
